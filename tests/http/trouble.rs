//! The list of problems, which the page, `/v1/trouble` and the metrics show.

use crate::browser::{Browser, text};
use crate::lock::until;
use crate::opened::{Opened, request, run};
use crate::process_status::launches;
use serde_json::{Value, json};
use sexton::actors::process::{Definition, Policy};
use sexton::bytes::Bytes;
use sexton::node::Drain;
use sexton::spine::delivery::Stage;
use sexton::trouble::Kind;

/// Returns a node on which an actor panicked and a job is abandoned.
fn troubled() -> Opened {
    let opened = Opened::new();
    let handle = opened.handle();
    run(handle.locks().batch(vec![request(b"a", b"one")])).expect("the node answers");
    handle.actors().lock.inject_panics(Box::new(|stage, _| {
        assert_ne!(stage, Stage::Decide, "planted <b>");
    }));
    let answers = run(handle.locks().batch(vec![request(b"b", b"one")]));
    assert!(answers.is_ok_and(|it| it.iter().all(Result::is_err)), "it panics");
    let job = opened.post("/v1/queues/push", &json!({"queue": "mail", "body": "x"}));
    let job = job.json();
    let cancel = json!({"id": job.get("id")});
    opened.post("/v1/queues/cancel", &cancel).json();
    opened
}

/// Returns kind, level, title, words and subject of each problem.
fn list(answer: &Value) -> Vec<[&str; 5]> {
    let fields = ["kind", "level", "title", "words", "subject"];
    let rows = answer["troubles"].as_array().expect("a list").iter();
    rows.map(|row| fields.map(|field| row[field].as_str().unwrap_or("-"))).collect()
}

#[test]
fn nothing_is_listed_on_a_node_that_is_well() {
    let opened = Opened::new();
    let answer = opened.get("/v1/trouble", "").json();
    assert_eq!(
        answer,
        json!({"troubles": [], "processes_hidden": true}),
        "processes are for those who may run commands"
    );
    let answer = opened.get_over_socket_as("/v1/trouble", "localhost").json();
    assert_eq!(answer, json!({"troubles": [], "processes_hidden": false}));
}

#[test]
fn the_route_the_page_and_the_metrics_show_the_same() {
    let opened = troubled();
    let answer = opened.get("/v1/trouble", "").json();
    let listed = list(&answer);
    let kinds: Vec<&str> = listed.iter().map(|row| row[0]).collect();
    assert_eq!(kinds, ["jobs-abandoned", "actor-restarted"], "{answer}");
    assert_eq!(
        listed[0],
        [
            "jobs-abandoned",
            "bad",
            "Jobs failed",
            "1 job failed permanently, and can be retried or discarded.",
            "-"
        ]
    );
    let page = text(&Browser::new(&opened).page("/"));
    let metrics = opened.get("/metrics", "").body;
    for [kind, level, title, words, _] in &listed {
        // The time since a panic goes on between the two answers.
        let words = words.split(';').next().expect("the first part");
        let shown = format!("{title} {words}");
        assert!(page.contains(&shown), "{shown} is not in: {page}");
        let metric = format!("sexton_troubles{{kind=\"{kind}\",level=\"{level}\"}} 1");
        assert!(metrics.contains(&metric), "{metric} is not in: {metrics}");
    }
    for kind in Kind::ALL {
        let series = format!("sexton_troubles{{kind=\"{}\",", kind.name());
        assert!(metrics.contains(&series), "{series} is not in: {metrics}");
    }
}

/// Problems of processes name what runs, so they are for those who may run commands.
#[test]
fn problems_of_services_are_for_those_who_may_run_commands() {
    let opened = Opened::configured(|config| {
        launches(config);
        let mut service =
            Definition { name: "web".to_owned(), restart: Policy::Never, ..Definition::default() };
        service.spec.argv = vec![Bytes::new(*b"/no/such/program")];
        config.services = vec![service];
    });
    let ours = || opened.get_over_socket_as("/v1/trouble", "localhost").json();
    until(|| list(&ours()).iter().any(|row| row[0] == "service-failed"));
    let answer = ours();
    assert_eq!(
        list(&answer)[0],
        [
            "service-failed",
            "bad",
            "Service failed",
            "web failed, and will not be restarted automatically.",
            "web"
        ]
    );
    let theirs = opened.get("/v1/trouble", "").json();
    assert_eq!(theirs, json!({"troubles": [], "processes_hidden": true}));
    let metrics = opened.get("/metrics", "").body;
    let counted = "sexton_troubles{kind=\"service-failed\",level=\"bad\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

/// Claims and finishes the pass of a lease as a client that may run nothing. The pass fails.
fn fail(opened: &Opened, name: &str) {
    let claimed = opened.post("/v1/leases/claim", &json!({"name": name})).json();
    let over = json!({"name": name, "token": claimed.get("token"), "code": 1});
    let answer = opened.post("/v1/leases/finish", &over);
    assert_eq!(answer.status, 200, "{claimed} {answer:?}");
}

#[test]
fn what_any_client_may_cause_is_listed_after_everything_else() {
    let opened = Opened::configured(launches);
    fail(&opened, "theirs");
    let asked = json!({"name": "ours", "launch": {"command": ["false"]}});
    let asked = opened.post_as_owner("/v1/leases/run", &asked);
    assert_eq!(asked.status, 200, "{asked:?}");
    let listed = || opened.get("/v1/trouble", "").json();
    until(|| list(&listed()).iter().any(|row| row[0] == "lease-failed"));
    // More of them, and later ones, than are listed one by one.
    for number in 0..60 {
        fail(&opened, &format!("theirs-{number}"));
    }
    run(opened.handle().begin_drain(Drain::All)).expect("the node answers");
    let answer = listed();
    let rows = list(&answer);
    let kinds: Vec<_> = rows.iter().map(|row| (row[0], row[1])).take(3).collect();
    assert_eq!(
        kinds,
        [("lease-failed", "bad"), ("draining", "warn"), ("claim-failed", "warn")],
        "{answer}"
    );
    assert_eq!(rows[0][4], "ours");
    let theirs = rows.iter().filter(|row| row[0] == "claim-failed");
    assert_eq!(theirs.count(), rows.len() - 2, "{answer}");
    assert_eq!(rows.len(), 2 + 50, "one by one, and one line for all further ones: {answer}");
    let last = rows.last().expect("a list")[3];
    assert!(last.contains("further leases failed"), "{last}");
}

/// Programs tell kinds by their names: each is documented, and no two are the same.
#[test]
fn every_kind_is_documented_once() {
    let page = include_str!("../../docs/protocols/http.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<&str> = rows.collect();
    for kind in Kind::ALL {
        let row = format!("| `{}` | {} | ", kind.name(), kind.level().name());
        let many = rows.iter().filter(|it| it.starts_with(&row)).count();
        assert_eq!(many, 1, "rows that begin with {row}");
    }
}
