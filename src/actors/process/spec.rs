//! What a launch request specifies: the process to run and how, its tags, and what determines its parent.

use crate::actors::process::secret::{has_secret, is_secret_name};
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use serde::{Deserialize, Serialize};
use sexton_api::process::Launch;

/// What to run, and how. Never contains the values of secret variables, since it is stored: see the change rule in `persist/format.rs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The program, searched for in `PATH` if it has no slash, and its arguments.
    pub argv: Vec<Bytes>,
    /// The working directory.
    pub dir: Bytes,
    /// Environment variables to set, as name and value, in addition to those of the coordinator or the parcel.
    pub env: Vec<(String, Bytes)>,
    /// The names of secret variables, whose values come from the coordinator's environment, the parcel or `env_file`.
    pub secrets: Vec<String>,
    /// A file of `NAME=VALUE` lines, read at each launch.
    pub env_file: Option<Bytes>,
    /// The ticket of a parcel that the client handed to the keeper. The parcel contains streams, the whole environment, umask and limits.
    #[serde(with = "crate::ids::wide_option")]
    pub parcel: Option<u128>,
    /// The time after the start of the process at which its tree is stopped, in milliseconds; 0 means no timeout.
    pub timeout_ms: u64,
    /// The grace period between the first signal of a stop and SIGKILL, in milliseconds.
    pub grace_ms: u32,
    /// The first signal of a stop; 0 means SIGTERM.
    pub stop_signal: u8,
    /// The directory that contains its files, such as its output; `None` for `DATA/run/ID`.
    pub run_dir: Option<Bytes>,
    /// Whether a missing working directory is created.
    pub makes_dirs: bool,
    /// Whether output is appended to existing files, as for services.
    pub appends: bool,
    /// Whether records are read from its standard output after its end: see "Hooks" in `docs/processes.md`.
    pub is_hook: bool,
    /// What makes it ready. Services that depend on it are started only then.
    pub ready: Ready,
    /// How long it may take to become ready before it is stopped, in milliseconds from its start; 0 means no limit.
    pub ready_timeout_ms: u32,
    /// The watchdog interval: the maximum time between two watchdog notices, in milliseconds; 0 means that none are required.
    pub watchdog_ms: u32,
    /// The user to run as, by name or number, if not the server's.
    pub user: Option<String>,
    /// The group to run as, by name or number; `None` for the primary group of that user.
    pub group: Option<String>,
    /// Resource limits to set, as resource, soft limit and hard limit; `u64::MAX` means unlimited. Other limits are inherited.
    pub limits: Vec<(u32, u64, u64)>,
    /// The size in bytes at which each of its output files is rotated; 0 means never.
    pub output_bytes_max: u64,
    /// The number of rotated files kept for each stream.
    pub output_kept: u8,
}

/// What makes a process ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// It is ready as soon as it is running.
    #[default]
    Running,
    /// A line of standard output that contains this text.
    Line(String),
    /// A notice sent with the `sd_notify` protocol.
    Notify,
}

/// What the port watches for while a process is running: readiness, watchdog notices and the size of its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What makes it ready.
    pub ready: Ready,
    /// Whether the port need no longer watch for readiness: the process has announced that it is ready, or that it is about to exit.
    pub is_ready: bool,
    /// The maximum time between two watchdog notices, in milliseconds; 0 means that none are required.
    pub watchdog_ms: u32,
    /// The size in bytes at which each of its output files is rotated (0 for never), and the number of rotated files kept for each.
    pub output: (u64, u8),
}

/// A flaw that makes a request invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// The program is missing or empty, or there are too many arguments.
    #[error("a command must have 1 to {} words, and the first must not be empty", Spec::ARGV_MAX)]
    Argv,
    /// There is a NUL byte where the kernel accepts none.
    #[error("arguments, paths and environment values must not contain a NUL byte")]
    Zero,
    /// Arguments, environment and paths are too long in total.
    #[error("arguments, environment and paths must not exceed {} bytes in total", Spec::BYTES_MAX)]
    Bytes,
    /// There are too many environment variables, or the name of one is invalid.
    #[error(
        "an environment has at most {} variables, and no name is empty or contains `=` or a NUL byte",
        Spec::ENV_MAX
    )]
    Env,
    /// The value of a secret was given, but must not be stored.
    #[error("the value of a secret must not be given, only its name")]
    Secret,
    /// The grace period is too long.
    #[error("a grace period must not exceed {} ms", Spec::GRACE_MS_MAX)]
    Grace,
    /// The signal number is invalid.
    #[error("a signal number must be between 1 and {}", Spec::SIGNAL_MAX)]
    Signal,
    /// The text that marks readiness is empty, contains a line break, or is too long.
    #[error("the text to wait for must have 1 to {} bytes and no line break", Spec::LINE_BYTES_MAX)]
    Line,
    /// A watchdog was requested for a process that sends no notices.
    #[error("a watchdog needs ready = \"notify\"")]
    Watchdog,
    /// The name of a user or group is invalid.
    #[error("the name or number of a user or group must have 1 to {} bytes", Tags::NAME_BYTES_MAX)]
    User,
    /// There are too many limits, or a soft limit exceeds its hard limit.
    #[error(
        "there can be at most {} limits, and no soft limit may exceed its hard limit",
        Spec::LIMITS_MAX
    )]
    Limits,
    /// The size at which output files are rotated is too small, or the number of rotated files to keep is too large.
    #[error(
        "output files cannot be rotated below {} bytes, and at most {} rotated files can be kept",
        Spec::OUTPUT_BYTES_MIN,
        Spec::OUTPUT_KEPT_MAX
    )]
    Output,
    /// Output files were to be rotated or read for records, but the process writes to the caller's streams instead.
    #[error(
        "output that goes to the caller's streams is not written to a file, so it can be neither read for records nor rotated"
    )]
    Streams,
    /// The type is too long.
    #[error("a type must not exceed {} bytes", Tags::NAME_BYTES_MAX)]
    Kind,
    /// The URL is too long.
    #[error("a URL must not exceed {} bytes", Tags::VALUE_BYTES_MAX)]
    Url,
    /// There are too many labels, or the name or value of one has an invalid length.
    #[error(
        "there can be at most {} labels, with names of 1 to {} bytes and values of at most {} bytes",
        Tags::LABELS_MAX,
        Tags::NAME_BYTES_MAX,
        Tags::VALUE_BYTES_MAX
    )]
    Labels,
    /// The error text is too long.
    #[error("an error text must not exceed 1024 bytes")]
    Error,
    /// The definitions of services are invalid.
    #[error("the service definitions are invalid")]
    Services,
    /// The launch of a command that the coordinator launches of its own accord, or whose streams a client passed on, was deferred.
    #[error(
        "a launch that a service, lease or task requests, or with the streams of a client (a parcel), cannot be deferred"
    )]
    Deferred,
    /// The identity names no process: its PID is 0.
    #[error("the PID of an identity must not be 0")]
    Identity,
}

/// Words of a command line that make its process a worker: those of the seed's plan, and that of `ArchiveBox` today.
const WORKERS: [&str; 4] =
    ["crawl_worker", "snapshot_worker", "archiveresult_worker", "runner_watch"];

/// Derives the type of a process from its arguments, as `ArchiveBox` does. For processes whose type was not given.
///
/// Its design (`_detect_process_type`) looks for these words anywhere in the arguments, in this order. The program that became of it has no
/// argument `orchestrator`: there, `archivebox run` is one.
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
    } else if line.contains("orchestrator") || runs() {
        "orchestrator"
    } else if WORKERS.iter().any(|word| line.contains(word)) {
        "worker"
    } else if line.contains("archivebox") {
        "cli"
    } else {
        "binary"
    }
}

impl Spec {
    /// The highest signal number.
    pub const SIGNAL_MAX: u8 = Launch::SIGNAL_MAX;
    /// The default first signal of a stop: SIGTERM.
    pub const STOP_SIGNAL: u8 = 15;
    /// The maximum number of arguments, including the program.
    pub const ARGV_MAX: usize = Launch::ARGV_MAX;
    /// The maximum total size of arguments, environment and paths, in bytes.
    pub const BYTES_MAX: usize = 256 << 10;
    /// The maximum number of environment variables.
    pub const ENV_MAX: usize = 1024;
    /// The maximum grace period: one hour.
    pub const GRACE_MS_MAX: u32 = Launch::GRACE_MS_MAX;
    /// The maximum length of the text that marks readiness, in bytes.
    pub const LINE_BYTES_MAX: usize = 1024;
    /// The maximum number of resource limits.
    pub const LIMITS_MAX: usize = 16;
    /// The minimum size at which output is rotated, in bytes.
    pub const OUTPUT_BYTES_MIN: u64 = 64 << 10;
    /// The maximum number of rotated files kept for one stream.
    pub const OUTPUT_KEPT_MAX: u8 = Launch::OUTPUT_KEPT_MAX;

    /// Returns whether one of the arguments looks like it contains a secret.
    pub fn has_secret(&self) -> bool {
        has_secret(&self.argv)
    }

    /// Returns the first signal of a stop.
    pub const fn first_signal(&self) -> u8 {
        if self.stop_signal == 0 { Self::STOP_SIGNAL } else { self.stop_signal }
    }

    /// Returns its size in bytes, which limits such as [`Self::BYTES_MAX`] apply to.
    pub fn bytes(&self) -> usize {
        let length = |bytes: &Bytes| bytes.as_bytes().len();
        let argv: usize = self.argv.iter().map(length).sum();
        let env = self.env.iter().map(|(name, value)| name.len() + length(value));
        let secrets = self.secrets.iter().map(String::len);
        let paths = [Some(&self.dir), self.env_file.as_ref(), self.run_dir.as_ref()];
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

    /// Checks that the spec is valid.
    ///
    /// # Errors
    /// Returns the first flaw found.
    pub fn check(&self) -> Result<(), Flaw> {
        let has_program = self.argv.first().is_some_and(|it| !it.as_bytes().is_empty());
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
        let paths = [Some(&self.dir), self.env_file.as_ref(), self.run_dir.as_ref()];
        let mut all = self.argv.iter().chain(values).chain(paths.into_iter().flatten());
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

    /// Returns what the port must watch for while the process is running; `None` if nothing. `is_ready` becomes [`Expectation::is_ready`].
    pub fn expectation(&self, is_ready: bool) -> Option<Box<Expectation>> {
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

/// The metadata of a process in its record: type, URL and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tags {
    /// Its type: `cli`, `supervisord`, `orchestrator`, `worker`, `hook`, `binary`, or any other word of 1 to 32 bytes.
    pub kind: String,
    /// A URL associated with it.
    pub url: Option<String>,
    /// Labels, as name and value.
    pub labels: Vec<(String, String)>,
}

impl Tags {
    /// The maximum number of labels.
    pub const LABELS_MAX: usize = 16;
    /// The maximum length of a type or of a label's name, in bytes.
    pub const NAME_BYTES_MAX: usize = 32;
    /// The maximum length of a label's value, or of the URL, in bytes.
    pub const VALUE_BYTES_MAX: usize = 1024;

    /// Returns their size in bytes.
    pub fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(|(name, value)| name.len() + value.len());
        self.kind.len() + self.url.as_ref().map_or(0, String::len) + labels.sum::<usize>()
    }

    /// Checks that they are valid. The type may be empty, since it is then derived from the arguments.
    ///
    /// # Errors
    /// Returns the first flaw found.
    pub fn check(&self) -> Result<(), Flaw> {
        if self.kind.len() > Self::NAME_BYTES_MAX {
            return Err(Flaw::Kind);
        }
        if self.url.as_ref().is_some_and(|url| url.len() > Self::VALUE_BYTES_MAX) {
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

/// What determines the parent of a process, and whether it may be launched without that parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parentage {
    /// The record named by `SEXTON_PROCESS_ID` in the requester's environment; `None` if the variable is not set.
    pub named: Option<ProcessId>,
    /// The requester and its ancestors as the kernel reports them. If `named` has no record, the first of these that has one becomes the
    /// parent.
    pub line: Vec<super::identity::Identity>,
    /// Whether the process is launched only if `named` is alive, because the right to launch it ends with `named`.
    pub bound: bool,
}

impl Parentage {
    /// The maximum number of processes in `line` that are considered.
    pub const LINE_MAX: usize = 16;
}
