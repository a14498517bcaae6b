//! The `[queues.TYPE]` tables of the configuration file, each with the rules for one type of job. The rules in `[queues.default]` apply
//! to every type without a table of its own.
//!
//! Keys missing from a table are inherited from `[queues.default]`. These rules can be set only in the file, so no precedence of
//! sources is needed here.

use crate::settings::layer::{Problem, Source, unknown_key};
use crate::settings::value::{number, switch};
use crate::span::milliseconds;
use crate::table::{self, Column};
use crate::text;
use serde_json::{Map, Value, json};
use sexton::actors::queue::{Backoff, Class, Order, QueueName, Rules, TypeRules};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys of a `[queues.TYPE]` table, as listed in error messages.
const KEYS: &str = "class, order, claim_ttl, max_tries, retries, dedup, prune, throttle, backoff, retry, read_only_reason, tube_max_tries, dedup_ignore, in_any, rank, crash_tries, tube_crash_tries";

/// The keys of the `backoff` table, as listed in error messages.
const BACKOFF_KEYS: &str = "first, factor, max, jitter";

/// The message for an invalid rate.
const RATE: &str = "expected a rate in items per second, from 0.001 to 1000 with at most three decimals, or 0 for no limit";
/// The maximum rate, in thousandths of an item per second.
const RATE_MAX: u32 = 1_000_000;

/// The suffix that marks the value of a setting as a number of milliseconds.
const MS: &str = "_ms";

/// Settings for which 0 means no limit.
const NONE_IF_ZERO: [&str; 6] =
    ["claim_ttl_ms", "max_tries", "throttle", "tube_max_tries", "crash_tries", "tube_crash_tries"];

/// The table of one job type. `rules` includes the values inherited from `[queues.default]`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    kind: String,
    rules: TypeRules,
}

/// The byte range of a problem in the file, and its message.
type Wrong = (Range<usize>, String);

/// Reads the tables, and returns all of them, even those with problems, and the problems found. `source` converts a byte offset in the
/// file to the [`Source`] of a problem.
pub(crate) fn tables(
    value: &DeValue<'_>,
    source: impl Fn(usize) -> Source,
) -> (Vec<Table>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut tell = |kind: &str, wrong: Vec<Wrong>| {
        for (place, words) in wrong {
            let key = format!("queues.{kind}");
            problems.push(Problem::new(source(place.start), &key, words));
        }
    };
    let DeValue::Table(all) = value else {
        let problem = Problem::new(source(0), "queues", "expected tables such as [queues.mails]");
        return (Vec::new(), vec![problem]);
    };
    let default = TypeRules::default();
    let mut tables = Vec::new();
    let (first, rest): (Vec<_>, Vec<_>) =
        all.iter().partition(|(kind, _)| kind.get_ref().as_ref() == Rules::DEFAULT);
    let mut base = default;
    for (kind, value) in first.into_iter().chain(rest) {
        let (name, at) = (kind.get_ref().as_ref(), kind.span());
        let mut wrong = Vec::new();
        if QueueName::new(name.as_bytes()).is_none() {
            wrong.push((at.clone(), "not a valid name for a job type".to_owned()));
        }
        let mut rules = base.clone();
        if let DeValue::Table(table) = value.get_ref() {
            read(table, &mut rules, &mut wrong);
        } else {
            wrong.push((at, format!("expected a table with {KEYS}")));
        }
        tell(name, wrong);
        if name == Rules::DEFAULT {
            base = rules.clone();
        }
        tables.push(Table { kind: name.to_owned(), rules });
    }
    (tables, problems)
}

fn read(table: &DeTable<'_>, rules: &mut TypeRules, wrong: &mut Vec<Wrong>) {
    for (key, value) in table {
        let found = value.get_ref();
        let read = match key.get_ref().as_ref() {
            "class" => class(found).map(|class| rules.class = class),
            "order" => order(found).map(|order| rules.order = order),
            "claim_ttl" => span(found).map(|ms| rules.claim_ttl_ms = ms),
            "prune" => span(found).map(|ms| rules.prune_ms = ms),
            "throttle" => rate(found).map(|milli| rules.throttle_milli = milli),
            "backoff" => backoff(value, rules.backoff.unwrap_or_default(), wrong)
                .map(|backoff| rules.backoff = backoff),
            "retry" => retry(table).map(|()| rules.backoff = None),
            "max_tries" => number(found).map(|tries| rules.max_tries = tries),
            "tube_max_tries" => number(found).map(|tries| rules.tube_max_tries = tries),
            "crash_tries" => number(found).map(|tries| rules.crash_tries = tries),
            "tube_crash_tries" => number(found).map(|tries| rules.tube_crash_tries = tries),
            "retries" => switch(found).map(|is| rules.retries = is),
            "dedup" => switch(found).map(|is| rules.dedup = is),
            "dedup_ignore" => names(found).map(|names| rules.dedup_ignore = names),
            "in_any" => switch(found).map(|is| rules.in_any = is),
            "rank" => number(found).map(|rank| rules.rank = rank),
            "read_only_reason" => word(found).map(|why| {
                rules.read_only = Some(why.to_owned()).filter(|why| !why.is_empty());
            }),
            other => Err(unknown_key(other, KEYS)),
        };
        if let Err(words) = read {
            wrong.push((place(key), format!("{}: {words}", key.get_ref())));
        }
    }
    // A table that sets only `max_tries` also sets `tube_max_tries`, the limit for jobs from beanstalk clients, instead of inheriting it.
    if table.contains_key("max_tries") && !table.contains_key("tube_max_tries") {
        rules.tube_max_tries = rules.max_tries;
    }
}

fn place<T>(spanned: &Spanned<T>) -> Range<usize> {
    spanned.span()
}

fn word<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    let found = || format!("expected a string, found {}", value.type_str());
    value.as_str().ok_or_else(found)
}

/// The maximum length of the list `dedup_ignore`.
const IGNORED_MAX: usize = 100;

fn names(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let list = value.as_array().filter(|list| list.len() <= IGNORED_MAX);
    let names = list.and_then(|list| {
        let names = list.iter().map(|name| name.get_ref().as_str());
        names.map(|name| name.map(str::to_owned)).collect()
    });
    names.ok_or_else(|| format!("expected a list of at most {IGNORED_MAX} strings"))
}

fn class(value: &DeValue<'_>) -> Result<Class, String> {
    match word(value)? {
        "durable" => Ok(Class::Durable),
        "memory" => Ok(Class::Memory),
        later @ ("redis" | "sql") => Err(format!(
            "the class {later} is not available in this version: expected durable or memory"
        )),
        other => Err(format!("{other:?}: expected durable or memory")),
    }
}

fn order(value: &DeValue<'_>) -> Result<Order, String> {
    match word(value)? {
        // `any` selects the strictest order that the class supports, which is priority order for every class.
        "priority" | "any" => Ok(Order::Priority),
        "fifo" => Ok(Order::Fifo),
        "timestamp" => Ok(Order::Timestamp),
        "random" => Ok(Order::Random),
        other => Err(format!("{other:?}: expected priority, fifo, timestamp, random or any")),
    }
}

/// Parses an integer, in seconds, or a string with units, such as `"90s"`, and returns the span in milliseconds. The error is a message.
fn span(value: &DeValue<'_>) -> Result<u64, String> {
    let expected =
        || "expected a number of seconds, or a span such as \"500ms\", \"90s\", \"2h\", \"7d\"";
    let ms = if value.is_integer() {
        number::<u64>(value).ok().and_then(|it| it.checked_mul(1000))
    } else {
        value
            .as_str()
            .filter(|text| text.ends_with(|letter: char| letter.is_ascii_alphabetic()))
            .and_then(|text| milliseconds(text).ok())
    };
    ms.ok_or_else(|| expected().to_owned())
}

/// Parses the delays between tries. `false` is returned as `None`; keys missing from a table are inherited from `backoff`. Problems with
/// single keys of the table are added to `wrong`; an error is returned only for a problem with the whole value.
fn backoff(
    value: &Spanned<DeValue<'_>>,
    mut backoff: Backoff,
    wrong: &mut Vec<Wrong>,
) -> Result<Option<Backoff>, String> {
    let found = value.get_ref();
    if found.as_bool() == Some(false) {
        return Ok(None);
    }
    let DeValue::Table(table) = found else {
        return Err(format!("expected false, or a table with {BACKOFF_KEYS}"));
    };
    let before = wrong.len();
    for (key, value) in table {
        let found = value.get_ref();
        let read = match key.get_ref().as_ref() {
            "first" => span(found).map(|ms| backoff.first_ms = ms),
            "max" => span(found).map(|ms| backoff.max_ms = ms),
            "factor" => match number(found) {
                Ok(0) | Err(_) => Err("expected a whole number of at least 1".to_owned()),
                Ok(factor) => {
                    backoff.factor = factor;
                    Ok(())
                }
            },
            "jitter" => match thousandths(found).filter(|milli| *milli <= 1000) {
                None => Err("expected a number from 0 to 1 with at most three decimals".to_owned()),
                Some(milli) => {
                    backoff.jitter_milli = milli;
                    Ok(())
                }
            },
            other => Err(unknown_key(other, BACKOFF_KEYS)),
        };
        if let Err(words) = read {
            wrong.push((place(key), format!("backoff.{}: {words}", key.get_ref())));
        }
    }
    let (first, max) = (backoff.first_ms, backoff.max_ms);
    if wrong.len() == before && first > max {
        let (first, max) = (span_words(first), span_words(max));
        return Err(format!("first ({first}) is longer than max ({max})"));
    }
    Ok(Some(backoff))
}

/// Checks that `retry` is `"claim-ttl"`, and that the table does not also have `backoff`. `retry = "claim-ttl"` means the same as
/// `backoff = false`: as in MediaWiki, a failed job is tried again when its claim would have expired.
fn retry(table: &DeTable<'_>) -> Result<(), String> {
    if table.contains_key("backoff") {
        return Err("cannot be combined with backoff".to_owned());
    }
    let value = table.get("retry").and_then(|value| value.get_ref().as_str());
    let is_known = value == Some("claim-ttl");
    let expected = "expected \"claim-ttl\"; use backoff for any other rule";
    is_known.then_some(()).ok_or_else(|| expected.to_owned())
}

/// Parses a rate in items per second, and returns it in thousandths of an item per second. Fails above [`RATE_MAX`].
pub(super) fn rate(value: &DeValue<'_>) -> Result<u32, String> {
    thousandths(value).filter(|milli| *milli <= RATE_MAX).ok_or_else(|| RATE.to_owned())
}

/// Parses a rate in items per second, given as a flag, in the same way as [`rate`].
pub(crate) fn rate_of(text: &str) -> Result<u32, String> {
    decimal(text).filter(|milli| *milli <= RATE_MAX).ok_or_else(|| RATE.to_owned())
}

/// Parses a number of at least 0 with at most three decimals, and returns it in thousandths. Returns `None` for anything else.
fn thousandths(value: &DeValue<'_>) -> Option<u32> {
    let whole = value.as_integer().filter(|number| number.radix() == 10);
    let text = match whole {
        Some(whole) => whole.as_str(),
        None => value.as_float()?.as_str(),
    };
    decimal(text)
}

fn decimal(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals = format!("{decimals:0<3}");
    if decimals.len() > 3 {
        return None;
    }
    let whole = whole.parse::<u32>().ok()?.checked_mul(1000)?;
    whole.checked_add(decimals.parse().ok()?)
}

/// Stores the rules of each table in `rules`.
pub(crate) fn settle(tables: &[Table], rules: &mut Rules) {
    for Table { kind, rules: of } in tables {
        if kind == Rules::DEFAULT {
            rules.default = of.clone();
        } else {
            rules.types.insert(kind.clone(), of.clone());
        }
    }
}

/// Formats the rules of each type, `default` first, as JSON.
pub(crate) fn document(rules: &Rules) -> Value {
    let each = rules.entries();
    Value::Object(each.map(|(kind, of)| (kind.to_owned(), json!(of))).collect())
}

/// Formats the rules of each type as a table.
pub(crate) fn table(rules: &Rules) -> String {
    let row = |(kind, of)| {
        let mut row = Map::from_iter([("type".to_owned(), json!(kind))]);
        if let Value::Object(of) = json!(of) {
            row.extend(of);
        }
        row
    };
    let rows: Vec<_> = rules.entries().map(row).collect();
    types_table(&rows)
}

/// Formats the rules of several types as a table: one row for each type, and one column for each key of the first type.
pub(crate) fn types_table(types: &[Map<String, Value>]) -> String {
    let keys: Vec<&String> = types.first().into_iter().flat_map(Map::keys).collect();
    let heads = keys.iter().map(|key| {
        let head = key.strip_suffix(MS).unwrap_or(key);
        (head.replace('_', " ").to_uppercase(), Column::Words)
    });
    let heads: Vec<_> = heads.collect();
    let rows = types.iter().map(|of| {
        let cells = keys.iter().map(|key| cell(key, of.get(*key)));
        cells.collect()
    });
    table::columns(&heads, rows)
}

/// Formats the value of a setting. A missing value, null, an empty list and a 0 that means no limit are shown as `-`.
fn cell(key: &str, value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Bool(is)) => if *is { "yes" } else { "no" }.to_owned(),
        Some(Value::String(words)) => text::plain(words),
        Some(Value::Object(backoff)) => backoff_words(backoff),
        Some(Value::Array(names)) if names.is_empty() => "-".to_owned(),
        Some(value) if NONE_IF_ZERO.contains(&key) && value.as_f64() == Some(0.0) => "-".to_owned(),
        Some(value) if key == "throttle" => format!("{value}/s"),
        Some(value) => match value.as_u64() {
            Some(ms) if key.ends_with(MS) => span_words(ms),
            Some(_) | None => value.to_string(),
        },
    }
}

/// Formats a span as the file accepts it, in the largest unit that divides it.
pub(super) fn span_words(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let unit = units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{ms}ms"), |(unit, name)| format!("{}{name}", ms / unit))
}

/// Formats the delays between tries, as in `1s x2 to 1h, +-0.1`.
fn backoff_words(backoff: &Map<String, Value>) -> String {
    let of = |key: &str| backoff.get(key).unwrap_or(&Value::Null);
    let [first, max] =
        ["first_ms", "max_ms"].map(|key| of(key).as_u64().map_or(String::new(), span_words));
    let jitter = match of("jitter").as_f64() {
        Some(jitter) if jitter > 0.0 => format!(", +-{jitter}"),
        Some(_) | None => String::new(),
    };
    format!("{first} x{} to {max}{jitter}", of("factor"))
}
