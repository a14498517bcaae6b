//! A hierarchical timer wheel of slots, after Varghese and Lauck (1987), scheme 7.
//!
//! There are eleven levels of 64 buckets ("places"), which cover the whole range of time; a place of level n, counted from 0, spans
//! 64^n ms. Insertion and removal take constant time, except for items that are already due. `due` yields items in (deadline, slot)
//! order. The wheel is volatile: the durable copy of a deadline is in the item itself.

use crate::clock::Timestamp;
use crate::ids::Slot;
use std::collections::BTreeSet;

const LEVELS: usize = 11;
const PLACES: usize = 64;
const CHUNK: usize = 1024;
/// Link numbers from this one on are the list heads of places; lower ones are the slots of items.
const HEADS: u32 = u32::MAX - 1024;
/// As `Link::previous`: the item is not in the wheel.
const OUT: u32 = u32::MAX;
/// As `Link::previous`: the item is in `Wheel::due`.
const DUE: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

/// Slots ordered by deadline.
#[derive(Debug)]
pub struct Wheel {
    /// The time up to which the wheel has advanced, in milliseconds: items whose deadlines are not later are in `due`.
    elapsed: u64,
    /// For each level, a bit for each place that may have items.
    occupied: [u64; LEVELS],
    /// A bit for each level whose bits in `occupied` are not all zero.
    levels: u32,
    heads: Vec<Link>,
    links: Vec<Vec<Link>>,
    due: BTreeSet<(u64, u32)>,
}

impl Default for Wheel {
    fn default() -> Self {
        let ring = |place: usize| {
            let head = head(place);
            Link { previous: head, next: head }
        };
        Self {
            elapsed: 0,
            occupied: [0; LEVELS],
            levels: 0,
            heads: (0..LEVELS * PLACES).map(ring).collect(),
            links: Vec::new(),
            due: BTreeSet::new(),
        }
    }
}

impl Wheel {
    /// Adds an item that is not in the wheel.
    ///
    /// # Panics
    /// Panics if the item is in the wheel already.
    pub fn insert(&mut self, slot: Slot, deadline: Timestamp) {
        while slot.index() >= self.links.len() * CHUNK {
            self.links.push(vec![Link { previous: OUT, next: OUT }; CHUNK]);
        }
        assert!(self.link(slot.0).previous == OUT, "the item is not in the wheel yet");
        if deadline.0 <= self.elapsed {
            self.due.insert((deadline.0, slot.0));
            self.link_mut(slot.0).previous = DUE;
            return;
        }
        let place = place(self.elapsed, deadline.0);
        if let Some(bits) = self.occupied.get_mut(place / PLACES) {
            *bits |= 1 << (place % PLACES);
            self.levels |= 1 << (place / PLACES);
        }
        let head = head(place);
        let last = self.link(head).previous;
        *self.link_mut(slot.0) = Link { previous: last, next: head };
        self.link_mut(last).next = slot.0;
        self.link_mut(head).previous = slot.0;
    }

    /// Removes an item, if it is in the wheel. `deadline` must be the deadline that it was inserted with.
    pub fn remove(&mut self, slot: Slot, deadline: Timestamp) {
        if slot.index() >= self.links.len() * CHUNK {
            return;
        }
        let Link { previous, next } = self.link(slot.0);
        match previous {
            OUT => return,
            DUE => assert!(
                self.due.remove(&(deadline.0, slot.0)),
                "an item is removed with the deadline it was inserted with"
            ),
            _ => {
                self.link_mut(previous).next = next;
                self.link_mut(next).previous = previous;
            }
        }
        self.link_mut(slot.0).previous = OUT;
    }

    /// Returns whether an item is in the wheel.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        slot.index() < self.links.len() * CHUNK && self.link(slot.0).previous != OUT
    }

    /// Returns a time before which nothing is due; `None` only if the wheel is empty.
    pub fn deadline(&self) -> Option<Timestamp> {
        if let Some((deadline, _)) = self.due.first() {
            return Some(Timestamp(*deadline));
        }
        self.first_place().map(|(_, begins)| Timestamp(begins))
    }

    /// Returns the item with the earliest deadline, if that is not later than `at`; among equal deadlines, the one with the lowest slot.
    /// The item stays in the wheel until it is removed. `deadline_of` must return the deadline that an item was inserted with.
    pub fn due(&mut self, at: Timestamp, deadline_of: impl Fn(Slot) -> Timestamp) -> Option<Slot> {
        while self.due.is_empty() {
            let Some((place, begins)) = self.first_place().filter(|(_, begins)| *begins <= at.0)
            else {
                self.elapsed = self.elapsed.max(at.0);
                return None;
            };
            self.elapsed = begins;
            self.empty_place(place, &deadline_of);
        }
        let (deadline, slot) = self.due.first()?;
        (*deadline <= at.0).then_some(Slot(*slot))
    }

    /// Moves the items of a place to lower levels, or to `due`.
    fn empty_place(&mut self, place: usize, deadline_of: &impl Fn(Slot) -> Timestamp) {
        if let Some(bits) = self.occupied.get_mut(place / PLACES) {
            *bits &= !(1 << (place % PLACES));
            if *bits == 0 {
                self.levels &= !(1 << (place / PLACES));
            }
        }
        let head = head(place);
        let mut item = self.link(head).next;
        *self.link_mut(head) = Link { previous: head, next: head };
        while item != head {
            let next = self.link(item).next;
            self.link_mut(item).previous = OUT;
            self.insert(Slot(item), deadline_of(Slot(item)));
            item = next;
        }
    }

    /// Returns the first place that may have items, and the time at which it begins; `None` if there is no such place. The place may have
    /// become empty.
    fn first_place(&self) -> Option<(usize, u64)> {
        let level = self.levels.trailing_zeros() as usize;
        let bits = self.occupied.get(level)?;
        let shift = 6 * level;
        let now = (self.elapsed >> shift) % PLACES as u64;
        // Items of a level share all higher bits with `elapsed` and are later than it, so the search begins at the place of `elapsed`.
        let ahead = bits.rotate_right(u32::try_from(now).unwrap_or(0)).trailing_zeros();
        let place = (now + u64::from(ahead)) % PLACES as u64;
        let above = (self.elapsed >> shift) - now;
        let begins = (above + place) << shift;
        Some((level * PLACES + usize::try_from(place).unwrap_or(0), begins.max(self.elapsed)))
    }

    fn link(&self, at: u32) -> Link {
        let found = if at >= HEADS {
            self.heads.get((at - HEADS) as usize)
        } else {
            self.links.get(at as usize / CHUNK).and_then(|chunk| chunk.get(at as usize % CHUNK))
        };
        *found.expect("links should lead to heads and to items that were inserted")
    }

    fn link_mut(&mut self, at: u32) -> &mut Link {
        let found = if at >= HEADS {
            self.heads.get_mut((at - HEADS) as usize)
        } else {
            self.links
                .get_mut(at as usize / CHUNK)
                .and_then(|chunk| chunk.get_mut(at as usize % CHUNK))
        };
        found.expect("links should lead to heads and to items that were inserted")
    }
}

fn head(place: usize) -> u32 {
    HEADS + u32::try_from(place).unwrap_or(0)
}

/// Returns the place for a deadline. Its level is that of the highest bit in which the deadline differs from `elapsed`.
fn place(elapsed: u64, deadline: u64) -> usize {
    let differing = (elapsed ^ deadline) | 63;
    let level = (63 - differing.leading_zeros() as usize) / 6;
    let place = (deadline >> (6 * level)) % PLACES as u64;
    level * PLACES + usize::try_from(place).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Wheel;
    use crate::clock::Timestamp;
    use crate::ids::Slot;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Remove(u32),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Spans reach the end of time, where a wheel with fewer levels would loop forever.
        let span = prop_oneof![0u64..3, 0u64..200, 0u64..70_000_000, Just(1 << 43), Just(1 << 62)];
        let step = prop_oneof![
            (0u32..24, span.clone()).prop_map(|(slot, span)| Step::Set(slot, span)),
            (0u32..24).prop_map(Step::Remove),
            span.prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn items_come_in_deadline_then_slot_order(steps in steps()) {
            let mut now = 1_790_000_000_123u64;
            let mut wheel = Wheel::default();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Set(slot, span) => {
                        if let Some(old) = model.insert(slot, now.saturating_add(span)) {
                            wheel.remove(Slot(slot), Timestamp(old));
                        }
                        wheel.insert(Slot(slot), Timestamp(now.saturating_add(span)));
                    }
                    Step::Remove(slot) => {
                        if let Some(old) = model.remove(&slot) {
                            wheel.remove(Slot(slot), Timestamp(old));
                        }
                    }
                    Step::Pass(span) => now = now.saturating_add(span),
                }
                let first = model.values().min().copied();
                if let Some(first) = first {
                    let said = wheel.deadline().expect("something is waiting");
                    prop_assert!(said.0 <= first.max(now));
                }
                loop {
                    let expected = model
                        .iter()
                        .filter(|(_, deadline)| **deadline <= now)
                        .min_by_key(|(slot, deadline)| (**deadline, **slot))
                        .map(|(slot, deadline)| (*slot, *deadline));
                    let due = wheel.due(Timestamp(now), |slot| Timestamp(model[&slot.0]));
                    prop_assert_eq!(due, expected.map(|(slot, _)| Slot(slot)));
                    let Some((slot, deadline)) = expected else { break };
                    model.remove(&slot);
                    wheel.remove(Slot(slot), Timestamp(deadline));
                }
                if let Some(said) = wheel.deadline() {
                    prop_assert!(said.0 > now);
                }
            }
        }
    }
}
