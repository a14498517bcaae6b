//! Streams the node's events as server-sent events; see `docs/protocols/http.md`, "Events".
//!
//! A stream keeps only its position among the retained events and at most one part of the answer in memory. A client that reads too
//! slowly misses events, and is notified of the gap.

use crate::call::Call;
use crate::operate::stopped;
use crate::problem::Problem;
use crate::route::{Docs, Query, Route};
use crate::scope::{OrRun as _, Scope};
use crate::stream::{ALIVE, HEARTBEAT, Parts, Stream};
use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use schemars::JsonSchema;
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sexton::actors;
use sexton::actors::lock::Name;
use sexton::handle::Events;
use sexton::protocols::bounds::Turns;
use sexton::protocols::listener::Place;
use sexton::refusal::Reason;
use sexton::spine::event::{Event, Field, NODE, Position};
use sexton::spine::feed::Notification;
use sexton_api::member;
use std::collections::BTreeSet;
use tokio::sync::watch;
use tokio::time::{Interval, interval};

/// The target size of one part of a stream, in bytes.
const PART_BYTES: usize = 8 * 1024;

/// The maximum number of events examined in one turn, so that other streams get turns. An event that needs more work counts as several.
const LOOKED_AT: usize = 1024;

/// The amount of comparison that counts as one more event: the length of a pattern times that of the name it is compared with, in bytes.
const COMPARED: usize = 512;

pub(crate) fn routes() -> Vec<Route> {
    let condition = "`actor` is `process`, or `kind` has only kinds of events of processes";
    let required =
        Scope::Read.or_run(condition, |Query(listen): &Query<Listen>| listen.is_guarded());
    vec![
        Route::get("/v1/events", required, events, Docs {
            id: "events",
            summary: "Stream events",
            more: "Server-sent events: `id` is the position of an event: a sequence number, followed by a dot and an index unless the event is the first with this number; `event` is its kind; `data` is a JSON object with `position`, `at`, `actor`, `kind` and further fields. The stream ends when the coordinator stops or halts, or when the token of the request is removed. Events of processes and services are sent only to callers with the scope `run`. A comment is sent every 15 s as a heartbeat. The last 65,536 events, and at most 64 MiB of them, are kept in memory, from the first subscription until ten minutes after the last one ends. A client that requests events no longer kept, or reads too slowly, first receives an event `lost`, whose data has the positions `after` and `upto`: the events after the first and up to the second are missing. A client that requests a future position receives an event `ahead`, whose `upto` is where the stream begins. The kinds and their fields are listed in docs/protocols/http.md, \"Events\".",
            answer: "The stream of events.",
        }, &[Reason::Waits])
        .with_content_type("text/event-stream")
        .with_header(json!({
            "name": "Last-Event-ID",
            "in": "header",
            "description": "The same as `after`. If both are given, the header takes precedence.",
            "schema": { "type": "string", "pattern": POSITION },
        })),
    ]
}

/// The format of a position.
const POSITION: &str = r"^[0-9]{1,19}(\.[0-9]{1,9})?$";

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Listen {
    /// The position after which the stream begins; if left out, it begins with new events.
    #[schemars(extend("pattern" = POSITION))]
    after: Option<String>,
    /// Only events of this actor; `node` selects events of the node itself.
    #[schemars(extend("enum" = origins()))]
    actor: Option<String>,
    /// A comma-separated list of kinds; only events of these kinds are sent. An unknown kind is refused with a list of the known ones.
    kind: Option<String>,
    /// Only events with this subject: the key of a lock, the queue of a job, or the name of a lease. A `*` matches any sequence of bytes.
    name: Option<Name>,
    /// Only events of the job with this id.
    job: Option<u64>,
    /// Only events of the task with this id.
    task: Option<u64>,
}

impl Listen {
    /// Returns whether only events are requested that a caller without the scope `run` does not get.
    fn is_guarded(&self) -> bool {
        let guarded = actors::guarded_kinds();
        let is_of_guarded = |kinds: &String| kinds.split(',').all(|kind| guarded.contains(kind));
        let actor = self.actor.as_deref();
        actor.is_some_and(|actor| actors::guarded().contains(&actor))
            || self.kind.as_ref().is_some_and(is_of_guarded)
    }
}

/// Streams events until the client disconnects or the node stops.
async fn events(call: &Call, Query(listen): Query<Listen>) -> Result<HttpResponse, Problem> {
    let after = after(call, listen.after.as_deref())?;
    let wanted = EventFilter::of(listen)?;
    let mut response = HttpResponse::build(StatusCode::OK);
    response.content_type("text/event-stream");
    if call.method() == Method::HEAD {
        return Ok(response.body(BoxBody::new(Stream::<EventStream>::empty())));
    }
    let place = call.place()?;
    let events = call.node.events(after).await.map_err(stopped)?;
    if let Some(words) = call.node.halt_reason() {
        return Err(Problem::new(Reason::Halted, words));
    }
    let telling = EventStream {
        events,
        wanted,
        closing: call.closing(),
        turns: call.room().streams(),
        beat: None,
        place,
    };
    Ok(response.body(BoxBody::new(Stream::new(telling))))
}

/// Returns the position after which the stream begins, or `None` if it begins with new events. The header `Last-Event-ID`, sent by a
/// client that reconnects, takes precedence over `field`, the value in the query. Refuses a malformed position.
fn after(call: &Call, field: Option<&str>) -> Result<Option<Position>, Problem> {
    let header = call.header("last-event-id").filter(|id| !id.is_empty());
    let (name, text) = match (header, field) {
        (Some(header), _) => ("Last-Event-ID", header),
        (None, Some(field)) => ("after", field.as_bytes()),
        (None, None) => return Ok(None),
    };
    let text = std::str::from_utf8(text).ok();
    let position = text.and_then(|text| text.parse().ok());
    let words = "must be the id of an event, such as 812 or 812.1";
    position.map(Some).ok_or_else(|| Problem::field(name, words))
}

/// The filter of a stream, which selects the events that match all fields. A field that is `None` matches every event.
#[derive(Debug, Default)]
struct EventFilter {
    actor: Option<&'static str>,
    /// The kinds that match.
    kinds: Option<BTreeSet<&'static str>>,
    subject: Option<Name>,
    job: Option<u64>,
    task: Option<u64>,
}

/// Returns the names of all sources of events: the actors and the node.
fn origins() -> Vec<&'static str> {
    let mut origins = actors::names();
    origins.push(NODE);
    origins
}

/// Returns the item of `all` that equals `word`, and refuses a word that is not in `all`. The refusal names `field`.
fn known(
    field: &str,
    word: &str,
    all: impl IntoIterator<Item = &'static str>,
) -> Result<&'static str, Problem> {
    let all: Vec<&str> = all.into_iter().collect();
    let found = all.iter().find(|known| **known == word);
    found.copied().ok_or_else(|| {
        let all = all.join(", ");
        let word: String = word.chars().take(40).collect();
        let words = format!("has the unknown value {word:?}; expected one of {all}");
        Problem::field(field, words)
    })
}

impl EventFilter {
    fn of(listen: Listen) -> Result<Self, Problem> {
        let actor = listen.actor.map(|actor| known("actor", &actor, origins()));
        let kinds = listen.kind.map(|kinds| {
            let kinds = kinds.split(',');
            kinds.map(|kind| known("kind", kind, actors::kinds())).collect()
        });
        Ok(Self {
            actor: actor.transpose()?,
            kinds: kinds.transpose()?,
            subject: listen.name,
            job: listen.job,
            task: listen.task,
        })
    }

    /// Returns the cost of matching and writing an event: the number of events it counts as, at least 1.
    fn work(&self, heard: &Notification) -> usize {
        let pattern = self.subject.as_ref().map_or(0, |name| name.as_bytes().len());
        let name = match heard {
            Notification::Event(event) => event.what.subject().map_or(0, <[u8]>::len),
            Notification::Lost { .. } | Notification::Ahead { .. } => 0,
        };
        1 + pattern * name / COMPARED
    }

    fn lets_through(&self, event: &Event) -> bool {
        let fits = |pattern: &Name| {
            let subject = event.what.subject();
            subject.is_some_and(|subject| matches(pattern.as_bytes(), subject))
        };
        let is_of = |field, wanted: Option<u64>| {
            wanted.is_none_or(|id| event.what.fields.contains(&(field, Field::Number(id))))
        };
        let kinds = self.kinds.as_ref();
        self.actor.is_none_or(|actor| actor == event.actor)
            && kinds.is_none_or(|kinds| kinds.contains(event.what.kind))
            && self.subject.as_ref().is_none_or(fits)
            && is_of("job", self.job)
            && is_of("task", self.task)
    }

    /// Appends an event to `said` if the filter selects it. A gap in the stream is always reported.
    fn write(&self, heard: &Notification, said: &mut String) {
        match heard {
            Notification::Event(event) if self.lets_through(event) => {
                said.push_str(event.written.get_or_init(|| written(event).into()));
            }
            Notification::Event(_) => {}
            Notification::Lost { after, upto } => write_gap("lost", (*after, *upto), said),
            Notification::Ahead { after, upto } => write_gap("ahead", (*after, *upto), said),
        }
    }
}

/// Appends an event of kind `lost` or `ahead`, which reports that the stream continues after `upto` instead of after `after`.
fn write_gap(kind: &str, (after, upto): (Position, Position), said: &mut String) {
    let data = json!({"kind": kind, "after": after.to_string(), "upto": upto.to_string()});
    *said += format!("id: {upto}\nevent: {kind}\ndata: {data}\n\n").as_str();
}

/// Returns whether a name matches a pattern, in which `*` matches any sequence of bytes, including none.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or(&[]);
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts.filter(|part| !part.is_empty()) {
        let found = rest.windows(part.len()).position(|bytes| bytes == part);
        match found.and_then(|at| rest.get(at + part.len()..)) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The stream of events to one client.
struct EventStream {
    events: Events,
    wanted: EventFilter,
    closing: watch::Receiver<bool>,
    turns: Turns,
    /// The timer of the heartbeat; `None` before the first part.
    beat: Option<Interval>,
    #[expect(dead_code, reason = "held for as long as the stream is open")]
    place: Place,
}

impl Parts for EventStream {
    async fn part(&mut self) -> Option<Bytes> {
        let Some(beat) = &mut self.beat else {
            let mut beat = interval(HEARTBEAT);
            beat.reset();
            self.beat = Some(beat);
            return Some(ALIVE.into());
        };
        let mut said = String::new();
        while said.is_empty() {
            let heard = tokio::select! {
                biased;
                _ = beat.tick() => return Some(ALIVE.into()),
                heard = self.events.next() => heard,
                // Events that happened before the listener closed are still sent.
                _ = self.closing.wait_for(|closing| *closing) => self.events.try_next(),
            };
            let mut heard = Some(heard?);
            let turn = self.turns.next().await;
            let mut looked_at = 0;
            while let Some(some) = heard {
                self.wanted.write(&some, &mut said);
                looked_at += self.wanted.work(&some);
                let more = said.len() < PART_BYTES && looked_at < LOOKED_AT;
                heard = more.then(|| self.events.try_next()).flatten();
            }
            drop(turn);
        }
        Some(said.into())
    }
}

/// Formats an event for the stream.
fn written(event: &Event) -> String {
    let (id, kind) = (event.position, event.what.kind);
    let data = serde_json::to_string(&Data(event))
        .expect("it should always be possible to write an event as JSON");
    format!("id: {id}\nevent: {kind}\ndata: {data}\n\n")
}

/// The JSON form of an event.
struct Data<'e>(&'e Event);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(event) = self;
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("position", &event.position.to_string())?;
        members.serialize_entry("at", &event.at)?;
        members.serialize_entry("actor", event.actor)?;
        members.serialize_entry("kind", event.what.kind)?;
        for (field, value) in &event.what.fields {
            match value {
                Field::Name(name) => member::write(&mut members, field, name)?,
                Field::Number(number) => members.serialize_entry(field, number)?,
                Field::Text(text) => members.serialize_entry(field, text)?,
            }
        }
        members.end()
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_bytes() {
        for (pattern, name) in [
            ("", ""),
            ("a", "a"),
            ("*", ""),
            ("*", "a"),
            ("a*", "a"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("a*b*c", "a-b-b-c"),
            ("**", "x"),
            ("*b*", "abc"),
            ("a*a", "aa"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("a", ""),
            ("a", "ab"),
            ("a", "ba"),
            ("a*", "ba"),
            ("*c", "ca"),
            ("a*a", "a"),
            ("a*b*c", "a-c-b"),
            ("*bb*b", "abb"),
        ] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}
