//! A connection with tubes of its own, pipelining or not. Since no other connection uses them, each reply can be predicted, and also what
//! exists after a kill: the result of all commands that are on disk, followed by some of the further commands, in order.

use crate::beanstalk::{Client, Reply};
use crate::chance::Chance;
use crate::queues::tubes::{Command, Job, State, TUBES, Tubes, is_kept, timeless};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of a program that has just started.
#[derive(Default)]
pub(crate) struct InitialState {
    pub(crate) jobs: BTreeMap<u64, Job>,
    /// Tubes that are paused.
    pub(crate) paused: BTreeSet<String>,
}

/// The maximum number of commands in a batch.
const BURST_MAX: u64 = 24;

/// With more jobs than this, an owner deletes jobs rather than putting more.
const JOBS: usize = 40;

/// The number of different delays: a prime, so that they are spread.
const DELAYS: u64 = 4001;

/// A client.
pub(crate) struct Owner {
    number: u64,
    chance: Chance,
    /// The state after everything that was answered.
    tubes: Tubes,
    /// The state that is certainly on disk, up to the last answer that implies a sync.
    kept: Tubes,
    /// Commands answered since then, whose effects a kill may undo.
    passing: Vec<Command>,
    /// Commands that were sent and not answered.
    open: Vec<Command>,
    bodies: u64,
    delays: u64,
    /// The job that this client deleted last.
    gone: u64,
}

impl Owner {
    pub(crate) fn new(number: u64, seed: u64) -> Self {
        Self {
            number,
            chance: Chance::new(seed ^ (number << 32)),
            tubes: Tubes::of(number),
            kept: Tubes::of(number),
            passing: Vec::new(),
            open: Vec::new(),
            bodies: 0,
            delays: 0,
            gone: u64::MAX,
        }
    }

    /// Works until the connection breaks, counting answers. `inserted` is called with the id of each new job.
    pub(crate) fn work(
        &mut self,
        address: SocketAddr,
        answered: &AtomicU64,
        inserted: &dyn Fn(u64),
    ) {
        assert!(self.open.is_empty(), "the last crash was compared");
        let Ok(mut client) = Client::connect(address) else {
            return;
        };
        let mut going = self.greet(&mut client);
        while going.is_ok() {
            going = self.burst(&mut client, answered, inserted);
        }
    }

    /// Returns the names of this client's tubes.
    pub(crate) fn tubes(&self) -> [String; TUBES] {
        self.tubes.names()
    }

    /// Switches the connection to this client's tubes.
    fn greet(&self, client: &mut Client) -> io::Result<()> {
        let [first, ..] = self.tubes.names();
        expect(client, &format!("use {first}"), &format!("USING {first}"))?;
        for (name, count) in self.tubes.names().iter().zip(2..) {
            expect(client, &format!("watch {name}"), &format!("WATCHING {count}"))?;
        }
        expect(client, "ignore default", &format!("WATCHING {TUBES}"))
    }

    /// Sends a few commands in one write, and receives their replies one by one.
    fn burst(
        &mut self,
        client: &mut Client,
        answered: &AtomicU64,
        inserted: &dyn Fn(u64),
    ) -> io::Result<()> {
        let pipelines = self.number.is_multiple_of(2);
        let count = if pipelines {
            1 + self.chance.below(BURST_MAX).min(self.chance.below(BURST_MAX))
        } else {
            1
        };
        self.open = (0..count).map(|_| self.choose()).collect();
        let bytes = self.open.iter().flat_map(|command| self.tubes.bytes(command));
        let bytes: Vec<u8> = bytes.collect();
        client.send(&bytes)?;
        while let Some(command) = self.open.first().cloned() {
            let reply = timeless(client.receive()?);
            let id = reply.number("INSERTED").unwrap_or_default();
            if id > 0 {
                inserted(id);
            }
            let expected = self.tubes.apply(&command, id);
            assert_eq!(reply, expected, "owner {}: {command:?} with {:?}", self.number, self.tubes);
            self.open.remove(0);
            if let (Command::Delete(id), "DELETED") = (&command, reply.line.as_str()) {
                self.gone = *id;
            }
            if is_kept(&reply) {
                self.kept.clone_from(&self.tubes);
                self.passing.clear();
            } else {
                self.passing.push(command);
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn choose(&mut self) -> Command {
        let tube = usize::try_from(self.chance.below(TUBES as u64)).expect("a small number");
        let priority = [0, 1, 1, 5, 2000, u32::MAX];
        let place = usize::try_from(self.chance.below(priority.len() as u64));
        let priority = *priority.get(place.expect("a small number")).expect("within it");
        let crowded = self.tubes.jobs.len() > JOBS;
        match self.chance.below(100) {
            0..=3 => Command::Use(tube),
            4..=27 if !crowded => Command::Put { priority, delay: self.delay(), body: self.body() },
            4..=35 if crowded => Command::Delete(self.any()),
            28 => Command::Spoil,
            29..=52 => Command::Reserve,
            53..=56 => Command::ReserveJob(self.any()),
            57..=63 => Command::Delete(self.any()),
            64..=73 => Command::Release { id: self.any(), priority, delay: self.delay() },
            74..=83 => Command::Bury { id: self.any(), priority },
            84..=86 => Command::Touch(self.any()),
            87..=89 => Command::Kick(self.chance.below(5)),
            90 | 91 => Command::KickJob(self.any()),
            92 => Command::Pause { tube, pauses: self.chance.below(3) == 0 },
            93 | 94 => Command::Peek(self.any()),
            95 => Command::PeekBuried,
            _ => Command::Stats(self.any()),
        }
    }

    /// Returns the id of a job that exists, often a reserved one, or of the job deleted last.
    fn any(&mut self) -> u64 {
        let known = self.tubes.jobs.keys();
        let count = known.len() as u64;
        let place = usize::try_from(self.chance.below(count + 1)).expect("a small number");
        // Most commands are about reserved jobs.
        let reserved = self.tubes.jobs.iter();
        let mut reserved = reserved.filter(|(_, job)| job.state == State::Reserved);
        if self.chance.below(2) == 0
            && let Some((id, _)) = reserved.next()
        {
            return *id;
        }
        self.tubes.jobs.keys().nth(place).copied().unwrap_or(self.gone)
    }

    /// Returns a delay: mostly none, otherwise a number that no other job of this owner has.
    fn delay(&mut self) -> u64 {
        if self.chance.below(3) > 0 {
            return 0;
        }
        self.delays = (self.delays + 1619) % DELAYS;
        self.delays.max(1)
    }

    /// Returns a unique body, sometimes one too large to share a page of a snapshot with others.
    fn body(&mut self) -> Vec<u8> {
        self.bodies += 1;
        let mut body = format!("{} {} ", self.number, self.bodies).into_bytes();
        let longest = if self.chance.below(8) == 0 { 6000 } else { 60 };
        for _ in 0..self.chance.below(longest) {
            body.push(u8::try_from(self.chance.below(256)).expect("it is a byte"));
        }
        body
    }

    /// Compares the expected state with the one after a kill: the state that was on disk, followed by as many of the further commands, in
    /// order, as the server had processed.
    pub(crate) fn reckon(&mut self, found: &InitialState) {
        let names = self.tubes.names();
        let mine = found.jobs.iter().filter(|(_, job)| names.contains(&job.tube));
        let mine: BTreeMap<u64, Job> = mine.map(|(id, job)| (*id, job.clone())).collect();
        let mut now = self.kept.clone();
        let behind: Vec<Command> = self.passing.drain(..).chain(self.open.drain(..)).collect();
        let mut rest = behind.iter();
        loop {
            let mut started = now.clone();
            started.start();
            let paused = |(tube, name)| started.is_paused(tube) == found.paused.contains(name);
            if started.jobs == mine && (0..).zip(&names).all(paused) {
                self.kept.clone_from(&started);
                self.tubes = started;
                return;
            }
            let next = rest.next();
            let applied = next.and_then(|command| Some((command, id_of(command, &mine)?)));
            let Some((command, id)) = applied else {
                panic!(
                    "owner {}: there is {mine:?}, which nothing of {behind:?} makes of {:?}",
                    self.number, self.kept
                );
            };
            now.apply(command, id);
        }
    }

    /// Checks which job of each of its tubes was buried first.
    pub(crate) fn compare(&self, client: &mut Client) {
        for (tube, name) in self.tubes.names().iter().enumerate() {
            expect(client, &format!("use {name}"), &format!("USING {name}")).expect("a reply");
            let first = client.ask("peek-buried").expect("a reply");
            assert_eq!(first.number("FOUND"), self.tubes.buried(tube).first().copied(), "{name}");
        }
    }

    /// Kicks all buried jobs, one by one, and checks that they are kicked in the order in which they were buried.
    pub(crate) fn compare_order(&self, client: &mut Client) {
        for (tube, name) in self.tubes.names().iter().enumerate() {
            expect(client, &format!("use {name}"), &format!("USING {name}")).expect("a reply");
            for id in self.tubes.buried(tube) {
                let first = client.ask("peek-buried").expect("a reply");
                assert_eq!(first.number("FOUND"), Some(id), "{name}");
                expect(client, "kick 1", "KICKED 1").expect("a reply");
            }
            expect(client, "peek-buried", "NOT_FOUND").expect("a reply");
        }
    }
}

/// Returns the id for applying a command: for a put, that of the job with its body, or `None` if no such job exists; for other commands,
/// which need none, 0.
fn id_of(command: &Command, found: &BTreeMap<u64, Job>) -> Option<u64> {
    let Command::Put { body, .. } = command else {
        return Some(0);
    };
    let same = found.iter().find(|(_, job)| job.body == *body);
    same.map(|(id, _)| *id)
}

/// Sends a command that must have this reply.
pub(crate) fn expect(client: &mut Client, command: &str, expected: &str) -> io::Result<()> {
    let reply = client.ask(command)?;
    assert_eq!(reply, Reply::line(expected), "{command}");
    Ok(())
}
