//! A state that a replay has reached, kept as pages so that another replay can start from it.
//!
//! Pages that did not change between two waypoints are shared, so a waypoint costs only what changed since the previous one.

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
    /// The last entry included in the state; zero if there is none.
    pub(super) seq: Seq,
    pub(super) at: Timestamp,
    marked: Marked,
    states: Vec<Watermark>,
    pages: BTreeMap<(ActorId, PageId), Arc<Page>>,
}

impl Waypoint {
    /// Captures the current state of a replay. `before` is an earlier waypoint of the same replay, or an empty one.
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
        Self { seq: replay.last, at: replay.at, marked: replay.marked.clone(), states, pages }
    }

    /// Returns a replay that continues from this state.
    ///
    /// # Errors
    /// Returns a description of the problem if the pages cannot be loaded, or if their digest differs from the recorded one.
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

    /// Returns the size of the waypoint's pages, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.pages.values().map(|page| bytes(page)).sum()
    }
}

/// The estimated overhead of each page in a waypoint, in bytes.
const NODE_BYTES: usize = 64;

/// Returns the size of all waypoints, in bytes. A shared page is counted once.
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
