//! The random steps of a history. Their order is often one that the other actors would never produce.

use crate::actors::binding::{Exit, Until};
use crate::actors::dispatch::{
    Act, Host, Message, NewTask, Pause, Priority, Remote, RemoteEnd, Report, ServerChange, Terms,
};
use crate::actors::lock::Name;
use crate::actors::process::{Launching, Spec};
use crate::bytes::Bytes;
use crate::clock::Date;
use proptest::prelude::*;
use std::sync::Arc;

/// A step. Tasks and processes are identified by their index among those that exist.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    Send(Message),
    Act(usize, Act),
    /// A report from the process with this index, and the number of the report if it comes from another machine.
    Report(usize, Report, Option<u64>),
    Gone(usize, Until, Option<Exit>),
    Launched(usize),
    /// The answer to the lock request with this index, and whether the lock is granted.
    Held(usize, bool),
    /// A report that the lock with this key, index and owner was granted, although it may never have been requested.
    Stray(Name, Name, Name),
    /// Takes an attempt through its steps until its command runs.
    Run(usize),
    /// Advances time by this number of milliseconds.
    Pass(u64),
    /// Steps the wall clock by this number of milliseconds.
    Jump(i64),
    Drain,
    Start,
    Resume,
    /// Treats the next tick as if it had panicked.
    Trap,
    /// Sets whether the wall clock is in doubt.
    Hold(bool),
    DiskLow(bool),
    Watch(usize),
    Unwatch,
    Checkpoint,
    /// Rebuilds the machine from the latest snapshot and the log entries after it.
    Reload,
}

fn name(names: &'static [&'static str]) -> impl Strategy<Value = Name> {
    prop::sample::select(names).prop_map(|name| Name::try_from(name).expect("the name is short"))
}

fn command() -> impl Strategy<Value = Arc<Launching>> {
    prop::sample::select(&["work", "work", "work", "work", "work", ""][..]).prop_map(|argv| {
        let spec = Spec { argv: vec![Bytes::new(argv.as_bytes())], ..Spec::default() };
        Arc::new(Launching { spec, ..Launching::default() })
    })
}

fn terms() -> impl Strategy<Value = Option<Terms>> {
    let terms = (
        prop::sample::select(&[500_u64, 5000, 5000, 20_000, 0][..]),
        prop::sample::select(&[1000_u64, 3000][..]),
        any::<bool>(),
        any::<bool>(),
    );
    let terms =
        terms.prop_map(|(fail_after_ms, progress_ms, abort_on_failure, report_required)| Terms {
            burst_ms: 300,
            fail_after_ms,
            progress_ms,
            abort_on_failure,
            report_required,
        });
    prop::option::weighted(0.7, terms)
}

fn adding() -> impl Strategy<Value = Message> {
    let priority = prop::sample::select(
        &[Priority::Critical, Priority::High, Priority::Medium, Priority::Medium, Priority::Low][..],
    );
    let names = (name(&["", "", "w", "w", "v"]), name(&["", "g", "g", "h"]), name(&["", "n"]));
    let cleanup = prop::option::weighted(0.4, command());
    let held = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (names, priority, command(), cleanup, terms(), held).prop_map(
        |((work, group, name), priority, command, cleanup, terms, (not_ready, paused))| {
            Message::Add(Box::new(NewTask {
                work,
                group,
                name,
                priority,
                command,
                cleanup,
                terms,
                not_ready,
                paused,
            }))
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Ready),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
        3 => Just(Act::Wake),
        2 => any::<bool>().prop_map(|now| Act::Terminate { now }),
        3 => Just(Act::Restart),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let words = prop::sample::select(&[0_usize, 3, 1024, 1025][..]).prop_map(|n| "w".repeat(n));
    let body = prop::sample::select(&["", "a", "bcde", "fghij"][..]);
    let ms = prop::sample::select(&[0_u64, 1, 1000, 7000, u64::MAX][..]);
    prop_oneof![
        4 => body.prop_map(|body| Report::Save(Bytes::new(body.as_bytes()))),
        3 => Just(Report::Beat),
        2 => (any::<bool>(), words.clone())
            .prop_map(|(warning, words)| Report::Done { warning, words }),
        4 => ms.prop_map(|ms| Report::Wait { ms }),
        2 => words.prop_map(|words| Report::Fail { words }),
        3 => exit().prop_filter_map("the exit is known", |exit| Some(Report::Far(RemoteEnd::Ended(exit?)))),
        3 => Just(Report::Far(RemoteEnd::Unreachable)),
        4 => Just(Report::Far(RemoteEnd::NotReached)),
        2 => Just(Report::Reached),
    ]
}

fn pause() -> impl Strategy<Value = Pause> {
    prop::sample::select(&[Pause::Off, Pause::Off, Pause::Soft, Pause::Hard][..])
}

fn group() -> impl Strategy<Value = Name> {
    name(&["default", "", "g", "g", "h"])
}

fn host() -> impl Strategy<Value = Host> {
    let names = name(&["local", "a", "a", "b", "c", "c", "d", ""]);
    let threads = prop::sample::select(&[0_u32, 1, 2, 3, 3, 10_001][..]);
    let remote = prop::option::weighted(0.6, remote());
    (names, threads, remote).prop_map(|(name, threads, remote)| Host { name, threads, remote })
}

fn remote() -> impl Strategy<Value = Remote> {
    let to = name(&["far", "far", "far", "u@far", "-oProxyCommand=x", ""]);
    to.prop_map(|to| Remote { to, ..Remote::default() })
}

fn setting() -> impl Strategy<Value = Message> {
    let change = prop_oneof![
        6 => prop::sample::select(&[0_u32, 1, 2, 3, 3, 3, 10_001][..]).prop_map(ServerChange::Threads),
        2 => any::<bool>().prop_map(ServerChange::Enabled),
        1 => Just(ServerChange::Removed),
        6 => (1..4_u32, remote())
            .prop_map(|(threads, remote)| ServerChange::Reached { threads, remote }),
    ];
    let server = (name(&["local", "a", "b", "c", "d", ""]), change);
    let before = prop::sample::select(&[None, Some(Date(0)), Some(Date(u64::MAX))][..]);
    prop_oneof![
        3 => (prop::option::weighted(0.5, group()), pause())
            .prop_map(|(group, pause)| Message::Pause { group, pause }),
        3 => (group(), prop::sample::select(&[0_u32, 1, 3, 9][..]))
            .prop_map(|(group, max)| Message::Limit { group, max }),
        5 => server.prop_map(|(name, change)| Message::Server { name, change }),
        3 => prop::collection::vec(host(), 0..4).prop_map(|hosts| Message::Inventory { hosts }),
        2 => (before, 0..3_u32, 0..3_u32)
            .prop_map(|(before, keep, limit)| Message::Prune { before, keep, limit }),
    ]
}

fn exit() -> impl Strategy<Value = Option<Exit>> {
    prop_oneof![
        4 => Just(Some(Exit::Code(0))),
        2 => Just(Some(Exit::Code(3))),
        3 => Just(Some(Exit::Signal(9))),
        1 => Just(Some(Exit::Lost)),
        2 => Just(Some(Exit::Failed)),
        1 => Just(None),
    ]
}

fn doing() -> impl Strategy<Value = Doing> {
    let nth = 0..8_usize;
    let until = prop::sample::select(&[Until::Tree, Until::Tree, Until::Tree, Until::Process][..]);
    let stray = (
        name(&["wip-pool-lock-execute", "wip-pool-lock-update", "k"]),
        name(&["1", "2", "x"]),
        name(&["attempt-1", "attempt-2", "attempt-x", "o"]),
    );
    prop_oneof![
        14 => adding().prop_map(Doing::Send),
        10 => setting().prop_map(Doing::Send),
        10 => (nth.clone(), act()).prop_map(|(nth, act)| Doing::Act(nth, act)),
        14 => (nth.clone(), report(), prop::option::weighted(0.3, 1..4_u64))
            .prop_map(|(place, report, nth)| Doing::Report(place, report, nth)),
        14 => (nth.clone(), until, exit()).prop_map(|(nth, until, exit)| Doing::Gone(nth, until, exit)),
        5 => nth.clone().prop_map(Doing::Launched),
        12 => (nth.clone(), prop::bool::weighted(0.7)).prop_map(|(nth, granted)| Doing::Held(nth, granted)),
        1 => stray.prop_map(|(key, index, owner)| Doing::Stray(key, index, owner)),
        14 => nth.clone().prop_map(Doing::Run),
        12 => prop::sample::select(&[1_u64, 200, 1000, 1000, 3000, 8000, 30_000][..])
            .prop_map(Doing::Pass),
        1 => prop::sample::select(&[3_600_000_i64, -3_600_000, -500][..]).prop_map(Doing::Jump),
        1 => Just(Doing::Drain),
        3 => Just(Doing::Start),
        1 => Just(Doing::Resume),
        2 => Just(Doing::Trap),
        1 => any::<bool>().prop_map(Doing::Hold),
        1 => prop::bool::weighted(0.2).prop_map(Doing::DiskLow),
        3 => nth.prop_map(Doing::Watch),
        1 => Just(Doing::Unwatch),
        10 => Just(Doing::Checkpoint),
        1 => Just(Doing::Reload),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Doing>> {
    prop::collection::vec(doing(), 0..120)
}
