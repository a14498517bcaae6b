//! `sexton run`: runs a command under a coordinator, in the foreground or detached.

use crate::client::Where;
use crate::process::attached;
use crate::process::page::{ending, failure};
use crate::process::request::{ClientOptions, has_ended, pairs};
use crate::report::{Failure, tell};
use crate::size::{self, SIZE};
use crate::span::{SPAN, milliseconds};
use crate::text::{grouped, words};
use clap::Args;
use serde_json::{Value, json};
use sexton::actors::process::{Spec, has_secret, is_secret_name};
use sexton::bytes::Bytes;
use sexton_api::process::Launch;
use sexton_api::value::{List, Number};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The exit status with which shells report a command that was not found.
const NOT_FOUND: u8 = 127;

/// The exit status with which shells report a command that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// The exit status for a failure of the launcher itself, as in `env` and `timeout`.
const NOT_LAUNCHED: u8 = 125;

/// Run a command, and keep a record of it and its exit status
///
/// In the foreground, the command has this shell's streams, descriptors, environment, directory, umask, limits and priorities, and
/// receives the signals sent to this process; its exit status becomes this process's. If standard input and output are terminals, it
/// has a terminal of its own in between; if this process is then killed by SIGKILL, the command is hung up. In a pipeline it has no
/// controlling terminal.
///
/// The command is a child of the keeper, a separate process that launches commands for the coordinator, so it keeps running if the
/// coordinator is killed or, without a terminal, this process. With --detach it runs in the background, with its output in files.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton run -- make -j4                         run it; `sexton ps` shows it
  sexton run --timeout 10m -- ./import.sh        stop its tree after ten minutes
  id=$(sexton run --detach -- ./worker --queue mails)
  sexton logs --follow \"$id\"; sexton wait \"$id\"  its output, and how it ended

Exit status: that of the command, or 128 plus the signal that ended it; 124 it timed out; 125 it could not be launched, 126 it cannot be \
executed, 127 it was not found. Of sexton itself: 2 wrong flags; 3 no coordinator runs there.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub(crate) struct Run {
    /// The type of the process: cli, worker, hook, binary, or any other word [default: binary]
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// After this time, stop the command and everything it started
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    timeout: Option<u64>,

    /// How long to wait for the command to end after telling it to stop; then it is killed
    #[arg(long, value_name = SPAN, value_parser = milliseconds, default_value = "10s")]
    grace: u64,

    /// A label to find the process by; repeatable
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,

    /// A URL that the process works on
    #[arg(long)]
    about: Option<String>,

    /// The command's working directory [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,

    /// Create the directory of --dir if it is missing
    #[arg(long)]
    mkdir: bool,

    /// An environment variable to set for the command; repeatable
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// A file with more variables, one NAME=VALUE per line. Secrets can be passed in it: it is read when the command is launched, and
    /// its contents are not stored
    #[arg(long, value_name = "FILE")]
    env_file: Option<String>,

    /// The directory for the output and other files of the process [default: run/ID in the data directory]
    #[arg(long = "run-dir", value_name = "DIR")]
    files: Option<String>,

    /// With --detach: when the command has ended, parse lines of its standard output that begin with { as records
    #[arg(long, requires = "detach")]
    records: bool,

    /// With --detach: the size at which output files are rotated
    #[arg(long, value_name = SIZE, value_parser = size::bytes, requires = "detach")]
    output_max: Option<u64>,

    /// Number of rotated files to keep for each output file
    #[arg(long, value_name = "N", default_value = "5", requires = "output_max")]
    output_keep: u8,

    /// The id of the parent process [default: the nearest ancestor with a record]
    #[arg(long, value_name = "ID", env = PARENT)]
    parent: Option<String>,

    /// Run in the background: print the process id and exit
    #[arg(long)]
    detach: bool,

    /// With --detach: only make the record, and print its id. `sexton start ID` launches the command
    #[arg(long, requires = "detach")]
    deferred: bool,

    /// Run the command even if its arguments seem to contain a secret; they are stored unchanged, but masked when shown
    #[arg(long)]
    allow_secrets: bool,

    #[command(flatten)]
    at: Where,

    /// With --detach, print the record as JSON
    #[arg(long, requires = "detach")]
    json: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Run {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions::at(&self.at, self.json)?;
        let asked = self.launch()?;
        if self.detach {
            return detached(&options, &asked);
        }
        attached::run(&options, asked, |_| {}, &|record| self.outcome(record))
    }

    fn launch(&self) -> Result<Launch, Failure> {
        let here = here()?;
        let dir = here.join(self.dir.as_deref().unwrap_or_default());
        let absolute =
            |path: &Option<String>| path.as_ref().map(|path| here.join(path).display().to_string());
        let kept = self.output_max.map(|_| Number(self.output_keep));
        Ok(Launch {
            r#type: self.kind.clone(),
            timeout_ms: Number(self.timeout.unwrap_or(0)),
            // The coordinator refuses a span that is too long.
            grace_ms: Number(u32::try_from(self.grace).unwrap_or(u32::MAX)),
            labels: pairs(&self.labels, "label")?,
            url: self.about.clone(),
            mkdir: self.mkdir,
            env: variables(&self.env)?,
            env_file: absolute(&self.env_file),
            run_dir: absolute(&self.files),
            parent: self.parent.clone(),
            records: self.records,
            deferred: self.deferred,
            output_bytes_max: Number(self.output_max.unwrap_or(0)),
            output_kept: kept.unwrap_or_default(),
            ..plain(&self.command, self.allow_secrets, &dir)?
        })
    }

    /// Converts the end of the command to the result of this process, as the function [`outcome`] does.
    fn outcome(&self, record: &Value) -> Result<(), Failure> {
        let name = self.command.first().map(|it| it.to_string_lossy().into_owned());
        outcome(record, &name.unwrap_or_default())
    }
}

/// Returns the launch of a command in a directory. Fails if the command is not UTF-8 or too long, or seems to
/// contain a secret.
pub(crate) fn plain(
    command: &[OsString],
    allow_secrets: bool,
    dir: &Path,
) -> Result<Launch, Failure> {
    let command = command.iter().map(|word| {
        let word = word.to_str();
        word.ok_or_else(|| Failure::usage("the command and its arguments must be UTF-8"))
    });
    let command: Vec<&str> = command.collect::<Result<_, _>>()?;
    fits(&command)?;
    let bytes = command.iter().map(|it| Bytes::new(it.as_bytes()));
    if !allow_secrets && has_secret(&bytes.collect::<Vec<_>>()) {
        return Err(Failure::usage(
            "the arguments seem to contain a secret, and every process can read them",
        )
        .help(
            "pass it in --env-file or in the environment; --allow-secrets runs the command anyway",
        ));
    }
    let command = command.into_iter().map(str::to_owned).collect();
    let dir = shown(dir).map(str::to_owned);
    Ok(Launch { command: List(command), dir, allow_secrets, ..Launch::default() })
}

/// Refuses a command that is too long for a record, with a hint on how to run it anyway.
fn fits(command: &[&str]) -> Result<(), Failure> {
    let bytes: usize = command.iter().map(|it| it.len()).sum();
    let grouped = |number: usize| grouped(number.try_into().unwrap_or(u64::MAX));
    let too_long = if command.len() > Spec::ARGV_MAX {
        let (words, most) = (grouped(command.len()), grouped(Spec::ARGV_MAX));
        format!("the command has {words} words, but the limit is {most}")
    } else if bytes > Spec::BYTES_MAX {
        let (bytes, most) = (grouped(bytes), grouped(Spec::BYTES_MAX));
        format!("the command has {bytes} bytes, but the limit is {most}")
    } else {
        return Ok(());
    };
    Err(Failure::usage(too_long)
        .help("pass the arguments in a file, as in `sexton run -- xargs -a FILE COMMAND`, or on standard input"))
}

/// Parses environment variables, each given as `NAME=VALUE`. Refuses names that suggest a secret, since the values are stored.
pub(crate) fn variables(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let env = pairs(given, "env")?;
    match env.keys().find(|name| is_secret_name(name)) {
        None => Ok(env),
        Some(name) => Err(Failure::usage(format!(
            "--env {name}: the name suggests a secret, and the values of --env are stored"
        ))
        .help("pass it in --env-file, or set it in this environment and run in the foreground")),
    }
}

/// Returns the current directory.
pub(crate) fn here() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir();
    here.map_err(|error| {
        Failure::unreachable(format!("failed to read the current directory: {error}"))
    })
}

/// Returns a directory without trailing slashes; `None` if it is not UTF-8.
fn shown(dir: &Path) -> Option<&str> {
    let dir = dir.to_str()?.trim_end_matches('/');
    Some(if dir.is_empty() { "/" } else { dir })
}

/// The environment variable that contains the id of the calling process's record.
pub(crate) const PARENT: &str = "SEXTON_PROCESS_ID";

/// Launches a command in the background and prints its process id or, with `--json`, its record. Fails if the command could not be
/// started.
pub(crate) fn detached(options: &ClientOptions, asked: &Launch) -> Result<(), Failure> {
    let record = launched(options.act("launch", sexton_api::fields::of(asked))?)?;
    options.tell(&record, |record| words(record, "/id") + "\n")
}

/// Returns the record of a process that was launched; fails if it could not be started.
pub(crate) fn launched(record: Value) -> Result<Value, Failure> {
    if has_ended(&record) && !record.pointer("/failure").is_none_or(Value::is_null) {
        outcome(&record, &words(&record, "/command/0"))?;
    }
    Ok(record)
}

/// Converts the end of a command to the result of this process: an error with the exit status to use, unless that is 0.
pub(crate) fn outcome(record: &Value, name: &str) -> Result<(), Failure> {
    if let Some(found) = record.pointer("/failure").filter(|it| !it.is_null()) {
        let errno = found.pointer("/errno").and_then(Value::as_u64);
        let status = match (found.pointer("/step").and_then(Value::as_str), errno) {
            (Some("exec"), Some(2)) => NOT_FOUND,
            (Some("exec"), _) => NOT_EXECUTABLE,
            (_, _) => NOT_LAUNCHED,
        };
        let failed = Failure::of_command(status, format!("{name}: {}", failure(found)));
        let is_of_limits = found.pointer("/step") == Some(&json!("limits"));
        return Err(if is_of_limits {
            failed.help("the coordinator's hard limits (`ulimit -H`) are lower than this shell's: raise the coordinator's, or lower the shell's")
        } else {
            failed
        });
    }
    if record.pointer("/stopped_by") == Some(&json!("timeout")) {
        tell(&format!("{name}: timed out"));
        return Err(Failure::of_command(124, ""));
    }
    match record.pointer("/code").and_then(Value::as_u64) {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::of_command(u8::try_from(code).unwrap_or(NOT_LAUNCHED), "")),
        None => Err(Failure::of_command(NOT_LAUNCHED, format!("{name}: {}", ending(record)))),
    }
}
