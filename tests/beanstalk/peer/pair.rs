//! Both servers, and what each has said to the same steps.
//!
//! Steps are taken one after another: the next only when both servers have done the last. Who waits for a job is
//! recognised by the statistics, asked over a connection of its own.

use crate::beanstalkd::{Client, Server};
use crate::patience::until;
use crate::peer::reply::Masked;
use crate::peer::step::{LASTING, Step, TUBES};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// No span, and no last second of one, ends before that.
pub(crate) const BEFORE_ANY_SPAN: Duration = Duration::from_millis(800);

/// Pauses are such that spans of whole seconds, begun in one beat, end between beats: so many seconds after any beat no
/// other is nearer than this.
pub(crate) const BEFORE_THE_NEXT_SPAN: Duration = Duration::from_millis(100);
const BEAT: Duration = Duration::from_millis(1_370);

/// What became of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both said the same, to the end.
    Same,
    /// The machine was too busy to say: spans may have ended on one side alone.
    Late,
}

/// Both servers.
pub(crate) struct Pair {
    seed: u64,
    since_13: bool,
    ours: Side,
    theirs: Side,
    /// Which connections wait for a job.
    waiting: BTreeSet<usize>,
    /// The tubes that each watches.
    watching: Vec<BTreeSet<String>>,
    /// Jobs that are claimed, on both sides.
    claimed: usize,
    began: Instant,
    beat: Instant,
    patience: Duration,
    transcript: Vec<String>,
}

/// One server with its connections.
struct Side {
    server: Server,
    observer: Client,
    clients: Vec<Client>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "another process is looked at, whose time is that of the machine"
)]
fn now() -> Instant {
    Instant::now()
}

/// sexton tells time by milliseconds: of delays that end in the same one, the older job's is the first to end, whichever
/// began first.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is looked at, whose time is that of the machine"
)]
fn tick() {
    std::thread::sleep(Duration::from_millis(1));
}

/// What a new connection watches.
fn default_tube() -> BTreeSet<String> {
    BTreeSet::from(["default".to_owned()])
}

impl Side {
    fn new(server: Server, connections: u64) -> Self {
        let mut observer = server.connect();
        for tube in LASTING {
            observer.ask(&format!("watch {tube}"));
        }
        let clients = (0..connections).map(|_| server.connect()).collect();
        let mut side = Self {
            server,
            observer,
            clients,
        };
        side.settle_connections();
        side
    }

    /// A number of the statistics.
    fn count(&mut self, key: &str) -> usize {
        let stats = self.observer.ask("stats");
        let line = stats.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.strip_prefix(": "));
        number
            .and_then(|number| number.parse().ok())
            .expect("it is a number of the statistics")
    }

    /// Waits until the server knows of every connection, and of no other.
    fn settle_connections(&mut self) {
        let expected = self.clients.len() + 1;
        until("the server knows its connections", || {
            (self.count("current-connections") == expected).then_some(())
        });
    }

    fn client(&mut self, connection: usize) -> &mut Client {
        self.clients.get_mut(connection).expect("there is this one")
    }

    fn open_anew(&mut self, connection: usize) {
        let client = self.server.connect();
        *self.client(connection) = client;
        self.settle_connections();
    }

    /// What comes for those that wait, until the server says that only those wait who are told nothing.
    fn replies_or_waits(&mut self, waiting: &mut BTreeSet<usize>) -> Vec<(usize, Vec<u8>)> {
        let mut replies = Vec::new();
        until("each is answered, or waits", || {
            // In this order: one that waits no more is being answered.
            let waits = self.count("current-waiting");
            waiting.retain(|connection| match self.client(*connection).reply_so_far() {
                Some(reply) => {
                    replies.push((*connection, reply));
                    false
                }
                None => true,
            });
            (waits == waiting.len()).then_some(())
        });
        replies.sort();
        replies
    }

    /// What a step brings: replies by connection, and who still waits.
    fn take(
        &mut self,
        step: &Step,
        mut waiting: BTreeSet<usize>,
    ) -> (Vec<(usize, Vec<u8>)>, BTreeSet<usize>) {
        let mut replies = Vec::new();
        match step {
            Step::Say {
                connection,
                bytes,
                replies: count,
            } => {
                self.client(*connection).send(bytes);
                if *count == 1 && bytes.starts_with(b"reserve") {
                    waiting.insert(*connection);
                } else {
                    for _ in 0..*count {
                        let reply = self.client(*connection).reply().unwrap_or_default();
                        replies.push((*connection, reply));
                    }
                }
            }
            Step::Close(connection) => {
                self.open_anew(*connection);
                waiting.remove(connection);
            }
            Step::End(connection) => {
                self.client(*connection).end();
                let rest = self.client(*connection).rest();
                replies.push((*connection, rest));
                self.open_anew(*connection);
                waiting.remove(connection);
            }
        }
        // Whoever waited may have been served by that.
        replies.extend(self.replies_or_waits(&mut waiting));
        (replies, waiting)
    }
}

impl Pair {
    pub(crate) fn start(seed: u64, connections: u64, patience: Duration) -> Self {
        let (beanstalkd, version) = Server::beanstalkd().expect("it was there before");
        let ours = Side::new(Server::sexton(&[]), connections);
        let theirs = Side::new(beanstalkd, connections);
        Self {
            seed,
            since_13: !version.contains(" 1.12"),
            ours,
            theirs,
            waiting: BTreeSet::new(),
            watching: vec![default_tube(); usize::try_from(connections).expect("there are few")],
            claimed: 0,
            began: now(),
            beat: now(),
            patience,
            transcript: Vec::new(),
        }
    }

    /// Whether time passes.
    pub(crate) fn do_spans_end(&self) -> bool {
        self.patience == BEFORE_THE_NEXT_SPAN
    }

    pub(crate) fn since_13(&self) -> bool {
        self.since_13
    }

    pub(crate) fn connections(&self) -> usize {
        self.ours.clients.len()
    }

    pub(crate) fn is_waiting(&self, connection: usize) -> bool {
        self.waiting.contains(&connection)
    }

    pub(crate) fn is_anybody_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether nobody waits for a job of a tube that this one watches: of two that wait for the same tube, either may be
    /// served first.
    pub(crate) fn may_wait(&self, connection: usize) -> bool {
        let mut others = self.waiting.iter().filter(|other| **other != connection);
        let tubes = |of: usize| self.watching.get(of).expect("there is this one");
        others.all(|other| tubes(*other).is_disjoint(tubes(connection)))
    }

    /// Whether several jobs may become ready at once for somebody who waits if this connection ends.
    pub(crate) fn may_give_back_several(&self, connection: usize) -> bool {
        self.claimed > 1 && self.waiting.iter().any(|waiting| *waiting != connection)
    }

    /// Looks how many jobs are claimed, if anybody waits.
    pub(crate) fn look(&mut self) {
        self.claimed = match self.waiting.len() {
            0 => 0,
            _ => self.ours.count("current-jobs-reserved"),
        };
    }

    /// Notes what a step changes of the tubes that are watched.
    fn note(&mut self, step: &Step) {
        let (connection, said) = match step {
            Step::Say {
                connection, bytes, ..
            } => (*connection, String::from_utf8_lossy(bytes)),
            Step::Close(connection) | Step::End(connection) => (*connection, "".into()),
        };
        let tubes = self.watching.get_mut(connection);
        let tubes = tubes.expect("there is this one");
        if !matches!(step, Step::Say { .. }) {
            *tubes = default_tube();
        }
        for line in said.split("\r\n") {
            match line.split_once(' ') {
                Some(("watch", tube)) if TUBES.contains(&tube) => {
                    tubes.insert(tube.to_owned());
                }
                Some(("ignore", tube)) if tubes.len() > 1 => {
                    tubes.remove(tube);
                }
                _ => {}
            }
        }
    }

    /// About the number of the newest job.
    pub(crate) fn next_id(&self) -> u64 {
        let inserted = self
            .transcript
            .iter()
            .filter(|line| line.contains("INSERTED"));
        inserted.count() as u64 + 1
    }

    /// Takes a step on both sides, and compares what they say. If they differ although no span can have ended on one
    /// side alone, the test fails, with everything that was said so far.
    pub(crate) fn take(&mut self, step: &Step) -> Verdict {
        self.transcript
            .push(format!("{step:?}").chars().take(200).collect());
        let (ours, waits) = self.ours.take(step, self.waiting.clone());
        let (theirs, their_waits) = self.theirs.take(step, self.waiting.clone());
        self.waiting.clone_from(&waits);
        self.note(step);
        let masked = |replies: &[(usize, Vec<u8>)]| -> Vec<(usize, Masked)> {
            let replies = replies.iter();
            replies
                .map(|(connection, reply)| (*connection, Masked::of(reply)))
                .collect()
        };
        let (our, their) = (masked(&ours), masked(&theirs));
        for (connection, reply) in &our {
            let words: String = format!("  {connection} <- {reply:?}")
                .chars()
                .take(200)
                .collect();
            self.transcript.push(words);
        }
        let alike = our.len() == their.len()
            && our
                .iter()
                .zip(&their)
                .all(|((one, ours), (other, theirs))| one == other && ours.is_like(theirs));
        if self.is_late() {
            return Verdict::Late;
        }
        if !alike || waits != their_waits {
            let beside = our.iter().zip(&their);
            let differences: Vec<String> = beside
                .filter(|((one, ours), (other, theirs))| one != other || !ours.is_like(theirs))
                .map(|((one, ours), (other, theirs))| {
                    let (ours, theirs) = (ours.beside(theirs), theirs.beside(ours));
                    format!("sexton:     {one} <- {ours}\nbeanstalkd: {other} <- {theirs}")
                })
                .collect();
            panic!(
                "SEXTON_PEER_SEED={}: they differ\n{}\n{}\nreplies: {} and {}; waiting: {waits:?} and {their_waits:?}",
                self.seed,
                self.transcript.join("\n"),
                differences.join("\n"),
                our.len(),
                their.len(),
            );
        }
        if matches!(step, Step::Say { bytes, .. } if bytes.starts_with(b"put") || bytes.starts_with(b"release"))
        {
            tick();
        }
        Verdict::Same
    }

    /// Whether spans may have ended since the sequence, or its last beat, began.
    fn is_late(&self) -> bool {
        now().duration_since(self.beat) > self.patience
    }

    /// Waits for a beat: the first is the beginning.
    #[expect(
        clippy::disallowed_methods,
        reason = "another process is looked at, whose time is that of the machine"
    )]
    pub(crate) fn until_beat(&mut self, beat: u64) -> Verdict {
        let beat = u32::try_from(beat).expect("there are few");
        let at = self.began + BEAT * beat;
        std::thread::sleep(at.saturating_duration_since(now()));
        self.beat = at;
        // Who waited may have been served, or have lost patience.
        match self.waiting.first().copied() {
            None => Verdict::Same,
            Some(connection) => self.take(&Step::Say {
                connection,
                bytes: Vec::new(),
                replies: 0,
            }),
        }
    }
}
