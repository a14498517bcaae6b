//! A model of the tubes of one connection, which no other connection uses: the reply to each command according to beanstalkd's protocol,
//! and its effect on the jobs. It consists of a few maps, which are searched linearly.

#![expect(clippy::wildcard_enum_match_arm, reason = "each rule names its messages")]

use crate::beanstalk::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// How many tubes an owner has.
pub(crate) const TUBES: usize = 3;

/// A time in seconds, long enough that nothing expires while a test runs.
pub(crate) const FOR_EVER_S: u64 = 1_000_000;

/// The commands of an owner. Delays are multiples of [`FOR_EVER_S`], so that none ends during a test, and their order is that of the times
/// at which they end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Use(usize),
    Put {
        priority: u32,
        delay: u64,
        body: Vec<u8>,
    },
    /// A put whose body lacks its line end. The id of that job is skipped.
    Spoil,
    Reserve,
    ReserveJob(u64),
    Delete(u64),
    Release {
        id: u64,
        priority: u32,
        delay: u64,
    },
    Bury {
        id: u64,
        priority: u32,
    },
    Touch(u64),
    Kick(u64),
    KickJob(u64),
    Pause {
        tube: usize,
        pauses: bool,
    },
    Peek(u64),
    PeekBuried,
    Stats(u64),
}

/// A job, with everything that the protocol shows of it and that does not depend on the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) tube: String,
    pub(crate) state: State,
    pub(crate) priority: u64,
    pub(crate) delay_s: u64,
    pub(crate) reserves: u64,
    pub(crate) timeouts: u64,
    pub(crate) releases: u64,
    pub(crate) buries: u64,
    pub(crate) kicks: u64,
    pub(crate) body: Vec<u8>,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Delayed,
    Reserved,
    Buried,
}

impl State {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Reserved => "reserved",
            Self::Buried => "buried",
        }
    }
}

/// The expected state of one owner's tubes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tubes {
    owner: u64,
    using: usize,
    pub(crate) jobs: BTreeMap<u64, Job>,
    /// Buried jobs, in the order in which they were buried.
    buried: Vec<u64>,
    paused: BTreeSet<usize>,
}

impl Tubes {
    pub(crate) fn of(owner: u64) -> Self {
        Self { owner, ..Self::default() }
    }

    pub(crate) fn name(&self, tube: usize) -> String {
        format!("of-{}-{tube}", self.owner)
    }

    pub(crate) fn names(&self) -> [String; TUBES] {
        std::array::from_fn(|tube| self.name(tube))
    }

    pub(crate) fn is_paused(&self, tube: usize) -> bool {
        self.paused.contains(&tube)
    }

    /// Returns the buried jobs of a tube, in the order in which they were buried.
    pub(crate) fn buried(&self, tube: usize) -> Vec<u64> {
        let name = self.name(tube);
        let buried = self.buried.iter().copied();
        buried.filter(|id| self.job(*id).tube == name).collect()
    }

    fn job(&self, id: u64) -> &Job {
        self.jobs.get(&id).expect("it was just found")
    }

    /// Applies a restart of the server: the connection is new, and reserved jobs are ready again.
    pub(crate) fn start(&mut self) {
        self.using = 0;
        for job in self.jobs.values_mut() {
            if job.state == State::Reserved {
                job.state = State::Ready;
            }
        }
    }

    /// Returns the command as bytes.
    pub(crate) fn bytes(&self, command: &Command) -> Vec<u8> {
        let line = match command {
            Command::Use(tube) => format!("use {}", self.name(*tube)),
            Command::Put { priority, delay, body } => {
                let delay = delay * FOR_EVER_S;
                let head = format!("put {priority} {delay} {FOR_EVER_S} {}\r\n", body.len());
                return [head.as_bytes(), body, b"\r\n"].concat();
            }
            Command::Spoil => return format!("put 0 0 {FOR_EVER_S} 4\r\nspoilt").into(),
            Command::Reserve => "reserve-with-timeout 0".to_owned(),
            Command::ReserveJob(id) => format!("reserve-job {id}"),
            Command::Delete(id) => format!("delete {id}"),
            Command::Release { id, priority, delay } => {
                format!("release {id} {priority} {}", delay * FOR_EVER_S)
            }
            Command::Bury { id, priority } => format!("bury {id} {priority}"),
            Command::Touch(id) => format!("touch {id}"),
            Command::Kick(count) => format!("kick {count}"),
            Command::KickJob(id) => format!("kick-job {id}"),
            Command::Pause { tube, pauses } => {
                let seconds = u64::from(*pauses) * FOR_EVER_S;
                format!("pause-tube {} {seconds}", self.name(*tube))
            }
            Command::Peek(id) => format!("peek {id}"),
            Command::PeekBuried => "peek-buried".to_owned(),
            Command::Stats(id) => format!("stats-job {id}"),
        };
        format!("{line}\r\n").into()
    }

    /// Applies the command, and returns its reply. A new job gets the id `id`.
    pub(crate) fn apply(&mut self, command: &Command, id: u64) -> Reply {
        let name = self.name(self.using);
        match command {
            Command::Use(tube) => {
                self.using = *tube;
                Reply::line(format!("USING {}", self.name(*tube)))
            }
            Command::Put { priority, delay, body } => {
                self.put(id, (name, *priority, *delay), body);
                Reply::line(format!("INSERTED {id}"))
            }
            Command::Spoil => Reply::line("EXPECTED_CRLF"),
            Command::Reserve => match self.best() {
                Some(id) => self.reserve(id),
                None => Reply::line("TIMED_OUT"),
            },
            Command::ReserveJob(id) => match self.state(*id) {
                None | Some(State::Reserved) => absent(),
                Some(_) => self.reserve(*id),
            },
            Command::Delete(id) => {
                self.buried.retain(|other| other != id);
                self.jobs.remove(id).map_or_else(absent, |_| Reply::line("DELETED"))
            }
            Command::Peek(id) => self.found(Some(*id)),
            Command::PeekBuried => self.found(self.buried(self.using).first().copied()),
            Command::Stats(id) => match self.jobs.get(id) {
                Some(job) => Reply { line: "OK".to_owned(), body: job.statistics(*id).into() },
                None => absent(),
            },
            _ => self.put_aside(command),
        }
    }

    /// Applies commands that release, bury or kick jobs, or that pause tubes.
    fn put_aside(&mut self, command: &Command) -> Reply {
        let name = self.name(self.using);
        match command {
            Command::Release { id, priority, delay } => {
                self.with_reserved(*id, "RELEASED", |job| {
                    job.priority = u64::from(*priority);
                    job.delay_s = delay * FOR_EVER_S;
                    job.releases += 1;
                    job.state = delayed_or_ready(*delay);
                })
            }
            Command::Bury { id, priority } => {
                let reply = self.with_reserved(*id, "BURIED", |job| {
                    job.priority = u64::from(*priority);
                    job.buries += 1;
                    job.state = State::Buried;
                });
                if reply != absent() {
                    self.buried.push(*id);
                }
                reply
            }
            Command::Touch(id) => self.with_reserved(*id, "TOUCHED", |_| {}),
            Command::Kick(count) => {
                let kicked = self.line_to_kick(&name, *count);
                for id in &kicked {
                    self.kick(*id);
                }
                Reply::line(format!("KICKED {}", kicked.len()))
            }
            Command::KickJob(id) => match self.state(*id) {
                Some(State::Buried | State::Delayed) => {
                    self.kick(*id);
                    Reply::line("KICKED")
                }
                None | Some(State::Ready | State::Reserved) => absent(),
            },
            Command::Pause { tube, pauses } => {
                if *pauses {
                    self.paused.insert(*tube);
                } else {
                    self.paused.remove(tube);
                }
                Reply::line("PAUSED")
            }
            _ => unreachable!("{command:?} puts nothing aside"),
        }
    }

    fn put(&mut self, id: u64, (tube, priority, delay): (String, u32, u64), body: &[u8]) {
        let job = Job {
            tube,
            state: delayed_or_ready(delay),
            priority: priority.into(),
            delay_s: delay * FOR_EVER_S,
            reserves: 0,
            timeouts: 0,
            releases: 0,
            buries: 0,
            kicks: 0,
            body: body.to_vec(),
        };
        let before = self.jobs.insert(id, job);
        assert_eq!(before, None, "{id} was issued before");
    }

    fn state(&self, id: u64) -> Option<State> {
        self.jobs.get(&id).map(|job| job.state)
    }

    /// Returns the most urgent ready job of all tubes that are not paused; among equals, the oldest.
    fn best(&self) -> Option<u64> {
        let paused: Vec<String> = self.paused.iter().map(|tube| self.name(*tube)).collect();
        let can = |job: &Job| job.state == State::Ready && !paused.contains(&job.tube);
        let ready = self.jobs.iter().filter(|(_, job)| can(job));
        let best = ready.min_by_key(|(id, job)| (job.priority, **id));
        best.map(|(id, _)| *id)
    }

    fn reserve(&mut self, id: u64) -> Reply {
        self.buried.retain(|other| *other != id);
        let job = self.jobs.get_mut(&id).expect("it was just found");
        job.state = State::Reserved;
        job.reserves += 1;
        Reply::job("RESERVED", id, &job.body)
    }

    fn with_reserved(&mut self, id: u64, word: &str, change: impl FnOnce(&mut Job)) -> Reply {
        match self.jobs.get_mut(&id) {
            Some(job) if job.state == State::Reserved => {
                change(job);
                Reply::line(word)
            }
            Some(_) | None => absent(),
        }
    }

    /// Returns the jobs to kick, at most `count`: the buried ones in the order in which they were buried, or if there are none, the delayed
    /// ones, the shortest delay first.
    fn line_to_kick(&self, name: &str, count: u64) -> Vec<u64> {
        let of_tube = |id: &u64| self.job(*id).tube == name;
        let mut line: Vec<u64> = self.buried.iter().copied().filter(of_tube).collect();
        if line.is_empty() {
            let delayed = |(_, job): &(&u64, &Job)| job.tube == name && job.state == State::Delayed;
            let mut delayed: Vec<_> = self.jobs.iter().filter(delayed).collect();
            delayed.sort_by_key(|(id, job)| (job.delay_s, **id));
            line = delayed.into_iter().map(|(id, _)| *id).collect();
        }
        line.truncate(usize::try_from(count).expect("counts are small"));
        line
    }

    fn kick(&mut self, id: u64) {
        self.buried.retain(|other| *other != id);
        let job = self.jobs.get_mut(&id).expect("it was just found");
        job.state = State::Ready;
        job.kicks += 1;
    }

    fn found(&self, id: Option<u64>) -> Reply {
        let found = id.and_then(|id| Some((id, self.jobs.get(&id)?)));
        found.map_or_else(absent, |(id, job)| Reply::job("FOUND", id, &job.body))
    }
}

impl Job {
    /// Returns the body of the reply to `stats-job`, without the lines that depend on the time.
    pub(crate) fn statistics(&self, id: u64) -> String {
        format!(
            "id: {id}\ntube: \"{}\"\nstate: {}\npri: {}\ndelay: {}\nttr: {FOR_EVER_S}\nreserves: {}\ntimeouts: {}\nreleases: {}\nburies: {}\nkicks: {}\n",
            self.tube,
            self.state.word(),
            self.priority,
            self.delay_s,
            self.reserves,
            self.timeouts,
            self.releases,
            self.buries,
            self.kicks,
        )
    }

    /// Creates a job from what the server reports: statistics, and the body.
    pub(crate) fn told(statistics: &Reply, body: Vec<u8>) -> Self {
        let number = |key| {
            let number = statistics.statistic(key).and_then(|it| it.parse().ok());
            number.unwrap_or_else(|| panic!("{key} in {statistics:?}"))
        };
        let word = statistics.statistic("state");
        let states = [State::Ready, State::Delayed, State::Reserved, State::Buried];
        let state = states.into_iter().find(|it| Some(it.word()) == word);
        Self {
            tube: statistics.statistic("tube").unwrap_or_default().to_owned(),
            state: state.unwrap_or_else(|| panic!("{statistics:?}")),
            priority: number("pri"),
            delay_s: number("delay"),
            reserves: number("reserves"),
            timeouts: number("timeouts"),
            releases: number("releases"),
            buries: number("buries"),
            kicks: number("kicks"),
            body,
        }
    }
}

/// Removes the lines that depend on the time from statistics; leaves other replies unchanged.
pub(crate) fn timeless(reply: Reply) -> Reply {
    if !reply.line.starts_with("OK ") {
        return reply;
    }
    let text = String::from_utf8(reply.body).expect("statistics are text");
    let hangs = |line: &&str| {
        let keys = ["---", "age: ", "time-left: ", "file: "];
        !keys.iter().any(|key| line.starts_with(key))
    };
    let lines = text.lines().filter(hangs);
    Reply {
        line: "OK".to_owned(),
        body: lines.flat_map(|line| [line, "\n"]).collect::<String>().into(),
    }
}

/// Returns whether this reply reports a change that is on disk. If so, everything that was answered before, on any connection,
/// is on disk, too.
pub(crate) fn is_kept(reply: &Reply) -> bool {
    let words = ["INSERTED", "DELETED", "RELEASED", "BURIED", "KICKED", "PAUSED"];
    words.iter().any(|word| reply.line.starts_with(word)) && reply.line != "KICKED 0"
}

fn absent() -> Reply {
    Reply::line("NOT_FOUND")
}

fn delayed_or_ready(delay: u64) -> State {
    if delay == 0 { State::Ready } else { State::Delayed }
}
