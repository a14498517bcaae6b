//! Processes that the coordinator launches.

use crate::request::is_default;
use crate::value::{List, Number, Span};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A process to launch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate JSON member")]
pub struct Launch {
    /// The program, looked up in `PATH` if it has no slash, and its arguments.
    pub command: List<String, { Launch::ARGV_MAX }>,
    /// The working directory; the keeper's if left out.
    pub dir: Option<String>,
    /// Environment variables to set, in addition to those of the coordinator or the parcel. Variables whose names contain
    /// `TOKEN`, `SECRET`, `PASSWORD` or `KEY` are refused: use `secrets` for those.
    #[serde(default, skip_serializing_if = "is_default")]
    pub env: BTreeMap<String, String>,
    /// Names of variables whose values come from `env_file`, `parcel` or the coordinator's own environment, and are not stored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub secrets: Vec<String>,
    /// A file of `NAME=VALUE` lines, read when the process is launched.
    pub env_file: Option<String>,
    /// The ticket of a parcel (streams and environment that the client has passed to the keeper): at most 32 hexadecimal digits.
    pub parcel: Option<String>,
    /// Milliseconds after which the process tree is stopped; 0 for never.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeout_ms: Span,
    /// Milliseconds between the first signal of a stop and SIGKILL.
    #[serde(default, skip_serializing_if = "is_default")]
    pub grace_ms: Number<u32, 0, { Launch::GRACE_MS_MAX as u64 }, 10_000>,
    /// The first signal of a stop; 15 is SIGTERM.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stop_signal: Number<u8, 1, { Launch::SIGNAL_MAX as u64 }, 15>,
    /// The directory for the files of the process; `run/ID` in the data directory if left out.
    pub run_dir: Option<String>,
    /// Whether to launch the process even if its arguments look like they contain a secret. Such arguments are stored unchanged, but shown
    /// masked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_secrets: bool,
    /// Whether to create `dir` if it does not exist.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mkdir: bool,
    /// Whether to append the output to existing files.
    #[serde(default, skip_serializing_if = "is_default")]
    pub append: bool,
    /// Whether the process is a hook: its standard output is parsed for records when it has ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub records: bool,
    /// The size at which each output file is rotated, in bytes; 0 for no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output_bytes_max: Number<u64, 0, { 1 << 50 }>,
    /// The number of rotated files to keep for each output file.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output_kept: Number<u8, 0, { Launch::OUTPUT_KEPT_MAX as u64 }, 5>,
    /// The type of the process: `cli`, `supervisord`, `orchestrator`, `worker`, `hook`, `binary`, or any other word. If left out,
    /// it is `binary`.
    pub r#type: Option<String>,
    /// A URL associated with the process.
    pub url: Option<String>,
    /// Arbitrary labels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// The id of the parent, usually the caller's `SEXTON_PROCESS_ID`. If left out, a process that is launched directly, rather than by a
    /// lease, gets the nearest process with a record as its parent: the caller or one of its ancestors.
    pub parent: Option<String>,
    /// Whether to launch the process only if `parent` is alive, because it relies on a lock or claim of `parent`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bound: bool,
    /// Whether only the record is made, and the process stays `queued` until `/v1/processes/start` launches it. Not with `parcel`, nor in
    /// the `launch` of a lease or a task.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deferred: bool,
}

impl Launch {
    /// The maximum number of words of a command.
    pub const ARGV_MAX: usize = 4096;
    /// The maximum time between the first signal of a stop and SIGKILL, in milliseconds: an hour.
    pub const GRACE_MS_MAX: u32 = 3_600_000;
    /// The largest number of a signal.
    pub const SIGNAL_MAX: u8 = 64;
    /// The maximum number of rotated files that are kept for an output file.
    pub const OUTPUT_KEPT_MAX: u8 = 100;
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Failed {
    /// The step that failed: `keeper`, `files`, `output`, `environment`, `parcel`, `fork`, `group`, `directory`, `user`,
    /// `limits`, `exec`, `abandoned` or `cancelled` (it was stopped while its launch was deferred).
    pub step: Cow<'static, str>,
    /// The kernel's error number; 0 if the error is not the kernel's.
    pub errno: i32,
    /// A description for users.
    pub words: String,
}
