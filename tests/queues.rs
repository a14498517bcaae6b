//! Queues of a node inside the program: claims by token, waiting, time moved by hand, and what a restart keeps.

use sexton::actors::event::{Field, Happening};
use sexton::actors::feed::Heard;
use sexton::actors::queue::{Body, Put, QueueName, Refused, TypeRules};
use sexton::clock::ManualClock;
use sexton::node::{Added, QueueError, Queues};
use sexton::{Config, Node, block_on};
use std::time::Duration;

fn queue(name: &str) -> QueueName {
    name.try_into().expect("it is a name")
}

fn job(name: &str, body: &str) -> Put {
    Put::new(queue(name), Body::new(body.as_bytes()))
}

#[test]
fn a_claim_is_fenced_by_its_token() {
    let clock = ManualClock::default();
    let node = Node::open(Config::manual(&clock)).expect("it opens");
    let queues = node.handle().queues();
    block_on(async {
        let put = Put {
            ttr_ms: 5000,
            ..job("mails", "one")
        };
        assert_eq!(queues.put(put).await, Ok(Added { id: 1, new: true }));
        let first = queues.pop(&[queue("mails")]).await.expect("it is asked");
        let first = first.expect("there is a job");
        assert_eq!((first.id, first.attempts), (1, 1));
        assert_eq!(queues.pop(&[queue("mails")]).await, Ok(None));
        clock.advance(Duration::from_secs(5));
        let second = queues.pop(&[queue("mails")]).await.expect("it is asked");
        let second = second.expect("the claim has run out");
        assert!(second.token > first.token);
        let stale = Err(QueueError::Refused(Refused::StaleToken));
        assert_eq!(queues.ack(1, first.token).await, stale);
        assert_eq!(queues.touch(1, first.token).await, stale);
        assert_eq!(queues.release(1, first.token, 0).await, stale);
        assert_eq!(queues.ack(1, second.token).await, Ok(()));
        assert_eq!(queues.job(1).await, Err(QueueError::Absent));
    });
}

#[test]
fn who_waits_gets_the_job_that_comes() {
    let node = Node::open(Config::in_memory()).expect("it opens");
    let (waiting, putting) = (node.handle().queues(), node.handle().queues());
    let waiter = std::thread::Builder::new()
        .name("waiter".to_owned())
        .spawn(move || block_on(waiting.pop_waiting(&[queue("a"), queue("b")])))
        .expect("there is a thread");
    block_on(async {
        while putting.totals().await.expect("it answers").waiting == 0 {
            std::thread::yield_now();
        }
        putting.put(job("b", "for you")).await.expect("it is added");
    });
    let claim = waiter.join().expect("it ends").expect("it has a job");
    assert_eq!(claim.body.as_bytes(), b"for you");
    assert_eq!(claim.queue, queue("b"));
}

#[test]
fn a_restart_keeps_jobs_and_claims_by_token() {
    let directory = tempfile::tempdir().expect("there is room");
    let node = Node::open(Config::at(directory.path())).expect("it opens");
    let queues = node.handle().queues();
    let claim = block_on(async {
        for body in ["one", "two", "three"] {
            queues.put(job("mails", body)).await.expect("it is added");
        }
        let claim = queues.pop(&[queue("mails")]).await.expect("it is asked");
        claim.expect("there are jobs")
    });
    node.stop().expect("it stops");
    let node = Node::open(Config::at(directory.path())).expect("it opens again");
    let queues = node.handle().queues();
    block_on(async {
        let counts = queues.counts(&queue("mails")).await.expect("it answers");
        assert_eq!((counts.ready, counts.claimed), (2, 1));
        assert_eq!(queues.ack(claim.id, claim.token).await, Ok(()));
        assert_eq!(
            queues.put(job("mails", "four")).await,
            Ok(Added { id: 4, new: true })
        );
    });
}

/// What it should say of what `live_through` does.
const TOLD: &[&str] = &[
    "added q 1 priority=0",
    "added q 2 priority=0 later",
    "claimed q 1 with a token attempt=1",
    "failed q 1 later",
    "expired q 1",
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
    let delayed = Put {
        delay_ms: 1000,
        ..job("q", "b")
    };
    queues.put(delayed).await?;
    queues.fail(1, claim(&q).await?, Some(500)).await?;
    clock.advance(Duration::from_millis(500));
    clock.advance(Duration::from_millis(500));
    let token = claim(&q).await?;
    queues.touch(1, token).await?;
    queues.bury(1, token).await?;
    queues.kick(&q, 9).await?;
    queues.delete(1).await?;
    queues.release(2, claim(&q).await?, 0).await?;
    queues.pause(&q, 60_000).await?;
    queues.pause(&q, 0).await?;
    queues.flush(&q).await?;
    let once = Put {
        retries: false,
        ..job("few", "c")
    };
    queues.put(once).await?;
    queues.put(job("few", "d")).await?;
    claim(&few).await?;
    claim(&few).await?;
    clock.advance(Duration::from_secs(3601));
    clock.advance(Duration::from_secs(604_801));
    queues.totals().await.map(drop)
}

/// An event in words; times and tokens are not told.
fn told(what: &Happening) -> String {
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
    let few = TypeRules {
        max_tries: 1,
        ..TypeRules::default()
    };
    config.queues.types.insert("few".to_owned(), few);
    let node = Node::open(config).expect("it opens");
    let handle = node.handle();
    block_on(async {
        let mut events = handle.events(None).await.expect("it runs");
        live_through(&handle.queues(), &clock)
            .await
            .expect("it is all possible");
        for expected in TOLD {
            let Some(Heard::Event(event)) = events.next().await else {
                panic!("nothing is lost");
            };
            assert_eq!(
                (event.actor, told(&event.what).as_str()),
                ("queue", *expected)
            );
        }
    });
}
