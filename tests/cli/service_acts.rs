//! `sexton service start`, `stop` and `status`: several names, names that do not exist, and services that do not start.

use crate::services::Application;

const WEB: &str = "[services.web]\ncommand = [\"sleep\", \"1000\"]\n";

#[test]
fn a_name_that_no_service_has_changes_nothing() {
    let application = Application::start(&format!(
        "{WEB}[services.off]\ncommand = [\"sleep\", \"1000\"]\nautostart = false\n"
    ));
    let web = application.until_running("web");
    for (act, name) in [("stop", "web"), ("restart", "web"), ("start", "off")] {
        let refused = application.run(&[act, name, "extra"]);
        let words = "sexton: not done: extra: no service has this name\n";
        assert!(
            refused.status == 1 && refused.out.is_empty() && refused.err.starts_with(words),
            "{act}: {refused:?}"
        );
    }
    assert_eq!(application.running("web"), Some(web));
    assert_eq!(application.status("off"), "stopped");
    application.well(&["stop", "web", "off"]);
    assert_eq!(application.status("web"), "stopped");
}

#[test]
fn a_start_says_why_a_service_does_not_come_up() {
    let application = Application::start(
        "[services.crash]\ncommand = [\"sh\", \"-c\", \"exit 3\"]\nautostart = false\nready = \"line:up\"\nintensity = 100\n\
         backoff = { first = \"1h\", max = \"1h\" }\n\
         [services.quits]\ncommand = [\"sh\", \"-c\", \"exit 4\"]\nautostart = false\nready = \"line:up\"\nintensity = 1\n\
         [services.bad]\ncommand = [\"/no/such/program\"]\nautostart = false\n\
         backoff = { first = \"1h\", max = \"1h\" }\n",
    );
    let starts = |words: &[&str]| {
        let started = application.run(&[&["start"], words].concat());
        assert_eq!(started.status, 1, "{started:?}");
        started.err
    };
    let crash = starts(&["crash", "--wait", "2"]);
    let words = "crash has not become ready: its last start ended (exit 3)";
    assert!(crash.contains(words) && crash.contains("logs crash --stderr"), "{crash}");
    let quits = starts(&["quits"]);
    let words = "quits has failed: exit 4; gave up after 1 restart in 1 min";
    assert!(quits.contains(words), "{quits}");
    // Its next attempt is an hour away, longer than any test waits.
    let bad = starts(&["bad", "--wait", "3600"]);
    assert!(
        bad.contains("bad could not be started: ") && bad.contains("/no/such/program"),
        "{bad}"
    );
}

#[test]
fn services_are_listed_by_that_word_and_several_by_name() {
    let application = Application::start(&format!(
        "{WEB}[services.mail]\ncommand = [\"sleep\", \"1000\"]\nautostart = false\n[services.other]\ncommand = [\"true\"]\nautostart = false\n"
    ));
    application.until_running("web");
    let names = |words: &[&str]| -> Vec<String> {
        let listed = application.well(words);
        let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        listed.lines().map(first).collect()
    };
    assert_eq!(names(&["list"]), names(&[]));
    assert_eq!(names(&["list"]), ["SERVICE", "mail", "other", "web"]);
    assert_eq!(names(&["status", "web", "mail"]), ["SERVICE", "web", "mail"]);
    assert_eq!(application.run(&["status", "web", "none"]).status, 1);
}
