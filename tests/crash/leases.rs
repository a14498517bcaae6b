//! Leases under kill -9 at every step: of the caller whose pass (run of the lease's command) is running, of the next caller, of the pass,
//! of the coordinator and of the keeper, one or several at a time. Every request is followed by a whole pass, no two passes overlap, none
//! is launched twice, and no two begin within one period.
//!
//! `SEXTON_CRASH_KILLS=500 cargo test --test crash leases` runs 500 rounds.

use crate::chance::Chance;
use crate::daemon::{Daemon, ended, sexton};
use crate::lives;
use crate::patience::until;
use crate::processes::host::Host;
use serde_json::Value;
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// The number of rounds in `cargo test`, and of rounds on one directory.
const ROUNDS: u64 = 20;
const ROUNDS_PER_DIRECTORY: u64 = 10;

/// The maximum number of keepers killed in one directory: after a fifth within ten seconds, the coordinator launches nothing for a while.
const KEEPERS_MAX: u64 = 4;

/// The minimum time between the starts of two passes, in milliseconds.
const PERIOD: u64 = 50;

/// The length of a tick, in which the kernel counts the start times of processes, in milliseconds.
const TICK: u64 = 10;

/// The script of a pass. It writes that it begins, that it is running, and that it ends; each line with the id of its process. `$1` is the
/// file, `$2` the request, `$3` how often it writes that it is running. Each line is one write at the end of the file. The first has the
/// PID and the kernel's start time of the process.
const PASS: &str = r#"
started=$(cut -d' ' -f22 /proc/$$/stat)
echo "b $SEXTON_PROCESS_ID $2 $$ $started" >> "$1"
i=0
while [ $i -lt "$3" ]; do i=$((i + 1)); sleep 0.01; echo "h $SEXTON_PROCESS_ID" >> "$1"; done
echo "e $SEXTON_PROCESS_ID $2" >> "$1"
"#;

/// What the file shows about passes and requests. A line `q REQUEST` is written before each request is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Observations {
    begun: u64,
    whole: u64,
    /// The PID of the pass that began last.
    newest: Option<u32>,
    /// When the processes of passes started, in ticks since boot.
    started: Vec<u64>,
    /// Requests that have not been followed by a whole pass.
    open: BTreeSet<String>,
    /// Violations: lines of a pass after the beginning of another, and processes that began twice.
    wrong: Vec<String>,
}

impl Observations {
    fn read(file: &Path) -> Self {
        // Before the first request, there is no file.
        Self::of(&std::fs::read_to_string(file).unwrap_or_default())
    }

    fn of(text: &str) -> Self {
        let mut seen = Self::default();
        let mut passes = BTreeSet::new();
        let mut there = "";
        // The requests that the running pass covers.
        let mut before = BTreeSet::new();
        for line in text.lines() {
            match *line.split(' ').collect::<Vec<_>>() {
                ["q", request] => {
                    seen.open.insert(request.to_owned());
                }
                ["b", pass, _, pid, ref started @ ..] => {
                    if !passes.insert(pass) {
                        seen.wrong.push(format!("{line}, for the second time"));
                    }
                    there = pass;
                    before.clone_from(&seen.open);
                    seen.begun += 1;
                    seen.newest = pid.parse().ok();
                    let started = started.iter().filter_map(|it| it.parse::<u64>().ok());
                    seen.started.extend(started);
                }
                [_, pass, ..] if pass != there => {
                    seen.wrong.push(format!("{line} beside {there}"));
                }
                ["e", ..] => {
                    seen.whole += 1;
                    seen.open.retain(|request| !before.contains(request));
                }
                _ => {}
            }
        }
        seen
    }
}

/// The number of killed processes of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct Killed {
    callers: u64,
    passes: u64,
    coordinators: u64,
    keepers: u64,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { callers, passes, coordinators, keepers } = self;
        write!(
            f,
            "killed: {callers} callers, {passes} passes, {coordinators} coordinators, {keepers} keepers"
        )
    }
}

/// One lease on one directory.
struct Lease {
    host: Host,
    daemon: Option<Daemon>,
    file: PathBuf,
    chance: Chance,
    killed: Killed,
    /// The number of requests so far.
    asked: u64,
    /// Requests that were acknowledged.
    acknowledged: BTreeSet<String>,
}

impl Lease {
    fn new(seed: u64) -> Self {
        let host = Host::new();
        Self {
            daemon: Some(host.start()),
            file: host.file("passes"),
            host,
            chance: Chance::new(seed),
            killed: Killed::default(),
            asked: 0,
            acknowledged: BTreeSet::new(),
        }
    }

    /// Writes a request to the file, and makes it. Returns its name and its caller.
    fn ask(&mut self, flags: &[&str]) -> (String, Child) {
        self.asked += 1;
        let request = self.asked.to_string();
        let mut file = std::fs::File::options();
        let file = file.append(true).create(true).open(&self.file);
        let line = format!("q {request}\n");
        let wrote = file.and_then(|mut file| file.write_all(line.as_bytes()));
        wrote.expect("the disk has space");
        let mut command = sexton();
        command.env("SEXTON_DATA", self.host.data());
        let period = format!("{PERIOD}ms");
        command.args(["lease", "run", "k", "--period", &period]);
        command.args(flags).args(["--", "sh", "-c", PASS, "pass"]);
        command.arg(&self.file).arg(&request);
        command.arg(self.chance.below(8).to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().expect("the command starts");
        (request, child)
    }

    /// Starts two callers that wait for their passes and two that do not, kills some processes, and waits until every acknowledged request
    /// is followed by a whole pass.
    fn round(&mut self) {
        let mut waiting = vec![self.ask(&[]).1, self.ask(&[]).1];
        let detached = [self.ask(&["--detach"]), self.ask(&["--detach"])];
        for _ in 0..=self.chance.below(3) {
            self.pause();
            self.kill(&mut waiting);
        }
        for (request, mut caller) in detached {
            if caller.wait().expect("our child").success() {
                self.acknowledged.insert(request);
            }
        }
        for mut caller in waiting {
            // The exit status is not checked, since the coordinator may have been killed.
            drop(caller.wait());
        }
        until("every request is followed by a whole pass", || {
            let lease = self.host.get("/v1/leases/lease?name=k");
            let is = |place: &str| lease.pointer(place).and_then(Value::as_bool);
            let is_quiet = is("/owed") != Some(true) && is("/current/running") != Some(true);
            let seen = Observations::read(&self.file);
            assert_eq!(seen.wrong, Vec::<String>::new());
            let is_met = seen.open.is_disjoint(&self.acknowledged);
            (is_quiet && is_met).then_some(())
        });
    }

    #[expect(clippy::disallowed_methods, reason = "the moments of kills are random")]
    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(self.chance.below(120)));
    }

    /// Kills the coordinator, the keeper, a caller or the last pass with SIGKILL, at random.
    fn kill(&mut self, callers: &mut [Child]) {
        match self.chance.below(6) {
            0 => {
                self.daemon.take().expect("a server").kill();
                self.daemon = Some(self.host.start());
                self.killed.coordinators += 1;
            }
            1 if self.killed.keepers < KEEPERS_MAX && self.host.keeper().is_some() => {
                self.host.kill_keeper();
                self.killed.keepers += 1;
            }
            2 | 3 => {
                let nth = usize::try_from(self.chance.below(2)).expect("a small number");
                let caller = callers.get_mut(nth).expect("there are two");
                let is_running = caller.try_wait().expect("our child").is_none();
                // The caller may have ended in between.
                drop(caller.kill());
                self.killed.callers += u64::from(is_running);
            }
            _ => self.killed.passes += u64::from(self.kill_pass()),
        }
    }

    fn kill_pass(&self) -> bool {
        let newest = Observations::read(&self.file).newest;
        let Some(Ok(Some(pidfd))) = newest.map(Pidfd::open) else {
            return false;
        };
        let argv = newest.and_then(|pid| proc::cmdline(pid).ok().flatten());
        let file = self.file.as_os_str().as_encoded_bytes();
        let is_pass =
            |words: Vec<_>| words.iter().any(|word: &sexton::bytes::Bytes| word.as_bytes() == file);
        argv.is_some_and(is_pass) && pidfd.signal(9).is_ok()
    }

    /// Ends the coordinator, and checks that no two passes began within one period, neither according to the journal nor to the kernel. Returns what the file shows, the number
    /// of kills, and the number of acknowledged requests.
    fn judge(mut self) -> (Observations, Killed, u64) {
        self.daemon.take().expect("a server").kill();
        let mut replay = sexton();
        replay.args(["replay", "--actor", "lease", "--json"]);
        replay.arg(self.host.data());
        let [log, _] = ended(replay.output().expect("the command runs"), 0);
        let records = log.lines().map(|line| {
            let record: Value = serde_json::from_str(line).expect("valid JSON");
            record
        });
        let begun: Vec<u64> = records.filter_map(|record| began(&record)).collect();
        for pair in begun.windows(2) {
            let [first, second] = pair else { continue };
            assert!(first + PERIOD < *second, "{first} and {second} of {begun:?}");
        }
        let seen = Observations::read(&self.file);
        assert!(seen.begun <= begun.len() as u64, "the journal has each beginning");
        for pair in seen.started.windows(2) {
            let [first, second] = pair else { continue };
            assert!(
                (second - first + 1) * TICK > PERIOD,
                "started {first} and {second} ticks after boot: {seen:?}"
            );
        }
        (seen, self.killed, self.acknowledged.len() as u64)
    }
}

/// Returns when a pass of the lease began; `None` if this record is not about the start of a pass.
fn began(record: &Value) -> Option<u64> {
    let steps = record.pointer("/outcome/changed/steps")?.as_array()?;
    let is_beginning = |step: &Value| step.pointer("/1/began").is_some();
    let begins = steps.iter().any(is_beginning);
    begins.then(|| record.pointer("/at")?.as_u64()).flatten()
}

#[test]
fn every_request_is_followed_by_a_whole_pass_whoever_is_killed() {
    let rounds = lives::kills(ROUNDS, ROUNDS);
    let (mut done, mut seed) = (0, lives::seed());
    let mut all = Killed::default();
    // The victim is random, and whether it is still running depends on the machine.
    let is_enough =
        |all: Killed| all.callers > 0 && all.passes > 0 && all.coordinators > 0 && all.keepers > 0;
    while done < rounds || !is_enough(all) {
        assert!(done < 10 * rounds.max(ROUNDS), "after {done} rounds, {all}");
        let mut lease = Lease::new(seed);
        let here = rounds.saturating_sub(done).clamp(1, ROUNDS_PER_DIRECTORY);
        for _ in 0..here {
            lease.round();
        }
        let (seen, killed, acknowledged) = lease.judge();
        println!(
            "seed {seed}: {here} rounds, {acknowledged} requests acknowledged, {} passes, {} of them whole; {killed}",
            seen.begun, seen.whole
        );
        all.callers += killed.callers;
        all.passes += killed.passes;
        all.coordinators += killed.coordinators;
        all.keepers += killed.keepers;
        done += here;
        seed += 1;
    }
    println!("{done} rounds; {all}");
}

#[test]
fn the_judge_finds_overlaps_second_launches_and_requests_without_a_pass() {
    let well = Observations::of("q 1\nb p 1 7\nq 2\ne p 1\nb r 2 8\nb s 2 9\nh s\ne s 2\n");
    assert_eq!((well.begun, well.whole, well.newest), (3, 2, Some(9)));
    assert_eq!((well.open.len(), well.wrong.len()), (0, 0), "{well:?}");
    // A request is still open after a pass that began before it, and after one that was killed.
    for text in ["b p 1 7\nq 2\ne p 1\n", "q 2\nb p 2 7\n"] {
        let open = Observations::of(text).open;
        assert_eq!(open, BTreeSet::from(["2".to_owned()]), "{text}");
    }
    for text in ["b p 1 7\nb r 1 8\nh p\n", "b p 1 7\ne p 1\nb p 1 8\n"] {
        assert_eq!(Observations::of(text).wrong.len(), 1, "{text}");
    }
}
