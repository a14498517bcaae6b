//! Processes and tasks on the page: who may view them, the tree, their output, and why a task does not run.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::browser::{Browser, shows, text};
use crate::opened::{Opened, TOKEN, write_private};
use crate::patience::until;
use crate::process_status::{ended, launches, serves};
use serde_json::{Value, json};

pub(crate) const RUN_TOKEN: &str = "correct-horse-that-runs";

/// Asserts that a running process of the type `binary` on this machine is shown by the filters that it matches, and only by those.
fn assert_filters(browser: &Browser<'_>, id: &str) {
    let is_shown = |query: &str| {
        let page = browser.page(&format!("/page/processes?{query}"));
        page.contains(id)
    };
    for query in [
        "kind=binary",
        "machine=this",
        "status=&kind=&machine=&search=",
        "kind=binary&machine=this&search=exec",
    ] {
        assert!(is_shown(query), "{query}");
    }
    for query in ["kind=worker", "machine=1f", "kind=binary&machine=1f"] {
        assert!(!is_shown(query), "{query}");
    }
    assert_eq!(browser.load("/page/processes?machine=elsewhere").status, 400);
}

/// Opens a node that launches processes, with a token that permits launches and one that does not.
pub(crate) fn opened() -> Opened {
    Opened::configured(|config| {
        launches(config);
        serves(config);
        let http = config.http.as_mut().expect("HTTP is configured");
        let socket = http.socket.as_ref().expect("a socket");
        let file = socket.parent().expect("it is below").with_file_name("token");
        write_private(&file, &format!("{TOKEN}\n{RUN_TOKEN} run\n"));
        http.token_file = Some(file);
    })
}

pub(crate) fn post(opened: &Opened, path: &str, body: &Value) -> Value {
    let bearer = format!("Authorization: Bearer {RUN_TOKEN}\r\n");
    let mut launching = opened.begin_with(path, &bearer, body);
    crate::opened::answers(&crate::opened::read_all(&mut launching))
        .pop()
        .expect("an answer")
        .json()
}

#[test]
fn processes_are_for_those_who_may_start_them() {
    let opened = opened();
    let plain = Browser::with_token(&opened, TOKEN);
    for path in ["/page/processes", "/page/process?id=0192f5e0"] {
        let refused = plain.load(path);
        assert_eq!(refused.status, 403);
        shows(&refused.body, &["requires a token with the scope run"]);
    }
    assert_eq!(plain.send("/page/process/stop", "id=0192f5e0").status, 403);
    assert!(!text(&plain.page("/")).contains("Processes running"));
    let runs = Browser::with_token(&opened, RUN_TOKEN);
    shows(&runs.page("/"), &["Processes running"]);
    shows(&runs.page("/page/processes"), &["Services", "once"]);
}

#[test]
fn a_process_is_shown_with_its_tree_its_use_and_what_it_prints() {
    let opened = opened();
    let browser = Browser::with_token(&opened, RUN_TOKEN);
    browser.page("/");
    let script = "echo '<out>'; echo err >&2; exec sleep 600";
    let launch = json!({"command": ["sh", "-c", script, "<b>"], "labels": {"branch": "<main>"}});
    let parent = post(&opened, "/v1/processes/launch", &launch);
    let parent = parent["id"].as_str().expect("a string").to_owned();
    let below = json!({"command": ["sleep", "600"], "parent": parent});
    let child = post(&opened, "/v1/processes/launch", &below);
    let child = child["id"].as_str().expect("a string").to_owned();
    let list = browser.page("/page/processes");
    shows(&list, &["<b>", "running", "iB"]);
    assert!(!list.contains("<b>"), "{list}");
    let (of_parent, of_child) = (list.find(&parent), list.find(&child));
    assert!(of_parent < of_child && text(&list).contains("└"), "{}", text(&list));
    let path = format!("/page/process?id={parent}");
    let page =
        until("its output", || Some(browser.page(&path)).filter(|it| text(it).contains("<out>")));
    shows(
        &page,
        &[
            "Standard output",
            "Standard error",
            "err",
            "branch <main>",
            "Started by this process",
            "What happened",
            "started",
        ],
    );
    assert!(!page.contains("<out>") && !page.contains("<main>"), "{page}");
    shows(&browser.page(&format!("/page/process?id={child}")), &["Started by"]);
    assert_eq!(browser.load("/page/processes?status=none").status, 400);
    assert_filters(&browser, &parent);
    let stopped = browser.do_and_look("/page/process/stop", &format!("id={parent}&tree=yes"));
    shows(&stopped, &["Process"]);
    ended(&opened.socket(), &parent);
    shows(&browser.page(&path), &["signal 15", "Stopped by request", "<out>"]);
    ended(&opened.socket(), &child);
    for _ in 0..110 {
        post(&opened, "/v1/processes/launch", &json!({"command": ["true"]}));
    }
    let page = until("their ends", || {
        Some(browser.page("/page/processes?status=exited")).filter(|it| it.contains("rel=\"next\""))
    });
    let list = page.split("<h2>Processes</h2>").nth(1).expect("it has a list");
    assert_eq!(list.matches("/page/process?id=").count(), 100);
}

/// Adds a task whose work id is its name. Returns the id of the task.
fn add(opened: &Opened, name: &str, script: &str) -> u64 {
    let launch = json!({"command": ["sh", "-c", script]});
    let task = json!({"launch": launch, "name": name, "group": "deploys", "work": name});
    let added = post(opened, "/v1/tasks/add", &task);
    added["id"].as_u64().expect("a number")
}

#[test]
fn a_task_shows_what_its_attempts_printed() {
    let opened = opened();
    let browser = Browser::with_token(&opened, RUN_TOKEN);
    let failed = add(&opened, "bro<ken", "echo '<oh>' >&2; exit 9");
    let path = format!("/page/task?id={failed}");
    let page =
        until("its end", || Some(browser.page(&path)).filter(|it| text(it).contains("Ended:")));
    shows(&page, &["bro<ken", "user-error", "exit 9", "<oh>", "dispatched", "released"]);
    assert!(!page.contains("<oh>") && !page.contains("bro<ken"));
    shows(&browser.page("/"), &["Tasks failed 1 task"]);
    // Only users who may launch commands see the output of commands.
    let plain = Browser::with_token(&opened, TOKEN);
    let page = plain.page(&path);
    assert!(text(&page).contains("exit 9") && !text(&page).contains("<oh>"), "{page}");
}

#[test]
fn a_task_says_why_it_does_not_run() {
    let opened = opened();
    let browser = Browser::with_token(&opened, RUN_TOKEN);
    let failed = add(&opened, "bro<ken", "exit 9");
    let first = add(&opened, "same", "sleep 600");
    let second = add(&opened, "same", "true");
    let page = until("that it waits", || {
        Some(browser.page(&format!("/page/task?id={second}")))
            .filter(|it| text(it).contains("is under way"))
    });
    shows(
        &page,
        &["Why it is not running: task", &format!("task {first} with work id same is under way")],
    );
    shows(
        &browser.page("/page/tasks"),
        &["bro<ken", "is under way", "Servers", "local", "Groups", "deploys"],
    );
    let found = |status: &str| {
        let page = browser.page(&format!("/page/tasks?status={status}&group=deploys&work="));
        page.matches("/page/task?id=").count()
    };
    until("its end", || (found("complete") == 1).then_some(()));
    assert_eq!((found("processing"), found("not-started")), (1, 1));
    assert_eq!(browser.load("/page/tasks?status=none").status, 400);
    let paused = browser.do_and_look("/page/task/act", &format!("id={second}&act=pause"));
    shows(&paused, &["it is paused", "Resume"]);
    browser.do_and_look("/page/task/act", &format!("id={second}&act=terminate"));
    assert_eq!(browser.send("/page/task/act", &format!("id={second}&act=none")).status, 400);
    let again = browser.do_and_look("/page/task/act", &format!("id={failed}&act=restart"));
    shows(&again, &["bro<ken"]);
    post(&opened, "/v1/tasks/act", &json!({"id": first, "act": "terminate", "now": true}));
    until("its end", || Some(()).filter(|()| found("processing") == 0));
}
