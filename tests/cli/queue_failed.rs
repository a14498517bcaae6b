//! Commands for failed jobs.

use crate::beanstalk::{Client, Reply};
use crate::coordinator::{Coordinator, command, done};
use crate::daemon::{Daemon, ended, sexton, text};
use crate::queue::{pop, refused};
use serde_json::{Value, json};

#[test]
fn a_failed_job_is_shown_kicked_and_deleted_until_it_is_tried_again() {
    let coordinator = Coordinator::start(&["queue"]);
    coordinator.well(&["push", "q", "x"]);
    let (id, token) = pop(&coordinator, "q");
    let fail = |token: &str| coordinator.well(&["fail", &id, token, "--retry-after", "600"]);
    assert!(fail(&token).starts_with("retrying, "), "it shows its state");
    refused(&coordinator, &["release", &id, &token], "stale");
    let peeked = coordinator.well(&["peek", &id]);
    assert!(peeked.contains(" retrying, "), "{peeked}");
    let listed = coordinator.well(&["show", "--list", "--status", "retrying"]);
    assert!(listed.contains(" retrying "), "{listed}");
    let stats = coordinator.json(&["stats"]);
    assert_eq!(
        (&stats["queues"][0]["retrying"], &stats["queues"][0]["claimed"]),
        (&json!(1), &json!(0))
    );
    let status = done(command(&coordinator.data, &["status"]).output().expect("the command runs"));
    assert!(status.out.contains(" 1 retrying"), "{status:?}");

    assert_eq!(coordinator.well(&["kick", "--id", &id]), "kicked 1 job\n");
    let (_, token) = pop(&coordinator, "q");
    fail(&token);
    assert_eq!(coordinator.well(&["delete", &id]), "deleted\n");
}

#[test]
fn a_shell_says_why_a_job_failed_and_is_shown_it() {
    let coordinator = Coordinator::start(&["queue"]);
    coordinator.well(&["push", "q", "x"]);
    let (id, token) = pop(&coordinator, "q");
    let why = "no route to host\n\u{1b}[31magain";
    coordinator.well(&["fail", &id, &token, "--error", why, "--retry-after", "600"]);
    let peeked = coordinator.well(&["peek", &id]);
    let lines: Vec<&str> = peeked.lines().collect();
    let head = format!("{id} q  retrying, ");
    assert!(
        lines[0].starts_with(&head)
            && lines[0].contains(" left, ")
            && lines[0].contains(", tries 1, "),
        "{peeked}"
    );
    assert_eq!(lines[1..], ["last error: no route to host /  [31magain", "x"]);
    let listed = coordinator.well(&["show", "--list"]);
    assert!(listed.contains("LAST ERROR\n"), "{listed}");
    // The last line of an error with several lines is shown, since it describes the problem.
    assert!(listed.ends_with("  [31magain\n"), "{listed}");
}

#[test]
fn tube_clients_see_a_failed_job_as_delayed_and_an_abandoned_one_as_buried() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (data, config) = (files.path().join("data"), files.path().join("sexton.toml"));
    std::fs::write(&config, "[queues.few]\nmax_tries = 1\n").expect("a writable file");
    let flags = ["--data", text(&data), "--config", text(&config), "--beanstalk", "127.0.0.1:0"];
    let daemon = Daemon::serve(&flags);
    let shell = |words: &[&str]| {
        let words = [&["queue"], words].concat();
        let done = done(command(&data, &words).output().expect("the command runs"));
        assert_eq!(done.status, 0, "{words:?}: {done:?}");
        done.out
    };
    let mut client = Client::connect(daemon.beanstalk()).expect("it listens");
    let mut ask = |words: &str| client.ask(words).expect("an answer");
    let state = |reply: &Reply| reply.statistic("state").map(str::to_owned);

    assert_eq!(ask("put 0 0 60 1\r\nx").line, "INSERTED 1");
    for _ in 0..60 {
        assert_eq!(ask("reserve").line, "RESERVED 1 1");
        assert_eq!(ask("release 1 0 0").line, "RELEASED");
    }
    let claimed = shell(&["pop", "default"]);
    let token = claimed.split_whitespace().nth(1).expect("a token");
    shell(&["fail", "1", token, "--retry-after", "600"]);
    let stats = ask("stats-job 1");
    assert_eq!(state(&stats).as_deref(), Some("delayed"));
    assert!(
        stats
            .statistic("time-left")
            .and_then(|left| left.parse::<u64>().ok())
            .is_some_and(|left| left > 500),
        "{stats:?}"
    );
    assert_eq!(ask("stats-tube default").statistic("current-jobs-delayed"), Some("1"));
    assert_eq!(ask("peek-delayed").line, "FOUND 1 1");
    assert_eq!(ask("kick 9").line, "KICKED 1");

    assert_eq!(ask("use few").line, "USING few");
    assert_eq!(ask("put 0 0 60 1\r\ny").line, "INSERTED 2");
    for kick in ["kick 9", "kick-job 2"] {
        assert_eq!(ask("reserve-job 2").line, "RESERVED 2 1");
        assert_eq!(ask("release 2 0 0").line, "BURIED");
        assert_eq!(state(&ask("stats-job 2")).as_deref(), Some("buried"));
        assert_eq!(ask("stats-tube few").statistic("current-jobs-buried"), Some("1"));
        assert_eq!(ask("peek-buried").line, "FOUND 2 1");
        assert_eq!(
            shell(&["show", "--group", "few"]),
            "few: 0 queued; 0 claimed; 0 delayed; 1 abandoned\n"
        );
        assert!(ask(kick).line.starts_with("KICKED"), "{kick}");
        assert_eq!(state(&ask("stats-job 2")).as_deref(), Some("ready"));
    }
}

#[test]
fn what_went_wrong_steers_no_terminal_wherever_it_is_shown() {
    let coordinator = Coordinator::start(&["queue"]);
    coordinator.well(&["push", "q", "x"]);
    let (id, token) = pop(&coordinator, "q");
    let error = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{7f}\nline";
    coordinator.well(&["fail", &id, &token, "--error", error]);
    let data = coordinator.data.to_str().expect("UTF-8");
    for flags in [
        &[][..],
        &["--state"],
        &["--json"],
        &["--state", "--json"],
        &["--job", &id],
        &["--export", "-"],
    ] {
        let mut command = sexton();
        command.args(["replay", data]).args(flags);
        let [shown, _] = ended(command.output().expect("the command runs"), 0);
        let steers = |letter: &char| *letter != '\n' && sexton::text::steers(*letter);
        assert_eq!(shown.chars().find(steers), None, "{flags:?}: {shown:?}");
        if flags.contains(&"--export") {
            let told = shown.lines().find(|line| line.contains("31m"));
            let told: Value = serde_json::from_str(told.expect("it exists")).expect("valid JSON");
            let told = &told["message"]["fail"]["error"];
            assert_eq!(told, error, "the error is read back unchanged");
        }
    }
}

#[test]
fn many_that_failed_are_tried_again_or_ended_by_one_command() {
    let coordinator = Coordinator::start(&["queue"]);
    let buried = |count: u32, queue: &str| {
        for _ in 0..count {
            coordinator.well(&["push", queue, "x"]);
            let (id, token) = pop(&coordinator, queue);
            coordinator.well(&["bury", &id, &token]);
        }
    };
    buried(3, "q");
    buried(2, "t:q");
    let said = coordinator.well(&["retry", "q", "--limit", "2"]);
    assert_eq!(said, "retried 2 jobs\n");
    let said = coordinator.well(&["discard", "--type", "q"]);
    assert_eq!(said, "discarded 3 jobs\n");
    let said = coordinator.json(&["discard", "q", "--status", "ready"]);
    assert_eq!(said, json!({"discarded": 2}));
    coordinator.well(&["push", "q", "x"]);
    let (id, token) = pop(&coordinator, "q");
    let why = ["fail", &id, &token, "--error", "-1: no route", "--retry-after", "600"];
    coordinator.well(&why);
    let listed = coordinator.well(&["show", "--list", "--error", "-1: no"]);
    assert!(listed.contains(" retrying "), "{listed}");
    let by_error = ["retry", "--all", "--status", "retrying", "--error"];
    let [other, its] = ["a route", "no route"].map(|text| [&by_error[..], &[text]].concat());
    assert_eq!(coordinator.well(&other), "retried 0 jobs\n");
    assert_eq!(coordinator.well(&its), "retried 1 job\n");
    let claimed = coordinator.run(&["retry", "q", "--status", "claimed"]);
    assert_eq!(claimed.status, 2);
    assert!(claimed.err.contains("must be delayed"), "{claimed:?}");
}

#[test]
fn who_retries_nothing_learns_what_there_is() {
    let coordinator = Coordinator::start(&["queue"]);
    let unknown = coordinator.run(&["retry", "nosuch"]);
    let none = (0, "retried 0 jobs\n");
    assert_eq!((unknown.status, unknown.out.as_str()), none);
    assert!(unknown.err.contains("there is no queue nosuch"), "{unknown:?}");
    let id = coordinator.well(&["push", "q", "x"]);
    let (id, token) = (id.trim_end(), pop(&coordinator, "q").1);
    let one = coordinator.run(&["retry", id]);
    assert_eq!(one.status, 1, "{one:?}");
    let kick = format!("`sexton queue kick --id {id}`");
    assert!(one.err.contains(&kick), "{one:?}");
    coordinator.well(&["fail", id, &token, "--retry-after", "600"]);
    let none = coordinator.run(&["retry", "q"]);
    assert_eq!((none.status, none.out.as_str()), (0, "retried 0 jobs\n"));
    let hint = "1 job is waiting to be retried: `sexton queue retry q --status retrying` selects it; \
        `sexton queue kick --id ID` makes one ready";
    assert!(none.err.contains(hint), "{none:?}");
    let shown = coordinator.run(&["show"]);
    assert_eq!((shown.status, shown.out.as_str()), (0, "0\n"));
    assert!(shown.err.contains("no job is ready; 1 retrying"), "{shown:?}");
    let all = coordinator.well(&["retry", "q", "--status", "retrying"]);
    assert_eq!(all, "retried 1 job\n");
    assert_eq!(coordinator.well(&["show"]), "1\n");
    let stats = coordinator.well(&["stats", "q"]);
    assert!(
        stats.ends_with(
            "DONE counts jobs completed or deleted since startup, or since the queue was created\n"
        ),
        "{stats}"
    );
}

#[test]
fn as_many_as_there_are_go_in_several_requests() {
    let coordinator = Coordinator::start(&["queue"]);
    let batch = coordinator.data.join("batch");
    std::fs::write(&batch, "{\"body\":\"x\"}\n".repeat(1000)).expect("a writable file");
    for _ in 0..2 {
        coordinator.well(&["push", "q", "--batch", text(&batch)]);
    }
    let said = coordinator.json(&["discard", "q", "--status", "ready"]);
    assert_eq!(said, json!({"discarded": 2000}));
}
