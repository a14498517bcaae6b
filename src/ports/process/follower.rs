//! Follows every attempt from its launch to its proved end, and says so to the actor. Knows the world only by its trait.
//!
//! How an attempt ended is believed in this order: the keeper that waited for it; the kernel, where it says so to others
//! than the parent; else it is lost, with the reason. It is never guessed.

use crate::actors::process::{Action, Failure, Identity, Message, Reach, Spec};
use crate::ids::{ProcessId, Seq};
use crate::keeper::protocol::Request;
use crate::ports::process::attempt::{Attempt, Link};
use crate::ports::process::clearing::Clearing;
use crate::ports::process::world::{Found, Tree, World};
use std::collections::{BTreeMap, BTreeSet};

/// How long the keeper has to say how a process ended that the kernel says is gone, in milliseconds, until it is asked.
pub(super) const PATIENCE_MS: u64 = 1000;

/// How long it has for that at first: its report is on its way, or was lost.
pub(super) const SOON_MS: u64 = 10;

/// How soon a keeper that could not be joined is tried again, in milliseconds; doubled each time.
const REJOIN_MS: u64 = 100;

/// The longest between two tries.
const REJOIN_MS_MAX: u64 = 10_000;

/// What performs the actions of the `ProcessActor` upon a world.
pub struct Follower<W: World> {
    pub(super) world: W,
    pub(super) link: Link,
    pub(super) attempts: BTreeMap<ProcessId, Attempt<W::Handle>>,
    /// What the keeper holds, and whether it says how it ends: not of what a keeper before it launched.
    pub(super) held: BTreeMap<ProcessId, bool>,
    /// What the keeper holds, runs, and nobody has asked to follow.
    pub(super) strangers: BTreeMap<ProcessId, Identity>,
    /// What the actor has stated since it last said that this is all.
    stated: BTreeSet<ProcessId>,
    /// What it stated when it last said so, until the keeper has said what it holds.
    census: Option<BTreeSet<ProcessId>>,
    /// Whether there was a census since this began. What is to be launched before that was asked for in an earlier life.
    counted: bool,
    /// Since when no keeper can be joined.
    pub(super) alone_since: Option<u64>,
    /// When a keeper is tried to be joined again, and after how long the time after that.
    rejoin: Option<(u64, u64)>,
    /// When which attempt is looked at again. What is no longer so stays until its time, and does nothing then.
    pub(super) timers: BTreeSet<(u64, ProcessId)>,
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
            strangers: BTreeMap::new(),
            stated: BTreeSet::new(),
            census: None,
            counted: false,
            alone_since: None,
            rejoin: None,
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
                    self.launch(id, spec);
                }
            }
            Action::Follow {
                id,
                identity,
                launched,
                contained,
                run_dir,
                expects,
            } => {
                self.stated.insert(id);
                if self.is_elsewhere(&identity) {
                    return;
                }
                if let Some(expectation) = expects {
                    let run_dir = run_dir.as_ref();
                    self.world.expect(id, run_dir, &expectation);
                }
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
            Action::Read { id, run_dir } => self.world.read(id, run_dir.as_ref()),
            Action::Forget { id } => self.forget(&[id]),
            Action::Census => {
                self.counted = true;
                self.census = Some(std::mem::take(&mut self.stated));
                // One that nothing is wanted of any more may still hold ends that were lost on their way to be forgotten.
                if self.world.has_keeper() && self.joined().is_err() {
                    tracing::warn!("the keeper that runs cannot be joined");
                }
                self.take_census();
            }
        }
    }

    /// Whether it is a process of another machine, of which nobody here knows anything: it is left as it is.
    fn is_elsewhere(&self, identity: &Identity) -> bool {
        identity.machine != self.world.here().0
    }

    /// Says again what was said of an attempt, in order; whether it is known.
    fn repeat(&mut self, id: ProcessId) -> bool {
        let Some(attempt) = self.attempts.get(&id) else {
            return false;
        };
        let said = [attempt.started.clone(), attempt.ended.clone()];
        for message in said.into_iter().flatten() {
            self.world.report(message);
        }
        true
    }

    /// Launches what is new. What may have been launched in an earlier life is the keeper's to tell first.
    fn launch(&mut self, id: ProcessId, spec: Spec) {
        let mut attempt = Attempt::new(true, spec.run_dir.clone());
        attempt.spec = Some(Box::new(spec));
        attempt.asked = !self.counted;
        self.attempts.insert(id, attempt);
        match self.joined() {
            Ok(()) if self.link == Link::Up => self.launch_pending(id),
            // As soon as it has said what it holds.
            Ok(()) => {}
            Err(failure) => self.fail_unasked(&failure),
        }
    }

    /// Asks the keeper for what is still to be launched.
    pub(super) fn launch_pending(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        if let Some(spec) = attempt.spec.take() {
            match self.world.prepare(id, &spec) {
                Ok(launch) => attempt.launch = Some(Box::new(launch)),
                Err(failure) => return self.fail(id, failure),
            }
        }
        if let Some(launch) = attempt.launch.clone() {
            attempt.asked = true;
            let attempt = id;
            self.world.ask(Request::Launch { attempt, launch });
        }
    }

    /// Nothing can be launched. What a keeper may have been asked for waits for one, since it may run.
    pub(super) fn fail_unasked(&mut self, failure: &Failure) {
        let attempts = self.attempts.iter();
        let failed = attempts.filter(|(_, it)| it.is_pending() && !it.asked);
        let failed: Vec<ProcessId> = failed.map(|(id, _)| *id).collect();
        for id in failed {
            self.fail(id, failure.clone());
        }
    }

    /// Joins a keeper, if none is joined. If that fails it is tried again as long as there is something to ask.
    pub(super) fn joined(&mut self) -> Result<(), Failure> {
        if self.link != Link::Down {
            return Ok(());
        }
        let joined = self.world.join();
        if joined.is_ok() {
            self.link = Link::Greeted;
            (self.alone_since, self.rejoin) = (None, None);
        } else {
            let now = self.world.clock();
            self.alone_since.get_or_insert(now);
            let before = self.rejoin;
            if before.is_none_or(|(at, _)| at <= now) {
                let span = before.map_or(REJOIN_MS, |(_, span)| span * 2);
                let span = span.min(REJOIN_MS_MAX);
                self.rejoin = Some((now + span, span));
            }
        }
        joined
    }

    /// Tries to join a keeper again, if there is still something to ask.
    fn join_again(&mut self) {
        let wants = |it: &Attempt<W::Handle>| it.launched && it.ended.is_none();
        if self.link == Link::Down && self.attempts.values().any(wants) {
            // If it fails, it is tried again.
            drop(self.joined());
        } else {
            self.rejoin = None;
        }
    }

    /// Joins a keeper now: whoever hands over a parcel needs one.
    pub fn join(&mut self) -> Result<(), Failure> {
        self.joined()
    }

    pub(super) fn fail(&mut self, id: ProcessId, failure: Failure) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            tracing::info!(
                process = %id,
                step = failure.step.name(),
                errno = failure.errno,
                about = failure.about.as_deref().unwrap_or_default(),
                "a process could not be launched"
            );
            let message = Message::Failed { id, failure };
            (attempt.spec, attempt.launch) = (None, None);
            attempt.ended = Some(message.clone());
            self.world.report(message);
        }
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
        if self.is_elsewhere(&identity) {
            return;
        }
        // Of another boot nothing lives, and what has its numbers now is a stranger.
        if identity.boot != self.world.here().1 {
            return self.world.report(Message::Empty { id });
        }
        let attempt = self.attempts.entry(id);
        let attempt = attempt.or_insert_with(|| Attempt::new(false, None));
        attempt.identity.get_or_insert(identity);
        match &mut attempt.clearing {
            Some(before) => before.join(clearing),
            None => attempt.clearing = Some(clearing),
        }
        self.clear_on(id);
    }

    /// Takes a step of what clears a tree.
    pub(super) fn clear_on(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let (Some(tree), Some(clearing)) = (attempt.tree(id), &mut attempt.clearing) else {
            return;
        };
        let gone = attempt.ended.is_some();
        let whole = clearing.is_whole();
        if let Some(message) = clearing.step(&mut self.world, &tree, gone) {
            let is_over = matches!(message, Message::Empty { .. });
            if is_over {
                attempt.clearing = None;
            }
            // The end of a leader alone is reported as such, and says nothing of its tree.
            if whole || !is_over {
                self.world.report(message);
            }
        }
        if let Some(clearing) = &attempt.clearing {
            if whole {
                self.world.watch_tree(&tree);
            }
            self.timers.insert((clearing.next(), id));
        }
    }

    /// Nothing may live any more of the tree that `World::watch_tree` was called for.
    pub fn emptied(&mut self, id: ProcessId) {
        self.clear_on(id);
    }

    /// The ends of these are durable: nothing of them is of use any more.
    pub(super) fn forget(&mut self, ids: &[ProcessId]) {
        let mut attempts = Vec::new();
        for id in ids {
            self.stated.remove(id);
            if let Some(attempt) = self.attempts.remove(id)
                && let Some(tree) = attempt.tree(*id)
            {
                self.world.clear(&tree, attempt.run_dir.as_ref());
            }
            if self.held.remove(id).is_some() {
                attempts.push(*id);
            }
        }
        if !attempts.is_empty() {
            self.world.ask(Request::Forget { attempts });
        }
    }

    /// What the keeper holds, and nobody wants to know any more, is forgotten: its end was durable, and to say so was lost.
    pub(super) fn take_census(&mut self) {
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

    /// When `time_has_come` is to be called, by `World::clock`; `None` if never.
    pub fn deadline(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let rejoin = self.rejoin.map(|(at, _)| at);
        [timer, rejoin].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn time_has_come(&mut self) {
        let now = self.world.clock();
        if self.rejoin.is_some_and(|(at, _)| at <= now) {
            self.join_again();
        }
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
        if attempt.handle.is_some() {
            return self.believe_kernel(id);
        }
        self.look(id);
    }
}
