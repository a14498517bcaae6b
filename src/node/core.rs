//! The core thread of a node: opens the data directory and the listeners, and closes them again when the node stops.

use super::chance::chance;
use super::listeners::OpenListeners;
use super::protocol::Protocols;
use super::{NodeError, cleanup, cut_words, faults, ports};
use crate::actors::{Actors, each};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::config::Config;
#[cfg(feature = "replay")]
use crate::handle::Readers;
use crate::handle::{Command, Drain, Facts, Handle, System};
use crate::ids::Chance;
use crate::ids::Seq;
use crate::persist::disk::{DirLock, Disk, RealDisk};
use crate::persist::journal::{Fsync, Journal, JournalThread, ThreadFiller, Writer};
use crate::persist::snapshots::{SledStores, Slots};
use crate::ports::process::{Faults, Observed, Place, ProcessPortHandle, Reporting, Unread, files};
use crate::spine::checkpoint::Checkpoints;
use crate::spine::directory::Admission;
use crate::spine::each::{HostOf, MailboxOf, ReplicaOf};
use crate::spine::event::EventBody;
use crate::spine::host::Host;
use crate::spine::ledger::Ledger;
use crate::spine::progress::Watched;
use crate::spine::recovery::{self, Recovering, Scope};
use crate::spine::runtime;
use crate::spine::shared::{Halt, Sentry, Spine, SpineFiles};
use crate::status::Recovered;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

/// The maximum time a stopping node waits until subscribers can receive the last event, which requires that the journal is synced.
const STOP_EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The channel ends that the core thread is given: it passes `commands` and `halted` on to the node's handles, and sends the reason of a
/// halt to `halt`.
pub(super) struct Core {
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) halt: watch::Sender<Option<Halt>>,
    pub(super) halted: watch::Receiver<Option<Halt>>,
}

/// An open data directory, and the lock on it.
struct Files {
    disk: Arc<dyn Disk>,
    slots: Slots,
    writer: Writer,
    /// Held until the core thread exits.
    lock: DirLock,
}

impl Files {
    /// Writes the ledger's first records and starts the journal thread.
    fn start(
        mut self,
        ledger: &mut Ledger,
        fsync: Fsync,
    ) -> Result<(SpineFiles, CoreResources), NodeError> {
        self.writer.write(&mut ledger.take_batch())?;
        self.writer.sync()?;
        let (journal, thread) = Journal::start(self.writer, fsync)?;
        let lock = Arc::new(self.lock);
        journal.watch_directory(&lock);
        let files = SpineFiles { journal, disk: self.disk, slots: self.slots };
        Ok((files, CoreResources(thread, lock)))
    }
}

/// The resources held until the core thread exits, in the order in which they are released: the journal thread, then the directory lock.
struct CoreResources(JournalThread, Arc<DirLock>);

/// What recovery returns: the actors, which are not started yet, the result of the recovery, and the files, which stay open for writing.
struct Past {
    hosts: Actors<HostOf>,
    found: recovery::Past,
    files: Option<Files>,
}

impl Core {
    pub(super) async fn run(
        self,
        (config, protocols): (Config, Protocols),
        received: mpsc::UnboundedReceiver<Command>,
        ready: &std::sync::mpsc::Sender<Result<(Handle, OpenListeners), NodeError>>,
    ) {
        // On the heap, because this future holds the recovered state of every actor.
        match Box::pin(self.open(config, protocols)).await {
            Ok(open) => {
                // `Node::open` waits for this.
                drop(ready.send(Ok((open.handle.clone(), open.listeners.clone()))));
                open.serve(received).await;
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    }

    async fn open(self, mut config: Config, mut protocols: Protocols) -> Result<Open, NodeError> {
        OpenListeners::prepare(&mut config, &protocols)?;
        let began = SystemClock::starting_at(Timestamp(0)).now();
        let mut past = recover(&config)?;
        OpenListeners::listen(&mut config, &mut protocols)?;
        let clock = clock(&config, past.found.tail.last_at);
        let recovered = recovered(&past.found, began);
        let (tail, marked) = (&past.found.tail, past.found.marked.clone());
        let mut ledger = Ledger::new(Arc::clone(&clock), tail, marked, past.files.is_none());
        let start = ledger.start(Chance(chance()?));
        each!(host in &past.hosts, rules in &config.rules => ledger.rules(host.actor(), rules));
        let started = past.files.map(|files| files.start(&mut ledger, config.fsync));
        let (journal, files) = started.transpose()?.unzip();
        let lock = files.as_ref().map(|CoreResources(_, lock)| Arc::clone(lock));
        for began in each!(host in &mut past.hosts => host.start(start)) {
            began.map_err(NodeError::Start)?;
        }
        let admission =
            Admission::new(config.open_commands_max).with_request_bytes(config.request_bytes_max());
        let log = journal.as_ref().map(|files| files.journal.clone());
        let spine = Rc::new(Spine::new(ledger, journal, self.halt));
        runtime::watch_tasks(spine.sentry());
        let checkpoints = checkpoints(&spine, &config, &past.found, lock);
        let (asks, asked) = mpsc::unbounded_channel();
        let port = open_port(&config, spine.sentry())?;
        let entries = Arc::clone(spine.ledger().counts());
        let facts = Facts {
            data: config.data.clone(),
            fsync: config.fsync,
            queue_rules: config.rules.queue.clone(),
            started: clock.now(),
            clock: Arc::clone(&clock),
            recovered,
            reloaded: Mutex::default(),
            journal: log,
            admission: admission.clone(),
            draining: watch::Sender::default(),
            clock_ahead: Arc::clone(spine.ledger().ahead()),
            entries,
            commands: self.commands,
            checkpoints: asks,
            snapshots: checkpoints.shown(),
            listeners: Mutex::default(),
            system: System::default(),
            sentry: spine.sentry().clone(),
            port: port.clone(),
            #[cfg(feature = "replay")]
            past: Readers::default(),
        };
        spawn_background_tasks(&spine);
        let rules = config.rules.clone();
        let actors = ports::start(past.hosts, rules, &spine, &admission, &port);
        handle_due_on_moves(&*clock, &actors);
        checkpoints.take_overdue().await;
        let (taking, mended) = (Rc::clone(&checkpoints), !past.found.mended.is_empty());
        runtime::spawn("snapshots", async move {
            taking.run(asked, mended).await;
        });
        let handle = Handle::new(actors, facts, self.halted);
        finish_startup(&handle, &config, &port).await;
        match OpenListeners::open(&config, &mut protocols, &handle).await {
            Ok(listeners) => Ok(Open { handle, listeners, spine, checkpoints, files }),
            // Only a listener failed, so stop cleanly before returning the error.
            Err(error) => {
                end(&spine, &checkpoints, files).await;
                Err(error)
            }
        }
    }
}

/// Installs the faults that tasks may request, starts the removal of process directories without a record, and configures the services.
async fn finish_startup(handle: &Handle, config: &Config, port: &ProcessPortHandle) {
    if let Some(faults) = port.faults() {
        faults::inject(handle, faults);
    }
    cleanup::start(handle, config.data.as_deref());
    let services = config.services.clone();
    if let Err(error) = handle.services().configure(services).await {
        tracing::error!("failed to configure the services, which stay unchanged: {error}");
    }
}

/// Returns the clock from the configuration, or a system clock that continues from the journal's last record.
fn clock(config: &Config, last_at: Timestamp) -> Arc<dyn Clock> {
    match &config.clock {
        Some(clock) => Arc::new(clock.clone()),
        None => Arc::new(SystemClock::starting_at(last_at)),
    }
}

/// Creates the node's [`Checkpoints`], with the rules and the hook from the configuration.
fn checkpoints(
    spine: &Rc<Spine>,
    config: &Config,
    found: &recovery::Past,
    lock: Option<Arc<DirLock>>,
) -> Rc<Checkpoints> {
    let checkpoints = Checkpoints::new(Rc::clone(spine), config.checkpoints, found);
    let after_each = config.after_checkpoint;
    // A snapshot thread keeps the directory locked until it ends, even if the node has given up waiting for it.
    let until_ended = move || {
        let _locked = &lock;
        if let Some(after_each) = after_each {
            after_each();
        }
    };
    let patience = config.planted.patience;
    Rc::new(checkpoints.and_then(until_ended).with_patience(patience))
}

/// Makes every actor handle its due items whenever the clock is moved manually.
fn handle_due_on_moves(clock: &dyn Clock, actors: &Actors<MailboxOf>) {
    for callback in each!(mailbox in &actors => mailbox.due_callback()) {
        clock.on_moved(callback);
    }
}

/// Creates the handle through which processes are launched and observed.
fn open_port(config: &Config, sentry: &Sentry) -> Result<ProcessPortHandle, NodeError> {
    let data = config.data.clone();
    let data = data.map(|data| std::path::absolute(&data).unwrap_or(data));
    let reporting = match &data {
        Some(data) => reporting(data, chance()?),
        None => None,
    };
    let place = Place {
        data,
        keeper: config.keeper.clone(),
        is_init: config.is_init,
        observed: Observed::default(),
        unread: Unread::default(),
        reporting,
        faults: config.allow_fault_injection.then(Faults::default),
    };
    Ok(ProcessPortHandle::new(place, sentry.clone()))
}

/// Returns the key and the socket for the reports of task processes. If no key is stored yet, stores `fresh` as the key. Returns `None` if
/// the key can be neither read nor stored, for example because the disk is full: the node then starts, but cannot run tasks.
fn reporting(data: &Path, fresh: [u8; 32]) -> Option<Reporting> {
    match files::report_key(data, fresh) {
        Ok(key) => Some(Reporting::new(key, data)),
        Err(error) => {
            tracing::warn!(%error, "tasks cannot run: failed to store the key for their reports");
            None
        }
    }
}

/// Starts the node's background tasks, which run until the node stops: they write the journal, release the answers that wait for it, and
/// watch the wall clock.
fn spawn_background_tasks(spine: &Rc<Spine>) {
    let writing = Rc::clone(spine);
    runtime::spawn("journal writer", async move {
        writing.write_forever().await;
    });
    let releasing = Rc::clone(spine);
    if spine.journal().is_some() {
        runtime::spawn("release of answers", async move {
            releasing.release_forever().await;
        });
    }
    runtime::spawn("wall clock", runtime::watch_wall_clock(Rc::clone(spine)));
    let halted = Rc::clone(spine);
    runtime::spawn_brief(async move { halted.discard_when_halted().await });
}

/// Summarizes a recovery for the status.
fn recovered(past: &recovery::Past, began: Timestamp) -> Recovered {
    let ended = SystemClock::starting_at(Timestamp(0)).now();
    Recovered {
        records: past.tail.records,
        clean: past.tail.clean || past.tail.last == Seq(0),
        new: past.tail.last == Seq(0),
        ms: ended.0.saturating_sub(began.0),
        cut: past.tail.cut.as_ref().map(cut_words),
        snapshot: past
            .snapshot
            .as_ref()
            .map(|(slot, seal)| (slot.to_string(), seal.manifest.begun)),
        mended: past.mended.clone(),
    }
}

/// Locks the data directory, recovers the actors from the newest snapshot and the journal, and opens the journal for appending. Without a
/// data directory, the actors begin empty.
fn recover(config: &Config) -> Result<Past, NodeError> {
    if config.clock.is_none() {
        SystemClock::check()?;
    }
    let mut replicas = Actors::empty(&config.rules);
    let Some(data) = &config.data else {
        return Ok(Past {
            hosts: hosts_of(replicas),
            found: recovery::Past::default(),
            files: None,
        });
    };
    let real = RealDisk::new(data);
    let lock = real.lock()?;
    let disk = config.planted.disk(Arc::new(real));
    let watched = |replica| Watched::new(replica, config.progress.clone());
    let mut watched = each!(replica in &mut replicas => watched(replica as &mut dyn Recovering));
    let mut recovering: Vec<&mut dyn Recovering> = Vec::new();
    for replica in &mut watched {
        recovering.push(replica);
    }
    let stores = config.planted.stores(Arc::new(SledStores::new(data)));
    let slots = Slots::new(Arc::clone(&disk), stores);
    let found = recovery::recover(disk.as_ref(), Some(&slots), &mut recovering, Scope::default())?;
    if let Some(cut) = &found.tail.cut {
        tracing::warn!("{}", cut_words(cut));
    }
    for wrong in &found.mended {
        tracing::warn!("{wrong}; taking a snapshot now");
    }
    let salt = u32::from_le_bytes(chance()?);
    let filler = Box::new(ThreadFiller::start(Arc::clone(&disk), salt)?);
    let writer = Writer::open(Arc::clone(&disk), config.segments, filler, &found.tail)?;
    Ok(Past { hosts: hosts_of(replicas), found, files: Some(Files { disk, slots, writer, lock }) })
}

/// Wraps the recovered replicas in hosts.
fn hosts_of(replicas: Actors<ReplicaOf>) -> Actors<HostOf> {
    each!(list: replica in replicas => Host::new(replica.into_parts()))
}

/// A node with its listeners open.
struct Open {
    handle: Handle,
    listeners: OpenListeners,
    spine: Rc<Spine>,
    checkpoints: Rc<Checkpoints>,
    files: Option<CoreResources>,
}

impl Open {
    async fn serve(self, mut received: mpsc::UnboundedReceiver<Command>) {
        let Self { handle, listeners, spine, checkpoints, files } = self;
        loop {
            // Answers that cannot be sent are dropped: the caller may no longer be waiting.
            match received.recv().await {
                Some(Command::Drain(what, answer)) => {
                    drain(&spine, what).await;
                    let _ = answer.send(());
                }
                Some(Command::ConfirmClock(answer)) => {
                    let _ = answer.send(confirm_clock(&spine).await);
                }
                Some(Command::Listen(after, answer)) => {
                    let last = spine.ledger().last();
                    drop(answer.send(spine.feed().listen(last, after)));
                }
                Some(Command::Durable(answer)) => {
                    let spine = Rc::clone(&spine);
                    runtime::spawn_brief(answer_when_durable(spine, answer));
                }
                Some(Command::Pause(span, answer)) => runtime::spawn_brief(async move {
                    // `clippy.toml` reserves `sleep` for the runtime, so a pause is a timeout around a future that never resolves.
                    let _ = timeout(span, std::future::pending::<()>()).await;
                    let _ = answer.send(());
                }),
                Some(Command::Stop) | None => break,
            }
        }
        spine.sentry().stopping();
        checkpoints.stopping();
        publish_stop(&spine).await;
        listeners.close().await;
        drop(handle);
        end(&spine, &checkpoints, files).await;
    }
}

/// Answers once everything appended so far is durable. Drops `answer` if the node halts before that.
async fn answer_when_durable(spine: Rc<Spine>, mut answer: oneshot::Sender<()>) {
    spine.write();
    let last = spine.ledger().last();
    tokio::select! {
        biased;
        () = spine.until_halted() => {}
        () = spine.until_durable(last) => drop(answer.send(())),
        () = answer.closed() => {}
    }
}

/// Makes the actors affected by `what` refuse new work, and waits until this is durable.
async fn drain(spine: &Spine, what: Drain) {
    let mut noted = None;
    for (actor, draining) in what.actors() {
        noted = spine.ledger().drain(actor, draining).or(noted);
    }
    if let Some(mark) = noted {
        spine.publish("node", EventBody::new("draining"));
        spine.write();
        spine.until_durable_or_halted(mark.seq).await;
    }
}

/// Trusts the wall clock although it is far ahead of its expected time, so that removals due on a date resume. Returns whether the clock
/// was in doubt.
async fn confirm_clock(spine: &Spine) -> bool {
    let believed = spine.ledger().confirm_wall_clock();
    if let Some(mark) = believed {
        spine.write();
        spine.until_durable_or_halted(mark.seq).await;
        spine.directory().handle_due();
    }
    believed.is_some()
}

/// Publishes the event that the node is stopping, waits at most `STOP_EVENT_TIMEOUT` until subscribers can receive it, and ends the feed.
/// Does nothing if the node has halted.
async fn publish_stop(spine: &Spine) {
    if spine.is_halted() {
        return;
    }
    spine.publish("node", EventBody::new("stopping"));
    spine.write();
    let told = spine.until_durable_or_halted(spine.feed().newest());
    if timeout(STOP_EVENT_TIMEOUT, told).await.is_err() {
        tracing::info!("subscribers may miss the last event: the journal was not synced in time");
    }
    spine.feed().end();
}

/// Takes a last snapshot, records the stop, and releases the journal and the directory.
async fn end(spine: &Spine, checkpoints: &Checkpoints, files: Option<CoreResources>) {
    spine.sentry().stopping();
    checkpoints.stopping();
    if files.is_some() && checkpoints.uncovered().records > 0 {
        // If the snapshot fails, the reason is logged; nothing is lost, because the journal is complete.
        drop(checkpoints.take().await);
    }
    // Waits for a snapshot that has begun meanwhile and prevents another, so that no thread uses the directory when it is released.
    let slots = checkpoints.until_unused().await;
    if !spine.is_halted() {
        let stop = spine.stop();
        spine.until_durable_or_halted(stop).await;
    }
    if let Some(CoreResources(thread, lock)) = files {
        if let Err(error) = thread.stop() {
            tracing::error!(%error, "the journal thread failed while stopping");
        }
        drop(lock);
    }
    drop(slots);
}
