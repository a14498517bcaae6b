//! `sexton bench recovery`: a large table of locks, what it weighs, and how it comes back after kill -9.
//!
//! Each contestant goes through three acts a round, alone, each on a fresh directory: a few locks touched; all taken,
//! killed, and touched; all taken, a checkpoint, killed, and another checkpoint under load.

use crate::bench::course::{in_memory, parse_seconds};
use crate::bench::figures::as_float;
use crate::bench::held::{Paced, Taker, Toucher};
use crate::bench::interrupt::Stop;
use crate::bench::load::{Load, Measured, now};
use crate::bench::locks::{print, show};
use crate::bench::peer::{self, Peer};
use crate::bench::question::{Checkpoints, await_served};
use crate::bench::rebuild;
use crate::bench::recovery_row::{self, FEW, Round, Row};
use crate::report::Failure;
use clap::Args;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Connections that take the locks.
const TAKERS: u32 = 16;

/// Connections that touch them.
const TOUCHERS: u32 = 50;

/// Connections that go about locks of their own, and how often each does. Many that are slow rather than few that are
/// quick: a disk that takes milliseconds to sync must not be what holds them up for good.
const PACED: u32 = 128;
const PERIOD: Duration = Duration::from_millis(32);

/// Measure a large table of locks: what it weighs, how it comes back after kill -9, what a checkpoint costs.
///
/// Locks with keys and owners of 16 bytes are taken over TCP, and stay held. Everything is on disk before the answer,
/// in sexton and in Redis, whose checkpoint is a rewrite of its append-only file. A restart counts from the start of
/// the program until the first answer that counts every lock; the files are in the page cache then.
///
/// A touch renews a random held lock, at 50 connections. A cycle acquires and releases a lock, 4000 times a second,
/// and one that the server held up counts from when it was due. Servers are measured in turn, alone on the machine.
/// The ratio is sexton's figure for each of Redis', round by round: its median, smallest and largest.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton bench recovery                             a million locks, three rounds, about two minutes
  sexton bench recovery --locks 100000 --rounds 5   less to hold, more rounds
  sexton bench recovery --dir /var/lib --json       data on that file system; figures for programs
  sexton bench recovery --dir /dev/shm              without the disk, whatever else it is busy with

docs/benchmarks.md says what each row means.")]
pub(crate) struct Recovery {
    /// Locks held
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=3_900_000))]
    locks: u32,

    /// How often everything is measured
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// How long touches and cycles are measured, after half as long that does not count
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = parse_seconds)]
    seconds: Duration,

    /// Where data directories are made, and removed [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Figures for programs
    #[arg(long)]
    json: bool,
}

/// Starts a contestant, on disk or not, with its data below a directory.
type Start = fn(bool, &Path) -> Result<Peer, Failure>;

/// One contestant's round, while it is measured.
struct Act<'a> {
    recovery: &'a Recovery,
    stop: &'a Stop,
    /// Who, and which round, for people.
    title: String,
    round: Round,
}

impl Recovery {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        crate::serve::raise_descriptor_limit();
        let root = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let version = peer::redis_version();
        let mut notes = Vec::new();
        if let Err(why) = &version {
            notes.push(format!("{why}: Redis is left out, sexton stands alone"));
        }
        notes.extend(in_memory(&root, "the disk is left out"));
        let mut contestants = vec![("sexton", Peer::sexton as Start)];
        if version.is_ok() {
            contestants.push(("redis", Peer::redis));
        }
        let [sexton, redis] = self.play(&contestants, &root, stop)?;
        show("");
        if sexton
            .iter()
            .all(|round| !round.contains_key(&Row::Checkpoint))
        {
            notes.push(
                "this sexton makes no checkpoint when it is asked: those rows are not available"
                    .to_owned(),
            );
        }
        let lines = recovery_row::lines(self.locks, &sexton, &redis);
        let own = env!("CARGO_PKG_VERSION");
        if self.json {
            let json = serde_json::json!({
                "sexton": own,
                "redis": version.ok(),
                "notes": notes,
                "locks": self.locks,
                "rounds": self.rounds,
                "seconds": self.seconds.as_secs_f64(),
                "rows": lines,
            });
            return print(&format!("{json:#}\n"));
        }
        let mut head = match &version {
            Ok(version) => format!("sexton {own} beside Redis {version}\n"),
            Err(_) => format!("sexton {own}\n"),
        };
        for note in notes {
            head = format!("{head}{note}\n");
        }
        print(&format!(
            "{head}\n{}",
            recovery_row::table(&lines, version.is_ok())
        ))
    }

    /// The rounds of each contestant.
    fn play(
        &self,
        contestants: &[(&str, Start)],
        root: &Path,
        stop: &Stop,
    ) -> Result<[Vec<Round>; 2], Failure> {
        let mut rounds = [Vec::new(), Vec::new()];
        for round in 1..=self.rounds {
            for ((name, start), rounds) in contestants.iter().zip(&mut rounds) {
                let mut act = Act {
                    recovery: self,
                    stop,
                    title: format!("round {round} of {}, {name}", self.rounds),
                    round: Round::new(),
                };
                act.play(|| start(true, root))?;
                if *name == "sexton" {
                    act.show("panics");
                    let directory = peer::directory(root)?;
                    act.round
                        .extend(rebuild::measure(directory.path(), self.locks, stop)?);
                }
                rounds.push(act.round);
            }
        }
        Ok(rounds)
    }
}

pub(crate) fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

impl Act<'_> {
    fn play(&mut self, start: impl Fn() -> Result<Peer, Failure>) -> Result<(), Failure> {
        let all = self.recovery.locks;
        let few = all.min(FEW);
        let peer = start()?;
        self.take(&peer, few)?;
        let touch_few = self.touch(&peer, few)?;
        drop(peer);

        let mut peer = start()?;
        let idle = peer.resident()?;
        let load = self.take(&peer, all)?;
        self.weigh(Row::MemoryLoaded, &peer, idle)?;
        self.restart(Row::RestartLoaded, &mut peer)?;
        let touch_all = self.touch(&peer, all)?;
        self.round.insert(Row::TouchFew, touch_few);
        self.round.insert(Row::TouchAll, touch_all);
        self.round.insert(Row::TouchSlower, touch_all / touch_few);
        drop(peer);

        let mut peer = start()?;
        let idle = peer.resident()?;
        let again = self.take(&peer, all)?;
        // Taken twice, so what is told is the mean.
        self.round.insert(Row::Load, ms((load + again) / 2));
        self.show("a checkpoint");
        let checkpoints = Checkpoints::of(&peer);
        let made = checkpoints.make(self.stop)?;
        if let Some(took) = made {
            self.round.insert(Row::Checkpoint, ms(took));
            self.weigh(Row::MemoryCheckpointed, &peer, idle)?;
            self.restart(Row::RestartCheckpointed, &mut peer)?;
        }
        self.settle(&peer)?;
        self.show("cycles");
        let span = self.recovery.seconds;
        let quiet = self.cycle(&peer, |counted| counted < span)?;
        self.note(Row::QUIET, &quiet);
        if made.is_some() {
            self.show("cycles during a checkpoint");
            let during = self.cycle_during(&peer, checkpoints)?;
            self.note(Row::DURING, &during);
            let more = during.latencies.quantile_us(0.999) - quiet.latencies.quantile_us(0.999);
            self.round.insert(Row::CheckpointCycleP999More, more);
        }
        Ok(())
    }

    fn show(&self, what: &str) {
        show(&format!("{}: {what}", self.title));
    }

    /// Takes so many locks; how long that took.
    fn take(&self, peer: &Peer, locks: u32) -> Result<Duration, Failure> {
        self.show(&format!("taking {locks} locks"));
        let protocol = Rc::new(peer.protocol.clone());
        let share = locks.div_ceil(TAKERS);
        let clients = (0..TAKERS).map(|at| {
            let range = (share * at).min(locks)..(share * (at + 1)).min(locks);
            Taker::new(Rc::clone(&protocol), range)
        });
        Load::connect(peer.address, protocol.greeting(), clients)?.complete(self.stop)
    }

    /// Notes what each lock adds to the server's memory.
    fn weigh(&mut self, row: Row, peer: &Peer, idle: u64) -> Result<(), Failure> {
        let grown = peer.resident()?.saturating_sub(idle);
        let each = as_float(grown) / f64::from(self.recovery.locks);
        self.round.insert(row, each);
        Ok(())
    }

    /// Waits until the system has written what it still owes the disk, which is not the next measurement's.
    fn settle(&self, peer: &Peer) -> Result<(), Failure> {
        self.show("settling");
        File::open(peer.data())
            .and_then(|folder| Ok(rustix::fs::syncfs(folder)?))
            .map_err(|error| Failure::unreachable(format!("failed to sync: {error}")))
    }

    /// Kills the server, and notes how long it takes until it serves everything again.
    fn restart(&mut self, row: Row, peer: &mut Peer) -> Result<(), Failure> {
        self.show("a restart");
        peer.kill()?;
        let began = now();
        peer.start_again()?;
        await_served(peer, self.recovery.locks, self.stop)?;
        self.round.insert(row, ms(now() - began));
        peer.teach()
    }

    /// Microseconds from one touch to the next, all connections together, when so many locks are held.
    fn touch(&self, peer: &Peer, locks: u32) -> Result<f64, Failure> {
        self.settle(peer)?;
        self.show(&format!("touching {locks} locks"));
        let protocol = Rc::new(peer.protocol.clone());
        let clients = (0..TOUCHERS).map(|at| Toucher::new(Rc::clone(&protocol), at, locks, now()));
        let span = self.recovery.seconds;
        let load = Load::connect(peer.address, protocol.greeting(), clients)?;
        let measured = load.measure(span / 2, span, self.stop)?;
        let touched = as_float(measured.done.iter().sum());
        Ok(measured.span.as_secs_f64() * 1e6 / touched)
    }

    /// Cycles at a fixed pace, counted as long as this holds.
    fn cycle(
        &self,
        peer: &Peer,
        goes_on: impl FnMut(Duration) -> bool,
    ) -> Result<Measured, Failure> {
        let protocol = Rc::new(peer.protocol.clone());
        let begin = now();
        let clients = (0..PACED).map(|at| {
            let due = begin + PERIOD * at / PACED;
            Paced::new(Rc::clone(&protocol), at, PERIOD, due)
        });
        Load::connect(peer.address, protocol.greeting(), clients)?
            .resting()
            .measure_while(self.recovery.seconds / 2, self.stop, goes_on)
    }

    /// Cycles for as long as a checkpoint takes.
    fn cycle_during(&self, peer: &Peer, checkpoints: Checkpoints) -> Result<Measured, Failure> {
        let (begin, begun) = std::sync::mpsc::channel();
        let stop = self.stop.clone();
        let thread = std::thread::Builder::new()
            .name("sexton-bench-checkpoint".to_owned())
            .spawn(move || match begun.recv() {
                Ok(()) => checkpoints.make(&stop),
                // There was nothing to go with it.
                Err(_) => Ok(None),
            })
            .map_err(|error| Failure::unreachable(format!("failed to start: {error}")))?;
        let mut begin = Some(begin);
        let measured = self.cycle(peer, |_| {
            let asked = begin.take().is_none_or(|begin| begin.send(()).is_ok());
            asked && !thread.is_finished()
        });
        let measured = measured?;
        match thread.join() {
            Ok(made) => made.map(|_| measured),
            Err(_) => Err(Failure::found(
                "the thread that asked for a checkpoint panicked",
            )),
        }
    }

    fn note(&mut self, rows: [Row; 4], measured: &Measured) {
        for (row, share) in rows.into_iter().zip([0.5, 0.99, 0.999, 1.0]) {
            self.round
                .insert(row, measured.latencies.quantile_us(share));
        }
    }
}
