//! Addresses of actors, and the bound on open commands. Outlives restarts.
//!
//! actix takes any number of messages into a mailbox, so the bound is kept here: whoever has commands to deliver
//! waits for room first, and a connection that waits is not read from.

use crate::ids::{ActorId, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Takes a tell for one actor.
pub type TellTo = Box<dyn Fn(Vec<u8>)>;

/// Who is where, on the core.
#[derive(Default)]
pub struct Directory {
    addresses: BTreeMap<ActorId, TellTo>,
}

impl Directory {
    /// Notes where tells for an actor go.
    pub fn register(&mut self, actor: ActorId, tell_to: TellTo) {
        self.addresses.insert(actor, tell_to);
    }

    /// Passes a tell on. One for an actor that is not there is dropped, as `resume` states it again.
    pub fn tell(&self, to: ActorId, message: Vec<u8>) {
        match self.addresses.get(&to) {
            Some(tell_to) => tell_to(message),
            None => tracing::warn!(actor = to.0, "no such actor to tell"),
        }
    }
}

/// The bound on commands that are delivered and not yet answered. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct Admission {
    open: Arc<Semaphore>,
    max: u32,
    tickets: Arc<AtomicU64>,
}

impl Admission {
    /// At most `max` commands open at a time.
    pub fn new(max: u32) -> Self {
        Self {
            open: Arc::new(Semaphore::new(max as usize)),
            max,
            tickets: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Waits until so many commands may be opened; more than the bound count as the bound.
    pub async fn admit(&self, commands: usize) -> OwnedSemaphorePermit {
        let commands = u32::try_from(commands).unwrap_or(u32::MAX).min(self.max);
        let open = Arc::clone(&self.open);
        open.acquire_many_owned(commands)
            .await
            .expect("the semaphore is never closed")
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
