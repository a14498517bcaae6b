//! What is known of a lease. Stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::{Binding, Exit};
use crate::actors::lock::Name;
use crate::actors::process::Launching;
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{ProcessId, Slot, Token};
use crate::lookup::kept::Plain;
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is run for a pass, shared by all that keeps it.
pub type Command = Arc<Launching>;

/// What an administrator sets, without touching those who ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Milliseconds between the starts of two passes, at the least.
    pub period_ms: u64,
    /// Whether requests never wait: they run at once or not at all.
    pub no_delay: bool,
    /// Whether requests are refused.
    pub disabled: bool,
    /// Milliseconds after which a pass is stopped; 0 for never.
    pub max_run_ms: u64,
    /// What runs when somebody asks who brings no command, and on the schedule.
    pub command: Option<Command>,
    /// Whether a date of the schedule that was missed is made up for, once.
    pub catches_up: bool,
    /// The file that has a line for each pass as it begins and as it ends.
    pub log: Option<String>,
}

impl Settings {
    /// Fossil's: `BKOFCE_LEASE_TIME`.
    pub const PERIOD_MS: u64 = 60_000;
    /// The longest period and the longest pass: 366 days.
    pub const SPAN_MS_MAX: u64 = 366 * 24 * 3_600_000;
    /// The longest path of a log file, in bytes.
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

/// What an administrator sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Milliseconds between the starts of two passes.
    Period(u64),
    /// Whether requests never wait.
    NoDelay(bool),
    /// Whether requests are refused.
    Disabled(bool),
    /// Milliseconds after which a pass is stopped; 0 for never.
    MaxRun(u64),
    /// What runs when nobody brings a command; `None` for nothing.
    Command(Option<Command>),
    /// When it asks by itself; `None` for never.
    Schedule(Option<Schedule>),
    /// Whether a date of the schedule that was missed is made up for, once.
    CatchesUp(bool),
    /// The file that has a line for each pass as it begins and as it ends; `None` for none.
    Log(Option<String>),
}

impl Setting {
    /// The word for it.
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
    /// Its name.
    pub name: Name,
    /// What is set.
    pub settings: Settings,
    /// The number of the newest pass: how many have begun.
    pub begun: u64,
    /// The number of the newest whole pass.
    pub whole: u64,
    /// A whole pass of this number or a later one was asked for.
    pub wanted: u64,
    /// Passes that were not whole, one after the other.
    pub broken: u32,
    /// The newest pass.
    pub current: Option<Current>,
    /// Who runs the next one.
    pub next: Option<Place>,
    /// What runs if a request is to be made up for, and how long its period is.
    pub command: Option<(Command, u64)>,
    /// When it asks by itself.
    pub schedule: Option<Schedule>,
    /// Where the next date of that stands.
    pub due: Option<Slot>,
    /// Whether it is forgotten when its pass has ended.
    pub leaves: bool,
    /// Whether nothing begins until the next start of the server, since it drains.
    pub rests: bool,
    /// The log file of a request that is made up for, if it named one.
    pub log: Option<String>,
}

/// A pass, as long as no other has begun: its period counts beyond its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// Its fencing token: the entry by which it began.
    pub token: Token,
    /// The request that it came from; zero if from none.
    pub place: Token,
    /// Who has it.
    pub holder: Holder,
    /// The PID of a client that runs it itself, if that is known.
    pub pid: u64,
    /// When it began.
    pub since: Timestamp,
    /// Until when no other begins.
    pub until: Timestamp,
    /// How it ended, once it has.
    pub end: Option<End>,
    /// Whether it is being stopped, since it ran too long or the lease is being reset.
    pub stopping: bool,
    /// How often it was told that it overruns its period.
    pub warnings: u32,
    /// Its log file.
    #[serde(default)]
    pub log: Option<String>,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// How its process did, if it had one and that is known.
    pub exit: Option<Exit>,
    /// Whether it ran to its end.
    pub whole: bool,
}

/// Who has a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// A command that was launched for it, with all that it starts.
    Launched {
        /// Its record.
        process: ProcessId,
        /// What was launched.
        command: Command,
        /// Whether the launch is taken on.
        taken: bool,
    },
    /// A process of a client, which runs the pass itself.
    Process(Binding),
    /// A client that says time and again that it still runs the pass.
    Timed {
        /// Milliseconds between two signs of life, at the most.
        ttl_ms: u64,
        /// The newest.
        renewed: Timestamp,
    },
    /// Nobody any more: it was imported after its process had ended.
    Nobody,
}

impl Holder {
    /// The process that it depends on.
    pub const fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Launched { process, .. } => Some(*process),
            Self::Process(binding) => Some(binding.process),
            Self::Timed { .. } | Self::Nobody => None,
        }
    }
}

/// Who has the right to run next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The entry of its request.
    pub token: Token,
    /// What is run. Without one, a client runs the pass itself.
    pub command: Option<Command>,
    /// The client's process.
    pub process: Option<Binding>,
    /// The PID of the client, if that is known.
    pub pid: u64,
    /// Milliseconds between the starts of its pass and the next.
    pub period_ms: u64,
    /// Milliseconds between two signs of life of a client without a process.
    pub ttl_ms: u64,
    /// Whether the client waits on a connection, so that it can be told when its turn comes.
    pub connected: bool,
    /// Until when it may come again, if it is a client that does not wait.
    pub until: Timestamp,
    /// Whether somebody else asked, too, and is content with its pass: that is owed even if this one takes its request back.
    #[serde(default)]
    pub shared: bool,
    /// The log file of its pass, if its request named one.
    #[serde(default)]
    pub log: Option<String>,
}

impl Place {
    /// Whether it still has its right.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.command.is_some() || self.connected || self.process.is_some() && self.until >= now
    }

    /// Whether its turn can come by itself.
    pub const fn takes_turn(&self) -> bool {
        self.command.is_some() || self.connected
    }
}

impl Current {
    /// Whether the pass runs, as far as is known.
    pub const fn runs(&self) -> bool {
        self.end.is_none()
    }

    /// Whether a client runs it itself.
    pub const fn is_clients(&self) -> bool {
        matches!(self.holder, Holder::Process(_) | Holder::Timed { .. })
    }

    /// Whether its command is about to be launched, and may have no record yet.
    pub const fn is_launching(&self) -> bool {
        self.runs() && matches!(self.holder, Holder::Launched { taken: false, .. })
    }

    /// When its client is taken for dead; a start of the server gives it all of its time again.
    pub fn lost_at(&self, epoch: Timestamp) -> Option<Timestamp> {
        match &self.holder {
            Holder::Timed { ttl_ms, renewed } => Some((*renewed).max(epoch).plus_ms(*ttl_ms)),
            Holder::Launched { .. } | Holder::Process(_) | Holder::Nobody => None,
        }
    }

    /// When it is said next that it overruns its period: 30 s after that, then after twice as long each time.
    fn warns_at(&self) -> Timestamp {
        let doubled = 30_000_u64.saturating_mul(1 << self.warnings.min(40));
        self.until.plus_ms(doubled)
    }
}

impl Lease {
    /// Passes in a row that are not whole, after which nobody's request is made up for.
    pub const BROKEN_MAX: u32 = 25;

    /// The pass that runs.
    pub fn running(&self) -> Option<&Current> {
        self.current.as_ref().filter(|it| it.runs())
    }

    /// What runs if a whole pass is owed and nobody stands next, and its period.
    pub fn kept(&self) -> Option<(&Command, u64)> {
        let own = self
            .command
            .as_ref()
            .map(|(command, period_ms)| (command, *period_ms));
        let set = self.settings.command.as_ref();
        own.or_else(|| set.map(|command| (command, self.settings.period_ms)))
    }

    /// Whether a request has had no whole pass yet.
    pub const fn is_owed(&self) -> bool {
        self.wanted > self.whole && !self.settings.disabled
    }

    /// Whether the pass of who is next makes up for the one that runs, if that is not whole: then more than its own request
    /// depends on it.
    pub(super) fn is_inherited(&self) -> bool {
        let is_owed = self.wanted.min(self.begun) > self.whole;
        is_owed && self.next.as_ref().is_some_and(|it| !it.shared)
    }

    /// The number of the newest pass that needs no other: it runs, or it was whole.
    pub(super) fn settled(&self) -> u64 {
        if self.running().is_some() {
            self.begun
        } else {
            self.whole
        }
    }

    /// Whether a pass runs, or is to come by what is known now.
    pub const fn stirs(&self) -> bool {
        let runs = matches!(&self.current, Some(current) if current.runs());
        runs || self.next.is_some() || self.is_owed() || self.due.is_some()
    }

    /// Until when no pass begins after the newest, as far as the period goes.
    pub fn until(&self) -> Timestamp {
        self.current.as_ref().map_or(Timestamp(0), |it| it.until)
    }

    /// The first instant at which another pass may begin, as far as the period goes.
    pub fn free_at(&self) -> Timestamp {
        let current = self.current.as_ref();
        current.map_or(Timestamp(0), |it| it.until.plus_ms(1))
    }

    /// Whether a pass begins by itself as soon as the period and the one that runs are over.
    pub fn is_set_to_go(&self) -> bool {
        let place = self.next.as_ref();
        let is_kept = self.kept().is_some();
        !self.rests && place.map_or(self.is_owed() && is_kept, Place::takes_turn)
    }

    /// When the place of a client lapses that neither waits nor came again.
    pub fn lapses_at(&self) -> Option<Timestamp> {
        let place = self.next.as_ref().filter(|it| !it.takes_turn());
        place.map(|place| place.until.plus_ms(1))
    }

    /// When the pass that runs has run for too long.
    pub fn stops_at(&self, current: &Current) -> Option<Timestamp> {
        let max = self.settings.max_run_ms;
        (max > 0 && !current.stopping).then(|| current.since.plus_ms(max))
    }

    /// When time acts on the pass that runs.
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
        let begins = (self.running().is_none() && self.is_set_to_go()).then(|| self.free_at());
        let all = [begins, self.lapses_at(), self.pass_acts_at(epoch)];
        all.into_iter().flatten().min().map(Deadline::Time)
    }
}

/// A date on which a lease asks by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Which lease.
    pub lease: Slot,
    /// When.
    pub at: Date,
}

impl Plain for Due {
    const KIND: u8 = 2;
    const SLOTS: u32 = 64;

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        Some(Deadline::Date(self.at))
    }
}

/// What is counted of all leases. Not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Passes that run.
    pub running: u64,
    /// Leases with somebody next.
    pub waiting: u64,
}
