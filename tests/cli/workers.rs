//! Workers that always run: `[workers.NAME]` in the configuration, and `sexton worker`.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::coordinator::{CommandOutput, done};
use crate::daemon::{Daemon, sexton, text};
use crate::patience::until;
use crate::tree::Tree;
use crate::work::{job, push, until_lines};
use crate::work_result::now;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

/// Starts a coordinator with this text in its configuration file.
fn configured(config: &str) -> Tree {
    let mut tree = Tree::start();
    tree.daemon.take().expect("a server").kill();
    serve(&mut tree, config);
    tree
}

fn serve(tree: &mut Tree, config: &str) {
    let file = tree.data.with_extension("toml");
    std::fs::write(&file, config).expect("a writable file");
    let words = ["--data", text(&tree.data), "--config", text(&file)];
    tree.daemon = Some(Daemon::serve(&words));
}

fn workers(tree: &Tree) -> Value {
    let printed = tree.well(&["worker", "list", "--json"]);
    serde_json::from_str(&printed).expect("valid JSON")
}

fn until_done(tree: &Tree, id: &str) {
    until("it is done", || (job(tree, id)["reason"] == "absent").then_some(()));
}

/// Returns the output of `sexton config` for a configuration with this text.
fn config(text_of: &str) -> CommandOutput {
    let files = tempfile::tempdir().expect("a temporary directory");
    let file = files.path().join("app.toml");
    std::fs::write(&file, text_of).expect("a writable file");
    let mut command = sexton();
    command.args(["config", "--config", text(&file)]);
    done(command.output().expect("the command runs"))
}

#[test]
fn a_worker_works_as_long_as_the_configuration_has_it() {
    let mut tree = configured(
        "[workers.mails]\ntypes = [\"mails\"]\nprocs = 2\ntimeout = \"1m\"\ncommand = [\"sh\", \"-c\", \"test $(cat) = good\"]\n",
    );
    let good = push(&tree, "mails", "good");
    until_done(&tree, &good);
    let bad = push(&tree, "mails", "bad");
    until("it has failed", || (job(&tree, &bad)["phase"] == "retrying").then_some(()));
    tree.well(&["queue", "delete", &bad]);
    until("its counts are shown", || {
        let said = workers(&tree)["workers"][0]["instances"][0]["said"].clone();
        (said == "1 done, 0 failed, 1 failed try, 0 running").then_some(())
    });
    let listed = tree.well(&["worker", "list"]);
    assert!(listed.contains("mails   running"), "{listed}");
    let work =
        "mails --procs=2 --timeout=60000ms --finish-within=60000ms -- sh -c test $(cat) = good";
    assert!(listed.contains(work), "{listed}");
    let log = tree.data.join("services/worker.mails/stderr.log");
    let logged = std::fs::read_to_string(log).expect("it logs");
    assert!(logged.contains("result=failed"), "{logged}");

    // A worker that was killed is launched again.
    let pid = workers(&tree)["workers"][0]["instances"][0]["pid"].as_i64();
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    kill_process(pid.expect("it is running"), Signal::KILL).expect("a live process");
    let again = push(&tree, "mails", "good");
    until_done(&tree, &again);
    // After a crash of the coordinator, the worker continues or is launched again.
    tree.daemon.take().expect("a server").kill();
    serve(
        &mut tree,
        "[workers.mails]\ntypes = [\"mails\"]\nprocs = 2\ntimeout = \"1m\"\ncommand = [\"sh\", \"-c\", \"test $(cat) = good\"]\n",
    );
    let again = push(&tree, "mails", "good");
    until_done(&tree, &again);
}

#[test]
fn a_worker_that_is_paused_comes_to_its_end_and_begins_nothing() {
    let mut tree = configured("");
    let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
    let script = format!(
        "echo begin >> {0}; while [ ! -e {1} ]; do sleep 0.02; done; echo end >> {0}",
        text(&log),
        text(&gate)
    );
    let table = format!(
        "[workers.mails]\ntypes = [\"mails\"]\ncommand = {}\n",
        json!(["sh", "-c", script])
    );
    tree.daemon.take().expect("a server").kill();
    serve(&mut tree, &table);
    let id = push(&tree, "mails", "x");
    until_lines(&log, 1);
    let later = push(&tree, "mails", "y");
    tree.well(&["worker", "pause", "mails", "--wait", "0"]);
    until("it is pausing", || tree.well(&["worker", "list"]).contains("pausing").then_some(()));
    std::fs::write(&gate, "").expect("a writable file");
    tree.well(&["worker", "pause", "mails"]);
    assert_eq!(job(&tree, &id)["reason"], "absent", "it is completed");
    assert_eq!(job(&tree, &later)["phase"], "ready", "it was not begun");
    assert!(tree.well(&["worker"]).contains("paused"));
    // A paused worker stays paused after a restart of the coordinator.
    tree.daemon.take().expect("a server").kill();
    serve(&mut tree, &table);
    assert!(tree.well(&["worker"]).contains("paused"));
    assert_eq!(job(&tree, &later)["phase"], "ready");
    tree.well(&["worker", "resume", "mails"]);
    until_done(&tree, &later);
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    assert_eq!(noted, "begin\nend\nbegin\nend\n");
    let absent = tree.run(&["worker", "pause", "purges"]);
    assert_eq!(absent.status, 1, "{absent:?}");
}

/// The keeper launches a worker's commands, so a stop of the worker's own processes does not end them, although their
/// records are below that of the worker.
#[test]
fn a_worker_that_is_stopped_kills_what_outlives_its_grace() {
    for lines in ["", "lines = true\n"] {
        let mut tree = configured("");
        let log = tree.data.join("log");
        let script = format!(
            "trap '' TERM; test -z \"$SEXTON_JOB_LINES\" || read -r line <&3; echo $$ >> {}; while :; do sleep 0.1; done",
            text(&log)
        );
        let table = format!(
            "[workers.mails]\ntypes = [\"mails\"]\ngrace = \"300ms\"\n{lines}command = {}\n",
            json!(["sh", "-c", script])
        );
        tree.daemon.take().expect("a server").kill();
        serve(&mut tree, &table);
        let id = push(&tree, "mails", "x");
        until_lines(&log, 1);
        tree.well(&["worker", "pause", "mails"]);
        let pid = std::fs::read_to_string(&log).expect("the command wrote the file");
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
        let lives = test_kill_process(pid.expect("a PID"));
        assert_eq!(lives, Err(Errno::SRCH), "{lines}");
        let given_back = job(&tree, &id);
        assert_eq!(given_back["attempts"], 0, "no try: {given_back}");
        let error = "it was stopped before it was done";
        assert_eq!(given_back["error"], error, "{given_back}");
    }
}

/// Tenants take turns, and the throttle of the worker applies to all tenants together.
#[test]
fn a_worker_takes_jobs_of_every_tenant_at_its_own_pace() {
    let tree = configured(
        "[workers.mails]\ntypes = [\"mails\"]\nany_ready = true\nprocs = 4\nthrottle = 2\ncommand = [\"true\"]\n",
    );
    let listed = tree.well(&["worker", "list"]);
    let work = "mails --any-ready --procs=4 --throttle=2.000";
    let words: Vec<&str> = work.split(' ').collect();
    assert!(words.iter().all(|it| listed.contains(it)), "{listed}");
    let before = now();
    let ids = ["ann:mails", "ben:mails", "mails"].map(|queue| push(&tree, queue, "x"));
    for id in &ids {
        until_done(&tree, id);
    }
    assert!(now() >= before + 1.0, "the third begins a second after the first");
}

#[test]
fn a_drain_lets_the_jobs_of_a_worker_end_and_begins_none() {
    let mut tree = configured("");
    let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
    let script = format!(
        "echo begin >> {0}; while [ ! -e {1} ]; do sleep 0.02; done; echo end >> {0}",
        text(&log),
        text(&gate)
    );
    let table = format!(
        "[workers.mails]\ntypes = [\"mails\"]\ncommand = {}\n",
        json!(["sh", "-c", script])
    );
    tree.daemon.take().expect("a server").kill();
    serve(&mut tree, &table);
    let first = push(&tree, "mails", "x");
    until_lines(&log, 1);
    let later = push(&tree, "mails", "y");
    tree.well(&["drain"]);
    std::fs::write(&gate, "").expect("a writable file");
    let (status, drained) = tree.daemon.take().expect("a server").end();
    assert!(status.success(), "{drained}");
    serve(&mut tree, "");
    assert_eq!(job(&tree, &first)["reason"], "absent", "it is completed");
    assert_eq!(job(&tree, &later)["phase"], "ready", "it was not begun");
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    assert_eq!(noted, "begin\nend\n");
}

#[test]
fn what_is_wrong_with_a_table_is_told() {
    for (table, words) in [
        (
            "types = [\"a\"]\ncommand = [\"x\"]\nany_ready = true\ntenant = \"t\"",
            "any_ready: cannot be combined with tenant",
        ),
        (
            "types = [\"a\"]\ncommand = [\"x\"]\nthrottle = \"2/s\"",
            "throttle: expected a rate in items per second",
        ),
        ("command = [\"x\"]", "types: is missing"),
        ("types = [\"mails\"]", "command: is missing"),
        ("types = []\ncommand = [\"x\"]", "types: expected at least one job type"),
        ("types = [\"a b\"]\ncommand = [\"x\"]", "\"a b\" is not a valid name for a job type"),
        ("types = [\"a\"]\ncommand = [\"x\"]\nprocs = 0", "procs: expected 1 to 1000"),
        ("types = [\"a\"]\ncommand = [\"x\"]\nmemory = \"lots\"", "memory: \"lots\" is not a size"),
        ("types = [\"a\"]\ncommand = [\"x\"]\ncolour = 1", "unknown key"),
        ("types = [\"a\"]\ncommand = [\"x\"]\nafter = [\"db\"]", "there is no service db"),
        ("types = [\"a\"]\ncommand = \"x\"", "expected a list of strings"),
    ] {
        let done = config(&format!("[workers.mails]\n{table}\n"));
        let said = format!("{}{}", done.out, done.err);
        assert!(done.status != 0 && said.contains(words), "{table}: {done:?}");
        assert!(said.contains("workers.mails"), "{done:?}");
    }
    let twice = "[services.\"worker.a\"]\ncommand = [\"x\"]\n[workers.a]\ntypes = [\"a\"]\ncommand = [\"x\"]\n";
    let done = config(twice);
    assert!(done.err.contains("another service has this name"), "{done:?}");
}

/// It is launched again and again, and its status is usually `running`.
#[test]
fn a_worker_whose_command_does_not_exist_is_shown_to_have_failed() {
    for lines in ["", "lines = true\n"] {
        let tree = configured(&format!(
            "[workers.mails]\ntypes = [\"mails\"]\n{lines}command = [\"/nowhere/send\"]\n"
        ));
        let listed = tree.well(&["worker", "list"]);
        assert!(!listed.contains("exit"), "{listed}");
        let id = push(&tree, "mails", "x");
        let listed = until("it has ended", || {
            let listed = tree.well(&["worker", "list"]);
            listed.contains("exit 127").then_some(listed)
        });
        assert!(listed.contains("exit 127, command not found, "), "{listed}");
        let log = tree.data.join("services/worker.mails/stderr.log");
        let logged = std::fs::read_to_string(log).expect("it logs");
        assert!(
            logged.contains(&format!("job={id} queue=mails attempt=1 result=deferred")),
            "{logged}"
        );
        let given_back = format!("; job {id} of mails is given back\n");
        assert!(logged.contains("/nowhere/send: "), "{logged}");
        assert!(logged.contains(&given_back), "{logged}");
        let page = tree.page("/");
        assert!(page.contains("Command not run"), "{page}");
    }
}

/// Problems of different kinds are reported together, and none that only follows from another.
#[test]
fn problems_of_services_and_workers_are_reported_at_once() {
    let told = |lines: &str| {
        let done = config(lines);
        assert_eq!(done.status, 2, "{done:?}");
        let lines = done.err.lines().map(|line| {
            let (_, line) = line.split_once("app.toml:").unwrap_or(("", line));
            line.to_owned()
        });
        lines.collect::<Vec<_>>()
    };
    let several = "[services.web]\ncommand = [\"true\"]\ncolour = 1\nafter = [\"db\"]\n\
         [services.few]\ncommand = [\"true\"]\ninstances = 0\n\
         [services.ok]\ncommand = [\"true\"]\nafter = [\"web\", \"nobody\"]\n\
         [workers.bad]\ntypes = [\"a\"]\n\
         [workers.good]\ntypes = [\"a\"]\ncommand = [\"true\"]\nafter = [\"none\"]\n\
         [queues.mails]\ntries = 3\n";
    let found = told(several);
    let expected = [
        "1: services.web: after: there is no service db",
        "3: services.web: colour: unknown key",
        "7: services.few: instances: expected 1 to 100",
        "8: services.ok: after: there is no service nobody",
        "12: workers.bad: command: is missing",
        "13: workers.good: after: there is no service none",
        "18: queues.mails: tries: unknown key; did you mean max_tries?",
    ];
    for line in expected {
        let is_there = |found: &&String| found.starts_with(line);
        assert_eq!(found.iter().filter(is_there).count(), 1, "{line}: {found:#?}");
    }
    assert_eq!(found.len(), 1 + expected.len(), "{found:#?}");
    let unclosed = "[services.db]\ncommand = [\"true\"]\nafter = [\"web\"]\n\
         [services.web\ncommand = [\"true\"]\n";
    let found = told(unclosed);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("4: "), "{found:#?}");
}
