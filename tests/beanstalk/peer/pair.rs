//! Both servers, and their replies to the same steps.
//!
//! A step begins only when both servers have completed the previous one. A separate connection queries the statistics,
//! which show whether connections wait.

use crate::beanstalkd::{Client, Server};
use crate::patience::until;
use crate::peer::coverage::Coverage;
use crate::peer::reply::Masked;
use crate::peer::step::{LASTING, Step, TUBES};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The time for a whole sequence. It is shorter than any span, and than a span of one second less its last second's
/// warning.
const BEFORE_ANY_SPAN: Duration = Duration::from_millis(800);

/// The time for the steps of a beat. Beats are spaced so that spans of whole seconds that begin in one beat end between
/// beats: no whole number of seconds after a beat is within this time of another beat.
const BEFORE_THE_NEXT_SPAN: Duration = Duration::from_millis(100);
const BEAT: Duration = Duration::from_millis(1_370);

/// The number of concurrent sequences with pauses. Their beats begin at different times, so that they do not delay each
/// other.
pub(crate) const SIDE_BY_SIDE: u32 = 16;

/// The spans that end during a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spans {
    /// No span ends.
    Last,
    /// Delays, pauses and waits with a timeout end.
    End,
    /// The TTR of reserved jobs ends.
    Reservations,
}

/// The result of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Both servers gave the same replies to all steps.
    Same,
    /// The machine was too busy: spans may have ended on one server only.
    Late,
}

/// Both servers, and the steps so far.
pub(crate) struct Pair {
    seed: u64,
    since_13: bool,
    ours: Side,
    theirs: Side,
    /// The connections that wait for a job.
    waiting: BTreeSet<usize>,
    /// The tubes that each connection watches.
    watching: Vec<BTreeSet<String>>,
    /// The number of claimed jobs, which is the same on both servers.
    claimed: usize,
    /// Tubes from which a reserve may have been served. They restrict [`Pair::may_wait`].
    served: BTreeSet<String>,
    began: Instant,
    beat: Instant,
    spans: Spans,
    coverage: Coverage,
    transcript: Vec<String>,
}

/// One server with its connections.
struct Side {
    server: Server,
    observer: Client,
    clients: Vec<Client>,
}

#[expect(clippy::disallowed_methods, reason = "another process is observed, in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps for a millisecond, sexton's unit of time. If two delays end in the same millisecond, sexton takes the older job
/// first, even if its delay began later.
#[expect(clippy::disallowed_methods, reason = "another process is observed, in real time")]
fn tick() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Returns the tubes that a new connection watches.
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
        let mut side = Self { server, observer, clients };
        side.settle_connections();
        side
    }

    /// Returns a number of the statistics.
    fn count(&mut self, key: &str) -> usize {
        let stats = self.observer.ask("stats");
        let line = stats.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.strip_prefix(": "));
        number.and_then(|number| number.parse().ok()).expect("it is a number of the statistics")
    }

    /// Waits until the server has exactly these connections.
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

    /// Reads replies to waiting connections, until the server's count of waiting connections equals the number of those
    /// without a reply.
    fn replies_or_waits(&mut self, waiting: &mut BTreeSet<usize>) -> Vec<(usize, Vec<u8>)> {
        let mut replies = Vec::new();
        until("each is answered, or waits", || {
            // Query the count before reading: a connection that no longer waits may not have its reply yet.
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

    /// Collects the replies that arrived in a pause. beanstalkd misses a reservation that ends in the very microsecond in
    /// which it checks, until its client sends something. So each connection that does not wait first sends a command. A
    /// waiting connection may therefore have got a job later from beanstalkd than from sexton; a touch restarts the job's
    /// TTR on both servers.
    fn after_pause(
        &mut self,
        mut waiting: BTreeSet<usize>,
    ) -> (Vec<(usize, Vec<u8>)>, BTreeSet<usize>) {
        for connection in (0..self.clients.len()).filter(|it| !waiting.contains(it)) {
            self.client(connection).ask("list-tube-used");
        }
        let replies = self.replies_or_waits(&mut waiting);
        for (connection, reply) in &replies {
            let reply = String::from_utf8_lossy(reply);
            if let Some(("RESERVED", rest)) = reply.split_once(' ') {
                let id = rest.split(' ').next().expect("a job id");
                let touched = self.client(*connection).ask(&format!("touch {id}"));
                assert_eq!(touched, "TOUCHED", "{id}");
            }
        }
        (replies, waiting)
    }

    /// Takes a step on this server. Returns the replies with their connections, and the connections that still wait.
    fn take(
        &mut self,
        step: &Step,
        mut waiting: BTreeSet<usize>,
    ) -> (Vec<(usize, Vec<u8>)>, BTreeSet<usize>) {
        let mut replies = Vec::new();
        match step {
            Step::Say { connection, bytes, replies: count } => {
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
            Step::AfterPause => return self.after_pause(waiting),
        }
        // The step may have served a waiting connection.
        replies.extend(self.replies_or_waits(&mut waiting));
        (replies, waiting)
    }
}

impl Pair {
    pub(crate) fn start(seed: u64, connections: u64, spans: Spans) -> Self {
        let (beanstalkd, version) = Server::beanstalkd().expect("it was there before");
        let ours = Side::new(Server::sexton(&[]), connections);
        let theirs = Side::new(beanstalkd, connections);
        Self {
            seed,
            since_13: !version.contains(" 1.12"),
            ours,
            theirs,
            waiting: BTreeSet::new(),
            watching: vec![default_tube(); usize::try_from(connections).expect("a small number")],
            claimed: 0,
            served: BTreeSet::new(),
            began: now(),
            beat: now(),
            spans,
            coverage: Coverage::default(),
            transcript: Vec::new(),
        }
    }

    /// Waits until this sequence's part of a beat, counted from `first`, and begins its beats at that time.
    #[expect(clippy::disallowed_methods, reason = "another process is observed, in real time")]
    pub(crate) fn begin_beats(&mut self, first: Instant) {
        let part = u32::try_from(self.seed % u64::from(SIDE_BY_SIDE)).expect("a small number");
        let part = BEAT * part / SIDE_BY_SIDE;
        let gone = now().duration_since(first);
        let beats = (gone.saturating_sub(part).as_nanos()).div_ceil(BEAT.as_nanos());
        let beats = u32::try_from(beats).expect("a test does not run for years");
        self.began = first + part + BEAT * beats;
        self.beat = self.began;
        std::thread::sleep(self.began.saturating_duration_since(now()));
    }

    /// Returns the spans that end during the sequence.
    pub(crate) fn spans(&self) -> Spans {
        self.spans
    }

    /// Returns the seconds of a delay or a pause, from a random number. Spans of the same length that begin in the same
    /// beat end within milliseconds of each other, so whether a wait ends before a job is ready would depend on the
    /// scheduler. Therefore waits have other timeouts in sequences in which spans end, and there are no other spans in
    /// sequences in which reservations expire.
    pub(crate) fn seconds(&self, chosen: u64) -> u64 {
        match self.spans {
            Spans::Last => chosen,
            Spans::End => chosen.min(1) * (1 + self.seed % 2),
            Spans::Reservations => 0,
        }
    }

    /// Returns the timeout of a wait in seconds, with the same restriction.
    pub(crate) fn patience_s(&self, chosen: u64) -> u64 {
        match self.spans {
            Spans::Last | Spans::Reservations => chosen,
            Spans::End => 2 - self.seed % 2,
        }
    }

    /// Returns the counts of the cases in the sequence.
    pub(crate) fn coverage(mut self) -> Coverage {
        self.coverage.expired = self.ours.count("job-timeouts") as u64;
        self.coverage
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

    /// Returns whether this connection may wait while others do. If two connections wait for a tube, sexton serves the
    /// first. beanstalkd is only certain to do so if no reserve has been served from the tube before.
    pub(crate) fn may_wait(&self, connection: usize) -> bool {
        // If several reservations end at about the same time, beanstalkd may expire them in another order.
        if self.spans == Spans::Reservations && self.claimed > 1 {
            return false;
        }
        let mut shared = self.tubes(connection).iter();
        shared.all(|tube| match self.line(tube) {
            0 => true,
            1 => !self.served.contains(tube),
            _ => false,
        })
    }

    /// Returns whether a connection may reserve. While another connection waits, only one reservation may expire at a
    /// time, for the same reason.
    pub(crate) fn may_reserve(&self, is_single_threaded: bool) -> bool {
        let may_expire = self.spans == Spans::Reservations;
        !may_expire || is_single_threaded && (self.waiting.is_empty() || self.claimed == 0)
    }

    /// Returns the tubes that a connection watches.
    fn tubes(&self, connection: usize) -> &BTreeSet<String> {
        self.watching.get(connection).expect("there is this one")
    }

    /// Returns the number of connections that wait for a job of this tube.
    fn line(&self, tube: &str) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|connection| self.tubes(**connection).contains(tube)).count()
    }

    /// Returns the number of tubes for which two connections wait.
    fn pairs(&self) -> usize {
        let tubes = TUBES.iter();
        tubes.filter(|tube| self.line(tube) > 1).count()
    }

    /// Returns whether several jobs may become ready at the same time while another connection waits, if this connection
    /// ends.
    pub(crate) fn may_give_back_several(&self, connection: usize) -> bool {
        self.claimed > 1 && self.waiting.iter().any(|waiting| *waiting != connection)
    }

    /// Queries the number of reserved jobs, if the next step depends on it.
    pub(crate) fn look(&mut self) {
        let matters = !self.waiting.is_empty() || self.spans == Spans::Reservations;
        self.claimed = if matters { self.ours.count("current-jobs-reserved") } else { 0 };
    }

    /// Records the tubes from which a step may have given jobs, and counts the cases. Must be called before `waiting` and
    /// `watching` change. Returns whether any job was given.
    fn note_served(&mut self, step: &Step, replies: &[(usize, Vec<u8>)]) -> bool {
        let pairs = self.pairs() as u64;
        if let Step::Close(connection) | Step::End(connection) = step {
            self.coverage.closed += u64::from(self.is_waiting(*connection));
        }
        // A reserve by id ignores the order of waiting connections.
        if matches!(step, Step::Say { bytes, replies: 1, .. } if bytes.starts_with(b"reserve-job"))
        {
            return false;
        }
        let is_served = |(_, reply): &&(usize, Vec<u8>)| reply.starts_with(b"RESERVED");
        let mut is_any = false;
        for (connection, _) in replies.iter().filter(is_served) {
            is_any = true;
            if self.is_waiting(*connection) {
                self.coverage.served += pairs.min(1);
                self.coverage.handed_on += u64::from(
                    matches!(step, Step::AfterPause) && self.spans == Spans::Reservations,
                );
            }
            let tubes = self.tubes(*connection).clone();
            self.served.extend(tubes);
        }
        is_any
    }

    /// Records how a step changes the tubes that its connection watches. Returns all tubes that it watched at any time
    /// during the step.
    fn note(&mut self, step: &Step) -> BTreeSet<String> {
        let (connection, said) = match step {
            Step::Say { connection, bytes, .. } => (*connection, String::from_utf8_lossy(bytes)),
            Step::Close(connection) | Step::End(connection) => (*connection, "".into()),
            Step::AfterPause => return BTreeSet::new(),
        };
        let tubes = self.watching.get_mut(connection);
        let tubes = tubes.expect("there is this one");
        if !matches!(step, Step::Say { .. }) {
            *tubes = default_tube();
        }
        let mut watched = tubes.clone();
        for line in said.split("\r\n") {
            match line.split_once(' ') {
                Some(("watch", tube)) if TUBES.contains(&tube) => {
                    tubes.insert(tube.to_owned());
                    watched.insert(tube.to_owned());
                }
                Some(("ignore", tube)) if tubes.len() > 1 => {
                    tubes.remove(tube);
                }
                _ => {}
            }
        }
        watched
    }

    /// Returns an estimate of the next job id.
    pub(crate) fn next_id(&self) -> u64 {
        let inserted = self.transcript.iter().filter(|line| line.contains("INSERTED"));
        inserted.count() as u64 + 1
    }

    /// Takes a step on both servers, and compares the replies. If they differ although no span can have ended on one
    /// server only, the test fails with the whole transcript.
    pub(crate) fn take(&mut self, step: &Step) -> Verdict {
        self.transcript.push(format!("{step:?}").chars().take(200).collect());
        let (ours, waits) = self.ours.take(step, self.waiting.clone());
        let (theirs, their_waits) = self.theirs.take(step, self.waiting.clone());
        let served = self.note_served(step, &ours);
        let pairs = self.pairs();
        self.waiting.clone_from(&waits);
        let watched = self.note(step);
        if served {
            self.served.extend(watched);
        }
        self.coverage.pairs += u64::from(self.pairs() > pairs);
        let masked = |replies: &[(usize, Vec<u8>)]| -> Vec<(usize, Masked)> {
            let replies = replies.iter();
            replies.map(|(connection, reply)| (*connection, Masked::of(reply))).collect()
        };
        let (our, their) = (masked(&ours), masked(&theirs));
        for (connection, reply) in &our {
            let words: String = format!("  {connection} <- {reply:?}").chars().take(200).collect();
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
        let begins = |bytes: &[u8]| bytes.starts_with(b"put") || bytes.starts_with(b"release");
        if served || matches!(step, Step::Say { bytes, .. } if begins(bytes)) {
            tick();
        }
        Verdict::Same
    }

    /// Returns whether so much time has passed since the sequence or its last beat began that spans may have ended.
    fn is_late(&self) -> bool {
        let patience = match self.spans {
            Spans::Last => BEFORE_ANY_SPAN,
            Spans::End | Spans::Reservations => BEFORE_THE_NEXT_SPAN,
        };
        now().duration_since(self.beat) > patience
    }

    /// Waits for a beat and takes the step after the pause. Beat 0 is the beginning.
    #[expect(
        clippy::disallowed_methods,
        reason = "another process is looked at, whose time is that of the machine"
    )]
    pub(crate) fn until_beat(&mut self, beat: u64) -> Verdict {
        let beat = u32::try_from(beat).expect("a small number");
        let at = self.began + BEAT * beat;
        std::thread::sleep(at.saturating_duration_since(now()));
        self.beat = at;
        // During the pause, waiting connections may have been served, or their waits may have timed out.
        self.take(&Step::AfterPause)
    }
}
