//! The port's record of an attempt (a process that the port launches or follows), and the interpretation of the keeper's reports about it.

use crate::actors::process::{End, Failure, Identity, Lost, Message, Spec, Step};
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use crate::keeper::protocol::{Launch, step};
use crate::ports::process::clearing::Clearing;
use crate::ports::process::world::Tree;
use std::io;

/// A process that the port launches or follows.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one attempt")]
pub(super) struct Attempt<H> {
    /// The spec to launch, kept until a keeper has reported all its attempts, since the attempt may have been launched before a restart of
    /// the coordinator.
    pub(super) spec: Option<Box<Spec>>,
    /// Whether a keeper may have been asked to launch the attempt. If so, only the report of a keeper shows whether it was launched.
    pub(super) asked: bool,
    /// The launch request, kept until a keeper answers it, so that it can be sent to the next keeper if this one exits first.
    pub(super) launch: Option<Box<Launch>>,
    /// Why the keeper could not launch it, while it is found out what to add to that ([`World::examine`]).
    ///
    /// [`World::examine`]: crate::ports::process::world::World::examine
    pub(super) failure: Option<Failure>,
    /// The name of the lease whose pass the attempt is, if any. Only for the log: see [`lease_of`].
    pub(super) lease: Option<String>,
    pub(super) identity: Option<Identity>,
    pub(super) launched: bool,
    pub(super) contained: bool,
    /// See [`Tree::kept`].
    pub(super) kept: bool,
    pub(super) run_dir: Option<Bytes>,
    /// The process's descriptor. Without a descriptor, the process is looked up by its identity.
    pub(super) handle: Option<H>,
    /// When the process is next checked, by `World::clock`, and how long that wait is; both in milliseconds.
    pub(super) next_look: Option<(u64, u64)>,
    /// The report that the attempt started, once it has been sent. It is sent again if the actor repeats its action.
    pub(super) started: Option<Message>,
    /// The report that the attempt ended or could not be launched, once it has been sent. It is sent again if the actor repeats its action.
    pub(super) ended: Option<Message>,
    pub(super) clearing: Option<Clearing>,
}

impl<H> Attempt<H> {
    pub(super) const fn new(launched: bool, run_dir: Option<Bytes>) -> Self {
        Self {
            spec: None,
            asked: false,
            launch: None,
            failure: None,
            lease: None,
            identity: None,
            launched,
            contained: false,
            kept: false,
            run_dir,
            handle: None,
            next_look: None,
            started: None,
            ended: None,
            clearing: None,
        }
    }

    /// Returns whether the attempt is to be launched and the result of the launch is not yet known.
    pub(super) const fn is_pending(&self) -> bool {
        self.spec.is_some() || self.launch.is_some()
    }

    /// Logs that the attempt could not be launched. For a service this is a warning, since no client is informed.
    pub(super) fn log_failure(&self, id: ProcessId, failure: &Failure) {
        let argv = match (&self.spec, &self.launch) {
            (Some(spec), _) => spec.argv.first(),
            (None, launch) => launch.as_ref().and_then(|it| it.argv.first()),
        };
        let program = argv.map_or_else(String::new, |it| text(it.as_bytes()));
        let step = failure.step.name();
        let error = match failure.errno {
            0 => String::new(),
            errno => io::Error::from_raw_os_error(errno).to_string(),
        };
        let about = failure.about.as_deref().unwrap_or_default();
        let errno = failure.errno;
        match self.service() {
            Some(service) => {
                tracing::warn!(service, program, process = %id, step, errno, error, about, "a service could not be launched");
            }
            None => {
                let lease = self.lease.as_deref();
                tracing::info!(lease, program, process = %id, step, errno, error, about, "a process could not be launched");
            }
        }
    }

    /// Returns the name of the service that the attempt belongs to, if any.
    fn service(&self) -> Option<String> {
        // The name is taken from the directory of the attempt's files, which only the coordinator can set, and not from environment
        // variables, which clients can set.
        let dir = self.run_dir.as_ref()?.as_bytes().strip_prefix(b"services/")?;
        dir.split(|byte| *byte == b'/').next().map(text)
    }

    pub(super) fn tree(&self, id: ProcessId) -> Option<Tree> {
        Some(Tree {
            id,
            leader: self.identity?,
            contained: self.contained,
            launched: self.launched,
            kept: self.kept,
        })
    }
}

/// The state of the connection to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// No keeper is connected.
    Down,
    /// The keeper was greeted but has not yet reported all its attempts.
    Greeted,
    /// The keeper has reported all its attempts.
    Up,
}

/// Returns the name of the lease that a spec was launched for, from the variable that the lease adds last to those of its command. A client
/// that launches a process may set this variable too, so nothing but the text of a log line depends on it.
pub(super) fn lease_of(spec: &Spec) -> Option<String> {
    let mut env = spec.env.iter().rev();
    let (_, value) = env.find(|(name, _)| name == "SEXTON_LEASE")?;
    Some(text(value.as_bytes()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns why it is unknown how a process ended. `launched` is whether a keeper launched it.
pub(super) const fn reason(launched: bool) -> Lost {
    if launched { Lost::KeeperGone } else { Lost::NotOurs }
}

/// Decodes an exit status in the format of `wait(2)`.
pub(super) fn end_of(status: u32) -> End {
    let [low, code, ..] = status.to_le_bytes();
    match low & 0x7f {
        0 => End::Code(code),
        signal => End::Signal { signal, dumped: low & 0x80 != 0 },
    }
}

/// Returns what a failed step was about, usually a path or a resource; `None` if there is nothing to add to the name of the step.
pub(super) fn about(step: Step, launch: Option<&Launch>) -> Option<String> {
    let path = |bytes: &Bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned();
    match step {
        Step::Directory => launch.map(|launch| path(&launch.dir)),
        Step::Output => launch.and_then(|it| it.output.as_ref()).map(|it| path(&it.0)),
        Step::Fork => Some("failed to create a process".to_owned()),
        Step::Group => Some("its control group".to_owned()),
        Step::User => Some("its user and groups".to_owned()),
        Step::Limits => Some("its limits".to_owned()),
        Step::Parcel => {
            Some("the environment and streams handed over for it no longer exist".to_owned())
        }
        Step::Keeper
        | Step::Files
        | Step::Environment
        | Step::Exec
        | Step::Abandoned
        | Step::Cancelled => None,
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
