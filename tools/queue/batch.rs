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

/// The maximum number of bytes in a file. The coordinator's limit is lower, unless `--job-bytes` raises it.
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
    let (name, read) = if file == Path::new("-") {
        let read = read_at_most(BYTES_MAX, io::stdin().lock());
        ("standard input".to_owned(), read)
    } else {
        let opened = File::open(file);
        let read = opened.and_then(|file| read_at_most(BYTES_MAX, file));
        (file.display().to_string(), read)
    };
    read.map_err(|error| Failure::unreachable(format!("failed to read {name}: {error}")))
}

/// Reads text to its end. Fails if it has more than `bytes_max` bytes, because a batch is added whole or not at all.
fn read_at_most(bytes_max: u64, from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        let words = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::other(words));
    }
    Ok(text)
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

#[cfg(test)]
mod tests {
    use super::read_at_most;

    #[test]
    fn a_batch_is_read_whole_or_refused() {
        assert_eq!(read_at_most(4, &b"1234"[..]).unwrap(), "1234");
        let refused = read_at_most(4, &b"12345"[..]).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 4 bytes");
    }
}
