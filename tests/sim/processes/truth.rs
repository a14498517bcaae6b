//! Records of processes, compared with the true state of the machine.

use super::hooks::{check_below, check_read};
use super::kernel::Kernel;
use super::machine::Machine;
use super::port::Port;
use super::served::{check_one_each, check_ready};
use super::stuck::check_stuck;
use crate::violation::{Promise, Violation, ensure};
use sexton::actors::binding::{Binding, ToHolder, Until};
use sexton::actors::lease::{Current, Holder, LeaseMachine, LeaseView};
use sexton::actors::lock::LockMachine;
use sexton::actors::process::{End, Lost, Phase, ProcessMachine, RecordView};
use sexton::actors::queue::QueueMachine;
use sexton::ids::ActorId;
use sexton::spine::Host;
use sexton::spine::effect::Tell;
use sexton::spine::machine::{Actor, Observable as _};

impl Port {
    /// Checks that a notification that a process or tree is gone is true.
    pub(crate) fn check_gone(
        &self,
        host: &Host<ProcessMachine>,
        tell: &Tell,
    ) -> Result<(), Violation> {
        let told = rmp_serde::from_slice(&tell.message);
        let (ActorId::PROCESS, Ok(ToHolder::Gone(gone))) = (tell.from, told) else {
            return Ok(());
        };
        if host.is_spent() {
            return Ok(());
        }
        let mut room = self.room();
        let kernel = &*room.kernel();
        let records = host.machine().view();
        let Some(record) = records.get(&gone.process) else {
            return Ok(());
        };
        let left = members(kernel, record);
        // A process that registered itself reports its own end. That end is checked when it is reported.
        if record.remains.is_none() && record.end.is_some() {
            return Ok(());
        }
        let tree_lives = gone.until == Until::Tree && left > 0;
        let lives = leader_lives(kernel, record) || tree_lives;
        ensure(!lives, Promise::GoneTrue, || {
            format!("{} is notified of {gone:?}, but {left} are alive of {record:?}", tell.to)
        })
    }

    /// Checks that no attempt has two processes, and that everything that is reported about processes is true.
    pub(crate) fn check(&self, host: &Host<ProcessMachine>) -> Result<(), Violation> {
        let mut room = self.room();
        let machine = &*room.machine();
        let kernel = &machine.kernel;
        for (id, spawned) in &kernel.launched {
            let of_boot = |boot: u128| spawned.iter().filter(|(its, _)| *its == boot).count();
            let twice = spawned.iter().find(|(boot, _)| of_boot(*boot) > 1);
            ensure(twice.is_none(), Promise::LaunchedOnce, || {
                format!("{id} has the processes {spawned:?}")
            })?;
        }
        check_one_each(machine)?;
        if host.is_spent() {
            return Ok(());
        }
        for record in host.machine().view().values() {
            check_ready(machine, record)?;
            check_end(machine, record)?;
            check_stuck(machine, record)?;
        }
        Ok(())
    }

    /// Checks, once everything has settled, that processes recorded as running are alive. `over` is whether enough time
    /// has passed for every killed process to be gone.
    pub(crate) fn check_reconciled(
        &self,
        host: &Host<ProcessMachine>,
        over: bool,
    ) -> Result<(), Violation> {
        let is_stuck = !host.quarantined().is_empty();
        let mut room = self.room();
        let kernel = &*room.kernel();
        let records = host.machine().view();
        check_below(&records)?;
        for record in records.values() {
            if !over && !is_stuck {
                check_read(record)?;
            }
            let lives = leader_lives(kernel, record);
            let right = match record.phase {
                // A process whose launch is deferred waits for a client, unless it is stopped, which cancels it.
                Phase::Queued => record.deferred.is_some() && (record.stop.is_none() || is_stuck),
                Phase::Running => lives,
                // A process whose grace period has just begun may still be alive.
                Phase::Stopping if over && !is_stuck && is_killed(record) => false,
                Phase::Stopping => lives || record.end.is_some() && members(kernel, record) > 0,
                Phase::Exited => true,
            };
            ensure(right, Promise::Reconciled, || {
                format!("{record:?}, whose process is alive: {lives}")
            })?;
            ensure(record.stuck.is_none(), Promise::StuckTrue, || {
                format!("nothing is in the way of its end any more: {record:?}")
            })?;
        }
        Ok(())
    }
}

pub(super) fn leader_lives(kernel: &Kernel, record: &RecordView) -> bool {
    let identity = record.identity.as_ref();
    identity.is_some_and(|it| kernel.lives((it.boot, it.inode)))
}

/// Returns whether SIGKILL was requested for something that may still be alive. A kill of only the leader does not count
/// if the leader has ended.
fn is_killed(record: &RecordView) -> bool {
    let stop = record.stop.filter(|stop| stop.killed);
    stop.is_some_and(|stop| stop.tree || record.end.is_none())
}

pub(super) fn members(kernel: &Kernel, record: &RecordView) -> usize {
    let processes = kernel.processes.values();
    processes.filter(|it| it.tree == Some(record.id)).count()
}

/// Checks that a process that is reported as ended has ended, and in the reported way.
fn check_end(machine: &Machine, record: &RecordView) -> Result<(), Violation> {
    let kernel = &machine.kernel;
    let wrong = |what: &str| Err(Violation::new(Promise::EndTrue, format!("{what}: {record:?}")));
    let Some(end) = record.end else {
        let leads = kernel.processes.values();
        let leads = leads.filter(|it| it.leads == Some(record.id)).count();
        if record.failure.is_some() && leads > 0 {
            return wrong("it could not be started, but is alive");
        }
        return Ok(());
    };
    // A process that registered itself reports its own exit, which cannot be compared.
    if record.remains.is_none() {
        return Ok(());
    }
    if leader_lives(kernel, record) {
        return wrong("it has ended, but is alive");
    }
    let spawned = kernel.launched.get(&record.id).and_then(|it| it.last());
    let known = record.identity.map(|it| (it.boot, it.inode));
    let truth = known.as_ref().or(spawned).and_then(|key| kernel.truth.get(key));
    let right = match end {
        End::Code(code) => truth == Some(&(u32::from(code) << 8)),
        End::Signal { signal, .. } => truth == Some(&u32::from(signal)),
        End::Lost(Lost::Rebooted) => known.is_some_and(|(boot, _)| boot != kernel.boot),
        End::Lost(Lost::KeeperGone) => {
            kernel.orphaned.contains(&record.id) || machine.given_up.contains(&record.id)
        }
        End::Lost(Lost::NotOurs) => !record.launched,
        End::Lost(Lost::Unknown | Lost::AnotherMachine) => false,
    };
    if !right {
        return wrong(&format!("it ended with {truth:?}"));
    }
    check_tree(kernel, record, end)
}

/// Checks that nothing of a tree that was launched or stopped is alive once its record has ended.
fn check_tree(kernel: &Kernel, record: &RecordView, end: End) -> Result<(), Violation> {
    let counts = record.launched || record.stop.is_some_and(|stop| stop.tree);
    let is_over = record.phase == Phase::Exited && end != End::Lost(Lost::Rebooted);
    let left = members(kernel, record);
    ensure(!counts || !is_over || left == 0, Promise::TreeEmpty, || {
        format!("{left} processes of the tree of an ended record are alive: {record:?}")
    })
}

/// Checks that no lock is held or waited for, and no job is claimed, on behalf of a process that is gone.
pub(crate) fn check_bound(
    (locks, queues): (&Host<LockMachine>, &Host<QueueMachine>),
    processes: &Host<ProcessMachine>,
) -> Result<(), Violation> {
    if !is_whole(processes) {
        return Ok(());
    }
    let records = processes.machine().view();
    let entries = locks.machine().view().entries;
    let entries = entries.iter().filter(|_| is_whole(locks));
    let entries = entries.filter_map(|it| Some((it.bound?, format!("{it:?}"))));
    let jobs = queues.machine().view().jobs;
    let jobs = jobs.iter().filter(|_| is_whole(queues));
    let jobs = jobs.filter_map(|it| Some((it.bound?, format!("{it:?}"))));
    for (bound, what) in entries.chain(jobs) {
        check_binding(bound, records.get(&bound.process), &what)?;
    }
    Ok(())
}

/// Checks that no pass runs and no request is next in line on behalf of a process that is gone, and that every launch was
/// accepted.
pub(crate) fn check_passes(
    leases: &Host<LeaseMachine>,
    processes: &Host<ProcessMachine>,
) -> Result<(), Violation> {
    if !is_whole(processes) || !is_whole(leases) {
        return Ok(());
    }
    let records = processes.machine().view();
    for LeaseView { lease, .. } in leases.machine().view() {
        let running = lease.running();
        let launching = running.is_some_and(Current::is_launching);
        ensure(!launching, Promise::Told, || format!("a launch is not accepted: {lease:?}"))?;
        let of_pass = running.and_then(|it| match &it.holder {
            Holder::Launched { process, .. } => Some((*process, Until::Tree)),
            Holder::Process(bound) => Some((bound.process, bound.until)),
            Holder::Timed { .. } | Holder::Nobody => None,
        });
        let next = lease.next.as_ref().and_then(|it| it.process);
        let of_next = next.map(|bound| (bound.process, bound.until));
        for (process, until) in of_pass.into_iter().chain(of_next) {
            let bound = Binding { process, until, fence: false };
            check_binding(bound, records.get(&process), &format!("{lease:?}"))?;
        }
    }
    Ok(())
}

/// Checks that the process or tree to which a right is bound is not gone.
pub(crate) fn check_binding(
    bound: Binding,
    record: Option<&RecordView>,
    what: &str,
) -> Result<(), Violation> {
    let right = match bound.until {
        Until::Process => record.is_some_and(|it| it.end.is_none() && it.phase != Phase::Exited),
        Until::Tree => record.is_some_and(|it| it.phase != Phase::Exited || it.live_children > 0),
    };
    ensure(right, Promise::EndsWithOwner, || format!("{what} of {record:?}"))
}

/// Returns whether time acts on every item of the host: it is not spent, and no tick panicked.
pub(crate) fn is_whole<M: Actor>(host: &Host<M>) -> bool {
    !host.is_spent() && host.quarantined().is_empty()
}
