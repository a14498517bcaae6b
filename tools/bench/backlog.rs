//! `sexton bench backlog`: a queue with very many waiting jobs, what they weigh, what they cost those who work on it, and
//! how they come back after kill -9.
//!
//! Each contestant goes through its acts alone, each on a fresh directory.

use crate::bench::course::{in_memory, parse_seconds};
use crate::bench::figures::{Spread, as_float, grouped};
use crate::bench::interrupt::Stop;
use crate::bench::job::{Filler, Jobs, Speech, Work};
use crate::bench::load::{Load, now};
use crate::bench::locks::{print, show};
use crate::bench::peer::{self, Peer};
use crate::bench::question::{Checkpoints, await_served};
use crate::bench::recovery::ms;
use crate::report::Failure;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How many jobs are a few.
const FEW: u32 = 1000;

/// Connections that fill the queue, and that work on it.
const FILLERS: u32 = 16;
const WORKERS: u32 = 50;

const BODY_BYTES: usize = 64;

/// Measure a queue with very many waiting jobs: what they weigh, what they cost, how they come back after kill -9.
///
/// Jobs of 64 bytes are put over TCP, and wait. Everything is on disk before the answer in sexton, and in Redis with
/// appendfsync always, whose checkpoint is a rewrite of its append-only file. beanstalkd never syncs its log here (-F): it
/// would sync after each job, and take an hour. A restart counts from the start of the program until the first answer
/// that counts every job.
///
/// A cycle puts a job, reserves the oldest and deletes it, at 50 connections, while so many others wait. It is measured
/// right behind the restart. Servers are measured in turn, alone on the machine.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton bench backlog                       a million jobs, three rounds, about three minutes
  sexton bench backlog --jobs 100000 --json  less to hold; figures for programs
  sexton bench backlog --dir /dev/shm        without the disk, whatever else it is busy with

docs/benchmarks.md says how to read it.")]
pub(crate) struct Backlog {
    /// Jobs that wait
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=9_000_000))]
    jobs: u32,

    /// How often everything is measured
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// How long cycles are measured, after half as long that does not count: the checkpoint behind a restart is over then
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = parse_seconds)]
    seconds: Duration,

    /// Where data directories are made, and removed [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Figures for programs
    #[arg(long)]
    json: bool,
}

/// What is measured. Less is better in every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Row {
    Load,
    MemoryLoaded,
    RestartLoaded,
    Checkpoint,
    MemoryCheckpointed,
    RestartCheckpointed,
    CycleFew,
    CycleAll,
    CycleSlower,
}

impl Row {
    const ALL: [Self; 9] = [
        Self::Load,
        Self::MemoryLoaded,
        Self::RestartLoaded,
        Self::Checkpoint,
        Self::MemoryCheckpointed,
        Self::RestartCheckpointed,
        Self::CycleFew,
        Self::CycleAll,
        Self::CycleSlower,
    ];

    /// What it measures, and in which unit.
    fn words(self, jobs: u32) -> (String, &'static str) {
        let few = grouped(jobs.min(FEW).into());
        let jobs = grouped(jobs.into());
        match self {
            Self::Load => (format!("put {jobs} jobs"), "ms"),
            Self::MemoryLoaded | Self::MemoryCheckpointed => {
                ("memory a job, after that".to_owned(), "B")
            }
            Self::RestartLoaded | Self::RestartCheckpointed => {
                ("kill -9 after that, until all wait again".to_owned(), "ms")
            }
            Self::Checkpoint => ("checkpoint".to_owned(), "ms"),
            Self::CycleFew => (format!("cycle while {few} wait"), "us"),
            Self::CycleAll => (format!("cycle while {jobs} wait"), "us"),
            Self::CycleSlower => ("the second for the first".to_owned(), "times"),
        }
    }
}

/// Rows of one contestant in one round. What could not be measured is not in it.
type Round = BTreeMap<Row, f64>;

/// A server of jobs.
type Server = Peer<Speech>;

/// Starts a contestant, on disk or not, with its data below a directory.
type Start = fn(bool, &Path) -> Result<Server, Failure>;

impl Backlog {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        crate::serve::raise_descriptor_limit();
        let root = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let mut notes: Vec<String> = in_memory(&root, "the disk is left out")
            .into_iter()
            .collect();
        let mut contestants = vec![("sexton", Peer::sexton_for_jobs as Start)];
        let peers = [
            (
                "beanstalkd",
                peer::beanstalkd_version(),
                Peer::beanstalkd_unsynced as Start,
            ),
            ("redis lists", peer::redis_version(), Peer::redis_lists),
        ];
        let mut versions = BTreeMap::from([("sexton", env!("CARGO_PKG_VERSION").to_owned())]);
        for (name, version, start) in peers {
            match version {
                Ok(version) => {
                    versions.insert(name, version);
                    contestants.push((name, start));
                }
                Err(why) => notes.push(format!("{why}: it is left out")),
            }
        }
        let mut rounds: Vec<Vec<Round>> = contestants.iter().map(|_| Vec::new()).collect();
        for round in 1..=self.rounds {
            for ((name, start), rounds) in contestants.iter().zip(&mut rounds) {
                let title = format!("round {round} of {}, {name}", self.rounds);
                rounds.push(self.play(&title, || start(true, &root), stop)?);
            }
        }
        show("");
        let names: Vec<&str> = contestants.iter().map(|(name, _)| *name).collect();
        if self.json {
            let rows: Vec<_> = Row::ALL
                .iter()
                .map(|row| {
                    let spreads = rounds.iter().map(|rounds| spread(rounds, *row));
                    let of: BTreeMap<_, _> = names.iter().copied().zip(spreads).collect();
                    json!({"row": row, "unit": row.words(self.jobs).1, "of": of})
                })
                .collect();
            let json = json!({
                "versions": versions,
                "notes": notes,
                "jobs": self.jobs,
                "rounds": self.rounds,
                "seconds": self.seconds.as_secs_f64(),
                "rows": rows,
            });
            return print(&format!("{json:#}\n"));
        }
        let versions: Vec<String> = names
            .iter()
            .map(|name| format!("{name} {}", versions.get(name).map_or("", String::as_str)))
            .collect();
        let mut text = versions.join(", ") + "\n";
        for note in notes {
            text = format!("{text}{note}\n");
        }
        print(&format!("{text}\n{}", self.table(&names, &rounds)))
    }

    /// The table for people.
    fn table(&self, names: &[&str], rounds: &[Vec<Round>]) -> String {
        let line = |words: &str, unit: &str, cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:<30}")).collect();
            let line = format!("{words:<41} {unit:<5} {}", cells.join(" "));
            line.trim_end().to_owned() + "\n"
        };
        let heads = names.iter().map(|name| format!("{name:>10} (min-max)"));
        let mut table = line("less is better", "", heads.collect());
        for row in Row::ALL {
            let (words, unit) = row.words(self.jobs);
            let cells = rounds.iter().map(|rounds| match spread(rounds, row) {
                Some(Spread { median, min, max }) => {
                    let digits = if median < 100.0 { 2 } else { 0 };
                    format!("{median:>10.digits$} ({min:.digits$}-{max:.digits$})")
                }
                None => format!("{:>10}", "-"),
            });
            table.push_str(&line(&words, unit, cells.collect()));
        }
        table
    }

    fn play(
        &self,
        title: &str,
        start: impl Fn() -> Result<Server, Failure>,
        stop: &Stop,
    ) -> Result<Round, Failure> {
        let mut round = Round::new();
        let tell = |what: &str| show(&format!("{title}: {what}"));
        let peer = start()?;
        let few = self.jobs.min(FEW);
        fill(&peer, few, stop)?;
        tell("cycles while few wait");
        let cycle_few = self.cycle(&peer, stop)?;
        drop(peer);

        tell("putting jobs");
        let mut peer = start()?;
        let idle = peer.resident()?;
        let load = fill(&peer, self.jobs, stop)?;
        let weigh = |peer: &Server| -> Result<f64, Failure> {
            let grown = peer.resident()?.saturating_sub(idle);
            Ok(as_float(grown) / f64::from(self.jobs))
        };
        round.insert(Row::Load, ms(load));
        round.insert(Row::MemoryLoaded, weigh(&peer)?);
        tell("a restart");
        round.insert(Row::RestartLoaded, self.restart(&mut peer, stop)?);
        tell("cycles while all wait");
        let cycle_all = self.cycle(&peer, stop)?;
        round.insert(Row::CycleFew, cycle_few);
        round.insert(Row::CycleAll, cycle_all);
        round.insert(Row::CycleSlower, cycle_all / cycle_few);
        drop(peer);

        let mut peer = start()?;
        if !peer.is_sexton() && !peer.is_redis() {
            return Ok(round);
        }
        tell("putting jobs again");
        fill(&peer, self.jobs, stop)?;
        tell("a checkpoint");
        if let Some(took) = Checkpoints::of(&peer).make(stop)? {
            round.insert(Row::Checkpoint, ms(took));
            round.insert(Row::MemoryCheckpointed, weigh(&peer)?);
            tell("a restart");
            round.insert(Row::RestartCheckpointed, self.restart(&mut peer, stop)?);
        }
        Ok(round)
    }

    /// Kills the server; how long it takes until every job waits again, in milliseconds.
    fn restart(&self, peer: &mut Server, stop: &Stop) -> Result<f64, Failure> {
        peer.kill()?;
        let began = now();
        peer.start_again()?;
        await_served(peer, self.jobs, stop)?;
        Ok(ms(now() - began))
    }

    /// Microseconds from one cycle to the next, all connections together.
    fn cycle(&self, peer: &Server, stop: &Stop) -> Result<f64, Failure> {
        let how = (peer.protocol, Work::Cycles);
        let clients = (0..WORKERS).map(|at| Jobs::new(how, (at, 1), body(), now()));
        let load = Load::connect(peer.address, &[], clients)?;
        let measured = load.measure(self.seconds / 2, self.seconds, stop)?;
        let done = as_float(measured.done.iter().sum());
        Ok(measured.span.as_secs_f64() * 1e6 / done)
    }
}

fn body() -> Rc<[u8]> {
    [b'x'; BODY_BYTES].into()
}

/// Puts so many jobs; how long that took.
fn fill(peer: &Server, jobs: u32, stop: &Stop) -> Result<Duration, Failure> {
    let share = jobs.div_ceil(FILLERS);
    let clients = (0..FILLERS).map(|at| {
        let rest = jobs.saturating_sub(share * at);
        Filler::new(peer.protocol, rest.min(share), body())
    });
    Load::connect(peer.address, &[], clients)?.complete(stop)
}

/// The figures of a row; none where it could not be measured.
fn spread(rounds: &[Round], row: Row) -> Option<Spread> {
    let figures: Vec<f64> = rounds
        .iter()
        .filter_map(|round| round.get(&row).copied())
        .collect();
    (!figures.is_empty()).then(|| Spread::of(figures.into_iter()))
}
