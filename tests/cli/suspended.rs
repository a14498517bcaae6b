//! Processes that are suspended (in state T) when they are stopped: SIGCONT follows the first signal, so that they handle it, and do not
//! take up their whole grace period. The grace periods are longer than any test waits.

use crate::patience::until;
use crate::services::Application;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Suspends a process, and waits until it is suspended.
pub(crate) fn suspend(pid: i32) {
    let process = Pid::from_raw(pid).expect("a PID");
    kill_process(process, Signal::STOP).expect("a live process");
    until("it is suspended", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is alive");
        stat.contains(") T ").then_some(())
    });
}

#[test]
fn a_suspended_service_is_stopped_by_its_first_signal() {
    let application =
        Application::start("[services.web]\ncommand = [\"sleep\", \"1000\"]\ngrace = \"1h\"\n");
    suspend(application.until_running("web"));
    application.well(&["stop", "web"]);
    let view = application.view("web");
    assert_eq!(view.pointer("/status"), Some(&"stopped".into()));
    let signal = view.pointer("/instances/0/last/signal");
    assert_eq!(signal, Some(&15.into()), "{view}");
}

#[test]
fn a_suspended_process_is_stopped_by_its_first_signal_and_so_is_its_tree() {
    let tree = Tree::start();
    // The shell waits for its child, which is suspended as well.
    for (script, flags) in [("exec sleep 1000", &[][..]), ("sleep 1000; exit 7", &["--tree"])] {
        let id = tree.detach(script);
        let pids = until("they run", || {
            let pid = tree.record(&id).pointer("/pid").and_then(Value::as_i64)?;
            let children = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            let below = children.split_whitespace().map(|it| it.parse().expect("a PID"));
            let own = i32::try_from(pid).expect("a PID");
            let pids: Vec<i32> = std::iter::once(own).chain(below).collect();
            (pids.len() == 1 + flags.len()).then_some(pids)
        });
        pids.into_iter().for_each(suspend);
        let kill = [&["kill", &id, "--grace", "1h", "--wait"], flags].concat();
        tree.well(&kill);
        let record = tree.record(&id);
        assert_eq!(record.pointer("/signal"), Some(&15.into()), "{record}");
    }
}
