//! The state of a job, as JSON. The fields are documented in `docs/protocols/http.md`, "Queues".

use sexton::actors::queue::{JobView, Progress};
use sexton::clock::Timestamp;
use sexton_api::queue::Job;

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
