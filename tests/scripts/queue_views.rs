//! Descriptions of jobs and queues, for the output of scripts.

use crate::node::{Parsed, milliseconds, moment};
use crate::queue::named;
use sexton::actors::queue::{Backoff, JobResult, JobView, Progress, QueueView, Totals};
use sexton::clock::Timestamp;

pub(crate) fn job_in_words(job: &JobView) -> String {
    let mut words = vec![format!("{} {} {}", job.id, job.queue, named(job.phase))];
    words.push(format!("prio={}", job.priority));
    let until = job.until.filter(|until| *until != Timestamp(u64::MAX));
    words.extend(until.map(|until| format!("until {}", moment(until))));
    let spans = [("delay", job.delay_ms), ("ttr", job.ttr_ms)];
    let spans = spans.iter().filter(|(_, ms)| *ms > 0);
    words.extend(spans.map(|(what, ms)| format!("{what}={ms}ms")));
    let counts = [
        ("attempts", job.attempts),
        ("reserves", job.reserves),
        ("timeouts", job.timeouts),
        ("releases", job.releases),
        ("buries", job.buries),
        ("kicks", job.kicks),
        ("crashes", job.crashes),
    ];
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    words.extend(counts.map(|(what, count)| format!("{what}={count}")));
    words.extend(job.token.map(|token| format!("token {token}")));
    words.extend(job.bound.map(|it| {
        let until = format!("{:?}", it.until).to_lowercase();
        let fence = if it.fence { ", fenced" } else { "" };
        format!("until the {until} {} has ended{fence}", it.process.0)
    }));
    words.extend(job.command.map(|it| {
        let completes = if it.completes { ", which completes it" } else { "" };
        format!("by {}{completes}", it.process.0)
    }));
    words.extend(job.fencing.then(|| "fencing".to_owned()));
    words.extend(job.cancelled.then(|| "cancelled".to_owned()));
    let error = job.error.as_ref();
    words.extend(error.map(|error| format!("error={}", error.as_str())));
    if let Some(Progress { percent, text }) = &job.progress {
        words.extend(percent.map(|percent| format!("{percent}%")));
        words.extend(text.as_ref().map(|text| format!("report={}", text.as_str())));
    }
    words.join(" ")
}

pub(crate) fn result_in_words(result: &JobResult) -> String {
    let JobResult { id, queue, end, attempts, age_ms, ended, until } = result;
    let what = if end.done { "done" } else { "failed" };
    let mut words = vec![format!("{id} {queue} {what}, try {attempts}")];
    words.extend(end.exit.map(|exit| format!("exit={exit}")));
    words.push(format!("took={}ms age={age_ms}ms", end.took_ms));
    let dates = [ended, until].map(|date| moment(Timestamp(date.0)));
    words.push(format!("ended {} until {}", dates[0], dates[1]));
    let error = end.error.as_ref();
    words.extend(error.map(|error| format!("error={}", error.as_str())));
    let output = end.output.as_bytes();
    let text = String::from_utf8_lossy(output);
    words.push(if output.len() > 99 {
        format!("{} bytes of output", output.len())
    } else {
        format!("output={text}")
    });
    words.join(" ")
}

pub(crate) fn queue_in_words(queue: &QueueView) -> String {
    let jobs = queue.jobs;
    let counts = [
        ("urgent", u64::from(jobs.urgent)),
        ("ready", u64::from(jobs.ready)),
        ("delayed", u64::from(jobs.delayed)),
        ("claimed", u64::from(jobs.claimed)),
        ("retrying", u64::from(jobs.retrying)),
        ("buried", u64::from(jobs.buried)),
        ("abandoned", u64::from(jobs.abandoned)),
        ("quarantined", u64::from(jobs.quarantined)),
        ("total", queue.total),
        ("using", u64::from(queue.using)),
        ("watching", u64::from(queue.watching)),
        ("waiting", u64::from(queue.waiting)),
        ("deletes", queue.deletes),
        ("pauses", queue.pauses),
    ];
    let mut words = vec![queue.name.to_string()];
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    words.extend(counts.map(|(what, count)| format!("{what}={count}")));
    let until = queue.paused_until.filter(|until| *until != Timestamp(u64::MAX));
    words.extend(until.map(|until| format!("paused until {}", moment(until))));
    words.join(" ")
}

pub(crate) fn totals_in_words(totals: &Totals) -> String {
    let Totals {
        jobs,
        bytes,
        added,
        deletes: _,
        timeouts,
        recycled,
        abandoned,
        pruned,
        duplicates,
        queues,
        waiting,
        draining,
    } = totals;
    let more = [
        ("recycled", recycled),
        ("abandoned", abandoned),
        ("pruned", pruned),
        ("duplicates", duplicates),
    ];
    let more = more.iter().filter(|(_, count)| **count > 0);
    let more = more.map(|(what, count)| format!(", {count} {what}"));
    let more = more.collect::<Vec<_>>().concat();
    let (ready, all) = (jobs.ready, jobs.all());
    format!(
        "{all} jobs, {ready} ready, {bytes} bytes, {added} added, {timeouts} timeouts, {queues} queues, {waiting} waiting{more}{}",
        if *draining { ", draining" } else { "" }
    )
}

/// Parses the delays of a back-off, `first,factor,max,jitter`. The jitter is in thousandths.
pub(crate) fn backoff(words: &str) -> Parsed<Backoff> {
    let parts: Vec<&str> = words.split(',').collect();
    let [first, factor, max, jitter] = parts.as_slice() else {
        return Err(format!("`{words}` is no back-off: first,factor,max,jitter"));
    };
    let count = |word: &str| word.parse().map_err(|_| format!("`{word}` is no number"));
    Ok(Backoff {
        first_ms: milliseconds(first)?,
        factor: count(factor)?,
        max_ms: milliseconds(max)?,
        jitter_milli: count(jitter)?,
    })
}
