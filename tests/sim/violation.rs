//! A promise that was broken, and what shows it.

use std::fmt;

/// Which promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Acknowledged means kept.
    Kept,
    /// A read shows only what is kept.
    ShownIsKept,
    /// Every reply is right at its place in the log.
    RepliesRight,
    /// Every entry follows from the rules at its place in the log.
    EntriesRight,
    /// A token or number is given once.
    GivenOnce,
    /// Time in the log never goes back.
    TimeForward,
    /// The log knows how far the wall clock is from node time.
    WallNoted,
    /// The same log gives the same state.
    SameState,
    /// Deciding again gives what was decided.
    DecidedAgain,
    /// A sealed slot is whole after any crash, and only such a one is given to the store.
    Sealed,
    /// Either slot and the journal behind it give the full state.
    Spare,
    /// Nothing is left lying about on the disk.
    NoLeak,
    /// A disk that only lost what it may lose gives a start.
    Starts,
    /// Damage is named, and never becomes state.
    DamageNamed,
    /// What is told has a cause in the log, and arrives in the end.
    Told,
    /// What is done in the world stands in the log, is done in the end, and is taken for done only then.
    ActedOnIt,
    /// An attempt is performed once.
    ActedOnce,
    /// An attempt is launched once.
    LaunchedOnce,
    /// What is said of the end of a process is so, and what nobody knows is not said.
    EndTrue,
    /// A service runs once in each of its places.
    OneEach,
    /// A service is as it is to be once all has come to rest, or waits for what is to come.
    KeptUp,
    /// What is said to be ready has said so.
    ReadyTrue,
    /// A tree that was stopped is empty when that is said.
    TreeEmpty,
    /// What is said to live lives, once all has come to rest.
    Reconciled,
    /// What is bound to a process ends with it, once all has come to rest.
    EndsWithOwner,
    /// What is said to be gone is gone.
    GoneTrue,
    /// What a hook printed of processes is on record once, below its own record.
    ChildOnce,
    /// What survives SIGKILL is said to be stuck when that has lasted, and only then, and no longer than it lives.
    StuckTrue,
    /// Nothing gets a signal but what is meant.
    NoStranger,
    /// Whoever waits is woken when it is so, and only then.
    Woken,
    /// Of a task, and of a work id, one attempt is live.
    OneAttempt,
    /// A thread of a server has one attempt, and is free again when that has ended.
    ThreadOwned,
    /// What an operator holds back does not begin.
    HeldBack,
    /// Nobody but the attempt that is live says how far its task is.
    OnlyTheLive,
    /// A task that was woken does not wait.
    WakeKept,
    /// A task that failed says why.
    Reasoned,
    /// What is under way has an attempt that lives, once all has come to rest.
    UnderWay,
    /// Everything asked is answered in the end.
    Answered,
    /// A freed disk takes additions again.
    RoomAgain,
    /// Nothing begins on a low disk that would need more of it.
    RoomFirst,
    /// No panic but the planted ones.
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

/// Fails with a promise and its words unless it holds.
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
