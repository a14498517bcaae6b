//! Commands that add jobs: single ones, batches, and jobs of root jobs.

use crate::coordinator::{CommandOutput, Coordinator, done};
use serde_json::json;
use std::io::Write as _;
use std::process::Stdio;

/// Runs a command with this standard input.
fn fed(coordinator: &Coordinator, words: &[&str], input: &str) -> CommandOutput {
    let mut command = coordinator.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut fed = command.spawn().expect("the command starts");
    let mut stdin = fed.stdin.take().expect("a pipe");
    // The command may have ended without reading its input.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    done(fed.wait_with_output().expect("the process ends"))
}

#[test]
fn a_batch_of_lines_is_added_as_one() {
    let coordinator = Coordinator::start(&["queue"]);
    let lines = "{\"body\": \"one\", \"dedup\": \"k\"}\n\n{\"queue\": \"t:other\", \"body_b64\": \"dHdv\"}\n{\"body\": \"three\", \"dedup\": \"k\", \"priority\": 3}";
    let pushed = fed(&coordinator, &["push", "q", "--batch", "-"], lines);
    assert_eq!((pushed.status, pushed.out.as_str()), (0, "2\n1\n2\n"), "{pushed:?}");
    assert_eq!(
        coordinator.well(&["show", "--group"]),
        "q: 1 queued; 0 claimed; 0 delayed\nt:other: 1 queued; 0 claimed; 0 delayed\n"
    );
    let file = coordinator.files.path().join("jobs");
    std::fs::write(&file, "{\"queue\": \"r\", \"body\": \"x\"}\n").expect("a writable file");
    let file = file.display().to_string();
    assert_eq!(coordinator.well(&["push", "--batch", &file]), "3\n");

    for (lines, why) in [
        ("{\"body\": \"a\"}\nno\n", "line 2 of the batch is not a job"),
        ("\n{\"body\": \"a\"}\n{\"body\": 7}\n", "line 3 of the batch, body"),
        (
            format!("{}no\n", "{\"body\": \"a\"}\n".repeat(1000)).as_str(),
            "line 1001 of the batch is not a job",
        ),
        ("\n", "the batch has no jobs"),
    ] {
        let refused = fed(&coordinator, &["push", "s", "--batch", "-"], lines);
        assert_eq!((refused.status, refused.out.as_str()), (2, ""), "{refused:?}");
        assert!(refused.err.contains(why), "{refused:?}");
    }
    assert_eq!(coordinator.well(&["stats", "s"]), "no queues\n", "all of them or none");
    let absent = coordinator.run(&["push", "q", "--batch", "/nowhere/jobs"]);
    assert!(absent.status == 3 && absent.err.contains("/nowhere/jobs"), "{absent:?}");
    assert_eq!(coordinator.run(&["push", "q", "x", "--batch", "-"]).status, 2);
}

#[test]
fn a_body_of_any_bytes_is_taken_up_to_the_longest_and_refused_by_its_length_above() {
    let coordinator = Coordinator::start(&["queue"]);
    let longest = 65_535;
    for letter in ["\0", "\u{1b}", "\"", "x"] {
        let body = letter.repeat(longest);
        let pushed = fed(&coordinator, &["push", "q"], &body);
        assert_eq!((pushed.status, pushed.err.as_str()), (0, ""), "{letter:?}");
        let claims = coordinator.json(&["pop", "q"]);
        let said = &claims["jobs"][0];
        assert_eq!(said["body"].as_str().map(str::len), Some(longest), "{letter:?}");
    }
    // The queue refuses some of these jobs, and the command refuses the others before it sends them.
    for length in [longest + 1, 200_000, 5_000_000] {
        let refused = fed(&coordinator, &["push", "q"], &"x".repeat(length));
        assert_eq!((refused.status, refused.out.as_str()), (1, ""), "{refused:?}");
        for words in ["the body is longer than allowed", "--job-bytes"] {
            assert!(refused.err.contains(words), "{length}: {refused:?}");
        }
    }
    let job = format!("{{\"body\": \"{}\"}}\n", "x".repeat(longest));
    let words = ["push", "q", "--batch", "-", "--atomic"];
    let refused = fed(&coordinator, &words, &job.repeat(9));
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.err.contains("help: "), "{refused:?}");
    let added = fed(&coordinator, &["push", "r", "--batch", "-"], &job.repeat(9));
    assert_eq!((added.status, added.out.lines().count()), (0, 9));
}

#[test]
fn a_batch_of_any_length_is_added_in_order_and_an_error_says_what_was() {
    let coordinator = Coordinator::start(&["queue"]);
    let lines = (0..2500).map(|number| json!({"body": number.to_string()}).to_string() + "\n");
    let lines: String = lines.collect();
    let words = ["push", "q", "--batch", "-"];
    let refused = fed(&coordinator, &[&words[..], &["--atomic"]].concat(), &lines);
    assert_eq!((refused.status, refused.out.as_str()), (2, ""));
    assert!(refused.err.contains("2,500 jobs, but the limit is 1000"), "{refused:?}");
    let added = fed(&coordinator, &words, &lines);
    assert_eq!((added.status, added.err.as_str()), (0, ""), "{added:?}");
    let ids: Vec<u64> = added.out.lines().map(|id| id.parse().unwrap()).collect();
    assert_eq!(ids, (1..=2500).collect::<Vec<_>>());
    let last = coordinator.json(&["peek", "2500"]);
    assert_eq!(last["id"], 2500);

    let lines = format!("{lines}{{\"body\": 7}}\n");
    let stopped = fed(&coordinator, &words, &lines);
    assert_eq!((stopped.status, stopped.out.lines().count()), (2, 2000));
    for words in
        ["line 2501 of the batch, body", "the 2,000 jobs of the lines before line 2001 were added"]
    {
        assert!(stopped.err.contains(words), "{words}: {stopped:?}");
    }
}

#[test]
fn nothing_else_is_added_under_a_key_for_a_time_although_the_job_is_done() {
    let coordinator = Coordinator::start(&["queue"]);
    let first = coordinator.well(&["push", "q", "to: ann", "--unique-for", "10m"]);
    let claims = coordinator.json(&["pop", "q"]);
    let (id, token) = (&claims["jobs"][0]["id"], &claims["jobs"][0]["token"]);
    coordinator.well(&["ack", &id.to_string(), &token.to_string()]);
    for words in [
        &["push", "q", "to: ann", "--unique-for", "1h"][..],
        &["push", "q", "to: ann", "--unique-for", "10m"],
    ] {
        let again = coordinator.run(words);
        assert_eq!((again.status, &again.out), (0, &first), "{again:?}");
        assert!(again.err.contains("was added before"), "{again:?}");
    }
    let other = coordinator.well(&["push", "q", "to: bob", "--unique-for", "10m"]);
    assert_ne!(other, first);
    let keyed = coordinator.well(&["push", "q", "x", "--dedup", "k", "--unique-for", "200ms"]);
    let again = coordinator.run(&["push", "q", "y", "--dedup", "k"]);
    assert_eq!(again.out, keyed, "the key finds the same job");
    for wrong in ["0", "-1", "400d", "soon"] {
        let refused = coordinator.run(&["push", "q", "z", "--unique-for", wrong]);
        assert_eq!((refused.status, refused.out.as_str()), (2, ""), "{refused:?}");
    }
}

#[test]
fn a_newer_root_job_makes_those_of_an_older_one_duplicates() {
    let coordinator = Coordinator::start(&["queue"]);
    coordinator.well(&["push", "q", "old", "--root", "page@7@1"]);
    coordinator.well(&["push", "q", "new", "--root", "page@7@2", "--is-root"]);
    let first = coordinator.well(&["pop", "q"]);
    assert!(first.contains(", a duplicate\n"), "{first}");
    let second = coordinator.well(&["pop", "q"]);
    assert!(second.ends_with(" left\nnew\n"), "{second}");
    for words in [&["push", "q", "x", "--root", "page"][..], &["push", "q", "x", "--is-root"]] {
        assert_eq!(coordinator.run(words).status, 2, "{words:?}");
    }
}
