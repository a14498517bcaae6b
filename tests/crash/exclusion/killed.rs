//! The campaign. Callers, commands, processes they left, coordinators and keepers are killed at random; callers of flock(1)
//! run the same commands at the same time, and are killed as well. No two commands under sexton's lock overlap, and the lock is always
//! granted to the next caller.

use crate::chance::Chance;
use crate::daemon::{Daemon, serve_by, sexton, text};
use crate::exclusion::callers::Callers;
use crate::exclusion::judge::{newest, seen};
use crate::left_out::left_out;
use crate::lives;
use crate::patience::{PATIENCE, until};
use crate::processes::host::Host;
use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long each campaign of `cargo test` lasts, in seconds.
const SECONDS: u64 = 5;

/// The numbers of callers of sexton's lock and of flock's.
const CALLERS: u64 = 50;
const BESIDE: u64 = 10;

/// The maximum number of attempts to find a running process.
const TRIES: u32 = 200;

/// The number of killed processes of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct Killed {
    callers: u64,
    writers: u64,
    coordinators: u64,
    keepers: u64,
}

impl Killed {
    /// Returns whether every kind was killed.
    fn all(self) -> bool {
        self.callers > 0 && self.writers > 0 && self.coordinators > 0 && self.keepers > 0
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { callers, writers, coordinators, keepers } = self;
        write!(
            f,
            "killed: {callers} callers, {writers} commands or processes they left, {coordinators} coordinators, {keepers} keepers"
        )
    }
}

/// A coordinator that is started again after each kill, with control groups or without.
struct Coordinators<'a> {
    host: &'a Host,
    daemon: Option<Daemon>,
    has_groups: bool,
}

impl<'a> Coordinators<'a> {
    fn new(host: &'a Host, has_groups: bool) -> Self {
        let daemon = None;
        let mut own = Self { host, daemon, has_groups };
        own.start();
        own
    }

    fn start(&mut self) {
        let data = self.host.data();
        let flags = ["--data", text(&data)];
        self.daemon = Some(if self.has_groups {
            Daemon::serve(&flags)
        } else {
            let mut starter = Command::new("unshare");
            let hide = "awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo | xargs -r -n1 umount -l; exec \"$@\"";
            starter.args(["--mount", "--", "sh", "-c", hide, "sh"]);
            Daemon::start(serve_by(starter, &flags))
        });
    }

    /// Kills the keeper, the coordinator, or both with SIGKILL, at random.
    fn kill(&mut self, chance: &mut Chance, killed: &mut Killed) {
        let whom = chance.below(3);
        if whom != 0 {
            self.host.kill_keeper();
            killed.keepers += 1;
        }
        if whom != 1 {
            self.daemon.take().expect("a server").kill();
            killed.coordinators += 1;
            self.start();
        }
    }
}

/// Kills the current command, its caller, or both with SIGKILL.
#[expect(
    clippy::disallowed_methods,
    reason = "a write of another process is not an event in this one"
)]
fn kill_of(callers: &Callers, chance: &mut Chance, killed: &mut Killed) {
    let whom = chance.below(3);
    let of_first = chance.below(2) == 0;
    // Most commands have ended by the time the file has been read, so this is repeated with the next ones.
    for _ in 0..TRIES {
        let Some((id, [first, newest])) = newest(&callers.file) else {
            return;
        };
        let pid = if of_first { first } else { newest };
        if whom == 0 || callers.kill_writer(pid) {
            killed.writers += u64::from(whom != 0);
            killed.callers += u64::from(whom != 1 && callers.kill_caller(&id));
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Callers of both programs, the number of those that call flock(1), and for how long processes are killed.
struct Campaign {
    ours: Callers,
    theirs: Callers,
    beside: u64,
    seed: u64,
    span: Duration,
}

impl Campaign {
    fn on(host: &Host) -> Self {
        let ours = Callers::new(host.file("ours"), host.data(), |data| {
            let mut command = sexton();
            command.args(["lock", "run", "k", "--"]);
            command.env("SEXTON_DATA", data);
            command
        });
        let theirs = Callers::new(host.file("theirs"), host.file("lock"), |lock| {
            let mut command = Command::new("flock");
            command.arg(lock);
            command
        });
        Self {
            ours,
            theirs,
            beside: if is_installed() { BESIDE } else { 0 },
            seed: lives::seed(),
            span: Duration::from_secs(lives::seconds(SECONDS)),
        }
    }

    /// Runs the callers, and kills processes meanwhile. Returns the kills for sexton's lock and for flock's.
    fn go(&self, coordinators: &mut Coordinators<'_>) -> [Killed; 2] {
        std::thread::scope(|scope| {
            let _ending = [self.ours.until_dropped(), self.theirs.until_dropped()];
            for caller in 0..CALLERS {
                scope.spawn(move || self.ours.call(self.seed ^ caller << 40));
            }
            for caller in 0..self.beside {
                scope.spawn(move || self.theirs.call(self.seed ^ caller << 40));
            }
            self.kill(coordinators)
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the moments of kills are random")]
    fn kill(&self, coordinators: &mut Coordinators<'_>) -> [Killed; 2] {
        let (mut killed, mut killed_beside) = (Killed::default(), Killed::default());
        let mut chance = Chance::new(self.seed);
        let begun = Instant::now();
        while begun.elapsed() < self.span || !self.is_enough(killed) {
            let is_late = begun.elapsed() > self.span + 5 * PATIENCE;
            assert!(!is_late, "{killed}; {}", seen(&self.ours.file));
            std::thread::sleep(Duration::from_millis(chance.below(150)));
            if chance.below(8) == 0 {
                coordinators.kill(&mut chance, &mut killed);
                // No TTL is needed for the next grant: the holder ends, or has been killed.
                let before = seen(&self.ours.file).begun;
                let goes_on = || seen(&self.ours.file).begun > before;
                until("the lock passes on", || goes_on().then_some(()));
            } else {
                kill_of(&self.ours, &mut chance, &mut killed);
                kill_of(&self.theirs, &mut chance, &mut killed_beside);
            }
        }
        [killed, killed_beside]
    }

    /// Returns whether every kind was killed, and the check found an overlap under flock, where a process that closes its
    /// descriptors gives up the lock and continues.
    fn is_enough(&self, killed: Killed) -> bool {
        let has_overlap = || !seen(&self.theirs.file).beside.is_empty();
        killed.all() && seen(&self.ours.file).all() && (self.beside == 0 || has_overlap())
    }
}

#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn campaign(has_groups: bool) {
    let host = Host::new();
    let mut coordinators = Coordinators::new(&host, has_groups);
    let campaign = Campaign::on(&host);
    let [killed, killed_beside] = campaign.go(&mut coordinators);
    let Campaign { ours, theirs, seed, span, .. } = campaign;
    let (ours, theirs) = (seen(&ours.file), seen(&theirs.file));
    let which = if has_groups { "with" } else { "without" };
    println!("seed {seed}, {span:?}, {which} control groups");
    println!("  lock run: {ours}; {killed}");
    println!("  flock: {theirs}; {killed_beside}");
    assert_eq!(ours.beside, Vec::<String>::new(), "seed {seed}");
}

fn is_installed() -> bool {
    let version = Command::new("flock").arg("--version").output();
    let is_installed = version.is_ok_and(|it| it.status.success());
    if !is_installed {
        left_out("flock(1) beside `lock run`: it is not installed");
    }
    is_installed
}

#[test]
fn no_two_commands_are_there_at_a_time_whatever_is_killed() {
    campaign(true);
}

#[test]
fn nor_where_no_control_group_tells_what_is_left() {
    if rustix::process::geteuid().is_root() {
        campaign(false);
    } else {
        left_out("processes without control groups: only root takes those away");
    }
}
