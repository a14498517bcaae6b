//! The examples, run unchanged: their output is compared with the texts here.

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[cfg(feature = "replay")]
#[path = "../../examples/recorded_log.rs"]
mod recorded_log;
#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[path = "../../examples/service.rs"]
mod service;

#[expect(dead_code, reason = "its `main` is for `cargo run --example`")]
#[cfg(feature = "jobs")]
#[path = "../../examples/jobs.rs"]
mod jobs;

/// Runs an example, and returns its output.
fn printed<E: std::fmt::Debug>(run: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> String {
    let mut out = Vec::new();
    run(&mut out).expect("the example ends well");
    String::from_utf8(out).expect("it prints text")
}

#[test]
fn a_service_embeds_a_node() {
    let expected = "the audit lost its lock, and stopped
its late booking was refused: another client has acquired the lock since
balance: 40
";
    assert_eq!(printed(service::run), expected);
}

#[cfg(feature = "jobs")]
#[test]
fn a_program_works_on_its_own_jobs() {
    let expected = "broken.png at 80 px, try 2
cat.png at 80 px, try 1
shy.png at 80 px, try 2
0 left
";
    assert_eq!(printed(jobs::run), expected);
}

#[cfg(feature = "replay")]
#[test]
fn a_recorded_log_is_replayed() {
    assert_eq!(printed(recorded_log::run), "cleanup: carol\nnightly-report: bob\n");
}
