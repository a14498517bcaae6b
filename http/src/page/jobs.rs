//! The jobs view: the jobs that match a filter, with their errors, and actions on all of them.

use crate::call::Call;
use crate::listing;
use crate::page::frame::{Page, View};
use crate::page::render::{self, Link, PageClock, count};
use crate::page::routing;
use crate::page::walk::walk;
use crate::problem::Problem;
use crate::queue_bulk::{BulkOperation, each};
use crate::queue_look::PHASES;
use crate::route::Route;
use crate::scope::Scope;
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors::queue::{JobSelection, JobView, Phase, QueueName};
use sexton::text;
use sexton_api::list::After;
use sexton_api::queue::BulkSelection;

/// The phases of jobs that need attention, shown by default.
const FAILED: [Phase; 3] = [Phase::Buried, Phase::Abandoned, Phase::Quarantined];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        routing::view("/page/jobs", Scope::Read, list),
        routing::form("/page/jobs/retry", Scope::Use, retry),
        routing::form("/page/jobs/discard", Scope::Use, discard),
    ]
}

/// The filter of the view, and the parameters of the actions on the jobs that match it.
#[derive(Clone, Deserialize)]
struct Filter {
    queue: Option<QueueName>,
    r#type: Option<String>,
    phase: Option<Phase>,
    error: Option<String>,
    after: Option<After>,
    /// Confirmation of the action.
    #[serde(default)]
    sure: Option<String>,
    /// The number of jobs that were just made ready, to be reported on the page.
    #[serde(default)]
    retried: Option<u32>,
    /// The number of jobs that were just discarded, to be reported on the page.
    #[serde(default)]
    discarded: Option<u32>,
}

impl Filter {
    fn link(&self) -> Link {
        let queue = self.queue.as_ref().map(QueueName::as_bytes);
        let link = Link::to("/page/jobs").with_some("queue", queue);
        let link = link.with_some("type", self.r#type.as_deref().map(str::as_bytes));
        let link = link.with_some("phase", self.phase.map(|it| word(it).as_bytes()));
        link.with_some("error", self.error.as_deref().map(str::as_bytes))
    }

    fn which(&self) -> BulkSelection {
        BulkSelection {
            queue: self.queue.clone(),
            r#type: self.r#type.clone(),
            phase: self.phase,
            error: self.error.clone(),
            ..BulkSelection::default()
        }
    }
}

fn word(phase: Phase) -> &'static str {
    let mut phases = PHASES.iter().filter(|(_, it)| *it == phase);
    phases.next().map_or("", |(word, _)| word)
}

/// Returns a link to the jobs view, filtered by queue and by phase if they are given.
pub(crate) fn link(queue: Option<&QueueName>, phase: Option<Phase>) -> Link {
    let link = Link::to("/page/jobs").with_some("queue", queue.map(QueueName::as_bytes));
    link.with_some("phase", phase.map(|it| word(it).as_bytes()))
}

async fn list(call: &Call) -> Result<Page, Problem> {
    let filter: Filter = call.query_form()?;
    let (mut found, next) = select(call, &filter).await?;
    found.sort_by_key(|job| job.id);
    let here = PageClock::of(&call.node);
    let next = next.map(|next| filter.link().with("after", next.to_string().as_bytes()));
    let main = html! {
        @if let Some(done) = filter.retried { p.done role="status" { (text::count(done.into(), "job")) " made ready." } }
        @if let Some(done) = filter.discarded { p.done role="status" { (text::count(done.into(), "job")) " discarded." } }
        (asked(&filter))
        section #jobs data-live {
            (table(&found, here))
            (render::more(next))
        }
        @if !found.is_empty() { (bulk(&filter)) }
    };
    let title = if filter.phase.is_none() { "Failed jobs" } else { "Jobs" };
    Ok(Page { view: View::Queues, title: title.to_owned(), main })
}

async fn select(call: &Call, filter: &Filter) -> Result<(Vec<JobView>, Option<u32>), Problem> {
    let queues = call.queues();
    let share = async |from, most| {
        let selection = JobSelection {
            queue: filter.queue.clone(),
            kind: filter.r#type.clone(),
            phases: filter.phase.map_or(FAILED.to_vec(), |phase| vec![phase]),
            error: filter.error.clone(),
            process: None,
            from,
            most,
        };
        Ok(queues.select_jobs(selection).await?)
    };
    let (found, next) = walk(listing::slot(filter.after), share).await?;
    Ok((found, next.map(|slot| slot.0)))
}

/// Renders the failed jobs of a queue, for the queue's page.
pub(crate) async fn of_queue(
    call: &Call,
    queue: &QueueName,
    here: PageClock,
) -> Result<Markup, Problem> {
    let filter = Filter {
        queue: Some(queue.clone()),
        r#type: None,
        phase: None,
        error: None,
        after: None,
        sure: None,
        retried: None,
        discarded: None,
    };
    let (mut found, next) = select(call, &filter).await?;
    found.sort_by_key(|job| job.id);
    let next = next.map(|next| filter.link().with("after", next.to_string().as_bytes()));
    Ok(html! {
        section #jobs data-live {
            h2 { "Failed jobs" }
            (table(&found, here))
            (render::more(next))
        }
        @if !found.is_empty() { (bulk(&filter)) }
    })
}

fn asked(filter: &Filter) -> Markup {
    html! {
        form.filter role="search" {
            label { "Queue " input name="queue" value=(filter.queue.as_ref().map(QueueName::as_str).unwrap_or_default()) placeholder="any"; }
            label { "Type " input name="type" value=(filter.r#type.as_deref().unwrap_or_default()) placeholder="any"; }
            label { "Phase "
                select name="phase" {
                    option value="" { "buried, abandoned or quarantined" }
                    @for (word, phase) in PHASES { option value=(word) selected[filter.phase == Some(phase)] { (word) } }
                }
            }
            label { "Error contains " input name="error" value=(filter.error.as_deref().unwrap_or_default()) dir="auto"; }
            button { "Show" }
        }
    }
}

/// Renders a table of jobs.
pub(crate) fn table(jobs: &[JobView], here: PageClock) -> Markup {
    if jobs.is_empty() {
        return html! { p.faint { "No jobs." } };
    }
    let has_claims = jobs.iter().any(|job| job.claimed.is_some());
    html! {
        div.wide tabindex="0" { table {
            thead { tr {
                th.n { "Job" } th { "Queue" } th { "Phase" }
                @if has_claims { th { "Claimed since" } th { "Process" } }
                th.n { "Age" } th.n { "Tries" } th.n { "Ends in" } th { "Last error" }
            } }
            tbody {
                @for job in jobs {
                    tr {
                        td.n { (render::job(job.id)) }
                        td { (render::queue(&job.queue)) }
                        td { (phase(job)) }
                        @if has_claims {
                            td { @if let Some(at) = job.claimed { (here.date(at)) ", for " (here.since(at)) } }
                            td { @if let Some(bound) = job.bound { (render::process(bound.process)) } }
                        }
                        td.n { (here.since(job.created)) }
                        td.n { (count(job.attempts)) }
                        td.n { @if let Some(span) = job.until.and_then(|it| here.until(it)) { (span) } }
                        td.words { @if let Some(error) = &job.error { (render::words(error.as_str())) } }
                    }
                }
            }
        } }
    }
}

/// Renders the phase of a job.
pub(crate) fn phase(job: &JobView) -> Markup {
    let level = match job.phase {
        Phase::Buried | Phase::Abandoned | Phase::Quarantined => "bad",
        Phase::Retrying => "warn",
        Phase::Claimed => "good",
        Phase::Ready | Phase::Delayed => "",
    };
    html! {
        (render::tag(word(job.phase), level))
        @if job.fencing { " " (render::tag("its process is being killed", "warn")) }
        @if job.cancelled { " " (render::tag("cancelled", "warn")) }
    }
}

/// Renders the actions on all jobs that match a filter.
fn bulk(filter: &Filter) -> Markup {
    let fields = html! {
        @if let Some(queue) = &filter.queue { input type="hidden" name="queue" value=(queue.as_str()); }
        @if let Some(kind) = &filter.r#type { input type="hidden" name="type" value=(kind); }
        @if let Some(phase) = filter.phase { input type="hidden" name="phase" value=(word(phase)); }
        @if let Some(error) = &filter.error { input type="hidden" name="error" value=(error); }
    };
    let phase = filter.phase;
    html! {
        h2 { "All jobs that match the filter, on every page" }
        @if phase != Some(Phase::Ready) && phase != Some(Phase::Claimed) {
            form.act method="post" action="/page/jobs/retry" {
                (fields)
                button { "Retry" }
                span.faint { "makes them ready, as if they had never been tried, up to 1,000 at a time" }
            }
        }
        @if phase != Some(Phase::Claimed) {
            form.act method="post" action="/page/jobs/discard" {
                (fields)
                label { input type="checkbox" name="sure" value="yes" required; "Yes, delete them" }
                button.danger { "Discard" }
                span.faint { "permanently, up to 1,000 at a time" }
            }
        }
    }
}

async fn retry(call: &Call) -> Result<Link, Problem> {
    let filter: Filter = call.form()?;
    let (done, _) = each(call, filter.which(), BulkOperation::Retry).await?;
    Ok(filter.link().with("retried", done.to_string().as_bytes()))
}

async fn discard(call: &Call) -> Result<Link, Problem> {
    let filter: Filter = call.form()?;
    if filter.sure.is_none() {
        return Err(Problem::field(
            "sure",
            "must be checked, because discarding jobs cannot be undone",
        ));
    }
    let (done, _) = each(call, filter.which(), BulkOperation::Discard).await?;
    Ok(filter.link().with("discarded", done.to_string().as_bytes()))
}
