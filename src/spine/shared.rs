//! What the actors of a node share on the core thread: the ledger, the journal, the directory, pending verdicts, and how the node halts.
//!
//! Guarantees: an answer is sent only once the journal is as durable as configured up to its entry; after a halt, nothing is acknowledged.

use crate::ids::{ActorId, Seq};
use crate::persist::disk::Disk;
use crate::persist::journal::{Journal, Room};
use crate::persist::snapshots::Slots;
use crate::spine::delivery::Report;
use crate::spine::directory::Directory;
use crate::spine::effect::Tell;
use crate::spine::event::EventBody;
use crate::spine::feed::Feed;
pub use crate::spine::halt::{Halt, Sentry};
use crate::spine::ledger::{CheckpointThreshold, Ledger};
use crate::spine::machine::Machine;
use crate::spine::outbox::Outbox;
use crate::spine::page_source::PageSource;
use crate::spine::supervision::{CAUSE_BYTES_MAX, Panicked, SUPERVISOR, Verdict};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::{Mutex, MutexGuard, Notify, oneshot, watch};

/// What the actors of a node share. It is used only on the core thread.
pub struct Spine {
    ledger: RefCell<Ledger>,
    journal: Option<Journal>,
    disk: Option<Arc<dyn Disk>>,
    slots: Option<Slots>,
    /// Held while a slot is written, or while none may be written.
    slots_held: Mutex<()>,
    /// The number of actors being rebuilt.
    rebuilding: watch::Sender<u32>,
    page_sources: RefCell<Vec<Rc<dyn PageSource>>>,
    /// Actors that panicked and wait for a verdict.
    awaiting_verdict: RefCell<BTreeMap<ActorId, (Report, oneshot::Sender<Verdict>)>>,
    directory: RefCell<Directory>,
    outboxes: RefCell<Vec<Box<dyn Outgoing>>>,
    feed: Arc<Feed>,
    dirty: Notify,
    /// The threshold that `until_appended` waits for. `appended` notifies it when the threshold is reached.
    threshold: Cell<Option<CheckpointThreshold>>,
    appended: Notify,
    /// The number of deliveries that appended records since the last write. If it is one, `write` tries to write on this thread.
    gathered: Cell<u32>,
    /// The number of records appended up to the last delivery.
    gathered_to: Cell<u64>,
    durable: watch::Sender<Seq>,
    sentry: Sentry,
    /// Whether a clean stop has been recorded.
    stopped: Cell<bool>,
}

/// The journal and the snapshots of a node, with the disk that they are on.
pub struct SpineFiles {
    /// The log.
    pub journal: Journal,
    /// The disk that the log is on.
    pub disk: Arc<dyn Disk>,
    /// The snapshots on the same disk.
    pub slots: Slots,
}

/// A guard that marks an actor as being rebuilt. No checkpoint begins meanwhile.
pub struct Rebuilding<'s>(&'s Spine);

impl Drop for Rebuilding<'_> {
    fn drop(&mut self) {
        self.0.rebuilding.send_modify(|actors| *actors -= 1);
    }
}

/// An [`Outbox`] whose machine can be of any type.
trait Outgoing {
    fn release(&self, durable: Seq);
    fn discard(&self);
}

impl<M: Machine> Outgoing for Outbox<M> {
    fn release(&self, durable: Seq) {
        Outbox::release(self, durable);
    }

    fn discard(&self) {
        Outbox::discard(self);
    }
}

impl Spine {
    /// Creates a spine over a ledger. `files` is `None` if the node keeps no files. The reason for a halt is sent to `halt`.
    pub fn new(
        mut ledger: Ledger,
        files: Option<SpineFiles>,
        halt: watch::Sender<Option<Halt>>,
    ) -> Self {
        let (journal, disk, slots) = match files {
            Some(SpineFiles { journal, disk, slots }) => (Some(journal), Some(disk), Some(slots)),
            None => (None, None, None),
        };
        let feed = match journal {
            Some(_) => Feed::default(),
            None => Feed::beginning_at(ledger.now()),
        };
        let durable = journal.as_ref().map_or(Seq(u64::MAX), Journal::released);
        Self {
            ledger: RefCell::new(ledger),
            journal,
            disk,
            slots,
            slots_held: Mutex::new(()),
            rebuilding: watch::Sender::new(0),
            page_sources: RefCell::default(),
            awaiting_verdict: RefCell::default(),
            directory: RefCell::default(),
            outboxes: RefCell::default(),
            feed: Arc::new(feed),
            dirty: Notify::new(),
            threshold: Cell::new(None),
            appended: Notify::new(),
            gathered: Cell::new(0),
            gathered_to: Cell::new(0),
            durable: watch::Sender::new(durable),
            sentry: Sentry::new(halt),
            stopped: Cell::new(false),
        }
    }

    /// Returns the ledger, which orders all entries.
    pub fn ledger(&self) -> RefMut<'_, Ledger> {
        self.ledger.borrow_mut()
    }

    /// Returns the directory of actors.
    pub fn directory(&self) -> RefMut<'_, Directory> {
        self.directory.borrow_mut()
    }

    /// Returns the log, or `None` if the node keeps no files.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Returns the disk that the log is on, or `None` if the node keeps no files.
    pub fn disk(&self) -> Option<Arc<dyn Disk>> {
        self.disk.clone()
    }

    /// Returns the snapshots, or `None` if the node keeps no files.
    pub fn slots(&self) -> Option<Slots> {
        self.slots.clone()
    }

    /// Returns the feed of events.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    /// Publishes an event that has no journal entry.
    pub fn publish(&self, actor: &'static str, what: EventBody) {
        if self.feed.is_open() {
            let at = self.ledger.borrow_mut().now();
            self.feed.put_without_entry(at, actor, what);
            self.feed.show(self.durable());
        }
    }

    /// Publishes a panic that is recorded in the journal.
    fn poisoned(&self, report: &Report) {
        if self.feed.is_open() {
            let (seq, at) = (report.seq, report.at);
            self.feed.put(seq, at, report.actor, restarted(report));
            self.feed.show(self.durable());
        }
    }

    /// Waits until no other task writes a slot, and prevents others from writing one until the guard is dropped.
    pub async fn hold_slots(&self) -> MutexGuard<'_, ()> {
        self.slots_held.lock().await
    }

    /// Marks an actor as being rebuilt, until the guard is dropped.
    pub fn rebuilding(&self) -> Rebuilding<'_> {
        self.rebuilding.send_modify(|actors| *actors += 1);
        Rebuilding(self)
    }

    /// Waits until no actor is being rebuilt.
    pub async fn until_rebuilt(&self) {
        let mut rebuilding = self.rebuilding.subscribe();
        if rebuilding.wait_for(|actors| *actors == 0).await.is_err() {
            unreachable!("the spine holds the sender");
        }
    }

    /// Registers an actor whose pages make up a part of each snapshot.
    pub fn register_page_source(&self, actor: Rc<dyn PageSource>) {
        self.page_sources.borrow_mut().push(actor);
    }

    /// Returns the actors whose pages make up a snapshot.
    pub fn page_sources(&self) -> Vec<Rc<dyn PageSource>> {
        self.page_sources.borrow().clone()
    }

    /// Registers an outbox, whose effects are released as the journal becomes durable.
    pub fn register<M: Machine>(&self, outbox: Outbox<M>) {
        self.outboxes.borrow_mut().push(Box::new(outbox));
    }

    /// Returns the last entry whose answers may be sent.
    pub fn durable(&self) -> Seq {
        *self.durable.borrow()
    }

    /// Waits until everything up to `seq` is durable; never resolves if the node halts before that.
    pub async fn until_durable(&self, seq: Seq) {
        let mut durable = self.durable.subscribe();
        if durable.wait_for(|durable| *durable >= seq).await.is_err() {
            unreachable!("the spine holds the sender");
        }
    }

    /// Waits until everything up to `seq` is durable, or until the node halts.
    pub async fn until_durable_or_halted(&self, seq: Seq) {
        tokio::select! {
            () = self.until_durable(seq) => {}
            () = self.until_halted() => {}
        }
    }

    /// Notes that a delivery is done, and schedules its records to be written after all other deliveries that are ready.
    pub fn delivered(&self) {
        let (appended, dirty) = {
            let ledger = self.ledger.borrow();
            (ledger.appended().records, ledger.is_dirty())
        };
        if self.gathered_to.replace(appended) != appended {
            self.gathered.set(self.gathered.get() + 1);
        }
        if dirty {
            self.dirty.notify_one();
        }
    }

    /// Waits until the log appended so far (see [`Ledger::appended`]) reaches `threshold`, or until `is_due` returns true, which is called
    /// whenever something is written while the disk is low on space. Only one caller may wait at a time.
    pub async fn until_appended(
        &self,
        threshold: CheckpointThreshold,
        is_due: impl Fn(&Ledger) -> bool,
    ) {
        self.threshold.set(Some(threshold));
        let is_over = || {
            let ledger = self.ledger.borrow();
            ledger.appended().is(threshold) || ledger.room() != Room::Ample && is_due(&ledger)
        };
        while !is_over() {
            self.appended.notified().await;
        }
        self.threshold.set(None);
    }

    /// Writes the gathered records whenever a delivery has added some. Never returns.
    pub async fn write_forever(&self) {
        loop {
            self.dirty.notified().await;
            self.write();
        }
    }

    /// Writes the gathered records: on this thread if they came from a single delivery and the journal allows it, otherwise through the
    /// journal thread.
    pub fn write(&self) {
        let Some(journal) = &self.journal else { return };
        let mut ledger = self.ledger.borrow_mut();
        if !ledger.is_dirty() {
            return;
        }
        let reached = self.threshold.get().is_some_and(|threshold| ledger.appended().is(threshold));
        if reached || ledger.room() != Room::Ample {
            self.appended.notify_one();
        }
        let alone = self.gathered.replace(0) <= 1;
        if alone && journal.write_inline(ledger.batch_mut()) {
            ledger.batch_mut().clear();
            drop(ledger);
            self.release();
        } else {
            let batch = ledger.take_batch();
            drop(ledger);
            journal.submit(batch);
        }
    }

    /// Releases answers whenever the journal has advanced, and halts the node if the journal fails. Returns only if the node has no
    /// journal.
    pub async fn release_forever(&self) {
        let Some(journal) = &self.journal else { return };
        std::future::poll_fn(|context| {
            journal.register(context.waker());
            self.release();
            Poll::<()>::Pending
        })
        .await;
    }

    /// Updates how much room the disk has, and releases everything that is durable now. If the journal has failed, halts the node instead
    /// of releasing anything.
    fn release(&self) {
        let Some(journal) = &self.journal else { return };
        let has_changed = {
            let mut ledger = self.ledger.borrow_mut();
            let before = ledger.room();
            ledger.set_room(journal.room());
            let (space, handed) = journal.space();
            ledger.set_space(space, handed);
            ledger.durable(journal.released());
            ledger.room() != before
        };
        if has_changed {
            // A checkpoint may be due because the disk is low on space.
            self.appended.notify_one();
            // Items that actors held back for lack of space are due now, although no time has passed.
            self.directory().handle_due();
        }
        if let Some(failure) = journal.failure() {
            self.halt(Halt::Journal(failure));
            return;
        }
        if self.is_halted() {
            return;
        }
        let durable = journal.released();
        if durable > self.durable() {
            self.durable.send_replace(durable);
            for outbox in self.outboxes.borrow().iter() {
                outbox.release(durable);
            }
            self.feed.show(durable);
        }
    }

    /// Reports a panic to the Supervisor, and returns the channel for its verdict. Returns `None` if the node halts instead: the Supervisor
    /// does not judge itself, and without a journal a spent state cannot be rebuilt.
    pub fn panicked(
        &self,
        actor: ActorId,
        report: &Report,
        spent: bool,
    ) -> Option<oneshot::Receiver<Verdict>> {
        tracing::error!(
            actor = report.actor,
            stage = report.stage.name(),
            seq = report.seq.0,
            cause = report.cause,
            item = report.item,
            "an actor panicked; what it was about to do was not applied"
        );
        if spent && self.journal.is_none() {
            self.halt(Halt::Spent(report.clone()));
            return None;
        }
        if actor == SUPERVISOR.actor() {
            self.halt(Halt::Panics(report.clone()));
            return None;
        }
        let (judge, verdict) = oneshot::channel();
        let waiting = (report.clone(), judge);
        self.awaiting_verdict.borrow_mut().insert(actor, waiting);
        let panicked = Panicked {
            actor,
            stage: report.stage,
            seq: report.seq,
            cause: shortened(&report.cause),
            item: report.item,
            spent,
        };
        self.directory.borrow().tell(Tell {
            from: actor,
            to: SUPERVISOR.actor(),
            message: rmp_serde::to_vec(&panicked).expect("messages should always encode"),
        });
        Some(verdict)
    }

    /// Passes on the verdict about an actor that panicked; halts the node if the verdict demands it.
    pub fn pass_verdict(&self, actor: ActorId, verdict: Verdict) {
        let Some((report, judge)) = self.awaiting_verdict.borrow_mut().remove(&actor) else {
            return;
        };
        match verdict {
            Verdict::Halt => self.halt(Halt::Panics(report)),
            // A poisoned message is published once it is in the journal.
            Verdict::Restart if report.stage.has_message() => self.poisoned(&report),
            Verdict::Restart => self.publish(report.actor, restarted(&report)),
        }
        // If the actor no longer waits, its node has stopped or halted.
        let _ = judge.send(verdict);
    }

    /// Returns the sentry, which halts the node from any thread.
    pub const fn sentry(&self) -> &Sentry {
        &self.sentry
    }

    /// Halts the node: nothing is acknowledged from now on. Only the first reason is kept.
    pub fn halt(&self, reason: Halt) {
        self.sentry.halt(reason);
        self.discard();
    }

    /// Discards what the halted node will not acknowledge, once it has halted for any reason, from any thread.
    pub async fn discard_when_halted(&self) {
        self.sentry.until_halted().await;
        self.discard();
    }

    fn discard(&self) {
        for outbox in self.outboxes.borrow().iter() {
            outbox.discard();
        }
        self.feed.end();
    }

    /// Records a clean stop, and returns the sequence number of the record. No other record may follow it, or the next startup would find
    /// an unclean stop.
    pub fn stop(&self) -> Seq {
        let stop = self.ledger.borrow_mut().stop();
        self.stopped.set(true);
        self.sentry.stopping();
        self.write();
        stop.seq
    }

    /// Waits until the node halts.
    pub async fn until_halted(&self) {
        self.sentry.until_halted().await;
    }

    /// Returns whether the node has halted.
    pub fn is_halted(&self) -> bool {
        self.sentry.is_halted()
    }

    /// Returns whether the node no longer carries out requests, because it has halted or stopped.
    pub fn is_over(&self) -> bool {
        self.stopped.get() || self.is_halted()
    }
}

/// Returns the event to publish when an actor continues after a panic, either with all items or without the item whose tick panicked.
fn restarted(report: &Report) -> EventBody {
    let what = match report.item {
        None => EventBody::new("restarted").text("stage", report.stage.name()),
        Some(item) => EventBody::new("quarantined").number("item", item),
    };
    what.text("cause", report.cause.clone())
}

/// Truncates a panic message to the length that is kept.
fn shortened(cause: &str) -> String {
    cause[..cause.floor_char_boundary(CAUSE_BYTES_MAX)].to_owned()
}
