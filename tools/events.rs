//! `sexton events`: prints the events of a running coordinator, one per line, as they happen.

use crate::client::{self, Answer, Target, Where};
use crate::lock::{refused, shown};
use crate::report::{Failure, print};
use crate::settings::nearest;
use crate::text::{number, time, words};
use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sexton::actors::lock::Name;
use sexton::clock::Timestamp;
use sexton::spine::event::Position;

/// Show the events of a running coordinator as they happen.
///
/// Shows what happens to locks, jobs and queues, processes and services, leases, and tasks and their servers; restarts of actors;
/// checkpoints; and the start of a drain and of the shutdown. Begins with the next event, or with the first one after the position
/// given by --after, and ends when the coordinator stops.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton events                                everything, until Ctrl-C
  sexton events --kind expired,restarted       events that concern an operator
  sexton events --key 'account*' --json | jq -r .owner
  sexton events --job 17                       the events of one job
  sexton events --task 4711                    the events of one task
  sexton events --after 812                    events after this position, if they are still kept

Exit status: 0 the coordinator stopped; 2 usage; 3 no coordinator runs there, or the connection was lost; 4 it has halted.")]
pub(crate) struct Events {
    /// Only events of this actor: lock, queue, process, lease, dispatch, supervisor, node
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,

    /// Only events of these kinds, a comma-separated list, such as granted and expired (locks), added, failed and done (jobs), launched
    /// and exited (processes), service-failed (services) and restarted (actors)
    #[arg(long, value_name = "KINDS")]
    kind: Option<String>,

    /// Only events about this name, such as the key of a lock; * matches anything
    #[arg(long, value_name = "PATTERN", value_parser = crate::lock::name)]
    name: Option<Name>,

    /// Only events of this job
    #[arg(long, value_name = "ID", value_parser = crate::numbers::job)]
    job: Option<u64>,

    /// Only events of this task
    #[arg(long, value_name = "ID", value_parser = crate::numbers::task, conflicts_with = "job")]
    task: Option<u64>,

    /// Only events of this queue and its jobs; * matches anything
    #[arg(long, value_name = "QUEUE", value_parser = crate::lock::name, conflicts_with_all = ["name", "actor", "key", "task"])]
    queue: Option<Name>,

    /// Only events of locks with this key; * matches anything
    #[arg(long, value_name = "KEY", value_parser = crate::lock::name, conflicts_with_all = ["name", "actor", "job", "task"])]
    key: Option<Name>,

    /// Begin after this position, which is the first column of each line
    #[arg(long, value_name = "POSITION", value_parser = position)]
    after: Option<Position>,

    #[command(flatten)]
    at: Where,

    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
}

fn position(text: &str) -> Result<Position, String> {
    text.parse().map_err(|error: sexton::spine::event::NoPosition| error.to_string())
}

impl Events {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let target = self.at.target()?;
        let after = self.after.map(|after| after.to_string());
        let job = self.job.map(|job| job.to_string());
        let task = self.task.map(|task| task.to_string());
        let (queue, key) = (self.queue.as_ref(), self.key.as_ref());
        let actor = queue.map(|_| "queue").or(key.map(|_| "lock"));
        let wanted = EventFilter {
            actor: self.actor.as_deref().or(actor),
            kind: self.kind.as_deref(),
            name: self.name.as_ref().or(queue).or(key),
            job: job.as_deref(),
            task: task.as_deref(),
            after: after.as_deref(),
        };
        follow(&target, &wanted, self.json)
    }
}

/// The conditions that an event must meet to be shown. A field that is `None` sets no condition.
#[derive(Default)]
pub(crate) struct EventFilter<'w> {
    pub(crate) actor: Option<&'w str>,
    pub(crate) kind: Option<&'w str>,
    pub(crate) name: Option<&'w Name>,
    pub(crate) job: Option<&'w str>,
    pub(crate) task: Option<&'w str>,
    pub(crate) after: Option<&'w str>,
}

impl EventFilter<'_> {
    fn path(&self) -> String {
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut put = |field: &str, value: Option<&str>| {
            fields.extend(value.map(|value| (field.to_owned(), value.to_owned())));
        };
        put("actor", self.actor);
        put("kind", self.kind);
        put("job", self.job);
        put("task", self.task);
        put("after", self.after);
        if let Some(name) = self.name {
            let mut members = serde_json::Map::new();
            crate::lock::put(&mut members, "name", name);
            let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
            fields.extend(members.into_iter().map(|(field, value)| (field, text(value))));
        }
        let pair = |(field, value): &(String, String)| {
            format!("{field}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))
        };
        let query: Vec<String> = fields.iter().map(pair).collect();
        format!("/v1/events?{}", query.join("&"))
    }
}

/// Prints events until the coordinator stops. Fails if the coordinator refuses the request, or if the connection is lost.
pub(crate) fn follow(target: &Target, wanted: &EventFilter<'_>, json: bool) -> Result<(), Failure> {
    let ended = client::follow(target, &wanted.path(), |line| {
        // Of each server-sent event, only the `data` line is needed: it includes the kind and the position.
        let Some(told) = line.strip_prefix("data: ") else {
            return Ok(());
        };
        let line = if json {
            told.to_owned()
        } else {
            serde_json::from_str(told)
                .map_or_else(|_| told.to_owned(), |told| shown_to_people(&told))
        };
        print(&format!("{line}\n"))
    })?;
    ended.map_or(Ok(()), |Answer { body, .. }| {
        let said = serde_json::from_str(&body).unwrap_or_default();
        Err(unknown_kind(&said, wanted.kind).unwrap_or_else(|| refused(&said)))
    })
}

/// Replaces the refusal of an unknown kind of events, which lists all kinds, with a short one that suggests the kind that was probably
/// meant. Returns `None` for any other refusal.
fn unknown_kind(said: &Value, wanted: Option<&str>) -> Option<Failure> {
    let (wanted, detail) = (wanted?, said.pointer("/detail")?.as_str()?);
    let (_, all) = detail.split_once("the unknown value ")?;
    let (_, all) = all.split_once("expected one of ")?;
    let all: Vec<&str> = all.split(", ").collect();
    let unknown = wanted.split(',').find(|word| !all.contains(word))?;
    let help = match nearest(unknown, all.into_iter()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "without --kind, `sexton events` shows all kinds; `--actor NAME` shows only those of locks, queues and so on".to_owned(),
    };
    Some(Failure::usage(format!("there is no kind of event named {unknown:?}")).help(help))
}

/// Formats an event as one line.
fn shown_to_people(told: &Value) -> String {
    let kind = words(told, "/kind");
    let (after, upto) = (words(told, "/after"), words(told, "/upto"));
    match kind.as_str() {
        "lost" => {
            return format!(
                "events were lost: those after position {after}, up to {upto}, are no longer kept"
            );
        }
        "ahead" => {
            return format!(
                "position {after} does not exist yet: the last position is {upto}, and the events after {upto} are shown"
            );
        }
        _ => {}
    }
    let fields = told.as_object().into_iter().flatten();
    let fields = fields.filter_map(|(field, _)| {
        let field = field.strip_suffix("_b64").unwrap_or(field);
        let value = match field {
            "position" | "at" | "actor" | "kind" => return None,
            "key" | "index" | "owner" | "lease" => shown(told, field),
            field => words(told, &format!("/{field}")),
        };
        Some((field, value))
    });
    let at = number(told, "/at").known().map(Timestamp);
    let actor = words(told, "/actor");
    let named = (actor.as_str(), kind.as_str());
    line(&words(told, "/position"), at, named, fields)
}

/// Formats a line of output: position, time (`-` if it is not known), actor and kind in aligned columns, followed by the fields.
pub(crate) fn line<'f>(
    position: &str,
    at: Option<Timestamp>,
    (actor, kind): (&str, &str),
    fields: impl Iterator<Item = (&'f str, String)>,
) -> String {
    let at = at.map_or_else(|| "-".to_owned(), time);
    let mut line = format!("{position:>10}  {at:<24}  {actor:<10}  {kind:<11}");
    for (field, value) in fields.filter(|(_, value)| !value.is_empty()) {
        let quoted = value.contains(char::is_whitespace);
        let value = if quoted { format!("{value:?}") } else { value };
        line.extend(["  ", field, "=", value.as_str()]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::shown_to_people;
    use serde_json::json;

    #[test]
    fn a_time_that_is_not_known_is_shown_as_a_dash() {
        let mut event =
            json!({"position": 7, "at": 0, "actor": "lock", "kind": "granted", "key": "k"});
        let known = shown_to_people(&event);
        assert_eq!(known, "         7  1970-01-01T00:00:00.000Z  lock        granted      key=k");
        event["at"] = "soon".into();
        let unknown = shown_to_people(&event);
        assert_eq!(unknown, known.replace("1970-01-01T00:00:00.000Z", &format!("{:<24}", "-")));
    }
}
