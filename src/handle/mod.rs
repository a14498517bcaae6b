//! The handle to a running node, usable from any thread: its locks, queues, processes, leases and tasks, its events and its status.
//!
//! The handle depends on no listener. The listeners are built on the handle, and [`node`](crate::node) connects the two.

mod audit;
mod claimed;
mod draining;
mod events;
mod job_wait;
mod leases;
mod locks;
#[cfg(feature = "replay")]
mod past;
mod pop;
mod processes;
mod pruning;
mod queue_error;
mod queues;
mod refresh;
mod results;
mod services;
mod system;
mod tasks;
mod troubles;
mod unexpected;
#[cfg(feature = "jobs")]
mod work;

pub use self::audit::{AttemptId, Audit, AuditError, Disagreement};
pub use self::draining::{Drain, Drains, InProgress};
pub use self::events::Events;
pub use self::job_wait::JobWait;
pub use self::leases::{LeaseError, Leases, Requested};
pub use self::locks::{Entry, LockError, Locks, Terms};
#[cfg(feature = "replay")]
pub(crate) use self::past::Readers;
#[cfg(feature = "replay")]
pub use self::past::{Answered, Past, PastError};
pub use self::pop::Exchanged;
pub use self::processes::{
    Left, ProcessError, Processes, Reconciled, Requester, Stopping, Usage, words as failure_words,
};
pub use self::queue_error::QueueError;
pub use self::queues::{Added, Queues};
pub use self::refresh::REFRESH;
pub use self::results::Ending;
pub use self::services::Services;
pub(crate) use self::system::System;
pub use self::tasks::{Fault, Inventoried, TaskError, Tasks};
pub use self::troubles::TroubleError;
#[cfg(feature = "jobs")]
pub use self::work::{Attempt, Job, JobError, PushError, WorkError, Workers, put_of};
use crate::actors::lock::{Query, Reply};
use crate::actors::{Actors, dispatch, each, lease, queue, supervisor};
use crate::clock::{Clock, Date, Offset, Timestamp};
use crate::ids::ActorId;
use crate::persist::journal::{Fsync, Journal};
use crate::ports::process::ProcessPortHandle;
use crate::refusal::Reason;
use crate::spine::budget::Budget;
use crate::spine::checkpoint::{self, CheckpointError, SnapshotStatus};
use crate::spine::delivery::{Item, Stage};
use crate::spine::directory::Admission;
use crate::spine::each::MailboxOf;
use crate::spine::event::Position;
use crate::spine::feed::Reader;
use crate::spine::ledger::EntryCounts;
use crate::spine::machine::Actor;
use crate::spine::runtime::{Mailbox, Stopped};
use crate::spine::shared::{Halt, Sentry};
use crate::status::{
    ActorReport, FollowingStatus, JournalStatus, Listeners, Listening, NodeStatus, Recovered,
    Reloaded, fsync_words,
};
use sexton_api::operate::Checkpoint;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// A handle to a running node, usable from any thread. Clones share the node.
#[derive(Clone)]
pub struct Handle {
    pub(crate) actors: Actors<MailboxOf>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) halt: watch::Receiver<Option<Halt>>,
    /// The actors whose events this handle does not show.
    pub(crate) hidden: Vec<&'static str>,
}

/// A listener that shows its address and statistics in the node's status. The handle depends only on this trait, not on the protocols.
pub trait ListenerStatus: Send + Sync {
    /// Adds the listener's address and statistics to `listening`; `locks` are the numbers of lock owners and contenders.
    fn show(&self, locks: (u32, u32), listening: &mut Listening);
}

/// Facts and shared channels that live as long as the node.
pub(crate) struct Facts {
    pub(crate) data: Option<PathBuf>,
    pub(crate) fsync: Fsync,
    pub(crate) queue_rules: queue::Rules,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Timestamp,
    pub(crate) recovered: Recovered,
    pub(crate) reloaded: Mutex<Option<Reloaded>>,
    pub(crate) journal: Option<Journal>,
    pub(crate) admission: Admission,
    pub(crate) draining: watch::Sender<Drains>,
    /// How far the wall clock is ahead of its expected time, in milliseconds, while the wall clock is in doubt; 0 while it is trusted.
    pub(crate) clock_ahead: Arc<AtomicU64>,
    /// The number of journal entries that each actor has appended since startup.
    pub(crate) entries: Arc<EntryCounts>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) checkpoints: mpsc::UnboundedSender<checkpoint::Request>,
    pub(crate) snapshots: checkpoint::SharedStatus,
    /// The listeners, in the order in which they were opened.
    pub(crate) listeners: Mutex<Vec<Box<dyn ListenerStatus>>>,
    pub(crate) system: System,
    /// Halts the node when a thread ends that it depends on.
    pub(crate) sentry: Sentry,
    pub(crate) port: ProcessPortHandle,
    #[cfg(feature = "replay")]
    pub(crate) past: Readers,
}

/// A request from a handle to the core thread.
#[derive(Debug)]
pub(crate) enum Command {
    Stop,
    Drain(Drain, oneshot::Sender<()>),
    ConfirmClock(oneshot::Sender<bool>),
    Listen(Option<Position>, oneshot::Sender<Reader>),
    Durable(oneshot::Sender<()>),
    Pause(Duration, oneshot::Sender<()>),
}

impl Handle {
    pub(crate) fn new(
        actors: Actors<MailboxOf>,
        facts: Facts,
        halt: watch::Receiver<Option<Halt>>,
    ) -> Self {
        Self { actors, facts: Arc::new(facts), halt, hidden: Vec::new() }
    }

    /// Returns a handle for clients that may not start or end processes: the actors refuse what would do so, and the events of processes are
    /// not shown.
    #[must_use]
    pub fn limited(&self) -> Self {
        let hidden = crate::actors::guarded();
        Self { actors: self.actors.limited(), hidden, ..self.clone() }
    }

    /// Returns a handle to the locks.
    pub fn locks(&self) -> Locks {
        Locks::new(self.actors.lock.clone())
    }

    /// Returns a handle to the queues.
    pub fn queues(&self) -> Queues {
        Queues::new(self.actors.queue.clone(), self.drains())
    }

    /// Returns a handle to the processes.
    pub fn processes(&self) -> Processes {
        let port = self.facts.port.clone();
        Processes::new(self.actors.process.clone(), port)
    }

    /// Returns a handle to the services.
    pub fn services(&self) -> Services {
        let port = self.facts.port.clone();
        Services::new(self.actors.process.clone(), port)
    }

    /// Returns a handle to the leases.
    pub fn leases(&self) -> Leases {
        Leases::new(self.actors.lease.clone())
    }

    /// Returns a handle to the tasks.
    pub fn tasks(&self) -> Tasks {
        let port = self.facts.port.clone();
        let journal = self.facts.journal.clone();
        Tasks::new(self.actors.dispatch.clone(), port, journal)
    }

    /// Returns the rules of the queues, which are fixed while the node runs.
    pub fn queue_rules(&self) -> &queue::Rules {
        &self.facts.queue_rules
    }

    /// Trusts the wall clock although it is far ahead of its expected time, so that items whose removal dates have passed are no longer
    /// kept back. Returns whether the clock was in doubt.
    pub async fn confirm_clock(&self) -> Result<bool, Stopped> {
        let (answer, believed) = oneshot::channel();
        let sent = self.facts.commands.send(Command::ConfirmClock(answer));
        sent.map_err(|_| Stopped)?;
        believed.await.map_err(|_| Stopped)
    }

    /// Resolves once everything that the node has accepted so far is durable. Never resolves if the node halts before that.
    pub async fn until_durable(&self) -> Result<(), Stopped> {
        let (answer, durable) = oneshot::channel();
        let sent = self.facts.commands.send(Command::Durable(answer));
        sent.map_err(|_| Stopped)?;
        durable.await.map_err(|_| Stopped)
    }

    /// Takes a snapshot now, which makes the next startup faster and allows old journal segments to be removed.
    pub async fn checkpoint(&self) -> Result<Checkpoint, CheckpointError> {
        let (request, taken) = oneshot::channel();
        let sent = self.facts.checkpoints.send(request);
        sent.map_err(|_| CheckpointError::Stopped)?;
        taken.await.map_err(|_| CheckpointError::Stopped)?
    }

    /// Returns the status of the snapshots.
    pub fn snapshots(&self) -> SnapshotStatus {
        self.facts.snapshots.get()
    }

    /// Resolves after `span`. Uses the core thread's timer, so it works in any async runtime and without one.
    async fn pause(&self, span: Duration) -> Result<(), Stopped> {
        let (answer, over) = oneshot::channel();
        let sent = self.facts.commands.send(Command::Pause(span, answer));
        sent.map_err(|_| Stopped)?;
        over.await.map_err(|_| Stopped)
    }

    /// Resolves with the reason when the node halts, and never if it stops normally.
    pub async fn halted(&self) -> Halt {
        let mut halt = self.halt.clone();
        loop {
            if let Some(reason) = halt.borrow_and_update().clone() {
                return reason;
            }
            if halt.changed().await.is_err() {
                // The node stopped cleanly, so it will never halt.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the addresses of the listeners.
    pub fn listeners(&self) -> Listeners {
        self.listening((0, 0)).listeners
    }

    /// Adds a listener to the status.
    pub fn add_listener(&self, listener: impl ListenerStatus + 'static) {
        let listeners = self.facts.listeners.lock();
        let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.push(Box::new(listener));
    }

    fn listening(&self, locks: (u32, u32)) -> Listening {
        let mut listening = Listening::default();
        let listeners = self.facts.listeners.lock();
        for listener in listeners.unwrap_or_else(PoisonError::into_inner).iter() {
            listener.show(locks, &mut listening);
        }
        listening
    }

    /// Returns the counters of the listeners and of the journal since startup, without querying an actor. Those of the journal are `None`
    /// if the node keeps no files.
    pub fn counted(&self) -> (Listening, Option<JournalStatus>) {
        let journal = self.facts.journal.as_ref().map(Into::into);
        (self.listening((0, 0)), journal)
    }

    /// Returns the number of journal entries that an actor has appended since startup. Does not query the actor.
    pub fn entries_of(&self, actor: ActorId) -> u64 {
        self.facts.entries.of(actor)
    }

    /// Returns the path of the socket to which task commands report, if there is one.
    pub fn report_socket(&self) -> Option<PathBuf> {
        let reporting = self.facts.port.reporting()?;
        Some(reporting.socket().to_owned())
    }

    /// Returns the clock that node time is read from.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.facts.clock)
    }

    /// Returns the memory budget for requests that have not arrived completely or are not answered yet. Each listener uses at most half of it.
    pub fn unfinished_requests(&self) -> &Arc<Budget> {
        self.facts.admission.unfinished()
    }

    /// Starts a thread without which the node cannot go on, such as that of a listener: the node halts if it ends before it was asked to.
    /// `run` returns whether it was. Nobody joins the thread.
    ///
    /// # Errors
    /// Returns the error of the operating system if no thread can be started.
    pub fn thread(
        &self,
        name: &'static str,
        run: impl FnOnce() -> bool + Send + 'static,
    ) -> io::Result<()> {
        self.facts.sentry.thread(name, run).map(drop)
    }

    /// Resolves when the core thread has exited, because the node was stopped or the thread panicked.
    pub async fn ended(&self) {
        self.facts.commands.closed().await;
    }

    /// Returns why the node halted, if it did.
    pub fn halt_reason(&self) -> Option<String> {
        self.halt.borrow().as_ref().map(Halt::to_string)
    }

    /// Returns the id of the process that runs the node.
    pub fn pid(&self) -> u32 {
        std::process::id()
    }

    /// Returns the current wall clock time, computed from node time and the [offset](Self::offset).
    pub fn date(&self) -> Date {
        self.offset().date(self.now())
    }

    /// Returns how far the wall clock is ahead of node time.
    pub fn offset(&self) -> Offset {
        Offset(self.facts.clock.offset_ms())
    }

    /// Returns the node time.
    pub fn now(&self) -> Timestamp {
        self.facts.clock.now()
    }

    /// Returns what recovery found at startup.
    pub fn recovered(&self) -> &Recovered {
        &self.facts.recovered
    }

    /// Records that the program running the node has reloaded its configuration. `problems` says what could not be applied. The
    /// [status](Self::status) shows the number of reloads and the latest problems.
    pub fn note_reload(&self, problems: Vec<String>) {
        let newest = self.facts.reloaded.lock();
        let mut newest = newest.unwrap_or_else(PoisonError::into_inner);
        let count = newest.as_ref().map_or(0, |it| it.count) + 1;
        *newest = Some(Reloaded { count, problems });
    }

    /// Returns the status of the node. The counts of an actor that panics on the query are shown as zero.
    pub async fn status(&self) -> Result<NodeStatus, Stopped> {
        let facts = &self.facts;
        let counts = self.actors.lock.call(vec![Item::Query(Query::Counts)]).await?;
        let (lock_owners, lock_contenders) = match counts.first() {
            Some(Ok(Reply::Counts { owners, contenders })) => (*owners, *contenders),
            Some(_) | None => (0, 0),
        };
        let jobs = self.queues().totals().await;
        let jobs = known(jobs, QueueError::reason, || queue::Totals {
            draining: self.draining().jobs,
            ..queue::Totals::default()
        })?;
        let leases = self.leases().totals().await;
        let leases = known(leases, LeaseError::reason, lease::Totals::default)?;
        let tasks = self.tasks().totals().await;
        let tasks = known(tasks, TaskError::reason, dispatch::Totals::default)?;
        let actors = each!(mailbox in &self.actors => self.report(mailbox).await?).into();
        let listening = self.listening((lock_owners, lock_contenders));
        let system = facts.system.read().await;
        let now = facts.clock.now();
        Ok(NodeStatus {
            version: env!("CARGO_PKG_VERSION"),
            pid: self.pid(),
            data: facts.data.clone(),
            fsync: fsync_words(facts.fsync, facts.journal.is_some()),
            listeners: listening.listeners,
            uptime_ms: now.0.saturating_sub(facts.started.0),
            now,
            wall_offset_ms: facts.clock.offset_ms(),
            clock_ahead_ms: match facts.clock_ahead.load(Ordering::Relaxed) {
                0 => None,
                ahead => Some(ahead),
            },
            recovered: facts.recovered.clone(),
            reloaded: facts.reloaded.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            draining: self.draining().any(),
            draining_what: self.draining().names(),
            lock_owners,
            lock_contenders,
            following: self.following(),
            memory_limits: self.memory_limits(),
            open_commands: facts.admission.open(),
            journal: facts.journal.as_ref().map(Into::into),
            snapshots: facts.data.as_ref().map(|_| self.snapshots()),
            queues: jobs,
            leases,
            tasks,
            actors,
            lockserver: listening.lockserver,
            beanstalk: listening.beanstalk,
            http: listening.http,
            host: system.host,
            process: system.process,
            halted: self.halt_reason(),
        })
    }

    /// Returns how this node follows processes.
    fn following(&self) -> FollowingStatus {
        let observed = self.facts.port.observed();
        let (kernel, observations) = (observed.kernel(), observed.now());
        FollowingStatus {
            tier: kernel.tier().name(),
            descriptors: kernel.pidfds,
            inodes: kernel.inodes,
            handles: kernel.handles.is_some(),
            exits: kernel.exits,
            control_groups: observations.groups,
            unknown: observations.unknown,
            words: kernel.to_string(),
        }
    }

    /// Returns what a memory limit applies to on this machine: `process` (each process separately) or `tree` (a process with everything
    /// that it started); `None` until a keeper has been joined.
    fn memory_limits(&self) -> Option<&'static str> {
        let trees = self.facts.port.observed().now().bounds_trees?;
        Some(if trees { "tree" } else { "process" })
    }

    async fn report<M: Actor>(&self, mailbox: &Mailbox<M>) -> Result<ActorReport, Stopped> {
        let status = mailbox.status().await?;
        let asked = vec![Item::Query(supervisor::Query::Of(M::ID))];
        let panics = match self.actors.supervisor.call(asked).await?.pop() {
            Some(Ok(supervisor::Reply::Record(record))) => record,
            Some(_) | None => supervisor::Record::default(),
        };
        Ok(ActorReport { status, panics })
    }

    /// Returns the mailboxes of the actors, for tests that inject panics.
    #[doc(hidden)]
    pub fn actors(&self) -> &Actors<MailboxOf> {
        &self.actors
    }

    /// Calls `planted` at each stage of every supervised actor, so that tests can make the actors panic.
    #[doc(hidden)]
    pub fn inject_panics(&self, planted: impl Fn(Stage) + Clone + Send + 'static) {
        fn inject<M: Actor>(mailbox: &Mailbox<M>, planted: impl Fn(Stage) + Send + 'static) {
            if M::ID != ActorId::SUPERVISOR {
                mailbox.inject_panics(Box::new(move |stage, _| planted(stage)));
            }
        }
        each!(mailbox in &self.actors => inject(mailbox, planted.clone()));
    }
}

/// Returns an actor's counts, or empty counts if the actor panicked on the query. Returns an error only if the node has stopped.
fn known<T, E>(
    counted: Result<T, E>,
    reason: impl FnOnce(&E) -> Reason,
    nothing: impl FnOnce() -> T,
) -> Result<T, Stopped> {
    match counted {
        Ok(counted) => Ok(counted),
        Err(error) if reason(&error) == Reason::Stopped => Err(Stopped),
        Err(_) => Ok(nothing()),
    }
}
