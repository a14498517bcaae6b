//! Processes from a shell: launched, listed, waited for, stopped, and found again after coordinator and keeper were
//! killed.
use crate::coordinator::done;
use crate::daemon::{PROGRAM, forget_environment, text};
use crate::patience::until;
use crate::secrets::files_with;
use crate::tree::Tree;
use crate::work_killed::under_umask;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

fn lives(pid: &Value) -> bool {
    let pid = pid.as_u64().expect("a number");
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_command_in_the_foreground_ends_as_it_would_in_a_shell() {
    let tree = Tree::start();
    let directory = tree.data.join("journal");
    let directory = text(&directory);
    for (script, status) in
        [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        let done = tree.run(&["run", "--", "sh", "-c", script]);
        assert_eq!((done.status, done.err.as_str()), (status, ""), "{script}");
    }
    for (program, status, words) in [
        ("no-such-program", 127, "No such file or directory (os error 2)"),
        ("/no/such/program", 127, "No such file or directory (os error 2)"),
        ("/etc/passwd", 126, "Permission denied (os error 13)"),
        (directory, 126, "Permission denied (os error 13)"),
    ] {
        let done = tree.run(&["run", "--", program]);
        let expected = format!("sexton: {program}: {words}\n");
        assert_eq!((done.status, done.err.as_str()), (status, expected.as_str()));
    }
    let missing = tree.run(&["run", "--dir", "/no/such/directory", "--", "true"]);
    assert_eq!(missing.status, 125, "{missing:?}");
    assert!(missing.err.contains("/no/such/directory"), "{missing:?}");
    let records = tree.all();
    assert_eq!(records.len(), 9);
    let failures = records.iter().filter(|it| it["failure"] != Value::Null);
    assert_eq!(failures.clone().count(), 5);
    for failed in failures {
        assert_eq!((&failed["status"], &failed["code"]), (&json!("exited"), &Value::Null));
        assert!(failed["failure"]["errno"].as_i64().expect("a number") > 0);
    }
}

#[test]
fn streams_environment_and_directory_are_those_of_the_shell() {
    let tree = Tree::start();
    let here = tempfile::tempdir().expect("a temporary directory");
    let script = "umask; pwd; printenv PLANTED; cat; echo beside >&2";
    let own = tree.command(&["run", "--", "sh", "-c", script]);
    let mut command = under_umask("027", &own);
    command.current_dir(here.path()).env("PLANTED", "as it was");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut input = child.stdin.take().expect("a pipe");
    let typed = vec![b'x'; 300_000];
    let writing = std::thread::Builder::new()
        .name("typing".to_owned())
        .spawn(move || input.write_all(&typed))
        .expect("a new thread");
    let done = done(child.wait_with_output().expect("the process ends"));
    writing.join().expect("no panic").expect("it was read");
    let mut lines = done.out.splitn(4, '\n');
    assert_eq!(lines.next(), Some("0027"));
    let directory = here.path().canonicalize().expect("the path exists");
    assert_eq!(lines.next(), directory.to_str());
    assert_eq!(lines.next(), Some("as it was"));
    assert_eq!(lines.next().map(str::len), Some(300_000));
    assert_eq!((done.status, done.err.as_str()), (0, "beside\n"));
}

#[test]
fn a_signal_to_the_command_reaches_what_it_runs() {
    let tree = Tree::start();
    let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = tree.command(&["run", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the command starts");
    let mut out = child.stdout.take().expect("a pipe");
    let mut ready = [0; 6];
    out.read_exact(&mut ready).expect("an answer");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a live process");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(rest, "caught\n");
    assert_eq!(child.wait().expect("the process ends").code(), Some(5));
}

#[test]
fn one_in_the_background_is_shown_read_waited_for_and_stopped() {
    let tree = Tree::start();
    assert!(tree.well(&["ps"]).starts_with("no processes; "));
    let id = tree.detach("echo out; echo err >&2; exec sleep 1000");
    let first = id.get(..13).expect("it is long");
    for (flags, words) in [(&["logs", first][..], "out\n"), (&["logs", first, "--stderr"], "err\n")]
    {
        until("it has written", || (tree.run(flags).out == words).then_some(()));
    }
    let listed = tree.well(&["ps", "--type", "binary", "--search", "sleep 1000"]);
    assert!(listed.lines().any(|line| line.starts_with(&id)), "{listed}");
    assert_eq!(tree.well(&["ps", "--count"]), "1\n");
    let record = tree.record(first);
    assert_eq!(record["status"], "running");
    assert!(lives(&record["pid"]));
    let timed = tree.run(&["wait", first, "--timeout", "1s"]);
    assert_eq!(timed.status, 124, "{timed:?}");
    assert_eq!(tree.run(&["kill", first, "--wait"]).status, 0);
    let record = tree.record(&id);
    assert_eq!((&record["status"], &record["code"]), (&json!("exited"), &json!(143)));
    assert_eq!((&record["signal"], &record["stopped_by"]), (&json!(15), &json!("request")));
    assert_eq!(
        (&record["stdout"]["head"], &record["stderr"]["head"]),
        (&json!("out\n"), &json!("err\n"))
    );
    assert!(!lives(&record["pid"]));
    assert_eq!(tree.run(&["wait", &id]).status, 143);
    let again = tree.run(&["kill", &id]);
    assert_eq!(again.status, 1);
    assert!(again.err.contains("has ended"), "{again:?}");
    assert_eq!(tree.well(&["ps", "prune"]), "forgot 1 record\n");
    assert_eq!(tree.run(&["ps", &id]).status, 1);
}

#[test]
fn what_a_process_wrote_goes_with_its_record() {
    let mut tree = Tree::start();
    let run = |tree: &Tree| tree.well(&["run", "--detach", "--", "true"]).trim_end().to_owned();
    let gone = run(&tree);
    tree.well(&["wait", &gone]);
    tree.well(&["ps", "prune"]);
    let stays = run(&tree);
    let dir = |id: &str| tree.data.join("run").join(id);
    let (gone, stays) = (dir(&gone), dir(&stays));
    let stranger = tree.data.join("run/notes");
    std::fs::create_dir(&stranger).expect("the disk has space");
    assert!(gone.is_dir() && stays.is_dir());
    tree.daemon.take().expect("a server").kill();
    tree.serve();
    until("it is removed", || (!gone.exists()).then_some(()));
    assert!(stays.is_dir() && stranger.is_dir(), "nothing else is");
}

#[test]
fn a_stop_of_a_tree_ends_what_escaped_and_what_ignores_it() {
    let tree = Tree::start();
    let mark = format!("{}", 1_000_000 + std::process::id());
    let script = format!(
        "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & (setsid sleep {mark} &); trap '' TERM; while :; do sleep 0.1; done"
    );
    let id = tree.detach(&script);
    let escaped = || {
        let processes = std::fs::read_dir("/proc").expect("the file system is mounted").flatten();
        let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        let sleeping = lines.filter(|line| line.starts_with(format!("sleep\0{mark}\0").as_bytes()));
        sleeping.count()
    };
    until("it has escaped", || (escaped() == 1).then_some(()));
    let stopped = tree.run(&["kill", "--tree", "--grace", "200ms", "--wait", &id]);
    assert_eq!(stopped.status, 0, "{stopped:?}");
    let record = tree.record(&id);
    assert_eq!((&record["status"], &record["signal"]), (&json!("exited"), &json!(9)));
    assert_eq!((escaped(), &record["alive"]), (0, &json!(0)));
}

#[test]
fn what_takes_too_long_is_stopped_with_its_tree_and_says_so() {
    let tree = Tree::start();
    let done = tree.run(&["run", "--timeout", "200ms", "--grace", "5s", "--", "sleep", "1000"]);
    assert_eq!((done.status, done.err.as_str()), (124, "sexton: sleep: timed out\n"));
    assert_eq!(tree.all()[0]["stopped_by"], "timeout");
}

#[test]
fn exits_are_true_whoever_was_killed_in_between() {
    let mut tree = Tree::start();
    let go = tree.data.join("go");
    let waits = |code: u8| {
        let go = text(&go);
        format!("while ! [ -e {go} ]; do sleep 0.02; done; exit {code}")
    };
    let of_coordinator = tree.detach(&waits(3));
    tree.again(|| std::fs::write(&go, "").expect("a writable file"));
    assert_eq!(tree.run(&["wait", &of_coordinator]).status, 3);

    std::fs::remove_file(&go).expect("the file exists");
    let of_keeper = tree.detach(&waits(4));
    tree.kill_keeper();
    let next = tree.run(&["run", "--", "sh", "-c", "exit 6"]);
    assert_eq!(next.status, 6, "another keeper runs: {next:?}");
    std::fs::write(&go, "").expect("a writable file");
    let record = || Some(tree.record(&of_keeper)).filter(|it| it["status"] == "exited");
    let record = until("it has ended", record);
    // No process could wait for it when it ended. Only the newest kernels report how it ended anyway.
    if record["lost"].is_null() {
        assert_eq!(record["code"], 4);
    } else {
        assert_eq!((&record["lost"], &record["code"]), (&json!("keeper-gone"), &Value::Null));
    }

    std::fs::remove_file(&go).expect("the file exists");
    let of_both = tree.detach(&waits(5));
    tree.kill_keeper();
    tree.again(|| std::fs::write(&go, "").expect("a writable file"));
    let record = || Some(tree.record(&of_both)).filter(|it| it["status"] == "exited");
    let record = until("it has ended", record);
    assert!(record["code"].is_null() || record["code"] == 5, "{record}");
    assert_ne!(record["code"].is_null(), record["lost"].is_null(), "{record}");
}

#[test]
fn a_script_registers_itself_and_what_it_runs_stands_below() {
    let tree = Tree::start();
    let script = format!(
        "export SEXTON_PROCESS_ID=$({0} register --type worker --label queue=mails)
         {0} run -- true
         sh -c '{0} run -- true; :'
         {0} register --finish 3 --error 'no such host' > /dev/null
         echo $SEXTON_PROCESS_ID",
        env!("CARGO_BIN_EXE_sexton")
    );
    let mut shell = Command::new("sh");
    forget_environment(&mut shell);
    shell.env("SEXTON_DATA", &tree.data);
    shell.args(["-c", &script]).stdin(Stdio::null());
    let done = done(shell.output().expect("the command runs"));
    let id = done.out.trim_end();
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
    let record = tree.record(id);
    assert_eq!((&record["type"], &record["launched"]), (&json!("worker"), &json!(false)));
    assert_eq!((&record["code"], &record["error"]), (&json!(3), &json!("no such host")));
    assert_eq!(record["labels"], json!({"queue": "mails"}));
    let below: Vec<Value> = tree.all().into_iter().filter(|it| it["parent"] == id).collect();
    assert_eq!(below.len(), 2);
    assert!(below.iter().all(|it| it["root"] == id && it["depth"] == 1 && it["code"] == 0));
    let drawn = tree.well(&["ps", "--all", "--tree"]);
    let lines: Vec<&str> = drawn.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with(id), "{drawn}");
    assert!(lines[1].contains("├── true") && lines[2].contains("└── true"), "{drawn}");
}

#[test]
fn a_secret_is_in_no_file_record_or_log() {
    const SECRET: &str = "hunter2-planted-and-looked-for";
    let mut tree = Tree::start();
    let mut command = tree.command(&["run", "--", "sh", "-c", "test -n \"$API_TOKEN\""]);
    assert_eq!(
        done(command.env("API_TOKEN", SECRET).output().expect("the command runs")).status,
        0
    );
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), format!("API_TOKEN={SECRET}\n")).expect("a writable file");
    let path = text(file.path());
    // The script compares with the file, since an argument would be in the record.
    let compares = format!("test \"$(printenv API_TOKEN)\" = \"$(cut -d= -f2 {path})\"");
    let asked = tree.run(&["run", "--env-file", path, "--detach", "--", "sh", "-c", &compares]);
    assert_eq!(asked.status, 0, "{asked:?}");
    assert_eq!(tree.run(&["wait", asked.out.trim_end()]).status, 0);
    for words in [
        vec!["run", "--", "tool", "--password=hunter2-planted-and-looked-for"],
        vec!["run", "--env", "API_TOKEN=hunter2-planted-and-looked-for", "--", "true"],
    ] {
        let refused = tree.run(&words);
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(!refused.err.contains(SECRET), "{refused:?}");
    }
    let shown = [
        tree.well(&["ps", "--all", "--json"]),
        tree.well(&["ps", "--all"]),
        tree.well(&["checkpoint"]),
    ];
    assert!(shown.iter().all(|it| !it.contains(SECRET)));
    let log = tree.daemon.as_ref().expect("a server").log();
    assert!(!log.contains(SECRET));
    tree.again(|| {});
    assert_eq!(files_with(SECRET, &tree.data), Vec::<String>::new());
}

#[test]
fn wrong_words_are_refused_and_change_nothing() {
    let tree = Tree::start();
    for (words, status, says) in [
        (vec!["run"], 2, "required"),
        (vec!["run", "--timeout", "soon", "--", "true"], 2, "soon"),
        (vec!["run", "--env", "novalue", "--", "true"], 2, "NAME=VALUE"),
        (vec!["run", "--parent", "nonsense", "--", "true"], 2, "parent"),
        (vec!["run", "--records", "--", "true"], 2, "--detach"),
        (vec!["run", "--output-max", "1M", "--", "true"], 2, "--detach"),
        (vec!["run", "--detach", "--output-keep", "2", "--", "true"], 2, "--output-max"),
        (vec!["ps", "01a2"], 1, "no process"),
        (vec!["ps", "00000000"], 1, "no process"),
        (vec!["ps", "--status", "dead"], 2, "status"),
        (vec!["kill", "00000000"], 1, "no process"),
        (vec!["kill", "--signal", "NOSUCH", "00000000"], 2, "NOSUCH"),
        (vec!["wait", "00000000"], 1, "no process"),
        (vec!["logs", "00000000"], 1, "no process"),
    ] {
        let done = tree.run(&words);
        assert_eq!(done.status, status, "{words:?}: {done:?}");
        assert!(done.err.contains(says), "{words:?}: {done:?}");
    }
    assert_eq!(tree.all(), Vec::<Value>::new());
}

#[test]
fn top_shows_the_tree_and_what_it_uses() {
    let tree = Tree::start();
    let script = format!("'{PROGRAM}' run --type child -- sleep 1000; true");
    let words = ["run", "--detach", "--type", "parent", "--", "sh", "-c", &script];
    let parent = tree.well(&words);
    let child = until("the child is shown under its parent, with what it uses", || {
        let mut top = tree.command(&["top", "--once", "--every", "0.1"]);
        top.env("LANG", "C").env_remove("LC_ALL").env_remove("LC_CTYPE");
        let page = done(top.output().expect("the command runs")).out;
        let lines = page.lines();
        let mut lines = lines.skip_while(|line| !line.starts_with("parent: sh"));
        let (parent, child) = (lines.next()?, lines.next()?);
        let is_below = child.starts_with("`-child: sleep 1000");
        let is_read = |line: &str| line.contains(" KiB") || line.contains(" MiB");
        (is_below && is_read(parent) && is_read(child)).then(|| child.to_owned())
    });
    assert!(child.contains("running"), "{child}");
    // The usage is only included on request, and only for running processes.
    let asked = |usage: &str| {
        let path = format!("/v1/processes?usage={usage}");
        let said = tree.get(&path);
        let all = said["processes"].as_array().expect("a list").clone();
        let of = |it: &Value| it["usage"]["memory_bytes"].as_u64().is_some_and(|it| it > 0);
        all.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(asked("false"), [false, false]);
    assert_eq!(asked("true"), [true, true]);
    tree.well(&["kill", "--now", "--wait", parent.trim_end()]);
    assert_eq!(asked("true"), [false, true], "one has ended");
}

#[test]
fn what_is_said_to_live_is_looked_for_again_when_somebody_asks() {
    let tree = Tree::start();
    let reconcile = || -> Value {
        let said = tree.well(&["ps", "reconcile", "--json"]);
        serde_json::from_str(&said).expect("valid JSON")
    };
    assert_eq!(reconcile(), json!({"asked": 0, "changed": 0, "processes": [], "open": 0}));
    let lives = tree.detach("sleep 1000");
    tree.detach("exit 3");
    until("one of two has ended", || (reconcile()["asked"] == 1).then_some(()));
    let pid = tree.record(&lives)["pid"].as_i64().expect("a number");
    let pid = Pid::from_raw(i32::try_from(pid).expect("a small number")).expect("a PID");
    kill_process(pid, Signal::KILL).expect("a live process");
    // Either `reconcile` or the kernel's notification may find the end first. After that the process is no longer listed
    // as running.
    until("the other has ended, too", || {
        let said = reconcile();
        assert_eq!(said["open"], 0, "{said}");
        (tree.record(&lives)["signal"] == 9).then_some(())
    });
    let printed = tree.well(&["ps", "reconcile"]);
    assert_eq!(printed, "looked for 0 processes: 0 changed\n");
}

#[test]
fn a_tree_marks_the_record_of_whoever_asks() {
    let tree = Tree::start();
    let id = tree.detach("sexton=$0; exec sleep 1000");
    let other = tree.detach("exec sleep 1000");
    let mut ps = tree.command(&["ps", "--tree"]);
    ps.env("SEXTON_PROCESS_ID", &id);
    let page = done(ps.output().expect("the command runs")).out;
    let line = |id: &str| {
        let line = page.lines().find(|line| line.starts_with(id));
        line.unwrap_or_else(|| panic!("{id} is missing in:\n{page}"))
    };
    assert!(line(&id).ends_with(" [CURRENT]"), "{page}");
    assert!(!line(&other).contains("CURRENT"), "{page}");
    let page = tree.well(&["ps", "--tree"]);
    assert!(!page.contains("CURRENT"), "{page}");
}

#[test]
fn processes_are_chosen_by_machine() {
    let tree = Tree::start();
    let id = tree.detach("exec sleep 1000");
    let count = |machine: &str| tree.run(&["ps", "--count", "--machine", machine]);
    assert_eq!(count("this").out, "1\n");
    let record = tree.record(&id);
    let machine = record["machine"].as_str().expect("a live process");
    assert_eq!((machine.len(), record["boot"].as_str().map(str::len)), (32, Some(32)));
    assert_eq!(count(machine).out, "1\n");
    assert_eq!(count("77").out, "0\n");
    let refused = count("elsewhere");
    assert!(refused.status != 0 && refused.err.contains("machine"), "{refused:?}");
}

/// People try a PID, or the few digits that other tools accept.
#[test]
fn what_does_not_exist_is_named_and_an_id_is_explained() {
    let tree = Tree::start();
    let ids = "not a PID: `sexton ps` shows both";
    for (words, named, help) in [
        (&["kill", "4711"][..], "4711: no process", ids),
        (&["logs", "01a2"], "01a2: no process", ids),
        (&["wait", "01a2"], "01a2: no process", ids),
        (&["kill", "01a2139b"], "01a2139b: no process", "`sexton ps --all`"),
        (&["service", "stop", "web"], "web: no service", "`sexton service`"),
        (&["service", "logs", "web"], "web: no service", "`sexton service`"),
        (&["queue", "peek", "99"], "99: there is no such job", "--list"),
        (&["queue", "ack", "99", "1"], "99: there is no such job", "--list"),
        (
            &["lock", "release", "k", "--token", "1"],
            "k: there is no such lock entry",
            "`sexton lock list`",
        ),
        (&["lock", "owner", "k"], "k: nobody holds", "`sexton lock list`"),
        (&["lease", "show", "sync"], "sync: there is no such lease", "list"),
        (&["task", "show", "99"], "99: there is no such task", "list"),
    ] {
        let done = tree.run(words);
        let said = format!("sexton: not done: {named}");
        assert_eq!(done.status, 1, "{words:?}: {done:?}");
        assert!(done.err.starts_with(&said), "{said}: {done:?}");
        assert!(done.err.contains(help), "{help}: {done:?}");
    }
}
