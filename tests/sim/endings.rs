//! The ways in which a node ends, and the checks at the end of a run.

use crate::actor::Actor;
use crate::counter::{Counter, SILENCE_MS};
use crate::counters::Counters;
use crate::damage;
use crate::dispatch::check_tasks;
use crate::each::each;
use crate::node::Stopped;
use crate::processes::{Processes, check_bound, check_passes};
use crate::queues::Queues;
use crate::reference::Reference;
use crate::run::Run;
use crate::setting::Power;
use crate::storage::{Fate, Loss};
use crate::violation::{Promise, Violation, ensure};
use sexton::actors::process::{self, Phase, RecordView};
use sexton::actors::queue::{Query, QueueName, QueueView, Reply, Watch};
use sexton::clock::Now;
use sexton::ids::{Seq, Slot};
use sexton::persist::journal::segment;
use sexton::spine::items::Itemized as _;
use sexton::spine::machine::{Machine as _, Observable as _};
use std::collections::BTreeMap;

/// The time after which actors have repeated every message that was lost in transit or refused.
const PATIENCE_MS: u64 = SILENCE_MS as u64 + 1;
const DAY_MS: u64 = 24 * 3600 * 1000;
/// The time within which the port has learned the state of every process, in milliseconds.
const RECONCILED_MS: u64 = 30_000;
/// The time within which processes that survive SIGKILL are reported as stuck, in milliseconds.
const STUCK_MS: u64 = 5000;
/// The maximum number of rounds in which everything must settle.
const ROUNDS_MAX: u32 = 10_000;

#[derive(Clone, Copy)]
enum Ending {
    Kill,
    PowerCut,
    CleanStop,
    DeathInDiskCall,
    DeathInCheckpoint,
}

impl Run<'_> {
    /// Causes an event that ends the node, now or soon.
    pub(crate) fn misfortune(&mut self) -> Result<(), Violation> {
        match self.chance.weighted(&[
            (3, Ending::Kill),
            (4, Ending::PowerCut),
            (1, Ending::CleanStop),
            (3, Ending::DeathInDiskCall),
            (2, Ending::DeathInCheckpoint),
        ]) {
            Ending::Kill => {
                self.coverage.kills += 1;
                self.say(|| "kill -9".to_owned());
                self.down();
            }
            Ending::PowerCut => {
                self.down();
                self.cut_power();
            }
            Ending::CleanStop => return self.stop(),
            Ending::DeathInDiskCall => {
                let calls = self.chance.below(6);
                self.disk.die_after(calls);
                return Ok(());
            }
            Ending::DeathInCheckpoint => {
                let calls = self.chance.below(100);
                self.disk.die_after(calls);
                if self.setting.checkpoints > 0 {
                    self.take_whole_snapshot()?;
                }
                return Ok(());
            }
        }
        self.while_down()
    }

    /// Handles a failure of the journal, or a kill of the process during one of the journal's calls.
    pub(crate) fn halted(&mut self, stopped: Stopped) -> Result<(), Violation> {
        let error = match stopped {
            Stopped::Broken(violation) => return Err(violation),
            Stopped::Replay(error) => {
                self.checker.explain(&self.disk, self.node.as_ref(), self.peril)?;
                return Err(Violation::new(Promise::Starts, error));
            }
            Stopped::Journal(error) => error,
        };
        self.say(|| format!("halted: {error}"));
        if self.disk.is_dead() {
            self.coverage.deaths_inside_a_disk_call += 1;
            self.after_death();
            return Ok(());
        }
        let words = error.to_string();
        match () {
            () if words.contains("the disk failed to write") => self.coverage.failed_writes += 1,
            () if words.contains("the disk failed to sync") => self.coverage.failed_syncs += 1,
            () if error.is_disk_full() && self.disk.is_bounded() => {
                self.coverage.halts_for_space += 1;
            }
            () => return Err(Violation::new(Promise::Answered, words)),
        }
        self.down();
        self.while_down()
    }

    /// Handles the end of the process. Written data stays, unless the power is cut at the same time.
    pub(crate) fn after_death(&mut self) {
        self.down();
        match self.setting.power {
            Power::ByChance if self.chance.per_mille(500) => self.cut_power(),
            Power::ByChance | Power::Stays => {}
            Power::TakesAll => self.power_went(self.disk.cut_power_by(|_| Fate::Lost)),
            Power::TakesNothing => self.power_went(self.disk.cut_power_by(|_| Fate::Kept)),
        }
    }

    pub(crate) fn down(&mut self) {
        if let Some(node) = self.node.take() {
            self.coverage.crashes_with_unsynced_tail += u64::from(node.log.is_unsynced());
            self.coverage.crashes_in_a_checkpoint += u64::from(node.amid);
            self.coverage.add(&node.met);
            each!(actor in &node.actors => actor.count(&mut self.coverage));
            self.world.start(Seq(0));
            self.peril.synced = node.log.synced;
            self.past = Some(node);
        }
        self.disk.kill();
    }

    pub(crate) fn cut_power(&mut self) {
        let loss = self.disk.cut_power();
        self.power_went(loss);
    }

    fn power_went(&mut self, loss: Loss) {
        self.say(|| format!("power cut: {loss:?}"));
        self.peril.power_cut = true;
        self.world.processes.reboot();
        self.coverage.power_cuts += 1;
        let amid = self.past.as_ref().is_some_and(|past| past.amid);
        self.coverage.power_cuts_in_a_checkpoint += u64::from(amid);
        self.coverage.power_cuts_that_lost += u64::from(loss.pages_lost + loss.pages_torn > 0);
        self.coverage.power_cuts_that_tore += u64::from(loss.pages_torn > 0);
        self.coverage.folder_changes_lost += loss.names_lost;
    }

    /// Lets time pass, processes change and files be damaged before the node is started again.
    fn while_down(&mut self) -> Result<(), Violation> {
        if self.chance.per_mille(50) {
            self.coverage.days_down += 1;
            self.wall += DAY_MS;
            self.world.processes.pass(DAY_MS, self.wall);
        }
        // Processes keep running without the node.
        for _ in 0..self.chance.below(6) {
            self.world.processes.mischief(&mut self.chance);
        }
        if self.chance.per_mille(300) {
            damage::check(&self.disk, &mut self.chance, &mut self.coverage)?;
        }
        self.while_slots_rest()
    }

    /// Stops the node cleanly: requests in progress are answered, and the log records the stop.
    fn stop(&mut self) -> Result<(), Violation> {
        self.say(|| "clean stop".to_owned());
        if self.setting.checkpoints > 0 {
            // A checkpoint in progress is completed first, and another one is taken.
            let before = self.coverage.checkpoints_sealed;
            self.take_whole_snapshot()?;
            self.coverage.checkpoints_at_a_stop += self.coverage.checkpoints_sealed - before;
        }
        let Some(node) = &mut self.node else {
            return Ok(());
        };
        let closed = node.hand(&mut self.tap).and_then(|()| {
            node.ledger.stop();
            node.hand(&mut self.tap)
        });
        closed?;
        if let Err(error) = node.log.close() {
            return self.halted(Stopped::Journal(error));
        }
        self.release()?;
        self.coverage.clean_stops += 1;
        self.down();
        Ok(())
    }

    /// Ends the run without further faults. Everything in progress must settle, and stay settled after another restart.
    pub(crate) fn finish(&mut self) -> Result<(), Violation> {
        self.disk.set_space(None);
        self.disk.kill();
        if self.node.is_some() && self.chance.per_mille(500) {
            self.come_to_rest()?;
        } else {
            self.down();
        }
        while self.node.is_none() {
            self.start()?;
        }
        self.settle()?;
        self.check_rest()?;
        // Actors have repeated at startup every message that may have been lost.
        self.check_effects()?;
        self.reconcile(false)?;
        if self.chance.per_mille(500) {
            self.stop()?;
        } else {
            self.down();
        }
        while self.node.is_none() {
            self.start()?;
        }
        self.settle()?;
        self.check_rest()?;
        self.check_effects()?;
        self.reconcile(false)?;
        if self.setting.checkpoints > 0 {
            self.check_files()?;
        }
        self.down();
        let ordinals = segment::ordinals(&self.disk).unwrap_or_default();
        let last = ordinals.last().copied().unwrap_or_default();
        self.coverage.segment_rolls += last.saturating_sub(2);
        Ok(())
    }

    /// Checks that everything is put right without a restart, once there is disk space, nothing fails, and some time has
    /// passed.
    pub(crate) fn come_to_rest(&mut self) -> Result<(), Violation> {
        if let Some(node) = &self.node {
            each!(actor in &node.actors => actor.trap.disarm());
        }
        self.world.processes.keep_unkillable(true);
        self.settle()?;
        self.check_rest()?;
        self.pass_patience()?;
        self.check_stuck()?;
        self.world.processes.keep_unkillable(false);
        self.settle()?;
        self.check_effects()?;
        self.reconcile(true)
    }

    /// Lets the port of processes do everything that is due in the next `left` milliseconds.
    fn let_port_act(&mut self, mut left: u64) -> Result<(), Violation> {
        while let Some(ms) = self.world.processes.deadline().filter(|ms| *ms <= left) {
            left -= ms;
            self.pass_ms(ms);
            self.settle()?;
        }
        self.check_processes()
    }

    /// Checks that processes that survive SIGKILL are reported as stuck within `STUCK_MS`.
    fn check_stuck(&mut self) -> Result<(), Violation> {
        self.let_port_act(STUCK_MS)?;
        if let Some(node) = &self.node {
            let host = &node.actors.process.host;
            self.coverage.trees_stuck_at_rest += self.world.processes.check_stuck(host)?;
        }
        Ok(())
    }

    /// Lets the port finish everything that it waits for, and then compares records, rights and services with the true
    /// state of the machine. `over` is whether enough time has passed for every killed process to be gone.
    fn reconcile(&mut self, over: bool) -> Result<(), Violation> {
        self.let_port_act(RECONCILED_MS)?;
        let Some(node) = &mut self.node else {
            return Ok(());
        };
        let now = node.ledger.both();
        let host = &node.actors.process.host;
        self.world.processes.check_reconciled(host, over)?;
        let processes = &node.actors.process;
        self.world.processes.check_services(processes, now)?;
        check_bound((&node.actors.lock.host, &node.actors.queue.host), host)?;
        check_passes(&node.actors.lease.host, host)?;
        let locks = &node.actors.lock.host;
        check_tasks(&node.actors.dispatch.host, locks, host)
    }

    fn pass_ms(&mut self, ms: u64) {
        self.wall += ms;
        self.world.processes.pass(ms, self.wall);
        if let Some(node) = &mut self.node {
            node.clock.advance_ms(ms);
        }
    }

    fn settle(&mut self) -> Result<(), Violation> {
        let mut left = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let Some(node) = &mut self.node else { break };
            left = node.left_to_do();
            if left.is_empty() {
                self.settle_last()?;
                // Checking the disk may have found free space for which some of the work waited.
                let node = self.node.as_mut();
                if node.is_none_or(|node| node.left_to_do().is_empty()) {
                    return Ok(());
                }
                continue;
            }
            let (tap, coverage) = (&mut self.tap, &mut self.coverage);
            self.world.processes.make_well();
            while self.world.processes.step(&mut self.chance)? {}
            while node.route()? || node.complete(None) || node.report(None) {}
            self.world.ring_all()?;
            for id in node.actors.ids() {
                node.turn(id, coverage);
            }
            let moved = node
                .hand(tap)
                .map_err(Stopped::Broken)
                .and_then(|()| Ok(node.log.drain()?))
                .and_then(|()| node.rebuild(coverage));
            if let Err(stopped) = moved {
                return match stopped {
                    Stopped::Broken(violation) => Err(violation),
                    Stopped::Journal(error) => Err(Violation::new(Promise::Answered, error)),
                    Stopped::Replay(error) => Err(Violation::new(Promise::Answered, error)),
                };
            }
            self.release()?;
        }
        Err(Violation::new(
            Promise::Answered,
            format!("the node does not settle: {left:?} are left"),
        ))
    }

    fn settle_last(&mut self) -> Result<(), Violation> {
        self.release()?;
        self.look()?;
        if let Some(node) = &mut self.node {
            // Checking the clock may have recorded a step of the wall clock.
            node.hand(&mut self.tap)?;
            node.log.drain().map_err(|error| Violation::new(Promise::Answered, error))?;
        }
        self.release()
    }

    /// Checks that every call is answered, and that no client waits for an event that has already happened.
    fn check_rest(&self) -> Result<(), Violation> {
        let Some(node) = &self.node else {
            return Ok(());
        };
        each!(actor in &node.actors => answered(actor)?);
        let empty = node.actors.lock.host.machine().view().entries.is_empty();
        let waits = node.actors.lock.waits.values();
        let waiting = waits.filter(|wait| wait.answer.is_none()).count();
        ensure(!empty || waiting == 0, Promise::Woken, || {
            format!("{waiting} wait until no lock is left, but none is")
        })?;
        nobody_waits_in_vain(&node.actors.queue)?;
        nobody_waits_for_what_is_over(&node.actors.process)
    }

    /// Lets the time pass after which lost or refused messages have been repeated.
    fn pass_patience(&mut self) -> Result<(), Violation> {
        for _ in 0..2 {
            self.pass_ms(PATIENCE_MS);
            self.settle()?;
        }
        Ok(())
    }

    /// Checks that each counter actor has received the other's count, and that every bell was rung.
    fn check_effects(&self) -> Result<(), Violation> {
        let Some(node) = &self.node else {
            return Ok(());
        };
        self.check_bells()?;
        none_silent(&node.actors.left)?;
        none_silent(&node.actors.right)?;
        let (left, right) = (strides(&node.actors.left), strides(&node.actors.right));
        let heard = (received(&node.actors.right), received(&node.actors.left));
        ensure((&left, &right) == (&heard.0, &heard.1), Promise::Told, || {
            format!("sent {left:?} {right:?}, received {heard:?}")
        })
    }
}

/// Checks that every bell of the actor was rung, except bells whose tick panicked.
fn none_silent<const ID: u8>(actor: &Actor<Counters<ID>>) -> Result<(), Violation> {
    let items = actor.host.quarantined().iter();
    let stuck: Vec<u64> = items.filter_map(|report| report.item).collect();
    for (name, counter) in actor.host.machine().items().iter() {
        let silent = counter.silent && !stuck.contains(&name.0.into());
        ensure(!silent, Promise::ActedOnIt, || {
            format!("bell {name:?} of {ID} was never rung: {counter:?}")
        })?;
    }
    Ok(())
}

/// Checks that no client waits while one of its queues has a job to claim. Not checked if a tick panicked.
fn nobody_waits_in_vain(actor: &Actor<Queues>) -> Result<(), Violation> {
    if !actor.host.quarantined().is_empty() {
        return Ok(());
    }
    let view = actor.host.machine().view();
    let is_open = |queue: &&QueueView| queue.jobs.ready > 0 && queue.paused_until.is_none();
    let open: Vec<_> = view.queues.iter().filter(is_open).collect();
    for wait in actor.waits.values().filter(|wait| wait.answer.is_none()) {
        let Watch::Job(pop) = &wait.watch else {
            continue;
        };
        let is_closed = |queue: &&&QueueView| {
            let queue = queue.name.clone();
            let now = Now::default();
            let view = actor.host.machine().query(now, &Query::Queue { queue });
            matches!(view, Reply::Queue(view) if view.throttled_until.is_some())
        };
        let is_asked = |queue: &QueueName| {
            let kind = String::from_utf8_lossy(queue.kind()).into_owned();
            pop.any.as_ref().is_some_and(|any| match &any.types[..] {
                [] => !any.except.contains(&kind),
                types => types.contains(&kind),
            })
        };
        let mut there = open.iter().filter(|queue| !is_closed(queue));
        let there = there.find(|queue| pop.queues.contains(&queue.name) || is_asked(&queue.name));
        ensure(there.is_none(), Promise::Woken, || {
            format!("{pop:?} waits, but {there:?} is ready")
        })?;
    }
    Ok(())
}

/// Checks that no client waits for the end of a process that has ended or does not exist. A wait for a process that was stopped
/// with its tree lasts until the processes below it that were stopped with it have ended.
fn nobody_waits_for_what_is_over(actor: &Actor<Processes>) -> Result<(), Violation> {
    let view = actor.host.machine().view();
    for wait in actor.waits.values().filter(|wait| wait.answer.is_none()) {
        let process::Watch::End(id) = &wait.watch else {
            continue;
        };
        let is_stopped = |it: &RecordView| it.stop.is_some_and(|stop| stop.tree);
        let is_below = |it: &RecordView| {
            let parent = |it: &RecordView| view.get(&it.parent?);
            std::iter::successors(parent(it), |it| parent(it)).any(|above| above.id == *id)
        };
        let lives = |it: &RecordView| it.phase != Phase::Exited;
        let is_waited_for = view.get(id).is_some_and(|it| {
            let mut below = view.values().filter(|it| is_below(it));
            lives(it) || is_stopped(it) && below.any(|it| lives(it) && is_stopped(it))
        });
        ensure(is_waited_for, Promise::Woken, || {
            format!("the end of {id} is waited for, but it is {:?}", view.get(id))
        })?;
    }
    Ok(())
}

fn answered<R: Reference>(actor: &Actor<R>) -> Result<(), Violation> {
    let open = actor.calls.iter().find(|call| call.answers.is_none());
    ensure(open.is_none(), Promise::Answered, || {
        let asks = open.map(|call| &call.asks);
        format!("{asks:?} was never answered")
    })
}

fn strides<const ID: u8>(actor: &Actor<Counters<ID>>) -> BTreeMap<Slot, u64> {
    counted(actor, |counter| counter.strides)
}

fn received<const ID: u8>(actor: &Actor<Counters<ID>>) -> BTreeMap<Slot, u64> {
    counted(actor, |counter| counter.heard)
}

fn counted<const ID: u8>(
    actor: &Actor<Counters<ID>>,
    count: fn(&Counter) -> u64,
) -> BTreeMap<Slot, u64> {
    let counters = actor.host.machine().items().iter();
    let counts = counters.map(|(name, counter)| (name, count(counter)));
    counts.filter(|(_, count)| *count > 0).collect()
}
