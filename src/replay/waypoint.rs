//! A state that a replay came through, kept as pages so that another replay can begin there.
//!
//! Pages that did not change between two waypoints are held once, so a waypoint costs what changed since the one before.

use crate::clock::Timestamp;
use crate::ids::{ActorId, PageId, Seq};
use crate::persist::mark::{Marked, Watermark};
use crate::persist::snapshots::Page;
use crate::replay::run::Replay;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state after an entry.
#[derive(Debug, Default)]
pub(super) struct Waypoint {
    /// The entry; zero before the first.
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    marked: Marked,
    states: Vec<Watermark>,
    pages: BTreeMap<(ActorId, PageId), Arc<Page>>,
}

impl Waypoint {
    /// The state that a replay has come to, given a waypoint that it came through, or the empty one before the first entry.
    pub(super) fn take(replay: &mut Replay, before: &Self) -> Self {
        let mut pages = before.pages.clone();
        let mut states = Vec::new();
        for actor in &mut replay.actors {
            for page in actor.pages_since(before.seq) {
                let key = (page.actor, page.page);
                if page.content.is_empty() {
                    pages.remove(&key);
                } else {
                    pages.insert(key, Arc::new(page));
                }
            }
            states.push(Watermark {
                actor: actor.actor(),
                upto: actor.last(),
                digest: actor.state_digest(),
            });
        }
        Self {
            seq: replay.last,
            at: replay.at,
            marked: replay.marked.clone(),
            states,
            pages,
        }
    }

    /// A replay that has come this far.
    ///
    /// # Errors
    /// In words, if the pages do not come to the state that they were taken of.
    pub(super) fn resume(&self) -> Result<Replay, String> {
        let mut replay = Replay::default();
        for actor in &mut replay.actors {
            let id = actor.actor();
            let its = (id, PageId(0))..=(id, PageId(u32::MAX));
            let mut pages = self.pages.range(its).map(|(_, page)| Page::clone(page));
            let state = self.states.iter().find(|state| state.actor == id);
            let loaded = actor.load(&mut pages, state)?;
            actor.replace(loaded);
        }
        replay.begin_at((self.seq, self.at), self.marked.clone());
        Ok(replay)
    }

    /// Bytes of its state.
    pub(super) fn bytes(&self) -> u64 {
        self.pages.values().map(|page| bytes(page)).sum()
    }
}

/// Bytes of a page among those of a waypoint, beside the page itself.
const NODE_BYTES: usize = 64;

/// Bytes of all of these, with each page counted once.
pub(super) fn bytes_of(waypoints: &[Waypoint]) -> u64 {
    let mut seen = BTreeSet::new();
    let pages = waypoints.iter().flat_map(|it| it.pages.values());
    let once = pages.filter(|page| seen.insert(Arc::as_ptr(page)));
    let pages: u64 = once.map(|page| bytes(page)).sum();
    let nodes: usize = waypoints.iter().map(|it| it.pages.len()).sum();
    pages + (nodes * NODE_BYTES) as u64
}

fn bytes(page: &Page) -> u64 {
    (page.content.len() + size_of::<Page>()) as u64
}
