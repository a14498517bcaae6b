//! The most contended locks, for an overview of the server.

use crate::actors::lock::machine::{LockMachine, SLOTS_IN_A_ROW};
use crate::actors::lock::message::{Contended, Name, Reply};
use crate::ids::Slot;
use std::cmp::Reverse;

impl LockMachine {
    /// Returns the `most` locks with the longest lines. If more than [`SLOTS_IN_A_ROW`] locks are contended, only that
    /// many are considered, in no particular order: a query need not return the same answer twice.
    pub(super) fn contended(&self, most: u32) -> Reply {
        let lines = &self.state.lines;
        let looked_at = lines.iter().take(SLOTS_IN_A_ROW as usize);
        let ranked = looked_at.map(|(holder, line)| (Reverse(line.len), *holder));
        let mut ranked: Vec<(Reverse<usize>, Slot)> = ranked.collect();
        if ranked.len() > most as usize {
            ranked.select_nth_unstable(most as usize);
            ranked.truncate(most as usize);
        }
        ranked.sort_unstable();
        let name = |bytes: &[u8]| Name::new(bytes).unwrap_or_default();
        let locks = ranked.into_iter().filter_map(|(Reverse(waiting), holder)| {
            let entry = self.state.entries.get(holder)?;
            Some(Contended {
                key: name(entry.key()),
                index: name(entry.index()),
                owner: name(entry.owner()),
                waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
                deadline: self.state.deadline_of(entry),
            })
        });
        Reply::Contended {
            locks: locks.collect(),
            all: u32::try_from(lines.len()).unwrap_or(u32::MAX),
        }
    }
}
