//! Changes to jobs over HTTP: converts requests to calls of [`Queues`](sexton::handle::Queues), and results to answers.
//! The JSON fields are documented in `docs/protocols/http.md`, "Queues".
//!
//! The queue actor decides which client may do what with a job.

use crate::binding::Bound;
use crate::call::Call;
use crate::pop;
use crate::problem::Problem;
use crate::route::Route;
use sexton::actors::queue::{Command, DedupKey, ErrorText, JobView, Progress, Put, Root};
use sexton::handle::Added;
use sexton_api::binding::Extent;

/// The path for adding a job. Its request bodies may be larger than those of most paths.
pub(crate) const PUSH: &str = Push::ROUTE.path;
/// The path for adding several jobs. Its request bodies may be larger than those of most paths.
pub(crate) const PUSH_ALL: &str = PushAll::ROUTE.path;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::of(push),
        Route::of(push_all),
        Route::of(register),
        Route::of(pop::pop),
        Route::of(ack),
        Route::of(fail),
        Route::of(defer),
        Route::of(report),
        Route::of(touch),
        Route::of(release),
        Route::of(bury),
    ]
}

/// Converts the job, or refuses it. In errors, `place` precedes the name of the field: it is the path of the job within the request,
/// such as `jobs[3].`, or empty.
fn put_of(job: Push, place: &str) -> Result<Put, Problem> {
    let Push {
        queue,
        body,
        priority,
        delay_ms,
        ttr_ms,
        dedup,
        unique_for_ms,
        retries,
        root,
        is_root,
        items,
    } = job;
    if is_root && root.is_none() {
        let words = "is required if is_root is true";
        return Err(Problem::field(&format!("{place}root"), words));
    }
    Ok(Put {
        priority: priority.0,
        delay_ms: delay_ms.0,
        ttr_ms: ttr_ms.0,
        dedup: dedup.map(|key| DedupKey::of(key.as_bytes())),
        retries,
        root: root.map(|root| Root::of(&queue, &root.signature, root.at)),
        is_root,
        tube: false,
        // 0 counts as 1. The default is stored as 0, so that the message equals that of a client that does not set `items`.
        items: if items.0 == 1 { 0 } else { items.0 },
        unique_for_ms: unique_for_ms.0,
        body,
        queue,
    })
}

fn pushed(Added { id, new, phase }: Added) -> Pushed {
    Pushed { id, new, phase }
}

/// Adds a job.
async fn push(call: &Call, job: Push) -> Result<Pushed, Problem> {
    call.queues().put(put_of(job, "")?).await.map(pushed).map_err(Problem::from)
}

/// Adds several jobs atomically.
async fn push_all(call: &Call, all: PushAll) -> Result<PushedAll, Problem> {
    let jobs = all.jobs.0.into_iter().enumerate();
    let jobs = jobs.map(|(place, job)| put_of(job, &format!("jobs[{place}].")));
    let jobs = jobs.collect::<Result<_, _>>()?;
    let added = call.queues().put_all(jobs).await?;
    let jobs = added.into_iter().map(pushed).collect();
    Ok(PushedAll { jobs })
}

/// Registers a root job, which makes the jobs of older root jobs superfluous.
async fn register(call: &Call, root: RegisterRoot) -> Result<RootRegistered, Problem> {
    let RegisterRoot { queue, signature, at } = root;
    let root = Root::of(&queue, &signature, at);
    let registered = call.queues().register(root).await?;
    Ok(RootRegistered { registered })
}

/// Completes a claimed job.
async fn ack(call: &Call, of: Ack) -> Result<Deleted, Problem> {
    call.queues().ack(of.id, of.token).await?;
    Ok(Deleted { deleted: 1 })
}

/// Reports that a claimed job failed.
async fn fail(call: &Call, of: Fail) -> Result<Changed, Problem> {
    let retry_after_ms = of.retry_after_ms.map(|span| span.0);
    let said = (retry_after_ms, of.error.as_deref().map(ErrorText::excerpt));
    let view = if of.crashed {
        call.queues().crash(of.id, of.token, said).await?
    } else {
        call.queues().fail(of.id, of.token, said).await?
    };
    Ok(changed(call, of.id, view.as_ref()))
}

/// Reports that a claimed job cannot be tried now.
async fn defer(call: &Call, of: Defer) -> Result<Changed, Problem> {
    let retry_after_ms = of.retry_after_ms.map(|span| span.0);
    let error = of.error.as_deref().map(ErrorText::excerpt);
    if of.interrupted {
        if retry_after_ms.is_some() {
            let words = "cannot be combined with interrupted";
            return Err(Problem::field("retry_after_ms", words));
        }
        let view = call.queues().interrupt(of.id, of.token, error).await?;
        return Ok(changed(call, of.id, view.as_ref()));
    }
    let said = (retry_after_ms, error);
    let view = call.queues().defer(of.id, of.token, said).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

/// Records the progress of a claimed job.
async fn report(call: &Call, of: Report) -> Result<Changed, Problem> {
    let progress = Progress {
        percent: of.percent.and_then(|it| u8::try_from(it.0).ok()),
        text: of.text.as_deref().map(ErrorText::excerpt),
    };
    let view = call.queues().report(of.id, of.token, progress).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

/// Extends a claim.
async fn touch(call: &Call, of: Touch) -> Result<Changed, Problem> {
    if let Some(command) = of.command {
        if of.process.is_some() {
            return Err(Problem::field("command", "cannot be combined with process"));
        }
        let bound =
            Bound { process: Some(command), release: Extent::default(), kill_before_grant: false };
        // The command may have ended already. Its record then says how.
        let binding = bound.binding_again(call).await?;
        let process = binding.expect("a process should be given").process;
        let command = Command { process, completes: of.completes };
        let terms = (command, of.claim_ms.0);
        let view = call.queues().attach(of.id, of.token, terms).await?;
        return Ok(changed(call, of.id, view.as_ref()));
    }
    let bound =
        Bound { process: of.process, release: of.release, kill_before_grant: of.kill_before_grant };
    let queues = pop::bound(call, &bound).await?;
    let view = queues.touch(of.id, of.token).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

/// Gives a claimed job back.
async fn release(call: &Call, of: Release) -> Result<Changed, Problem> {
    let terms = (of.delay_ms.0, of.priority);
    let view = call.queues().release(of.id, of.token, terms).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

/// Buries a claimed job.
async fn bury(call: &Call, of: Bury) -> Result<Changed, Problem> {
    let view = call.queues().bury(of.id, of.token, of.priority).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

fn changed(call: &Call, id: u64, view: Option<&JobView>) -> Changed {
    let now = call.node.now();
    let until = view.and_then(|view| view.until);
    Changed {
        id,
        phase: view.map(|view| view.phase),
        attempts: view.map(|view| view.attempts),
        remaining_ms: until.map(|until| until.0.saturating_sub(now.0)),
    }
}
use sexton_api::job::{
    Ack, Bury, Changed, Defer, Deleted, Fail, Push, PushAll, Pushed, PushedAll, RegisterRoot,
    Release, Report, RootRegistered, Touch,
};
use sexton_api::request::Request as _;
