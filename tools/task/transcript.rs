//! Formats the history of a task for a terminal.

use crate::task::held::Held;
use crate::text::{excerpt, number, plain, time, words};
use serde_json::Value;
use sexton::clock::Timestamp;
use std::fmt::Write as _;

/// Formats the history, and the resources of the attempt in progress. With `dispatch`, includes why each server was chosen, and how
/// long each attempt waited.
pub(super) fn page(story: &Value, dispatch: bool, held: &Held) -> String {
    let name = words(story, "/name");
    let name = match name.as_str() {
        "" | "-" => String::new(),
        name => format!(" {name}"),
    };
    let mut page = format!(
        "task {}{name}: {}, {}\n",
        words(story, "/id"),
        words(story, "/status"),
        words(story, "/exit"),
    );
    let message = story.pointer("/message").and_then(Value::as_str);
    if let Some(message) = message.filter(|it| !it.is_empty()) {
        line(&mut page, &plain(message));
    }
    let stories = story.pointer("/stories").and_then(Value::as_array);
    let stories = stories.map(Vec::as_slice).unwrap_or_default();
    let left_out = number(story, "/attempts").minus(stories.len() as u64);
    if left_out > 0 {
        line(&mut page, &format!("older attempts that are not kept: {left_out}"));
    }
    for story in stories {
        page.push('\n');
        attempt(&mut page, story, dispatch);
    }
    for (name, value) in held.lines() {
        line(&mut page, &format!("{name}: {value}"));
    }
    page.push_str(&held.processes);
    page
}

fn line(page: &mut String, words: &str) {
    writeln!(page, "  {words}").expect("writing to memory should not fail");
}

fn attempt(page: &mut String, story: &Value, dispatch: bool) {
    let came_to = match (words(story, "/outcome"), words(story, "/cause")) {
        (outcome, _) if outcome == "-" => "under way".to_owned(),
        (outcome, cause) if cause == "-" => outcome,
        (outcome, cause) => format!("{outcome}: {cause}"),
    };
    let (token, server) = (words(story, "/token"), words(story, "/server"));
    writeln!(page, "attempt {token} on {server}: {came_to}")
        .expect("writing to memory should not fail");
    if dispatch {
        let of = |name: &str| words(story, &format!("/dispatch/{name}"));
        line(page, &format!("waited {} ms for its turn and a thread", of("waited_ms")));
        line(
            page,
            &format!("chose {server}: {} of {} threads were taken", of("used"), of("threads")),
        );
    }
    let phases = story.pointer("/phases").and_then(Value::as_array);
    let began = number(story, "/phases/0/at");
    for phase in phases.into_iter().flatten() {
        let at = number(phase, "/at");
        let after = at.minus(began);
        let (at, phase) = (at.shown(|at| time(Timestamp(at))), words(phase, "/phase"));
        line(page, &format!("{at}  +{after:<7} {phase}"));
    }
    match (words(story, "/code"), words(story, "/signal")) {
        (code, _) if code != "-" => line(page, &format!("its command ended with status {code}")),
        (_, signal) if signal != "-" => {
            line(page, &format!("its command was killed by signal {signal}"));
        }
        (_, _) => {}
    }
    if words(story, "/failure") != "-" {
        line(page, &format!("not launched: {}", words(story, "/failure")));
    }
    for stream in ["stdout", "stderr"] {
        let bytes = number(story, &format!("/{stream}/bytes"));
        if bytes.or_zero() == 0 {
            continue;
        }
        let dir = words(story, "/dir");
        line(page, &format!("{stream}: {bytes} bytes in {dir}/{stream}.log"));
        let shown = story.pointer(&format!("/{stream}")).map(excerpt);
        for printed in shown.unwrap_or_default() {
            line(page, &format!("  {printed}"));
        }
    }
}
