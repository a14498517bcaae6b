//! Both servers, and what each has said to the same steps.
//!
//! Steps are taken one after another: the next only when both servers have done the last. Who waits for a job is
//! recognised by the statistics, asked over a connection of its own.

use crate::beanstalkd::{Client, Server};
use crate::patience::until;
use crate::peer::reply::Masked;
use crate::peer::step::{LASTING, Step};
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
    /// Which connection waits for a job.
    waiting: Option<usize>,
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

    /// What comes for one that may wait: its reply, or nothing once so many wait.
    fn reply_or_wait(&mut self, connection: usize, waiting: usize) -> Option<Vec<u8>> {
        until("it is answered, or waits", || {
            // In this order: one that waits no more is being answered.
            let waits = self.count("current-waiting") == waiting;
            let reply = self.client(connection).reply_so_far();
            (reply.is_some() || waits).then_some(reply)
        })
    }

    /// What a step brings: replies by connection, and whether one still waits.
    fn take(
        &mut self,
        step: &Step,
        waiting: Option<usize>,
    ) -> (Vec<(usize, Vec<u8>)>, Option<usize>) {
        let mut replies = Vec::new();
        let mut waiting = waiting;
        match step {
            Step::Say {
                connection,
                bytes,
                replies: count,
            } => {
                self.client(*connection).send(bytes);
                if *count == 1 && bytes.starts_with(b"reserve") {
                    match self.reply_or_wait(*connection, usize::from(waiting.is_some()) + 1) {
                        Some(reply) => replies.push((*connection, reply)),
                        None => waiting = Some(*connection),
                    }
                } else {
                    for _ in 0..*count {
                        let reply = self.client(*connection).reply().unwrap_or_default();
                        replies.push((*connection, reply));
                    }
                }
            }
            Step::Close(connection) => {
                self.open_anew(*connection);
                waiting = waiting.filter(|waiting| waiting != connection);
            }
            Step::End(connection) => {
                self.client(*connection).end();
                let rest = self.client(*connection).rest();
                replies.push((*connection, rest));
                self.open_anew(*connection);
                waiting = waiting.filter(|waiting| waiting != connection);
            }
        }
        // Whoever waited may have been served by that.
        if let Some(connection) = waiting
            && let Some(reply) = self.reply_or_wait(connection, 1)
        {
            replies.push((connection, reply));
            waiting = None;
        }
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
            waiting: None,
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
        self.waiting == Some(connection)
    }

    pub(crate) fn is_anybody_waiting(&self) -> bool {
        self.waiting.is_some()
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
        let (ours, waits) = self.ours.take(step, self.waiting);
        let (theirs, their_waits) = self.theirs.take(step, self.waiting);
        self.waiting = waits;
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
        if let Some(connection) = self.waiting {
            let step = Step::Say {
                connection,
                bytes: Vec::new(),
                replies: 0,
            };
            return self.take(&step);
        }
        Verdict::Same
    }
}
