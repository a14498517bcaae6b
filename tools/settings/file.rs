//! Reads the configuration file: TOML with the names of the flags as keys, and with tables for queues, services and so on. The line of each
//! key is recorded.
//!
//! A file with errors still yields what could be read, so that all problems are reported at once. The values of flags are not checked here
//! but in `layer.rs`; each table is read by the module named after it, such as `queue.rs`.

use crate::report::Failure;
use crate::settings::layer::{self, Entry, Problem, Source, Values, nearest};
use crate::settings::tenant::{self, Tenants};
use crate::settings::{queue, service, task, worker};
use sexton::actors::process::Definition;
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// The maximum size of a configuration file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The parts of a file that could be read, and the problems found.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) entries: Vec<Entry>,
    pub(crate) queues: Vec<queue::Table>,
    pub(crate) tenants: Tenants,
    pub(crate) tasks: task::Table,
    pub(crate) services: Vec<Definition>,
    pub(crate) problems: Vec<Problem>,
}

/// Reads a file. Fails if it cannot be read or is too large; problems with its text are in [`Content::problems`].
pub(crate) fn read(path: &Path) -> Result<Content, Failure> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        let words = format!("failed to read the configuration {shown}: {error}");
        let failure = Failure::unreachable(words);
        if error.kind() == std::io::ErrorKind::NotFound {
            return failure.help(
                "--config FILE or SEXTON_CONFIG names the file; without either, the defaults apply",
            );
        }
        failure
    };
    // After SIGHUP, the file is read on the main thread, which must not block on a pipe.
    let (bytes, _) = sexton::protocols::file::read(path, BYTES_MAX + 1).map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MAX {
        let words = format!("it has more than {BYTES_MAX} bytes");
        return Err(unreadable(std::io::Error::other(words)));
    }
    Ok(parse(path, &bytes))
}

/// Returns the problems of a text that will be written to the file `path`. The values of flags in it are not checked.
pub(crate) fn problems_of(path: &Path, text: &str) -> Vec<String> {
    let problems = parse(path, text.as_bytes()).problems;
    problems.iter().map(ToString::to_string).collect()
}

fn parse(path: &Path, bytes: &[u8]) -> Content {
    let path: Arc<Path> = path.into();
    let source = |line| Source::File(Arc::clone(&path), line);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return no_text(source(line(bytes, error.valid_up_to()))),
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    let is_whole = errors.is_empty();
    let file = (&*path, is_whole);
    let mut problems = no_toml(text, errors, source);
    // The line of the first table header that cannot be parsed: the keys below it are read as if they were in another table.
    let broken = problems.iter().map(|(line, _)| *line);
    let broken = broken.filter(|line| is_name_of_table(text, *line));
    let lost = broken.min().unwrap_or(usize::MAX);
    let (mut entries, mut queues) = (Vec::new(), Vec::new());
    let (mut services, mut workers) = (Vec::new(), Vec::new());
    let (mut tenants, mut tasks) = (Tenants::new(), task::Table::default());
    for (key, value) in table.get_ref() {
        let line = line(bytes, key.span().start);
        if problems.iter().any(|(told, _)| *told == line) {
            continue;
        }
        let key: &str = key.get_ref();
        let of = |at| source(self::line(bytes, at));
        let toml = value.get_ref();
        let wrong = match key {
            "queues" => Some(kept(&mut queues, queue::tables(toml, of))),
            "tenants" => Some(kept(&mut tenants, tenant::tables(toml, of))),
            "tasks" => Some(kept(&mut tasks, task::table(toml, of))),
            "services" => Some(kept(&mut services, service::tables(toml, file, of))),
            "workers" => Some(kept(&mut workers, worker::tables(toml, &path, of))),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let wrong = wrong.into_iter().map(|wrong| (wrong.source.line(), wrong));
            problems.extend(wrong.filter(|(line, _)| *line <= lost));
            continue;
        }
        if line > lost {
            continue;
        }
        match setting(key, toml) {
            Ok(values) => {
                let mut entry = Entry::new(source(line), key, values);
                entry.has_number = has_number(toml);
                entries.push((line, entry));
            }
            Err(words) => problems.push((line, Problem::new(source(line), key, words))),
        }
    }
    // Names of other tables are checked only if the whole file could be parsed: a missing table may be one that could not.
    if is_whole {
        let of = |at| source(line(bytes, at));
        let wrong = worker::problems(&services, &workers, of);
        problems.extend(wrong.into_iter().map(|wrong| (wrong.source.line(), wrong)));
    }
    services.extend(workers.into_iter().map(|(_, worker)| worker));
    // The problems of services have been reported by now, and `Config::problems` would report them again.
    if !problems.is_empty() {
        services.clear();
    }
    // The parser sorts by key; report in the order of lines.
    entries.sort_by_key(|(line, _)| *line);
    problems.sort_by_key(|(line, _)| *line);
    let entries = entries.into_iter().map(|(_, entry)| entry).collect();
    Content {
        entries,
        queues,
        tenants,
        tasks,
        services,
        problems: problems.into_iter().map(|(_, told)| told).collect(),
    }
}

/// The tables that a file may have.
const TABLES: [&str; 5] = ["queues", "services", "tasks", "tenants", "workers"];

/// Returns the message for an unknown table. It suggests a known table with a similar name, if there is one.
fn unknown_table(key: &str) -> String {
    let nearest = nearest(key, TABLES.into_iter());
    match (nearest, key) {
        (Some(table), _) => format!("unknown table; did you mean {table}?"),
        (None, "lease" | "leases") => "unknown table; `sexton lease set` defines leases".to_owned(),
        (None, _) => format!("unknown table; expected one of {}", TABLES.join(", ")),
    }
}

/// Sets `tables` to what could be read, and returns the problems.
fn kept<T>(tables: &mut T, (read, wrong): (T, Vec<Problem>)) -> Vec<Problem> {
    *tables = read;
    wrong
}

/// Returns the problems of a text that is not valid TOML, each with its line: the first of each line.
fn no_toml(
    text: &str,
    errors: Vec<toml::de::Error>,
    source: impl Fn(usize) -> Source,
) -> Vec<(usize, Problem)> {
    let mut problems: Vec<(usize, Problem)> = Vec::new();
    for error in errors {
        let line = line(text.as_bytes(), error.span().map_or(0, |span| span.start));
        // Further errors on a line usually follow from the first.
        if problems.iter().all(|(told, _)| *told != line) {
            let words = error.message().split('\n').collect::<Vec<_>>().join(", ");
            problems.push((line, Problem::new(source(line), "", words)));
        }
    }
    problems
}

/// Returns the content of a file that is not UTF-8: one problem, at `source`.
fn no_text(source: Source) -> Content {
    let words = "this line is not valid UTF-8";
    Content { problems: vec![Problem::new(source, "", words)], ..Content::default() }
}

/// Reads the value of a key that is not one of [`TABLES`]. The error is a message.
fn setting(key: &str, value: &DeValue<'_>) -> Result<Values, String> {
    if value.is_table() && !layer::is_setting(key) {
        return Err(unknown_table(key));
    }
    values(value)
}

fn values(value: &DeValue<'_>) -> Result<Values, String> {
    if let DeValue::Array(array) = value {
        let each = array.iter().map(|value| one(value.get_ref()));
        return Ok(Values::Several(each.collect::<Result<_, _>>()?));
    }
    match value.as_bool() {
        Some(is) => Ok(Values::Switch(is)),
        None => one(value).map(Values::One),
    }
}

/// Returns whether a value is a whole number, or a list that contains one.
fn has_number(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Integer(_) => true,
        DeValue::Array(array) => array.iter().any(|value| has_number(value.get_ref())),
        DeValue::String(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Table(_) => false,
    }
}

fn one(value: &DeValue<'_>) -> Result<std::ffi::OsString, String> {
    match value {
        DeValue::String(text) => Ok(text.as_ref().into()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().into()),
        DeValue::Table(_) => {
            Err("expected a value, found a table: the keys are the names of the flags, as in `lock-entries = 1000`".to_owned())
        }
        DeValue::Integer(_) => Err("expected a number in decimal digits".to_owned()),
        DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_) => Err(format!(
            "expected a string or a whole number, found {}",
            value.type_str()
        )),
    }
}

/// Returns whether a line is, or was meant to be, the header of a table, such as `[services.web]`.
fn is_name_of_table(text: &str, line: usize) -> bool {
    let text = text.lines().nth(line.saturating_sub(1));
    text.is_some_and(|text| text.trim_start().starts_with('['))
}

/// Returns the line of a byte offset, counted from one.
fn line(bytes: &[u8], at: usize) -> usize {
    let before = bytes.get(..at).unwrap_or(bytes);
    before.split(|byte| *byte == b'\n').count()
}
