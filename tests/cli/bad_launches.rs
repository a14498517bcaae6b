//! Launches that fail: each has a record with the step that failed, the kernel's error and a text, and the coordinator
//! continues to run.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::text;
use crate::left_out::left_out;
use crate::may_look::may_look;
use crate::patience::until;
use crate::services::Application;
use crate::tree::Tree;
use rustix::process::{Pid, Resource, Rlimit, geteuid, prlimit};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// Launches a command in the background, which must fail. Returns its exit status, its message, and the recorded failure.
fn fails(tree: &Tree, words: &[&str]) -> (i32, String, Value) {
    let done = tree.run(&[&["run", "--detach"], words].concat());
    let printed = tree.well(&["ps", "--all", "--json"]);
    let mut said: Value = serde_json::from_str(&printed).expect("valid JSON");
    let newest = said["processes"].as_array_mut().and_then(Vec::pop);
    let record = newest.expect("it has a record");
    assert_eq!((&record["status"], &record["code"]), (&json!("exited"), &Value::Null), "{record}");
    (done.status, done.err, record["failure"].clone())
}

fn file(path: &Path, content: &str, mode: u32) {
    std::fs::write(path, content).expect("a writable file");
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("our own file");
}

/// A command, its exit status, and from its record the step that failed, the kernel's error, and part of the text.
type Case<'a> = (&'a [&'a str], i32, &'a str, i32, &'a str);

fn check(tree: &Tree, (command, status, step, errno, words): Case<'_>) {
    let (found, err, failure) = fails(tree, command);
    assert_eq!(found, status, "{command:?}: {err}");
    assert_eq!((&failure["step"], &failure["errno"]), (&json!(step), &json!(errno)), "{err}");
    assert!(err.contains(words), "{command:?}: {err}");
    let told = failure["words"].as_str().expect("the refusal has a detail");
    assert!(told.contains(words), "{failure}");
}

#[test]
fn what_cannot_be_executed_says_why() {
    let tree = Tree::start();
    let files = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| files.path().join(name);
    file(&at("plain"), "#!/bin/sh\n", 0o644);
    file(&at("interpreted"), "#!/no/such/interpreter -x\n", 0o755);
    file(&at("garbage"), "neither a program nor a script\n", 0o755);
    file(&at("windows"), "#!/bin/sh\r\ntrue\r\n", 0o755);
    let [plain, interpreted, garbage] = ["plain", "interpreted", "garbage"].map(at);
    let windows = at("windows");
    let lacks = "the interpreter /no/such/interpreter -x does not exist";
    let absent = "No such file or directory";
    let lines = "its lines end with CR LF";
    let no_line = "it is neither a program for this machine nor a script whose first line names its interpreter";
    let cases: [Case<'_>; 7] = [
        (&["--", "/no/such/program"], 127, "exec", 2, absent),
        (&["--", "no-such-program"], 127, "exec", 2, absent),
        (&["--", text(&plain)], 126, "exec", 13, "Permission denied"),
        (&["--", text(&interpreted)], 127, "exec", 2, lacks),
        (&["--", text(&garbage)], 126, "exec", 8, "Exec format error"),
        (&["--", text(&garbage)], 126, "exec", 8, no_line),
        (&["--", text(&windows)], 127, "exec", 2, lines),
    ];
    for case in cases {
        check(&tree, case);
    }
    let long = "y".repeat(100_000);
    let refused = tree.run(&["run", "--detach", "--", "true", &long, &long, &long]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("the limit is"), "{}", refused.err);
    assert_eq!(tree.run(&["run", "--", "true"]).status, 0);
}

#[test]
fn directories_that_cannot_be_say_why() {
    let tree = Tree::start();
    let plain = tree.data.join("plain");
    file(&plain, "", 0o644);
    let missing = "/no/such/directory: No such file or directory";
    let of_files = ["--run-dir", "/proc/no/such", "--", "true"];
    let cases: [Case<'_>; 3] = [
        (&["--dir", "/no/such/directory", "--", "true"], 125, "directory", 2, missing),
        (&["--dir", text(&plain), "--", "true"], 125, "directory", 20, "Not a directory"),
        (&of_files, 125, "files", 2, "/proc/no/such"),
    ];
    for case in cases {
        check(&tree, case);
    }
}

#[test]
fn more_arguments_than_the_kernel_takes_are_its_error() {
    // The number of arguments that the kernel accepts depends on the stack limit.
    let long = "x".repeat(100_000);
    let application = Application::start(&format!(
        "[services.long]\ncommand = [\"true\", \"{long}\", \"{long}\"]\nlimits = {{ stack = 262144 }}\nrestart = \"never\"\n"
    ));
    application.until_status("long", "failed");
    let view = application.view("long");
    let failure = &view["instances"][0]["last"]["failure"];
    assert_eq!((&failure["step"], &failure["errno"]), (&json!("exec"), &json!(7)));
    let words = failure["words"].as_str().expect("the refusal has a detail");
    assert!(words.contains("Argument list too long"), "{words}");
}

/// Returns the limit on descriptors that leaves this many of them free.
fn limit(of: Pid, free: usize) -> u64 {
    let path = format!("/proc/{}/fd", of.as_raw_nonzero());
    let open = std::fs::read_dir(path).expect("our own directory").flatten();
    let open = open.filter_map(|it| it.file_name().to_str()?.parse::<u64>().ok());
    let open: BTreeSet<u64> = open.collect();
    let mut numbers = (0..).filter(|number| !open.contains(number));
    numbers.nth(free).expect("there are more")
}

/// Limits a process to this many more descriptors, until this is dropped.
struct DescriptorLimit(Pid, Rlimit);

impl DescriptorLimit {
    fn of(pid: Pid, more: usize) -> Self {
        let few = Rlimit {
            current: Some(limit(pid, more)),
            maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
        };
        Self(pid, prlimit(Some(pid), Resource::Nofile, few).expect("this user may set it"))
    }
}

impl Drop for DescriptorLimit {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ended = prlimit(Some(self.0), Resource::Nofile, self.1);
    }
}

#[test]
fn without_descriptors_a_launch_fails_and_the_next_does_not() {
    const TOO_MANY: i64 = 24;
    if !may_look("the descriptors of the server and of the keeper") {
        return;
    }
    let tree = Tree::start();
    assert_eq!(tree.run(&["run", "--", "true"]).status, 0);
    let keeper = tree.keeper().expect("a keeper is running");
    let few = DescriptorLimit::of(keeper, 0);
    let (status, err, failure) = fails(&tree, &["--", "true"]);
    assert_eq!((status, failure["errno"].as_i64()), (125, Some(TOO_MANY)), "{err}");
    assert!(err.contains("Too many open files"), "{err}");
    drop(few);
    assert_eq!(tree.run(&["run", "--", "true"]).status, 0);

    let coordinator = tree.daemon.as_ref().expect("a server").pid();
    // The connection uses the last descriptor, unless another part of the coordinator uses or releases one at that
    // moment.
    let mut tries = 0;
    let done = until("a connection has the last", || {
        tries += 1;
        let few = DescriptorLimit::of(coordinator, 1);
        let done = tree.run(&["run", "--detach", "--", "true"]);
        if done.status != 125 && tries % 1000 == 0 {
            // Print the state of each try, for the case that no connection ever gets the last descriptor.
            println!("try {tries}: {done:?}; open: {:?}", open(coordinator));
        }
        drop(few);
        (done.status == 125).then_some(done)
    });
    assert!(done.err.contains("Too many open files"), "{done:?}");
    assert_eq!(tree.run(&["run", "--", "true"]).status, 0);
    assert_eq!(tree.keeper(), Some(keeper));
}

/// Once too many keepers have exited, the start of the next one is only postponed: commands wait for it, and none is lost.
#[test]
fn commands_wait_for_a_keeper_whose_start_is_postponed() {
    let tree = Tree::start();
    tree.well(&["run", "--", "true"]);
    for turn in 0..9 {
        let name = turn.to_string();
        let words = [
            &["run", "--", "true"][..],
            &["lock", "run", &name, "--", "true"],
            &["lease", "run", &name, "--", "true"],
            &["run", "--detach", "--", "true"],
        ];
        tree.kill_keeper();
        let done = tree.run(words[turn % words.len()]);
        assert_eq!(done.status, 0, "{turn}: {done:?}");
    }
}

/// Returns the descriptors of a process, each with its target.
fn open(process: Pid) -> BTreeSet<String> {
    let all = format!("/proc/{}/fd", process.as_raw_nonzero());
    let all = std::fs::read_dir(all).into_iter().flatten().flatten();
    let shown = all.map(|it| {
        let what = std::fs::read_link(it.path()).unwrap_or_default();
        format!("{} {}", text(Path::new(&it.file_name())), what.display())
    });
    shown.collect()
}

/// Returns a user without other processes, to whom limits on processes apply. They do not apply to root.
fn limited_user() -> u32 {
    match geteuid().as_raw() {
        0 => 54_321,
        own => own,
    }
}

/// Sets the limit on a user's processes and threads, which applies when this process creates another one.
fn limit_processes((pid, user): (Pid, u32), most: &str) {
    let mut command = Command::new("prlimit");
    let pid = format!("--pid={}", pid.as_raw_nonzero());
    command.args([pid, format!("--nproc={most}:")]);
    if geteuid().is_root() {
        // Run it as the process's own user, since root may lack the permission.
        command.uid(user).gid(user);
    }
    let limited = command.status().expect("it exists");
    assert!(limited.success(), "it may be");
}

#[test]
fn a_coordinator_that_may_have_no_more_threads_fails_launches_until_it_may() {
    let own = limited_user();
    let tree = Tree::of_user(own);
    let coordinator = tree.daemon.as_ref().expect("a server").pid();
    limit_processes((coordinator, own), "0");
    let done = tree.run(&["run", "--detach", "--", "true"]);
    assert_eq!(done.status, 125, "{done:?}");
    assert!(done.err.contains("Resource temporarily unavailable"), "{done:?}");
    limit_processes((coordinator, own), "1000");
    assert_eq!(tree.run(&["run", "--detach", "--", "true"]).status, 0);
}

#[test]
fn a_keeper_that_may_have_no_more_processes_fails_launches_and_goes_on() {
    const TRY_AGAIN: i64 = 11;
    let own = limited_user();
    let tree = Tree::of_user(own);
    assert_eq!(tree.run(&["run", "--detach", "--", "true"]).status, 0);
    let keeper = tree.keeper().expect("a keeper is running");
    let lives = tree.detach("exec sleep 1000");
    limit_processes((keeper, own), "0");
    let (status, err, failure) = fails(&tree, &["--", "true"]);
    let found = (status, failure["errno"].as_i64());
    assert_eq!(found, (125, Some(TRY_AGAIN)), "{err}");
    assert_eq!(failure["step"], "fork");
    assert!(err.contains("Resource temporarily unavailable"), "{err}");
    assert_eq!(tree.record(&lives)["status"], "running");
    limit_processes((keeper, own), "1000");
    assert_eq!(tree.run(&["run", "--detach", "--", "true"]).status, 0);
    assert_eq!(tree.keeper(), Some(keeper));
}

#[test]
fn what_a_user_may_not_fails_with_the_error_of_the_kernel() {
    if !geteuid().is_root() {
        return left_out("launches as other users: only root makes them");
    }
    let files = tempfile::tempdir().expect("a temporary directory");
    let closed = files.path().join("closed");
    std::fs::create_dir(&closed).expect("a new directory");
    file(&files.path().join("plain"), "#!/bin/sh\n", 0o700);
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&closed, mode).expect("our own file");
    // The kernel also counts the user's other processes.
    let limits = "limits = { nproc = 0 }\n";
    let common = "user = \"nobody\"\nrestart = \"never\"\n";
    let application = Application::start(&format!(
        "[services.directory]\ncommand = [\"true\"]\ndir = \"{}\"\n{common}\
         [services.program]\ncommand = [\"{}\"]\ndir = \"/\"\n{common}\
         [services.other]\ncommand = [\"sleep\", \"1000\"]\ndir = \"/\"\n{common}\
         [services.processes]\ncommand = [\"true\"]\ndir = \"/\"\nafter = [\"other\"]\n{limits}{common}",
        text(&closed),
        text(&files.path().join("plain")),
    ));
    for (name, step, errno) in
        [("directory", "directory", 13), ("program", "exec", 13), ("processes", "exec", 11)]
    {
        application.until_status(name, "failed");
        let view = application.view(name);
        let failure = &view["instances"][0]["last"]["failure"];
        assert_eq!((&failure["step"], &failure["errno"]), (&json!(step), &json!(errno)), "{view}");
    }
}

#[test]
fn a_command_that_is_too_long_for_a_record_is_refused_with_the_way_out() {
    let tree = Tree::start();
    let many = vec!["x"; 4096];
    let long = "x".repeat(100 << 10);
    for (words, limit) in [
        (many, "4,097 words, but the limit is 4,096"),
        (vec![long.as_str(); 3], "bytes, but the limit is 262,144"),
    ] {
        let refused = tree.run(&[&["run", "--", "true"], words.as_slice()].concat());
        assert_eq!(refused.status, 2);
        let err = refused.err.replace('\n', " ");
        assert!(err.contains(limit) && err.contains("xargs"), "{err}");
    }
    assert_eq!(tree.all(), Vec::<Value>::new());
}
