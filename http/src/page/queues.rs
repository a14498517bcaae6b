//! The queues view: queues by tenant and type, with their jobs by phase, and the busiest ones.

use crate::call::Call;
use crate::listing;
use crate::page::frame::{Page, View};
use crate::page::jobs;
use crate::page::plot;
use crate::page::render::{self, Link, PageClock, bad, number};
use crate::page::routing;
use crate::page::walk::walk;
use crate::problem::Problem;
use crate::queue_look::PHASES;
use crate::route::Route;
use crate::scope::Scope;
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors::queue::{Phase, QueueName, QueueSelection, QueueView};
use sexton::ids::Slot;
use sexton_api::list::After;

/// The maximum number of busiest queues shown above the list.
const BUSIEST: u32 = 10;

/// The text that selects the default tenant, since an empty filter means all tenants.
const DEFAULT: &str = "-";

pub(crate) fn routes() -> Vec<Route> {
    vec![
        routing::view("/page/queues", Scope::Read, list),
        routing::view("/page/queue", Scope::Read, one),
        routing::form("/page/queue/pause", Scope::Use, pause),
    ]
}

/// The filter of the view.
#[derive(Deserialize)]
struct Filter {
    tenant: Option<String>,
    r#type: Option<String>,
    after: Option<After>,
}

async fn list(call: &Call) -> Result<Page, Problem> {
    let filter: Filter = call.query_form()?;
    let queues = call.queues();
    let tenant = filter.tenant.as_deref();
    let share = async |from, most| {
        let selection = QueueSelection {
            tenant: tenant.map(|it| if it == DEFAULT { "" } else { it }.to_owned()),
            kind: filter.r#type.clone(),
            from,
            most,
        };
        Ok(queues.select_queues(selection).await?)
    };
    let (mut found, next) = walk(listing::slot(filter.after), share).await?;
    found.sort_by(|one, other| one.name.cmp(&other.name));
    let is_whole = next.is_none() && filter.after.is_none();
    let (busiest, _) = queues.busiest(Slot(0), BUSIEST).await?;
    let next = next.map(|next| {
        let link = Link::to("/page/queues");
        let link = link.with_some("tenant", tenant.map(str::as_bytes));
        let link = link.with_some("type", filter.r#type.as_deref().map(str::as_bytes));
        link.with("after", next.0.to_string().as_bytes())
    });
    let main = html! {
        @if !is_whole && filter.after.is_none() {
            section #busiest data-live { h2 { "Queues with the most jobs" } (table(call, &busiest)) }
        }
        (asked(&filter))
        section #queues data-live {
            (table(call, &found))
            (render::more(next))
        }
    };
    Ok(Page { view: View::Queues, title: String::new(), main })
}

fn asked(filter: &Filter) -> Markup {
    html! {
        form.filter role="search" {
            label { "Tenant " input name="tenant" value=(filter.tenant.as_deref().unwrap_or_default()) placeholder="any; - for the default"; }
            label { "Type " input name="type" value=(filter.r#type.as_deref().unwrap_or_default()) placeholder="any"; }
            button { "Show" }
            a href="/page/jobs" { "Failed jobs" }
        }
    }
}

/// Renders a table of queues.
fn table(call: &Call, queues: &[QueueView]) -> Markup {
    if queues.is_empty() {
        return html! { p.faint { "No queues." } };
    }
    let here = PageClock::of(&call.node);
    let rates = call.shared.queue_rates.of(queues, here.now);
    html! {
        div.wide tabindex="0" { table {
            thead { tr {
                th { "Tenant" } th { "Type" } th.n { "Ready" } th.n { "Oldest" } th.n { "Claimed" } th.n { "Delayed" } th.n { "Retrying" }
                th.n { "Buried" } th.n { "Abandoned" } th.n { "Quarantined" } th.n { "Workers" } th.n { "Added" } th.n { "Done" } th { "State" }
            } }
            tbody {
                @for (view, rate) in queues.iter().zip(rates) {
                    tr {
                        td { (render::name_or(view.name.tenant(), "default")) }
                        td { a href=(render::queue_link(&view.name)) { (render::name(view.name.kind())) } }
                        (number(view.jobs.ready))
                        td.n { @if let Some(oldest) = view.oldest { (here.since(oldest)) } }
                        (number(view.jobs.claimed))
                        (number(view.jobs.delayed))
                        (number(view.jobs.retrying))
                        (bad(view.jobs.buried))
                        (bad(view.jobs.abandoned))
                        (bad(view.jobs.quarantined))
                        (number(view.waiting))
                        (counted(view.total, rate.map(|it| it.added)))
                        (counted(view.deletes, rate.map(|it| it.done)))
                        td { (state(view, here)) }
                    }
                }
            }
        } }
    }
}

/// Renders a cell with a counter and, unless it is zero or unknown, its rate.
fn counted(count: u64, rate: Option<f64>) -> Markup {
    html! {
        td.n {
            (render::count(count))
            @if let Some(rate) = rate.filter(|it| *it > 0.0) { span.faint { " " (plot::shown(rate)) "/s" } }
        }
    }
}

fn state(view: &QueueView, here: PageClock) -> Markup {
    let paused = view.paused_until.and_then(|it| here.until(it));
    let throttled = view.throttled_until.and_then(|it| here.until(it));
    html! {
        @if let Some(span) = paused { (render::tag(&format!("paused, {span}"), "warn")) }
        @if let Some(span) = throttled { " " (render::tag(&format!("throttled, {span}"), "warn")) }
    }
}

#[derive(Deserialize)]
struct Parameters {
    queue: QueueName,
}

async fn one(call: &Call) -> Result<Page, Problem> {
    let Parameters { queue } = call.query_form()?;
    let view = call.node.queues().queue(&queue).await?;
    let here = PageClock::of(&call.node);
    let listed = jobs::of_queue(call, &queue, here).await?;
    let counts = |phase| view.jobs.of(phase);
    let main = html! {
        section #queue data-live {
            p.subject { (render::name(queue.as_bytes())) " " (state(&view, here)) }
            ul.phases {
                @for (word, phase) in PHASES {
                    li {
                        a href=(jobs::link(Some(&queue), Some(phase))) { (word) } " "
                        strong .bad[is_bad(phase) && counts(phase) > 0] { (render::count(counts(phase))) }
                    }
                }
            }
            dl.facts {
                div { dt { "Added" } dd { (render::count(view.total)) } }
                div { dt { "Done" } dd { (render::count(view.deletes)) } }
                div { dt { "Workers waiting" } dd { (render::count(view.waiting)) } }
                div { dt { "beanstalkd clients using it" } dd { (render::count(view.using)) } }
                div { dt { "watching it" } dd { (render::count(view.watching)) } }
            }
        }
        form.act method="post" action="/page/queue/pause" {
            input type="hidden" name="queue" value=(queue.as_str());
            @if view.paused_until.is_some() {
                input type="hidden" name="minutes" value="0";
                button { "End the pause" }
            } @else {
                label { "Pause claims for " input type="number" name="minutes" value="10" min="1" max="1440" required; " minutes" }
                button { "Pause" }
            }
        }
        (listed)
    };
    Ok(Page { view: View::Queues, title: "Queue".to_owned(), main })
}

/// Returns whether jobs of a phase need attention.
pub(crate) const fn is_bad(phase: Phase) -> bool {
    match phase {
        Phase::Buried | Phase::Abandoned | Phase::Quarantined => true,
        Phase::Ready | Phase::Delayed | Phase::Claimed | Phase::Retrying => false,
    }
}

#[derive(Deserialize)]
struct Pausing {
    queue: QueueName,
    minutes: sexton_api::value::Number<u64, 0, 1440>,
}

async fn pause(call: &Call) -> Result<Link, Problem> {
    let Pausing { queue, minutes } = call.form()?;
    call.queues().pause(&queue, minutes.0 * 60_000).await?;
    Ok(render::queue_link(&queue))
}
