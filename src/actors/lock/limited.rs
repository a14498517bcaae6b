//! What a client that may neither start nor end processes may not do: make or change an entry that is bound to a process. The loss of its
//! lock may kill the process, or let another client believe that the process has ended.

use crate::actors::lock::entry::{Entry, requested};
use crate::actors::lock::machine::LockMachine;
use crate::actors::lock::message::{Message, Name, Tie};
use crate::actors::lock::part::Part;
use crate::ids::Slot;

impl LockMachine {
    /// Returns whether a sender of limited authority may not send a message: it makes or changes an entry that is bound to a process.
    pub(super) fn is_forbidden(&self, message: &Message) -> bool {
        let is_bound = |slot: Slot| {
            let entry = self.state.entries.get(slot);
            entry.and_then(Entry::bound).is_some()
        };
        match message {
            Message::Request { .. } | Message::Acquire { .. } | Message::Hold(_) => {
                requested(message).is_some_and(|((key, index, owner), terms)| {
                    let [key, index, owner] = [key, index, owner].map(Name::as_bytes);
                    let is_changed = self.state.find(key, index, owner).is_some_and(is_bound);
                    is_changed || !matches!(terms.tie, Tie::None | Tie::Connection)
                })
            }
            Message::Renew { key, index, owner, token }
            | Message::Release { key, index: Some(index), owner, token } => {
                let named = self.named_entry([key, index, owner], *token);
                named.is_some_and(is_bound)
            }
            Message::Release { key, index: None, owner, .. } => {
                if let Some(all) = self.few_of_key(owner, key) {
                    return all.into_iter().any(is_bound);
                }
                // Which of the owner's many entries are bound is not looked for.
                self.has_bound(owner)
            }
            Message::ReleaseAll { owner } => self.has_bound(owner),
            Message::EndMore(more) => self.ends_bound((&more.owner, more.key.as_ref()), &more.part),
            Message::Leave { key, index, .. } | Message::Force { key, index } => {
                let holder = self.state.holder(key.as_bytes(), index.as_bytes());
                holder.is_some_and(is_bound)
            }
            Message::Gone(_) | Message::Expire { .. } | Message::Drain | Message::Yield(_) => true,
        }
    }

    fn has_bound(&self, owner: &Name) -> bool {
        self.state.bound.has_owner(owner.as_bytes())
    }

    /// Returns whether this part of a request would end an entry that is bound to a process.
    fn ends_bound(&self, (owner, key): (&Name, Option<&Name>), part: &Part) -> bool {
        let slots = self.window(owner, part).slots.into_iter();
        let mut entries = slots.filter(|slot| self.is_under(key, *slot));
        entries.any(|slot| {
            let entry = self.state.entries.get(slot);
            entry.and_then(Entry::bound).is_some()
        })
    }
}

#[cfg(test)]
impl LockMachine {
    /// Returns the names of the entries that are bound to a process and what a client can change about them, if a sender of limited
    /// authority may send this message.
    pub(super) fn kept(&self, message: &Message) -> Option<Vec<String>> {
        let bound = self.state.entries.iter().filter_map(|(slot, entry)| {
            entry.bound()?;
            let names = [entry.key(), entry.index(), entry.owner()];
            Some(format!("{slot:?} {names:?} {:?}", entry.bound()))
        });
        (!self.is_forbidden(message)).then(|| bound.collect())
    }

    /// Asserts that the entries that [`Self::kept`] returned before the message was committed are as they were.
    pub(super) fn assert_kept(&self, before: Option<&Vec<String>>, message: &Message) {
        let after = before.and_then(|_| self.kept(message));
        let words = "limited authority suffices, so no entry of a process changes";
        assert!(after.is_none() || before == after.as_ref(), "{words}: {message:?}");
    }
}
