//! Processes of a node, typed: what a program that embeds it calls, and what the listeners are made of.
//!
//! A call can be awaited in any runtime, and from a plain thread through [`crate::block_on`]. What changes something is
//! answered when the journal has it; a launch, so, before the process runs.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an answer of another kind is a refusal, whichever it is"
)]

use crate::actors::process::{
    Failure, Identity, Launching, Message, Phase, ProcessMachine, Query, RecordView, Refused,
    Registering, Reply, Selection, Sent, Spec, Tags, Totals, Watch,
};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ActorId, ProcessId, RequestKey, Seq};
use crate::ports::process::{Keeping, Tree, requester};
pub use crate::ports::process::{Requester, Usage};
use crate::refusal::Reason;
use crate::spine::delivery::{Failed, Item};
use crate::spine::runtime::{Mailbox, Stopped};
use std::path::PathBuf;
use tokio::sync::oneshot;

/// Of how many processes it is read at once what they use: their ends wait for that.
const READ_AT_ONCE: usize = 32;

/// How many processes are looked for again at once.
const RECONCILED_AT_ONCE: u32 = 100;

/// How many records are removed at once.
const PRUNED_AT_ONCE: u32 = 1000;

/// Why something was not done, or not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// Not done, and why.
    #[error("{0}")]
    Refused(Refused),
    /// More than one id begins so; these are some of them.
    #[error("more than one process has an id that begins so")]
    Ambiguous(Vec<ProcessId>),
    /// A signal could not be sent: an errno.
    #[error("the signal could not be sent: {}", std::io::Error::from_raw_os_error(*.0))]
    Unsent(i32),
    /// There is no keeper, or none can be started.
    #[error("no keeper runs here: {}", words(.0))]
    NoKeeper(Failure),
    /// The command panicked and was not applied. The actor goes on.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl ProcessError {
    /// Why, for programs: with its status over HTTP and the exit status of the command line.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Refused(Refused::Unknown | Refused::NoService) => Reason::Absent,
            Self::Refused(Refused::Ended) => Reason::Ended,
            Self::Refused(Refused::Queued) => Reason::NotStarted,
            Self::Refused(Refused::Launched) => Reason::Launched,
            Self::Refused(Refused::Full | Refused::TooDeep | Refused::Busy) => Reason::Full,
            Self::Refused(Refused::Draining) => Reason::Draining,
            Self::Refused(Refused::Invalid(_)) | Self::Ambiguous(_) => Reason::Field,
            Self::Refused(Refused::DiskFull) => Reason::DiskFull,
            Self::Refused(Refused::KeyReused) => Reason::KeyReused,
            Self::Unsent(_) => Reason::Unsent,
            Self::NoKeeper(_) => Reason::NoKeeper,
            Self::Failed(_) => Reason::Failed,
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

/// Why a process could not be started, in words: what about, and the kernel's error.
pub fn words(failure: &Failure) -> String {
    let error = match failure.errno {
        0 => None,
        errno => Some(std::io::Error::from_raw_os_error(errno).to_string()),
    };
    let parts = [failure.about.clone(), error];
    let words: Vec<String> = parts.into_iter().flatten().collect();
    if words.is_empty() {
        "it does not say why".to_owned()
    } else {
        words.join(": ")
    }
}

/// How a process is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopping {
    /// The first signal; that of its spec if `None`.
    pub signal: Option<u8>,
    /// Milliseconds until SIGKILL; those of its spec if `None`; 0 kills at once.
    pub grace_ms: Option<u32>,
    /// Whether all that it started is to end, too.
    pub tree: bool,
}

/// What came of looking again for all that is said to live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// How many were looked for.
    pub asked: u64,
    /// Those that are gone.
    pub gone: Vec<ProcessId>,
}

/// The processes of a node, from any thread. Cloning gives another handle.
#[derive(Clone)]
pub struct Processes {
    mailbox: Mailbox<ProcessMachine>,
    keeping: Keeping,
    key: Option<RequestKey>,
}

impl Processes {
    pub(super) const fn new(mailbox: Mailbox<ProcessMachine>, keeping: Keeping) -> Self {
        Self {
            mailbox,
            keeping,
            key: None,
        }
    }

    /// A handle for one request: what it changes is changed once, however often the request is made under this key.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self {
            key: Some(key),
            ..self.clone()
        }
    }

    /// Has a process launched, by the keeper. The record is durable when this resolves, and the process may not run yet:
    /// see [`Processes::started`].
    pub async fn launch(&self, launching: Launching) -> Result<RecordView, ProcessError> {
        self.record(Message::Launch(Box::new(launching))).await
    }

    /// Gives a process that runs already a record; whether it had one.
    pub async fn register(
        &self,
        registering: Registering,
    ) -> Result<(RecordView, bool), ProcessError> {
        let message = Message::Register(Box::new(registering));
        match self.tell(message).await? {
            Reply::Registered { record, known } => Ok((*record, known)),
            other => Err(refusal(other)),
        }
    }

    /// What was registered has ended, and how it says so.
    pub async fn finish(
        &self,
        id: ProcessId,
        code: u8,
        error: Option<String>,
    ) -> Result<(), ProcessError> {
        match self.tell(Message::Finish { id, code, error }).await? {
            Reply::Done | Reply::Record(_) => Ok(()),
            other => Err(refusal(other)),
        }
    }

    /// Has a process stopped: a signal, its grace, then SIGKILL. Resolves when that is durable; see [`Processes::ended`].
    pub async fn stop(&self, id: ProcessId, how: Stopping) -> Result<RecordView, ProcessError> {
        let Stopping {
            signal,
            grace_ms,
            tree,
        } = how;
        self.record(Message::Stop {
            id,
            signal,
            grace_ms,
            tree,
        })
        .await
    }

    /// Sends a signal, by a descriptor that was verified. Resolves when it was sent.
    pub async fn signal(&self, id: ProcessId, signal: u8, group: bool) -> Result<(), ProcessError> {
        let asked: Seq = match self.tell(Message::Signal { id, signal, group }).await? {
            Reply::Signalling(asked) => asked,
            other => return Err(refusal(other)),
        };
        match self.mailbox.watch(Watch::Signal(id, asked)).await?? {
            Reply::Sent(Some(Sent {
                errno: Some(errno), ..
            })) => Err(ProcessError::Unsent(errno)),
            Reply::Sent(_) => Ok(()),
            other => Err(refusal(other)),
        }
    }

    /// Resolves when a process has been started, or could not be.
    pub async fn started(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        record(self.mailbox.watch(Watch::Start(id)).await??)
    }

    /// Resolves when a process itself has ended, or could not be started.
    pub async fn leader_ended(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        record(self.mailbox.watch(Watch::Leader(id)).await??)
    }

    /// Resolves when a process has ended, and all of its tree if that is being stopped or a right is bound to it.
    pub async fn ended(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        record(self.mailbox.watch(Watch::End(id)).await??)
    }

    /// A record.
    pub async fn get(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        record(self.ask(Query::One(id)).await?)
    }

    /// The record whose id begins so: at least [`Query::PREFIX_DIGITS`] digits.
    pub async fn find(&self, prefix: &str) -> Result<RecordView, ProcessError> {
        record(self.ask(Query::Prefix(prefix.to_owned())).await?)
    }

    /// What a process runs, in full.
    pub async fn spec(&self, id: ProcessId) -> Result<Spec, ProcessError> {
        match self.ask(Query::Spec(id)).await? {
            Reply::Spec(spec) => Ok(*spec),
            other => Err(refusal(other)),
        }
    }

    /// Some of the records that a selection lets through, and after which to go on; none if that was the last. Long lists
    /// are walked without holding up others, so they are no picture of one moment.
    pub async fn list(
        &self,
        selection: Selection,
    ) -> Result<(Vec<RecordView>, Option<ProcessId>), ProcessError> {
        page(self.walk(Query::List(selection)).await?)
    }

    /// What these use now, in their order; `None` for what does not run, or cannot be read. It is read when this is called,
    /// a few at a time, beside the actors.
    pub async fn usage(&self, records: &[RecordView]) -> Result<Vec<Option<Usage>>, ProcessError> {
        let mut all = Vec::with_capacity(records.len());
        for some in records.chunks(READ_AT_ONCE) {
            let trees: Vec<Option<Tree>> = some.iter().map(tree).collect();
            let (answer, read) = oneshot::channel();
            self.keeping
                .usage(trees.iter().flatten().copied().collect(), |usage| {
                    // Whoever asked may be gone.
                    drop(answer.send(usage));
                });
            let mut read = read.await.map_err(|_| Stopped)?.into_iter();
            all.extend(
                trees
                    .iter()
                    .map(|tree| tree.and_then(|_| read.next().flatten())),
            );
        }
        Ok(all)
    }

    /// Has each process that is said to live looked for again, now. The record of one that is gone says so as soon as it is
    /// known how it ended: see [`Processes::ended`].
    pub async fn reconcile(&self) -> Result<Reconciled, ProcessError> {
        let mut found = Reconciled::default();
        let mut selection = Selection {
            phases: vec![Phase::Running, Phase::Stopping],
            most: RECONCILED_AT_ONCE,
            ..Selection::default()
        };
        loop {
            let (records, next) = self.list(selection.clone()).await?;
            // Of one that has ended, and whose tree has not, nothing more is to be found out here.
            let live = records.iter().filter(|record| record.end.is_none());
            let trees = live.filter_map(|it| Some((tree(it)?, it.run_dir.clone())));
            let trees: Vec<(Tree, Option<Bytes>)> = trees.collect();
            let ids: Vec<ProcessId> = trees.iter().map(|(tree, _)| tree.id).collect();
            let (answer, gone) = oneshot::channel();
            self.keeping.reconcile(trees, |gone| {
                // Whoever asked may be gone.
                drop(answer.send(gone));
            });
            let gone = gone.await.map_err(|_| Stopped)?;
            found.asked += ids.len() as u64;
            let gone = ids.into_iter().zip(gone).filter(|(_, is_gone)| *is_gone);
            found.gone.extend(gone.map(|(id, _)| id));
            match next {
                Some(_) => selection.after = next,
                None => return Ok(found),
            }
        }
    }

    /// What has not ended, and of which this actor is to be told: what was launched for it, and what its rights are bound to.
    pub(super) async fn watched_by(&self, by: ActorId) -> Result<Vec<ProcessId>, ProcessError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            match self.walk(Query::Watched { by, after }).await? {
                Reply::Ids { ids, next } => {
                    all.extend(ids);
                    if next.is_none() {
                        return Ok(all);
                    }
                    after = next;
                }
                other => return Err(refusal(other)),
            }
        }
    }

    /// Processes that the keeper launched, that live, and that have no record: each with its PID.
    pub(super) async fn strangers(&self) -> Result<Vec<(ProcessId, u32)>, ProcessError> {
        let (answer, strangers) = oneshot::channel();
        self.keeping.strangers(|found| {
            // Whoever asked may be gone.
            drop(answer.send(found));
        });
        Ok(strangers.await.map_err(|_| Stopped)?)
    }

    /// The records of these, as far as they are there.
    pub async fn each(&self, ids: &[ProcessId]) -> Result<Vec<RecordView>, ProcessError> {
        let items = ids.iter().map(|id| Item::Query(Query::One(*id))).collect();
        let mut records = Vec::new();
        for answer in self.mailbox.call(items).await? {
            if let Reply::Record(record) = answer? {
                records.push(*record);
            }
        }
        Ok(records)
    }

    /// How many records a selection lets through.
    pub async fn count(&self, mut selection: Selection) -> Result<u64, ProcessError> {
        let mut all = 0;
        loop {
            match self.walk(Query::Count(selection.clone())).await? {
                Reply::Count { count, next } => {
                    all += u64::from(count);
                    if next.is_none() {
                        return Ok(all);
                    }
                    selection.after = next;
                }
                other => return Err(refusal(other)),
            }
        }
    }

    /// The record's parent, its parent, and so on.
    pub async fn ancestors(&self, id: ProcessId) -> Result<Vec<RecordView>, ProcessError> {
        Ok(page(self.walk(Query::Ancestors(id)).await?)?.0)
    }

    /// What stands below a record, by id, and after which to go on.
    pub async fn descendants(
        &self,
        of: ProcessId,
        after: Option<ProcessId>,
        most: u32,
    ) -> Result<(Vec<RecordView>, Option<ProcessId>), ProcessError> {
        page(self.walk(Query::Descendants { of, after, most }).await?)
    }

    /// How many records there are, by what is the matter with them.
    pub async fn totals(&self) -> Result<Totals, ProcessError> {
        match self.ask(Query::Totals).await? {
            Reply::Totals(totals) => Ok(totals),
            other => Err(refusal(other)),
        }
    }

    /// Removes records of processes that ended before a date, but never the newest so many; how many were removed.
    /// What has descendants that live stays.
    pub async fn prune(&self, before: Option<Date>, keep: u32) -> Result<u64, ProcessError> {
        let mut all = 0;
        loop {
            let limit = PRUNED_AT_ONCE;
            let message = Message::Prune {
                before,
                keep,
                limit,
            };
            match self.tell(message).await? {
                Reply::Pruned { count, more } => {
                    all += u64::from(count);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(refusal(other)),
            }
        }
    }

    /// Gives a process of this machine a record, by the PID that it has now; whether it had one.
    pub async fn register_pid(
        &self,
        process: impl Into<Requester>,
        tags: Tags,
        named: Option<ProcessId>,
    ) -> Result<(RecordView, bool), ProcessError> {
        let described = requester::describe(process.into(), tags, named);
        let registering = described.ok_or(ProcessError::Refused(Refused::Unknown))?;
        self.register(registering).await
    }

    /// The directory of the files of a process; none if it was not launched here.
    pub fn run_dir(&self, record: &RecordView) -> Option<PathBuf> {
        let own = record.run_dir.as_ref();
        self.keeping
            .run_dir(record.id, own)
            .filter(|_| record.launched)
    }

    /// A process, its parent, and so on upwards: whose child it is that this process asks for.
    pub fn line_of(process: impl Into<Requester>) -> Vec<Identity> {
        requester::line(process.into())
    }

    /// Has a keeper run, and says where it listens: whoever hands it a parcel needs one.
    pub async fn keeper(&self) -> Result<PathBuf, ProcessError> {
        let (answer, joined) = oneshot::channel();
        self.keeping.join(move |result| {
            // Whoever asked may be gone.
            drop(answer.send(result));
        });
        let joined = joined.await.map_err(|_| Stopped)?;
        joined.map_err(ProcessError::NoKeeper)?;
        self.keeping.socket().ok_or(Stopped.into())
    }

    /// A child of this process has ended (SIGCHLD): those that it inherited are reaped, if the configuration says that it is
    /// to ([`Config::is_init`](crate::Config::is_init)). How a process ended that has a record is recorded before.
    pub fn reap(&self) {
        self.keeping.reap();
    }

    async fn record(&self, message: Message) -> Result<RecordView, ProcessError> {
        record(self.tell(message).await?)
    }

    async fn tell(&self, message: Message) -> Result<Reply, ProcessError> {
        self.one(Item::once(message, self.key)).await
    }

    async fn ask(&self, query: Query) -> Result<Reply, ProcessError> {
        self.one(Item::Query(query)).await
    }

    async fn one(&self, item: Item<ProcessMachine>) -> Result<Reply, ProcessError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }

    async fn walk(&self, query: Query) -> Result<Reply, ProcessError> {
        let answer = self.mailbox.walk(vec![Item::Query(query)]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

/// What lives of a record, if anything may.
fn tree(record: &RecordView) -> Option<Tree> {
    let lives = matches!(record.phase, Phase::Running | Phase::Stopping);
    Some(Tree {
        id: record.id,
        leader: record.identity.filter(|_| lives)?,
        contained: record.contained,
        launched: record.launched,
    })
}

fn record(reply: Reply) -> Result<RecordView, ProcessError> {
    match reply {
        Reply::Launched(record) | Reply::Stopping(record) | Reply::Record(record) => Ok(*record),
        other => Err(refusal(other)),
    }
}

fn page(reply: Reply) -> Result<(Vec<RecordView>, Option<ProcessId>), ProcessError> {
    match reply {
        Reply::Page { records, next } => Ok((records, next)),
        other => Err(refusal(other)),
    }
}

/// What an answer means that is not the one hoped for.
fn refusal(reply: Reply) -> ProcessError {
    match reply {
        Reply::Refused(refused) => ProcessError::Refused(refused),
        Reply::Ambiguous(ids) => ProcessError::Ambiguous(ids),
        Reply::Launched(_)
        | Reply::Registered { .. }
        | Reply::Stopping(_)
        | Reply::Signalling(_)
        | Reply::Sent(_)
        | Reply::Pruned { .. }
        | Reply::Done
        | Reply::Record(_)
        | Reply::Spec(_)
        | Reply::Page { .. }
        | Reply::Count { .. }
        | Reply::Ids { .. }
        | Reply::Totals(_)
        | Reply::Services(_) => ProcessError::Refused(Refused::Unknown),
    }
}
