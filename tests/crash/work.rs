//! `sexton work` under kill -9 of everything: runners, commands, coordinators and keepers, at random, while twenty commands at a
//! time work on jobs. Each acknowledged job came to its end at least once, none was worked on twice at a time, none is lost, and
//! nothing is left over. `cargo test` has ten seconds of it; `SEXTON_CRASH_SECONDS=300` has more.

use crate::chance::Chance;
use crate::daemon::{Daemon, sexton, text};
use crate::left_out::left_out;
use crate::patience::until;
use crate::processes::host::Host;
use serde_json::{Value, json};
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the campaign of `cargo test` goes on, in seconds.
const SECONDS: u64 = 10;

/// Runners, and commands of each.
const RUNNERS: usize = 4;
const PROCS: &str = "5";

/// Jobs that are pushed at a time.
const PUSHED: usize = 20;

/// How many jobs may wait before no more are pushed.
const WAITING_MAX: usize = 200;

/// What each command does: it has a lock for as long as it, or what it started, lives, and notes its beginning and its end. The
/// lock is its own proof: two that have one job at a time are found, whatever was killed.
const SCRIPT: &str = r#"
exec 9>"$0/lock.$SEXTON_JOB_ID"
flock -n 9 || echo "beside $SEXTON_JOB_ID $SEXTON_JOB_ATTEMPT" >> "$0/noted"
echo "begin $SEXTON_JOB_ID $$" >> "$0/noted"
sleep 0.0$((SEXTON_JOB_ID % 5))
echo "end $SEXTON_JOB_ID $$" >> "$0/noted"
rm -f "$0/lock.$SEXTON_JOB_ID"
"#;

/// Who was killed, how often.
#[derive(Clone, Copy, Debug, Default)]
struct Killed {
    runners: u64,
    commands: u64,
    coordinators: u64,
    keepers: u64,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            runners,
            commands,
            coordinators,
            keepers,
        } = self;
        write!(
            f,
            "killed: {runners} runners, {commands} commands, {coordinators} coordinators, {keepers} keepers"
        )
    }
}

impl Killed {
    /// Whether there was something of everything.
    const fn all(self) -> bool {
        self.runners > 0 && self.commands > 0 && self.coordinators > 0 && self.keepers > 0
    }
}

struct Campaign {
    host: Host,
    notes: PathBuf,
    daemon: Option<Daemon>,
    runners: Vec<Child>,
    chance: Chance,
    killed: Killed,
    /// Jobs whose push was acknowledged.
    acked: BTreeSet<u64>,
}

/// What commands have noted.
#[derive(Default)]
struct Noted {
    begun: u64,
    ended: BTreeSet<u64>,
    beside: Vec<String>,
    newest: Option<u32>,
}

impl Noted {
    fn read(notes: &Path) -> Self {
        let text = std::fs::read_to_string(notes.join("noted")).unwrap_or_default();
        let mut noted = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["begin", _, pid] => {
                    noted.begun += 1;
                    noted.newest = pid.parse().ok();
                }
                ["end", id, _] => {
                    noted.ended.extend(id.parse::<u64>());
                }
                ["beside", ..] => noted.beside.push(line.to_owned()),
                // One that was killed while it wrote.
                _ => {}
            }
        }
        noted
    }
}

impl Campaign {
    fn new(seed: u64) -> Self {
        let host = Host::new();
        let notes = host.file("notes");
        std::fs::create_dir(&notes).expect("there is room");
        let config = "[queues.default]\nmax_tries = 0\nbackoff = { first = \"10ms\", factor = 1, max = \"10ms\" }\n";
        std::fs::write(host.file("sexton.toml"), config).expect("there is room");
        let mut campaign = Self {
            notes,
            daemon: None,
            runners: Vec::new(),
            chance: Chance::new(seed),
            killed: Killed::default(),
            acked: BTreeSet::new(),
            host,
        };
        campaign.serve();
        for _ in 0..RUNNERS {
            let runner = campaign.runner();
            campaign.runners.push(runner);
        }
        campaign
    }

    fn serve(&mut self) {
        let (data, config) = (self.host.data(), self.host.file("sexton.toml"));
        let words = ["--data", text(&data), "--config", text(&config)];
        self.daemon = Some(Daemon::serve(&words));
    }

    fn runner(&self) -> Child {
        let mut command = sexton();
        command.env("SEXTON_DATA", self.host.data());
        command.args(["work", "jobs", "--wait", "--procs", PROCS, "--", "sh", "-c"]);
        command.arg(SCRIPT).arg(&self.notes);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().expect("it runs")
    }

    /// Adds jobs, unless there are many.
    fn push(&mut self) {
        let noted = Noted::read(&self.notes);
        if self.acked.difference(&noted.ended).count() > WAITING_MAX {
            return;
        }
        let job = json!({ "queue": "jobs", "body": "x" });
        let said = self
            .host
            .well("/v1/queues/push-all", &json!({ "jobs": vec![job; PUSHED] }));
        let jobs = said.pointer("/jobs").and_then(Value::as_array);
        let ids = jobs.into_iter().flatten();
        self.acked
            .extend(ids.filter_map(|job| job.pointer("/id").and_then(Value::as_u64)));
    }

    /// kill -9 of one of them.
    fn kill(&mut self) {
        match self.chance.below(10) {
            0 => {
                self.daemon.take().expect("one runs").kill();
                self.killed.coordinators += 1;
                self.serve();
            }
            1 if self.host.keeper().is_some() => {
                self.host.kill_keeper();
                self.killed.keepers += 1;
            }
            2 | 3 => {
                let nth = usize::try_from(self.chance.below(RUNNERS as u64)).expect("few");
                let mut runner = self.runners.remove(nth);
                self.runners.push(self.runner());
                // It may have ended by itself, which is found out at the end.
                drop(runner.kill());
                drop(runner.wait());
                self.killed.runners += 1;
            }
            _ => self.kill_command(),
        }
    }

    fn kill_command(&mut self) {
        let Some(pid) = Noted::read(&self.notes).newest else {
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

    /// Those that ended by themselves are begun again, as a supervisor would.
    fn look_after_runners(&mut self) {
        let all = self.runners.len();
        let runs = |runner: &mut Child| !runner.try_wait().is_ok_and(|end| end.is_some());
        self.runners.retain_mut(runs);
        while self.runners.len() < all {
            self.runners.push(self.runner());
        }
    }

    /// Until every job that was acknowledged has come to its end, and the queue is empty.
    fn drain(&mut self) {
        until("every job has come to its end", || {
            self.look_after_runners();
            let ended = Noted::read(&self.notes).ended;
            let status = self.host.get("/v1/status");
            let left = [
                "ready",
                "delayed",
                "claimed",
                "retrying",
                "buried",
                "abandoned",
            ];
            let is_empty = left.iter().all(|phase| {
                let count = status.pointer(&format!("/queues/jobs/{phase}"));
                count.and_then(Value::as_u64) == Some(0)
            });
            (is_empty && self.acked.is_subset(&ended)).then_some(())
        });
    }

    /// Ends the runners in good order, after which nothing of them lives.
    fn end(&mut self) {
        for runner in &self.runners {
            let pid = runner.id();
            if let Ok(Some(pidfd)) = Pidfd::open(pid) {
                pidfd.signal(15).expect("it is ours");
            }
        }
        for runner in &mut self.runners {
            runner.wait().expect("it is ours");
        }
        until("nothing is left over", || {
            let records = self.host.records();
            let lives = |record: &&Value| {
                let status = record.pointer("/status").and_then(Value::as_str);
                status != Some("exited")
            };
            (!records.iter().any(|record| lives(&record))).then_some(())
        });
    }
}

fn is_installed() -> bool {
    let version = Command::new("flock").arg("--version").output();
    let is_installed = version.is_ok_and(|it| it.status.success());
    if !is_installed {
        left_out(
            "jobs under kill -9: flock(1), by which two of one job are found, is not installed",
        );
    }
    is_installed
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "what other processes do is no event of this one"
)]
fn each_job_comes_to_its_end_and_none_twice_at_a_time_whatever_is_killed() {
    if !is_installed() {
        return;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let span = Duration::from_secs(number("SEXTON_CRASH_SECONDS").unwrap_or(SECONDS));
    let seed = number("SEXTON_CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let mut campaign = Campaign::new(seed);
    let begun = Instant::now();
    while begun.elapsed() < span || !campaign.killed.all() {
        assert!(begun.elapsed() < span * 20, "{}", campaign.killed);
        campaign.push();
        std::thread::sleep(Duration::from_millis(campaign.chance.below(200)));
        campaign.look_after_runners();
        campaign.kill();
    }
    campaign.drain();
    campaign.end();
    let noted = Noted::read(&campaign.notes);
    println!(
        "seed {seed}, {:?}: {} jobs, begun {} times; {}",
        begun.elapsed(),
        campaign.acked.len(),
        noted.begun,
        campaign.killed
    );
    assert_eq!(noted.beside, Vec::<String>::new(), "seed {seed}");
}
