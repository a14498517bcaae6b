//! The composition root and the embedding API: opens a data directory, brings the actors up, opens the doors.
//!
//! Promises: no signal handlers, nothing printed, no exit. A node that halts says so on every handle and resolves
//! [`Node::halted`]; the host program goes on.

use crate::actors::checkpoint::{self, CheckpointError, Checkpoints, SnapshotStatus, Taken};
use crate::actors::directory::Admission;
use crate::actors::host::{Answer, Host, Item};
use crate::actors::ledger::Ledger;
use crate::actors::lock::{LockMachine, Message, Query, Reply, Watch};
use crate::actors::machine::Machine as _;
use crate::actors::recovery::{self, Recovering, RecoveryError, Replica, Scope};
use crate::actors::runtime::{self, Mailbox, Stopped};
use crate::actors::spine::{Halt, Spine, SpineFiles};
use crate::actors::supervisor::{self, SupervisorActor};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::config::Config;
use crate::ids::Seq;
use crate::persist::PersistError;
use crate::persist::disk::{DirLock, Disk, RealDisk};
use crate::persist::format::Chance;
use crate::persist::journal::{Cut, Fsync, Journal, JournalThread, ThreadFiller, Writer};
use crate::persist::snapshots::{SledStores, Slots};
use crate::protocols::lockserver::{self, Hosts, HostsError};
use crate::status::{ActorReport, Doors, NodeStatus, fsync_words};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    locks: Mailbox<LockMachine>,
    lockserver: Option<lockserver::Door>,
    #[cfg(feature = "http")]
    http: Option<crate::protocols::http::Door>,
    facts: Arc<Facts>,
    halt: watch::Receiver<Option<Halt>>,
}

/// What does not change while a node runs.
struct Facts {
    data: Option<PathBuf>,
    fsync: Fsync,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    recovered: Recovered,
    journal: Option<Journal>,
    admission: Admission,
    draining: AtomicBool,
    supervisor: mpsc::UnboundedSender<Command>,
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

enum Command {
    Stop,
    Panics(&'static str, oneshot::Sender<supervisor::Record>),
}

impl Node {
    /// Opens a node: takes the directory, replays the journal, opens the doors.
    ///
    /// Blocks until the doors are open. Everything runs on threads of its own.
    pub fn open(config: Config) -> Result<Self, NodeError> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(NodeError::Config(problems));
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
                    let words = crate::actors::host::panic_words(payload.as_ref());
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
    /// Carries out lock commands, in order, and gives their answers in the same order.
    pub async fn locks(
        &self,
        items: Vec<Item<LockMachine>>,
    ) -> Result<Vec<Answer<Reply>>, Stopped> {
        self.locks.call(items).await
    }

    /// Takes no new locks from now on, and resolves when none is left.
    pub async fn drain(&self) -> Result<(), Stopped> {
        // Whether this drain began or another had: both end when nothing is left.
        drop(self.locks.call(vec![Item::Message(Message::Drain)]).await?);
        self.facts.draining.store(true, Ordering::Relaxed);
        drop(self.locks.watch(Watch::Empty).await?);
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
        self.facts.supervisor.closed().await;
    }

    /// Why the node halted, if it did.
    pub fn halt_words(&self) -> Option<String> {
        self.halt.borrow().as_ref().map(Halt::to_string)
    }

    /// What the start found.
    pub fn recovered(&self) -> &Recovered {
        &self.facts.recovered
    }

    /// What the node says of itself.
    pub async fn status(&self) -> Result<NodeStatus, Stopped> {
        let facts = &self.facts;
        let counts = self.locks.call(vec![Item::Query(Query::Counts)]).await?;
        let (lock_owners, lock_contenders) = match counts.first() {
            Some(Ok(Reply::Counts { owners, contenders })) => (*owners, *contenders),
            Some(_) | None => (0, 0),
        };
        let status = self.locks.status().await?;
        let (answer, panics) = oneshot::channel();
        let asked = Command::Panics(LockMachine::NAME, answer);
        facts.supervisor.send(asked).map_err(|_| Stopped)?;
        let panics = panics.await.map_err(|_| Stopped)?;
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
            draining: facts.draining.load(Ordering::Relaxed),
            lock_owners,
            lock_contenders,
            open_commands: facts.admission.open(),
            journal: facts.journal.as_ref().map(Into::into),
            snapshots: facts.data.as_ref().map(|_| self.snapshots()),
            actors: vec![ActorReport { status, panics }],
            lockserver: self
                .lockserver
                .as_ref()
                .map(|door| door.stats(lock_owners, lock_contenders)),
            #[cfg(feature = "http")]
            http: self.http.as_ref().map(crate::protocols::http::Door::stats),
            halted: self.halt_words(),
        })
    }

    /// Plants panics in the LockActor, for tests.
    #[doc(hidden)]
    pub fn sabotage_locks(&self, saboteur: crate::actors::host::Saboteur<LockMachine>) {
        self.locks.sabotage(saboteur);
    }
}

/// The core thread's side of opening, running and stopping.
struct Core {
    commands: mpsc::UnboundedSender<Command>,
    halt: watch::Sender<Option<Halt>>,
    halted: watch::Receiver<Option<Halt>>,
}

/// What a data directory holds, and the hold on it.
struct Files {
    disk: Arc<dyn Disk>,
    slots: Slots,
    writer: Writer,
    /// Held until the core ends.
    lock: DirLock,
}

/// A recovered past, not yet begun anew.
struct Past {
    locks: Host<LockMachine>,
    found: recovery::Past,
    files: Option<Files>,
}

impl Core {
    async fn run(
        self,
        config: Config,
        received: mpsc::UnboundedReceiver<Command>,
        ready: &std::sync::mpsc::Sender<Result<Handle, NodeError>>,
    ) {
        match self.open(config).await {
            Ok(open) => {
                // Whoever opens the node waits for this.
                drop(ready.send(Ok(open.handle.clone())));
                open.serve(received).await;
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    }

    async fn open(self, config: Config) -> Result<Open, NodeError> {
        let hosts = match config
            .lockserver
            .as_ref()
            .and_then(|door| door.hosts.as_ref())
        {
            Some(file) => Hosts::read(file)?,
            None => Hosts::Loopback,
        };
        let began = SystemClock::starting_at(Timestamp(0)).now();
        let mut past = recover(&config)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::starting_at(past.found.tail.last_at));
        let recovered = Recovered {
            records: past.found.tail.records,
            clean: past.found.tail.clean || past.found.tail.last == Seq(0),
            ms: SystemClock::starting_at(Timestamp(0))
                .now()
                .0
                .saturating_sub(began.0),
            cut: past.found.tail.cut.as_ref().map(cut_words),
            snapshot: past
                .found
                .snapshot
                .as_ref()
                .map(|(slot, seal)| (slot.to_string(), seal.manifest.begun)),
            mended: past.found.mended.clone(),
        };
        let mut ledger = Ledger::new(Arc::clone(&clock), &past.found.tail, past.files.is_none());
        let start = ledger.start(Chance(chance()?));
        let (journal, files) = match past.files {
            None => (None, None),
            Some(Files {
                disk,
                slots,
                mut writer,
                lock,
            }) => {
                writer.write(&mut ledger.take_batch())?;
                writer.sync()?;
                let (journal, thread) = Journal::start(writer, config.fsync)?;
                let files = SpineFiles {
                    journal,
                    disk,
                    slots,
                };
                (Some(files), Some((thread, lock)))
            }
        };
        past.locks.start(start);
        let admission = Admission::new(config.open_commands_max);
        let log = journal.as_ref().map(|files| files.journal.clone());
        let supervisor = SupervisorActor::new(config.supervisor);
        let spine = Rc::new(Spine::new(ledger, journal, supervisor, self.halt));
        let checkpoints =
            Checkpoints::new(Rc::clone(&spine), config.checkpoints, past.found.sealed);
        let checkpoints = Rc::new(checkpoints);
        let (asks, asked) = mpsc::unbounded_channel();
        let facts = Facts {
            data: config.data.clone(),
            fsync: config.fsync,
            started: clock.now(),
            clock,
            recovered,
            journal: log,
            admission: admission.clone(),
            draining: AtomicBool::new(false),
            supervisor: self.commands,
            checkpoints: asks,
            snapshots: checkpoints.shown(),
        };
        let writing = Rc::clone(&spine);
        runtime::spawn(async move { writing.write_forever().await });
        let releasing = Rc::clone(&spine);
        runtime::spawn(async move { releasing.release_forever().await });
        runtime::spawn(runtime::watch_wall_clock(Rc::clone(&spine)));
        let locks = runtime::start(past.locks, config.locks.clone(), &spine, admission);
        let (taking, mended) = (Rc::clone(&checkpoints), !past.found.mended.is_empty());
        runtime::spawn(async move { taking.run(asked, mended).await });
        match open_doors(&config, hosts, locks, facts, self.halted).await {
            Ok(handle) => Ok(Open {
                handle,
                spine,
                checkpoints,
                files,
            }),
            // Everything is well but a door: the next start is one after a stop in good order.
            Err(error) => {
                end(&spine, &checkpoints, files).await;
                Err(error)
            }
        }
    }
}

#[cfg_attr(
    not(feature = "http"),
    expect(clippy::unused_async, reason = "opening the HTTP door waits")
)]
async fn open_doors(
    config: &Config,
    hosts: Hosts,
    locks: Mailbox<LockMachine>,
    facts: Facts,
    halt: watch::Receiver<Option<Halt>>,
) -> Result<Handle, NodeError> {
    let clock = Arc::clone(&facts.clock);
    let lockserver = match &config.lockserver {
        None => None,
        Some(door) => {
            let opened = lockserver::Door::open(door, hosts, locks.clone(), clock);
            Some(opened.map_err(|source| NodeError::Door {
                door: "lockserver",
                address: door.address.to_string(),
                source,
            })?)
        }
    };
    let handle = Handle {
        locks,
        lockserver,
        #[cfg(feature = "http")]
        http: None,
        facts: Arc::new(facts),
        halt,
    };
    #[cfg(feature = "http")]
    let handle = match &config.http {
        None => handle,
        Some(door) => {
            let http = crate::protocols::http::Door::open(door, &handle).await?;
            handle.with_http(http)
        }
    };
    Ok(handle)
}

/// Brings the actors to where the log ends, and opens the log for appending.
fn recover(config: &Config) -> Result<Past, NodeError> {
    let mut locks = Replica::<LockMachine>::new(config.locks.clone());
    let Some(data) = &config.data else {
        let (machine, last) = locks.into_parts();
        return Ok(Past {
            locks: Host::new(machine, last),
            found: recovery::Past::default(),
            files: None,
        });
    };
    let real = RealDisk::new(data);
    let lock = real.lock()?;
    let disk: Arc<dyn Disk> = Arc::new(real);
    let replicas: &mut [&mut dyn Recovering] = &mut [&mut locks];
    let slots = Slots::new(Arc::clone(&disk), Arc::new(SledStores::new(data)));
    let found = recovery::recover(disk.as_ref(), Some(&slots), replicas, Scope::default())?;
    if let Some(cut) = &found.tail.cut {
        tracing::warn!("{}", cut_words(cut));
    }
    for wrong in &found.mended {
        tracing::warn!("{wrong}; it will be written anew");
    }
    let salt = u32::from_le_bytes(chance()?);
    let filler = Box::new(ThreadFiller::start(Arc::clone(&disk), salt)?);
    let writer = Writer::open(Arc::clone(&disk), config.segments, filler, &found.tail)?;
    let (machine, last) = locks.into_parts();
    Ok(Past {
        locks: Host::new(machine, last),
        found,
        files: Some(Files {
            disk,
            slots,
            writer,
            lock,
        }),
    })
}

/// Bytes that nobody can foresee.
fn chance<const LEN: usize>() -> Result<[u8; LEN], NodeError> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).map_err(|error| NodeError::Core(std::io::Error::other(error)))?;
    Ok(bytes)
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

/// A node with its doors open.
struct Open {
    handle: Handle,
    spine: Rc<Spine>,
    checkpoints: Rc<Checkpoints>,
    files: Option<(JournalThread, DirLock)>,
}

impl Open {
    async fn serve(self, mut received: mpsc::UnboundedReceiver<Command>) {
        let Self {
            handle,
            spine,
            checkpoints,
            files,
        } = self;
        while let Some(Command::Panics(actor, answer)) = received.recv().await {
            drop(answer.send(spine.supervisor().record(actor)));
        }
        #[cfg(feature = "http")]
        if let Some(http) = &handle.http {
            http.close().await;
        }
        drop(handle);
        end(&spine, &checkpoints, files).await;
    }
}

/// Takes a last snapshot, notes the stop, and lets the journal and the directory go.
async fn end(spine: &Spine, checkpoints: &Checkpoints, files: Option<(JournalThread, DirLock)>) {
    if files.is_some() && checkpoints.uncovered().records > 0 {
        // Why there was none, if there was none, is in the log; the journal has it all.
        drop(checkpoints.take().await);
    }
    if !spine.is_halted() {
        let stop = spine.stop();
        spine.until_durable_or_halted(stop).await;
    }
    if let Some((thread, lock)) = files {
        if let Err(error) = thread.stop() {
            tracing::error!(%error, "the journal did not end well");
        }
        drop(lock);
    }
}
