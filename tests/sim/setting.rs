//! The parameters of a seed: policy, sizes, the frequency of faults, and the planted fault, if any.

use crate::chance::Chance;
use sexton::persist::journal::Sizes;

/// When acknowledged data is on disk, as in `Fsync`, with steps in place of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Always,
    Interval,
    Never,
}

/// What happens to the power when the process is killed in a call to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    ByChance,
    Stays,
    /// It is cut, and everything unsynced may be lost.
    TakesAll,
    /// It is cut just after everything has reached the disk.
    TakesNothing,
}

/// What is special about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Records of more than one part.
    Long,
    /// Numbers near the end of the reserved range.
    Numbers,
    /// More entries due at the same time than one turn handles.
    Crowd,
}

/// A fault in the simulation's own wiring, to show that the checkers detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    LyingSync,
    ReplyBeforeSync,
    ReadBeforeSync,
    TokenTwice,
    TickNotJournaled,
    PoisonApplied,
    TimeGoesBack,
    /// Jobs are deleted without a record.
    DeleteNotJournaled,
    /// A delay or a claim ends without a record.
    JobTickNotJournaled,
    /// Answers of queues do not wait for the journal.
    QueueAnswersEarly,
    /// A former holder of a job may still complete it.
    AckedByStaleClaim,
    /// A cancelled job stays with its worker, and its claim continues.
    CancelledRunsOn,
    /// A start forgets what was claimed from throttled queues.
    ThrottleForgotten,
    /// Clients that wait for a job are forgotten.
    WaiterForgotten,
    /// A start records that no numbers were skipped.
    NothingPassedOver,
    /// Segments are removed because of a slot that is not sealed yet.
    TrimBeforeSeal,
    /// Segments are removed that the older slot needs.
    TrimToNewer,
    /// A slot is sealed although its files are not synced.
    SealBeforeSync,
    /// A slot is sealed before the journal is known to reach as far.
    SealBeforeMark,
    /// A slot is written while its old seal exists.
    SealKept,
    /// Pages are copied as they are now, not as they were at the watermark.
    CopiedLate,
    /// Pages that changed since the slot was last written are left out.
    LeftOut,
    /// An action is performed before its cause is durable.
    ActionBeforeSync,
    /// An action that a crash lost in transit is never stated again.
    ActionNotRestated,
    /// A port performs an attempt again.
    ActedTwice,
    /// The completion of an older attempt is taken for that of the newest.
    CompletionOfOlder,
    /// Every other tell of one actor gets lost, and no restart repairs it.
    TellLost,
    /// Queues are not notified which processes are gone.
    GoneLost,
    /// Leases are not notified which processes are gone.
    GoneOfPassLost,
    /// An actor that has a tree stopped is immediately notified that it is gone.
    FenceIsGone,
    /// The leases' messages to processes get lost, however often they are sent.
    LaunchLost,
    /// A sender is not notified that its tell was refused.
    RefusedTellForgotten,
    /// Requests that `resume` stated at a start stay in the host.
    ResumeNotDrained,
    /// A decision uses another random number than the log has.
    OtherChance,
    /// A decision uses another wall clock than the log has.
    OtherWall,
    /// An unknown end of a process is reported as a success.
    StatusGuessed,
    /// A keeper launches again when a request is repeated.
    LaunchedTwice,
    /// Processes that an earlier node followed are not followed by the next.
    FollowNotRestated,
    /// A process of an earlier boot is looked for in this one.
    BootIgnored,
    /// Any process with the PID is taken for the recorded one.
    FoundByPid,
    /// A tree is taken for empty when its leader is gone.
    TreeOfLeader,
    /// A process whose state is unknown is taken for gone.
    UnknownIsGone,
    /// The end of a process is taken for that of another.
    EndOfAnother,
    /// A keeper is told to forget an end that is not durable yet.
    ForgottenEarly,
    /// A census forgets the requested launches.
    CensusOfNothing,
    /// The port is requested to act on entries that are not durable yet.
    ProcessesEarly,
    /// Time fails to act on a service, and nothing repairs that.
    ServiceForgotten,
    /// Launches for a service that an earlier node requested are not made by the next.
    RelaunchNotRestated,
    /// A process of a service is launched beside an existing one.
    ServiceTwice,
    /// A process of a service is reported as ended when it was only told to end.
    StopTakenForEnd,
    /// A service is reported as ready as soon as it runs.
    ReadyGuessed,
    /// A service is stopped without a record.
    ServiceStopNotJournaled,
    /// A service that ended must wait, but the record has no wait.
    BackoffForgotten,
    /// A process in a hook's output gets a record each time the output is read.
    ChildTwice,
    /// A hook's output that an earlier node had to read is not read by the next.
    HookForgotten,
    /// A tree is reported as stuck as soon as it is told to end.
    StuckAtOnce,
    /// Processes that survive SIGKILL are never reported as stuck.
    StuckUnsaid,
    /// Tasks are not notified which processes are gone.
    GoneOfTaskLost,
    /// The tasks' messages to processes get lost, however often they are sent.
    LaunchOfTaskLost,
    /// Locks that attempts release stay held.
    LockKept,
    /// A process without an attempt reports for one that is live.
    SavedByStale,
    /// A burst begins beside a live attempt of the same work id.
    WorkTwice,
    /// A burst begins on a server without a free thread.
    ThreadTwice,
    /// A task starts although its group is full or disabled.
    GroupOverLimit,
    /// A burst begins although its group is hard-paused.
    HardPauseIgnored,
    /// A task that was woken during its burst waits anyway.
    WakeLost,
    /// A task fails without a cause.
    ReasonLost,
    /// An attempt ends and keeps its thread.
    ThreadLeaked,
    /// A burst begins on a server that is disabled.
    DisabledServerUsed,
    /// A report that an attempt repeats because the answer was lost is applied again.
    ReportTwice,
    /// Nobody tells tasks that the disk is low on space.
    LowDiskIgnored,
}

impl Plant {
    /// Returns whether it is a fault of checkpoints.
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

/// The parameters of a seed.
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
    /// The number of faults in a thousand steps.
    pub(crate) crashes: u64,
    pub(crate) faults: u64,
    pub(crate) panics: u64,
    pub(crate) power: Power,
    /// The number of steps of a thousand that go to checkpoints.
    pub(crate) checkpoints: u64,
    /// Bytes of pages copied in one step.
    pub(crate) slice_bytes: usize,
    pub(crate) plant: Option<Plant>,
}

impl Setting {
    /// Returns the setting of a seed.
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

    /// Returns the same setting with a planted fault.
    pub(crate) fn planted(seed: u64, plant: Plant) -> Self {
        // Answers that no client received may be issued again; so numbers repeat only where an answered grant can be lost.
        let policy = if matches!(plant, Plant::TokenTwice | Plant::NothingPassedOver) {
            Policy::Never
        } else {
            Policy::Always
        };
        let checkpoints = if plant == Plant::SealBeforeMark {
            // A crash has to fall between the seal and its mark: the more seals, the sooner.
            300
        } else if plant.is_of_checkpoints() {
            90
        } else {
            0
        };
        // Faults among long-lived processes need a long-lived node.
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
