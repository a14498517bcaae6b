//! Following what runs to its end: by the keeper where it holds it, else by its own descriptor.

use crate::actors::process::{End, Lost, Message, Remains};
use crate::clock::Date;
use crate::ids::ProcessId;
use crate::keeper::protocol::Request;
use crate::kernel::pidfd::ExitStatus;
use crate::ports::process::attempt::{Link, end_of, reason};
use crate::ports::process::follower::{Follower, PATIENCE_MS, SOON_MS};
use crate::ports::process::world::{Found, World};

/// How soon a process of which nobody can say whether it lives is looked for again, in milliseconds; doubled each time.
const DOUBT_MS: u64 = 100;

/// The longest between two looks.
const DOUBT_MS_MAX: u64 = 10_000;

/// How long no keeper can be joined until what it might know is lost, in milliseconds.
const ALONE_MS: u64 = 20_000;

impl<W: World> Follower<W> {
    /// Sees to it that the end of a process is seen: by the keeper where it holds it, else by its own descriptor.
    pub(super) fn follow(&mut self, id: ProcessId) {
        if self.repeats_end(id) {
            return;
        }
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let Some(identity) = attempt.identity else {
            return;
        };
        if (identity.machine, identity.boot) != self.world.here() {
            return self.end(id, End::Lost(Lost::Rebooted), None, [0; 2]);
        }
        if attempt.launched && self.link != Link::Up {
            // What the keeper holds says how it ended, if it has. It is looked at when all is told.
            if self.joined().is_err() {
                self.look(id);
            }
            return;
        }
        self.look(id);
    }

    fn repeats_end(&mut self, id: ProcessId) -> bool {
        let ended = self.attempts.get(&id).and_then(|it| it.ended.clone());
        let repeats = ended.is_some();
        if let Some(message) = ended {
            self.world.report(message);
        }
        repeats
    }

    /// Whether the keeper says how this one ends.
    pub(super) fn is_held(&self, id: ProcessId) -> bool {
        self.link != Link::Down && self.held.get(&id).is_some_and(|is_child| *is_child)
    }

    /// Looks for a process, and follows it by its descriptor.
    pub(super) fn look(&mut self, id: ProcessId) {
        let held = self.is_held(id);
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        if attempt.handle.is_some() || attempt.ended.is_some() {
            return;
        }
        let Some(identity) = attempt.identity else {
            return;
        };
        match self.world.find(&identity) {
            Found::Alive(handle) => {
                self.world.watch(id, &handle);
                (attempt.handle, attempt.next_look) = (Some(handle), None);
            }
            // The keeper says how, in a moment, or when it is asked.
            Found::Gone(_) if held => {
                self.look_in(id, PATIENCE_MS);
                self.world.ask(Request::Ask { attempt: id });
            }
            Found::Gone(Some(status)) => self.end_by_status(id, status),
            Found::Gone(None) => self.end_unknown(id),
            Found::Unknown => {
                let before = attempt.next_look.map_or(DOUBT_MS / 2, |(_, span)| span);
                let span = (before * 2).clamp(DOUBT_MS, DOUBT_MS_MAX);
                self.look_in(id, span);
            }
        }
    }

    pub(super) fn look_in(&mut self, id: ProcessId, span: u64) {
        let at = self.world.clock() + span;
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.next_look = Some((at, span));
            self.timers.insert((at, id));
        }
    }

    /// The process that `World::watch` was called for has ended.
    pub fn ended(&mut self, id: ProcessId) {
        let held = self.is_held(id);
        let Some(attempt) = self.attempts.get(&id) else {
            return;
        };
        if attempt.ended.is_some() {
        } else if held {
            self.look_in(id, SOON_MS);
        } else if attempt.launched && self.link == Link::Greeted {
            self.look_in(id, PATIENCE_MS);
        } else {
            self.believe_kernel(id);
        }
    }

    /// Nobody waited for it: what the kernel says counts.
    pub(super) fn believe_kernel(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let Some(handle) = &attempt.handle else {
            return self.look(id);
        };
        match self.world.status(handle) {
            ExitStatus::Known(status) => self.end_by_status(id, status),
            // Its descriptor was ready too soon, as that of a thread that leads no process any more.
            ExitStatus::Alive => self.look_in(id, DOUBT_MS),
            ExitStatus::Untold => self.end_unknown(id),
        }
    }

    /// It is gone, and nobody says how. That is final only when a keeper has said what it knows, or none can be joined
    /// for long: the log of the one before it may have the status.
    fn end_unknown(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get(&id) else {
            return;
        };
        let launched = attempt.launched;
        if launched && self.may_learn() {
            return self.look_in(id, PATIENCE_MS);
        }
        self.end(id, End::Lost(reason(launched)), None, [0; 2]);
    }

    /// Whether a keeper may still say what is not known here.
    pub(super) fn may_learn(&self) -> bool {
        let now = self.world.clock();
        match self.link {
            Link::Up => false,
            Link::Greeted => true,
            Link::Down => self.alone_since.is_none_or(|since| now < since + ALONE_MS),
        }
    }

    fn end_by_status(&mut self, id: ProcessId, status: u32) {
        self.end(id, end_of(status), None, [0; 2]);
    }

    /// It has ended: says so, with what is left of it.
    pub(super) fn end(&mut self, id: ProcessId, end: End, at: Option<Date>, used: [u64; 2]) {
        let at = at.unwrap_or_else(|| self.world.date());
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let mut left = match attempt.tree(id) {
            Some(tree) => self.world.remains(&tree, attempt.run_dir.as_ref()),
            None => Remains::default(),
        };
        [left.cpu_ms, left.memory_max] = used;
        let left = Box::new(left);
        let message = Message::Ended { id, end, at, left };
        (attempt.spec, attempt.launch) = (None, None);
        attempt.handle = None;
        attempt.next_look = None;
        attempt.ended = Some(message.clone());
        self.world.report(message);
        self.clear_on(id);
    }
}
