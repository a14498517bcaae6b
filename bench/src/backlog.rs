//! `sexton-bench backlog`: measures a queue with very many waiting jobs. It reports how much memory the jobs use, how much they slow down
//! active clients, and how long recovery takes after kill -9.
//!
//! Each contestant (a server that is measured) runs alone, in a fresh directory.

use crate::course::parse_seconds;
use crate::failure::Failure;
use crate::figures::{as_float, grouped};
use crate::interrupt::Stop;
use crate::job::{Filler, JobProtocol, Jobs, Work};
use crate::load::{Load, now};
use crate::output::{document, heading, print, show};
use crate::peer::{self, Peer};
use crate::question::{Checkpoints, await_served};
use crate::recovery::ms;
use crate::site::Site;
use crate::table::{Round, Row, Table};
use clap::Args;
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;

/// The number of waiting jobs in the small queue, with which the full queue is compared.
const FEW: u32 = 1000;

/// The number of connections that fill the queue.
const FILLERS: u32 = 16;

/// The number of connections that run cycles.
const WORKERS: u32 = 50;

const BODY_BYTES: usize = 64;

/// Measure a queue with very many waiting jobs: memory, cost of a cycle, and recovery after kill -9.
///
/// Jobs of 64 bytes are put over TCP and left waiting. In sexton, and in Redis with appendfsync always, everything is on disk before the
/// answer; Redis' checkpoint is a rewrite of its append-only file. beanstalkd never syncs its log here (-F): syncing after each job would
/// take an hour. A restart is timed from the start of the program to the first answer that counts every job.
///
/// A cycle puts a job, then reserves and deletes the oldest. Cycles run over 50 connections, first while 1,000 jobs wait, and then, right
/// after a restart, while all of them wait. The servers are measured in turn, one running at a time.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench backlog                       a million jobs, three rounds, about three minutes
  sexton-bench backlog --jobs 100000 --json  smaller; figures as JSON
  sexton-bench backlog --dir /dev/shm        without the disk

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Backlog {
    /// Number of waiting jobs
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=9_000_000))]
    jobs: u32,

    /// Number of rounds
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// How long cycles are measured; an uncounted warm-up of half that time comes first, in which the checkpoint after a restart completes
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = parse_seconds)]
    seconds: Duration,

    #[command(flatten)]
    site: Site,
}

/// Returns the rows of the table for this number of jobs.
fn rows(jobs: u32) -> Vec<Row> {
    let few = grouped(jobs.min(FEW).into());
    let all = grouped(jobs.into());
    let memory = "memory per job after that";
    let restart = "kill -9 then, until all jobs wait again";
    vec![
        Row::new("load", format!("put {all} jobs"), "ms"),
        Row::new("memory_loaded", memory, "B"),
        Row::new("restart_loaded", restart, "ms"),
        Row::new("checkpoint", "checkpoint", "ms"),
        Row::new("memory_checkpointed", memory, "B"),
        Row::new("restart_checkpointed", restart, "ms"),
        Row::new("cycle_few", format!("cycle while {few} jobs wait"), "us"),
        Row::new("cycle_all", format!("cycle while {all} jobs wait"), "us"),
        Row::new("cycle_slower", "ratio of these two cycle times", "times"),
    ]
}

type Server = Peer<JobProtocol>;

/// A function that starts a contestant; the flag selects whether the contestant stores its data on disk.
type Start = fn(bool, &Site) -> Result<Server, Failure>;

impl Backlog {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let site = &self.site;
        let own = site.version()?;
        let versions = [peer::beanstalkd_version(), peer::redis_version()];
        let mut notes = site.remarks(&versions)?;
        notes.extend(site.in_memory("the figures include no disk time"));
        let [beanstalkd, redis] = versions.map(Result::ok);
        let contestants = [
            ("sexton", true, Peer::sexton_for_jobs as Start),
            ("beanstalkd", beanstalkd.is_some(), Peer::beanstalkd_unsynced),
            ("redis", redis.is_some(), Peer::redis_lists),
        ]
        .into_iter()
        .filter(|(_, there, _)| *there);
        let mut servers: Vec<_> = contestants.map(|it| (it.2, (it.0, Vec::new()))).collect();
        for round in 1..=self.rounds {
            for (start, (name, rounds)) in &mut servers {
                let title = format!("round {round} of {}, {name}", self.rounds);
                rounds.push(self.play(&title, || start(true, site), stop)?);
            }
        }
        show("");
        let servers = servers.into_iter().map(|(_, server)| server);
        let table = Table::new(rows(self.jobs), servers.collect());
        if site.json {
            return document(&json!({
                "sexton": own,
                "beanstalkd": beanstalkd,
                "redis": redis,
                "notes": notes,
                "jobs": self.jobs,
                "rounds": self.rounds,
                "seconds": self.seconds.as_secs_f64(),
                "rows": table.document(),
            }));
        }
        let peers = [("beanstalkd", beanstalkd.as_deref()), ("Redis", redis.as_deref())];
        print(&heading(&own, &peers, &notes))?;
        print(&table.lines())
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
        tell("cycles while few jobs wait");
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
        round.insert("load", ms(load));
        round.insert("memory_loaded", weigh(&peer)?);
        tell("a restart");
        round.insert("restart_loaded", self.restart(&mut peer, stop)?);
        tell("cycles while all jobs wait");
        let cycle_all = self.cycle(&peer, stop)?;
        round.insert("cycle_few", cycle_few);
        round.insert("cycle_all", cycle_all);
        round.insert("cycle_slower", cycle_all / cycle_few);
        drop(peer);

        let mut peer = start()?;
        if !peer.is_sexton() && !peer.is_redis() {
            return Ok(round);
        }
        tell("putting the jobs again");
        fill(&peer, self.jobs, stop)?;
        tell("a checkpoint");
        if let Some(took) = Checkpoints::of(&peer).make(stop)? {
            round.insert("checkpoint", ms(took));
            round.insert("memory_checkpointed", weigh(&peer)?);
            tell("a restart");
            round.insert("restart_checkpointed", self.restart(&mut peer, stop)?);
        }
        Ok(round)
    }

    /// Kills and restarts the server, and returns the time from its restart until every job waits again, in milliseconds.
    fn restart(&self, peer: &mut Server, stop: &Stop) -> Result<f64, Failure> {
        peer.kill()?;
        let began = now();
        peer.start_again()?;
        await_served(peer, self.jobs, stop)?;
        Ok(ms(now() - began))
    }

    /// Runs cycles, and returns the measured time divided by the number of cycles of all connections together, in microseconds.
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

/// Puts `jobs` jobs, and returns how long that took.
fn fill(peer: &Server, jobs: u32, stop: &Stop) -> Result<Duration, Failure> {
    let share = jobs.div_ceil(FILLERS);
    let clients = (0..FILLERS).map(|at| {
        let rest = jobs.saturating_sub(share * at);
        Filler::new(peer.protocol, rest.min(share), body())
    });
    Load::connect(peer.address, &[], clients)?.complete(stop)
}
