//! Jobs that are Rust types, and workers inside the program's process: jobs that fail, panic, take long, or are lost, and how workers
//! end.

use crate::patience::until;
use serde::{Deserialize, Serialize};
use sexton::actors::queue::{JobView, Phase, QueueName, TypeRules};
use sexton::node::{Attempt, Drain, Job, JobError, Queues, put_of};
use sexton::{Config, Node, block_on};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn job(queues: &Queues, id: u64) -> Option<JobView> {
    block_on(queues.job(id)).ok()
}

fn until_gone(queues: &Queues, id: u64) {
    until("it is done", || job(queues, id).is_none().then_some(()));
}

#[derive(Serialize, Deserialize)]
struct Odd {
    number: u32,
}

static RUN: Mutex<Vec<(u32, u32)>> = Mutex::new(Vec::new());

impl Job for Odd {
    const TYPE: &str = "odd";

    async fn run(self, attempt: Attempt) -> Result<(), JobError> {
        RUN.lock().expect("not poisoned").push((self.number, attempt.number()));
        match self.number {
            0 => Ok(()),
            1 => Err(JobError::failed("it is odd").retry_after(Duration::from_hours(1))),
            2 => panic!("it is too even"),
            3 => Err(JobError::snooze(Duration::from_hours(1), "not today")),
            _ => {
                let number: u32 = "x".parse()?;
                unreachable!("{number}")
            }
        }
    }
}

#[test]
fn what_a_job_returns_says_what_becomes_of_it_and_a_panic_is_a_failure() {
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let queues = node.handle().queues();
    let ids = [0, 1, 2, 3, 4].map(|number| block_on(queues.push(&Odd { number })));
    let [done, odd, even, later, wrong] = ids.map(|id| id.expect("the node answers"));
    let workers = node.handle().work::<Odd>(1).expect("a worker can be started");
    until_gone(&queues, done);
    let failed = |id| {
        until("it was tried", || {
            let view = job(&queues, id)?;
            (view.phase == Phase::Retrying).then_some(view)
        })
    };
    let said = |view: &JobView| view.error.as_ref().map_or("", |it| it.as_str()).to_owned();
    let view = failed(odd);
    assert_eq!((said(&view).as_str(), view.attempts), ("it is odd", 1));
    assert_eq!(said(&failed(even)), "it panicked: it is too even");
    let view = failed(later);
    assert_eq!((said(&view).as_str(), view.attempts), ("not today", 0));
    assert_eq!(said(&failed(wrong)), "invalid digit found in string");
    // A job whose body does not decode also fails.
    let queue = QueueName::new(b"odd").expect("a valid name");
    let put =
        sexton::actors::queue::Put::new(queue, sexton::actors::queue::Body::new(b"{}".as_slice()));
    let other = block_on(queues.put(put)).expect("the node answers").id;
    let words = said(&failed(other));
    assert!(words.contains("not a job of type odd"), "{words}");
    block_on(workers.end());
}

#[derive(Serialize, Deserialize)]
struct Slow;

static BEGUN: AtomicU32 = AtomicU32::new(0);
static GATE: AtomicBool = AtomicBool::new(false);
static SAW_STOP: AtomicBool = AtomicBool::new(false);

impl Job for Slow {
    const TYPE: &str = "slow";

    async fn run(self, attempt: Attempt) -> Result<(), JobError> {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        while !attempt.is_stopping() {
            tokio::task::yield_now().await;
        }
        SAW_STOP.store(true, Ordering::SeqCst);
        while !GATE.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[test]
fn workers_that_end_finish_what_runs_and_begin_nothing() {
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let queues = node.handle().queues();
    let [first, second] = [(); 2].map(|()| block_on(queues.push(&Slow)).expect("the node answers"));
    let workers = node.handle().work::<Slow>(1).expect("a worker can be started");
    until("it runs", || (BEGUN.load(Ordering::SeqCst) == 1).then_some(()));
    let ending = std::thread::Builder::new().spawn(move || block_on(workers.end()));
    let ending = ending.expect("a thread");
    until("it is notified of the end", || SAW_STOP.load(Ordering::SeqCst).then_some(()));
    assert_eq!(job(&queues, first).expect("the job exists").phase, Phase::Claimed);
    GATE.store(true, Ordering::SeqCst);
    ending.join().expect("the thread ends");
    assert!(job(&queues, first).is_none(), "it is completed");
    assert_eq!(job(&queues, second).expect("the job exists").phase, Phase::Ready);
    assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
}

#[derive(Serialize, Deserialize)]
struct Last;

static LAST_BEGUN: AtomicU32 = AtomicU32::new(0);
static LAST_GATE: AtomicBool = AtomicBool::new(false);

impl Job for Last {
    const TYPE: &str = "last";

    async fn run(self, _: Attempt) -> Result<(), JobError> {
        LAST_BEGUN.fetch_add(1, Ordering::SeqCst);
        while !LAST_GATE.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[test]
fn a_drain_lets_what_runs_end_and_begins_nothing() {
    let node = Node::open(Config::in_memory()).expect("the directory opens");
    let (handle, queues) = (node.handle(), node.handle().queues());
    let [first, second] = [(); 2].map(|()| block_on(queues.push(&Last)).expect("the node answers"));
    let workers = handle.work::<Last>(1).expect("a worker can be started");
    until("it runs", || (LAST_BEGUN.load(Ordering::SeqCst) == 1).then_some(()));
    block_on(handle.begin_drain(Drain::Queues)).expect("the node answers");
    assert_eq!(job(&queues, first).expect("the job exists").phase, Phase::Claimed);
    LAST_GATE.store(true, Ordering::SeqCst);
    block_on(handle.drained()).expect("nothing is left");
    assert!(job(&queues, first).is_none(), "it is completed");
    // The drain makes the worker end, which this waits for.
    block_on(workers.end());
    assert_eq!(LAST_BEGUN.load(Ordering::SeqCst), 1);
    let left = block_on(queues.job(second)).expect("the job exists");
    assert_eq!(left.phase, Phase::Ready);
}

#[derive(Serialize, Deserialize)]
struct Long;

static TRIES: AtomicU32 = AtomicU32::new(0);

impl Job for Long {
    const TYPE: &str = "long";

    #[expect(clippy::disallowed_methods, reason = "it takes longer than its claim")]
    async fn run(self, attempt: Attempt) -> Result<(), JobError> {
        TRIES.fetch_max(attempt.number(), Ordering::SeqCst);
        attempt.progress(40, "at it").await?;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        Ok(())
    }
}

#[test]
fn a_job_that_takes_longer_than_its_claim_keeps_it() {
    let rules = TypeRules { claim_ttl_ms: 400, ..TypeRules::default() };
    let mut config = Config::in_memory();
    config.rules.queue.types.insert("long".to_owned(), rules);
    let node = Node::open(config).expect("the directory opens");
    let queues = node.handle().queues();
    let id = block_on(queues.push(&Long)).expect("the node answers");
    let _workers = node.handle().work::<Long>(2).expect("they begin");
    until("its progress is shown", || {
        let progress = job(&queues, id)?.progress?;
        (progress.percent == Some(40)).then_some(())
    });
    until_gone(&queues, id);
    assert_eq!(TRIES.load(Ordering::SeqCst), 1, "no other worker had it");
}

#[derive(Serialize, Deserialize)]
struct Endless;

static ENDLESS: AtomicU32 = AtomicU32::new(0);

struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        ENDLESS.fetch_add(10, Ordering::SeqCst);
    }
}

impl Job for Endless {
    const TYPE: &str = "endless";

    async fn run(self, _: Attempt) -> Result<(), JobError> {
        ENDLESS.fetch_add(1, Ordering::SeqCst);
        let _ends = Ends;
        std::future::pending().await
    }
}

#[test]
fn a_job_whose_claim_is_lost_is_dropped() {
    let mut config = Config::in_memory();
    let rules = TypeRules { claim_ttl_ms: 300, ..TypeRules::default() };
    config.rules.queue.types.insert("endless".to_owned(), rules);
    let node = Node::open(config).expect("the directory opens");
    let queues = node.handle().queues();
    let put = put_of(&Endless).expect("a writable file");
    let queue = put.queue.clone();
    block_on(queues.put(put)).expect("the node answers");
    let workers = node.handle().work::<Endless>(1).expect("a worker can be started");
    until("it runs", || (ENDLESS.load(Ordering::SeqCst) == 1).then_some(()));
    block_on(queues.flush(&queue)).expect("the node answers");
    until("it is dropped", || (ENDLESS.load(Ordering::SeqCst) == 11).then_some(()));
    block_on(workers.end());
}

static BLOCKED: AtomicU32 = AtomicU32::new(0);
static OPEN: AtomicBool = AtomicBool::new(false);

#[derive(Serialize, Deserialize)]
struct Blocking;

impl Job for Blocking {
    const TYPE: &str = "blocking";

    /// Blocks the thread of its worker until the test lets it go on.
    async fn run(self, _: Attempt) -> Result<(), JobError> {
        BLOCKED.fetch_add(1, Ordering::SeqCst);
        while !OPEN.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

#[test]
fn a_job_that_blocks_its_thread_keeps_its_claim() {
    let mut config = Config::in_memory();
    config.rules.queue.default = TypeRules { claim_ttl_ms: 300, ..TypeRules::default() };
    let node = Node::open(config).expect("the directory opens");
    let queues = node.handle().queues();
    let id = block_on(queues.push(&Blocking)).expect("the node answers");
    let workers = node.handle().work::<Blocking>(2);
    let workers = workers.expect("workers can be started");
    let claimed =
        until("it is claimed", || job(&queues, id).filter(|view| view.phase == Phase::Claimed));
    // Each renewal moves the end of the claim; ten of them last longer than the claim itself.
    let mut ends = claimed.until;
    for _ in 0..10 {
        ends = until("its claim is renewed", || {
            let view = job(&queues, id)?;
            assert_eq!((view.timeouts, view.reserves), (0, 1), "{view:?}");
            Some(view.until).filter(|until| *until > ends)
        });
    }
    OPEN.store(true, Ordering::SeqCst);
    until_gone(&queues, id);
    block_on(workers.end());
    assert_eq!(BLOCKED.load(Ordering::SeqCst), 1, "it ran once");
}
