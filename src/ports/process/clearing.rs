//! Clears a tree (a process and its descendants): either kills the processes or only waits for them to end, until it is proved, not just
//! assumed, that none of them is alive.

use crate::actors::process::Message;
use crate::ports::process::world::{Lookup, Survivors, Tree, World};

/// The initial interval between checks, in milliseconds; doubled after each check.
const LOOK_MS: u64 = 5;

/// The maximum interval between checks, in milliseconds.
const LOOK_MS_MAX: u64 = 1000;

/// How long clearing may take before survivors of SIGKILL, and processes that may still be alive, are reported, in milliseconds.
const STUCK_MS: u64 = 2000;

const KILL: u8 = 9;

/// The state of clearing a tree.
#[derive(Debug)]
pub(super) struct Clearing {
    /// Whether the processes are killed, rather than only waited for.
    kills: bool,
    /// Whether the whole tree is cleared, rather than only its leader.
    whole: bool,
    since: u64,
    next: u64,
    span: u64,
    /// The survivors in the last report.
    reported: Survivors,
}

impl Clearing {
    pub(super) const fn killing(whole: bool, now: u64) -> Self {
        Self {
            kills: true,
            whole,
            since: now,
            next: now,
            span: LOOK_MS,
            reported: Survivors { alive: 0, unknown: 0 },
        }
    }

    pub(super) const fn waiting(now: u64) -> Self {
        Self { kills: false, whole: true, ..Self::killing(true, now) }
    }

    /// Returns whether this clears the whole tree, rather than only its leader.
    pub(super) const fn is_whole(&self) -> bool {
        self.whole
    }

    /// Combines this clearing with another request. A request to wait for the tree replaces one to kill only the leader, since the wait is
    /// requested when the leader has ended.
    pub(super) fn join(&mut self, other: Self) {
        if !self.whole && other.whole && !other.kills {
            *self = other;
            return;
        }
        if other.kills && !self.kills {
            self.since = other.since;
        }
        // A repeated request may mean that the last report was lost.
        self.reported = Survivors::default();
        self.kills |= other.kills;
        self.whole |= other.whole;
        (self.next, self.span) = (other.next, LOOK_MS);
    }

    /// Returns when the next step is due, by `World::clock`.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Sends SIGKILL, if this clearing kills, and checks for survivors. Unless `is_certain` says that a search misses none, one that finds none
    /// may have missed a process. Returns `Empty` if no process is alive. Returns `Stuck` if, after [`STUCK_MS`], processes have survived a
    /// kill or may be alive, and their numbers differ from those in the last report. Otherwise, returns `None`.
    pub(super) fn step<W: World>(
        &mut self,
        world: &mut W,
        tree: &Tree,
        (leader_gone, is_certain): (bool, bool),
    ) -> Option<Message> {
        let mut left = if self.whole {
            if self.kills {
                // An error is ignored, since the survivors show whether the kill succeeded.
                let _ = world.signal_tree(tree, &[KILL]);
            }
            world.survivors(tree)
        } else if leader_gone {
            Survivors::default()
        } else {
            self.kill_leader(world, tree)
        };
        let now = world.clock();
        self.next = now + self.span;
        self.span = (self.span * 2).min(LOOK_MS_MAX);
        let id = tree.id;
        if left.is_empty() && is_certain {
            return Some(Message::Empty { id });
        }
        if left.is_empty() {
            left.unknown = 1;
        }
        let stuck = self.kills && now >= self.since + STUCK_MS;
        let doubtful = left.unknown > 0 && now >= self.since + STUCK_MS;
        if (stuck || doubtful) && left != self.reported {
            self.reported = left;
            return Some(Message::Stuck {
                id,
                unkillable: if self.kills { left.alive } else { 0 },
                unknown: left.unknown,
            });
        }
        None
    }

    fn kill_leader<W: World>(&self, world: &mut W, tree: &Tree) -> Survivors {
        match world.find(&tree.leader) {
            Lookup::Alive(handle) => {
                if self.kills {
                    let _ = world.signal(&handle, &[KILL], false);
                }
                Survivors { alive: 1, unknown: 0 }
            }
            Lookup::Gone(_) => Survivors::default(),
            Lookup::Unknown => Survivors { alive: 0, unknown: 1 },
        }
    }
}
