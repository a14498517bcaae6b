//! The paths that are served, and the answers for other paths.

use crate::lock::until;
use crate::opened::{Opened, request, run};
use sexton::actors::queue::{Body, Put};
use sexton::config::{Address, BeanstalkConfig};
use sexton::spine::delivery::Stage;
use std::net::{SocketAddr, TcpStream};

#[test]
fn the_routes_answer() {
    let opened = Opened::new();
    let health = opened.get("/healthz", "");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    for path in ["/healthz", "/v1/status", "/metrics", "/v1/openapi.json"] {
        let answer = opened.get(path, "");
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let head =
            opened.exchange(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert_eq!(head.matches("\r\n\r\n").count(), 1, "an answer to HEAD has no body: {head}");
    }
}

#[test]
fn the_status_tells_what_was_done() {
    let opened = Opened::new();
    let items = vec![request(b"a", b"one"), request(b"a", b"two"), request(b"b", b"one")];
    let done = run(opened.handle().locks().batch(items)).expect("the node answers");
    assert_eq!(done.len(), 3);
    let over_tcp = opened.get("/v1/status", "");
    assert_eq!(over_tcp.header("content-type"), Some("application/json"));
    for answer in [over_tcp, opened.get_over_socket("/v1/status")] {
        let status: serde_json::Value = serde_json::from_str(&answer.body).expect("valid JSON");
        assert_eq!((&status["lock_owners"], &status["lock_contenders"]), (&2.into(), &1.into()));
        assert_eq!(status["pid"], std::process::id());
        assert_eq!(status["fsync"], "always");
        assert_eq!(status["listeners"]["http"], opened.address().to_string());
        assert_eq!(status["listeners"]["socket"], opened.socket().to_str().expect("UTF-8"));
        let mut actors = status["actors"].as_array().expect("a list").iter();
        let locks = actors.find(|actor| actor["name"] == "lock").expect("one has locks");
        assert_eq!(locks["restarts"], 0);
        assert!(status["journal"]["syncs"].as_u64() > Some(0));
        assert!(status["journal"]["released"].as_u64() >= locks["last"].as_u64());
        assert!(status["http"]["accepted"].as_u64() > Some(0));
        assert_eq!(status["halted"], serde_json::Value::Null);
        assert!(status["host"]["load"][2].as_f64() >= Some(0.0), "{status}");
        assert!(status["host"]["processors"].as_u64() > Some(0));
        let memory = |of: &str, name: &str| status[of][name].as_u64();
        assert!(memory("host", "memory_available_bytes") > Some(0));
        assert!(memory("host", "memory_bytes") > memory("host", "memory_available_bytes"));
        assert!(memory("host", "uptime_ms") > Some(0));
        assert!(memory("process", "memory_bytes") > Some(1 << 20));
        assert!(memory("process", "memory_peak_bytes") >= memory("process", "memory_bytes"));
        // The sockets of the two listeners are two descriptors.
        assert!(memory("process", "descriptors") > Some(2));
        assert!(memory("process", "descriptors_max") >= memory("process", "descriptors"));
    }
}

#[test]
fn the_metrics_are_metrics_line_by_line() {
    let opened = Opened::new();
    let items = vec![request(b"a", b"one"), request(b"a", b"two")];
    let done = run(opened.handle().locks().batch(items)).expect("the node answers");
    assert_eq!(done.len(), 2);
    opened.get("/nothing", "").problem(404);
    let page = opened.get("/metrics", "");
    assert!(
        page.header("content-type")
            .is_some_and(|found| found.starts_with("application/openmetrics-text"))
    );
    let body = page.body.strip_suffix("# EOF\n").expect("the page is complete");
    let mut types = std::collections::BTreeMap::new();
    let mut samples = std::collections::BTreeMap::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (kind, name, rest) = (
                words.next(),
                words.next().expect("the line has a name"),
                words.next().expect("a text"),
            );
            assert!(matches!(kind, Some("HELP" | "TYPE" | "UNIT")), "{line}");
            assert!(name.starts_with("sexton_") && !rest.is_empty(), "{line}");
            if kind == Some("TYPE") {
                assert!(types.insert(name.to_owned(), rest.to_owned()).is_none(), "twice: {line}");
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        assert!(value.parse::<f64>().is_ok(), "no number: {line}");
        let name = series.split('{').next().expect("the line has a name");
        let family = types
            .keys()
            .rfind(|family| name.starts_with(family.as_str()))
            .unwrap_or_else(|| panic!("no type: {line}"));
        let suffix = &name[family.len()..];
        let expected = match types[family].as_str() {
            "counter" => "_total",
            "gauge" => "",
            "info" => "_info",
            other => panic!("an unexpected type {other}"),
        };
        assert_eq!(suffix, expected, "{line}");
        assert!(samples.insert(series, value).is_none(), "twice: {line}");
    }
    let at = |series: &str| {
        let value = samples.get(series);
        *value.unwrap_or_else(|| panic!("no {series} in {samples:#?}"))
    };
    let number = |series: &str| at(series).parse::<f64>().expect("a number");
    assert_eq!(at(r#"sexton_build_info{version="0.1.0"}"#), "1");
    assert_eq!(at("sexton_lock_owners"), "1");
    assert_eq!(at("sexton_lock_contenders"), "1");
    assert_eq!(at(r#"sexton_actor_restarts_total{actor="lock"}"#), "0");
    let owners = r#"sexton_actor_items{actor="lock",what="owners"}"#;
    assert_eq!(at(owners), "1");
    assert_eq!(at(r#"sexton_journal_room{room="ample"}"#), "1");
    assert_eq!(at(r#"sexton_http_requests_total{result="refused"}"#), "1");
    assert!(number("sexton_journal_written_bytes_total") > 0.0);
    assert!(number("sexton_start_time_seconds") > 1.6e9);
    assert_eq!(at("sexton_journal_history_bytes"), "0");
    assert!(number("sexton_journal_begin_time_seconds") > 1.6e9);
}

#[test]
fn the_metrics_tell_of_the_machine_and_of_the_process() {
    let page = Opened::new().get("/metrics", "").body;
    let number = |series: &str| {
        let mut lines = page.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines
            .find(|(name, _)| *name == series)
            .unwrap_or_else(|| panic!("no {series} in {page}"));
        value.parse::<f64>().expect("a number")
    };
    assert!(number(r#"sexton_host_load{minutes="15"}"#) >= 0.0);
    assert!(number("sexton_host_processors") >= 1.0);
    assert!(number("sexton_host_memory_bytes") > number("sexton_host_memory_available_bytes"));
    assert!(number("sexton_host_uptime_seconds") > 0.0);
    assert!(number("sexton_process_memory_bytes") > 1e6);
    assert!(number("sexton_process_memory_peak_bytes") > 1e6);
    assert!(number("sexton_process_descriptors") > 2.0);
    assert!(number("sexton_process_descriptors_max") > 2.0);
}

#[test]
fn the_metrics_count_those_who_come_to_the_beanstalkd_listener() {
    let closed = Opened::new().get("/metrics", "").body;
    assert!(!closed.contains("sexton_beanstalk_"), "{closed}");
    let opened = Opened::configured(|config| {
        config.beanstalk = Some(BeanstalkConfig {
            address: Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
            connections_max: 2,
            ..BeanstalkConfig::default()
        });
    });
    let status = opened.get("/v1/status", "").json();
    let address = status["listeners"]["beanstalk"].as_str().expect("the listener is open");
    let connect = || TcpStream::connect(address).expect("it listens");
    let value = |series: &str| {
        let page = opened.get("/metrics", "").body;
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        line.map(|value| value.trim().to_owned())
    };
    let total =
        |result: &str| value(&format!("sexton_beanstalk_connections_total{{result=\"{result}\"}}"));
    let [one, two, beyond] = [(); 3].map(|()| connect());
    until(|| total("rejected_busy").as_deref() == Some("1"));
    assert_eq!(total("accepted").as_deref(), Some("2"));
    assert_eq!(total("rejected_host").as_deref(), Some("0"));
    let active = || value("sexton_beanstalk_active_connections ");
    assert_eq!(active().as_deref(), Some("2"));
    drop((one, beyond));
    until(|| active().as_deref() == Some("1"));
    drop(two);
}

#[test]
fn the_metrics_speak_of_the_newest_snapshot() {
    let opened = Opened::new();
    let samples = || {
        let page = opened.get("/metrics", "").body;
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| line.rsplit_once(' '));
        let owned = samples.map(|(series, value)| (series.to_owned(), value.to_owned()));
        owned.collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = samples();
    assert_eq!(before["sexton_checkpoints_taken_total"], "0");
    assert!(!before.contains_key("sexton_checkpoint_duration_seconds"));
    let taken = run(opened.handle().checkpoint()).expect("the node answers");
    let after = samples();
    let at = |series: &str| after[series].as_str();
    let number = |series: &str| at(series).parse::<f64>().expect("a number");
    assert_eq!(at("sexton_checkpoints_taken_total"), "1");
    assert_eq!(at("sexton_checkpoints_failed_total"), "0");
    assert_eq!(at("sexton_checkpoint_running"), "0");
    let took = number("sexton_checkpoint_duration_seconds") * 1000.0;
    assert_eq!(took.round().to_string(), taken.ms.to_string());
    let size = number("sexton_snapshot_size_bytes").to_string();
    assert_eq!(size, taken.file_bytes.to_string());
    let upto = taken.upto.to_string();
    assert_eq!(at(r#"sexton_snapshot_seq{slot="a"}"#), upto);
    assert_eq!(at(r#"sexton_snapshot_seq{slot="b"}"#), "0");
}

#[test]
fn what_is_not_served_is_refused_as_a_problem() {
    let opened = Opened::new();
    for path in ["/page/", "/page/absent"] {
        let answer = opened.get(path, "");
        let kind = answer.header("content-type");
        assert_eq!((answer.status, kind), (404, Some("text/html; charset=utf-8")), "{path}");
    }
    for path in [
        "/page",
        "/v1",
        "/v1/status/",
        "//v1/status",
        "/v1/../healthz",
        "/healthz/..%2f",
        "/V1/STATUS",
        "/v1/status;x",
        "/%00",
        "/../../etc/passwd",
    ] {
        opened.get(path, "").problem(404);
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let answer = opened
            .ask(format!("{method} /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        answer.problem(405);
        assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method}");
    }
    assert_eq!(
        opened.get("/healthz?verbose=1", "").status,
        200,
        "a query does not change the path"
    );
}

#[test]
fn a_halted_node_is_not_healthy() {
    let opened = Opened::configured(|config| config.rules.supervisor.restarts.restarts_max = 0);
    let handle = opened.handle();
    handle.actors().lock.inject_panics(Box::new(|stage, _| {
        assert_ne!(stage, Stage::Decide, "planted");
    }));
    assert!(run(handle.locks().batch(vec![request(b"a", b"one")])).is_err());
    let halt = run(handle.halted()).to_string();
    assert_eq!(opened.get("/healthz", "").problem(503), halt);
    opened.get("/v1/status", "").problem(503);
    opened.get("/metrics", "").problem(503);
}

#[test]
fn the_metrics_name_the_queues_with_the_most_jobs() {
    let opened = Opened::new();
    let queues = opened.handle().queues();
    let put = |queue: &str| {
        let queue = queue.try_into().expect("a valid name");
        let added = run(queues.put(Put::new(queue, Body::new(*b"body"))));
        added.expect("the node adds it");
    };
    for number in 0..105 {
        put(&format!("few-{number:03}"));
    }
    (0..3).for_each(|_| put("tenant:many"));
    let many = ["tenant:many".try_into().expect("a valid name")];
    run(queues.pop(&many)).expect("the node answers");
    let page = opened.get("/metrics", "").body;
    let value = |series: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        line.map(str::trim)
    };
    assert_eq!(value("sexton_jobs{phase=\"ready\"}"), Some("107"));
    assert_eq!(value("sexton_jobs{phase=\"claimed\"}"), Some("1"));
    assert_eq!(value("sexton_job_bodies_bytes"), Some("432"));
    assert_eq!(value("sexton_jobs_added_total"), Some("108"));
    assert_eq!(value("sexton_queues"), Some("106"));
    let of = |queue: &str, phase: &str| {
        value(&format!("sexton_queue_jobs{{queue=\"{queue}\",phase=\"{phase}\"}}"))
    };
    assert_eq!(of("tenant:many", "ready"), Some("2"));
    assert_eq!(of("tenant:many", "claimed"), Some("1"));
    assert_eq!(of("few-098", "ready"), Some("1"));
    assert_eq!(of("few-099", "ready"), None, "only a hundred queues have series of their own");
}
