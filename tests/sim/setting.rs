//! The parameters of a seed: policy, sizes, the frequency of faults, and a planted fault, if any.

use crate::chance::Chance;
use sexton::persist::journal::Sizes;

/// When acknowledged data must be on disk, as in `Fsync`, but with steps in place of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Always,
    Interval,
    Never,
}

/// Whether the power is cut when the process is killed in a disk call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    ByChance,
    Stays,
    /// It is cut, and all unsynced data is lost.
    TakesAll,
    /// It is cut just after all data has reached the disk.
    TakesNothing,
}

/// What is special about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Records of more than one part.
    Long,
    /// Sequence numbers near the end of the reserved range.
    Numbers,
    /// More entries due at the same time than one turn handles.
    Crowd,
}

/// A fault planted in the simulation's own wiring, to show that the checkers detect it.
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
    /// Recovery forgets what was claimed from throttled queues.
    ThrottleForgotten,
    /// Clients that wait for a job are forgotten.
    WaiterForgotten,
    /// A startup records that no numbers were skipped.
    NothingPassedOver,
    /// Segments are removed on account of a slot that is not sealed yet.
    TrimBeforeSeal,
    /// Segments are removed that the older slot still needs.
    TrimToNewer,
    /// A slot is sealed although its files are not synced.
    SealBeforeSync,
    /// A slot is sealed before the journal is durable up to its mark.
    SealBeforeMark,
    /// A slot is written while it still has its old seal.
    SealKept,
    /// Pages are copied in their current state, not as they were when the checkpoint began.
    CopiedLate,
    /// Pages that changed since the slot was last written are omitted.
    LeftOut,
    /// An action is performed before its cause is durable.
    ActionBeforeSync,
    /// An action that a crash lost in transit is never requested again.
    ActionNotRestated,
    /// A port performs the same attempt again.
    ActedTwice,
    /// The completion of an older attempt is taken for that of the latest.
    CompletionOfOlder,
    /// Every second tell of one actor is lost, and no restart repairs that.
    TellLost,
    /// Queues are not notified of processes that are gone.
    GoneLost,
    /// Leases are not notified of processes that are gone.
    GoneOfPassLost,
    /// An actor that requests the stop of a tree is notified at once that the tree is gone.
    FenceIsGone,
    /// The leases' messages to processes get lost, however often they are sent.
    LaunchLost,
    /// A sender is not notified that its tell was refused.
    RefusedTellForgotten,
    /// Requests that `resume` repeats at startup stay in the host.
    ResumeNotDrained,
    /// A decision uses another random number than the one in the log.
    OtherChance,
    /// A decision uses another wall clock than the one in the log.
    OtherWall,
    /// An unknown end of a process is reported as a success.
    StatusGuessed,
    /// A keeper launches again when a request is repeated.
    LaunchedTwice,
    /// Processes that an earlier node followed are not followed by the next node.
    FollowNotRestated,
    /// A process of an earlier boot is looked for in this one.
    BootIgnored,
    /// Any process with the PID is taken for the recorded one.
    FoundByPid,
    /// A tree is taken for empty when its leader is gone.
    TreeOfLeader,
    /// A process whose state is unknown is taken for gone.
    UnknownIsGone,
    /// A process is taken for ended when its main thread has.
    ThreadsUnseen,
    /// The control group of a tree is taken for the whole tree.
    GroupIsAll,
    /// Whoever carries the id of a tree belongs to it, whatever its user.
    AnyoneNames,
    /// Whoever carries the id of a tree belongs to it, whatever its control group.
    GroupsIgnored,
    /// A tree is taken for empty if a search finds nothing, although processes were created meanwhile.
    UnsettledIsEmpty,
    /// A tree is reported as empty with the end of its process if nothing of it was found, although that proves nothing.
    DoubtIsEmpty,
    /// The end of a process is taken for that of another one.
    EndOfAnother,
    /// A keeper is requested to forget an end that is not durable yet.
    ForgottenEarly,
    /// When the port asks the keeper which attempts it has, the keeper first forgets the requested launches.
    ForgetAll,
    /// The port receives requests whose entries are not durable yet.
    ProcessesEarly,
    /// Time fails to act on a service, and nothing repairs that.
    ServiceForgotten,
    /// Launches for a service that an earlier node requested are not made by the next node.
    RelaunchNotRestated,
    /// A process of a service is launched although it already has one.
    ServiceTwice,
    /// A process of a service is reported as ended when it was only requested to end.
    StopTakenForEnd,
    /// A service is reported as ready as soon as it runs.
    ReadyGuessed,
    /// The stop of a service is not recorded.
    ServiceStopNotJournaled,
    /// A service that ended must wait before its restart, but the record has no wait.
    BackoffForgotten,
    /// A process in a hook's output gets a new record each time the output is read.
    ChildTwice,
    /// A hook's output that an earlier node had to read is not read by the next node.
    HookForgotten,
    /// A tree is reported as stuck as soon as it is requested to end.
    StuckAtOnce,
    /// Processes that survive SIGKILL are never reported as stuck.
    StuckUnsaid,
    /// Tasks are not notified of processes that are gone.
    GoneOfTaskLost,
    /// The tasks' messages to processes get lost, however often they are sent.
    LaunchOfTaskLost,
    /// Locks that attempts release are still held.
    LockKept,
    /// A lock passes to a waiter whose client is away, although another one waits.
    AbsentFirst,
    /// The report of a process without a live attempt is taken for that of a live attempt.
    SavedByStale,
    /// A burst begins while another attempt of the same work id is live.
    WorkTwice,
    /// A burst begins on a server without a free thread.
    ThreadTwice,
    /// A task starts although its group is full or disabled.
    GroupOverLimit,
    /// A burst begins although its group has a hard pause.
    HardPauseIgnored,
    /// A task that was woken during its burst waits anyway.
    WakeLost,
    /// A task fails without a recorded cause.
    ReasonLost,
    /// An attempt ends and keeps its thread.
    ThreadLeaked,
    /// A burst begins on a server that is disabled.
    DisabledServerUsed,
    /// A report that an attempt repeats because the answer was lost is applied again.
    ReportTwice,
    /// Tasks are not notified that the disk is low on space.
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
    /// The number of faults of each kind in a thousand steps.
    pub(crate) crashes: u64,
    pub(crate) faults: u64,
    pub(crate) panics: u64,
    pub(crate) power: Power,
    /// The number of steps in a thousand that are steps of checkpoints.
    pub(crate) checkpoints: u64,
    /// The maximum size of the pages copied in one step, in bytes.
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
            sizes: Sizes { first_bytes, max_bytes: first_bytes << chance.below(3) },
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
        // Answers that no client received may be issued again. So a repeated number is only wrong if a power cut can
        // remove an entry that was answered.
        let policy = if matches!(plant, Plant::TokenTwice | Plant::NothingPassedOver) {
            Policy::Never
        } else {
            Policy::Always
        };
        let checkpoints = if plant == Plant::SealBeforeMark {
            // The crash must happen between the seal and its mark, which is rare. More seals make it likelier.
            300
        } else if plant.is_of_checkpoints() {
            90
        } else {
            0
        };
        // Faults among long-lived processes only show if the node lives long, too.
        let is_slow = matches!(
            plant,
            Plant::TreeOfLeader
                | Plant::ThreadsUnseen
                | Plant::GroupIsAll
                | Plant::AnyoneNames
                | Plant::GroupsIgnored
                | Plant::UnsettledIsEmpty
                | Plant::DoubtIsEmpty
                | Plant::FoundByPid
                | Plant::UnknownIsGone
                | Plant::LowDiskIgnored
        );
        let (crashes, steps) = if is_slow { (2, 4000) } else { (9, 1000) };
        let plain = Self::of(seed, steps);
        let faults = if plant == Plant::LowDiskIgnored { 20 } else { plain.faults };
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
