//! Earlier states on the page: the state after any entry of the journal, the entries around it, and histories from before
//! a restart.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::browser::{Browser, shows, text};
use crate::daemon;
use crate::opened::{Answer, Opened, TOKEN};
use crate::page_process::{RUN_TOKEN, opened as launching, post};
use crate::patience::until;
use crate::process_status::ended;
use crate::queue::{pop, push, target};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future as _;
use std::task::{Context, Waker};

const PUSH_ALL: &str = "/v1/queues/push-all";

/// Loads a page with an earlier state, again and again until the journal has been read. Each request waits for that for a
/// while.
fn then(browser: &Browser<'_>, path: &str) -> String {
    loop {
        let page = browser.page(path);
        if !page.contains("data-again") {
            return page;
        }
    }
}

/// Returns the text between two parts of a page.
fn between<'p>(page: &'p str, begin: &str, end: &str) -> &'p str {
    let (_, rest) = page.split_once(begin).expect("the page has this part");
    rest.split_once(end).expect("the text has this end").0
}

fn state(page: &str) -> &str {
    between(page, "id=\"state\"", "</main>")
}

fn around(page: &str) -> &str {
    between(page, "id=\"around\"", "</section>")
}

/// Returns the digest of each actor on a page.
fn digests(page: &str) -> BTreeMap<String, String> {
    let actors = state(page).split("<h3>").skip(1);
    let digest = |part: &str| {
        let (name, rest) = part.split_once("</h3>").expect("the part has a heading");
        (name.to_owned(), between(rest, "Digest <code>", "</code>").to_owned())
    };
    actors.map(digest).collect()
}

/// Returns the output of `sexton replay` for the node's directory, up to this entry.
fn replayed(opened: &Opened, until: u64) -> Value {
    let mut command = daemon::sexton();
    command.arg("replay").arg(opened.directory.path().join("data"));
    command.args(["--until", &until.to_string(), "--state", "--json"]);
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("valid JSON")
}

/// Acquires a lock. Returns the sequence number of the entry.
fn acquire(opened: &Opened, key: &str, owner: &str) -> u64 {
    let asked = json!({"key": key, "owner": owner});
    let token = &opened.post("/v1/locks/acquire", &asked).json()["token"];
    token.as_u64().expect("it is granted")
}

#[test]
fn a_past_state_is_what_a_replay_up_to_there_says() {
    let opened = Opened::new();
    let mut moments = Vec::new();
    for number in 0..20 {
        moments.push(acquire(&opened, &format!("lock-{number}"), "one"));
        push(&opened, "mail", &format!("letter {number}"));
        if number % 3 == 0 {
            pop(&opened, "mail");
        }
    }
    let browser = Browser::new(&opened);
    // Jump back and forth between entries.
    for nth in [19, 0, 7, 13, 1] {
        let at = moments[nth];
        let page = then(&browser, &format!("/page/then?at={at}"));
        let said = replayed(&opened, at);
        let actors = said["actors"].as_object().expect("it names actors");
        let its = |(name, actor): (&String, &Value)| {
            let digest = actor["digest"].as_str().expect("a string");
            (name.clone(), digest.to_owned())
        };
        let expected: BTreeMap<String, String> = actors.iter().map(its).collect();
        assert_eq!(digests(&page), expected, "after {at}");
        let locks = actors["lock"]["state"]["entries"].as_array().expect("a list");
        assert_eq!(locks.len(), nth + 1);
        for lock in locks {
            let key = lock["key"].as_str().expect("a string");
            assert!(state(&page).contains(&format!("<bdi>{key}</bdi>")), "{key}");
        }
        let later = format!("<bdi>lock-{}</bdi>", nth + 1);
        assert!(!state(&page).contains(&later), "{later} came after {at}");
    }
}

#[test]
fn what_a_client_did_is_found_around_its_number() {
    let opened = Opened::new();
    acquire(&opened, "before", "one");
    let at = acquire(&opened, "<account>", "one");
    let job = push(&opened, "mail", "letter");
    let browser = Browser::new(&opened);
    let page = then(&browser, &format!("/page/then?at={at}"));
    assert!(!page.contains("<account>"));
    let rows = text(around(&page));
    let (before, after) =
        rows.split_once("The state below is as of this point.").expect("the answer has a position");
    assert!(before.contains("granted key <account>"), "{before}");
    assert!(after.contains("added") && after.contains(&format!("job {job}")), "{after}");
    assert!(around(&page).contains(&format!("href=\"/page/then?at={at}\"")));
    let account = "<bdi>&lt;account&gt;</bdi>";
    assert!(state(&page).contains(account));
    let page = then(&browser, &format!("/page/then?at={}", at - 1));
    assert!(!state(&page).contains(account), "it did not exist before");
    assert!(around(&page).contains(account), "it comes after");
    // Without an entry in its address, the page shows the last one, with links to earlier ones.
    let page = then(&browser, "/page/then");
    assert!(page.contains("data-slides") && page.contains("data-still"));
    shows(&page, &["First", "20 earlier", "One earlier", "The journal begins at entry 1"]);
    let page = then(&browser, "/page/then?at=");
    shows(&page, &["mail"]);
}

#[test]
fn as_many_entries_are_shown_however_far_apart_their_numbers_are() {
    let opened = Opened::new();
    // The sequence number of each request's entry is higher by the number of its jobs.
    let jobs: Vec<Value> = (0..300).map(|_| json!({"queue": "q", "body": "x"})).collect();
    for _ in 0..30 {
        assert_eq!(opened.post(PUSH_ALL, &json!({"jobs": jobs})).status, 200);
    }
    let page = then(&Browser::new(&opened), "/page/then");
    let rows = around(&page).matches("href=\"/page/then?at=").count();
    assert_eq!(rows, 20, "{}", text(around(&page)));
    let listed =
        state(&page).matches("<td><span class=\"field\"><span class=\"faint\">id ").count();
    assert_eq!(listed, 100, "the first of the jobs");
    shows(&page, &["ready 9,000", "Only the first 100 are shown."]);
}

#[test]
fn numbers_that_no_entry_has_are_moved_to_some_or_refused() {
    let opened = Opened::new();
    let last = acquire(&opened, "account", "one");
    let browser = Browser::new(&opened);
    for at in ["0", "1", "18446744073709551615"] {
        let page = then(&browser, &format!("/page/then?at={at}"));
        assert_eq!(digests(&page).len(), 6, "{at}");
    }
    let beyond = then(&browser, "/page/then?at=18446744073709551615");
    let end = between(&beyond, " max=\"", "\"");
    assert!(end.parse::<u64>().expect("a number") >= last);
    let words = format!("The journal ends at entry {end}: this is the state after it.");
    shows(&beyond, &["account", &words]);
    let there = then(&browser, &format!("/page/then?at={end}"));
    assert!(!there.contains("The journal ends"), "{}", text(&there));
    for at in ["-1", "1e9", "0x10", "18446744073709551616", "1&at=2", "%00", "one"] {
        let answer = browser.load(&format!("/page/then?at={at}"));
        assert_eq!(answer.status, 400, "{at}: {answer:?}");
    }
}

/// Loads the last state while the reader of the journal is busy, until the answer is the expected one. Each round adds
/// entries, which keep the reader busy for longer.
fn occupied(opened: &Opened, requests: usize, is_wanted: impl Fn(&Answer) -> bool) -> Answer {
    let browser = Browser::new(opened);
    let jobs: Vec<Value> = (0..300).map(|_| json!({"queue": "q", "body": "x"})).collect();
    until("the reader is occupied", || {
        for _ in 0..10 {
            assert_eq!(opened.post(PUSH_ALL, &json!({"jobs": jobs})).status, 200);
        }
        let past = opened.handle().past();
        let mut asked: Vec<_> = (0..requests).map(|_| Box::pin(past.state(None))).collect();
        // A query is queued when its future is polled for the first time.
        let mut context = Context::from_waker(Waker::noop());
        for one in &mut asked {
            drop(one.as_mut().poll(&mut context));
        }
        Some(browser.load("/page/then")).filter(&is_wanted)
    })
}

#[test]
fn while_the_journal_is_read_a_page_says_how_far() {
    let opened = Opened::new();
    let answer = occupied(&opened, 3, |answer| answer.body.contains("data-again"));
    assert_eq!(answer.status, 200);
    shows(&answer.body, &["Reading the journal: entry", "Reload"]);
    let again = between(&answer.body, "<p><a href=\"", "\"");
    shows(&then(&Browser::new(&opened), again), &["The journal begins at entry 1"]);
}

#[test]
fn a_page_says_that_too_many_look_at_the_past() {
    let opened = Opened::new();
    let answer = occupied(&opened, 5, |answer| answer.status == 503);
    assert!(answer.body.contains("data-busy"), "{}", answer.body);
    assert_eq!(answer.header("retry-after"), Some("1"));
    shows(&answer.body, &["too many requests about the past are waiting: try again in a moment."]);
    shows(&then(&Browser::new(&opened), "/page/then"), &["The journal begins at entry 1"]);
}

#[test]
fn commands_are_for_those_who_may_run_them() {
    let opened = launching();
    let command = json!({"command": ["sleep", "600"], "labels": {"secret": "swordfish"}});
    let launched = post(&opened, "/v1/processes/launch", &command);
    let id = launched["id"].as_str().expect("a string");
    let runs = then(&Browser::with_token(&opened, RUN_TOKEN), "/page/then");
    assert!(around(&runs).contains("swordfish") && state(&runs).contains("swordfish"));
    // A launch is answered before the start of its process is in the journal.
    let browser = Browser::with_token(&opened, TOKEN);
    let plain = until("the start is in the journal", || {
        let page = then(&browser, "/page/then");
        let is_queued = text(&page).contains("queued 1");
        (!is_queued && text(&page).contains("running ")).then_some(page)
    });
    assert!(!plain.contains("swordfish"), "{}", text(&plain));
    shows(&plain, &["Its state contains commands"]);
    ended(&opened.socket(), id);
}

/// A result is reported when its job is over, and not while it is tried.
#[test]
fn the_output_of_a_job_is_not_shown_before_its_result_is() {
    let opened = launching();
    let pushed = post(&opened, "/v1/queues/push", &json!({"queue": "mail", "body": "letter"}));
    let popped = post(&opened, "/v1/queues/pop", &json!({"queues": ["mail"]}));
    let mut kept = target(&popped["jobs"][0]);
    let result = json!({"keep_ms": 60_000, "done": true, "exit": 0, "output": "swordfish"});
    kept.as_object_mut().expect("an object").extend(result.as_object().expect("one").clone());
    assert_eq!(post(&opened, "/v1/queues/keep-result", &kept), json!({"kept": 1}));
    let path = format!("/v1/queues/result?id={}", pushed["id"]);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(opened.get(&path, &bearer).json()["output"], "");
    let runs = then(&Browser::with_token(&opened, RUN_TOKEN), "/page/then");
    assert!(around(&runs).contains("swordfish") && state(&runs).contains("swordfish"));
    let plain = then(&Browser::with_token(&opened, TOKEN), "/page/then");
    assert!(!plain.contains("swordfish"), "{}", text(&plain));
    shows(&plain, &["mail"]);
}

#[test]
fn a_node_without_a_journal_says_so() {
    let opened = Opened::configured(|config| {
        config.data = None;
        config.http.as_mut().expect("HTTP is configured").socket = None;
    });
    acquire(&opened, "account", "one");
    let browser = Browser::new(&opened);
    let answer = browser.load("/page/then");
    assert_eq!(answer.status, 409);
    shows(&answer.body, &["keeps no journal"]);
    shows(&browser.page("/page/lock?key=account"), &["No events yet"]);
}

#[test]
fn a_story_of_before_a_restart_is_read_from_the_journal() {
    let mut opened = Opened::new();
    let at = acquire(&opened, "account", "one");
    acquire(&opened, "other", "one");
    let job = push(&opened, "mail", "letter");
    pop(&opened, "mail");
    opened.restart();
    let browser = Browser::new(&opened);
    let page = then(&browser, "/page/lock?key=account");
    let story = between(&page, "id=\"story\"", "</section>");
    assert!(story.contains(&format!("href=\"/page/then?at={at}\"")), "{story}");
    shows(story, &["granted", "From the journal, entries 1 to"]);
    assert!(!story.contains("other"), "{story}");
    let page = then(&browser, &format!("/page/job?id={job}"));
    let story = between(&page, "id=\"story\"", "</section>");
    shows(story, &["added", "claimed", "From the journal"]);
    // Later changes are shown from the stored events.
    let release = json!({"key": "account", "owner": "one", "token": at});
    assert_eq!(opened.post("/v1/locks/release", &release).status, 200);
    let page = browser.page("/page/lock?key=account");
    let story = between(&page, "id=\"story\"", "</section>");
    shows(story, &["released"]);
    assert!(!story.contains("From the journal"), "{story}");
}
