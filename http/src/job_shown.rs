//! The state of a job, as JSON. The fields are documented in `docs/protocols/http.md`, "Queues".

use schemars::JsonSchema;
use serde::Serialize;
use sexton::actors::queue::{JobView, Phase, Progress, QueueName};
use sexton::clock::Timestamp;
use sexton::ids::Token;
use sexton_api::binding::Extent;

/// The state of a job.
#[expect(clippy::struct_excessive_bools, reason = "each is a separate JSON field")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct Job {
    /// The job's id.
    id: u64,
    queue: QueueName,
    phase: Phase,
    /// The priority: 0 is the most urgent, and anything below 1024 counts as urgent.
    priority: u32,
    /// Milliseconds since the job was added.
    age_ms: u64,
    /// Milliseconds since the job was claimed, however often the claim was renewed; null if it is not claimed.
    claimed_ms: Option<u64>,
    /// Milliseconds until the job's delay or claim ends, or until it is retried or pruned; null if none applies.
    remaining_ms: Option<u64>,
    /// The most recent delay, in milliseconds.
    delay_ms: u64,
    /// How long a claim of the job lasts, in milliseconds; 0 if the setting of its type applies.
    ttr_ms: u64,
    /// The number of claims since the job was added or kicked, not counting claims that ended with a deferral.
    attempts: u32,
    /// The total number of claims.
    claims: u32,
    /// The number of claims that expired.
    timeouts: u32,
    /// The number of times the job was released or deferred.
    releases: u32,
    /// The number of times the job was buried.
    buries: u32,
    /// The number of times the job was kicked.
    kicks: u32,
    /// The token of the job's claim; null if it is not claimed.
    token: Option<Token>,
    /// Whether the job is tried again after it fails or its claim expires. If not, it is removed.
    retries: bool,
    /// Whether the job survives a restart of the coordinator.
    durable: bool,
    /// The size of the body in bytes.
    bytes: u64,
    /// The error of the last failure or deferral, the reason for the cancellation, or how the process of the last claim
    /// ended; null if there is none.
    error: Option<String>,
    /// The number of crashes in a row that ended its last claims.
    crashes: u32,
    /// The process that works on the job, if its worker named one; null otherwise.
    command: Option<String>,
    /// The process that the claim is bound to; null if there is none.
    process: Option<String>,
    /// Whether the claim ends when the process itself exits or when its whole tree has exited; null if the claim is not
    /// bound to a process.
    release: Option<Extent>,
    /// Whether the process tree is killed when the claim expires, before the job becomes available again.
    kill_before_grant: bool,
    /// Whether the claim has expired and its process is being killed.
    fencing: bool,
    /// Whether the job has been cancelled but stays claimed until its process has ended.
    cancelled: bool,
    /// The progress in percent, as reported by the worker; null if it reported none.
    percent: Option<u8>,
    /// The last text reported by the worker; null if it reported none.
    report: Option<String>,
}

/// Returns the state of a job at `now`.
pub(crate) fn job_shown(view: &JobView, now: Timestamp) -> Job {
    let JobView {
        id,
        queue,
        phase,
        priority,
        created,
        claimed,
        until,
        delay_ms,
        ttr_ms,
        attempts,
        reserves,
        timeouts,
        releases,
        buries,
        kicks,
        token,
        retries,
        passing,
        bytes,
        error,
        bound,
        fencing,
        cancelled,
        command,
        crashes,
        progress,
    } = view.clone();
    let Progress { percent, text: report } = progress.unwrap_or_default();
    Job {
        id,
        queue,
        phase,
        priority,
        age_ms: now.0.saturating_sub(created.0),
        claimed_ms: claimed.map(|at| now.0.saturating_sub(at.0)),
        remaining_ms: until.map(|until| until.0.saturating_sub(now.0)),
        delay_ms,
        ttr_ms,
        attempts,
        claims: reserves,
        timeouts,
        releases,
        buries,
        kicks,
        token,
        retries,
        durable: !passing,
        bytes,
        error: error.map(Into::into),
        crashes,
        command: command.map(|it| it.process.to_string()),
        process: bound.map(|it| it.process.to_string()),
        release: bound.map(|it| it.until.into()),
        kill_before_grant: bound.is_some_and(|it| it.fence),
        fencing,
        cancelled,
        percent,
        report: report.map(Into::into),
    }
}
