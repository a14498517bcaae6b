//! Renders events as table rows, newest first. The events of an item come from memory or, if none are retained there, from the journal.

use crate::call::Call;
use crate::operate::stopped;
use crate::page::render::{self, PageClock};
use crate::problem::Problem;
use maud::{Markup, html};
use sexton::clock::Date;
use sexton::handle::{Answered, Events, PastError};
use sexton::ids::{ProcessId, Seq};
use sexton::replay::{FollowedItem, History, HistoryEvent, STORY_MAX};
use sexton::spine::event::{Event, Field};
use std::sync::Arc;
use tokio::task::yield_now;

/// The maximum number of events examined before other requests get a turn.
const LOOKED_AT: usize = 1024;

/// Returns up to `most` of the retained events for which `is_wanted` returns true, newest first.
pub(crate) async fn newest(
    call: &Call,
    most: usize,
    is_wanted: impl Fn(&Event) -> bool,
) -> Result<Vec<Arc<Event>>, Problem> {
    let events = call.node.events(None).await.map_err(stopped)?;
    let (mut found, mut before) = (Vec::new(), None);
    while found.len() < most {
        let some = events.before(before, LOOKED_AT);
        let Some(oldest) = some.last() else { break };
        before = Some(oldest.position);
        found.extend(some.into_iter().filter(|event| is_wanted(event)));
        yield_now().await;
    }
    found.truncate(most);
    Ok(found)
}

/// Renders the history of an item from the retained events if there are any, otherwise from the journal.
pub(crate) async fn history(
    call: &Call,
    item: FollowedItem,
    is_of_it: impl Fn(&Event) -> bool,
) -> Result<Markup, Problem> {
    let here = PageClock::of(&call.node);
    let kept = newest(call, STORY_MAX, is_of_it).await?;
    if !kept.is_empty() {
        return Ok(rows(&kept, here));
    }
    Ok(match call.node.past().history(item).await {
        Ok(Answered::Ready(history)) => journaled(&history, here),
        Ok(Answered::Reading { reached, last }) => reading(reached, last),
        Err(PastError::Memory) => rows(&kept, here),
        Err(PastError::Busy) => html! { p.faint data-again { (PastError::Busy.to_string()) "." } },
        Err(error) => html! { p.problem { (error.to_string()) "." } },
    })
}

/// Renders a note that the journal is being read, with its progress. The note makes the page reload soon.
pub(crate) fn reading(reached: Seq, last: Seq) -> Markup {
    html! {
        p data-again role="status" {
            "Reading the journal: entry " (render::count(reached.0)) " of " (render::count(last.0)) "."
        }
    }
}

/// Renders an item's events from the journal, newest first.
fn journaled(history: &History, here: PageClock) -> Markup {
    html! {
        @if !history.events.is_empty() {
            div.wide tabindex="0" {
                table.events {
                    thead { tr { th { "At" } th { "What" } th.n { "Entry" } } }
                    tbody {
                        @for (seq, at, event) in history.events.iter().rev() {
                            tr {
                                td { (here.shown(history.offset.date(*at))) }
                                td { (history_event(event)) }
                                td.n { a href={ "/page/then?at=" (seq.0) } { (seq.0) } }
                            }
                        }
                    }
                }
            }
        }
        p.faint {
            @if history.events.is_empty() { "No events of this item in the journal" }
            @else if history.more { "The last " (STORY_MAX) " events in the journal" }
            @else { "From the journal" }
            ", entries " (render::count(history.begins.0)) " to " (render::count(history.upto.0)) "."
        }
    }
}

/// Renders one event from the journal.
pub(crate) fn history_event(event: &HistoryEvent) -> Markup {
    html! {
        (event.kind) " "
        @for (field, value) in &event.fields {
            span.field {
                span.faint { (field) " " }
                @match (field.as_str(), value.as_u64(), value.as_str()) {
                    ("job", Some(number), _) => (render::job(number)),
                    ("task", Some(number), _) => (render::task(number)),
                    (_, Some(number), _) => (number),
                    (_, None, Some(text)) => @match text.parse() {
                        Ok(process) => (render::process(process)),
                        Err(_) => (render::words(text)),
                    },
                    (_, None, None) => (render::words(&value.to_string())),
                }
            }
            " "
        }
    }
}

/// Returns a reader of the retained events.
pub(crate) async fn events(call: &Call) -> Result<Events, Problem> {
    call.node.events(None).await.map_err(stopped)
}

/// Renders a table of events.
pub(crate) fn rows(events: &[Arc<Event>], here: PageClock) -> Markup {
    html! {
        @if events.is_empty() {
            p.faint { "No events yet. They are recorded while a page is open, and for 10 minutes afterwards." }
        } @else {
            div.wide tabindex="0" {
                table.events {
                    thead { tr { th { "Time" } th { "Actor" } th { "Event" } th { "Details" } th.n { "Entry" } } }
                    tbody {
                        @for event in events {
                            tr {
                                td { (here.date(event.at)) }
                                td { (event.actor) }
                                td { (event.what.kind) }
                                td.words { (fields(event, here)) }
                                td.n.faint { (event.position.to_string()) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn fields(event: &Event, here: PageClock) -> Markup {
    let is_said = |value: &Field| !matches!(value, Field::Name(bytes) if bytes.is_empty());
    let said = event.what.fields.iter().filter(|(_, value)| is_said(value));
    html! {
        @for (field, value) in said {
            span.field {
                span.faint { (field) " " }
                @match (*field, value) {
                    ("job", Field::Number(number)) => (render::job(*number)),
                    ("task", Field::Number(number)) => (render::task(*number)),
                    ("ready_at", Field::Number(date)) => (here.shown(Date(*date))),
                    (_, Field::Number(number)) => (number),
                    (_, Field::Name(bytes)) => @match process_named(field, bytes) {
                        Some(process) => (render::process(process)),
                        None => (render::name(bytes)),
                    },
                    (_, Field::Text(text)) => @match text.parse() {
                        Ok(process) => (render::process(process)),
                        Err(_) => (render::words(text)),
                    },
                }
            }
            " "
        }
    }
}

/// Returns the process that a field identifies, or `None` if the field is not named `process` or its value is not an id.
fn process_named(field: &str, bytes: &[u8]) -> Option<ProcessId> {
    let id = std::str::from_utf8(bytes).ok()?;
    (field == "process").then(|| id.parse().ok()).flatten()
}
