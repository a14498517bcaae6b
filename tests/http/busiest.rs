//! Lists of the busiest items: the queues in each share, and the locks with the most waiters.

use crate::opened::{Opened, request, run};
use serde_json::{Value, json};
use sexton::actors::queue::{Body, Put};
use std::collections::BTreeSet;

/// Returns a job for this queue.
fn job(queue: &str) -> Put {
    let queue = queue.try_into().expect("a valid name");
    Put::new(queue, Body::new(*b"x"))
}

fn names(list: &Value, field: &str) -> Vec<String> {
    let rows = list.as_array().expect("a list");
    let name = |row: &Value| row[field].as_str().expect("it has a name").to_owned();
    rows.iter().map(name).collect()
}

#[test]
fn the_busiest_queues_and_the_locks_that_most_wait_for_come_first() {
    let opened = Opened::new();
    let idle = opened.get("/v1/busiest", "").json();
    assert_eq!((&idle["locks"], &idle["locks_all"]), (&json!([]), &json!(0)));
    let jobs = ["few", "many", "many", "many", "few", "one"].map(job);
    run(opened.handle().queues().put_all(jobs.into())).expect("they are added");
    let owners = ["a1", "a2", "b1", "b2", "b3", "c1", "c2", "c3", "c4", "free1"];
    let lock = |owner: &&str| owner.trim_end_matches(char::is_numeric).as_bytes().to_vec();
    let requests = owners.iter().map(|owner| request(&lock(owner), owner.as_bytes()));
    run(opened.handle().locks().batch(requests.collect())).expect("the node answers");
    let told = opened.get("/v1/busiest?limit=2", "").json();
    assert_eq!(names(&told["queues"], "queue"), ["many", "few"]);
    assert_eq!(told["queues"][0]["ready"], 3);
    assert_eq!(told["queues"][0]["total"], 3);
    assert!(told["queues"][0]["oldest_ms"].is_u64(), "{told}");
    assert_eq!(told["next"], Value::Null, "all queues are one share");
    assert_eq!(names(&told["locks"], "key"), ["c", "b"]);
    assert_eq!(names(&told["locks"], "owner"), ["c1", "b1"]);
    assert_eq!(told["locks"][0]["waiting"], 3);
    assert!(told["locks"][0]["remaining_ms"].as_u64() <= Some(600_000));
    assert_eq!(told["locks_all"], 3, "only locks with waiters count");
    for wrong in ["limit=0", "limit=101", "limit=x", "after=-1", "sort=x"] {
        opened.get(&format!("/v1/busiest?{wrong}"), "").problem(400);
    }
}

#[test]
fn many_queues_are_looked_at_share_by_share() {
    let opened = Opened::new();
    for round in 0..9 {
        let jobs = (0..1000).map(|queue| job(&format!("q{round}-{queue}")));
        run(opened.handle().queues().put_all(jobs.collect())).expect("they are added");
    }
    let last = vec![job("q8-999")];
    run(opened.handle().queues().put_all(last)).expect("the node adds it");
    let first = opened.get("/v1/busiest?limit=100", "").json();
    let next = first["next"].as_str().expect("more queues follow").to_owned();
    let second = opened.get(&format!("/v1/busiest?limit=100&after={next}"), "");
    let second = second.json();
    assert_eq!(second["next"], Value::Null);
    assert_eq!(second["queues"][0]["queue"], "q8-999", "the busiest of its share");
    let all = [&first, &second].map(|share| names(&share["queues"], "queue"));
    let all: BTreeSet<String> = all.concat().into_iter().collect();
    assert_eq!(all.len(), 200, "no queue is in two shares");
}
