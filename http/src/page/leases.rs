//! The leases view: the holder of each lease's pass, the next request, and the schedule; and the history of one lease.

use crate::call::Call;
use crate::page::event_rows;
use crate::page::frame::{Page, View};
use crate::page::render::{self, Link, PageClock};
use crate::page::routing;
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::Scope;
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors::lease::{Current, End, Holder, LeaseView, NextRequest};
use sexton::actors::lock::Name;
use sexton::replay::FollowedItem;
use sexton::spine::event::Event;
use sexton::text;

/// The maximum number of leases on a page.
const MOST: u32 = 50;

pub(crate) fn routes() -> Vec<Route> {
    vec![routing::view("/page/lease", Scope::Read, one)]
}

/// Renders a page of leases, sorted by name, with a link to the next page. Begins with the first lease after `after`, or with the first of
/// all if it is `None`.
pub(crate) async fn section(
    call: &Call,
    after: Option<&Name>,
    here: PageClock,
) -> Result<Markup, Problem> {
    let leases = call.node.leases();
    let found = leases.list(&Name::default(), after, MOST).await?;
    let last = found.leases.last().filter(|_| found.more);
    let next = last.map(|it| Link::to("/page/locks").with("lease", it.lease.name.as_bytes()));
    Ok(html! {
        section #leases data-live {
            h2 { "Leases" }
            @if found.leases.is_empty() { p.faint { "No leases." } } @else {
                (table(&found.leases, here))
                (render::more(next))
            }
        }
    })
}

/// Renders a table of leases.
pub(crate) fn table(leases: &[LeaseView], here: PageClock) -> Markup {
    html! {
        div.wide tabindex="0" { table {
            thead { tr { th { "Lease" } th { "Pass" } th { "Owner" } th.n { "For" } th { "Next" } th { "Due" } th.n { "Passes" } } }
            tbody {
                @for view in leases {
                    @let lease = &view.lease;
                    tr {
                        td { (link(&lease.name)) @if lease.settings.disabled { " " (render::tag("disabled", "warn")) } }
                        (pass(lease.current.as_ref(), here))
                        td { @if let Some(next) = &lease.next { (who_is_next(next)) } }
                        td { @if let Some(due) = view.due { (here.shown(due)) } }
                        td.n { (render::count(lease.begun)) @if lease.broken > 0 { " " (render::tag(&format!("{} broken", lease.broken), "bad")) } }
                    }
                }
            }
        } }
    }
}

fn link(of: &Name) -> Markup {
    let link = Link::to("/page/lease").with("name", of.as_bytes());
    html! { a href=(link) { (render::name(of.as_bytes())) } }
}

fn pass(current: Option<&Current>, here: PageClock) -> Markup {
    let Some(current) = current else {
        return html! { td.faint { "none yet" } td {} td {} };
    };
    html! {
        td {
            @match current.end {
                None if current.stopping => (render::tag("stopping", "warn")),
                None if current.warnings > 0 => (render::tag("overruns", "warn")),
                None => (render::tag("running", "good")),
                Some(end) => { (ended(end)) " " (here.date(end.at)) },
            }
        }
        td { (who(current)) }
        td.n {
            @match current.end {
                None => (here.since(current.since)),
                Some(end) => (text::span(end.at.0.saturating_sub(current.since.0))),
            }
        }
    }
}

/// Renders how a pass ended.
fn ended(end: End) -> Markup {
    html! {
        @match end.exit {
            Some(exit) if end.is_failure() => (render::tag(&exit.to_string(), "bad")),
            _ if end.whole => "done",
            _ => (render::tag("broken", "bad")),
        }
    }
}

fn who(current: &Current) -> Markup {
    html! {
        @match &current.holder {
            Holder::Launched { process, .. } => (render::process(*process)),
            Holder::Process(binding) => (render::process(binding.process)),
            Holder::Timed { .. } if current.pid > 0 => { "a client, PID " (current.pid) },
            Holder::Timed { .. } => "a client",
            Holder::Nobody => "nobody",
        }
    }
}

fn who_is_next(next: &NextRequest) -> Markup {
    html! {
        @match next.process {
            Some(binding) => (render::process(binding.process)),
            None if next.command.is_some() => "its command",
            None if next.pid > 0 => { "PID " (next.pid) },
            None => "a client",
        }
    }
}

#[derive(Deserialize)]
struct Parameters {
    name: Name,
}

async fn one(call: &Call) -> Result<Page, Problem> {
    let Parameters { name } = call.query_form()?;
    let view = call.node.leases().get(&name).await?;
    let here = PageClock::of(&call.node);
    let is_of_it =
        |event: &Event| event.actor == "lease" && event.what.subject() == Some(name.as_bytes());
    let history = event_rows::history(call, FollowedItem::Lease(name.clone()), is_of_it).await?;
    let lease = &view.lease;
    let settings = &lease.settings;
    let main = html! {
        section #lease data-live {
            p.subject { (render::name(name.as_bytes())) }
            (table(std::slice::from_ref(&view), here))
            dl.facts {
                div { dt { "Period" } dd { (text::span(settings.period_ms)) } }
                div { dt { "Stopped after" } dd { @if settings.max_run_ms > 0 { (text::span(settings.max_run_ms)) } @else { "never" } } }
                @if let Some(schedule) = &lease.schedule { div { dt { "Schedule" } dd { code { (schedule.expression()) } " " (schedule.zone()) } } }
                @if let Some(current) = &lease.current {
                    div { dt { "Token" } dd { (current.token.0) } }
                    div { dt { "Since" } dd { (here.date(current.since)) } }
                    div { dt { "Next pass not before" } dd { (here.date(current.until)) } }
                }
                div { dt { "Last complete pass" } dd { "number " (render::count(lease.whole)) } }
                div { dt { "Owed" } dd { @if view.wanted { "a complete pass" } @else { "nothing" } } }
            }
        }
        section #story data-live { h2 { "What happened" } (history) }
    };
    Ok(Page { view: View::Locks, title: "Lease".to_owned(), main })
}
