//! Tasks compared with locks, processes and the free disk space, once everything has settled.

use crate::processes::{check_binding, is_whole};
use crate::violation::{Promise, Violation, ensure};
use sexton::actors::binding::{Binding, Until};
use sexton::actors::dispatch::{
    DispatchMachine, ExitStatus, Message, Outcome, RunStatus, Stage, Step, Task, TaskStep, TaskView,
};
use sexton::actors::lock::{EntryView, LockMachine};
use sexton::actors::process::ProcessMachine;
use sexton::ids::{ActorId, ProcessId, Seq};
use sexton::persist::format::{Batch, FRAME_HEADER_BYTES, FrameHeader, Kind};
use sexton::persist::journal::Room;
use sexton::spine::Host;
use sexton::spine::ledger::Entry;
use sexton::spine::machine::Observable as _;

/// Checks that live attempts have live processes, that only live attempts hold locks, and that every failed task has a
/// reason.
pub(crate) fn check_tasks(
    tasks: &Host<DispatchMachine>,
    locks: &Host<LockMachine>,
    processes: &Host<ProcessMachine>,
) -> Result<(), Violation> {
    if !is_whole(tasks) || !is_whole(processes) || !is_whole(locks) {
        return Ok(());
    }
    let records = processes.machine().view();
    let lives = |process: ProcessId, task: &Task, promise: Promise| {
        let bound = Binding { process, until: Until::Tree, fence: false };
        check_binding(bound, records.get(&process), &format!("{task:?}"))
            .map_err(|it| Violation { promise, ..it })
    };
    let entries = locks.machine().view().entries;
    let views = tasks.machine().view();
    for TaskView { task, obstacle, .. } in &views {
        check_reason(task)?;
        let is_held = task.attempt.is_none() && task.status != RunStatus::Complete;
        ensure(!is_held || obstacle.is_some(), Promise::RoomAgain, || {
            format!("nothing holds it back, but its burst does not begin: {task:?}")
        })?;
        let runs = task.status == RunStatus::Processing;
        ensure(runs == task.attempt.is_some(), Promise::UnderWay, || format!("{task:?}"))?;
        if let Some(attempt) = &task.attempt {
            ensure(attempt.stage == Stage::Launched, Promise::Told, || {
                format!("a lock is not granted, or a launch not accepted: {task:?}")
            })?;
            lives(attempt.process, task, Promise::UnderWay)?;
        }
        if let Some(cleaning) = task.cleaning {
            ensure(cleaning.taken, Promise::Told, || {
                format!("a launch is not accepted: {task:?}")
            })?;
            lives(cleaning.process, task, Promise::EndsWithOwner)?;
        }
    }
    let is_reserved = |it: &&EntryView| it.key.as_bytes().starts_with(b"wip-pool-lock-");
    for entry in entries.iter().filter(is_reserved) {
        let is_its = |view: &TaskView| {
            let task = &view.task;
            let attempt = task.attempt.as_ref().map(|it| it.token);
            let owner = attempt.or(task.blocked).map(|it| format!("attempt-{it}"));
            entry.index.to_text() == task.id.to_string() && owner == Some(entry.owner.to_text())
        };
        ensure(views.iter().any(is_its), Promise::EndsWithOwner, || {
            format!("{entry:?} is not held by a live attempt")
        })?;
    }
    Ok(())
}

/// Checks that no burst begins while the disk is low on space, since its process could not be launched. `rooms` has an
/// item for each change of the free space: the last entry before the change, and the space after it.
pub(crate) fn check_room(batch: &Batch, rooms: &[(Seq, Room)]) -> Result<(), Violation> {
    if rooms.iter().all(|(_, room)| *room == Room::Ample) {
        return Ok(());
    }
    let mut offset = 0;
    while let Some(header) = FrameHeader::decode(batch.bytes_from(offset)) {
        let frame = batch.bytes_from(offset).get(..header.size as usize);
        offset += header.size as usize;
        let ours = header.actor == ActorId::DISPATCH && header.kind == Kind::Entry;
        let payload = frame.and_then(|frame| frame.get(FRAME_HEADER_BYTES..));
        let Some(payload) = payload.filter(|_| ours) else {
            continue;
        };
        let entry: Result<Entry<Message, Outcome>, _> = rmp_serde::from_slice(payload);
        let Ok(Outcome::Changed { steps, .. }) = entry.map(|entry| entry.outcome) else {
            continue;
        };
        let begins = |step: &Step| matches!(step, Step::Task(_, TaskStep::Claimed { .. }));
        let room = rooms.iter().rev().find(|(after, _)| *after < header.seq);
        let is_low = room.is_some_and(|(_, room)| *room != Room::Ample);
        ensure(!is_low || !steps.iter().any(begins), Promise::RoomFirst, || {
            format!("entry {} begins a burst with {room:?}", header.seq)
        })?;
    }
    Ok(())
}

/// Checks that a task that failed with a system error has a reason.
fn check_reason(task: &Task) -> Result<(), Violation> {
    let failed = task.exit == ExitStatus::SystemError;
    ensure(!failed || !task.words.is_empty(), Promise::Reasoned, || {
        format!("it failed without a reason: {task:?}")
    })
}
