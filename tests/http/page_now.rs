//! The first view: current problems, and rates.

use crate::browser::{Browser, shows, text};
use crate::opened::{Opened, TOKEN, request, run};
use sexton::handle::Drain;
use sexton::ids::ActorId;
use sexton::spine::delivery::Stage;

#[test]
fn nothing_is_amiss_on_a_node_that_is_well() {
    let opened = Opened::new();
    let page = Browser::new(&opened).page("/");
    shows(
        &page,
        &[
            "No problems with locks, leases, queues or tasks.",
            "Rates LockServer 0 commands/s",
            "HTTP",
            "Journal",
            "Coordinator Version 0.1.0",
        ],
    );
    // Each plot has a text that describes it.
    assert_eq!(page.matches("<svg").count(), page.matches("role=\"img\" aria-label=\"").count());
    assert!(!text(&page).contains("beanstalkd"), "its listener is not open");
}

/// Processes and services need a token. Without one, the page does not claim that all is well with them.
#[test]
fn what_is_hidden_without_a_login_is_said_to_be() {
    let all_clear = "Nothing is stuck, failing, restarting or filling up.";
    let opened = Opened::new();
    let page = Browser::new(&opened).page("/");
    assert!(!text(&page).contains(all_clear), "{page}");
    shows(
        &page,
        &[
            "Processes and services, and their problems, are not shown, because they require a login",
        ],
    );
    // On the socket, the coordinator's own user sees everything.
    let socket = opened.get_over_socket_as("/", "localhost").body;
    shows(&socket, &[all_clear]);
    assert!(!text(&socket).contains("not shown"), "{socket}");

    let plain = "plain-horse-battery-staple";
    let opened = Opened::with_tokens(&format!("{TOKEN} run\n{plain}\n"));
    let page = Browser::with_token(&opened, plain).page("/");
    assert!(!text(&page).contains(all_clear), "{page}");
    shows(&page, &["are not shown: log in with a token that has the scope run."]);
    let page = Browser::with_token(&opened, TOKEN).page("/");
    shows(&page, &[all_clear]);
}

#[test]
fn changes_are_counted_for_each_actor() {
    let opened = Opened::new();
    let handle = opened.handle();
    let counts = || [ActorId::LOCK, ActorId::QUEUE].map(|actor| handle.entries_of(actor));
    let [locks, queues] = counts();
    run(handle.locks().batch(vec![request(b"a", b"one")])).expect("the node answers");
    assert_eq!(counts(), [locks + 1, queues]);
    let page = Browser::new(&opened).page("/");
    shows(&page, &["Locks 0 changes/s", "Jobs 0 changes/s", "Tasks 0 changes/s"]);
}

#[test]
fn what_is_amiss_stands_first() {
    let opened = Opened::new();
    let (handle, browser) = (opened.handle(), Browser::new(&opened));
    run(handle.locks().batch(vec![request(b"a", b"one")])).expect("the node answers");
    handle.actors().queue.inject_panics(Box::new(|stage, _| {
        assert_ne!(stage, Stage::Decide, "planted <b>");
    }));
    run(handle.queues().kick_job(1)).expect_err("it panics");
    let page = browser.page("/");
    shows(
        &page,
        &["Restarted", "The queue actor panicked, and was restarted 1 time", "planted <b>"],
    );
    assert!(!page.contains("<b>") && !text(&page).contains("No problems"), "{page}");
    run(handle.begin_drain(Drain::Locks)).expect("the node answers");
    shows(&browser.page("/"), &["Draining New locks are refused until the coordinator restarts"]);
}

#[test]
fn a_halted_node_says_so_to_people() {
    let opened = Opened::configured(|config| config.rules.supervisor.restarts.restarts_max = 0);
    let handle = opened.handle();
    handle.actors().lock.inject_panics(Box::new(|stage, _| {
        assert_ne!(stage, Stage::Decide, "planted");
    }));
    assert!(run(handle.locks().batch(vec![request(b"a", b"one")])).is_err());
    let halt = run(handle.halted()).to_string();
    // The text of a page may be split into several lines.
    let halt: Vec<&str> = halt.split_whitespace().collect();
    let halt = halt.join(" ");
    for path in ["/", "/page/locks", "/page/queues", "/page/changes"] {
        let answer = opened.get(path, "");
        assert_eq!(answer.status, 503, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        shows(&answer.body, &[&halt]);
    }
}
