//! Random steps for the tests of the queue rules: messages, clients that connect and disconnect, and the passage of
//! time. Also contains the rules of the types that the steps use.

use crate::actors::binding::{Binding, EndNotice, Exit, Until};
use crate::actors::queue::{
    AnyType, Backoff, Body, Claimant, Class, Command, DedupKey, JobEnd, KeepResult, Message, Order,
    Pop, Progress, Put, QueueName, ResultRules, Right, Root, Rules, SharedRules, TenantRules,
    TypeRules, Worker,
};
use crate::ids::ProcessId;
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Message),
    /// Send a message about a job. Its id is not a job id, but the position of an existing job, or of none.
    About(Message, Authority),
    Wait(Pop),
    Attend(QueueName, Vec<QueueName>),
    /// Remove one of the waiting or present clients.
    Leave(usize),
    Pass(u64),
    /// Step the wall clock by this many milliseconds.
    Wall(i64),
    /// Restart the server, skipping this many sequence numbers.
    Start(u64),
    /// Begin a checkpoint, or continue one.
    Checkpoint,
    /// Build a new machine from the latest snapshot and the log entries after it.
    Reload,
}

/// The right that a message about a job presents.
#[derive(Clone, Copy, Debug)]
pub(super) enum Authority {
    /// The right of its claimant.
    Claimant,
    /// The right of this worker, whether or not the worker claimed the job.
    Worker(u64),
    /// The current token minus this number.
    Stale(u64),
    Nobody,
}

/// Returns rules with limits that are low enough to be reached.
pub(super) fn rules(order: Order) -> Rules {
    let default = TypeRules {
        order,
        claim_ttl_ms: 3000,
        max_tries: 0,
        backoff: None,
        ..TypeRules::default()
    };
    let backoff = Some(Backoff { first_ms: 1000, factor: 3, max_ms: 4000, jitter_milli: 250 });
    let few = TypeRules {
        max_tries: 2,
        tube_max_tries: 3,
        crash_tries: 0,
        backoff,
        prune_ms: 9000,
        rank: 7,
        ..default.clone()
    };
    let forever = TypeRules { claim_ttl_ms: 0, backoff, prune_ms: 15_000, ..default.clone() };
    let closed = TypeRules { read_only: Some("it moves".to_owned()), ..default.clone() };
    let tube = TypeRules { crash_tries: 1, tube_crash_tries: 2, ..default.clone() };
    let memory = TypeRules { class: Class::Memory, max_tries: 3, ..default.clone() };
    let once = TypeRules { retries: false, in_any: false, ..default.clone() };
    let same = TypeRules { dedup: true, ..default.clone() };
    let slow = TypeRules { throttle_milli: 500, backoff, ..default.clone() };
    let types = [
        ("few", few),
        ("forever", forever),
        ("closed", closed),
        ("memory", memory),
        ("once", once),
        ("same", same),
        ("slow", slow),
        ("tube", tube),
    ];
    Rules {
        jobs_max: 9,
        bytes_max: 700,
        queues_max: 5,
        body_bytes_max: 300,
        roots_max: 3,
        default,
        types: types.map(|(name, rules)| (name.to_owned(), rules)).into(),
        across: across(),
    }
}

fn across() -> SharedRules {
    SharedRules {
        tenants: [("t".to_owned(), TenantRules { weight: 3 })].into(),
        results: ResultRules { count_max: 3, bytes_max: 800 },
        keys_max: 3,
        part: 2,
    }
}

fn queue() -> impl Strategy<Value = QueueName> {
    const NAMES: &[&str] = &[
        "a", "a", "a", "b", "few", "few", "t:few", "t:a", "u:slow", "forever", "closed", "once",
        "memory", "same", "slow", "slow", "tube", "tube",
    ];
    prop::sample::select(NAMES)
        .prop_map(|name| QueueName::parse(name.as_bytes()).expect("the name should be valid"))
}

/// Generates the name of a queue whose jobs have few tries.
fn few() -> impl Strategy<Value = QueueName> {
    let names = prop::sample::select(&["few", "t:few"][..]);
    names.prop_map(|name| QueueName::parse(name.as_bytes()).expect("the name should be valid"))
}

/// Generates one of a few spans in milliseconds, so that deadlines coincide, or one that never ends.
fn span() -> impl Strategy<Value = u64> {
    prop::sample::select(&[0, 0, 0, 1000, 1000, 2000, 4000, u64::MAX][..])
}

fn priority() -> impl Strategy<Value = u32> {
    prop::sample::select(&[0, 1, 1, 1023, 1024, u32::MAX][..])
}

fn claimant() -> impl Strategy<Value = Claimant> {
    prop_oneof![
        3 => (1u64..4).prop_map(|worker| Claimant::Worker(Worker(worker))),
        2 => Just(Claimant::Bearer),
        2 => binding().prop_map(Claimant::Process),
    ]
}

/// Generates one of a few processes, and whether a claim bound to it ends with the process or with its whole tree.
fn process() -> impl Strategy<Value = (ProcessId, Until)> {
    let until = prop::sample::select(&[Until::Process, Until::Tree][..]);
    ((1u128..4).prop_map(ProcessId), until)
}

fn notice() -> impl Strategy<Value = EndNotice> {
    let exit = prop::sample::select(
        &[
            None,
            Some(Exit::Code(0)),
            Some(Exit::Code(3)),
            Some(Exit::Signal(9)),
            Some(Exit::Lost),
            Some(Exit::Failed),
        ][..],
    );
    let pid = prop::option::of(1u32..3);
    (process(), exit, pid).prop_map(|((process, until), exit, pid)| EndNotice {
        process,
        until,
        exit,
        pid,
    })
}

fn binding() -> impl Strategy<Value = Binding> {
    (process(), any::<bool>()).prop_map(|((process, until), fence)| Binding {
        process,
        until,
        fence: fence && until == Until::Tree,
    })
}

fn pop() -> impl Strategy<Value = Pop> {
    // Lists may be empty, and may name a queue repeatedly.
    let queues = prop::collection::vec(queue(), 0..5);
    let weights = prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec(0u32..4, 1..5),
    ];
    let ttr = prop::sample::select(&[0, 0, 0, 1000, 2500][..]);
    (queues, weights, claimant(), ttr).prop_map(|(queues, weights, by, ttr_ms)| Pop {
        queues: queues.into(),
        weights: weights.into(),
        by,
        waits: false,
        ticket: None,
        ttr_ms,
        any: None,
    })
}

/// Generates a claim from the tenant whose turn it is.
fn turn() -> impl Strategy<Value = Pop> {
    let kinds = || {
        let kind = queue().prop_map(|it| String::from_utf8_lossy(it.kind()).into_owned());
        prop_oneof![
            1 => Just(Vec::new()),
            1 => prop::collection::vec(kind, 1..4),
        ]
    };
    let tenant = prop::sample::select(&["", "t", "none"][..]).prop_map(str::to_owned);
    let any = (prop::option::weighted(0.2, tenant), kinds(), kinds());
    (pop(), any).prop_map(|(pop, (tenant, except, types))| Pop {
        queues: [].into(),
        weights: [].into(),
        any: Some(Arc::new(AnyType { tenant, except, types })),
        ..pop
    })
}

fn root() -> impl Strategy<Value = Root> {
    (0u8..4, 1u64..4).prop_map(|(key, at)| Root { key: DedupKey([key; 20]), at })
}

fn put() -> impl Strategy<Value = Put> {
    let key = prop::option::weighted(0.3, (0u8..2).prop_map(|key| DedupKey([key; 20])));
    let len = prop::sample::select(&[0, 1, 8, 8, 8, 200, 201, 300, 301][..]);
    let urgency = (priority(), span(), span());
    let more = (
        prop::bool::weighted(0.8),
        prop::option::weighted(0.3, root()),
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::sample::select(&[0, 0, 0, 1, 3][..]),
        prop::sample::select(&[0, 0, 0, 0, 1500, 6000][..]),
    );
    let put = (queue(), urgency, key, len, more);
    put.prop_map(
        |(
            queue,
            (priority, delay_ms, ttr_ms),
            dedup,
            len,
            (retries, root, is_root, tube, items, unique_for_ms),
        )| Put {
            queue,
            priority,
            delay_ms,
            ttr_ms,
            dedup,
            retries,
            root,
            is_root,
            tube,
            items,
            unique_for_ms,
            body: Body::new(vec![b'x'; len]),
        },
    )
}

fn about() -> impl Strategy<Value = Message> {
    let (id, by) = (0u64..12, Right::Unclaimed);
    let changed = (prop::option::of(priority()), span());
    let parts = (id, 0..46, claimant(), binding(), changed);
    parts.prop_map(move |(id, kind, claimant, to, (priority, delay_ms))| match kind {
        0..3 => Message::Delete { id, by },
        3..11 => Message::Release { id, by, priority, delay_ms },
        11..13 => Message::Bury { id, by, priority },
        13 => Message::Touch { id, by },
        14..24 => Message::Fail {
            id,
            by,
            retry_after_ms: priority.map(|_| delay_ms),
            error: (delay_ms > 0).then(|| "it is broken".to_owned().into()),
            crashed: kind >= 19,
        },
        24..26 => Message::PopJob { id, by: claimant },
        26 => Message::KickJob { id },
        27..29 => Message::Defer {
            id,
            by,
            error: (delay_ms > 0).then(|| "not now".to_owned().into()),
            retry_after_ms: priority.map(|_| delay_ms),
            interrupted: kind == 28,
        },
        29..31 => Message::Report {
            id,
            by,
            progress: Progress {
                percent: priority.map(|_| 40),
                text: (delay_ms > 0).then(|| "half of it".to_owned().into()),
            },
        },
        31..34 => Message::Bind { id, by, to },
        34..37 => Message::KeepResult(Box::new(KeepResult {
            id,
            by,
            ms: delay_ms,
            end: JobEnd {
                done: priority.is_none(),
                exit: priority.map(|_| 1),
                error: (delay_ms > 0).then(|| "it is broken".to_owned().into()),
                output: Body::new(vec![b'y'; 100 * (id % 3) as usize]).into(),
                took_ms: id,
            },
        })),
        39..44 => Message::Attach {
            id,
            by,
            command: Command { process: to.process, completes: priority.is_some() },
            ttr_ms: delay_ms.min(4000),
        },
        _ => Message::Cancel {
            id,
            error: (delay_ms > 0).then(|| "nobody wants it".to_owned().into()),
        },
    })
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        24 => put().prop_map(Message::Put),
        4 => prop::collection::vec(put(), 0..5).prop_map(Message::Batch),
        2 => root().prop_map(Message::Register),
        9 => pop().prop_map(Message::Pop),
        5 => turn().prop_map(Message::Pop),
        3 => (queue(), 0u32..6).prop_map(|(queue, count)| Message::Kick { queue, count }),
        6 => (few(), 0u32..6).prop_map(|(queue, count)| Message::Repush { queue, count }),
        3 => (queue(), span()).prop_map(|(queue, ms)| Message::Pause { queue, ms }),
        1 => queue().prop_map(|queue| Message::Flush { queue }),
        1 => Just(Message::Spoil),
        3 => notice().prop_map(Message::Gone),
        2 => (1u64..4).prop_map(|worker| Message::Depart { worker: Worker(worker) }),
    ]
}

fn whose() -> impl Strategy<Value = Authority> {
    prop_oneof![
        6 => Just(Authority::Claimant),
        1 => (1u64..4).prop_map(Authority::Worker),
        1 => (0u64..20).prop_map(Authority::Stale),
        1 => Just(Authority::Nobody),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        24 => message().prop_map(Step::Send),
        16 => (about(), whose()).prop_map(|(message, whose)| Step::About(message, whose)),
        4 => pop().prop_map(Step::Wait),
        3 => turn().prop_map(Step::Wait),
        2 => (queue(), prop::collection::vec(queue(), 0..3))
            .prop_map(|(using, watching)| Step::Attend(using, watching)),
        2 => (0usize..9).prop_map(Step::Leave),
        // Whole seconds, so that deadlines coincide, and other intervals, so that they do not.
        8 => (0u64..3).prop_map(|seconds| Step::Pass(seconds * 1000)),
        2 => (0u64..12_000).prop_map(Step::Pass),
        1 => Just(Step::Pass(14 * 24 * 3_600_000)),
        2 => prop_oneof![Just(-3_600_000), Just(3_600_000), -9000_i64..9000].prop_map(Step::Wall),
        1 => (0u64..3).prop_map(Step::Start),
        12 => Just(Step::Checkpoint),
        1 => Just(Step::Reload),
    ];
    // A drain refuses new jobs until a restart, so it happens after most of the steps, if at all.
    (prop::collection::vec(step.clone(), 0..150), prop::collection::vec(step, 0..20)).prop_map(
        |(mut steps, late)| {
            if !late.is_empty() {
                steps.push(Step::Send(Message::Drain));
                steps.extend(late);
            }
            steps
        },
    )
}

pub(super) fn order() -> impl Strategy<Value = Order> {
    prop::sample::select(
        &[Order::Priority, Order::Priority, Order::Fifo, Order::Timestamp, Order::Random][..],
    )
}
