//! Determines which queue provides the job in a tenant's turn, and when a queue joins or leaves the line of queues with
//! claimable jobs. For turns, see `turns.rs`.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: a slot without an item is an impossible state"
)]

use crate::actors::queue::message::AnyType;
use crate::actors::queue::queue::Queue;
use crate::actors::queue::state::State;
use crate::actors::queue::turns::{Key, QueuePosition, StoredTurns, TURNS, Tenant, Turns, cost};
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::lookup::durable;
use crate::lookup::slab::Slab;
use sexton_api::queue::QueueName;
use std::collections::BTreeSet;

impl State {
    /// Registers a new queue with its tenant, creating the tenant if necessary. Returns the `QueuePosition` of the queue, which is
    /// not in line yet.
    pub(super) fn join_tenant(&mut self, name: &QueueName) -> QueuePosition {
        let turns = &mut self.turns;
        let tenant = turns.names.get(name.tenant()).copied();
        let tenant = tenant.unwrap_or_else(|| {
            let (slot, cost) = (turns.tenants.next_free(), cost(self.rules.weight_of(name)));
            let tenant = Tenant {
                name: name.tenant().into(),
                cost,
                queues: 0,
                claimable: 0,
                from: 0,
                place: 0,
                offered: BTreeSet::new(),
                offer_key: None,
            };
            turns.names.insert(tenant.name.clone(), slot);
            turns.tenants.insert(slot, tenant);
            slot
        });
        turns.tenants[tenant].queues += 1;
        QueuePosition { tenant, is_claimable: false, place: 0, offer_key: None }
    }

    /// Unregisters a queue that is about to be removed.
    pub(super) fn leave_tenant(&mut self, slot: Slot) {
        self.unindex_offer(slot);
        let (turns, tenant_position) = (&mut self.turns, &self.queues[slot].tenant_position);
        turns.tenants[tenant_position.tenant].queues -= 1;
        turns.left.push((tenant_position.tenant, tenant_position.is_claimable));
    }

    /// Records a queue for `settle_turns` if it has become claimable or is no longer claimable, or if it must be added to or
    /// removed from the offered queues.
    pub(super) fn note_turn(&mut self, slot: Slot) {
        let queue = &self.queues[slot];
        let tenant_position = &queue.tenant_position;
        let joins_or_leaves = tenant_position.is_claimable != queue.has_claimable();
        if joins_or_leaves || tenant_position.offer_key.is_some() != queue.place.is_some() {
            self.turns.changed.push(slot);
        }
        if joins_or_leaves {
            // The page must be marked before it changes; in `settle_turns`, the queue may already have been removed.
            self.touch_turns();
        }
    }

    /// Adds queues that have become claimable to the line, in the order of their names, and removes queues that are no
    /// longer claimable. Called after each journal entry, so two changes within an entry that cancel each other out
    /// have no effect.
    pub(super) fn settle_turns(&mut self) {
        if self.turns.changed.is_empty() && self.turns.left.is_empty() {
            return;
        }
        let mut changed = std::mem::take(&mut self.turns.changed);
        let queues = &self.queues;
        changed.retain(|slot| queues.get(*slot).is_some());
        changed.sort_by(|one, other| queues[*one].name.cmp(&queues[*other].name));
        changed.dedup();
        for is_claimable in [true, false] {
            for slot in &changed {
                let queue = &self.queues[*slot];
                if queue.tenant_position.is_claimable != is_claimable
                    && queue.has_claimable() == is_claimable
                {
                    self.update_line(*slot, is_claimable);
                }
            }
        }
        for slot in &changed {
            self.unindex_offer(*slot);
            self.index_offer(*slot);
        }
        changed.clear();
        self.turns.changed = changed;
        self.turns.forget();
    }

    fn update_line(&mut self, slot: Slot, is_claimable: bool) {
        self.unindex_offer(slot);
        let (turns, tenant_position) = (&mut self.turns, &mut self.queues[slot].tenant_position);
        tenant_position.is_claimable = is_claimable;
        if !is_claimable {
            turns.tenants[tenant_position.tenant].claimable -= 1;
            return;
        }
        tenant_position.place = turns.take_place();
        let (clock, place) = (turns.clock, turns.take_place());
        let tenant = &mut turns.tenants[tenant_position.tenant];
        tenant.claimable += 1;
        if tenant.claimable == 1 {
            (tenant.from, tenant.place) = (clock, place);
        }
    }

    /// Removes a queue from the indexes of offered queues, if they contain it.
    fn unindex_offer(&mut self, slot: Slot) {
        let (turns, queue) = (&mut self.turns, &mut self.queues[slot]);
        let tenant_position = &mut queue.tenant_position;
        let Some((key, rank)) = tenant_position.offer_key.take() else {
            return;
        };
        if let Some(seats) = turns.kinds.get_mut(queue.name.kind()) {
            seats.remove(&(key, slot));
            if seats.is_empty() {
                turns.kinds.remove(queue.name.kind());
            }
        }
        if let Some(rank) = rank {
            let offered = &mut turns.tenants[tenant_position.tenant].offered;
            offered.remove(&(rank, tenant_position.place, slot));
            turns.update_key(tenant_position.tenant);
        }
    }

    /// Adds a queue to the indexes of offered queues, if it is offered.
    fn index_offer(&mut self, slot: Slot) {
        let (turns, queue) = (&mut self.turns, &mut self.queues[slot]);
        if queue.place.is_none() {
            return;
        }
        turns.has_new_offers = true;
        let (rules, tenant_position) = (self.rules.of(&queue.name), &mut queue.tenant_position);
        let key = turns.tenants[tenant_position.tenant].key();
        let rank = rules.in_any.then_some(rules.rank);
        tenant_position.offer_key = Some((key, rank));
        if let Some(seats) = turns.kinds.get_mut(queue.name.kind()) {
            seats.insert((key, slot));
        } else {
            let seats = BTreeSet::from([(key, slot)]);
            turns.kinds.insert(queue.name.kind().into(), seats);
        }
        if let Some(rank) = rank {
            let offered = &mut turns.tenants[tenant_position.tenant].offered;
            offered.insert((rank, tenant_position.place, slot));
            turns.update_key(tenant_position.tenant);
        }
    }

    /// Returns the selected queue that provides the next job at `at`, and the virtual time at which its tenant's turn
    /// ends; `None` if no selected queue has a claimable job.
    pub(super) fn turn(&self, of: &AnyType, at: Timestamp) -> Option<(Slot, u64)> {
        let opened = self.opened(of, at);
        let tenants = &self.turns.tenants;
        let late = opened.iter().map(|(tenant, ..)| *tenant);
        let found = self.first_tenant(of).into_iter().chain(late);
        let tenant = found.min_by_key(|tenant| tenants[*tenant].key())?;
        let late = opened.iter().filter(|(other, ..)| *other == tenant);
        let late = late.map(|(_, rank, place, slot)| (*rank, *place, *slot));
        let (.., queue) = self.first_queue(of, tenant).into_iter().chain(late).min()?;
        let (end, _) = tenants[tenant].key();
        Some((queue, end.max(self.turns.clock)))
    }

    /// Returns the tenant, rank, position in line and slot of each selected queue that has claimable jobs and is still marked
    /// as closed although its closing has ended. Such queues occur in a replay, which does not open queues on time.
    fn opened(&self, of: &AnyType, at: Timestamp) -> Vec<(Slot, u32, u64, Slot)> {
        let due = self.closings.range(..=(at, Slot::NONE));
        let due = due.filter_map(|(_, slot)| {
            let queue = &self.queues[*slot];
            let is_ready = queue.has_claimable();
            (is_ready && self.is_selected(of, queue)).then(|| {
                let rank = self.rules.of(&queue.name).rank;
                (queue.tenant_position.tenant, rank, queue.tenant_position.place, *slot)
            })
        });
        due.collect()
    }

    fn is_selected(&self, of: &AnyType, queue: &Queue) -> bool {
        let name = &queue.name;
        let tenant = of.tenant.as_ref();
        tenant.is_none_or(|it| it.as_bytes() == name.tenant()) && self.is_type_selected(of, name)
    }

    fn is_type_selected(&self, of: &AnyType, name: &QueueName) -> bool {
        if of.types.is_empty() {
            self.rules.of(name).in_any && !of.excepts(name.kind())
        } else {
            of.types.iter().any(|it| it.as_bytes() == name.kind())
        }
    }

    fn first_tenant(&self, of: &AnyType) -> Option<Slot> {
        let turns = &self.turns;
        if let Some(name) = &of.tenant {
            let tenant = turns.names.get(name.as_bytes()).copied();
            return tenant.filter(|tenant| self.first_queue(of, *tenant).is_some());
        }
        if !self.searches_by_type(of) {
            let mut tenants = turns.any.iter().map(|(_, tenant)| *tenant);
            return tenants.find(|tenant| self.first_queue(of, *tenant).is_some());
        }
        let mut best: Option<(Key, Slot)> = None;
        for seats in self.selected_types(of) {
            for (key, slot) in seats {
                if best.is_some_and(|(best, _)| best < *key) {
                    break;
                }
                let tenant = self.queues[*slot].tenant_position.tenant;
                let is_right = turns.tenants[tenant].key();
                best = best.into_iter().chain([(is_right, tenant)]).min();
            }
        }
        best.map(|(_, tenant)| tenant)
    }

    /// Returns whether to search by type instead of by tenant. That is faster if types are named, or if types are excluded
    /// and there are fewer types than tenants with offered queues.
    fn searches_by_type(&self, of: &AnyType) -> bool {
        let turns = &self.turns;
        !of.types.is_empty() || !of.except.is_empty() && turns.kinds.len() < turns.any.len()
    }

    /// Returns the offered queues of the selected types, one set for each type.
    fn selected_types(&self, of: &AnyType) -> Vec<&BTreeSet<(Key, Slot)>> {
        let kinds = &self.turns.kinds;
        if !of.types.is_empty() {
            let named = of.types.iter();
            return named.filter_map(|it| kinds.get(it.as_bytes())).collect();
        }
        let is_selected = |seats: &&BTreeSet<(Key, Slot)>| {
            let one = seats.first().map(|(_, slot)| &self.queues[*slot].name);
            one.is_some_and(|name| self.is_type_selected(of, name))
        };
        kinds.values().filter(is_selected).collect()
    }

    /// Returns the rank, position in line and slot of the selected queue that provides the job in a tenant's turn; `None` if the
    /// tenant has no such queue.
    fn first_queue(&self, of: &AnyType, tenant: Slot) -> Option<(u32, u64, Slot)> {
        let tenant = &self.turns.tenants[tenant];
        if of.types.is_empty() {
            let mut offered = tenant.offered.iter();
            let may = |(.., slot): &&(u32, u64, Slot)| !of.excepts(self.queues[*slot].name.kind());
            return offered.find(may).copied();
        }
        let found = of.types.iter().filter_map(|kind| {
            let name = QueueName::of(&tenant.name, kind.as_bytes())?;
            let (slot, queue) = self.queue_named(&name)?;
            let is_offered = queue.tenant_position.offer_key.is_some();
            is_offered.then(|| (self.rules.of(&name).rank, queue.tenant_position.place, slot))
        });
        found.min()
    }

    /// Records that a queue has provided a job in its tenant's turn, which ended at the virtual time `end`. The queue moves
    /// to the end of the tenant's queues, and the tenant to the end of the line.
    pub(super) fn take_turn(&mut self, slot: Slot, of: &AnyType, end: u64) {
        self.touch_turns();
        self.unindex_offer(slot);
        let (turns, tenant_position) = (&mut self.turns, &mut self.queues[slot].tenant_position);
        turns.clock = turns.clock.max(end);
        tenant_position.place = turns.take_place();
        let (clock, place) = (turns.clock, turns.take_place());
        let tenant = &mut turns.tenants[tenant_position.tenant];
        (tenant.from, tenant.place) = (clock, place);
        turns.update_key(tenant_position.tenant);
        self.index_offer(slot);
        if self.searches_by_type(of) {
            self.update_keys(of);
        }
    }

    /// Updates the outdated keys at the front of the offered queues of each selected type.
    fn update_keys(&mut self, of: &AnyType) {
        let mut late = Vec::new();
        for seats in self.selected_types(of) {
            let is_late = |(key, slot): &&(Key, Slot)| {
                self.turns.tenants[self.queues[*slot].tenant_position.tenant].key() != *key
            };
            late.extend(seats.iter().take_while(is_late).map(|(_, slot)| *slot));
        }
        for slot in late {
            self.unindex_offer(slot);
            self.index_offer(slot);
        }
    }

    /// Applies new weights and ranks, and new rules about which types must be requested by name, to all queues.
    pub(super) fn reindex_offers(&mut self) {
        let slots: Vec<Slot> = self.queues.iter().map(|(slot, _)| slot).collect();
        for slot in &slots {
            self.unindex_offer(*slot);
            let queue = &self.queues[*slot];
            let weight = self.rules.weight_of(&queue.name);
            self.turns.tenants[queue.tenant_position.tenant].cost = cost(weight);
        }
        for slot in slots {
            self.index_offer(slot);
        }
    }

    fn touch_turns(&mut self) {
        let (turns, queues) = (&self.turns, &self.queues);
        let page = |content: &mut Vec<u8>| encode(turns, queues, content);
        self.pages.touch(TURNS, self.entry, page);
    }

    /// Restores the positions of tenants and queues from a snapshot.
    pub(super) fn load_turns(&mut self, stored: StoredTurns) {
        let StoredTurns { clock, next, tenants, queues } = stored;
        self.turns.clock = clock;
        self.turns.next = self.turns.next.max(next);
        for (name, from, place) in tenants {
            if let Some(slot) = self.turns.names.get(name.as_bytes()) {
                let tenant = &mut self.turns.tenants[*slot];
                (tenant.from, tenant.place) = (from, place);
            }
        }
        let slots: Vec<Slot> = self.queues.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.unindex_offer(slot);
        }
        for (number, place) in queues {
            if let Some(numbered) = self.numbers.get(number) {
                self.queues[numbered.queue].tenant_position.place = place;
            }
        }
        self.turns.next = next;
        self.reindex_offers();
    }

    /// Appends the encoded page of turns to `content`.
    pub(super) fn encode_turns(&self, content: &mut Vec<u8>) {
        encode(&self.turns, &self.queues, content);
    }
}

/// Appends the turns to `content`, encoded as [`StoredTurns`].
fn encode(turns: &Turns, queues: &Slab<Queue>, content: &mut Vec<u8>) {
    let in_line = |(_, tenant): &(Slot, &Tenant)| tenant.claimable > 0;
    let tenants = turns.tenants.iter().filter(in_line).map(|(_, tenant)| {
        let name = String::from_utf8_lossy(&tenant.name).into();
        (name, tenant.from, tenant.place)
    });
    let queues = queues.iter().filter(|(_, it)| it.tenant_position.is_claimable);
    let queues = queues.filter_map(|(_, queue)| Some((queue.number?, queue.tenant_position.place)));
    let stored = StoredTurns {
        clock: turns.clock,
        next: turns.next,
        tenants: tenants.collect(),
        queues: queues.collect(),
    };
    durable::write(&stored, content);
}
