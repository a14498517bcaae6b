//! `sexton-bench recovery`: measures a large table of locks, its memory, and its recovery after kill -9.
//!
//! In a round, each contestant goes through three steps, each in a fresh directory, while no other server runs:
//!
//! 1. A few locks are taken and touched (renewed).
//! 2. All locks are taken, the server is killed and restarted, and the locks are touched.
//! 3. All locks are taken, a checkpoint is made, the server is killed and restarted, and another checkpoint is made under load.

use crate::course::parse_seconds;
use crate::failure::Failure;
use crate::figures::{as_float, grouped};
use crate::held::{Paced, Taker, Toucher};
use crate::interrupt::Stop;
use crate::load::{Load, Measured, now};
use crate::output::{document, heading, print, show};
use crate::peer::{self, Peer};
use crate::question::{Checkpoints, await_served};
use crate::rebuild;
use crate::site::Site;
use crate::table::{Round, Row, Table};
use clap::Args;
use serde_json::json;
use std::fs::File;
use std::rc::Rc;
use std::time::Duration;

/// The number of locks in a small table.
const FEW: u32 = 1000;

/// The names of the rows for cycles without a checkpoint: p50, p99, p99.9 and the longest.
const QUIET: [&str; 4] = ["cycle_p50", "cycle_p99", "cycle_p999", "cycle_max"];

/// The names of the rows for the same figures during a checkpoint.
const DURING: [&str; 4] = [
    "checkpoint_cycle_p50",
    "checkpoint_cycle_p99",
    "checkpoint_cycle_p999",
    "checkpoint_cycle_max",
];

/// The number of connections that take the locks.
const TAKERS: u32 = 16;

/// The number of connections that touch the locks.
const TOUCHERS: u32 = 50;

/// The number of connections that acquire and release locks of their own. There are many slow connections rather than a few quick ones, so
/// that a disk that takes milliseconds to sync does not delay their next cycles.
const PACED: u32 = 128;

/// The interval between the beginnings of two cycles of one of these connections.
const PERIOD: Duration = Duration::from_millis(32);

/// Measure a large table of locks: its memory, its recovery after kill -9, and the cost of a checkpoint.
///
/// Locks with keys and owners of 16 bytes are taken over TCP, and stay held. Both sexton and Redis have everything on disk before they
/// answer; Redis' checkpoint is a rewrite of its append-only file. A restart is timed from the start of the program to the first answer
/// that counts every lock; at that time the files are in the page cache.
///
/// A touch renews a random held lock, over 50 connections. A cycle acquires and releases a lock, 4000 times a second; a cycle that the
/// server held up is timed from when it was due. The servers are measured in turn, one running at a time. The ratio is sexton's figure
/// divided by Redis', taken in each round: its median, minimum and maximum are printed.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench recovery                             a million locks, three rounds, about two minutes
  sexton-bench recovery --locks 100000 --rounds 5   smaller, more rounds
  sexton-bench recovery --dir /var/lib --json       data on that file system; figures as JSON
  sexton-bench recovery --dir /dev/shm              without the disk

See docs/benchmarks.md for what each row means.")]
pub(crate) struct Recovery {
    /// Number of held locks
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=3_900_000))]
    locks: u32,

    /// Number of rounds
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// How long touches and cycles are measured, after an uncounted warm-up of half that time
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = parse_seconds)]
    seconds: Duration,

    #[command(flatten)]
    site: Site,
}

/// A function that starts a contestant; the flag selects whether the contestant stores its data on disk.
type Start = fn(bool, &Site) -> Result<Peer, Failure>;

/// The measurement of one contestant in one round.
struct Act<'a> {
    recovery: &'a Recovery,
    stop: &'a Stop,
    /// The contestant and the round, for progress messages.
    title: String,
    round: Round,
}

impl Recovery {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let site = &self.site;
        let (own, version) = (site.version()?, peer::redis_version());
        let mut notes = site.remarks([&version])?;
        let version = version.ok();
        notes.extend(site.in_memory("the figures include no disk time"));
        let mut contestants = vec![("sexton", Peer::sexton as Start)];
        if version.is_some() {
            contestants.push(("redis", Peer::redis));
        }
        let servers = self.play(&contestants, stop)?;
        show("");
        let checkpoints = |round: &Round| round.contains_key("checkpoint");
        let mut rounds = servers.iter().flat_map(|(_, rounds)| rounds);
        if !rounds.any(checkpoints) {
            notes.push(
                "sexton makes no checkpoint on request: the rows for checkpoints are omitted"
                    .to_owned(),
            );
        }
        let table = Table::new(rows(self.locks), servers);
        if site.json {
            return document(&json!({
                "sexton": own,
                "redis": version,
                "notes": notes,
                "locks": self.locks,
                "rounds": self.rounds,
                "seconds": self.seconds.as_secs_f64(),
                "rows": table.document(),
            }));
        }
        print(&heading(&own, &[("Redis", version.as_deref())], &notes))?;
        print(&table.lines())
    }

    /// Measures the rounds of each contestant.
    fn play(
        &self,
        contestants: &[(&'static str, Start)],
        stop: &Stop,
    ) -> Result<Vec<(&'static str, Vec<Round>)>, Failure> {
        let mut servers: Vec<_> = contestants.iter().map(|it| (it.0, Vec::new())).collect();
        for round in 1..=self.rounds {
            for ((name, start), (_, rounds)) in contestants.iter().zip(&mut servers) {
                let mut act = Act {
                    recovery: self,
                    stop,
                    title: format!("round {round} of {}, {name}", self.rounds),
                    round: Round::new(),
                };
                act.play(|| start(true, &self.site))?;
                if *name == "sexton" {
                    act.show("panics");
                    let directory = peer::directory(&self.site.root())?;
                    act.round.extend(rebuild::measure(directory.path(), self.locks, stop)?);
                }
                rounds.push(act.round);
            }
        }
        Ok(servers)
    }
}

/// Returns the rows of the table for this number of locks.
fn rows(locks: u32) -> Vec<Row> {
    let few = grouped(locks.min(FEW).into());
    let all = grouped(locks.into());
    let memory = "memory per lock after that";
    let restart = "kill -9 after that, until all are served";
    let panic = "panic in commit, until locks are served";
    let (slower, longer) =
        ("the second divided by the first", "p99.9 minus p99.9 without a checkpoint");
    let mut rows = vec![
        Row::new("load", format!("take {all} locks"), "ms"),
        Row::new("memory_loaded", memory, "B"),
        Row::new("restart_loaded", restart, "ms"),
        Row::new("panic_loaded", panic, "ms"),
        Row::new("checkpoint", "checkpoint", "ms"),
        Row::new("memory_checkpointed", memory, "B"),
        Row::new("restart_checkpointed", restart, "ms"),
        Row::new("panic_checkpointed", panic, "ms"),
        Row::new("panic_others", "longest wait of other clients meanwhile", "ms"),
        Row::new("touch_few", format!("touch one of {few} held"), "us"),
        Row::new("touch_all", format!("touch one of {all} held"), "us"),
        Row::new("touch_slower", slower, "times"),
    ];
    for (names, words) in [(QUIET, "cycle"), (DURING, "cycle during a checkpoint")] {
        let row = |(name, share)| Row::new(name, format!("{words}, {share}"), "us");
        rows.extend(names.into_iter().zip(["p50", "p99", "p99.9", "longest"]).map(row));
    }
    rows.push(Row::new("checkpoint_cycle_p999_more", longer, "us").difference());
    rows
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
        self.weigh("memory_loaded", &peer, idle)?;
        self.restart("restart_loaded", &mut peer)?;
        let touch_all = self.touch(&peer, all)?;
        self.round.insert("touch_few", touch_few);
        self.round.insert("touch_all", touch_all);
        self.round.insert("touch_slower", touch_all / touch_few);
        drop(peer);

        let mut peer = start()?;
        let idle = peer.resident()?;
        let again = self.take(&peer, all)?;
        // The locks are taken twice, so the mean is reported.
        self.round.insert("load", ms((load + again) / 2));
        self.show("a checkpoint");
        let checkpoints = Checkpoints::of(&peer);
        let made = checkpoints.make(self.stop)?;
        if let Some(took) = made {
            self.round.insert("checkpoint", ms(took));
            self.weigh("memory_checkpointed", &peer, idle)?;
            self.restart("restart_checkpointed", &mut peer)?;
        }
        self.settle(&peer)?;
        self.show("cycles");
        let span = self.recovery.seconds;
        let quiet = self.cycle(&peer, |counted| counted < span)?;
        self.note(QUIET, &quiet);
        if made.is_some() {
            self.show("cycles during a checkpoint");
            let during = self.cycle_during(&peer, checkpoints)?;
            self.note(DURING, &during);
            let more = during.latencies.quantile_us(0.999) - quiet.latencies.quantile_us(0.999);
            self.round.insert("checkpoint_cycle_p999_more", more);
        }
        Ok(())
    }

    fn show(&self, what: &str) {
        show(&format!("{}: {what}", self.title));
    }

    /// Takes `locks` locks, and returns how long that took.
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

    /// Records the average number of bytes that each lock has added to the server's memory, which was `idle` bytes without locks.
    fn weigh(&mut self, row: &'static str, peer: &Peer, idle: u64) -> Result<(), Failure> {
        let grown = peer.resident()?.saturating_sub(idle);
        let each = as_float(grown) / f64::from(self.recovery.locks);
        self.round.insert(row, each);
        Ok(())
    }

    /// Waits until the file system has written all dirty pages, since writing them would disturb the next measurement.
    fn settle(&self, peer: &Peer) -> Result<(), Failure> {
        self.show("settling");
        File::open(peer.data())
            .and_then(|folder| Ok(rustix::fs::syncfs(folder)?))
            .map_err(Failure::to("sync the file system"))
    }

    /// Kills and restarts the server, and records how long it takes until it serves everything again.
    fn restart(&mut self, row: &'static str, peer: &mut Peer) -> Result<(), Failure> {
        self.show("a restart");
        peer.kill()?;
        let began = now();
        peer.start_again()?;
        await_served(peer, self.recovery.locks, self.stop)?;
        self.round.insert(row, ms(now() - began));
        peer.teach()
    }

    /// Returns the average time from one touch to the next over all connections, in microseconds, while `locks` locks are held.
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

    /// Measures cycles at a fixed pace as long as `goes_on` returns true.
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
        Load::connect(peer.address, protocol.greeting(), clients)?.resting().measure_while(
            self.recovery.seconds / 2,
            self.stop,
            goes_on,
        )
    }

    /// Measures cycles while a checkpoint is made.
    fn cycle_during(&self, peer: &Peer, checkpoints: Checkpoints) -> Result<Measured, Failure> {
        let (begin, begun) = std::sync::mpsc::channel();
        let stop = self.stop.clone();
        let thread = std::thread::Builder::new()
            .name("sexton-bench-checkpoint".to_owned())
            .spawn(move || match begun.recv() {
                Ok(()) => checkpoints.make(&stop),
                // The measurement failed before the checkpoint was due.
                Err(_) => Ok(None),
            })
            .map_err(Failure::to("start a thread"))?;
        let mut begin = Some(begin);
        let measured = self.cycle(peer, |_| {
            let asked = begin.take().is_none_or(|begin| begin.send(()).is_ok());
            asked && !thread.is_finished()
        });
        let measured = measured?;
        match thread.join() {
            Ok(made) => made.map(|_| measured),
            Err(_) => Err(Failure::new("the thread that requested a checkpoint panicked")),
        }
    }

    fn note(&mut self, rows: [&'static str; 4], measured: &Measured) {
        for (row, share) in rows.into_iter().zip([0.5, 0.99, 0.999, 1.0]) {
            self.round.insert(row, measured.latencies.quantile_us(share));
        }
    }
}
