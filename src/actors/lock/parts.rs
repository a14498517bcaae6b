//! Requests that end all entries of an owner. There may be a million of them, so each part of such a request examines at most
//! [`Rules::part`](super::Rules::part) entries, the oldest first, and others are served in between.

use crate::actors::lock::machine::LockMachine;
use crate::actors::lock::message::{Message, Name, Outcome, Refused, Removal, Reply};
use crate::actors::lock::part::{EndMore, Part};
use crate::ids::{Seq, Slot, Token};

/// The entries that one part of a request examines, and the first one after them.
pub(super) struct Window {
    pub(super) slots: Vec<Slot>,
    next: Option<(Slot, Seq)>,
}

impl LockMachine {
    /// Decides a request to end all entries of this owner, or those that it has under this key.
    pub(super) fn decide_end_all(
        &self,
        (owner, key): (&Name, Option<&Name>),
        token: Option<Token>,
        at: Seq,
    ) -> Outcome {
        let few = key.and_then(|key| self.few_of_key(owner, key));
        if let Some(slots) = few {
            return self.decide_end(slots.into_iter(), token);
        }
        let window = self.window(owner, &Part::first(at));
        if window.next.is_none() {
            let is_meant = |slot: &Slot| self.is_under(key, *slot);
            return self.decide_end(window.slots.into_iter().filter(is_meant), token);
        }
        self.decide_part((owner, key), token, Part::first(at))
    }

    /// Decides a part of a request. If a token is given, the first parts only find out whether every entry has it.
    pub(super) fn decide_part(
        &self,
        (owner, key): (&Name, Option<&Name>),
        token: Option<Token>,
        mut part: Part,
    ) -> Outcome {
        let window = self.window(owner, &part);
        let meant = window.slots.into_iter();
        let meant = meant.filter(|slot| self.is_under(key, *slot));
        if token.is_some() && !part.checked {
            let seen = self.decide_end(meant, token);
            if seen == Outcome::Refused(Refused::StaleToken) {
                return seen;
            }
            part.checked = window.next.is_none();
            part.next = window.next.or_else(|| self.oldest(owner));
            let gone = Vec::new();
            return Outcome::EndedPart { gone, part };
        }
        part.next = window.next;
        let has_token = |slot: &Slot| {
            let entry = self.state.entries.get(*slot);
            token.is_none_or(|token| entry.is_some_and(|it| it.token() == token))
        };
        let ended = self.decide_end(meant.filter(has_token), None);
        part.fencing |= ended == Outcome::Refused(Refused::Fencing);
        let gone = if let Outcome::Ended { gone } = ended { gone } else { Vec::new() };
        Outcome::EndedPart { gone, part }
    }

    fn oldest(&self, owner: &Name) -> Option<(Slot, Seq)> {
        let slot = self.state.of_owner(owner.as_bytes()).next()?;
        Some((slot, self.state.entries.get(slot)?.seq))
    }

    /// Returns the entries that this part of a request examines.
    pub(super) fn window(&self, owner: &Name, part: &Part) -> Window {
        let entry = |slot: Slot| self.state.entries.get(slot);
        let owner = owner.as_bytes();
        // If the entry with which to continue has ended, the owner's oldest entries are examined again: those that stayed.
        let from = part.next.filter(|(slot, seq)| {
            entry(*slot).is_some_and(|it| it.seq == *seq && it.owner() == owner)
        });
        let all = self.state.of_owner_from(owner, from.map(|(slot, _)| slot));
        let mut all = all.filter_map(|slot| Some((slot, entry(slot)?.seq)));
        let mut old = all.by_ref().take_while(|(_, seq)| *seq <= part.upto);
        let part = self.rules.part.max(1) as usize;
        let slots = old.by_ref().take(part).map(|(slot, _)| slot).collect();
        let next = old.next();
        Window { slots, next }
    }

    /// Returns the entries of this owner under this key, oldest first, if either has few: then the others need not be examined.
    pub(super) fn few_of_key(&self, owner: &Name, key: &Name) -> Option<Vec<Slot>> {
        let part = self.rules.part.max(1) as usize;
        self.state.of_owner_and_key(owner.as_bytes(), key.as_bytes(), part)
    }

    pub(super) fn is_under(&self, key: Option<&Name>, slot: Slot) -> bool {
        let entry = self.state.entries.get(slot);
        key.is_none_or(|key| entry.is_some_and(|entry| entry.key() == key.as_bytes()))
    }

    /// Returns the message for the rest of a request, if its outcome is not the last part.
    pub(super) fn rest_of(&self, message: &Message, outcome: &Outcome) -> Option<Message> {
        match (message, outcome) {
            (Message::Gone(notice), Outcome::Ended { gone })
                if gone.len() >= self.rules.part.max(1) as usize =>
            {
                Some(Message::Gone(*notice))
            }
            (message, Outcome::EndedPart { gone, part }) if part.next.is_some() => {
                let (owner, key, token) = named(message)?;
                Some(Message::EndMore(Box::new(EndMore {
                    owner: owner.clone(),
                    key: key.cloned(),
                    token,
                    part: Part { ended: part.ended_with(gone.len()), ..*part },
                })))
            }
            _ => None,
        }
    }

    /// Returns the answer to a request after this part, which is given if it is the last one.
    pub(super) fn part_reply(part: &Part, gone: &[Removal]) -> Reply {
        match part.ended_with(gone.len()) {
            0 if part.next.is_some() => Reply::Ended(0),
            0 if part.fencing => Reply::Refused(Refused::Fencing),
            0 => Reply::Absent,
            ended => Reply::Ended(ended),
        }
    }
}

/// Returns the owner and the key of a request that ends all of its entries, and their token; `None` for any other message.
pub(super) fn named(message: &Message) -> Option<(&Name, Option<&Name>, Option<Token>)> {
    match message {
        Message::ReleaseAll { owner } => Some((owner, None, None)),
        Message::Release { key, index: None, owner, token } => Some((owner, Some(key), *token)),
        Message::EndMore(more) => Some((&more.owner, more.key.as_ref(), more.token)),
        Message::Request { .. }
        | Message::Acquire { .. }
        | Message::Renew { .. }
        | Message::Release { .. }
        | Message::Leave { .. }
        | Message::Force { .. }
        | Message::Gone(_)
        | Message::Expire { .. }
        | Message::Drain
        | Message::Hold(_)
        | Message::Yield(_) => None,
    }
}
