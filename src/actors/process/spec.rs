//! What is to be run, and how.

use crate::actors::process::secret::is_secret_name;
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use serde::{Deserialize, Serialize};

/// What is to be run, and how. Stored: see the change rule in `persist/format.rs`. Values of secrets are never in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The program, looked for in `PATH` if it has no slash, and its arguments.
    pub argv: Vec<Bytes>,
    /// The directory that it runs in.
    pub dir: Bytes,
    /// What its environment has beside that of the keeper: name and value.
    pub env: Vec<(String, Bytes)>,
    /// Names that its environment has too, whose values are in the parcel or in `env_file`.
    pub secrets: Vec<String>,
    /// A file of `NAME=VALUE` lines, read at each launch.
    pub env_file: Option<Bytes>,
    /// What whoever asked has given the keeper itself: streams, the whole environment, umask and limits. Its ticket.
    #[serde(with = "crate::ids::wide_option")]
    pub parcel: Option<u128>,
    /// Milliseconds from its start after which its tree is stopped; 0 for never.
    pub timeout_ms: u64,
    /// Milliseconds between the first signal of a stop and SIGKILL.
    pub grace_ms: u32,
    /// The first signal of a stop.
    pub stop_signal: u8,
    /// Where its files are, if not in `DATA/run/ID`.
    pub run_dir: Option<Bytes>,
    /// Whether directories that are missing are made.
    pub makes_dirs: bool,
    /// Whether its output goes behind what is there, as that of services does.
    pub appends: bool,
    /// Whether its standard output is read for records when it has ended, see `docs/processes.md`, "Hooks".
    pub is_hook: bool,
    /// When it is ready for those that come after it.
    pub ready: Ready,
    /// Milliseconds from its start within which it is to be ready; if it is not, it is stopped. 0 waits for ever.
    pub ready_timeout_ms: u32,
    /// The most milliseconds between two signs of life of one that gives notice; 0 asks for none.
    pub watchdog_ms: u32,
    /// The user to be, by name or number, if another than the coordinator's.
    pub user: Option<String>,
    /// The group to be, by name or number, if another than that user's.
    pub group: Option<String>,
    /// Resource limits beside those of the keeper: which, soft, hard. `u64::MAX` is none.
    pub limits: Vec<(u32, u64, u64)>,
    /// How long each file of its output may become before it is rotated; 0 for as long as it likes.
    pub output_bytes_max: u64,
    /// How many files that were rotated are kept of each.
    pub output_kept: u8,
}

/// When a process is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// As soon as it runs.
    #[default]
    Running,
    /// When a line of its standard output has this text in it.
    Line(String),
    /// When it says so by the protocol of `sd_notify`.
    Notify,
}

/// What is to be looked for of a process that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What makes it ready.
    pub ready: Ready,
    /// Whether it has said that it is.
    pub is_ready: bool,
    /// The most milliseconds between two signs of life; 0 asks for none.
    pub watchdog_ms: u32,
    /// How long its output may become before it is rotated, and how much of that is kept.
    pub output: (u64, u8),
}

/// What cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// No program, or too many arguments.
    #[error(
        "a command has 1 to {} words, of which the first is not empty",
        Spec::ARGV_MAX
    )]
    Argv,
    /// A zero byte, where the kernel takes none.
    #[error("no argument, path or value of the environment has a zero byte")]
    Zero,
    /// Arguments, environment and paths are too long together.
    #[error(
        "arguments, environment and paths have at most {} bytes together",
        Spec::BYTES_MAX
    )]
    Bytes,
    /// Too many variables, or a name that is none.
    #[error(
        "an environment has at most {} variables, none with an empty name or `=` in it",
        Spec::ENV_MAX
    )]
    Env,
    /// A value that is not to be stored.
    #[error("a variable whose name is that of a secret is given by name alone")]
    Secret,
    /// The grace is too long.
    #[error("a grace is at most {} ms", Spec::GRACE_MS_MAX)]
    Grace,
    /// No such signal.
    #[error("signals are 1 to {}", Spec::SIGNAL_MAX)]
    Signal,
    /// The text of a line is empty, has a line break in it, or is too long.
    #[error(
        "the text of a line has 1 to {} bytes, and no line break",
        Spec::LINE_BYTES_MAX
    )]
    Line,
    /// Signs of life of one that gives none.
    #[error("a watchdog needs ready = \"notify\"")]
    Watchdog,
    /// A name of a user or a group that cannot be one.
    #[error(
        "a user or group has a name or number of 1 to {} bytes",
        Tags::NAME_BYTES_MAX
    )]
    User,
    /// Too many limits, or a soft one above the hard one.
    #[error(
        "there are at most {} limits, each soft one no more than its hard one",
        Spec::LIMITS_MAX
    )]
    Limits,
    /// Files of output that are too short, or too many.
    #[error(
        "a file of output has at least {} bytes, and at most {} are kept",
        Spec::OUTPUT_BYTES_MIN,
        Spec::OUTPUT_KEPT_MAX
    )]
    Output,
    /// Files of output are to be read or rotated, and there are none.
    #[error(
        "records are read from files, and files are rotated: what has the streams of its caller has none"
    )]
    Streams,
    /// The type is too long.
    #[error("a type has at most {} bytes", Tags::NAME_BYTES_MAX)]
    Kind,
    /// The URL is too long.
    #[error("a URL has at most {} bytes", Tags::VALUE_BYTES_MAX)]
    Url,
    /// Too many labels, or too long.
    #[error(
        "there are at most {} labels, with names of 1 to {} bytes and values of at most {}",
        Tags::LABELS_MAX,
        Tags::NAME_BYTES_MAX,
        Tags::VALUE_BYTES_MAX
    )]
    Labels,
    /// The error text is too long.
    #[error("an error has at most 1024 bytes")]
    Error,
    /// The services cannot be as they are defined.
    #[error("the services cannot be as they are defined")]
    Services,
    /// No process is meant.
    #[error("an identity has a PID and a start time")]
    Identity,
}

/// The type of a process that says none, as `ArchiveBox` tells it from its arguments.
pub fn kind_of(argv: &[Bytes]) -> &'static str {
    let words = argv.iter().map(|it| String::from_utf8_lossy(it.as_bytes()));
    let line = words.collect::<Vec<_>>().join(" ").to_lowercase();
    let runs = || {
        let mut rest = line.match_indices("archivebox run");
        rest.any(|(place, found)| {
            let after = line.as_bytes().get(place + found.len());
            after.is_none_or(u8::is_ascii_whitespace)
        })
    };
    if line.contains("supervisord") {
        "supervisord"
    } else if line.contains("runner_watch") {
        "worker"
    } else if runs() {
        "orchestrator"
    } else if line.contains("archivebox") {
        "cli"
    } else {
        "binary"
    }
}

impl Spec {
    /// The largest number of a signal.
    pub const SIGNAL_MAX: u8 = 64;
    /// The first signal of a stop, unless the spec names another: SIGTERM.
    pub const STOP_SIGNAL: u8 = 15;
    /// The most arguments.
    pub const ARGV_MAX: usize = 4096;
    /// The most bytes of arguments, environment and paths together.
    pub const BYTES_MAX: usize = 256 << 10;
    /// The most variables.
    pub const ENV_MAX: usize = 1024;
    /// The longest grace, an hour.
    pub const GRACE_MS_MAX: u32 = 3_600_000;
    /// The longest text of a line that says that it is ready.
    pub const LINE_BYTES_MAX: usize = 1024;
    /// The most limits.
    pub const LIMITS_MAX: usize = 16;
    /// The shortest file of output that is rotated.
    pub const OUTPUT_BYTES_MIN: u64 = 64 << 10;
    /// The most rotated files of one stream.
    pub const OUTPUT_KEPT_MAX: u8 = 100;

    /// The first signal of a stop.
    pub const fn first_signal(&self) -> u8 {
        if self.stop_signal == 0 {
            Self::STOP_SIGNAL
        } else {
            self.stop_signal
        }
    }

    /// How many bytes it says.
    pub fn bytes(&self) -> usize {
        let length = |bytes: &Bytes| bytes.as_bytes().len();
        let argv: usize = self.argv.iter().map(length).sum();
        let env = self
            .env
            .iter()
            .map(|(name, value)| name.len() + length(value));
        let secrets = self.secrets.iter().map(String::len);
        let paths = [
            Some(&self.dir),
            self.env_file.as_ref(),
            self.run_dir.as_ref(),
        ];
        let paths = paths.into_iter().flatten().map(length);
        let line = match &self.ready {
            Ready::Line(text) => text.len(),
            Ready::Running | Ready::Notify => 0,
        };
        let names = [self.user.as_ref(), self.group.as_ref()];
        let names = names.into_iter().flatten().map(String::len);
        let rest = line + size_of_val(self.limits.as_slice());
        argv + rest + env.chain(secrets).chain(paths).chain(names).sum::<usize>()
    }

    /// What of it cannot be.
    ///
    /// # Errors
    /// The first that was found.
    pub fn check(&self) -> Result<(), Flaw> {
        let has_program = self
            .argv
            .first()
            .is_some_and(|it| !it.as_bytes().is_empty());
        if !has_program || self.argv.len() > Self::ARGV_MAX {
            return Err(Flaw::Argv);
        }
        let names = self.env.iter().map(|(name, _)| name);
        let mut names = names.chain(&self.secrets);
        let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        if self.env.len() + self.secrets.len() > Self::ENV_MAX || !names.all(is_name) {
            return Err(Flaw::Env);
        }
        if self.env.iter().any(|(name, _)| is_secret_name(name)) {
            return Err(Flaw::Secret);
        }
        let values = self.env.iter().map(|(_, value)| value);
        let paths = [
            Some(&self.dir),
            self.env_file.as_ref(),
            self.run_dir.as_ref(),
        ];
        let mut all = self
            .argv
            .iter()
            .chain(values)
            .chain(paths.into_iter().flatten());
        if all.any(|bytes| bytes.as_bytes().contains(&0)) {
            return Err(Flaw::Zero);
        }
        if self.bytes() > Self::BYTES_MAX {
            return Err(Flaw::Bytes);
        }
        if self.grace_ms > Self::GRACE_MS_MAX {
            return Err(Flaw::Grace);
        }
        if self.stop_signal > Self::SIGNAL_MAX {
            return Err(Flaw::Signal);
        }
        self.check_more()
    }

    fn check_more(&self) -> Result<(), Flaw> {
        if let Ready::Line(text) = &self.ready
            && (!(1..=Self::LINE_BYTES_MAX).contains(&text.len()) || text.contains('\n'))
        {
            return Err(Flaw::Line);
        }
        if self.watchdog_ms > 0 && self.ready != Ready::Notify {
            return Err(Flaw::Watchdog);
        }
        let is_name = |name: &String| (1..=Tags::NAME_BYTES_MAX).contains(&name.len());
        if !self.user.iter().chain(&self.group).all(is_name) {
            return Err(Flaw::User);
        }
        let fits = |(_, soft, hard): &(u32, u64, u64)| soft <= hard;
        if self.limits.len() > Self::LIMITS_MAX || !self.limits.iter().all(fits) {
            return Err(Flaw::Limits);
        }
        let is_short = (1..Self::OUTPUT_BYTES_MIN).contains(&self.output_bytes_max);
        if is_short || self.output_kept > Self::OUTPUT_KEPT_MAX {
            return Err(Flaw::Output);
        }
        if self.parcel.is_some() && (self.is_hook || self.output_bytes_max > 0) {
            return Err(Flaw::Streams);
        }
        Ok(())
    }

    /// What is to be looked for while it runs, if anything.
    pub fn expects(&self, is_ready: bool) -> Option<Box<Expectation>> {
        let is_watched = self.watchdog_ms > 0 || self.output_bytes_max > 0;
        let is_awaited = self.ready != Ready::Running;
        (is_watched || is_awaited).then(|| {
            Box::new(Expectation {
                ready: self.ready.clone(),
                is_ready,
                watchdog_ms: self.watchdog_ms,
                output: (self.output_bytes_max, self.output_kept),
            })
        })
    }
}

/// What a record says of a process beside what it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tags {
    /// Its type: `cli`, `supervisord`, `orchestrator`, `worker`, `hook`, `binary`, or any other word of 1 to 32 bytes.
    pub kind: String,
    /// A URL that it is about.
    pub url: Option<String>,
    /// Free labels.
    pub labels: Vec<(String, String)>,
}

impl Tags {
    /// The most labels.
    pub const LABELS_MAX: usize = 16;
    /// The longest name of a type or label.
    pub const NAME_BYTES_MAX: usize = 32;
    /// The longest value of a label, or URL.
    pub const VALUE_BYTES_MAX: usize = 1024;

    /// How many bytes they say.
    pub fn bytes(&self) -> usize {
        let labels = self
            .labels
            .iter()
            .map(|(name, value)| name.len() + value.len());
        self.kind.len() + self.url.as_ref().map_or(0, String::len) + labels.sum::<usize>()
    }

    /// What of them cannot be. An empty type is none: it is found from the arguments.
    ///
    /// # Errors
    /// The first that was found.
    pub fn check(&self) -> Result<(), Flaw> {
        if self.kind.len() > Self::NAME_BYTES_MAX {
            return Err(Flaw::Kind);
        }
        if self
            .url
            .as_ref()
            .is_some_and(|url| url.len() > Self::VALUE_BYTES_MAX)
        {
            return Err(Flaw::Url);
        }
        let fits = |(name, value): &(String, String)| {
            (1..=Self::NAME_BYTES_MAX).contains(&name.len()) && value.len() <= Self::VALUE_BYTES_MAX
        };
        if self.labels.len() > Self::LABELS_MAX || !self.labels.iter().all(fits) {
            return Err(Flaw::Labels);
        }
        Ok(())
    }
}

/// Whose child a process is in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parentage {
    /// What `SEXTON_PROCESS_ID` says where it was asked for.
    pub named: Option<ProcessId>,
    /// Who asked, its parent, and so on upwards, as the kernel has them: the first that has a record counts, if no name
    /// does.
    pub line: Vec<super::identity::Identity>,
    /// Whether it is launched only while the one that is named lives: what that has a right to ends with it.
    pub bound: bool,
}

impl Parentage {
    /// The most that are looked at upwards.
    pub const LINE_MAX: usize = 16;
}
