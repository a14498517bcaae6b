//! A request for a lock, for tests that only need a held lock or a waiter.

use sexton::actors::lock::{LockMachine, Message, Name};
use sexton::spine::delivery::Item;

/// Returns a request for a lock with a TTL of ten minutes, which also waits for the lock for up to ten minutes.
pub(crate) fn request(key: &[u8], owner: &[u8]) -> Item<LockMachine> {
    let name = |bytes: &[u8]| Name::new(bytes).expect("the name is short");
    Item::Message(Message::Request {
        key: name(key),
        index: name(b""),
        owner: name(owner),
        ttl: 600,
        ttw: 600,
        priority: 0,
    })
}
