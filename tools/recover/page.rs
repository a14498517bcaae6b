//! Formats a plan as text and as JSON.

use crate::recover::plan::{Lost, Plan};
use crate::replay::words;
use crate::text::{count, grouped, plain, time};
use serde_json::json;
use sexton::ids::Seq;
use std::path::Path;

/// Formats a plan as a JSON object.
pub(super) fn json(data: &Path, refused: &str, plan: &Plan, aside: Option<&str>) -> String {
    let snapshot = plan.base.as_ref();
    let snapshot = snapshot.map(|(slot, seal)| (slot.to_string(), seal.manifest.begun));
    let all = json!({
        "data": data,
        "refused": refused,
        "snapshot": snapshot,
        "nothing": plan.nothing,
        "records": plan.kept,
        "last": plan.last,
        "at": plan.at,
        "lost": plan.lost,
        "lost_records": plan.lost_records,
        "skip": plan.stop,
        "next": plan.bound,
        "aside": aside,
    });
    all.to_string() + "\n"
}

/// Formats a plan as lines of text, each with a label.
pub(super) fn text(data: &Path, refused: &str, plan: &Plan, aside: Option<&str>) -> String {
    let mut page = String::new();
    let mut line = |name: &str, text: &str| {
        page.push_str(plain(&format!("{name:<10} {text}")).trim_end());
        page.push('\n');
    };
    line("data", &data.display().to_string());
    line("refused", refused);
    let (verb, records) = match aside {
        Some(_) => ("kept", count(plan.kept, "record")),
        None => ("would keep", count(plan.kept, "record")),
    };
    let last = format!("{}, {}", plan.last, time(plan.at));
    line(
        verb,
        &match (&plan.nothing, &plan.base) {
            (Some(nothing), _) => format!("nothing: {nothing}"),
            (None, None) => format!("{records} of the journal, up to seq {last}"),
            (None, Some((slot, seal))) => {
                let begun = seal.manifest.begun;
                format!(
                    "snapshot {slot} up to seq {begun}, and {records} after it, up to seq {last}"
                )
            }
        },
    );
    for lost in &plan.lost {
        each(lost, &mut line);
    }
    let listed = plan.lost.iter().filter(|lost| !lost.is_unread()).count() as u64;
    if plan.lost_records > listed {
        line("lost", &format!("and {}", count(plan.lost_records - listed, "more record")));
    }
    line("numbers", &format!("continue at {}, above all that may have been used", plan.bound));
    if let Some(stop) = plan.stop.filter(|stop| plan.nothing.is_none() && follows(plan, *stop)) {
        let more =
            format!("`--skip {stop}` drops only what is at {stop}, and keeps the records after it");
        line("or", &more);
    }
    if let Some(aside) = aside {
        line("replaced", &format!("the replaced files are in {}", data.join(aside).display()));
    }
    page
}

/// Returns whether there are readable records after the one at which recovery stops.
fn follows(plan: &Plan, stop: Seq) -> bool {
    let is_later = |lost: &Lost| matches!(lost, Lost::Record { line, .. } if line.seq.is_some_and(|seq| seq > stop));
    plan.lost.iter().any(is_later)
}

fn each(lost: &Lost, line: &mut dyn FnMut(&str, &str)) {
    match lost {
        Lost::Unread { file, offset, bytes, found, from, to, seems } => {
            let numbers = match to {
                Some(to) if to == from => format!("number {from}"),
                Some(to) => format!("numbers from {from} to {to}"),
                None => format!("numbers from {from} on"),
            };
            let bytes = grouped(*bytes);
            line("lost", &format!("{numbers}: {file} at offset {offset}, {bytes} bytes: {found}"));
            if let Some(seems) = seems {
                line("", &format!("it seems to be {}", words(seems).trim_start()));
            }
        }
        Lost::Record { line: record, cause } => {
            line("lost", words(record).trim_start());
            if let Some(cause) = cause {
                line("", &format!("it cannot be applied: {cause}"));
            }
        }
    }
}
