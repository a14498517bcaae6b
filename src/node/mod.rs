//! The composition root and the embedding API: opens a data directory, brings the actors up, opens the doors.
//!
//! Promises: no signal handlers, nothing printed, no exit. A node that halts says so on every handle and resolves
//! [`Node::halted`]; the host program goes on.

mod core;
mod events;
mod locks;
mod ports;
mod queues;

use self::core::Core;
pub use self::events::Events;
pub use self::locks::{Entry, LockError, Locks, Terms};
pub use self::queues::{Added, JobWait, QueueError, Queues};
use crate::actors::lock::{LockMachine, Query, Reply, Watch};
use crate::actors::queue::{self, QueueMachine};
use crate::actors::supervisor;
use crate::actors::{Actors, each};
use crate::clock::{Clock, Timestamp};
use crate::config::Config;
use crate::ids::Seq;
use crate::persist::PersistError;
use crate::persist::journal::{Cut, Fsync, Journal};
use crate::protocols::beanstalk;
use crate::protocols::lockserver::{self, HostsError};
use crate::spine::checkpoint::{self, CheckpointError, SnapshotStatus, Taken};
use crate::spine::delivery::Item;
use crate::spine::directory::Admission;
use crate::spine::each::MailboxOf;
use crate::spine::event::Position;
use crate::spine::feed::Reader;
use crate::spine::machine::Actor;
use crate::spine::recovery::RecoveryError;
use crate::spine::runtime::{self, Mailbox, Stopped};
use crate::spine::shared::Halt;
use crate::status::{ActorReport, Doors, NodeStatus, fsync_words};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot, watch};

/// Why a node did not open.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Settings that cannot be; each a line.
    #[error("check the configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The data directory cannot be used.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The past cannot be repeated.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The hosts list cannot be used.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// The token file cannot be used.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Token(#[from] crate::protocols::http::TokenError),
    /// The certificate or its key cannot be used.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Tls(#[from] crate::protocols::http::TlsError),
    /// A door cannot be opened.
    #[error("open the {door} door on {address}: {source}")]
    Door {
        /// Which.
        door: &'static str,
        /// Where.
        address: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The operating system gave no thread or no chance.
    #[error("start the core: {0}")]
    Core(std::io::Error),
    /// An actor cannot begin.
    #[error("start an actor: it panicked: {0}")]
    Start(String),
    /// Opening ended in a halt.
    #[error(transparent)]
    Halted(#[from] Halt),
}

/// A running coordinator. Dropping it stops it in good order.
pub struct Node {
    handle: Handle,
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<JoinHandle<()>>,
}

/// What can be asked of a running node, from any thread. Cloning gives another handle.
#[derive(Clone)]
pub struct Handle {
    actors: Actors<MailboxOf>,
    lockserver: Option<lockserver::Door>,
    beanstalk: Option<beanstalk::Door>,
    #[cfg(feature = "http")]
    http: Option<crate::protocols::http::Door>,
    facts: Arc<Facts>,
    halt: watch::Receiver<Option<Halt>>,
}

/// What does not change while a node runs.
struct Facts {
    data: Option<PathBuf>,
    fsync: Fsync,
    queue_rules: queue::Rules,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    recovered: Recovered,
    journal: Option<Journal>,
    admission: Admission,
    /// Whether new locks are refused until the end.
    draining: watch::Sender<bool>,
    commands: mpsc::UnboundedSender<Command>,
    checkpoints: mpsc::UnboundedSender<checkpoint::Request>,
    snapshots: checkpoint::Shown,
}

/// What a start found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Recovered {
    /// Records replayed.
    pub records: u64,
    /// Whether the coordinator before had stopped in good order, or there was none.
    pub clean: bool,
    /// How long recovery took, in milliseconds.
    pub ms: u64,
    /// The end of the log that was cut, as text.
    pub cut: Option<String>,
    /// The snapshot that the start began with, and up to where it went.
    pub snapshot: Option<(String, Seq)>,
    /// What was wrong with snapshots, in words. They are written anew.
    pub mended: Vec<String>,
}

#[derive(Debug)]
enum Command {
    Stop,
    Drain(oneshot::Sender<()>),
    Listen(Option<Position>, oneshot::Sender<Reader>),
}

impl Node {
    /// Opens a node: takes the directory, replays the journal, opens the doors.
    ///
    /// Blocks until the doors are open. Everything runs on threads of its own.
    pub fn open(config: Config) -> Result<Self, NodeError> {
        let problems = config.problems();
        if !problems.is_empty() {
            let problems = problems.iter().map(ToString::to_string);
            return Err(NodeError::Config(problems.collect()));
        }
        let (commands, received) = mpsc::unbounded_channel();
        let (ready, opened) = std::sync::mpsc::channel();
        let (halt, halted) = watch::channel(None);
        let theirs = commands.clone();
        let thread = std::thread::Builder::new()
            .name("sexton-core".to_owned())
            .spawn(move || {
                let fallback = halt.clone();
                let core = Core {
                    commands: theirs,
                    halt,
                    halted,
                };
                let run = || runtime::block_on(core.run(config, received, &ready));
                if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
                    let words = crate::spine::guard::panic_words(payload.as_ref());
                    fallback.send_replace(Some(Halt::CoreThread(words)));
                }
            })
            .map_err(NodeError::Core)?;
        match opened.recv() {
            Ok(Ok(handle)) => Ok(Self {
                handle,
                commands,
                thread: Some(thread),
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(NodeError::Halted(Halt::CoreThread(
                "it ended while opening".to_owned(),
            ))),
        }
    }

    /// A handle for others.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops in good order: what was acknowledged is on disk, the next start is a clean one. Blocks.
    pub fn stop(mut self) -> Result<(), Halt> {
        self.stop_now();
        self.handle.halt.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits until the node halts by itself. Never, if it does not.
    pub async fn halted(&self) -> Halt {
        self.handle.halted().await
    }

    fn stop_now(&mut self) {
        // A core that has ended already needs no telling.
        drop(self.commands.send(Command::Stop));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the core thread panicked");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop_now();
    }
}

impl Handle {
    /// The locks.
    pub fn locks(&self) -> Locks {
        Locks::new(self.actors.lock.clone())
    }

    /// The queues.
    pub fn queues(&self) -> Queues {
        Queues::new(self.actors.queue.clone())
    }

    /// What holds for the queues, for as long as the node runs.
    pub fn queue_rules(&self) -> &queue::Rules {
        &self.facts.queue_rules
    }

    /// Takes no new locks from now on, and resolves when none is left.
    pub async fn drain(&self) -> Result<(), LockError> {
        self.begin_drain().await?;
        Ok(self.drained().await?)
    }

    /// Takes no new locks from now on.
    pub async fn begin_drain(&self) -> Result<(), LockError> {
        let (answer, begun) = oneshot::channel();
        let sent = self.facts.commands.send(Command::Drain(answer));
        sent.map_err(|_| Stopped)?;
        begun.await.map_err(|_| Stopped)?;
        self.facts.draining.send_replace(true);
        Ok(())
    }

    /// Resolves when no lock is left after a drain has begun, by whomever. Never, if none begins.
    pub async fn drained(&self) -> Result<(), Stopped> {
        let mut draining = self.facts.draining.subscribe();
        let begun = draining.wait_for(|draining| *draining).await;
        drop(begun.map_err(|_| Stopped)?);
        drop(self.actors.lock.watch(Watch::Empty).await?);
        Ok(())
    }

    /// Takes a snapshot now, so that a start has less to repeat, and the journal less to keep.
    pub async fn checkpoint(&self) -> Result<Taken, CheckpointError> {
        let (request, taken) = oneshot::channel();
        let sent = self.facts.checkpoints.send(request);
        sent.map_err(|_| CheckpointError::Stopped)?;
        taken.await.map_err(|_| CheckpointError::Stopped)?
    }

    /// What is known of snapshots.
    pub fn snapshots(&self) -> SnapshotStatus {
        self.facts.snapshots.get()
    }

    /// Waits until the node halts by itself. Never, if it does not.
    pub async fn halted(&self) -> Halt {
        let mut halt = self.halt.clone();
        loop {
            if let Some(reason) = halt.borrow_and_update().clone() {
                return reason;
            }
            if halt.changed().await.is_err() {
                // Stopped in good order: it will never halt.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Where the doors are.
    pub fn doors(&self) -> Doors {
        #[cfg(feature = "http")]
        let (http, socket) = match &self.http {
            Some(door) => (door.address(), door.socket()),
            None => (None, None),
        };
        #[cfg(not(feature = "http"))]
        let (http, socket) = (None, None);
        Doors {
            lockserver: self.lockserver.as_ref().map(lockserver::Door::address),
            beanstalk: self.beanstalk.as_ref().map(|door| door.address().clone()),
            http,
            socket,
        }
    }

    /// The LockServer door, if it is open.
    pub fn lockserver(&self) -> Option<&lockserver::Door> {
        self.lockserver.as_ref()
    }

    /// The HTTP door, if it is open.
    #[cfg(feature = "http")]
    pub fn http(&self) -> Option<&crate::protocols::http::Door> {
        self.http.as_ref()
    }

    /// The same handle, for use inside the HTTP door.
    #[cfg(feature = "http")]
    pub(crate) fn with_http(&self, door: crate::protocols::http::Door) -> Self {
        Self {
            http: Some(door),
            ..self.clone()
        }
    }

    /// Resolves when the core has ended, in whatever way.
    #[cfg(feature = "http")]
    pub(crate) async fn ended(&self) {
        self.facts.commands.closed().await;
    }

    /// Why the node halted, if it did.
    pub fn halt_words(&self) -> Option<String> {
        self.halt.borrow().as_ref().map(Halt::to_string)
    }

    /// The node's time.
    pub fn now(&self) -> Timestamp {
        self.facts.clock.now()
    }

    /// What the start found.
    pub fn recovered(&self) -> &Recovered {
        &self.facts.recovered
    }

    /// What the node says of itself.
    pub async fn status(&self) -> Result<NodeStatus, Stopped> {
        let facts = &self.facts;
        let counts = self
            .actors
            .lock
            .call(vec![Item::Query(Query::Counts)])
            .await?;
        let (lock_owners, lock_contenders) = match counts.first() {
            Some(Ok(Reply::Counts { owners, contenders })) => (*owners, *contenders),
            Some(_) | None => (0, 0),
        };
        let asked = vec![Item::Query(queue::Query::Totals)];
        let jobs = match self.actors.queue.call(asked).await?.pop() {
            Some(Ok(queue::Reply::Totals(totals))) => *totals,
            Some(_) | None => queue::Totals::default(),
        };
        let actors = each!(mailbox in &self.actors => self.report(mailbox).await?).into();
        let now = facts.clock.now();
        Ok(NodeStatus {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            data: facts.data.clone(),
            fsync: fsync_words(facts.fsync, facts.journal.is_some()),
            doors: self.doors(),
            uptime_ms: now.0.saturating_sub(facts.started.0),
            now,
            wall_offset_ms: facts.clock.offset_ms(),
            recovered: facts.recovered.clone(),
            draining: *facts.draining.borrow(),
            lock_owners,
            lock_contenders,
            open_commands: facts.admission.open(),
            journal: facts.journal.as_ref().map(Into::into),
            snapshots: facts.data.as_ref().map(|_| self.snapshots()),
            queues: jobs,
            actors,
            lockserver: self
                .lockserver
                .as_ref()
                .map(|door| door.stats(lock_owners, lock_contenders)),
            beanstalk: self.beanstalk.as_ref().map(beanstalk::Door::stats),
            #[cfg(feature = "http")]
            http: self.http.as_ref().map(crate::protocols::http::Door::stats),
            halted: self.halt_words(),
        })
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

    /// Plants panics in the QueueActor, for tests.
    #[doc(hidden)]
    pub fn sabotage_queues(&self, saboteur: crate::spine::delivery::Saboteur<QueueMachine>) {
        self.actors.queue.sabotage(saboteur);
    }

    /// Plants panics in what the LockActor answers to queries, for tests.
    #[doc(hidden)]
    pub fn sabotage_lock_queries(
        &self,
        saboteur: crate::spine::delivery::QuerySaboteur<LockMachine>,
    ) {
        self.actors.lock.sabotage_queries(saboteur);
    }

    /// Plants panics in what the QueueActor answers to queries, for tests.
    #[doc(hidden)]
    pub fn sabotage_queue_queries(
        &self,
        saboteur: crate::spine::delivery::QuerySaboteur<QueueMachine>,
    ) {
        self.actors.queue.sabotage_queries(saboteur);
    }

    /// Plants panics in the LockActor, for tests.
    #[doc(hidden)]
    pub fn sabotage_locks(&self, saboteur: crate::spine::delivery::Saboteur<LockMachine>) {
        self.actors.lock.sabotage(saboteur);
    }
}

/// What was cut, in words for people.
pub fn cut_words(cut: &Cut) -> String {
    let seqs: Vec<String> = cut.seqs.iter().map(Seq::to_string).collect();
    let seqs = match seqs.as_slice() {
        [] => "no readable record".to_owned(),
        seqs => format!("sequence numbers {}", seqs.join(", ")),
    };
    format!(
        "cut the unfinished end of {} at offset {}: {} bytes, {seqs}; nothing of it was shown to be synced",
        cut.file, cut.offset, cut.bytes
    )
}
