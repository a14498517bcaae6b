//! Jobs that failed, from a shell.

use crate::coordinator::{Coordinator, command, done};
use crate::queue::{pop, refused};

#[test]
fn a_failed_job_is_shown_kicked_and_deleted_until_it_is_tried_again() {
    let coordinator = Coordinator::start(&["queue"]);
    coordinator.well(&["push", "q", "x"]);
    let (id, token) = pop(&coordinator, "q");
    let fail = |token: &str| coordinator.well(&["fail", &id, token, "--retry-after", "600"]);
    assert!(
        fail(&token).starts_with("retrying, "),
        "it says how it stands"
    );
    refused(&coordinator, &["release", &id, &token], "stale");
    let peeked = coordinator.well(&["peek", &id]);
    assert!(peeked.contains(" retrying, "), "{peeked}");
    let listed = coordinator.well(&["show", "--list", "--status", "retrying"]);
    assert!(listed.contains(" retrying "), "{listed}");
    let stats = coordinator.json(&["stats"]);
    assert_eq!(
        (
            &stats["queues"][0]["retrying"],
            &stats["queues"][0]["claimed"]
        ),
        (&1.into(), &0.into())
    );
    let status = done(
        command(&coordinator.data, &["status"])
            .output()
            .expect("it runs"),
    );
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
    assert_eq!(
        lines[1..],
        ["last error: no route to host /  [31magain", "x"]
    );
    let listed = coordinator.well(&["show", "--list"]);
    assert!(listed.contains("LAST ERROR\n"), "{listed}");
    assert!(
        listed.ends_with("  no route to host /  [31magain\n"),
        "{listed}"
    );
}
