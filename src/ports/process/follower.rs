//! Follows every attempt (a process that the port launches or is told to follow) to its proven end, and reports to the actor. Kernel,
//! keeper and files are accessed only through the trait `World`.
//!
//! How an attempt ended is learned from the keeper that waited for it or, failing that, from the kernel, if it reports this to processes
//! other than the parent. Otherwise the attempt is declared lost, with a reason. Its end is never guessed.

use crate::actors::process::{Action, Failure, Identity, Message, Reach, Spec, Step};
use crate::ids::{ProcessId, Seq};
use crate::keeper::protocol::Request;
use crate::ports::process::attempt::{Attempt, Link, lease_of};
use crate::ports::process::clearing::Clearing;
use crate::ports::process::world::{Lookup, Tree, World};
use std::collections::{BTreeMap, BTreeSet};

/// How long to wait, after the kernel has reported the end of a process, for the keeper's report before asking the keeper for it, in
/// milliseconds.
pub(super) const TIMEOUT_MS: u64 = 1000;

/// The first wait for the keeper's report after the kernel has reported the end of a process, in milliseconds. It is short, since the
/// report is usually already on its way.
pub(super) const SOON_MS: u64 = 10;

/// The initial interval between attempts to join a keeper, in milliseconds; doubled after each failure.
const REJOIN_MS: u64 = 100;

/// The maximum interval between two attempts to join a keeper, in milliseconds.
const REJOIN_MS_MAX: u64 = 10_000;

/// How long a keeper may take to report its attempts after it was greeted, in milliseconds. One that is stopped accepts connections, but
/// does not answer.
const ANSWER_MS: u64 = 10_000;
/// `SIGCONT`, which follows the first signal of a stop.
const CONTINUE: u8 = 18;

/// Performs the actions of the `ProcessActor` on a world.
pub struct Follower<W: World> {
    pub(super) world: W,
    pub(super) link: Link,
    pub(super) attempts: BTreeMap<ProcessId, Attempt<W::Handle>>,
    /// The attempts that the keeper holds, and whether the keeper will report how each ends. It will not if an earlier keeper launched the
    /// attempt.
    pub(super) held: BTreeMap<ProcessId, bool>,
    /// Running processes of the keeper that no action of the actor has named.
    pub(super) strangers: BTreeMap<ProcessId, Identity>,
    /// The attempts that actions have named since the last [`Action::ForgetOthers`]. With that action, the actor declares that it has named
    /// all attempts that it still needs.
    named_attempts: BTreeSet<ProcessId>,
    /// The attempts named before that action, kept until the keeper has reported all its attempts. The keeper is then asked to
    /// forget those that were not named.
    kept: Option<BTreeSet<ProcessId>>,
    /// Whether that action has been taken. A launch requested before the first one may also have been requested before a
    /// restart.
    has_named_all: bool,
    /// When joining a keeper first failed, if no keeper has been joined since.
    pub(super) alone_since: Option<u64>,
    /// When to try again to join a keeper, by `World::clock`, and how long that wait is; both in milliseconds.
    rejoin: Option<(u64, u64)>,
    /// When the keeper that was greeted must have reported its attempts, by `World::clock`.
    pub(super) answers_by: Option<u64>,
    /// When to check each attempt again. Obsolete timers stay until they are due and then have no effect.
    pub(super) timers: BTreeSet<(u64, ProcessId)>,
    /// The processes whose last lookup could not determine whether they are alive.
    pub(super) doubted: BTreeSet<ProcessId>,
}

impl<W: World> Follower<W> {
    /// Creates a follower that follows nothing yet.
    pub const fn new(world: W) -> Self {
        Self {
            world,
            timers: BTreeSet::new(),
            doubted: BTreeSet::new(),
            link: Link::Down,
            attempts: BTreeMap::new(),
            held: BTreeMap::new(),
            strangers: BTreeMap::new(),
            named_attempts: BTreeSet::new(),
            kept: None,
            has_named_all: false,
            alone_since: None,
            rejoin: None,
            answers_by: None,
        }
    }

    /// Returns the number of processes that could not be looked up, for lack of descriptors or permission: they may or may not be alive.
    pub fn doubted(&self) -> usize {
        self.doubted.len()
    }

    /// Returns the world.
    pub const fn world(&mut self) -> &mut W {
        &mut self.world
    }

    /// Performs an action. `asked` is the sequence number of the journal entry that requested it.
    pub fn perform(&mut self, asked: Seq, action: Action) {
        match action {
            Action::Launch { id, spec } => {
                self.named_attempts.insert(id);
                if !self.repeat(id) {
                    self.launch(id, spec);
                }
            }
            Action::Follow { id, identity, launched, contained, run_dir, user, expects } => {
                self.named_attempts.insert(id);
                if self.is_elsewhere(&identity) {
                    return;
                }
                if let Some(user) = user {
                    self.world.note_user(id, &user);
                }
                if let Some(expectation) = expects {
                    let run_dir = run_dir.as_ref();
                    self.world.expect(id, run_dir, &expectation);
                }
                // A process of another boot has ended, and its PID may be that of another one.
                let is_of_boot = identity.boot == self.world.machine_and_boot().1;
                self.world.note(id, Some(&identity).filter(|_| is_of_boot));
                let attempt = self.attempts.entry(id);
                let attempt = attempt.or_insert_with(|| Attempt::new(launched, run_dir));
                (attempt.identity, attempt.contained) = (Some(identity), contained);
                self.follow(id);
            }
            Action::Signal { id, identity, signal, reach, stops } => {
                self.named_attempts.insert(id);
                let signals = [signal, CONTINUE];
                let signals = signals.get(..=usize::from(stops)).unwrap_or_default();
                let errno = self.signal(id, &identity, signals, reach).err();
                self.world.report(Message::Signalled { id, asked, errno });
            }
            Action::Kill { id, identity, tree } => {
                self.named_attempts.insert(id);
                self.clear(id, identity, Clearing::killing(tree, self.world.clock()));
            }
            Action::Await { id, identity } => {
                self.named_attempts.insert(id);
                self.clear(id, identity, Clearing::waiting(self.world.clock()));
            }
            Action::Read { id, run_dir } => self.world.read(id, run_dir.as_ref()),
            Action::Forget { id } => self.forget(&[id]),
            Action::ForgetOthers => {
                self.has_named_all = true;
                self.kept = Some(std::mem::take(&mut self.named_attempts));
                // Even if there is nothing to follow, a keeper may still hold ended attempts because the `Forget` for them was lost.
                if self.world.has_keeper() && self.joined().is_err() {
                    tracing::warn!("failed to join the running keeper");
                }
                self.forget_others();
            }
        }
    }

    /// Returns whether the process is of this boot, but of a machine with another id: the id has changed, in another container for example.
    /// Such a process may be alive without being visible from here, so it is left alone.
    pub(super) fn is_elsewhere(&self, identity: &Identity) -> bool {
        let (machine, boot) = self.world.machine_and_boot();
        identity.machine != machine && identity.boot == boot
    }

    /// Sends the reports about an attempt again, in order. Returns whether the attempt is known.
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

    /// Launches an attempt. If it may have been launched before a restart, the keeper must first report all its attempts.
    fn launch(&mut self, id: ProcessId, spec: Spec) {
        let mut attempt = Attempt::new(true, spec.run_dir.clone());
        attempt.lease = lease_of(&spec);
        attempt.spec = Some(Box::new(spec));
        attempt.asked = !self.has_named_all;
        self.attempts.insert(id, attempt);
        self.world.note(id, None);
        match self.joined() {
            Ok(()) if self.link == Link::Up => self.launch_pending(id),
            // The attempt is launched once the keeper has reported all its attempts.
            Ok(()) => {}
            Err(failure) => self.fail_unless_paused(&failure),
        }
    }

    /// Calls [`fail_unasked`](Self::fail_unasked), unless the next keeper is only started a little later: launches then wait for it.
    pub(super) fn fail_unless_paused(&mut self, failure: &Failure) {
        if self.world.paused_until().is_none() {
            self.fail_unasked(failure);
        }
    }

    /// Notes that the keeper has reported something: it has the whole time again for its next report.
    pub(super) fn hear(&mut self) {
        if self.answers_by.is_some() {
            self.answers_by = Some(self.world.clock() + ANSWER_MS);
        }
    }

    /// Leaves a keeper that was greeted and has not answered in time. Launches that it was not asked for have failed.
    fn leave_silent(&mut self) {
        self.answers_by = None;
        if self.link != Link::Greeted || !self.world.leave() {
            return;
        }
        self.link = Link::Down;
        self.held.clear();
        let failure = Failure {
            step: Step::Keeper,
            errno: 0,
            about: Some(format!(
                "the keeper has not answered within {} s: its process is stopped or overloaded",
                ANSWER_MS / 1000
            )),
        };
        tracing::warn!("{}", failure.about.as_deref().unwrap_or_default());
        self.schedule_rejoin();
        self.fail_unasked(&failure);
    }

    /// Asks the keeper to launch an attempt that is still pending.
    pub(super) fn launch_pending(&mut self, id: ProcessId) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        if attempt.spec.as_ref().is_some_and(|spec| self.world.fetch(id, spec)) {
            return;
        }
        if let Some(spec) = attempt.spec.take() {
            match self.world.prepare(id, &spec) {
                Ok(launch) => attempt.launch = Some(Box::new(launch)),
                Err(failure) => {
                    attempt.spec = Some(spec);
                    return self.fail(id, failure);
                }
            }
        }
        if let Some(launch) = attempt.launch.clone() {
            attempt.asked = true;
            let attempt = id;
            self.world.ask(Request::Launch { attempt, launch });
        }
    }

    /// Handles a notification, requested with `World::fetch` or `World::examine`, that what was to be found is there.
    pub fn fetched(&mut self, id: ProcessId) {
        let failure = self.attempts.get_mut(&id).and_then(|it| it.failure.take());
        if let Some(failure) = failure {
            self.fail_explained(id, failure);
        } else if self.link == Link::Up {
            self.launch_pending(id);
        }
    }

    /// Reports a launch as failed, with what the world has found out about that.
    pub(super) fn fail_explained(&mut self, id: ProcessId, mut failure: Failure) {
        if failure.step == Step::Exec {
            failure.about = self.world.not_executed(id);
        }
        self.fail(id, failure);
    }

    /// Reports the pending launches that no keeper can have been asked for as failed. The other pending attempts wait for a keeper, since
    /// they may be running.
    pub(super) fn fail_unasked(&mut self, failure: &Failure) {
        let attempts = self.attempts.iter();
        let failed = attempts.filter(|(_, it)| it.is_pending() && !it.asked);
        let failed: Vec<ProcessId> = failed.map(|(id, _)| *id).collect();
        for id in failed {
            self.fail(id, failure.clone());
        }
    }

    /// Joins a keeper unless one is joined. If joining fails, it is retried as long as there is something to ask the keeper.
    pub(super) fn joined(&mut self) -> Result<(), Failure> {
        if self.link != Link::Down {
            return Ok(());
        }
        let joined = self.world.join();
        if joined.is_ok() {
            self.link = Link::Greeted;
            self.answers_by = Some(self.world.clock() + ANSWER_MS);
            (self.alone_since, self.rejoin) = (None, None);
        } else {
            self.schedule_rejoin();
        }
        joined
    }

    /// Schedules the next try to join a keeper, unless one is scheduled.
    fn schedule_rejoin(&mut self) {
        let now = self.world.clock();
        self.alone_since.get_or_insert(now);
        if let Some(at) = self.world.paused_until() {
            self.rejoin = Some((at, REJOIN_MS));
            return;
        }
        let before = self.rejoin;
        if before.is_none_or(|(at, _)| at <= now) {
            let span = before.map_or(REJOIN_MS, |(_, span)| span * 2);
            let span = span.min(REJOIN_MS_MAX);
            self.rejoin = Some((now + span, span));
        }
    }

    /// Tries again to join a keeper if there is still something to ask it.
    fn join_again(&mut self) {
        let wants = |it: &Attempt<W::Handle>| it.launched && it.ended.is_none();
        if self.link == Link::Down && self.attempts.values().any(wants) {
            // If this fails, `joined` schedules the next try.
            if let Err(failure) = self.joined() {
                self.fail_unless_paused(&failure);
            }
        } else {
            self.rejoin = None;
        }
    }

    /// Joins a keeper immediately, for a client that wants to hand over a parcel: the environment and streams for a process.
    pub fn join(&mut self) -> Result<(), Failure> {
        self.joined()
    }

    pub(super) fn fail(&mut self, id: ProcessId, failure: Failure) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.log_failure(id, &failure);
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
        signals: &[u8],
        reach: Reach,
    ) -> Result<(), i32> {
        const NO_SUCH_PROCESS: i32 = 3;
        const AGAIN: i32 = 11;
        if (identity.machine, identity.boot) != self.world.machine_and_boot() {
            return Err(NO_SUCH_PROCESS);
        }
        let attempt = self.attempts.get(&id);
        if reach == Reach::Tree {
            let tree = Tree {
                id,
                leader: *identity,
                contained: attempt.is_some_and(|it| it.contained),
                launched: attempt.is_some_and(|it| it.launched),
                kept: attempt.is_some_and(|it| it.kept),
            };
            return self.world.signal_tree(&tree, signals);
        }
        let group = reach == Reach::Group;
        if let Some(handle) = attempt.and_then(|it| it.handle.as_ref()) {
            return self.world.signal(handle, signals, group);
        }
        match self.world.find(identity) {
            Lookup::Alive(handle) => self.world.signal(&handle, signals, group),
            Lookup::Gone(_) => Err(NO_SUCH_PROCESS),
            Lookup::Unknown => Err(AGAIN),
        }
    }

    /// Starts to clear a tree, or combines the request with a clearing in progress.
    fn clear(&mut self, id: ProcessId, identity: Identity, clearing: Clearing) {
        if self.is_elsewhere(&identity) {
            return;
        }
        // No process of another boot is alive, and a process with the same PID is a different one.
        if identity.boot != self.world.machine_and_boot().1 {
            return self.world.report(Message::Empty { id });
        }
        self.world.note(id, None);
        let attempt = self.attempts.entry(id);
        let attempt = attempt.or_insert_with(|| Attempt::new(false, None));
        attempt.identity.get_or_insert(identity);
        match &mut attempt.clearing {
            Some(before) => before.join(clearing),
            None => attempt.clearing = Some(clearing),
        }
        self.clear_on(id);
    }

    /// Performs the next step of clearing a tree.
    pub(super) fn clear_on(&mut self, id: ProcessId) {
        let is_certain = self.can_prove_empty(id);
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        let (Some(tree), Some(clearing)) = (attempt.tree(id), &mut attempt.clearing) else {
            return;
        };
        let gone = attempt.ended.is_some();
        let whole = clearing.is_whole();
        if let Some(message) = clearing.step(&mut self.world, &tree, (gone, is_certain)) {
            let is_over = matches!(message, Message::Empty { .. });
            if is_over {
                attempt.clearing = None;
            }
            // The end of the leader alone is reported separately, and does not mean that its tree has ended.
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

    /// Returns whether a search for the tree of a process can prove now that it is empty. Joins a keeper if that takes one.
    fn can_prove_empty(&mut self, id: ProcessId) -> bool {
        let attempt = self.attempts.get(&id);
        let clearing = attempt.and_then(|it| it.clearing.as_ref());
        let is_whole = clearing.is_some_and(Clearing::is_whole);
        let launched = attempt.is_some_and(|it| it.launched);
        if !is_whole || self.knows_all(launched) {
            return true;
        }
        // If this fails, `joined` schedules the next try.
        drop(self.joined());
        false
    }

    /// Returns whether everything is known that a search for a tree needs. Only a keeper knows the control groups, and which orphans are its
    /// own: until one has introduced itself, a search may miss processes of the tree. It need not if there is none, and thus no tree of a
    /// launched process in which the process may be.
    pub(super) fn knows_all(&mut self, launched: bool) -> bool {
        self.link == Link::Up || !launched && !self.world.has_keeper()
    }

    /// Handles a notification, requested with `World::watch_tree`, that a tree may have become empty.
    pub fn emptied(&mut self, id: ProcessId) {
        self.clear_on(id);
    }

    /// Forgets attempts whose ends are durable, and asks the keeper to forget those that it holds.
    pub(super) fn forget(&mut self, ids: &[ProcessId]) {
        let mut attempts = Vec::new();
        for id in ids {
            self.named_attempts.remove(id);
            self.doubted.remove(id);
            if let Some(attempt) = self.attempts.remove(id)
                && let Some(tree) = attempt.tree(*id)
            {
                self.world.clear(&tree, attempt.run_dir.as_ref());
            }
            self.world.forget(*id);
            if self.held.remove(id).is_some() {
                attempts.push(*id);
            }
        }
        if !attempts.is_empty() {
            self.world.ask(Request::Forget { attempts });
        }
    }

    /// Once the keeper has reported all its attempts, asks it to forget those of which the actor has no record: their ends were durable,
    /// but the requests to forget them were lost.
    pub(super) fn forget_others(&mut self) {
        if self.link != Link::Up {
            return;
        }
        let Some(named_attempts) = self.kept.take() else {
            return;
        };
        let wanted = |id: &ProcessId| named_attempts.contains(id) || self.attempts.contains_key(id);
        let attempts: Vec<ProcessId> = self.held.keys().copied().filter(|id| !wanted(id)).collect();
        if !attempts.is_empty() {
            for id in &attempts {
                self.held.remove(id);
            }
            self.world.ask(Request::Forget { attempts });
        }
    }

    /// Returns when `handle_due` must be called next, by `World::clock`; `None` if it need not be called.
    pub fn deadline(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let rejoin = self.rejoin.map(|(at, _)| at);
        let times = [timer, rejoin, self.answers_by];
        times.into_iter().flatten().min()
    }

    /// Does what is due by now: tries again to join a keeper, checks attempts again, and continues to clear trees.
    pub fn handle_due(&mut self) {
        let now = self.world.clock();
        if self.answers_by.is_some_and(|at| at <= now) {
            self.leave_silent();
        }
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
            // The process has ended according to the kernel, but the keeper has not reported how.
            self.look_in(id, TIMEOUT_MS);
            return self.world.ask(Request::Ask { attempt: id });
        }
        if attempt.handle.is_some() {
            return self.believe_kernel(id);
        }
        self.look(id);
    }
}
