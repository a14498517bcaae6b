//! `sexton-bench bindings`: measures how soon the next client in line gets a lock whose owner is killed, also if the owner held ten
//! thousand locks; what `sexton lock run` costs compared with flock(1); and what it costs to trigger a pass of a lease (one run of its
//! command) among few leases and among many.

use crate::chance::Chance;
use crate::codec::name;
use crate::coordinator::{Coordinator, Grounds, ask, signal};
use crate::failure::Failure;
use crate::fdatasync;
use crate::figures::Latencies;
use crate::interrupt::Stop;
use crate::limits::{Limit, Limits, Row};
use crate::load::now;
use crate::output::show;
use crate::passing::{Line, PATIENCE, Registered, WAITERS, contenders, in_line, lockserver};
use crate::peer::directory;
use crate::pulse::Fifo;
use crate::question::rest;
use crate::recovery::ms;
use crate::site::Site;
use crate::table::Round;
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a process that a killed owner left behind keeps running: longer than the interval at which the coordinator looks for it.
const LINGERS: Duration = Duration::from_millis(300);

/// Measure locks that end with processes, `lock run` compared with flock(1), and the triggering of leases.
///
/// Everything is on disk before the coordinator answers. A grant is timed from the kill of the owner to the answer that gives the lock to
/// the next in line. There are three cases: the owner registered itself, and the lock ends with it, reaped or not; the owner was launched
/// by the coordinator, and its whole process tree must be gone; and the owner left behind a process that is killed 300 ms later, and the
/// grant is timed from that second kill. `lock run true` and `flock true` are run in turn, and timed from start to end.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench bindings                        everything, three rounds, about two minutes
  sexton-bench bindings --parts grant,run --rounds 5
  sexton-bench bindings --sexton target/other/sexton

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Bindings {
    /// Measurements to make [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    parts: Vec<Part>,

    /// Number of rounds
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Number of owners killed per round in each case; a tenth of that where a process is left behind
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: u32,

    /// Number of runs of `lock run true`, and of `flock true`, per round
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,

    /// Number of locks that end with one owner
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    entries: u32,

    /// Number of leases when there are many; a hundredth of that when there are few
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    leases: u32,

    /// Number of passes triggered per round among few leases, and again among many
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    triggers: u32,

    #[command(flatten)]
    site: Site,
}

/// A group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Kill an owner
    Grant,
    /// Kill an owner that leaves behind a process that ends later
    Left,
    /// Compare `lock run true` with `flock true`
    Run,
    /// Kill the owner of many locks
    Many,
    /// Trigger passes among few leases, and among many
    Leases,
}

impl Bindings {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let own = self.site.version()?;
        let mut notes = self.site.remarks([])?;
        notes.extend(self.site.in_memory("the figures include no disk time"));
        if self.wants(Part::Run) && !has_flock() {
            notes.push("flock is not installed: its rows are omitted".to_owned());
        }
        let attic = directory(&self.site.root())?;
        let measuring = Measuring {
            bindings: &self,
            grounds: Grounds { site: &self.site, attic: attic.path() },
            stop,
        };
        let mut rounds = Vec::new();
        for round in 1..=self.rounds {
            rounds.push(measuring.round(&format!("round {round} of {}", self.rounds))?);
        }
        show("");
        let table = Limits::new(self.rows(), vec![("sexton", rounds)]);
        table.report(&own, &notes, self.rounds, self.site.json)
    }

    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    fn rows(&self) -> Vec<Row> {
        let below = |most| Some(Limit::Below(most));
        let many = format!("{} locks of one owner, all passed on", self.entries);
        let few = format!("a trigger among {} leases", self.leases.div_ceil(100));
        let all = format!("a trigger among {} leases", self.leases);
        let rows = [
            (Part::Grant, "owner_p50", "from kill of owner to grant, p50", "ms", below(1.0)),
            (Part::Grant, "owner_p90", "the same, p90", "ms", None),
            (Part::Grant, "owner_p99", "the same, p99", "ms", below(10.0)),
            (Part::Grant, "tree_p50", "the same, owner's tree proved empty, p50", "ms", below(5.0)),
            (Part::Grant, "tree_p90", "the same, p90", "ms", None),
            (Part::Grant, "tree_p99", "the same, p99", "ms", below(20.0)),
            (
                Part::Left,
                "left_p50",
                "from end of leftover process to grant, p50",
                "ms",
                below(5.0),
            ),
            (Part::Left, "left_p90", "the same, p90", "ms", None),
            (Part::Left, "left_p99", "the same, p99", "ms", below(20.0)),
            (Part::Run, "lock_run", "sexton lock run true, p50", "ms", None),
            (Part::Run, "flock", "flock true, p50", "ms", None),
            (Part::Run, "sync", "a bare fdatasync, p50", "ms", None),
            (Part::Run, "run_share", "lock run / (4 flock + 3 syncs)", "times", below(1.0)),
            (Part::Many, "many", many.as_str(), "ms", below(200.0)),
            (Part::Leases, "trigger_few", few.as_str(), "us", None),
            (Part::Leases, "trigger_many", all.as_str(), "us", None),
            (
                Part::Leases,
                "trigger_processor_few",
                "processor time per trigger, among few leases",
                "us",
                None,
            ),
            (
                Part::Leases,
                "trigger_processor_many",
                "processor time per trigger, among all leases",
                "us",
                None,
            ),
            (
                Part::Leases,
                "trigger_share",
                "processor time, among all / among few",
                "times",
                below(1.5),
            ),
        ];
        let wanted = rows.into_iter().filter(|row| self.wants(row.0));
        wanted
            .map(|(_, name, words, unit, limit)| Row::new(name, words.to_owned(), unit, limit))
            .collect()
    }
}

/// What all rounds of a measurement share.
struct Measuring<'a> {
    bindings: &'a Bindings,
    grounds: Grounds<'a>,
    stop: &'a Stop,
}

impl Measuring<'_> {
    fn round(&self, title: &str) -> Result<Round, Failure> {
        let mut round = Round::new();
        for part in [Part::Grant, Part::Left, Part::Run, Part::Many, Part::Leases] {
            if !self.bindings.wants(part) {
                continue;
            }
            show(&format!("{title}: {part:?}").to_lowercase());
            match part {
                Part::Grant => {
                    let owners = self.registered()?;
                    note(&mut round, ["owner_p50", "owner_p90", "owner_p99"], &owners);
                    let trees = self.launched()?;
                    note(&mut round, ["tree_p50", "tree_p90", "tree_p99"], &trees);
                }
                Part::Left => {
                    let left = self.left()?;
                    note(&mut round, ["left_p50", "left_p90", "left_p99"], &left);
                }
                Part::Run => self.runs(&mut round)?,
                Part::Many => {
                    round.insert("many", ms(self.many()?));
                }
                Part::Leases => self.triggers(&mut round)?,
            }
        }
        Ok(round)
    }

    fn start(&self) -> Result<Coordinator, Failure> {
        let coordinator = Coordinator::start(None, self.grounds)?;
        coordinator.start_keeper()?;
        Ok(coordinator)
    }

    /// Measures the time from kill to grant for owners that are registered, whose lock ends with the process.
    fn registered(&self) -> Result<Latencies, Failure> {
        let coordinator = self.start()?;
        let mut line = Line::to(&coordinator)?;
        let mut latencies = Latencies::default();
        for _ in 0..self.bindings.kills {
            self.stop.check()?;
            let owner = Registered::start(&mut line)?;
            line.hold(&json!({ "process": owner.id, "release": "process" }))?;
            latencies.note(line.passed_on(|| owner.kill())?);
        }
        Ok(latencies)
    }

    /// Measures the time from kill to grant for owners that the coordinator launched, whose lock ends with the process tree.
    fn launched(&self) -> Result<Latencies, Failure> {
        let coordinator = self.start()?;
        let mut line = Line::to(&coordinator)?;
        let mut latencies = Latencies::default();
        let sleep = json!({ "command": ["sleep", "1000000"] });
        for _ in 0..self.bindings.kills {
            let owner = coordinator.launch(1, &sleep, self.stop)?;
            let owner = owner.first().expect("one was launched");
            line.hold(&json!({ "process": owner.id }))?;
            latencies.note(line.passed_on(|| signal(owner.pid, Signal::KILL))?);
        }
        Ok(latencies)
    }

    /// Measures the time to the grant for owners that leave a process behind. It is counted from the kill of that process, until which the
    /// lock stays held.
    fn left(&self) -> Result<Latencies, Failure> {
        let folder = directory(&self.grounds.site.root())?;
        let mut pulse = Fifo::create(&folder.path().join("pulse"))?;
        let coordinator = self.start()?;
        let mut line = Line::to(&coordinator)?;
        let mut latencies = Latencies::default();
        let words = format!(
            "setsid sh -c 'echo $$ >{}; exec sleep 1000000' & exec sleep 1000000",
            pulse.path().display()
        );
        let leaves = json!({ "command": ["sh", "-c", words] });
        for _ in 0..self.bindings.kills.div_ceil(10) {
            let owner = coordinator.launch(1, &leaves, self.stop)?;
            let owner = owner.first().expect("one was launched");
            let left = pulse.next_pid()?;
            line.hold(&json!({ "process": owner.id }))?;
            let ends = || {
                signal(owner.pid, Signal::KILL);
                rest(LINGERS);
            };
            latencies.note(line.passed_on_after(ends, || signal(left, Signal::KILL))?);
        }
        Ok(latencies)
    }

    /// Measures `lock run true` and `flock true`, in turn, and a bare fdatasync.
    fn runs(&self, round: &mut Round) -> Result<(), Failure> {
        let coordinator = self.start()?;
        let file = coordinator.data().join("flock");
        let run = || {
            let mut command = Command::new(self.grounds.site.program()?);
            command.args(["lock", "run", "true", "--data"]);
            command.arg(coordinator.data()).args(["--", "true"]);
            command.env_remove("SEXTON_PROCESS_ID");
            taken(command)
        };
        let flock = || {
            let mut command = Command::new("flock");
            command.arg(&file).arg("true");
            taken(command)
        };
        // The first run is not counted, since it also loads the program into memory.
        run()?;
        let has_flock = has_flock();
        let (mut runs, mut flocks) = (Latencies::default(), Latencies::default());
        for _ in 0..self.bindings.runs {
            self.stop.check()?;
            runs.note(run()?);
            if has_flock {
                flocks.note(flock()?);
            }
        }
        let [run, flock] = [runs, flocks].map(|all| all.quantile_us(0.5) / 1000.0);
        let sync = fdatasync::median_us(coordinator.data())? / 1000.0;
        round.insert("lock_run", run);
        round.insert("sync", sync);
        if has_flock {
            round.insert("flock", flock);
            round.insert("run_share", run / (4.0 * flock + 3.0 * sync));
        }
        Ok(())
    }

    /// Kills the owner of many locks, each with a waiter, and returns how long it takes until every waiter has been granted its lock.
    fn many(&self) -> Result<Duration, Failure> {
        let coordinator = self.start()?;
        let entries = self.bindings.entries / WAITERS * WAITERS;
        let owner = Registered::start(&mut Line::to(&coordinator)?)?;
        let hold = |stream: &mut UnixStream, number| {
            let key = name(0, number);
            let held = json!({
                "key": String::from_utf8_lossy(&key), "owner": "owner",
                "process": owner.id, "release": "process",
            });
            ask(stream, "/v1/locks/acquire", Some(&held)).map(drop)
        };
        coordinator.concurrently(entries, self.stop, hold)?;
        let waiters = (0..WAITERS).map(|waiter| in_line(&coordinator, waiter, entries));
        let _waiters = waiters.collect::<Result<Vec<_>, _>>()?;
        let mut asking = lockserver(&coordinator)?;
        if contenders(&mut asking)? != entries {
            return Err(Failure::new("not all waiters are in line"));
        }
        let began = now();
        owner.kill();
        while contenders(&mut asking)? > 0 {
            self.stop.check()?;
            if now() - began > PATIENCE {
                return Err(Failure::new("not all waiters were granted their locks"));
            }
            rest(Duration::from_millis(1));
        }
        Ok(now() - began)
    }

    /// Measures claiming and finishing passes of randomly chosen leases, among few leases and among many.
    fn triggers(&self, round: &mut Round) -> Result<(), Failure> {
        let coordinator = self.start()?;
        let trigger = |stream: &mut UnixStream, number: u32| {
            let lease = format!("lease {number}");
            // The period of 1 ms is over before the lease is triggered again, so that a pass is due.
            let asked = json!({ "name": lease, "period_ms": 1, "ttl_ms": 600_000 });
            let claimed = ask(stream, "/v1/leases/claim", Some(&asked))?;
            // While another connection is in a pass of this lease, the answer has no token.
            if let Some(token) = claimed.get("token").and_then(Value::as_u64) {
                let finished = json!({ "name": lease, "token": token });
                ask(stream, "/v1/leases/finish", Some(&finished))?;
            }
            Ok(())
        };
        let triggers = self.bindings.triggers;
        let at_random = |among: u32| {
            let mut chance = Chance::new(among);
            let numbers: Vec<u32> = (0..triggers).map(|_| chance.below(among)).collect();
            let of = |place: u32| numbers.get(place as usize).copied().unwrap_or(0);
            let (before, began) = (coordinator.processor_time()?, now());
            let one = |stream: &mut UnixStream, place| trigger(stream, of(place));
            coordinator.concurrently(triggers, self.stop, one)?;
            let taken = coordinator.processor_time()?.saturating_sub(before);
            let each = |span: Duration| span.as_secs_f64() * 1e6 / f64::from(triggers);
            Ok::<_, Failure>((each(now() - began), each(taken)))
        };
        let all = self.bindings.leases;
        let few = all.div_ceil(100);
        coordinator.concurrently(few, self.stop, trigger)?;
        let (few_took, few_processor) = at_random(few)?;
        let further = |stream: &mut UnixStream, number| trigger(stream, few + number);
        coordinator.concurrently(all - few, self.stop, further)?;
        let (many_took, many_processor) = at_random(all)?;
        round.insert("trigger_few", few_took);
        round.insert("trigger_many", many_took);
        round.insert("trigger_processor_few", few_processor);
        round.insert("trigger_processor_many", many_processor);
        round.insert("trigger_share", many_processor / few_processor);
        Ok(())
    }
}

fn has_flock() -> bool {
    let mut command = Command::new("flock");
    let asked = command.arg("--version").stdout(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// Runs a command, and returns how long it took; a status other than 0 is an error.
fn taken(mut command: Command) -> Result<Duration, Failure> {
    let began = now();
    let status = command.stdin(Stdio::null()).status();
    let taken = now() - began;
    match status.map_err(Failure::to("run a command"))? {
        status if status.success() => Ok(taken),
        status => Err(Failure::new(format!("{command:?} failed: {status}"))),
    }
}

fn note(round: &mut Round, rows: [&'static str; 3], latencies: &Latencies) {
    for (row, share) in rows.into_iter().zip([0.5, 0.9, 0.99]) {
        round.insert(row, latencies.quantile_us(share) / 1000.0);
    }
}
