//! Long lists: the size of an answer, and the memory for answers that are not read.

use crate::opened::{Answer, Opened, request, run};
use crate::resources::{raise_descriptor_limit, resident};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;

/// Acquires this many locks whose names are as long as possible as JSON.
fn take_long_ones(opened: &Opened, count: u32) {
    let name = |number: u32| [&number.to_be_bytes()[..], &[1; 241]].concat();
    let items = (0..count).map(|number| request(&name(number), &[1; 245]));
    run(opened.handle().locks().batch(items.collect())).expect("the node answers");
}

/// A size in bytes that is larger than any list should be, and much smaller than a list without a limit.
const ANSWER_BYTES: usize = 512 * 1024;

#[test]
fn a_list_ends_early_where_it_is_long_and_goes_on_from_there() {
    let opened = Opened::new();
    take_long_ones(&opened, 700);
    let mut found = BTreeSet::new();
    let mut after = String::new();
    loop {
        let answer: Answer = opened.get(&format!("/v1/locks?limit=1000{after}"), "");
        assert!(answer.body.len() < ANSWER_BYTES, "{}", answer.body.len());
        let told = answer.json();
        for lock in told["locks"].as_array().expect("a list") {
            assert!(found.insert(lock["token"].as_u64()), "each is listed once");
        }
        match told["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(found.len(), 700);
}

#[test]
fn lists_that_nobody_reads_cost_little() {
    raise_descriptor_limit();
    let opened = Opened::new();
    take_long_ones(&opened, 1000);
    let stats = || opened.listener().stats();
    let before = resident("self");
    let clients: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = opened.connect();
            stream
                .write_all(b"GET /v1/locks?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .expect("connected");
            stream
        })
        .collect();
    crate::lock::until(|| stats().answered + stats().failed >= 300);
    let grown = resident("self").saturating_sub(before);
    assert!(grown < OTHERS_KIB, "{grown} KiB for {} lists that are not read", clients.len());
    assert_eq!(opened.get("/healthz", "").status, 200);
}

/// The memory for those lists, and for other tests in this process at the same time, in KiB.
const OTHERS_KIB: u64 = 384 << 10;
