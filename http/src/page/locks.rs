//! The locks view: leases, and holders and waiters of locks, both shown page by page; and the history of one lock.

use crate::call::Call;
use crate::listing;
use crate::page::event_rows;
use crate::page::frame::{Page, View};
use crate::page::leases;
use crate::page::now::ends;
use crate::page::render::{self, Link, PageClock};
use crate::page::routing;
use crate::page::walk::{MOST, walk};
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::{OrRun as _, Scope};
use maud::{Markup, html};
use serde::Deserialize;
use sexton::actors::lock::{EntryView, Name, Selection};
use sexton::clock::Timestamp;
use sexton::handle::Events;
use sexton::ids::{Seq, Slot};
use sexton::replay::FollowedItem;
use sexton::spine::event::{Event, Field};
use sexton_api::list::After;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        routing::view("/page/locks", Scope::Read, list),
        routing::view("/page/lock", Scope::Read, one),
        routing::form(
            "/page/lock/force",
            Scope::Operate.or_run_by_state("the entry is bound to a process"),
            force,
        ),
    ]
}

/// The filter of the view.
#[derive(Deserialize)]
struct Filter {
    key: Option<Name>,
    owner: Option<Name>,
    after: Option<After>,
    /// The lease after which the list of leases continues.
    lease: Option<Name>,
}

async fn list(call: &Call) -> Result<Page, Problem> {
    let filter: Filter = call.query_form()?;
    let locks = call.locks();
    let share = async |from, entries_max| {
        let selection = Selection {
            key: filter.key.clone(),
            index: None,
            owner: filter.owner.clone(),
            from,
            entries_max,
        };
        Ok(locks.select(selection).await?)
    };
    let (mut entries, next) = walk(listing::slot(filter.after), share).await?;
    entries.sort_by(|one, other| {
        let of = |it: &EntryView| (it.key.clone(), it.index.clone(), it.place);
        of(one).cmp(&of(other))
    });
    let here = PageClock::of(&call.node);
    let events = event_rows::events(call).await?;
    let next = next.map(|next| next_link(&filter, next));
    let main = html! {
        (leases::section(call, filter.lease.as_ref(), here).await?)
        h2 { "Locks" }
        (asked(&filter))
        section #locks data-live {
            (table(&entries, &events, here))
            (render::more(next))
        }
    };
    Ok(Page { view: View::Locks, title: String::new(), main })
}

fn next_link(filter: &Filter, next: Slot) -> Link {
    let link = Link::to("/page/locks");
    let link = link.with_some("key", filter.key.as_ref().map(Name::as_bytes));
    let link = link.with_some("owner", filter.owner.as_ref().map(Name::as_bytes));
    link.with("after", next.0.to_string().as_bytes())
}

fn asked(filter: &Filter) -> Markup {
    let text = |name: &Option<Name>| {
        name.as_ref()
            .map_or_else(String::new, |it| String::from_utf8_lossy(it.as_bytes()).into_owned())
    };
    html! {
        form.filter role="search" {
            label { "Key " input name="key" value=(text(&filter.key)) dir="auto"; }
            label { "Owner " input name="owner" value=(text(&filter.owner)) dir="auto"; }
            button { "Show" }
        }
    }
}

fn table(entries: &[EntryView], events: &Events, here: PageClock) -> Markup {
    html! {
        @if entries.is_empty() { p.faint { "No locks." } } @else {
            div.wide tabindex="0" { table {
                thead { tr { th { "Lock" } (whose()) } }
                tbody {
                    @for entry in entries { tr {
                        td { (render::lock(&entry.key, &entry.index)) }
                        (who(entry, events, here))
                    } }
                }
            } }
        }
    }
}

/// Renders the column headers for [`who`].
fn whose() -> Markup {
    html! { th { "Owner" } th { "State" } th { "Since" } th.n { "Expires in" } th { "Process" } th.n { "Token" } }
}

/// Renders the cells of an entry's row, except the one that names the lock.
fn who(entry: &EntryView, events: &Events, here: PageClock) -> Markup {
    html! {
        td { (render::name(entry.owner.as_bytes())) }
        td {
            @if entry.fencing { (render::tag("killing its process", "bad")) }
            @else if entry.place == 1 { "holder" }
            @else { (render::tag(&format!("waits, {}", entry.place - 1), "warn")) }
            @if entry.away { " (away)" }
        }
        td {
            @match granted(entry, events) {
                Some(at) => (here.date(at)),
                // The lock may have been granted earlier, and renewed at this time.
                None => { (here.date(entry.since)) span.faint { " or before" } },
            }
        }
        td.n { (ends(entry.deadline, here)) }
        td { @if let Some(bound) = entry.bound { (render::process(bound.process)) } }
        td.n { @if let Some(token) = entry.token { (token.0) } }
    }
}

/// Returns when an entry was granted its lock, or `None` if it is still waiting or the event of the grant is not retained.
fn granted(entry: &EntryView, events: &Events) -> Option<Timestamp> {
    let grant = events.of(Seq(entry.token?.0));
    grant.first().map(|it| it.at)
}

/// The parameters of the page of one lock.
#[derive(Deserialize)]
struct Parameters {
    key: Name,
    #[serde(default)]
    index: Name,
}

async fn one(call: &Call) -> Result<Page, Problem> {
    let which: Parameters = call.query_form()?;
    let selection = Selection {
        key: Some(which.key.clone()),
        index: Some(which.index.clone()),
        owner: None,
        from: Slot(0),
        entries_max: MOST,
    };
    let (mut entries, more) = call.locks().select(selection).await?;
    entries.sort_by_key(|entry| entry.place);
    let here = PageClock::of(&call.node);
    let holder = entries.first().filter(|entry| entry.place == 1);
    let events = event_rows::events(call).await?;
    let since = holder.and_then(|it| granted(it, &events));
    let is_of_it = |event: &Event| {
        let is =
            |field, bytes: &[u8]| event.what.fields.contains(&(field, Field::Name(bytes.into())));
        event.actor == "lock"
            && is("key", which.key.as_bytes())
            && is("index", which.index.as_bytes())
    };
    let lock = FollowedItem::Lock(which.key.clone(), which.index.clone());
    let history = event_rows::history(call, lock, is_of_it).await?;
    let main = html! {
        section #lock data-live {
            p.subject { (render::lock(&which.key, &which.index)) }
            @match holder {
                None => p { "The lock is not held." },
                Some(holder) => p {
                    "Held by " (render::name(holder.owner.as_bytes()))
                    @match since {
                        Some(at) => { ", for " (here.since(at)) " (since " (here.date(at)) ")." },
                        None => { ", since " (here.date(holder.since)) " or before (token " (holder.token.map_or(0, |it| it.0)) ")." },
                    }
                },
            }
            @if entries.len() > 1 { (waiting(&entries, &events, here)) }
            @if more.is_some() { p.faint { "There are more waiters than shown." } }
        }
        @if holder.is_some() {
            form.act method="post" action="/page/lock/force" {
                (named("key", &which.key)) (named("index", &which.index))
                button.danger { "Release by force" }
                span.faint { " The lock passes to the next in line. The holder finds out only when it renews, and may continue until then." }
            }
        }
        section #story data-live { h2 { "What happened" } (history) }
    };
    Ok(Page { view: View::Locks, title: "Lock".to_owned(), main })
}

fn waiting(entries: &[EntryView], events: &Events, here: PageClock) -> Markup {
    html! {
        div.wide tabindex="0" { table {
            thead { tr { (whose()) } }
            tbody { @for entry in entries { tr { (who(entry, events, here)) } } }
        } }
    }
}

/// Renders a name as a hidden field of a form. A name that is not UTF-8 is encoded in base64, with the suffix `_b64` added to `field`.
pub(crate) fn named(field: &str, name: &Name) -> Markup {
    use base64::Engine as _;
    let bytes = name.as_bytes();
    html! {
        @match std::str::from_utf8(bytes) {
            Ok(text) => input type="hidden" name=(field) value=(text);,
            Err(_) => input type="hidden" name={ (field) "_b64" } value=(base64::engine::general_purpose::STANDARD.encode(bytes));,
        }
    }
}

async fn force(call: &Call) -> Result<Link, Problem> {
    let which: Parameters = call.form()?;
    call.locks().force(&which.key, &which.index).await?;
    let link = Link::to("/page/lock").with("key", which.key.as_bytes());
    Ok(link.with_some("index", Some(which.index.as_bytes())))
}
