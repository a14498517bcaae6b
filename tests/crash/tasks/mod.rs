//! Tasks under kill -9 of commands, coordinators and keepers, at random, while tasks of several groups and work ids run in bursts,
//! save, wait, are paused and fail. Each acknowledged task has an end that its settings allow, none runs twice at the same time,
//! no group and no work id has more in progress than allowed, nothing is left over, and an audit never finds a disagreement.
//! The campaign lasts ten seconds in `cargo test`, and five minutes, with 10,000 tasks, with `SEXTON_CRASH_SECONDS=300`.
//!
//! | file | holds |
//! |---|---|
//! | `lost.rs` | attempts that ended unobserved |
//! | `notes.rs` | the commands, and what they write down |
//! | `past.rs` | what the journal contains about tasks |

mod lost;
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
use crate::tasks::notes::{Kind, NotesReader, SCRIPT};
use crate::tasks::past::Past;
use serde_json::{Value, json};
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the campaign of `cargo test` lasts, in seconds, and how many tasks it has per second.
const SECONDS: u64 = 10;
const TASKS_PER_SECOND: u64 = 34;

/// How many tasks may wait before no more are added.
const WAITING_MAX: usize = 60;

/// The maximum number of tasks that run at a time, and of tasks of a group that are in progress.
const THREADS: u32 = 8;
const GROUP_MAX: usize = 3;

/// The numbers of groups and of work ids. Every second task has a work id.
const GROUPS: u64 = 5;
const WORKS: u64 = 7;

/// How soon a failed request is repeated.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of killed processes of each kind, and of audits.
#[derive(Clone, Copy, Debug, Default)]
struct Killed {
    commands: u64,
    coordinators: u64,
    keepers: u64,
    audits: u64,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commands, coordinators, keepers, audits } = self;
        write!(
            f,
            "killed: {commands} commands, {coordinators} coordinators, {keepers} keepers; {audits} audits"
        )
    }
}

impl Killed {
    /// Returns whether every case occurred.
    const fn all(self) -> bool {
        self.commands > 0 && self.coordinators > 0 && self.keepers > 0 && self.audits > 0
    }
}

/// Tasks whose addition was acknowledged, with their kinds.
type Acked = Arc<Mutex<BTreeMap<u64, Kind>>>;

fn locked(acked: &Acked) -> MutexGuard<'_, BTreeMap<u64, Kind>> {
    acked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that adds tasks during the campaign. Each addition is repeated, with the same idempotency key, until it is acknowledged.
struct Adder {
    acked: Acked,
    thread: JoinHandle<()>,
}

impl Adder {
    fn begin(host: &Host, notes: &Path, tasks: u64) -> Self {
        let acked = Acked::default();
        let theirs = Arc::clone(&acked);
        let (socket, notes) = (host.socket(), notes.to_owned());
        let adding = move || {
            let mut noted = NotesReader::of(&notes);
            for nth in 0..tasks {
                loop {
                    noted.read_on();
                    if noted.unbegun(&locked(&theirs)) < WAITING_MAX {
                        break;
                    }
                    rest(PAUSE);
                }
                let kind = Kind::of(nth);
                let id = add(&socket, (nth, kind), &notes);
                locked(&theirs).insert(id, kind);
            }
        };
        let thread = std::thread::Builder::new().name("adding".to_owned());
        Self { acked, thread: thread.spawn(adding).expect("a new thread") }
    }

    /// Returns every acknowledged task, once all were added.
    fn end(self) -> BTreeMap<u64, Kind> {
        self.thread.join().expect("no panic");
        locked(&self.acked).clone()
    }
}

/// Adds a task, repeating the request until it is acknowledged, and returns its id.
fn add(socket: &Path, (nth, kind): (u64, Kind), notes: &Path) -> u64 {
    let program = env!("CARGO_BIN_EXE_sexton");
    let command = ["sh", "-c", SCRIPT, text(notes), program, kind.word()];
    let work = if nth.is_multiple_of(2) { format!("work-{}", nth % WORKS) } else { String::new() };
    let task = json!({
        "launch": {"command": command, "dir": "/", "grace_ms": 2000},
        "group": format!("group-{}", nth % GROUPS),
        "work": work,
        "priority": if nth.is_multiple_of(3) { "high" } else { "medium" },
        "abort_on_failure": kind.aborts(),
        "fail_after_ms": 120_000,
        "progress_ms": 60_000,
    });
    loop {
        match asking::post(socket, "/v1/tasks/add", &format!("task-{nth}"), &task) {
            Ok((200, said)) => {
                let id = said.pointer("/id").and_then(Value::as_u64);
                return id.expect("it has a number");
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

struct Campaign {
    host: Host,
    kept: Kept,
    notes: PathBuf,
    noted: NotesReader,
    daemon: Option<Daemon>,
    chance: Chance,
    killed: Killed,
}

impl Campaign {
    fn new(seed: u64) -> Self {
        let host = Host::new();
        let notes = host.file("notes");
        std::fs::create_dir(&notes).expect("the disk has space");
        let mut campaign = Self {
            kept: Kept::beside(&host.data()),
            noted: NotesReader::of(&notes),
            notes,
            daemon: None,
            chance: Chance::new(seed),
            killed: Killed::default(),
            host,
        };
        campaign.serve();
        let local = json!({"server": "local", "threads": THREADS});
        campaign.host.well("/v1/servers/set", &local);
        campaign
    }

    fn serve(&mut self) {
        let data = self.host.data();
        let words = ["--data", text(&data), "--checkpoint-every", "2000"];
        self.daemon = Some(Daemon::serve(&words));
    }

    /// Takes one random step: kills the coordinator, the keeper or a command with SIGKILL, requests an audit, or pauses or resumes a group.
    fn go_on(&mut self) {
        self.kept.keep();
        match self.chance.below(16) {
            0 | 1 => {
                self.daemon.take().expect("a server").kill();
                self.killed.coordinators += 1;
                self.kept.keep();
                self.serve();
            }
            2 if self.host.keeper().is_some() => {
                self.host.kill_keeper();
                self.killed.keepers += 1;
            }
            3 => self.assert_all_agrees(),
            4 | 5 => {
                let group = format!("group-{}", self.chance.below(GROUPS));
                let words = ["soft", "hard", "off", "off"];
                let nth = usize::try_from(self.chance.below(4)).expect("a small number");
                let pause = words.get(nth).expect("one of them");
                let asked = json!({"group": group, "pause": pause});
                self.host.well("/v1/tasks/pause", &asked);
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

    fn assert_all_agrees(&mut self) {
        let audit = self.host.get("/v1/audit");
        let found = audit.pointer("/found").and_then(Value::as_array);
        assert_eq!(found.map(Vec::len), Some(0), "{audit}");
        self.killed.audits += 1;
    }

    /// Waits until every task is over. Nothing is killed any more, so the test fails if no task ends for a while.
    fn drain(&mut self) {
        for group in 0..GROUPS {
            let resumed = json!({"group": format!("group-{group}"), "pause": "off"});
            self.host.well("/v1/tasks/pause", &resumed);
        }
        let (mut left, mut bursts) = (1, 0);
        while left > 0 {
            // A task may have several bursts, so the notes show progress until no task is left.
            (left, bursts) = until("a burst ends, or no task is left", || {
                let left = self.host.tasks_left();
                self.noted.read_on();
                let now = self.noted.ended();
                (now > bursts || left == 0).then_some((left, now))
            });
        }
    }

    /// Returns all tasks that are over, by number.
    fn over(&self) -> BTreeMap<u64, Value> {
        let (mut all, mut after) = (BTreeMap::new(), String::new());
        loop {
            let path = format!("/v1/tasks?status=complete&limit=1000{after}");
            let listed = self.host.get(&path);
            let tasks = listed.pointer("/tasks").and_then(Value::as_array);
            for task in tasks.into_iter().flatten() {
                let id = task.pointer("/id").and_then(Value::as_u64);
                all.insert(id.expect("the task has a number"), task.clone());
            }
            match listed.pointer("/next").and_then(Value::as_u64) {
                Some(next) => after = format!("&after={next}"),
                None => return all,
            }
        }
    }

    /// Asserts that nothing is alive any more, according to the records and to the kernel.
    fn assert_nothing_is_left(&self) {
        until("nothing is left over", || {
            let records = self.host.records();
            let lives = |record: &&Value| {
                let status = record.pointer("/status").and_then(Value::as_str);
                status != Some("exited")
            };
            let is_over = !records.iter().any(|record| lives(&record));
            (is_over && self.host.children().is_empty()).then_some(())
        });
        // The record of a process ends a moment before its task is notified.
        until("every thread is free, and every lock", || {
            let servers = self.host.get("/v1/servers");
            let used = servers.pointer("/servers/0/used").and_then(Value::as_u64);
            let locks = self.host.get("/v1/locks");
            let locks = locks.pointer("/locks").and_then(Value::as_array);
            (used == Some(0) && locks.map(Vec::len) == Some(0)).then_some(())
        });
    }

    /// Ends the coordinator, and reads the journal from its beginning.
    fn past(&mut self) -> Past {
        self.daemon.take().expect("a server").kill();
        let mut replay = sexton();
        replay.args(["replay", "--json"]).arg(self.kept.keep());
        let [log, _] = ended(replay.output().expect("the command runs"), 0);
        Past::of(&log, GROUP_MAX)
    }
}

fn is_installed() -> bool {
    let version = Command::new("flock").arg("--version").output();
    let is_installed = version.is_ok_and(|it| it.status.success());
    if !is_installed {
        left_out(
            "tasks under kill -9: flock(1), which detects two bursts of one task, is not installed",
        );
    }
    is_installed
}

#[test]
#[expect(clippy::disallowed_methods, reason = "acts of other processes are not events in this one")]
fn each_task_comes_to_an_end_and_none_runs_twice_at_a_time_whatever_is_killed() {
    if !is_installed() {
        return;
    }
    let seconds = lives::seconds(SECONDS);
    let (span, seed) = (Duration::from_secs(seconds), lives::seed());
    let mut campaign = Campaign::new(seed);
    let adder = Adder::begin(&campaign.host, &campaign.notes, seconds * TASKS_PER_SECOND);
    let begun = Instant::now();
    while begun.elapsed() < span || !campaign.killed.all() || !adder.thread.is_finished() {
        assert!(begun.elapsed() < span * 20, "{}", campaign.killed);
        rest(Duration::from_millis(campaign.chance.below(200)));
        campaign.go_on();
    }
    let acked = adder.end();
    campaign.drain();
    campaign.assert_nothing_is_left();
    campaign.assert_all_agrees();
    let over = campaign.over();
    let past = campaign.past();
    campaign.noted.read_on();
    let noted = &campaign.noted;
    let (wrong, ends) = noted.judge(&acked, &over);
    println!(
        "seed {seed}, {:?}: {} tasks, {} bursts, {ends:?}; at most {} in progress; {}",
        begun.elapsed(),
        acked.len(),
        noted.begun,
        past.most,
        campaign.killed
    );
    assert_eq!(wrong, Vec::<String>::new(), "seed {seed}");
    assert_eq!(past.wrong, Vec::<String>::new(), "seed {seed}");
}
