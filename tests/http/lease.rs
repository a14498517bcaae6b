//! Leases over HTTP, for clients that run passes (runs under a lease) themselves, and for requests with a command.

use crate::every_status::PendingRequest;
use crate::opened::{Answer, Opened, finish};
use crate::patience::until;
use crate::process_status::{at, launches};
use serde_json::{Value, json};

const CLAIM: &str = "/v1/leases/claim";
const WAIT: &str = "/v1/leases/wait";

fn well(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn of<'a>(said: &'a Value, path: &str) -> &'a Value {
    said.pointer(path).unwrap_or(&Value::Null)
}

fn show(opened: &Opened, name: &str) -> Value {
    well(&opened.get(&format!("/v1/leases/lease?name={name}"), ""))
}

/// Opens a node with a lease `k` that has this period.
fn with_period(ms: u64) -> Opened {
    let opened = Opened::configured(launches);
    well(&opened.post_as_owner("/v1/leases/set", &json!({"name": "k", "period_ms": ms})));
    opened
}

#[test]
fn a_client_that_runs_a_pass_itself_has_a_token_until_it_is_over() {
    let opened = with_period(50);
    let said = well(&opened.post(CLAIM, &json!({"name": "k"})));
    let token = of(&said, "/token").clone();
    assert!(token.as_u64() > Some(0), "{said}");
    assert_eq!((of(&said, "/turn"), of(&said, "/pass")), (&json!("current"), &json!(1)));
    let mine = json!({"name": "k", "token": token});
    let renewed = well(&opened.post("/v1/leases/renew", &mine));
    assert_eq!(of(&renewed, "/current/running"), true);
    let other = json!({"name": "k", "token": token.as_u64().map(|it| it + 1)});
    opened.post("/v1/leases/finish", &other).because(409, "stale");
    let over = json!({"name": "k", "token": token, "code": 3});
    let finished = well(&opened.post("/v1/leases/finish", &over));
    assert_eq!(of(&finished, "/current/code"), 3);
    assert_eq!(of(&finished, "/whole"), 1);
    opened.post("/v1/leases/renew", &mine).because(409, "stale");
    opened.post("/v1/leases/finish", &over).because(409, "stale");
}

#[test]
fn one_that_is_turned_away_is_called_back() {
    let opened = with_period(50);
    let first = well(&opened.post(CLAIM, &json!({"name": "k"})));
    let second = opened.begin(CLAIM, &json!({"name": "k", "wait": 60}));
    until("the second is next", || of(&show(&opened, "k"), "/next/live").as_bool()?.then_some(()));
    let check = well(&opened.get("/v1/leases/check?name=k", ""));
    assert_eq!(of(&check, "/wanted"), false);
    let third = well(&opened.post(CLAIM, &json!({"name": "k"})));
    assert_eq!(of(&third, "/turn"), "not-needed");
    assert_eq!(of(&third, "/token"), &Value::Null);
    let pass = of(&third, "/pass");
    let begun = opened.begin(WAIT, &json!({"name": "k", "begun": pass, "wait": 60}));
    let whole = opened.begin(WAIT, &json!({"name": "k", "whole": pass, "wait": 60}));
    let token = of(&first, "/token");
    well(&opened.post("/v1/leases/finish", &json!({"name": "k", "token": token})));
    let second = well(&finish(CLAIM, second));
    assert_eq!(of(&second, "/turn"), "current");
    assert!(of(&second, "/token").as_u64() > token.as_u64(), "tokens only increase");
    let begun = well(&finish(WAIT, begun));
    assert_eq!(of(&begun, "/begun"), pass);
    let over = json!({"name": "k", "token": of(&second, "/token")});
    well(&opened.post("/v1/leases/finish", &over));
    let whole = well(&finish(WAIT, whole));
    assert_eq!(of(&whole, "/whole"), pass);
}

#[test]
fn a_place_ends_with_its_connection_and_with_its_wait() {
    let opened = with_period(60_000);
    well(&opened.post(CLAIM, &json!({"name": "k"})));
    let waiting = opened.begin(CLAIM, &json!({"name": "k", "wait": 600}));
    let next = |opened: &Opened| of(&show(opened, "k"), "/next").clone();
    until("it is next", || (!next(&opened).is_null()).then_some(()));
    drop(waiting);
    until("no request is next", || next(&opened).is_null().then_some(()));
    let waiting = opened.begin(CLAIM, &json!({"name": "k", "wait": 1}));
    let said = well(&finish(CLAIM, waiting));
    assert_eq!((of(&said, "/turn"), of(&said, "/token")), (&json!("next"), &Value::Null));
    until("no request is next", || next(&opened).is_null().then_some(()));
    let said = well(&opened.post(CLAIM, &json!({"name": "k"})));
    assert_eq!(of(&said, "/turn"), "no-delay", "no client would recognise it");
}

#[test]
fn a_client_that_says_nothing_for_its_ttl_is_taken_for_dead() {
    let opened = with_period(1);
    let first = well(&opened.post(CLAIM, &json!({"name": "k", "ttl_ms": 100})));
    let waiting = opened.begin(CLAIM, &json!({"name": "k", "wait": 60}));
    let second = well(&finish(CLAIM, waiting));
    assert_eq!(of(&second, "/turn"), "current");
    let late = json!({"name": "k", "token": of(&first, "/token")});
    opened.post("/v1/leases/finish", &late).because(409, "stale");
}

#[test]
fn a_claim_is_bound_to_a_process_of_the_user() {
    let opened = with_period(1);
    let socket = opened.socket();
    let ask = |path: &str, body: &Value| {
        at(&PendingRequest::as_described(path, "POST").about(body), &socket)
    };
    let launched = ask("/v1/processes/launch", &json!({"command": ["sleep", "600"]}));
    let id = of(&well(&launched), "/id").clone();
    let bound = json!({"name": "k", "process": id});
    opened.post(CLAIM, &bound).because(403, "out-of-scope");
    let said = well(&ask(CLAIM, &bound));
    assert_eq!(of(&said, "/lease/current/process"), &id);
    assert_eq!(of(&said, "/lease/current/holder"), "process");
    let again = well(&ask(CLAIM, &json!({"name": "k"})));
    assert_eq!(of(&again, "/turn"), "no-delay");
    well(&ask("/v1/processes/stop", &json!({"id": id, "grace_ms": 0})));
    until("its pass has ended", || {
        (of(&show(&opened, "k"), "/current/running") == false).then_some(())
    });
    ask(CLAIM, &bound).because(409, "ended");
}

#[test]
fn a_command_is_launched_once_for_a_key_and_waited_for() {
    let opened = with_period(60_000);
    let launch = json!({"command": ["sh", "-c", "exit 4"]});
    let body = json!({"name": "k", "launch": launch, "wait": 60, "until": "ended"});
    let ask = || {
        let asking = PendingRequest::as_described("/v1/leases/run", "POST");
        at(&asking.about(&body).with("Idempotency-Key: one"), &opened.socket())
    };
    opened.post("/v1/leases/run", &body).because(403, "out-of-scope");
    let first = well(&ask());
    assert_eq!(of(&first, "/turn"), "current");
    assert_eq!(of(&first, "/process/code"), 4, "{first}");
    assert_eq!(of(&first, "/lease/current/whole"), true);
    let again = well(&ask());
    assert_eq!(of(&again, "/place"), of(&first, "/place"));
    assert_eq!(of(&again, "/process/id"), of(&first, "/process/id"));
    assert_eq!(of(&show(&opened, "k"), "/begun"), 1);
}

/// The cause may name files, which are for those who may see processes.
#[test]
fn why_a_pass_could_not_be_started_is_for_those_who_may_see_processes() {
    let opened = with_period(1);
    let launch = json!({"command": ["/nowhere/to/be/found"]});
    let body =
        json!({"name": "k", "launch": launch, "no_delay": true, "wait": 60, "until": "ended"});
    let asking = PendingRequest::as_described("/v1/leases/run", "POST").about(&body);
    let own = well(&at(&asking, &opened.socket()));
    assert_eq!(of(&own, "/lease/current/exit"), "failed", "{own}");
    assert_eq!(of(&own, "/lease/current/failure/errno"), 2, "{own}");
    let others = show(&opened, "k");
    assert_eq!(of(&others, "/current/exit"), "failed", "{others}");
    assert_eq!(of(&others, "/current/failure"), &Value::Null, "{others}");
}

#[test]
fn leases_are_listed_by_name_and_by_pages() {
    let opened = Opened::new();
    for name in ["b", "a/2", "a/1", "a/3", "c"] {
        well(&opened.post_as_owner("/v1/leases/set", &json!({"name": name, "period_ms": 1000})));
    }
    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/leases?prefix=a&limit=2{after}");
        let page = well(&opened.get(&path, ""));
        let leases = of(&page, "/leases").as_array().expect("a list").clone();
        names.extend(leases.iter().map(|it| of(it, "/name").clone()));
        match of(&page, "/next").as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["a/1", "a/2", "a/3"]);
    opened.post_as_owner("/v1/leases/set", &json!({"name": "a"})).because(400, "field");
    opened
        .post_as_owner("/v1/leases/set", &json!({"name": "", "period_ms": 1}))
        .because(400, "field");
    opened
        .post("/v1/leases/set", &json!({"name": "a", "launch": {"command": ["true"]}}))
        .because(403, "out-of-scope");
    opened
        .post("/v1/leases/set", &json!({"name": "a", "logfile": "/var/log/a"}))
        .because(403, "out-of-scope");
    let wrong = json!({"name": "a", "schedule": "* * *"});
    opened.post_as_owner("/v1/leases/set", &wrong).because(400, "field");
}

#[test]
fn a_command_line_is_shown_to_everyone_who_may_read() {
    let opened = Opened::configured(launches);
    let command = json!(["true", "--password=secret", "visible"]);
    let launch = json!({"command": command, "allow_secrets": true});
    let set = json!({"name": "k", "launch": launch});
    well(&opened.post_as_owner("/v1/leases/set", &set));
    let shown = show(&opened, "k").to_string();
    assert!(shown.contains("visible"), "{shown}");
    assert!(!shown.contains("=secret"), "{shown}");
}

/// A client without the scope `run` may neither delay nor replace nor delete what only one with it can set up.
#[test]
fn a_lease_that_launches_commands_is_left_to_those_who_may_run_them() {
    let opened = Opened::configured(launches);
    let forbidden = |path: &str, fields: &Value| {
        opened.post(path, fields).because(403, "out-of-scope");
    };
    let year = 366_u64 * 24 * 3_600_000;
    let launch = json!({"command": ["true"]});
    let set = json!({"name": "nightly", "launch": launch, "schedule": "0 3 * * *"});
    well(&opened.post_as_owner("/v1/leases/set", &set));
    let settings = || {
        let mut lease = show(&opened, "nightly");
        lease["now"].take();
        lease
    };
    let before = settings();
    forbidden(CLAIM, &json!({"name": "nightly", "period_ms": year}));
    forbidden(CLAIM, &json!({"name": "nightly"}));
    forbidden("/v1/leases/reset", &json!({"name": "nightly"}));
    assert_eq!(settings(), before);
    // A client has a pass already when a request with a command comes.
    let pass = well(&opened.post(CLAIM, &json!({"name": "late"})));
    let pass = json!({"name": "late", "token": of(&pass, "/token")});
    let run = json!({"name": "late", "launch": launch});
    let asked = well(&opened.post_as_owner("/v1/leases/run", &run));
    assert_eq!(of(&asked, "/turn"), "next", "{asked}");
    forbidden("/v1/leases/renew", &pass);
    forbidden("/v1/leases/finish", &pass);
    forbidden("/v1/leases/reset", &json!({"name": "late"}));
    // A lease that is only disabled, or has another period, is as its operator set it.
    well(&opened.post_as_owner("/v1/leases/set", &json!({"name": "off", "disabled": true})));
    forbidden("/v1/leases/reset", &json!({"name": "off"}));
    // One of clients alone is theirs.
    let pass = well(&opened.post(CLAIM, &json!({"name": "theirs"})));
    let pass = json!({"name": "theirs", "token": of(&pass, "/token")});
    well(&opened.post("/v1/leases/finish", &pass));
    well(&opened.post("/v1/leases/reset", &json!({"name": "theirs"})));
}
