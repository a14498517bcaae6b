//! Formats the findings as text.

use crate::inspect::actors::{ActorFigures, ItemState, KeyEntries};
use crate::inspect::findings::{
    Findings, JournalFindings, SlotState, SnapshotFindings, StartForecast,
};
use crate::text::{bytes, count, grouped, plain, time};
use serde_json::Value;
use sexton::actors;
use sexton::clock::Timestamp;
use sexton::persist::journal::Surveyed;

/// Lines in groups, with a name in the first column of each group's first line.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, name: &str, text: &str) {
        let line = plain(&format!("{name:<12} {text}"));
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }
}

/// Formats all findings.
pub(crate) fn all(findings: &Findings) -> String {
    let mut page = Page::default();
    page.line("data", &findings.data.display().to_string());
    let running = match findings.running {
        None => "not running".to_owned(),
        Some(process) => {
            format!(
                "process {process} is running, and may change the directory during the inspection"
            )
        }
    };
    page.line("coordinator", &running);
    for slot in &findings.snapshots {
        snapshot(&mut page, slot);
    }
    journal(&mut page, &findings.journal);
    start(&mut page, &findings.start);
    for actor in &findings.actors {
        page.line(actor.name, &counts(actor));
    }
    for wrong in &findings.damage {
        page.line("damage", wrong);
    }
    page.0
}

/// Formats only the actors, or the requested item.
pub(crate) fn actors(findings: &Findings) -> String {
    let mut page = Page::default();
    match &findings.item {
        Some(ItemState::Key(key)) => held(&mut page, key),
        Some(ItemState::Job { id, found }) => {
            let words = found.as_ref().map(figures);
            page.line(&format!("job {id}"), words.as_deref().unwrap_or(ABSENT));
            if found.as_ref().is_some_and(|job| job.passing) {
                page.line("", "(kept in memory only: startup would remove it)");
            }
        }
        Some(ItemState::Queue { name, found }) => {
            let words = found.as_ref().map(figures);
            page.line(&format!("queue {name}"), words.as_deref().unwrap_or(ABSENT));
        }
        Some(ItemState::Task { id, found }) => {
            let words = found.as_ref().map(figures);
            page.line(&format!("task {id}"), words.as_deref().unwrap_or(ABSENT));
        }
        None => {
            for actor in &findings.actors {
                page.line(actor.name, &counts(actor));
            }
        }
    }
    page.0
}

const ABSENT: &str = "does not exist: it has ended, or never existed";

/// Formats all fields of a job, a queue or a task, each with its name. A field that is null is left out.
fn figures(view: &impl serde::Serialize) -> String {
    let view = serde_json::to_value(view).expect("a view should have only string keys");
    let mut parts = Vec::new();
    for (name, value) in view.as_object().into_iter().flatten() {
        match value {
            Value::Object(members) => {
                parts.extend(members.iter().map(|(name, value)| format!("{name} {value}")));
            }
            Value::Null => {}
            Value::Number(at) if ["created", "until", "paused_until"].contains(&name.as_str()) => {
                let at = Timestamp(at.as_u64().unwrap_or(0));
                parts.push(format!("{} {}", name.replace('_', " "), time(at)));
            }
            Value::String(word) => parts.push(format!("{name} {word}")),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                parts.push(format!("{} {value}", name.replace('_', " ")));
            }
        }
    }
    parts.join(", ")
}

fn counts(actor: &ActorFigures) -> String {
    let counts = actor.counts.iter();
    let held: Vec<String> =
        counts.map(|(name, value)| format!("{} {name}", grouped(*value))).collect();
    let held = held.join(", ");
    format!("{held}, up to seq {}, digest {}", actor.last, actor.digest)
}

fn held(page: &mut Page, found: &KeyEntries) {
    let key = found.key.to_text();
    if found.entries.is_empty() {
        page.line(&key, "has no holder and no waiters");
    }
    for entry in &found.entries {
        let until = match (entry.deadline, entry.bound) {
            (Some(deadline), _) => time(deadline),
            (None, Some(bound)) => format!("the end of process {}", bound.process),
            (None, None) => "it is released".to_owned(),
        };
        let stands = match entry.token {
            Some(token) => format!("holds it with token {token}, until {until}"),
            None => format!("waits in position {}, until {until}", entry.place),
        };
        let (index, owner) = (entry.index.to_text(), entry.owner.to_text());
        page.line(&key, &format!("{index:?}: {owner:?} {stands}"));
    }
    if !found.entries.is_empty() {
        page.line("", "(node time; at startup, every timeout begins again in full)");
    }
}

fn snapshot(page: &mut Page, slot: &SnapshotFindings) {
    let name = format!("snapshot {}", slot.slot);
    let state = match slot.state {
        SlotState::Absent => "absent",
        SlotState::Unsealed => "not sealed: being written, or never finished",
        SlotState::Sealed => "sealed and intact",
        SlotState::Damaged => "damaged",
        SlotState::TooNew => "written by a newer sexton",
    };
    match &slot.wrong {
        None => page.line(&name, state),
        Some(wrong) => page.line(&name, &format!("{state}: {wrong}")),
    }
    if let Some(sealed) = &slot.sealed {
        page.line(
            "",
            &format!(
                "up to seq {}, taken at {}; {} with {}, {} on disk; its mark in the journal is seq {}",
                sealed.upto,
                time(sealed.at),
                count(sealed.pages, "page"),
                bytes(sealed.bytes),
                bytes(sealed.file_bytes),
                sealed.mark
            ),
        );
        for state in &sealed.states {
            let (upto, digest) = (state.upto, state.digest);
            let other = || format!("actor {}", state.actor);
            let actor = actors::name_of(state.actor).map_or_else(other, str::to_owned);
            page.line("", &format!("{actor} up to seq {upto}, digest {digest}"));
        }
    }
    for file in &slot.files {
        let len = file.len.map_or("-".to_owned(), grouped);
        let wrong = match (&file.wrong, &slot.sealed) {
            (Some(wrong), _) => wrong,
            (None, Some(_)) => "matches the seal",
            (None, None) => "",
        };
        page.line("", &format!("{:<44} {len:>13} B  {wrong}", file.name));
    }
}

fn journal(page: &mut Page, journal: &JournalFindings) {
    let all: u64 = journal.segments.iter().map(|segment| segment.bytes).sum();
    let segments = count(journal.segments.len() as u64, "segment");
    page.line("journal", &format!("{segments}, {}", bytes(all)));
    for segment in &journal.segments {
        page.line("", &words(segment));
    }
    for other in &journal.others {
        page.line("", &format!("journal/{other:<20} is not a segment"));
    }
}

fn words(segment: &Surveyed) -> String {
    let numbers = match (segment.first, segment.last) {
        (Some(first), Some(last)) => {
            format!("seq {first} to {last} in {}, ", count(segment.records, "record"))
        }
        _ if segment.is_prepared() => "prepared, ".to_owned(),
        _ => String::new(),
    };
    let stops = match &segment.stops {
        None => String::new(),
        Some(why) => format!("; {why}"),
    };
    format!(
        "{:<20} {:>10}  {numbers}{} B used{stops}",
        segment.file,
        bytes(segment.bytes),
        grouped(segment.used)
    )
}

fn start(page: &mut Page, start: &StartForecast) {
    if let Some(refused) = &start.refused {
        return page.line("startup", &format!("would be refused: {refused}"));
    }
    let (records, last) = (count(start.records, "record"), start.last);
    let does = match &start.snapshot {
        Some((slot, upto)) => {
            format!(
                "would load snapshot {slot} up to seq {upto}, and replay {records} up to seq {last}"
            )
        }
        None if start.last.0 == 0 => "would begin with an empty state".to_owned(),
        None => format!("would replay the whole journal: {records} up to seq {last}"),
    };
    page.line("startup", &does);
    let end = match start.clean {
        None => "",
        Some(true) => "after a clean stop; ",
        Some(false) => "after an unclean end; ",
    };
    page.line("", &format!("{end}sequence numbers continue at {}", start.next));
    if let Some(cut) = &start.cut {
        page.line("", &format!("would {cut}"));
    }
    if start.memory_jobs > 0 {
        let jobs = count(start.memory_jobs, "job");
        page.line("", &format!("would remove {jobs} kept in memory only (class = \"memory\"), which are counted below"));
    }
}
