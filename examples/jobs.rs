//! A program that processes its own jobs: it resizes pictures on two threads.
//!
//! A job that fails or panics is retried. A job may run more than once, and jobs run in any order.
//!
//! Run it with `cargo run --example jobs`.

use serde::{Deserialize, Serialize};
use sexton::node::{Attempt, Job, JobError};
use sexton::{Config, Node, block_on};
use std::error::Error;
use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The channel through which workers send a line for each finished job to `run`, which prints it.
static DONE: Mutex<Option<Sender<String>>> = Mutex::new(None);

/// A job that resizes a picture. Jobs are stored as JSON, so they can also be pushed from a shell:
/// `sexton queue push thumbs '{"path":"a.png","width":80}'`.
#[derive(Serialize, Deserialize)]
struct Thumb {
    path: String,
    width: u32,
}

impl Job for Thumb {
    const TYPE: &str = "thumbs";

    async fn run(self, attempt: Attempt) -> Result<(), JobError> {
        attempt.progress(10, &self.path).await?;
        match (self.path.as_str(), attempt.number()) {
            // An error and a panic both count as a failure, after which the job is tried again.
            ("shy.png", 1) => {
                return Err(JobError::failed("not there yet").retry_after(Duration::ZERO));
            }
            ("broken.png", 1) => panic!("index out of bounds"),
            _ => {}
        }
        let line = format!("{} at {} px, try {}", self.path, self.width, attempt.number());
        let done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
        done.as_ref().ok_or_else(|| JobError::failed("no channel has been set up"))?.send(line)?;
        Ok(())
    }
}

pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (done, lines) = channel();
    *DONE.lock()? = Some(done);
    let node = Node::open(Config::in_memory())?; // with Config::at("/var/lib/app"), jobs outlive a crash
    let workers = node.handle().work::<Thumb>(2)?;
    let queues = node.handle().queues();
    for path in ["cat.png", "shy.png", "broken.png"] {
        let path = path.to_owned();
        block_on(queues.push(&Thumb { path, width: 80 }))?;
    }
    // Jobs end in any order, so the lines are sorted.
    let mut ended: Vec<String> = lines.iter().take(3).collect();
    ended.sort();
    for line in ended {
        writeln!(out, "{line}")?;
    }
    block_on(workers.end()); // starts no new job, and waits for the running ones
    writeln!(out, "{} left", block_on(queues.totals())?.jobs.all())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}
