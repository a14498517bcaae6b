//! The program's errors: only this file prints them and chooses exit statuses.
//!
//! Exit statuses: 0 success; 1 a problem was found, or the answer is no; 2 wrong usage; 3 something cannot be read or reached; 4 the
//! coordinator has halted.

use crate::settings::find_unknown_variables;
use crate::text;
use clap::error::ErrorKind;
use serde_json::Value;
use sexton::node::NodeError;
use sexton::persist::PersistError;
use sexton::refusal::{Exit, Reason};
use sexton::spine::guard::guard;
use sexton::spine::recovery::RecoveryError;
use sexton::spine::shared::Halt;
use sexton_http::{OpenError, TlsError, TokenError};
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

/// The advice for a client whose user the socket refuses.
pub(crate) const BOTH_WAYS: &str = "the socket accepts the coordinator's own user and the group of `sexton serve --socket-group`: \
run this as one of them, or connect over TCP with --url and --token-file";

/// The advice for the refusal reasons that mean the same in every command.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::DiskFull,
        "free space on the coordinator's disk (its log says how much is needed); it then continues without a restart",
    ),
    (Reason::Draining, "locks and jobs already held continue; a restart ends the drain"),
    (Reason::Foreign, BOTH_WAYS),
    (
        Reason::Unauthorized,
        "--token-file FILE or SEXTON_TOKEN_FILE names the file with the coordinator's token",
    ),
    (
        Reason::Stopped,
        "`sexton status` shows whether it is back; a command with --wait waits until it is",
    ),
];

/// The advice on a data directory whose damage prevents startup.
const DAMAGED: &str = "`sexton inspect DATA` shows what is intact, `sexton recover DATA --dry-run` what a recovery would lose";

/// The advice on a record whose commit panics, so that startup fails every time.
const DEFECT: &str = "this is a bug in sexton, not a problem with the disk: keep a copy of the directory, and see \
docs/operations.md, \"A panic during recovery\"; `sexton recover DATA --dry-run` shows what would be lost without the record";

/// Why a command failed: an exit status, a message, and what to do.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    status: u8,
    words: String,
    /// Details, printed one per line below the message.
    found: Vec<String>,
    help: Option<String>,
    /// The field of a refused request that the refusal is about.
    field: Option<String>,
    /// Why a request was refused.
    reason: Option<Reason>,
}

/// Returns the `reason` of a refused request, or of a refused part of one. Returns `None` if it is missing or unknown.
pub(crate) fn reason_of(refusal: &Value) -> Option<Reason> {
    Reason::parse(refusal.pointer("/reason")?.as_str()?)
}

/// The exit status of a Rust program that panicked.
const PANICKED: u8 = 101;

impl Failure {
    fn new(status: u8, words: impl Into<String>) -> Self {
        Self {
            status,
            words: words.into(),
            found: Vec::new(),
            help: None,
            field: None,
            reason: None,
        }
    }

    /// Creates the failure of a command that found a problem or got a negative answer.
    pub(crate) fn found(words: impl Into<String>) -> Self {
        Self::new(Exit::No as u8, words)
    }

    /// Creates the failure of a command line that cannot be carried out.
    pub(crate) fn usage(words: impl Into<String>) -> Self {
        Self::new(Exit::Usage as u8, words)
    }

    /// Creates the failure of a command that cannot read or reach something.
    pub(crate) fn unreachable(words: impl Into<String>) -> Self {
        Self::new(Exit::Unreachable as u8, words)
    }

    /// Runs a command that decodes a data directory, and converts a panic to a failure. The message calls every panic a bug, since
    /// not even damaged contents should cause one.
    pub(crate) fn of_panics(run: impl FnOnce() -> Result<(), Self>) -> Result<(), Self> {
        std::panic::set_hook(Box::new(|_| {}));
        guard(run).unwrap_or_else(|words| {
            let words = format!("this is a bug in sexton: {words}");
            Err(Self::new(PANICKED, words))
        })
    }

    /// Creates the failure of a command whose coordinator has halted.
    pub(crate) fn halted(words: impl Into<String>) -> Self {
        Self::new(Exit::Halted as u8, words)
    }

    /// Converts the problem document of a refused request to a failure. `helps` is the command's own advice for some reasons, and
    /// takes precedence over the general advice.
    pub(crate) fn refused(document: &Value, helps: &[(Reason, &'static str)]) -> Self {
        let detail = text::words(document, "/detail");
        let reason = reason_of(document);
        let mut failure = match reason.map(Reason::exit) {
            _ if reason == Some(Reason::Stopped) => {
                Self::unreachable(format!("not done: {detail}"))
            }
            Some(Exit::No) => Self::found(format!("not done: {detail}")),
            Some(Exit::Usage) => Self::usage(format!("not done: {detail}")),
            Some(Exit::Halted) => {
                Self::halted(format!("the coordinator does not answer: {detail}"))
            }
            Some(Exit::Unreachable) | None => {
                Self::unreachable(format!("the coordinator refused: {detail}"))
            }
        };
        let mut helps = helps.iter().chain(HELPS);
        let help = helps.find(|(known, _)| Some(*known) == reason);
        failure.help = help.map(|(_, help)| (*help).to_owned());
        let field = document.pointer("/field").and_then(Value::as_str);
        failure.field = field.map(str::to_owned);
        failure.reason = reason;
        failure
    }

    /// Creates a failure of `sexton beanstalkd`, with the exit status that beanstalkd would use.
    pub(crate) fn of_beanstalkd(status: u8, words: impl Into<String>) -> Self {
        Self::new(status, words)
    }

    /// Creates a failure with an exit status that the command defines, such as that of a command it ran. If `words` is empty,
    /// no message is printed.
    pub(crate) fn of_command(status: u8, words: impl Into<String>) -> Self {
        Self::new(status, words)
    }

    /// Creates a failure with status 0 and no message, for output whose reader has closed the pipe.
    pub(crate) fn quiet() -> Self {
        Self::new(0, "")
    }

    /// Returns the message, for callers that show it among other output and continue.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// Returns the message and the details, joined into one line.
    pub(crate) fn whole(&self) -> String {
        let parts =
            std::iter::once(self.words.as_str()).chain(self.found.iter().map(String::as_str));
        parts.collect::<Vec<_>>().join(" ")
    }

    /// Returns whether this is the refusal of a request because of this field.
    pub(crate) fn is_about(&self, field: &str) -> bool {
        self.field.as_deref() == Some(field)
    }

    /// Returns the advice, if there is any.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns whether the exit status is that of a halted coordinator.
    pub(crate) fn is_halt(&self) -> bool {
        self.status == Exit::Halted as u8
    }

    /// Returns whether this is a refusal of a request for `reason`.
    pub(crate) fn is_refused_as(&self, reason: Reason) -> bool {
        self.reason == Some(reason)
    }

    /// Writes the failure to the log, and returns one with only the exit status, so that nothing is printed.
    pub(crate) fn logged(self) -> Self {
        let words = self.whole();
        let help = self.help.unwrap_or_default();
        tracing::error!(status = self.status, help, "{words}");
        Self::new(self.status, "")
    }

    /// Appends to the message.
    pub(crate) fn explained(mut self, more: &str) -> Self {
        self.words.push_str(more);
        self
    }

    /// Replaces the exit status.
    pub(crate) fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Sets the details, which are printed one per line below the message.
    pub(crate) fn listing(mut self, found: Vec<String>) -> Self {
        self.found = found;
        self
    }

    /// Sets the advice on what to do.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<PersistError> for Failure {
    fn from(error: PersistError) -> Self {
        let failure = Self::unreachable(format!("failed to {error}"));
        match error {
            PersistError::Corrupt { .. } => failure.help(DAMAGED),
            PersistError::Missing { .. }
            | PersistError::Gone { .. }
            | PersistError::Short { .. } => failure.help(
                "put the missing files back; without them, `sexton recover DATA --dry-run` shows what would be lost",
            ),
            PersistError::VersionTooNew { .. } => failure.help("use the sexton that wrote it, or a newer one"),
            PersistError::Held { .. } => failure.help("stop that coordinator, or use another --data directory"),
            PersistError::Io { .. } if error.is_disk_full() => failure.help("free space on the disk, and start again"),
            PersistError::Panicked { .. } => failure.help(DEFECT),
            PersistError::Io { .. } | PersistError::Store { .. } => failure,
        }
    }
}

impl From<RecoveryError> for Failure {
    fn from(error: RecoveryError) -> Self {
        match error {
            RecoveryError::Persist(error) => error.into(),
            RecoveryError::Lost { .. } => Self::unreachable(format!("failed to {error}")).help(DAMAGED),
            RecoveryError::OtherLog { .. } => Self::unreachable(format!("failed to {error}")).help(
                "put back the journal or the snapshots that belong together, from one backup; if the journal is the right one and complete, move the snapshots away",
            ),
            RecoveryError::UnknownActor { .. } | RecoveryError::Undecodable { .. } => {
                Self::unreachable(format!("failed to {error}")).help(
                    "use the sexton that wrote it, or a newer one; `sexton recover DATA --dry-run` shows what is lost without that entry",
                )
            }
            RecoveryError::Panicked { .. } => Self::halted(format!("failed to {error}")).help(DEFECT),
        }
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Persist(error) => error.into(),
            NodeError::Recovery(error) => error.into(),
            NodeError::Config(_) => Self::usage(format!("failed to {error}")),
            NodeError::Listener { ref source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                Self::unreachable(format!("failed to {error}"))
                    .help("another program listens there; use another address, or port 0 for any free port")
            }
            NodeError::Protocol(error) => match error.downcast::<OpenError>() {
                Ok(error) => (*error).into(),
                Err(error) => Self::unreachable(format!("failed to {error}")),
            },
            NodeError::Clock(_) => Self::unreachable(format!("failed to {error}"))
                .help("set the clock, for example with `timedatectl set-time` or `date --set`, and start again"),
            NodeError::Listener { .. } | NodeError::Core(_) => {
                Self::unreachable(format!("failed to {error}"))
            }
            NodeError::Start(_) => Self::halted(format!("failed to {error}")).help(DEFECT),
            NodeError::Halted(halt) => halt.into(),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Token(TokenError::Exposed { ref file, .. })
            | OpenError::Tls(TlsError::Exposed { ref file, .. }) => {
                let words = format!("`chmod 600 {}` makes it private", file.display());
                Self::unreachable(format!("failed to {error}")).help(words)
            }
            // This file may have other tokens, which the advice for a new file would overwrite.
            OpenError::Token(TokenError::Unusable { ref file, .. }) => {
                let words = format!(
                    "correct that line; `(umask 077; head -c 32 /dev/urandom | base64 >> {})` adds a new token",
                    file.display()
                );
                Self::unreachable(format!("failed to {error}")).help(words)
            }
            OpenError::Token(TokenError::Unreadable { ref file, .. } | TokenError::Empty { ref file }) => {
                let file = file.display();
                let words = format!(
                    "`(umask 077; head -c 32 /dev/urandom | base64 > {file})` creates the file with a new token"
                );
                Self::unreachable(format!("failed to {error}")).help(words)
            }
            OpenError::Tls(_) => Self::unreachable(format!("failed to {error}"))
                .help("--tls-cert takes a chain of certificates, the server's own first, and --tls-key its private key, both in PEM"),
            OpenError::Listen { .. } | OpenError::Thread(_) => Self::unreachable(format!("failed to {error}")),
        }
    }
}

impl From<Halt> for Failure {
    fn from(halt: Halt) -> Self {
        let failure = Self::halted(halt.to_string());
        match halt {
            Halt::Journal(error) if error.is_disk_full() => failure.help(
                "the disk is full: free space and start again; everything acknowledged is on disk",
            ),
            Halt::Journal(_)
            | Halt::Panics(_)
            | Halt::Spent(_)
            | Halt::Rebuild(_)
            | Halt::CoreThread(_) => failure.help("see docs/operations.md, \"After a halt\""),
        }
    }
}

/// Converts an error of the argument parser to a failure. Requested help is printed instead and is no failure.
pub(crate) fn command_line(error: &clap::Error) -> Result<(), Failure> {
    if error.exit_code() == 0 {
        return written(error.print());
    }
    let shown = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        tell_help(&shown);
        return Err(Failure::usage(""));
    }
    let words = shown.split("\n\n").next().unwrap_or_default();
    let words = words.strip_prefix("error: ").unwrap_or(words);
    let words: Vec<&str> = words.split_whitespace().collect();
    let failure = Failure::usage(words.join(" "));
    let lines = || shown.lines().map(str::trim);
    // The tip to pass a word that begins with `-` as a value is useless: the word is nearly always a wrong flag.
    let number = |tip: &&str| tip.contains("to pass '-");
    let tip = lines().find_map(|line| line.strip_prefix("tip: ")).filter(|tip| !number(tip));
    let usage = lines().find_map(|line| line.strip_prefix("Usage: "));
    let is_missing = words.iter().any(|word| word.starts_with("<COMMAND>"));
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let separates = |usage: &&str| usage.contains("-- <COMMAND>");
    let has_none = std::env::args_os().all(|word| word != "--");
    Err(match (tip, usage) {
        (_, Some(usage)) if separates(&usage) && has_none && (is_missing || is_unknown) => {
            failure.help(format!("`--` comes before the command: {usage}"))
        }
        (Some(tip), _) => failure.help(tip),
        (None, Some(usage)) => failure.help(format!("usage: {usage}; see --help")),
        (None, None) => failure.help("see --help"),
    })
}

/// Prints the help of a command whose subcommand or argument is missing.
fn tell_help(help: &str) {
    say(help);
}

/// Prints a message for the user to standard error. It may repeat what others wrote, so control characters in it are escaped.
pub(crate) fn tell(words: &str) {
    say(&format!("sexton: {}\n", text::lines(words)));
}

/// Prints a line of a log, in which texts are quoted as in JSON, to standard error. Control characters in them are escaped, which does not
/// change their meaning.
pub(crate) fn log(line: &str) {
    say(&format!("{}\n", text::json(line)));
}

/// Writes to standard error. Errors, such as a full disk or a closed pipe, are ignored.
fn say(text: &str) {
    crate::log::write(text);
}

/// Writes to standard output. On a terminal, control characters are escaped. A closed pipe becomes a failure with
/// status 0 and no message, as for [`written`].
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints an answer as JSON if `json` is true, and otherwise as formatted by `page`.
pub(crate) fn print_answer(
    json: bool,
    body: &Value,
    page: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    if json { print(&format!("{body}\n")) } else { print(&page(body)) }
}

/// Writes bytes that may not be text, such as a command's output, to standard output as [`print`] does.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let all = if out.is_terminal() {
        out.write_all(text::lines(&String::from_utf8_lossy(bytes)).as_bytes())
    } else {
        out.write_all(bytes)
    };
    written(all.and_then(|()| out.flush()))
}

/// Converts the error of a write, such as one to standard output, into a failure. If the reader of a pipe, such as `head`, has closed
/// it, the failure has status 0 and no message.
pub(crate) fn written(written: std::io::Result<()>) -> Result<(), Failure> {
    written.map_err(|error| {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Failure::quiet()
        } else {
            Failure::unreachable(format!("failed to write: {error}"))
        }
    })
}

/// Returns whether long texts in columns are shown whole: they are cut only on a terminal, because programs may need all of them.
pub(crate) fn shows_whole() -> bool {
    !std::io::stdout().is_terminal()
}

/// Returns whether standard error is a terminal and `NO_COLOR` is unset or empty.
pub(crate) fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// Prints the failure of a command, if it failed, and returns the exit status.
pub(crate) fn end(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else {
        return ExitCode::SUCCESS;
    };
    let (bold, plain) = if colours() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    if !failure.words.is_empty() {
        let words = text::plain(&failure.words);
        say(&format!("{bold}sexton:{plain} {words}\n"));
    }
    for found in &failure.found {
        say(&format!("  {}\n", text::plain(found)));
    }
    if let Some(help) = failure.help {
        say(&format!("  {bold}help:{plain} {}\n", text::plain(&help)));
    }
    // A misspelt variable may be the cause.
    for name in find_unknown_variables() {
        let name = text::plain(&name);
        say(&format!("  {bold}help:{plain} {name} in the environment is not a setting\n"));
    }
    ExitCode::from(failure.status)
}
