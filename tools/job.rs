//! `sexton job`: lets a command started by `sexton work` report on its job.
//!
//! Connects to the process that launched the command, using the socket and the secret in its environment; see
//! `docs/protocols/work.md`, "Reports".

use crate::report::Failure;
use crate::span::{SPAN, delay};
use crate::work::{ADDRESS, SECRET, TIMEOUT};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sexton::kernel::socket;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

/// Report on the job that this command works on, from within `sexton work`.
#[derive(Args)]
#[command(after_help = "\
Examples, in a script that `sexton work` runs:
  sexton job progress 40 'page 2 of 5'           shown with the job until it is claimed again
  sexton job touch                               restart the time limit of --timeout
  sexton job snooze 10m 'the server is down'; exit 1
  sexton job fail --retry-after 1h 'no such user'; exit 1

`fail` and `snooze` take effect when the command and everything it started have ended, regardless of its exit status. The last \
report counts. One that is not delivered (status 3) has no effect, and the exit status of the command decides: end it with one \
other than 0.

Exit status: 0 success; 1 refused: the claim is lost; 2 wrong flags, or not run by `sexton work`; 3 not delivered: `sexton work` \
has exited or does not answer.")]
pub(crate) struct Job {
    #[command(subcommand)]
    what: JobCommand,

    /// Where to send reports; set by `sexton work`
    #[arg(long, env = ADDRESS, hide = true, global = true)]
    address: Option<String>,
}

#[derive(Subcommand)]
enum JobCommand {
    /// Report the job's progress
    Progress {
        /// How much is done, in percent
        #[arg(value_parser = clap::value_parser!(u8).range(..=100))]
        percent: u8,
        /// The current step; of more than 1,000 bytes, the beginning and the end are kept
        text: Option<String>,
    },
    /// Report that the job is still being worked on
    Touch,
    /// Make the job fail when the command has ended
    Fail {
        /// What went wrong, shown with the job; of more than 1,000 bytes, the beginning and the end are kept
        #[arg(allow_hyphen_values = true)]
        error: String,
        /// How long until the next attempt [default: as set for its type]
        #[arg(long, value_name = SPAN, value_parser = delay)]
        retry_after: Option<u64>,
    },
    /// Put the job back when the command has ended, to be claimed later; this does not count as an attempt
    Snooze {
        /// How long to wait
        #[arg(value_name = SPAN, value_parser = delay)]
        after: u64,
        /// Why, shown with the job; of more than 1,000 bytes, the beginning and the end are kept
        #[arg(allow_hyphen_values = true)]
        why: Option<String>,
    },
}

impl Job {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let report = match self.what {
            JobCommand::Progress { percent, text } => {
                json!({ "do": "progress", "percent": percent, "text": text })
            }
            JobCommand::Touch => json!({ "do": "touch" }),
            JobCommand::Fail { error, retry_after } => {
                json!({ "do": "fail", "error": error, "retry_after_ms": retry_after })
            }
            JobCommand::Snooze { after, why } => {
                json!({ "do": "snooze", "after_ms": after, "error": why.unwrap_or_default() })
            }
        };
        let secret = std::env::var_os(SECRET).and_then(|it| it.into_string().ok());
        let (Some(address), Some(secret)) = (self.address, secret) else {
            return Err(Failure::usage(
                "this command was not started by `sexton work`, so it has no job",
            )
            .help("outside `sexton work`, use `sexton queue` with the token of the claim"));
        };
        let request = json!({ "secret": secret, "report": report });
        let failed = |error: std::io::Error| {
            Failure::unreachable(format!("failed to report to `sexton work`: {error}"))
        };
        let answer = ask(&address, &format!("{request}\n")).map_err(failed)?;
        let body: Value = serde_json::from_str(&answer).unwrap_or_default();
        match body.pointer("/error").and_then(Value::as_str) {
            _ if body.pointer("/ok") == Some(&true.into()) => Ok(()),
            Some(error) => Err(Failure::found(error)),
            None => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn ask(address: &str, request: &str) -> std::io::Result<String> {
    let name = address.strip_prefix('@').unwrap_or(address);
    let stream = socket::connect_to_own_name(name.as_bytes(), TIMEOUT)?;
    exchange(stream, request)
}

/// Sends one line and returns the line received in answer, which is empty if the connection is closed without one.
pub(crate) fn exchange(mut stream: UnixStream, request: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}
