//! The history of a job: its state, its body, and its events.

use crate::call::Call;
use crate::page::event_rows;
use crate::page::frame::{Page, View};
use crate::page::jobs;
use crate::page::render::{self, Link, PageClock, count};
use crate::page::routing;
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::{OrRun as _, Scope};
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors::queue::{JobView, Phase};
use sexton::replay::FollowedItem;
use sexton::spine::event::{Event, Field};
use sexton::text;

/// The maximum number of bytes of a body that are shown.
const BODY_BYTES: usize = 16 * 1024;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        routing::view("/page/job", Scope::Read, one),
        routing::form("/page/job/retry", Scope::Use, retry),
        routing::form(
            "/page/job/cancel",
            Scope::Use.or_run_by_state("the job's claim is bound to a process"),
            cancel,
        ),
        routing::form("/page/job/discard", Scope::Use, discard),
    ]
}

#[derive(Deserialize)]
struct Parameters {
    id: u64,
}

async fn one(call: &Call) -> Result<Page, Problem> {
    let Parameters { id } = call.query_form()?;
    let (job, body) = call.node.queues().job_with_body(id).await?;
    let here = PageClock::of(&call.node);
    let is_of_it = |event: &Event| event.what.fields.contains(&("job", Field::Number(id)));
    let history = event_rows::history(call, FollowedItem::Job(id), is_of_it).await?;
    let bytes = body.as_bytes();
    let begin = bytes.get(..BODY_BYTES).unwrap_or(bytes);
    let main = html! {
        section #job data-live {
            p.subject { "Job " (id) " of " (render::queue(&job.queue)) " " (jobs::phase(&job)) }
            @if let Some(error) = &job.error { p.problem { (render::words(error.as_str())) } }
            (facts(&job, here))
        }
        (acts(&job))
        h2 { "Body " span.faint { (text::bytes(job.bytes)) } }
        (render::lines(begin))
        @if begin.len() < bytes.len() { p.faint { "Only the first " (text::bytes(BODY_BYTES as u64)) " are shown." } }
        section #story data-live { h2 { "What happened" } (history) }
    };
    Ok(Page { view: View::Queues, title: "Job".to_owned(), main })
}

fn facts(job: &JobView, here: PageClock) -> Markup {
    let progress = job.progress.as_ref();
    html! {
        dl.facts {
            div { dt { "Added" } dd { (here.date(job.created)) ", " (here.since(job.created)) " ago" } }
            @if let Some(until) = job.until {
                div { dt { (ends(job.phase)) } dd { @match here.until(until) { Some(span) => { "in " (span) }, None => "now" } } }
            }
            @if let Some(at) = job.claimed { div { dt { "Claimed since" } dd { (here.date(at)) ", for " (here.since(at)) } } }
            div { dt { "Priority" } dd { (job.priority) } }
            div { dt { "Tries" } dd { (count(job.attempts)) } }
            div { dt { "Claims" } dd { (count(job.reserves)) } }
            div { dt { "Timed out" } dd { (count(job.timeouts)) } }
            div { dt { "Given back" } dd { (count(job.releases)) } }
            div { dt { "Buried" } dd { (count(job.buries)) } }
            div { dt { "Kicked" } dd { (count(job.kicks)) } }
            @if let Some(token) = job.token { div { dt { "Token" } dd { (token.0) } } }
            @if let Some(bound) = job.bound { div { dt { "Bound to process" } dd { (render::process(bound.process)) } } }
            @if job.passing { div { dt { "Stored" } dd { "in memory only" } } }
            @if let Some(progress) = progress {
                @if let Some(percent) = progress.percent { div { dt { "Done" } dd { (percent) " %" } } }
                @if let Some(text) = &progress.text { div { dt { "Status text" } dd { (render::words(text.as_str())) } } }
            }
        }
    }
}

const fn ends(phase: Phase) -> &'static str {
    match phase {
        Phase::Delayed | Phase::Retrying => "Ready",
        Phase::Claimed => "Claim ends",
        Phase::Ready | Phase::Buried | Phase::Abandoned | Phase::Quarantined => "Pruned",
    }
}

/// Renders the actions on a job.
fn acts(job: &JobView) -> Markup {
    let id = html! { input type="hidden" name="id" value=(job.id); };
    html! {
        div.acts {
            @match job.phase {
                Phase::Claimed => form.act method="post" action="/page/job/cancel" { (id) button.danger { "Cancel" } },
                Phase::Ready => (discards(&id)),
                Phase::Delayed | Phase::Retrying | Phase::Buried | Phase::Abandoned | Phase::Quarantined => {
                    form.act method="post" action="/page/job/retry" { (id) button { "Retry" } }
                    (discards(&id))
                }
            }
        }
    }
}

fn discards(id: &Markup) -> Markup {
    html! {
        form.act method="post" action="/page/job/discard" {
            (id)
            label { input type="checkbox" name="sure" value="yes" required; "Yes, delete it" }
            button.danger { "Discard" }
        }
    }
}

async fn retry(call: &Call) -> Result<Link, Problem> {
    let Parameters { id } = call.form()?;
    call.queues().kick_job(id).await?;
    Ok(Link::to("/page/job").with("id", id.to_string().as_bytes()))
}

async fn cancel(call: &Call) -> Result<Link, Problem> {
    let Parameters { id } = call.form()?;
    call.queues().cancel(id, None).await?;
    Ok(Link::to("/page/job").with("id", id.to_string().as_bytes()))
}

#[derive(Deserialize)]
struct Discarding {
    id: u64,
    sure: Option<String>,
}

async fn discard(call: &Call) -> Result<Link, Problem> {
    let Discarding { id, sure } = call.form()?;
    if sure.is_none() {
        return Err(Problem::field(
            "sure",
            "must be checked, because discarding a job cannot be undone",
        ));
    }
    let queue = call.queues().job(id).await?.queue;
    call.queues().delete(id).await?;
    // Links to the jobs view, because the queue's page may be gone: a queue may be removed along with its last job.
    Ok(jobs::link(Some(&queue), None).with("discarded", b"1"))
}
