//! `sexton job`: reports of a command about its own job, which no other process can send.

use crate::coordinator::done;
use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use crate::work::{begin, job, jobs, push, until_lines, work};
use serde_json::{Value, json};

/// The program itself.
const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

#[test]
fn progress_is_shown_with_the_job_while_it_is_worked_on() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "a");
    let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
    let script = format!(
        "{SEXTON} job progress 40 'page 2 of 5' && echo told >> {}; while [ ! -e {} ]; do sleep 0.02; done",
        text(&log),
        text(&gate)
    );
    let told = tree.data.join("told");
    let mut events = tree.command(&["events", "--kind", "progress,claimed", "--json"]);
    events.stdout(std::fs::File::create(&told).expect("a writable file"));
    let mut events = events.spawn().expect("the command starts");
    // Events are stored from the first claim that is shown on.
    until("events are told", || {
        let other = push(&tree, "other", "x");
        let popped = tree.well(&["queue", "pop", "other"]);
        drop((other, popped));
        (!std::fs::read_to_string(&told).ok()?.is_empty()).then_some(())
    });
    let running = begin(&tree, &["mails"], &script);
    until_lines(&log, 1);
    until("it is an event", || {
        let told = std::fs::read_to_string(&told).ok()?;
        let is_it = |line: &&str| line.contains("\"kind\":\"progress\"");
        let line = told.lines().find(is_it)?.to_owned();
        assert!(line.contains("\"percent\":40"), "{line}");
        assert!(line.contains("\"text\":\"page 2 of 5\""), "{line}");
        Some(())
    });
    events.kill().expect("a live process");
    events.wait().expect("our child");
    let shown = job(&tree, &id);
    assert_eq!(
        (&shown["percent"], &shown["report"], &shown["phase"]),
        (&json!(40), &json!("page 2 of 5"), &json!("claimed"))
    );
    let page = tree.well(&["queue", "peek", &id]);
    assert!(page.contains("done: 40 % page 2 of 5"), "{page}");
    let list = tree.well(&["queue", "show", "--list"]);
    assert!(list.contains("40 % page 2 of 5"), "{list}");
    std::fs::write(&gate, "").expect("a writable file");
    let done = done(running.wait_with_output().expect("our child"));
    assert_eq!(done.status, 0, "{done:?}");
}

#[test]
fn a_job_that_is_to_come_back_later_does_when_its_command_has_ended() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "a");
    let script = format!("{SEXTON} job snooze 10m 'the server is down'; exit 0");
    let (said, _) = work(&tree, &["mails"], &script);
    assert_eq!(jobs(&said), [("mails".into(), "failed".into(), json!("the server is down"))]);
    let later = job(&tree, &id);
    assert_eq!(
        (&later["phase"], &later["attempts"], &later["error"]),
        (&json!("retrying"), &json!(0), &json!("the server is down"))
    );
    let left = later["remaining_ms"].as_u64().expect("it is tried again");
    assert!((500_000..=600_000).contains(&left), "{later}");
}

#[test]
fn a_job_fails_as_its_command_says_whatever_its_exit_status() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "a");
    let script = format!(
        "{SEXTON} job snooze 10m; {SEXTON} job fail --retry-after 1h 'no such user'; exit 0"
    );
    let (said, _) = work(&tree, &["mails"], &script);
    assert_eq!(
        jobs(&said),
        [("mails".into(), "failed".into(), json!("no such user"))],
        "the last counts"
    );
    let failed = job(&tree, &id);
    assert_eq!(
        (&failed["phase"], &failed["attempts"], &failed["error"]),
        (&json!("retrying"), &json!(1), &json!("no such user"))
    );
    let left = failed["remaining_ms"].as_u64().expect("it is tried again");
    assert!((3_500_000..=3_600_000).contains(&left), "{failed}");
}

#[test]
fn only_who_knows_the_secret_of_an_attempt_reports_of_it() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "a");
    let log = tree.data.join("log");
    // A wrong secret, no secret, and the secret of an attempt that has ended.
    let script = format!(
        "SEXTON_JOB_SECRET=0 {SEXTON} job fail x; echo $? >> {0}; (unset SEXTON_JOB_SECRET; {SEXTON} job fail x); echo $? >> {0}; echo $SEXTON_JOB_SECRET >> {0}; {SEXTON} job touch; echo $? >> {0}",
        text(&log)
    );
    let (said, _) = work(&tree, &["mails", "--allow-secrets"], &script);
    assert_eq!(jobs(&said), [("mails".into(), "ok".into(), Value::Null)]);
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    let noted: Vec<&str> = noted.lines().collect();
    assert_eq!((noted[0], noted[1], noted[3]), ("1", "2", "0"), "{noted:?}");
    assert_eq!(noted[2].len(), 32, "{noted:?}");
    let outside = tree.run(&["job", "progress", "4"]);
    assert_eq!(outside.status, 2, "{outside:?}");
    assert_eq!(job(&tree, &id)["reason"], "absent");
    // No record of a process contains the secret.
    for record in tree.all() {
        assert!(!record.to_string().contains(noted[2]), "{record}");
    }
}

#[test]
fn a_report_of_a_claim_that_is_lost_is_refused() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "a");
    let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
    let script = format!(
        "echo begin >> {0}; while [ ! -e {1} ]; do sleep 0.02; done; {SEXTON} job progress 50; echo $? >> {0}",
        text(&log),
        text(&gate)
    );
    let running = begin(&tree, &["mails"], &script);
    until_lines(&log, 1);
    tree.well(&["queue", "flush", "mails"]);
    std::fs::write(&gate, "").expect("a writable file");
    drop(running.wait_with_output());
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    assert_eq!(noted, "begin\n1\n", "{}", job(&tree, &id));
}

#[test]
fn a_report_begins_the_time_of_a_command_again() {
    let tree = Tree::start();
    push(&tree, "mails", "a");
    let script = format!("for i in 1 2 3 4 5 6; do sleep 1; {SEXTON} job touch; done");
    let (said, _) = work(&tree, &["mails", "--timeout", "5"], &script);
    assert_eq!(jobs(&said), [("mails".into(), "ok".into(), Value::Null)]);
    until("its record is there", || {
        let all = tree.all();
        all.iter().any(|it| it["type"] == "worker").then_some(())
    });
}

#[test]
fn a_job_is_not_told_to_wait_for_longer_than_jobs_wait() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "x");
    let script =
        format!("{SEXTON} job snooze 99999999999; echo $? >&2; {SEXTON} job snooze 1h soon");
    let (said, done) = work(&tree, &["mails"], &script);
    assert!(done.err.contains("is too long: the maximum is"), "{said} {done:?}");
    assert!(!done.err.contains("not a setting"), "its variables are known: {done:?}");
    assert_eq!(job(&tree, &id)["attempts"], 0);
    assert_eq!(job(&tree, &id)["error"], "soon");
}

#[test]
fn a_job_whose_report_was_not_taken_is_not_done() {
    let tree = Tree::start();
    let script = r#"python3 -c "
import os, socket
it = socket.socket(socket.AF_UNIX)
it.connect('\0' + os.environ['SEXTON_JOB_REPORT'][1:])
it.sendall(WORDS)
it.shutdown(socket.SHUT_WR)
it.recv(4096)
"; exit 0"#;
    for (report, words) in [
        ("b'{'", "unexpected end of file"),
        ("b''", "unexpected end of file"),
        ("b'{}\\n'", "not a report"),
        ("b'x' * 20000", "more than 16384 bytes"),
    ] {
        let id = push(&tree, "mails", "a");
        let script = script.replace("WORDS", report);
        let (said, _) = work(&tree, &["mails"], &script);
        let [(_, status, _)] = jobs(&said).try_into().expect("one job");
        assert_eq!(status, "failed", "{report}: {said}");
        let error = job(&tree, &id)["error"].to_string();
        assert!(
            error.contains("a report was not taken") && error.contains(words),
            "{report}: {error}"
        );
        tree.well(&["queue", "flush", "mails"]);
    }
}

/// Not every report of progress is passed on, since each one is written to the journal.
#[test]
fn a_command_that_reports_without_end_is_heard_now_and_then() {
    let tree = Tree::start();
    push(&tree, "mails", "x");
    let released = || {
        let status = tree.get("/v1/status");
        status["journal"]["released"].as_u64().expect("a number")
    };
    let before = released();
    let script = r#"read -r line <&3; id=${line#*\"id\":}; id=${id%%,*}; i=0
        while [ $i -lt 2000 ]; do i=$((i+1)); echo "{\"id\":$id,\"progress\":$((i/20))}"; done >&3
        echo "{\"id\":$id,\"ok\":true}" >&3; read -r line <&3"#;
    let (said, _) = work(&tree, &["mails", "--lines"], script);
    assert_eq!(said["jobs"][0]["status"], "ok", "{said}");
    let entries = released() - before;
    assert!(entries < 500, "{entries} entries");
}
