//! How services and processes are shown: why one could not be launched, its output, its status, and its name in the
//! system's list of processes.

use crate::coordinator::{command, done};
use crate::patience::until;
use crate::services::{Application, kill};
use crate::tree::Tree;

#[test]
fn a_service_that_cannot_be_launched_is_named_in_the_log_and_shown_with_the_whole_cause() {
    let dir = format!("/nowhere/{}", "deep/".repeat(12));
    let application = Application::start(&format!(
        "[services.migrate]\ncommand = [\"true\"]\ndir = \"{dir}\"\nrestart = \"never\"\n"
    ));
    application.until_status("migrate", "failed");
    let daemon = application.daemon.as_ref().expect("a server");
    daemon.until_logged("a service could not be launched");
    let log = daemon.log();
    let line = log.lines().find(|it| it.contains("a service could not be launched"));
    let line = line.expect("it is logged");
    for part in
        ["WARN", "service=\"migrate\"", "program=\"true\"", &dir, "No such file or directory"]
    {
        assert!(line.contains(part), "{part} in {line}");
    }
    let listed = application.well(&[]);
    // Only a terminal gets texts that are cut.
    assert!(
        listed.contains("not started: /nowhere/")
            && listed.contains("No such file or directory")
            && !listed.contains("..."),
        "{listed}"
    );
    let shown = application.well(&["status", "migrate"]);
    assert!(shown.contains("No such file or directory") && !shown.contains("..."), "{shown}");
}

#[test]
fn one_that_prints_only_errors_is_said_to() {
    let application = Application::start(
        "[services.loud]\ncommand = [\"sh\", \"-c\", \"echo bad >&2; exec sleep 1000\"]\n",
    );
    application.until_running("loud");
    let printed = until("it has printed", || {
        let printed = application.well(&["logs", "loud", "--stderr"]);
        (!printed.is_empty()).then_some(printed)
    });
    assert_eq!(printed, "bad\n");
    let logs = application.run(&["logs", "loud"]);
    assert_eq!((logs.status, logs.out.as_str()), (0, ""), "{logs:?}");
    let hint = "nothing on standard output; --stderr shows standard error";
    assert!(logs.err.contains(hint), "{logs:?}");
}

#[test]
fn a_command_that_is_over_while_its_children_live_is_shown_so() {
    let tree = Tree::start();
    let script = "sleep 1000 & exit 0";
    tree.well(&["task", "add", "--", "sh", "-c", script]);
    until("it has ended", || {
        let listed = tree.well(&["ps"]);
        listed.contains("exit 0, children live").then_some(())
    });
}

#[test]
fn the_keeper_is_listed_by_name() {
    let tree = Tree::start();
    tree.well(&["run", "--detach", "--", "true"]);
    let keeper = until("a keeper runs", || tree.keeper()).as_raw_nonzero();
    let read = |file: &str| std::fs::read(format!("/proc/{keeper}/{file}")).unwrap_or_default();
    let begin = b"sexton\0keeper\0--data\0";
    until("it has its name", || {
        (read("cmdline").starts_with(begin) && read("comm") == b"sexton\n").then_some(())
    });
}

#[test]
fn a_service_that_was_never_launched_has_no_output_and_says_so() {
    let application =
        Application::start("[services.off]\ncommand = [\"true\"]\nautostart = false\n");
    let logs = application.run(&["logs", "off"]);
    assert_eq!((logs.status, logs.out.as_str()), (1, ""), "{logs:?}");
    let words = "sexton: off has not been launched yet: it is stopped\n";
    assert!(logs.err.starts_with(words), "{logs:?}");
}

#[test]
fn each_end_of_a_process_is_logged_with_what_follows() {
    let application = Application::start(
        "[services.bad]\ncommand = [\"sh\", \"-c\", \"exit 3\"]\nintensity = 2\nperiod = \"1h\"\n\
         backoff = { first = \"10ms\", max = \"20ms\" }\n\
         [services.web]\ncommand = [\"sleep\", \"1000\"]\n",
    );
    let web = application.until_running("web");
    kill(web);
    let daemon = application.daemon.as_ref().expect("a server");
    let log = until("all is logged", || {
        let log = daemon.log();
        let all = ["service-ended service=web", "service-failed service=bad"];
        all.iter().all(|it| log.contains(it)).then_some(log)
    });
    let lines = |of: &str| -> Vec<&str> { log.lines().filter(|it| it.contains(of)).collect() };
    let killed = lines("service-ended service=web instance=1");
    assert!(
        killed.len() == 1
            && killed[0].contains("WARN")
            && killed[0].contains("code=137 signal=9 restart_in_ms=0"),
        "{log}"
    );
    let ended = lines("service-ended service=bad instance=1");
    let is_told = |it: &&str| it.contains("code=3 restart_in_ms=");
    assert!(ended.len() == 2 && ended.iter().all(is_told), "{log}");
    let failed = lines("service-failed service=bad");
    assert!(failed[0].contains("code=3 restarts=2 period_ms=3600000"), "{log}");
    let status = command(&application.data(), &["status"]).output();
    let status = done(status.expect("the command runs")).out;
    assert!(status.contains("services    2, 1 running, 1 failed\n"), "{status}");
}
