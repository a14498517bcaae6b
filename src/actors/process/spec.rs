//! What is to be run, and how.

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
}

impl Spec {
    /// The most arguments.
    pub const ARGV_MAX: usize = 4096;
    /// The most bytes of arguments, environment and paths together.
    pub const BYTES_MAX: usize = 256 << 10;
    /// The most variables.
    pub const ENV_MAX: usize = 1024;
    /// The longest grace, an hour.
    pub const GRACE_MS_MAX: u32 = 3_600_000;
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
}

impl Parentage {
    /// The most that are looked at upwards.
    pub const LINE_MAX: usize = 16;
}
