//! Measures jobs of an embedded node: cycles in batches, in a single queue and in one of a hundred thousand queues, and how fast a ready
//! queue is found among that many.

use crate::failure::Failure;
use crate::figures::{Spread, as_float, grouped};
use crate::interrupt::Stop;
use crate::load::now;
use sexton::actors::queue::{
    Body, Choice, Claimant, Message, Pop, Put, Query, QueueMachine, QueueName, Reply, Right,
};
use sexton::node::Queues;
use sexton::spine::delivery::Item;
use sexton::{Config, Node, block_on};
use std::time::Duration;

/// The number of jobs in a batch.
const BATCH: usize = 256;

/// The number of tenants.
const TENANTS: u32 = 1000;

/// The number of job types of each tenant. Each of them has its own queue.
const TYPES: u32 = 100;

/// The number of queues that have a job to claim.
const READY: u32 = 10;

/// A delay longer than any measurement, in milliseconds: a year.
const LATER_MS: u64 = 365 * 24 * 3_600_000;

/// The measured rates, per second.
pub(crate) struct Rates {
    /// Cycles in a single queue.
    pub(crate) alone: f64,
    /// Cycles in one of [`TENANTS`] times [`TYPES`] queues.
    pub(crate) among: f64,
    /// Ready queues found, among the same number of queues.
    pub(crate) named: f64,
}

/// Measures each rate for `span`: `alone` on one node, then `among` and `named` on a second node, which has all [`TENANTS`] times [`TYPES`]
/// queues.
pub(crate) fn measure(span: Duration, stop: &Stop) -> Result<Rates, Failure> {
    let node = Node::open(Config::in_memory())?;
    let alone = cycles(&node.handle().queues(), span, stop)?;
    node.stop()?;
    let node = Node::open(Config::in_memory())?;
    let queues = node.handle().queues();
    fill(&queues, stop)?;
    let among = cycles(&queues, span, stop)?;
    let named = named(&queues, span, stop)?;
    node.stop()?;
    Ok(Rates { alone, among, named })
}

/// Formats the results of these rounds as text.
pub(crate) fn lines(rounds: &[Rates]) -> String {
    let line = |words: &str, Spread { median, min, max }: Spread, what: &str| {
        let (median, min, max) = (grouped(median), grouped(min), grouped(max));
        format!("{words:<25} {median:>11} {what}/s   ({min}-{max})\n")
    };
    let slower = spread(rounds, |rates| rates.alone / rates.among);
    let queues = TENANTS * TYPES;
    line(&format!("batches of {BATCH} jobs"), spread(rounds, |rates| rates.alone), "cycles")
        + &line(&format!("among {queues} queues"), spread(rounds, |rates| rates.among), "cycles")
        + &format!(
            "{:<25} {:>11.2} times      ({:.2}-{:.2})\n",
            "slowdown", slower.median, slower.min, slower.max
        )
        + &line("finding a ready queue", spread(rounds, |rates| rates.named), "queues")
}

/// Returns the results of these rounds as JSON.
pub(crate) fn document(rounds: &[Rates]) -> serde_json::Value {
    serde_json::json!({
        "cycles_per_second": spread(rounds, |rates| rates.alone),
        "queues": TENANTS * TYPES,
        "cycles_among_queues_per_second": spread(rounds, |rates| rates.among),
        "slower_among_queues": spread(rounds, |rates| rates.alone / rates.among),
        "ready_queues_named_per_second": spread(rounds, |rates| rates.named),
    })
}

fn spread(rounds: &[Rates], rate: fn(&Rates) -> f64) -> Spread {
    Spread::of(rounds.iter().map(rate))
}

fn queue(tenant: u32, kind: u32) -> QueueName {
    let name = format!("tenant-{tenant}:type-{kind}");
    QueueName::parse(name.as_bytes()).expect("the name is valid")
}

fn job(queue: QueueName) -> Put {
    Put { priority: 1024, ..Put::new(queue, Body::new([b'x'; 64])) }
}

/// Puts a delayed job into each queue, and a ready one into [`READY`] of them.
fn fill(queues: &Queues, stop: &Stop) -> Result<(), Failure> {
    for tenant in 0..TENANTS {
        stop.check()?;
        let later = |kind| Put { delay_ms: LATER_MS, ..job(queue(tenant, kind)) };
        let ready = (tenant < READY).then(|| job(queue(tenant, TYPES - 1)));
        let jobs = (0..TYPES).map(later).chain(ready);
        let items = jobs.map(|job| Item::Message(Message::Put(job)));
        ask(queues, items.collect())?;
    }
    Ok(())
}

fn ask(queues: &Queues, items: Vec<Item<QueueMachine>>) -> Result<Vec<Reply>, Failure> {
    let answers = block_on(queues.batch(items));
    let answers = answers.map_err(|stopped| Failure::new(stopped.to_string()))?;
    answers
        .into_iter()
        .map(|answer| answer.map_err(|failed| Failure::new(failed.to_string())))
        .collect()
}

/// Puts, claims and deletes jobs for `span`, a batch at a time, and returns the number of cycles per second. A cycle is all three for one
/// job.
fn cycles(queues: &Queues, span: Duration, stop: &Stop) -> Result<f64, Failure> {
    let name = queue(TENANTS - 1, 0);
    let pop = Pop {
        queues: [name.clone()].into(),
        by: Claimant::Bearer,
        waits: false,
        ticket: None,
        weights: [].into(),
        ttr_ms: 0,
        any: None,
    };
    let (began, mut cycles) = (now(), 0);
    while now() - began < span {
        stop.check()?;
        let puts = (0..BATCH).map(|_| Item::Message(Message::Put(job(name.clone()))));
        let pops = (0..BATCH).map(|_| Item::Message(Message::Pop(pop.clone())));
        let answers = ask(queues, puts.chain(pops).collect())?;
        let claims = answers
            .into_iter()
            .filter_map(|answer| if let Reply::Claim(claim) = answer { Some(claim) } else { None });
        let ends = claims.map(|claim| {
            let (id, by) = (claim.id, Right::Token(claim.token));
            Item::Message(Message::Delete { id, by })
        });
        let ended = ask(queues, ends.collect())?;
        let done = ended.iter().filter(|answer| **answer == Reply::Done);
        if done.count() != BATCH {
            return Err(Failure::new("a job was lost"));
        }
        cycles += BATCH as u64;
    }
    Ok(as_float(cycles) / (now() - began).as_secs_f64())
}

/// Queries ready queues for `span`, and returns the number found per second.
fn named(queues: &Queues, span: Duration, stop: &Stop) -> Result<f64, Failure> {
    let (began, mut count) = (now(), 0);
    while now() - began < span {
        stop.check()?;
        let next = |chance: usize| {
            Item::Query(Query::Next(Choice {
                chance: chance as u64,
                kinds: std::sync::Arc::default(),
                from: 0,
                among: 0,
            }))
        };
        for answer in ask(queues, (0..BATCH).map(next).collect())? {
            if !matches!(answer, Reply::Chosen { queue: Some(_), .. }) {
                return Err(Failure::new("no queue is ready"));
            }
            count += 1;
        }
    }
    Ok(as_float(count) / (now() - began).as_secs_f64())
}
