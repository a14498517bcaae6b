//! Many requests to an actor that is busy wait for it. None is refused, least of all because the node had "stopped".

use crate::node::wait;
use sexton::spine::delivery::Stage;
use sexton::{Config, Node};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Waker};

#[test]
fn requests_wait_while_an_actor_is_busy() {
    let node = Node::open(Config::in_memory()).expect("the node opens");
    let handle = node.handle();
    // While the gate is closed, the core thread is stuck in the first query.
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let shut = Arc::clone(&gate);
    handle.inject_panics(move |stage| {
        if stage == Stage::Query {
            let (is_open, opened) = &*shut;
            let is_open = is_open.lock().expect("no panic holds it");
            let opened = opened.wait_while(is_open, |is_open| !*is_open);
            drop(opened.expect("no panic holds it"));
        }
    });
    let mut asked: Vec<_> = (0..200).map(|_| Box::pin(handle.status())).collect();
    for status in &mut asked {
        let polled = pin!(status).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "no actor has answered yet: {polled:?}");
    }
    let (is_open, opened) = &*gate;
    *is_open.lock().expect("no panic holds it") = true;
    opened.notify_all();
    for status in asked {
        wait(status).expect("the node runs");
    }
    node.stop().expect("the node stops");
}
