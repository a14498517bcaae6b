//! Queues of a node inside the program: claims by token, waiting, time moved by hand, and what a restart keeps.

use sexton::actors::queue::{Body, Put, QueueName, Refused};
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
