//! The addresses of actors, and the bound on open commands. Both outlive restarts of actors.
//!
//! actix accepts any number of messages into a mailbox, so the bound is enforced here: a sender of commands first waits for room, and its
//! connection is not read meanwhile. Clients of the protocols that have neither tokens nor users have a bound of their own, so that the
//! requests of others, such as heartbeats of tasks, never wait for them.

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

/// The bound on open commands of clients of protocols without tokens and users, as the divisor of that of all others. By default, they have
/// room for 16 whole batches of 1,024.
const STRANGERS: u32 = 4;

/// The share of a bound on open commands that a single delivery takes at most, as a divisor.
const DELIVERY: u32 = 4;

/// The bounds on commands that are delivered and not yet answered, and on the bytes of incomplete requests. Clones share the bounds.
#[derive(Clone, Debug)]
pub struct Admission {
    open: Bound,
    strangers: Bound,
    /// The number of open commands, under either bound.
    count: Arc<AtomicU64>,
    scans: Arc<Semaphore>,
    unfinished: Arc<Budget>,
    tickets: Arc<AtomicU64>,
}

impl Admission {
    /// Creates bounds that allow at most `max` open commands (delivered and not yet answered) at a time, counted by their cost, and a
    /// quarter of that to [`strangers`](Self::strangers).
    pub fn new(max: u32) -> Self {
        Self {
            open: Bound::new(max),
            strangers: Bound::new((max / STRANGERS).max(1)),
            count: Arc::default(),
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

    /// Returns the admission of clients of protocols that have neither tokens nor users: their commands count only against a bound of
    /// their own.
    #[must_use]
    pub fn strangers(&self) -> Self {
        Self { open: self.strangers.clone(), ..self.clone() }
    }

    /// Waits until this number of commands, of this total cost, may be opened, and returns a permit to hold while they are open. A cost above
    /// a quarter of the bound counts as a quarter.
    pub async fn admit(&self, commands: usize, cost: usize) -> Permit {
        let room = self.open.acquire(cost).await;
        self.count.fetch_add(commands as u64, Ordering::Relaxed);
        Permit { _room: room, commands: commands as u64, count: Arc::clone(&self.count) }
    }

    /// Waits for a turn to run a query that scans a large part of the state, and returns a permit to hold while it runs. Only one such
    /// query runs at a time, so a command waits for at most one of them, however many are requested.
    pub async fn scan(&self) -> OwnedSemaphorePermit {
        let scans = Arc::clone(&self.scans);
        let turn = scans.acquire_owned().await;
        turn.expect("the semaphore should never be closed")
    }

    /// Returns the number of open commands.
    pub fn open(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns a ticket that no other wait has.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}

/// A bound on the cost of open commands.
#[derive(Clone, Debug)]
struct Bound {
    room: Arc<Semaphore>,
    /// The maximum that one delivery takes.
    delivery_max: u32,
}

impl Bound {
    fn new(max: u32) -> Self {
        Self { room: Arc::new(Semaphore::new(max as usize)), delivery_max: (max / DELIVERY).max(1) }
    }

    async fn acquire(&self, cost: usize) -> OwnedSemaphorePermit {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX).min(self.delivery_max);
        let room = Arc::clone(&self.room);
        room.acquire_many_owned(cost).await.expect("the semaphore should never be closed")
    }
}

/// Room for open commands, which is free again on drop.
#[derive(Debug)]
pub struct Permit {
    _room: OwnedSemaphorePermit,
    commands: u64,
    count: Arc<AtomicU64>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.count.fetch_sub(self.commands, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Admission;
    use crate::block_on;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Returns whether this number of commands, of this total cost, is admitted without waiting.
    fn is_admitted(admission: &Admission, commands: usize, cost: usize) -> bool {
        let admitted = pin!(admission.admit(commands, cost));
        matches!(admitted.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
    }

    #[test]
    fn commands_of_strangers_leave_the_room_of_all_others() {
        let all = Admission::new(64);
        let strangers = all.strangers();
        let mut open: Vec<_> = (0..4).map(|_| block_on(strangers.admit(4, 4))).collect();
        assert!(!is_admitted(&strangers, 1, 1), "strangers have a quarter");
        assert!(is_admitted(&all, 16, 16), "others do not wait for them");
        assert_eq!(all.open(), 16);
        open.pop();
        open.push(block_on(strangers.admit(3, 3)));
        assert!(is_admitted(&strangers, 1, 1) && !is_admitted(&strangers, 2, 2));
        drop(open);
        assert_eq!((all.open(), strangers.open()), (0, 0));
    }

    #[test]
    fn commands_count_by_their_cost() {
        let all = Admission::new(64);
        let open: Vec<_> = (0..4).map(|_| block_on(all.admit(1, 15))).collect();
        assert!(is_admitted(&all, 4, 4) && !is_admitted(&all, 1, 5));
        assert_eq!(all.open(), 4);
        drop(open);
        // However much a delivery costs, it takes no more than a quarter.
        let open = block_on(all.admit(1, usize::MAX));
        assert!(is_admitted(&all, 1, 16) && all.open() == 1);
        drop(open);
    }
}
