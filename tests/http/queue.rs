//! Queues over HTTP: requests that add, claim, touch, release, fail, bury, kick, list and wait for jobs.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::gate::Gate;
use crate::lock::until;
use crate::opened::{Answer, Opened, finish, run};
use serde_json::{Value, json};
use sexton::actors::queue::{Body, Message, Put, QueueName, Rules, TypeRules};
use sexton::config::Config;
use sexton::node::Queues;
use sexton::spine::delivery::Item;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

pub(crate) const PUSH: &str = "/v1/queues/push";
pub(crate) const POP: &str = "/v1/queues/pop";

/// Adds a job. Returns its id.
pub(crate) fn push(opened: &Opened, queue: &str, body: &str) -> u64 {
    let pushed = opened.post(PUSH, &json!({"queue": queue, "body": body}));
    let pushed = pushed.json();
    assert_eq!(pushed["new"], true);
    pushed["id"].as_u64().expect("a job has a number")
}

/// Claims a ready job of a queue. Returns the claim, or null if there is no job.
pub(crate) fn pop(opened: &Opened, queue: &str) -> Value {
    let claims = opened.post(POP, &json!({"queues": [queue]})).json();
    claims["jobs"][0].clone()
}

pub(crate) fn act(opened: &Opened, what: &str, fields: &Value) -> Answer {
    opened.post(&format!("/v1/queues/{what}"), fields)
}

/// Returns the id and the token of a claim.
pub(crate) fn target(claim: &Value) -> Value {
    json!({"id": claim["id"], "token": claim["token"]})
}

pub(crate) fn job(opened: &Opened, id: &Value) -> Value {
    opened.get(&format!("/v1/queues/job?id={id}"), "").json()
}

fn counts(opened: &Opened, queue: &str) -> Value {
    let told = opened.get(&format!("/v1/queues/queue?queue={queue}"), "");
    let told = told.json();
    json!(["ready", "delayed", "claimed", "buried", "abandoned"].map(|phase| &told[phase]))
}

/// Begins a request that waits for a job. Returns once it is in line.
fn wait_for(opened: &Opened, queue: &str, headers: &str) -> TcpStream {
    let waiting = || {
        let told = opened.get(&format!("/v1/queues/queue?queue={queue}"), "");
        (told.status == 200).then(|| told.json()["waiting"].clone())
    };
    let before = waiting().unwrap_or(json!(0));
    let fields = json!({"queues": [queue], "wait": 600});
    let stream = opened.begin_with(POP, headers, &fields);
    until(|| waiting().is_some_and(|now| now.as_u64() > before.as_u64()));
    stream
}

/// Configures queues so that each job is tried at most twice.
pub(crate) fn tried_twice(config: &mut Config) {
    let twice = TypeRules { max_tries: 2, ..TypeRules::default() };
    config.rules.queue = Rules { types: [("twice".to_owned(), twice)].into(), ..Rules::default() };
}

#[test]
fn a_job_is_added_claimed_and_done() {
    let opened = Opened::new();
    let fields =
        json!({"queue": "mails", "body": "hello \u{2603}\n", "priority": 7, "ttr_ms": 60_000});
    let id = opened.post(PUSH, &fields).json()["id"].clone();
    let claim = pop(&opened, "mails");
    let remaining = claim["remaining_ms"].as_u64().expect("a number");
    assert!((1..=60_000).contains(&remaining));
    let expected = json!({
        "id": id, "token": claim["token"], "queue": "mails", "attempts": 1,
        "remaining_ms": remaining, "retries": true, "duplicate": false,
        "body": "hello \u{2603}\n",
    });
    assert_eq!(claim, expected);
    assert_eq!(pop(&opened, "mails"), Value::Null, "it is claimed");
    let told = job(&opened, &id);
    assert_eq!(
        (&told["phase"], &told["priority"], &told["token"]),
        (&json!("claimed"), &json!(7), &claim["token"])
    );
    assert_eq!(told["body"], "hello \u{2603}\n");
    let touched = act(&opened, "touch", &target(&claim)).json();
    assert_eq!((&touched["phase"], &touched["attempts"]), (&json!("claimed"), &json!(1)));
    assert!(touched["remaining_ms"].as_u64().is_some_and(|ms| ms > 0));
    assert_eq!(act(&opened, "ack", &target(&claim)).json(), json!({"deleted": 1}));
    act(&opened, "ack", &target(&claim)).because(404, "absent");
    let absent = format!("/v1/queues/job?id={id}");
    opened.get(&absent, "").because(404, "absent");
    opened.get("/v1/queues/queue?queue=mails", "").because(404, "absent");
}

#[test]
fn what_is_no_text_stands_in_base64() {
    let opened = Opened::new();
    let bytes = json!({"queue": "q", "body_b64": "/wD+"});
    let id = opened.post(PUSH, &bytes).json()["id"].clone();
    assert_eq!(job(&opened, &id)["body_b64"], "/wD+");
    let claim = pop(&opened, "q");
    assert_eq!((&claim["body_b64"], &claim["body"]), (&json!("/wD+"), &Value::Null));
    push(&opened, "q", "");
    assert_eq!(pop(&opened, "q")["body"], "", "a body may be empty");
    let text = json!({"queue": "q", "body_b64": "b25l"});
    assert_eq!(opened.post(PUSH, &text).status, 200);
    assert_eq!(pop(&opened, "q")["body"], "one");
}

#[test]
fn the_most_urgent_of_several_queues_comes_first_and_several_come_at_once() {
    let opened = Opened::new();
    for (queue, priority) in [("a", 5), ("b", 4), ("a", 3), ("c", 1)] {
        let fields = json!({"queue": queue, "body": priority.to_string(), "priority": priority});
        assert_eq!(opened.post(PUSH, &fields).status, 200);
    }
    let pop = |fields: Value| {
        let claims = opened.post(POP, &fields).json();
        let claims = claims["jobs"].as_array().expect("a list").clone();
        let bodies = claims.iter().map(|claim| claim["body"].clone());
        bodies.collect::<Vec<Value>>()
    };
    assert_eq!(pop(json!({"queues": ["a", "b"]})), ["3"]);
    assert_eq!(pop(json!({"queues": ["b", "a"], "count": 100})), ["4", "5"]);
    assert!(pop(json!({"queues": ["a", "b"], "count": 2})).is_empty());
}

#[test]
fn of_several_queues_with_weights_chance_draws_one() {
    let opened = Opened::new();
    for number in 0..40 {
        for (queue, priority) in [("a", 1), ("b", 2), ("c", 3)] {
            let fields = json!({"queue": queue, "body": number.to_string(), "priority": priority});
            assert_eq!(opened.post(PUSH, &fields).status, 200);
        }
    }
    let pop = |fields: Value| {
        let claims = finish(POP, opened.begin(POP, &fields)).json();
        let claims = claims["jobs"].as_array().expect("a list").clone();
        let queues = claims.iter().map(|claim| claim["queue"].clone());
        queues.collect::<Vec<Value>>()
    };
    // The probability that queue `a` is drawn is one in a hundred million.
    let rarely = json!({"queues": ["a", "b"], "weights": [1, u32::MAX], "count": 40});
    assert_eq!(pop(rarely), ["b"; 40]);
    let waits = json!({"queues": ["b", "a"], "weights": [u32::MAX, 1], "wait": 600});
    assert_eq!(pop(waits), ["a"], "one that has no job is not drawn");
    // The probability that one of the queues is never drawn is one in a hundred billion.
    let drawn = pop(json!({"queues": ["a", "c"], "weights": [7, 7], "count": 38}));
    assert!(drawn.contains(&json!("a")) && drawn.contains(&json!("c")));
}

#[test]
fn a_stale_token_changes_nothing_also_after_a_restart() {
    let mut opened = Opened::new();
    push(&opened, "q", "x");
    let first = pop(&opened, "q");
    let back = json!({"id": first["id"], "token": first["token"], "priority": 9});
    let released = act(&opened, "release", &back).json();
    assert_eq!(
        released,
        json!({"id": first["id"], "phase": "ready", "attempts": 1, "remaining_ms": null})
    );
    let refused = |opened: &Opened, claim: &Value| {
        for what in ["ack", "fail", "touch", "release", "bury"] {
            act(opened, what, &target(claim)).because(409, "stale");
        }
    };
    refused(&opened, &first);
    let second = pop(&opened, "q");
    assert!(second["token"].as_u64() > first["token"].as_u64());
    let before = job(&opened, &first["id"]);
    assert_eq!((&before["priority"], &before["releases"]), (&json!(9), &json!(1)));
    refused(&opened, &first);

    opened.restart();
    refused(&opened, &first);
    let after = job(&opened, &first["id"]);
    for field in ["phase", "token", "attempts", "releases", "priority", "body"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_eq!(act(&opened, "ack", &target(&second)).json(), json!({"deleted": 1}));
}

#[test]
fn an_error_that_is_too_long_keeps_its_beginning_and_its_end() {
    let mut opened = Opened::new();
    push(&opened, "q", "x");
    let claim = pop(&opened, "q");
    let mut failed = target(&claim);
    failed["error"] = format!("Traceback{}\nValueError: x", "-".repeat(3000)).into();
    failed["retry_after_ms"] = 3_600_000.into();
    act(&opened, "fail", &failed).json();
    let stored = job(&opened, &claim["id"])["error"].clone();
    let text = stored.as_str().expect("it has an error");
    assert!(text.starts_with("Traceback-") && text.ends_with("-\nValueError: x"), "{text}");
    assert!(text.len() <= 1000 && text.contains("\n[... 2.0 KiB left out ...]\n"), "{text}");
    opened.restart();
    assert_eq!(job(&opened, &claim["id"])["error"], stored);
}

#[test]
fn one_and_the_same_job_is_added_once() {
    let opened = Opened::new();
    let fields = json!({"queue": "q", "body": "x", "dedup": "a key of any length, longer than twenty bytes"});
    let first = opened.post(PUSH, &fields).json();
    let again = opened.post(PUSH, &fields).json();
    assert_eq!(again, json!({"id": first["id"], "new": false, "phase": "ready"}));
    pop(&opened, "q");
    let beside = opened.post(PUSH, &fields).json();
    assert_eq!(beside["new"], true, "a claimed job is no duplicate");
}

#[test]
fn a_batch_is_added_as_one() {
    let opened = Opened::new();
    let batch = json!({"jobs": [
        {"queue": "q", "body": "old", "dedup": "k", "priority": 1},
        {"queue": "t:q", "body_b64": "b25l"},
        {"queue": "q", "body": "new", "dedup": "k", "priority": 2},
    ]});
    let added = act(&opened, "push-all", &batch).json();
    let added = added["jobs"].as_array().expect("a list");
    let new: Vec<&Value> = added.iter().map(|it| &it["new"]).collect();
    assert_eq!(new, [false, true, true]);
    assert_eq!(added[0]["id"], added[2]["id"], "the last one counts");
    assert_eq!(pop(&opened, "q")["body"], "new");
    assert_eq!(pop(&opened, "t:q")["body"], "one");
    let none = json!({"jobs": [{"queue": "r", "body": "x"}, {"queue": "r", "body": 7}]});
    let problem = act(&opened, "push-all", &none).because(400, "field");
    assert_eq!(problem["field"], "jobs[1].body");
    opened.get("/v1/queues/queue?queue=r", "").because(404, "absent");
}

#[test]
fn a_newer_root_job_makes_the_jobs_of_an_older_one_superfluous() {
    let opened = Opened::new();
    let fields = |at: u64| json!({"queue": "q", "body": "x", "root": {"signature": "s", "at": at}});
    let register = |queue: &str, at: u64| {
        let fields = json!({"queue": queue, "signature": "s", "at": at});
        act(&opened, "register", &fields).json()["registered"].clone()
    };
    assert_eq!(opened.post(PUSH, &fields(1)).status, 200);
    assert_eq!(register("q", 2), true);
    assert_eq!(register("q", 2), false);
    assert_eq!(register("other", 9), true, "a signature belongs to its queue");
    assert_eq!(opened.post(PUSH, &fields(2)).status, 200);
    assert_eq!(pop(&opened, "q")["duplicate"], true);
    assert_eq!(pop(&opened, "q")["duplicate"], false);
    let mut itself = fields(3);
    itself["is_root"] = json!(true);
    assert_eq!(opened.post(PUSH, &itself).status, 200);
    assert_eq!(register("q", 3), false, "it has registered itself");
    assert_eq!(pop(&opened, "q")["duplicate"], false);
}

#[test]
fn a_job_that_is_run_at_most_once_ends_when_it_fails() {
    let opened = Opened::new();
    let fields = json!({"queue": "q", "body": "x", "retries": false});
    opened.post(PUSH, &fields).json();
    let claim = pop(&opened, "q");
    assert_eq!(claim["retries"], false);
    let told = job(&opened, &claim["id"]);
    assert_eq!((&told["retries"], &told["durable"]), (&json!(false), &json!(true)));
    let failed = act(&opened, "fail", &target(&claim)).json();
    assert_eq!((&failed["id"], &failed["phase"]), (&claim["id"], &Value::Null));
    act(&opened, "ack", &target(&claim)).because(404, "absent");
}

#[test]
fn a_job_is_given_back_failed_put_aside_and_kicked() {
    let opened = Opened::new();
    let id = push(&opened, "q", "x");
    let only = json!({"id": id});
    let claim = pop(&opened, "q");
    let later = json!({"id": id, "token": claim["token"], "delay_ms": 1_000_000});
    let delayed = act(&opened, "release", &later).json();
    assert_eq!(delayed["phase"], "delayed");
    let remaining = delayed["remaining_ms"].as_u64().expect("a delay has an end");
    assert!((900_000..=1_000_000).contains(&remaining));
    let kick = json!({"queue": "q"});
    assert_eq!(act(&opened, "kick", &kick).json(), json!({"kicked": 1}));
    assert_eq!(act(&opened, "kick", &kick).json(), json!({"kicked": 0}));
    let kicked = act(&opened, "kick-job", &only);
    assert_eq!(kicked.json(), json!({"kicked": 0}), "the job is already ready");
    act(&opened, "kick-job", &json!({"id": 99})).because(404, "absent");

    let claim = pop(&opened, "q");
    act(&opened, "kick-job", &only).because(409, "claimed");
    assert_eq!(claim["attempts"], 1, "kicked, it is as if never tried");
    let retry = json!({"id": id, "token": claim["token"], "retry_after_ms": 1_000_000});
    let failed = act(&opened, "fail", &retry).json();
    assert_eq!(failed["phase"], "retrying");
    assert_eq!(pop(&opened, "q"), Value::Null, "not before its time");
    act(&opened, "ack", &target(&claim)).because(409, "stale");
    assert_eq!(act(&opened, "delete", &only).json(), json!({"deleted": 1}));

    let id = push(&opened, "q", "y");
    let only = json!({"id": id});
    let claim = pop(&opened, "q");
    let buried = act(&opened, "bury", &target(&claim)).json();
    assert_eq!((&buried["phase"], &buried["remaining_ms"]), (&json!("buried"), &Value::Null));
    assert_eq!(counts(&opened, "q"), json!([0, 0, 0, 1, 0]));
    assert_eq!(act(&opened, "kick-job", &only).json(), json!({"kicked": 1}));
    assert_eq!(act(&opened, "delete", &only).json(), json!({"deleted": 1}));
    act(&opened, "delete", &only).because(404, "absent");
    let queue = json!({"queue": "q"});
    push(&opened, "q", "z");
    assert_eq!(act(&opened, "flush", &queue).json(), json!({"flushed": 1}));
    assert_eq!(act(&opened, "flush", &queue).json(), json!({"flushed": 0}));
}

#[test]
fn what_was_tried_too_often_is_abandoned_until_it_is_repushed() {
    let opened = Opened::configured(tried_twice);
    push(&opened, "t:twice", "x");
    for phase in ["ready", "abandoned"] {
        let claim = pop(&opened, "t:twice");
        let released = act(&opened, "release", &target(&claim)).json();
        assert_eq!(released["phase"], phase);
    }
    assert_eq!(counts(&opened, "t:twice"), json!([0, 0, 0, 0, 1]));
    let queue = json!({"queue": "t:twice"});
    assert_eq!(act(&opened, "repush", &queue).json(), json!({"repushed": 1}));
    assert_eq!(act(&opened, "repush", &queue).json(), json!({"repushed": 0}));
    assert_eq!(pop(&opened, "t:twice")["attempts"], 1);
}

#[test]
fn a_pause_keeps_jobs_back() {
    let opened = Opened::new();
    push(&opened, "q", "x");
    let pause = |ms: u64| act(&opened, "pause", &json!({"queue": "q", "ms": ms})).json();
    assert_eq!(pause(1_000_000), json!({"queue": "q", "paused_ms": 1_000_000}));
    assert_eq!(pop(&opened, "q"), Value::Null);
    opened.get("/v1/queues/next", "").because(404, "absent");
    let told = opened.get("/v1/queues/queue?queue=q", "").json();
    assert!(told["paused_ms"].as_u64().is_some_and(|ms| ms > 900_000));
    assert_eq!(pause(0)["paused_ms"], 0);
    let told = opened.get("/v1/queues/queue?queue=q", "").json();
    assert_eq!(told["paused_ms"], Value::Null);
    assert_eq!(pop(&opened, "q")["body"], "x");
    for ms in [0, 1000] {
        let absent = json!({"queue": "r", "ms": ms});
        act(&opened, "pause", &absent).because(404, "absent");
    }
    opened.get("/v1/queues/queue?queue=r", "").because(404, "absent");
}

#[test]
fn who_waits_is_given_the_job_that_comes_and_who_went_away_none() {
    let opened = Opened::new();
    let none = opened.begin(POP, &json!({"queues": ["q"], "wait": 1}));
    assert_eq!(finish(POP, none).json(), json!({"jobs": []}));

    let gone = wait_for(&opened, "q", "");
    let stays = wait_for(&opened, "q", "");
    drop(gone);
    until(|| opened.get("/v1/queues/queue?queue=q", "").json()["waiting"] == 1);
    push(&opened, "q", "x");
    let claim = finish(POP, stays).json()["jobs"][0].clone();
    assert_eq!((&claim["body"], &claim["attempts"]), (&json!("x"), &json!(1)));

    // A client that closes its sending side stops waiting, and gets an error as its answer.
    let half = wait_for(&opened, "q", "");
    half.shutdown(std::net::Shutdown::Write).expect("connected");
    finish(POP, half).problem(400);
    let told = opened.get("/v1/queues/queue?queue=q", "").json();
    assert_eq!(told["waiting"], 0);
}

#[test]
fn a_claim_that_could_not_be_told_is_given_back() {
    let opened = Opened::new();
    let id = push(&opened, "q", "x");
    let gate = Gate::default();
    opened.handle().actors().queue.inject_panics(gate.before_decisions());
    let stream = UnixStream::connect(opened.socket());
    let mut stream = stream.expect("it listens");
    let body = r#"{"queues":["q"]}"#;
    let head = format!("Host: localhost\r\nContent-Length: {}", body.len());
    let request = format!("POST {POP} HTTP/1.1\r\n{head}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("a subscriber exists");
    gate.reached();
    drop(stream);
    gate.open();
    // A request that does not wait is answered even if its client seems to be gone. When writing the answer fails, the
    // job is released.
    let told = || job(&opened, &json!(id));
    until(|| told()["releases"] == 1);
    assert_eq!((&told()["phase"], &told()["claims"]), (&json!("ready"), &json!(1)));
}

#[test]
fn a_repetition_is_told_of_the_same_claim() {
    let opened = Opened::new();
    let key = |key: &str| format!("Idempotency-Key: {key}\r\n");
    let fields = json!({"queue": "q", "body": "x"});
    let pushed = opened.post_with(PUSH, &key("one"), &fields).json();
    assert_eq!(opened.post_with(PUSH, &key("one"), &fields).json(), pushed);
    opened
        .post_with(PUSH, &key("one"), &json!({"queue": "q", "body": "y"}))
        .because(422, "key-reused");
    let wanted = json!({"queues": ["q"]});
    let claims = opened.post_with(POP, &key("two"), &wanted).json();
    assert_eq!(claims["jobs"][0]["id"], pushed["id"]);
    let again = opened.post_with(POP, &key("two"), &wanted).json();
    assert_eq!(target(&again["jobs"][0]), target(&claims["jobs"][0]));
    assert_eq!(again["jobs"][0]["attempts"], 1);
    assert_eq!(pop(&opened, "q"), Value::Null, "it was added once");

    let claim = target(&claims["jobs"][0]);
    let ack = |name: &str| opened.post_with("/v1/queues/ack", &key(name), &claim);
    assert_eq!(ack("three").json(), json!({"deleted": 1}));
    assert_eq!(ack("three").json(), json!({"deleted": 1}));
    ack("four").because(404, "absent");
    opened.post_with(POP, &key("two"), &wanted).because(409, "stale");
}

fn fill(queues: &Queues, names: impl Iterator<Item = String>) {
    let put = |name: String| {
        let queue = QueueName::parse(name.as_bytes()).expect("a valid name");
        Item::Message(Message::Put(Put::new(queue, Body::new(name.as_bytes()))))
    };
    let puts = names.map(put).collect();
    for answer in run(queues.batch(puts)).expect("the node answers") {
        answer.expect("the node adds it");
    }
}

/// Returns all pages of a list.
fn pages(opened: &Opened, path: &str, member: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut next = json!("0");
    while let Some(after) = next.as_str() {
        let page = opened.get(&format!("{path}&limit=7&after={after}"), "");
        let page = page.json();
        let some = page[member].as_array().expect("a list");
        assert!(some.len() <= 7);
        found.extend(some.clone());
        next = page["next"].clone();
    }
    found
}

#[test]
fn lists_are_filtered_and_paged() {
    let opened = Opened::new();
    let queues = opened.handle().queues();
    let name = |n: u32| match n % 3 {
        0 => format!("t{}:mails", n % 5),
        1 => "mails".to_owned(),
        _ => format!("t{}:purges", n % 5),
    };
    fill(&queues, (0..150).map(name));
    let all = opened.get("/v1/queues?limit=1000", "").json();
    assert_eq!(all["next"], Value::Null);
    let all = all["queues"].as_array().expect("a list").clone();
    assert_eq!(all.len(), 11);
    let names: Vec<&str> = all.iter().filter_map(|it| it["queue"].as_str()).collect();
    assert!(names.is_sorted(), "{names:?}");
    let mut paged = pages(&opened, "/v1/queues?", "queues");
    paged.sort_by_key(|it| it["queue"].to_string());
    assert_eq!(paged, all);
    let count = |filter: &str| {
        let found = opened.get(&format!("/v1/queues?{filter}"), "").json();
        found["queues"].as_array().expect("a list").len()
    };
    assert_eq!(count("tenant=t1"), 2);
    assert_eq!(count("tenant="), 1, "the default one");
    assert_eq!(count("type=mails"), 6);
    assert_eq!(count("type=mails&tenant=t1"), 1);
    assert_eq!(count("type=none"), 0);

    pop(&opened, "mails");
    let jobs = pages(&opened, "/v1/queues/jobs?", "jobs");
    assert_eq!(jobs.len(), 150);
    let of_queue = opened.get("/v1/queues/jobs?queue=mails&limit=1000", "").json();
    let of_queue = of_queue["jobs"].as_array().expect("a list").clone();
    assert_eq!(of_queue.len(), 50);
    let ids: Vec<_> = of_queue.iter().map(|it| it["id"].as_u64()).collect();
    assert!(ids.is_sorted());
    let mut paged = pages(&opened, "/v1/queues/jobs?queue=mails", "jobs");
    paged.sort_by_key(|it| it["id"].as_u64());
    assert_eq!(paged.len(), 50);
    let claimed = pages(&opened, "/v1/queues/jobs?phase=claimed", "jobs");
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0]["queue"], "mails");
    assert!(claimed[0]["token"].is_u64());
    let none = pages(&opened, "/v1/queues/jobs?queue=mails&phase=buried", "jobs");
    assert!(none.is_empty());
    let of_type = pages(&opened, "/v1/queues/jobs?type=mails", "jobs");
    assert_eq!(of_type.len(), 100);
    let usual = opened.get("/v1/queues/jobs", "").json();
    assert_eq!(usual["jobs"].as_array().map(Vec::len), Some(100));
    assert_eq!(opened.get("/v1/status", "").json()["queues"]["jobs"]["ready"], 149);
}

#[test]
fn a_ready_queue_is_named_by_chance() {
    let opened = Opened::new();
    opened.get("/v1/queues/next", "").because(404, "absent");
    fill(&opened.handle().queues(), ["t:a", "b"].map(str::to_owned).into_iter());
    let next = |types: &str| opened.get(&format!("/v1/queues/next?types={types}"), "");
    assert_eq!(next("a,c").json(), json!({"queue": "t:a", "tenant": "t", "type": "a"}));
    assert_eq!(next("b").json(), json!({"queue": "b", "tenant": "", "type": "b"}));
    next("c").because(404, "absent");
    // The maximum number of types in one request is accepted.
    assert_eq!(next(&["b"; 1000].join(",")).json()["queue"], "b");
    let many = next(&["b"; 1001].join(",")).because(400, "field");
    assert_eq!(many["field"], "types");
    pop(&opened, "t:a");
    next("a").because(404, "absent");
    assert_eq!(opened.get("/v1/queues/next", "").json()["queue"], "b");
}
