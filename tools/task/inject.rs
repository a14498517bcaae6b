//! Fault injection: `sexton task add --inject POINT[:KIND]`. The points are those of Acquia's Wip; `docs/tasks.md` describes each.
//!
//! A fault in a task's command or cleanup is caused by this program: the command is launched through `sexton task inject`, which fails
//! in the first attempt and executes the command in all others. All other faults are caused by the coordinator, if its configuration
//! allows that.

use crate::report::Failure;
use crate::task::report;
use clap::{Args, ValueEnum};
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::str::FromStr;

/// The environment variable that holds the number of the attempt, from 1.
const ATTEMPT: &str = "SEXTON_TASK_ATTEMPT";

/// The limit on the address space of a process that fails with [`Kind::Memory`], in bytes.
const MEMORY_BYTES: u64 = 1 << 20;

/// The number of bytes that a process that fails with [`Kind::Memory`] allocates at a time.
const PIECE_BYTES: usize = 1 << 24;

/// The point at which an attempt fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Point {
    BeforeParent,
    WithinParent,
    BeforeChild,
    WithinChild,
    BeforeTask,
    WithinTask,
    AfterTask,
    AfterChild,
    BeforeCleanup,
    WithinCleanup,
    AfterCleanup,
    BeforeThreadCleanup,
    WithinThreadCleanup,
    AfterThreadCleanup,
    AfterParent,
    DropSignal,
}

/// What causes a fault: the coordinator, or the process of the task's command or cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Coordinator,
    Command,
    Cleanup,
}

impl Point {
    const fn maker(self) -> Maker {
        match self {
            Self::WithinChild
            | Self::BeforeTask
            | Self::WithinTask
            | Self::AfterTask
            | Self::AfterChild => Maker::Command,
            Self::WithinCleanup | Self::AfterCleanup => Maker::Cleanup,
            Self::BeforeParent
            | Self::WithinParent
            | Self::BeforeChild
            | Self::BeforeCleanup
            | Self::BeforeThreadCleanup
            | Self::WithinThreadCleanup
            | Self::AfterThreadCleanup
            | Self::AfterParent
            | Self::DropSignal => Maker::Coordinator,
        }
    }

    /// Returns whether this point is before, in or after the cleanup.
    const fn is_of_cleanup(self) -> bool {
        matches!(self, Self::BeforeCleanup | Self::WithinCleanup | Self::AfterCleanup)
    }
}

/// How a process fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Exit,
    Exit0,
    Abort,
    Segv,
    Kill,
    Loop,
    Stop,
    Memory,
}

impl Kind {
    /// Makes this process fail in this way. Returns only for `Exit` and `Exit0`.
    fn fail(self) -> Result<(), Failure> {
        // An injected fault should not leave a core dump. A process may always lower its limits to 0.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        let _ = setrlimit(Resource::Core, none);
        match self {
            Self::Exit => Err(Failure::of_command(1, "")),
            Self::Exit0 => Ok(()),
            Self::Abort => Self::signal_for_ever(Signal::ABORT),
            // The Rust runtime handles the first SIGSEGV itself, and lets the next one through.
            Self::Segv => Self::signal_for_ever(Signal::SEGV),
            Self::Kill => Self::signal_for_ever(Signal::KILL),
            Self::Stop => Self::signal_for_ever(Signal::STOP),
            Self::Loop => loop {
                std::hint::spin_loop();
            },
            Self::Memory => {
                let limit = Rlimit { current: Some(MEMORY_BYTES), maximum: Some(MEMORY_BYTES) };
                // Fails only if the limit is already lower.
                let _ = setrlimit(Resource::As, limit);
                let mut all: Vec<Vec<u8>> = Vec::new();
                loop {
                    all.push(Vec::with_capacity(PIECE_BYTES));
                }
            }
        }
    }

    fn signal_for_ever(signal: Signal) -> ! {
        loop {
            // A process can always signal itself.
            let _ = kill_process(getpid(), signal);
        }
    }
}

/// The fault of a task's first attempt: the point, and the kind if one was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Injection {
    point: Point,
    kind: Option<Kind>,
}

impl FromStr for Injection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (point, kind) = match text.split_once(':') {
            Some((point, kind)) => (point, Some(kind)),
            None => (text, None),
        };
        let point = Point::from_str(point, false)
            .map_err(|_| "unknown point: `sexton task add --help` lists all points")?;
        let kind = kind.map(|kind| Kind::from_str(kind, false)).transpose();
        let kind = kind.map_err(|_| "unknown kind: `sexton task add --help` lists all kinds")?;
        let is_known = match (point.maker(), kind) {
            (Maker::Coordinator, Some(Kind::Kill)) => point == Point::BeforeParent,
            (Maker::Coordinator, Some(_)) => false,
            (Maker::Coordinator, None) | (Maker::Command | Maker::Cleanup, _) => true,
        };
        if !is_known {
            return Err(
                "this point does not take this kind: see `sexton task add --help`".to_owned()
            );
        }
        Ok(Self { point, kind })
    }
}

impl Injection {
    fn words(self) -> String {
        let word = |value: Option<clap::builder::PossibleValue>| {
            value.map(|it| it.get_name().to_owned()).unwrap_or_default()
        };
        let point = word(self.point.to_possible_value());
        match self.kind {
            Some(kind) => format!("{point}:{}", word(kind.to_possible_value())),
            None => point,
        }
    }

    /// Returns the fault as the coordinator names it; `None` if the command or the cleanup causes it.
    pub(super) fn asked(self) -> Option<String> {
        (self.point.maker() == Maker::Coordinator).then(|| self.words())
    }

    /// Checks that a task with a fault in the cleanup has a cleanup.
    pub(super) fn check(self, cleans_up: bool) -> Result<(), Failure> {
        if self.point.is_of_cleanup() && !cleans_up {
            return Err(Failure::usage(format!(
                "--inject {}: the task has no cleanup; add one with --cleanup",
                self.words()
            )));
        }
        Ok(())
    }

    /// Returns the command of a task, wrapped in `sexton task inject` if the command causes this fault.
    pub(super) fn of_command(self, command: &[OsString]) -> Result<Vec<OsString>, Failure> {
        self.wrapped(Maker::Command, command)
    }

    /// Returns the cleanup of a task, wrapped in `sexton task inject` if the cleanup causes this fault.
    pub(super) fn of_cleanup(self, cleanup: &[OsString]) -> Result<Vec<OsString>, Failure> {
        self.wrapped(Maker::Cleanup, cleanup)
    }

    fn wrapped(self, maker: Maker, words: &[OsString]) -> Result<Vec<OsString>, Failure> {
        if self.point.maker() != maker {
            return Ok(words.to_vec());
        }
        let program = std::env::current_exe().map_err(|error| {
            Failure::unreachable(format!("failed to find this program: {error}"))
        })?;
        let own = ["task", "inject", &self.words(), "--"].map(OsString::from);
        let all = std::iter::once(program.into_os_string()).chain(own);
        Ok(all.chain(words.iter().cloned()).collect())
    }
}

/// Fail in the first attempt of a task, as set by `sexton task add --inject`, and run the command in all others
#[derive(Args)]
pub(super) struct Inject {
    /// The point and kind
    #[arg(value_name = "POINT[:KIND]")]
    injection: Injection,

    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Inject {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut words = self.command.iter();
        let mut command = Command::new(words.next().map(OsString::as_os_str).unwrap_or_default());
        command.args(words);
        let failed =
            |error| Failure::of_command(127, format!("failed to run the command: {error}"));
        if std::env::var_os(ATTEMPT).is_none_or(|it| it != "1") {
            return Err(failed(command.exec()));
        }
        // `spawn` returns after the child has executed the program, so a kill after it hits the command itself.
        let begin = |command: &mut Command| command.spawn().map_err(failed);
        let end = |mut child: Child| child.wait().map_err(failed);
        match self.injection.point {
            Point::WithinChild | Point::WithinCleanup => {}
            // An answer shows that the socket and the secret of this attempt work.
            Point::BeforeTask => drop(report::say(&json!({ "do": "saved" }))?),
            Point::WithinTask => {
                let mut child = begin(&mut command)?;
                child.kill().map_err(failed)?;
                end(child)?;
            }
            Point::AfterTask | Point::AfterCleanup => drop(end(begin(&mut command)?)?),
            Point::AfterChild => {
                let body = if end(begin(&mut command)?)?.success() {
                    json!({ "do": "done" })
                } else {
                    json!({ "do": "fail", "message": "its command failed" })
                };
                report::say(&body)?;
            }
            Point::BeforeParent
            | Point::WithinParent
            | Point::BeforeChild
            | Point::BeforeCleanup
            | Point::BeforeThreadCleanup
            | Point::WithinThreadCleanup
            | Point::AfterThreadCleanup
            | Point::AfterParent
            | Point::DropSignal => return Err(failed(command.exec())),
        }
        self.injection.kind.unwrap_or(Kind::Kill).fail()
    }
}

#[cfg(test)]
mod tests {
    use super::{Injection, Point};
    use clap::ValueEnum as _;
    use sexton::node::Fault;

    #[test]
    fn points_and_kinds_are_known_and_no_others() {
        for known in ["before-parent", "before-parent:kill", "within-task", "after-task:exit0"] {
            let injection: Injection = known.parse().expect("the fault is known");
            assert_eq!(injection.words(), known);
        }
        for unknown in [
            "",
            "kill",
            "within-lunch",
            "within-task:",
            "within-task:sleep",
            "drop-signal:kill",
            "before-parent:exit",
            "before-thread-cleanup:segv",
        ] {
            assert!(unknown.parse::<Injection>().is_err(), "{unknown}");
        }
    }

    #[test]
    fn what_the_coordinator_is_asked_it_knows() {
        let points = Point::value_variants().iter();
        let mut asked: Vec<String> =
            points.filter_map(|point| Injection { point: *point, kind: None }.asked()).collect();
        asked.insert(1, "before-parent:kill".to_owned());
        assert_eq!(asked, Fault::ALL.map(|fault| fault.name().to_owned()));
    }
}
