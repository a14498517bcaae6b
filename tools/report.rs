//! How the program ends: the one place that renders errors and picks exit statuses.
//!
//! 0 success; 1 found a problem, or the answer is no; 2 usage; 3 cannot read or reach; 4 halted.

use crate::settings::strange_variables;
use crate::text;
use clap::error::ErrorKind;
use serde_json::Value;
use sexton::node::NodeError;
use sexton::persist::PersistError;
use sexton::protocols::http::TlsError;
use sexton::refusal::{Exit, Reason};
use sexton::spine::guard::guard;
use sexton::spine::recovery::RecoveryError;
use sexton::spine::shared::Halt;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

/// Who is not heard at the socket may ask otherwise.
pub(crate) const BOTH_WAYS: &str = "the socket answers the coordinator's own user, and the group of `sexton serve --socket-group`: \
ask as one of them, or over TCP with --url and --token-file";

/// What to do about reasons that mean the same to every command.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::DiskFull,
        "free space on the coordinator's disk, whose log says how much it takes; it goes on by itself",
    ),
    (
        Reason::Draining,
        "what is there goes on; a start ends the drain",
    ),
    (Reason::Foreign, BOTH_WAYS),
    (
        Reason::Unauthorized,
        "--token-file FILE or SEXTON_TOKEN_FILE names the file that has the coordinator's token",
    ),
    (
        Reason::Stopped,
        "`sexton status` says whether it is there again; a command with --wait waits for that, too",
    ),
];

/// What to do about a directory that a start refuses.
const DAMAGED: &str = "`sexton inspect DATA` says what is whole, `sexton recover DATA --dry-run` what would be lost without the rest";

/// What to do about an entry that panics whenever it is committed.
const DEFECT: &str = "this is a defect of sexton, not of the disk: keep a copy of the directory, and see \
docs/operations.md, \"A panic during recovery\"; `sexton recover DATA --dry-run` says what would be lost without the entry";

/// Why a command did not end well.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    status: u8,
    words: String,
    /// What was found, each a line of its own below the words.
    found: Vec<String>,
    help: Option<String>,
}

/// The reason that a refusal gives, of a request or of a part of one.
pub(crate) fn reason_of(refusal: &Value) -> Option<Reason> {
    Reason::parse(refusal.pointer("/reason")?.as_str()?)
}

/// The exit status of a program of Rust that panicked.
const PANICKED: u8 = 101;

impl Failure {
    fn new(status: u8, words: impl Into<String>) -> Self {
        Self {
            status,
            words: words.into(),
            found: Vec::new(),
            help: None,
        }
    }

    /// The answer is no, or a problem was found.
    pub(crate) fn found(words: impl Into<String>) -> Self {
        Self::new(Exit::No as u8, words)
    }

    /// The command line cannot be carried out.
    pub(crate) fn usage(words: impl Into<String>) -> Self {
        Self::new(Exit::Usage as u8, words)
    }

    /// Something cannot be read or reached.
    pub(crate) fn unreachable(words: impl Into<String>) -> Self {
        Self::new(Exit::Unreachable as u8, words)
    }

    /// Runs what looks into a log. A machine that panics about what stands there is a finding, in words; a panic of our
    /// own has words, too.
    pub(crate) fn of_panics(run: impl FnOnce() -> Result<(), Self>) -> Result<(), Self> {
        std::panic::set_hook(Box::new(|_| {}));
        guard(run).unwrap_or_else(|words| {
            let words = format!("this is a fault of sexton: {words}");
            Err(Self::new(PANICKED, words))
        })
    }

    /// The node halted.
    pub(crate) fn halted(words: impl Into<String>) -> Self {
        Self::new(Exit::Halted as u8, words)
    }

    /// What a coordinator refused, from its problem document. `helps` says what to do about reasons that mean something of
    /// their own to the command.
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
        failure
    }

    /// An end of the program in beanstalkd's place, with the exit status that beanstalkd has for it.
    pub(crate) fn of_beanstalkd(status: u8, words: impl Into<String>) -> Self {
        Self::new(status, words)
    }

    /// An end with the status of another command; without words, its own words were enough.
    pub(crate) fn of_command(status: u8, words: impl Into<String>) -> Self {
        Self::new(status, words)
    }

    /// Nobody is listening any more.
    pub(crate) fn quiet() -> Self {
        Self::new(0, "")
    }

    /// What went wrong, for who shows it beside other things and goes on.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// The same with all that was found, in one line.
    pub(crate) fn whole(&self) -> String {
        let parts =
            std::iter::once(self.words.as_str()).chain(self.found.iter().map(String::as_str));
        parts.collect::<Vec<_>>().join(" ")
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Whether the coordinator is there and says that it cannot go on.
    pub(crate) fn is_halt(&self) -> bool {
        self.status == Exit::Halted as u8
    }

    /// The same as a line of the log, for those who read nothing else; nothing is printed beside it.
    pub(crate) fn logged(self) -> Self {
        let words = self.whole();
        let help = self.help.unwrap_or_default();
        tracing::error!(status = self.status, help, "{words}");
        Self::new(self.status, "")
    }

    /// Says what was found, a line each.
    pub(crate) fn listing(mut self, found: Vec<String>) -> Self {
        self.found = found;
        self
    }

    /// Says what to do about it.
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
                "put the missing files back; without them, `sexton recover DATA --dry-run` says what would be lost",
            ),
            PersistError::VersionTooNew { .. } => failure.help("use the sexton that wrote it, or a newer one"),
            PersistError::Held { .. } => failure.help("stop that coordinator, or give this one another --data directory"),
            PersistError::Io { .. } if error.is_disk_full() => failure.help("free space on the disk, and start again"),
            PersistError::Io { .. } | PersistError::Store { .. } => failure,
        }
    }
}

impl From<RecoveryError> for Failure {
    fn from(error: RecoveryError) -> Self {
        match error {
            RecoveryError::Persist(error) => error.into(),
            RecoveryError::Lost { .. } => Self::unreachable(format!("failed to {error}")).help(DAMAGED),
            RecoveryError::UnknownActor { .. } | RecoveryError::Undecodable { .. } => {
                Self::unreachable(format!("failed to {error}")).help(
                    "use the sexton that wrote it, or a newer one; `sexton recover DATA --dry-run` says what would be lost without it",
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
            NodeError::Door { ref source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                Self::unreachable(format!("failed to {error}"))
                    .help("another program listens there; give the door another address, or port 0 to pick one")
            }
            NodeError::Token(_) => Self::unreachable(format!("failed to {error}")).help(
                "make one: `(umask 077; head -c 32 /dev/urandom | base64 > FILE)`; `chmod 600 FILE` closes it to others",
            ),
            NodeError::Tls(TlsError::Exposed { ref file, .. }) => {
                let words = format!("`chmod 600 {}` closes it to others", file.display());
                Self::unreachable(format!("failed to {error}")).help(words)
            }
            NodeError::Tls(_) => Self::unreachable(format!("failed to {error}"))
                .help("--tls-cert takes a chain of certificates, our own first, and --tls-key its private key, both in PEM"),
            NodeError::Clock(_) => Self::unreachable(format!("failed to {error}"))
                .help("set it, as by `timedatectl set-time` or `date --set`, and start again"),
            NodeError::Hosts(_) | NodeError::Door { .. } | NodeError::Core(_) => {
                Self::unreachable(format!("failed to {error}"))
            }
            NodeError::Start(_) => Self::halted(format!("failed to {error}")).help(DEFECT),
            NodeError::Halted(halt) => halt.into(),
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
            | Halt::CoreThread(_) => {
                failure.help("docs/operations.md, \"After a halt\", says what to do")
            }
        }
    }
}

/// What is wrong with a command line, in the form of every other error; or the help that was asked for.
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
    // To take what looks like a negative number for a value is no help: none of ours is.
    let number = |tip: &&str| tip.contains("to pass '-");
    let tip = lines()
        .find_map(|line| line.strip_prefix("tip: "))
        .filter(|tip| !number(tip));
    let usage = lines().find_map(|line| line.strip_prefix("Usage: "));
    Err(match (tip, usage) {
        (Some(tip), _) => failure.help(tip),
        (None, Some(usage)) => failure.help(format!("usage: {usage}; --help says more")),
        (None, None) => failure.help("--help says what there is"),
    })
}

/// The help of a command that lacks a word.
fn tell_help(help: &str) {
    say(help);
}

/// A remark beside the output.
pub(crate) fn tell(words: &str) {
    say(&format!("sexton: {words}\n"));
}

/// Writes a line of a log beside the output, as it is.
pub(crate) fn log(line: &str) {
    say(&format!("{line}\n"));
}

/// Writes to standard error. What nobody takes there, a full disk or a reader that has gone, is lost, and nothing else is.
fn say(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}

/// Writes to standard output; a reader that has gone is no failure. What could steer a terminal is escaped on one.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints an answer as it is (`json`), or as people read it.
pub(crate) fn print_said(
    json: bool,
    said: &Value,
    page: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    if json {
        print(&format!("{said}\n"))
    } else {
        print(&page(said))
    }
}

/// Writes bytes that somebody else made up to standard output, as [`print`] does.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let all = if out.is_terminal() {
        out.write_all(text::lines(&String::from_utf8_lossy(bytes)).as_bytes())
    } else {
        out.write_all(bytes)
    };
    written(all.and_then(|()| out.flush()))
}

/// What came of writing to standard output or a file. A reader that has seen enough, such as `head`, is no failure
/// worth words.
pub(crate) fn written(written: std::io::Result<()>) -> Result<(), Failure> {
    written.map_err(|error| {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Failure::quiet()
        } else {
            Failure::unreachable(format!("failed to write: {error}"))
        }
    })
}

/// Whether standard error is a person's terminal that wants colours.
pub(crate) fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// Prints what went wrong, and gives the exit status.
pub(crate) fn end(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else {
        return ExitCode::SUCCESS;
    };
    let (bold, plain) = if colours() {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
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
    // One that is misspelt may be why.
    for name in strange_variables() {
        let name = text::plain(&name);
        say(&format!(
            "  {bold}help:{plain} the environment has {name}, which is no setting\n"
        ));
    }
    ExitCode::from(failure.status)
}
