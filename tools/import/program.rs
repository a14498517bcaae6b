//! Converts a `[program:x]` to a service, or to a service for each of its processes if its settings contain the process number.
//!
//! A program with a `user` never runs as any other user, and the values of secret variables are never written.

use crate::import::document::directory;
use crate::import::expansion::{Names, expand, unfilled};
use crate::import::ini::{Note, Place, Section, Value};
use crate::import::keys;
use crate::import::output::{self, Output, Stream};
use crate::process::signal;
use crate::words;
use sexton::actors::process::{Definition, Spec, has_secret, is_secret_name};
use sexton::bytes::Bytes;
use std::collections::BTreeMap;

/// The keys whose values may differ between the processes of a program.
const OF_PROCESS: [&str; 3] = ["command", "environment", "directory"];

/// The value of `startretries` from which on supervisord is considered never to give up on a program.
const TRIES_FOR_EVER: i64 = 1000;

/// A service to be written.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) place: Place,
    pub(super) name: String,
    /// Comments that are written above its table.
    pub(super) remarks: Vec<String>,
    pub(super) command: Vec<String>,
    pub(super) dir: Option<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) secrets: Vec<String>,
    pub(super) is_disabled: bool,
    pub(super) restart: &'static str,
    pub(super) success: Vec<u8>,
    pub(super) is_never_given_up: bool,
    pub(super) stop_signal: Option<String>,
    pub(super) grace_s: Option<u64>,
    pub(super) user: Option<String>,
    pub(super) output: Output,
    pub(super) instances: i64,
}

/// Settings and names that are the same for all programs of a configuration.
pub(super) struct Surroundings<'a> {
    pub(super) host: &'a str,
    /// The variables available to expansions: the environment of the import, overridden by that of `[supervisord]`.
    pub(super) variables: BTreeMap<String, String>,
    /// The variables that `[supervisord]` sets for every program.
    pub(super) env: Vec<(String, String)>,
    /// The default directory of programs.
    pub(super) dir: Option<String>,
    /// The names and user ID of the importing user; `None` for root, who can become any user.
    pub(super) user: Option<Vec<String>>,
    /// The group of each program, by the program's name.
    pub(super) groups: BTreeMap<String, String>,
}

/// The notes and problems found in a configuration.
#[derive(Default)]
pub(super) struct Findings {
    /// Settings that are not carried over, with the reason.
    pub(super) notes: Vec<Note>,
    /// Settings that supervisord itself would refuse.
    pub(super) problems: Vec<Note>,
}

/// Converts a program to its services, and adds to `findings`. Returns no services if the program's name is invalid, or if it has no
/// processes or too many.
pub(super) fn services(
    section: &Section,
    around: &Surroundings<'_>,
    findings: &mut Findings,
) -> Vec<Service> {
    let name = section.name.split_once(':').map_or("", |(_, name)| name);
    let mut program = Program {
        section,
        name: name.trim(),
        around,
        before: findings.notes.len(),
        own: Vec::new(),
        findings,
    };
    program.services()
}

struct Program<'a> {
    section: &'a Section,
    name: &'a str,
    around: &'a Surroundings<'a>,
    findings: &'a mut Findings,
    /// The number of notes recorded before this program was converted.
    before: usize,
    /// The variables that the program's `environment` sets for the current process.
    own: Vec<(String, String)>,
}

impl<'a> Program<'a> {
    fn services(&mut self) -> Vec<Service> {
        if self.name.is_empty() || self.name.contains([' ', ':', '/']) {
            let words =
                "the name of a program must not be empty or contain spaces, colons or slashes";
            self.findings.problems.push(Note::new(&self.section.place, words));
            return Vec::new();
        }
        let count = self.read("numprocs", 1, integer);
        let first = self.read("numprocs_start", 0, integer);
        let mut all = self.shared();
        all.instances = count;
        if count < 1 {
            self.note("numprocs", "the program has no processes, so it is left out");
            return Vec::new();
        }
        let varies = OF_PROCESS.into_iter().filter_map(|key| self.section.get(key));
        let varies = varies.into_iter().any(|it| it.text.contains("%(process_num)"));
        if count > 1 {
            self.check_process_name();
        }
        if count > 1 && varies {
            return self.each(&all, first, count);
        }
        let most = i64::from(Definition::INSTANCES_MAX);
        if count > most {
            self.note(
                "numprocs",
                &format!("a service has at most {most} processes, so {most} is used"),
            );
            all.instances = most;
        }
        if let Some(value) = self.section.get("process_name")
            && value.text != "%(program_name)s"
        {
            self.note(
                "process_name",
                "a service has one name; its processes are distinguished by number",
            );
        }
        self.process(&mut all, first, count);
        vec![all]
    }

    /// Returns a service for each process; none, and reports a problem, if there would be too many.
    fn each(&mut self, all: &Service, first: i64, count: i64) -> Vec<Service> {
        let most = i64::try_from(Definition::SERVICES_MAX).unwrap_or(i64::MAX);
        if count > most {
            let words = format!(
                "the process number occurs in the program's settings, so {count} services would be needed; at most {most} can be defined"
            );
            self.problem("numprocs", &words);
            return Vec::new();
        }
        let numbers = first..first.saturating_add(count);
        let each = numbers.map(|number| {
            let mut one = all.clone();
            one.instances = 1;
            self.process(&mut one, number, count);
            let own = self.text("process_name", number, count);
            one.name = own.unwrap_or_else(|| format!("{}_{number}", self.name));
            one
        });
        let each: Vec<Service> = each.collect();
        self.note(
            "numprocs",
            &format!(
                "the process number occurs in the program's settings, so there are {} services, {} to {}",
                each.len(),
                each.first().map_or("", |it| &it.name),
                each.last().map_or("", |it| &it.name)
            ),
        );
        each
    }

    /// Converts the settings that are common to all processes.
    fn shared(&mut self) -> Service {
        let starts = self.read("autostart", true, boolean);
        let restart = self.read("autorestart", "on-failure", policy);
        let grace_s = self.optional("stopwaitsecs", integer);
        let stop_signal = self.optional("stopsignal", |text| {
            let name = text.trim().to_ascii_uppercase();
            signal(&name).map(|_| name)
        });
        let tries = self.optional("startretries", integer);
        let mut service = Service {
            is_disabled: !starts,
            restart,
            success: self.success(),
            is_never_given_up: tries.is_some_and(|it| it >= TRIES_FOR_EVER),
            stop_signal,
            place: self.section.place.clone(),
            name: self.name.to_owned(),
            remarks: Vec::new(),
            command: Vec::new(),
            dir: None,
            env: Vec::new(),
            secrets: Vec::new(),
            grace_s: None,
            user: None,
            output: Output::default(),
            instances: 1,
        };
        if let Some(seconds) = grace_s {
            let most = i64::from(Spec::GRACE_MS_MAX / 1000);
            if seconds > most {
                self.note(
                    "stopwaitsecs",
                    &format!("the grace period is at most {most} seconds, so {most} is used"),
                );
            }
            service.grace_s = u64::try_from(seconds.clamp(0, most)).ok();
        }
        for key in ["stopasgroup", "killasgroup"] {
            if self.optional(key, boolean) == Some(false) {
                self.note(key, "a stop always includes everything that a service started");
            }
        }
        let is_one = self.read("redirect_stderr", false, boolean);
        if is_one {
            self.note("redirect_stderr", "standard error goes to a separate file, stderr.log");
        }
        service.output = self.output(is_one);
        self.user(&mut service);
        self.others(service.is_never_given_up);
        service
    }

    /// Reports the keys that are not carried over. `has_tries` is whether `startretries` is carried over.
    fn others(&mut self, has_tries: bool) {
        const READ: [&str; 20] = [
            "command",
            "environment",
            "directory",
            "process_name",
            "numprocs",
            "numprocs_start",
            "autostart",
            "autorestart",
            "exitcodes",
            "stopwaitsecs",
            "stopsignal",
            "stopasgroup",
            "killasgroup",
            "redirect_stderr",
            "umask",
            "user",
            "stdout_logfile_maxbytes",
            "stdout_logfile_backups",
            "stderr_logfile_maxbytes",
            "stderr_logfile_backups",
        ];
        for (key, _) in &self.section.keys {
            let is_read = READ.contains(&key.as_str()) || (has_tries && key == "startretries");
            if !is_read {
                self.note(key, keys::of_program(key));
            }
        }
    }

    /// Converts the log rotation. If `is_one`, supervisord writes both streams to one file, so only the settings of standard output apply.
    fn output(&mut self, is_one: bool) -> Output {
        let streams = output::KEYS.map(|[file, max, backups]| Stream {
            keys: [max, backups],
            file: self.optional(file, |text| Ok(text.to_owned())),
            max: self.optional(max, output::bytes),
            keep: self.optional(backups, integer),
        });
        let read = if is_one { 1 } else { streams.len() };
        let (output, remarks) = output::merged(streams.get(..read).unwrap_or_default());
        for (key, words) in remarks {
            self.note(key, words);
        }
        output
    }

    /// Converts the user, and disables the service if the importing user cannot become that user. A user that does not exist is kept, so
    /// that the launch fails instead of using another user.
    fn user(&mut self, to: &mut Service) {
        to.user = self.optional("user", |text| match text.trim() {
            "" => Err("expected the name of a user".to_owned()),
            user => Ok(user.to_owned()),
        });
        let Some(user) = &to.user else { return };
        let is_own = |own: &Vec<String>| own.contains(user);
        if self.around.user.as_ref().is_none_or(is_own) {
            self.note(
                "user",
                "carried over: `sexton serve` must run as root or as that user. HOME, LOGNAME, SHELL and USER are that user's, unlike under supervisord",
            );
            return;
        }
        to.remarks.push(format!(
            "Not started: to run it as {user}, `sexton serve` must run as root or as {user}. Otherwise it is not launched."
        ));
        to.is_disabled = true;
        self.note(
            "user",
            "only a coordinator that runs as root or as that user can launch it, and this import runs as neither; autostart = false",
        );
    }

    /// Returns the exit codes that count as success besides 0.
    fn success(&mut self) -> Vec<u8> {
        let codes = self.optional("exitcodes", |text| {
            let codes =
                text.split(',').filter(|it| !text.trim().is_empty() || !it.trim().is_empty());
            let codes = codes.map(|it| it.trim().parse::<u8>());
            codes
                .collect::<Result<Vec<u8>, _>>()
                .map_err(|_| "expected exit codes from 0 to 255, separated by commas".to_owned())
        });
        let Some(mut codes) = codes else {
            return Vec::new();
        };
        if !codes.contains(&0) {
            self.note("exitcodes", "exit code 0 always counts as a success");
        }
        if let Some(code) = codes.iter().find(|code| **code > 128) {
            let words =
                format!("{code} now also matches a process killed by signal {}", code - 128);
            self.note("exitcodes", &words);
        }
        codes.retain(|code| *code != 0);
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// Converts the command, environment and directory of a process.
    fn process(&mut self, to: &mut Service, number: i64, count: i64) {
        self.environment(to, number, count);
        if self.section.get("command").is_none() {
            self.problem("command", "is missing");
        }
        if let Some(line) = self.text("command", number, count) {
            match words::command(&line) {
                Ok(words) if words.first().is_none_or(String::is_empty) => {
                    self.problem("command", "it is empty");
                }
                Ok(words) => to.command = words,
                Err(words) => self.problem("command", &words),
            }
        }
        let argv: Vec<Bytes> = to.command.iter().map(|it| Bytes::new(it.as_bytes())).collect();
        if has_secret(&argv) {
            self.note(
                "command",
                "it seems to contain a secret, which was copied; reading the secret from env_file is safer",
            );
        }
        self.directory(to, number, count);
        self.fill_gaps(to);
        self.shell(to);
    }

    fn environment(&mut self, to: &mut Service, number: i64, count: i64) {
        let mut variables = self.around.env.clone();
        self.own.clear();
        if let Some(text) = self.text("environment", number, count) {
            match words::variables(&text) {
                Ok(own) => {
                    variables.retain(|(name, _)| own.iter().all(|(other, _)| other != name));
                    variables.extend(own.iter().cloned());
                    self.own = own;
                }
                Err(words) => self.problem("environment", &words),
            }
        }
        let (secrets, env): (Vec<_>, Vec<_>) =
            variables.into_iter().partition(|(name, _)| is_secret_name(name));
        to.env = env;
        to.secrets = secrets.into_iter().map(|(name, _)| name).collect();
        if !to.secrets.is_empty() {
            let names = to.secrets.join(", ");
            let words = format!(
                "{names}: secrets are read from a file, which you must create: see env_file"
            );
            self.note("environment", &words);
        }
    }

    fn directory(&mut self, to: &mut Service, number: i64, count: i64) {
        to.dir.clone_from(&self.around.dir);
        if let Some(dir) = self.text("directory", number, count) {
            if !dir.starts_with('/') {
                self.note(
                    "directory",
                    "it is relative, and is resolved against the directory of the new file",
                );
            }
            to.dir = Some(dir);
        }
    }

    /// Disables the service if a variable in its command, directory or environment has no value, and adds a remark on how to enable it.
    fn fill_gaps(&mut self, to: &mut Service) {
        let command = to.command.iter().map(|it| ("command", it));
        let dir = to.dir.iter().map(|it| ("directory", it));
        let env = to.env.iter().map(|(_, it)| ("environment", it));
        let mut texts = command.chain(dir).chain(env);
        let gap = texts.find_map(|(key, text)| Some((key, unfilled(text)?.to_owned())));
        let Some((key, name)) = gap else {
            return;
        };
        let why = if is_secret_name(&name) {
            "it is a secret, and is not written"
        } else {
            "it is not in the environment of the import"
        };
        let words = format!(
            "%(ENV_{name})s: {why}; `__ENV_{name}__` takes its place, and autostart = false"
        );
        self.note(key, &words);
        to.remarks.push(format!("Not started: replace __ENV_{name}__ first."));
        to.is_disabled = true;
    }

    /// Wraps the command in a shell that sets the program's umask, if it has one.
    fn shell(&mut self, to: &mut Service) {
        let umask = self.optional("umask", |text| {
            let mask = u32::from_str_radix(text.trim().trim_start_matches("0o"), 8);
            mask.ok()
                .filter(|it| *it <= 0o777)
                .ok_or_else(|| "expected an octal number up to 777".to_owned())
        });
        if let Some(mask) = umask {
            let script = format!("umask {mask:03o}; exec \"$@\"");
            let before = ["/bin/sh", "-c", &script, "sh"].map(str::to_owned);
            to.command.splice(0..0, before);
        }
    }

    fn check_process_name(&mut self) {
        let named = self.section.get("process_name");
        if !named.is_some_and(|it| it.text.contains("%(process_num)")) {
            let words = "with more than one process, process_name must contain %(process_num)";
            self.problem("process_name", words);
        }
    }

    /// Returns the value of a key that must be the same for all processes, or `None` if it is not set. If it is invalid, reports a problem
    /// and returns `None`.
    fn optional<T>(&mut self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(key, 0, 1)?;
        match read(&text) {
            Ok(value) => Some(value),
            Err(words) => {
                self.problem(key, &words);
                None
            }
        }
    }

    fn read<T>(&mut self, key: &str, default: T, read: impl Fn(&str) -> Result<T, String>) -> T {
        self.optional(key, read).unwrap_or(default)
    }

    /// Returns the value of a key with its variables expanded, or `None` if it is not set. If the expansion fails, reports a problem and
    /// returns `None`.
    fn text(&mut self, key: &str, number: i64, count: i64) -> Option<String> {
        let value: &'a Value = self.section.get(key)?;
        let here = directory(&value.place.file);
        let group = self.around.groups.get(self.name);
        let names = Names {
            texts: vec![
                ("program_name", self.name),
                ("group_name", group.map_or(self.name, String::as_str)),
                ("host_node_name", self.around.host),
            ],
            numbers: vec![("process_num", number), ("numprocs", count)],
            own: &self.own,
            variables: &self.around.variables,
        };
        match expand(&value.text, &here.to_string_lossy(), &names) {
            Ok(text) => Some(text),
            Err(words) => {
                self.problem(key, &words);
                None
            }
        }
    }

    fn note(&mut self, key: &str, words: &str) {
        let note = self.about(key, words);
        let notes = &mut self.findings.notes;
        // Several processes may yield the same note.
        let own = notes.get(self.before..).unwrap_or_default();
        if !own.contains(&note) {
            notes.push(note);
        }
    }

    fn problem(&mut self, key: &str, words: &str) {
        let note = self.about(key, words);
        if self.findings.problems.last() != Some(&note) {
            self.findings.problems.push(note);
        }
    }

    fn about(&self, key: &str, words: &str) -> Note {
        let place = self.section.get(key).map_or(&self.section.place, |it| &it.place);
        Note::new(place, format!("[{}] {key}: {words}", self.section.name))
    }
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" => Ok(true),
        "no" | "false" | "off" | "0" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

fn integer(text: &str) -> Result<i64, String> {
    let number = text.trim().parse();
    number.map_err(|_| "expected a whole number".to_owned())
}

fn policy(text: &str) -> Result<&'static str, String> {
    if text.eq_ignore_ascii_case("unexpected") {
        return Ok("on-failure");
    }
    match boolean(text) {
        Ok(true) => Ok("always"),
        Ok(false) => Ok("never"),
        Err(_) => Err("expected true, false or unexpected".to_owned()),
    }
}
