//! The locks with the longest lines or the longest waits, for an overview of the server.

use crate::actors::lock::machine::{LockMachine, SLOTS_IN_A_ROW};
use crate::actors::lock::message::{Contended, Name, Ranking, Reply};
use crate::ids::Slot;
use std::cmp::Reverse;

impl LockMachine {
    /// Returns the first `most` contended locks in the order of `by`, and the number of all contended locks. If more
    /// than [`SLOTS_IN_A_ROW`] locks are contended, only that many are considered, in no particular order, so two
    /// queries may return different locks.
    pub(super) fn contended(&self, most: u32, by: Ranking) -> Reply {
        let lines = &self.state.lines;
        let looked_at = lines.iter().take(SLOTS_IN_A_ROW as usize);
        let ranked = looked_at.filter_map(|(holder, line)| {
            let (arrived, first) = line.oldest()?;
            let rank = match by {
                Ranking::Waiting => (Reverse(line.len), 0),
                Ranking::Longest => (Reverse(0), arrived.0),
            };
            Some((rank, *holder, line.len, first))
        });
        let mut ranked: Vec<_> = ranked.collect();
        if ranked.len() > most as usize {
            ranked.select_nth_unstable(most as usize);
            ranked.truncate(most as usize);
        }
        ranked.sort_unstable();
        let locks = ranked
            .into_iter()
            .filter_map(|(_, holder, waiting, first)| self.contention(holder, waiting, first));
        Reply::Contended {
            locks: locks.collect(),
            all: u32::try_from(lines.len()).unwrap_or(u32::MAX),
        }
    }

    fn contention(&self, holder: Slot, waiting: usize, first: Slot) -> Option<Contended> {
        let name = |bytes: &[u8]| Name::new(bytes).unwrap_or_default();
        let entry = self.state.entries.get(holder)?;
        Some(Contended {
            key: name(entry.key()),
            index: name(entry.index()),
            owner: name(entry.owner()),
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            since: self.state.entries.get(first)?.since,
            deadline: self.state.deadline_of(entry),
        })
    }
}
