//! `sexton-bench page`: the time to show a moment of the past, the cost of open pages, and the delay of other clients.

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

/// The views that are left open: those that keep themselves up to date.
const LIVE: [&str; 6] = [
    "/",
    "/page/locks",
    "/page/queues",
    "/page/processes",
    "/page/tasks",
    "/page/events",
];

/// The views that are loaded beside another client, each with the row of its figure.
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

/// Locks held at any time while a journal is written.
const HELD: u32 = 1000;

/// Measure the page: moments of the past, pages that are left open, and what other clients notice of it.
///
/// A journal of lock entries is written by a node of this program and read by the coordinator that is measured. The
/// first look at it is measured by itself; the others are at random entries. Pages that are left open do what their script
/// does: they listen, and are loaded again when something happened, or every 10 s. Beside views a client takes and
/// releases a lock of its own every millisecond over LockServer's protocol, with a journal that is not synced: what counts
/// is the longest of its answers.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench page                              everything
  sexton-bench page --parts then --entries 5000000
  sexton-bench page --parts views --queues 1000000

docs/benchmarks.md says how to read it.")]
pub(crate) struct Page {
    /// What is measured [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    parts: Vec<Part>,

    /// How often everything is measured
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Entries of the journal
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    entries: u32,

    /// How many moments of it are shown
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    looks: u32,

    /// How many pages are left open
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    pages: u32,

    /// How long they are left open, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Queues with a job each, beside which views are loaded
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    queues: u32,

    /// Records of processes, beside which views are loaded
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=80_000))]
    records: u32,

    #[command(flatten)]
    site: Site,
}

/// Measurements that go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Moments of a long journal.
    Then,
    /// Pages that are left open.
    Live,
    /// What another client notices of each view.
    Views,
}

impl Page {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let own = self.site.version()?;
        let notes = self.site.remarks([])?;
        let attic = directory(&self.site.root())?;
        let grounds = Grounds {
            site: &self.site,
            attic: attic.path(),
        };
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

    /// The rows of the table.
    fn rows(&self) -> Vec<Row> {
        let below = |most| Some(Limit::Below(most));
        let then = format!("first look at {} entries", self.entries);
        let open = format!(
            "{} open pages for {} s, of a processor",
            self.pages, self.seconds
        );
        let quiet = "longest answer of others, quiet".to_owned();
        let mut rows = vec![
            (Part::Then, "then_first", then, "ms", None),
            (Part::Then, "then_p50", "any moment, p50".into(), "ms", None),
            (
                Part::Then,
                "then_max",
                "the longest".into(),
                "ms",
                below(1000.0),
            ),
            (
                Part::Then,
                "then_memory",
                "memory for it".into(),
                "MB",
                None,
            ),
            (Part::Live, "live_cpu", open, "%", below(5.0)),
            (
                Part::Live,
                "live_loads",
                "loadings of them".into(),
                "",
                None,
            ),
            (Part::Views, "others", quiet, "ms", None),
        ];
        let beside = VIEWS.map(|(path, name)| {
            let words = format!("the same beside {path}");
            (Part::Views, name, words, "ms", below(5.0))
        });
        rows.extend(beside);
        rows.push((Part::Views, "view_p50", "a view, p50".into(), "ms", None));
        rows.push((Part::Views, "view_p99", "a view, p99".into(), "ms", None));
        let wanted = rows.into_iter().filter(|row| self.wants(row.0));
        wanted
            .map(|(_, name, words, unit, limit)| Row::new(name, words, unit, limit))
            .collect()
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
        let log = Log {
            entries: self.entries,
            held: HELD,
        };
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
            let words = format!("{last} entries are shown of {}", self.entries);
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
                return Err(Failure::new(format!("nothing is shown of entry {at}")));
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
        coordinator.has_keeper()?;
        let open = Open::pages(coordinator.data(), &LIVE, self.pages)?;
        // Until all are open.
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
        let mut latencies = Latencies::default();
        for (path, row) in VIEWS {
            stop.check()?;
            // What a first look brings into memory is no price of each.
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

    /// Makes the queues and the records.
    fn fill(&self, coordinator: &mut Coordinator, stop: &Stop) -> Result<(), Failure> {
        let queues = self.queues;
        let batches = queues.div_ceil(BATCH);
        coordinator.side_by_side(batches, stop, |stream, batch| {
            let numbers = batch * BATCH..(batch + 1).saturating_mul(BATCH).min(queues);
            let job = |number| json!({"queue": format!("queue-{number}"), "body": "{}"});
            let jobs: Vec<Value> = numbers.map(job).collect();
            ask(
                stream,
                "/v1/queues/push-all",
                Some(&json!({ "jobs": jobs })),
            )
            .map(drop)
        })?;
        coordinator.has_keeper()?;
        let command = json!({"command": ["true"]});
        coordinator.launch(self.records, &command, stop)?;
        coordinator.await_count("exited", self.records, stop)
    }
}

/// A configuration whose journal is not synced.
fn unsynced(folder: &TempDir) -> Result<PathBuf, Failure> {
    let config = folder.path().join("sexton.toml");
    let written = std::fs::write(&config, "fsync = \"never\"\n");
    written.map_err(Failure::to("write a configuration"))?;
    Ok(config)
}
