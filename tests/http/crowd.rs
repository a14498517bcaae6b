//! Many subscribers to events, some of which do not read. Other clients are not affected, and the cost is bounded.

use crate::listener::Listener;
use crate::opened::{Opened, request, run};
use crate::resources::{raise_descriptor_limit, resident};
use sexton::actors::lock::{LockMachine, Message, Name};
use sexton::node::Handle;
use sexton::spine::delivery::Item;
use std::collections::BTreeSet;

/// Acquires and releases a lock this many times, which gives two events each time.
fn happen(handle: &Handle, pairs: u32) {
    let mut items: Vec<Item<LockMachine>> = Vec::new();
    for pair in 0..pairs {
        items.push(request(&pair.to_be_bytes(), b"busy"));
    }
    items.push(Item::Message(Message::ReleaseAll {
        owner: Name::new(*b"busy").expect("the name is short"),
    }));
    run(handle.locks().batch(items)).expect("the node answers");
}

/// Opens a node without a data directory, for tests of streams alone.
fn in_memory() -> Opened {
    Opened::configured(|config| {
        config.data = None;
        config.http.as_mut().expect("HTTP is configured").socket = None;
    })
}

#[test]
fn whoever_falls_behind_is_told_what_it_has_lost() {
    let opened = in_memory();
    let mut slow = Listener::new(&opened, "/v1/events", "");
    let mut told = BTreeSet::new();
    let mut rounds = 0;
    // Cause events until the buffers are full and the ring of stored events has been overwritten.
    for _ in 0..10 {
        happen(&opened.handle(), 10_000);
        rounds += 1;
    }
    run(opened.handle().locks().batch(vec![request(b"end", b"me")])).expect("the node answers");
    let mut lost = Vec::new();
    loop {
        let event = slow.next().expect("another item follows");
        if event.kind == "lost" {
            lost.push(event.data);
            continue;
        }
        let position: sexton::spine::event::Position = event.id.parse().expect("a position");
        assert!(told.last().is_none_or(|last| *last < position), "in order");
        told.insert(position);
        if event.data["key"] == "end" {
            break;
        }
    }
    assert!(!lost.is_empty(), "200,001 events were all kept");
    let all = rounds * 20_000 + 1;
    assert!(told.len() < all);
    // No event in a gap that was reported as lost may have been received.
    for gap in lost {
        let at = |field: &str| {
            let text = gap[field].as_str().expect("a position");
            text.parse::<sexton::spine::event::Position>().expect("a position")
        };
        let (after, upto) = (at("after"), at("upto"));
        assert!(after < upto);
        let between = (std::ops::Bound::Excluded(after), std::ops::Bound::Included(upto));
        assert_eq!(told.range(between).next(), None);
    }
}

#[test]
fn five_thousand_streams_are_a_crowd_and_no_burden() {
    raise_descriptor_limit();
    let opened = in_memory();
    let before = resident("self");
    let mut crowd: Vec<Listener> =
        (0..5000).map(|_| Listener::new(&opened, "/v1/events", "")).collect();
    // Cause more events than fit into the buffers, while no client reads.
    for _ in 0..5 {
        happen(&opened.handle(), 10_000);
        assert_eq!(opened.get("/healthz", "").status, 200);
    }
    assert_eq!(opened.get("/v1/status", "").status, 200);
    let grown = resident("self").saturating_sub(before);
    assert!(grown < 5000 * 64 + OTHERS_KIB, "{grown} KiB for 5000 streams that are not read");
    let mut one = crowd.swap_remove(2500);
    assert!(one.next().is_some());
    drop((one, crowd));
    let stats = || opened.listener().stats();
    crate::lock::until(|| stats().active == 0);
    assert!(opened.get("/v1/events?after=x", "").status == 400, "connections are free again");
}

/// The memory that other tests in this process may use at the same time, in KiB.
const OTHERS_KIB: u64 = 256 << 10;
