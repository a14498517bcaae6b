//! Follows running processes to their end: through the keeper if it launched them, otherwise through their own descriptors.

use crate::actors::process::{End, Lost, Message, Remains};
use crate::clock::Date;
use crate::ids::ProcessId;
use crate::keeper::protocol::Request;
use crate::kernel::pidfd::ExitStatus;
use crate::ports::process::attempt::{Link, end_of, reason};
use crate::ports::process::follower::{Follower, SOON_MS, TIMEOUT_MS};
use crate::ports::process::world::{Lookup, World};

/// The initial interval between lookups of a process while it is unknown whether it is alive, in milliseconds; doubled after each lookup.
const DOUBT_MS: u64 = 100;

/// The maximum interval between lookups of a process while it is unknown whether it is alive, in milliseconds.
const DOUBT_MS_MAX: u64 = 10_000;

/// How long attempts to join a keeper may fail before the reports that a keeper might still have are considered lost, in milliseconds.
const ALONE_MS: u64 = 20_000;

impl<W: World> Follower<W> {
    /// Makes sure that the end of a process will be noticed: through the keeper if it launched the process, otherwise through the process's
    /// own descriptor.
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
        let (machine, boot) = self.world.machine_and_boot();
        if identity.boot != boot {
            let is_ours = identity.machine == machine;
            let lost = if is_ours { Lost::Rebooted } else { Lost::AnotherMachine };
            return self.end(id, End::Lost(lost), None, [0; 2]);
        }
        if attempt.launched && self.link != Link::Up {
            // If the process has ended, the keeper may have its status, so the process is looked up only after the keeper has reported all
            // its attempts, or now if no keeper can be joined.
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

    /// Returns whether the keeper will report how this process ends.
    pub(super) fn is_held(&self, id: ProcessId) -> bool {
        self.link != Link::Down && self.held.get(&id).is_some_and(|is_child| *is_child)
    }

    /// Looks up a process. If it is alive, follows it by its descriptor; if it has ended, reports its end or asks the keeper for it; if
    /// neither is known, schedules another lookup.
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
        let found = self.world.find(&identity);
        if matches!(found, Lookup::Unknown) {
            self.doubted.insert(id);
        } else {
            self.doubted.remove(&id);
        }
        match found {
            Lookup::Alive(handle) => {
                self.world.watch(id, &handle);
                (attempt.handle, attempt.next_look) = (Some(handle), None);
            }
            // The keeper will report how the process ended, either shortly or when asked.
            Lookup::Gone(_) if held => {
                self.look_in(id, TIMEOUT_MS);
                self.world.ask(Request::Ask { attempt: id });
            }
            Lookup::Gone(Some(status)) => self.end_by_status(id, status),
            Lookup::Gone(None) => self.end_unknown(id),
            Lookup::Unknown => {
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

    /// Handles a notification, requested with `World::watch`, that a process has ended.
    pub fn ended(&mut self, id: ProcessId) {
        let held = self.is_held(id);
        let Some(attempt) = self.attempts.get(&id) else {
            return;
        };
        if attempt.ended.is_some() {
        } else if held {
            self.look_in(id, SOON_MS);
        } else if attempt.launched && self.link == Link::Greeted {
            self.look_in(id, TIMEOUT_MS);
        } else {
            self.believe_kernel(id);
        }
    }

    /// Takes the exit status of a process from the kernel, since no keeper will report it.
    pub(super) fn believe_kernel(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let Some(handle) = &attempt.handle else {
            return self.look(id);
        };
        match self.world.status(handle) {
            ExitStatus::Known(status) => self.end_by_status(id, status),
            // The descriptor became ready too early. This happens when the main thread of a process exits before the others.
            ExitStatus::Alive => self.look_in(id, DOUBT_MS),
            ExitStatus::Unavailable => self.end_unknown(id),
        }
    }

    /// Handles a process that has ended with an unknown status. If the process was launched, the previous keeper's log may contain the
    /// status, so it is declared lost only when a keeper has reported all its attempts, or no keeper could be joined for [`ALONE_MS`].
    fn end_unknown(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get(&id) else {
            return;
        };
        let launched = attempt.launched;
        if launched && self.may_report_ends() {
            return self.look_in(id, TIMEOUT_MS);
        }
        self.end(id, End::Lost(reason(launched)), None, [0; 2]);
    }

    /// Returns whether a keeper may still report ends that are not known here.
    pub(super) fn may_report_ends(&self) -> bool {
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

    /// Reports that the process ended at the date `at` (now if `None`), together with its output and surviving processes. `used` is its
    /// processor time in milliseconds and its peak memory in bytes.
    pub(super) fn end(&mut self, id: ProcessId, end: End, at: Option<Date>, used: [u64; 2]) {
        let at = at.unwrap_or_else(|| self.world.date());
        let launched = self.attempts.get(&id).is_some_and(|it| it.launched);
        let knows_all = self.knows_all(launched);
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let mut left = match attempt.tree(id) {
            Some(tree) => self.world.remains(&tree, attempt.run_dir.as_ref()),
            None => Remains::default(),
        };
        left.empty &= knows_all;
        [left.cpu_ms, left.memory_max] = used;
        let left = Box::new(left);
        let message = Message::Ended { id, end, at, left };
        (attempt.spec, attempt.launch) = (None, None);
        attempt.handle = None;
        attempt.next_look = None;
        attempt.ended = Some(message.clone());
        let (tree, run_dir) = (attempt.tree(id), attempt.run_dir.clone());
        self.doubted.remove(&id);
        self.world.report(message);
        // The PID file is removed only now, since clients are waiting for the report.
        if let Some(tree) = tree {
            self.world.remove_pid_file(&tree, run_dir.as_ref());
        }
        self.clear_on(id);
    }
}
