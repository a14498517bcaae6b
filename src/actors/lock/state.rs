//! Lock entries and the indexes over them; adding, removing and promoting an entry.
//!
//! Invariants: every entry is in the index by owner name; the entry that owns a lock is also in the indexes by lock and
//! by key, and a contender is in the line for its lock. A lock that has entries has exactly one owner. Contenders are
//! ordered by priority, then by sequence number. A timeout runs from the entry's `since` or from the epoch (the last
//! server start), whichever is later. So a restart of the server restarts every timeout without changing an entry. This
//! file makes no decisions: `machine.rs` decides which entries change, and this file carries that out.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slab, which never contain a slot without an entry"
)]

use crate::actors::lock::entry::{Client, Entry, Rare, Ring, Terms};
use crate::actors::lock::line::Line;
use crate::actors::lock::message::{Name, Tie};
use crate::actors::lock::of_process::BoundEntries;
use crate::actors::lock::pages::Head;
use crate::clock::Timestamp;
use crate::ids::{Digest, PageId, Seq, Slot, Token};
use crate::lookup::durable::{DurableSlab, Singleton};
use crate::lookup::pages::Pages;
use crate::lookup::table::Table;
use crate::spine::machine::Stamp;
use std::collections::{BTreeSet, HashMap};

/// All entries and every index over them.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) entries: DurableSlab<Entry>,
    /// The owner's entry, by key and index.
    pub(super) locks: Table,
    /// For each key, the entry that owns the first lock of the key (the lock that was requested first). Contains only keys
    /// that have a lock with a nonempty index: most keys have a single lock, with an empty index, which is found in `locks`.
    pub(super) keys: Table,
    /// The oldest entry of each owner, by owner name.
    pub(super) owners: Table,
    /// The contenders of each contended lock, by the slot of its owner.
    pub(super) lines: HashMap<Slot, Box<Line>, foldhash::fast::RandomState>,
    /// Entries bound to a process.
    pub(super) bound: BoundEntries,
    /// Entries that other actors requested, see [`Tie::Actor`].
    pub(super) of_actors: BTreeSet<Slot>,
    pub(super) contenders: u32,
    pub(super) head: Singleton<Head>,
    pub(super) pages: Pages,
}

impl State {
    /// Returns the slot of the entry that owns a lock; `None` if the lock is free.
    pub(super) fn holder(&self, key: &[u8], index: &[u8]) -> Option<Slot> {
        self.locks.find(&(key, index), |slot| self.entries[slot].lock() == (key, index))
    }

    /// Returns the slot of this owner's entry for a lock, whether it owns the lock or waits for it; `None` if there is none.
    pub(super) fn find(&self, key: &[u8], index: &[u8], owner: &[u8]) -> Option<Slot> {
        let holder = self.holder(key, index)?;
        if self.entries[holder].owner() == owner {
            return Some(holder);
        }
        let line = self.lines.get(&holder)?;
        line.by_owner.find(&owner, |slot| self.entries[slot].owner() == owner)
    }

    /// Returns the position of an entry in line; 1 for the owner.
    pub(super) fn place(&self, slot: Slot, high_first: bool) -> u32 {
        let entry = &self.entries[slot];
        if entry.is_owner() {
            return 1;
        }
        let line = self.line_of(entry).expect("a contender should be in a line");
        let ahead = |rank: u8| {
            if high_first { rank > entry.priority } else { rank < entry.priority }
        };
        let before: usize =
            line.ranks.iter().filter(|(rank, _)| ahead(**rank)).map(|(_, rank)| rank.len()).sum();
        let equals = line
            .ranks
            .get(&entry.priority)
            .expect("a contender should be in the rank of its priority");
        let among = equals.before(entry.seq);
        u32::try_from(before + among + 2).unwrap_or(u32::MAX)
    }

    /// Returns the position that a new contender with this priority would get in the line for this owner's lock.
    pub(super) fn place_of_new_contender(
        &self,
        holder: Slot,
        priority: u8,
        high_first: bool,
    ) -> u32 {
        let before: usize = self.lines.get(&holder).map_or(0, |line| {
            let ahead = |rank: u8| {
                if high_first { rank >= priority } else { rank <= priority }
            };
            line.ranks.iter().filter(|(rank, _)| ahead(**rank)).map(|(_, rank)| rank.len()).sum()
        });
        u32::try_from(before + 2).unwrap_or(u32::MAX)
    }

    /// Returns the contenders for an owner's lock, in order of their position.
    pub(super) fn contenders(
        &self,
        holder: Slot,
        high_first: bool,
    ) -> impl Iterator<Item = Slot> + '_ {
        self.lines.get(&holder).into_iter().flat_map(move |line| line.all(high_first))
    }

    /// Returns the contenders for an owner's lock in the order in which they become its owner: first those whose clients are there, then
    /// those whose clients are away.
    pub(super) fn heirs(&self, holder: Slot, high_first: bool) -> impl Iterator<Item = Slot> + '_ {
        let line = self.lines.get(&holder);
        let present = line.into_iter().flat_map(move |line| line.present(high_first));
        let all = line.filter(|line| line.away > 0).into_iter();
        let all = all.flat_map(move |line| line.all(high_first));
        present.chain(all.filter(|slot| self.entries[*slot].is_away()))
    }

    /// Returns every entry of this owner, oldest first.
    pub(super) fn of_owner(&self, owner: &[u8]) -> impl Iterator<Item = Slot> + '_ {
        let head = self.owners.find(&owner, |slot| self.entries[slot].owner() == owner);
        self.ring(head, |entry| entry.of_owner)
    }

    /// Returns every entry of this owner, oldest first, from this one on if it is given.
    pub(super) fn of_owner_from(
        &self,
        owner: &[u8],
        from: Option<Slot>,
    ) -> impl Iterator<Item = Slot> + '_ {
        let head = self.of_owner(owner).next();
        let next = move |slot: &Slot| {
            let next = self.entries[*slot].of_owner.next;
            (Some(next) != head).then_some(next)
        };
        std::iter::successors(from.or(head), next)
    }

    /// Returns the entries that own the locks of this key, ordered by the first request for each lock.
    pub(super) fn of_key(&self, key: &[u8]) -> impl Iterator<Item = Slot> + '_ {
        let without_index = self.holder(key, b"");
        let only = without_index.filter(|slot| self.entries[*slot].of_key.next == *slot);
        let head = only.or_else(|| self.key_head(key));
        self.ring(head, |entry| entry.of_key)
    }

    /// Returns every entry of this owner under this key, oldest first, if the owner has at most `most` entries or the key at
    /// most `most` locks; otherwise `None`.
    pub(super) fn of_owner_and_key(
        &self,
        owner: &[u8],
        key: &[u8],
        most: usize,
    ) -> Option<Vec<Slot>> {
        let (mut by_owner, mut by_key) = (self.of_owner(owner), self.of_key(key));
        let mut steps = 0..=most;
        let owner_has_fewer = loop {
            steps.next()?;
            match (by_owner.next(), by_key.next()) {
                (Some(_), Some(_)) => {}
                (fewer, _) => break fewer.is_none(),
            }
        };
        let mut slots: Vec<Slot> = if owner_has_fewer {
            self.of_owner(owner).filter(|slot| self.entries[*slot].key() == key).collect()
        } else {
            let of_lock = |holder| self.find(key, self.entries[holder].index(), owner);
            self.of_key(key).filter_map(of_lock).collect()
        };
        slots.sort_by_key(|slot| self.entries[*slot].seq);
        Some(slots)
    }

    fn ring(
        &self,
        head: Option<Slot>,
        ring: impl Fn(&Entry) -> Ring + 'static,
    ) -> impl Iterator<Item = Slot> + '_ {
        let next = move |slot: &Slot| {
            let next = ring(&self.entries[*slot]).next;
            (Some(next) != head).then_some(next)
        };
        std::iter::successors(head, next)
    }

    /// Returns whether an entry owns its lock with this token and is not being fenced.
    pub(super) fn is_held_with(&self, slot: Slot, token: Token) -> bool {
        let entry = &self.entries[slot];
        entry.token() == token && !entry.is_fencing()
    }

    /// Returns when an entry times out; `None` if it has no timeout or is being fenced.
    pub(super) fn deadline_of(&self, entry: &Entry) -> Option<Timestamp> {
        entry.ends(self.head.epoch)
    }

    pub(super) fn digest(&self) -> Digest {
        let mut digest = self.entries.digest();
        digest.merge(self.head.digest());
        digest
    }

    pub(super) fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        if page == PageId::HEAD {
            self.head.encode(content);
        } else {
            self.entries.encode(page, content);
        }
    }

    /// Records that new entries are refused.
    pub(super) fn drain(&mut self, seq: Seq) {
        let change = self.pages.by(seq);
        self.head.change(change, |head| head.draining = true);
    }

    /// Adds an entry: as owner if the lock is free, otherwise as a contender.
    pub(super) fn insert(
        &mut self,
        slot: Slot,
        Stamp { seq, at }: Stamp,
        (key, index, owner): (&Name, &Name, &Name),
        terms: Terms,
    ) {
        let holder = self.holder(key.as_bytes(), index.as_bytes());
        let len = |name: &Name| {
            u8::try_from(name.as_bytes().len()).expect("a name should have at most 255 bytes")
        };
        let mut entry = Entry {
            names: [key.as_bytes(), index.as_bytes(), owner.as_bytes()].concat().into(),
            since: at,
            seq,
            rare: holder.and_then(|holder| {
                let first = self.entries[holder].first();
                Rare::unless_plain(seq, (Token(0), first), (Tie::None, false))
            }),
            of_owner: Ring::alone(slot),
            of_key: Ring::alone(slot),
            ttl: terms.ttl,
            ttw: terms.ttw,
            priority: terms.priority,
            key_len: len(key),
            index_len: len(index),
        };
        entry.set_tie(terms.tie);
        entry.set_client(terms.client());
        self.entries.insert(self.pages.by(seq), slot, entry);
        self.join_owner(slot);
        self.join_process(slot);
        match holder {
            None => {
                self.join_locks(slot);
                self.join_key(slot);
            }
            Some(holder) => {
                self.join_line(holder, slot);
                self.contenders += 1;
            }
        }
    }

    /// Restarts an entry's timeout. Its client is no longer away.
    pub(super) fn renew(&mut self, slot: Slot, entry: Stamp) {
        self.come_back(slot);
        let change = self.pages.by(entry.seq);
        self.entries.change(change, slot, |it| {
            it.since = entry.at;
            if it.is_away() {
                it.set_client(Client::Waits);
            }
        });
    }

    /// Restarts an entry's timeout with the new TTL, and with the new TTW if that is longer. A new tie to a process
    /// replaces any other; a tie to a process or an actor is never removed; and an entry that is not tied to a
    /// connection does not become tied to one. Its client is no longer away.
    pub(super) fn extend(&mut self, slot: Slot, entry: Stamp, terms: Terms) {
        self.come_back(slot);
        self.leave_process(slot);
        let change = self.pages.by(entry.seq);
        self.entries.change(change, slot, |it| {
            (it.since, it.ttl, it.ttw) = (entry.at, terms.ttl, it.ttw.max(terms.ttw));
            it.set_tie(match (terms.tie, it.tie()) {
                (Tie::Process(binding), _) | (_, Tie::Process(binding)) => Tie::Process(binding),
                (_, Tie::Actor(actor)) | (Tie::Actor(actor), _) => Tie::Actor(actor),
                (Tie::Connection, Tie::Connection) => Tie::Connection,
                (Tie::None | Tie::Connection, Tie::None) | (Tie::None, Tie::Connection) => {
                    Tie::None
                }
            });
            it.set_client(terms.client());
        });
        self.join_process(slot);
    }

    /// Notes in the line of a contender that its client is no longer away. Does nothing for any other entry.
    fn come_back(&mut self, slot: Slot) {
        let entry = &self.entries[slot];
        if entry.is_away() {
            let holder = self.holder(entry.key(), entry.index());
            let holder = holder.expect("a contended lock should have an owner");
            let line = self.lines.get_mut(&holder).expect("a contender should be in a line");
            line.come_back(entry.standing(slot));
        }
    }

    /// Records that an owner has timed out and its process tree is being killed.
    pub(super) fn fence(&mut self, slot: Slot, entry: Stamp) {
        let change = self.pages.by(entry.seq);
        self.entries.change(change, slot, Entry::fence);
    }

    /// Removes an entry. If it owned its lock, the lock passes to `heir`, or becomes free if there are no contenders.
    pub(super) fn remove(&mut self, slot: Slot, heir: Option<Slot>, entry: Stamp) {
        self.leave_owner(slot);
        self.leave_process(slot);
        if self.entries[slot].is_owner() {
            match heir {
                Some(heir) => self.promote(slot, heir, entry),
                None => {
                    assert!(!self.lines.contains_key(&slot), "a lock with contenders has an heir");
                    self.leave_key(slot);
                    self.leave_locks(slot);
                }
            }
        } else {
            assert!(heir.is_none(), "only an owner has an heir");
            self.leave_line(slot);
            self.contenders -= 1;
        }
        self.entries.remove(self.pages.by(entry.seq), slot);
    }

    /// Makes the contender `heir` the owner of the lock that `old` owned, in all indexes. The entry `old` is not removed.
    fn promote(&mut self, old: Slot, heir: Slot, entry: Stamp) {
        assert!(
            self.entries[heir].lock() == self.entries[old].lock(),
            "the heir waits for the same lock"
        );
        self.leave_line(heir);
        self.contenders -= 1;
        self.leave_process(heir);
        let change = self.pages.by(entry.seq);
        self.entries.change(change, heir, |it| it.grant(entry));
        self.join_process(heir);
        let (entries, locks) = (&self.entries, &mut self.locks);
        assert!(
            locks.replace(&entries[old].lock(), old, heir),
            "the index of locks refers to the owner's entry"
        );
        self.replace_in_key(old, heir);
        if let Some(line) = self.lines.remove(&old) {
            self.lines.insert(heir, line);
        }
    }

    /// Handles a server start: every timeout restarts, new entries are accepted again, contenders that are tied to
    /// connections are removed, and clients that waited for an answer are away.
    pub(super) fn start(&mut self, entry: Stamp) {
        if self.contenders > 0 {
            let slots_of = |is_meant: fn(&Entry) -> bool| -> Vec<Slot> {
                let entries = self.entries.iter();
                entries.filter(|(_, entry)| is_meant(entry)).map(|(slot, _)| slot).collect()
            };
            let attended = slots_of(|entry| entry.tie() == Tie::Connection);
            let cut_off =
                slots_of(|entry| entry.client() == Client::Waits && entry.tie() != Tie::Connection);
            for slot in attended {
                self.remove(slot, None, entry);
            }
            for slot in cut_off {
                self.leave_client(slot, entry);
            }
        }
        let began = Head { epoch: entry.at, draining: false };
        let change = self.pages.by(entry.seq);
        self.head.change(change, |head| *head = began);
        self.entries.restart_spans(entry.at);
    }

    /// Records that the client of a contender, which waited for an answer, is away.
    fn leave_client(&mut self, slot: Slot, entry: Stamp) {
        let change = self.pages.by(entry.seq);
        self.entries.change(change, slot, |it| it.set_client(Client::Away));
        let entry = &self.entries[slot];
        let holder =
            self.holder(entry.key(), entry.index()).expect("a contended lock should have an owner");
        let line = self.lines.get_mut(&holder).expect("a contender should be in a line");
        line.leave(entry.standing(slot));
    }

    fn line_of(&self, entry: &Entry) -> Option<&Line> {
        let holder = self.holder(entry.key(), entry.index())?;
        self.lines.get(&holder).map(Box::as_ref)
    }

    fn join_locks(&mut self, slot: Slot) {
        let (entries, locks) = (&self.entries, &mut self.locks);
        locks.insert(&entries[slot].lock(), slot, |other| entries[other].lock());
    }

    fn leave_locks(&mut self, slot: Slot) {
        let (entries, locks) = (&self.entries, &mut self.locks);
        assert!(
            locks.remove(&entries[slot].lock(), slot),
            "the index of locks refers to the owner's entry"
        );
    }

    pub(super) fn join_line(&mut self, holder: Slot, slot: Slot) {
        let entries = &self.entries;
        let entry = &entries[slot];
        let line = self.lines.entry(holder).or_default();
        line.insert(entry.standing(slot), entry.is_away());
        line.by_owner.insert(&entry.owner(), slot, |other| entries[other].owner());
    }

    fn leave_line(&mut self, slot: Slot) {
        let entry = &self.entries[slot];
        let holder =
            self.holder(entry.key(), entry.index()).expect("a contended lock should have an owner");
        let line = self.lines.get_mut(&holder).expect("a contender should be in a line");
        line.remove(entry.standing(slot), entry.is_away());
        assert!(
            line.by_owner.remove(&entry.owner(), slot),
            "the line finds each contender by its owner name"
        );
        if line.len == 0 {
            self.lines.remove(&holder);
        }
    }

    /// Adds an entry that is tied to a process or an actor to the corresponding index; does nothing for any other entry.
    pub(super) fn join_process(&mut self, slot: Slot) {
        self.bound.insert(slot, &self.entries[slot]);
        if self.entries[slot].tie().actor().is_some() {
            self.of_actors.insert(slot);
        }
    }

    fn leave_process(&mut self, slot: Slot) {
        self.bound.remove(slot, &self.entries[slot]);
        self.of_actors.remove(&slot);
    }

    fn join_owner(&mut self, slot: Slot) {
        let entries = &self.entries;
        let owner = entries[slot].owner();
        match self.owners.find(&owner, |other| entries[other].owner() == owner) {
            None => self.owners.insert(&owner, slot, |other| entries[other].owner()),
            Some(head) => self.link(head, slot, |entry| &mut entry.of_owner),
        }
    }

    fn leave_owner(&mut self, slot: Slot) {
        let next = self.unlink(slot, |entry| &mut entry.of_owner);
        let entries = &self.entries;
        let owner = entries[slot].owner();
        match next {
            None => assert!(
                self.owners.remove(&owner, slot),
                "the index of owners refers to the oldest entry of each owner"
            ),
            // This does nothing unless the entry was the oldest, to which the index refers.
            Some(next) => {
                self.owners.replace(&owner, slot, next);
            }
        }
    }

    pub(super) fn key_head(&self, key: &[u8]) -> Option<Slot> {
        self.keys.find(&key, |slot| self.entries[slot].key() == key)
    }

    pub(super) fn join_key(&mut self, slot: Slot) {
        let entry = &self.entries[slot];
        let key = entry.key();
        let head = match self.key_head(key) {
            None if entry.index().is_empty() => None,
            None => {
                // This is the first lock with an index: add the key to the table.
                let without_index = self.holder(key, b"");
                let (entries, keys) = (&self.entries, &mut self.keys);
                let first = without_index.unwrap_or(slot);
                keys.insert(&key, first, |other| entries[other].key());
                without_index
            }
            head => head,
        };
        if let Some(head) = head {
            self.link(head, slot, |entry| &mut entry.of_key);
        }
    }

    fn leave_key(&mut self, slot: Slot) {
        let next = self.unlink(slot, |entry| &mut entry.of_key);
        let entries = &self.entries;
        let key = entries[slot].key();
        match next {
            None => assert!(
                entries[slot].index().is_empty() || self.keys.remove(&key, slot),
                "the index of keys refers to the first lock of each key"
            ),
            Some(next) => {
                // This does nothing unless the lock was the first, to which the index refers.
                self.keys.replace(&key, slot, next);
                let left = &entries[next];
                if left.of_key.next == next && left.index().is_empty() {
                    assert!(
                        self.keys.remove(&key, next),
                        "a key is in the table until its last lock with an index is removed"
                    );
                }
            }
        }
    }

    /// Puts the new owner of a lock at the position of the old one in the ring of the key.
    fn replace_in_key(&mut self, old: Slot, new: Slot) {
        let ring = self.entries[old].of_key;
        let entries = self.entries.volatile();
        if ring.next == old {
            entries[new].of_key = Ring::alone(new);
        } else {
            entries[new].of_key = ring;
            entries[ring.previous].of_key.next = new;
            entries[ring.next].of_key.previous = new;
        }
        let (entries, keys) = (&self.entries, &mut self.keys);
        keys.replace(&entries[old].key(), old, new);
    }

    /// Appends an entry to the ring that begins at `head`.
    pub(super) fn link(&mut self, head: Slot, slot: Slot, ring: impl Fn(&mut Entry) -> &mut Ring) {
        let entries = self.entries.volatile();
        let last = ring(&mut entries[head]).previous;
        *ring(&mut entries[slot]) = Ring { previous: last, next: head };
        ring(&mut entries[last]).next = slot;
        ring(&mut entries[head]).previous = slot;
    }

    /// Removes an entry from its ring. Returns the entry that followed it; `None` if it was alone.
    fn unlink(&mut self, slot: Slot, ring: impl Fn(&mut Entry) -> &mut Ring) -> Option<Slot> {
        let entries = self.entries.volatile();
        let Ring { previous, next } = *ring(&mut entries[slot]);
        ring(&mut entries[previous]).next = next;
        ring(&mut entries[next]).previous = previous;
        (next != slot).then_some(next)
    }
}
