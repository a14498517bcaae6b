//! Queues and jobs on the page: by tenant and type, failed jobs with their errors, retries and discards by filter, and
//! very many jobs.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::browser::{Browser, shows, text};
use crate::opened::{Opened, run};
use serde_json::json;
use sexton::actors::queue::{Body, Put};

const ERROR: &str = "SMTP 451 <try> \u{202b}again";

/// Adds jobs to a queue.
fn push(opened: &Opened, queue: &str, count: u32) {
    for number in 0..count {
        let queue = queue.try_into().expect("a valid name");
        let body = Body::new(format!("<body {number}>\0\u{202e}").into_bytes());
        let added = run(opened.handle().queues().put(Put::new(queue, body)));
        added.expect("the node adds it");
    }
}

/// Claims a job and buries it. Returns its id.
fn bury(opened: &Opened, queue: &str) -> u64 {
    let popped = opened.post("/v1/queues/pop", &json!({"queues": [queue]})).json();
    let job = &popped["jobs"][0];
    let claim = json!({"id": job["id"], "token": job["token"]});
    opened.post("/v1/queues/bury", &claim).json();
    job["id"].as_u64().expect("a number")
}

/// Claims a job and makes it fail permanently. Returns its id.
fn abandon(opened: &Opened, queue: &str) -> u64 {
    let popped = opened.post("/v1/queues/pop", &json!({"queues": [queue]})).json();
    let job = &popped["jobs"][0];
    let id = job["id"].as_u64().expect("a number");
    let failed =
        json!({"id": id, "token": job["token"], "error": ERROR, "retry_after_ms": 600_000});
    opened.post("/v1/queues/fail", &failed).json();
    opened.post("/v1/queues/cancel", &json!({"id": id, "error": ERROR})).json();
    id
}

#[test]
fn queues_are_shown_by_tenant_and_type() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    shows(&browser.page("/page/queues"), &["No queues"]);
    for queue in ["shop:mail", "shop:thumbs", "blog:mail", "mail"] {
        push(&opened, queue, 2);
    }
    let rows = |path: &str| browser.page(path).matches("/page/queue?queue=").count();
    assert_eq!(rows("/page/queues"), 4);
    assert_eq!(rows("/page/queues?tenant=shop&type="), 2);
    assert_eq!(rows("/page/queues?tenant=&type=mail"), 3);
    assert_eq!(rows("/page/queues?tenant=-"), 1);
    shows(
        &browser.page("/"),
        &["Jobs that have waited longest", "shop:mail 0 s 2 0 0", "Jobs ready 8"],
    );
    let page = browser.page("/page/queue?queue=shop%3Amail");
    shows(&page, &["shop:mail", "ready 2", "No jobs"]);
    let paused = browser.do_and_look("/page/queue/pause", "queue=shop%3Amail&minutes=10");
    shows(&paused, &["End the pause"]);
    // The whole time is left if the page is made in the millisecond in which the pause began.
    for page in [paused, browser.page("/page/queues")] {
        let left = ["paused, 9 min 59 s", "paused, 10 min 0 s"];
        let page = text(&page);
        assert!(left.iter().any(|words| page.contains(words)), "{page}");
    }
    let on = browser.do_and_look("/page/queue/pause", "queue=shop%3Amail&minutes=0");
    assert!(!text(&on).contains("paused,"));
    for wrong in
        ["queue=shop%3Amail&minutes=1441", "queue=shop%3Amail&minutes=x", "queue=-&minutes=1"]
    {
        assert_eq!(browser.send("/page/queue/pause", wrong).status, 400, "{wrong}");
    }
}

#[test]
fn failed_jobs_are_shown_with_their_errors_and_tried_again_or_discarded() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    push(&opened, "mail", 4);
    push(&opened, "other", 1);
    let buried = bury(&opened, "mail");
    let abandoned = abandon(&opened, "mail");
    bury(&opened, "other");
    shows(&browser.page("/"), &["Jobs failed 1 job", "Jobs buried 2 jobs"]);
    let page = browser.page("/page/jobs");
    shows(&page, &["Failed jobs", "SMTP 451 <try>", "buried", "abandoned"]);
    assert!(!page.contains("<try>"), "{page}");
    assert_eq!(page.matches("/page/job?id=").count(), 3);
    let of_queue = browser.page("/page/queue?queue=mail");
    assert_eq!(of_queue.matches("/page/job?id=").count(), 2);
    let by_error = browser.page("/page/jobs?queue=mail&type=&phase=&error=SMTP+451");
    assert_eq!(by_error.matches("/page/job?id=").count(), 1);
    // Only the jobs that match the filter are changed.
    let done = browser.do_and_look("/page/jobs/retry", "queue=mail&error=SMTP");
    shows(&done, &["1 job made ready."]);
    let phase =
        |id: u64| opened.get(&format!("/v1/queues/job?id={id}"), "").json()["phase"].clone();
    assert_eq!((phase(abandoned), phase(buried)), ("ready".into(), "buried".into()));
    let unsure = browser.send("/page/jobs/discard", "queue=mail");
    assert_eq!(unsure.status, 400);
    assert_eq!(phase(buried), "buried");
    let done = browser.do_and_look("/page/jobs/discard", "queue=mail&sure=yes");
    shows(&done, &["1 job discarded.", "No jobs"]);
    opened.get(&format!("/v1/queues/job?id={buried}"), "").problem(404);
    assert_eq!(browser.send("/page/jobs/retry", "phase=claimed").status, 400);
    shows(&browser.page("/page/jobs"), &["other"]);
}

#[test]
fn a_job_that_is_cancelled_while_somebody_looks_is_an_event() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    browser.page("/");
    push(&opened, "mail", 1);
    let id = abandon(&opened, "mail");
    let events = browser.page("/page/events?kind=cancelled");
    shows(&events, &[&format!("cancelled queue mail job {id}")]);
    let now = text(&browser.page("/"));
    assert!(!now.contains("Restarted"), "the actor panicked: {now}");
}

#[test]
fn a_job_has_a_story() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    browser.page("/");
    push(&opened, "mail", 1);
    let id = bury(&opened, "mail");
    let page = browser.page(&format!("/page/job?id={id}"));
    shows(
        &page,
        &["mail buried", "<body 0>\u{fffd}\u{fffd}", "Tries 1", "Buried 1", "What happened"],
    );
    assert!(!page.contains("<body 0>") && !page.contains('\u{202e}'));
    let again = browser.do_and_look("/page/job/retry", &format!("id={id}"));
    shows(&again, &["mail ready"]);
    assert_eq!(browser.send("/page/job/discard", &format!("id={id}")).status, 400);
    let gone = browser.do_and_look("/page/job/discard", &format!("id={id}&sure=yes"));
    shows(&gone, &["1 job discarded."]);
    assert_eq!(browser.load(&format!("/page/job?id={id}")).status, 404);
    let events = browser.page("/page/events?actor=queue");
    shows(&events, &["buried"]);
    assert!(!text(&browser.page("/page/events?actor=lock&kind=&name=")).contains("mail"));
}

#[test]
fn a_page_of_very_many_queues_is_no_longer_than_another() {
    let opened = Opened::configured(|config| config.fsync = sexton::persist::journal::Fsync::Never);
    let queues = opened.handle().queues();
    for thousand in 0..100 {
        let jobs = (0..1000).map(|number| {
            let queue = format!("tenant-{thousand}:type-{number}");
            Put::new(queue.as_str().try_into().expect("a valid name"), Body::new(*b"x"))
        });
        run(queues.put_all(jobs.collect())).expect("they are added");
    }
    let browser = Browser::new(&opened);
    for path in
        ["/", "/page/queues", "/page/queues?type=type-7", "/page/jobs?phase=ready", "/page/events"]
    {
        let page = browser.page(path);
        assert!(page.len() < 150_000, "{path}: {} bytes", page.len());
    }
    let page = browser.page("/page/queues?tenant=tenant-42");
    assert!(page.contains("rel=\"next\"") && page.contains("Queues with the most jobs"), "{page}");
    shows(&browser.page("/"), &["Queues 100,000"]);
}

#[test]
fn a_claim_is_shown_with_the_time_since_which_it_is_held() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    push(&opened, "mail", 1);
    let ready = browser.page("/page/jobs?queue=mail&phase=ready");
    assert!(!ready.contains("Claimed since"), "{ready}");
    let popped = opened.post("/v1/queues/pop", &json!({"queues": ["mail"]}));
    let id = popped.json()["jobs"][0]["id"].clone();
    for path in ["/page/jobs?queue=mail&phase=claimed".to_owned(), format!("/page/job?id={id}")] {
        let page = browser.page(&path);
        let (_, since) = page.split_once("Claimed since").expect("the message has this part");
        assert!(since.contains("<time datetime="), "{path}: {since}");
        shows(since, &[", for 0"]);
    }
}
