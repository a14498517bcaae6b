//! Requests about many items, on a host alone: others are served between their parts, and repetitions are not carried out beside them.
//! (The campaign has such requests between crashes, but begins no other delivery between their parts.)

use crate::counter::PLANTED;
use sexton::actors::lock::{LockMachine, Message, Name, Query, Refused, Reply, Rules};
use sexton::actors::queue::{self, Body, Put, QueueMachine, QueueName, SharedRules};
use sexton::clock::{ManualClock, Timestamp};
use sexton::ids::{RequestKey, Seq, Token};
use sexton::persist::journal::Tail;
use sexton::persist::mark::Marked;
use sexton::spine::delivery::{Answer, Delivery, Flow, Item, Stage};
use sexton::spine::effect::Action;
use sexton::spine::host::Host;
use sexton::spine::ledger::Ledger;
use sexton::spine::machine::{Actor, Machine};
use sexton::spine::port::Port;
use sexton::spine::recovery::Replica;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const PART: u32 = 8;

/// A host, and the answers that it has given, each with the name of its delivery.
pub(crate) struct Served<M: Actor> {
    pub(crate) host: Host<M>,
    pub(crate) ledger: Ledger,
    answered: Arc<Mutex<Vec<NamedAnswer<M>>>>,
}

/// An answer, with the name of its delivery.
type NamedAnswer<M> = (&'static str, Answer<<M as Machine>::Reply>);

/// A port that performs nothing.
struct Idle;

impl<M: Actor> Port<M> for Idle {
    fn perform(&mut self, _: Action<M::Action>) {}
}

impl<M: Actor> Served<M> {
    pub(crate) fn new(rules: M::Rules) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        let host = Host::new(Replica::<M>::new(rules).into_parts());
        host.outbox().set_port(Box::new(Idle));
        Self {
            host,
            ledger: Ledger::new(clock, &Tail::default(), Marked::default(), true),
            answered: Arc::default(),
        }
    }

    pub(crate) fn deliver(&mut self, name: &'static str, items: Vec<Item<M>>) {
        let answered = Arc::clone(&self.answered);
        let reply_to = Box::new(move |answers: Vec<Answer<M::Reply>>| {
            let answers = answers.into_iter().map(|answer| (name, answer));
            answered.lock().expect("no panic").extend(answers);
        });
        let flow = self.host.deliver(&mut self.ledger, Delivery::new(items, reply_to));
        assert!(matches!(flow, Flow::Done), "{flow:?}");
        self.host.outbox().release(Seq(u64::MAX));
    }

    pub(crate) fn carry_on(&mut self) {
        let flow = self.host.carry_on(&mut self.ledger);
        assert!(matches!(flow, Flow::Done), "{flow:?}");
        self.host.outbox().release(Seq(u64::MAX));
    }

    /// Takes the answers.
    pub(crate) fn answers(&self) -> Vec<(&'static str, String)> {
        let mut answered = self.answered.lock().expect("no panic");
        let shown = |answer: Answer<M::Reply>| match answer {
            Ok(reply) => format!("{reply:?}"),
            Err(failed) => format!("{failed:?}"),
        };
        let all = answered.drain(..);
        all.map(|(name, answer)| (name, shown(answer))).collect()
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
    let key = RequestKey { id: key, fingerprint: 1 };
    Item::once(Message::ReleaseAll { owner }, Some(key))
}

fn locks() -> Served<LockMachine> {
    let rules = Rules { part: PART, ..Rules::default() };
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
    let counted = format!("{:?}", Reply::Counts { owners: added, contenders: 0 });
    assert_eq!(served.answers(), [("all", format!("{:?}", Reply::Ended(100))), ("all", counted)]);
}

#[test]
fn a_repetition_waits_for_the_request_and_gets_its_answer() {
    let mut served = locks();
    served.deliver("first", vec![release_all("many", 1)]);
    served.deliver("again", vec![release_all("many", 1)]);
    served.deliver("other", vec![release_all("nobody", 2)]);
    assert_eq!(served.answers(), [("other", format!("{:?}", Reply::Absent))]);
    let mut parts = 1;
    while served.host.has_parked() {
        served.carry_on();
        parts += 1;
    }
    // One more for the repetition.
    assert_eq!(parts, 100_u32.div_ceil(PART) + 1);
    let all = format!("{:?}", Reply::Ended(100));
    assert_eq!(served.answers(), [("first", all.clone()), ("again", all.clone())]);
    served.deliver("late", vec![release_all("many", 1)]);
    assert_eq!(served.answers(), [("late", all)]);
}

#[test]
fn a_request_of_which_a_part_panics_says_so_and_a_repetition_does_the_rest() {
    let mut served = locks();
    let panicked = AtomicBool::new(false);
    served.host.inject_panics(Box::new(move |stage, message| {
        let is_third =
            matches!(message, Some(Message::EndMore(more)) if more.part.ended == 2 * PART);
        let is_now = stage == Stage::Decide && is_third;
        assert!(!is_now || panicked.swap(true, Ordering::Relaxed), "{PLANTED} in a part");
    }));
    served.deliver("all", vec![release_all("many", 1)]);
    served.carry_on();
    // A repetition that has come by then is for the rest, too.
    served.deliver("again", vec![release_all("many", 1)]);
    assert_eq!(served.answers(), []);
    let flow = served.host.carry_on(&mut served.ledger);
    assert!(matches!(flow, Flow::Panicked(_)), "{flow:?}");
    let flow = served.host.proceed(&mut served.ledger);
    assert!(matches!(flow, Flow::Done), "{flow:?}");
    served.host.outbox().release(Seq(u64::MAX));
    // Nothing more is done for it.
    assert_eq!(served.answers(), [("all", "Interrupted".to_owned())]);
    while served.host.has_parked() {
        served.carry_on();
    }
    let rest = format!("{:?}", Reply::Ended(100 - 2 * PART));
    assert_eq!(served.answers(), [("again", rest.clone())]);
    served.deliver("late", vec![release_all("many", 1)]);
    assert_eq!(served.answers(), [("late", rest)]);
}

#[test]
fn a_wrong_token_changes_nothing_however_many_entries_there_are() {
    let rules = Rules { part: PART, ..Rules::default() };
    let mut served = Served::<LockMachine>::new(rules);
    let release = |token: u64| {
        Item::Message(Message::Release {
            key: name("k"),
            index: None,
            owner: name("many"),
            token: Some(Token(token)),
        })
    };
    let request = |index: u32| {
        Item::Message(Message::Request {
            key: name("k"),
            index: name(&index.to_string()),
            owner: name("many"),
            ttl: 60,
            ttw: 60,
            priority: 0,
        })
    };
    (0..20).for_each(|index| served.deliver("request", vec![request(index)]));
    served.answers();
    // Each of these tokens is that of at most one entry.
    for token in 1..40 {
        served.deliver("release", vec![release(token)]);
        while served.host.has_parked() {
            served.carry_on();
        }
        let stale = format!("{:?}", Reply::Refused(Refused::StaleToken));
        assert_eq!(served.answers(), [("release", stale)], "{token}");
    }
    let counts = served.host.machine().query(served.ledger.both(), &Query::Counts);
    assert!(matches!(counts, Reply::Counts { owners: 20, .. }), "{counts:?}");
}

#[test]
fn jobs_that_are_added_during_a_flush_stay() {
    let rules = queue::Rules {
        across: SharedRules { part: PART, ..SharedRules::default() },
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
    served.deliver("flush", vec![Item::Message(queue::Message::Flush { queue: named("q") })]);
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
