//! The events that a journal entry causes, for subscribers: which client was granted a lock, waits for it, or lost it
//! and why.
//!
//! Published before the commit, while the names of ended entries can still be read from their slots. A renewal is not
//! an event: it changes neither the owner of a lock nor the order of its contenders.

use crate::actors::lock::entry::{Entry, requested};
use crate::actors::lock::message::{Message, Name, Outcome, Removal};
use crate::actors::lock::state::State;
use crate::ids::Token;
use crate::spine::event::EventBody;
use crate::spine::machine::Stamp;

/// Calls `emit` with each event that this outcome causes, in order.
pub(super) fn events(
    state: &State,
    entry: Stamp,
    (message, outcome): (&Message, &Outcome),
    emit: &mut dyn FnMut(EventBody),
) {
    match (outcome, message) {
        (Outcome::Granted { .. }, _) => {
            if let Some(((key, index, owner), terms)) = requested(message) {
                let names = [key, index, owner].map(Name::as_bytes);
                emit(granted(names, entry.seq.into(), terms.ttl));
            }
        }
        (Outcome::Queued { place, .. }, _) => {
            if let Some(((key, index, owner), _)) = requested(message) {
                let names = [key, index, owner].map(Name::as_bytes);
                emit(named("waiting", names).number("place", *place));
            }
        }
        (Outcome::Ended { gone } | Outcome::EndedPart { gone, .. }, message) => {
            let cause = cause(message);
            for Removal { slot, heir } in gone {
                if let Some(gone) = state.entries.get(*slot) {
                    emit(ended(gone, cause));
                }
                if let Some(heir) = heir.and_then(|heir| state.entries.get(heir)) {
                    emit(granted(names(heir), entry.seq.into(), heir.ttl));
                }
            }
        }
        (Outcome::Fenced { slot }, _) => {
            if let Some(entry) = state.entries.get(*slot) {
                let fencing = named("fencing", names(entry));
                emit(fencing.number("token", entry.token().0));
            }
        }
        (Outcome::Draining, _) => emit(EventBody::new("draining")),
        (Outcome::Renewed { .. } | Outcome::Absent | Outcome::Refused(_), _) => {}
    }
}

/// If a client renewed an entry, calls `emit` with the renewal. Does nothing for any other outcome, or if the renewal comes from another
/// actor's `Hold`. Subscribers do not receive renewals, which only appear in the history of an item.
pub(super) fn renewed((message, outcome): (&Message, &Outcome), emit: &mut dyn FnMut(EventBody)) {
    let (
        Outcome::Renewed { place, .. },
        Message::Request { key, index, owner, .. }
        | Message::Acquire { key, index, owner, .. }
        | Message::Renew { key, index, owner, .. },
    ) = (outcome, message)
    else {
        return;
    };
    let names = [key, index, owner].map(Name::as_bytes);
    emit(named("renewed", names).number("place", *place));
}

/// Why an entry ends.
#[derive(Clone, Copy)]
enum Cause {
    Request,
    Time,
    /// The process that the entry was bound to has ended.
    Process,
    Force,
}

const fn cause(message: &Message) -> Cause {
    match message {
        Message::Expire { .. } => Cause::Time,
        Message::Gone(_) => Cause::Process,
        Message::Force { .. } => Cause::Force,
        Message::Request { .. }
        | Message::Acquire { .. }
        | Message::Renew { .. }
        | Message::Release { .. }
        | Message::Leave { .. }
        | Message::ReleaseAll { .. }
        | Message::EndMore(_)
        | Message::Drain
        | Message::Hold(_)
        | Message::Yield(_) => Cause::Request,
    }
}

/// Returns the event for an owner that lost its lock or a contender that no longer waits.
fn ended(entry: &Entry, cause: Cause) -> EventBody {
    let kind = match (entry.is_owner(), cause) {
        (true, Cause::Time) => "expired",
        (true, _) => "released",
        (false, Cause::Time) => "timed-out",
        (false, _) => "withdrawn",
    };
    let ended = named(kind, names(entry));
    let ended = match cause {
        Cause::Process => ended.text("cause", "process"),
        Cause::Force => ended.text("cause", "force"),
        Cause::Time | Cause::Request => ended,
    };
    if entry.is_owner() { ended.number("token", entry.token().0) } else { ended }
}

fn granted(names: [&[u8]; 3], token: Token, ttl: u16) -> EventBody {
    named("granted", names).number("token", token.0).number("ttl", ttl)
}

fn named(kind: &'static str, [key, index, owner]: [&[u8]; 3]) -> EventBody {
    EventBody::new(kind).name("key", key).name("index", index).name("owner", owner)
}

fn names(entry: &Entry) -> [&[u8]; 3] {
    [entry.key(), entry.index(), entry.owner()]
}
