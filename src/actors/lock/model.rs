//! A second implementation of the lock rules: a plain list and linear searches. `tests.rs` and the simulation
//! (`tests/sim/locks.rs`) compare the machine with it. The simulation is a separate crate that includes this file, so
//! imports name `sexton` instead of `crate`. The model follows `docs/protocols/lockserver.md`, and shares no code with
//! `machine.rs` or `state.rs`.

use sexton::actors::binding::{Binding, EndNotice, ToProcesses, Until, Watch};
use sexton::actors::lock::{
    EntryView, Hold, LinePosition, LockState, Message, Name, Part, Refused, Reply, Rules, Tie,
};
use sexton::clock::Timestamp;
use sexton::ids::{ActorId, Seq, Slot, Token};

/// The model: a list of entries, the oldest first.
#[derive(Clone)]
pub(super) struct Model {
    high_first: bool,
    entries_max: u32,
    /// The number of entries that one part of a request examines.
    pub(super) part: usize,
    pub(super) draining: bool,
    pub(super) entries: Vec<ModelEntry>,
    /// How often a lock passed over a contender that is away, and how often it passed to one because nobody else waited.
    pub(super) passed_over: u64,
    pub(super) passed_to_absent: u64,
    /// Messages sent to the `ProcessActor` that have not been taken yet.
    pub(super) requests: Vec<ToProcesses>,
    /// Notifications sent to actors about their own entries, except those that have been taken already.
    pub(super) notifications: Vec<(ActorId, LockState)>,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a plain model, without the types of the machine"
)]
pub(super) struct ModelEntry {
    pub(super) slot: Slot,
    seq: Seq,
    /// The sequence number of the first request since the lock was last free.
    first: Seq,
    pub(super) token: Token,
    pub(super) lock: (Name, Name),
    pub(super) owner: Name,
    ttl: u16,
    ttw: u16,
    priority: u8,
    /// What can end the entry besides a client's request or a timeout.
    pub(super) tie: Tie,
    /// Whether the owner has timed out and its process tree is being killed.
    pub(super) fencing: bool,
    /// Whether the client of a contender waits for an answer.
    waits: bool,
    /// Whether the server has restarted since it last heard of a client that waits.
    pub(super) away: bool,
    since: Timestamp,
    pub(super) deadline: Option<Timestamp>,
    /// If set, the entry's deadline is ignored until its timeout is restarted.
    pub(super) quarantined: bool,
}

impl ModelEntry {
    pub(super) fn owns(&self) -> bool {
        self.token != Token(0)
    }

    fn begin_span(&mut self, at: Timestamp) {
        self.quarantined = false;
        let span = if self.owns() { self.ttl } else { self.ttw };
        let tied = self.tie.binding().is_some() || self.tie.actor().is_some();
        let endless = self.fencing || span == 65_535 && tied;
        self.deadline = (!endless).then(|| at.plus_seconds(span.into()));
    }

    /// Returns whether the end of this process ends the entry.
    fn ends_with(&self, gone: EndNotice) -> bool {
        let bound = self.tie.binding();
        let bound = bound.filter(|bound| bound.process == gone.process);
        bound.is_some_and(|bound| gone.until == Until::Tree || bound.until == gone.until)
    }

    /// Returns the messages about the entry that the machine must send to the `ProcessActor`.
    pub(super) fn requests(&self) -> Vec<ToProcesses> {
        let Some(Binding { process, until, .. }) = self.tie.binding() else {
            return Vec::new();
        };
        let by = ActorId::LOCK;
        let mut requests = vec![ToProcesses::Watch(Watch { by, process, until })];
        requests.extend(self.fencing.then_some(ToProcesses::Fence(process)));
        requests
    }

    /// Returns whether the key is reserved, so that no client can change the entry.
    fn is_reserved(&self) -> bool {
        self.lock.0.as_bytes().starts_with(b"wip-pool-lock-")
    }

    fn token(&self) -> Option<Token> {
        self.owns().then_some(self.token)
    }
}

impl Model {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            high_first: rules.high_first,
            entries_max: rules.entries_max,
            part: rules.part as usize,
            draining: false,
            entries: Vec::new(),
            passed_over: 0,
            passed_to_absent: 0,
            requests: Vec::new(),
            notifications: Vec::new(),
        }
    }

    /// Restarts the server: every timeout restarts, new entries are accepted again, contenders that are tied to
    /// connections are removed, and those whose clients waited for an answer are away.
    pub(super) fn start(&mut self, at: Timestamp) {
        self.draining = false;
        self.entries.retain(|it| it.owns() || it.tie != Tie::Connection);
        for it in &mut self.entries {
            it.away |= it.waits;
            it.begin_span(at);
        }
    }

    /// Returns the owner and the contenders of a lock, in order.
    pub(super) fn line(&self, lock: &(Name, Name)) -> Vec<&ModelEntry> {
        let mut line: Vec<&ModelEntry> =
            self.entries.iter().filter(|it| it.lock == *lock).collect();
        line.sort_by_key(|it| {
            let rank = if self.high_first { 255 - it.priority } else { it.priority };
            (!it.owns(), rank, it.seq)
        });
        line
    }

    /// Returns the contenders of a lock in the order in which they get it.
    fn heirs(&self, lock: &(Name, Name)) -> Vec<&ModelEntry> {
        let line = self.line(lock).into_iter().filter(|it| !it.owns());
        let (away, there): (Vec<_>, Vec<_>) = line.partition(|it| it.away);
        [there, away].concat()
    }

    pub(super) fn position(&self, lock: &(Name, Name), owner: &Name) -> Option<(u32, &ModelEntry)> {
        let line = self.line(lock);
        (1..).zip(line).find(|(_, it)| it.owner == *owner)
    }

    fn holder(&self, key: &Name, index: &Name) -> Option<Slot> {
        let lock = (key.clone(), index.clone());
        self.line(&lock).first().map(|it| it.slot)
    }

    pub(super) fn message(&mut self, message: &Message, seq: Seq, at: Timestamp) -> Reply {
        match message {
            Message::Request { key, index, owner, ttl, ttw, priority }
            | Message::Acquire { key, index, owner, ttl, ttw, priority, .. } => {
                let acquire = if let Message::Acquire { tie, waits, .. } = message {
                    Some((*tie, *waits))
                } else {
                    None
                };
                let lock = (key.clone(), index.clone());
                let terms = (*ttl, *ttw, *priority);
                self.request((&lock, owner), terms, acquire, (seq, at))
            }
            Message::Renew { key, index, owner, token } => {
                let lock = (key.clone(), index.clone());
                let owner = self.resolve_owner(&lock, owner, *token);
                self.renew_with((&lock, &owner), *token, at)
            }
            Message::Release { key, index, owner, token } => {
                let lock = index.as_ref().map(|index| (key.clone(), index.clone()));
                let owner =
                    lock.map_or(owner.clone(), |lock| self.resolve_owner(&lock, owner, *token));
                let meant = |it: &ModelEntry| {
                    it.owner == owner
                        && it.lock.0 == *key
                        && index.as_ref().is_none_or(|index| it.lock.1 == *index)
                };
                if index.is_none() {
                    return self.end_all((&owner, Some(key)), *token, seq, at);
                }
                self.end(meant, *token, seq, at)
            }
            Message::Leave { key, index, token } => {
                let holder = self.holder(key, index);
                self.end(|it| Some(it.slot) == holder, Some(*token), seq, at)
            }
            Message::ReleaseAll { owner } => self.end_all((owner, None), None, seq, at),
            Message::EndMore(more) => {
                let of = (&more.owner, more.key.as_ref());
                self.end_part(of, more.token, more.part, (seq, at))
            }
            Message::Force { key, index } => self.force((key, index), seq, at),
            Message::Gone(gone) => {
                let ends = self.entries.iter().filter(|it| it.ends_with(*gone));
                let until = |it: &ModelEntry| it.tie.binding().map(|it| it.until);
                let mut ends: Vec<_> = ends.map(|it| (it.owns(), until(it), it.slot)).collect();
                ends.sort_unstable();
                ends.truncate(self.part);
                self.take(|it| ends.iter().any(|(.., slot)| *slot == it.slot), seq, at)
            }
            Message::Drain if self.draining => Reply::Absent,
            Message::Drain => {
                self.draining = true;
                Reply::Draining
            }
            Message::Hold(hold) => self.hold(hold, seq, at),
            Message::Yield(hold) => self.give_up(hold, seq, at),
            Message::Expire { .. } => unreachable!("timeouts are handled by `tick`"),
        }
    }

    fn force(&mut self, (key, index): (&Name, &Name), seq: Seq, at: Timestamp) -> Reply {
        let line = self.line(&(key.clone(), index.clone()));
        if line.first().is_some_and(|it| it.is_reserved()) {
            return Reply::Refused(Refused::Reserved);
        }
        let holder = self.holder(key, index);
        self.take(|it| Some(it.slot) == holder, seq, at)
    }

    fn give_up(&mut self, hold: &Hold, seq: Seq, at: Timestamp) -> Reply {
        let lock = (hold.key.clone(), hold.index.clone());
        self.take(|it| it.lock == lock && it.owner == hold.owner, seq, at)
    }

    /// Adds or renews an actor's entry for a reserved lock. The entry stays until the actor yields it.
    fn hold(&mut self, hold: &Hold, seq: Seq, at: Timestamp) -> Reply {
        let lock = (hold.key.clone(), hold.index.clone());
        if self.position(&lock, &hold.owner).is_none() {
            self.add(&lock, &hold.owner, (u16::MAX, u16::MAX, 0), (seq, at));
            for it in self.entries.iter_mut().filter(|it| it.seq == seq) {
                it.tie = Tie::Actor(hold.by);
            }
        }
        let reply = self.renew(&lock, &hold.owner, at);
        let held = self.held(&lock, &hold.owner);
        self.notifications.extend(held);
        reply
    }

    /// Returns the notification to an actor about its own entry; `None` if there is no such entry or it is a client's.
    pub(super) fn held(&self, lock: &(Name, Name), owner: &Name) -> Option<(ActorId, LockState)> {
        let (place, it) = self.position(lock, owner)?;
        let held = LockState {
            key: lock.0.clone(),
            index: lock.1.clone(),
            owner: owner.clone(),
            granted: place == 1,
        };
        Some((it.tie.actor()?, held))
    }

    /// Requests a lock. If `acquire` is given, the entry also adopts this tie (unless it is already bound to a process
    /// and the new tie is not), the TTL, and the TTW if that is longer; a contender also, whether its client waits.
    fn request(
        &mut self,
        (lock, owner): (&(Name, Name), &Name),
        (ttl, ttw, priority): (u16, u16, u8),
        acquire: Option<(Tie, bool)>,
        (seq, at): (Seq, Timestamp),
    ) -> Reply {
        let standing = self.position(lock, owner);
        if standing.is_some_and(|(_, it)| it.fencing) {
            return Reply::Refused(Refused::Fencing);
        }
        let is_new = standing.is_none();
        if is_new {
            if let Some(refused) = self.refused(&lock.0, owner) {
                return Reply::Refused(refused);
            }
            self.add(lock, owner, (ttl, ttw, priority), (seq, at));
        }
        if let Some((tie, waits)) = acquire {
            let its = |it: &&mut ModelEntry| it.lock == *lock && it.owner == *owner;
            for it in self.entries.iter_mut().filter(its) {
                (it.ttl, it.ttw) = (ttl, it.ttw.max(ttw));
                it.waits = waits && !it.owns();
                let is_line = !it.owns();
                let stays = tie != Tie::Connection || is_line && (is_new || it.tie == tie);
                if tie.binding().is_some() || it.tie.binding().is_none() {
                    it.tie = if stays { tie } else { Tie::None };
                }
                self.requests.extend(it.requests());
            }
        }
        self.renew(lock, owner, at)
    }

    fn renew_with(
        &mut self,
        (lock, owner): (&(Name, Name), &Name),
        token: Option<Token>,
        at: Timestamp,
    ) -> Reply {
        match self.position(lock, owner) {
            None => Reply::Absent,
            Some((_, it)) if token.is_some_and(|token| token != it.token) => {
                Reply::Refused(Refused::StaleToken)
            }
            Some((_, it)) if it.is_reserved() => Reply::Refused(Refused::Reserved),
            Some((_, it)) if it.fencing => Reply::Refused(Refused::Fencing),
            Some(_) => self.renew(lock, owner, at),
        }
    }

    /// Returns the owner that a message means: the current holder if `owner` is empty and a token is given.
    fn resolve_owner(&self, lock: &(Name, Name), owner: &Name, token: Option<Token>) -> Name {
        let holder = self.line(lock).first().map(|it| it.owner.clone());
        let by_token = token.is_some() && owner.as_bytes().is_empty();
        holder.filter(|_| by_token).unwrap_or(owner.clone())
    }

    fn refused(&self, key: &Name, owner: &Name) -> Option<Refused> {
        let full = self.entries.len() >= self.entries_max as usize;
        let reserved = key.as_bytes().starts_with(b"wip-pool-lock-");
        let reasons = [
            (owner.as_bytes().is_empty(), Refused::NoOwner),
            (reserved, Refused::Reserved),
            (self.draining, Refused::Draining),
            (full, Refused::Full),
        ];
        let reason = reasons.into_iter().find(|(applies, _)| *applies);
        reason.map(|(_, reason)| reason)
    }

    fn add(
        &mut self,
        lock: &(Name, Name),
        owner: &Name,
        (ttl, ttw, priority): (u16, u16, u8),
        (seq, at): (Seq, Timestamp),
    ) {
        let taken = |slot: &Slot| self.entries.iter().any(|it| it.slot == *slot);
        // Actors may add entries beyond the maximum.
        let slots = 0..=self.entries_max.saturating_add(64);
        let slot = slots.map(Slot).find(|slot| !taken(slot));
        let holder = self.line(lock).first().map(|it| it.first);
        let place = ModelEntry {
            slot: slot.expect("there are fewer entries than slots"),
            seq,
            first: holder.unwrap_or(seq),
            token: Token(if holder.is_none() { seq.0 } else { 0 }),
            lock: lock.clone(),
            owner: owner.clone(),
            ttl,
            ttw,
            priority,
            tie: Tie::None,
            fencing: false,
            waits: false,
            away: false,
            since: at,
            deadline: Some(at),
            quarantined: false,
        };
        self.entries.push(place);
    }

    fn answer(&self, lock: &(Name, Name), owner: &Name) -> Reply {
        let (place, it) = self.position(lock, owner).expect("the entry was just added or renewed");
        Reply::LinePosition(LinePosition { place, token: it.token(), away: false })
    }

    fn renew(&mut self, lock: &(Name, Name), owner: &Name, at: Timestamp) -> Reply {
        for it in self.entries.iter_mut().filter(|it| it.lock == *lock && it.owner == *owner) {
            it.away = false;
            it.since = at;
            it.begin_span(at);
        }
        self.answer(lock, owner)
    }

    fn end(
        &mut self,
        meant: impl Fn(&ModelEntry) -> bool,
        token: Option<Token>,
        seq: Seq,
        at: Timestamp,
    ) -> Reply {
        let gone: Vec<ModelEntry> = self.entries.iter().filter(|it| meant(it)).cloned().collect();
        if gone.iter().any(|it| token.is_some_and(|token| token != it.token)) {
            return Reply::Refused(Refused::StaleToken);
        }
        if !gone.is_empty() && gone.iter().all(|it| it.fencing) {
            return Reply::Refused(Refused::Fencing);
        }
        self.take(|it| meant(it) && !it.fencing && !it.is_reserved(), seq, at)
    }

    /// Ends the entries of an owner, in parts if it has many.
    fn end_all(
        &mut self,
        (owner, key): (&Name, Option<&Name>),
        token: Option<Token>,
        seq: Seq,
        at: Timestamp,
    ) -> Reply {
        let of_owner = self.entries.iter().filter(|it| it.owner == *owner).count();
        let of_key = |key: &Name| {
            let owners = self.entries.iter().filter(|it| it.owns());
            owners.filter(|it| it.lock.0 == *key).count()
        };
        if of_owner <= self.part || key.is_some_and(|key| of_key(key) <= self.part) {
            let meant =
                |it: &ModelEntry| it.owner == *owner && key.is_none_or(|key| it.lock.0 == *key);
            return self.end(meant, token, seq, at);
        }
        let first = Part { ended: 0, fencing: false, checked: false, upto: seq, next: None };
        self.end_part((owner, key), token, first, (seq, at))
    }

    /// Ends some entries of an owner: as many as a part has, from the entry on with which to continue.
    fn end_part(
        &mut self,
        (owner, key): (&Name, Option<&Name>),
        token: Option<Token>,
        part: Part,
        (seq, at): (Seq, Timestamp),
    ) -> Reply {
        let old = self.entries.iter();
        let old: Vec<&ModelEntry> =
            old.filter(|it| it.owner == *owner && it.seq <= part.upto).collect();
        let is_next = |it: &&ModelEntry| part.next == Some((it.slot, it.seq));
        let from = old.iter().position(is_next).unwrap_or(0);
        let is_last = from + self.part >= old.len();
        let window = old.into_iter().skip(from).take(self.part);
        let meant: Vec<Slot> =
            window.filter(|it| key.is_none_or(|key| it.lock.0 == *key)).map(|it| it.slot).collect();
        let is_meant = |it: &ModelEntry| meant.contains(&it.slot);
        let has = |it: &ModelEntry| token.is_none_or(|token| it.token == token);
        if token.is_some() && !part.checked {
            let is_empty = !self.entries.iter().any(|it| it.owner == *owner);
            return match self.entries.iter().find(|it| is_meant(it) && !has(it)) {
                Some(_) => Reply::Refused(Refused::StaleToken),
                None if is_empty => Reply::Absent,
                None => Reply::Ended(0),
            };
        }
        let reply = self.end(|it| is_meant(it) && has(it), None, seq, at);
        if let Reply::Ended(count) = reply {
            return Reply::Ended(part.ended + count);
        }
        if part.ended > 0 || !is_last {
            return Reply::Ended(part.ended);
        }
        if part.fencing {
            return Reply::Refused(Refused::Fencing);
        }
        reply
    }

    fn take(&mut self, meant: impl Fn(&ModelEntry) -> bool, seq: Seq, at: Timestamp) -> Reply {
        let gone = self.entries.iter().filter(|it| meant(it));
        let gone: Vec<ModelEntry> = gone.cloned().collect();
        self.entries.retain(|it| !meant(it));
        for it in &gone {
            self.pass_on(&it.lock, seq, at);
        }
        match u32::try_from(gone.len()) {
            Ok(0) => Reply::Absent,
            Ok(count) => Reply::Ended(count),
            Err(_) => unreachable!("the model is small"),
        }
    }

    /// Makes a contender the owner, if the lock has contenders and no owner.
    fn pass_on(&mut self, lock: &(Name, Name), seq: Seq, at: Timestamp) {
        let is_owned = self.line(lock).iter().any(|it| it.owns());
        let first = self.heirs(lock).first().filter(|_| !is_owned).map(|it| it.slot);
        let is_next = self.line(lock).first().map(|it| it.slot) == first;
        self.passed_over += u64::from(first.is_some() && !is_next);
        for heir in self.entries.iter_mut().filter(|it| Some(it.slot) == first) {
            self.passed_to_absent += u64::from(heir.away);
            heir.token = seq.into();
            if heir.tie == Tie::Connection {
                heir.tie = Tie::None;
            }
            (heir.waits, heir.away) = (false, false);
            heir.since = at;
            heir.begin_span(at);
        }
        let owner = self.line(lock).first().map(|it| it.owner.clone());
        let held = owner.filter(|_| first.is_some());
        let held = held.and_then(|owner| self.held(lock, &owner));
        self.notifications.extend(held);
    }

    pub(super) fn next_due(&self, at: Timestamp) -> Option<&ModelEntry> {
        let entries = self.entries.iter();
        let is_due = |it: &&ModelEntry| it.deadline.is_some_and(|ends| ends <= at);
        let due = entries.filter(|it| is_due(it) && !it.quarantined);
        due.min_by_key(|it| (it.deadline, it.slot))
    }

    /// Ends or fences the first entry that is due. Returns whether an entry was due.
    pub(super) fn tick(&mut self, seq: Seq, at: Timestamp) -> bool {
        let Some(dead) = self.next_due(at).cloned() else {
            return false;
        };
        if dead.owns() && dead.tie.binding().is_some_and(|bound| bound.fence) {
            let its = |it: &&mut ModelEntry| it.slot == dead.slot;
            for it in self.entries.iter_mut().filter(its) {
                (it.fencing, it.deadline) = (true, None);
                self.requests.extend(it.requests());
            }
            return true;
        }
        // If an owner times out, the contenders before the heir that have timed out by the same instant end with it.
        let with_it: Vec<Slot> = self
            .heirs(&dead.lock)
            .into_iter()
            .take_while(|it| dead.owns() && it.deadline.is_some() && it.deadline <= dead.deadline)
            .map(|it| it.slot)
            .collect();
        if with_it.len() > self.part {
            let first = with_it.get(..self.part).unwrap_or_default();
            self.entries.retain(|it| !first.contains(&it.slot));
            return true;
        }
        self.entries.retain(|it| it.slot != dead.slot && !with_it.contains(&it.slot));
        self.pass_on(&dead.lock, seq, at);
        true
    }

    pub(super) fn list(&self) -> Vec<EntryView> {
        let mut locks: Vec<_> = self
            .entries
            .iter()
            .map(|it| (it.lock.0.clone(), it.first, it.lock.1.clone()))
            .collect();
        locks.sort();
        locks.dedup();
        let of_lock = |(key, _, index)| {
            let line = self.line(&(key, index)).into_iter().cloned();
            line.zip(1..).collect::<Vec<_>>()
        };
        let listed = |(it, place): (ModelEntry, u32)| EntryView {
            place,
            token: it.token(),
            key: it.lock.0,
            index: it.lock.1,
            owner: it.owner,
            ttl: it.ttl,
            ttw: it.ttw,
            priority: it.priority,
            since: it.since,
            deadline: it.deadline,
            bound: it.tie.binding(),
            fencing: it.fencing,
            away: it.away,
        };
        locks.into_iter().flat_map(of_lock).map(listed).collect()
    }
}
