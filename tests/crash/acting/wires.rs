//! A layer between two actors that loses their tells, or reports a full disk while it passes them on.

use sexton::ids::ActorId;
use sexton::persist::journal::Room;
use sexton::spine::directory::Peer;
use sexton::spine::effect::Tell;
use sexton::spine::shared::Spine;
use std::cell::Cell;
use std::rc::Rc;

/// How many tells encounter a full disk.
const REFUSED: u32 = 2;

/// The layer in front of one actor, which receives the tells that others send to it.
pub(super) struct Wires {
    actor: Rc<dyn Peer>,
    spine: Rc<Spine>,
    loses: bool,
    /// How many tells will still encounter a full disk.
    full: Cell<u32>,
    forgets: bool,
}

impl Wires {
    /// Puts the layer in front of an actor that was started.
    pub(super) fn between(spine: &Rc<Spine>, actor: ActorId, plant: &str) {
        let peer = spine.directory().peer(actor).expect("it was started");
        let full = plant.starts_with("full");
        let wires = Self {
            actor: peer,
            spine: Rc::clone(spine),
            loses: plant == "loses",
            full: Cell::new(if full { REFUSED } else { 0 }),
            forgets: plant == "full, forgets",
        };
        spine.directory().register(actor, Rc::new(wires));
    }
}

impl Peer for Wires {
    fn tell(&self, tell: Tell) {
        if self.loses {
            return;
        }
        if let Some(full) = self.full.get().checked_sub(1) {
            self.full.set(full);
            // The disk counts as full until the refusal, or until the journal next reports its room. The message arrives before either.
            self.spine.ledger().set_room(Room::Scant);
        }
        self.actor.tell(tell);
    }

    #[expect(clippy::print_stdout, reason = "the test counts the lines")]
    fn undelivered(&self) {
        println!("refused");
        // The disk is no longer full after the refusal. The journal reports its room only when that changes or when something is
        // written, and nothing is written while nothing is accepted.
        self.spine.ledger().set_room(Room::Ample);
        if !self.forgets {
            self.actor.undelivered();
        }
    }

    fn handle_due(&self) {
        self.actor.handle_due();
    }
}
