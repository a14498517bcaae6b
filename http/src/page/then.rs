//! The view "History", at `/page/then`: the state after any entry of the journal, and the entries around it.
//!
//! A separate thread reads the state from the journal ([`sexton::handle::Past`]). A past state does not change, so this page is
//! not reloaded when something happens.

use crate::call::Call;
use crate::page::event_rows;
use crate::page::frame::{Page, View};
use crate::page::render::{self, PageClock, count};
use crate::page::routing;
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::Scope;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use sexton::actors::{guarded, name_of};
use sexton::clock::{Date, Timestamp};
use sexton::handle::{Answered, PastError};
use sexton::ids::{ActorId, Seq};
use sexton::replay::{AROUND, ActorAt, Kind, Line, SAMPLE, StateAt};
use sexton::spine::machine::Gauge;

/// The maximum number of characters of a value that are shown.
const VALUE_CHARS: usize = 200;
/// The maximum number of characters of an entry (a message with its outcome) that are shown.
const ENTRY_CHARS: usize = 4000;

/// The maximum number of events shown for an entry.
const EVENTS: usize = 10;

/// Gauges that count since startup, and are therefore not part of the state.
const SINCE_START: [&str; 4] =
    ["contradictions", "launch_failures", "launches", "service_restarts"];

/// The names of the fields whose values are [`Timestamp`]s.
const TIMES: [&str; 9] = [
    "created",
    "claimed",
    "deadline",
    "ended",
    "paused_until",
    "queued",
    "since",
    "started",
    "until",
];
/// The names of the fields whose values are [`Date`]s.
const DATES: [&str; 2] = ["due", "wake"];

/// The actors whose items and messages contain commands, which only users who may start processes can see.
const RUNNING: [ActorId; 3] = [ActorId::PROCESS, ActorId::LEASE, ActorId::DISPATCH];

pub(crate) fn routes() -> Vec<Route> {
    vec![routing::view("/page/then", Scope::Read, show)]
}

impl From<PastError> for Problem {
    fn from(error: PastError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

/// The query parameters of the view: the entry whose state is shown. If left out, it is the last entry.
#[derive(Deserialize)]
struct Which {
    at: Option<u64>,
}

async fn show(call: &Call) -> Result<Page, Problem> {
    let Which { at } = call.query_form()?;
    let main = match call.node.past().state(at.map(Seq)).await? {
        Answered::Reading { reached, last } => html! {
            div data-still { (event_rows::reading(reached, last)) }
            p { a href=(to(at.unwrap_or(last.0))) { "Reload" } }
        },
        Answered::Ready(state) => PastView {
            here: PageClock::of(&call.node),
            may_run: call.may_run(),
            is_beyond: at.is_some_and(|at| at > state.last.0),
            state: &state,
        }
        .page(),
    };
    Ok(Page { view: View::Then, title: String::new(), main })
}

fn to(at: u64) -> String {
    format!("/page/then?at={at}")
}

/// A past state, and what the viewer may see of it.
struct PastView<'s> {
    here: PageClock,
    may_run: bool,
    /// Whether the requested entry is beyond the end of the journal. If so, `state` is the state after the last entry.
    is_beyond: bool,
    state: &'s StateAt,
}

impl PastView<'_> {
    fn page(&self) -> Markup {
        let StateAt { seq, at, begins, known, last, .. } = *self.state;
        html! {
            div data-still {}
            form.moment {
                label for="at" { "State after entry" }
                input #at name="at" type="number" min=(known.0.max(1)) max=(last.0) value=(seq.0) required data-slides;
                button { "Show" }
            }
            section #moves data-live {
                (self.moves())
                @if self.is_beyond {
                    p role="status" { "The journal ends at entry " (count(last.0)) ": this is the state after it." }
                }
                p.subject { "Entry " (count(seq.0)) " of " (count(last.0)) @if at > Timestamp(0) { ", " (self.date(at)) } }
                p.faint {
                    "The journal begins at entry " (count(begins.0))
                    @if known.0 > begins.0 { "; the state is known from entry " (count(known.0)) " on" }
                    "."
                }
            }
            section #around data-live { h2 { "Entries around it" } (self.around()) }
            section #state data-live {
                h2 { "State" }
                @for actor in &self.state.actors { (self.actor(actor)) }
            }
        }
    }

    fn date(&self, at: Timestamp) -> Markup {
        self.here.shown(self.state.offset.date(at))
    }

    /// Renders links to the states after other entries.
    fn moves(&self) -> Markup {
        let StateAt { seq, known, last, before, after, .. } = self.state;
        // There is no state before the first entry.
        let first = known.0.max(1);
        let number = |line: Option<&Line>| line.and_then(|line| line.seq).map(|seq| seq.0);
        let one_back = before.len().checked_sub(2).and_then(|nth| before.get(nth));
        let one_back = number(one_back).unwrap_or(first);
        let back = number(before.first()).unwrap_or(first);
        let link = |at: u64, words: &str| {
            let leads = at != seq.0;
            html! { li { @if leads { a href=(to(at)) { (words) } } @else { span.faint { (words) } } } }
        };
        html! {
            nav.moves aria-label="Moments" { ul {
                (link(first, "First"))
                (link(back, &format!("{AROUND} earlier")))
                (link(one_back, "One earlier"))
                (link(number(after.first()).unwrap_or(last.0), "One later"))
                (link(number(after.last()).unwrap_or(last.0), &format!("{AROUND} later")))
                (link(last.0, "Last"))
            } }
        }
    }

    fn around(&self) -> Markup {
        html! {
            div.wide tabindex="0" { table.events {
                thead { tr { th.n { "Entry" } th { "At" } th { "Of" } th { "Request" } th { "What changed" } } }
                tbody {
                    @for line in &self.state.before { (self.line(line)) }
                    tr.now { td colspan="5" { "The state below is as of this point." } }
                    @for line in &self.state.after { (self.line(line)) }
                }
            } }
        }
    }

    fn line(&self, line: &Line) -> Markup {
        let seq = line.seq.unwrap_or_default();
        html! {
            tr {
                td.n { a href=(to(seq.0)) { (seq.0) } }
                td { @if let Some(at) = line.at { (self.date(at)) } }
                td { (line.actor) }
                td { (asked(line)) }
                td {
                    @if self.may_run || !guarded().contains(&line.actor.as_str()) {
                        @for event in line.events.iter().take(EVENTS) { div { (event_rows::history_event(event)) } }
                        @if line.events.len() > EVENTS { p.faint { "and " (line.events.len() - EVENTS) " more" } }
                    }
                    @if self.shows(&line.actor) { (self.whole(line)) }
                }
            }
        }
    }

    /// Returns whether the viewer may see the items and messages of this actor.
    fn shows(&self, actor: &str) -> bool {
        self.may_run || !RUNNING.iter().any(|id| name_of(*id) == Some(actor))
    }

    fn actor(&self, actor: &ActorAt) -> Markup {
        let gauges = actor.gauges.iter();
        let gauges: Vec<&Gauge> =
            gauges.filter(|gauge| !SINCE_START.contains(&gauge.name)).collect();
        html! {
            h3 { (actor.name) }
            dl.counts { @for gauge in gauges { div title=(gauge.help) { dt { (gauge.name.replace('_', " ")) } dd { (count(gauge.value)) } } } }
            @if self.shows(actor.name) {
                @for (title, items) in lists(&actor.state) { (self.list(title, &items)) }
            } @else {
                p.faint { "Its state contains commands, so it is shown only to users who may run commands." }
            }
            p.faint { "Digest " code { (actor.digest.to_string()) } }
        }
    }

    fn list(&self, title: &str, items: &[(Option<&str>, &Value)]) -> Markup {
        html! {
            @if !items.is_empty() {
                @if !title.is_empty() { h4 { (title) } }
                div.wide tabindex="0" { table { tbody {
                    @for (name, item) in items { tr { td {
                        @if let Some(name) = name { span.field { (render::words(name)) } " " }
                        @for (field, value) in self.fields(item) { span.field { span.faint { (field) " " } (self.value(&field, &value)) } " " }
                    } } }
                } } }
                @if items.len() == SAMPLE { p.faint { "Only the first " (SAMPLE) " are shown." } }
            }
        }
    }

    /// Returns the fields of an item that the viewer may see.
    fn fields(&self, item: &Value) -> Vec<(String, Value)> {
        let mut fields = members(item);
        fields.retain(|(field, _)| self.may_run || !is_output(field));
        fields
    }

    /// Renders the message and the outcome of an entry, or its mark, as JSON that is collapsed at first and truncated to [`ENTRY_CHARS`]. The
    /// output of a job, which is reported when the job is over, may be there before; it is shown only to users who may run commands.
    fn whole(&self, line: &Line) -> Markup {
        let mut line = line.masked();
        if !self.may_run {
            [&mut line.message, &mut line.outcome].into_iter().flatten().for_each(remove_output);
        }
        let part =
            |value: &Option<Value>| value.as_ref().map_or_else(String::new, Value::to_string);
        let words = match &line.mark {
            Some(mark) => serde_json::to_string(mark).unwrap_or_default(),
            None => format!("{}\n{}", part(&line.message), part(&line.outcome)),
        };
        html! {
            details id={ "entry-" (line.seq.unwrap_or_default().0) } {
                summary.faint { "Full entry" }
                (render::lines(cut(&words, ENTRY_CHARS).as_bytes()))
            }
        }
    }

    fn value(&self, field: &str, value: &Value) -> Markup {
        let field = field.rsplit('.').next().unwrap_or(field);
        match value.as_u64() {
            Some(at) if TIMES.contains(&field) => self.date(Timestamp(at)),
            Some(at) if DATES.contains(&field) => self.here.shown(Date(at)),
            Some(number) => html! { (number) },
            None => render::words(&cut(&plain(value), VALUE_CHARS)),
        }
    }
}

/// Renders what a line recorded: the name of its message, with the cause of the panic if the message caused one; or the name of its mark
/// (a record of the node about itself, such as a start); or nothing, if it only advances the time.
fn asked(line: &Line) -> Markup {
    let mark = || serde_json::to_value(&line.mark).unwrap_or_default();
    match line.kind {
        Kind::Entry => html! { (render::words(line.message.as_ref().map_or("", word))) },
        Kind::Poisoned => html! {
            (render::words(line.message.as_ref().map_or("", word))) " "
            (render::tag("panicked", "bad")) " "
            @if let Some(cause) = &line.cause { (render::words(&cut(cause, VALUE_CHARS))) }
        },
        Kind::Mark => html! { span.faint { (word(&mark())) } },
        Kind::Time => html! {},
    }
}

/// Returns the name of a message or mark: the first key of an object, a string itself, or the first name in an array; empty if there
/// is none.
fn word(message: &Value) -> &str {
    match message {
        Value::Object(members) => members.keys().next().map_or("", String::as_str),
        Value::String(word) => word,
        Value::Array(parts) => parts.iter().map(word).find(|it| !it.is_empty()).unwrap_or(""),
        Value::Null | Value::Bool(_) | Value::Number(_) => "",
    }
}

/// Returns whether a field, named by its path, is the output of a command.
fn is_output(field: &str) -> bool {
    matches!(field.rsplit('.').next(), Some("output" | "output_b64"))
}

/// Removes the output of commands from a message or an outcome.
fn remove_output(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|field, _| !is_output(field));
            members.values_mut().for_each(remove_output);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_output),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The items of one kind, each with its name unless the name is one of its fields.
type Items<'v> = Vec<(Option<&'v str>, &'v Value)>;

/// Returns the lists of items in a state, each with its title. A state that is itself one list or map of items has no title.
fn lists(state: &Value) -> Vec<(&str, Items<'_>)> {
    match state {
        Value::Array(items) => vec![("", items.iter().map(|item| (None, item)).collect())],
        Value::Object(members) if members.values().all(Value::is_object) => {
            let items = members.iter();
            let named = items.map(|(name, item)| (Some(name.as_str()), item));
            vec![("", named.take(SAMPLE).collect())]
        }
        Value::Object(members) => {
            let lists = members.iter().filter_map(|(title, list)| {
                let items = list.as_array()?.iter();
                Some((title.as_str(), items.map(|item| (None, item)).collect()))
            });
            lists.collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Returns the fields of an item. A field of a nested object is named by its path, such as `end.code`. Fields that are null, false, zero or
/// empty are omitted, except exit codes.
fn members(item: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    gather("", item, &mut found);
    found
}

fn gather(path: &str, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Null | Value::Bool(false) => {}
        Value::Number(number) if number.as_u64() == Some(0) && !path.ends_with("code") => {}
        Value::String(text) if text.is_empty() => {}
        Value::Array(items) if items.is_empty() => {}
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                gather(&path, value, found);
            }
        }
        Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            found.push((path.to_owned(), value.clone()));
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Truncates a text to `most` characters, and marks the cut with an ellipsis.
fn cut(text: &str, most: usize) -> String {
    let mut letters = text.chars();
    let mut begin: String = letters.by_ref().take(most).collect();
    if letters.next().is_some() {
        begin.push('…');
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::{cut, lists, members, word};
    use serde_json::{Value, json};

    #[test]
    fn states_of_every_form_have_their_lists() {
        let titles = |state: Value| -> Vec<(String, usize)> {
            let found = lists(&state).into_iter();
            found.map(|(title, items)| (title.to_owned(), items.len())).collect()
        };
        let locks =
            json!({"owners": 2, "draining": false, "entries": [{"key": "a"}, {"key": "b"}]});
        assert_eq!(titles(locks), [("entries".to_owned(), 2)]);
        assert_eq!(titles(json!([{"name": "n"}])), [(String::new(), 1)]);
        let processes = json!({"id-1": {"phase": "running"}, "id-2": {}});
        assert_eq!(titles(processes), [(String::new(), 2)]);
        assert_eq!(titles(json!({})), [(String::new(), 0)]);
    }

    #[test]
    fn members_that_say_nothing_are_left_out() {
        let item = json!({"key": "a", "bound": null, "fencing": false, "jobs": {"ready": 2, "total": 0, "words": ""}, "none": [], "end": {"code": 0}});
        let found = members(&item).into_iter();
        let mut found: Vec<(String, String)> =
            found.map(|(name, it)| (name, it.to_string())).collect();
        found.sort();
        let expected = [("end.code", "0"), ("jobs.ready", "2"), ("key", "\"a\"")];
        assert_eq!(found, expected.map(|(name, it)| (name.to_owned(), it.to_owned())));
    }

    #[test]
    fn messages_are_known_by_a_word_and_texts_are_cut() {
        assert_eq!(word(&json!({"request": {"key": "a"}})), "request");
        assert_eq!(word(&json!("drain")), "drain");
        assert_eq!(word(&json!([3, {"lapse": 1}])), "lapse");
        assert_eq!(word(&json!(3)), "");
        assert_eq!(cut("שלום", 2), "של…");
        assert_eq!(cut("ab", 2), "ab");
    }
}
