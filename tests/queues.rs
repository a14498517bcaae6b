//! Queues of a node inside the program: claims by token, waiting, time moved by hand, and what a restart keeps.

use sexton::actors::event::Field;
use sexton::actors::feed::Heard;
use sexton::actors::queue::{Body, Put, QueueName, Refused, TypeRules};
use sexton::clock::ManualClock;
use sexton::node::{Added, QueueError};
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
    let (handle, queues) = (node.handle(), node.handle().queues());
    let said = block_on(async {
        let mut events = handle.events(None).await.expect("it runs");
        let [q, few] = ["q", "few"].map(queue);
        let put = |put| queues.put(put);
        put(job("q", "a")).await.expect("it is added");
        let delayed = Put {
            delay_ms: 1000,
            ..job("q", "b")
        };
        put(delayed).await.expect("it is added");
        let claim = queues.pop(std::slice::from_ref(&q)).await;
        let token = claim.expect("it is asked").expect("there is one").token;
        queues.fail(1, token, Some(500)).await.expect("it has it");
        clock.advance(Duration::from_millis(500));
        clock.advance(Duration::from_millis(500));
        let claim = queues.pop(std::slice::from_ref(&q)).await;
        let token = claim.expect("it is asked").expect("there is one").token;
        queues.touch(1, token).await.expect("it has it");
        queues.bury(1, token).await.expect("it has it");
        queues.kick(&q, 9).await.expect("one is buried");
        queues.delete(1).await.expect("nobody has it");
        let claim = queues.pop(std::slice::from_ref(&q)).await;
        let token = claim.expect("it is asked").expect("there is one").token;
        queues.release(2, token, 0).await.expect("it has it");
        queues.pause(&q, 60_000).await.expect("it is there");
        queues.pause(&q, 0).await.expect("it is there");
        queues.flush(&q).await.expect("one is there");
        let once = Put {
            retries: false,
            ..job("few", "c")
        };
        put(once).await.expect("it is added");
        put(job("few", "d")).await.expect("it is added");
        for _ in 0..2 {
            let claim = queues.pop(std::slice::from_ref(&few)).await;
            claim.expect("it is asked").expect("there is one");
        }
        clock.advance(Duration::from_secs(3601));
        clock.advance(Duration::from_secs(604_801));
        queues.totals().await.expect("it runs");
        let mut said = Vec::new();
        while said.last().is_none_or(|said| said != "pruned few 4") {
            let Some(Heard::Event(event)) = events.next().await else {
                panic!("nothing is lost");
            };
            assert_eq!(event.actor, "queue");
            let field = |(name, field): &(&str, Field)| match field {
                Field::Name(name) => String::from_utf8_lossy(name).into_owned(),
                Field::Number(number) if *name == "job" => number.to_string(),
                Field::Number(number) if *name == "token" => {
                    assert!(*number > 0);
                    "with a token".to_owned()
                }
                Field::Number(_) if name.ends_with("_at") || *name == "until" => "later".to_owned(),
                Field::Number(number) => format!("{name}={number}"),
                Field::Text(text) => text.clone(),
            };
            let fields: Vec<String> = event.what.fields.iter().map(field).collect();
            said.push(format!("{} {}", event.what.kind, fields.join(" ")));
        }
        said
    });
    let expected = [
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
    assert_eq!(said, expected);
}
