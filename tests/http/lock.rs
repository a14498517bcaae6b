//! Locks over HTTP: requests that acquire, renew, release, list, wait for and pass on locks.

use crate::opened::{Answer, Opened, finish, finish_over, run};
use serde_json::{Value, json};
use sexton::actors::lock::Message;
use sexton::actors::lock::{LockMachine, Name};
use sexton::persist::journal::Fsync;
use sexton::spine::delivery::Item;
use std::io::Write as _;
use std::net::TcpStream;

fn acquire(opened: &Opened, key: &str, owner: &str) -> Answer {
    opened.post("/v1/locks/acquire", &json!({ "key": key, "owner": owner }))
}

/// Begins a request that waits for a lock. Returns once its entry is in line.
fn wait_for(opened: &Opened, key: &str, owner: &str) -> TcpStream {
    let fields = json!({ "key": key, "owner": owner, "wait": 600, "ttl": 600 });
    let waiting = opened.begin("/v1/locks/acquire", &fields);
    let place = format!("/v1/locks/place?key={key}&owner={owner}");
    until(|| opened.get(&place, "").status == 200);
    waiting
}

pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

#[test]
fn whoever_sends_much_behind_a_wait_and_goes_is_given_nothing() {
    let opened = Opened::new();
    let held = opened.post("/v1/locks/acquire", &json!({"key": "a", "owner": "one"}));
    assert_eq!(held.status, 200);
    let ghost = json!({"key": "a", "owner": "ghost", "wait": 600});
    let mut waiting = opened.begin("/v1/locks/acquire", &ghost);
    until(|| opened.get("/v1/locks/place?key=a&owner=ghost", "").status == 200);
    waiting.write_all(&vec![b' '; 20 * 1024]).expect("connected");
    drop(waiting);
    until(|| opened.get("/v1/locks/place?key=a&owner=ghost", "").status == 404);
    let one = json!({"key": "a", "owner": "one"});
    opened.post("/v1/locks/release", &one).json();
    let owner = opened.get("/v1/locks/owner?key=a", "");
    owner.because(404, "absent");
}

#[test]
fn a_lock_is_taken_kept_and_given_back() {
    let opened = Opened::new();
    let path = "/v1/locks/acquire";
    let post = |terms: &Value| finish(path, opened.begin(path, terms));
    let terms = json!({"key": "orders", "index": "42", "owner": "ann", "ttl": 30, "wait": 5, "priority": 9});
    let granted = post(&terms).json();
    let token = granted["token"].as_u64().expect("a grant has a token");
    let expected =
        json!({"key": "orders", "index": "42", "owner": "ann", "place": 1, "token": token});
    assert_eq!(granted, expected);
    assert_eq!(post(&terms).json(), granted, "renewed");

    let owner = opened.get("/v1/locks/owner?key=orders&index=42", "").json();
    assert_eq!(owner, json!({"key": "orders", "index": "42", "owner": "ann"}));
    let place = opened.get("/v1/locks/place?key=orders&index=42&owner=ann", "");
    assert_eq!(place.json(), json!({"place": 1, "token": token, "away": false}));
    opened.get("/v1/locks/owner?key=orders", "").because(404, "absent");
    opened.get("/v1/locks/place?key=orders&owner=ann", "").because(404, "absent");

    let target =
        |token: u64| json!({"key": "orders", "index": "42", "owner": "ann", "token": token});
    let renewed = opened.post("/v1/locks/renew", &target(token)).json();
    assert_eq!(renewed, json!({"place": 1, "token": token}));
    for path in ["/v1/locks/renew", "/v1/locks/release"] {
        opened.post(path, &target(token + 1)).because(409, "stale");
    }
    let released = opened.post("/v1/locks/release", &target(token)).json();
    assert_eq!(released, json!({"ended": 1}));
    for path in ["/v1/locks/renew", "/v1/locks/release"] {
        opened.post(path, &target(token)).because(404, "absent");
    }
    let again = post(&terms).json();
    let leaves = json!({"key": "orders", "index": "42", "leaves": true});
    let without = opened.post("/v1/locks/release", &leaves);
    assert_eq!(without.because(400, "field")["field"], "token");
    let leaves = json!({"key": "orders", "index": "42", "leaves": true, "token": again["token"]});
    let left = opened.post("/v1/locks/release", &leaves).json();
    assert_eq!(left, json!({"ended": 1}));
    let leaves = opened.post("/v1/locks/release", &leaves);
    leaves.because(404, "absent");
    assert!(again["token"].as_u64() > Some(token), "tokens only increase");
}

#[test]
fn without_an_owner_each_request_is_one_and_its_token_says_enough() {
    let opened = Opened::new();
    let nameless = json!({"key": "a", "ttl": 600});
    let granted = opened.post("/v1/locks/acquire", &nameless).json();
    let held = opened.post("/v1/locks/acquire", &nameless);
    let held = held.because(409, "held");
    assert_eq!(held["owner"], granted["owner"]);
    let token = granted["token"].as_u64().expect("a grant has a token");
    let by = |token: u64| json!({"key": "a", "token": token});
    for path in ["/v1/locks/renew", "/v1/locks/release"] {
        opened.post(path, &by(token - 1)).because(409, "stale");
        let named = json!({"key": "a", "owner": "another", "token": token});
        opened.post(path, &named).because(404, "absent");
        let empty = json!({"key": "a", "owner": "", "token": token});
        let empty = opened.post(path, &empty).because(400, "field");
        assert_eq!(empty["field"], "owner");
    }
    let renewed = opened.post("/v1/locks/renew", &by(token)).json();
    assert_eq!(renewed, json!({"place": 1, "token": token}));
    let watching = opened.begin("/v1/locks/watch", &by(token));
    assert_eq!(opened.post("/v1/locks/release", &by(token)).json(), json!({"ended": 1}));
    assert_eq!(finish("/v1/locks/watch", watching).json(), json!({"lost": true}));
    // Without an owner, the request key stands for one: a repeated request has the same owner, and so the same token.
    let once = || {
        let header = "Idempotency-Key: mine\r\n";
        opened.post_with("/v1/locks/acquire", header, &nameless).json()
    };
    let granted = once();
    assert_eq!(once(), granted);
}

#[test]
fn a_lock_that_is_held_says_by_whom() {
    let opened = Opened::new();
    assert_eq!(acquire(&opened, "a", "one").status, 200);
    let held = acquire(&opened, "a", "two").because(409, "held");
    assert_eq!((&held["owner"], &held["place"]), (&json!("one"), &json!(2)));
    let waiting = wait_for(&opened, "a", "three");
    let held = acquire(&opened, "a", "two").because(409, "held");
    assert_eq!(held["place"], 3);
    let absent = opened.get("/v1/locks/place?key=a&owner=two", "");
    absent.because(404, "absent");
    drop(waiting);
    let short = json!({"key": "a", "owner": "two", "wait": 1});
    opened.post("/v1/locks/release", &json!({"key": "a", "owner": "three"}));
    let over = finish("/v1/locks/acquire", opened.begin("/v1/locks/acquire", &short));
    over.because(409, "held");
}

#[test]
fn a_release_passes_the_lock_on_and_every_entry_of_an_owner_goes_at_once() {
    let opened = Opened::new();
    assert_eq!(acquire(&opened, "a", "one").status, 200);
    assert_eq!(acquire(&opened, "b", "one").status, 200);
    let waiting = wait_for(&opened, "a", "two");
    let all = json!({"owner": "one"});
    assert_eq!(opened.post("/v1/locks/release-all", &all).json(), json!({"ended": 2}));
    assert_eq!(opened.post("/v1/locks/release-all", &all).json(), json!({"ended": 0}));
    let granted = finish("/v1/locks/acquire", waiting).json();
    assert_eq!(granted["owner"], "two");
    let over_socket = opened.get_over_socket("/v1/locks/owner?key=a");
    assert_eq!(over_socket.json()["owner"], "two");
}

#[test]
fn who_goes_away_stands_in_line_no_longer() {
    let opened = Opened::new();
    assert_eq!(acquire(&opened, "a", "one").status, 200);
    let gone = wait_for(&opened, "a", "two");
    let stays = wait_for(&opened, "a", "three");
    let place = |owner: &str| opened.get(&format!("/v1/locks/place?key=a&owner={owner}"), "");
    assert_eq!(place("three").json()["place"], 3);
    drop(gone);
    until(|| place("two").status == 404);
    assert_eq!(place("three").json()["place"], 2);
    opened.post("/v1/locks/release", &json!({"key": "a", "owner": "one"})).json();
    assert_eq!(finish("/v1/locks/acquire", stays).json()["owner"], "three");

    // A client that closes its sending side stops waiting, and gets an error as its answer.
    let half = wait_for(&opened, "a", "four");
    half.shutdown(std::net::Shutdown::Write).expect("connected");
    finish("/v1/locks/acquire", half).problem(400);
    until(|| place("four").status == 404);
}

#[test]
fn a_holder_is_told_when_it_has_lost_its_lock() {
    let opened = Opened::new();
    let token = acquire(&opened, "a", "one").json()["token"].clone();
    let watch = |wait: u64| json!({"key": "a", "owner": "one", "token": token, "wait": wait});
    let still = opened.begin("/v1/locks/watch", &watch(0));
    assert_eq!(finish("/v1/locks/watch", still).json(), json!({"lost": false}));
    let watching = opened.begin("/v1/locks/watch", &watch(600));
    opened.post("/v1/locks/release", &json!({"key": "a", "owner": "one"})).json();
    assert_eq!(finish("/v1/locks/watch", watching).json(), json!({"lost": true}));
    assert_eq!(acquire(&opened, "a", "one").status, 200);
    let of_old = opened.begin("/v1/locks/watch", &watch(600));
    assert_eq!(finish("/v1/locks/watch", of_old).json(), json!({"lost": true}));
}

#[test]
fn a_lock_passes_through_a_thousand_hands_in_turn() {
    crate::resources::raise_descriptor_limit();
    let opened = Opened::configured(|config| config.fsync = Fsync::Never);
    assert_eq!(acquire(&opened, "a", "first").status, 200);
    let fields = |owner: usize| json!({"key": "a", "owner": owner.to_string(), "wait": 600});
    let begin = |owner| Some(opened.begin("/v1/locks/acquire", &fields(owner)));
    let mut waiting: Vec<Option<TcpStream>> = (0..1000).map(begin).collect();
    let contenders = || opened.get("/v1/status", "").json()["lock_contenders"].clone();
    until(|| contenders() == 1000);
    let mut holder = "first".to_owned();
    let mut newest = 0;
    for left in (0..1000_u64).rev() {
        opened.post("/v1/locks/release", &json!({"key": "a", "owner": holder})).json();
        let owner = opened.get("/v1/locks/owner?key=a", "").json()["owner"].clone();
        owner.as_str().expect("a string").clone_into(&mut holder);
        let number: usize = holder.parse().expect("a waiting one exists");
        let stream = waiting[number].take().expect("no client gets it twice");
        let granted = finish("/v1/locks/acquire", stream).json();
        let token = granted["token"].as_u64().expect("a grant has a token");
        assert!(token > newest);
        newest = token;
        if left % 250 == 0 {
            assert_eq!(contenders(), left);
        }
    }
}

#[test]
fn names_that_are_no_text_stand_in_base64() {
    let opened = Opened::new();
    let fields = json!({"key_b64": "/wA=", "index": "snow \u{2603}", "owner_b64": "b25l"});
    let granted = opened.post("/v1/locks/acquire", &fields).json();
    assert_eq!(granted["key_b64"], "/wA=");
    assert_eq!((&granted["index"], &granted["owner"]), (&json!("snow \u{2603}"), &json!("one")));
    let path = "/v1/locks/owner?key_b64=%2FwA%3D&index=snow%20%E2%98%83";
    let owner = opened.get(path, "").json();
    assert_eq!((&owner["key_b64"], &owner["owner"]), (&json!("/wA="), &json!("one")));
    let listed = opened.get("/v1/locks?key_b64=%2FwA%3D", "").json();
    assert_eq!(listed["locks"][0]["key_b64"], "/wA=");
    opened.get("/v1/locks?key=%FF", "").because(400, "malformed");
}

#[test]
fn a_list_is_filtered_and_paged() {
    let opened = Opened::new();
    let name = |text: String| Name::new(text.into_bytes()).expect("the name is short");
    let request = |n: u32| {
        Item::<LockMachine>::Message(Message::Request {
            key: name(format!("k{:02}", n % 50)),
            index: Name::default(),
            owner: name(format!("o{}", n / 50)),
            ttl: 600,
            ttw: 500,
            priority: 3,
        })
    };
    run(opened.handle().locks().batch((0..150).map(request).collect())).expect("the node answers");
    let all = opened.get("/v1/locks?limit=1000", "").json();
    assert_eq!(all["next"], Value::Null);
    let all = all["locks"].as_array().expect("a list").clone();
    assert_eq!(all.len(), 150);
    let first = &all[0];
    assert_eq!(
        (&first["key"], &first["place"], &first["priority"]),
        (&json!("k00"), &json!(1), &json!(3))
    );
    assert_eq!((&first["ttl"], &first["wait"]), (&json!(600), &json!(500)));
    assert!(first["token"].is_u64() && all[1]["token"].is_null());
    let remaining = first["remaining_ms"].as_u64().expect("a number");
    assert!((1..=600_000).contains(&remaining));
    let since = first["since_at"].as_u64().expect("a date");
    let date = opened.handle().date().0;
    assert!((date - 600_000..=date).contains(&since));

    let mut paged = Vec::new();
    let mut next = json!("0");
    while let Some(after) = next.as_str() {
        let page = opened.get(&format!("/v1/locks?limit=7&after={after}"), "").json();
        let found = page["locks"].as_array().expect("a list");
        assert!(found.len() <= 7);
        paged.extend(found.iter().map(|it| (it["key"].to_string(), it["place"].to_string())));
        next = page["next"].clone();
    }
    paged.sort();
    let expected: Vec<_> =
        all.iter().map(|it| (it["key"].to_string(), it["place"].to_string())).collect();
    assert_eq!(paged, expected);

    let count = |filter: &str| {
        let found = opened.get(&format!("/v1/locks?{filter}"), "").json();
        found["locks"].as_array().expect("a list").len()
    };
    assert_eq!(count("key=k07"), 3);
    assert_eq!(count("owner=o1"), 50);
    assert_eq!(count("key=k07&owner=o1"), 1);
    assert_eq!(count("index=none"), 0);
    assert_eq!(count(""), 100, "the usual limit");
}

#[test]
fn a_drain_takes_no_new_locks_and_tells_when_none_is_left() {
    let opened = Opened::new();
    assert_eq!(acquire(&opened, "a", "one").status, 200);
    let begun = opened.post_as_owner("/v1/drain", &Value::Null).json();
    assert_eq!(begun, json!({"draining": true, "locks": 1, "claims": 0, "passes": 0, "tasks": 0}));
    acquire(&opened, "b", "one").because(503, "draining");
    assert_eq!(acquire(&opened, "a", "one").status, 200, "renewals continue");
    assert_eq!(opened.get("/v1/status", "").json()["draining"], true);
    assert_eq!(opened.get("/healthz", "").body, "draining\n");
    let mut waiting = opened.begin_as_owner("/v1/drain?wait=600", &Value::Null);
    opened.post("/v1/locks/release", &json!({"key": "a", "owner": "one"})).json();
    let drained = finish_over(&mut waiting).json();
    assert_eq!(
        drained,
        json!({"draining": true, "locks": 0, "claims": 0, "passes": 0, "tasks": 0})
    );
    run(opened.handle().drained()).expect("other waiting clients are notified, too");
}
