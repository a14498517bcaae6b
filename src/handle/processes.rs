//! Typed access to a node's processes: the API for programs that embed the node, and the basis of the listeners.
//!
//! Calls can be awaited in any runtime, and made from a plain thread through [`crate::block_on`]. A change is answered once it is in the
//! journal; a launch is therefore answered before the process runs.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is an error")]

use crate::actors::process::{
    Failure, Identity, Launching, Message, Phase, ProcessMachine, Query, RecordView, Refused,
    Registering, Reply, Selection, Sent, Spec, Tags, Totals, Watch,
};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::handle::pruning::{PRUNED_AT_ONCE, together};
use crate::handle::unexpected::{reason_of, unexpected};
use crate::ids::{ActorId, ProcessId, RequestKey, Seq};
pub use crate::ports::process::{Left, Requester, Usage};
use crate::ports::process::{ProcessPortHandle, Tree, requester};
use crate::refusal::Reason;
use crate::spine::delivery::{Failed, Item};
use crate::spine::runtime::{Mailbox, Stopped};
use std::path::PathBuf;
use tokio::sync::oneshot;

/// The maximum number of processes whose resource usage is read in one go. It is low, because notifications that processes have ended wait
/// until the read is done.
const READ_AT_ONCE: usize = 32;

/// The maximum number of processes checked in one go.
const RECONCILED_AT_ONCE: u32 = 100;

/// Why a process operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// The operation was refused, for this reason.
    #[error("{0}")]
    Refused(Refused),
    /// More than one id begins with the prefix. Contains some of these ids.
    #[error("more than one process id begins with this prefix")]
    Ambiguous(Vec<ProcessId>),
    /// A signal could not be sent; holds the errno.
    #[error("the signal could not be sent: {}", std::io::Error::from_raw_os_error(*.0))]
    Unsent(i32),
    /// There is no keeper, and none could be started.
    #[error("no keeper is running here: {}", words(.0))]
    NoKeeper(Failure),
    /// The actor panicked while it handled the request, which was not applied, or only in part ([`Failed::Interrupted`]). The actor continues.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl ProcessError {
    /// Returns the machine-readable reason, which determines the HTTP status and the command line's exit status.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Refused(Refused::Unknown | Refused::NoService) => Reason::Absent,
            Self::Refused(Refused::Ended) => Reason::Ended,
            Self::Refused(Refused::Queued) => Reason::NotStarted,
            Self::Refused(Refused::NotDeferred) => Reason::NotDeferred,
            Self::Refused(Refused::Launched) => Reason::Launched,
            Self::Refused(Refused::NotUnknown) => Reason::NotUnknown,
            Self::Refused(Refused::Server) => Reason::Server,
            Self::Refused(
                Refused::Full | Refused::TooDeep | Refused::Busy | Refused::ReceiptsFull,
            ) => Reason::Full,
            Self::Refused(Refused::Draining) => Reason::Draining,
            Self::Refused(Refused::Invalid(_)) | Self::Ambiguous(_) => Reason::Field,
            Self::Refused(Refused::DiskFull) => Reason::DiskFull,
            Self::Refused(Refused::KeyReused) => Reason::KeyReused,
            Self::Refused(Refused::Forbidden) => Reason::OutOfScope,
            Self::Unsent(_) => Reason::Unsent,
            Self::NoKeeper(_) => Reason::NoKeeper,
            Self::Failed(failed) => reason_of(*failed),
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

/// Describes why a process could not be started: what failed, and the kernel's error.
pub fn words(failure: &Failure) -> String {
    if failure.is_cancellation() {
        return "it was stopped before it was launched".to_owned();
    }
    let error = match failure.errno {
        0 => None,
        errno => Some(std::io::Error::from_raw_os_error(errno).to_string()),
    };
    let parts = [failure.about.clone(), error];
    let words: Vec<String> = parts.into_iter().flatten().collect();
    if words.is_empty() { "no reason was given".to_owned() } else { words.join(": ") }
}

/// How to stop a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopping {
    /// The first signal; `None` for the stop signal in the process's spec.
    pub signal: Option<u8>,
    /// The time from the first signal to SIGKILL, in milliseconds; `None` for the grace period in the process's spec, and 0 to kill
    /// immediately.
    pub grace_ms: Option<u32>,
    /// Whether to stop everything that the process has started as well.
    pub tree: bool,
}

/// The result of checking all processes recorded as alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// The number of processes checked.
    pub asked: u64,
    /// The processes that no longer exist.
    pub gone: Vec<ProcessId>,
}

/// A handle to the processes of a node, usable from any thread. Clones share the node.
#[derive(Clone)]
pub struct Processes {
    mailbox: Mailbox<ProcessMachine>,
    port: ProcessPortHandle,
    key: Option<RequestKey>,
}

impl Processes {
    pub(super) const fn new(mailbox: Mailbox<ProcessMachine>, port: ProcessPortHandle) -> Self {
        Self { mailbox, port, key: None }
    }

    /// Returns a handle that sends `key` with each change: a change that is repeated with the same key is carried out only once, and is
    /// answered as before.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self { key: Some(key), ..self.clone() }
    }

    /// Launches a process through the keeper. Resolves when the record is durable. The process may not have started by then: see
    /// [`Processes::started`]. If the launch is [deferred](Launching::deferred), the process stays queued until [`Processes::start`] is
    /// called, also after restarts of the node and of the machine; [`Processes::stop`] cancels it.
    pub async fn launch(&self, launching: Launching) -> Result<RecordView, ProcessError> {
        self.record(Message::Launch(Box::new(launching))).await
    }

    /// Launches a process whose launch was deferred. Resolves when that is durable, as for [`Processes::launch`].
    pub async fn start(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        self.record(Message::Begin { id }).await
    }

    /// Creates a record for a process that is already running. Returns the record, and whether it existed before.
    pub async fn register(
        &self,
        registering: Registering,
    ) -> Result<(RecordView, bool), ProcessError> {
        let message = Message::Register(Box::new(registering));
        match self.send(message).await? {
            Reply::Registered { record, known } => Ok((*record, known)),
            other => Err(refusal(other)),
        }
    }

    /// Reports that a registered process has ended, with its exit code and error.
    pub async fn finish(
        &self,
        id: ProcessId,
        code: u8,
        error: Option<String>,
    ) -> Result<(), ProcessError> {
        match self.send(Message::Finish { id, code, error }).await? {
            Reply::Done | Reply::Record(_) => Ok(()),
            other => Err(refusal(other)),
        }
    }

    /// Stops a process: sends the first signal and, if the process is still alive after the grace period, SIGKILL. Resolves when the
    /// request is durable, before the process has ended: see [`Processes::ended`].
    pub async fn stop(&self, id: ProcessId, how: Stopping) -> Result<RecordView, ProcessError> {
        let Stopping { signal, grace_ms, tree } = how;
        self.record(Message::Stop { id, signal, grace_ms, tree }).await
    }

    /// Sends a signal to a process, through a descriptor that is verified to refer to it, or to its process group if `group` is true.
    /// Resolves when the signal has been sent, with [`ProcessError::Unsent`] if that failed, or [`Refused::Ended`] if the process ended first.
    pub async fn signal(&self, id: ProcessId, signal: u8, group: bool) -> Result<(), ProcessError> {
        let asked: Seq = match self.send(Message::Signal { id, signal, group }).await? {
            Reply::Signalling(asked) => asked,
            other => return Err(refusal(other)),
        };
        match self.mailbox.watch(Watch::Signal(id, asked)).await?? {
            Reply::Sent(Some(Sent { errno: Some(errno), .. })) => Err(ProcessError::Unsent(errno)),
            Reply::Sent(_) => Ok(()),
            other => Err(refusal(other)),
        }
    }

    /// Records that nothing of a process's tree is alive any more, although the node cannot determine that. Refused unless the whole tree has
    /// been killed, and only processes that may or may not belong to it were left.
    pub async fn settle(&self, id: ProcessId) -> Result<(), ProcessError> {
        match self.send(Message::Settle { id }).await? {
            Reply::Done => Ok(()),
            other => Err(refusal(other)),
        }
    }

    /// Resolves when a process has started or has failed to start.
    pub async fn started(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        record(self.mailbox.watch(Watch::Start(id)).await??)
    }

    /// Resolves when the process itself has ended or has failed to start.
    pub async fn leader_ended(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        record(self.mailbox.watch(Watch::Leader(id)).await??)
    }

    /// Resolves when a process has ended, and its whole tree too if the tree is being stopped or a right is bound to it.
    pub async fn ended(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        record(self.mailbox.watch(Watch::End(id)).await??)
    }

    /// Returns a record.
    pub async fn get(&self, id: ProcessId) -> Result<RecordView, ProcessError> {
        record(self.query(Query::One(id)).await?)
    }

    /// Returns the record whose id begins with `prefix`, which must have at least [`Query::PREFIX_DIGITS`] hexadecimal digits. Returns
    /// [`ProcessError::Ambiguous`] if there are several.
    pub async fn find(&self, prefix: &str) -> Result<RecordView, ProcessError> {
        record(self.query(Query::Prefix(prefix.to_owned())).await?)
    }

    /// Returns the full spec of a process.
    pub async fn spec(&self, id: ProcessId) -> Result<Spec, ProcessError> {
        match self.query(Query::Spec(id)).await? {
            Reply::Spec(spec) => Ok(*spec),
            other => Err(refusal(other)),
        }
    }

    /// Returns the id of this machine, which is part of the identities of its processes.
    pub fn machine(&self) -> u128 {
        self.port.observed().machine()
    }

    /// Returns a page of the records that match a selection, and the id to continue after, or `None` after the last page. Long lists are
    /// walked without delaying other requests, so the pages are not a consistent snapshot.
    pub async fn list(
        &self,
        selection: Selection,
    ) -> Result<(Vec<RecordView>, Option<ProcessId>), ProcessError> {
        page(self.scan(Query::List(selection)).await?)
    }

    /// Returns the current resource usage of the processes with these records, in the same order; `None` for a process that is not running
    /// or whose usage cannot be read. The usage is read at the time of the call, a few processes at a time, without involving the actors.
    pub async fn usage(&self, records: &[RecordView]) -> Result<Vec<Option<Usage>>, ProcessError> {
        let mut all = Vec::with_capacity(records.len());
        for some in records.chunks(READ_AT_ONCE) {
            let trees: Vec<Option<Tree>> = some.iter().map(tree).collect();
            let (answer, read) = oneshot::channel();
            self.port.usage(trees.iter().flatten().copied().collect(), |usage| {
                // The caller may no longer be waiting.
                drop(answer.send(usage));
            });
            let mut read = read.await.map_err(|_| Stopped)?.into_iter();
            all.extend(trees.iter().map(|tree| tree.and_then(|_| read.next().flatten())));
        }
        Ok(all)
    }

    /// Returns what is left of the trees of these processes, in the same order, at most [`Left::MOST`] processes each. Only records whose own
    /// process has ended are searched for; the others have an empty list.
    pub async fn left(&self, records: &[RecordView]) -> Result<Vec<Vec<Left>>, ProcessError> {
        let ended = |it: &RecordView| tree(it).filter(|_| it.end.is_some());
        let trees: Vec<Option<Tree>> = records.iter().map(ended).collect();
        let wanted: Vec<Tree> = trees.iter().flatten().copied().collect();
        if wanted.is_empty() {
            return Ok(vec![Vec::new(); records.len()]);
        }
        let (answer, found) = oneshot::channel();
        // The caller may no longer be waiting.
        self.port.left(wanted, |left| drop(answer.send(left)));
        let mut found = found.await.map_err(|_| Stopped)?.into_iter();
        let each = trees.iter().map(|it| it.and_then(|_| found.next()).unwrap_or_default());
        Ok(each.collect())
    }

    /// Returns the processes that the operating system shows below a live process, at most [`Left::MOST`]; none for a record whose process
    /// does not run.
    pub async fn below(&self, record: &RecordView) -> Result<Vec<Left>, ProcessError> {
        let Some(tree) = tree(record).filter(|_| record.end.is_none()) else {
            return Ok(Vec::new());
        };
        let (answer, found) = oneshot::channel();
        // The caller may no longer be waiting.
        self.port.left(vec![tree], |below| drop(answer.send(below)));
        let mut below = found.await.map_err(|_| Stopped)?.pop().unwrap_or_default();
        below.retain(|it| it.pid != tree.leader.pid);
        Ok(below)
    }

    /// Checks whether each process recorded as alive still exists, and returns how many were checked and which no longer exist. The record
    /// of a process that no longer exists is updated once it is known how the process ended: see [`Processes::ended`].
    pub async fn reconcile(&self) -> Result<Reconciled, ProcessError> {
        let mut found = Reconciled::default();
        let mut selection = Selection {
            phases: vec![Phase::Running, Phase::Stopping],
            most: RECONCILED_AT_ONCE,
            ..Selection::default()
        };
        loop {
            let (records, next) = self.list(selection.clone()).await?;
            // Only the process itself is looked up, so a process that has ended is left out even if its tree is still alive.
            let live = records.iter().filter(|record| record.end.is_none());
            let trees = live.filter_map(|it| Some((tree(it)?, it.run_dir.clone())));
            let trees: Vec<(Tree, Option<Bytes>)> = trees.collect();
            let ids: Vec<ProcessId> = trees.iter().map(|(tree, _)| tree.id).collect();
            let (answer, gone) = oneshot::channel();
            self.port.reconcile(trees, |gone| {
                // The caller may no longer be waiting.
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

    /// Returns the processes that have not ended and whose end will be reported to the actor `by`: processes launched for that actor, and
    /// processes that its rights are bound to.
    pub(super) async fn watched_by(&self, by: ActorId) -> Result<Vec<ProcessId>, ProcessError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            match self.scan(Query::Watched { by, after }).await? {
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

    /// Returns the live processes that the keeper launched and that have no record, each with its PID.
    pub(super) async fn strangers(&self) -> Result<Vec<(ProcessId, u32)>, ProcessError> {
        let (answer, strangers) = oneshot::channel();
        self.port.strangers(|found| {
            // The caller may no longer be waiting.
            drop(answer.send(found));
        });
        Ok(strangers.await.map_err(|_| Stopped)?)
    }

    /// Returns the records of these processes; those without a record are left out.
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

    /// Returns the number of records that match a selection.
    pub async fn count(&self, mut selection: Selection) -> Result<u64, ProcessError> {
        let mut all = 0;
        loop {
            match self.scan(Query::Count(selection.clone())).await? {
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

    /// Returns the records of a process's ancestors, beginning with its parent.
    pub async fn ancestors(&self, id: ProcessId) -> Result<Vec<RecordView>, ProcessError> {
        Ok(page(self.scan(Query::Ancestors(id)).await?)?.0)
    }

    /// Returns a page of the records of the descendants of `of`, ordered by id, and the id to continue after, or `None` after the last
    /// page.
    pub async fn descendants(
        &self,
        of: ProcessId,
        after: Option<ProcessId>,
        most: u32,
    ) -> Result<(Vec<RecordView>, Option<ProcessId>), ProcessError> {
        page(self.scan(Query::Descendants { of, after, most }).await?)
    }

    /// Returns the number of records, by state.
    pub async fn totals(&self) -> Result<Totals, ProcessError> {
        match self.query(Query::Totals).await? {
            Reply::Totals(totals) => Ok(totals),
            other => Err(refusal(other)),
        }
    }

    /// Removes the records of processes that ended before `before`, or of all ended processes if `before` is `None`. The records of the
    /// `keep` processes that ended last are kept, and so are records with live descendants. Returns the number of records removed.
    pub async fn prune(&self, before: Option<Date>, keep: u32) -> Result<u64, ProcessError> {
        let limit = PRUNED_AT_ONCE;
        let prune = Message::Prune { before, keep, limit };
        let mut all = 0;
        loop {
            let items = (0..together(self.key)).map(|nth| self.item(prune.clone(), nth));
            let mut is_over = true;
            for answer in self.mailbox.call(items.collect()).await? {
                match answer? {
                    Reply::Pruned { count, more } => {
                        all += u64::from(count);
                        is_over = !more;
                    }
                    other => return Err(refusal(other)),
                }
            }
            if is_over || self.key.is_some() {
                return Ok(all);
            }
        }
    }

    /// Creates a record for a process on this machine, given its PID. `named` is the record that `SEXTON_PROCESS_ID` in the process's
    /// environment names, if that variable is set. Returns the record, and whether it existed before.
    pub async fn register_pid(
        &self,
        process: impl Into<Requester>,
        tags: Tags,
        named: Option<ProcessId>,
    ) -> Result<(RecordView, bool), ProcessError> {
        if let Some(id) = named {
            // The process may be registering itself before the report of its start arrives. Without the identity in that report, it
            // would get a second record. An error does not matter, since there may be no record with this id.
            drop(self.started(id).await);
        }
        let described = requester::describe(process.into(), tags, named);
        let registering = described.ok_or(ProcessError::Refused(Refused::Unknown))?;
        self.register(registering).await
    }

    /// Returns when the process that has this PID now was started; `None` if no process has it.
    pub fn start_of(&self, pid: u32) -> Option<Date> {
        let described = requester::describe(pid.into(), Tags::default(), None)?;
        Some(described.started)
    }

    /// Returns the directory of a process's files; `None` if this node did not launch the process.
    pub fn run_dir(&self, record: &RecordView) -> Option<PathBuf> {
        let own = record.run_dir.as_ref();
        self.port.run_dir(record.id, own).filter(|_| record.launched)
    }

    /// Returns the identities of a process, its parent, and so on upwards.
    pub fn line_of(process: impl Into<Requester>) -> Vec<Identity> {
        requester::line(process.into())
    }

    /// Ensures that a keeper is running, and returns the path of its socket. Before a client launches a command, it sends the command's
    /// environment and streams to this socket in a parcel, which the launch then refers to.
    pub async fn keeper(&self) -> Result<PathBuf, ProcessError> {
        let (answer, joined) = oneshot::channel();
        self.port.join(move |result| {
            // The caller may no longer be waiting.
            drop(answer.send(result));
        });
        let joined = joined.await.map_err(|_| Stopped)?;
        joined.map_err(ProcessError::NoKeeper)?;
        self.port.socket().ok_or(Stopped.into())
    }

    /// Reaps inherited children after a SIGCHLD, if the configuration makes this process an init
    /// ([`Config::is_init`](crate::Config::is_init)). If an ended process has a record, its end is recorded first.
    pub fn reap(&self) {
        self.port.reap();
    }

    async fn record(&self, message: Message) -> Result<RecordView, ProcessError> {
        record(self.send(message).await?)
    }

    async fn send(&self, message: Message) -> Result<Reply, ProcessError> {
        self.one(self.item(message, 0)).await
    }

    /// Wraps message number `nth` of a request, counting from 0, with the request's key.
    fn item(&self, message: Message, nth: u64) -> Item<ProcessMachine> {
        Item::once(message, self.key.map(|key| key.nth(nth)))
    }

    async fn query(&self, query: Query) -> Result<Reply, ProcessError> {
        self.one(Item::Query(query)).await
    }

    async fn one(&self, item: Item<ProcessMachine>) -> Result<Reply, ProcessError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }

    async fn scan(&self, query: Query) -> Result<Reply, ProcessError> {
        let answer = self.mailbox.scan(vec![Item::Query(query)]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

/// Returns the tree of a process; `None` if the process itself is not alive, or has no identity yet.
fn tree(record: &RecordView) -> Option<Tree> {
    let lives = matches!(record.phase, Phase::Running | Phase::Stopping);
    Some(Tree {
        id: record.id,
        leader: record.identity.filter(|_| lives)?,
        contained: record.contained,
        launched: record.launched,
        kept: false,
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

/// Converts a reply of an unexpected kind to an error.
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
        | Reply::Services(_) => unexpected(&reply).into(),
    }
}
