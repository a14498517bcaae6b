//! Requests about many items, on a host alone: others are served between their parts, and repetitions are not carried out beside them.
//! (The campaign has such requests between crashes, but begins no other delivery between their parts.)

use sexton::actors::lock::{LockMachine, Message, Name, Query, Reply, Rules};
use sexton::actors::queue::{self, Body, Put, QueueMachine, QueueName, SharedRules};
use sexton::clock::{ManualClock, Timestamp};
use sexton::ids::{RequestKey, Seq};
use sexton::persist::journal::Tail;
use sexton::persist::mark::Marked;
use sexton::spine::delivery::{Delivery, Flow, Item};
use sexton::spine::host::Host;
use sexton::spine::ledger::Ledger;
use sexton::spine::machine::Actor;
use sexton::spine::recovery::Replica;
use std::sync::{Arc, Mutex};

const PART: u32 = 8;

/// A host, and the answers that it has given, each with the name of its delivery.
struct Served<M: Actor> {
    host: Host<M>,
    ledger: Ledger,
    answered: Arc<Mutex<Vec<(&'static str, M::Reply)>>>,
}

impl<M: Actor> Served<M> {
    fn new(rules: M::Rules) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        Self {
            host: Host::new(Replica::<M>::new(rules).into_parts()),
            ledger: Ledger::new(clock, &Tail::default(), Marked::default(), true),
            answered: Arc::default(),
        }
    }

    fn deliver(&mut self, name: &'static str, items: Vec<Item<M>>) {
        let answered = Arc::clone(&self.answered);
        let reply_to = Box::new(move |answers: Vec<Result<M::Reply, _>>| {
            let replies = answers.into_iter().flatten().map(|reply| (name, reply));
            answered.lock().expect("no panic").extend(replies);
        });
        let flow = self
            .host
            .deliver(&mut self.ledger, Delivery::new(items, reply_to));
        assert!(matches!(flow, Flow::Done), "{flow:?}");
        self.host.outbox().release(Seq(u64::MAX));
    }

    fn carry_on(&mut self) {
        let flow = self.host.carry_on(&mut self.ledger);
        assert!(matches!(flow, Flow::Done), "{flow:?}");
        self.host.outbox().release(Seq(u64::MAX));
    }

    fn answers(&self) -> Vec<(&'static str, String)> {
        let mut answered = self.answered.lock().expect("no panic");
        let all = answered.drain(..);
        all.map(|(name, reply)| (name, format!("{reply:?}")))
            .collect()
    }
}

fn name(text: &str) -> Name {
    Name::try_from(text).expect("a short name")
}

fn request(key: &str, owner: &str) -> Item<LockMachine> {
    Item::Message(Message::Request {
        key: name(key),
        index: name(""),
        owner: name(owner),
        ttl: 60,
        ttw: 60,
        priority: 0,
    })
}

fn release_all(owner: &str, key: u128) -> Item<LockMachine> {
    let owner = name(owner);
    let key = RequestKey {
        id: key,
        fingerprint: 1,
    };
    Item::once(Message::ReleaseAll { owner }, Some(key))
}

fn locks() -> Served<LockMachine> {
    let rules = Rules {
        part: PART,
        ..Rules::default()
    };
    let mut served = Served::new(rules);
    for number in 0..100 {
        served.deliver("request", vec![request(&format!("k{number}"), "many")]);
    }
    served.answers();
    served
}

#[test]
fn others_are_served_between_the_parts_of_a_release_of_everything() {
    let mut served = locks();
    // What comes after it in the same delivery waits for it.
    let counts = Item::Query(Query::Counts);
    served.deliver("all", vec![release_all("many", 1), counts]);
    assert!(served.host.has_parked());
    let mut parts = 1;
    while served.host.has_parked() {
        assert_eq!(served.answers(), []);
        served.deliver("other", vec![request(&format!("x{parts}"), "other")]);
        // The owner may request locks meanwhile. They are not what it released.
        served.deliver("own", vec![request(&format!("y{parts}"), "many")]);
        let answers = served.answers();
        let names: Vec<&str> = answers.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["other", "own"], "they need not wait");
        served.carry_on();
        parts += 1;
    }
    assert_eq!(parts, 100_u32.div_ceil(PART));
    let added = 2 * (parts - 1);
    let counted = format!(
        "{:?}",
        Reply::Counts {
            owners: added,
            contenders: 0
        }
    );
    assert_eq!(
        served.answers(),
        [
            ("all", format!("{:?}", Reply::Ended(100))),
            ("all", counted)
        ]
    );
}

#[test]
fn a_repetition_waits_for_the_request_and_gets_its_answer() {
    let mut served = locks();
    served.deliver("first", vec![release_all("many", 1)]);
    served.deliver("again", vec![release_all("many", 1)]);
    served.deliver("other", vec![release_all("nobody", 2)]);
    assert_eq!(
        served.answers(),
        [("other", format!("{:?}", Reply::Absent))]
    );
    let mut parts = 1;
    while served.host.has_parked() {
        served.carry_on();
        parts += 1;
    }
    // One more for the repetition.
    assert_eq!(parts, 100_u32.div_ceil(PART) + 1);
    let all = format!("{:?}", Reply::Ended(100));
    assert_eq!(
        served.answers(),
        [("first", all.clone()), ("again", all.clone())]
    );
    served.deliver("late", vec![release_all("many", 1)]);
    assert_eq!(served.answers(), [("late", all)]);
}

#[test]
fn jobs_that_are_added_during_a_flush_stay() {
    let rules = queue::Rules {
        across: SharedRules {
            part: PART,
            ..SharedRules::default()
        },
        ..queue::Rules::default()
    };
    let mut served = Served::<QueueMachine>::new(rules);
    let named = |text: &str| QueueName::parse(text.as_bytes()).expect("a valid name");
    let put = |queue: &str| {
        let put = Put::new(named(queue), Body::new(b"x".to_vec()));
        Item::Message(queue::Message::Put(put))
    };
    // Those of another queue are in between.
    for _ in 0..100 {
        served.deliver("put", vec![put("q"), put("other"), put("other")]);
    }
    served.answers();
    served.deliver(
        "flush",
        vec![Item::Message(queue::Message::Flush { queue: named("q") })],
    );
    let mut parts = 1;
    while served.host.has_parked() {
        served.deliver("put", vec![put("q")]);
        assert_eq!(served.answers().len(), 1);
        served.carry_on();
        parts += 1;
    }
    assert!(parts >= 100_u32.div_ceil(PART));
    let flushed = format!("{:?}", queue::Reply::Count(100));
    assert_eq!(served.answers(), [("flush", flushed)]);
    let kick = queue::Message::Flush { queue: named("q") };
    served.deliver("flush", vec![Item::Message(kick)]);
    while served.host.has_parked() {
        served.carry_on();
    }
    let flushed = format!("{:?}", queue::Reply::Count(parts - 1));
    assert_eq!(served.answers(), [("flush", flushed)]);
}
