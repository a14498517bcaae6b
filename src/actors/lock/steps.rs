//! Random steps for the tests of the lock rules.

use crate::actors::binding::{Binding, EndNotice, Until};
use crate::actors::lock::{Hold, Message, Name, Tie};
use crate::ids::{ActorId, ProcessId, Token};
use proptest::prelude::*;

/// The id of an actor that requests locks.
pub(super) const HOLDER: ActorId = ActorId(201);

#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Message),
    /// Send a message with the current token of its entry, or with an outdated one if the flag is set.
    SendWithToken(Message, bool),
    Pass(u64),
    Start,
    Watch,
    /// Begin a checkpoint, or continue one.
    Checkpoint,
    /// Build a new machine from the latest snapshot and the log entries after it.
    Reload,
}

fn name(names: &'static [&'static str]) -> impl Strategy<Value = Name> {
    prop::sample::select(names)
        .prop_map(|name| Name::try_from(name).expect("names in tests should be short"))
}

/// Generates a timeout from a few values, so that deadlines coincide.
fn span() -> impl Strategy<Value = u16> {
    prop::sample::select(&[0, 1, 4, 4, 4, 8, 8, 20, u16::MAX][..])
}

fn process() -> impl Strategy<Value = (ProcessId, Until)> {
    let until = prop::sample::select(&[Until::Process, Until::Tree][..]);
    ((1u128..4).prop_map(ProcessId), until)
}

fn tie() -> impl Strategy<Value = Tie> {
    let bound = (process(), any::<bool>()).prop_map(|((process, until), fence)| {
        let fence = fence && until == Until::Tree;
        Tie::Process(Binding { process, until, fence })
    });
    prop_oneof![1 => Just(Tie::None), 2 => Just(Tie::Connection), 3 => bound]
}

/// Generates an actor's request for a lock. The key is reserved, and no client uses these owner names.
fn hold() -> impl Strategy<Value = Hold> {
    let owner = name(&["attempt-1", "attempt-2", "attempt-3"]);
    (name(&["wip-pool-lock-1"]), name(&["1", "b"]), owner).prop_map(|(key, index, owner)| Hold {
        by: HOLDER,
        key,
        index,
        owner,
    })
}

fn message() -> impl Strategy<Value = Message> {
    // Keys that would be ambiguous if key and index were simply concatenated, and a reserved key.
    let key = || name(&["", "a", "ab", "k", "k", "k", "k", "k", "k", "wip-pool-lock-1"]);
    let index = || name(&["", "b", "1", "1", "1", "1", "1", "*"]);
    let owner = || name(&["", "a", "b", "c", "d", "e", "f"]);
    prop_oneof![
        12 => (key(), index(), owner(), span(), span(), 0u8..4).prop_map(
            |(key, index, owner, ttl, ttw, priority)| {
                let priority = if priority == 3 { 255 } else { priority };
                Message::Request { key, index, owner, ttl, ttw, priority }
            }
        ),
        9 => ((key(), index(), owner()), span(), span(), 0u8..3, (tie(), prop::bool::weighted(0.85))).prop_map(
            |((key, index, owner), ttl, ttw, priority, (tie, waits))| {
                Message::Acquire { key, index, owner, ttl, ttw, priority, tie, waits }
            }
        ),
        4 => process().prop_map(|(process, until)| Message::Gone(EndNotice { process, until, exit: None, pid: None })),
        1 => (key(), index()).prop_map(|(key, index)| Message::Force { key, index }),
        3 => (key(), index(), owner())
            .prop_map(|(key, index, owner)| Message::Renew { key, index, owner, token: None }),
        3 => (key(), prop::option::weighted(0.7, index()), owner()).prop_map(
            |(key, index, owner)| Message::Release { key, index, owner, token: None }
        ),
        1 => (key(), index())
            .prop_map(|(key, index)| Message::Leave { key, index, token: Token(1) }),
        2 => owner().prop_map(|owner| Message::ReleaseAll { owner }),
        4 => hold().prop_map(Message::Hold),
        3 => hold().prop_map(Message::Yield),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        24 => message().prop_map(Step::Send),
        6 => (message(), any::<bool>()).prop_map(|(it, stale)| Step::SendWithToken(it, stale)),
        // Whole seconds, so that deadlines coincide, and other intervals, so that they do not.
        8 => (0u64..3).prop_map(|seconds| Step::Pass(seconds * 1000)),
        2 => (0u64..9000).prop_map(Step::Pass),
        4 => Just(Step::Start),
        1 => Just(Step::Watch),
        8 => Just(Step::Checkpoint),
        2 => Just(Step::Reload),
        1 => Just(Step::Send(Message::Drain)),
    ];
    prop::collection::vec(step, 0..150)
}
