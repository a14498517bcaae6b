//! Events of a node, as clients of `/v1/events` receive them.

use crate::listener::Listener;
use crate::opened::{Opened, read_all, run};
use serde_json::{Value, json};
use sexton::actors;
use sexton::actors::lock::Message;
use sexton::spine::delivery::Stage;
use sexton::spine::event::Position;
use sexton::spine::feed::Notification;
use std::io::{Read as _, Write as _};

const ACQUIRE: &str = "/v1/locks/acquire";
const RELEASE: &str = "/v1/locks/release";

fn acquire(opened: &Opened, key: &str, owner: &str) -> Value {
    let fields = json!({"key": key, "owner": owner});
    opened.post(ACQUIRE, &fields).json()
}

#[test]
fn the_life_of_a_lock_is_told_in_order() {
    let mut opened = Opened::new();
    let mut listener = Listener::new(&opened, "/v1/events", "");
    let token = acquire(&opened, "a", "one")["token"].clone();
    let granted = listener.receive(&["granted"]).remove(0);
    assert_eq!(granted.id, token.to_string(), "its position is that of its entry");
    let mut expected = json!({
        "position": token.to_string(), "at": granted.data["at"], "actor": "lock", "kind": "granted",
        "key": "a", "index": "", "owner": "one", "token": token, "ttl": 60,
    });
    assert_eq!(granted.data, expected);
    assert!(granted.data["at"].as_u64() > Some(1_600_000_000_000));
    // A renewal causes no event.
    acquire(&opened, "a", "one");
    let waiting = opened.begin(ACQUIRE, &json!({"key": "a", "owner": "two", "wait": 60, "ttl": 7}));
    let queued = listener.receive(&["waiting"]).remove(0);
    assert_eq!((&queued.data["owner"], &queued.data["place"]), (&"two".into(), &2.into()));
    let released = json!({"key": "a", "owner": "one", "token": token});
    opened.post(RELEASE, &released).json();
    let passed = listener.receive(&["released", "granted"]);
    assert_eq!(passed[0].data["token"], token);
    assert_eq!(passed[1].id, format!("{}.1", passed[0].id));
    expected["position"] = passed[1].id.as_str().into();
    expected["owner"] = "two".into();
    expected["at"] = passed[1].data["at"].clone();
    expected["token"] = passed[0].id.parse::<u64>().expect("a number").into();
    expected["ttl"] = 7.into();
    assert_eq!(passed[1].data, expected);
    drop(waiting);
    // Releases the granted lock, unless the node has already done so because the connection was lost.
    opened.post("/v1/locks/release-all", &json!({"owner": "two"})).json();
    listener.receive(&["released"]);
    opened.post("/v1/checkpoint", &Value::Null).json();
    let taken = listener.receive(&["checkpoint"]).remove(0);
    assert_eq!(taken.data["actor"], "node");
    assert!(taken.data["upto"].as_u64() > token.as_u64());
    opened.post_as_owner("/v1/drain", &Value::Null).json();
    let draining = listener.receive(&["draining"]).remove(0);
    assert_eq!(draining.data["actor"], "node");
    opened.stop();
    listener.receive(&["stopping"]);
    assert!(listener.next().is_none(), "it ends cleanly");
}

#[test]
fn what_ends_by_itself_says_so() {
    let opened = Opened::new();
    let mut listener = Listener::new(&opened, "/v1/events", "");
    let held = json!({"key": "a", "owner": "one", "ttl": 2});
    opened.post(ACQUIRE, &held).json();
    let wait = json!({"key": "a", "owner": "two", "wait": 1});
    let refused = opened.begin(ACQUIRE, &wait);
    let told = listener.receive(&["granted", "waiting", "timed-out", "expired"]);
    assert_eq!(told[2].data["owner"], "two");
    assert_eq!(told[3].data["token"], told[0].data["token"]);
    drop(refused);
    acquire(&opened, "b", "one");
    acquire(&opened, "c", "one");
    opened.post("/v1/locks/release-all", &json!({"owner": "one"})).json();
    let told = listener.receive(&["granted", "granted", "released", "released"]);
    assert_eq!([&told[2].data["key"], &told[3].data["key"]], ["b", "c"]);
}

#[test]
fn a_listener_goes_on_where_it_was() {
    let opened = Opened::new();
    let mut first = Listener::new(&opened, "/v1/events", "");
    for owner in ["one", "two"] {
        let wait = json!({"key": "a", "owner": owner, "wait": 60});
        drop(opened.begin(ACQUIRE, &wait));
        first.next();
    }
    let mut ids: Vec<String> = Vec::new();
    for key in ["x", "y", "z"] {
        acquire(&opened, key, "o");
    }
    while ids.len() < 3 {
        let told = first.next().expect("another item follows");
        if told.data["owner"] == "o" {
            ids.push(told.id);
        }
    }
    let again = |target: &str, headers: &str| {
        let mut listener = Listener::new(&opened, target, headers);
        // The node removes entries of lost connections when it notices the loss, in any order. Skip their events.
        loop {
            let told = listener.next().expect("another item follows");
            if told.data["key"] != "a" {
                return told;
            }
        }
    };
    let after = again(&format!("/v1/events?after={}", ids[0]), "");
    assert_eq!(after.id, ids[1]);
    let header = format!("Last-Event-ID: {}\r\n", ids[1]);
    assert_eq!(again("/v1/events", &header).id, ids[2]);
    let both = again(&format!("/v1/events?after={}", ids[0]), &header);
    assert_eq!(both.id, ids[2], "the position of a reader that reconnects has precedence");
    // Events before the first subscriber are not stored, so a client that asks for them is told of a gap.
    let lost = again("/v1/events?after=0", "");
    assert_eq!((lost.kind.as_str(), &lost.data["after"]), ("lost", &"0".into()));
    assert_eq!(lost.data["upto"], lost.id.as_str());
    let strange = again("/v1/events?after=1000000000000", "");
    assert_eq!(strange.kind, "ahead", "a position of another log");
    for wrong in ["x", "-1", "1.2.3", "18446744073709551616"] {
        let problem = opened.get(&format!("/v1/events?after={wrong}"), "");
        assert_eq!(problem.because(400, "field")["field"], "after");
    }
    let problem = opened.get("/v1/events", "Last-Event-ID: x\r\n");
    assert_eq!(problem.because(400, "field")["field"], "Last-Event-ID");
}

#[test]
fn events_are_filtered() {
    let opened = Opened::new();
    let listen = |query: &str| Listener::new(&opened, &format!("/v1/events?{query}"), "");
    let mut of_key = listen("actor=lock&name=account*");
    let mut of_kind = listen("kind=released,checkpoint");
    let mut of_node = listen("actor=node");
    let mut of_bytes = listen("name_b64=%2F%2Bo%3D"); // ff ea
    for key in ["other", "account", "account-2"] {
        acquire(&opened, key, "o");
    }
    opened.post(ACQUIRE, &json!({"key_b64": "/+o=", "owner": "o"})).json();
    opened.post(RELEASE, &json!({"key": "other", "owner": "o"})).json();
    opened.post("/v1/checkpoint", &Value::Null).json();
    let told = of_key.receive(&["granted", "granted"]);
    assert_eq!([&told[0].data["key"], &told[1].data["key"]], ["account", "account-2"]);
    of_kind.receive(&["released", "checkpoint"]);
    of_node.receive(&["checkpoint"]);
    assert_eq!(of_bytes.receive(&["granted"])[0].data["key_b64"], "/+o=");
    let many = vec!["granted"; 1000].join(",");
    let mut of_many = listen(&format!("kind={many}"));
    acquire(&opened, "many", "o");
    assert_eq!(of_many.receive(&["granted"])[0].data["key"], "many");
    let origins = format!("{}, node", actors::names().join(", "));
    for (query, known) in
        [("kind=granted,expird", "expired"), ("kind=", "granted"), ("actor=foo", &origins)]
    {
        let refused = opened.get(&format!("/v1/events?{query}"), "");
        let detail = refused.problem(400);
        assert!(detail.contains(known), "{detail}");
    }
    for query in ["name=a&name_b64=YQ==", "colour=red", "kind=a&kind=b"] {
        let problem = opened.get(&format!("/v1/events?{query}"), "");
        problem.because(400, "field");
    }
}

#[test]
fn a_panic_is_told_and_what_it_undid_is_not() {
    let opened = Opened::new();
    let mut listener = Listener::new(&opened, "/v1/events", "");
    opened.handle().actors().lock.inject_panics(Box::new(|stage, message| {
        let Some(Message::Acquire { key, .. }) = message else {
            return;
        };
        let planted = match key.as_bytes() {
            b"decide" => stage == Stage::Decide,
            b"commit" => stage == Stage::Commit,
            _ => false,
        };
        assert!(!planted, "planted");
    }));
    for key in ["decide", "commit"] {
        let fields = json!({"key": key, "owner": "o"});
        opened.post(ACQUIRE, &fields).because(500, "failed");
        let told = listener.receive(&["restarted"]).remove(0);
        assert_eq!(told.data["stage"], key);
        assert_eq!(told.data["cause"], "planted");
        assert_eq!(told.data["actor"], "lock");
    }
    acquire(&opened, "fine", "o");
    assert_eq!(listener.receive(&["granted"])[0].data["key"], "fine");
}

#[test]
fn streams_are_among_what_waits_and_end_with_their_client() {
    let opened = Opened::with(|http| http.waits_max = 1);
    let listener = Listener::new(&opened, "/v1/events", "");
    opened.get("/v1/events", "").because(503, "waits");
    let head = opened.exchange(b"HEAD /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"));
    assert_eq!(head.matches("\r\n\r\n").count(), 1, "{head}");
    let head = head.to_lowercase();
    assert!(
        head.contains("transfer-encoding: chunked") && !head.contains("content-length"),
        "it has the headers of GET: {head}"
    );
    drop(listener);
    // The node notices the end of the connection without writing to it.
    crate::lock::until(|| opened.exchange(REQUEST).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_client_that_knows_no_chunks_is_told_until_the_connection_ends() {
    let mut opened = Opened::new();
    let mut stream = opened.connect();
    stream
        .write_all(b"GET /v1/events HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        .expect("connected");
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.0 200");
    acquire(&opened, "a", "one");
    opened.stop();
    let text = read_all(&mut stream);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let head = head.to_lowercase();
    assert!(!head.contains("transfer-encoding") && !head.contains("content-length"), "{head}");
    assert!(body.starts_with(":\n\nid: "), "{body}");
}

#[test]
fn streams_on_tcp_take_no_places_from_the_socket() {
    let opened = Opened::with(|http| http.waits_max = 1);
    let _listener = Listener::new(&opened, "/v1/events", "");
    opened.get("/v1/events", "").because(503, "waits");
    let drained = opened.post_over_socket("/v1/drain?wait=60");
    assert_eq!(drained.json()["locks"], 0, "the command line still waits");
}

const REQUEST: &[u8] = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn a_program_that_embeds_the_node_listens_too() {
    let mut opened = Opened::configured(|config| {
        config.data = None;
        config.http.as_mut().expect("HTTP is configured").socket = None;
    });
    let handle = opened.handle();
    let mut events = run(handle.events(None)).expect("the node answers");
    assert!(events.try_next().is_none());
    acquire(&opened, "a", "one");
    let Some(Notification::Event(event)) = run(events.next()) else {
        panic!("expected an event");
    };
    assert_eq!((event.actor, event.what.kind), ("lock", "granted"));
    assert_eq!(event.what.subject(), Some(&b"a"[..]));
    let mut again = run(handle.events(Some(Position::default()))).expect("the node answers");
    assert!(matches!(again.try_next(), Some(Notification::Lost { .. })));
    assert_eq!(again.try_next(), Some(Notification::Event(event)));
    opened.stop();
    let Some(Notification::Event(last)) = run(events.next()) else {
        panic!("the end is reported");
    };
    assert_eq!(last.what.kind, "stopping");
    assert_eq!(run(events.next()), None);
    assert!(run(handle.events(None)).is_err());
}
