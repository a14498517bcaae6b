//! Which locks are waited for most or longest, for those who look at the whole.

use crate::actors::lock::machine::{LockMachine, SLOTS_IN_A_ROW};
use crate::actors::lock::message::{Contended, Name, Ranking, Reply};
use crate::ids::Slot;
use std::cmp::Reverse;

impl LockMachine {
    /// Locks that are waited for. If there are very many, only a share of them is looked at, in no order: an answer to a
    /// question need not be the same when it is asked again.
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
