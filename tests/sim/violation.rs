//! A broken promise, and the evidence for it.

use std::fmt;

/// The promises of sexton that the simulation checks.
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
    /// No lock is given to a client that is away while another one waits for it.
    PresentFirst,
    /// Time in the log never goes back.
    TimeForward,
    /// The log records the offset of the wall clock from node time.
    WallNoted,
    /// Replaying the same log gives the same state.
    SameState,
    /// Deciding a message again at its position gives the same outcome.
    DecidedAgain,
    /// A sealed slot is complete after any crash, and only a complete one is given to the store.
    Sealed,
    /// Either slot, with the journal after it, gives the full state.
    Spare,
    /// Nothing is left over on the disk.
    NoLeak,
    /// A startup succeeds on a disk that only lost data that it may lose.
    Starts,
    /// Damage is reported, and never becomes state.
    DamageNamed,
    /// Every tell (message between actors) is caused by an entry in the log, and arrives eventually.
    Told,
    /// Every action is caused by an entry in the log, is performed eventually, and only then counts as done.
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
    /// A service that is shown as ready has reported that it is ready.
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
    /// Signals reach only the processes that they are for.
    NoStranger,
    /// Waiting clients are woken when their condition holds, and only then.
    Woken,
    /// A task, and a work id, has at most one live attempt.
    OneAttempt,
    /// A thread of a server has one attempt, and is free again once that attempt has ended.
    ThreadOwned,
    /// Nothing begins that an operator holds back.
    HeldBack,
    /// Only the live attempt reports for its task.
    OnlyTheLive,
    /// A task that was woken does not wait.
    WakeKept,
    /// A task that failed has a recorded reason.
    Reasoned,
    /// Once everything has settled, a task in progress has a live attempt.
    UnderWay,
    /// Every request is answered eventually.
    Answered,
    /// Once the disk has space again, additions are accepted again.
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
        Self { promise, what: what.to_string() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

/// Returns a violation of this promise with this text, unless the condition holds.
pub(crate) fn ensure(
    holds: bool,
    promise: Promise,
    what: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(promise, what())) }
}
