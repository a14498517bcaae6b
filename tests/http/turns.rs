//! Expensive queries that many clients send without pause. Other clients' requests are handled in between. Also,
//! `/healthz` detects an actor that is blocked.

use crate::gate::Gate;
use crate::opened::{Opened, request, run};
use sexton::actors::queue::{Body, Message, Put, QueueMachine, QueueName};
use sexton::node::Handle;
use sexton::spine::delivery::Item;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::LocalSet;

/// The number of queues, each with one job. A walk over all of them takes several turns.
const QUEUES: usize = 40_000;

const READERS: usize = 60;

fn fill(handle: &Handle) {
    let job = |number: usize| -> Item<QueueMachine> {
        let queue = QueueName::new(format!("q{number}").as_bytes()).expect("a valid name");
        Item::Message(Message::Put(Put::new(queue, Body::new(&b"work"[..]))))
    };
    let queues: Vec<usize> = (0..QUEUES).collect();
    for some in queues.chunks(1000) {
        let jobs = some.iter().map(|number| job(*number)).collect();
        drop(run(handle.queues().batch(jobs)).expect("the node answers"));
    }
}

/// Queries items that do not exist, many times concurrently, until `stop` is set.
fn read_on(handle: &Handle, stop: &Arc<AtomicBool>) {
    let readers = LocalSet::new();
    for _ in 0..READERS {
        let (queues, stop) = (handle.queues(), Arc::clone(stop));
        drop(readers.spawn_local(async move {
            while !stop.load(Ordering::Relaxed) {
                let found = queues.next(&["nosuch".to_owned()]).await;
                assert_eq!(found.expect("the node answers"), None);
            }
        }));
    }
    run(readers);
}

#[test]
fn a_lock_is_had_while_many_look_at_every_queue() {
    let opened = Opened::configured(|config| {
        config.data = None;
        config.http.as_mut().expect("HTTP is configured").socket = None;
    });
    let handle = opened.handle();
    fill(&handle);
    let stop = Arc::new(AtomicBool::new(false));
    let (reading, theirs) = (handle.clone(), Arc::clone(&stop));
    let readers = std::thread::Builder::new().spawn(move || read_on(&reading, &theirs));
    // The queries are sent through the library, and the locks are requested over LockServer.
    let lockserver = handle.listeners().lockserver.expect("the listener is open");
    let mut client = TcpStream::connect(lockserver).expect("it listens");
    let patience = Some(Duration::from_secs(30));
    client.set_read_timeout(patience).expect("the option can be set");
    let mut answer = [0; 1];
    client.read_exact(&mut answer).expect("connected");
    for key in b'a'..=b'z' {
        let asked = [2, 1, key, 0, 2, b'm', b'e', 0, 60, 0, 60, 0];
        client.write_all(&asked).expect("connected");
        let mut location = [0; 2];
        client.read_exact(&mut location).expect("an answer");
        assert_eq!(location, [0, 1]);
    }
    stop.store(true, Ordering::Relaxed);
    readers.expect("a thread").join().expect("no panic");
}

#[test]
fn a_core_that_stands_still_is_not_healthy() {
    let opened = Opened::new();
    assert_eq!(opened.get("/healthz", "").status, 200);
    let gate = Gate::default();
    let locks = &opened.handle().actors().lock.clone();
    locks.inject_panics(gate.before_decisions());
    let handle = opened.handle();
    let held = std::thread::Builder::new()
        .spawn(move || drop(run(handle.locks().batch(vec![request(b"a", b"me")]))));
    gate.reached();
    opened.get("/healthz", "").because(503, "busy");
    gate.open();
    held.expect("a thread").join().expect("no panic");
    assert_eq!(opened.get("/healthz", "").status, 200);
}
