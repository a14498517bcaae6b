//! The `[tasks]` table of the configuration file: defaults for tasks, the maximum number of tasks of a group that are in progress at a
//! time, how long ended tasks are kept, when a server is considered lost, and whether faults may be injected.

use crate::settings::layer::{Problem, Source, unknown_key};
use crate::settings::queue::span_words;
use crate::settings::service::span;
use crate::settings::value::{number, switch};
use serde_json::{Value, json};
use sexton::actors::dispatch::{Rules, Terms};
use sexton::config::Config;
use toml::de::DeValue;

/// The keys of the table.
const KEYS: &str = "abort_on_failure, burst, fail_after, progress, group_limit, keep, keep_max, server_lost_after, \
                    allow_fault_injection";

/// The values of the table; `None` for a key that is missing or invalid, whose default applies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    abort_on_failure: Option<bool>,
    burst_ms: Option<u64>,
    fail_after_ms: Option<u64>,
    progress_ms: Option<u64>,
    group_max: Option<u32>,
    kept_ms: Option<u64>,
    kept_max: Option<u32>,
    lost_after_ms: Option<u64>,
    allow_fault_injection: Option<bool>,
}

/// Reads the table, and returns its valid values and the problems found. `source` converts a byte offset in the file to the [`Source`]
/// of a problem.
pub(crate) fn table(
    value: &DeValue<'_>,
    source: impl Fn(usize) -> Source,
) -> (Table, Vec<Problem>) {
    let mut read = Table::default();
    let DeValue::Table(table) = value else {
        let words = format!("expected a table with {KEYS}");
        return (read, vec![Problem::new(source(0), "tasks", words)]);
    };
    let mut problems = Vec::new();
    for (key, value) in table {
        if let Err(words) = read.key(key.get_ref(), value.get_ref()) {
            let words = format!("{}: {words}", key.get_ref());
            problems.push(Problem::new(source(key.span().start), "tasks", words));
        }
    }
    (read, problems)
}

impl Table {
    fn key(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        let span = |max| bounded(value, max).map(Some);
        match key {
            "abort_on_failure" => self.abort_on_failure = Some(switch(value)?),
            "burst" => self.burst_ms = span(Terms::SPAN_MS_MAX)?,
            "fail_after" => self.fail_after_ms = span(Terms::SPAN_MS_MAX)?,
            "progress" => self.progress_ms = span(Terms::SPAN_MS_MAX)?,
            "group_limit" => self.group_max = Some(number(value)?),
            "keep" => self.kept_ms = span(Rules::KEPT_MS_MAX)?,
            "server_lost_after" => self.lost_after_ms = span(Rules::LOST_AFTER_MS_MAX)?,
            "allow_fault_injection" => self.allow_fault_injection = Some(switch(value)?),
            "keep_max" => {
                let max = Rules::default().tasks_max;
                let fits = number(value).ok().filter(|it| (1..=max).contains(it));
                let kept =
                    fits.ok_or_else(|| format!("expected a whole number from 1 to {max}"))?;
                self.kept_max = Some(kept);
            }
            _ => return Err(unknown_key(key, KEYS)),
        }
        Ok(())
    }
}

fn bounded(value: &DeValue<'_>, max: u64) -> Result<u64, String> {
    let ms = span(value)?;
    if (1..=max).contains(&ms) {
        Ok(ms)
    } else {
        Err(format!("expected 1ms to {}", span_words(max)))
    }
}

/// Overrides the defaults in the node's configuration with the values that the table sets. Without a value of its own,
/// `allow_fault_injection` is off.
pub(crate) fn settle(table: &Table, node: &mut Config) {
    node.allow_fault_injection = table.allow_fault_injection.unwrap_or(false);
    let rules = &mut node.rules.dispatch;
    let terms = &mut rules.terms;
    for (to, from) in [
        (&mut terms.burst_ms, table.burst_ms),
        (&mut terms.fail_after_ms, table.fail_after_ms),
        (&mut terms.progress_ms, table.progress_ms),
        (&mut rules.kept_ms, table.kept_ms),
        (&mut rules.lost_after_ms, table.lost_after_ms),
    ] {
        *to = from.unwrap_or(*to);
    }
    terms.abort_on_failure = table.abort_on_failure.unwrap_or(terms.abort_on_failure);
    rules.group_max = table.group_max.unwrap_or(rules.group_max);
    rules.kept_max = table.kept_max.unwrap_or(rules.kept_max);
}

/// Formats the rules in force as JSON.
pub(crate) fn document(node: &Config) -> Value {
    let rules = &node.rules.dispatch;
    json!({
        "abort_on_failure": rules.terms.abort_on_failure,
        "burst_ms": rules.terms.burst_ms,
        "fail_after_ms": rules.terms.fail_after_ms,
        "progress_ms": rules.terms.progress_ms,
        "group_limit": rules.group_max,
        "keep_ms": rules.kept_ms,
        "keep_max": rules.kept_max,
        "server_lost_after_ms": rules.lost_after_ms,
        "allow_fault_injection": node.allow_fault_injection,
    })
}

/// Formats the rules in force on one line, under the same keys as in the file.
pub(crate) fn words(node: &Config) -> String {
    let Rules { terms, group_max, kept_ms, kept_max, lost_after_ms, .. } = &node.rules.dispatch;
    format!(
        "tasks: abort_on_failure = {}, burst = {}, fail_after = {}, progress = {}, group_limit = {group_max}, keep = {}, keep_max = {kept_max}, server_lost_after = {}, allow_fault_injection = {}\n",
        terms.abort_on_failure,
        span_words(terms.burst_ms),
        span_words(terms.fail_after_ms),
        span_words(terms.progress_ms),
        span_words(*kept_ms),
        span_words(*lost_after_ms),
        node.allow_fault_injection,
    )
}
