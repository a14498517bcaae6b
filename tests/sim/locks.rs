//! The lock rules a second time: one list of entries, searched from end to end.
//!
//! Follows `docs/protocols/lockserver.md`, not the machine. Slots are taken from the log, since an expiry names one.

use crate::coverage::Coverage;
use crate::each::Judged;
use crate::reference::{Origin, Reference};
use sexton::actors::lock::{
    self, Gone, LockMachine, Message, Name, Outcome, Query, Refused, Reply, Standing, Watch,
};
use sexton::clock::Timestamp;
use sexton::ids::{Seq, Slot, Token};
use sexton::spine::delivery::Answer;
use sexton::spine::machine::Shown as _;
use sexton::spine::machine::{Stamp, Start};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
struct Entry {
    key: Name,
    index: Name,
    owner: Name,
    ttl: u16,
    ttw: u16,
    priority: u8,
    seq: Seq,
    deadline: Timestamp,
    /// Of the owner; contenders have none.
    token: Option<Token>,
    /// The first request since the lock was last free.
    first: Seq,
}

/// Locks, as the text has them.
#[derive(Clone, Default)]
pub(crate) struct Locks {
    entries: BTreeMap<Slot, Entry>,
    draining: bool,
    /// Time does not act on these until their span begins again.
    quarantined: BTreeSet<Slot>,
}

impl Locks {
    fn find(&self, key: &Name, index: &Name, owner: &Name) -> Option<Slot> {
        let is = |entry: &Entry| (&entry.key, &entry.index, &entry.owner) == (key, index, owner);
        self.entries
            .iter()
            .find(|(_, entry)| is(entry))
            .map(|(slot, _)| *slot)
    }

    /// Owner first, then by priority, then in order of arrival.
    fn line(&self, key: &Name, index: &Name) -> Vec<Slot> {
        let of_lock = |entry: &&Entry| (&entry.key, &entry.index) == (key, index);
        let mut line: Vec<(bool, u8, Seq, Slot)> = self
            .entries
            .iter()
            .filter(|(_, entry)| of_lock(entry))
            .map(|(slot, entry)| {
                (
                    entry.token.is_none(),
                    u8::MAX - entry.priority,
                    entry.seq,
                    *slot,
                )
            })
            .collect();
        line.sort_unstable();
        line.into_iter().map(|(.., slot)| slot).collect()
    }

    fn entry(&self, slot: Slot) -> &Entry {
        self.entries.get(&slot).expect("slots come from the list")
    }

    fn place(&self, slot: Slot) -> u32 {
        let entry = self.entry(slot);
        let line = self.line(&entry.key, &entry.index);
        let before = line.iter().take_while(|other| **other != slot).count();
        u32::try_from(before + 1).expect("lines are short")
    }

    fn standing(&self, slot: Slot) -> Standing {
        Standing {
            place: self.place(slot),
            token: self.entry(slot).token,
        }
    }

    /// The slots of a release, oldest entry first.
    fn named(&self, key: Option<&Name>, index: Option<&Name>, owner: &Name) -> Vec<Slot> {
        let mut named: Vec<(Seq, Slot)> = self
            .entries
            .iter()
            .filter(|(_, entry)| {
                entry.owner == *owner
                    && key.is_none_or(|key| entry.key == *key)
                    && index.is_none_or(|index| entry.index == *index)
            })
            .map(|(slot, entry)| (entry.seq, *slot))
            .collect();
        named.sort_unstable();
        named.into_iter().map(|(_, slot)| slot).collect()
    }

    fn remove(&mut self, slot: Slot, stamp: Stamp) -> Option<Slot> {
        let gone = self.entries.remove(&slot).expect("only what is there ends");
        self.quarantined.remove(&slot);
        gone.token?;
        let heir = self.line(&gone.key, &gone.index).first().copied()?;
        self.quarantined.remove(&heir);
        let entry = self.entries.get_mut(&heir).expect("an heir is there");
        entry.token = Some(stamp.seq.into());
        entry.deadline = stamp.at.plus_seconds(entry.ttl.into());
        Some(heir)
    }

    fn insert(
        &mut self,
        stamp: Stamp,
        message: &Message,
        slot: Slot,
        place: u32,
    ) -> Result<(), String> {
        let Message::Request {
            key,
            index,
            owner,
            ttl,
            ttw,
            priority,
        } = message
        else {
            return Err("an entry was made by something else than a request".to_owned());
        };
        if self.draining || owner.as_bytes().is_empty() || self.find(key, index, owner).is_some() {
            return Err("an entry was made where none may be".to_owned());
        }
        if self.entries.contains_key(&slot) {
            return Err(format!("{slot:?} was given a second time"));
        }
        let head = self.line(key, index).first().copied();
        let span = if head.is_none() { ttl } else { ttw };
        let entry = Entry {
            key: key.clone(),
            index: index.clone(),
            owner: owner.clone(),
            ttl: *ttl,
            ttw: *ttw,
            priority: *priority,
            seq: stamp.seq,
            deadline: stamp.at.plus_seconds((*span).into()),
            token: head.is_none().then_some(stamp.seq.into()),
            first: head.map_or(stamp.seq, |head| self.entry(head).first),
        };
        self.entries.insert(slot, entry);
        let right = self.place(slot);
        (right == place)
            .then_some(())
            .ok_or_else(|| format!("place {place}, where {right} is right"))
    }

    fn renew(&mut self, stamp: Stamp, slot: Slot) {
        self.quarantined.remove(&slot);
        let entry = self.entries.get_mut(&slot).expect("it was just found");
        let span = if entry.token.is_some() {
            entry.ttl
        } else {
            entry.ttw
        };
        entry.deadline = stamp.at.plus_seconds(span.into());
    }

    fn end(&mut self, stamp: Stamp, slots: &[Slot], gone: &[Gone]) -> Result<(), String> {
        let ended: Vec<Gone> = slots
            .iter()
            .map(|slot| Gone {
                slot: *slot,
                heir: self.remove(*slot, stamp),
            })
            .collect();
        (ended == gone)
            .then_some(())
            .ok_or_else(|| format!("{gone:?} ended, where {ended:?} is right"))
    }

    /// The item that time has to act on first.
    fn first_due(&self, at: Timestamp) -> Option<Slot> {
        self.entries
            .iter()
            .filter(|(slot, entry)| entry.deadline <= at && !self.quarantined.contains(slot))
            .map(|(slot, entry)| (entry.deadline, *slot))
            .min()
            .map(|(_, slot)| slot)
    }

    /// Who ends with an entry whose time has passed: first the contenders that are dead at that instant too, as far as
    /// they stand before its heir.
    fn dying(&self, slot: Slot) -> Vec<Slot> {
        let entry = self.entry(slot);
        let mut dying = Vec::new();
        if entry.token.is_some() {
            let line = self.line(&entry.key, &entry.index);
            dying.extend(
                line.into_iter()
                    .skip(1)
                    .take_while(|other| self.entry(*other).deadline <= entry.deadline),
            );
        }
        dying.push(slot);
        dying
    }

    fn list(&self, key: Option<&Name>) -> Vec<(Slot, u32)> {
        let mut heads: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.token.is_some() && key.is_none_or(|key| entry.key == *key))
            .map(|(slot, entry)| (&entry.key, entry.first, *slot))
            .collect();
        heads.sort_unstable();
        let lines = heads.into_iter().map(|(_, _, slot)| self.entry(slot));
        lines
            .flat_map(|head| self.line(&head.key, &head.index).into_iter().zip(1..))
            .collect()
    }

    fn listed(&self, (slot, place): (Slot, u32)) -> lock::Listed {
        let entry = self.entry(slot);
        lock::Listed {
            key: entry.key.clone(),
            index: entry.index.clone(),
            owner: entry.owner.clone(),
            place,
            ttl: entry.ttl,
            ttw: entry.ttw,
            priority: entry.priority,
            deadline: entry.deadline,
            token: entry.token,
        }
    }

    fn target(&self, message: &Message) -> Vec<Slot> {
        match message {
            Message::Request {
                key, index, owner, ..
            }
            | Message::Renew {
                key, index, owner, ..
            } => self.find(key, index, owner).into_iter().collect(),
            Message::Release {
                key, index, owner, ..
            } => self.named(Some(key), index.as_ref(), owner),
            Message::ReleaseAll { owner } => self.named(None, None, owner),
            Message::Expire { slot } => self.dying(*slot),
            Message::Drain => Vec::new(),
        }
    }
}

fn is_stale(entry: &Entry, message: &Message) -> bool {
    match message {
        Message::Renew { token, .. } | Message::Release { token, .. } => {
            token.is_some_and(|token| entry.token.unwrap_or_default() != token)
        }
        Message::Request { .. }
        | Message::ReleaseAll { .. }
        | Message::Expire { .. }
        | Message::Drain => false,
    }
}

impl Judged for LockMachine {
    type Reference = Locks;
}

impl Reference for Locks {
    type Machine = LockMachine;

    fn rules() -> lock::Rules {
        lock::Rules::default()
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, _): (&Outcome, &Reply),
    ) -> Result<(), String> {
        if let Message::Expire { slot } = message {
            let first = self.first_due(stamp.at);
            if first != Some(*slot) {
                return Err(format!("time acted on {slot:?}, where {first:?} is due"));
            }
        } else if let Some(due) = self.due(stamp.at) {
            return Err(format!("it was ordered before {due}, which was due"));
        }
        let target = self.target(message);
        if target
            .iter()
            .any(|slot| is_stale(self.entry(*slot), message))
        {
            return Err("a stale token was let through".to_owned());
        }
        match outcome {
            Outcome::Granted { slot } => self.insert(stamp, message, *slot, 1),
            Outcome::Queued { slot, place } if *place > 1 => {
                self.insert(stamp, message, *slot, *place)
            }
            Outcome::Renewed { slot, place, token } => {
                if target != [*slot] || matches!(message, Message::Release { .. }) {
                    return Err(format!("{slot:?} was renewed, where {target:?} is right"));
                }
                let right = self.standing(*slot);
                if (*place, *token) != (right.place, right.token.unwrap_or_default()) {
                    return Err(format!("renewed at {place}, where {right:?} is right"));
                }
                self.renew(stamp, *slot);
                Ok(())
            }
            Outcome::Ended { gone } => self.end(stamp, &target, gone),
            Outcome::Draining if !self.draining => {
                self.draining = true;
                Ok(())
            }
            Outcome::Queued { .. } | Outcome::Draining | Outcome::Absent | Outcome::Refused(_) => {
                Err("this outcome changes nothing".to_owned())
            }
        }
    }

    fn start(
        &mut self,
        Start {
            stamp: Stamp { at, .. },
            ..
        }: Start,
    ) {
        self.draining = false;
        self.quarantined.clear();
        for entry in self.entries.values_mut() {
            let span = if entry.token.is_some() {
                entry.ttl
            } else {
                entry.ttw
            };
            entry.deadline = at.plus_seconds(span.into());
        }
    }

    fn poisoned(&mut self, message: &Message) {
        if let Message::Expire { slot } = message {
            self.quarantined.insert(*slot);
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.first_due(at)
            .map(|slot| format!("{slot:?} {:?}", self.entry(slot)))
    }

    fn without_change(&self, message: &Message) -> Option<Reply> {
        let target = self.target(message);
        if let Message::Request { owner, .. } = message {
            return match () {
                () if owner.as_bytes().is_empty() => Some(Reply::Refused(Refused::NoOwner)),
                () if !target.is_empty() => None,
                () if self.draining => Some(Reply::Refused(Refused::Draining)),
                () => None,
            };
        }
        if *message == Message::Drain {
            return self.draining.then_some(Reply::Absent);
        }
        if target
            .iter()
            .any(|slot| is_stale(self.entry(*slot), message))
        {
            return Some(Reply::Refused(Refused::StaleToken));
        }
        target.is_empty().then_some(Reply::Absent)
    }

    fn answer(&self, query: &Query) -> Answer<Reply> {
        Ok(match query {
            Query::Owner { key, index } => {
                let line = self.line(key, index);
                Reply::Owner(line.first().map(|head| self.entry(*head).owner.clone()))
            }
            Query::Place { key, index, owner } => self
                .find(key, index, owner)
                .map_or(Reply::Absent, |slot| Reply::Standing(self.standing(slot))),
            Query::List { key, entries_max } => Reply::List(
                self.list(key.as_ref())
                    .into_iter()
                    .take(*entries_max as usize)
                    .map(|found| self.listed(found))
                    .collect(),
            ),
            Query::Select(_) => unreachable!("clients ask for no pages"),
            Query::Counts => {
                let all = u32::try_from(self.entries.len()).expect("worlds are small");
                let owners = self.entries.values().filter(|entry| entry.token.is_some());
                let owners = u32::try_from(owners.count()).expect("worlds are small");
                Reply::Counts {
                    owners,
                    contenders: all - owners,
                }
            }
        })
    }

    fn agrees(&self, machine: &LockMachine) -> Result<(), String> {
        let view = machine.view();
        let mine: Vec<_> = self
            .list(None)
            .into_iter()
            .map(|found| self.listed(found))
            .collect();
        if view.draining != self.draining {
            return Err(format!("draining is {}", view.draining));
        }
        (view.entries == mine)
            .then_some(())
            .ok_or_else(|| format!("entries are {:?}, where {mine:?} is right", view.entries))
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Expire { .. } => Origin::Tick,
            Message::Request { .. }
            | Message::Renew { .. }
            | Message::Release { .. }
            | Message::ReleaseAll { .. }
            | Message::Drain => Origin::Client,
        }
    }

    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::Standing(_) | Reply::Ended(_) | Reply::Draining => true,
            Reply::Absent
            | Reply::Refused(_)
            | Reply::Owner(_)
            | Reply::List(_)
            | Reply::Page { .. }
            | Reply::Counts { .. }
            | Reply::Due => false,
        }
    }

    fn wakes(&self, watch: &Watch) -> Option<Reply> {
        match watch {
            Watch::Empty => self.entries.is_empty().then_some(Reply::Due),
            Watch::Granted { key, index, owner } => {
                let found = self.find(key, index, owner);
                match found.and_then(|slot| self.entries.get(&slot)) {
                    None => Some(Reply::Absent),
                    Some(entry) => entry.token.map(|token| {
                        Reply::Standing(Standing {
                            place: 1,
                            token: Some(token),
                        })
                    }),
                }
            }
            Watch::Lost {
                key,
                index,
                owner,
                token,
            } => {
                let found = self.find(key, index, owner);
                let entry = found.and_then(|slot| self.entries.get(&slot));
                let holds = entry.is_some_and(|entry| entry.token == Some(*token));
                (!holds).then_some(Reply::Absent)
            }
        }
    }

    fn count(message: &Message, outcome: &Outcome, counted: &mut Coverage) {
        match outcome {
            Outcome::Granted { .. } => counted.grants += 1,
            Outcome::Queued { .. } => counted.queued += 1,
            Outcome::Renewed { .. } => counted.renewals += 1,
            Outcome::Ended { gone } => {
                let heirs = gone.iter().filter(|gone| gone.heir.is_some()).count() as u64;
                counted.promotions += heirs;
                if matches!(message, Message::Expire { .. }) {
                    counted.expiries += 1;
                } else {
                    counted.releases += 1;
                }
            }
            Outcome::Draining => counted.drains += 1,
            Outcome::Absent | Outcome::Refused(_) => {}
        }
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(message, Message::Request { .. } | Message::Renew { .. })
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::Refused(Refused::DiskFull)
    }
}
