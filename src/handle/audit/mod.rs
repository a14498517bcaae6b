//! Checks whether the actors agree with each other and with the operating system. They always should; an audit verifies that they do.
//!
//! A look examines the actors one after another, so it may see one actor before a notification and another actor after it. An audit
//! therefore looks several times, and a disagreement counts only if every look finds exactly the same one. A disagreement names the attempt
//! by its token and the process by its record, neither of which is ever reused. By the last look, notifications in flight have arrived:
//! each answer to a look waits for the journal, and each actor handles earlier notifications before a query. Counts that are compared come
//! from a single answer of one actor.
//!
//! | file | holds |
//! |---|---|
//! | `compare.rs` | the comparison, without side effects |
//! | `disagreement.rs` | the kinds of disagreement, and their descriptions |

mod compare;
mod disagreement;
#[cfg(test)]
mod tests;

pub use self::disagreement::{AttemptId, Disagreement};
use crate::actors::binding::{PROCESSES, ToProcesses, Until};
use crate::actors::dispatch::{self, EXECUTE, Task, UPDATE, WorkInProgress};
use crate::actors::lock::{self, EntryView, Hold, LockState, Name};
use crate::actors::process::{Phase, RecordView};
use crate::handle::audit::compare::{Picture, Recorded};
use crate::handle::{Handle, LockError, ProcessError, Stopping, TaskError};
use crate::ids::{ActorId, ProcessId, Slot};
use crate::refusal::Reason;
use crate::spine::delivery::Item;
use crate::spine::machine::Actor;
use crate::spine::runtime::{Mailbox, Stopped};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The pauses between looks, in milliseconds. The audit stops looking once no disagreement of the first look remains.
const PAUSES_MS: [u64; 6] = [20, 80, 200, 500, 1000, 1500];

/// The maximum number of lock entries returned by one query.
const LOCKS_AT_ONCE: u32 = 1000;
/// The maximum number of process records requested with one query.
const RECORDS_AT_ONCE: usize = 1000;

/// Why an audit failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// The tasks could not be queried.
    #[error(transparent)]
    Tasks(#[from] TaskError),
    /// The locks could not be queried.
    #[error(transparent)]
    Locks(#[from] LockError),
    /// The processes could not be queried.
    #[error(transparent)]
    Processes(#[from] ProcessError),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl AuditError {
    /// Returns the machine-readable reason.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Tasks(error) => error.reason(),
            Self::Locks(error) => error.reason(),
            Self::Processes(error) => error.reason(),
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The disagreements found, each with whether it was resolved: an action was taken, and the disagreement was not seen again. Always
    /// false if the audit only checks.
    pub found: Vec<(Disagreement, bool)>,
    /// The disagreements that remain; all of them if the audit only checks.
    pub left: Vec<Disagreement>,
    /// The number of tasks examined.
    pub tasks: u64,
    /// The number of processes recorded as alive that were checked.
    pub processes: u64,
    /// Whether counts could be compared, which is impossible if more than 100,000 tasks are under way.
    pub whole: bool,
}

/// The result of one comparison.
struct Comparison {
    picture: Picture,
    processes: u64,
}

impl Handle {
    /// Compares the states of the actors with each other and with the operating system. Takes milliseconds if
    /// everything agrees, and up to a few seconds otherwise, because disagreements are checked again.
    pub async fn audit(&self) -> Result<Audit, AuditError> {
        let (mut audit, found) = self.compare_until_stable().await?;
        audit.left = found.iter().cloned().collect();
        audit.found = found.into_iter().map(|it| (it, false)).collect();
        Ok(audit)
    }

    /// Runs an audit and, for each disagreement that has a remedy (see [`Disagreement::fix`]), does what the lost event would have done.
    /// The result tells which disagreements were resolved.
    pub async fn audit_and_fix(&self) -> Result<Audit, AuditError> {
        let (mut audit, found) = self.compare_until_stable().await?;
        if found.is_empty() {
            return Ok(audit);
        }
        for disagreement in found {
            let is_tried = self.fix(&disagreement).await?;
            audit.found.push((disagreement, is_tried));
        }
        let (_, left) = self.compare_until_stable().await?;
        for (disagreement, is_fixed) in &mut audit.found {
            *is_fixed &= !left.contains(disagreement);
        }
        audit.left = left.into_iter().collect();
        Ok(audit)
    }

    async fn compare_until_stable(&self) -> Result<(Audit, BTreeSet<Disagreement>), AuditError> {
        let first = self.compare_once().await?;
        let audit = Audit {
            tasks: first.picture.work.tasks.len() as u64,
            processes: first.processes,
            whole: first.picture.work.whole,
            ..Audit::default()
        };
        let mut left = first.picture.disagreements();
        for pause in PAUSES_MS {
            if left.is_empty() {
                break;
            }
            self.pause(Duration::from_millis(pause)).await?;
            let again = self.compare_once().await?.picture.disagreements();
            left.retain(|it| again.contains(it));
        }
        Ok((audit, left))
    }

    async fn compare_once(&self) -> Result<Comparison, AuditError> {
        let processes = self.processes();
        let reconciled = processes.reconcile().await?;
        let work = self.tasks().work_in_progress().await?;
        let is_low = self.tasks().shortage().is_some();
        let mut locks = Vec::new();
        for key in [EXECUTE, UPDATE] {
            locks.extend(self.locks_of(key).await?);
        }
        let actors = self.actors();
        let mut bindings = BTreeSet::new();
        bindings.extend(bound(&actors.lock).await?);
        bindings.extend(bound(&actors.queue).await?);
        bindings.extend(bound(&actors.lease).await?);
        let launched = self.attempts().await?;
        let strangers = processes.strangers().await?;
        let named = named(&work, &bindings);
        let gone = reconciled.gone.iter().copied();
        let asked: Vec<ProcessId> = named.into_iter().chain(gone.clone()).collect();
        let mut records = BTreeMap::new();
        for some in asked.chunks(RECORDS_AT_ONCE) {
            let read = processes.each(some).await?;
            records.extend(read.iter().map(|it| (it.id, recorded(it))));
        }
        // The record of a process that no longer exists may have been updated by now.
        let runs = |id: &ProcessId| records.get(id).is_some_and(|it| !it.has_ended);
        let picture = Picture {
            gone: gone.filter(runs).collect(),
            work,
            is_low,
            locks,
            launched,
            strangers,
            bindings,
            records,
        };
        let processes = reconciled.asked;
        Ok(Comparison { picture, processes })
    }

    /// Returns the live processes launched for attempts. Only their environments contain the secret with which an attempt reports.
    async fn attempts(&self) -> Result<Vec<ProcessId>, AuditError> {
        let processes = self.processes();
        let told = processes.watched_by(ActorId::DISPATCH).await?;
        let mut attempts = Vec::new();
        for some in told.chunks(RECORDS_AT_ONCE) {
            let records = processes.each(some).await?;
            let reports = |it: &&RecordView| it.env.iter().any(|name| name == Task::SECRET);
            attempts.extend(records.iter().filter(reports).map(|it| it.id));
        }
        Ok(attempts)
    }

    /// Returns every lock entry under this key.
    async fn locks_of(&self, key: &str) -> Result<Vec<EntryView>, AuditError> {
        let mut all = Vec::new();
        let mut from = Some(Slot(0));
        while let Some(slot) = from {
            let selection = lock::Selection {
                key: Name::try_from(key).ok(),
                index: None,
                owner: None,
                from: slot,
                entries_max: LOCKS_AT_ONCE,
            };
            let (entries, next) = self.locks().select(selection).await?;
            all.extend(entries);
            from = next;
        }
        Ok(all)
    }

    /// Does what the lost event would have done, and returns whether an action was taken. This is safe even if the event arrives later or
    /// has arrived in the meantime.
    async fn fix(&self, disagreement: &Disagreement) -> Result<bool, AuditError> {
        let actors = self.actors();
        match disagreement {
            Disagreement::Unlocked(_) | Disagreement::Unlaunched(_) | Disagreement::Unended(_) => {
                actors.dispatch.restate().await?;
            }
            Disagreement::LockMissing { which, key } => {
                let owner = format!("attempt-{}", which.attempt);
                let names = [(*key).to_owned(), which.task.to_string(), owner];
                let [key, index, owner] = names.map(|it| Name::new(it.into_bytes()));
                let hold = Hold {
                    by: ActorId::DISPATCH,
                    key: key.unwrap_or_default(),
                    index: index.unwrap_or_default(),
                    owner: owner.unwrap_or_default(),
                };
                send(&actors.lock, lock::Message::Hold(hold)).await?;
            }
            Disagreement::LockLeft { key, index, owner } => {
                let held = LockState {
                    key: key.clone(),
                    index: index.clone(),
                    owner: owner.clone(),
                    granted: true,
                };
                send(&actors.dispatch, dispatch::Message::Held(held)).await?;
            }
            Disagreement::Unattended { process } => {
                let tree = true;
                let how = Stopping { tree, ..Stopping::default() };
                // It is not an error if the process has ended meanwhile.
                drop(self.processes().stop(*process, how).await);
            }
            // Every look already searches for the process again, and asks the keeper how it ended.
            Disagreement::Gone { .. } => {}
            Disagreement::Bound { actor, .. } => match *actor {
                ActorId::LOCK => actors.lock.restate().await?,
                ActorId::QUEUE => actors.queue.restate().await?,
                ActorId::LEASE => actors.lease.restate().await?,
                _ => return Ok(false),
            },
            Disagreement::Status { .. }
            | Disagreement::Late { .. }
            | Disagreement::NoServer(_)
            | Disagreement::Threads { .. }
            | Disagreement::Group { .. }
            | Disagreement::WorkTwice { .. }
            | Disagreement::Stranger { .. } => return Ok(false),
        }
        Ok(true)
    }
}

/// Sends an actor a message, and waits until it is handled.
async fn send<M: Actor>(mailbox: &Mailbox<M>, message: M::Message) -> Result<(), Stopped> {
    mailbox.call(vec![Item::Message(message)]).await.map(drop)
}

/// Returns the processes that an actor's rights are bound to.
async fn bound<M: Actor>(
    mailbox: &Mailbox<M>,
) -> Result<Vec<(ActorId, ProcessId, Until)>, Stopped> {
    let stated = mailbox.obligations_to(PROCESSES).await?;
    let bound = stated.into_iter().filter_map(|it| match it {
        ToProcesses::Watch(watch) => Some((watch.by, watch.process, watch.until)),
        ToProcesses::Fence(_) => None,
    });
    Ok(bound.collect())
}

/// Returns the processes that tasks or bindings refer to.
fn named(
    work: &WorkInProgress,
    bindings: &BTreeSet<(ActorId, ProcessId, Until)>,
) -> BTreeSet<ProcessId> {
    let of_tasks = work.tasks.iter().flat_map(|task| {
        let attempt = task.attempt.as_ref().map(|it| it.process);
        let cleaning = task.cleaning.map(|it| it.process);
        attempt.into_iter().chain(cleaning)
    });
    of_tasks.chain(bindings.iter().map(|(_, it, _)| *it)).collect()
}

fn recorded(record: &RecordView) -> Recorded {
    Recorded {
        has_ended: record.end.is_some() || record.phase == Phase::Exited,
        is_over: record.phase == Phase::Exited && record.live_children == 0,
    }
}
