//! Events as rows: what was kept of what happened, the newest first. What happened to an item before that is in the journal.

use crate::handle::{Answered, Events, PastError};
use crate::ids::Seq;
use crate::protocols::http::call::Call;
use crate::protocols::http::operate::stopped;
use crate::protocols::http::page::shown::{self, Here};
use crate::protocols::http::problem::Problem;
use crate::replay::{Followed, STORY_MAX, Story, StoryEvent};
use crate::spine::event::{Event, Field};
use maud::{Markup, html};
use std::sync::Arc;
use tokio::task::yield_now;

/// Events that are looked at in a turn.
const LOOKED_AT: usize = 1024;

/// Events, the newest first: of those that are kept, at most so many that are wanted.
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

/// What happened to an item: what is kept of it, or else what the journal has.
pub(crate) async fn story(
    call: &Call,
    item: Followed,
    is_of_it: impl Fn(&Event) -> bool,
) -> Result<Markup, Problem> {
    let here = Here::of(&call.node);
    let kept = newest(call, STORY_MAX, is_of_it).await?;
    if !kept.is_empty() {
        return Ok(rows(&kept, here));
    }
    Ok(match call.node.past().story(item).await {
        Ok(Answered::Ready(story)) => journaled(&story, here),
        Ok(Answered::Reading { reached, last }) => reading(reached, last),
        Err(PastError::Memory) => rows(&kept, here),
        Err(PastError::Busy) => html! { p.faint data-again { (PastError::Busy.to_string()) "." } },
        Err(error) => html! { p.problem { (error.to_string()) "." } },
    })
}

/// That the journal is being read, and how far. The page is loaded again soon.
pub(crate) fn reading(reached: Seq, last: Seq) -> Markup {
    html! {
        p data-again role="status" {
            "The journal is being read for this: entry " (shown::count(reached.0)) " of " (shown::count(last.0)) "."
        }
    }
}

/// What the journal has of an item, the newest first.
fn journaled(story: &Story, here: Here) -> Markup {
    html! {
        @if !story.events.is_empty() {
            div.wide tabindex="0" {
                table.events {
                    thead { tr { th { "At" } th { "What" } th.n { "Entry" } } }
                    tbody {
                        @for (seq, at, event) in story.events.iter().rev() {
                            tr {
                                td { (here.shown(story.offset.date(*at))) }
                                td { (story_event(event)) }
                                td.n { a href={ "/page/then?at=" (seq.0) } { (seq.0) } }
                            }
                        }
                    }
                }
            }
        }
        p.faint {
            @if story.events.is_empty() { "The journal has nothing of it" }
            @else if story.more { "The newest " (STORY_MAX) " events in the journal" }
            @else { "From the journal" }
            ", entries " (shown::count(story.begins.0)) " to " (shown::count(story.upto.0)) "."
        }
    }
}

/// What an entry of the journal came to.
pub(crate) fn story_event(event: &StoryEvent) -> Markup {
    html! {
        (event.kind) " "
        @for (field, value) in &event.fields {
            span.field {
                span.faint { (field) " " }
                @match (field.as_str(), value.as_u64(), value.as_str()) {
                    ("job", Some(number), _) => (shown::job(number)),
                    ("task", Some(number), _) => (shown::task(number)),
                    (_, Some(number), _) => (number),
                    (_, None, Some(text)) => @match text.parse() {
                        Ok(process) => (shown::process(process)),
                        Err(_) => (shown::words(text)),
                    },
                    (_, None, None) => (shown::words(&value.to_string())),
                }
            }
            " "
        }
    }
}

/// Those of an entry, as far as they are kept.
pub(crate) async fn events(call: &Call) -> Result<Events, Problem> {
    call.node.events(None).await.map_err(stopped)
}

/// A table of them.
pub(crate) fn rows(events: &[Arc<Event>], here: Here) -> Markup {
    html! {
        @if events.is_empty() {
            p.faint { "None is kept. Events are gathered while somebody looks at the page or listens, and for ten minutes after that." }
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
