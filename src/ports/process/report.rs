//! Handles the keeper's reports, and the loss of the keeper.

use crate::actors::process::{Failure, Identity, Message, Step};
use crate::clock::Date;
use crate::ids::ProcessId;
use crate::keeper::protocol::{self, Report};
use crate::ports::process::attempt::{Link, about, end_of, step_of};
use crate::ports::process::follower::Follower;
use crate::ports::process::world::{Lookup, World};

impl<W: World> Follower<W> {
    /// Handles a report from the keeper.
    pub fn receive(&mut self, report: Report) {
        self.hear();
        match report {
            Report::Welcome { .. } => {
                self.held.clear();
                self.strangers.clear();
                self.keep_none();
            }
            Report::Told => {
                (self.link, self.answers_by) = (Link::Up, None);
                self.forget_others();
                let pending = self.attempts.iter().filter(|(_, it)| it.is_pending());
                let pending: Vec<ProcessId> = pending.map(|(id, _)| *id).collect();
                for id in pending {
                    self.launch_pending(id);
                }
                let followed: Vec<ProcessId> = self.unanswered().collect();
                for id in followed {
                    self.look(id);
                }
                // The ends of some processes were not handled until now, because the keeper might have reported how they ended.
                let gone: Vec<ProcessId> = self.awaited().collect();
                for id in gone {
                    self.ended(id);
                }
            }
            Report::Started(started) => self.receive_started(&started, true),
            Report::Orphaned(started) => self.receive_started(&started, false),
            Report::Exited(exited) => self.receive_exited(&exited),
            Report::Failed { attempt, step, errno } => {
                self.held.insert(attempt, true);
                self.receive_failed(attempt, step_of(step), errno);
            }
            Report::Absent { attempt } => {
                self.held.remove(&attempt);
                self.believe_kernel(attempt);
            }
            Report::Refused { reason } => {
                tracing::warn!("the keeper refused a request: {reason}");
            }
            Report::Taken { .. } => {}
        }
    }

    fn receive_failed(&mut self, id: ProcessId, step: Step, errno: i32) {
        let launch = self.attempts.get(&id).and_then(|it| it.launch.as_deref());
        let failure = Failure { step, errno, about: about(step, launch) };
        let executed = launch.filter(|_| step == Step::Exec);
        let is_examined = executed.is_some_and(|launch| self.world.examine(id, launch, errno));
        match self.attempts.get_mut(&id) {
            Some(attempt) if is_examined => attempt.failure = Some(failure),
            Some(_) | None => self.fail_explained(id, failure),
        }
    }

    /// Notes that the keeper that launched the attempts may have been replaced by another one.
    fn keep_none(&mut self) {
        for attempt in self.attempts.values_mut() {
            attempt.kept = false;
        }
    }

    /// Lists the started processes that have no descriptor and are not known to have ended.
    fn unanswered(&self) -> impl Iterator<Item = ProcessId> {
        let attempts = self.attempts.iter();
        attempts
            .filter(|(_, it)| it.identity.is_some() && it.handle.is_none() && it.ended.is_none())
            .map(|(id, _)| *id)
    }

    /// Lists the processes that have ended according to the kernel, but whose end the keeper has not yet reported.
    fn awaited(&self) -> impl Iterator<Item = ProcessId> {
        let attempts = self.attempts.iter();
        attempts
            .filter(|(_, it)| it.handle.is_some() && it.next_look.is_some() && it.ended.is_none())
            .map(|(id, _)| *id)
    }

    /// Records whether a process that the port was not asked to follow is running or has ended.
    fn note_identity(&mut self, id: ProcessId, identity: Identity, lives: bool) {
        if lives {
            self.strangers.insert(id, identity);
        } else {
            self.strangers.remove(&id);
        }
    }

    /// Returns the processes that the keeper launched but the port does not follow, each with its PID. Those known to have ended are
    /// omitted.
    pub fn strangers(&mut self) -> Vec<(ProcessId, u32)> {
        let (attempts, world) = (&self.attempts, &mut self.world);
        self.strangers.retain(|id, identity| {
            let is_followed = attempts.contains_key(id);
            !is_followed && !matches!(world.find(identity), Lookup::Gone(_))
        });
        let left = self.strangers.iter();
        left.map(|(id, identity)| (*id, identity.pid)).collect()
    }

    /// Handles a report that a process is running. `is_child` states whether the process is a child of the keeper, which then reports its
    /// exit status.
    fn receive_started(&mut self, started: &protocol::Started, is_child: bool) {
        self.record_start(started, (is_child, true));
        self.look(started.attempt);
    }

    /// Records the identity of a started process and reports the start. `is_child` states whether the keeper waits for the process. A
    /// process that no longer lives gets no PID file (see [`World::write_pid_file`]), since its PID may be reused.
    fn record_start(&mut self, started: &protocol::Started, (is_child, lives): (bool, bool)) {
        let id = started.attempt;
        self.held.insert(id, is_child);
        let identity = self.identity_of(started);
        let Some(attempt) = self.attempts.get_mut(&id) else {
            self.note_identity(id, identity, lives);
            return;
        };
        (attempt.spec, attempt.launch) = (None, None);
        attempt.contained = started.contained;
        attempt.kept |= is_child && lives;
        if attempt.identity.replace(identity).is_none() {
            if lives {
                self.world.note(id, Some(&identity));
                self.world.write_pid_file(id, attempt.run_dir.as_ref(), started.pid);
            }
            let message = Message::Started {
                id,
                identity,
                at: Date(started.at),
                contained: started.contained,
            };
            attempt.started = Some(message.clone());
            self.world.report(message);
        }
    }

    fn receive_exited(&mut self, exited: &protocol::Exited) {
        let id = exited.started.attempt;
        self.record_start(&exited.started, (true, false));
        if self.attempts.get(&id).is_some_and(|it| it.ended.is_none()) {
            let used = [exited.cpu_ms, exited.memory_max];
            self.end(id, end_of(exited.status), Some(Date(exited.at)), used);
        }
    }

    fn identity_of(&self, started: &protocol::Started) -> Identity {
        let (machine, boot) = self.world.machine_and_boot();
        Identity {
            machine,
            boot,
            namespace: started.namespace,
            pid: started.pid,
            inode: started.inode,
            ticks: started.ticks,
        }
    }

    /// Handles the loss of the keeper: joins or starts another one, unless all attempts have ended. Until it answers, running processes are
    /// followed through their own descriptors.
    pub fn keeper_gone(&mut self) {
        (self.link, self.answers_by) = (Link::Down, None);
        self.held.clear();
        self.keep_none();
        if self.attempts.values().all(|it| it.ended.is_some()) {
            return;
        }
        // Requests that this keeper did not answer are sent to the next one, after it has reported all its attempts.
        if let Err(failure) = self.joined() {
            self.fail_unless_paused(&failure);
            let followed: Vec<ProcessId> = self.unanswered().collect();
            for id in followed {
                self.look(id);
            }
        }
    }
}
