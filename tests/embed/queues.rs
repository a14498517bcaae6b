//! Queues of a node inside the program: claims by token, waiting, manual time, and what a restart keeps.

use sexton::actors::queue::{
    AnyType, Body, Claimant, Message, Phase, Put, QueueName, Refused, Right, TypeRules,
};
use sexton::clock::{Clock as _, ManualClock, Timestamp};
use sexton::ids::RequestKey;
use sexton::node::{Added, Drain, QueueError, Queues};
use sexton::spine::delivery::Item;
use sexton::spine::event::{EventBody, Field};
use sexton::spine::feed::Notification;
use sexton::{Config, Node, block_on};
use std::collections::BTreeSet;
use std::task::{Context, Waker};
use std::time::Duration;

fn queue(name: &str) -> QueueName {
    name.try_into().expect("a valid name")
}

fn job(name: &str, body: &str) -> Put {
    Put::new(queue(name), Body::new(body.as_bytes()))
}

#[test]
fn a_claim_is_fenced_by_its_token() {
    let clock = ManualClock::default();
    let node = Node::open(Config::manual(&clock)).expect("the directory opens");
    let queues = node.handle().queues();
    block_on(async {
        let put = Put { ttr_ms: 5000, ..job("mails", "one") };
        let added = queues.put(put).await;
        assert_eq!(added.map(|it| (it.id, it.new)), Ok((1, true)));
        let first = queues.pop(&[queue("mails")]).await.expect("a request arrives");
        let first = first.expect("there is a job");
        assert_eq!((first.id, first.attempts), (1, 1));
        assert_eq!(queues.pop(&[queue("mails")]).await, Ok(None));
        clock.advance(Duration::from_secs(5));
        let second = queues.pop(&[queue("mails")]).await.expect("a request arrives");
        let second = second.expect("the claim has run out");
        assert!(second.token > first.token);
        let stale = || Some(QueueError::Refused(Refused::StaleToken));
        assert_eq!(queues.ack(1, first.token).await.err(), stale());
        assert_eq!(queues.touch(1, first.token).await.err(), stale());
        let released = queues.release(1, first.token, (0, None)).await;
        assert_eq!(released.err(), stale());
        let failed = queues.fail(1, first.token, (None, None)).await;
        assert_eq!(failed.err(), stale());
        let buried = queues.bury(1, first.token, None).await;
        assert_eq!(buried.err(), stale());
        assert_eq!(queues.ack(1, second.token).await, Ok(()));
        assert_eq!(queues.job(1).await, Err(QueueError::Absent));
    });
}

#[test]
fn who_waits_gets_the_job_that_comes() {
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let (waiting, putting) = (node.handle().queues(), node.handle().queues());
    let waiter = std::thread::Builder::new()
        .name("waiter".to_owned())
        .spawn(move || block_on(waiting.pop_waiting(&[queue("a"), queue("b")])))
        .expect("a new thread");
    block_on(async {
        while putting.totals().await.expect("the actor answers").waiting == 0 {
            std::thread::yield_now();
        }
        putting.put(job("b", "for you")).await.expect("the job is added");
    });
    let claim = waiter.join().expect("the thread ends").expect("it has a job");
    assert_eq!(claim.body.as_bytes(), b"for you");
    assert_eq!(claim.queue, queue("b"));
}

#[test]
fn a_wait_that_a_drain_refuses_keeps_no_claim() {
    for _ in 0..50 {
        let node = Node::open(Config::in_memory()).expect("the directory opens");
        let (handle, queues) = (node.handle(), node.handle().queues());
        // With a key, the claim is kept even if its answer was not received.
        let keyed = queues.once(RequestKey { id: 1, fingerprint: 1 });
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| block_on(keyed.wait_for_job(&[queue("a")]).claim()));
            block_on(async {
                while queues.totals().await.expect("the actor answers").waiting == 0 {
                    std::thread::yield_now();
                }
            });
            let draining = threads.spawn(|| block_on(handle.begin_drain(Drain::Queues)));
            // The drain may come first, and refuse the job.
            drop(block_on(queues.put(job("a", "for you"))));
            draining.join().expect("the thread ends").expect("the node answers");
            let claim = waiter.join().expect("the thread ends");
            let counts = block_on(queues.counts(&queue("a")));
            let claimed = counts.map_or(0, |counts| counts.claimed);
            assert_eq!(claimed, u32::from(claim.is_ok()), "{claim:?}");
        });
    }
}

#[test]
fn a_step_of_the_wall_clock_ends_a_delay_and_no_claim() {
    let clock = ManualClock::at(Timestamp(1_000_000_000_000));
    let node = Node::open(Config::manual(&clock)).expect("the directory opens");
    let queues = node.handle().queues();
    let late = Put { delay_ms: 1_800_000, ..job("a", "late") };
    block_on(async {
        queues.put(job("a", "now")).await.expect("the job is added");
        queues.put(late).await.expect("the job is added");
        let claim = queues.pop_waiting(&[queue("a")]).await;
        assert_eq!(claim.expect("there is a job").id, 1);
        clock.set_offset_ms(-3_600_000);
        clock.set_offset_ms(3_600_000);
        let claim = queues.pop_waiting(&[queue("a")]).await;
        assert_eq!(claim.expect("its date has come").id, 2);
        let first = queues.job(1).await.expect("it exists");
        assert_eq!(first.phase, Phase::Claimed, "claims do not follow the wall clock");
    });
}

#[test]
fn a_restart_keeps_jobs_and_claims_by_token() {
    let directory = tempfile::tempdir().expect("the disk has space");
    let node = Node::open(Config::at(directory.path())).expect("the directory opens");
    let queues = node.handle().queues();
    let claim = block_on(async {
        for body in ["one", "two", "three"] {
            queues.put(job("mails", body)).await.expect("the job is added");
        }
        let claim = queues.pop(&[queue("mails")]).await.expect("a request arrives");
        claim.expect("there are jobs")
    });
    node.stop().expect("the node stops");
    let node = Node::open(Config::at(directory.path())).expect("it opens again");
    let queues = node.handle().queues();
    block_on(async {
        let counts = queues.counts(&queue("mails")).await.expect("the actor answers");
        assert_eq!((counts.ready, counts.claimed), (2, 1));
        assert_eq!(queues.ack(claim.id, claim.token).await, Ok(()));
        let added = queues.put(job("mails", "four")).await;
        assert_eq!(added.map(|it| (it.id, it.new)), Ok((4, true)));
    });
}

/// The expected events of `live_through`.
const TOLD: &[&str] = &[
    "added q 1 priority=0",
    "added q 2 priority=0 later",
    "claimed q 1 with a token attempt=1",
    "failed q 1 later",
    "ready q 1",
    "ready q 2",
    "claimed q 1 with a token attempt=2",
    "buried q 1",
    "kicked q count=1",
    "deleted q 1",
    "claimed q 2 with a token attempt=1",
    "released q 2",
    "paused q later",
    "resumed q",
    "flushed q count=1",
    "added few 3 priority=0",
    "added few 4 priority=0",
    "claimed few 3 with a token attempt=1",
    "claimed few 4 with a token attempt=1",
    "spent few 3",
    "abandoned few 4",
    "pruned few 4",
];

async fn live_through(queues: &Queues, clock: &ManualClock) -> Result<(), QueueError> {
    let [q, few] = ["q", "few"].map(queue);
    let claim = async |from: &QueueName| {
        let claim = queues.pop(std::slice::from_ref(from)).await?;
        Ok::<_, QueueError>(claim.ok_or(QueueError::Absent)?.token)
    };
    queues.put(job("q", "a")).await?;
    let delayed = Put { delay_ms: 1000, ..job("q", "b") };
    queues.put(delayed).await?;
    queues.fail(1, claim(&q).await?, (Some(500), None)).await?;
    clock.advance(Duration::from_millis(500));
    clock.advance(Duration::from_millis(500));
    let token = claim(&q).await?;
    queues.touch(1, token).await?;
    queues.bury(1, token, None).await?;
    queues.kick(&q, 9).await?;
    queues.delete(1).await?;
    queues.release(2, claim(&q).await?, (0, None)).await?;
    queues.pause(&q, 60_000).await?;
    queues.pause(&q, 0).await?;
    queues.flush(&q).await?;
    let once = Put { retries: false, ..job("few", "c") };
    queues.put(once).await?;
    queues.put(job("few", "d")).await?;
    claim(&few).await?;
    claim(&few).await?;
    clock.advance(Duration::from_secs(3601));
    clock.advance(Duration::from_secs(604_801));
    queues.totals().await.map(drop)
}

/// An event as text, without times and tokens.
fn told(what: &EventBody) -> String {
    let field = |(name, field): &(&str, Field)| match (*name, field) {
        (_, Field::Name(name)) => String::from_utf8_lossy(name).into_owned(),
        ("job", Field::Number(number)) => number.to_string(),
        ("token", Field::Number(1..)) => "with a token".to_owned(),
        ("ready_at" | "until", Field::Number(_)) => "later".to_owned(),
        (name, Field::Number(number)) => format!("{name}={number}"),
        (_, Field::Text(text)) => text.clone(),
    };
    let fields: Vec<String> = what.fields.iter().map(field).collect();
    format!("{} {}", what.kind, fields.join(" "))
}

#[test]
fn what_happens_to_jobs_is_told_in_order() {
    let clock = ManualClock::default();
    let mut config = Config::manual(&clock);
    let few = TypeRules { max_tries: 1, ..TypeRules::default() };
    config.rules.queue.types.insert("few".to_owned(), few);
    let node = Node::open(config).expect("the directory opens");
    let handle = node.handle();
    block_on(async {
        let mut events = handle.events(None).await.expect("the node answers");
        live_through(&handle.queues(), &clock).await.expect("it is all possible");
        for expected in TOLD {
            let Some(Notification::Event(event)) = events.next().await else {
                panic!("no event is lost");
            };
            assert_eq!((event.actor, told(&event.what).as_str()), ("queue", *expected));
        }
    });
}

/// Returns how many jobs of the queue `a` are ready and claimed.
fn phases(queues: &Queues) -> (u32, u32) {
    let counts = block_on(queues.counts(&queue("a"))).expect("the node answers");
    (counts.ready, counts.claimed)
}

fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

#[test]
fn a_claim_of_which_nobody_hears_is_given_back() {
    // On a busy machine the answer may have arrived before the client leaves, so this is repeated until it has not.
    while !leaves_before_the_answer() {}
}

/// Drops a request for a job, and checks that the job is released. Returns whether it was dropped before it was answered.
fn leaves_before_the_answer() -> bool {
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let queues = node.handle().queues();
    let names = [queue("a")];
    let waiting = queues.wait_for_job(&names);
    block_on(queues.put(job("a", "one"))).expect("the job is added");
    until(|| phases(&queues) == (0, 1));
    drop(waiting);
    until(|| phases(&queues) == (1, 0));

    let mut asked = Box::pin(queues.pop(&names));
    let mut context = Context::from_waker(Waker::noop());
    if asked.as_mut().poll(&mut context).is_ready() {
        return false;
    }
    drop(asked);
    until(|| block_on(queues.job(1)).expect("it exists").releases == 2);
    assert_eq!(phases(&queues), (1, 0));

    let claim = block_on(queues.pop_waiting(&names)).expect("there is a job");
    // Nobody worked on it before, so the earlier claims do not count as tries.
    assert_eq!((claim.id, claim.attempts), (1, 1));
    true
}

#[test]
fn a_wait_for_any_queue_is_served_after_those_that_name_theirs() {
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let queues = node.handle().queues();
    let any = || AnyType { types: vec!["a".to_owned()], ..AnyType::default() };
    let mut first = queues.wait_for_any(any());
    let second = queues.wait_for_any(any());
    let mut named = queues.wait_for_job(&[queue("a")]);
    let add = |name: &str, body: &str| {
        block_on(queues.put(job(name, body))).expect("the job is added").id
    };
    let other = add("b", "nobody waits for it");
    let id = add("a", "one");
    let claimed = block_on(named.claim()).expect("it waits");
    assert_eq!(claimed.expect("a job").id, id);
    let id = add("t:a", "two");
    let claimed = block_on(first.claim()).expect("it waits");
    assert_eq!(claimed.expect("a job").id, id);
    // A client that has left is skipped.
    let third = queues.wait_for_any(any());
    assert_eq!(block_on(second.withdraw()), Ok(None));
    let id = add("u:a", "three");
    let claim = block_on(third.withdraw()).expect("the node answers");
    assert_eq!(claim.expect("it was claimed").id, id);
    let view = block_on(queues.job(other)).expect("it exists");
    assert_eq!((view.phase, view.claimed), (Phase::Ready, None));
}

#[test]
fn who_leaves_the_line_takes_along_what_it_got() {
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let queues = node.handle().queues();
    let names = [queue("a")];
    let waiting = queues.wait_for_job(&names);
    assert_eq!(block_on(waiting.withdraw()), Ok(None));
    let waiting = queues.wait_for_job(&names);
    block_on(queues.put(job("a", "one"))).expect("the job is added");
    until(|| phases(&queues) == (0, 1));
    let claim = block_on(waiting.withdraw()).expect("the node answers");
    let claim = claim.expect("it was claimed before that");
    assert_eq!(block_on(queues.ack(claim.id, claim.token)), Ok(()));
}

/// Queues whose jobs are tried once, and one that accepts none.
fn tried_once() -> Config {
    let once = TypeRules { max_tries: 1, ..TypeRules::default() };
    let closed = TypeRules { read_only: Some("it moves".to_owned()), ..TypeRules::default() };
    let types = [("once", once), ("closed", closed)];
    let mut config = Config::in_memory();
    config.rules.queue.types = types.map(|(name, rules)| (name.to_owned(), rules)).into();
    config
}

#[test]
fn what_was_given_back_after_its_last_try_is_abandoned_until_it_is_repushed() {
    let node = Node::open(tried_once()).expect("the directory opens");
    let queues = node.handle().queues();
    let once = queue("t:once");
    block_on(async {
        for number in 0..250 {
            let body = number.to_string();
            queues.put(job("t:once", &body)).await.expect("the job is added");
            let claim = queues.pop_waiting(std::slice::from_ref(&once)).await;
            let claim = claim.expect("there is a job");
            if number < 230 {
                let given = queues.release(claim.id, claim.token, (0, None)).await;
                let phase = given.map(|view| view.map(|view| view.phase));
                assert_eq!(phase, Ok(Some(Phase::Abandoned)));
            }
        }
        assert_eq!(queues.repush(&queue("other")).await, Ok(0));
        assert_eq!(queues.repush(&once).await, Ok(230));
        let counts = queues.counts(&once).await.expect("the actor answers");
        assert_eq!((counts.ready, counts.claimed, counts.abandoned), (230, 20, 0));
        let again = queues.pop(&[once]).await.expect("an answer");
        assert_eq!(again.map(|claim| claim.attempts), Some(1));
    });
}

#[test]
fn chance_names_queues_that_are_ready_and_no_others() {
    let node = Node::open(tried_once()).expect("the directory opens");
    let queues = node.handle().queues();
    let next = |kinds: &[&str]| {
        let kinds: Vec<String> = kinds.iter().map(|&kind| kind.to_owned()).collect();
        block_on(queues.next(&kinds)).expect("the node answers")
    };
    assert_eq!(next(&[]), None);
    let names: Vec<String> = (0..20_000).map(|tenant| format!("t{tenant}:a")).collect();
    let put = |name: &String| Item::Message(Message::Put(job(name, "x")));
    block_on(queues.batch(names.iter().map(put).collect())).expect("they are added");
    let rare = ["t:rare", "u:rare", "v:rare"];
    block_on(async {
        for name in rare {
            queues.put(job(name, "x")).await.expect("the job is added");
        }
        let paused = queue("v:rare");
        queues.pause(&paused, 1_000_000).await.expect("it is paused");
    });
    let seen: BTreeSet<QueueName> = (0..100).filter_map(|_| next(&[])).collect();
    assert!(seen.len() > 90, "{} of 20,000", seen.len());
    let seen: BTreeSet<QueueName> = (0..40).filter_map(|_| next(&["rare", "b"])).collect();
    assert_eq!(seen, ["t:rare", "u:rare"].map(queue).into());
    assert_eq!(next(&["closed"]), None);
    assert_eq!(next(&["b"]), None);
}

/// Claims the job of a queue and fails it; returns the number of tries and when the next is due, or `None` if it is abandoned.
async fn fail_once(queues: &Queues, of: &QueueName) -> Option<(u32, Timestamp)> {
    let claim = queues.pop_waiting(std::slice::from_ref(of)).await.ok()?;
    let failed = queues.fail(claim.id, claim.token, (None, None)).await;
    let view = failed.expect("the job is claimed").expect("it is tried again");
    let until = view.until.filter(|_| view.phase == Phase::Retrying)?;
    Some((view.attempts, until))
}

#[test]
fn where_nothing_is_set_a_job_is_tried_25_times_after_ever_longer_waits() {
    let clock = ManualClock::at(Timestamp(1_000_000_000_000));
    let node = Node::open(Config::manual(&clock)).expect("the directory opens");
    let (queues, mails) = (node.handle().queues(), queue("mails"));
    block_on(async {
        queues.put(job("mails", "x")).await.expect("the job is added");
        let claim = queues.pop_waiting(std::slice::from_ref(&mails)).await;
        let claim = claim.expect("there is a job");
        assert_eq!(claim.until.0 - clock.now().0, 60_001, "a minute");
        clock.advance(Duration::from_secs(30));
        let touched = queues.touch(1, claim.token).await.expect("the job is claimed");
        let touched = touched.expect("it exists");
        assert_eq!(touched.until.map(|until| until.0 - clock.now().0), Some(60_001));
        queues.release(1, claim.token, (0, None)).await.expect("the job is claimed");
        queues.kick_job(1).await.expect_err("it is ready");
        let mut middle = 1000;
        for tries in 2..25 {
            let (attempts, until) = fail_once(&queues, &mails).await.expect("the job is retried");
            middle = (middle * 2).min(3_600_000);
            let wait = until.0 - clock.now().0;
            assert_eq!(attempts, tries);
            let tenth = middle / 10;
            assert!((middle - tenth..=middle + tenth).contains(&wait), "{wait} ms after {tries}");
            clock.advance(Duration::from_millis(wait));
        }
        assert_eq!(fail_once(&queues, &mails).await, None);
        let view = queues.job(1).await.expect("it exists");
        assert_eq!((view.phase, view.attempts), (Phase::Abandoned, 25));
    });
}

#[test]
fn what_a_tube_command_put_is_tried_without_end_and_a_claim_may_say_its_span() {
    let clock = ManualClock::at(Timestamp(1_000_000_000_000));
    let node = Node::open(Config::manual(&clock)).expect("the directory opens");
    let (queues, tube) = (node.handle().queues(), queue("tube"));
    block_on(async {
        let put = Put { tube: true, ttr_ms: 5000, ..job("tube", "x") };
        queues.put(put).await.expect("the job is added");
        for tries in 1..60 {
            let claim = queues.pop_waiting(std::slice::from_ref(&tube)).await;
            let claim = claim.expect("there is a job");
            assert_eq!((claim.attempts, claim.until.0 - clock.now().0), (tries, 5000));
            clock.advance(Duration::from_secs(5));
        }
        let longer = queues.claiming_for(90_000);
        let claim = longer.pop_waiting(&[tube]).await.expect("there is a job");
        assert_eq!(claim.until.0 - clock.now().0, 90_000);
        clock.advance(Duration::from_secs(80));
        let touched = queues.touch(1, claim.token).await.expect("the job is claimed");
        let touched = touched.expect("it exists");
        let left = touched.until.map(|until| until.0 - clock.now().0);
        assert_eq!(left, Some(90_000), "a touch begins the same span again");
    });
}

/// Adds this many jobs of a type that is tried once, claims them, and fails them.
async fn abandon(queues: &Queues, count: u64) {
    let name = queue("once");
    for _ in 0..count / 1000 {
        let jobs = (0..1000).map(|_| job("once", "x")).collect();
        let added = queues.put_all(jobs).await.expect("they are added");
        let ids = added.iter().map(|added| added.id);
        let by = Claimant::Bearer;
        let claims = ids.map(|id| Message::PopJob { id, by });
        let claims = claims.map(Item::Message).collect();
        queues.batch(claims).await.expect("they are claimed");
        let mut items = Vec::new();
        for Added { id, .. } in added {
            let view = queues.job(id).await.expect("it exists");
            let by = Right::Token(view.token.expect("the job is claimed"));
            items.push(Item::Message(Message::Fail {
                id,
                by,
                retry_after_ms: None,
                error: None,
                crashed: false,
            }));
        }
        queues.batch(items).await.expect("they failed");
    }
    let counts = queues.counts(&name).await.expect("the actor answers");
    assert_eq!(u64::from(counts.abandoned), count);
}

#[test]
fn a_repeated_repush_leaves_what_was_abandoned_since() {
    let node = Node::open(tried_once()).expect("the directory opens");
    let (queues, once) = (node.handle().queues(), queue("once"));
    let keyed = queues.once(RequestKey { id: 1, fingerprint: 2 });
    block_on(async {
        // At most this many jobs become ready in one turn.
        abandon(&queues, 100_000).await;
        assert_eq!(keyed.repush(&once).await, Ok(100_000));
        queues.flush(&once).await.expect("it is done");
        abandon(&queues, 1000).await;
        assert_eq!(keyed.repush(&once).await, Ok(100_000), "as before");
        let counts = queues.counts(&once).await.expect("the actor answers");
        assert_eq!(counts.abandoned, 1000);
    });
}
