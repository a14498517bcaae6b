//! The script commands about an existing job.

use crate::lock::binding;
use crate::node::{Parsed, milliseconds, number};
use crate::queue::{Options, body_of, id_of, right, span, yes};
use sexton::actors::queue::{Command, JobEnd, KeepResult, Message, Progress};

/// Parses a message about an existing job. Returns `None` for other commands.
pub(crate) fn about(places: &[&str], options: &Options<'_>) -> Parsed<Option<Message>> {
    let priority = || match options.get("prio") {
        None => Ok(None),
        Some(_) => number(options, "prio", 0).map(Some),
    };
    Ok(Some(match places {
        ["delete", id] => Message::Delete { id: id_of(id)?, by: right(options)? },
        ["release", id] => Message::Release {
            id: id_of(id)?,
            by: right(options)?,
            priority: priority()?,
            delay_ms: span(options, "delay", 0)?,
        },
        ["bury", id] => {
            Message::Bury { id: id_of(id)?, by: right(options)?, priority: priority()? }
        }
        ["touch", id] => Message::Touch { id: id_of(id)?, by: right(options)? },
        ["bind", id, process] => {
            Message::Bind { id: id_of(id)?, by: right(options)?, to: binding(process)? }
        }
        ["defer", id] => Message::Defer {
            id: id_of(id)?,
            by: right(options)?,
            error: options.get("error").map(|text| (*text).to_owned().into()),
            retry_after_ms: after(options)?,
            interrupted: yes(options, "interrupted", false)?,
        },
        ["report", id] => Message::Report {
            id: id_of(id)?,
            by: right(options)?,
            progress: Progress {
                percent: match options.get("percent") {
                    None => None,
                    Some(percent) => Some(percent.parse().map_err(|_| "how much?".to_owned())?),
                },
                text: options.get("text").map(|text| (*text).to_owned().into()),
            },
        },
        ["result", id] => Message::KeepResult(Box::new(KeepResult {
            id: id_of(id)?,
            by: right(options)?,
            ms: span(options, "for", 3_600_000)?,
            end: JobEnd {
                done: yes(options, "done", true)?,
                exit: match options.get("exit") {
                    None => None,
                    Some(exit) => Some(exit.parse().map_err(|_| "which status?".to_owned())?),
                },
                error: options.get("error").map(|text| (*text).to_owned().into()),
                output: body_of(options.get("output").unwrap_or(&"''"))?.into(),
                took_ms: span(options, "took", 0)?,
            },
        })),
        ["fail", id] => Message::Fail {
            id: id_of(id)?,
            by: right(options)?,
            retry_after_ms: after(options)?,
            error: options.get("error").map(|text| (*text).to_owned().into()),
            crashed: yes(options, "crashed", false)?,
        },
        ["attach", id, process] => Message::Attach {
            id: id_of(id)?,
            by: right(options)?,
            command: Command {
                process: binding(process)?.process,
                completes: yes(options, "completes", false)?,
            },
            ttr_ms: span(options, "for", 0)?,
        },
        _ => return Ok(None),
    }))
}

/// Parses the delay before the next try. Returns `None` if the option is not given.
fn after(options: &Options<'_>) -> Parsed<Option<u64>> {
    let after = options.get("after").map(|after| milliseconds(after));
    after.transpose()
}
