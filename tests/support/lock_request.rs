//! A request for a lock, for tests that only need a held lock or a waiter.

use sexton::actors::lock::{LockMachine, Message, Name};
use sexton::spine::delivery::Item;

/// Requests a lock with a TTL of ten minutes, or waits for it as long.
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
