//! Addresses of actors, and the bound on open commands. Outlives restarts.
//!
//! actix takes any number of messages into a mailbox, so the bound is kept here: whoever has commands to deliver
//! waits for room first, and a connection that waits is not read from.

use crate::ids::{ActorId, Ticket};
use crate::spine::budget::Budget;
use crate::spine::effect::Tell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How the others reach an actor.
pub trait Peer {
    /// Brings it a message.
    fn tell(&self, tell: Tell);
    /// One of its own tells was refused, or panicked.
    fn undelivered(&self);
    /// Something may have become due: the wall clock stepped.
    fn rouse(&self);
}

/// Who is where, on the core.
#[derive(Default)]
pub struct Directory {
    peers: BTreeMap<ActorId, Rc<dyn Peer>>,
}

impl Directory {
    /// Notes how an actor is reached.
    pub fn register(&mut self, actor: ActorId, peer: Rc<dyn Peer>) {
        self.peers.insert(actor, peer);
    }

    /// How an actor is reached, for whoever stands between: tests lose what is told on its way.
    pub fn peer(&self, actor: ActorId) -> Option<Rc<dyn Peer>> {
        self.peers.get(&actor).map(Rc::clone)
    }

    /// Passes a tell on. One for an actor that this node does not have is dropped, and an error in the log.
    pub fn tell(&self, tell: Tell) {
        match self.peers.get(&tell.to) {
            Some(peer) => peer.tell(tell),
            None => tracing::error!(actor = tell.to.0, "there is no such actor to tell"),
        }
    }

    /// Reports to an actor that one of its tells was refused, or panicked.
    pub fn undelivered(&self, teller: ActorId) {
        if let Some(peer) = self.peers.get(&teller) {
            peer.undelivered();
        }
    }

    /// Lets what is due act, in every actor.
    pub fn rouse(&self) {
        for peer in self.peers.values() {
            peer.rouse();
        }
    }
}

/// The least that requests which are not whole may hold, over all listeners.
const UNFINISHED_BYTES: u64 = 512 << 20;

/// The bound on commands that are delivered and not yet answered, and on what those hold that are not whole. Cloning
/// gives another handle.
#[derive(Clone, Debug)]
pub struct Admission {
    open: Arc<Semaphore>,
    max: u32,
    walks: Arc<Semaphore>,
    unfinished: Arc<Budget>,
    tickets: Arc<AtomicU64>,
}

impl Admission {
    /// At most `max` commands open at a time.
    pub fn new(max: u32) -> Self {
        Self {
            open: Arc::new(Semaphore::new(max as usize)),
            max,
            walks: Arc::new(Semaphore::new(1)),
            unfinished: Budget::new(UNFINISHED_BYTES),
            tickets: Arc::new(AtomicU64::new(1)),
        }
    }

    /// The same, where one request may have so many bytes: each listener has room for two of them.
    #[must_use]
    pub fn for_requests_of(self, bytes: usize) -> Self {
        let unfinished = Budget::new(UNFINISHED_BYTES.max(4 * bytes as u64));
        Self { unfinished, ..self }
    }

    /// What requests may hold that are not whole. Each listener has a half of it at most.
    pub const fn unfinished(&self) -> &Arc<Budget> {
        &self.unfinished
    }

    /// Waits until so many commands may be opened; more than the bound count as the bound.
    pub async fn admit(&self, commands: usize) -> OwnedSemaphorePermit {
        let commands = u32::try_from(commands).unwrap_or(u32::MAX).min(self.max);
        let open = Arc::clone(&self.open);
        open.acquire_many_owned(commands)
            .await
            .expect("the semaphore is never closed")
    }

    /// Waits for the turn of a question that looks at much. There is one at a time: however many are asked, a command
    /// has at most one of them before it.
    pub async fn walk(&self) -> OwnedSemaphorePermit {
        let walks = Arc::clone(&self.walks);
        let turn = walks.acquire_owned().await;
        turn.expect("the semaphore is never closed")
    }

    /// Commands open now.
    pub fn open(&self) -> u64 {
        u64::from(self.max) - self.open.available_permits() as u64
    }

    /// A ticket that no other wait has.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}
