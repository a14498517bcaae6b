//! The sources of settings, from highest to lowest precedence: flag, environment, file, default.
//!
//! All problems are reported at once, each with its source and key. A value that conflicts with a setting of higher precedence is
//! ignored (such as `data` in the file, given `--memory`); a conflict within one source is a problem.

use crate::report::Failure;
use crate::settings::file;
use crate::settings::flag::{Idle, Settings};
use crate::settings::queue;
use crate::settings::task;
use crate::settings::tenant::Tenants;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use sexton::actors::process::Definition;
use sexton::config::Config;
use std::any::TypeId;
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    /// The path of the configuration file, and the line, counted from one.
    File(Arc<Path>, usize),
    /// The name of the variable.
    Environment(String),
    /// The flag, with its dashes.
    Flag(String),
}

impl Source {
    /// Returns the kind of this source, as a word.
    pub(crate) fn rank(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(..) => "file",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }
}

impl Source {
    /// Returns the line in the file; 0 for other sources.
    pub(crate) fn line(&self) -> usize {
        match self {
            Self::File(_, line) => *line,
            Self::Default | Self::Environment(_) | Self::Flag(_) => 0,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// The value of a setting, not parsed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// No source has a value, and there is no default.
    Unset,
    Switch(bool),
    One(OsString),
    /// The values of a setting that is a list in the file and a repeatable flag.
    Several(Vec<OsString>),
}

/// A setting: its key, its value, and the source of the value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) source: Source,
    pub(crate) key: String,
    pub(crate) values: Values,
    /// Whether the file has the value as a number, or as a list with a number. `false` for the other sources, which have only strings.
    pub(crate) has_number: bool,
}

impl Entry {
    pub(crate) fn new(source: Source, key: &str, values: Values) -> Self {
        Self { source, key: key.to_owned(), values, has_number: false }
    }

    /// Returns the equivalent command-line arguments.
    fn words(&self) -> Vec<OsString> {
        let word = |value: &OsString| {
            let mut word = OsString::from(format!("--{}=", self.key));
            word.push(value);
            word
        };
        match &self.values {
            Values::Unset | Values::Switch(false) => Vec::new(),
            Values::Switch(true) => vec![format!("--{}", self.key).into()],
            Values::One(value) => vec![word(value)],
            Values::Several(values) => values.iter().map(word).collect(),
        }
    }
}

/// A problem with a setting or a table, and where it was found.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) source: Source,
    key: String,
    words: String,
}

impl Problem {
    pub(crate) fn new(source: Source, key: &str, words: impl Into<String>) -> Self {
        Self { source, key: key.to_owned(), words: words.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, key, words } = self;
        match source {
            // The name of a flag or a variable already contains the key.
            Source::Flag(_) | Source::Environment(_) => write!(f, "{source}: {words}"),
            Source::Default => write!(f, "{key}: {words}"),
            Source::File(..) if key.is_empty() => write!(f, "{source}: {words}"),
            Source::File(..) => write!(f, "{source}: {key}: {words}"),
        }
    }
}

/// The flags on the command line, before the other sources are read.
#[derive(Debug)]
pub(crate) struct ParsedFlags(ArgMatches);

impl FromArgMatches for ParsedFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl Args for ParsedFlags {
    fn augment_args(command: Command) -> Command {
        Settings::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Settings::augment_args_for_update(command)
    }
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) settings: Settings,
    pub(crate) node: Config,
    /// All settings, in the order of the flags.
    pub(crate) entries: Vec<Entry>,
    /// Variables that begin with `SEXTON_` but are not known, perhaps because they are misspelt.
    pub(crate) unknown_variables: Vec<String>,
}

impl ParsedFlags {
    /// Combines the flags with the environment and the file, and checks the result. Fails if the file cannot be read or if there
    /// is a problem; the message has all problems.
    pub(crate) fn settle(&self) -> Result<Effective, Failure> {
        let flags = Flags::new();
        let mut settled = Settled::default();
        settled.rank(&flags, flags.given(&self.0));
        settled.rank(&flags, flags.environment());
        if let Some(path) = settled.value("config") {
            let file::Content { mut entries, queues, tenants, tasks, services, problems } =
                file::read(Path::new(&path))?;
            settled.problems.extend(problems);
            entries.retain(|entry| settled.is_of_a_file(&flags, entry));
            settled.rank(&flags, entries);
            settled.queues = queues;
            settled.tenants = tenants;
            settled.tasks = tasks;
            settled.services = services;
        }
        let words = settled.entries.iter().flat_map(Entry::words);
        let words = std::iter::once(OsString::from("serve")).chain(words);
        let settings = flags
            .0
            .clone()
            .try_get_matches_from(words)
            .and_then(|matches| Settings::from_arg_matches(&matches))
            .map_err(|error| Failure::usage(format!("failed to check the settings: {error}")))?;
        let mut node = settings.node()?;
        queue::settle(&settled.queues, &mut node.rules.queue);
        node.rules.queue.across.tenants.clone_from(&settled.tenants);
        task::settle(&settled.tasks, &mut node);
        node.services.clone_from(&settled.services);
        for problem in node.problems() {
            let source = settled.source(problem.setting);
            let problem = Problem::new(source, problem.setting, problem.words);
            settled.problems.push(problem);
        }
        if settled.problems.is_empty() {
            let entries = flags.all(&settled, &node);
            Ok(Effective { settings, node, entries, unknown_variables: flags.unknown_variables() })
        } else {
            // Problems of the file come in the order of its lines, after the others.
            settled.problems.sort_by_key(|problem| problem.source.line());
            Err(refuse(&settled.problems))
        }
    }
}

fn refuse(problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    match lines.as_slice() {
        [line] => Failure::usage(format!("failed to check the settings: {line}")),
        _ => Failure::usage("failed to check the settings:").listing(lines),
    }
}

/// The settings collected so far, from the highest precedence down.
#[derive(Default)]
struct Settled {
    entries: Vec<Entry>,
    queues: Vec<queue::Table>,
    tenants: Tenants,
    tasks: task::Table,
    services: Vec<Definition>,
    problems: Vec<Problem>,
}

impl Settled {
    /// Adds the settings of the source with the next lower precedence, except those that a higher source overrides or excludes.
    /// Invalid values, and conflicts within the source, become problems.
    fn rank(&mut self, flags: &Flags, entries: Vec<Entry>) {
        let above = self.entries.len();
        for entry in entries {
            if let Err(words) = flags.check(&entry) {
                self.problems.push(Problem::new(entry.source, &entry.key, words));
                continue;
            }
            let (higher, same) = self.entries.split_at(above);
            let beside = |other: &Entry| flags.contradict(&entry, other);
            if higher.iter().any(|other| other.key == entry.key || beside(other)) {
                continue;
            }
            match same.iter().find(|other| beside(other)) {
                Some(other) => {
                    let words = format!("cannot be used with {}", other.key);
                    self.problems.push(Problem::new(entry.source, &entry.key, words));
                }
                None => self.entries.push(entry),
            }
        }
    }

    fn value(&self, key: &str) -> Option<OsString> {
        let found = self.entries.iter().find(|entry| entry.key == key);
        found.and_then(|entry| match &entry.values {
            Values::One(value) => Some(value.clone()),
            Values::Unset | Values::Switch(_) | Values::Several(_) => None,
        })
    }

    fn source(&self, key: &str) -> Source {
        let found = self.entries.iter().find(|entry| entry.key == key);
        found.map_or(Source::Default, |entry| entry.source.clone())
    }

    /// Returns whether a file may set this key; adds a problem if not.
    fn is_of_a_file(&mut self, flags: &Flags, entry: &Entry) -> bool {
        let words = if entry.key == "config" {
            "a configuration file cannot name another one".to_owned()
        } else if flags.find(&entry.key).is_none() {
            flags.unknown(&entry.key)
        } else {
            return true;
        };
        let source = entry.source.clone();
        self.problems.push(Problem::new(source, &entry.key, words));
        false
    }
}

/// Returns the word in `all` that is most similar to `word`; `None` if none is similar enough to be suggested.
pub(crate) fn nearest<'w>(word: &str, all: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let alike = all.map(|known| (known, strsim::jaro_winkler(word, known)));
    let nearest = alike.max_by(|(_, one), (_, other)| one.total_cmp(other));
    nearest.filter(|(_, alike)| *alike > 0.8).map(|(known, _)| known)
}

/// Returns the message for an unknown key in a table: it suggests a similar key, or lists `keys`, the known ones separated by commas.
pub(super) fn unknown_key(key: &str, keys: &str) -> String {
    let key = key.replace('-', "_");
    let all = || keys.split(", ");
    // A known key that has the unknown one as a part, such as `max_tries` for `tries`, is a better suggestion than a similar word.
    let with_part = all().find(|known| known.split('_').any(|part| part == key));
    match with_part.or_else(|| nearest(&key, all())) {
        Some(known) => format!("unknown key; did you mean {known}?"),
        None => format!("unknown key; expected one of {keys}"),
    }
}

/// Returns whether a key of a file is the name of a flag.
pub(super) fn is_setting(key: &str) -> bool {
    Flags::new().find(key).is_some()
}

/// The definitions of the flags, as a clap command.
struct Flags(Command);

impl Flags {
    fn new() -> Self {
        Self(Settings::augment_args(
            Command::new("serve").disable_help_flag(true).disable_version_flag(true),
        ))
    }

    fn each(&self) -> impl Iterator<Item = (&Arg, &str)> {
        self.0.get_arguments().filter_map(|argument| Some((argument, argument.get_long()?)))
    }

    fn find(&self, key: &str) -> Option<&Arg> {
        let mut each = self.each();
        each.find(|(_, long)| *long == key).map(|(argument, _)| argument)
    }

    fn unknown(&self, key: &str) -> String {
        let all = self.each().map(|(_, long)| long);
        match nearest(&key.replace('_', "-"), all) {
            Some(long) => format!("unknown setting; did you mean {long}?"),
            None => "unknown setting; `sexton config` shows all settings".to_owned(),
        }
    }

    /// Checks that the flag exists and that it accepts the value. The error is a message.
    fn check(&self, entry: &Entry) -> Result<(), String> {
        let argument = self.find(&entry.key).ok_or_else(|| self.unknown(&entry.key))?;
        match (argument.get_action(), &entry.values) {
            (ArgAction::SetTrue, Values::Switch(_)) | (ArgAction::Append, Values::Several(_)) => {}
            (ArgAction::SetTrue, _) => return Err("expected true or false".to_owned()),
            (_, Values::Switch(is)) => return Err(format!("expected a value, found {is}")),
            (_, Values::Several(_)) => return Err("expected one value, found several".to_owned()),
            (_, Values::One(_) | Values::Unset) => {}
        }
        if entry.has_number && !takes_numbers(argument) {
            return Err("expected a string, found a number: write it in quotes".to_owned());
        }
        let words = std::iter::once(OsString::from("serve")).chain(entry.words());
        match self.0.clone().try_get_matches_from(words) {
            Ok(_) => Ok(()),
            Err(error) => Err(refused(argument, &error)),
        }
    }

    fn contradict(&self, one: &Entry, other: &Entry) -> bool {
        let is_off = |entry: &Entry| entry.values == Values::Switch(false);
        let (Some(first), Some(second)) = (self.find(&one.key), self.find(&other.key)) else {
            return false;
        };
        let names = |of: &Arg, named: &Arg| {
            let conflicts = self.0.get_arg_conflicts_with(of);
            conflicts.iter().any(|found| found.get_id() == named.get_id())
        };
        !is_off(one) && !is_off(other) && (names(first, second) || names(second, first))
    }

    /// Returns the settings on the command line.
    fn given(&self, matches: &ArgMatches) -> Vec<Entry> {
        let entries = self.each().filter_map(|(argument, long)| {
            let id = argument.get_id().as_str();
            let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
            let values = || matches.get_raw(id).into_iter().flatten().map(OsString::from);
            if !is_given {
                return None;
            }
            let action = argument.get_action();
            let values = if matches!(action, ArgAction::SetTrue) {
                Values::Switch(true)
            } else if matches!(action, ArgAction::Append) {
                Values::Several(values().collect())
            } else {
                Values::One(values().next()?)
            };
            Some(Entry::new(Source::Flag(format!("--{long}")), long, values))
        });
        entries.collect()
    }

    /// Returns the settings in the environment. An empty variable counts as unset.
    fn environment(&self) -> Vec<Entry> {
        let entries = self.each().filter_map(|(argument, long)| {
            let name = variable(long);
            let value = std::env::var_os(&name).filter(|value| !value.is_empty())?;
            let values = match (argument.get_action(), value.to_str()) {
                (ArgAction::SetTrue, Some("true" | "1")) => Values::Switch(true),
                (ArgAction::SetTrue, Some("false" | "0")) => Values::Switch(false),
                (ArgAction::Append, Some(names)) => {
                    let names = names.split(',').map(|name| name.trim().into());
                    Values::Several(names.collect())
                }
                _ => Values::One(value),
            };
            Some(Entry::new(Source::Environment(name), long, values))
        });
        entries.collect()
    }

    /// Returns the variables that begin with `SEXTON_` but are not known, perhaps because they are misspelt.
    fn unknown_variables(&self) -> Vec<String> {
        let is_known = |name: &str| {
            OTHERS.contains(&name)
                || name.starts_with(OF_JOBS)
                || name.starts_with(OF_TASKS)
                || self.each().any(|(_, long)| variable(long) == name)
        };
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let mut unknown_variables: Vec<String> =
            names.filter(|name| name.starts_with(VARIABLE) && !is_known(name)).collect();
        unknown_variables.sort_unstable();
        unknown_variables
    }

    /// Returns all settings with their values in force.
    fn all(&self, settled: &Settled, node: &Config) -> Vec<Entry> {
        let all = self.each().map(|(argument, long)| {
            let set = settled.entries.iter().find(|entry| entry.key == long);
            set.cloned().unwrap_or_else(|| {
                let default = argument.get_default_values().first();
                let values = match (argument.get_action(), default) {
                    (ArgAction::SetTrue, _) => Values::Switch(false),
                    (ArgAction::Append, _) => Values::Several(Vec::new()),
                    (_, Some(value)) => Values::One(value.to_os_string()),
                    (_, None) if long == "data" => {
                        node.data.as_ref().map_or(Values::Unset, |data| Values::One(data.into()))
                    }
                    (_, None) => Values::Unset,
                };
                Entry::new(Source::Default, long, values)
            })
        });
        all.collect()
    }
}

/// Returns the variables that begin with `SEXTON_` but are not known, perhaps because they are misspelt.
pub(crate) fn find_unknown_variables() -> Vec<String> {
    Flags::new().unknown_variables()
}

/// The prefix of sexton's variables.
const VARIABLE: &str = "SEXTON_";
/// The variables with the prefix [`VARIABLE`] that are not settings of `sexton serve`, but are read by other commands or set for them.
const OTHERS: [&str; 9] = [
    "SEXTON_OWNER",
    "SEXTON_URL",
    "SEXTON_CA_FILE",
    // Set for commands that the coordinator runs.
    "SEXTON_FENCE",
    "SEXTON_INSTANCE",
    "SEXTON_LEASE",
    "SEXTON_PROCESS_ID",
    "SEXTON_SERVICE",
    "SEXTON_WRAPPER_ATTEMPT",
];
/// The prefix of the variables that `sexton work` sets for its commands.
const OF_JOBS: &str = "SEXTON_JOB_";
/// The prefix of the variables that are set for the commands of tasks.
const OF_TASKS: &str = "SEXTON_TASK_";

/// Returns the name of a flag's environment variable.
fn variable(long: &str) -> String {
    format!("{VARIABLE}{}", long.replace('-', "_").to_uppercase())
}

/// Returns whether the file may have a number as the value of this setting.
fn takes_numbers(argument: &Arg) -> bool {
    is_number(argument)
        || argument.get_value_parser().type_id() == TypeId::of::<Idle>()
        || argument.get_possible_values().iter().any(|word| {
            let name = word.get_name();
            name.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// Returns whether a setting is always a number. For every such setting, `Config::problems` refuses 0.
fn is_number(argument: &Arg) -> bool {
    let kind = argument.get_value_parser().type_id();
    kind == TypeId::of::<u32>() || kind == TypeId::of::<u64>()
}

/// Returns the message for a value that clap refused, without the name of the flag.
fn refused(argument: &Arg, error: &clap::Error) -> String {
    let found = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => format!("{value:?}: "),
        Some(_) | None => String::new(),
    };
    if found == "\"\": " {
        return "expected a value, found nothing".to_owned();
    }
    if is_number(argument) {
        return format!("{found}expected a whole number above 0");
    }
    match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => format!("{found}{source}"),
        (None, Some(ContextValue::Strings(valid))) => {
            format!("{found}expected {}", valid.join(" or "))
        }
        (None, _) => format!("{found}{}", error.kind()),
    }
}
