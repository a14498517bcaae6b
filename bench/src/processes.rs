//! `sexton-bench processes`: measures restarts of killed services, launches, ends, memory, output, long lists, and how soon the coordinator
//! knows the state of its children again after it was killed.

use crate::coordinator::{Coordinator, Grounds, Launched, ask, signal};
use crate::ending::Ends;
use crate::failure::Failure;
use crate::figures::{Latencies, as_float};
use crate::interrupt::Stop;
use crate::limits::{Limit, Limits, Row};
use crate::load::now;
use crate::output::show;
use crate::peer::directory;
use crate::question::rest;
use crate::rebuild::with_others;
use crate::recovery::ms;
use crate::restarts::Supervisor;
use crate::site::Site;
use crate::table::Round;
use clap::{Args, ValueEnum};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The number of processes launched before memory is measured, so that what only the first launches load into memory is not included.
const WARMING: u32 = 50;

/// One in this many of the children, starting with the newest, is killed while the coordinator is down.
const ENDED_EACH: usize = 10;

/// The number of times that all records are listed.
const LISTS: u32 = 5;

/// Measure processes: restarts of services, launches, ends, memory, output, lists, and re-adoption.
///
/// Everything is on disk before the coordinator answers. A restart is timed from the SIGKILL to the service until the next process of the
/// service reports that it runs; supervisord and runit run the same script, with a pause of 1.2 s between kills, since with a shorter
/// pause they delay the restart. Launches are requested on 16 connections to the Unix socket, and timed until the ends of all are on
/// record; for comparison, this program itself spawns the same command and waits for it, one after another. An end is timed from the moment
/// at which the process reads the clock as its last action to the arrival of the event `exited`, which is sent only once the end is on
/// disk.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench processes                         everything, three rounds, about four minutes
  sexton-bench processes --parts restart,launch --rounds 5
  sexton-bench processes --dir /var/tmp --json

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Processes {
    /// Measurements to make [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    parts: Vec<Part>,

    /// Number of rounds
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Number of kills of the service per round; a tenth of that for supervisord and runit
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: u32,

    /// Number of processes launched per round
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    launches: u32,

    /// Number of processes that end one after another, and again of processes that end all at once
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5000))]
    ends: u32,

    /// Number of live children when memory is measured and the coordinator is killed
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=9000))]
    children: u32,

    /// Number of ended processes on record when records are measured and listed
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=80_000))]
    records: u32,

    /// Output of a child, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    output: u32,

    #[command(flatten)]
    site: Site,
}

/// A group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Restarts of a killed service
    Restart,
    /// Launches, compared with a bare spawn loop
    Launch,
    /// Time from the end of a process until it is on record
    End,
    /// Memory of children, and their re-adoption after a kill of the coordinator
    Children,
    /// Memory of records, and lists of them
    Records,
    /// Cost of a child that writes much output
    Output,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Restart => "kills",
            Self::Launch => "launches",
            Self::End => "ends",
            Self::Children => "children",
            Self::Records => "records",
            Self::Output => "output",
        }
    }
}

impl Processes {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let own = self.site.version()?;
        let mut notes = self.site.remarks([])?;
        notes.extend(self.site.in_memory("the figures include no disk time"));
        let mut servers = vec![(Supervisor::Sexton, Vec::new())];
        for peer in [Supervisor::Supervisord, Supervisor::Runit] {
            match peer.installed() {
                Ok(()) => servers.push((peer, Vec::new())),
                Err(why) => notes.push(format!("left out: {why}")),
            }
        }
        let attic = directory(&self.site.root())?;
        let measuring = Measuring {
            processes: &self,
            grounds: Grounds { site: &self.site, attic: attic.path() },
            stop,
        };
        for round in 1..=self.rounds {
            for (server, rounds) in &mut servers {
                let title = format!("round {round} of {}, {}", self.rounds, server.name());
                let measured = measuring.round(*server, &title)?;
                rounds.push(measured);
            }
        }
        show("");
        let servers = servers.into_iter();
        let servers = servers.map(|(server, rounds)| (server.name(), rounds));
        let table = Limits::new(self.rows(), servers.collect());
        table.report(&own, &notes, self.rounds, self.site.json)
    }

    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// Returns the rows of the requested measurements.
    #[expect(clippy::too_many_lines, reason = "the function is one long table")]
    fn rows(&self) -> Vec<Row> {
        let (below, least) = (Limit::Below, Limit::AtLeast);
        let (children, records) = (self.children, self.records);
        let ends = self.ends;
        let rows = [
            (
                Part::Restart,
                "restart_p50",
                "killed service runs again, p50".to_owned(),
                "ms",
                Some(below(3.0)),
            ),
            (Part::Restart, "restart_p99", "the same, p99".to_owned(), "ms", None),
            (
                Part::Launch,
                "launches",
                "launched and ended, durable".to_owned(),
                "/s",
                Some(least(500.0)),
            ),
            (Part::Launch, "spawns", "bare spawn and wait".to_owned(), "/s", None),
            (
                Part::Launch,
                "launches_ratio",
                "the first divided by the second".to_owned(),
                "times",
                Some(least(0.4)),
            ),
            (
                Part::End,
                "end_p50",
                format!("end to record, {ends} one by one, p50"),
                "ms",
                Some(below(1.0)),
            ),
            (Part::End, "end_p99", "the same, p99".to_owned(), "ms", Some(below(20.0))),
            (Part::End, "ends_p50", format!("end to record, {ends} at once, p50"), "ms", None),
            (Part::End, "ends_p99", "the same, p99".to_owned(), "ms", Some(below(20.0))),
            (
                Part::Children,
                "memory_child",
                format!("memory per child, of {children}"),
                "B",
                Some(below(4096.0)),
            ),
            (
                Part::Children,
                "found_again",
                format!("kill -9 to correct state of {children} children"),
                "ms",
                Some(below(1000.0)),
            ),
            (
                Part::Records,
                "memory_record",
                format!("memory per record with output, of {records}"),
                "B",
                Some(below(1024.0)),
            ),
            (Part::Records, "listed", format!("{records} records listed"), "ms", None),
            (
                Part::Records,
                "others",
                "longest wait of other clients, no lists".to_owned(),
                "ms",
                None,
            ),
            (
                Part::Records,
                "others_listed",
                "longest wait of other clients meanwhile".to_owned(),
                "ms",
                Some(below(5.0)),
            ),
            (
                Part::Output,
                "output_cpu",
                format!("CPU time while a child writes {} MB", self.output),
                "ms",
                Some(below(10.0)),
            ),
            (Part::Output, "output_took", "how long that took".to_owned(), "ms", None),
        ];
        let wanted = rows.into_iter().filter(|row| self.wants(row.0));
        wanted.map(|(_, name, words, unit, limit)| Row::new(name, words, unit, limit)).collect()
    }
}

/// What all rounds of a measurement share.
struct Measuring<'a> {
    processes: &'a Processes,
    grounds: Grounds<'a>,
    stop: &'a Stop,
}

impl Measuring<'_> {
    fn round(&self, server: Supervisor, title: &str) -> Result<Round, Failure> {
        let mut round = Round::new();
        let tell = |what: &str| show(&format!("{title}: {what}"));
        if self.processes.wants(Part::Restart) {
            tell(Part::Restart.name());
            let kills = match server {
                Supervisor::Sexton => self.processes.kills,
                Supervisor::Supervisord | Supervisor::Runit => self.processes.kills.div_ceil(10),
            };
            let latencies = server.measure(kills, self.grounds, self.stop)?;
            note(&mut round, ["restart_p50", "restart_p99"], &latencies);
        }
        if server != Supervisor::Sexton {
            return Ok(round);
        }
        for part in [Part::Launch, Part::End, Part::Children, Part::Records, Part::Output] {
            if !self.processes.wants(part) {
                continue;
            }
            tell(part.name());
            match part {
                Part::Restart => {}
                Part::Launch => self.launches(&mut round)?,
                Part::End => self.ends(&mut round)?,
                Part::Children => self.children(&mut round)?,
                Part::Records => self.records(&mut round)?,
                Part::Output => self.output(&mut round)?,
            }
        }
        Ok(round)
    }

    /// Measures launches per second, and spawns per second by this program alone, half of them before and half after the launches.
    fn launches(&self, round: &mut Round) -> Result<(), Failure> {
        let mut coordinator = Coordinator::start(None, self.grounds)?;
        coordinator.start_keeper()?;
        let mut spawning = bare(self.processes.launches / 2)?;
        let began = now();
        coordinator.launch(
            self.processes.launches,
            &json!({ "command": ["/bin/true"] }),
            self.stop,
        )?;
        coordinator.await_count("exited", self.processes.launches, self.stop)?;
        let launching = now() - began;
        spawning += bare(self.processes.launches - self.processes.launches / 2)?;
        let rate = |span: Duration| f64::from(self.processes.launches) / span.as_secs_f64();
        round.insert("launches", rate(launching));
        round.insert("spawns", rate(spawning));
        round.insert("launches_ratio", rate(launching) / rate(spawning));
        Ok(())
    }

    fn ends(&self, round: &mut Round) -> Result<(), Failure> {
        let folder = directory(&self.grounds.site.root())?;
        let coordinator = Coordinator::start(None, self.grounds)?;
        let mut ends = Ends::of(&coordinator, folder.path())?;
        let one_by_one = ends.measure(self.processes.ends, false, self.stop)?;
        note(round, ["end_p50", "end_p99"], &one_by_one);
        let at_once = ends.measure(self.processes.ends, true, self.stop)?;
        note(round, ["ends_p50", "ends_p99"], &at_once);
        Ok(())
    }

    fn children(&self, round: &mut Round) -> Result<(), Failure> {
        let mut coordinator = self.warm()?;
        let empty = coordinator.memory()?;
        let sleep = json!({ "command": ["sleep", "1000000"] });
        let mut children = coordinator.launch(self.processes.children, &sleep, self.stop)?;
        let each = (coordinator.memory()? - empty) / f64::from(self.processes.children);
        round.insert("memory_child", each);
        coordinator.kill()?;
        children.sort_by(|a, b| b.id.cmp(&a.id));
        let ended: Vec<&Launched> = children.iter().step_by(ENDED_EACH).collect();
        for child in &ended {
            signal(child.pid, Signal::KILL);
        }
        let ended = u32::try_from(ended.len()).unwrap_or(u32::MAX);
        let began = now();
        coordinator.start_again()?;
        coordinator.await_count("exited", ended + WARMING, self.stop)?;
        coordinator.await_count("running", self.processes.children - ended, self.stop)?;
        round.insert("found_again", ms(now() - began));
        Ok(())
    }

    fn records(&self, round: &mut Round) -> Result<(), Failure> {
        let mut coordinator = self.warm()?;
        let empty = coordinator.memory()?;
        let words = "printf %0300d 1; printf %0300d 2 >&2";
        let write = json!({ "command": ["sh", "-c", words] });
        coordinator.launch(self.processes.records, &write, self.stop)?;
        coordinator.await_count("exited", self.processes.records + WARMING, self.stop)?;
        let each = (coordinator.memory()? - empty) / f64::from(self.processes.records);
        round.insert("memory_record", each);
        let question = "/v1/locks/place?key=nobody&owner=nobody";
        let mut stream = coordinator.connect()?;
        let mut took = Duration::ZERO;
        let lists = || {
            for _ in 0..LISTS {
                let began = now();
                list(&mut stream, self.processes.records + WARMING)?;
                took += now() - began;
            }
            Ok::<_, Failure>(())
        };
        let data = coordinator.data();
        let (listed, longest) = with_others(data, question, lists)?;
        listed?;
        let ((), quiet) = with_others(data, question, || rest(took))?;
        round.insert("listed", ms(took / LISTS));
        round.insert("others", ms(quiet));
        round.insert("others_listed", ms(longest));
        Ok(())
    }

    fn output(&self, round: &mut Round) -> Result<(), Failure> {
        let mut coordinator = self.warm()?;
        let bytes = format!("{}000000", self.processes.output);
        let write = json!({ "command": ["head", "-c", bytes, "/dev/zero"] });
        let began = now();
        let written = coordinator.launch(1, &write, self.stop)?;
        let before = coordinator.processor_time()?;
        let mut stream = coordinator.connect()?;
        let id = written.first().map(|it| it.id.clone()).unwrap_or_default();
        ask(&mut stream, "/v1/processes/wait", Some(&json!({ "id": id, "wait": 600 })))?;
        let taken = coordinator.processor_time()?.saturating_sub(before);
        round.insert("output_cpu", ms(taken));
        round.insert("output_took", ms(now() - began));
        coordinator.await_count("exited", WARMING + 1, self.stop)
    }

    /// Starts a coordinator, and warms it up with [`WARMING`] launches.
    fn warm(&self) -> Result<Coordinator, Failure> {
        let mut coordinator = Coordinator::start(None, self.grounds)?;
        coordinator.launch(WARMING, &json!({ "command": ["/bin/true"] }), self.stop)?;
        coordinator.await_count("exited", WARMING, self.stop)?;
        Ok(coordinator)
    }
}

fn note(round: &mut Round, rows: [&'static str; 2], latencies: &Latencies) {
    for (row, share) in rows.into_iter().zip([0.5, 0.99]) {
        round.insert(row, latencies.quantile_us(share) / 1000.0);
    }
}

/// Spawns `count` processes, each after the previous one has ended, and returns how long that took.
fn bare(count: u32) -> Result<Duration, Failure> {
    let began = now();
    for _ in 0..count {
        // With nothing to do before `exec`, the standard library calls posix_spawn.
        let mut command = Command::new("/bin/true");
        let status = command.stdin(Stdio::inherit()).status();
        let status = status.map_err(Failure::to("spawn /bin/true"))?;
        if !status.success() {
            return Err(Failure::new(format!("/bin/true ended with {status}")));
        }
    }
    Ok(now() - began)
}

/// Lists every record, page by page. Returns an error if their number is not `wanted`.
fn list(stream: &mut std::os::unix::net::UnixStream, wanted: u32) -> Result<(), Failure> {
    let mut listed = 0;
    let mut after = String::new();
    loop {
        let page = ask(stream, &format!("/v1/processes?limit=1000{after}"), None)?;
        let records = page.get("processes").and_then(Value::as_array);
        listed += records.map_or(0, Vec::len) as u64;
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("&after={next}"),
            None if listed == u64::from(wanted) => return Ok(()),
            None => {
                let words = format!("{} records were listed, expected {wanted}", as_float(listed));
                return Err(Failure::new(words));
            }
        }
    }
}
