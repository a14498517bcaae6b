//! What the port knows of an attempt, and what the keeper's words for it mean.

use crate::actors::process::{End, Identity, Lost, Message, Spec, Step};
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use crate::keeper::protocol::{Launch, step};
use crate::ports::process::clearing::Clearing;
use crate::ports::process::world::Tree;

/// What is known of an attempt.
pub(super) struct Attempt<H> {
    /// What is to be launched, until a keeper has said what it holds: it may have been launched in an earlier life.
    pub(super) spec: Option<Box<Spec>>,
    /// Whether a keeper may have been asked for it: then only a keeper can say that it was not launched.
    pub(super) asked: bool,
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
            spec: None,
            asked: false,
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

    /// Whether it is still to be launched, as far as is known.
    pub(super) const fn is_pending(&self) -> bool {
        self.spec.is_some() || self.launch.is_some()
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

/// How it stands with the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// There is none, or none is known.
    Down,
    /// It was greeted and has not said yet all that it holds.
    Greeted,
    /// What it holds is known.
    Up,
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
