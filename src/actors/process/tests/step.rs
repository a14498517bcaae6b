//! The steps of the model test: few records, small limits, and messages in any order.

use crate::actors::binding::{Until, Watch};
use crate::actors::process::{
    Child, Definition, End, Failure, HookOutput, Identity, Launching, Lost, Message, Notice,
    Output, Parentage, Policy, Ready, Registering, Remains, Rules, ServiceMessage, Spec,
    Step as LaunchStep, Tags,
};
use crate::bytes::Bytes;
use crate::clock::{Date, Timestamp};
use crate::ids::{ActorId, ProcessId, Seq};
use crate::spine::supervision::{Backoff, Intensity};
use proptest::prelude::*;

pub(super) const BEGIN: Timestamp = Timestamp(1_000_000_000_000);

/// Returns limits that are small enough to be reached.
pub(super) fn rules() -> Rules {
    Rules { retention_ms: 20_000, records_max: 12, live_max: 8, bytes_max: 700, part: 2 }
}

/// A number that selects one of the existing records, or none of them.
pub(super) type RecordChoice = u8;

/// A step of a history.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A request about services.
    Serve(ServiceMessage),
    /// A message about the selected record.
    Send(RecordChoice, Message),
    /// The launch of a process. The selected record may be named as its parent, and the number determines the identities of the requester
    /// and its ancestors.
    Launch(RecordChoice, u8, Launching),
    /// A launch requested by the actor with this number, under either the id of an existing record or a new id.
    LaunchAs(u8, RecordChoice, Launching),
    Register(RecordChoice, u8, Registering),
    Pass(u64),
    Wall(i64),
    Hold(bool),
    Start,
    Reload,
    Checkpoint,
    Watch(RecordChoice, u8),
    Unwatch,
}

/// Returns one of a few identities. Many have the same PID, and differ only in inode, start time or machine.
pub(super) fn identity(number: u8) -> Identity {
    Identity {
        machine: u128::from(number / 12) + 7,
        boot: 1,
        namespace: 3,
        pid: u32::from(number % 3) + 100,
        inode: u64::from(number % 4),
        ticks: u64::from(number % 2) + 50,
    }
}

fn any_date() -> impl Strategy<Value = Date> + Clone {
    (0u64..40_000).prop_map(|ms| Date(BEGIN.0 - 10_000 + ms))
}

/// Generates a client's request. The id of the record is inserted later.
fn any_request() -> impl Strategy<Value = Message> {
    let id = ProcessId::default();
    let grace = prop_oneof![Just(None), Just(Some(0)), (1u32..8000).prop_map(Some)];
    prop_oneof![
        2 => (0u8..3).prop_map(move |code| Message::Finish { id, code, error: Some("no".to_owned()) }),
        5 => (prop::option::of(1u8..20), grace, prop::bool::weighted(0.75))
            .prop_map(move |(signal, grace_ms, tree)| Message::Stop { id, signal, grace_ms, tree }),
        3 => (1u8..20, any::<bool>()).prop_map(move |(signal, group)| Message::Signal { id, signal, group }),
        1 => (prop::option::of(any_date()), 0u32..6, 0u32..3)
            .prop_map(|(before, keep, limit)| Message::Prune { before, keep, limit }),
        4 => (1u8..3, prop::sample::select(vec![Until::Process, Until::Tree])).prop_map(
            move |(by, until)| Message::Watch(Watch { by: ActorId(by), process: id, until })
        ),
        1 => Just(Message::Fence(id)),
        4 => Just(Message::Settle { id }),
        2 => Just(Message::Begin { id }),
    ]
}

fn any_end() -> impl Strategy<Value = Message> {
    let id = ProcessId::default();
    let end = prop_oneof![
        3 => (0u8..4).prop_map(End::Code),
        1 => Just(End::Signal { signal: 9, dumped: false }),
        1 => Just(End::Lost(Lost::Rebooted)),
        1 => Just(End::Lost(Lost::AnotherMachine)),
        1 => Just(End::Lost(Lost::NotOurs)),
    ];
    (end, any_date(), 0usize..9, 0u32..5).prop_map(move |(end, at, bytes, alive)| {
        let stdout = Output::new(0, &vec![b'o'; bytes], &[]);
        let left = Box::new(Remains {
            alive: if alive < 3 { alive } else { 0 },
            empty: alive >= 3,
            stdout,
            ..Remains::default()
        });
        Message::Ended { id, end, at, left }
    })
}

/// Generates a report from the port. The id of the record is inserted later.
fn any_report() -> impl Strategy<Value = Message> {
    let id = ProcessId::default();
    let failure = Failure { step: LaunchStep::Exec, errno: 2, about: Some("/bin/none".to_owned()) };
    prop_oneof![
        8 => (0u8..24, any_date(), any::<bool>()).prop_map(move |(number, at, contained)| {
            Message::Started { id, identity: identity(number), at, contained }
        }),
        2 => Just(Message::Failed { id, failure }),
        6 => any_end(),
        14 => Just(Message::Empty { id }),
        6 => (0u32..2, 0u32..2).prop_map(move |(unkillable, unknown)| {
            Message::Stuck { id, unkillable, unknown }
        }),
        2 => any_notice().prop_map(move |notice| Message::Notice { id, notice }),
        6 => any_child().prop_map(move |child| Message::Child { of: id, child: Box::new(child) }),
        3 => (0u32..2, 0usize..9).prop_map(move |(children, bytes)| {
            let kept = vec![Bytes::new(vec![b'{'; bytes])];
            let found = Box::new(HookOutput { children, kept, ..HookOutput::default() });
            Message::Found { id, found }
        }),
        9 => (0u64..3, prop::option::of(1i32..3)).prop_map(move |(back, errno)| {
            Message::Signalled { id, asked: Seq(back), errno }
        }),
    ]
}

/// Generates a process that a hook ran. Its number is an offset from the number of processes handled so far: 1 is the next one, 0 and 2 are
/// out of order. If its command is empty, it gets no record.
fn any_child() -> impl Strategy<Value = Child> {
    let nth = prop::sample::select(vec![1u32, 1, 1, 1, 0, 2]);
    let argv = prop::sample::select(vec!["curl", "wget --token x", "wget", ""]);
    let end = prop::sample::select(vec![None, Some(End::Code(2))]);
    let dates = (prop::option::of(any_date()), prop::option::of(any_date()));
    (nth, 0u32..9, argv, end, dates).prop_map(|(nth, line, argv, end, (started, ended))| Child {
        exact: line % 2 == 0,
        line,
        argv: argv.split(' ').map(|it| Bytes::new(it.as_bytes())).collect(),
        dir: (line == 1).then(|| Bytes::new(&b"/"[..])),
        pid: (line > 3).then_some(line),
        end,
        started,
        ended,
        nth,
    })
}

fn any_launch() -> impl Strategy<Value = Launching> {
    let kind = prop::sample::select(vec!["", "worker", "hook"]);
    let argv = prop::sample::select(vec!["true", "archivebox", "curl --token x", ""]);
    let timeout_ms = prop::sample::select(vec![0u64, 0, 3000]);
    let grace_ms = prop::sample::select(vec![0u32, 2000]);
    let how = (any::<bool>(), prop::bool::weighted(0.12));
    (kind, argv, timeout_ms, grace_ms, how).prop_map(
        |(kind, argv, timeout_ms, grace_ms, (orders, deferred))| Launching {
            deferred,
            spec: Spec {
                argv: argv.split(' ').map(|it| Bytes::new(it.as_bytes())).collect(),
                timeout_ms,
                grace_ms,
                parcel: (deferred && orders && kind == "worker").then_some(1),
                stop_signal: if orders { 2 } else { 0 },
                env: vec![("LANG".to_owned(), Bytes::new(&b"C"[..]))],
                is_hook: kind == "hook",
                ..Spec::default()
            },
            tags: Tags {
                kind: kind.to_owned(),
                url: orders.then(|| "https://example.org/".to_owned()),
                labels: vec![("of".to_owned(), kind.to_owned())],
            },
            parentage: Parentage::default(),
        },
    )
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    let register =
        (any_launch(), 0u8..24, 0u64..9000).prop_map(|(launching, number, ago)| Registering {
            identity: identity(number),
            argv: launching.spec.argv,
            dir: Bytes::default(),
            started: Date(BEGIN.0 - ago),
            tags: launching.tags,
            parentage: Parentage::default(),
        });
    prop_oneof![
        20 => (any::<u8>(), any_request()).prop_map(|(which, message)| Step::Send(which, message)),
        50 => (any::<u8>(), any_report()).prop_map(|(which, message)| Step::Send(which, message)),
        16 => (any::<u8>(), 0u8..30, any_launch())
            .prop_map(|(which, line, launching)| Step::Launch(which, line, launching)),
        6 => (1u8..3, any::<u8>(), any_launch())
            .prop_map(|(by, which, launching)| Step::LaunchAs(by, which, launching)),
        8 => (any::<u8>(), 0u8..30, register)
            .prop_map(|(which, line, registering)| Step::Register(which, line, registering)),
        10 => (0u64..4000).prop_map(Step::Pass),
        1 => (-9000i64..9000).prop_map(Step::Wall),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => Just(Step::Start),
        2 => Just(Step::Reload),
        6 => Just(Step::Checkpoint),
        4 => (any::<u8>(), 0u8..6).prop_map(|(which, what)| Step::Watch(which, what)),
        1 => Just(Step::Unwatch),
        9 => any_asked().prop_map(Step::Serve),
    ]
}

/// Returns the definitions of one to three services. Each bit of `bits` selects a service or one of its settings.
fn configuration(bits: u8) -> Vec<Definition> {
    let has = |bit: u8| bits & (1 << bit) != 0;
    let defined = |name: &str, after: &[&str]| Definition {
        name: name.to_owned(),
        after: after.iter().map(|name| (*name).to_owned()).collect(),
        backoff: Backoff { first_ms: 200, max_ms: 3000 },
        intensity: Some(Intensity { restarts_max: 2, period_ms: 4000 }),
        spec: Spec {
            argv: vec![Bytes::new(name.as_bytes())],
            grace_ms: if has(0) { 0 } else { 1500 },
            ..Spec::default()
        },
        ..Definition::default()
    };
    let mut all = vec![defined("a", &[])];
    if has(1) {
        let mut b = defined("b", &["a"]);
        (b.restart, b.success) = (Policy::OnFailure, vec![2, 137]);
        (b.spec.ready, b.spec.ready_timeout_ms) = (Ready::Notify, 2500);
        (b.intensity, b.instances) = (None, if has(2) { 2 } else { 1 });
        all.push(b);
    }
    if has(3) {
        let mut c = defined("c", if has(1) { &["b"] } else { &[] });
        (c.restart, c.autostart) = (Policy::Never, has(4));
        all.push(c);
    }
    all
}

fn any_asked() -> impl Strategy<Value = ServiceMessage> {
    let name = || prop::sample::select(vec![None, Some("a"), Some("b"), Some("c")]);
    let name = move || name().prop_map(|name| name.map(str::to_owned));
    prop_oneof![
        4 => any::<u8>().prop_map(|bits| ServiceMessage::Configure(configuration(bits))),
        2 => name().prop_map(ServiceMessage::Start),
        2 => name().prop_map(ServiceMessage::Stop),
        2 => name().prop_map(ServiceMessage::Restart),
        1 => Just(ServiceMessage::Hold),
    ]
}

fn any_notice() -> impl Strategy<Value = Notice> {
    prop_oneof![
        Just(Notice::Ready),
        Just(Notice::Leaving),
        Just(Notice::Silent),
        "[ab]{0,2}".prop_map(Notice::Words),
    ]
}
