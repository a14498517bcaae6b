//! A broken promise, and the evidence.

use std::fmt;

/// The promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Acknowledged changes are kept.
    Kept,
    /// A read shows only what is kept.
    ShownIsKept,
    /// Every reply is right at its position in the log.
    RepliesRight,
    /// Every entry follows from the rules at its position in the log.
    EntriesRight,
    /// A token or number is issued once.
    GivenOnce,
    /// Time in the log never goes back.
    TimeForward,
    /// The log records how far the wall clock is from node time.
    WallNoted,
    /// The same log gives the same state.
    SameState,
    /// Deciding again gives the same outcome.
    DecidedAgain,
    /// A sealed slot is complete after any crash, and only a complete one is given to the store.
    Sealed,
    /// Either slot, with the journal after it, gives the full state.
    Spare,
    /// Nothing is left over on the disk.
    NoLeak,
    /// A start succeeds on a disk that only lost what it may lose.
    Starts,
    /// Damage is reported, and never becomes state.
    DamageNamed,
    /// Every tell has a cause in the log, and arrives eventually.
    Told,
    /// Every action has its cause in the log, is performed eventually, and counts as done only then.
    ActedOnIt,
    /// An attempt is performed once.
    ActedOnce,
    /// An attempt is launched once.
    LaunchedOnce,
    /// The reported end of a process is true, and an unknown end is not reported as known.
    EndTrue,
    /// Each instance of a service runs once.
    OneEach,
    /// Once everything has settled, a service is in its intended state, or waits for something that will happen.
    KeptUp,
    /// A service that is shown as ready has reported so.
    ReadyTrue,
    /// A stopped tree is empty when that is reported.
    TreeEmpty,
    /// Once everything has settled, processes recorded as running are alive.
    Reconciled,
    /// Once everything has settled, rights that are bound to a process have ended with it.
    EndsWithOwner,
    /// A process that is reported as gone has ended.
    GoneTrue,
    /// Each process in a hook's output has one record, below that of the hook.
    ChildOnce,
    /// Processes are reported as stuck once they have survived SIGKILL for the set time, and only while they are alive.
    StuckTrue,
    /// Signals reach only the intended processes.
    NoStranger,
    /// Waiting clients are woken when their condition holds, and only then.
    Woken,
    /// A task, and a work id, has at most one live attempt.
    OneAttempt,
    /// A thread of a server has one attempt, and is free again when that has ended.
    ThreadOwned,
    /// What an operator holds back does not begin.
    HeldBack,
    /// Only the live attempt reports for its task.
    OnlyTheLive,
    /// A task that was woken does not wait.
    WakeKept,
    /// A task that failed has a reason.
    Reasoned,
    /// Once everything has settled, a task in progress has a live attempt.
    UnderWay,
    /// Every request is answered eventually.
    Answered,
    /// A freed disk accepts additions again.
    RoomAgain,
    /// Nothing that needs more disk space begins while the disk is low on space.
    RoomFirst,
    /// There are no panics except planted ones.
    NoPanic,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn new(promise: Promise, what: impl fmt::Display) -> Self {
        Self {
            promise,
            what: what.to_string(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

/// Fails with a promise and a message unless the condition holds.
pub(crate) fn ensure(
    holds: bool,
    promise: Promise,
    what: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds {
        Ok(())
    } else {
        Err(Violation::new(promise, what()))
    }
}
