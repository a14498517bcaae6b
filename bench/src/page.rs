//! `sexton-bench page`: measures how soon the web page shows a past moment, what open pages cost, and how long views
//! delay other clients.

use crate::chance::Chance;
use crate::coordinator::{Coordinator, Grounds, ask};
use crate::failure::Failure;
use crate::figures::{Latencies, as_float};
use crate::interrupt::Stop;
use crate::limits::{Limit, Limits, Row};
use crate::load::now;
use crate::output::show;
use crate::pages::{Open, attribute, await_pages, beside_locks, load, load_whole};
use crate::peer::directory;
use crate::question::rest;
use crate::recovery::ms;
use crate::replay::Log;
use crate::site::Site;
use crate::table::Round;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// The views that are left open, all of which update themselves.
const LIVE: [&str; 6] =
    ["/", "/page/locks", "/page/queues", "/page/processes", "/page/tasks", "/page/events"];

/// The views that are loaded while another client works, each with the name of the row for its figure.
const VIEWS: [(&str, &str); 8] = [
    ("/", "others_now"),
    ("/page/locks", "others_locks"),
    ("/page/queues", "others_queues"),
    ("/page/jobs", "others_jobs"),
    ("/page/processes", "others_processes"),
    ("/page/tasks", "others_tasks"),
    ("/page/events", "others_events"),
    ("/page/then", "others_then"),
];

/// The number of loads of each view.
const LOADS: u32 = 20;

/// The number of jobs added per request.
const BATCH: u32 = 1000;

/// The number of locks held at any time while a journal is written.
const HELD: u32 = 1000;

/// Measure the web page: views of past moments, the cost of pages that are left open, and the delay of other clients.
///
/// A node in this program writes a journal of lock entries, and the coordinator under test reads it. The first look at the
/// journal is measured separately; the others are at random entries. A page that is left open does what its script does in a
/// browser: it listens for changes, and is loaded again after a change, or every 10 s. While views are loaded, a client takes and
/// releases its own lock every millisecond over LockServer's protocol, with a journal that is not synced: the figure is
/// its longest wait for an answer.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench page                              everything
  sexton-bench page --parts then --entries 5000000
  sexton-bench page --parts views --queues 1000000

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Page {
    /// Measurements to make [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    parts: Vec<Part>,

    /// Number of rounds
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Number of entries in the journal
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    entries: u32,

    /// Number of past moments that are shown
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    looks: u32,

    /// Number of pages that are left open
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    pages: u32,

    /// How long the pages are left open
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Number of queues, each with one job, when views are loaded
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    queues: u32,

    /// Number of process records when views are loaded
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=80_000))]
    records: u32,

    #[command(flatten)]
    site: Site,
}

/// A group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Past moments of a long journal.
    Then,
    /// Pages that are left open.
    Live,
    /// The delay that each view causes another client.
    Views,
}

impl Page {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let own = self.site.version()?;
        let notes = self.site.remarks([])?;
        let attic = directory(&self.site.root())?;
        let grounds = Grounds { site: &self.site, attic: attic.path() };
        let mut rounds = Vec::new();
        for round in 1..=self.rounds {
            let title = format!("round {round} of {}", self.rounds);
            rounds.push(self.round(&title, grounds, stop)?);
        }
        show("");
        let table = Limits::new(self.rows(), vec![("sexton", rounds)]);
        table.report(&own, &notes, self.rounds, self.site.json)
    }

    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// Returns the rows of the requested measurements.
    fn rows(&self) -> Vec<Row> {
        let below = |most| Some(Limit::Below(most));
        let then = format!("first look at {} entries", self.entries);
        let open =
            format!("{} open pages for {} s, share of a processor", self.pages, self.seconds);
        let quiet = "longest wait of other clients, no views".to_owned();
        let mut rows = vec![
            (Part::Then, "then_first", then, "ms", None),
            (Part::Then, "then_p50", "any entry, p50".into(), "ms", None),
            (Part::Then, "then_max", "the longest".into(), "ms", below(1000.0)),
            (Part::Then, "then_memory", "memory for these looks".into(), "MB", None),
            (Part::Live, "live_cpu", open, "%", below(5.0)),
            (Part::Live, "live_loads", "loads of these pages".into(), "", None),
            (Part::Views, "others", quiet, "ms", None),
        ];
        let busy = "the same while low-priority threads are busy".to_owned();
        rows.push((Part::Views, "others_busy", busy, "ms", None));
        let beside = VIEWS.map(|(path, name)| {
            let words = format!("the same while {path} is loaded");
            (Part::Views, name, words, "ms", below(5.0))
        });
        rows.extend(beside);
        rows.push((Part::Views, "view_p50", "a view, p50".into(), "ms", None));
        rows.push((Part::Views, "view_p99", "a view, p99".into(), "ms", None));
        let wanted = rows.into_iter().filter(|row| self.wants(row.0));
        wanted.map(|(_, name, words, unit, limit)| Row::new(name, words, unit, limit)).collect()
    }

    fn round(&self, title: &str, grounds: Grounds<'_>, stop: &Stop) -> Result<Round, Failure> {
        let mut round = Round::new();
        if self.wants(Part::Then) {
            show(&format!("{title}: moments of the past"));
            self.then(&mut round, grounds, stop)?;
        }
        if self.wants(Part::Live) {
            show(&format!("{title}: open pages"));
            self.live(&mut round, grounds, stop)?;
        }
        if self.wants(Part::Views) {
            show(&format!("{title}: views"));
            self.views(&mut round, grounds, stop)?;
        }
        Ok(round)
    }

    fn then(&self, round: &mut Round, grounds: Grounds<'_>, stop: &Stop) -> Result<(), Failure> {
        let mut coordinator = Coordinator::start(None, grounds)?;
        coordinator.kill()?;
        let log = Log { entries: self.entries, held: HELD };
        log.write(coordinator.data(), stop)?;
        coordinator.start_again()?;
        let data = coordinator.data();
        await_pages(data)?;
        let before = coordinator.resident()?;
        let began = now();
        let page = load_whole(data, "/page/then")?;
        round.insert("then_first", ms(now() - began));
        let (first, last) = (attribute(&page, "min")?, attribute(&page, "max")?);
        if last < u64::from(self.entries) {
            let words = format!("the page shows only {last} of {} entries", self.entries);
            return Err(Failure::new(words));
        }
        let (mut chance, mut latencies) = (Chance::new(1), Latencies::default());
        let mut longest = Duration::ZERO;
        for _ in 0..self.looks {
            stop.check()?;
            let span = u32::try_from(last - first).unwrap_or(u32::MAX);
            let at = first + u64::from(chance.below(span));
            let began = now();
            let page = load_whole(data, &format!("/page/then?at={at}"))?;
            let took = now() - began;
            if !page.contains("id=\"state\"") {
                return Err(Failure::new(format!("the page shows no state at entry {at}")));
            }
            latencies.note(took);
            longest = longest.max(took);
        }
        round.insert("then_p50", latencies.quantile_us(0.5) / 1000.0);
        round.insert("then_max", ms(longest));
        let more = coordinator.resident()?.saturating_sub(before);
        round.insert("then_memory", as_float(more) / 1e6);
        Ok(())
    }

    fn live(&self, round: &mut Round, grounds: Grounds<'_>, stop: &Stop) -> Result<(), Failure> {
        let coordinator = Coordinator::start(None, grounds)?;
        coordinator.start_keeper()?;
        let open = Open::pages(coordinator.data(), &LIVE, self.pages)?;
        // Two seconds are enough for all pages to be loaded once, which is not part of the figure.
        rest(Duration::from_secs(2));
        let (began, before) = (now(), coordinator.cpu());
        for _ in 0..self.seconds {
            stop.check()?;
            rest(Duration::from_secs(1));
        }
        let taken = coordinator.cpu().saturating_sub(before);
        let share = taken.as_secs_f64() / (now() - began).as_secs_f64();
        let loads = open.close()?;
        round.insert("live_cpu", share * 100.0);
        round.insert("live_loads", as_float(loads));
        Ok(())
    }

    fn views(&self, round: &mut Round, grounds: Grounds<'_>, stop: &Stop) -> Result<(), Failure> {
        let folder = directory(&self.site.root())?;
        let config = unsynced(&folder)?;
        let mut coordinator = Coordinator::start(Some(&config), grounds)?;
        self.fill(&mut coordinator, stop)?;
        let (data, address) = (coordinator.data(), coordinator.address());
        let ((), quiet) = beside_locks(address, || {
            rest(Duration::from_secs(1));
            Ok(())
        })?;
        round.insert("others", ms(quiet.longest));
        let ((), busy) = beside_locks(address, keep_busy)?;
        round.insert("others_busy", ms(busy.longest));
        let mut latencies = Latencies::default();
        for (path, row) in VIEWS {
            stop.check()?;
            // The first load of a view fills caches, so it is not counted.
            load_whole(data, path)?;
            let ((), beside) = beside_locks(address, || {
                for _ in 0..LOADS {
                    let began = now();
                    load(data, path)?;
                    latencies.note(now() - began);
                }
                Ok(())
            })?;
            round.insert(row, ms(beside.longest));
        }
        round.insert("view_p50", latencies.quantile_us(0.5) / 1000.0);
        round.insert("view_p99", latencies.quantile_us(0.99) / 1000.0);
        Ok(())
    }

    /// Creates the queues and the process records.
    fn fill(&self, coordinator: &mut Coordinator, stop: &Stop) -> Result<(), Failure> {
        let queues = self.queues;
        let batches = queues.div_ceil(BATCH);
        coordinator.concurrently(batches, stop, |stream, batch| {
            let numbers = batch * BATCH..(batch + 1).saturating_mul(BATCH).min(queues);
            let job = |number| json!({"queue": format!("queue-{number}"), "body": "{}"});
            let jobs: Vec<Value> = numbers.map(job).collect();
            ask(stream, "/v1/queues/push-all", Some(&json!({ "jobs": jobs }))).map(drop)
        })?;
        coordinator.start_keeper()?;
        let command = json!({"command": ["true"]});
        coordinator.launch(self.records, &command, stop)?;
        coordinator.await_count("exited", self.records, stop)
    }
}

/// Keeps every processor busy for two seconds, at the low priority of the thread that reads the past. If another client waits as long
/// meanwhile as it does while `/page/then` is loaded, that view delays it by using the processors, and not by blocking the coordinator.
fn keep_busy() -> Result<(), Failure> {
    let count = std::thread::available_parallelism().map_err(Failure::to("count processors"))?;
    let end = now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        let busy = || {
            let lowered = rustix::process::nice(10).map_err(std::io::Error::from);
            while now() < end {
                std::hint::spin_loop();
            }
            lowered.map(drop)
        };
        let threads: Vec<_> = (0..count.get()).map(|_| scope.spawn(busy)).collect();
        for thread in threads {
            let lowered = thread.join().map_err(|_| Failure::new("a busy thread panicked"))?;
            lowered.map_err(Failure::to("lower the priority of a thread"))?;
        }
        Ok(())
    })
}

/// Writes a configuration file that turns off syncing the journal, and returns the path of the file.
fn unsynced(folder: &TempDir) -> Result<PathBuf, Failure> {
    let config = folder.path().join("sexton.toml");
    let written = std::fs::write(&config, "fsync = \"never\"\n");
    written.map_err(Failure::to("write a configuration"))?;
    Ok(config)
}
