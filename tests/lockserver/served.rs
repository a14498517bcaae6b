//! A node in the test's own process, with a LockServer listener on a free port.

use sexton::config::LockserverConfig;
use sexton::{Config, Node};
use std::net::{Ipv4Addr, SocketAddr};

/// Returns the configuration of a LockServer listener on a free port of loopback.
pub(crate) fn listener() -> LockserverConfig {
    LockserverConfig {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        ..LockserverConfig::default()
    }
}

/// Opens a node. Also returns the address of its LockServer listener.
pub(crate) fn open(config: Config) -> (Node, SocketAddr) {
    let node = sexton_wire::open(config).expect("the node opens");
    let address = node.handle().listeners().lockserver;
    (node, address.expect("the listener was configured"))
}
