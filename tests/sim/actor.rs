//! One actor of the simulated node: its host, its mailbox, and what its clients observed.
//!
//! Keeps the history that the checker reads: each call with the actor's last entry before and after it, and the answers
//! in the order in which they arrived. Calls whose connection was lost are kept too, since their answers must also be
//! right.

use crate::counter::PLANTED;
use crate::coverage::Coverage;
use crate::reference::{MessageOf, QueryOf, Reference, ReplyOf};
use sexton::clock::Timestamp;
use sexton::ids::{ActorId, Digest, RequestKey, Seq, Ticket};
use sexton::spine::Host;
use sexton::spine::delivery::{self, Stage};
use sexton::spine::delivery::{Answer, Delivery, Flow, Item, Report};
use sexton::spine::effect::Tell;
use sexton::spine::ledger::Ledger;
use sexton::spine::machine::{Machine, Now};
use sexton::spine::recovery::{Recovered, Replica};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One command of a call.
pub(crate) enum Ask<R: Reference> {
    Message(MessageOf<R>),
    /// A command with a request key, under which the client may repeat it.
    Keyed(MessageOf<R>, RequestKey),
    Query(QueryOf<R>),
}

impl<R: Reference> fmt::Debug for Ask<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => message.fmt(f),
            Self::Keyed(message, key) => write!(f, "{message:?} under {}", key.id),
            Self::Query(query) => query.fmt(f),
        }
    }
}

impl<R: Reference> Clone for Ask<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Message(message) => Self::Message(message.clone()),
            Self::Keyed(message, key) => Self::Keyed(message.clone(), *key),
            Self::Query(query) => Self::Query(query.clone()),
        }
    }
}

/// The commands that one client sent together.
pub(crate) struct Call<R: Reference> {
    pub(crate) asks: Vec<Ask<R>>,
    /// The actor's last entry before the call was delivered.
    pub(crate) from: Seq,
    /// The time at which it was delivered, in node time.
    pub(crate) at: Timestamp,
    /// The last entry that its answers depend on.
    pub(crate) rests: Seq,
    /// The actor's last entry when the last item of the call was done. A crash of the process may lose entries after
    /// `rests`.
    pub(crate) saw: Seq,
    pub(crate) answers: Option<Vec<Answer<ReplyOf<R>>>>,
}

/// A client that waits for a condition, or did until it was answered.
pub(crate) struct Wait<R: Reference> {
    pub(crate) watch: <R::Machine as Machine>::Watch,
    pub(crate) answer: Option<ReplyOf<R>>,
}

enum QueuedMail<R: Reference> {
    Call(Vec<Ask<R>>),
    Tell(MessageOf<R>, ActorId),
}

/// Answers in transit from the outbox to the history, each with the index of its call. Answers to tells
/// (messages of other actors) have no index and are dropped.
type Arrivals<R> = Arc<Mutex<Vec<(Option<usize>, Vec<Answer<ReplyOf<R>>>)>>>;
type Woken<R> = Arc<Mutex<Vec<(Ticket, ReplyOf<R>)>>>;

/// The stage at which the next panic is planted. It is shared with the host's panic injector.
#[derive(Clone, Default)]
pub(crate) struct Trap(Arc<AtomicU8>);

const SAFE: u8 = 0;

impl Trap {
    pub(crate) fn set(&self, stage: Stage) {
        self.0.store(stage_code(stage), Ordering::Relaxed);
    }

    pub(crate) fn disarm(&self) {
        self.0.store(SAFE, Ordering::Relaxed);
    }

    /// Panics if a panic is planted at this stage; the panic is then no longer planted.
    pub(crate) fn step(&self, stage: Stage) {
        if self.0.load(Ordering::Relaxed) == stage_code(stage) {
            self.0.store(SAFE, Ordering::Relaxed);
            panic!("{PLANTED} in {stage:?}");
        }
    }
}

fn stage_code(stage: Stage) -> u8 {
    match stage {
        Stage::Decide => 1,
        Stage::Commit => 2,
        Stage::Query => 3,
        Stage::Tick => 4,
        Stage::Keeping => 5,
        Stage::Due => 6,
        Stage::Watch => 7,
        Stage::Resume => 8,
    }
}

/// A planted fault that replaces messages: returns the replacement of this message, or `None` to keep it.
pub(crate) type Swap<R> = fn(&<R as Reference>::Machine, &MessageOf<R>) -> Option<MessageOf<R>>;

/// One actor of the simulated node.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is independent, and two are planted faults"
)]
pub(crate) struct Actor<R: Reference> {
    pub(crate) host: Host<R::Machine>,
    pub(crate) trap: Trap,
    mailbox: VecDeque<QueuedMail<R>>,
    /// The index of the call that the host is working on.
    current: Option<usize>,
    /// Whether the host requested another turn.
    pub(crate) unfinished: bool,
    /// Whether the actor panicked and waits for the Supervisor's verdict.
    pub(crate) judged: bool,
    pub(crate) calls: Vec<Call<R>>,
    pub(crate) waits: BTreeMap<Ticket, Wait<R>>,
    arrivals: Arrivals<R>,
    woken: Woken<R>,
    next_ticket: u64,
    /// Answers to waits since the last `take_woken`.
    newly_woken: Vec<ReplyOf<R>>,
    /// The number of waits that were answered.
    pub(crate) wakes: u64,
    pub(crate) rebuilds: u64,
    pub(crate) rebuilds_behind_a_quarantine: u64,
    /// A planted fault: reads are answered without waiting in the outbox.
    pub(crate) early_reads: bool,
    /// A planted fault: waiting clients are forgotten.
    pub(crate) deaf: bool,
    /// A planted fault: messages that are replaced by others.
    pub(crate) swap: Option<Swap<R>>,
    /// The messages that were replaced, with their replacements.
    pub(crate) swapped: Vec<(MessageOf<R>, MessageOf<R>)>,
    /// The last mark that records a step of the wall clock. Answers with dates depend on it, and a crash of the process
    /// may lose it.
    pub(crate) stepped: Seq,
    /// Digests of the state by last entry, to be compared after a crash.
    pub(crate) digests: BTreeMap<Seq, Digest>,
}

/// The result of a turn.
pub(crate) enum Turn {
    Idle,
    Done,
    Yielded,
    Panicked(Report),
}

impl<R: Reference> Actor<R> {
    /// Creates an actor around a recovered machine.
    pub(crate) fn new(recovered: Recovered<R::Machine>) -> Self {
        let trap = Trap::default();
        let mut host = Host::new(recovered);
        let theirs = trap.clone();
        host.inject_panics(Box::new(move |stage, _| theirs.step(stage)));
        Self {
            host,
            trap,
            mailbox: VecDeque::new(),
            current: None,
            unfinished: false,
            judged: false,
            calls: Vec::new(),
            waits: BTreeMap::new(),
            arrivals: Arc::default(),
            woken: Arc::default(),
            next_ticket: 0,
            newly_woken: Vec::new(),
            wakes: 0,
            rebuilds: 0,
            rebuilds_behind_a_quarantine: 0,
            early_reads: false,
            deaf: false,
            swap: None,
            swapped: Vec::new(),
            stepped: Seq(0),
            digests: BTreeMap::new(),
        }
    }

    pub(crate) fn post(&mut self, asks: Vec<Ask<R>>) {
        self.mailbox.push_back(QueuedMail::Call(asks));
    }

    pub(crate) fn post_tell(&mut self, tell: &Tell) {
        let message = rmp_serde::from_slice(&tell.message).expect("tells decode");
        self.mailbox.push_back(QueuedMail::Tell(message, tell.from));
    }

    pub(crate) fn has_mail(&self) -> bool {
        !self.mailbox.is_empty()
    }

    /// Returns whether the actor has work to do now: mail, an unfinished delivery, or something that is due.
    pub(crate) fn is_waiting(&self, now: Now) -> bool {
        let deadline = self.host.deadline(now.offset);
        self.unfinished
            || self.host.has_parked()
            || !self.mailbox.is_empty()
            || deadline.is_some_and(|deadline| deadline <= now.at)
    }

    /// Gives the actor a turn although no time has passed, because something else may have become due.
    pub(crate) fn handle_due(&mut self) {
        self.unfinished = true;
    }

    /// Continues the current delivery; otherwise begins the next delivery in the mailbox; otherwise handles what is due.
    pub(crate) fn turn(&mut self, ledger: &mut Ledger) -> Turn {
        if self.host.is_spent() || self.judged {
            return Turn::Idle;
        }
        let flow = if self.unfinished {
            self.unfinished = false;
            self.host.proceed(ledger)
        } else if self.host.has_parked() {
            // No other delivery begins meanwhile, since the witness expects the entries of calls in the order of the calls. Time, waits
            // and crashes may come in between.
            self.host.carry_on(ledger)
        } else {
            match self.mailbox.pop_front() {
                Some(mail) => self.deliver(ledger, mail),
                None if self.is_waiting(ledger.both()) => self.host.proceed(ledger),
                None => return Turn::Idle,
            }
        };
        self.came(flow)
    }

    /// Records the progress of the current call and the digest, and turns the host's flow into the result of the turn.
    fn came(&mut self, flow: Flow) -> Turn {
        if !self.host.is_busy()
            && !self.host.has_parked()
            && let Some(call) = self.current.take().and_then(|at| self.calls.get_mut(at))
        {
            call.rests = self.host.awaited();
            let looks = call.asks.iter().any(|ask| matches!(ask, Ask::Query(_)));
            let stepped = if looks { self.stepped } else { Seq(0) };
            call.saw = self.host.last().max(stepped);
        }
        if let Some(digest) = self.host.digest() {
            self.digests.insert(self.host.last(), digest);
        }
        match flow {
            Flow::Done => Turn::Done,
            Flow::Yield => {
                self.unfinished = true;
                Turn::Yielded
            }
            Flow::Panicked(report) => {
                self.unfinished = true;
                self.judged = true;
                Turn::Panicked(report)
            }
        }
    }

    fn deliver(&mut self, ledger: &mut Ledger, mail: QueuedMail<R>) -> Flow {
        let (asks, id) = match mail {
            QueuedMail::Tell(message, teller) => {
                return self.host.deliver(ledger, Delivery::from_actor(message, teller));
            }
            QueuedMail::Call(asks) => {
                self.calls.push(Call {
                    asks: asks.clone(),
                    from: self.host.last(),
                    at: ledger.now(),
                    rests: Seq(u64::MAX),
                    saw: Seq(u64::MAX),
                    answers: None,
                });
                (asks, Some(self.calls.len() - 1))
            }
        };
        if self.early_reads && asks.iter().all(|ask| matches!(ask, Ask::Query(_))) {
            return self.read_early(ledger, &asks, id);
        }
        self.current = id;
        let arrivals = Arc::clone(&self.arrivals);
        let items = asks.into_iter().map(|ask| match ask {
            Ask::Message(message) => Item::Message(self.taken_for(message)),
            Ask::Keyed(message, key) => Item::Keyed(self.taken_for(message), Box::new(key)),
            Ask::Query(query) => Item::Query(query),
        });
        let items = items.collect();
        let reply_to = Box::new(move |answers| push(&arrivals, (id, answers)));
        self.host.deliver(ledger, Delivery::new(items, reply_to))
    }

    /// Returns the message, or its replacement if a planted fault replaces it.
    fn taken_for(&mut self, message: MessageOf<R>) -> MessageOf<R> {
        let other = self.swap.and_then(|swap| swap(self.host.machine(), &message));
        match other {
            Some(other) => {
                self.swapped.push((message, other.clone()));
                other
            }
            None => message,
        }
    }

    fn read_early(&mut self, ledger: &mut Ledger, asks: &[Ask<R>], id: Option<usize>) -> Flow {
        let flow = self.host.proceed(ledger);
        if let (Flow::Done, Some(call)) = (&flow, id.and_then(|id| self.calls.get_mut(id))) {
            let now = ledger.both();
            let answer = |ask: &Ask<R>| match ask {
                Ask::Query(query) => Some(Ok(self.host.machine().query(now, query))),
                Ask::Message(_) | Ask::Keyed(..) => None,
            };
            call.rests = self.host.awaited();
            call.saw = self.host.last();
            push(&self.arrivals, (id, asks.iter().filter_map(answer).collect()));
        }
        flow
    }

    pub(crate) fn watch(
        &mut self,
        ledger: &mut Ledger,
        watch: <R::Machine as Machine>::Watch,
    ) -> Turn {
        if self.judged {
            return Turn::Idle;
        }
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let wait = Wait { watch: watch.clone(), answer: None };
        self.waits.insert(ticket, wait);
        let woken = Arc::clone(&self.woken);
        let reply_to = move |answers: Vec<Answer<ReplyOf<R>>>| {
            for answer in answers.into_iter().flatten() {
                push(&woken, (ticket, answer));
            }
        };
        if self.deaf {
            return Turn::Idle;
        }
        // If the request for a wait panics, its client is answered with a failure and no longer waits.
        let flow = {
            let wait = delivery::Wait::new(watch, Box::new(reply_to));
            self.host.watch(ledger, ticket, wait)
        };
        if matches!(&flow, Flow::Panicked(report) if report.stage == Stage::Watch) {
            self.waits.remove(&ticket);
        }
        self.came(flow)
    }

    /// Withdraws the oldest open wait, as when its connection is lost. Returns whether there was one.
    pub(crate) fn unwatch(&mut self, ledger: &mut Ledger) -> bool {
        let open = self.waits.iter().find(|(_, wait)| wait.answer.is_none());
        let Some(ticket) = open.map(|(ticket, _)| *ticket) else {
            return false;
        };
        let flow = self.host.unwatch(ledger, ticket);
        assert!(matches!(flow, Flow::Done), "no fault is planted there");
        self.waits.remove(&ticket);
        true
    }

    /// Releases answers up to `durable`, and adds them to the history. Returns the indexes of the calls that were
    /// answered.
    pub(crate) fn release(&mut self, durable: Seq) -> Vec<usize> {
        self.host.outbox().release(durable);
        for (ticket, answer) in take(&self.woken) {
            // A released answer may belong to a wait that was withdrawn in the meantime.
            if let Some(wait) = self.waits.get_mut(&ticket) {
                self.newly_woken.push(answer.clone());
                wait.answer = Some(answer);
                self.wakes += 1;
            }
        }
        let mut answered = Vec::new();
        for (id, answers) in take(&self.arrivals) {
            let Some(id) = id else { continue };
            let call = self.calls.get_mut(id).expect("answers are to calls");
            assert!(call.answers.is_none(), "a call is answered once");
            call.answers = Some(answers);
            answered.push(id);
        }
        answered
    }

    /// Takes the answers to waits that have arrived since the previous take.
    pub(crate) fn take_woken(&mut self) -> Vec<ReplyOf<R>> {
        std::mem::take(&mut self.newly_woken)
    }

    /// Returns the calls at these indexes.
    pub(crate) fn answered<'a>(&'a self, calls: &'a [usize]) -> impl Iterator<Item = &'a Call<R>> {
        let call = |at: &usize| self.calls.get(*at).expect("it was just answered");
        calls.iter().map(call)
    }

    /// Adds the actor's counts to the coverage.
    pub(crate) fn count(&self, coverage: &mut Coverage) {
        coverage.watches_woken += self.wakes;
        coverage.rebuilds += self.rebuilds;
        coverage.rebuilds_behind_a_quarantine += self.rebuilds_behind_a_quarantine;
    }

    pub(crate) fn take_tells(&mut self) -> Vec<Tell> {
        self.host.take_tells()
    }

    /// Replaces the spent machine with a rebuilt one. Returns the result of its first turn.
    pub(crate) fn rebuild(&mut self, ledger: &mut Ledger, replica: Replica<R::Machine>) -> Turn {
        self.rebuilds += 1;
        self.rebuilds_behind_a_quarantine += u64::from(!self.host.quarantined().is_empty());
        self.unfinished = false;
        drop(self.host.take_spent(R::rules()));
        let flow = self.host.rebuilt(ledger, replica.into_parts());
        self.came(flow)
    }
}

fn push<T>(list: &Mutex<Vec<T>>, item: T) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(item);
}

fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}
