//! Tasks whose attempts ended unobserved: the machine was rebooted, or the keeper was killed with the command.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::{Daemon, text};
use crate::left_out::left_out;
use crate::patience::until;
use crate::processes::host::Host;
use serde_json::{Value, json};
use sexton::kernel::pidfd::Pidfd;

const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

/// How a task is added, and how it ends if its first attempt is lost.
struct Case {
    aborts: bool,
    saves: bool,
    exit: &'static str,
}

const CASES: [Case; 4] = [
    Case { aborts: true, saves: false, exit: "system-error" },
    Case { aborts: false, saves: false, exit: "completed" },
    Case { aborts: true, saves: true, exit: "completed" },
    Case { aborts: false, saves: true, exit: "completed" },
];

/// A task, another task of the same work id, and the command of the first task's first attempt.
struct Task {
    id: u64,
    next: u64,
    command: Pidfd,
    exit: &'static str,
}

/// Adds a task that runs a shell script, and returns its id.
fn add(host: &Host, script: &str, more: &Value) -> u64 {
    let mut task = json!({ "launch": {"command": ["sh", "-c", script, SEXTON], "dir": "/"} });
    let members = more.as_object().expect("members");
    task.as_object_mut().expect("an object").extend(members.clone());
    let said = host.well("/v1/tasks/add", &task);
    said["id"].as_u64().expect("a number")
}

fn show(host: &Host, id: u64) -> Value {
    host.get(&format!("/v1/tasks/task?id={id}"))
}

/// Adds the tasks; their first attempts run forever, and all later ones complete.
fn begin(host: &Host) -> Vec<Task> {
    let local = json!({"server": "local", "threads": CASES.len()});
    host.well("/v1/servers/set", &local);
    host.well("/v1/tasks/limit", &json!({"group": "default", "max": 100}));
    let begun = CASES.iter().enumerate().map(|(nth, case)| {
        let file = host.file(&format!("pid-{nth}"));
        let save = if case.saves { "\"$0\" task save half || exit 9;" } else { "" };
        let script = format!(
            "[ \"$SEXTON_TASK_ATTEMPT\" = 1 ] || exit 0; {save} echo $$ > {}; exec sleep 1000",
            text(&file)
        );
        let work = format!("work-{nth}");
        let id = add(host, &script, &json!({"work": work, "abort_on_failure": case.aborts}));
        let next = add(host, "exit 0", &json!({ "work": work }));
        let command = until("its command runs", || {
            let pid = std::fs::read_to_string(&file).ok()?;
            Pidfd::open(pid.trim().parse().ok()?).ok().flatten()
        });
        Task { id, next, command, exit: case.exit }
    });
    begun.collect()
}

/// Asserts that each task ended as its policy requires, that the other task of its work id ran, and that nothing is left over. `seen` is
/// whether the record may have the signal that killed the command, because the coordinator inherited it.
fn assert_ended(host: &Host, tasks: &[Task], seen: bool) {
    for task in tasks {
        let over = |id| {
            until("the task is over", || {
                let shown = show(host, id);
                (shown["status"] == "complete").then_some(shown)
            })
        };
        let shown = over(task.id);
        assert_eq!(shown["exit"], task.exit, "{shown}");
        assert_eq!(shown["past"][0]["cause"], "died", "{shown}");
        assert_eq!(shown["past"][0]["code"], Value::Null, "{shown}");
        let signal = &shown["past"][0]["signal"];
        assert!(signal.is_null() || seen && *signal == 9, "{shown}");
        let next = over(task.next);
        assert_eq!(next["exit"], "completed", "{next}");
    }
    let servers = host.get("/v1/servers");
    assert_eq!(servers["servers"][0]["used"], 0, "{servers}");
    until("all locks are released", || {
        let locks = host.get("/v1/locks");
        locks["locks"].as_array()?.is_empty().then_some(())
    });
    let audit = host.get("/v1/audit");
    assert_eq!(audit["found"].as_array().map(Vec::len), Some(0), "{audit}");
}

#[test]
fn tasks_of_another_boot_go_on_or_fail_and_what_has_their_pids_is_not_touched() {
    if !rustix::process::geteuid().is_root() {
        return left_out("tasks of another boot: only root can give this one another name");
    }
    let host = Host::new();
    let daemon = host.start();
    let tasks = begin(&host);
    daemon.kill();
    host.kill_keeper();
    let daemon = Daemon::start(host.rebooted());
    assert_ended(&host, &tasks, false);
    for task in &tasks {
        // In the new boot these are unrelated processes.
        assert!(!task.command.has_ended().expect("the descriptor can be polled"), "it was touched");
    }
    daemon.kill();
}

/// Kills the keeper and the command: the keeper is stopped first, so that it cannot record how the command ends.
#[test]
fn a_keeper_and_a_command_that_are_killed_together_leave_nothing_behind() {
    let host = Host::new();
    let daemon = host.start();
    let tasks = begin(&host);
    let keeper = host.keeper().expect("a keeper is running");
    keeper.signal(19).expect("a permitted signal");
    for task in &tasks {
        task.command.signal(9).expect("a permitted signal");
    }
    host.kill_keeper();
    assert_ended(&host, &tasks, true);
    daemon.kill();
}
