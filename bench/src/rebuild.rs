//! Measures the cost of a panic in `commit`, the function with which an actor changes its state. The panic is injected into a node that
//! runs in this process and has a large table of locks.
//!
//! The cost is measured twice: with the entries written since the last automatic checkpoint still to be replayed, and right after a
//! checkpoint.

use crate::failure::Failure;
use crate::interrupt::Stop;
use crate::load::now;
use crate::question::{exchange, on_socket, rest};
use crate::recovery::ms;
use crate::replay::deliver;
use crate::table::Round;
use sexton::Config;
use sexton::actors::lock::{LockMachine, Message, Name, Query, Reply};
use sexton::config::HttpConfig;
use sexton::node::Handle;
use sexton::spine::delivery::Item;
use sexton::spine::delivery::Stage;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The pause between two requests to other actors: short enough to notice any stall, long enough to spare the processor.
const POLL: Duration = Duration::from_millis(1);

/// A node that does not answer for this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of locks taken at a time.
const BATCH: u32 = 1000;

/// Takes `locks` locks and injects the panics. Measures how long it takes until all locks are served again, and how long other actors take
/// to answer meanwhile.
pub(crate) fn measure(data: &Path, locks: u32, stop: &Stop) -> Result<Round, Failure> {
    let node = sexton_http::open(Config {
        http: Some(HttpConfig { socket: Some(data.join("sexton.sock")), ..HttpConfig::default() }),
        ..Config::at(data)
    })?;
    let handle = node.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(Failure::to("start a runtime"))?;
    let mut first = 0;
    while first < locks {
        stop.check()?;
        let last = first.saturating_add(BATCH).min(locks);
        runtime.block_on(deliver(&handle, (first..last).map(acquire).collect()))?;
        first = last;
    }
    // The injected panics need no report, and the time for a backtrace would be measured too.
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let round = panics(&runtime, &handle, (data, locks));
    std::panic::set_hook(told);
    node.stop()?;
    round
}

fn panics(
    runtime: &Runtime,
    handle: &Handle,
    (data, locks): (&Path, u32),
) -> Result<Round, Failure> {
    let mut round = Round::new();
    let mut others = Duration::ZERO;
    for row in ["panic_loaded", "panic_checkpointed"] {
        if row == "panic_checkpointed" {
            runtime
                .block_on(handle.checkpoint())
                .map_err(|error| Failure::new(format!("failed to {error}")))?;
        }
        let (served, longest) = with_others(data, "/healthz", || served(runtime, handle, locks))?;
        round.insert(row, ms(served?));
        others = others.max(longest);
    }
    round.insert("panic_others", ms(others));
    Ok(round)
}

fn acquire(number: u32) -> Item<LockMachine> {
    Item::Message(request(format!("key-{number:012}"), 6000))
}

fn request(name: String, ttl: u16) -> Message {
    let name = Name::new(name.into_bytes()).expect("16 bytes are within the limit of 255");
    Message::Request {
        key: name.clone(),
        index: Name::default(),
        owner: name,
        ttl,
        ttw: 600,
        priority: 0,
    }
}

/// Makes the next commit panic, queries the number of locks immediately after, and returns how long the answer takes.
fn served(runtime: &Runtime, handle: &Handle, locks: u32) -> Result<Duration, Failure> {
    let planted = AtomicBool::new(true);
    handle.actors().lock.inject_panics(Box::new(move |stage, _| {
        let strikes = stage == Stage::Commit && planted.swap(false, Ordering::Relaxed);
        assert!(!strikes, "injected");
    }));
    let began = now();
    let items =
        vec![Item::Message(request("the culprit".to_owned(), 1)), Item::Query(Query::Counts)];
    let answers = runtime
        .block_on(handle.locks().batch(items))
        .map_err(|stopped| Failure::new(stopped.to_string()))?;
    let took = now() - began;
    match answers.as_slice() {
        [Err(_), Ok(Reply::Counts { owners, .. })] if *owners == locks => Ok(took),
        answers => Err(Failure::new(format!(
            "expected {locks} locks after an injected panic; the answers were {answers:?}"
        ))),
    }
}

/// Repeats the request `question` to the coordinator with the data directory `data` while `work` runs. Returns the result of `work`, and
/// the longest time that an answer took.
pub(crate) fn with_others<T>(
    data: &Path,
    question: &'static str,
    work: impl FnOnce() -> T,
) -> Result<(T, Duration), Failure> {
    let over = Arc::new(AtomicBool::new(false));
    let (data, until) = (data.to_owned(), Arc::clone(&over));
    let asking = std::thread::Builder::new()
        .name("sexton-bench-others".to_owned())
        .spawn(move || {
            let mut longest = Duration::ZERO;
            while !until.load(Ordering::Relaxed) {
                let began = now();
                let answer = on_socket(&data, PATIENCE)
                    .and_then(|mut stream| exchange(&mut stream, question, None));
                answer.map_err(Failure::to("query other actors"))?;
                longest = longest.max(now() - began);
                rest(POLL);
            }
            Ok::<_, Failure>(longest)
        })
        .map_err(Failure::to("start a thread"))?;
    let done = work();
    over.store(true, Ordering::Relaxed);
    match asking.join() {
        Ok(longest) => Ok((done, longest?)),
        Err(_) => Err(Failure::new("the thread that queried other actors panicked")),
    }
}
