//! The `[services.NAME]` tables of the configuration file, each of which defines a service: a program that sexton supervises.
//!
//! Relative paths are resolved against the directory of the file. This module only reads the definitions; `src/actors/process/service/`
//! runs the services.

use crate::process::signal;
use crate::settings::layer::{Problem, Source, unknown_key};
use crate::settings::value::{number, switch};
use crate::size::bytes as bytes_of;
use crate::span::milliseconds;
use crate::table::{self, Column};
use crate::text;
use serde_json::{Value, json};
use sexton::actors::process::{Definition, Fault, Policy, Ready, Spec, is_secret_name, masked};
use sexton::bytes::Bytes;
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The keys of a `[services.NAME]` table, as listed in error messages.
const KEYS: &str = "command, dir, env, env_file, secrets, user, group, limits, autostart, restart, backoff, intensity, period, after, ready, ready_timeout, watchdog, output, stop_signal, grace, success, instances";

/// The name of each Linux resource limit, and the number of its `RLIMIT_` constant.
const LIMITS: [(&str, u32); 16] = [
    ("cpu", 0),
    ("fsize", 1),
    ("data", 2),
    ("stack", 3),
    ("core", 4),
    ("rss", 5),
    ("nproc", 6),
    ("nofile", 7),
    ("memlock", 8),
    ("as", 9),
    ("locks", 10),
    ("sigpending", 11),
    ("msgqueue", 12),
    ("nice", 13),
    ("rtprio", 14),
    ("rttime", 15),
];

/// The keys of the `output` table.
const OUTPUT_KEYS: &str = "max, keep";

/// The keys of the `backoff` table.
const BACKOFF_KEYS: &str = "first, max";

/// Reads the tables of a file, and returns a definition for each of them, and the problems found. In a definition, values that could not
/// be read have their defaults. `source` converts a byte offset in the file to the [`Source`] of a problem. If `is_whole` is false, parts
/// of the file could not be parsed, so faults that missing tables would explain are not reported.
pub(crate) fn tables(
    value: &DeValue<'_>,
    (file, is_whole): (&Path, bool),
    source: impl Fn(usize) -> Source,
) -> (Vec<Definition>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut tell = |name: &str, place: usize, words: String| {
        let key = format!("services.{name}");
        problems.push(Problem::new(source(place), &key, words));
    };
    let DeValue::Table(all) = value else {
        let words = "expected tables such as [services.web]";
        return (Vec::new(), vec![Problem::new(source(0), "services", words)]);
    };
    let base = &base(file);
    let mut definitions = Vec::new();
    let mut places = Vec::new();
    for (name, value) in all {
        let (at, name) = (name.span().start, name.get_ref().as_ref());
        let mut definition = plain(name, base);
        let is_right = if let DeValue::Table(table) = value.get_ref() {
            let wrong = read(table, base, &mut definition);
            let is_right = wrong.is_empty();
            for (place, words) in wrong {
                tell(name, place, words);
            }
            is_right
        } else {
            tell(name, at, format!("expected a table with {KEYS}"));
            false
        };
        definitions.push(definition);
        places.push((name, at, is_right));
    }
    for (place, fault) in Definition::check_all(&definitions) {
        let (name, at, is_right) = places.get(place).copied().unwrap_or(("", 0, true));
        // Leave out faults that may only follow from a problem reported before: an unknown service or a cycle from text that could not be
        // parsed, any other fault from values of this table that could not be read.
        let is_new =
            if matches!(fault, Fault::Unknown(_) | Fault::Cycle(_)) { is_whole } else { is_right };
        if is_new {
            tell(name, at, fault.to_string());
        }
    }
    (definitions, problems)
}

/// Returns the directory of `file` as an absolute path. Relative paths in the file are resolved against it.
pub(super) fn base(file: &Path) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    file.parent().unwrap_or(Path::new("/")).to_owned()
}

/// Returns a service with default values, whose command runs in `base`.
pub(super) fn plain(name: &str, base: &Path) -> Definition {
    Definition {
        name: name.to_owned(),
        spec: Spec { dir: bytes(base), ..Definition::default().spec },
        ..Definition::default()
    }
}

/// Reads one table into `to`, and returns the problems found, each with its byte offset in the file.
fn read(table: &DeTable<'_>, base: &Path, to: &mut Definition) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    for (key, value) in table {
        let read = one(key.get_ref().as_ref(), value.get_ref(), base, to);
        if let Err(words) = read {
            wrong.push((key.span().start, format!("{}: {words}", key.get_ref())));
        }
    }
    wrong
}

/// Stores the value of one key in `to`. The error is a message, to which the caller adds the key.
pub(super) fn one(
    key: &str,
    value: &DeValue<'_>,
    base: &Path,
    to: &mut Definition,
) -> Result<(), String> {
    let spec = &mut to.spec;
    match key {
        "command" => {
            let advice = "write it as a list of words, such as [\"sh\", \"-c\", \"exec ./run.sh\"]";
            let words = words(value).map_err(|words| format!("{words}; {advice}"))?;
            spec.argv = words.into_iter().map(|it| Bytes::new(it.into_bytes())).collect();
        }
        "dir" => spec.dir = bytes(&base.join(word(value)?)),
        "env_file" => spec.env_file = Some(bytes(&base.join(word(value)?))),
        "env" => spec.env = variables(value)?,
        "secrets" => spec.secrets = words(value)?,
        "autostart" => to.autostart = switch(value)?,
        "restart" => to.restart = policy(word(value)?)?,
        "backoff" => backoff(value, to)?,
        "intensity" => intensity(value, to)?,
        "period" => {
            let period_ms = span(value)?;
            if let Some(it) = &mut to.intensity {
                it.period_ms = period_ms;
            }
        }
        "after" => to.after = words(value)?,
        "stop_signal" => {
            spec.stop_signal = match number::<u8>(value) {
                Ok(number) => number,
                Err(_) => signal(word(value)?)?,
            }
        }
        "grace" => {
            let grace = u32::try_from(span(value)?).ok();
            let within = grace.filter(|ms| *ms <= Spec::GRACE_MS_MAX);
            spec.grace_ms = within.ok_or("expected at most an hour")?;
        }
        "success" => {
            let codes = value.as_array().map(|codes| {
                let codes = codes.iter().map(|code| number(code.get_ref()));
                codes.collect::<Result<Vec<u8>, _>>()
            });
            to.success = codes.ok_or("expected a list of exit codes")??;
        }
        "instances" => {
            let most = Definition::INSTANCES_MAX;
            let within = number(value).ok().filter(|it| (1..=most).contains(it));
            to.instances = within.ok_or_else(|| format!("expected 1 to {most}"))?;
        }
        "user" => spec.user = Some(account(value)?),
        "group" => spec.group = Some(account(value)?),
        "limits" => spec.limits = limits(value)?,
        "ready" => spec.ready = ready(word(value)?)?,
        "ready_timeout" => spec.ready_timeout_ms = milliseconds_of(value)?,
        "output" => output(value, spec)?,
        "watchdog" => spec.watchdog_ms = milliseconds_of(value)?,
        _ => return Err(unknown_key(key, KEYS)),
    }
    Ok(())
}

fn bytes(path: &Path) -> Bytes {
    Bytes::new(path.as_os_str().as_bytes())
}

pub(super) fn word<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    let found = || format!("expected a string, found {}", value.type_str());
    value.as_str().ok_or_else(found)
}

pub(super) fn words(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let list = value.as_array().and_then(|list| {
        let words = list.iter().map(|it| it.get_ref().as_str());
        words.map(|it| it.map(str::to_owned)).collect()
    });
    list.ok_or_else(|| format!("expected a list of strings, found {}", value.type_str()))
}

/// Parses an integer, in seconds, or a string such as `"90s"`, and returns the span in milliseconds. The error is a message.
pub(super) fn span(value: &DeValue<'_>) -> Result<u64, String> {
    let expected =
        || "expected a number of seconds, or a span such as \"500ms\", \"90s\", \"2h\"".to_owned();
    if value.is_integer() {
        let seconds = number::<u64>(value).ok();
        return seconds.and_then(|it| it.checked_mul(1000)).ok_or_else(expected);
    }
    let text = value.as_str().ok_or_else(expected)?;
    milliseconds(text).map_err(|_| expected())
}

/// Parses a span, and returns it in milliseconds. Fails if that does not fit into 32 bits (about 49.7 days).
fn milliseconds_of(value: &DeValue<'_>) -> Result<u32, String> {
    u32::try_from(span(value)?).map_err(|_| "expected at most 49 days".to_owned())
}

/// Parses a user or group: a name, or a number, which is returned as text.
fn account(value: &DeValue<'_>) -> Result<String, String> {
    match number::<u32>(value) {
        Ok(number) => Ok(number.to_string()),
        Err(_) => word(value).map(str::to_owned),
    }
}

fn ready(word: &str) -> Result<Ready, String> {
    match (word, word.strip_prefix("line:")) {
        (_, Some(text)) => Ok(Ready::Line(text.to_owned())),
        ("running", None) => Ok(Ready::Running),
        ("notify", None) => Ok(Ready::Notify),
        _ => Err(format!("{word:?}: expected running, notify or line:TEXT")),
    }
}

/// Parses a table of resource limits, whose keys are the names that prlimit(1) uses. Each value is a single limit, soft and hard, or a
/// list of the soft and the hard limit. Returns the number of each resource with its soft and its hard limit.
fn limits(value: &DeValue<'_>) -> Result<Vec<(u32, u64, u64)>, String> {
    let names = || LIMITS.map(|(name, _)| name).join(", ");
    let DeValue::Table(table) = value else {
        return Err(format!("expected a table with {}", names()));
    };
    let mut limits = Vec::new();
    for (name, value) in table {
        let name = name.get_ref().as_ref();
        let found = LIMITS.iter().find(|(known, _)| *known == name);
        let (_, which) =
            found.ok_or_else(|| format!("unknown limit {name}; expected one of {}", names()))?;
        let bound = |value: &DeValue<'_>| match value.as_str() {
            Some("unlimited") => Ok(u64::MAX),
            _ => number(value),
        };
        let two = value.get_ref().as_array().map(|two| {
            let two: Result<Vec<u64>, String> = two.iter().map(|it| bound(it.get_ref())).collect();
            two.and_then(|two| match two.as_slice() {
                [soft, hard] => Ok((*soft, *hard)),
                _ => Err(String::new()),
            })
        });
        let both = two.unwrap_or_else(|| bound(value.get_ref()).map(|it| (it, it)));
        let expected = || {
            format!(
                "{name}: expected a number or \"unlimited\", or a list of two of these, the soft and the hard limit"
            )
        };
        let (soft, hard) = both.map_err(|_| expected())?;
        limits.push((*which, soft, hard));
    }
    Ok(limits)
}

fn policy(word: &str) -> Result<Policy, String> {
    let all = [Policy::Always, Policy::OnFailure, Policy::Never];
    let found = all.into_iter().find(|policy| policy.name() == word);
    found.ok_or_else(|| format!("{word:?}: expected always, on-failure or never"))
}

/// Parses `intensity`, the maximum number of restarts within `period`. A service that needs more has failed; `false` means no limit.
fn intensity(value: &DeValue<'_>, to: &mut Definition) -> Result<(), String> {
    if value.as_bool() == Some(false) {
        to.intensity = None;
        return Ok(());
    }
    let expected = "expected a number of restarts, or false to never give up";
    let restarts_max = number(value).map_err(|_| expected)?;
    if let Some(it) = &mut to.intensity {
        it.restarts_max = restarts_max;
    }
    Ok(())
}

fn output(value: &DeValue<'_>, to: &mut Spec) -> Result<(), String> {
    let DeValue::Table(table) = value else {
        return Err(format!("expected a table with {OUTPUT_KEYS}"));
    };
    for (key, value) in table {
        let value = value.get_ref();
        match key.get_ref().as_ref() {
            "max" => {
                to.output_bytes_max = match number(value) {
                    Ok(bytes) => bytes,
                    Err(_) => bytes_of(word(value)?).map_err(|words| format!("max: {words}"))?,
                }
            }
            "keep" => to.output_kept = number(value).map_err(|words| format!("keep: {words}"))?,
            other => return Err(format!("{other}: {}", unknown_key(other, OUTPUT_KEYS))),
        }
    }
    Ok(())
}

fn backoff(value: &DeValue<'_>, to: &mut Definition) -> Result<(), String> {
    let DeValue::Table(table) = value else {
        return Err(format!("expected a table with {BACKOFF_KEYS}"));
    };
    for (key, value) in table {
        let ms = span(value.get_ref()).map_err(|words| format!("{}: {words}", key.get_ref()));
        match key.get_ref().as_ref() {
            "first" => to.backoff.first_ms = ms?,
            "max" => to.backoff.max_ms = ms?,
            other => return Err(format!("{other}: {}", unknown_key(other, BACKOFF_KEYS))),
        }
    }
    Ok(())
}

/// Parses environment variables. Refuses names that look like those of secrets: values given here are stored, while those of `secrets`
/// are looked up at each launch.
fn variables(value: &DeValue<'_>) -> Result<Vec<(String, Bytes)>, String> {
    let DeValue::Table(table) = value else {
        return Err("expected a table of names and values".to_owned());
    };
    let mut variables = Vec::new();
    for (name, value) in table {
        let name = name.get_ref().as_ref();
        if is_secret_name(name) {
            return Err(format!(
                "{name} looks like the name of a secret: put its value into env_file, and its name into secrets"
            ));
        }
        let value = word(value.get_ref()).map_err(|words| format!("{name}: {words}"))?;
        variables.push((name.to_owned(), Bytes::new(value.as_bytes())));
    }
    Ok(variables)
}

fn command(definition: &Definition) -> Vec<String> {
    let argv = masked(&definition.spec.argv);
    let words = argv.iter().map(|it| String::from_utf8_lossy(it.as_bytes()));
    words.map(Cow::into_owned).collect()
}

/// Formats the services as JSON.
pub(crate) fn document(definitions: &[Definition]) -> Value {
    let each = definitions.iter().map(|it| {
        let shown = json!({
            "command": command(it),
            "dir": String::from_utf8_lossy(it.spec.dir.as_bytes()),
            "autostart": it.autostart,
            "restart": it.restart.name(),
            "backoff": {"first_ms": it.backoff.first_ms, "max_ms": it.backoff.max_ms},
            "intensity": it.intensity.map(|it| it.restarts_max),
            "period_ms": it.intensity.map(|it| it.period_ms),
            "after": it.after,
            "stop_signal": it.spec.first_signal(),
            "grace_ms": it.spec.grace_ms,
            "success": it.success,
            "instances": it.instances,
            "ready": match &it.spec.ready {
                Ready::Running => "running".to_owned(),
                Ready::Notify => "notify".to_owned(),
                Ready::Line(text) => format!("line:{text}"),
            },
            "ready_timeout_ms": it.spec.ready_timeout_ms,
            "watchdog_ms": it.spec.watchdog_ms,
            "output": {"bytes_max": it.spec.output_bytes_max, "kept": it.spec.output_kept},
            "user": it.spec.user,
            "group": it.spec.group,
        });
        (it.name.clone(), shown)
    });
    Value::Object(each.collect())
}

/// Formats the services as a table.
pub(crate) fn table(definitions: &[Definition]) -> String {
    let heads = [
        ("SERVICE", Column::Words),
        ("COMMAND", Column::Words),
        ("AUTOSTART", Column::Words),
        ("RESTART", Column::Words),
        ("AFTER", Column::Words),
        ("INSTANCES", Column::Number),
    ];
    let rows = definitions.iter().map(|it| {
        let after = if it.after.is_empty() { "-".to_owned() } else { it.after.join(", ") };
        [
            it.name.clone(),
            text::plain(&command(it).join(" ")),
            if it.autostart { "yes" } else { "no" }.to_owned(),
            it.restart.name().to_owned(),
            after,
            it.instances.to_string(),
        ]
    });
    table::table(heads, rows)
}
