//! The production implementation of the `World` trait: its operations act on the actual kernel, keeper and files.

use crate::actors::process::{
    Expectation, Failure, Holder, Identity, Leak, Message, Remains, Spec, Step,
};
use crate::bytes::Bytes;
use crate::clock::{Clock as _, Date, SystemClock, Timestamp};
use crate::ids::ProcessId;
use crate::keeper::protocol::{Launch, Report, Request, VERSION};
use crate::kernel::host;
use crate::kernel::identity as identities;
use crate::kernel::pidfd::{ExitStatus, Pidfd};
use crate::kernel::{proc, wait};
use crate::ports::process::account;
use crate::ports::process::emptying::Emptying;
use crate::ports::process::environment;
use crate::ports::process::faults::{Fault, Faults};
use crate::ports::process::fetches::{FETCHED, Fetches, Found, Need};
use crate::ports::process::files::{self, run_dir};
use crate::ports::process::growth::Bound;
use crate::ports::process::link::{self, Link};
use crate::ports::process::namespaces::EndedNamespaces;
use crate::ports::process::notices::Notices;
use crate::ports::process::output::Outputs;
use crate::ports::process::pid_files::PidFiles;
use crate::ports::process::place::Place;
use crate::ports::process::starts::Starts;
use crate::ports::process::sweep::Sweep;
use crate::ports::process::tree::{Groups, Known, Left};
use crate::ports::process::usage::{self, Usage};
use crate::ports::process::world::{Lookup, Survivors, Tree, World};
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;

/// The epoll token of the keeper's connection.
pub(super) const KEEPER: u64 = 1;

/// The first epoll token for processes.
const PROCESSES: u64 = 16;

/// The minimum interval between two searches for the processes that still have the output of an ended process open, in milliseconds.
const SEARCHES_MS: u64 = 100;

/// The production implementation of [`World`], which acts on the actual kernel, keeper and files.
pub(super) struct Real<R> {
    place: Place,
    clock: SystemClock,
    pub(super) epoll: OwnedFd,
    link: Option<Link>,
    /// Keepers that this process started, to be reaped when they have ended.
    keepers: Vec<Child>,
    starts: Starts,
    /// Whether a keeper that runs another program may still be asked to execute ours. Only one such request is sent, so that an
    /// upgrade without effect is not repeated for ever.
    may_upgrade: bool,
    groups: Groups,
    emptying: Emptying,
    next_token: u64,
    tokens: BTreeMap<ProcessId, u64>,
    watched: BTreeMap<u64, ProcessId>,
    /// The attempts that are followed, each with the PID of its leader unless that has ended or is not known.
    trees: BTreeMap<ProcessId, Option<u32>>,
    /// The users that attempts were launched as, if not the coordinator's.
    users: BTreeMap<ProcessId, u32>,
    sweep: Sweep,
    /// When to check again for children that have ended, by [`World::clock`]; `None` if no check is needed.
    pub(super) reaps_at: Option<u64>,
    ended: EndedNamespaces,
    pub(super) notices: Notices,
    outputs: Outputs,
    pub(super) fetches: Fetches,
    /// The process whose launch is being prepared, its directory, and the limit on its output. The limit takes effect once the launch has
    /// been sent.
    to_bound: Option<(ProcessId, PathBuf, Bound)>,
    pid_files: PidFiles,
    /// When [`Self::leak`] may search again, by [`World::clock`].
    searches_at: u64,
    report: R,
}

impl<R: FnMut(Message)> Real<R> {
    pub(super) fn new(place: Place, report: R, outputs: Outputs) -> io::Result<Self> {
        let before = |data: &Path| EndedNamespaces::before(data, place.is_init);
        let ended = place.data.as_deref().map(before).unwrap_or_default();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let notices = Notices::open(&place, &epoll);
        let pid_files = PidFiles::open(place.data.as_deref());
        let fetches = Fetches::new()?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, fetches.wake(), epoll::EventData::new_u64(FETCHED), flags)?;
        Ok(Self {
            place,
            clock: SystemClock::starting_at(Timestamp(0)),
            epoll,
            link: None,
            keepers: Vec::new(),
            starts: Starts::default(),
            may_upgrade: true,
            groups: Groups::default(),
            emptying: Emptying::default(),
            next_token: PROCESSES,
            tokens: BTreeMap::new(),
            watched: BTreeMap::new(),
            trees: BTreeMap::new(),
            users: BTreeMap::new(),
            sweep: Sweep::default(),
            reaps_at: None,
            ended,
            notices,
            outputs,
            fetches,
            to_bound: None,
            pid_files,
            searches_at: 0,
            report,
        })
    }

    /// Returns the process with this epoll token, if any, and removes the token, since epoll reports it only once.
    pub(super) fn watched(&mut self, token: u64) -> Option<ProcessId> {
        self.watched.remove(&token)
    }

    /// Returns the process whose control group has this epoll token, if any.
    pub(super) fn emptied(&self, token: u64) -> Option<ProcessId> {
        self.emptying.of(token)
    }

    /// Returns the resource usage of a tree's control group, or of its leader alone if the usage of the group is not available. Returns
    /// `None` if neither can be read.
    pub(super) fn usage(&self, tree: &Tree) -> Option<Usage> {
        usage::read(&tree.leader, self.groups.group(tree).as_deref())
    }

    /// Returns the number of passes over all processes since the last event.
    #[cfg(test)]
    pub(super) const fn passes(&self) -> usize {
        self.sweep.passes()
    }

    /// Returns the live processes of a tree, for display.
    pub(super) fn left(&mut self, tree: &Tree) -> Vec<Left> {
        let (groups, mut known) = self.known(tree);
        groups.left(tree, &mut known)
    }

    /// Publishes the number of followed processes for which it is unknown whether they are alive.
    pub(super) fn count_unknown(&self, unknown: usize) {
        self.place.observed.count_unknown(unknown);
    }

    /// Returns whether a whole report has been received and not yet read.
    pub(super) fn has_unread(&self) -> bool {
        self.link.as_ref().is_some_and(Link::has_unread)
    }

    /// Reads the keeper's reports. Returns `false` if the connection to the keeper has been lost.
    pub(super) fn receive(&mut self, reports: &mut Vec<Report>) -> bool {
        let Some(link) = &mut self.link else {
            return true;
        };
        let read = link.read(reports);
        for report in reports.iter() {
            if let Report::Welcome { version, pid, groups, .. } = report {
                self.groups = Groups { base: groups.as_ref().map(files::path_of), keeper: *pid };
                let groups = self.groups.base.is_some();
                self.place.observed.joined(groups, self.groups.bound_trees());
                // A keeper with a newer protocol version also understands ours.
                if *version <= VERSION {
                    self.upgrade(*pid);
                }
            }
        }
        if let Some(faults) = self.place.faults.clone() {
            reports.retain(|report| !self.is_dropped(&faults, report));
        }
        if let Err(error) = &read {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                tracing::warn!("closing the connection to the keeper: {error}");
            }
            self.link = None;
            self.reap_keepers();
        }
        read.is_ok()
    }

    /// Returns whether to drop a report because the process that it is about requested [`Fault::DropSignal`]. Also kills the keeper if the
    /// process requested [`Fault::AfterParent`].
    fn is_dropped(&self, faults: &Faults, report: &Report) -> bool {
        let Report::Exited(exited) = report else {
            return false;
        };
        let id = exited.started.attempt;
        if faults.should_inject(id, Fault::AfterParent) {
            self.kill_keeper();
        }
        faults.should_inject(id, Fault::DropSignal)
    }

    /// Kills the keeper, as requested by a fault.
    fn kill_keeper(&self) {
        let keeper = Pidfd::open(self.groups.keeper);
        let killed = keeper.and_then(|it| it.map_or(Ok(false), |it| it.signal(9)));
        tracing::warn!(?killed, "killed the keeper: a task requested this fault");
    }

    /// Asks a keeper that runs another program to execute ours. The keeper answers by closing the connection. It is then joined again, and
    /// all pending requests are repeated.
    fn upgrade(&mut self, keeper: u32) {
        if self.is_keeper(keeper) || !self.may_upgrade {
            return;
        }
        self.may_upgrade = false;
        if let Some(path) = link::successor(&self.place.keeper, keeper) {
            tracing::info!(keeper, program = %path.display(), "the keeper is asked to execute another program");
            let program = files::bytes_of(&path);
            self.ask(Request::Upgrade { program });
        }
    }

    /// Returns whether `pid` is a keeper that this process started. Such a keeper is reaped through its [`Child`].
    pub(super) fn is_keeper(&self, pid: u32) -> bool {
        self.keepers.iter().any(|child| child.id() == pid)
    }

    /// Reaps keepers that this process started and that have ended.
    pub(super) fn reap_keepers(&mut self) {
        self.keepers.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    fn connected(&mut self) -> Result<Link, Failure> {
        let data = self.place.data()?.to_owned();
        let there = Link::connect(&data);
        let socket = data.join(crate::keeper::SOCKET);
        let there = there.map_err(|error| files::failure(Step::Keeper, &error, &socket))?;
        if let Some(link) = there {
            self.starts.joined();
            return Ok(link);
        }
        self.starts.begin(self.clock())?;
        self.reap_keepers();
        let (link, child) = link::start(&self.place.keeper, &data)?;
        self.keepers.push(child);
        Ok(link)
    }

    /// Returns the location of the control groups.
    pub(super) const fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Notes that events have been received: what an earlier pass over all processes found may be out of date.
    pub(super) fn look_anew(&mut self) {
        self.sweep.clear();
    }

    /// Returns the location of the control groups, and what else is known for a search for this tree.
    fn known(&mut self, tree: &Tree) -> (&Groups, Known<'_>) {
        let known = Known {
            trees: &self.trees,
            user: self.users.get(&tree.id).copied(),
            sweep: &mut self.sweep,
        };
        (&self.groups, known)
    }

    fn bound(&mut self, id: ProcessId, dir: &Path, (bytes_max, kept): (u64, u8)) {
        if bytes_max > 0 {
            self.outputs.bound(id, dir, Bound { bytes_max, kept });
        }
    }

    /// Searches for the processes that still have the output of an ended process open, and logs them. Without a search, which is skipped if
    /// the last one was less than [`SEARCHES_MS`] ago, or if searches would take more than a tenth of the time, no holders are returned. Returns `None` if only this process has it open, in order to
    /// limit its size.
    fn leak(&mut self, id: ProcessId, paths: &[PathBuf; 2]) -> Option<Box<Leak>> {
        let now = self.clock();
        let mut holders = Vec::new();
        if now >= self.searches_at {
            let mut found = proc::holders(paths, Leak::HOLDERS_MAX + 1).unwrap_or_default();
            let took = self.clock().saturating_sub(now);
            self.searches_at = now + SEARCHES_MS.max(10 * took);
            let count = found.len();
            found.retain(|(pid, _)| *pid != std::process::id());
            if count > 0 && found.is_empty() {
                return None;
            }
            let others = found.into_iter().take(Leak::HOLDERS_MAX);
            holders = others.map(|(pid, name)| Holder { pid, name }).collect();
        }
        let open_in: Vec<String> =
            holders.iter().map(|it| format!("{} (pid {})", it.name, it.pid)).collect();
        tracing::warn!(process = %id, open_in = open_in.join(", "), "the output is still open after the process ended");
        Some(Box::new(Leak { holders }))
    }

    /// Returns the directory of a launched process; `None` without a data directory.
    fn run_dir(&self, id: ProcessId, own: Option<&Bytes>) -> Option<PathBuf> {
        Some(run_dir(self.place.data.as_ref()?, id, own))
    }
}

impl<R: FnMut(Message)> World for Real<R> {
    type Handle = Pidfd;

    fn machine_and_boot(&self) -> (u128, u128) {
        (host::machine(), host::boot())
    }

    fn date(&self) -> Date {
        Date(self.clock.wall().0)
    }

    fn clock(&self) -> u64 {
        self.clock.now().0
    }

    fn note(&mut self, id: ProcessId, leader: Option<&Identity>) {
        let noted = self.trees.entry(id).or_default();
        *noted = leader.map(|it| it.pid).or(*noted);
    }

    fn forget(&mut self, id: ProcessId) {
        self.trees.remove(&id);
        // This is not left to `clear`: a launch that failed has no tree to clear, but these were prepared for it.
        self.users.remove(&id);
        self.notices.forget(id);
        self.outputs.release(id);
        self.fetches.forget(id);
    }

    fn find(&mut self, identity: &Identity) -> Lookup<Pidfd> {
        match identities::find(identity) {
            identities::Lookup::Alive(pidfd) => Lookup::Alive(pidfd),
            identities::Lookup::Ended(pidfd) => match self.status(&pidfd) {
                ExitStatus::Known(status) => Lookup::Gone(Some(status)),
                ExitStatus::Alive | ExitStatus::Unavailable => Lookup::Gone(None),
            },
            identities::Lookup::Gone => Lookup::Gone(None),
            identities::Lookup::Unknown(_) if self.ended.has(identity.namespace) => {
                Lookup::Gone(None)
            }
            identities::Lookup::Unknown(error) => {
                tracing::debug!("cannot tell whether {identity} is alive: {error}");
                Lookup::Unknown
            }
        }
    }

    fn watch(&mut self, id: ProcessId, handle: &Pidfd) {
        self.next_token += 1;
        let token = self.next_token;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        if let Err(error) = epoll::add(&self.epoll, handle, epoll::EventData::new_u64(token), flags)
        {
            tracing::warn!("failed to watch the descriptor of process {id}: {error}");
        }
        if let Some(before) = self.tokens.insert(id, token) {
            self.watched.remove(&before);
        }
        self.watched.insert(token, id);
    }

    fn status(&mut self, handle: &Pidfd) -> ExitStatus {
        // A process left behind by a keeper may now be our child. In that case no other process can learn how it ended.
        if self.place.is_init
            && let Ok(Some(status)) = wait::reap_process(handle)
        {
            return ExitStatus::Known(status);
        }
        handle.exit_status().unwrap_or(ExitStatus::Unavailable)
    }

    fn signal(&mut self, handle: &Pidfd, signals: &[u8], group: bool) -> Result<(), i32> {
        const NO_SUCH_PROCESS: i32 = 3;
        let send = |signal: u8| {
            if group { handle.signal_group(signal) } else { handle.signal(signal) }
        };
        let Some((first, rest)) = signals.split_first() else {
            return Ok(());
        };
        match send(*first) {
            Ok(true) => {}
            Ok(false) => return Err(NO_SUCH_PROCESS),
            Err(error) => return Err(error.raw_os_error().unwrap_or(0)),
        }
        for signal in rest {
            // The first signal may have ended the process.
            drop(send(*signal));
        }
        Ok(())
    }

    fn survivors(&mut self, tree: &Tree) -> Survivors {
        let (groups, mut known) = self.known(tree);
        let left = groups.survivors(tree, &mut known);
        if left.is_empty() {
            self.emptying.forget(tree.id);
        }
        left
    }

    fn watch_tree(&mut self, tree: &Tree) {
        if let Some(group) = self.groups.group(tree) {
            self.next_token += 1;
            let watched = (tree.id, group.as_path());
            self.emptying.watch(&self.epoll, self.next_token, watched);
        }
    }

    fn signal_tree(&mut self, tree: &Tree, signals: &[u8]) -> Result<(), i32> {
        let (groups, mut known) = self.known(tree);
        let sent = groups.signal(tree, signals, &mut known);
        sent.map_err(|error| error.raw_os_error().unwrap_or(0))
    }

    fn has_keeper(&mut self) -> bool {
        self.link.is_some() || self.place.may_have_keeper()
    }

    fn join(&mut self) -> Result<(), Failure> {
        let link = self.connected()?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let data = epoll::EventData::new_u64(KEEPER);
        let added = epoll::add(&self.epoll, link.stream(), data, flags);
        added.map_err(|error| {
            files::failure(Step::Keeper, &error.into(), Path::new(crate::keeper::SOCKET))
        })?;
        self.link = Some(link);
        Ok(())
    }

    fn paused_until(&self) -> Option<u64> {
        self.starts.paused_until()
    }

    fn leave(&mut self) -> bool {
        self.link = None;
        true
    }

    fn ask(&mut self, request: Request) {
        if let Some(link) = &mut self.link
            && let Err(error) = link.ask(&request)
        {
            // Part of the request may have been sent. The port's thread then finds the connection closed, and all requests are sent again.
            tracing::warn!("failed to send a request to the keeper: {error}");
            link.end();
        }
        // Done after the launch has been sent, so that the launch is not delayed by waking another thread.
        if let Some((id, dir, bound)) = self.to_bound.take() {
            self.outputs.bound(id, &dir, bound);
        }
    }

    fn fetch(&mut self, id: ProcessId, spec: &Spec) -> bool {
        let now = self.clock();
        if spec.makes_dirs && !spec.dir.as_bytes().is_empty() {
            let path = files::path_of(&spec.dir);
            let dir = path.clone();
            let make = move || files::make_directory(&dir).map(|()| Found::Directory);
            if self.fetches.ask((id, Need::Directory), path, now, Box::new(make)) {
                return true;
            }
        }
        let Some(path) = spec.env_file.as_ref().map(files::path_of) else {
            return false;
        };
        // If the user is not known, the launch fails with that.
        let Ok(account) = account::of(spec) else {
            return false;
        };
        let reader = account.map_or_else(|| rustix::process::geteuid().as_raw(), |it| it.ids.0);
        let file = path.clone();
        let read = move || files::variables(&file, reader).map(Found::Variables);
        self.fetches.ask((id, Need::Variables), path, now, Box::new(read))
    }

    fn prepare(&mut self, id: ProcessId, spec: &Spec) -> Result<Launch, Failure> {
        let made = self.fetches.take((id, Need::Directory));
        let variables = self.fetches.take((id, Need::Variables));
        let data = self.place.data()?.to_owned();
        let dir = run_dir(&data, id, spec.run_dir.as_ref());
        files::prepare(&data, &dir, spec)?;
        made.transpose()?;
        let account = account::of(spec)?;
        let user = account.as_ref().map(|it| (it.ids.0, it.ids.1));
        let mut own = self.notices.launch(id, spec, &dir, user)?;
        if let Some(account) = &account {
            self.users.insert(id, account.ids.0);
        }
        let (user, of_user) = account.map_or((None, Vec::new()), |it| (Some(it.ids), it.env));
        own.extend(of_user);
        own.extend(self.place.reports(id, spec));
        let file = match variables.transpose()? {
            Some(Found::Variables(variables)) => variables,
            Some(_) | None => Vec::new(),
        };
        let output = |name| files::bytes_of(&dir.join(name));
        let mut launch = Launch {
            argv: spec.argv.clone(),
            dir: spec.dir.clone(),
            env: environment::of(id, spec, (&data, own), file)?,
            parcel: spec.parcel,
            output: spec.parcel.is_none().then(|| (output(files::STDOUT), output(files::STDERR))),
            appends: spec.appends,
            user,
            limits: spec.limits.clone(),
        };
        if spec.parcel.is_none() && spec.output_bytes_max > 0 {
            let (bytes_max, kept) = (spec.output_bytes_max, spec.output_kept);
            self.to_bound = Some((id, dir, Bound { bytes_max, kept }));
        }
        let faults = self.place.faults.as_ref();
        if faults.is_some_and(|faults| faults.launched(id, spec, &mut launch)) {
            self.kill_keeper();
        }
        Ok(launch)
    }

    fn note_user(&mut self, id: ProcessId, user: &str) {
        match account::user(user) {
            Ok(user) => drop(self.users.insert(id, user)),
            Err(failure) => {
                tracing::warn!(process = %id, user, ?failure, "the user that a process was launched as is not known any more");
            }
        }
    }

    fn expect(&mut self, id: ProcessId, own: Option<&Bytes>, expectation: &Expectation) {
        if let Some(dir) = self.run_dir(id, own) {
            self.notices.expect(id, expectation, &dir);
            self.bound(id, &dir, expectation.output);
            // The process is already running, and notices that it sent earlier may be lost: the next watchdog notice is due from now on.
            self.notices.start(id, self.clock());
        }
    }

    fn read(&mut self, id: ProcessId, own: Option<&Bytes>) {
        if let Some(dir) = self.run_dir(id, own) {
            self.outputs.read(id, &dir);
        }
    }

    fn write_pid_file(&mut self, id: ProcessId, own: Option<&Bytes>, pid: u32) {
        self.notices.start(id, self.clock());
        if let Some(dir) = self.run_dir(id, own)
            && let Err(error) = self.pid_files.write(&dir, pid)
        {
            tracing::warn!("{}: failed to write the PID file: {error}", dir.display());
        }
    }

    fn remains(&mut self, tree: &Tree, own: Option<&Bytes>) -> Remains {
        self.trees.insert(tree.id, None);
        self.notices.forget(tree.id);
        let Some(dir) = self.run_dir(tree.id, own).filter(|_| tree.launched) else {
            return Remains::default();
        };
        let is_of_boot = (tree.leader.machine, tree.leader.boot) == self.machine_and_boot();
        let left = if is_of_boot { self.survivors(tree) } else { Survivors::default() };
        let paths = [files::STDOUT, files::STDERR].map(|name| dir.join(name));
        let [(stdout, holds_one), (stderr, holds_other)] =
            paths.each_ref().map(|path| files::output(path));
        let is_open = is_of_boot && (holds_one || holds_other);
        let leak = is_open.then(|| self.leak(tree.id, &paths)).flatten();
        Remains {
            alive: left.alive,
            empty: left.is_empty(),
            stdout,
            stderr,
            leak,
            bound: self.groups.bound(tree),
            ..Remains::default()
        }
    }

    fn remove_pid_file(&mut self, tree: &Tree, own: Option<&Bytes>) {
        self.outputs.release(tree.id);
        if let Some(dir) = self.run_dir(tree.id, own).filter(|_| tree.launched) {
            self.pid_files.remove(&dir);
        }
    }

    fn clear(&mut self, tree: &Tree, _own: Option<&Bytes>) {
        if let Some(token) = self.tokens.remove(&tree.id) {
            self.watched.remove(&token);
        }
        self.emptying.forget(tree.id);
        if tree.launched {
            self.groups.remove(tree);
        }
    }

    fn examine(&mut self, id: ProcessId, launch: &Launch, errno: i32) -> bool {
        let now = self.clock();
        let Some(program) = launch.argv.first() else {
            return false;
        };
        // A program without a `/` in its name is not read: only the keeper knows the `PATH` in which it was found.
        let has_place = program.as_bytes().contains(&b'/');
        let path = files::path_of(&launch.dir).join(files::path_of(program));
        let file = has_place.then(|| path.clone());
        let read = move || Ok(Found::Words(files::not_executed(file.as_ref(), errno)));
        self.fetches.ask((id, Need::Program), path, now, Box::new(read))
    }

    fn not_executed(&mut self, id: ProcessId) -> Option<String> {
        match self.fetches.take((id, Need::Program)) {
            Some(Ok(Found::Words(words))) => words,
            _ => None,
        }
    }

    fn report(&mut self, message: Message) {
        (self.report)(message);
    }
}
