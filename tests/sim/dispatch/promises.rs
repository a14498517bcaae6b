//! Promises that every history of tasks keeps, whatever the rules are. They are checked from the outcomes of messages
//! alone.

use crate::violation::{Promise, Violation, ensure};
use sexton::actors::dispatch::{
    Cause, ExitStatus, Group, Message, Outcome, Pause, Report, Server, Step, TaskStep, Verdict,
};
use sexton::actors::lock::Name;
use sexton::ids::{ProcessId, Slot};
use sexton::spine::machine::Stamp;

/// An attempt that is live.
#[derive(Clone, Debug)]
struct Live {
    server: Slot,
    process: ProcessId,
    stopping: bool,
    /// Whether it may save: its update lock is held.
    updates: bool,
    /// The highest number of an accepted report. Reports without a number do not count.
    heard: u64,
    /// Whether it is on another machine, which repeats reports that were not answered.
    is_far: bool,
}

#[derive(Clone, Debug)]
struct TrackedTask {
    slot: Slot,
    work: Name,
    group: Name,
    live: Option<Live>,
    /// Whether its first burst has begun and its last has not ended.
    under_way: bool,
    paused: bool,
    /// Whether it was woken during its current burst.
    woken: bool,
}

/// Tasks, servers and groups after the entries so far.
#[derive(Clone, Default)]
pub(super) struct Promises {
    tasks: Vec<TrackedTask>,
    servers: Vec<(Slot, Server)>,
    groups: Vec<Group>,
    pause: Pause,
}

type Kept = Result<(), Violation>;

impl Promises {
    /// Applies one entry, and checks the promises.
    pub(super) fn follow(&mut self, stamp: Stamp, message: &Message, outcome: &Outcome) -> Kept {
        let Outcome::Changed { steps, .. } = outcome else {
            return Ok(());
        };
        let is_report = |it: &&Step| matches!(it, Step::Task(_, TaskStep::Reported { .. }));
        let reports = steps.iter().filter(is_report).count();
        ensure(reports <= 1, Promise::OnlyTheLive, || {
            format!("entry {}: {message:?} is applied {reports} times", stamp.seq)
        })?;
        for step in steps {
            self.step(message, step).map_err(|it| {
                let what = format!("entry {} of dispatch, {message:?}: {}", stamp.seq, it.what);
                Violation::new(it.promise, what)
            })?;
        }
        Ok(())
    }

    fn step(&mut self, message: &Message, step: &Step) -> Kept {
        match step {
            Step::Task(slot, TaskStep::Added { .. }) => self.add(*slot, message),
            Step::Task(slot, TaskStep::Claimed { server, process, lost_after_ms }) => {
                self.claim(*slot, *server, (*process, lost_after_ms.is_some()))?;
            }
            Step::Task(slot, TaskStep::Forgotten) => {
                let live = self.at(*slot).live.clone();
                ensure(live.is_none(), Promise::UnderWay, || {
                    format!("it is forgotten while {live:?} is live")
                })?;
                self.tasks.retain(|it| it.slot != *slot);
            }
            Step::Task(slot, step) => self.task_step(*slot, message, step)?,
            Step::ServerMade { name, threads, .. } => self.make_server(name, *threads),
            Step::ServerThreads(slot, threads) => self.server(*slot).threads = *threads,
            Step::ServerEnabled(slot, on) => self.server(*slot).enabled = *on,
            Step::ServerRemoved(slot) if self.used(*slot) == 0 => {
                self.servers.retain(|(its, _)| its != slot);
            }
            Step::ServerRemoved(slot) => self.server(*slot).leaves = true,
            Step::GroupSet { name, max, pause, .. } => {
                self.groups.retain(|it| it.name != *name);
                self.groups.push(Group { name: name.clone(), max: *max, pause: *pause });
            }
            Step::Paused(pause) => self.pause = *pause,
            Step::Rests
            | Step::GivesBack(_)
            | Step::ServerReached(..)
            | Step::ServerFailed(..)
            | Step::ServerAnswered(_) => {}
        }
        Ok(())
    }

    fn at(&mut self, slot: Slot) -> &mut TrackedTask {
        let mut tasks = self.tasks.iter_mut();
        tasks.find(|it| it.slot == slot).expect("steps are of what is there")
    }

    fn server(&mut self, slot: Slot) -> &mut Server {
        let mut servers = self.servers.iter_mut();
        let found = servers.find(|(its, _)| *its == slot);
        found.map(|(_, it)| it).expect("steps are of what is there")
    }

    fn used(&self, server: Slot) -> usize {
        let live = self.tasks.iter().filter_map(|it| it.live.as_ref());
        live.filter(|it| it.server == server).count()
    }

    fn add(&mut self, slot: Slot, message: &Message) {
        let Message::Add(asked) = message else {
            return;
        };
        let mut group = asked.group.clone();
        if group == Name::default() {
            group = Name::try_from(Group::DEFAULT).expect("the name is short");
        }
        self.tasks.push(TrackedTask {
            slot,
            work: asked.work.clone(),
            group,
            live: None,
            under_way: false,
            paused: asked.paused,
            woken: false,
        });
    }

    /// Adds a server in the lowest free slot, or replaces the server of this name.
    fn make_server(&mut self, name: &Name, threads: u32) {
        let made = Server {
            name: name.clone(),
            threads,
            enabled: true,
            leaves: false,
            remote: None,
            outage: None,
        };
        if let Some((_, server)) = self.servers.iter_mut().find(|(_, it)| it.name == *name) {
            *server = made;
            return;
        }
        let is_free = |slot: &u32| self.servers.iter().all(|(its, _)| its.0 != *slot);
        let slot = (0..u32::MAX).find(is_free).unwrap_or_default();
        self.servers.push((Slot(slot), made));
    }

    /// Checks that a burst may begin, and records its attempt.
    fn claim(&mut self, slot: Slot, server: Slot, (process, is_far): (ProcessId, bool)) -> Kept {
        let known = self.at(slot).clone();
        let alike = |it: &&TrackedTask| {
            let same_work = it.work == known.work && it.work != Name::default();
            it.slot == slot || same_work
        };
        let live = self.tasks.iter().filter(alike).find(|it| it.live.is_some());
        ensure(live.is_none(), Promise::OneAttempt, || {
            format!("an attempt of {known:?} begins beside that of {live:?}")
        })?;
        self.check_thread(server)?;
        let group = self.groups.iter().find(|it| it.name == known.group);
        let (max, pause) = group.map_or((None, Pause::Off), |it| (it.max, it.pause));
        let max = max.unwrap_or(Group::MAX);
        let held = |pause: Pause| pause == Pause::Hard || pause == Pause::Soft && !known.under_way;
        let is_held = known.paused || held(self.pause) || held(pause);
        ensure(!is_held, Promise::HeldBack, || {
            format!("{known:?} begins, in spite of {:?} and {pause:?}", self.pause)
        })?;
        let its = self.tasks.iter().filter(|it| it.group == known.group);
        let used = its.filter(|it| it.under_way).count();
        ensure(known.under_way || used < max as usize, Promise::HeldBack, || {
            format!("{known:?} is started although {used} of {max} of its group are")
        })?;
        let it = self.at(slot);
        (it.under_way, it.woken) = (true, false);
        it.live = Some(Live { server, process, stopping: false, updates: false, heard: 0, is_far });
        Ok(())
    }

    /// Checks that the server exists, accepts attempts, and has a free thread.
    fn check_thread(&self, server: Slot) -> Kept {
        let found = self.servers.iter().find(|(its, _)| *its == server);
        let found = found.map(|(_, it)| it);
        let open = found.is_some_and(|it| it.enabled && !it.leaves);
        ensure(open, Promise::HeldBack, || format!("an attempt begins on {found:?}"))?;
        let used = self.used(server);
        let free = found.is_some_and(|it| used < it.threads as usize);
        ensure(free, Promise::ThreadOwned, || {
            format!("{used} attempts run on {found:?}, and another one begins")
        })
    }

    fn task_step(&mut self, slot: Slot, message: &Message, step: &TaskStep) -> Kept {
        let known = self.at(slot);
        match step {
            TaskStep::Reported { .. } => return known.check_report(message),
            TaskStep::Ended { verdict, is_due, unstarted, .. } => {
                let woken = std::mem::take(&mut known.woken);
                let live = known.live.take();
                ensure(live.is_some(), Promise::OneAttempt, || {
                    format!("an attempt of {known:?} that is over ends")
                })?;
                known.under_way = verdict.exit().is_none() && !unstarted;
                ensure(!known.under_way || !woken || *is_due, Promise::WakeKept, || {
                    format!("{known:?} was woken, but waits")
                })?;
                let failed = verdict.exit() == Some(ExitStatus::SystemError);
                let has_cause = matches!(verdict, Verdict::FailedOut(_));
                return ensure(!failed || has_cause, Promise::Reasoned, || {
                    format!("{known:?} has failed: {verdict:?}")
                });
            }
            TaskStep::Blocked => {
                let live = known.live.take();
                return ensure(live.is_some(), Promise::OneAttempt, || {
                    format!("an attempt of {known:?} that is over is held up")
                });
            }
            TaskStep::Over { .. } => {
                known.under_way = false;
                let live = known.live.clone();
                return ensure(live.is_none(), Promise::UnderWay, || {
                    format!("{known:?} is over, but {live:?} is live")
                });
            }
            TaskStep::Woken(_) => known.woken = known.live.is_some(),
            TaskStep::Paused(on) => known.paused = *on,
            TaskStep::Updates => known.change_live(|it| it.updates = true),
            TaskStep::Reattached { process } => known.change_live(|it| it.process = *process),
            TaskStep::Stopping(cause) => {
                known.check_reporter(message)?;
                let stops = known.live.as_ref().is_some_and(|it| !it.stopping);
                known.change_live(|it| it.stopping = true);
                return ensure(stops, Promise::OnlyTheLive, || {
                    format!("{known:?} is stopped again: {}", Cause::name(*cause))
                });
            }
            TaskStep::Added { .. }
            | TaskStep::Claimed { .. }
            | TaskStep::Forgotten
            | TaskStep::Locked
            | TaskStep::Unblocked
            | TaskStep::Launched
            | TaskStep::Excused
            | TaskStep::CleanupLaunched
            | TaskStep::CleanupEnded(_)
            | TaskStep::Ready
            | TaskStep::Terminating
            | TaskStep::Restarted => {}
        }
        Ok(())
    }
}

impl TrackedTask {
    fn change_live(&mut self, make: impl FnOnce(&mut Live)) {
        if let Some(live) = &mut self.live {
            make(live);
        }
    }

    /// Checks that a report comes from the live attempt of a task.
    fn check_reporter(&self, message: &Message) -> Kept {
        let Message::Report { process, report, .. } = message else {
            return Ok(());
        };
        let live = self.live.as_ref();
        // An attempt on another machine may still report its result while it is being stopped.
        let is_far = matches!(report, Report::Far(_));
        let its = live.is_some_and(|it| it.process == *process && (!it.stopping || is_far));
        ensure(its, Promise::OnlyTheLive, || {
            format!("{process} is mistaken for an attempt of {self:?}")
        })
    }

    /// Checks that an attempt saves only while it has its update lock, and that its reports are accepted in order.
    fn check_report(&mut self, message: &Message) -> Kept {
        self.check_reporter(message)?;
        // An attempt on another machine reports its result once. That report has no number to compare.
        let ends = matches!(message, Message::Report { report: Report::Far(_), .. });
        if let Message::Report { nth: Some(nth), .. } = message {
            let far = self.live.as_ref().filter(|it| it.is_far && !ends);
            let heard = far.map(|it| it.heard);
            ensure(heard.is_none_or(|heard| *nth > heard), Promise::OnlyTheLive, || {
                format!("report {nth} is accepted after {heard:?} by {self:?}")
            })?;
            self.change_live(|it| it.heard = it.heard.max(*nth));
        }
        let saves = matches!(message, Message::Report { report: Report::Save(_), .. });
        let locked = self.live.as_ref().is_some_and(|it| it.updates);
        ensure(!saves || locked, Promise::OnlyTheLive, || {
            format!("something is saved without its lock by {self:?}")
        })
    }
}
