//! What a seed says before the first step: policy, sizes, how rough the world is, and which planted fault there is.

use crate::chance::Chance;
use sexton::persist::journal::Sizes;

/// When what was acknowledged is on disk, as in `Fsync`, with steps in the place of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Always,
    Interval,
    Never,
}

/// What becomes of the power when the process dies inside of a call to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    ByChance,
    Stays,
    /// It goes, and with it all that was not synced.
    TakesAll,
    /// It goes just after all has reached the disk.
    TakesNothing,
}

/// What is special about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Records of more than one part.
    Long,
    /// Numbers near the end of what is reserved.
    Numbers,
    /// More entries due at once than one turn takes.
    Crowd,
}

/// A fault in the simulation's own wiring, to show that the checkers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    LyingSync,
    ReplyBeforeSync,
    ReadBeforeSync,
    TokenTwice,
    TickNotJournaled,
    PoisonApplied,
    TimeGoesBack,
    /// Jobs are deleted, and no record says so.
    DeleteNotJournaled,
    /// A delay or a claim ends, and no record says so.
    JobTickNotJournaled,
    /// What queues answer waits for nothing.
    QueueAnswersEarly,
    /// Whoever had a job once may still say that it is done.
    AckedByStaleClaim,
    /// A job that is cancelled stays with whoever has it, and its claim lasts on.
    CancelledRunsOn,
    /// A start knows nothing of what was claimed from throttled queues.
    ThrottleForgotten,
    /// Nobody who waits for a job is known to.
    WaiterForgotten,
    /// A start says that no numbers were passed over.
    NothingPassedOver,
    /// Segments go on the word of a slot that is not sealed yet.
    TrimBeforeSeal,
    /// Segments go that the older slot needs.
    TrimToNewer,
    /// A slot is sealed whose files are not synced.
    SealBeforeSync,
    /// A slot is sealed before the journal is known to reach as far.
    SealBeforeMark,
    /// A slot is written under its old seal.
    SealKept,
    /// Pages are copied as they are, not as they were at the watermark.
    CopiedLate,
    /// Pages that changed since the slot was written last are left out.
    LeftOut,
    /// Something is done in the world before its cause is durable.
    ActionBeforeSync,
    /// What a crash swallowed on its way to the world is never stated again.
    ActionNotRestated,
    /// A port performs an attempt again.
    ActedTwice,
    /// The completion of an older attempt is taken for that of the newest.
    CompletionOfOlder,
    /// Every other tell of one actor gets lost, and no restart makes it good.
    TellLost,
    /// Queues are not told which processes are gone.
    GoneLost,
    /// Leases are not told which processes are gone.
    GoneOfPassLost,
    /// Who has a tree stopped is told at once that it is gone.
    FenceIsGone,
    /// What leases say to processes gets lost, however often they say it.
    LaunchLost,
    /// A sender is not told that its tell was refused.
    RefusedTellForgotten,
    /// What `resume` stated at a start stays in the host.
    ResumeNotDrained,
    /// A decision goes by other chance than the log says.
    OtherChance,
    /// A decision goes by another wall clock than the log says.
    OtherWall,
    /// How a process ended that nobody knows is said to be well.
    StatusGuessed,
    /// A keeper launches again what it is asked for again.
    LaunchedTwice,
    /// What an earlier life of the node follows is not followed by the next.
    FollowNotRestated,
    /// A process of an earlier boot is looked for in this one.
    BootIgnored,
    /// Whoever has the PID is taken for the process.
    FoundByPid,
    /// A tree is thought empty when its leader is gone.
    TreeOfLeader,
    /// What cannot be looked at is thought gone.
    UnknownIsGone,
    /// The end of a process is taken for that of another.
    EndOfAnother,
    /// A keeper is to forget an end that is not durable yet.
    ForgottenEarly,
    /// A census forgets what is wanted.
    CensusOfNothing,
    /// The port is asked to act on what is not durable yet.
    ProcessesEarly,
    /// Time fails to act on a service, and nobody makes good for it.
    ServiceForgotten,
    /// What an earlier life was to launch for a service is not launched by the next.
    RelaunchNotRestated,
    /// A process of a service is launched beside one that was.
    ServiceTwice,
    /// A process of a service is said to have ended when it was told to.
    StopTakenForEnd,
    /// A service is said to be ready as soon as it runs.
    ReadyGuessed,
    /// A service is stopped, and no record says so.
    ServiceStopNotJournaled,
    /// A service that ended is to wait, and the record says that it is not.
    BackoffForgotten,
    /// A process that a hook printed gets a record each time that it is read.
    ChildTwice,
    /// What an earlier life was to read of a hook's output is not read by the next.
    HookForgotten,
    /// A tree is said to be stuck as soon as it is told to end.
    StuckAtOnce,
    /// Nobody says that something survived SIGKILL.
    StuckUnsaid,
    /// Tasks are not told which processes are gone.
    GoneOfTaskLost,
    /// What tasks say to processes gets lost, however often they say it.
    LaunchOfTaskLost,
    /// Locks that attempts give back are not.
    LockKept,
    /// A process that no attempt has speaks for one that is live.
    SavedByStale,
    /// A burst begins beside a live attempt of the same work id.
    WorkTwice,
    /// A burst begins on a server without a free thread.
    ThreadTwice,
    /// A task starts although its group is full or disabled.
    GroupOverLimit,
    /// A burst begins although its group is hard-paused.
    HardPauseIgnored,
    /// A task that was woken during its burst waits all the same.
    WakeLost,
    /// A task is failed without a cause.
    ReasonLost,
    /// An attempt is over and keeps its thread.
    ThreadLeaked,
    /// A burst begins on a server that is disabled.
    DisabledServerUsed,
    /// A report that an attempt repeats, since the answer was lost, is taken again.
    ReportTwice,
    /// Nobody tells tasks that the disk is low on space.
    LowDiskIgnored,
}

impl Plant {
    /// Whether it is a fault of checkpoints.
    pub(crate) fn is_of_checkpoints(self) -> bool {
        matches!(
            self,
            Self::TrimBeforeSeal
                | Self::TrimToNewer
                | Self::SealBeforeSync
                | Self::SealBeforeMark
                | Self::SealKept
                | Self::CopiedLate
                | Self::LeftOut
        )
    }
}

/// What a seed says.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) policy: Policy,
    pub(crate) kind: Kind,
    pub(crate) sizes: Sizes,
    pub(crate) page_bytes: usize,
    pub(crate) keys: u64,
    pub(crate) owners: u64,
    pub(crate) ttl_max: u64,
    /// Of a thousand steps, how many go wrong.
    pub(crate) crashes: u64,
    pub(crate) faults: u64,
    pub(crate) panics: u64,
    pub(crate) power: Power,
    /// Of a thousand steps, how many go to checkpoints.
    pub(crate) checkpoints: u64,
    /// Bytes of pages copied in one step.
    pub(crate) slice_bytes: usize,
    pub(crate) plant: Option<Plant>,
}

impl Setting {
    /// The setting of a seed.
    pub(crate) fn of(seed: u64, steps: u64) -> Self {
        let mut chance = Chance::of(seed ^ 0x5E77_1265);
        let kind = match seed % 64 {
            7 => Kind::Long,
            9 | 41 => Kind::Numbers,
            11 => Kind::Crowd,
            _ => Kind::Plain,
        };
        let first_bytes = match kind {
            Kind::Plain | Kind::Numbers => 4096 << chance.below(3),
            Kind::Crowd => 64 << 10,
            Kind::Long => 1 << 20,
        };
        Self {
            seed,
            steps,
            policy: chance.weighted(&[
                (3, Policy::Always),
                (1, Policy::Interval),
                (1, Policy::Never),
            ]),
            kind,
            sizes: Sizes {
                first_bytes,
                max_bytes: first_bytes << chance.below(3),
            },
            page_bytes: *chance.pick(&[512, 512, 4096]),
            keys: chance.within(1, 4),
            owners: chance.within(2, 6),
            ttl_max: *chance.pick(&[2, 6, 20]),
            crashes: *chance.pick(&[2, 5, 9]),
            faults: *chance.pick(&[0, 2, 6]),
            panics: *chance.pick(&[0, 6, 16]),
            power: Power::ByChance,
            checkpoints: *chance.pick(&[0, 30, 90, 90, 200]),
            slice_bytes: *chance.pick(&[1, 200, 100_000]),
            plant: None,
        }
    }

    /// The same with a planted fault.
    pub(crate) fn planted(seed: u64, plant: Plant) -> Self {
        // What nobody saw may be given again; so numbers repeat only where an answered grant can be lost.
        let policy = if matches!(plant, Plant::TokenTwice | Plant::NothingPassedOver) {
            Policy::Never
        } else {
            Policy::Always
        };
        let checkpoints = if plant == Plant::SealBeforeMark {
            // A crash has to come between the seal and its mark: the more seals, the sooner.
            300
        } else if plant.is_of_checkpoints() {
            90
        } else {
            0
        };
        // What goes wrong among processes that live for long needs a node that does.
        let is_slow = matches!(
            plant,
            Plant::TreeOfLeader | Plant::FoundByPid | Plant::UnknownIsGone | Plant::LowDiskIgnored
        );
        let (crashes, steps) = if is_slow { (2, 4000) } else { (9, 1000) };
        let plain = Self::of(seed, steps);
        let faults = if plant == Plant::LowDiskIgnored {
            20
        } else {
            plain.faults
        };
        Self {
            policy,
            kind: Kind::Plain,
            panics: 12,
            crashes,
            faults,
            checkpoints,
            plant: Some(plant),
            ..plain
        }
    }
}
