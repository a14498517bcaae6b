//! The addresses of actors, and the bound on open commands. Both outlive restarts of actors.
//!
//! actix accepts any number of messages into a mailbox, so the bound is enforced here: a sender of commands first waits for room, and its
//! connection is not read meanwhile.

use crate::ids::{ActorId, Ticket};
use crate::spine::budget::Budget;
use crate::spine::effect::Tell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A way to reach an actor from other actors.
pub trait Peer {
    /// Sends the actor a message.
    fn tell(&self, tell: Tell);
    /// Notifies the actor that one of its own messages to other actors (tells) was refused, or panicked.
    fn undelivered(&self);
    /// Notifies the actor that something may have become due because the wall clock stepped.
    fn handle_due(&self);
}

/// The actors of a node, on the core thread.
#[derive(Default)]
pub struct Directory {
    peers: BTreeMap<ActorId, Rc<dyn Peer>>,
}

impl Directory {
    /// Registers an actor.
    pub fn register(&mut self, actor: ActorId, peer: Rc<dyn Peer>) {
        self.peers.insert(actor, peer);
    }

    /// Returns the way to reach an actor, or `None` if there is no such actor. Tests wrap it to drop some messages.
    pub fn peer(&self, actor: ActorId) -> Option<Rc<dyn Peer>> {
        self.peers.get(&actor).map(Rc::clone)
    }

    /// Delivers a tell. A tell to an actor that this node does not have is dropped and logged as an error.
    pub fn tell(&self, tell: Tell) {
        match self.peers.get(&tell.to) {
            Some(peer) => peer.tell(tell),
            None => tracing::error!(actor = tell.to.0, "dropped a message for an unknown actor"),
        }
    }

    /// Notifies an actor that one of its tells was refused, or panicked.
    pub fn undelivered(&self, sender: ActorId) {
        if let Some(peer) = self.peers.get(&sender) {
            peer.undelivered();
        }
    }

    /// Makes every actor handle its due items.
    pub fn handle_due(&self) {
        for peer in self.peers.values() {
            peer.handle_due();
        }
    }
}

/// The maximum number of bytes that the incomplete requests of all listeners may hold together. [`Admission::with_request_bytes`] raises it
/// for large requests.
const UNFINISHED_BYTES: u64 = 512 << 20;

/// The bounds on commands that are delivered and not yet answered, and on the bytes of incomplete requests. Clones share the bounds.
#[derive(Clone, Debug)]
pub struct Admission {
    open: Arc<Semaphore>,
    max: u32,
    scans: Arc<Semaphore>,
    unfinished: Arc<Budget>,
    tickets: Arc<AtomicU64>,
}

impl Admission {
    /// Creates bounds that allow at most `max` open commands (delivered and not yet answered) at a time.
    pub fn new(max: u32) -> Self {
        Self {
            open: Arc::new(Semaphore::new(max as usize)),
            max,
            scans: Arc::new(Semaphore::new(1)),
            unfinished: Budget::new(UNFINISHED_BYTES),
            tickets: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Raises the bound on incomplete requests if necessary, so that each listener has room for two requests of `bytes` bytes.
    #[must_use]
    pub fn with_request_bytes(self, bytes: usize) -> Self {
        let unfinished = Budget::new(UNFINISHED_BYTES.max(4 * bytes as u64));
        Self { unfinished, ..self }
    }

    /// Returns the budget for incomplete requests. Each listener gets at most half of it.
    pub const fn unfinished(&self) -> &Arc<Budget> {
        &self.unfinished
    }

    /// Waits until `commands` more commands may be opened, and returns a permit to hold while they are open. A number above the bound
    /// counts as the bound.
    pub async fn admit(&self, commands: usize) -> OwnedSemaphorePermit {
        let commands = u32::try_from(commands).unwrap_or(u32::MAX).min(self.max);
        let open = Arc::clone(&self.open);
        open.acquire_many_owned(commands).await.expect("the semaphore is never closed")
    }

    /// Waits for a turn to run a query that scans a large part of the state, and returns a permit to hold while it runs. Only one such
    /// query runs at a time, so a command waits for at most one of them, however many are requested.
    pub async fn scan(&self) -> OwnedSemaphorePermit {
        let scans = Arc::clone(&self.scans);
        let turn = scans.acquire_owned().await;
        turn.expect("the semaphore is never closed")
    }

    /// Returns the number of open commands.
    pub fn open(&self) -> u64 {
        u64::from(self.max) - self.open.available_permits() as u64
    }

    /// Returns a ticket that no other wait has.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}
