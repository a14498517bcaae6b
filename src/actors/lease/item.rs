//! The durable state of a lease. Stored in snapshots: see the change rule in `persist/format.rs`.

use crate::actors::binding::{Binding, Exit};
use crate::actors::lock::Name;
use crate::actors::process::Launching;
use crate::clock::{Date, Deadline, Offset, Timestamp};
use crate::ids::{ProcessId, Slot, Token};
use crate::lookup::durable::Plain;
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};
use sexton_api::lease;
use std::sync::Arc;

/// The command of a pass. It may be large, so it is shared rather than copied.
pub type Command = Arc<Launching>;

/// The settings of a lease. An administrator may change them without changing the clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The minimum time between the starts of two passes, in milliseconds.
    pub period_ms: u64,
    /// Whether requests never wait: a pass begins immediately or not at all.
    pub no_delay: bool,
    /// Whether requests are refused.
    pub disabled: bool,
    /// Milliseconds after which a pass is stopped; 0 for no limit.
    pub max_run_ms: u64,
    /// The command for requests without one, and for the schedule.
    pub command: Option<Command>,
    /// Whether one pass makes up for dates of the schedule that were missed.
    pub catches_up: bool,
    /// The path of the log file to which a line is written whenever a pass begins or ends, if there is one.
    pub log: Option<String>,
}

impl Settings {
    /// The default period, in milliseconds, as in Fossil (`BKOFCE_LEASE_TIME`).
    pub const PERIOD_MS: u64 = lease::PERIOD_MS;
    /// The maximum for periods and time limits, in milliseconds: 366 days.
    pub const SPAN_MS_MAX: u64 = lease::SPAN_MS_MAX;
    /// The maximum length of the path of a log file, in bytes.
    pub const LOG_BYTES_MAX: usize = 4096;
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period_ms: Self::PERIOD_MS,
            no_delay: false,
            disabled: false,
            max_run_ms: 0,
            command: None,
            catches_up: false,
            log: None,
        }
    }
}

/// A setting that an administrator changes, with its new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// The minimum time between the starts of two passes, in milliseconds.
    Period(u64),
    /// Whether requests never wait.
    NoDelay(bool),
    /// Whether requests are refused.
    Disabled(bool),
    /// Milliseconds after which a pass is stopped; 0 for no limit.
    MaxRun(u64),
    /// The command for requests without one, and for the schedule; `None` to remove it.
    Command(Option<Command>),
    /// The schedule on which passes are requested; `None` to remove it.
    Schedule(Option<Schedule>),
    /// Whether one pass makes up for dates of the schedule that were missed.
    CatchesUp(bool),
    /// The path of the log file of passes; `None` to remove it.
    Log(Option<String>),
}

impl Setting {
    /// Returns the name of the setting.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Period(_) => "period",
            Self::NoDelay(_) => "no-delay",
            Self::Disabled(_) => "disabled",
            Self::MaxRun(_) => "max-run",
            Self::Command(_) => "command",
            Self::Schedule(_) => "schedule",
            Self::CatchesUp(_) => "catch-up",
            Self::Log(_) => "logfile",
        }
    }
}

/// A lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// The name of the lease.
    pub name: Name,
    /// The settings.
    pub settings: Settings,
    /// The number of the latest pass, that is, the number of passes that have begun.
    pub begun: u64,
    /// The number of the latest whole pass, or 0 if there has been none. A pass is whole if it ran to its end, or if it was stopped because
    /// it ran too long.
    pub whole: u64,
    /// The lowest number that a whole pass must have for all requests so far to be served.
    pub wanted: u64,
    /// The number of consecutive passes that were not whole.
    pub broken: u32,
    /// The latest pass.
    pub current: Option<Current>,
    /// The request whose pass is next.
    pub next: Option<NextRequest>,
    /// The command to run, with its period in milliseconds, when a pass is owed but no request is next; `None` for the command in the
    /// settings.
    pub command: Option<(Command, u64)>,
    /// The schedule on which passes are requested, if there is one.
    pub schedule: Option<Schedule>,
    /// The slot of the schedule's next date.
    pub due: Option<Slot>,
    /// Whether the lease will be deleted when the running pass has ended.
    pub leaves: bool,
    /// Whether no pass begins until the server is restarted, because it is draining.
    pub rests: bool,
    /// The log file for passes that run `command`, if the request that brought the command named one.
    pub log: Option<String>,
    /// See [`Extra`].
    #[serde(skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// What few leases have. Not stored if there is none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extra {
    /// The time limit, in milliseconds, of passes that run `command`, if the request that brought the command named one; 0 for no limit.
    pub max_run_ms: Option<u64>,
    /// The dates of the schedule that were missed last.
    pub missed: Option<Missed>,
}

impl Extra {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Dates of a schedule that came and went without a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// The first of them.
    pub first: Date,
    /// When this was noticed. Later dates are not missed.
    pub noticed: Date,
    /// Whether the server was down at the first of them; otherwise the clock was set forward, or the machine was suspended.
    pub down: bool,
}

impl Missed {
    /// Returns the stable word for why the dates were missed, for use by programs.
    pub const fn cause(&self) -> &'static str {
        if self.down { "down" } else { "clock" }
    }
}

/// The latest pass. Kept after its end, since its period may not be over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// The fencing token: the number of the journal entry that began the pass.
    pub token: Token,
    /// The sequence number of the journal entry of the request that the pass is for; 0 if it is for no particular request.
    pub place: Token,
    /// The holder of the pass.
    pub holder: Holder,
    /// The PID of a client that runs the pass itself; 0 if unknown, or if a command was launched.
    pub pid: u64,
    /// When the pass began: when it was granted or, once the process of its command has started, when that was reported.
    pub since: Timestamp,
    /// The last instant of the period: no other pass may begin up to and including it.
    pub until: Timestamp,
    /// How the pass ended; `None` while it is running.
    pub end: Option<End>,
    /// Whether the pass is being stopped, because it ran too long or the lease is being reset.
    pub stopping: bool,
    /// How many times a warning that the pass overruns its period has been issued.
    pub warnings: u32,
    /// The path of the log file to which the beginning and the end of the pass are written, if there is one.
    #[serde(default)]
    pub log: Option<String>,
    /// See [`Progress`].
    #[serde(default, skip_serializing_if = "Progress::is_empty")]
    pub progress: Progress,
}

/// The part of a pass that is not stored if it has its default value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Whether the process of the command is known to have started. `since` and `until` of the pass are counted from then.
    pub started: bool,
    /// The time limit of the pass in milliseconds, if its request named one; 0 for no limit.
    pub max_run_ms: Option<u64>,
}

impl Progress {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When and how a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When the pass ended.
    pub at: Timestamp,
    /// How the process ended, or the exit status that the client reported; `None` if neither is known.
    pub exit: Option<Exit>,
    /// Whether the pass was whole; see [`Lease::whole`].
    pub whole: bool,
}

impl End {
    /// Returns whether the pass failed: it did not exit with 0. A pass of whose end nothing is known, because it was imported or withdrawn
    /// before anybody ran it, has not failed.
    pub const fn is_failure(&self) -> bool {
        !matches!(self.exit, None | Some(Exit::Code(0)))
    }
}

/// The holder of a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// A command that was launched for the pass, with all processes that it starts.
    Launched {
        /// The id of the process record.
        process: ProcessId,
        command: Command,
        /// Whether the `ProcessActor` has accepted the launch.
        taken: bool,
    },
    /// The process of a client that runs the pass itself.
    Process(Binding),
    /// A client without a process that runs the pass itself and renews it.
    Timed {
        /// The maximum time between two renewals, in milliseconds.
        ttl_ms: u64,
        /// When the client last renewed the pass.
        renewed: Timestamp,
    },
    /// No holder: the pass was imported after its process had ended.
    Nobody,
}

impl Holder {
    /// Returns the process that the pass depends on, if it depends on one.
    pub const fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Launched { process, .. } => Some(*process),
            Self::Process(binding) => Some(binding.process),
            Self::Timed { .. } | Self::Nobody => None,
        }
    }
}

/// The request that is next: its pass may begin when the latest pass has ended and the period of that pass is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextRequest {
    /// The sequence number of the journal entry of the request; 0 if there is no particular request.
    pub token: Token,
    /// The command to run; `None` if the client runs the pass itself.
    pub command: Option<Command>,
    /// The process of the client.
    pub process: Option<Binding>,
    /// The PID of the client; 0 if unknown.
    pub pid: u64,
    /// The minimum time from the start of this pass to the start of the next, in milliseconds.
    pub period_ms: u64,
    /// The maximum time between two renewals by a client without a process, in milliseconds.
    pub ttl_ms: u64,
    /// Whether the client waits on a connection, so that it can be notified when its turn comes.
    pub connected: bool,
    /// When the request expires unless the client repeats it. Applies only if there is no command and the client does not wait on a
    /// connection.
    pub until: Timestamp,
    /// Whether other requests rely on the pass too. The pass is then owed even if this request is withdrawn.
    #[serde(default)]
    pub shared: bool,
    /// The log file of the pass, if the request named one.
    #[serde(default)]
    pub log: Option<String>,
    /// The time limit of the pass in milliseconds, if the request named one; 0 for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_ms: Option<u64>,
}

impl NextRequest {
    /// Returns whether the request still counts as next at `now`: it has a command, its client waits on a connection, or its client has a
    /// process and the request has not expired.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.command.is_some() || self.connected || self.process.is_some() && self.until >= now
    }

    /// Returns whether the pass begins as soon as the lease is free. Otherwise the client must repeat its request then.
    pub const fn takes_turn(&self) -> bool {
        self.command.is_some() || self.connected
    }
}

impl Current {
    /// Returns whether the pass is running, that is, whether its end has not been recorded.
    pub const fn runs(&self) -> bool {
        self.end.is_none()
    }

    /// Returns whether the holder is a client that may neither start nor end processes.
    pub const fn is_of_plain_client(&self) -> bool {
        matches!(self.holder, Holder::Timed { .. })
    }

    /// Returns whether a client runs the pass itself.
    pub const fn is_run_by_client(&self) -> bool {
        matches!(self.holder, Holder::Process(_) | Holder::Timed { .. })
    }

    /// Returns whether the command is being launched, so that its process may not have a record yet.
    pub const fn is_launching(&self) -> bool {
        self.runs() && matches!(self.holder, Holder::Launched { taken: false, .. })
    }

    /// Returns when a client without a process is considered dead unless it renews the pass: `ttl_ms` after its last renewal or after
    /// `epoch` (the latest startup of the server), whichever is later. `None` for other holders.
    pub fn lost_at(&self, epoch: Timestamp) -> Option<Timestamp> {
        match &self.holder {
            Holder::Timed { ttl_ms, renewed } => Some((*renewed).max(epoch).plus_ms(*ttl_ms)),
            Holder::Launched { .. } | Holder::Process(_) | Holder::Nobody => None,
        }
    }

    /// Returns the time of the next warning that the pass overruns its period: 30 s after the end of the period, then 60 s, 120 s and so
    /// on, each counted from the end of the period.
    pub(super) fn warns_at(&self) -> Timestamp {
        let doubled = 30_000_u64.saturating_mul(1 << self.warnings.min(40));
        self.until.plus_ms(doubled)
    }
}

impl Lease {
    /// Returns the size of its texts in bytes: its name, commands and log files. A command that is kept in several places counts each time.
    pub(super) fn bytes(&self) -> u64 {
        let launched = self.current.as_ref().and_then(|it| match &it.holder {
            Holder::Launched { command, .. } => Some(command),
            Holder::Process(_) | Holder::Timed { .. } | Holder::Nobody => None,
        });
        let next = self.next.as_ref();
        let commands = [
            self.settings.command.as_ref(),
            self.command.as_ref().map(|(command, _)| command),
            next.and_then(|it| it.command.as_ref()),
            launched,
        ];
        let commands = commands.into_iter().flatten().map(|it| it.bytes());
        let next = next.and_then(|it| it.log.as_ref());
        let logs = [self.settings.log.as_ref(), self.log.as_ref(), next];
        let logs = logs.into_iter().flatten().map(String::len);
        commands.sum::<u64>() + (self.name.as_bytes().len() + logs.sum::<usize>()) as u64
    }

    /// The number of consecutive passes that are not whole after which owed passes are given up.
    pub const BROKEN_MAX: u32 = 25;

    /// Returns the latest pass if it is running.
    pub fn running(&self) -> Option<&Current> {
        self.current.as_ref().filter(|it| it.runs())
    }

    /// Returns whether the coordinator launches commands for the lease: it or one of its requests has a command, or the latest pass was
    /// launched.
    pub fn launches(&self) -> bool {
        let current = self.current.as_ref();
        let was_launched = current.is_some_and(|it| matches!(it.holder, Holder::Launched { .. }));
        let next = self.next.as_ref();
        was_launched
            || self.owed_command().is_some()
            || self.schedule.is_some()
            || next.is_some_and(|it| it.command.is_some())
    }

    /// Returns whether it has settings that are not the default ones.
    pub fn is_set(&self) -> bool {
        self.schedule.is_some() || self.settings != Settings::default()
    }

    /// Returns whether any client may have claimed the latest pass, and decided how it went: nothing is launched for the lease, and the pass
    /// depends on no process.
    pub fn is_of_plain_client(&self) -> bool {
        !self.launches() && self.current.as_ref().is_some_and(Current::is_of_plain_client)
    }

    /// Returns how the latest pass failed; `None` if it is still running or did not fail, or if there has been no pass.
    pub fn failure(&self) -> Option<End> {
        let end = self.current.as_ref()?.end;
        end.filter(End::is_failure)
    }

    /// Returns the command to run if a whole pass is owed and no request is next, with its period in milliseconds; `None` if there is no
    /// command.
    pub fn owed_command(&self) -> Option<(&Command, u64)> {
        let own = self.command.as_ref().map(|(command, period_ms)| (command, *period_ms));
        let set = self.settings.command.as_ref();
        own.or_else(|| set.map(|command| (command, self.settings.period_ms)))
    }

    /// Returns whether there are requests that no whole pass has served yet. Always false while the lease is disabled.
    pub const fn is_owed(&self) -> bool {
        self.wanted > self.whole && !self.settings.disabled
    }

    /// Returns whether the next request must be marked as shared when the running pass has ended without being whole, because requests that
    /// the running pass was for then rely on the next pass. False if that request is marked already.
    pub(super) fn is_inherited(&self) -> bool {
        let is_owed = self.wanted.min(self.begun) > self.whole;
        is_owed && self.next.as_ref().is_some_and(|it| !it.shared)
    }

    /// Returns the number of the latest pass that needs no repetition: the running one or, if none is running, the latest whole one.
    pub(super) fn last_settled(&self) -> u64 {
        if self.running().is_some() { self.begun } else { self.whole }
    }

    /// Returns whether a pass is running, requested, owed or scheduled.
    pub const fn is_active(&self) -> bool {
        let runs = matches!(&self.current, Some(current) if current.runs());
        runs || self.next.is_some() || self.is_owed() || self.due.is_some()
    }

    /// Returns the end of the latest pass's period; zero if there has been no pass.
    pub fn until(&self) -> Timestamp {
        self.current.as_ref().map_or(Timestamp(0), |it| it.until)
    }

    /// Returns the earliest time at which the period of the latest pass allows another pass to begin; zero if there has been no pass.
    pub fn free_at(&self) -> Timestamp {
        let current = self.current.as_ref();
        current.map_or(Timestamp(0), |it| it.until.plus_ms(1))
    }

    /// Returns whether another pass begins, without a further request, once the running pass and its period are over.
    pub fn has_next_pass(&self) -> bool {
        let place = self.next.as_ref();
        let is_kept = self.owed_command().is_some();
        !self.rests && place.map_or(self.is_owed() && is_kept, NextRequest::takes_turn)
    }

    /// Returns when the next request expires unless its client repeats it; `None` if no request is next, or if it does not expire.
    pub fn lapses_at(&self) -> Option<Timestamp> {
        let place = self.next.as_ref().filter(|it| !it.takes_turn());
        place.map(|place| place.until.plus_ms(1))
    }

    /// Returns when the running pass exceeds its time limit; `None` if it has no limit, or if it is being stopped already.
    pub fn stops_at(&self, current: &Current) -> Option<Timestamp> {
        let own = current.progress.max_run_ms;
        let max = own.unwrap_or(self.settings.max_run_ms);
        (max > 0 && !current.stopping).then(|| current.since.plus_ms(max))
    }

    /// Returns the next deadline of the running pass; `None` if no pass is running.
    fn pass_acts_at(&self, epoch: Timestamp) -> Option<Timestamp> {
        let current = self.running()?;
        let lost = current.lost_at(epoch);
        let all = [lost, self.stops_at(current), Some(current.warns_at())];
        all.into_iter().flatten().min()
    }
}

impl Plain for Lease {
    const KIND: u8 = 0;
    const SLOTS: u32 = 8;

    fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
        let begins = (self.running().is_none() && self.has_next_pass()).then(|| self.free_at());
        let all = [begins, self.lapses_at(), self.pass_acts_at(epoch)];
        all.into_iter().flatten().min().map(Deadline::Time)
    }
}

/// The next date of a lease's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// The slot of the lease.
    pub lease: Slot,
    /// The date on which a pass is requested.
    pub at: Date,
    /// The clock by which the date was determined; `None` if an older version determined it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockReading>,
}

/// The wall clock when the next date of a schedule was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The wall clock minus node time.
    pub offset: Offset,
    /// The date up to which the schedule's dates have come. Later than what the clock showed if the clock was set back.
    pub seen: Date,
}

impl ClockReading {
    /// The change of the wall clock's offset, in milliseconds, from which on schedules follow it.
    pub const STEP_MS: u64 = 60_000;

    /// Returns whether the wall clock, whose offset was `read` at the last reading, has stepped since then. True if there was no reading.
    pub fn differs(read: Option<Offset>, offset: Offset) -> bool {
        read.is_none_or(|it| it.0.abs_diff(offset.0) >= Self::STEP_MS)
    }
}

impl Plain for Due {
    const KIND: u8 = 2;
    const SLOTS: u32 = 64;

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        Some(Deadline::Date(self.at))
    }
}

/// Totals over all leases. Not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The number of running passes.
    pub running: u64,
    /// The number of leases with a waiting request, that is, one that is next.
    pub waiting: u64,
}
