//! Prints how long requests about many items hold others: `cargo test --release --test sim holds -- --ignored --nocapture`.

#![expect(clippy::disallowed_methods, reason = "the figures are of real time")]

use crate::parts::Served;
use sexton::actors::dispatch::{self, DispatchMachine, Host};
use sexton::actors::lock::{self, LockMachine, Name, Tie};
use sexton::actors::process::{self, LaunchAs, Launching, Parentage, ProcessMachine, Spec};
use sexton::actors::queue::{self, Body, Put, QueueMachine, QueueName};
use sexton::ids::{ActorId, ProcessId, Seq};
use sexton::spine::delivery::{Delivery, Flow, Item};
use sexton::spine::machine::Actor;
use std::time::{Duration, Instant};

/// Carries out a message. Returns how long each step took, between which others have their turn.
fn steps<M: Actor>(served: &mut Served<M>, message: M::Message) -> Vec<Duration> {
    let mut took = Vec::new();
    let mut began = Instant::now();
    let items = vec![Item::Message(message)];
    let mut flow = served.host.deliver(&mut served.ledger, Delivery::new(items, Box::new(drop)));
    loop {
        took.push(began.elapsed());
        served.host.outbox().release(Seq(u64::MAX));
        drop((served.host.take_tells(), served.ledger.take_batch()));
        began = Instant::now();
        flow = match flow {
            Flow::Yield => served.host.proceed(&mut served.ledger),
            Flow::Done if served.host.has_parked() => served.host.carry_on(&mut served.ledger),
            Flow::Done => return took,
            Flow::Panicked(report) => panic!("{report:?}"),
        };
    }
}

#[expect(clippy::print_stdout, reason = "figures for people")]
fn print<M: Actor>(what: &str, served: &mut Served<M>, message: M::Message) {
    let mut took = steps(served, message);
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    let longest = took.last().copied().unwrap_or_default();
    let all: Duration = took.iter().sum();
    println!("{what}: {all:?} in {} steps, median {median:?}, longest {longest:?}", took.len());
}

fn name(text: &str) -> Name {
    Name::try_from(text).expect("a short name")
}

#[test]
#[ignore = "prints figures"]
fn locks() {
    let mut served = Served::<LockMachine>::new(lock::Rules::default());
    for nth in 0..500_000 {
        let acquire = lock::Message::Acquire {
            key: name(&nth.to_string()),
            index: name(""),
            owner: name("many"),
            ttl: 600,
            ttw: 600,
            priority: 0,
            tie: Tie::None,
            waits: false,
        };
        steps(&mut served, acquire);
    }
    let owner = name("many");
    let release = lock::Message::ReleaseAll { owner };
    print("a release of 500,000 locks", &mut served, release);
}

#[test]
#[ignore = "prints figures"]
fn jobs() {
    let mut served = Served::<QueueMachine>::new(queue::Rules::default());
    let queue = QueueName::parse(b"q").expect("a valid name");
    for _ in 0..500_000 {
        let put = Put::new(queue.clone(), Body::new(b"x".to_vec()));
        steps(&mut served, queue::Message::Put(put));
    }
    let flush = queue::Message::Flush { queue };
    print("a flush of 500,000 jobs", &mut served, flush);
}

#[test]
#[ignore = "prints figures"]
fn processes() {
    let mut served = Served::<ProcessMachine>::new(process::Rules::default());
    let root = ProcessId(1 << 64);
    let live = process::Rules::default().live_max;
    for nth in 0..live {
        let launching = Launching {
            spec: Spec { argv: vec![Body::new(b"/bin/true".to_vec())], ..Spec::default() },
            parentage: Parentage { named: (nth > 0).then_some(root), ..Parentage::default() },
            ..Launching::default()
        };
        let id = ProcessId(root.0 + u128::from(nth));
        let by = ActorId::LEASE;
        let launch = LaunchAs { by, id, launching };
        steps(&mut served, process::Message::LaunchAs(Box::new(launch)));
    }
    let stop = process::Message::Stop { id: root, signal: None, grace_ms: None, tree: true };
    print("a stop of 10,000 processes", &mut served, stop);
}

#[test]
#[ignore = "prints figures"]
fn servers() {
    let mut served = Served::<DispatchMachine>::new(dispatch::Rules::default());
    let hosts = |threads: u32| {
        let host = |nth: u32| Host { name: name(&format!("host-{nth}")), threads, remote: None };
        let hosts = (0..dispatch::Rules::default().servers_max).map(host);
        dispatch::Message::Inventory { hosts: hosts.collect() }
    };
    print("10,000 servers added", &mut served, hosts(2));
    print("10,000 servers changed", &mut served, hosts(3));
    let none = dispatch::Message::Inventory { hosts: Vec::new() };
    print("10,000 servers removed", &mut served, none);
}
