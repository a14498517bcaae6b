//! `sexton-bench dispatch`: measures how long it takes until a task whose attempt failed can continue, for each failure mode of Wip
//! (the task engine that docs/tasks.md describes), and what tasks cost.

use crate::bed::{self, Bed, merge};
use crate::coordinator::{Grounds, signal};
use crate::failing::{CommandEnd, Written};
use crate::failure::Failure;
use crate::figures::as_float;
use crate::interrupt::Stop;
use crate::limits::{Limit, Limits, Row};
use crate::load::now;
use crate::modes::{Making, Mode, modes, table};
use crate::output::{document, heading, print, show};
use crate::peer::directory;
use crate::question::rest;
use crate::recovery::ms;
use crate::site::Site;
use crate::table::Round;
use clap::Args;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The number of threads of the only server, and so the maximum number of tasks that run at a time.
const THREADS: u32 = 16;

/// The pause between two kills of a keeper, and between two panics of an actor. The coordinator gives up on a keeper or an actor that fails
/// too often.
const APART: Duration = Duration::from_millis(2500);

/// The maximum number of faults of each kind that needs the pause [`APART`], and of attempts that exceed their time limit.
const APART_MAX: u32 = 10;

/// One in this many of the running commands is killed while the coordinator is down.
const DIES_EACH: usize = 10;

/// Measure tasks: the recovery time from each failure mode, and the cost of tasks.
///
/// The failure modes are those of Wip, the task engine that docs/tasks.md describes. A recovery begins when the failing process (or the
/// program that causes the fault) reads the clock as its last action, and ends when the event arrives that the thread is free and the task
/// can continue or has failed. Events are sent once they are on disk.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton-bench dispatch                          everything, about three minutes
  sexton-bench dispatch --runs 200 --rounds 0    recovery times alone
  sexton-bench dispatch --dir /var/tmp --json

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Dispatch {
    /// Number of faults of each kind
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    runs: u32,

    /// Number of tasks that run when the coordinator is killed
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=9000))]
    running: u32,

    /// Number of rounds for the figures other than recovery times
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1000))]
    rounds: u32,

    /// Number of tasks that are run to completion
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    tasks: u32,

    /// Number of waiting tasks when their memory is measured
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=900_000))]
    waiting: u32,

    /// Number of servers added to the inventory before the last measurement
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=9000))]
    servers: u32,

    #[command(flatten)]
    site: Site,
}

impl Dispatch {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let own = self.site.version()?;
        let mut notes = self.site.remarks([])?;
        notes.extend(self.site.in_memory("the figures include no disk time"));
        let root = self.site.root();
        let (attic, folder) = (directory(&root)?, directory(&root)?);
        let grounds = Grounds { site: &self.site, attic: attic.path() };
        let mut recovered = Vec::new();
        for mode in modes() {
            if self.runs > 0 {
                show(&format!("row {}: {}", mode.row, mode.words));
                let took = self.recover(&mode, grounds, stop)?;
                recovered.push((mode, took));
            }
        }
        let mut rounds = Vec::new();
        for round in 1..=self.rounds {
            show(&format!("round {round} of {}", self.rounds));
            rounds.push(self.figures(grounds, folder.path(), stop)?);
        }
        show("");
        let figures = Limits::new(self.rows(), vec![("sexton", rounds)]);
        if self.site.json {
            let modes = recovered.iter().map(|(mode, took)| mode.document(took));
            return document(&json!({
                "sexton": own,
                "notes": notes,
                "recovery": modes.collect::<Vec<_>>(),
                "rounds": self.rounds,
                "rows": figures.document(),
            }));
        }
        print(&heading(&own, &[], &notes))?;
        if self.runs > 0 {
            print(&table(&recovered))?;
        }
        if self.rounds > 0 {
            print(&figures.lines())?;
        }
        Ok(())
    }

    /// Causes a fault of this kind several times, and returns how long each recovery took, in milliseconds.
    fn recover(&self, mode: &Mode, grounds: Grounds<'_>, stop: &Stop) -> Result<Vec<f64>, Failure> {
        let folder = directory(&self.site.root())?;
        let mut bed = Bed::make(grounds, folder.path(), THREADS)?;
        // The first task is not counted, since its launch also loads programs into memory.
        bed.measure(&bed.of(CommandEnd::Ends, &json!({}))?, stop)?;
        let times = |most| 0..self.runs.min(most);
        let each = |bed: &mut Bed, most, body: Value| -> Result<Vec<f64>, Failure> {
            let all = times(most).map(|_| {
                if most < u32::MAX {
                    rest(APART);
                }
                bed.measure(&body, stop)
            });
            all.collect()
        };
        match &mode.making {
            Making::Task(how, more) => {
                let body = bed.of(*how, more)?;
                each(&mut bed, u32::MAX, body)
            }
            Making::Apart(how, more) => {
                let body = bed.of(*how, more)?;
                each(&mut bed, APART_MAX, body)
            }
            Making::Unlaunched(launch) => {
                let mut command = json!({"command": ["true"], "dir": "/"});
                merge(&mut command, launch);
                let body = json!({ "launch": command });
                times(u32::MAX).map(|_| bed.unlaunched(&body, stop)).collect()
            }
            Making::Overdue => {
                let body =
                    bed.of(CommandEnd::Loops, &json!({"fail_after_ms": bed::FAIL_AFTER_MS}))?;
                let looped = times(APART_MAX).map(|_| bed.overdue(&body, stop));
                looped.collect()
            }
            Making::Keeper => {
                let body = bed.of(CommandEnd::Waits, &json!({}))?;
                let killed = times(APART_MAX).map(|_| {
                    rest(APART);
                    bed.keeper_killed(&body, stop)
                });
                killed.collect()
            }
            Making::Coordinator => {
                drop(bed);
                Ok(vec![self.coordinator_killed(grounds, stop)?])
            }
            Making::Never(_) => Ok(Vec::new()),
        }
    }

    /// Kills a coordinator while tasks run, and then every tenth command. Returns the time from the restart of the coordinator until it
    /// shows the tasks of the killed commands as complete and all others as running, in milliseconds.
    fn coordinator_killed(&self, grounds: Grounds<'_>, stop: &Stop) -> Result<f64, Failure> {
        let folder = directory(&self.site.root())?;
        let mut bed = Bed::make(grounds, folder.path(), self.running)?;
        let body = bed.of(CommandEnd::Waits, &json!({}))?;
        bed.add(self.running, &body, stop)?;
        let mut all = Vec::new();
        for _ in 0..self.running {
            all.push(bed.written()?);
        }
        bed.await_count("processing", self.running, stop)?;
        bed.coordinator.kill()?;
        let dying: Vec<&Written> = all.iter().step_by(DIES_EACH).collect();
        for command in &dying {
            signal(command.pid, Signal::KILL);
        }
        let died = u32::try_from(dying.len()).unwrap_or(u32::MAX);
        let began = now();
        bed.coordinator.start_again()?;
        bed.await_count("complete", died, stop)?;
        bed.await_count("processing", self.running - died, stop)?;
        Ok(ms(now() - began))
    }

    fn figures(&self, grounds: Grounds<'_>, folder: &Path, stop: &Stop) -> Result<Round, Failure> {
        let mut round = Round::new();
        let folder = directory(folder)?;
        let mut bed = Bed::make(grounds, folder.path(), THREADS)?;
        bed.measure(&bed.of(CommandEnd::Ends, &json!({}))?, stop)?;
        let plain = json!({"launch": {"command": ["/bin/true"], "dir": "/"}});
        let began = now();
        bed.add(self.tasks, &plain, stop)?;
        for _ in 0..self.tasks {
            bed.await_end(None)?;
        }
        round.insert("tasks", f64::from(self.tasks) / (now() - began).as_secs_f64());
        let started = bed.started(stop)?;
        round.insert("started_p50", started.quantile_us(0.5) / 1000.0);
        round.insert("started_p99", started.quantile_us(0.99) / 1000.0);
        let before = bed.coordinator.resident()?;
        let held = json!({"launch": {"command": ["/bin/true"], "dir": "/"}, "group": "held"});
        bed.limit("held", 0)?;
        bed.add(self.waiting, &held, stop)?;
        let grown = bed.coordinator.resident()?.saturating_sub(before);
        round.insert("memory", as_float(grown) / f64::from(self.waiting));
        let started = bed.started(stop)?;
        round.insert("started_waiting_p50", started.quantile_us(0.5) / 1000.0);
        let hosts = (0..self.servers)
            .map(|number| json!({"host": format!("server-{number}"), "max_procs": 4}));
        let hosts = json!({ "hosts": hosts.collect::<Vec<_>>() });
        bed.coordinator.ask("/v1/servers/inventory", Some(&hosts))?;
        let started = bed.started(stop)?;
        round.insert("started_servers_p50", started.quantile_us(0.5) / 1000.0);
        Ok(round)
    }

    fn rows(&self) -> Vec<Row> {
        let (waiting, servers) = (self.waiting, self.servers);
        vec![
            Row::new(
                "tasks",
                format!("{} tasks completed durably", self.tasks),
                "/s",
                Some(Limit::AtLeast(500.0)),
            ),
            Row::new(
                "started_p50",
                "time to start of a task's command, p50".to_owned(),
                "ms",
                None,
            ),
            Row::new("started_p99", "the same, p99".to_owned(), "ms", None),
            Row::new(
                "memory",
                format!("memory per waiting task, with {waiting} waiting"),
                "B",
                None,
            ),
            Row::new(
                "started_waiting_p50",
                format!("time to start, with {waiting} tasks waiting, p50"),
                "ms",
                None,
            ),
            Row::new(
                "started_servers_p50",
                format!("the same, with {servers} servers, p50"),
                "ms",
                None,
            ),
        ]
    }
}
