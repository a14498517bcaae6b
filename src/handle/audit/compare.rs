//! Compares the states of the actors with each other and with the state of the operating system. Has no side effects: it returns the
//! disagreements in a [`Picture`] of these states.

use crate::actors::binding::Until;
use crate::actors::dispatch::{
    Attempt, EXECUTE, RunStatus, Stage, UPDATE, UnderWay, WorkInProgress,
};
use crate::actors::lock::{EntryView, Name};
use crate::handle::audit::disagreement::{AttemptId, Disagreement};
use crate::ids::{ActorId, ProcessId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// The states of the actors and of the operating system, read one after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    /// The tasks under way, the servers and the groups, all as of the same moment.
    pub(super) work: WorkInProgress,
    /// Whether the disk is low on space. Requests that add data are then refused until there is space.
    pub(super) is_low: bool,
    /// Lock entries of tasks.
    pub(super) locks: Vec<EntryView>,
    /// Processes that tasks or bindings refer to, with the state of their records; a process that is not listed has no record.
    pub(super) records: BTreeMap<ProcessId, Recorded>,
    /// Live processes that were launched for attempts. Cleanup commands are not listed: they run independently, and may outlast
    /// the task's record.
    pub(super) launched: Vec<ProcessId>,
    /// Processes recorded as running that no longer exist in the kernel.
    pub(super) gone: Vec<ProcessId>,
    /// Live processes that the keeper launched and that have no record, each with its PID.
    pub(super) strangers: Vec<(ProcessId, u32)>,
    /// The bindings of rights: the actor that owns the right, the process, and whether the right ends with the process or its tree.
    pub(super) bindings: BTreeSet<(ActorId, ProcessId, Until)>,
}

/// The progress of a process, according to its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Whether the process itself has ended.
    pub(super) has_ended: bool,
    /// Whether its whole tree has ended, including processes below it with separate records.
    pub(super) is_over: bool,
}

impl Picture {
    /// Returns whether `process` has ended, or its whole tree if `until` is [`Until::Tree`]; also true if the process has no record. A
    /// right bound to such a process should have ended, too.
    fn is_over(&self, process: ProcessId, until: Until) -> bool {
        self.records.get(&process).is_none_or(|it| match until {
            Until::Process => it.has_ended || it.is_over,
            Until::Tree => it.is_over,
        })
    }

    /// Returns all disagreements.
    pub(super) fn disagreements(&self) -> BTreeSet<Disagreement> {
        let mut found = BTreeSet::new();
        for task in &self.work.tasks {
            found.extend(of_status(task));
            if let Some(attempt) = &task.attempt {
                found.extend(self.of_attempt(task.id, attempt));
            }
            found.extend(self.of_cleaning(task));
        }
        found.extend(self.of_locks());
        found.extend(self.of_works());
        if self.work.whole {
            found.extend(self.of_servers());
            found.extend(self.of_groups());
            found.extend(self.of_launched());
        }
        found.extend(self.gone.iter().map(|it| Disagreement::Gone { process: *it }));
        let strangers = self.strangers.iter();
        found.extend(
            strangers.map(|(process, pid)| Disagreement::Stranger { process: *process, pid: *pid }),
        );
        let bindings = self.bindings.iter();
        let over = bindings.filter(|(_, process, until)| self.is_over(*process, *until));
        found.extend(
            over.map(|(actor, process, _)| Disagreement::Bound {
                actor: *actor,
                process: *process,
            }),
        );
        found
    }

    /// Compares an attempt with its process and its locks. Until the launch, each step is followed immediately by the next, so an attempt
    /// that is at the same step in the next look of the audit has lost an event. The exception is a disk that is low on space: the next
    /// step is then refused, and is requested again when there is space.
    fn of_attempt(&self, task: u64, attempt: &Attempt) -> Vec<Disagreement> {
        let which = AttemptId { task, attempt: attempt.token, process: attempt.process };
        let mut found = Vec::new();
        match attempt.stage {
            Stage::Claimed | Stage::Locked if self.is_low => {}
            Stage::Claimed => found.push(Disagreement::Unlocked(which)),
            Stage::Locked => found.push(Disagreement::Unlaunched(which)),
            Stage::Launched if self.is_over(attempt.process, Until::Tree) => {
                found.push(Disagreement::Unended(which));
            }
            Stage::Launched => {}
        }
        let wants = [(EXECUTE, attempt.stage != Stage::Claimed), (UPDATE, attempt.updates)];
        for (key, _) in wants.into_iter().filter(|(_, wants)| *wants) {
            let has =
                |it: &EntryView| it.place == 1 && of_lock(it) == Some((key, task, attempt.token));
            if !self.locks.iter().any(has) {
                found.push(Disagreement::LockMissing { which, key });
            }
        }
        found
    }

    fn of_cleaning(&self, task: &UnderWay) -> Option<Disagreement> {
        let cleaning = task.cleaning?;
        let which = AttemptId { task: task.id, attempt: cleaning.token, process: cleaning.process };
        if !cleaning.taken {
            return (!self.is_low).then_some(Disagreement::Unlaunched(which));
        }
        let is_over = self.is_over(cleaning.process, Until::Tree);
        is_over.then_some(Disagreement::Unended(which))
    }

    /// Finds task locks that belong neither to an attempt under way nor to a task that still waits for its execute lock. Finds none if
    /// the list of tasks is incomplete.
    fn of_locks(&self) -> Vec<Disagreement> {
        let tasks = self.work.tasks.iter().map(|it| (it.id, it));
        let tasks: BTreeMap<u64, &UnderWay> = tasks.collect();
        let is_meant = |it: &&EntryView| {
            let Some((key, task, token)) = of_lock(it) else {
                return false;
            };
            tasks.get(&task).is_some_and(|task| {
                let has = task.attempt.as_ref().is_some_and(|it| it.token == token);
                has || key == EXECUTE && task.blocked == Some(token)
            })
        };
        let left = self.locks.iter().filter(|it| !is_meant(it));
        let left = left.filter(|_| self.work.whole);
        left.map(|it| Disagreement::LockLeft {
            key: it.key.clone(),
            index: it.index.clone(),
            owner: it.owner.clone(),
        })
        .collect()
    }

    /// Finds work ids with two tasks under way.
    fn of_works(&self) -> Vec<Disagreement> {
        let mut works: BTreeMap<&Name, u64> = BTreeMap::new();
        let mut found = Vec::new();
        let under_way = self.work.tasks.iter().filter(|it| it.status.is_under_way());
        for task in under_way.filter(|it| !it.work.as_bytes().is_empty()) {
            if let Some(other) = works.insert(&task.work, task.id) {
                found.push(Disagreement::WorkTwice {
                    work: task.work.clone(),
                    tasks: (other, task.id),
                });
            }
        }
        found
    }

    fn of_servers(&self) -> Vec<Disagreement> {
        let mut attempts: BTreeMap<&Name, u32> = BTreeMap::new();
        for server in self.work.tasks.iter().filter_map(|it| it.server.as_ref()) {
            *attempts.entry(server).or_default() += 1;
        }
        let wrong = self.work.servers.iter().filter_map(|it| {
            let attempts = attempts.get(&it.name).copied().unwrap_or(0);
            (it.used != attempts).then(|| Disagreement::Threads {
                server: it.name.clone(),
                used: it.used,
                attempts,
            })
        });
        wrong.collect()
    }

    fn of_groups(&self) -> Vec<Disagreement> {
        let mut tasks: BTreeMap<&Name, (u32, u32)> = BTreeMap::new();
        for task in self.work.tasks.iter().filter(|it| it.counts) {
            tasks.entry(&task.group).or_default().1 += 1;
        }
        for group in &self.work.groups {
            tasks.entry(&group.name).or_default().0 = group.used;
        }
        let wrong = tasks.into_iter().filter(|(_, (used, tasks))| used != tasks);
        wrong
            .map(|(group, (used, tasks))| Disagreement::Group { group: group.clone(), used, tasks })
            .collect()
    }

    /// Finds live processes that were launched for attempts that are over.
    fn of_launched(&self) -> Vec<Disagreement> {
        let known = self.work.tasks.iter().flat_map(|task| {
            let attempt = task.attempt.as_ref().map(|it| it.process);
            let cleaning = task.cleaning.map(|it| it.process);
            attempt.into_iter().chain(cleaning)
        });
        let known: BTreeSet<ProcessId> = known.collect();
        let left = self.launched.iter().filter(|it| !known.contains(it));
        left.map(|it| Disagreement::Unattended { process: *it }).collect()
    }
}

/// Finds contradictions within a single task.
fn of_status(task: &UnderWay) -> Vec<Disagreement> {
    let mut found = Vec::new();
    let is_processing = task.status == RunStatus::Processing;
    if is_processing != task.attempt.is_some() {
        found.push(Disagreement::Status { task: task.id, status: task.status.name() });
    }
    let attempt = task.attempt.as_ref();
    let has_server = task.server.is_some();
    if let Some(attempt) = attempt.filter(|_| !has_server) {
        found.push(Disagreement::NoServer(AttemptId {
            task: task.id,
            attempt: attempt.token,
            process: attempt.process,
        }));
    }
    if task.late {
        let attempt = attempt.map_or(Token(0), |it| it.token);
        let task = task.id;
        found.push(Disagreement::Late { task, attempt });
    }
    found
}

/// Returns the key, task and attempt that a task lock belongs to; `None` if the entry does not belong to an attempt.
fn of_lock(entry: &EntryView) -> Option<(&'static str, u64, Token)> {
    let keys = [EXECUTE, UPDATE];
    let key = keys.into_iter().find(|key| key.as_bytes() == entry.key.as_bytes())?;
    let task = std::str::from_utf8(entry.index.as_bytes()).ok()?;
    let owner = std::str::from_utf8(entry.owner.as_bytes()).ok()?;
    let token = owner.strip_prefix("attempt-")?;
    Some((key, task.parse().ok()?, Token(token.parse().ok()?)))
}
