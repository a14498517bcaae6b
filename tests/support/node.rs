//! A node in the test's own process, with a LockServer listener on a free port, and functions that wait for its answers.

pub(crate) use sexton::block_on as wait;

use sexton::actors::lock::{EntryView, Query, Reply};
use sexton::config::LockserverConfig;
use sexton::node::Handle;
use sexton::spine::delivery::Item;
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
    let node = Node::open(config).expect("the node opens");
    let address = node.handle().listeners().lockserver;
    (node, address.expect("the listener was configured"))
}

/// Returns every lock entry of a node.
pub(crate) fn entries(handle: &Handle) -> Vec<EntryView> {
    let all = Query::List { key: None, entries_max: u32::MAX };
    let mut answers = wait(handle.locks().batch(vec![Item::Query(all)])).expect("the node runs");
    match answers.pop() {
        Some(Ok(Reply::List(entries))) => entries,
        answer => panic!("a listing is not answered with {answer:?}"),
    }
}
