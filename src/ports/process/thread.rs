//! The port's thread: waits for requests, for reports from the keeper and for processes to end, all at the same time.

use crate::actors::process::{Action, Failure, Message, ProcessMachine, Step};
use crate::bytes::Bytes;
use crate::ids::{ProcessId, Seq};
use crate::ports::process::faults::Faults;
use crate::ports::process::fetches::FETCHED;
use crate::ports::process::follower::Follower;
use crate::ports::process::inbox::INBOXES;
use crate::ports::process::notices::{LINES, NOTICES};
use crate::ports::process::observed::Observed;
use crate::ports::process::output::Outputs;
use crate::ports::process::place::Place;
use crate::ports::process::real::{KEEPER, Real};
use crate::ports::process::reporting::Reporting;
use crate::ports::process::tree::Left;
use crate::ports::process::unread::Unread;
use crate::ports::process::usage::Usage;
use crate::ports::process::world::{Tree, World as _};
use crate::ports::process::{files, link};
use crate::spine::effect;
use crate::spine::halt::Sentry;
use crate::spine::port::Port;
use crate::thread::JoinHandle;
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The epoll token of the eventfd that announces requests to the thread.
const ASKED: u64 = 0;

/// The maximum number of events taken from epoll at once.
const EVENTS: usize = 64;

/// How long a `Forget` waits to be batched with others, in milliseconds.
const FORGET_MS: u64 = 2;
/// The batch size at which a `Forget` stops waiting.
const FORGET_AT_ONCE: usize = 256;

/// Receives the answer to [`Request::Strangers`]: processes, each with its PID.
type StrangersReceiver = Box<dyn FnOnce(Vec<(ProcessId, u32)>) + Send>;

/// Receives the answer to [`Request::Left`].
type LeftReceiver = Box<dyn FnOnce(Vec<Vec<Left>>) + Send>;
/// Receives the answer to [`Request::Join`].
type JoinReceiver = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// The clients that wait for a keeper.
type Joins = Vec<JoinReceiver>;

/// A request to the thread.
enum Request {
    Perform(Seq, Box<Action>),
    Join(JoinReceiver),
    /// Trees, each with the directory of its files.
    Reconcile(Vec<(Tree, Option<Bytes>)>, Box<dyn FnOnce(Vec<bool>) + Send>),
    Usage(Vec<Tree>, Box<dyn FnOnce(Vec<Option<Usage>>) + Send>),
    Left(Vec<Tree>, LeftReceiver),
    Strangers(StrangersReceiver),
    Reap,
    End,
}

/// A factory of functions that send messages to the actor; each thread that reports needs its own.
type Reporter = dyn Fn() -> Box<dyn FnMut(Message) + Send> + Send + Sync;

/// The running thread, and the means of sending it requests.
struct Started {
    asks: Sender<Request>,
    wake: OwnedFd,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    place: Place,
    sentry: Sentry,
    /// Set when the [`ProcessPort`] is created. Until then, requests are refused.
    reporter: OnceLock<Box<Reporter>>,
    started: OnceLock<Started>,
    /// Whether an [`Action::ForgetOthers`] was skipped because nothing was followed and there was no keeper. It is performed when the thread
    /// starts.
    counted: AtomicBool,
    /// Actions to be performed, in order, once a thread can be started. Launches are refused instead of queued.
    waiting: Mutex<Vec<Request>>,
}

/// A handle for requests to the port's thread. Clones share the same thread.
#[derive(Clone)]
pub struct ProcessPortHandle(Arc<Shared>);

impl ProcessPortHandle {
    /// Creates a handle for `place`. The thread starts with the first request. If it ends while the node runs, `sentry` halts the node.
    pub fn new(place: Place, sentry: Sentry) -> Self {
        Self(Arc::new(Shared {
            place,
            sentry,
            reporter: OnceLock::new(),
            started: OnceLock::new(),
            counted: AtomicBool::new(false),
            waiting: Mutex::default(),
        }))
    }

    /// Joins or starts a keeper, and passes the result to `answer`.
    pub fn join(&self, answer: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        self.ask(Request::Join(Box::new(answer)));
    }

    /// Reads the current resource usage of these trees, in order; `None` where it cannot be read. The answer is empty if no process was
    /// ever followed.
    pub fn usage(
        &self,
        trees: Vec<Tree>,
        answer: impl FnOnce(Vec<Option<Usage>>) + Send + 'static,
    ) {
        let asked = Request::Usage(trees, Box::new(answer));
        match self.0.started.get() {
            Some(started) => started.ask(asked),
            None => asked.refuse(link::none(), &mut |_| {}),
        }
    }

    /// Lists the live processes of these trees, in order, at most [`Left::MOST`] for each. The answer is empty if no process was ever
    /// followed.
    pub fn left(&self, trees: Vec<Tree>, answer: impl FnOnce(Vec<Vec<Left>>) + Send + 'static) {
        let asked = Request::Left(trees, Box::new(answer));
        match self.0.started.get() {
            Some(started) => started.ask(asked),
            None => asked.refuse(link::none(), &mut |_| {}),
        }
    }

    /// Checks whether these processes, each with the directory of its files, have ended. The answers are in the same order; there are none
    /// if the thread could not be started.
    pub fn reconcile(
        &self,
        trees: Vec<(Tree, Option<Bytes>)>,
        answer: impl FnOnce(Vec<bool>) + Send + 'static,
    ) {
        self.ask(Request::Reconcile(trees, Box::new(answer)));
    }

    /// Finds running processes that the keeper launched but the port does not follow, each with its PID. The answer is empty if no process
    /// was ever followed.
    pub fn strangers(&self, answer: impl FnOnce(Vec<(ProcessId, u32)>) + Send + 'static) {
        let asked = Request::Strangers(Box::new(answer));
        match self.0.started.get() {
            Some(started) => started.ask(asked),
            None => asked.refuse(link::none(), &mut |_| {}),
        }
    }

    /// Reaps inherited children that have ended, if this process inherits orphans.
    pub fn reap(&self) {
        if self.0.place.is_init {
            self.ask(Request::Reap);
        }
    }

    /// Returns the data directory, if there is one.
    pub fn data(&self) -> Option<PathBuf> {
        self.0.place.data.clone()
    }

    /// Returns the socket on which processes that work on tasks report, with the key from which their secrets are derived; `None` without a
    /// data directory.
    pub fn reporting(&self) -> Option<&Reporting> {
        self.0.place.reporting.as_ref()
    }

    /// Returns the faults that tasks have requested; `None` if they may not request any.
    pub fn faults(&self) -> Option<&Faults> {
        self.0.place.faults.as_ref()
    }

    /// Returns the path of the keeper's socket; `None` without a data directory, because there is no keeper then.
    pub fn socket(&self) -> Option<PathBuf> {
        let data = self.0.place.data.as_ref()?;
        Some(data.join(crate::keeper::SOCKET))
    }

    /// Returns the observations of the kernel and of the followed processes, which the status of the node reports.
    pub fn observed(&self) -> &Observed {
        &self.0.place.observed
    }

    /// Returns the number of notices that the actor has yet to handle.
    pub fn unread(&self) -> &Unread {
        &self.0.place.unread
    }

    /// Returns the directory of a launched process; `None` without a data directory.
    pub fn run_dir(&self, id: ProcessId, own: Option<&Bytes>) -> Option<PathBuf> {
        Some(files::run_dir(self.0.place.data.as_ref()?, id, own))
    }

    fn ask(&self, asked: Request) {
        let Some(reporter) = self.0.reporter.get() else {
            return asked.refuse(link::none(), &mut |_| {});
        };
        if let Some(started) = self.0.started.get() {
            return started.ask(asked);
        }
        let waiting = self.0.waiting.lock();
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        // Another caller may have started the thread in the meantime. After a failure, the next request tries again.
        let outputs = || Outputs::new(reporter(), self.0.sentry.clone());
        let started = match self.0.started.get() {
            Some(started) => Ok(started),
            None => start(&self.0, reporter(), outputs())
                .map(|started| self.0.started.get_or_init(|| started)),
        };
        match started {
            Ok(started) => {
                if self.0.counted.swap(false, Ordering::Relaxed) {
                    started.ask(Request::Perform(Seq(0), Box::new(Action::ForgetOthers)));
                }
                waiting.drain(..).for_each(|asked| started.ask(asked));
                started.ask(asked);
            }
            Err(error) => {
                tracing::error!("failed to start the thread that follows processes: {error}");
                if asked.can_wait() {
                    waiting.push(asked);
                } else {
                    let about = Path::new("a thread that follows processes");
                    asked.refuse(files::failure(Step::Keeper, &error, about), &mut reporter());
                }
            }
        }
    }
}

impl Started {
    fn ask(&self, asked: Request) {
        if self.asks.send(asked).is_ok() {
            // This fails only if the counter is at its maximum, which wakes the thread as well.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

impl Request {
    /// Returns whether the request can be queued until the thread can be started. Only actions other than launches can.
    fn can_wait(&self) -> bool {
        matches!(self, Self::Perform(_, action) if !matches!(**action, Action::Launch { .. }))
    }

    fn refuse(self, failure: Failure, report: &mut dyn FnMut(Message)) {
        match self {
            Self::Perform(_, action) => {
                if let Action::Launch { id, .. } = *action {
                    report(Message::Failed { id, failure });
                }
            }
            Self::Join(answer) => answer(Err(failure)),
            Self::Reconcile(_, answer) => answer(Vec::new()),
            Self::Usage(_, answer) => answer(Vec::new()),
            Self::Left(_, answer) => answer(Vec::new()),
            Self::Strangers(answer) => answer(Vec::new()),
            Self::Reap | Self::End => {}
        }
    }
}

/// The port of the `ProcessActor`.
pub struct ProcessPort(ProcessPortHandle);

impl ProcessPort {
    /// Creates the port that uses `handle` and reports to the actor through functions made by `reporter`.
    pub fn new<R: FnMut(Message) + Send + 'static>(
        handle: ProcessPortHandle,
        reporter: impl Fn() -> R + Send + Sync + 'static,
    ) -> Self {
        let reporter: Box<Reporter> = Box::new(move || Box::new(reporter()));
        // This cannot fail, because each node has only one port.
        drop(handle.0.reporter.set(reporter));
        Self(handle)
    }
}

impl Port<ProcessMachine> for ProcessPort {
    fn perform(&mut self, action: effect::Action<Action>) {
        let effect::Action { attempt, what, .. } = action;
        // This action lets the keeper forget attempts. If the thread never ran and there is no keeper, it would have
        // no effect.
        let nothing = what == Action::ForgetOthers && self.0.0.started.get().is_none();
        if nothing && !self.0.0.place.may_have_keeper() {
            // The thread performs it when it starts. Until then, a launch may have been carried out by an
            // earlier keeper.
            self.0.0.counted.store(true, Ordering::Relaxed);
        } else {
            self.0.ask(Request::Perform(attempt, Box::new(what)));
        }
    }
}

impl Drop for ProcessPort {
    fn drop(&mut self) {
        let Some(started) = self.0.0.started.get() else {
            return;
        };
        started.ask(Request::End);
        let thread = started.thread.lock();
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the thread has halted the node.
            drop(thread.join());
        }
    }
}

fn start(
    shared: &Shared,
    report: Box<dyn FnMut(Message) + Send>,
    outputs: Outputs,
) -> io::Result<Started> {
    let (asks, asked) = unbounded();
    let real = Real::new(shared.place.clone(), report, outputs)?;
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let flags = epoll::EventFlags::IN;
    epoll::add(&real.epoll, &wake, epoll::EventData::new_u64(ASKED), flags)?;
    let woken = wake.try_clone()?;
    let run = move || run(Follower::new(real), &asked, &woken);
    let thread = shared.sentry.thread("processes", run)?;
    Ok(Started { asks, wake, thread: Mutex::new(Some(thread)) })
}

/// The attempts that are to be forgotten, and when: after [`FORGET_MS`], since a service is launched again when its process ends, and that
/// launch should not wait for the removal of a control group.
#[derive(Default)]
struct Past {
    ids: Vec<ProcessId>,
    at: u64,
}

impl Past {
    fn add(&mut self, id: ProcessId, now: u64) {
        if self.ids.is_empty() {
            self.at = now + FORGET_MS;
        }
        self.ids.push(id);
    }

    fn deadline(&self) -> Option<u64> {
        (!self.ids.is_empty()).then_some(self.at)
    }

    /// Forgets the attempts if this is due, or if there are at least [`FORGET_AT_ONCE`].
    fn forget<R: FnMut(Message)>(&mut self, follower: &mut Follower<Real<R>>) {
        let now = follower.world().clock();
        if self.ids.len() >= FORGET_AT_ONCE || self.deadline().is_some_and(|at| at <= now) {
            follower.forget(&std::mem::take(&mut self.ids));
        }
    }
}

/// Serves requests and events. Returns whether it was asked to end, rather than unable to wait for events.
fn run<R: FnMut(Message)>(
    mut follower: Follower<Real<R>>,
    asked: &Receiver<Request>,
    wake: &OwnedFd,
) -> bool {
    let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
    let mut past = Past::default();
    let mut joins: Joins = Vec::new();
    loop {
        let now = follower.world().clock();
        let joinable = follower.world().paused_until().filter(|_| !joins.is_empty());
        let late = follower.world().fetches.deadline();
        let deadlines = [follower.next(), past.deadline(), joinable, late];
        let due = deadlines.into_iter().flatten().min();
        let due = due.map(|at| timespec(at.saturating_sub(now)));
        let tokens: Vec<u64> = match epoll::wait(&follower.world().epoll, &mut buffer, due.as_ref())
        {
            Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => {
                tracing::error!(
                    "the thread that follows processes failed to wait for events: {error}"
                );
                return false;
            }
        };
        follower.world().look_anew();
        for token in tokens {
            match token {
                ASKED => {
                    let mut count = [0; 8];
                    // Reset the eventfd so that it is not reported again.
                    let _ = rustix::io::read(wake, &mut count);
                    if !perform(&mut follower, asked, (&mut past, &mut joins)) {
                        follower.forget(&past.ids);
                        return true;
                    }
                }
                KEEPER => receive(&mut follower),
                NOTICES | INBOXES.. => follower.notified(token),
                LINES => follower.output_grew(),
                // The answers are taken below, as those are that do not come.
                FETCHED => {}
                token => {
                    if let Some(id) = follower.world().watched(token) {
                        follower.ended(id);
                    } else if let Some(id) = follower.world().emptied(token) {
                        follower.emptied(id);
                    }
                }
            }
        }
        follower.handle_due();
        let now = follower.world().clock();
        for id in follower.world().fetches.settle(now) {
            follower.fetched(id);
        }
        answer_joins(&mut follower, &mut joins);
        past.forget(&mut follower);
        follower.reap_again();
        follower.report_due();
        while follower.world().has_unread() {
            receive(&mut follower);
        }
        let unknown = follower.doubted();
        follower.world().count_unknown(unknown);
    }
}

/// Performs all pending requests. Returns `false` if one of them was [`Request::End`].
fn perform<R: FnMut(Message)>(
    follower: &mut Follower<Real<R>>,
    asked: &Receiver<Request>,
    (past, joins): (&mut Past, &mut Joins),
) -> bool {
    while let Ok(asked) = asked.try_recv() {
        match asked {
            Request::Perform(seq, action) => {
                if let Action::Forget { id } = *action {
                    past.add(id, follower.world().clock());
                } else {
                    follower.perform(seq, *action);
                }
            }
            Request::Join(answer) => joins.push(answer),
            Request::Reconcile(trees, answer) => {
                let gone = trees.iter().map(|(tree, dir)| follower.reconcile(tree, dir.as_ref()));
                answer(gone.collect());
            }
            Request::Usage(trees, answer) => {
                let world = follower.world();
                answer(trees.iter().map(|tree| world.usage(tree)).collect());
            }
            Request::Left(trees, answer) => {
                let world = follower.world();
                answer(trees.iter().map(|tree| world.left(tree)).collect());
            }
            Request::Strangers(answer) => answer(follower.strangers()),
            Request::Reap => follower.reap(),
            Request::End => return false,
        }
    }
    true
}

/// Joins a keeper for the clients that wait for one, and answers them. While the start of a keeper is only postponed, they keep waiting: a
/// client that was refused would lose its request.
fn answer_joins<R: FnMut(Message)>(follower: &mut Follower<Real<R>>, joins: &mut Joins) {
    if joins.is_empty() {
        return;
    }
    let now = follower.world().clock();
    if follower.world().paused_until().is_some_and(|at| at > now) {
        return;
    }
    let joined = follower.join();
    if joined.is_ok() || follower.world().paused_until().is_none() {
        joins.drain(..).for_each(|answer| answer(joined.clone()));
    }
}

fn receive<R: FnMut(Message)>(follower: &mut Follower<Real<R>>) {
    let mut reports = Vec::new();
    let lives = follower.world().receive(&mut reports);
    for report in reports {
        follower.receive(report);
    }
    if !lives {
        follower.keeper_gone();
    }
}

fn timespec(ms: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
    }
}
