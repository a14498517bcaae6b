//! The problems of a node, as data: what [`crate::handle::Handle::troubles`] finds. The page, `GET /v1/trouble`, the metric
//! `sexton_troubles`, `sexton status` and `sexton top` show this list.

use crate::actors::lock::Name;
use std::borrow::Cow;
use std::fmt;

pub use sexton_api::trouble::Level;

/// Defines [`Kind`]: each kind with its name, level and title.
macro_rules! kinds {
    ($($kind:ident $name:literal $level:ident $title:literal: $doc:literal;)*) => {
        /// The kinds of problems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $doc] $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The name of the kind, for programs. It does not change.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The severity of every problem of the kind.
            pub const fn level(self) -> Level {
                match self { $(Self::$kind => Level::$level,)* }
            }

            /// A title of a few words, for people.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)* }
            }
        }
    };
}

kinds! {
    ActorQuarantined "actor-quarantined" Bad "Quarantined": "Timers of some items caused panics of their actor, and no longer run.";
    DiskFilling "disk-filling" Bad "Disk is filling up": "There is little space left for the journal.";
    SnapshotsFailing "snapshots-failing" Bad "No snapshots": "The last checkpoint failed.";
    JobsAbandoned "jobs-abandoned" Bad "Jobs failed": "Some jobs failed permanently.";
    JobsQuarantined "jobs-quarantined" Bad "Jobs crashed": "Some jobs crashed their workers too often.";
    QueuesFilling "queues-filling" Bad "Filling up": "A limit of the queues is nearly reached.";
    LeaseFailed "lease-failed" Bad "Lease failed": "The last pass of a lease failed.";
    LeaseIncomplete "lease-incomplete" Bad "Lease fails": "The last passes of a lease did not run to completion.";
    TasksFailed "tasks-failed" Bad "Tasks failed": "Some tasks ended without completing their work.";
    ProcessStuck "process-stuck" Bad "Processes stuck": "A process tree that is being stopped does not end.";
    ServiceFailed "service-failed" Bad "Service failed": "A service failed, and will not be restarted automatically.";
    ServiceBackoff "service-backoff" Bad "Service restarts": "A service is not running, and will be restarted after a delay.";
    CommandNotRun "command-not-run" Bad "Command not run": "A service is not running, because a command could not be launched.";
    Draining "draining" Warn "Draining": "Some kinds of new work are refused.";
    ClockInDoubt "clock-in-doubt" Warn "Clock in doubt": "The wall clock is far ahead of the expected time.";
    Configuration "configuration" Warn "Configuration": "The last reload could not apply a setting.";
    JournalCut "journal-cut" Warn "Journal was cut": "Incomplete data at the end of the journal was cut off at startup.";
    SnapshotMended "snapshot-mended" Warn "Snapshot mended": "Something about a snapshot was repaired at startup.";
    ActorRestarted "actor-restarted" Warn "Restarted": "An actor panicked, and was restarted.";
    Memory "memory" Warn "Memory": "Little of the machine's memory is left.";
    Descriptors "descriptors" Warn "Descriptors": "The limit on file descriptors is nearly reached.";
    JobsBuried "jobs-buried" Warn "Jobs buried": "Clients have set jobs aside.";
    JobsRetrying "jobs-retrying" Warn "Jobs failing": "Some jobs failed, and will be retried.";
    LeaseOverruns "lease-overruns" Warn "Lease overruns": "A pass of a lease runs for longer than its period.";
    TasksPaused "tasks-paused" Warn "Tasks paused": "All tasks are paused.";
    ProcessesUnknown "processes-unknown" Warn "Processes unknown": "It is unknown whether some processes are alive.";
    ServiceWaiting "service-waiting" Warn "Service waits": "A service waits for others.";
    ServiceRestarted "service-restarted" Warn "Service restarted": "A service was restarted recently.";
    CommandNotRunBefore "command-not-run-before" Warn "Command not run": "A service ended recently, because a command could not be launched.";
    ClaimFailed "claim-failed" Warn "Claim failed": "The last pass of a lease failed, which a client ran that need not be trusted.";
    ClaimIncomplete "claim-incomplete" Warn "Claim fails": "The last passes of a lease, which such a client ran, did not run to completion.";
    ClaimOverruns "claim-overruns" Warn "Claim overruns": "A pass of a lease, which such a client runs, runs for longer than its period.";
}

impl Kind {
    /// Returns whether any client may cause problems of this kind, as many as it likes. They are listed after all others.
    pub const fn is_of_plain_clients(self) -> bool {
        matches!(self, Self::ClaimFailed | Self::ClaimIncomplete | Self::ClaimOverruns)
    }
}

/// What a problem is about, if users can look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// This many jobs in a phase.
    Jobs(u64, &'static str),
    /// This many failed tasks.
    Tasks(u64),
    /// This many processes that are being stopped.
    Processes(u64),
    /// The process with this id.
    Process(String),
    /// The lease with this name.
    Lease(Name),
    /// The service with this name.
    Service(String),
}

impl Subject {
    /// The name of the lease or service, or the id of the process; `None` for a number of items.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Process(name) | Self::Service(name) => Some(name.into()),
            Self::Lease(name) => Some(name.to_text().into()),
            Self::Jobs(..) | Self::Tasks(_) | Self::Processes(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = crate::text::count;
        match self {
            Self::Jobs(number, _) => out.write_str(&count(*number, "job")),
            Self::Tasks(number) => out.write_str(&count(*number, "task")),
            Self::Processes(number) => out.write_str(&count(*number, "process")),
            Self::Process(name) | Self::Service(name) => out.write_str(name),
            Self::Lease(name) => out.write_str(&name.to_text()),
        }
    }
}

/// A part of the description of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// Text from outside, such as an error of the system or a name that a client chose.
    Quoted(String),
    /// A command to run.
    Command(String),
    /// What the problem is about.
    Subject(Subject),
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Its kind, which determines its level and its title.
    pub kind: Kind,
    /// A description, which says what to do where that is known.
    pub parts: Vec<Part>,
}

impl Trouble {
    pub(crate) const fn new(kind: Kind) -> Self {
        let parts = Vec::new();
        Self { kind, parts }
    }

    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    pub(crate) fn quoted(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Quoted(text.into()));
        self
    }

    pub(crate) fn command(mut self, command: impl Into<String>) -> Self {
        self.parts.push(Part::Command(command.into()));
        self
    }

    pub(crate) fn about(mut self, subject: Subject) -> Self {
        self.parts.push(Part::Subject(subject));
        self
    }

    /// Returns what the problem is about, if users can look at it.
    pub fn subject(&self) -> Option<&Subject> {
        self.parts.iter().find_map(|part| match part {
            Part::Subject(subject) => Some(subject),
            Part::Text(_) | Part::Quoted(_) | Part::Command(_) => None,
        })
    }
}

/// Formats the description as plain text. Control characters from outside are not replaced.
impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) | Part::Quoted(text) => out.write_str(text),
            Part::Command(command) => write!(out, "`{command}`"),
            Part::Subject(subject) => write!(out, "{subject}"),
        })
    }
}
