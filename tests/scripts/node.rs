//! A node with one actor, controlled by a script.
//!
//! It consists of the real parts: ledger, host, journal files and recovery. They are driven step by step, with a clock
//! that moves only on request. [`Node::around`] executes the commands about the actor's environment; the actor's own
//! commands are in its [`Vocabulary`].

use crate::dialogue::Listener;
use sexton::clock::{Clock, ManualClock, Timestamp};
use sexton::ids::Chance;
use sexton::ids::{Digest, Seq, Ticket};
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::format::Kind;
use sexton::persist::journal::{InlineFiller, Reader, Room, Sizes, Tail, Writer};
use sexton::spine::delivery::Stage;
use sexton::spine::delivery::{Answer, Authority, Delivery, Flow, Item, Wait};
use sexton::spine::effect::Action;
use sexton::spine::host::Host;
use sexton::spine::ledger::Ledger;
use sexton::spine::machine::{Actor, Machine, Observable as _, Paged as _, Stamp};
use sexton::spine::port::Port;
use sexton::spine::recovery::{Recovering as _, Replica, Scope, recover};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// The time at which every script begins.
const BEGIN: Timestamp = Timestamp(1_000_000_000_000);

const SIZES: Sizes = Sizes { first_bytes: 64 << 10, max_bytes: 64 << 10 };

pub(crate) type Parsed<T> = Result<T, String>;

/// The answers to a delivery.
type Answers<M> = Vec<Answer<<M as Machine>::Reply>>;

/// The script commands of an actor, and the texts of its output.
pub(crate) trait Vocabulary: Default + 'static {
    type Machine: Actor;

    /// Returns the rules that apply unless a script changes them.
    fn rules() -> <Self::Machine as Machine>::Rules;
    /// Applies a command that changes the rules.
    fn rule(rules: &mut <Self::Machine as Machine>::Rules, words: &[&str]) -> Parsed<()>;
    /// Parses a command for the actor. Returns `None` for other commands.
    fn item(&self, words: &[&str]) -> Parsed<Option<Item<Self::Machine>>>;
    /// Parses a wait. Returns its name and its condition, or `None` for other commands.
    fn watch(&self, words: &[&str]) -> Parsed<Option<(String, <Self::Machine as Machine>::Watch)>>;
    /// Returns the text of an answer.
    fn told(&self, reply: &<Self::Machine as Machine>::Reply) -> Vec<String>;
    /// Returns the text of an action.
    fn action(what: &<Self::Machine as Machine>::Action) -> String {
        format!("{what:?}")
    }
    /// Returns the text of the answer to a wait.
    fn woken(name: &str, reply: &<Self::Machine as Machine>::Reply) -> String;
    /// Applies an entry. Returns a description of its effect if the entry was caused by time.
    fn note(
        &mut self,
        entry: Stamp,
        message: &<Self::Machine as Machine>::Message,
        outcome: &<Self::Machine as Machine>::Outcome,
    ) -> Option<String>;
}

/// A node that a script controls. It is opened at the first command that needs it, so that a script can set rules before.
pub(crate) struct Node<T: Vocabulary> {
    rules: <T::Machine as Machine>::Rules,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
    running: Option<Running<T::Machine>>,
    /// The stage at which the next message panics.
    armed: Arc<Mutex<Option<Stage>>>,
    tongue: T,
    /// The last entry that the vocabulary has seen.
    seen: Seq,
    tickets: BTreeMap<String, Ticket>,
    given: u64,
    /// Answers to waits, and requested actions, that have not been output yet.
    woken: Arc<Mutex<Vec<String>>>,
}

struct Running<M: Actor> {
    disk: Arc<RealDisk>,
    ledger: Ledger,
    writer: Writer,
    host: Host<M>,
}

impl<T: Vocabulary> Listener for Node<T> {
    fn receive(&mut self, said: &[&str]) -> Vec<String> {
        match self.answer(said) {
            Ok(back) => back,
            Err(problem) => vec![format!("?? {problem}")],
        }
    }
}

impl<T: Vocabulary> Node<T> {
    pub(crate) fn new() -> Self {
        Self {
            rules: T::rules(),
            clock: Arc::new(ManualClock::at(BEGIN)),
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
            running: None,
            armed: Arc::default(),
            tongue: T::default(),
            seen: Seq(0),
            tickets: BTreeMap::new(),
            given: 0,
            woken: Arc::default(),
        }
    }

    fn answer(&mut self, said: &[&str]) -> Parsed<Vec<String>> {
        let mut items = Vec::new();
        let mut back = Vec::new();
        let mut authority = Authority::Full;
        for line in said {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            // A block with this word is sent by a client that may neither start nor end processes.
            if words.first() == Some(&"limited") {
                authority = Authority::Limited;
                words.remove(0);
            }
            match self.tongue.item(&words)? {
                Some(item) => items.push(item),
                None if items.is_empty() => back.extend(self.around(&words)?),
                None => return Err(format!("`{line}` is not for the actor: give it a block")),
            }
        }
        if !items.is_empty() {
            back.extend(self.deliver_as(authority, items)?);
        }
        Ok(back)
    }

    /// Sets the wall clock to this offset from node time, and lets the node check the clock.
    fn set_wall_clock(&mut self, offset: &str) -> Parsed<Vec<String>> {
        let (sign, span) = match (offset.strip_prefix('+'), offset.strip_prefix('-')) {
            (Some(span), _) => (1, span),
            (None, Some(span)) => (-1, span),
            (None, None) => return Err(format!("`{offset}` is ahead or behind: say +5s")),
        };
        let ms = i64::try_from(milliseconds(span)?).map_err(|error| error.to_string())?;
        self.clock.set_offset_ms(sign * ms);
        self.running()?.ledger.watch_wall_clock();
        self.deliver(Vec::new())
    }

    /// Executes a command about the actor's environment.
    fn around(&mut self, words: &[&str]) -> Parsed<Vec<String>> {
        if let Some((name, watch)) = self.tongue.watch(words)? {
            return self.watch(&name, watch);
        }
        match words {
            ["rules", rest @ ..] => T::rule(&mut self.rules, rest).map(|()| Vec::new()),
            ["advance", span] => {
                self.clock.advance_ms(milliseconds(span)?);
                Ok(Vec::new())
            }
            ["wall", offset] => self.set_wall_clock(offset),
            ["view"] => {
                let view = self.running()?.host.machine().view();
                Ok(vec![crate::json::written(&view)])
            }
            // This is the same as when the timer fires.
            ["tick"] => self.deliver(Vec::new()),
            ["panic", stage] => {
                let stage = match *stage {
                    "decide" => Stage::Decide,
                    "commit" => Stage::Commit,
                    "tick" => Stage::Tick,
                    other => return Err(format!("nothing panics in `{other}`")),
                };
                *self.armed.lock().expect("no panic while armed") = Some(stage);
                Ok(Vec::new())
            }
            ["disk", room] => {
                let room = match *room {
                    "ample" => Room::Ample,
                    "low" => Room::Low,
                    "scant" => Room::Scant,
                    other => return Err(format!("a disk is never `{other}`")),
                };
                self.running()?.ledger.set_room(room);
                Ok(Vec::new())
            }
            ["unwatch", name] => {
                let ticket = self.tickets.remove(*name).ok_or("nobody of that name waits")?;
                let running = self.running()?;
                running.host.unwatch(&mut running.ledger, ticket);
                Ok(Vec::new())
            }
            ["restart"] => self.start_again(true),
            ["crash"] => self.start_again(false),
            ["digest"] => {
                let digest = self.running()?.host.machine().digest();
                Ok(vec![digest.to_string()])
            }
            ["quarantined"] => {
                let reports = self.running()?.host.quarantined();
                let say = |report: &sexton::spine::delivery::Report| {
                    format!("slot {} since entry {}", report.item.unwrap_or(0), report.seq)
                };
                Ok(reports.iter().map(say).collect())
            }
            ["log"] => self.log(),
            _ => Err(format!("nobody here knows `{}`", words.join(" "))),
        }
    }

    fn running(&mut self) -> Parsed<&mut Running<T::Machine>> {
        if self.running.is_none() {
            self.begin()?;
        }
        self.running.as_mut().ok_or_else(|| "the node does not run".to_owned())
    }

    /// Opens the data directory, as startup does. Returns the end of the log, and the digest before spans begin again.
    fn begin(&mut self) -> Parsed<(Tail, Digest)> {
        let disk = Arc::new(RealDisk::new(self.folder.path()));
        let mut replica = Replica::<T::Machine>::new(self.rules.clone());
        let past = recover(disk.as_ref(), None, &mut [&mut replica], Scope::default())
            .map_err(|error| error.to_string())?;
        let (marked, tail) = (past.marked, past.tail);
        let digest = replica.digest();
        let filler = Box::new(InlineFiller::new(Arc::clone(&disk) as Arc<dyn Disk>));
        let writer = Writer::open(Arc::clone(&disk) as Arc<dyn Disk>, SIZES, filler, &tail)
            .map_err(|error| error.to_string())?;
        let mut ledger =
            Ledger::new(Arc::clone(&self.clock) as Arc<dyn Clock>, &tail, marked, false);
        let mut host = Host::new(replica.into_parts());
        let stamp = ledger.start(Chance([0; 32]));
        host.outbox().set_port(Box::new(RecordingPort::<T>(Arc::clone(&self.woken), PhantomData)));
        host.start(stamp)?;
        let armed = Arc::clone(&self.armed);
        host.inject_panics(Box::new(move |stage, _| {
            let mut armed = armed.lock().expect("no panic while armed");
            let hit = armed.take_if(|planted| *planted == stage).is_some();
            drop(armed);
            assert!(!hit, "planted");
        }));
        let mut running = Running { disk, ledger, writer, host };
        running.write();
        self.running = Some(running);
        Ok((tail, digest))
    }

    fn start_again(&mut self, clean: bool) -> Parsed<Vec<String>> {
        let running = self.running()?;
        if clean {
            running.ledger.stop();
            running.write();
        }
        let before = running.host.machine().digest();
        self.running = None;
        self.tickets.clear();
        let (tail, digest) = self.begin()?;
        assert!(tail.cut.is_none() && tail.clean == clean, "{tail:?}");
        assert!(digest == before, "the log tells the state as it was");
        let begun = self.running()?.ledger.last();
        Ok(vec![format!("began again with entry {begun}")])
    }

    fn watch(&mut self, name: &str, watch: <T::Machine as Machine>::Watch) -> Parsed<Vec<String>> {
        let ticket = Ticket(self.given + 1);
        self.given += 1;
        self.tickets.insert(name.to_owned(), ticket);
        let woken = Arc::clone(&self.woken);
        let owned = name.to_owned();
        let running = self.running()?;
        let reply_to = move |answers: Answers<T::Machine>| {
            let told = answers.iter().flatten().map(|reply| T::woken(&owned, reply));
            woken.lock().expect("a wake does not panic").extend(told);
        };
        let ledger = &mut running.ledger;
        running.host.watch(ledger, ticket, Wait::new(watch, Box::new(reply_to)));
        running.write();
        Ok(self.wakes())
    }

    /// Delivers items, and rebuilds the machine from the log if it is spent, as the Supervisor would order. Returns the
    /// output.
    fn deliver(&mut self, items: Vec<Item<T::Machine>>) -> Parsed<Vec<String>> {
        self.deliver_as(Authority::Full, items)
    }

    /// Like [`Self::deliver`], from a sender with this authority.
    fn deliver_as(
        &mut self,
        authority: Authority,
        items: Vec<Item<T::Machine>>,
    ) -> Parsed<Vec<String>> {
        let rules = self.rules.clone();
        let running = self.running()?;
        let answers: Arc<Mutex<Answers<T::Machine>>> = Arc::default();
        let theirs = Arc::clone(&answers);
        let reply_to = Box::new(move |answers| {
            *theirs.lock().expect("an answer does not panic") = answers;
        });
        let delivery = Delivery { authority, ..Delivery::new(items, reply_to) };
        let mut panics = Vec::new();
        let mut flow = running.host.deliver(&mut running.ledger, delivery);
        loop {
            running.write();
            match flow {
                Flow::Done if running.host.has_parked() => {
                    flow = running.host.carry_on(&mut running.ledger);
                    continue;
                }
                Flow::Done => break,
                Flow::Yield => {}
                Flow::Panicked(report) => {
                    let words = format!("panic in {:?}", report.stage).to_lowercase();
                    panics.push(format!("{words}, entry {}: {}", report.seq, report.cause));
                    if running.host.is_spent() {
                        let mut replica = Replica::<T::Machine>::new(rules.clone());
                        recover(running.disk.as_ref(), None, &mut [&mut replica], Scope::default())
                            .map_err(|error| error.to_string())?;
                        panics.push("rebuilt from the log".to_owned());
                        let rebuilt = replica.into_parts();
                        flow = running.host.rebuilt(&mut running.ledger, rebuilt);
                        continue;
                    }
                }
            }
            flow = running.host.proceed(&mut running.ledger);
        }
        let answers = std::mem::take(&mut *answers.lock().expect("an answer does not panic"));
        let mut back = self.ticks()?;
        back.extend(panics);
        for answer in answers {
            match answer {
                Ok(reply) => back.extend(self.tongue.told(&reply)),
                Err(failed) => back.push(failed.to_string()),
            }
        }
        back.extend(self.wakes());
        Ok(back)
    }

    /// Returns descriptions of what time has caused since the last command, according to the journal.
    fn ticks(&mut self) -> Parsed<Vec<String>> {
        let disk = RealDisk::new(self.folder.path());
        let mut reader = Reader::open(&disk).map_err(|error| error.to_string())?;
        let mut told = Vec::new();
        while let Some(record) = reader.next().map_err(|error| error.to_string())? {
            if record.seq <= self.seen || record.kind != Kind::Entry {
                continue;
            }
            self.seen = record.seq;
            let decoded = Replica::<T::Machine>::decode(&record);
            let decoded = decoded.map_err(|error| error.to_string())?;
            let entry = Stamp { seq: record.seq, at: record.at };
            if let Some(what) = self.tongue.note(entry, &decoded.message, &decoded.outcome) {
                let at = moment(record.at);
                told.push(format!("[entry {} at {at}: {what}]", record.seq));
            }
        }
        Ok(told)
    }

    /// Returns the whole log, with one line per record.
    fn log(&mut self) -> Parsed<Vec<String>> {
        self.running()?;
        let disk = RealDisk::new(self.folder.path());
        let mut reader = Reader::open(&disk).map_err(|error| error.to_string())?;
        let mut lines = Vec::new();
        while let Some(record) = reader.next().map_err(|error| error.to_string())? {
            let kind = format!("{:?}", record.kind).to_lowercase();
            lines.push(format!("{} at {} {kind}", record.seq, moment(record.at)));
        }
        Ok(lines)
    }

    fn wakes(&self) -> Vec<String> {
        let mut woken = self.woken.lock().expect("a wake does not panic");
        std::mem::take(&mut *woken)
    }
}

/// A port that outputs the actions that are requested from it, and performs none.
struct RecordingPort<T>(Arc<Mutex<Vec<String>>>, PhantomData<fn(T)>);

impl<T: Vocabulary> Port<T::Machine> for RecordingPort<T> {
    fn perform(&mut self, Action { id, attempt, what }: Action<<T::Machine as Machine>::Action>) {
        let what = T::action(&what);
        let words = format!("action {id} by entry {attempt}: {what}");
        self.0.lock().expect("nobody panics here").push(words);
    }
}

impl<M: Actor> Running<M> {
    /// Writes and syncs the batch, and releases the answers that depend on it, in place of the journal thread.
    fn write(&mut self) {
        let mut batch = self.ledger.take_batch();
        self.writer.write(&mut batch).expect("the disk takes what is written");
        self.writer.sync().expect("the disk syncs");
        self.ledger.durable(self.writer.last());
        self.host.outbox().release(self.writer.last());
    }
}

/// The words of a command in order, and its known options.
pub(crate) type Split<'w> = (Vec<&'w str>, BTreeMap<&'w str, &'w str>);

pub(crate) fn split<'w>(words: &[&'w str], known: &[&str]) -> Split<'w> {
    let mut places = Vec::new();
    let mut options = BTreeMap::new();
    for word in words {
        match word.split_once('=') {
            Some((option, value)) if known.contains(&option) => {
                options.insert(option, value);
            }
            _ => places.push(*word),
        }
    }
    (places, options)
}

pub(crate) fn number<T: std::str::FromStr>(
    options: &BTreeMap<&str, &str>,
    option: &str,
    otherwise: T,
) -> Parsed<T> {
    match options.get(option) {
        None => Ok(otherwise),
        Some(value) => value.parse().map_err(|_| format!("`{option}={value}` is no such number")),
    }
}

/// Returns the time since the beginning of the script, as text.
pub(crate) fn moment(at: Timestamp) -> String {
    let since = at.since(BEGIN).as_millis();
    match since % 1000 {
        0 => format!("{}s", since / 1000),
        rest => format!("{}.{rest:03}s", since / 1000),
    }
}

pub(crate) fn milliseconds(span: &str) -> Parsed<u64> {
    let (digits, factor) = match (span.strip_suffix("ms"), span.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 1000),
        (None, None) => return Err(format!("`{span}` of what? say 5s or 5ms")),
    };
    let count: u64 = digits.parse().map_err(|_| format!("`{span}` is no span"))?;
    Ok(count * factor)
}
