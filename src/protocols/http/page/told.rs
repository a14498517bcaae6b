//! Renders retained events as table rows, newest first.

use crate::handle::Events;
use crate::protocols::http::call::Call;
use crate::protocols::http::operate::stopped;
use crate::protocols::http::page::shown::{self, Here};
use crate::protocols::http::problem::Problem;
use crate::spine::event::{Event, Field};
use maud::{Markup, html};
use std::sync::Arc;
use tokio::task::yield_now;

/// The number of events examined in a turn.
const LOOKED_AT: usize = 1024;

/// Returns up to `most` of the retained events that are wanted, newest first.
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

/// Returns a reader of the retained events.
pub(crate) async fn events(call: &Call) -> Result<Events, Problem> {
    call.node.events(None).await.map_err(stopped)
}

/// Renders a table of events.
pub(crate) fn rows(events: &[Arc<Event>], here: Here) -> Markup {
    html! {
        @if events.is_empty() {
            p.faint { "No events are kept. Events are collected while someone views the page or subscribes to events, and for ten minutes after that." }
        } @else {
            div.wide tabindex="0" {
                table.events {
                    thead { tr { th { "At" } th { "Of" } th { "What" } th { "Which" } th.n { "Entry" } } }
                    tbody {
                        @for event in events {
                            tr {
                                td { (here.date(event.at)) }
                                td { (event.actor) }
                                td { (event.what.kind) }
                                td { (fields(event)) }
                                td.n.faint { (event.position.to_string()) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn fields(event: &Event) -> Markup {
    html! {
        @for (field, value) in &event.what.fields {
            span.field {
                span.faint { (field) " " }
                @match (*field, value) {
                    ("job", Field::Number(number)) => (shown::job(*number)),
                    ("task", Field::Number(number)) => (shown::task(*number)),
                    (_, Field::Number(number)) => (number),
                    (_, Field::Name(bytes)) => (shown::name(bytes)),
                    (_, Field::Text(text)) => @match text.parse() {
                        Ok(process) => (shown::process(process)),
                        Err(_) => (shown::words(text)),
                    },
                }
            }
            " "
        }
    }
}
