//! `sexton queue`, with the real program.

use crate::coordinator::{Coordinator, command, done};
use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::Stdio;

/// Claims a job. Returns its id and its token, which a shell can take from the first line of the output.
pub(crate) fn pop(coordinator: &Coordinator, queue: &str) -> (String, String) {
    let printed = coordinator.well(&["pop", queue]);
    let mut words = printed.split_whitespace();
    let mut word = || words.next().expect("the line has a number").to_owned();
    (word(), word())
}

/// Asserts that a command is refused with this reason.
pub(crate) fn refused(coordinator: &Coordinator, words: &[&str], why: &str) {
    let refused = coordinator.run(words);
    assert_eq!((refused.status, refused.out.as_str()), (1, ""), "{words:?}");
    assert!(refused.err.contains(why) && refused.err.contains("help:"), "{words:?}: {refused:?}");
}

#[test]
fn a_shell_adds_claims_and_ends_a_job() {
    let coordinator = Coordinator::start(&["queue"]);
    assert_eq!(coordinator.well(&["push", "mails", "to: ann"]), "1\n");
    let printed = coordinator.well(&["pop", "mails"]);
    let (head, body) = printed.split_once('\n').expect("two lines");
    assert!(head.starts_with("1 ") && head.contains(" mails, try 1, "), "{head}");
    assert_eq!(body, "to: ann\n");
    let (_, token) = head.split_once(' ').expect("a token");
    let (token, _) = token.split_once(' ').expect("a token");
    let touched = coordinator.well(&["touch", "1", token]);
    assert!(touched.starts_with("claimed, ") && touched.ends_with(" left\n"), "{touched}");
    refused(&coordinator, &["ack", "1", "1"], "stale");
    refused(&coordinator, &["delete", "1"], "claimed");
    assert_eq!(coordinator.well(&["ack", "1", token]), "done\n");
    refused(&coordinator, &["ack", "1", token], "no such job");
    refused(&coordinator, &["peek", "1"], "no such job");
    refused(&coordinator, &["pop", "mails"], "no job to claim");
}

#[test]
fn a_body_comes_from_standard_input_whatever_bytes_it_has() {
    let coordinator = Coordinator::start(&["queue"]);
    for (words, bytes) in [(&["push", "q"][..], &b"\xff\x00\n"[..]), (&["push", "q", "-"], b"")] {
        let mut command = coordinator.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut pushing = command.spawn().expect("the command starts");
        let mut input = pushing.stdin.take().expect("a pipe");
        input.write_all(bytes).expect("connected");
        drop(input);
        assert_eq!(done(pushing.wait_with_output().expect("the process ends")).status, 0);
    }
    let claims = coordinator.json(&["pop", "q", "--count", "2"]);
    assert_eq!(claims["jobs"][0]["body_b64"], "/wAK");
    assert_eq!(claims["jobs"][1]["body"], "");
    let raw = coordinator.command(&["peek", "1"]).output().expect("the command runs");
    assert!(raw.stdout.ends_with(b" old\n\xff\x00\n"), "{raw:?}");
    let same = ["push", "q", "x", "--dedup", "k"];
    assert_eq!(coordinator.well(&same), "3\n");
    let again = coordinator.run(&same);
    assert_eq!((again.status, again.out.as_str()), (0, "3\n"));
    assert!(again.err.contains("job 3 already exists"), "{again:?}");
}

#[test]
fn a_job_is_given_back_failed_put_aside_and_kicked() {
    let coordinator = Coordinator::start(&["queue"]);
    coordinator.well(&["push", "q", "x", "--priority", "7", "--ttr", "600"]);
    let (id, token) = pop(&coordinator, "q");
    let released = coordinator.well(&["release", &id, &token, "--delay", "600", "--priority", "9"]);
    assert!(released.starts_with("delayed, "), "{released}");
    assert_eq!(coordinator.well(&["kick", "q"]), "kicked 1 job\n");
    assert_eq!(coordinator.well(&["kick", "q"]), "kicked 0 jobs\n");
    let (id, token) = pop(&coordinator, "q");
    let failed = coordinator.well(&["fail", &id, &token, "--retry-after", "600"]);
    assert!(failed.starts_with("retrying, "), "{failed}");
    assert_eq!(coordinator.well(&["flush", "q"]), "flushed 1 job\n");

    coordinator.well(&["push", "q", "y", "--once"]);
    let (id, token) = pop(&coordinator, "q");
    let ended = coordinator.well(&["fail", &id, &token]);
    assert_eq!(ended, "ended: it runs at most once\n");
    let id = coordinator.well(&["push", "q", "z"]);
    let (_, token) = pop(&coordinator, "q");
    assert_eq!(coordinator.well(&["bury", id.trim(), &token]), "buried\n");
    let peeked = coordinator.well(&["peek", id.trim()]);
    assert!(peeked.contains("q  buried, priority 1024, tries 1, "), "{peeked}");
    assert_eq!(coordinator.well(&["kick", "--id", id.trim()]), "kicked 1 job\n");
    assert_eq!(coordinator.well(&["delete", id.trim()]), "deleted\n");
    for (words, said) in [
        (&["manage", "q", "delete"][..], "flushed 0 jobs\n"),
        (&["manage", "q", "repush-abandoned"], "repushed 0 jobs\n"),
        (&["kick", "q"], "kicked 0 jobs\n"),
    ] {
        let done = coordinator.run(words);
        assert_eq!((done.status, done.out.as_str()), (0, said));
        assert!(done.err.contains("there is no queue q"), "{done:?}");
    }
    refused(&coordinator, &["pause", "q", "60"], "no such job or queue");
    let ready = coordinator.well(&["push", "q", "z"]);
    let kicked = coordinator.well(&["kick", "--id", ready.trim()]);
    assert_eq!(kicked, "already ready\n");
    let stats = coordinator.well(&["stats"]);
    let gone = "\n3 done since startup, including those of removed queues\n";
    assert!(stats.ends_with(gone), "{stats}");
}

#[test]
fn who_waits_gets_the_job_and_who_is_interrupted_waits_no_longer() {
    let coordinator = Coordinator::start(&["queue"]);
    let waiting = || {
        let stats = coordinator.json(&["stats", "q"]);
        stats["queues"][0]["waiting"].as_u64().unwrap_or(0)
    };
    let wait = |before: u64| {
        let mut command = coordinator.command(&["pop", "q", "--wait", "600"]);
        let waiter = command.stdout(Stdio::piped()).spawn().expect("the command starts");
        until("it is in line", || (waiting() > before).then_some(()));
        waiter
    };
    let mut interrupted = wait(0);
    let served = wait(1);
    kill_process(Pid::from_child(&interrupted), Signal::TERM).expect("a live process");
    interrupted.wait().expect("the process ends");
    until("it is withdrawn", || (waiting() == 1).then_some(()));
    coordinator.well(&["push", "q", "x"]);
    let served = done(served.wait_with_output().expect("the process ends"));
    assert!(served.status == 0 && served.out.ends_with("\nx\n"), "{served:?}");
    let told = coordinator.json(&["peek", "1"]);
    assert_eq!(told["claims"], 1, "the one that was interrupted claimed nothing");
}

/// Starts a coordinator with three queues in two tenants and five jobs. The first job is claimed, and the last is
/// delayed.
fn some_jobs() -> Coordinator {
    let coordinator = Coordinator::start(&["queue"]);
    for queue in ["mails", "mails", "t1:mails", "t1:purges"] {
        coordinator.well(&["push", queue, "x"]);
    }
    coordinator.well(&["push", "t1:purges", "x", "--delay", "600"]);
    pop(&coordinator, "mails");
    coordinator
}

/// Returns the words of each line of a table.
fn lines(table: &str) -> Vec<Vec<&str>> {
    let lines = table.lines();
    lines.map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn where_nothing_is_that_is_said() {
    let coordinator = Coordinator::start(&["queue"]);
    assert_eq!(coordinator.well(&["stats"]), "no queues\n");
    assert_eq!(coordinator.well(&["stats", "q"]), "no queues\n");
    assert_eq!(coordinator.well(&["show"]), "0\n");
    assert_eq!(coordinator.well(&["show", "--group"]), "");
    assert_eq!(coordinator.well(&["show", "--list"]), "no jobs\n");
    let next = coordinator.run(&["next"]);
    assert_eq!((next.status, next.out.as_str(), next.err.as_str()), (1, "", ""));
}

#[test]
fn jobs_are_counted_and_listed() {
    let coordinator = some_jobs();
    assert_eq!(coordinator.well(&["show"]), "3\n");
    assert_eq!(coordinator.well(&["show", "mails"]), "1\n");
    assert_eq!(coordinator.well(&["show", "--type", "mails"]), "2\n");
    assert_eq!(
        coordinator.well(&["show", "--group"]),
        "\
mails: 1 queued; 1 claimed; 0 delayed
t1:mails: 1 queued; 0 claimed; 0 delayed
t1:purges: 1 queued; 0 claimed; 1 delayed
"
    );
    let table = coordinator.well(&["show", "--list"]);
    let table = lines(&table);
    assert_eq!(table[0][..4], ["ID", "QUEUE", "STATUS", "PRIORITY"]);
    assert_eq!(table[1][..5], ["1", "mails", "claimed", "1024", "1"]);
    assert_eq!(table.len(), 6);
    let of = |words: &[&str]| {
        let shown = coordinator.json(&[&["show", "--list"], words].concat());
        let jobs = shown["jobs"].as_array().expect("a list");
        let ids = jobs.iter().map(|job| job["id"].clone()).collect::<Value>();
        (ids, shown["all"].clone())
    };
    assert_eq!(of(&["--status", "unclaimed"]), (json!([2, 3, 4]), json!(true)));
    assert_eq!(of(&["--type", "mails"]), (json!([1, 2, 3]), json!(true)));
    assert_eq!(of(&["--limit", "1"]), (json!([1]), json!(false)));
    let two = ["t1:purges", "mails", "--limit", "3"];
    assert_eq!(of(&two), (json!([1, 4, 5]), json!(false)));
    let more = coordinator.well(&["show", "--list", "--limit", "1"]);
    assert!(more.ends_with("there are more: --limit is 1\n"), "{more}");
}

#[test]
fn queues_are_listed_paused_and_named_by_chance() {
    let coordinator = some_jobs();
    let paused = coordinator.well(&["pause", "mails", "600"]);
    assert_eq!(paused, "paused for 10 min 0 s\n");
    let stats = coordinator.well(&["stats"]);
    let table = lines(&stats);
    assert_eq!(table[0][..3], ["QUEUE", "READY", "DELAYED"]);
    assert_eq!(table[1][..4], ["mails", "1", "0", "1"]);
    assert_eq!(table[3][..4], ["t1:purges", "1", "1", "0"]);
    let of_tenant = coordinator.json(&["stats", "--tenant", ""]);
    assert_eq!(of_tenant["queues"][0]["queue"], "mails");
    assert_eq!(of_tenant["queues"].as_array().map(Vec::len), Some(1));
    let none = coordinator.run(&["next", "--types", "none,other"]);
    assert_eq!(none.status, 1);
    let next = |types: &str| coordinator.well(&["next", "--types", types]);
    assert_eq!(next("mails"), "t1:mails\n");
    assert_eq!(coordinator.well(&["pause", "mails", "0"]), "resumed\n");
    coordinator.well(&["flush", "t1:mails"]);
    assert_eq!(next("mails,none"), "mails\n");
    let told = coordinator.json(&["next", "--types", "mails"]);
    assert_eq!(told["tenant"], "");
}

#[test]
fn what_holds_for_a_type_is_what_the_coordinator_began_with() {
    let coordinator = Coordinator::configured(
        &["queue"],
        "job-bytes = 2_000_000\n[queues.default]\nmax_tries = 3\n\
         [queues.mails]\norder = \"fifo\"\nclaim_ttl = 0\nread_only_reason = \"it moves\"\n",
    );
    // The configuration file now has other content, which is not loaded.
    let file = coordinator.files.path().join("sexton.toml");
    std::fs::write(file, "[queues.mails]\nmax_tries = 9\n").expect("a writable file");
    let all = coordinator.json(&["config"]);
    assert_eq!(all["limits"]["body_bytes_max"], 2_000_000);
    let types = all["types"].as_array().expect("a list");
    assert_eq!((types.len(), &types[0]["type"]), (2, &json!("default")));
    let mails = &types[1];
    let told = ["type", "from", "order", "max_tries", "read_only_reason"].map(|key| &mails[key]);
    let mine = ["mails", "mails", "fifo", "3", "it moves"].map(|word| match word.parse() {
        Ok(number) => Value::Number(number),
        Err(_) => json!(word),
    });
    assert_eq!(told, mine.each_ref());
    assert_eq!(coordinator.json(&["config", "t1:mails"])["types"], json!([mails]));
    let other = coordinator.json(&["config", "purges"])["types"][0].clone();
    assert_eq!((&other["type"], &other["from"]), (&json!("purges"), &json!("default")));
    let page = coordinator.well(&["config"]);
    let table = lines(&page);
    assert_eq!(table[0][..6], ["TYPE", "FROM", "CLASS", "ORDER", "CLAIM", "TTL"]);
    let of = |row: usize| &table[row][..7];
    assert_eq!(of(1), ["default", "default", "durable", "priority", "1m", "3", "yes"]);
    assert_eq!(of(2), ["mails", "mails", "durable", "fifo", "-", "3", "yes"]);
    assert!(table.contains(&vec!["body", "bytes", "2,000,000"]), "{page}");
    let page = coordinator.well(&["config", "purges"]);
    assert!(page.lines().nth(1).is_some_and(|row| row.starts_with("purges  default  ")), "{page}");
}

#[test]
fn any_queue_that_has_a_job_is_claimed_from() {
    let coordinator = Coordinator::start(&["queue"]);
    for queue in ["mails", "t1:mails", "t1:purges"] {
        coordinator.well(&["push", queue, "x"]);
    }
    let queue_of = |words: &[&str]| {
        let claims = coordinator.json(&[&["pop", "--any"], words].concat());
        claims["jobs"][0]["queue"].clone()
    };
    assert_eq!(queue_of(&["--except", "mails"]), "t1:purges");
    assert_eq!(queue_of(&["--tenant", ""]), "mails");
    assert_eq!(queue_of(&[]), "t1:mails", "of any tenant");
    refused(&coordinator, &["pop", "--any"], "no job to claim");
}

#[test]
fn queues_are_claimed_from_by_weight() {
    let coordinator = Coordinator::start(&["queue"]);
    for queue in ["a", "b", "b"] {
        coordinator.well(&["push", queue, "x"]);
    }
    let claims = coordinator.json(&["pop", "a", "b=4294967295"]);
    assert_eq!(claims["jobs"][0]["queue"], "b");
    let claims = coordinator.json(&["pop", "a", "b"]);
    assert_eq!(claims["jobs"][0]["queue"], "a");
    for wrong in ["a=", "a=0", "a=-1", "a=1=1", "=1"] {
        assert_eq!(coordinator.run(&["pop", wrong]).status, 2, "{wrong}");
    }
}

#[test]
fn a_throttled_queue_gives_no_more_than_its_type_says() {
    let settings = "[queues.rare]\nthrottle = 0.001\n[queues.often]\nthrottle = 4\n";
    let coordinator = Coordinator::configured(&["queue"], settings);
    for queue in ["rare", "rare", "t1:rare", "often", "often", "often"] {
        coordinator.well(&["push", queue, "x"]);
    }
    pop(&coordinator, "rare");
    refused(&coordinator, &["pop", "rare"], "no job to claim");
    let next = || coordinator.well(&["next", "--types", "rare"]);
    assert_eq!(next(), "t1:rare\n", "each queue has its own");
    pop(&coordinator, "t1:rare");
    assert_eq!(coordinator.run(&["next", "--types", "rare"]).status, 1);
    let stats = coordinator.well(&["stats", "rare"]);
    assert_eq!(lines(&stats)[1][..4], ["rare", "1", "0", "1"]);
    for _ in 0..3 {
        coordinator.well(&["pop", "often", "rare", "--wait", "600"]);
    }
    assert_eq!(
        coordinator.well(&["show", "--group"]),
        "often: 0 queued; 3 claimed; 0 delayed\n\
         rare: 1 queued; 1 claimed; 0 delayed\n\
         t1:rare: 0 queued; 1 claimed; 0 delayed\n"
    );
}

#[test]
fn usage_and_absence_of_a_coordinator_have_their_statuses() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let run = |words: &[&str]| {
        done(
            command(files.path(), &[&["queue"], words].concat())
                .output()
                .expect("the command runs"),
        )
    };
    for words in [
        &[][..],
        &["push"],
        &["push", "no name", "x"],
        &["push", "q", "x", "--delay", "soon"],
        &["pop"],
        &["pop", "q", "--wait", "3601"],
        &["pop", "q", "--count", "101"],
        &["ack", "1"],
        &["kick"],
        &["kick", "q", "--id", "1"],
        &["manage", "q", "tidy"],
        &["retry"],
        &["discard", "q", "--all"],
        &["config", "no name"],
        &["pause", "q"],
        &["show", "--group", "--list"],
        &["show", "--status", "ready"],
    ] {
        assert_eq!(run(words).status, 2, "{words:?}");
    }
    for (words, other) in [("push", "--batch"), ("pop", "--any"), ("kick", "--id")] {
        let lacking = run(&[words]);
        assert!(lacking.err.contains(other), "{words} may have {other}: {lacking:?}");
    }
    for words in [&["pop", "q"][..], &["stats"], &["next"], &["show"], &["config"]] {
        let away = run(words);
        assert_eq!(away.status, 3, "{away:?}");
        assert!(away.err.contains("sexton serve --data"), "how to start one: {away:?}");
    }
    let help = run(&["pop", "--help"]);
    assert!(help.status == 0 && help.out.contains("Examples:"), "{help:?}");
}

#[test]
fn a_queue_that_does_not_exist_is_noted_beside_its_number() {
    let coordinator = Coordinator::start(&["queue"]);
    coordinator.well(&["push", "mails", "x"]);
    for (words, out) in [
        (&["show", "mials"][..], "0\n"),
        (&["show", "mails", "mials"], "1\n"),
        (&["show", "--list", "mials"], "no jobs\n"),
        (&["show", "--group", "mials"], ""),
    ] {
        let done = coordinator.run(words);
        assert_eq!((done.status, done.out.as_str()), (0, out), "{done:?}");
        let note = "sexton: there is no queue mials; a queue exists while it has jobs";
        assert!(done.err.starts_with(note), "{done:?}");
    }
    assert_eq!(coordinator.well(&["show", "mails"]), "1\n");
}
