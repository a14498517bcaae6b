//! The protocols that the program serves.

use sexton::node::Protocols;

/// Returns all of them, in the order in which they are opened.
pub(crate) fn all() -> Protocols {
    let mut protocols = sexton_wire::protocols();
    protocols.extend(sexton_http::protocols());
    protocols
}
