//! What is known of an attempt, and how what keeper and kernel say of it is read.

use crate::actors::process::{End, Identity, Lost, Message, Step};
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use crate::keeper::protocol::{self, Launch};
use crate::ports::process::clearing::Clearing;
use crate::ports::process::world::Tree;

/// What is known of an attempt.
pub(super) struct Attempt<H> {
    /// What was asked of the keeper, until it answers: the next keeper is asked again.
    pub(super) launch: Option<Box<Launch>>,
    pub(super) identity: Option<Identity>,
    pub(super) launched: bool,
    pub(super) contained: bool,
    pub(super) run_dir: Option<Bytes>,
    /// Its descriptor. Without one it is found again by its identity.
    pub(super) handle: Option<H>,
    /// When it is looked at again, and after how long the time after that.
    pub(super) next_look: Option<(u64, u64)>,
    /// What was reported last, to be reported again if the action comes again.
    pub(super) started: Option<Message>,
    pub(super) ended: Option<Message>,
    pub(super) clearing: Option<Clearing>,
}

impl<H> Attempt<H> {
    pub(super) const fn new(launched: bool, run_dir: Option<Bytes>) -> Self {
        Self {
            launch: None,
            identity: None,
            launched,
            contained: false,
            run_dir,
            handle: None,
            next_look: None,
            started: None,
            ended: None,
            clearing: None,
        }
    }

    pub(super) fn tree(&self, id: ProcessId) -> Option<Tree> {
        Some(Tree {
            id,
            leader: self.identity?,
            contained: self.contained,
            launched: self.launched,
        })
    }
}

/// Why nobody knows how a process ended that is gone.
pub(super) const fn reason(launched: bool) -> Lost {
    if launched {
        Lost::KeeperGone
    } else {
        Lost::NotOurs
    }
}

/// A status as `wait` has it.
pub(super) fn end_of(status: u32) -> End {
    let [low, code, ..] = status.to_le_bytes();
    match low & 0x7f {
        0 => End::Code(code),
        signal => End::Signal {
            signal,
            dumped: low & 0x80 != 0,
        },
    }
}

/// What a step that failed was about, in words.
pub(super) fn about(step: Step, launch: Option<&Launch>) -> Option<String> {
    let path = |bytes: &Bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned();
    match step {
        Step::Directory => launch.map(|launch| path(&launch.dir)),
        Step::Output => launch
            .and_then(|it| it.output.as_ref())
            .map(|it| path(&it.0)),
        Step::Fork => Some("no process can be started".to_owned()),
        Step::Group => Some("its control group".to_owned()),
        Step::User => Some("its user and groups".to_owned()),
        Step::Limits => Some("its limits".to_owned()),
        Step::Parcel => Some("what was handed over for it is not there any more".to_owned()),
        Step::Keeper | Step::Files | Step::Environment | Step::Exec | Step::Abandoned => None,
    }
}

pub(super) fn step_of(step: u8) -> Step {
    use protocol::step;
    match step {
        step::OUTPUT => Step::Output,
        step::PARCEL => Step::Parcel,
        step::FORK => Step::Fork,
        step::GROUP => Step::Group,
        step::DIRECTORY => Step::Directory,
        step::USER => Step::User,
        step::LIMITS => Step::Limits,
        step::EXEC => Step::Exec,
        _ => Step::Keeper,
    }
}
