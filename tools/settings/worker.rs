//! The `[workers.NAME]` tables of the configuration file, each of which defines a worker: a command that is run for jobs of certain
//! types. Each worker becomes a service whose command is `sexton work`, so the rules of services apply to it.

use crate::settings::layer::{Problem, Source, unknown_key};
use crate::settings::queue::rate;
use crate::settings::service;
use crate::settings::value::{number, switch};
use crate::size::bytes;
use crate::worker::{name_of, service_of};
use sexton::actors::process::{Definition, Ready, Spec};
use sexton::actors::queue::{Message, QueueName};
use sexton::bytes::Bytes;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// The keys of a `[workers.NAME]` table that a service does not have, or that have another meaning for a service.
const KEYS: &str = "types, command, tenant, any_ready, procs, throttle, lines, timeout, memory, output_max, keep_result";

/// The keys that have the same meaning as for a service.
const SHARED: [&str; 9] =
    ["dir", "env", "env_file", "secrets", "user", "group", "autostart", "after", "grace"];

/// The default time that jobs get to end when their worker is stopped, in milliseconds.
const GRACE_MS: u32 = 60_000;

/// The time that a worker gets to give back its jobs after it has killed their commands, in milliseconds.
const LAST_WORDS_MS: u32 = 10_000;

/// SIGURG, at which `sexton work` stops claiming jobs. The commands that it runs get the signal too, but ignore it by default.
const STOP_SIGNAL: u8 = 23;

/// The maximum number of commands that a worker runs at a time.
const PROCS_MAX: u16 = 1000;

/// The values of the keys in [`KEYS`].
#[derive(Default)]
struct Worker {
    types: Vec<String>,
    command: Vec<String>,
    is_any_ready: bool,
    /// Flags for `sexton work`.
    flags: Vec<String>,
}

/// Reads the tables of a file. Returns a service for each table, with the byte offset of the table, and all problems found. A table with
/// a problem becomes a service without a command. `source` converts a byte offset in the file to the [`Source`] of a problem.
pub(crate) fn tables(
    value: &DeValue<'_>,
    file: &Path,
    source: impl Fn(usize) -> Source,
) -> (Vec<(usize, Definition)>, Vec<Problem>) {
    let DeValue::Table(all) = value else {
        let words = "expected tables such as [workers.mails]";
        return (Vec::new(), vec![Problem::new(source(0), "workers", words)]);
    };
    let (mut definitions, mut problems) = (Vec::new(), Vec::new());
    for (name, value) in all {
        let (at, name) = (name.span().start, name.get_ref().as_ref());
        let found = if let DeValue::Table(table) = value.get_ref() {
            read(name, table, file)
        } else {
            let words = format!("expected a table with {KEYS}, {}", SHARED.join(", "));
            Err(vec![(at, words)])
        };
        match found {
            Ok(definition) => definitions.push((at, definition)),
            Err(wrong) => {
                let unread = service::plain(&service_of(name), &service::base(file));
                definitions.push((at, unread));
                let key = format!("workers.{name}");
                let told = wrong.into_iter();
                problems.extend(told.map(|(at, words)| Problem::new(source(at), &key, words)));
            }
        }
    }
    (definitions, problems)
}

/// Checks the workers as services, together with `services`. Returns their problems, such as a dependency on a service that no table
/// defines, each with the place of the worker's table. Skips workers whose tables had problems, which [`tables`] has returned.
pub(crate) fn problems(
    services: &[Definition],
    workers: &[(usize, Definition)],
    source: impl Fn(usize) -> Source,
) -> Vec<Problem> {
    let of_workers = workers.iter().map(|(_, definition)| definition);
    let all: Vec<Definition> = services.iter().chain(of_workers).cloned().collect();
    let found = Definition::check_all(&all).into_iter();
    let told = found.filter_map(|(place, fault)| {
        let (at, definition) = workers.get(place.checked_sub(services.len())?)?;
        if definition.spec.argv.is_empty() {
            return None;
        }
        let key = format!("workers.{}", name_of(&definition.name)?);
        Some(Problem::new(source(*at), &key, fault.to_string()))
    });
    told.collect()
}

/// Converts one table to a service. The error is the list of problems found, each with its byte offset in the file.
fn read(name: &str, table: &DeTable<'_>, file: &Path) -> Result<Definition, Vec<(usize, String)>> {
    let base = service::base(file);
    let mut definition = service::plain(&service_of(name), &base);
    definition.spec.grace_ms = GRACE_MS;
    definition.spec.stop_signal = STOP_SIGNAL;
    definition.spec.ready = Ready::Notify;
    definition.intensity = None;
    let (mut worker, mut wrong) = (Worker::default(), Vec::new());
    for (key, value) in table {
        let (place, key, value) = (key.span().start, key.get_ref().as_ref(), value.get_ref());
        let read = if SHARED.contains(&key) {
            service::one(key, value, &base, &mut definition)
        } else {
            worker.read(key, value)
        };
        if let Err(words) = read {
            wrong.push((place, format!("{key}: {words}")));
        }
    }
    let place = table.iter().next().map_or(0, |(key, _)| key.span().start);
    for (is_missing, key) in
        [(worker.types.is_empty(), "types"), (worker.command.is_empty(), "command")]
    {
        if is_missing && wrong.is_empty() {
            wrong.push((place, format!("{key}: is missing")));
        }
    }
    if worker.is_any_ready && table.contains_key("tenant") {
        wrong.push((place, "any_ready: cannot be combined with tenant".to_owned()));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    // At the end of its grace period, `sexton work` kills the commands that are still running, and then needs time to report them as killed.
    // Its own process is therefore given a slightly longer grace period.
    let grace = definition.spec.grace_ms;
    worker.flag("--finish-within", &format!("{grace}ms"));
    definition.spec.grace_ms = grace.saturating_add(LAST_WORDS_MS).min(Spec::GRACE_MS_MAX);
    definition.spec.argv = worker.argv();
    Ok(definition)
}

impl Worker {
    fn read(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        match key {
            "types" => {
                self.types = service::words(value)?;
                let is_none = |kind: &&String| QueueName::new(kind.as_bytes()).is_none();
                match self.types.iter().find(is_none) {
                    Some(kind) => {
                        return Err(format!("{kind:?} is not a valid name for a job type"));
                    }
                    None if self.types.is_empty() => {
                        return Err("expected at least one job type".to_owned());
                    }
                    None => {}
                }
            }
            "command" => self.command = service::words(value)?,
            "tenant" => self.flag("--tenant", service::word(value)?),
            "any_ready" => {
                self.is_any_ready = switch(value)?;
                if self.is_any_ready {
                    self.flags.push("--any-ready".to_owned());
                }
            }
            "throttle" => match rate(value)? {
                0 => {}
                milli => {
                    let rate = format!("{}.{:03}", milli / 1000, milli % 1000);
                    self.flag("--throttle", &rate);
                }
            },
            "procs" => match number::<u16>(value)? {
                count @ 1..=PROCS_MAX => self.flag("--procs", &count.to_string()),
                _ => return Err(format!("expected 1 to {PROCS_MAX}")),
            },
            "lines" => {
                if switch(value)? {
                    self.flags.push("--lines".to_owned());
                }
            }
            "timeout" => self.flag("--timeout", &format!("{}ms", service::span(value)?)),
            "memory" => self.flag("--memory", &size(value)?.to_string()),
            "keep_result" => match service::span(value)? {
                ms @ 1..=Message::RESULT_MS_MAX => self.flag("--keep-result", &format!("{ms}ms")),
                _ => return Err("expected 1 ms to 30 days".to_owned()),
            },
            "output_max" => self.flag("--output-max", &size(value)?.to_string()),
            _ => {
                let keys = format!("{KEYS}, {}", SHARED.join(", "));
                return Err(unknown_key(key, &keys));
            }
        }
        Ok(())
    }

    fn flag(&mut self, flag: &str, value: &str) {
        self.flags.push(format!("{flag}={value}"));
    }

    /// Returns the command of the service: `sexton work` with the types, the flags and the command of this worker.
    fn argv(self) -> Vec<Bytes> {
        let own = std::env::current_exe().unwrap_or_else(|_| "sexton".into());
        let own = Bytes::new(own.as_os_str().as_bytes());
        let fixed = ["--wait", "--log=logfmt"].map(str::to_owned);
        let words = std::iter::once("work".to_owned())
            .chain(self.types)
            .chain(fixed)
            .chain(self.flags)
            .chain(std::iter::once("--".to_owned()))
            .chain(self.command);
        let words = words.map(|word| Bytes::new(word.into_bytes()));
        std::iter::once(own).chain(words).collect()
    }
}

/// Parses a number, in bytes, or a string such as `"64MiB"`, and returns the size in bytes. The error is a message.
fn size(value: &DeValue<'_>) -> Result<u64, String> {
    match number(value) {
        Ok(count) => Ok(count),
        Err(_) => bytes(service::word(value)?),
    }
}
