//! How `status`, `top` and log files show leases.

use crate::patience::until;
use crate::tree::Tree;
use serde_json::Value;
use std::path::PathBuf;

/// Starts a coordinator with a lease that has a running pass and a next one, and a lease with a schedule.
fn busy() -> Tree {
    let tree = Tree::start();
    let detach = |script: &str| {
        let words = ["lease", "run", "sync", "--detach", "--", "sh", "-c", script];
        tree.well(&words);
    };
    tree.well(&["lease", "set", "sync", "command", "--", "true"]);
    tree.well(&["lease", "set", "sync", "schedule", "0 3 1 1 *"]);
    detach("sleep 1000000; echo first");
    detach("echo second");
    tree
}

#[test]
fn status_shows_who_runs_who_is_next_and_the_next_date() {
    let tree = busy();
    let status = tree.well(&["status"]);
    let line = status.lines().find(|line| line.starts_with("sync"));
    let line = line.expect("the lease has a line");
    for part in ["echo first", " s ", "echo second: begins ", "due in "] {
        assert!(line.contains(part), "{part}: {status}");
    }
    assert!(status.contains("1 running, 1 next"), "{status}");
    tree.well(&["lease", "reset", "sync", "--force"]);
    assert!(!tree.well(&["status"]).contains("LEASE"));
}

#[test]
fn top_shows_the_same() {
    let tree = busy();
    let frame = tree.well(&["top", "--once"]);
    let line = frame.lines().find(|line| line.starts_with("sync"));
    let line = line.expect("the lease has a line");
    assert!(line.contains("sh -c") && line.contains(" s "), "{frame}");
    assert!(frame.contains("1 lease "), "{frame}");
    let sample = tree.well(&["top", "--once", "--json"]);
    let sample: Value = serde_json::from_str(&sample).expect("valid JSON");
    let name = sample.pointer("/leases/0/name").and_then(Value::as_str);
    assert_eq!(name, Some("sync"));
}

/// Returns the lines of a log file without their dates, once it has this many.
fn lines(log: &PathBuf, count: usize) -> Vec<String> {
    until("the log has its lines", || {
        let text = std::fs::read_to_string(log).ok()?;
        let lines = text.lines().map(|line| {
            let (date, rest) = line.split_at_checked(20).expect("a date");
            assert_eq!(date.split(['-', ':', ' ']).count(), 7, "{line}");
            rest.to_owned()
        });
        let lines: Vec<String> = lines.collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// Returns a line of the log with the duration and the token of the pass replaced.
fn timeless(line: &str) -> String {
    let is_number = |word: &&str| word.parse::<u64>().is_ok();
    let words: Vec<&str> = line.split(' ').collect();
    let word = |(place, word): (usize, &&str)| {
        let before = place.checked_sub(1).and_then(|it| words.get(it));
        let varies = before.is_some_and(|it| ["token", "elapse-time"].contains(it));
        if varies && is_number(word) { "N".to_owned() } else { (*word).to_owned() }
    };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_log_file_has_a_line_for_each_pass_as_it_begins_and_as_it_ends() {
    let tree = Tree::start();
    let (set, flag) = (tree.data.join("set.log"), tree.data.join("flag.log"));
    let file = |path: &PathBuf| path.to_str().expect("its name is text").to_owned();
    tree.well(&["lease", "set", "my sync", "logfile", &file(&set)]);
    let shown = tree.well(&["lease", "show", "my sync"]);
    assert!(shown.starts_with("name        my sync\n"), "{shown}");
    assert!(shown.contains("set.log"), "{shown}");
    let counts = r#"echo '{"counts":{"mails":3,"alerts":1}}'; exit 2"#;
    let run = ["lease", "run", "my sync", "--period", "1ms", "--detach"];
    tree.well(&[&run[..], &["--", "sh", "-c", counts]].concat());
    let told = lines(&set, 2);
    let told: Vec<String> = told.iter().map(|line| timeless(line)).collect();
    let ended = "my-sync 1 alerts 3 mails elapse-time N ms exit 2";
    assert_eq!(told, ["my-sync began token N", ended]);
    // The flag overrides the setting. In the foreground the caller gets the output, so the counts in it are not logged.
    let run = ["lease", "run", "my sync", "--logfile", &file(&flag)];
    tree.well(&[&run[..], &["--", "sh", "-c", "echo '{\"counts\":{\"a\":1}}'"]].concat());
    let told = lines(&flag, 2);
    assert_eq!(timeless(&told[1]), "my-sync elapse-time N ms exit 0");
    assert_eq!(lines(&set, 2).len(), 2);
    tree.well(&["lease", "set", "my sync", "logfile", "none"]);
    assert!(!tree.well(&["lease", "show", "my sync"]).contains("set.log"));
}

#[test]
fn a_lease_that_is_not_there_says_how_it_comes_to_be() {
    let tree = Tree::start();
    let check = tree.run(&["lease", "check", "nosuch"]);
    assert_eq!(check.status, 0, "a request would run: {check:?}");
    assert!(check.err.contains("there is no lease nosuch yet"), "{check:?}");
    let run = tree.run(&["lease", "run", "nosuch"]);
    assert_eq!(run.status, 2, "{run:?}");
    for part in [
        "the lease has no command",
        "`sexton lease run nosuch -- ./sync`",
        "`sexton lease set nosuch command -- ./sync`",
    ] {
        assert!(run.err.contains(part), "{part}: {run:?}");
    }
    tree.well(&["lease", "set", "nosuch", "command", "--", "true"]);
    assert_eq!(tree.well(&["lease", "check", "nosuch"]), "");
}

/// Returns the row of `sexton lease list` for a lease, as cells.
fn row(tree: &Tree, name: &str) -> Vec<String> {
    let listed = tree.well(&["lease", "list", name]);
    let line = listed.lines().nth(1).expect("the lease has a row");
    line.split("  ").filter(|cell| !cell.is_empty()).map(|cell| cell.trim().to_owned()).collect()
}

/// Waits until a row has this cell.
fn wait_for_cell(tree: &Tree, name: &str, cell: &str) {
    until("the list shows how the pass ended", || {
        row(tree, name).iter().any(|it| it == cell).then_some(())
    });
}

/// Waits until the log has a line with all these words.
fn wait_for_log(tree: &Tree, words: &[&str]) {
    let daemon = tree.daemon.as_ref().expect("a server");
    until("the log has the line", || {
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        daemon.log().lines().any(has_all).then_some(())
    });
}

/// Nobody waits for a pass in the background, so its failure must be visible in every overview.
#[test]
fn a_pass_that_failed_is_seen_in_the_list_on_the_page_and_in_the_log() {
    let tree = Tree::start();
    let set = |words: &[&str]| tree.well(&[&["lease", "set", "tick"], words].concat());
    set(&["period", "1ms"]);
    set(&["command", "--", "sh", "-c", "exit 3"]);
    let listed = tree.well(&["lease", "list"]);
    let head = listed.lines().next().expect("it has heads");
    assert!(head.contains("LAST RUN") && head.contains("  LAST  "), "{head}");
    assert_eq!(row(&tree, "tick")[5], "-", "{listed}");
    tree.well(&["lease", "run", "tick"]);
    wait_for_cell(&tree, "tick", "exit 3");
    let page = tree.page("/page/locks");
    assert!(page.contains("<span class=\"tag bad\">exit 3</span>"), "{page}");
    let now = tree.page("/");
    for part in ["Lease failed", " ago (exit 3)", "sexton lease show tick"] {
        assert!(now.contains(part), "{part}: {now}");
    }
    assert!(!now.contains("Nothing is stuck"), "{now}");
    wait_for_log(&tree, &["WARN", "a pass failed", "lease=\"tick\"", "exit 3"]);
    set(&["command", "--", "true"]);
    tree.well(&["lease", "run", "tick"]);
    wait_for_cell(&tree, "tick", "exit 0");
    let now = tree.page("/");
    assert!(now.contains("Nothing is stuck"), "{now}");
    let page = tree.page("/page/locks");
    assert!(!page.contains("tag bad"), "{page}");
}

#[test]
fn why_a_pass_could_not_be_started_is_shown() {
    let tree = Tree::start();
    tree.well(&["lease", "set", "tick", "command", "--", "./nosuch"]);
    tree.well(&["lease", "run", "tick"]);
    wait_for_cell(&tree, "tick", "failed to start");
    let shown = tree.well(&["lease", "show", "tick"]);
    let line = shown.lines().find(|line| line.starts_with("current"));
    let line = line.expect("it had a pass");
    for part in ["./nosuch: failed to start: ", "No such file", "token"] {
        assert!(line.contains(part), "{part}: {shown}");
    }
    assert!(tree.page("/").contains("(failed to start)"));
    wait_for_log(&tree, &["could not be launched", "lease=\"tick\"", "./nosuch"]);
    wait_for_log(&tree, &["a pass failed", "lease=\"tick\"", "failed to start"]);
}

#[test]
fn to_disable_a_lease_that_is_not_there_says_so() {
    let tree = Tree::start();
    for (word, told) in [("disable", "disabled\n"), ("enable", "enabled\n")] {
        let said = tree.run(&["lease", word, word]);
        assert_eq!((said.status, said.out.as_str()), (0, told), "{said:?}");
        let note = format!("there was no lease {word} until now");
        assert!(said.err.contains(&note), "{said:?}");
        let said = tree.run(&["lease", word, word]);
        assert_eq!((said.status, said.err.as_str()), (0, ""), "{said:?}");
    }
}

#[test]
fn a_setting_is_printed_in_one_line() {
    let tree = Tree::start();
    let set = |words: &[&str]| tree.well(&[&["lease", "set", "n"], words].concat());
    assert_eq!(set(&["period", "90s"]), "n (new lease): period 90 s\n");
    for (words, line) in [
        (&["period", "5m"][..], "n: period 5 min 0 s\n"),
        (&["no-delay", "on"], "n: no-delay on\n"),
        (&["max-run", "1500ms"], "n: max-run 1500 ms\n"),
        (&["max-run", "0"], "n: max-run none\n"),
        (&["disabled", "off"], "n: disabled off\n"),
        (&["command", "--", "true", "a"], "n: command true a\n"),
        (&["command", "none"], "n: command none\n"),
        (&["schedule", "none"], "n: schedule none\n"),
        (&["catch-up", "off"], "n: catch-up off\n"),
        (&["logfile", "/l"], "n: logfile /l\n"),
        (&["logfile", "none"], "n: logfile none\n"),
    ] {
        assert_eq!(set(words), line);
    }
    set(&["command", "--", "true"]);
    let line = set(&["schedule", "0 3 * * *"]);
    assert!(line.starts_with("n: schedule 0 3 * * * (UTC), due 20"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let json = tree.well(&["lease", "set", "--json", "n", "period", "1s"]);
    let json: Value = serde_json::from_str(&json).expect("valid JSON");
    assert_eq!(json.pointer("/period_ms"), Some(&1000.into()));
}

#[test]
fn a_span_out_of_bounds_is_refused_in_the_units_of_the_command_line() {
    let tree = Tree::start();
    let limit = "the time limit of a pass is from 1ms to 366d, or 0 for none, not";
    for (words, said) in [
        (&["set", "n", "period", "0"][..], "a period is from 1ms to 366d, not \"0\""),
        (&["set", "n", "period", "367d"], "a period is from 1ms to 366d, not \"367d\""),
        (&["set", "n", "max-run", "367d"], limit),
        (&["run", "n", "--period", "0", "--", "true"], "a period is from 1ms to 366d"),
    ] {
        let done = tree.run(&[&["lease"], words].concat());
        assert_eq!(done.status, 2, "{done:?}");
        assert!(done.err.contains(said), "{done:?}");
    }
}

#[test]
fn a_flag_limits_one_pass_and_beats_the_setting() {
    let tree = Tree::start();
    tree.well(&["lease", "set", "k", "max-run", "1h"]);
    let run =
        |limit: &str| tree.run(&["lease", "run", "k", "--max-run", limit, "--", "sleep", "600"]);
    let stopped = run("200ms");
    assert_eq!(stopped.status, 128 + 15, "{stopped:?}");
    let lease = tree.well(&["lease", "show", "k", "--json"]);
    let lease: Value = serde_json::from_str(&lease).expect("valid JSON");
    assert_eq!(lease["current"]["max_run_ms"], 200, "{lease}");
    assert_eq!(lease["max_run_ms"], 3_600_000, "{lease}");
    let refused = run("367d");
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.err.contains("the time limit of a pass"), "{refused:?}");
}

#[test]
fn a_pass_that_runs_longer_than_its_period_is_shown() {
    let tree = Tree::start();
    let run = ["lease", "run", "k", "--period", "1ms", "--detach", "--", "sleep", "600"];
    tree.well(&run);
    until("the pass overruns its period", || {
        let shown = tree.well(&["lease", "show", "k"]);
        shown.contains("the pass runs longer than its period").then_some(())
    });
    tree.well(&["lease", "reset", "k", "--force"]);
}
