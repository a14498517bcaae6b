//! Adds a batch of jobs atomically: lines of JSON from a file or from standard input.
//!
//! The jobs are not validated here. The coordinator does that; if it reports an error in a job, the error is printed with the job's line
//! number.

use crate::client::fields;
use crate::queue::answer::{ClientOptions, success};
use crate::report::{Failure, print};
use crate::text::number;
use serde_json::{Map, Value, json};
use sexton::actors::queue::QueueName;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The maximum number of jobs in a batch.
const JOBS_MAX: usize = 1000;

/// The maximum number of bytes to read from a file. The coordinator's limit is lower, unless `--job-bytes` raises it.
const BYTES_MAX: u64 = 1 << 30;

/// Adds all jobs of a file, or none, and prints their ids. A job that names no queue goes to `queue`.
pub(super) fn push(
    options: &ClientOptions,
    file: &Path,
    queue: Option<&QueueName>,
) -> Result<(), Failure> {
    let text = read(file)?;
    let (lines, jobs) = jobs(&text, queue)?;
    let answer = options.post("push-all", fields([("jobs", json!(jobs))]), 0)?;
    let said = answer.json()?;
    if answer.status != 200
        && let Some(place) = said.pointer("/field").and_then(Value::as_str)
        && let Some((place, field)) = place
            .strip_prefix("jobs[")
            .and_then(|it| it.split_once("]."))
        && let Some(line) = place.parse().ok().and_then(|place: usize| lines.get(place))
    {
        let why = said.pointer("/detail").and_then(Value::as_str);
        let why = why.unwrap_or("is invalid");
        let words = format!("line {line} of the batch, {field}: {why}");
        return Err(Failure::usage(words)
            .help("nothing was added; `sexton queue push --help` has an example"));
    }
    if options.json {
        print(&answer.body)?;
    }
    let said = success(&answer)?;
    let added = said.pointer("/jobs").and_then(Value::as_array);
    let ids = added.into_iter().flatten().filter(|_| !options.json);
    let ids = ids.map(|job| format!("{}\n", number(job, "/id")));
    print(&ids.collect::<Vec<_>>().concat())
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let mut read = |from: &mut dyn Read| from.take(BYTES_MAX).read_to_string(&mut text);
    let (name, read) = if file == Path::new("-") {
        ("standard input".to_owned(), read(&mut io::stdin().lock()))
    } else {
        let opened = File::open(file);
        (
            file.display().to_string(),
            opened.and_then(|mut file| read(&mut file)),
        )
    };
    read.map(|_| text)
        .map_err(|error| Failure::unreachable(format!("failed to read {name}: {error}")))
}

/// Parses the jobs of a batch, one per line; empty lines are skipped. Returns the line number of each job, and the jobs. Fails if a line is
/// not a JSON object, or if there are no jobs or more than [`JOBS_MAX`].
fn jobs(text: &str, queue: Option<&QueueName>) -> Result<(Vec<usize>, Vec<Value>), Failure> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let mut jobs = (Vec::new(), Vec::new());
    for (line, text) in lines {
        let mut job: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
            let words = format!("line {line} of the batch is not a job: {error}");
            Failure::usage(words).help(
                "each line must be an object such as {\"queue\": \"mails\", \"body\": \"to: ann\"}",
            )
        })?;
        if let Some(queue) = queue {
            job.entry("queue").or_insert_with(|| json!(queue));
        }
        jobs.0.push(line);
        jobs.1.push(Value::Object(job));
    }
    match jobs.1.len() {
        1..=JOBS_MAX => Ok(jobs),
        0 => Err(Failure::usage("the batch has no jobs")),
        count => Err(Failure::usage(format!(
            "the batch has {count} jobs, but the limit is {JOBS_MAX}"
        ))
        .help("`split -l 1000` splits the file into several batches, each of which can be added atomically")),
    }
}
