//! Faults of another machine, each with tasks that may be repeated and tasks that may not: it shuts down, it does not
//! answer for too long, it is rebooted, it is removed, or the coordinator is killed.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::text;
use crate::far::Far;
use crate::patience::until;
use crate::remote::{
    add, assert_one_at_a_time, assert_settled, let_go, lines, lives, over, show, start,
    start_impatient, waits,
};
use crate::task::came_to;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};

/// Both values of `abort_on_failure`: the flags for it, and how a task ends whose first attempt is killed.
const POLICIES: [(&[&str], &str); 2] = [(&[], "system-error"), (&["--retry"], "completed")];

/// Returns a script whose first attempt writes its PID and runs until SIGTERM, on which it exits with `status`. Later
/// attempts succeed.
fn handles_term(far: &Far, status: u8) -> String {
    let log = far.path("log");
    let log = text(&log);
    format!(
        "[ \"$SEXTON_TASK_ATTEMPT\" = 1 ] || exit 0; trap 'echo stopped >> {log}; exit {status}' TERM; \
         echo begin $$ >> {log}; while :; do sleep 0.02; done"
    )
}

/// Adds a task for each policy and for each of two exit statuses after SIGTERM. Returns the tasks once all of them run.
fn add_handlers(far: &Far, tree: &Tree) -> Vec<(u64, &'static str)> {
    tree.well(&["task", "limit", "default", "4"]);
    let mut tasks = Vec::new();
    for status in [0, 1] {
        for (flags, exit) in POLICIES {
            tasks.push((add(tree, flags, &handles_term(far, status)), exit));
        }
    }
    lines(&far.path("log"), 4);
    tasks
}

fn assert_counted_as_killed(tree: &Tree, tasks: &[(u64, &str)]) {
    for (id, exit) in tasks {
        let task = over(tree, *id);
        assert_eq!(task["exit"], *exit, "{task}");
        assert_eq!(task["past"][0]["cause"], "died", "{task}");
    }
}

/// Returns the PID at the end of a line of the log.
fn pid_of(line: &str) -> Pid {
    let pid = line.rsplit(' ').next().and_then(|it| it.parse().ok());
    Pid::from_raw(pid.expect("its PID")).expect("a PID")
}

#[test]
fn an_attempt_that_is_cut_off_counts_as_killed_however_its_command_exits() {
    let Some((mut far, tree)) = start_impatient("2s") else {
        return;
    };
    let tasks = add_handlers(&far, &tree);
    far.shut();
    far.cut();
    // The other machine stops each attempt because no coordinator has connected, well before the coordinator gives it up.
    lines(&far.path("log"), 8);
    far.listen("/usr/sbin/sshd");
    assert_counted_as_killed(&tree, &tasks);
    assert_settled(&far, &tree);
}

#[test]
fn a_command_that_exited_before_it_was_cut_off_has_ended_as_it_did() {
    let Some((mut far, tree)) = start_impatient("2s") else {
        return;
    };
    let log = far.path("log");
    let script = format!("sleep 300 & echo begin $$ >> {}; exit 0", text(&log));
    let id = add(&tree, &[], &script);
    let begun = lines(&log, 1);
    let pid = pid_of(&begun[0]).as_raw_nonzero().to_string();
    until("the command has exited", || (!lives(&pid)).then_some(()));
    far.shut();
    far.cut();
    until("the keeper has recorded the end", || {
        let mut places = std::fs::read_dir(far.path("state")).ok()?.flatten();
        places.any(|it| it.path().join("end").exists()).then_some(())
    });
    far.listen("/usr/sbin/sshd");
    let task = over(&tree, id);
    assert_eq!(came_to(&task), ("completed", "completed"), "{task}");
    assert_settled(&far, &tree);
}

/// Row 15 of Wip's text: a server is shut down while tasks run on it, and reports that.
#[test]
fn an_end_that_cannot_be_stored_there_is_told_all_the_same() {
    let Some((_far, tree)) = start() else {
        return;
    };
    // The directory prevents the result from being stored, as a full disk would.
    let script = "mkdir -p \"$(dirname \"$SEXTON_TASK_REPORT\")/end/x\"; exit 7";
    let id = add(&tree, &[], script);
    let task = over(&tree, id);
    let right = "its command ended with status 7";
    let came_to = (&task["exit"], &task["message"]);
    assert_eq!(came_to, (&"user-error".into(), &right.into()), "{task}");
    let printed = tree.well(&["task", "transcript", &id.to_string()]);
    assert!(printed.contains("its result could not be stored there"), "{printed}");
}

#[test]
fn a_machine_that_shuts_down_stops_its_attempts_and_says_so() {
    let Some((far, tree)) = start() else { return };
    let tasks = add_handlers(&far, &tree);
    for pid in far.keepers() {
        kill_process(pid, Signal::TERM).expect("a permitted signal");
    }
    assert_counted_as_killed(&tree, &tasks);
    for line in lines(&far.path("log"), 8) {
        let is_end = line == "stopped";
        assert!(is_end || !lives(line.rsplit(' ').next().unwrap_or_default()));
    }
    assert_settled(&far, &tree);
}

#[test]
fn a_machine_that_was_started_again_runs_what_may_run_twice() {
    let Some((mut far, tree)) = start() else {
        return;
    };
    let tasks = POLICIES.map(|(flags, exit)| (add(&tree, flags, &handles_term(&far, 0)), exit));
    let begun = lines(&far.path("log"), 2);
    far.shut();
    far.reboot(begun.iter().map(|line| pid_of(line)));
    far.listen("/usr/sbin/sshd");
    assert_counted_as_killed(&tree, &tasks);
    assert_settled(&far, &tree);
}

/// A server is removed while its tasks run. Tasks that may be repeated run again on another server, and then the next
/// task of the same work id.
#[test]
fn a_server_that_is_removed_gives_up_its_tasks_to_another() {
    let Some((far, tree)) = start() else { return };
    let log = far.path("log");
    for (flags, exit) in POLICIES {
        drop(std::fs::remove_file(&log));
        drop(std::fs::remove_file(far.path("go")));
        let flags = [flags, &["--work", "site-7"]].concat();
        let first = add(&tree, &flags, &waits(&far, ""));
        let second = add(&tree, &["--work", "site-7"], "exit 0");
        let begun = lines(&log, 1);
        tree.well(&["server", "add", "spare", "--threads", "1"]);
        tree.well(&["server", "remove", "web"]);
        if exit == "completed" {
            // The work id is occupied by the attempt on the other server.
            assert_one_at_a_time(&lines(&log, 2));
            assert_eq!(show(&tree, second)["status"], "not-started");
            let_go(&far);
        }
        let task = over(&tree, first);
        assert_eq!(task["exit"], exit, "{task}");
        assert_eq!(task["past"][0]["cause"], "server-gone", "{task}");
        assert!(!lives(&pid_of(&begun[0]).as_raw_nonzero().to_string()));
        let task = over(&tree, second);
        assert_eq!(task["exit"], "completed", "{task}");
        assert_eq!(task["past"][0]["server"], "spare", "{task}");
        assert_settled(&far, &tree);
        tree.well(&["server", "remove", "spare"]);
        far.add_to(&tree, 4);
    }
}

#[test]
fn a_work_id_is_free_again_after_its_server_was_lost() {
    let Some((mut far, tree)) = start_impatient("2s") else {
        return;
    };
    let first = add(&tree, &["--work", "site-7"], &waits(&far, ""));
    let second = add(&tree, &["--work", "site-7"], "exit 0");
    let begun = lines(&far.path("log"), 1);
    far.shut();
    far.cut();
    assert_eq!(came_to(&over(&tree, first)), ("system-error", "server-lost"));
    assert!(!lives(&pid_of(&begun[0]).as_raw_nonzero().to_string()));
    far.listen("/usr/sbin/sshd");
    let task = over(&tree, second);
    assert_eq!(task["exit"], "completed", "{task}");
    // No coordinator asks for the result of the first attempt any more, so the other machine keeps it for a while.
    tree.assert_all_agrees();
}

/// Row 13 of Wip's text: the command is killed on the other machine while no coordinator runs.
#[test]
fn a_command_that_dies_there_while_the_coordinator_is_dead_has_died() {
    let Some((far, mut tree)) = start() else {
        return;
    };
    let tasks = POLICIES.map(|(flags, exit)| (add(&tree, flags, &handles_term(&far, 0)), exit));
    let begun = lines(&far.path("log"), 2);
    tree.again(|| {
        for line in &begun {
            kill_process(pid_of(line), Signal::KILL).expect("a permitted signal");
        }
    });
    assert_counted_as_killed(&tree, &tasks);
    assert_settled(&far, &tree);
}
