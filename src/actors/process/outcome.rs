//! What can come of a message. Stored: see the change rule in `persist/format.rs`.

pub(super) use crate::actors::process::insertion::Insertion;
use crate::actors::process::message::End;
use crate::actors::process::record::Stop;
use crate::actors::process::service::Step;
use crate::actors::process::spec::Flaw;
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};

/// What was decided about a message. Names the slots that it is about, so that a commit has nothing to search for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A record was made, of a process that is to be launched.
    Launched(Box<Insertion>),
    /// A record was made, of a process that runs already.
    Registered(Box<Insertion>),
    /// The process had a record: nothing changes.
    Known {
        /// Its id.
        id: ProcessId,
    },
    /// It runs.
    Started {
        /// Where.
        slot: Slot,
        /// When it started, in node time: what its timeout counts from.
        since: Timestamp,
    },
    /// It could not be started.
    Failed {
        /// Where.
        slot: Slot,
        /// When that was reported.
        at: Date,
    },
    /// The process itself has ended.
    Ended {
        /// Where.
        slot: Slot,
        /// How.
        end: End,
        /// When, never later than it was reported.
        at: Date,
        /// Whether the record still waits until nothing of its tree lives.
        tree: bool,
    },
    /// Nothing of its tree lives any more.
    Emptied {
        /// Where.
        slot: Slot,
    },
    /// It is to end, or to end otherwise than was asked for before.
    Stopping {
        /// Where.
        slot: Slot,
        /// How.
        stop: Stop,
    },
    /// Its grace is over.
    Killing {
        /// Where.
        slot: Slot,
    },
    /// SIGKILL did not end it, or not provably.
    Stuck {
        /// Where.
        slot: Slot,
    },
    /// A signal is to be sent.
    Signalling {
        /// Where.
        slot: Slot,
    },
    /// A signal was sent, or could not be.
    Signalled {
        /// Where.
        slot: Slot,
    },
    /// These records are gone.
    Pruned {
        /// Where they were.
        slots: Vec<Slot>,
        /// Whether there are more that were asked for.
        more: bool,
    },
    /// Another actor is told when it is gone.
    Watched {
        /// Where.
        slot: Slot,
    },
    /// It is gone, as far as another actor wants to know: that is told.
    Gone,
    /// The launch that another actor asks for again was taken on before: that is told.
    Taken,
    /// A launch that another actor asked for is refused: that is told.
    Declined(Refused),
    /// What lives of its tree is to end.
    Fenced {
        /// Where, and how each is stopped.
        stops: Vec<(Slot, Stop)>,
    },
    /// It said something of itself.
    Noticed {
        /// Where.
        slot: Slot,
    },
    /// A record was made, of a process that a hook ran.
    Child(Box<Insertion>),
    /// What is in the output of a hook is known.
    Found {
        /// Where.
        slot: Slot,
    },
    /// Something becomes of services.
    Service(Box<Turn>),
    /// The message says nothing new, or is about a record that is gone or has ended: nothing changes.
    Unchanged,
    /// The port reports another process for an attempt that has one: nothing changes, but it is counted.
    Contradicted,
    /// The request was refused: nothing changes.
    Refused(Refused),
}

/// What comes of a message for services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// What comes of it for one of their processes.
    pub process: Option<Outcome>,
    /// What comes of it for them, in order.
    pub steps: Vec<Step>,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// No service has this name.
    #[error("no service has this name")]
    NoService,
    /// There is no record of this id, or no longer.
    #[error("no process has this id")]
    Unknown,
    /// The process has ended already.
    #[error("the process has ended")]
    Ended,
    /// It does not run yet, so that there is nothing to send a signal to.
    #[error("the process has not started yet")]
    Queued,
    /// It was launched here: its exit is seen, and need not be reported.
    #[error("the process was launched here, so its exit is not to be reported")]
    Launched,
    /// As many processes live, or as many records are kept, as may be.
    #[error("there are as many processes as may be")]
    Full,
    /// The record would stand deeper in the tree than may be.
    #[error("the process tree is as deep as it may be")]
    TooDeep,
    /// As many signals are on their way to the process as may be.
    #[error("too many signals are on their way to the process")]
    Busy,
    /// No new processes are taken on until the next start.
    #[error("no new processes are taken on")]
    Draining,
    /// What was asked for cannot be.
    #[error("{0}")]
    Invalid(Flaw),
    /// The disk is full.
    #[error("the disk is full")]
    DiskFull,
    /// The key came before, with another request.
    #[error("the key came before, with another request")]
    KeyReused,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DiskFull => Self::DiskFull,
            Refusal::KeyReused => Self::KeyReused,
        }
    }
}
