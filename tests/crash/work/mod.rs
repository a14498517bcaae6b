//! `sexton work` under kill -9 of everything: runners, commands, coordinators and keepers, at random, while twenty commands at a
//! time work on jobs that are pushed meanwhile. Each acknowledged job was completed at least once, none was worked on twice at the
//! same time, none is lost, none waits longer than its back-off, and nothing is left over. The campaign lasts ten seconds in `cargo test`,
//! and five minutes, with 20,000 jobs, with `SEXTON_CRASH_SECONDS=300`.
//!
//! | file | holds |
//! |---|---|
//! | `notes.rs` | the commands, and what they write down |
//! | `past.rs` | what the journal contains about jobs |

mod notes;
mod past;

use crate::chance::Chance;
use crate::daemon::{Daemon, ended, sexton, text};
use crate::kept::Kept;
use crate::left_out::left_out;
use crate::lives;
use crate::patience::until;
use crate::processes::asking;
use crate::processes::host::Host;
use crate::work::notes::{LINES, NotesReader, SCRIPT};
use crate::work::past::Past;
use serde_json::{Value, json};
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the campaign of `cargo test` lasts, in seconds, and how many jobs it has per second.
const SECONDS: u64 = 10;
const JOBS_PER_SECOND: u64 = 67;

/// The number of runners, and of commands of each. One of the runners has persistent commands, which process one job after another.
const RUNNERS: usize = 4;
const PROCS: &str = "5";

/// How many jobs are pushed at a time.
const PUSHED: usize = 20;

/// How many jobs may wait before no more are pushed.
const WAITING_MAX: usize = 200;

/// How soon a failed push is repeated.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of killed processes of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct Killed {
    runners: u64,
    commands: u64,
    coordinators: u64,
    keepers: u64,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runners, commands, coordinators, keepers } = self;
        write!(
            f,
            "killed: {runners} runners, {commands} commands, {coordinators} coordinators, {keepers} keepers"
        )
    }
}

impl Killed {
    /// Returns whether every case occurred.
    const fn all(self) -> bool {
        self.runners > 0 && self.commands > 0 && self.coordinators > 0 && self.keepers > 0
    }
}

struct Campaign {
    host: Host,
    kept: Kept,
    notes: PathBuf,
    noted: NotesReader,
    daemon: Option<Daemon>,
    /// The runners, each with its index, which determines the kind of its commands.
    runners: Vec<(usize, Child)>,
    chance: Chance,
    killed: Killed,
}

/// Jobs whose push was acknowledged.
type Acked = Arc<Mutex<BTreeSet<u64>>>;

/// A thread that pushes jobs during the campaign. Each push is repeated, with the same idempotency key, until it is acknowledged.
struct Pusher {
    acked: Acked,
    thread: JoinHandle<()>,
}

impl Pusher {
    /// Begins to push jobs, at least this many.
    fn begin(host: &Host, notes: &Path, jobs: u64) -> Self {
        let acked = Acked::default();
        let theirs = Arc::clone(&acked);
        let (socket, mut noted) = (host.socket(), NotesReader::of(notes));
        let pushing = move || {
            for nth in 0..jobs.div_ceil(PUSHED as u64) {
                while is_enough(&mut noted, &theirs) {
                    rest(PAUSE);
                }
                let ids = push(&socket, &format!("push-{nth}"));
                locked(&theirs).extend(ids);
            }
        };
        let thread = std::thread::Builder::new().name("pushing".to_owned());
        Self { acked, thread: thread.spawn(pushing).expect("a new thread") }
    }

    /// Returns every acknowledged job, once all were pushed.
    fn end(self) -> BTreeSet<u64> {
        self.thread.join().expect("no panic");
        locked(&self.acked).clone()
    }
}

fn locked(acked: &Acked) -> MutexGuard<'_, BTreeSet<u64>> {
    acked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether enough jobs are waiting.
fn is_enough(noted: &mut NotesReader, acked: &Acked) -> bool {
    noted.read_on();
    noted.left(&locked(acked)) > WAITING_MAX
}

/// Pushes [`PUSHED`] jobs, repeating the request until it is acknowledged, and returns their ids.
fn push(socket: &Path, key: &str) -> Vec<u64> {
    let job = json!({ "queue": "jobs", "body": "x" });
    let jobs = json!({ "jobs": vec![job; PUSHED] });
    loop {
        match asking::post(socket, "/v1/queues/push-all", key, &jobs) {
            Ok((200, said)) => {
                let jobs = said.pointer("/jobs").and_then(Value::as_array);
                let ids = jobs.into_iter().flatten();
                let id = |job: &Value| job.pointer("/id").and_then(Value::as_u64);
                return ids.filter_map(id).collect();
            }
            Ok((status, said)) => assert_eq!(status, 503, "{said}"),
            // The coordinator was killed.
            Err(_) => {}
        }
        rest(PAUSE);
    }
}

#[expect(clippy::disallowed_methods, reason = "acts of other processes are not events in this one")]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}

impl Campaign {
    fn new(seed: u64) -> Self {
        let host = Host::new();
        let notes = host.file("notes");
        std::fs::create_dir(&notes).expect("the disk has space");
        let config = "[queues.default]\nmax_tries = 0\ncrash_tries = 0\nbackoff = { first = \"10ms\", factor = 1, max = \"10ms\" }\n";
        std::fs::write(host.file("sexton.toml"), config).expect("the disk has space");
        let mut campaign = Self {
            kept: Kept::beside(&host.data()),
            noted: NotesReader::of(&notes),
            notes,
            daemon: None,
            runners: Vec::new(),
            chance: Chance::new(seed),
            killed: Killed::default(),
            host,
        };
        campaign.serve();
        for place in 0..RUNNERS {
            let runner = campaign.runner(place);
            campaign.runners.push((place, runner));
        }
        campaign
    }

    fn serve(&mut self) {
        let (data, config) = (self.host.data(), self.host.file("sexton.toml"));
        let words = ["--data", text(&data), "--config", text(&config)];
        let checkpoints = ["--checkpoint-every", "2000"];
        self.daemon = Some(Daemon::serve(&[words.as_slice(), &checkpoints].concat()));
    }

    fn runner(&self, place: usize) -> Child {
        let (flags, script): (&[&str], _) =
            if place == 0 { (&["--lines"], LINES) } else { (&[], SCRIPT) };
        let mut command = sexton();
        command.env("SEXTON_DATA", self.host.data());
        command.args(["work", "jobs", "--wait", "--procs", PROCS]);
        command.args(flags).args(["--", "sh", "-c", script]);
        command.arg(&self.notes);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().expect("the command starts")
    }

    /// Kills the coordinator, the keeper, a runner or a command with SIGKILL, at random.
    fn kill(&mut self) {
        self.kept.keep();
        match self.chance.below(10) {
            0 => {
                self.daemon.take().expect("a server").kill();
                self.killed.coordinators += 1;
                self.kept.keep();
                self.serve();
            }
            1 if self.host.keeper().is_some() => {
                self.host.kill_keeper();
                self.killed.keepers += 1;
            }
            2 | 3 => {
                let nth =
                    usize::try_from(self.chance.below(RUNNERS as u64)).expect("a small number");
                let (place, mut runner) = self.runners.remove(nth);
                self.runners.push((place, self.runner(place)));
                // This fails if the runner has already ended.
                drop(runner.kill());
                drop(runner.wait());
                self.killed.runners += 1;
            }
            _ => self.kill_command(),
        }
    }

    fn kill_command(&mut self) {
        self.noted.read_on();
        let Some(pid) = self.noted.newest else {
            return;
        };
        let Ok(Some(pidfd)) = Pidfd::open(pid) else {
            return;
        };
        let argv = proc::cmdline(pid).ok().flatten().unwrap_or_default();
        let notes = text(&self.notes).as_bytes();
        if argv.iter().any(|word| word.as_bytes() == notes) && pidfd.signal(9).is_ok() {
            self.killed.commands += 1;
        }
    }

    /// Starts runners again that ended without being killed, as a supervisor would.
    fn look_after_runners(&mut self) {
        for nth in 0..RUNNERS {
            let (place, runner) = self.runners.get_mut(nth).expect("all of them exist");
            let place = *place;
            if runner.try_wait().is_ok_and(|end| end.is_some()) {
                let begun = (place, self.runner(place));
                *self.runners.get_mut(nth).expect("all of them exist") = begun;
            }
        }
    }

    /// Waits until every acknowledged job is completed, and the queue is empty. Nothing is killed any more, so the test fails if no job
    /// ends for a while.
    fn drain(&mut self, acked: &BTreeSet<u64>) {
        let mut left = usize::MAX;
        while left > 0 {
            left = until("fewer jobs are incomplete", || {
                self.look_after_runners();
                self.noted.read_on();
                let now = self.noted.left(acked);
                (now < left).then_some(now)
            });
        }
        until("the queue is empty", || {
            self.look_after_runners();
            let status = self.host.get("/v1/status");
            let left =
                ["ready", "delayed", "claimed", "retrying", "buried", "abandoned", "quarantined"];
            let is_empty = left.iter().all(|phase| {
                let count = status.pointer(&format!("/queues/jobs/{phase}"));
                count.and_then(Value::as_u64) == Some(0)
            });
            is_empty.then_some(())
        });
    }

    /// Stops the runners cleanly, and waits until none of their processes is alive, according to the records and to the kernel.
    fn end(&mut self) {
        for (_, runner) in &self.runners {
            let pid = runner.id();
            if let Ok(Some(pidfd)) = Pidfd::open(pid) {
                pidfd.signal(15).expect("a permitted signal");
            }
        }
        for (_, runner) in &mut self.runners {
            runner.wait().expect("our child");
        }
        until("nothing is left over", || {
            let records = self.host.records();
            let lives = |record: &&Value| {
                let status = record.pointer("/status").and_then(Value::as_str);
                status != Some("exited")
            };
            let is_over = !records.iter().any(|record| lives(&record));
            (is_over && self.host.children().is_empty()).then_some(())
        });
    }

    /// Ends the coordinator, and compares the notes of commands with the journal.
    fn judge(&mut self, acked: &BTreeSet<u64>) -> Past {
        self.daemon.take().expect("a server").kill();
        let mut replay = sexton();
        replay.args(["replay", "--json"]).arg(self.kept.keep());
        let [log, _] = ended(replay.output().expect("the command runs"), 0);
        self.noted.read_on();
        let mut past = Past::of(&log);
        past.judge(acked, &self.noted);
        past
    }
}

fn is_installed() -> bool {
    let version = Command::new("flock").arg("--version").output();
    let is_installed = version.is_ok_and(|it| it.status.success());
    if !is_installed {
        left_out(
            "jobs under kill -9: flock(1), which detects two commands of one job, is not installed",
        );
    }
    is_installed
}

#[test]
#[expect(clippy::disallowed_methods, reason = "acts of other processes are not events in this one")]
fn each_job_comes_to_its_end_and_none_twice_at_a_time_whatever_is_killed() {
    if !is_installed() {
        return;
    }
    let seconds = lives::seconds(SECONDS);
    let (span, seed) = (Duration::from_secs(seconds), lives::seed());
    let mut campaign = Campaign::new(seed);
    let pusher = Pusher::begin(&campaign.host, &campaign.notes, seconds * JOBS_PER_SECOND);
    let begun = Instant::now();
    while begun.elapsed() < span || !campaign.killed.all() || !pusher.thread.is_finished() {
        assert!(begun.elapsed() < span * 20, "{}", campaign.killed);
        rest(Duration::from_millis(campaign.chance.below(200)));
        campaign.look_after_runners();
        campaign.kill();
    }
    let acked = pusher.end();
    campaign.drain(&acked);
    campaign.end();
    let past = campaign.judge(&acked);
    let noted = &campaign.noted;
    println!(
        "seed {seed}, {:?}: {} jobs, begun {} times, {} came back after a back-off; {}",
        begun.elapsed(),
        acked.len(),
        noted.begun,
        past.retried,
        campaign.killed
    );
    assert_eq!(noted.wrong, Vec::<String>::new(), "seed {seed}");
    assert_eq!(past.wrong, Vec::<String>::new(), "seed {seed}");
}
