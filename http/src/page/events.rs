//! The events view: the last retained events, filtered by actor, kind and name.

use crate::call::Call;
use crate::page::event_rows;
use crate::page::frame::{Page, View};
use crate::page::render::PageClock;
use crate::page::routing;
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::Scope;
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors;
use sexton::spine::event::{Event, NODE};

/// The maximum number of events on a page.
const MOST: usize = 200;

pub(crate) fn routes() -> Vec<Route> {
    vec![routing::view("/page/events", Scope::Read, list)]
}

/// The filter of the view. A field that is `None` selects every event.
#[derive(Deserialize)]
struct Filter {
    actor: Option<String>,
    kind: Option<String>,
    /// A part of the name of the event's subject, such as a lock's key.
    name: Option<String>,
}

impl Filter {
    fn lets_through(&self, event: &Event) -> bool {
        let is_in = |name: &String| {
            let subject = event.what.subject().unwrap_or_default();
            subject.windows(name.len()).any(|part| part == name.as_bytes())
        };
        self.actor.as_ref().is_none_or(|actor| actor == event.actor)
            && self.kind.as_ref().is_none_or(|kind| kind == event.what.kind)
            && self.name.as_ref().is_none_or(is_in)
    }
}

async fn list(call: &Call) -> Result<Page, Problem> {
    let filter: Filter = call.query_form()?;
    let events = event_rows::newest(call, MOST, |event| filter.lets_through(event)).await?;
    let main = html! {
        (asked(&filter))
        section #events data-live {
            (event_rows::rows(&events, PageClock::of(&call.node)))
            @if events.len() == MOST { p.faint { "Older events are not shown." } }
        }
    };
    Ok(Page { view: View::Events, title: String::new(), main })
}

fn asked(filter: &Filter) -> Markup {
    let (mut origins, kinds) = (actors::names(), actors::kinds());
    origins.push(NODE);
    let is = |field: &Option<String>, word: &str| field.as_deref() == Some(word);
    html! {
        form.filter role="search" {
            label { "Actor "
                select name="actor" {
                    option value="" { "all" }
                    @for word in origins { option value=(word) selected[is(&filter.actor, word)] { (word) } }
                }
            }
            label { "Kind "
                select name="kind" {
                    option value="" { "all" }
                    @for word in kinds { option value=(word) selected[is(&filter.kind, word)] { (word) } }
                }
            }
            label { "Name contains " input name="name" value=(filter.name.as_deref().unwrap_or_default()) dir="auto"; }
            button { "Show" }
        }
    }
}
