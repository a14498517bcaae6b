//! Every request about many items is carried out in parts, and others are served in between: a table over the requests of all actors. For
//! each, the items that an outcome changes are counted, by queries before and after it.

#![expect(clippy::wildcard_enum_match_arm, reason = "each query has one kind of reply")]

use crate::parts::Served;
use sexton::actors::binding::{Binding, EndNotice, Exit, Until};
use sexton::actors::lease::{self, Claim, LeaseMachine, PassRequest};
use sexton::actors::lock::{self, LockMachine, Name, Tie};
use sexton::actors::process::{
    self, LaunchAs, Launching, Parentage, ProcessMachine, Spec, Stop, Tags,
};
use sexton::actors::queue::{
    self, Body, Claimant, Counts, Pop, Put, QueueMachine, QueueName, SharedRules, Worker,
};
use sexton::ids::{ActorId, ProcessId};
use sexton::spine::delivery::Item;
use sexton::spine::machine::{Actor, Machine, Now};

/// The number of items that each request is about.
const MANY: u32 = 100;

/// The maximum number of items that one outcome may change.
const PART: u32 = 8;

/// A function that sends the request to a machine whose rules have this maximum, and returns the number of outcomes.
type Run = fn(u32) -> Result<u32, String>;

const REQUESTS: &[(&str, Run)] = &[
    ("lock: release all", |part| {
        let owner = name("many");
        locks(part, &lock::Message::ReleaseAll { owner })
    }),
    ("lock: release a key", |part| {
        let release = lock::Message::Release {
            key: name("k"),
            index: None,
            owner: name("many"),
            token: None,
        };
        locks(part, &release)
    }),
    ("lock: a process is gone", |part| locks(part, &lock::Message::Gone(gone()))),
    ("queue: flush", |part| {
        let queue = queue_name("q");
        jobs(part, &[], &queue::Message::Flush { queue }, Counts::all)
    }),
    ("queue: kick", |part| {
        let kick = queue::Message::Kick { queue: queue_name("q"), count: u32::MAX };
        jobs(part, &[cancel], &kick, |it| it.abandoned)
    }),
    ("queue: repush", |part| {
        let repush = queue::Message::Repush { queue: queue_name("q"), count: u32::MAX };
        jobs(part, &[cancel], &repush, |it| it.abandoned)
    }),
    ("queue: a client disconnects", |part| {
        let worker = Worker(7);
        let pop = |_| pop(Claimant::Worker(Worker(7)));
        jobs(part, &[pop], &queue::Message::Depart { worker }, |it| it.claimed)
    }),
    ("queue: a process is gone", |part| {
        let pop = |nth| pop(Claimant::Process(binding(nth)));
        jobs(part, &[pop], &queue::Message::Gone(gone()), |it| it.claimed)
    }),
    ("process: stop a tree", |part| {
        let stop = process::Message::Stop { id: ROOT, signal: None, grace_ms: None, tree: true };
        processes(part, &stop)
    }),
    ("process: fence", |part| processes(part, &process::Message::Fence(ROOT))),
    ("lease: a process is gone", |part| leases(part, &lease::Message::Gone(gone()))),
];

/// The process that many rights are bound to, and the root of a tree.
const ROOT: ProcessId = ProcessId(1 << 64);

fn name(text: &str) -> Name {
    Name::try_from(text).expect("a short name")
}

fn queue_name(text: &str) -> QueueName {
    QueueName::parse(text.as_bytes()).expect("a valid name")
}

fn gone() -> EndNotice {
    EndNotice { process: ROOT, until: Until::Tree, exit: Some(Exit::Code(0)), pid: None }
}

fn binding(nth: u32) -> Binding {
    let until = if nth.is_multiple_of(2) { Until::Process } else { Until::Tree };
    Binding { process: ROOT, until, fence: false }
}

/// Delivers a request, and then, whenever others have their turn, a request of another client. Returns the number of outcomes; an error if
/// one of them changes too many items, or if the other client has to wait.
fn carry_out<M>(
    mut served: Served<M>,
    request: M::Message,
    other: impl Fn(u32) -> M::Message,
    count: impl Fn(&M, Now) -> u32,
) -> Result<u32, String>
where
    M: Actor + Machine,
{
    served.answers();
    let counted = |served: &mut Served<M>| count(served.host.machine(), served.ledger.both());
    let mut before = counted(&mut served);
    served.deliver("request", vec![Item::Message(request)]);
    let (mut outcomes, mut changed) = (0, 0);
    loop {
        outcomes += 1;
        let now = before.abs_diff(counted(&mut served));
        if now > PART {
            return Err(format!("outcome {outcomes} changes {now} items"));
        }
        changed += now;
        if !served.host.has_parked() {
            break;
        }
        served.deliver("other", vec![Item::Message(other(outcomes))]);
        let names: Vec<_> = served.answers().into_iter().map(|(name, _)| name).collect();
        if names != ["other"] {
            return Err(format!("after outcome {outcomes}, these have answers: {names:?}"));
        }
        before = counted(&mut served);
        served.carry_on();
    }
    if changed != MANY {
        return Err(format!("{changed} items are changed in all"));
    }
    Ok(outcomes)
}

fn locks(part: u32, request: &lock::Message) -> Result<u32, String> {
    let acquire = |index: &str, owner: &str, tie: Tie| lock::Message::Acquire {
        key: name("k"),
        index: name(index),
        owner: name(owner),
        ttl: 600,
        ttw: 600,
        priority: 0,
        tie,
        waits: false,
    };
    let rules = lock::Rules { part, ..lock::Rules::default() };
    let mut served = Served::<LockMachine>::new(rules);
    for nth in 0..MANY {
        // Locks of others under the same key, for some of which it waits.
        if nth.is_multiple_of(3) {
            let others = acquire(&nth.to_string(), "other", Tie::None);
            served.deliver("others", vec![Item::Message(others)]);
        }
        let acquire = acquire(&nth.to_string(), "many", Tie::Process(binding(nth)));
        served.deliver("acquire", vec![Item::Message(acquire)]);
    }
    let other = |nth| acquire(&format!("x{nth}"), "other", Tie::None);
    carry_out(served, request.clone(), other, |machine, now| {
        match machine.query(now, &lock::Query::Counts) {
            lock::Reply::Counts { owners, contenders } => owners + contenders,
            reply => panic!("{reply:?}"),
        }
    })
}

fn cancel(nth: u32) -> queue::Message {
    queue::Message::Cancel { id: u64::from(nth) + 1, error: None }
}

fn pop(by: Claimant) -> queue::Message {
    queue::Message::Pop(Pop {
        queues: [queue_name("q")].into(),
        by,
        waits: false,
        ticket: None,
        weights: [].into(),
        ttr_ms: 0,
        any: None,
    })
}

/// Adds jobs, sends each of these messages for each of them, and then the request.
fn jobs(
    part: u32,
    before: &[fn(u32) -> queue::Message],
    request: &queue::Message,
    count: fn(&Counts) -> u32,
) -> Result<u32, String> {
    let rules = queue::Rules {
        across: SharedRules { part, ..SharedRules::default() },
        ..queue::Rules::default()
    };
    let mut served = Served::<QueueMachine>::new(rules);
    let put = |queue: &str| {
        let put = Put::new(queue_name(queue), Body::new(b"x".to_vec()));
        queue::Message::Put(put)
    };
    for _ in 0..MANY {
        served.deliver("put", vec![Item::Message(put("q"))]);
    }
    for message in before {
        for nth in 0..MANY {
            served.deliver("before", vec![Item::Message(message(nth))]);
        }
    }
    carry_out(
        served,
        request.clone(),
        |_| put("other"),
        |machine, now| match machine.query(now, &queue::Query::Totals) {
            queue::Reply::Totals(totals) => count(&totals.jobs),
            reply => panic!("{reply:?}"),
        },
    )
}

/// Launches a tree of [`MANY`] processes, some of which are children of others.
fn processes(part: u32, request: &process::Message) -> Result<u32, String> {
    let launch = |id: u32, parent: Option<u32>| {
        let id_of = |nth: u32| ProcessId(ROOT.0 + u128::from(nth));
        let launching = Launching {
            spec: Spec { argv: vec![Body::new(b"/bin/true".to_vec())], ..Spec::default() },
            tags: Tags::default(),
            parentage: Parentage { named: parent.map(id_of), ..Parentage::default() },
            deferred: false,
        };
        process::Message::LaunchAs(Box::new(LaunchAs {
            by: ActorId::LEASE,
            id: id_of(id),
            launching,
        }))
    };
    let rules = process::Rules { part, ..process::Rules::default() };
    let mut served = Served::<ProcessMachine>::new(rules);
    for nth in 0..MANY {
        let launch = launch(nth, (nth > 0).then_some(nth / 5));
        served.deliver("launch", vec![Item::Message(launch)]);
    }
    let other = |nth| launch(MANY + nth, None);
    carry_out(served, request.clone(), other, |machine, now| {
        let is_stopped = |nth: &u32| {
            let id = ProcessId(ROOT.0 + u128::from(*nth));
            match machine.query(now, &process::Query::One(id)) {
                process::Reply::Record(record) => record.stop.is_some_and(|it: Stop| it.tree),
                reply => panic!("{reply:?}"),
            }
        };
        u32::try_from((0..MANY).filter(is_stopped).count()).expect("a small number")
    })
}

fn leases(part: u32, request: &lease::Message) -> Result<u32, String> {
    let claim = |name_of: String, process: Option<Binding>| {
        lease::Message::Request(Box::new(PassRequest {
            name: name(&name_of),
            claim: Some(Claim { process, ..Claim::default() }),
            ..PassRequest::default()
        }))
    };
    let rules = lease::Rules { part, ..lease::Rules::default() };
    let mut served = Served::<LeaseMachine>::new(rules);
    for nth in 0..MANY {
        let claim = claim(nth.to_string(), Some(binding(nth)));
        served.deliver("claim", vec![Item::Message(claim)]);
    }
    let other = |nth| claim(format!("x{nth}"), None);
    carry_out(served, request.clone(), other, |machine, now| {
        match machine.query(now, &lease::Query::Totals) {
            lease::Reply::Totals(totals) => u32::try_from(totals.running).expect("a small number"),
            reply => panic!("{reply:?}"),
        }
    })
}

#[test]
fn no_outcome_changes_many_items_and_others_are_served_in_between() {
    for (what, run) in REQUESTS {
        let outcomes = run(PART).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        assert!(outcomes >= MANY.div_ceil(PART), "{what}: {outcomes}");
    }
}

#[test]
fn a_machine_without_parts_is_found_out() {
    for (what, run) in REQUESTS {
        let found = run(u32::MAX).expect_err(what);
        assert!(found.contains("changes 100 items"), "{what}: {found}");
    }
}

#[test]
fn by_default_an_outcome_changes_at_most_512_items() {
    let parts = [
        lock::Rules::default().part,
        SharedRules::default().part,
        process::Rules::default().part,
        lease::Rules::default().part,
    ];
    assert_eq!(parts, [512; 4]);
}
