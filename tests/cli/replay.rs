//! `sexton replay` as a person uses it. Hostile logs end in an error message, and an export never replaces a file.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn replay(arguments: &[&str], log: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sexton"));
    command.arg("replay").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    let mut input = child.stdin.take().expect("it was requested");
    // The program may close its input once it has read enough, so this may fail.
    drop(input.write_all(log.as_bytes()));
    drop(input);
    child.wait_with_output().expect("the process ends")
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn entry(seq: u64, outcome: &str) -> String {
    format!(
        r#"{{"seq":{seq},"at":1,"actor":"lock","message":{{"request":{{"key":"k","index":"1","owner":"a","ttl":9,"ttw":9,"priority":0}}}},"outcome":{outcome}}}"#
    )
}

#[test]
fn hostile_logs_end_in_words_with_status_3() {
    let cases = [
        ("not json", "line 1"),
        (r#"{"sexton":"log","version":"x"}"#, "must state its version"),
        (r#"{"sexton":"log","version":7}"#, "newer"),
        (r#"{"actor":"lok","message":"drain"}"#, "no actor"),
        (r#"{"message":"drain"}"#, "an entry needs an actor"),
        (r#"{"actor":"lock","message":{"request":{}}}"#, "line 1"),
        (&entry(1, r#"{"granted":{"slot":4000000000}}"#), "does not follow"),
        (&entry(1, r#"{"renewed":{"slot":3,"place":1,"token":1}}"#), "does not follow"),
        (
            &format!(
                "{}\n{}",
                entry(u64::MAX, r#"{"granted":{"slot":0}}"#),
                r#"{"at":70000,"kind":"time"}"#
            ),
            "used up",
        ),
    ];
    for (log, expected) in cases {
        let output = replay(&["-", "--state"], log);
        let said = words(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{log}: {said}");
        assert!(said.contains(expected), "{log}: {said}");
        let first = !log.contains('\n');
        assert!(!first || output.stdout.is_empty(), "{log}: nothing was whole");
        assert!(!said.contains("panicked at"), "{log}: {said}");
    }
}

#[test]
fn a_log_from_the_manual_is_decided_and_expires() {
    let log = r#"
        # by hand
        {"at":1000,"actor":"lock","message":{"request":{"key":"k","index":"1","owner":"a","ttl":1,"ttw":9,"priority":0}}}
        {"at":2000,"kind":"time"}
    "#;
    let output = replay(&["-", "--json"], log);
    let lines: Vec<serde_json::Value> = words(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    let [granted, ended] = lines.as_slice() else {
        panic!("a grant and its end: {lines:?}");
    };
    assert_eq!(granted["outcome"]["granted"]["slot"], 0);
    let about = serde_json::json!([{"slot": 0, "key": "k", "index": "1", "owner": "a"}]);
    assert_eq!(ended["about"], about, "slot numbers alone are not enough");
    assert_eq!(ended["message"]["expire"]["slot"], 0);
    assert_eq!(ended["at"], 2000);
}

#[test]
fn an_export_never_replaces_a_file_and_an_unknown_actor_is_named() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let file = files.path().join("log.jsonl");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let log = r#"{"actor":"lock","message":"drain"}"#;
    let first = replay(&["-", "--export", &text(&file)], log);
    assert!(first.status.success(), "{}", words(&first.stderr));
    assert!(words(&first.stderr).contains("wrote 1 record to"), "{}", words(&first.stderr));
    let written = std::fs::read_to_string(&file).expect("the file was written");
    let again = replay(&[&text(&file), "--export", &text(&file)], "");
    assert_eq!(again.status.code(), Some(3));
    assert_eq!(std::fs::read_to_string(&file).expect("it still exists"), written);
    let verified = replay(&[&text(&file), "--verify"], "");
    assert!(words(&verified.stdout).contains("same way"), "{}", words(&verified.stdout));
    let unknown = replay(&["-", "--actor", "bogus"], "");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(words(&unknown.stderr).contains("lock"), "{}", words(&unknown.stderr));
}

#[test]
fn what_is_no_log_is_named_with_the_place_and_what_to_do() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let cases: [(&str, &[u8], &str); 3] = [
        ("load.py", b"import os\n", "line 1: column 1: "),
        ("00000001.seg", b"\xff\xfe", "it is not UTF-8"),
        ("headless.jsonl", b"{\"sexton\":\"log\",\"version\":1,\"after\":9}\n", "begins after"),
    ];
    for (name, content, expected) in cases {
        let file = files.path().join(name);
        std::fs::write(&file, content).expect("a writable file");
        let path = file.to_str().expect("UTF-8");
        let output = replay(&[path, "--verify"], "");
        let said = words(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        for part in [name, expected, "help:"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(output.stdout.is_empty(), "{name}: no record is complete");
    }
    let absent = files.path().join("absent");
    let output = replay(&[absent.to_str().expect("UTF-8")], "");
    assert_eq!(output.status.code(), Some(3));
    assert!(words(&output.stderr).contains("help:"));
}

#[test]
fn records_are_shown_from_a_number_or_a_time_on() {
    let log = r#"
        {"at":1000,"actor":"lock","message":{"request":{"key":"k","index":"1","owner":"a","ttl":9,"ttw":9,"priority":0}}}
        {"at":3000,"actor":"lock","message":{"request":{"key":"k","index":"2","owner":"b","ttl":9,"ttw":9,"priority":0}}}
    "#;
    for from in ["2", "1970-01-01T00:00:02Z"] {
        let shown = words(&replay(&["-", "--from", from], log).stdout);
        assert_eq!(shown.lines().count(), 1, "{from}: {shown}");
        assert!(shown.contains(r#""owner":"b""#), "{from}: {shown}");
        let exported = words(&replay(&["-", "--from", from, "--export", "-"], log).stdout);
        assert!(exported.contains(r#""after":1"#), "{from}: {exported}");
    }
    let late = replay(&["-", "--from", "99"], log);
    assert!(
        words(&late.stderr).contains("the log ends at sequence number 2"),
        "{}",
        words(&late.stderr)
    );
    for other in ["--state", "--verify"] {
        let refused = replay(&["-", "--from", "2", other], log);
        assert_eq!(refused.status.code(), Some(2), "{other} is of the whole log");
    }
}
