//! `sexton-bench embed`: measures a node embedded in this program, without sockets and without files.

use crate::course::parse_seconds;
use crate::embed_jobs;
use crate::failure::Failure;
use crate::fdatasync;
use crate::figures::{Latencies, Spread, as_float, grouped};
use crate::interrupt::Stop;
use crate::load::now;
use crate::output::{print, show};
use clap::Args;
use sexton::actors::lock::{LockMachine, Message, Name, Reply};
use sexton::node::{Entry, LockError, Locks, Terms};
use sexton::spine::delivery::Item;
use sexton::{Config, Node, block_on};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The number of cycles in a batch.
const BATCH: u32 = 256;

/// The number of futures that run concurrently.
const FUTURES: u32 = 256;

/// Measure a node inside the program that uses it: batches, futures, one call at a time.
///
/// A node without files and listeners is called from one thread. A cycle acquires a lock and releases it. A batch has 256 acquires and
/// their releases in one call. Futures are 256 tasks of a current-thread runtime, each of which awaits its own calls. One call at a time
/// awaits an acquire and then a release, and times the acquire. A waiter is a task that awaits a lock held by another task: the time
/// measured is from the release until the waiter has the lock.
///
/// A batch of jobs puts and claims 256 jobs in one call, and ends them in another: in a single queue, and in one of 100,000 queues of
/// 1,000 tenants. Ten of these queues have jobs to claim; choosing one of the ten at random is measured with 256 queries in one call.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench embed
  taskset -c 0 sexton-bench embed --rounds 9      everything on one core
  sexton-bench embed --seconds 5 --json

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Embed {
    /// Number of rounds
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Duration of each round of each row
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    seconds: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Embed {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let node = Node::open(Config::in_memory())?;
        let locks = node.handle().locks();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(Failure::to("start a runtime"))?;
        let (mut batches, mut futures) = (Vec::new(), Vec::new());
        let (mut single, mut told) = (Vec::new(), Vec::new());
        let mut jobs = Vec::new();
        for round in 1..=self.rounds {
            show(&format!("round {round} of {}", self.rounds));
            batches.push(self.batches(&locks, stop)?);
            futures.push(self.futures(&locks, &runtime, stop)?);
            single.push(self.single(&locks, &runtime, stop)?);
            told.push(self.told(&locks, &runtime, stop)?);
            jobs.push(embed_jobs::measure(self.seconds, stop)?);
        }
        show("");
        node.stop()?;
        let batches = Spread::of(batches.into_iter());
        let futures = Spread::of(futures.into_iter());
        let quantile = |rounds: &[Latencies], share| {
            Spread::of(rounds.iter().map(|latencies| latencies.quantile_us(share)))
        };
        let [p50, p99] = [0.5, 0.99].map(|share| quantile(&single, share));
        let [told_p50, told_p99] = [0.5, 0.99].map(|share| quantile(&told, share));
        if self.json {
            let json = serde_json::json!({
                "sexton": env!("CARGO_PKG_VERSION"),
                "rounds": self.rounds,
                "seconds": self.seconds.as_secs_f64(),
                "fdatasync_us": fdatasync::median_us(&std::env::temp_dir())?,
                "batch_cycles_per_second": batches,
                "future_cycles_per_second": futures,
                "acquire_p50_us": p50,
                "acquire_p99_us": p99,
                "told_p50_us": told_p50,
                "told_p99_us": told_p99,
                "jobs": embed_jobs::document(&jobs),
            });
            return print(&format!("{json:#}\n"));
        }
        let rate = |Spread { median, min, max }: Spread| {
            let (median, min, max) = (grouped(median), grouped(min), grouped(max));
            format!("{median:>11} cycles/s   ({min}-{max})")
        };
        let span = |Spread { median, min, max }: Spread| {
            format!("{median:>11.2} us         ({min:.2}-{max:.2})")
        };
        print(&format!(
            "sexton {}, a node in this program, without files\n{}\n\n\
             batches of {BATCH} cycles     {}\n\
             {FUTURES} concurrent futures    {}\n\
             one awaited acquire, p50  {}\n\
             one awaited acquire, p99  {}\n\
             release to grant, p50     {}\n\
             release to grant, p99     {}\n\
             {}",
            env!("CARGO_PKG_VERSION"),
            fdatasync::remark(&std::env::temp_dir())?,
            rate(batches),
            rate(futures),
            span(p50),
            span(p99),
            span(told_p50),
            span(told_p99),
            embed_jobs::lines(&jobs),
        ))
    }

    /// Runs batches of cycles for the duration of a round, and returns the number of cycles per second.
    fn batches(&self, locks: &Locks, stop: &Stop) -> Result<f64, Failure> {
        let began = now();
        let mut cycles = 0;
        while now() - began < self.seconds {
            stop.check()?;
            let answers = block_on(locks.batch(batch()))
                .map_err(|stopped| Failure::new(stopped.to_string()))?;
            for answer in answers {
                if !matches!(answer, Ok(Reply::LinePosition(_) | Reply::Ended(1))) {
                    return Err(wrong(answer));
                }
            }
            cycles += u64::from(BATCH);
        }
        Ok(as_float(cycles) / (now() - began).as_secs_f64())
    }

    /// Runs cycles in concurrent tasks, each of which awaits one operation at a time, and returns the number of cycles per second of all
    /// tasks together.
    fn futures(&self, locks: &Locks, runtime: &Runtime, stop: &Stop) -> Result<f64, Failure> {
        let began = now();
        let end = began + self.seconds;
        stop.check()?;
        let cycles = runtime.block_on(async {
            let tasks: Vec<_> = (0..FUTURES)
                .map(|number| {
                    let (locks, entry) = (locks.clone(), entry(number));
                    runtime.spawn(async move {
                        let mut cycles: u64 = 0;
                        while now() < end {
                            cycle(&locks, &entry).await?;
                            cycles += 1;
                        }
                        Ok::<_, LockError>(cycles)
                    })
                })
                .collect();
            let mut cycles = 0;
            for task in tasks {
                cycles += task.await.map_err(wrong)?.map_err(wrong)?;
            }
            Ok::<_, Failure>(cycles)
        })?;
        Ok(as_float(cycles) / (now() - began).as_secs_f64())
    }

    /// Measures the time from a release until the waiter has the lock.
    fn told(&self, locks: &Locks, runtime: &Runtime, stop: &Stop) -> Result<Latencies, Failure> {
        let end = now() + self.seconds;
        let names = |owner| Entry::new("passed-on", owner).expect("the names are short");
        let (one, other) = (names("one"), names("other"));
        let mut latencies = Latencies::default();
        while now() < end {
            stop.check()?;
            let passed = runtime.block_on(pass_on(locks, &one, &other));
            latencies.note(passed.map_err(wrong)?);
        }
        Ok(latencies)
    }

    /// Measures the time of an acquire while nothing else is in progress.
    fn single(&self, locks: &Locks, runtime: &Runtime, stop: &Stop) -> Result<Latencies, Failure> {
        let end = now() + self.seconds;
        let entry = entry(0);
        stop.check()?;
        runtime.block_on(async {
            let mut latencies = Latencies::default();
            while now() < end {
                let began = now();
                let token = locks.acquire(&entry, Terms::default()).await.map_err(wrong)?;
                latencies.note(now() - began);
                locks.release(&entry, Some(token)).await.map_err(wrong)?;
            }
            Ok(latencies)
        })
    }
}

/// Acquires a lock, waits until `to` is in line for it, and releases it. Returns the time from that release until `to` has the lock; `to`
/// then releases it.
async fn pass_on(locks: &Locks, from: &Entry, to: &Entry) -> Result<Duration, LockError> {
    let held = locks.acquire(from, Terms::default()).await?;
    let waiting = Terms { wait: 60, ..Terms::default() };
    let waiter = async {
        let token = locks.acquire(to, waiting).await?;
        let had = now();
        locks.release(to, Some(token)).await?;
        Ok::<_, LockError>(had)
    };
    let holder = async {
        // The query for the position of `to` fails until it is in line.
        while locks.place(to).await.is_err() {
            tokio::task::yield_now().await;
        }
        let began = now();
        locks.release(from, Some(held)).await?;
        Ok::<_, LockError>(began)
    };
    let (had, began) = tokio::try_join!(waiter, holder)?;
    Ok(had - began)
}

fn wrong(what: impl std::fmt::Debug) -> Failure {
    Failure::new(format!("unexpected result of a lock request: {what:?}"))
}

async fn cycle(locks: &Locks, entry: &Entry) -> Result<(), LockError> {
    let token = locks.acquire(entry, Terms::default()).await?;
    locks.release(entry, Some(token)).await
}

fn entry(number: u32) -> Entry {
    let name = format!("key-{number:012}");
    Entry::new(&name, &name).expect("16 bytes are within the limit of 255")
}

/// Returns the requests of a batch: [`BATCH`] acquires, and then their releases.
fn batch() -> Vec<Item<LockMachine>> {
    let acquires = (0..BATCH).map(|number| {
        let Entry { key, index, owner } = entry(number);
        Item::Message(Message::Request { key, index, owner, ttl: 60, ttw: 0, priority: 0 })
    });
    let releases = (0..BATCH).map(|number| {
        let Entry { key, owner, .. } = entry(number);
        Item::Message(Message::Release { key, index: Some(Name::default()), owner, token: None })
    });
    acquires.chain(releases).collect()
}
