//! The owners of locks, computed from the messages alone in the simplest way: each lock has an owner and a line of waiters.

use crate::past::Entry;
use sexton::actors::lock::{EntryView, LockMachine, Message, Name};
use sexton::ids::{Seq, Token};
use std::collections::BTreeMap;

/// Every lock that is held, and the last token of every lock.
#[derive(Default)]
pub(crate) struct Reference {
    lines: BTreeMap<(Name, Name), Line>,
    tokens: BTreeMap<(Name, Name), Token>,
}

struct Line {
    owner: Name,
    token: Token,
    /// The waiters, the highest priority first, and among equals in the order of their requests.
    waiting: Vec<(u8, Seq, Name)>,
}

impl Reference {
    /// Applies one more message.
    pub(crate) fn apply(&mut self, entry: &Entry<LockMachine>) {
        match &entry.message {
            Message::Request { key, index, owner, priority, .. }
            | Message::Acquire { key, index, owner, priority, .. } => {
                self.request((key, index), owner, *priority, entry.seq);
            }
            Message::Release { key, index, owner, .. } => {
                let wanted = |(k, i): &(Name, Name)| {
                    k == key && index.as_ref().is_none_or(|index| i == index)
                };
                self.leave(owner, wanted, entry.seq);
            }
            Message::ReleaseAll { owner } => self.leave(owner, |_| true, entry.seq),
            Message::Renew { .. } => {}
            message @ (Message::Expire { .. }
            | Message::EndMore(_)
            | Message::Force { .. }
            | Message::Leave { .. }
            | Message::Gone(_)
            | Message::Drain
            | Message::Hold(_)
            | Message::Yield(_)) => {
                panic!("no client sent {message:?}")
            }
        }
    }

    fn request(&mut self, (key, index): (&Name, &Name), owner: &Name, priority: u8, seq: Seq) {
        let lock = (key.clone(), index.clone());
        match self.lines.get_mut(&lock) {
            None => {
                let line = Line {
                    owner: owner.clone(),
                    token: self.grant(&lock, seq),
                    waiting: Vec::new(),
                };
                self.lines.insert(lock, line);
            }
            Some(line)
                if line.owner == *owner || line.waiting.iter().any(|(.., name)| name == owner) => {}
            Some(line) => {
                line.waiting.push((priority, seq, owner.clone()));
                line.waiting.sort_by_key(|(priority, seq, _)| (u8::MAX - priority, *seq));
            }
        }
    }

    fn leave(&mut self, owner: &Name, wanted: impl Fn(&(Name, Name)) -> bool, seq: Seq) {
        let locks: Vec<_> = self.lines.keys().filter(|lock| wanted(lock)).cloned().collect();
        for lock in locks {
            let line = self.lines.get_mut(&lock).expect("it was just found");
            line.waiting.retain(|(.., name)| name != owner);
            if line.owner != *owner {
                continue;
            }
            if line.waiting.is_empty() {
                self.lines.remove(&lock);
            } else {
                line.owner = line.waiting.remove(0).2;
                let token = self.grant(&lock, seq);
                self.lines.get_mut(&lock).expect("it was just found").token = token;
            }
        }
    }

    /// Returns a new token, larger than every earlier one of this lock.
    fn grant(&mut self, lock: &(Name, Name), seq: Seq) -> Token {
        let token = Token::from(seq);
        let before = self.tokens.insert(lock.clone(), token);
        assert!(before < Some(token), "{lock:?}: token {token} after {before:?}");
        token
    }

    /// Asserts that these entries are the expected ones: owners with their tokens, and all waiters, in order.
    pub(crate) fn compare(&self, entries: &[EntryView]) {
        let mut found = BTreeMap::<_, Vec<_>>::new();
        for entry in entries {
            let line = found.entry((entry.key.clone(), entry.index.clone())).or_default();
            line.push((entry.place, entry.owner.clone(), entry.token));
        }
        let expected: BTreeMap<_, Vec<_>> = self
            .lines
            .iter()
            .map(|(lock, line)| {
                let waiting = line.waiting.iter().map(|(.., name)| (name.clone(), None));
                let all = std::iter::once((line.owner.clone(), Some(line.token))).chain(waiting);
                let placed = (1..).zip(all).map(|(place, (name, token))| (place, name, token));
                (lock.clone(), placed.collect())
            })
            .collect();
        assert_eq!(found, expected, "the locks differ from the state that the messages give");
    }
}
