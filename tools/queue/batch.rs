//! Adds jobs from lines of JSON in a file or on standard input: all of them or none, or part by part if they are many.
//!
//! The jobs are not validated here. The coordinator does that; if it reports an error in a job, the error is printed with the job's line
//! number.

use crate::client::fields;
use crate::queue::answer::{ClientOptions, success};
use crate::report::{Failure, print};
use crate::text::{count, number};
use serde_json::{Map, Value, json};
use sexton::actors::queue::QueueName;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The maximum number of jobs in one request.
const JOBS_MAX: usize = 1000;

/// The size in bytes that one request does not exceed, unless it has only one job. The coordinator accepts more, whatever its settings.
const PART_BYTES: usize = 100_000;

/// The maximum number of bytes in a file.
const BYTES_MAX: u64 = 1 << 30;

/// A job, and its line number.
type Line = (usize, Value);

/// Adds all jobs of a file and prints their ids. A job that names no queue goes to `queue`. If `is_atomic` is set, all jobs are added or
/// none; otherwise that applies to each part of at most [`JOBS_MAX`] jobs and about [`PART_BYTES`] bytes.
pub(super) fn push(
    options: &ClientOptions,
    file: &Path,
    (queue, is_atomic): (Option<&QueueName>, bool),
) -> Result<(), Failure> {
    let text = read(file)?;
    let lines = jobs(&text, queue)?;
    if is_atomic && lines.len() > JOBS_MAX {
        let words = format!(
            "the batch has {}, but the limit is {JOBS_MAX}",
            count(lines.len() as u64, "job")
        );
        return Err(Failure::usage(words)
            .help("without --atomic, the jobs are added in parts, each of which is atomic"));
    }
    let parts = if is_atomic { vec![lines.as_slice()] } else { parts(&lines) };
    let mut added = Vec::new();
    let done: Result<(), Failure> = parts.into_iter().try_for_each(|part| {
        let before = added.len();
        let ids = add(options, part).map_err(|failure| after(failure, before, part))?;
        added.extend(ids);
        Ok(())
    });
    // The ids of the jobs that were added are printed even if a later part fails.
    if options.json {
        if done.is_ok() || !added.is_empty() {
            print(&format!("{}\n", json!({ "jobs": added })))?;
        }
    } else {
        let ids = added.iter().map(|job| format!("{}\n", number(job, "/id")));
        print(&ids.collect::<Vec<_>>().concat())?;
    }
    done
}

/// Divides jobs into parts, each of which fits in a request.
fn parts(lines: &[Line]) -> Vec<&[Line]> {
    let mut parts = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (place, (_, job)) in lines.iter().enumerate() {
        let size = job.to_string().len() + 1;
        if place > begin && (place - begin == JOBS_MAX || bytes + size > PART_BYTES) {
            parts.extend(lines.get(begin..place));
            (begin, bytes) = (place, 0);
        }
        bytes += size;
    }
    parts.extend(lines.get(begin..));
    parts
}

/// Adds the jobs of one request, and returns the id of each and whether it is new.
fn add(options: &ClientOptions, part: &[Line]) -> Result<Vec<Value>, Failure> {
    let jobs: Vec<&Value> = part.iter().map(|(_, job)| job).collect();
    let answer = options.post("push-all", fields([("jobs", json!(jobs))]))?;
    let said = answer.json()?;
    if options.json && answer.status != 200 {
        print(&answer.body)?;
    }
    if answer.status != 200
        && let Some(place) = said.pointer("/field").and_then(Value::as_str)
        && let Some((place, field)) = place.strip_prefix("jobs[").and_then(|it| it.split_once("]."))
        && let Some((line, _)) = place.parse().ok().and_then(|place: usize| part.get(place))
    {
        let why = said.pointer("/detail").and_then(Value::as_str);
        let why = why.unwrap_or("is invalid");
        let words = format!("line {line} of the batch, {field}: {why}");
        return Err(Failure::usage(words).help("`sexton queue push --help` has an example"));
    }
    let mut said = success(&answer)?;
    let added = said.pointer_mut("/jobs").map(Value::take);
    let Some(Value::Array(added)) = added else {
        return Err(Failure::unreachable("the coordinator's answer has no list of jobs"));
    };
    Ok(added)
}

/// Adds to a failure which jobs were added before it.
fn after(failure: Failure, before: usize, part: &[Line]) -> Failure {
    let line = part.first().map_or(0, |(line, _)| *line);
    if before == 0 {
        return failure.explained(": nothing was added");
    }
    let added = count(before as u64, "job");
    failure.explained(&format!(
        ": the {added} of the lines before line {line} were added, and none of the others: repeat with those, as in `tail -n +{line}`"
    ))
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

/// Parses the jobs of a batch, one per line; empty lines are skipped. Fails if a line is not a JSON object, or if there are no jobs.
fn jobs(text: &str, queue: Option<&QueueName>) -> Result<Vec<Line>, Failure> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let mut jobs = Vec::new();
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
        jobs.push((line, Value::Object(job)));
    }
    if jobs.is_empty() {
        return Err(Failure::usage("the batch has no jobs"));
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::{JOBS_MAX, PART_BYTES, parts, read_at_most};
    use serde_json::json;

    #[test]
    fn many_or_large_jobs_are_divided_in_their_order() {
        let lines: Vec<_> =
            (1..=2 * JOBS_MAX + 1).map(|line| (line, json!({"body": "x"}))).collect();
        let lengths: Vec<_> = parts(&lines).iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [JOBS_MAX, JOBS_MAX, 1]);
        let large = json!({"body": "x".repeat(PART_BYTES / 2)});
        let lines: Vec<_> = (1..=3).map(|line| (line, large.clone())).collect();
        assert_eq!(parts(&lines).concat(), lines);
        assert_eq!(parts(&lines).len(), 3);
    }

    #[test]
    fn a_batch_is_read_whole_or_refused() {
        assert_eq!(read_at_most(4, &b"1234"[..]).unwrap(), "1234");
        let refused = read_at_most(4, &b"12345"[..]).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 4 bytes");
    }
}
