//! The events that a journal entry causes, such as the beginning or end of a pass, a request that becomes next, or a changed setting.

use crate::actors::binding::Exit;
use crate::actors::lease::item::{Current, Holder};
use crate::actors::lease::message::Message;
use crate::actors::lease::outcome::{Outcome, Step};
use crate::actors::lease::state::State;
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::spine::event::EventBody;
use crate::spine::machine::Stamp;

pub(super) const KINDS: &[&str] = &[
    "began",
    "ended",
    "forgotten",
    "gave-up",
    "left",
    "missed",
    "next",
    "overrun",
    "owed",
    "scheduled",
    "set",
    "started",
    "stopping",
];

/// Calls `emit` with each event that this outcome causes, in order. Must be called before the outcome is committed, while the leases are
/// still unchanged.
pub(super) fn events(
    state: &State,
    entry: Stamp,
    (message, outcome): (&Message, &Outcome),
    emit: &mut dyn FnMut(EventBody),
) {
    let Outcome::Changed { steps, .. } = outcome else {
        return;
    };
    for (slot, step) in steps {
        if let Some(what) = of(state, entry, message, (*slot, step)) {
            emit(what);
        }
    }
}

fn of(
    state: &State,
    entry: Stamp,
    message: &Message,
    (slot, step): (Slot, &Step),
) -> Option<EventBody> {
    let lease = state.leases.get(slot);
    let name = lease.map(|it| &it.name).or_else(|| message.name())?;
    let named = |kind| EventBody::new(kind).name("lease", name.as_bytes());
    let current = lease.and_then(|it| it.current.as_ref());
    let what = match step {
        Step::Began { process, until, .. } => {
            let began = named("began").number("token", entry.seq.0);
            let began = began.number("until", until.0);
            match process {
                Some(process) => began.text("process", process.to_string()),
                None => began,
            }
        }
        Step::Ended { exit, whole } => {
            let ended = of_pass(named("ended"), current, entry.at);
            let ended = match exit {
                Some(Exit::Code(code)) => ended.number("code", *code),
                Some(Exit::Signal(signal)) => ended.number("signal", *signal),
                Some(Exit::Lost) => ended.text("exit", "lost"),
                Some(Exit::Failed) => ended.text("exit", "failed"),
                None => ended,
            };
            ended.text("whole", if *whole { "yes" } else { "no" })
        }
        Step::Relaunched { process } => named("began")
            .number("token", current.map_or(0, |it| it.token.0))
            .text("process", process.to_string()),
        Step::Placed { .. } => named("next").number("place", entry.seq.0),
        Step::Owed(_) => named("owed"),
        Step::Left => named("left"),
        Step::GaveUp => {
            if lease.is_none_or(|it| !it.is_owed()) {
                return None;
            }
            named("gave-up")
        }
        Step::Stopping => of_pass(named("stopping"), current, entry.at),
        Step::Warned => of_pass(named("overrun"), current, entry.at),
        Step::Started { until } => {
            of_pass(named("started"), current, entry.at).number("until", until.0)
        }
        Step::Missed(missed) => named("missed")
            .number("first", missed.first.0)
            .number("noticed", missed.noticed.0)
            .text("cause", missed.cause()),
        Step::Set(setting) => named("set").text("setting", setting.name()),
        Step::Scheduled { at, .. } => named("scheduled").number("due", at.map_or(0, |it| it.0)),
        Step::Forgotten => named("forgotten"),
        Step::Imported { .. } => named("set").text("setting", "lease"),
        Step::Made
        | Step::Returned { .. }
        | Step::Shared
        | Step::Renewed
        | Step::Taken
        | Step::Rests => {
            return None;
        }
    };
    Some(what)
}

/// Adds the token, the running time and the process of the pass to an event; without a pass, returns the event unchanged.
fn of_pass(what: EventBody, current: Option<&Current>, now: Timestamp) -> EventBody {
    let Some(current) = current else {
        return what;
    };
    let ran = now.since(current.since).as_millis();
    let what = what.number("token", current.token.0);
    let what = what.number("ran_ms", u64::try_from(ran).unwrap_or(u64::MAX));
    match &current.holder {
        Holder::Launched { process, .. } => what.text("process", process.to_string()),
        Holder::Process(binding) => what.text("process", binding.process.to_string()),
        Holder::Timed { .. } | Holder::Nobody => what,
    }
}
