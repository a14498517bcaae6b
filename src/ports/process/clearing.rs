//! Clearing a tree: until nothing of it lives, proved and not supposed.

use crate::actors::process::Message;
use crate::ports::process::world::{Found, Survivors, Tree, World};

/// How soon a look is followed by the next, in milliseconds; doubled each time.
const LOOK_MS: u64 = 5;

/// The longest between two looks.
const LOOK_MS_MAX: u64 = 1000;

/// How long SIGKILL may take before it is said that something does not end, in milliseconds.
const STUCK_MS: u64 = 2000;

const KILL: u8 = 9;

/// The clearing of a tree.
#[derive(Debug)]
pub(super) struct Clearing {
    /// Whether it is killed, or only waited for.
    kills: bool,
    /// Whether all of the tree, or its leader alone.
    whole: bool,
    since: u64,
    next: u64,
    span: u64,
    /// What was last said of what does not end.
    said: Survivors,
}

impl Clearing {
    pub(super) const fn killing(whole: bool, now: u64) -> Self {
        Self {
            kills: true,
            whole,
            since: now,
            next: now,
            span: LOOK_MS,
            said: Survivors {
                alive: 0,
                unknown: 0,
            },
        }
    }

    pub(super) const fn waiting(now: u64) -> Self {
        Self {
            kills: false,
            whole: true,
            ..Self::killing(true, now)
        }
    }

    /// Whether it is about all of the tree.
    pub(super) const fn is_whole(&self) -> bool {
        self.whole
    }

    /// Goes on with what more is asked. A tree is waited for when its leader has ended: who was to be killed alone.
    pub(super) fn join(&mut self, other: Self) {
        if !self.whole && other.whole && !other.kills {
            *self = other;
            return;
        }
        if other.kills && !self.kills {
            self.since = other.since;
        }
        // Who asks again may have missed what was said.
        self.said = Survivors::default();
        self.kills |= other.kills;
        self.whole |= other.whole;
        (self.next, self.span) = (other.next, LOOK_MS);
    }

    /// When the next step is due.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Kills once more if it is to, and looks: `Empty` if nothing lives, `Stuck` if that is new.
    pub(super) fn step<W: World>(
        &mut self,
        world: &mut W,
        tree: &Tree,
        leader_gone: bool,
    ) -> Option<Message> {
        let left = if self.whole {
            if self.kills {
                // Whether it could be sent is seen by who lives after it.
                let _ = world.signal_tree(tree, KILL);
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
        if left.is_empty() {
            return Some(Message::Empty { id });
        }
        let stuck = self.kills && now >= self.since + STUCK_MS;
        let doubtful = left.unknown > 0 && now >= self.since + STUCK_MS;
        if (stuck || doubtful) && left != self.said {
            self.said = left;
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
            Found::Alive(handle) => {
                if self.kills {
                    let _ = world.signal(&handle, KILL, false);
                }
                Survivors {
                    alive: 1,
                    unknown: 0,
                }
            }
            Found::Gone(_) => Survivors::default(),
            Found::Unknown => Survivors {
                alive: 0,
                unknown: 1,
            },
        }
    }
}
