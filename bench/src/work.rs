//! `sexton-bench work` measures how fast `sexton work` processes jobs: with a command for each job, compared with RQ on Redis, and with
//! persistent workers, compared with a greenstalk loop on beanstalkd. It also measures the time from the push of a job to the start of its
//! command, the cost of very many waiting jobs, and fairness between tenants.

use crate::coordinator::{Coordinator, Grounds, ask};
use crate::failure::Failure;
use crate::fair::{BIG, Claims, FEW, SMALL};
use crate::fdatasync;
use crate::figures::{Latencies, as_float};
use crate::interrupt::Stop;
use crate::limits::{Limit, Limits, Row};
use crate::load::now;
use crate::output::show;
use crate::peer::directory;
use crate::pulse::Fifo;
use crate::site::Site;
use crate::table::Round;
use crate::workers::{Loop, PYTHON, installed};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The maximum number of jobs pushed by one request.
const PUSHED: u32 = 1000;

/// A persistent worker in Python that completes each job without doing anything. docs/protocols/work.md describes its protocol.
const LINES: &str = "
import json, socket
lines = socket.socket(fileno=3).makefile('rw')
for line in lines:
    print('{\"id\":%d,\"ok\":true}' % json.loads(line)['id'], file=lines, flush=True)
";

/// Measure how fast jobs are processed with a command for each or with persistent workers, and how soon the command of a job starts.
///
/// Every server syncs each change to disk before it answers, and all have the same number of workers. To measure a rate, all jobs are
/// pushed first; then the time is measured from the start of the workers until all of them have exited because no job is left. The command
/// of each job is true(1). RQ forks for each job and calls a function that does nothing; the greenstalk loop reserves each job and deletes
/// it.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench work                            everything but `drain` and `fair`, three rounds, about two minutes
  sexton-bench work --python venv/bin/python   where rq and greenstalk are installed
  sexton-bench work --parts drain --rounds 1   a million jobs
  sexton-bench work --parts fair --rounds 1    ten jobs of one tenant among a million of another

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Work {
    /// Measurements to make [default: command,lines,start]
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    parts: Vec<Part>,

    /// Number of rounds
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Number of concurrent workers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    procs: u32,

    /// Number of jobs per round, for `command`
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    commands: u32,

    /// Number of jobs per round, for `lines`
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    lines: u32,

    /// Number of jobs pushed one by one while `sexton work` waits for jobs, for `start`
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    starts: u32,

    /// Number of waiting jobs, for `drain`
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    drain: u32,

    /// Number of jobs of the tenant with many jobs, for `fair`
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    fair: u32,

    /// Python interpreter with the modules rq, redis and greenstalk; comparisons that need a missing module are left out
    #[arg(long, value_name = "PROGRAM", default_value = PYTHON)]
    python: String,

    #[command(flatten)]
    site: Site,
}

/// A group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A command for each job
    Command,
    /// Persistent workers
    Lines,
    /// The time from the push of a job to the start of its command
    Start,
    /// Very many waiting jobs, processed until none is left
    Drain,
    /// Ten jobs of one tenant among very many of another
    Fair,
}

impl Work {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let own = self.site.version()?;
        let mut notes = self.site.remarks([])?;
        notes.extend(self.site.in_memory("the figures include no disk time"));
        let mut servers = vec![("sexton", None, Vec::new())];
        for peer in [Loop::Rq, Loop::Greenstalk] {
            match installed(peer, &self.python) {
                Ok(()) => servers.push((peer.name(), Some(peer), Vec::new())),
                Err(why) => notes.push(format!("{} is left out: {why}", peer.name())),
            }
        }
        let attic = directory(&self.site.root())?;
        let sync = fdatasync::median_us(attic.path())?;
        notes.push(format!("a bare fdatasync takes {sync:.0} us here"));
        let measuring = Measuring {
            work: &self,
            grounds: Grounds { site: &self.site, attic: attic.path() },
            stop,
        };
        for number in 1..=self.rounds {
            for (name, peer, rounds) in &mut servers {
                show(&format!("round {number} of {}, {name}", self.rounds));
                rounds.push(match peer {
                    None => measuring.own()?,
                    Some(peer) => measuring.peers(*peer)?,
                });
            }
        }
        show("");
        let servers = servers.into_iter();
        let table =
            Limits::new(self.rows(), servers.map(|(name, _, rounds)| (name, rounds)).collect());
        table.report(&own, &notes, self.rounds, self.site.json)
    }

    fn wants(&self, part: Part) -> bool {
        if self.parts.is_empty() {
            !matches!(part, Part::Drain | Part::Fair)
        } else {
            self.parts.contains(&part)
        }
    }

    fn rows(&self) -> Vec<Row> {
        let many = self.drain;
        let rows: [(Part, &str, String, &str, Option<Limit>); 13] = [
            (Part::Command, "command", "a command or a fork for each job".to_owned(), "/s", None),
            (
                Part::Command,
                "command_cpu",
                "coordinator's processor time per job".to_owned(),
                "us",
                None,
            ),
            (Part::Lines, "lines", "persistent workers".to_owned(), "/s", None),
            (
                Part::Lines,
                "lines_cpu",
                "coordinator's processor time per job".to_owned(),
                "us",
                None,
            ),
            (
                Part::Start,
                "start_p50",
                "push to start of the job's command, p50".to_owned(),
                "ms",
                None,
            ),
            (Part::Start, "start_p99", "the same, p99".to_owned(), "ms", None),
            (Part::Drain, "drain", format!("{many} waiting jobs until all are done"), "/s", None),
            (
                Part::Drain,
                "drain_cpu",
                "coordinator's processor time per job".to_owned(),
                "us",
                None,
            ),
            (
                Part::Drain,
                "memory_full",
                "coordinator's memory, all jobs waiting".to_owned(),
                "MB",
                None,
            ),
            (Part::Drain, "memory_half", "the same, half of the jobs done".to_owned(), "MB", None),
            (Part::Drain, "memory_empty", "the same, all jobs done".to_owned(), "MB", None),
            (
                Part::Drain,
                "memory_share",
                "memory, all jobs done / all jobs waiting".to_owned(),
                "times",
                Some(Limit::Below(1.0)),
            ),
            (
                Part::Fair,
                "fair",
                // `Claims::largest_wait` defines this figure.
                format!("claims up to the k-th of {FEW} among {}, / k", self.fair),
                "times",
                Some(Limit::AtMost(2.0)),
            ),
        ];
        let wanted = rows.into_iter().filter(|row| self.wants(row.0));
        wanted.map(|(_, name, words, unit, limit)| Row::new(name, words, unit, limit)).collect()
    }
}

/// The state shared by all rounds of a measurement.
struct Measuring<'a> {
    work: &'a Work,
    grounds: Grounds<'a>,
    stop: &'a Stop,
}

impl Measuring<'_> {
    fn own(&self) -> Result<Round, Failure> {
        let mut round = Round::new();
        let true_of = ["true"].map(str::to_owned).to_vec();
        let kept = [&self.work.python, "-c", LINES].map(str::to_owned).to_vec();
        if self.work.wants(Part::Command) {
            let jobs = self.work.commands;
            let (rate, cpu) = self.worked_on(jobs, &[], &true_of)?;
            round.insert("command", rate);
            round.insert("command_cpu", cpu);
        }
        if self.work.wants(Part::Lines) {
            let (rate, cpu) = self.worked_on(self.work.lines, &["--lines"], &kept)?;
            round.insert("lines", rate);
            round.insert("lines_cpu", cpu);
        }
        if self.work.wants(Part::Start) {
            let starts = self.starts()?;
            round.insert("start_p50", starts.quantile_us(0.5) / 1000.0);
            round.insert("start_p99", starts.quantile_us(0.99) / 1000.0);
        }
        if self.work.wants(Part::Drain) {
            self.drained(&mut round, &kept)?;
        }
        if self.work.wants(Part::Fair) {
            round.insert("fair", self.fair(&kept)?);
        }
        Ok(round)
    }

    fn peers(&self, peer: Loop) -> Result<Round, Failure> {
        let mut round = Round::new();
        let (part, row, jobs) = match peer {
            Loop::Rq => (Part::Command, "command", self.work.commands),
            Loop::Greenstalk => (Part::Lines, "lines", self.work.lines),
        };
        if self.work.wants(part) {
            let took =
                peer.measure(&self.work.python, (self.work.procs, jobs), self.grounds.site)?;
            round.insert(row, rate(jobs, took));
        }
        Ok(round)
    }

    fn start(&self) -> Result<Coordinator, Failure> {
        let coordinator = Coordinator::start(None, self.grounds)?;
        coordinator.start_keeper()?;
        Ok(coordinator)
    }

    /// Starts `sexton work` with the flags common to all measurements, the further `flags`, and the command for each job.
    fn runner(&self, data: &Path, flags: &[&str], command: &[String]) -> Result<Child, Failure> {
        let mut runner = Command::new(self.grounds.site.program()?);
        runner.args(["work", "bench", "--procs"]);
        runner.arg(self.work.procs.to_string()).args(flags);
        runner.arg("--data").arg(data).arg("--").args(command);
        runner.env_remove("SEXTON_PROCESS_ID");
        runner.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        runner.spawn().map_err(Failure::to("run sexton work"))
    }

    /// Pushes `jobs` jobs, and runs `sexton work` until all of them are done. Returns the number of jobs done per second, and the
    /// coordinator's processor time per job in microseconds.
    fn worked_on(
        &self,
        jobs: u32,
        flags: &[&str],
        command: &[String],
    ) -> Result<(f64, f64), Failure> {
        let coordinator = self.start()?;
        push(&coordinator, jobs, self.stop)?;
        let (before, began) = (coordinator.processor_time()?, now());
        ended(self.runner(coordinator.data(), flags, command)?)?;
        let took = now() - began;
        let cpu = coordinator.processor_time()?.saturating_sub(before);
        if waiting(&coordinator)? > 0 {
            return Err(Failure::new("not all jobs were processed"));
        }
        Ok((rate(jobs, took), cpu.as_secs_f64() * 1e6 / f64::from(jobs)))
    }

    /// Measures the time from a job's push to the first action of its command, while `sexton work` waits for jobs.
    fn starts(&self) -> Result<Latencies, Failure> {
        let folder = directory(&self.grounds.site.root())?;
        let mut pulse = Fifo::create(&folder.path().join("pulse"))?;
        let coordinator = self.start()?;
        let words = format!("echo $$ >{}", pulse.path().display());
        let says = ["sh", "-c", &words].map(str::to_owned);
        let mut runner = self.runner(coordinator.data(), &["--wait"], &says)?;
        let measured = (0..=self.work.starts).map(|_| {
            self.stop.check()?;
            let began = now();
            push(&coordinator, 1, self.stop)?;
            pulse.next_pid()?;
            Ok(now() - began)
        });
        let measured = measured.collect::<Result<Vec<Duration>, Failure>>();
        let killed = runner.kill().and_then(|()| runner.wait());
        killed.map_err(Failure::to("end sexton work"))?;
        let mut latencies = Latencies::default();
        // The first push is not counted, since the runner may still be starting.
        for latency in measured?.into_iter().skip(1) {
            latencies.note(latency);
        }
        Ok(latencies)
    }

    /// Adds a few jobs of one tenant while `sexton work` processes very many of another. Returns the largest wait of these few jobs (see
    /// [`Claims::largest_wait`]).
    fn fair(&self, command: &[String]) -> Result<f64, Failure> {
        let coordinator = self.start()?;
        push_to(BIG, &coordinator, self.work.fair, self.stop)?;
        let claims = Claims::listen(&coordinator)?;
        let flags = ["--any-ready", "--lines"];
        let mut runner = self.runner(coordinator.data(), &flags, command)?;
        let waited = claims.begun().and_then(|()| {
            push_to(SMALL, &coordinator, FEW, self.stop)?;
            claims.largest_wait()
        });
        let killed = runner.kill().and_then(|()| runner.wait());
        killed.map_err(Failure::to("end sexton work"))?;
        waited
    }

    /// Processes very many jobs. Adds to `round` the rate, the coordinator's processor time per job, and its memory before, halfway and
    /// afterwards.
    fn drained(&self, round: &mut Round, command: &[String]) -> Result<(), Failure> {
        let coordinator = self.start()?;
        let jobs = self.work.drain;
        push(&coordinator, jobs, self.stop)?;
        let memory = || Ok::<_, Failure>(as_float(coordinator.resident()?) / 1e6);
        let full = memory()?;
        let (before, began) = (coordinator.processor_time()?, now());
        let half = (jobs / 2).to_string();
        ended(self.runner(coordinator.data(), &["--lines", "--max-jobs", &half], command)?)?;
        let middle = memory()?;
        ended(self.runner(coordinator.data(), &["--lines"], command)?)?;
        let took = now() - began;
        let cpu = coordinator.processor_time()?.saturating_sub(before);
        let empty = memory()?;
        round.insert("drain", rate(jobs, took));
        round.insert("drain_cpu", cpu.as_secs_f64() * 1e6 / f64::from(jobs));
        round.insert("memory_full", full);
        round.insert("memory_half", middle);
        round.insert("memory_empty", empty);
        round.insert("memory_share", empty / full);
        Ok(())
    }
}

/// Adds jobs to the measured queue; all are on disk when this returns.
fn push(coordinator: &Coordinator, jobs: u32, stop: &Stop) -> Result<(), Failure> {
    push_to("bench", coordinator, jobs, stop)
}

/// Adds jobs to a queue; all are on disk when this returns.
fn push_to(queue: &str, coordinator: &Coordinator, jobs: u32, stop: &Stop) -> Result<(), Failure> {
    let mut stream = coordinator.connect()?;
    let mut left = jobs;
    while left > 0 {
        stop.check()?;
        let now = left.min(PUSHED);
        let pushed = vec![json!({ "queue": queue, "body": "x" }); now as usize];
        ask(&mut stream, "/v1/queues/push-all", Some(&json!({ "jobs": pushed })))?;
        left -= now;
    }
    Ok(())
}

/// Returns the number of jobs not yet processed.
fn waiting(coordinator: &Coordinator) -> Result<u64, Failure> {
    let known = coordinator.ask("/v1/queues", None)?;
    let queues = known.get("queues").and_then(Value::as_array);
    // An empty queue is not listed.
    let jobs = queues.into_iter().flatten();
    Ok(jobs.filter_map(|queue| queue.get("total")?.as_u64()).sum())
}

/// Waits until `sexton work` exits by itself. Returns an error if its exit status is not 0.
fn ended(mut runner: Child) -> Result<(), Failure> {
    let status = runner.wait().map_err(Failure::to("wait for sexton work"))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("sexton work ended with {status}")))
    }
}

fn rate(jobs: u32, took: Duration) -> f64 {
    f64::from(jobs) / took.as_secs_f64()
}
