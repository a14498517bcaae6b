//! Follows every attempt from its launch to its proved end, and says so to the actor. Knows the world only by its trait.
//!
//! How an attempt ended is believed in this order: the keeper that waited for it; the kernel, where it says so to others
//! than the parent; else it is lost, with the reason. It is never guessed.

use crate::actors::process::{Action, End, Failure, Identity, Lost, Message, Reach};
use crate::clock::Date;
use crate::ids::{ProcessId, Seq};
use crate::keeper::protocol::{self, Report, Request};
use crate::kernel::pidfd::ExitStatus;
use crate::ports::process::attempt::{Attempt, about, end_of, reason, step_of};
use crate::ports::process::clearing::Clearing;
use crate::ports::process::world::{Found, Tree, World};
use std::collections::{BTreeMap, BTreeSet};

/// How long the keeper has to say how a process ended that the kernel says is gone, in milliseconds, until it is asked.
const PATIENCE_MS: u64 = 1000;

/// How soon a process of which nobody can say whether it lives is looked for again, in milliseconds; doubled each time.
const DOUBT_MS: u64 = 100;

/// The longest between two looks.
const DOUBT_MS_MAX: u64 = 10_000;

/// The longest between two looks at a process that has ended and that its new parent has not reaped, in milliseconds; from 1 on
/// and doubled each time.
const UNREAPED_MS_MAX: u64 = 2048;

/// How it stands with the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// There is none, or none is known.
    Down,
    /// It was greeted and has not said yet all that it holds.
    Greeted,
    /// What it holds is known.
    Up,
}

/// What performs the actions of the `ProcessActor` upon a world.
pub struct Follower<W: World> {
    world: W,
    link: Link,
    attempts: BTreeMap<ProcessId, Attempt<W::Handle>>,
    /// What the keeper holds, and whether it says how it ends: not of what a keeper before it launched.
    held: BTreeMap<ProcessId, bool>,
    /// What the actor has stated since it last said that this is all.
    stated: BTreeSet<ProcessId>,
    /// What it stated when it last said so, until the keeper has said what it holds.
    census: Option<BTreeSet<ProcessId>>,
    /// When which attempt is looked at again. What is no longer so stays until its time, and does nothing then.
    timers: BTreeSet<(u64, ProcessId)>,
}

impl<W: World> Follower<W> {
    /// Nothing to follow yet.
    pub const fn new(world: W) -> Self {
        Self {
            world,
            timers: BTreeSet::new(),
            link: Link::Down,
            attempts: BTreeMap::new(),
            held: BTreeMap::new(),
            stated: BTreeSet::new(),
            census: None,
        }
    }

    /// The world.
    pub const fn world(&mut self) -> &mut W {
        &mut self.world
    }

    /// Performs an action. `asked` is the entry that asks for it.
    pub fn perform(&mut self, asked: Seq, action: Action) {
        match action {
            Action::Launch { id, spec } => {
                self.stated.insert(id);
                if !self.repeat(id) {
                    self.launch(id, &spec);
                }
            }
            Action::Follow {
                id,
                identity,
                launched,
                contained,
                run_dir,
            } => {
                self.stated.insert(id);
                let attempt = self.attempts.entry(id);
                let attempt = attempt.or_insert_with(|| Attempt::new(launched, run_dir));
                (attempt.identity, attempt.contained) = (Some(identity), contained);
                self.follow(id);
            }
            Action::Signal {
                id,
                identity,
                signal,
                reach,
            } => {
                self.stated.insert(id);
                let errno = self.signal(id, &identity, signal, reach).err();
                self.world.report(Message::Signalled { id, asked, errno });
            }
            Action::Kill { id, identity, tree } => {
                self.stated.insert(id);
                self.clear(id, identity, Clearing::killing(tree, self.world.clock()));
            }
            Action::Await { id, identity } => {
                self.stated.insert(id);
                self.clear(id, identity, Clearing::waiting(self.world.clock()));
            }
            Action::Forget { id } => self.forget(id),
            Action::Census => {
                self.census = Some(std::mem::take(&mut self.stated));
                // One that nothing is wanted of any more may still hold ends that were lost on their way to be forgotten.
                if self.world.has_keeper() && self.joined().is_err() {
                    tracing::warn!("the keeper that runs cannot be joined");
                }
                self.take_census();
            }
        }
    }

    /// Says again what was said of an attempt; whether it is known.
    fn repeat(&mut self, id: ProcessId) -> bool {
        let Some(attempt) = self.attempts.get(&id) else {
            return false;
        };
        let said = attempt.ended.as_ref().or(attempt.started.as_ref());
        if let Some(message) = said.cloned() {
            self.world.report(message);
        }
        true
    }

    fn launch(&mut self, id: ProcessId, spec: &crate::actors::process::Spec) {
        let launch = match self.world.prepare(id, spec) {
            Ok(launch) => Box::new(launch),
            Err(failure) => return self.world.report(Message::Failed { id, failure }),
        };
        let mut attempt = Attempt::new(true, spec.run_dir.clone());
        attempt.launch = Some(launch.clone());
        self.attempts.insert(id, attempt);
        match self.joined() {
            Ok(()) => self.world.ask(Request::Launch {
                attempt: id,
                launch,
            }),
            Err(failure) => self.fail(id, failure),
        }
    }

    /// Joins a keeper, if none is joined.
    fn joined(&mut self) -> Result<(), Failure> {
        if self.link == Link::Down {
            self.world.join()?;
            self.link = Link::Greeted;
        }
        Ok(())
    }

    /// Joins a keeper now: whoever hands over a parcel needs one.
    pub fn join(&mut self) -> Result<(), Failure> {
        self.joined()
    }

    fn fail(&mut self, id: ProcessId, failure: Failure) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            let message = Message::Failed { id, failure };
            (attempt.launch, attempt.ended) = (None, Some(message.clone()));
            self.world.report(message);
        }
    }

    /// Sees to it that the end of a process is seen: by the keeper where it holds it, else by its own descriptor.
    fn follow(&mut self, id: ProcessId) {
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
    fn is_held(&self, id: ProcessId) -> bool {
        self.link != Link::Down && self.held.get(&id).is_some_and(|is_child| *is_child)
    }

    /// Looks for a process, and follows it by its descriptor.
    fn look(&mut self, id: ProcessId) {
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
            Found::Gone(None) => {
                let lost = reason(attempt.launched);
                self.end(id, End::Lost(lost), None, [0; 2]);
            }
            Found::Unknown => {
                let before = attempt.next_look.map_or(DOUBT_MS / 2, |(_, span)| span);
                let span = (before * 2).clamp(DOUBT_MS, DOUBT_MS_MAX);
                self.look_in(id, span);
            }
        }
    }

    fn look_in(&mut self, id: ProcessId, span: u64) {
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
        } else if held || (attempt.launched && self.link == Link::Greeted) {
            self.look_in(id, PATIENCE_MS);
        } else {
            self.believe_kernel(id);
        }
    }

    /// Nobody waited for it: what the kernel says counts.
    fn believe_kernel(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let Some(handle) = &attempt.handle else {
            return self.look(id);
        };
        let looked = attempt.next_look.map(|(_, span)| span);
        let before = looked.filter(|span| *span <= UNREAPED_MS_MAX).unwrap_or(0);
        match self.world.status(handle) {
            ExitStatus::Known(status) => self.end_by_status(id, status),
            // Whoever has it now as a child reaps it in a moment.
            ExitStatus::Unreaped if before < UNREAPED_MS_MAX => {
                self.look_in(id, (before * 2).max(1));
            }
            ExitStatus::Unreaped | ExitStatus::Untold => {
                let lost = reason(attempt.launched);
                self.end(id, End::Lost(lost), None, [0; 2]);
            }
        }
    }

    fn end_by_status(&mut self, id: ProcessId, status: u32) {
        self.end(id, end_of(status), None, [0; 2]);
    }

    /// It has ended: says so, with what is left of it.
    fn end(&mut self, id: ProcessId, end: End, at: Option<Date>, used: [u64; 2]) {
        let at = at.unwrap_or_else(|| self.world.date());
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let mut left = match attempt.tree(id) {
            Some(tree) => self.world.remains(&tree, attempt.run_dir.as_ref()),
            None => crate::actors::process::Remains::default(),
        };
        [left.cpu_ms, left.memory_max] = used;
        let left = Box::new(left);
        let message = Message::Ended { id, end, at, left };
        attempt.launch = None;
        attempt.handle = None;
        attempt.next_look = None;
        attempt.ended = Some(message.clone());
        self.world.report(message);
        self.clear_on(id);
    }

    fn signal(
        &mut self,
        id: ProcessId,
        identity: &Identity,
        signal: u8,
        reach: Reach,
    ) -> Result<(), i32> {
        const NO_SUCH_PROCESS: i32 = 3;
        const AGAIN: i32 = 11;
        if (identity.machine, identity.boot) != self.world.here() {
            return Err(NO_SUCH_PROCESS);
        }
        let attempt = self.attempts.get(&id);
        if reach == Reach::Tree {
            let tree = Tree {
                id,
                leader: *identity,
                contained: attempt.is_some_and(|it| it.contained),
                launched: attempt.is_some_and(|it| it.launched),
            };
            return self.world.signal_tree(&tree, signal);
        }
        let group = reach == Reach::Group;
        if let Some(handle) = attempt.and_then(|it| it.handle.as_ref()) {
            return self.world.signal(handle, signal, group);
        }
        match self.world.find(identity) {
            Found::Alive(handle) => self.world.signal(&handle, signal, group),
            Found::Gone(_) => Err(NO_SUCH_PROCESS),
            Found::Unknown => Err(AGAIN),
        }
    }

    /// Begins to clear a tree, or goes on with more force.
    fn clear(&mut self, id: ProcessId, identity: Identity, clearing: Clearing) {
        let attempt = self.attempts.entry(id);
        let attempt = attempt.or_insert_with(|| Attempt::new(false, None));
        attempt.identity.get_or_insert(identity);
        match &mut attempt.clearing {
            Some(before) => before.join(&clearing),
            None => attempt.clearing = Some(clearing),
        }
        self.clear_on(id);
    }

    /// Takes a step of what clears a tree.
    fn clear_on(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let (Some(tree), Some(clearing)) = (attempt.tree(id), &mut attempt.clearing) else {
            return;
        };
        let gone = attempt.ended.is_some();
        if let Some(message) = clearing.step(&mut self.world, &tree, gone) {
            if matches!(message, Message::Empty { .. }) {
                attempt.clearing = None;
            }
            self.world.report(message);
        }
        if let Some(clearing) = &attempt.clearing {
            self.timers.insert((clearing.next(), id));
        }
    }

    fn forget(&mut self, id: ProcessId) {
        self.stated.remove(&id);
        if let Some(attempt) = self.attempts.remove(&id)
            && let Some(tree) = attempt.tree(id)
        {
            self.world.clear(&tree, attempt.run_dir.as_ref());
        }
        if self.held.remove(&id).is_some() {
            let attempts = vec![id];
            self.world.ask(Request::Forget { attempts });
        }
    }

    /// What the keeper holds, and nobody wants to know any more, is forgotten: its end was durable, and to say so was lost.
    fn take_census(&mut self) {
        if self.link != Link::Up {
            return;
        }
        let Some(stated) = self.census.take() else {
            return;
        };
        let wanted = |id: &ProcessId| stated.contains(id) || self.attempts.contains_key(id);
        let attempts: Vec<ProcessId> = self.held.keys().copied().filter(|id| !wanted(id)).collect();
        if !attempts.is_empty() {
            for id in &attempts {
                self.held.remove(id);
            }
            self.world.ask(Request::Forget { attempts });
        }
    }

    /// The keeper says something.
    pub fn heard(&mut self, report: Report) {
        match report {
            Report::Welcome { .. } => self.held.clear(),
            Report::Told => {
                self.link = Link::Up;
                self.take_census();
                let followed: Vec<ProcessId> = self.unanswered().collect();
                for id in followed {
                    self.look(id);
                }
            }
            Report::Started(started) => self.heard_started(&started, true),
            Report::Orphaned(started) => self.heard_started(&started, false),
            Report::Exited(exited) => self.heard_exited(&exited),
            Report::Failed {
                attempt,
                step,
                errno,
            } => {
                self.held.insert(attempt, true);
                let step = step_of(step);
                let launch = self.attempts.get(&attempt);
                let about = about(step, launch.and_then(|it| it.launch.as_deref()));
                self.fail(attempt, Failure { step, errno, about });
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

    /// What runs, as far as is known, and is not followed by a descriptor.
    fn unanswered(&self) -> impl Iterator<Item = ProcessId> {
        let attempts = self.attempts.iter();
        attempts
            .filter(|(_, it)| it.identity.is_some() && it.handle.is_none() && it.ended.is_none())
            .map(|(id, _)| *id)
    }

    /// It runs. `is_child` says whether the keeper waits for it.
    fn heard_started(&mut self, started: &protocol::Started, is_child: bool) {
        let id = started.attempt;
        self.held.insert(id, is_child);
        let identity = self.identity_of(started);
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        attempt.launch = None;
        attempt.contained = started.contained;
        if attempt.identity.replace(identity).is_none() {
            self.world.note(id, attempt.run_dir.as_ref(), started.pid);
            let message = Message::Started {
                id,
                identity,
                at: Date(started.at),
                contained: started.contained,
            };
            attempt.started = Some(message.clone());
            self.world.report(message);
        }
        self.look(id);
    }

    fn heard_exited(&mut self, exited: &protocol::Exited) {
        let id = exited.started.attempt;
        self.heard_started(&exited.started, true);
        if self.attempts.get(&id).is_some_and(|it| it.ended.is_none()) {
            let used = [exited.cpu_ms, exited.memory_max];
            self.end(id, end_of(exited.status), Some(Date(exited.at)), used);
        }
    }

    fn identity_of(&self, started: &protocol::Started) -> Identity {
        let (machine, boot) = self.world.here();
        Identity {
            machine,
            boot,
            namespace: started.namespace,
            pid: started.pid,
            inode: started.inode,
            ticks: started.ticks,
        }
    }

    /// The keeper is gone: another is started for what is to be launched and for what it knew of the others, which are
    /// followed by their own descriptors meanwhile.
    pub fn keeper_gone(&mut self) {
        self.link = Link::Down;
        self.held.clear();
        if self.attempts.values().all(|it| it.ended.is_some()) {
            return;
        }
        match self.joined() {
            Ok(()) => self.launch_again(),
            Err(failure) => {
                let asked = self.attempts.iter().filter(|(_, it)| it.launch.is_some());
                let asked: Vec<ProcessId> = asked.map(|(id, _)| *id).collect();
                for id in asked {
                    self.fail(id, failure.clone());
                }
                let followed: Vec<ProcessId> = self.unanswered().collect();
                for id in followed {
                    self.look(id);
                }
            }
        }
    }

    /// What was asked of the keeper before, and not answered, is asked of this one.
    fn launch_again(&mut self) {
        for (id, attempt) in &self.attempts {
            if let Some(launch) = &attempt.launch {
                self.world.ask(Request::Launch {
                    attempt: *id,
                    launch: launch.clone(),
                });
            }
        }
    }

    /// When `time_has_come` is to be called, by `World::clock`; `None` if never.
    pub fn deadline(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due.
    pub fn time_has_come(&mut self) {
        let now = self.world.clock();
        while let Some((_, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            self.look_again(id, now);
            let clearing = self.attempts.get(&id).and_then(|it| it.clearing.as_ref());
            if clearing.is_some_and(|it| it.next() <= now) {
                self.clear_on(id);
            }
        }
    }

    fn look_again(&mut self, id: ProcessId, now: u64) {
        let held = self.is_held(id);
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        if attempt.next_look.is_none_or(|(at, _)| at > now) {
            return;
        }
        if held {
            // The kernel says that it is gone, and the keeper has not said how.
            self.look_in(id, PATIENCE_MS);
            return self.world.ask(Request::Ask { attempt: id });
        }
        if attempt.launched && self.link == Link::Greeted {
            // The keeper that says how is still telling what it holds.
            return self.look_in(id, PATIENCE_MS);
        }
        if attempt.handle.is_some() {
            return self.believe_kernel(id);
        }
        self.look(id);
    }
}
