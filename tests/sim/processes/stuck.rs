//! Checks which processes are reported as stuck, against the processes that have survived SIGKILL.

use super::machine::Machine;
use super::port::Port;
use super::truth::{leader_lives, members};
use crate::violation::{Promise, Violation, ensure};
use sexton::actors::process::{Phase, ProcessMachine, RecordView};
use sexton::spine::Host;
use sexton::spine::machine::Observable as _;

/// The time that a process may take to end after SIGKILL before it is stuck, in milliseconds.
const STUCK_MS: u64 = 2000;
/// The time by which a stuck process is reported, in milliseconds. The port looks once a second.
const SAID_MS: u64 = STUCK_MS + 1100;

/// Checks that a process that is shown as stuck has been so for at least `STUCK_MS`.
pub(super) fn check_stuck(machine: &Machine, record: &RecordView) -> Result<(), Violation> {
    let Some(stuck) = record.stuck else {
        return Ok(());
    };
    let now = machine.kernel.now;
    let killed = machine.killed.get(&record.id);
    let awaited = machine.awaited.get(&record.id);
    let since = if stuck.unkillable > 0 { killed } else { killed.into_iter().chain(awaited).min() };
    let lasts = since.is_some_and(|since| now >= since + STUCK_MS);
    ensure(lasts && record.phase == Phase::Stopping, Promise::StuckTrue, || {
        format!("since {since:?}, and it is {now}: {record:?}")
    })
}

impl Port {
    /// Checks that every process or tree that has survived SIGKILL for `SAID_MS` is reported as stuck, with the right
    /// number of processes. Returns how many there are. Everything else must have settled.
    pub(crate) fn check_stuck(&self, host: &Host<ProcessMachine>) -> Result<u64, Violation> {
        if host.is_spent() || !host.quarantined().is_empty() {
            return Ok(0);
        }
        let mut room = self.room();
        let machine = &*room.machine();
        let mut met = 0;
        for record in host.machine().view().values() {
            let is_old = |since: &u64| machine.kernel.now >= since + SAID_MS;
            let is_over = machine.killed_here.get(&record.id).is_some_and(is_old);
            let Some(stop) = record.stop.filter(|stop| stop.killed && is_over) else {
                continue;
            };
            let left = if stop.tree {
                members(&machine.kernel, record)
            } else {
                usize::from(leader_lives(&machine.kernel, record))
            };
            if record.phase == Phase::Stopping && left > 0 {
                let said = record.stuck.map_or(0, |it| it.unkillable);
                ensure(said as usize == left, Promise::StuckTrue, || {
                    format!("SIGKILL has left {left} processes: {record:?}")
                })?;
                met += 1;
            }
        }
        check_gauge(host)?;
        Ok(met)
    }
}

/// Checks that the gauge equals the number of records that are shown as stuck.
pub(super) fn check_gauge(host: &Host<ProcessMachine>) -> Result<(), Violation> {
    let view = host.machine().view();
    let stuck = view.values().filter(|it| it.stuck.is_some()).count() as u64;
    let gauges = host.machine().gauges();
    let gauge = gauges.iter().find(|it| it.name == "stuck");
    let shown = gauge.map(|it| it.value);
    ensure(shown == Some(stuck), Promise::StuckTrue, || {
        format!("{stuck} are stuck, and shown are {shown:?}")
    })
}
