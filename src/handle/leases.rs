//! Typed access to a node's leases: the API for programs that embed the node, and the basis of the listeners. A lease is a named right to
//! run one *pass* at a time. In a pass, the node runs a command once, or a client does work of its own. See `docs/leases.md`.
//!
//! Calls can be awaited in any runtime, and made from a plain thread through [`crate::block_on`]. A change is answered once it is in the
//! journal; a request for a pass is therefore answered before its command runs.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is an error")]

use crate::actors::binding::Binding;
use crate::actors::lease::{
    Imported, LeaseMachine, LeaseView, Listing, Message, PassRequest, Query, Refused, Reply,
    Setting, Totals, Turn, Watch,
};
use crate::actors::lock::Name;
use crate::handle::unexpected::{reason_of, unexpected};
use crate::ids::{RequestKey, Token};
use crate::refusal::Reason;
use crate::spine::delivery::{Failed, Item};
use crate::spine::runtime::{Mailbox, Stopped};

/// Why a lease operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// There is no such lease.
    #[error("there is no such lease")]
    Absent,
    /// The operation was refused, for this reason.
    #[error("{0}")]
    Refused(Refused),
    /// The actor panicked while it handled the request, which was not applied, or only in part ([`Failed::Interrupted`]). The actor continues.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl LeaseError {
    /// Returns the machine-readable reason, which determines the HTTP status and the command line's exit status.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Absent => Reason::Absent,
            Self::Refused(refused) => match refused {
                Refused::Disabled => Reason::Disabled,
                Refused::Draining => Reason::Draining,
                Refused::Full | Refused::ReceiptsFull => Reason::Full,
                Refused::NoName
                | Refused::Span
                | Refused::Command(_)
                | Refused::NoCommand
                | Refused::Log
                | Refused::NoDate => Reason::Field,
                Refused::StaleToken => Reason::Stale,
                Refused::Running => Reason::Running,
                Refused::DiskFull => Reason::DiskFull,
                Refused::KeyReused => Reason::KeyReused,
                Refused::Forbidden => Reason::OutOfScope,
            },
            Self::Failed(failed) => reason_of(*failed),
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

/// The result of a request for a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The outcome: for example, that the pass has begun, or that the request waits for its turn.
    pub turn: Turn,
    /// The number of the request's journal entry, by which [`Leases::turn`] and [`Leases::withdraw`] identify the request; zero if it
    /// neither began a pass nor became next.
    pub place: Token,
    /// The number of the pass that serves this request, for [`Leases::begun`] and [`Leases::whole`]. For [`Turn::NoDelay`], which no pass
    /// serves, it is the number of the next pass.
    pub pass: u64,
    /// The lease after the request.
    pub lease: LeaseView,
}

/// A handle to the leases of a node, usable from any thread. Clones share the node.
#[derive(Clone)]
pub struct Leases {
    mailbox: Mailbox<LeaseMachine>,
    key: Option<RequestKey>,
}

impl Leases {
    pub(super) const fn new(mailbox: Mailbox<LeaseMachine>) -> Self {
        Self { mailbox, key: None }
    }

    /// Returns a handle that sends `key` with each change: a change that is repeated with the same key is carried out only once, and is
    /// answered as before.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self { key: Some(key), ..self.clone() }
    }

    /// Requests a pass. Unless the request is a claim, the node launches the command when the request's turn comes, even if the caller no
    /// longer waits then. A claim that waits for its turn keeps its position in line until [`Leases::withdraw`] is called; dropping the
    /// future of [`Leases::claim`] does that automatically.
    ///
    /// # Errors
    /// Returns [`LeaseError::Refused`] if the lease is disabled, the node is draining, there is no command to run, there are too many
    /// leases, or the request is invalid.
    pub async fn request(&self, requesting: PassRequest) -> Result<Requested, LeaseError> {
        let message = Message::Request(Box::new(requesting));
        match self.send(message).await? {
            Reply::Turned { turn, place, pass, lease } => {
                Ok(Requested { turn, place, pass, lease: *lease })
            }
            other => Err(refusal(&other)),
        }
    }

    /// Requests a pass that the caller runs itself, and waits for its turn. Returns the token of the pass once it has begun, or `None` if
    /// the request neither began a pass nor became next.
    ///
    /// Dropping the future while it waits gives up the position in line. The position is kept if the handle has an idempotency key, because
    /// the request can be repeated with it, or if the future is dropped before the request is answered.
    ///
    /// # Errors
    /// Returns [`LeaseError::Absent`] if the position in line was withdrawn meanwhile.
    pub async fn claim(
        &self,
        requesting: PassRequest,
    ) -> Result<(Option<Token>, Requested), LeaseError> {
        let name = requesting.name.clone();
        let requested = self.request(requesting).await?;
        if !matches!(requested.turn, Turn::Current | Turn::Next) {
            return Ok((None, requested));
        }
        let token = self.turn(&name, &requested).await?;
        Ok((Some(token), requested))
    }

    /// Waits for the turn of a claim, and returns the token of its pass. Dropping the future gives up the position in line, unless this
    /// handle has an idempotency key.
    ///
    /// # Errors
    /// Returns [`LeaseError::Absent`] if the position in line was withdrawn meanwhile.
    pub async fn turn(&self, name: &Name, requested: &Requested) -> Result<Token, LeaseError> {
        let place = requested.place;
        let mut withdrawal = Withdrawal { leases: self, name, place, due: self.key.is_none() };
        let lease = self.begun_from(name, (place, &requested.lease)).await;
        withdrawal.due = false;
        let lease = lease?.lease;
        let current = lease.running().filter(|it| it.place == place);
        current.map(|it| it.token).ok_or(LeaseError::Absent)
    }

    /// Waits until the pass for the position `place` has begun and, if it runs a command, the command's process has a record. Also returns
    /// if the position is withdrawn. Returns the lease at that time.
    pub async fn begun_from(
        &self,
        name: &Name,
        (place, lease): (Token, &LeaseView),
    ) -> Result<LeaseView, LeaseError> {
        let mut lease = lease.clone();
        loop {
            let next = lease.lease.next.as_ref();
            let launching = lease.lease.running().filter(|it| it.is_launching());
            let number = if next.is_some_and(|it| it.token == place) {
                lease.lease.begun + 1
            } else if launching.is_some_and(|it| it.place == place) {
                lease.lease.begun
            } else {
                return Ok(lease);
            };
            lease = self.begun(name, number).await?;
        }
    }

    /// Reports that a client is still running its pass, and optionally binds the pass to another process. Returns the updated lease.
    pub async fn renew(
        &self,
        name: &Name,
        token: Token,
        process: Option<Binding>,
    ) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.lease(Message::Renew { name, token, process }).await
    }

    /// Reports that a pass run by a client has ended with exit status `code`. Returns the updated lease.
    pub async fn finish(
        &self,
        name: &Name,
        token: Token,
        code: u8,
    ) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.lease(Message::Finish { name, token, code }).await
    }

    /// Withdraws a position in line, and returns the updated lease. The requested pass is dropped unless other requests rely on it. If the
    /// pass has begun meanwhile, it ends if the client runs it itself.
    ///
    /// # Errors
    /// Returns [`LeaseError::Absent`] if the position does not exist: for example, because it was withdrawn before, or because the node has
    /// launched its command.
    pub async fn give_back(&self, name: &Name, place: Token) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.lease(Message::Withdraw { name, place }).await
    }

    /// Withdraws a claim for which no client waits any more, without waiting for the answer. If the pass has begun meanwhile, it ends.
    pub fn withdraw(&self, name: &Name, place: Token) {
        let name = name.clone();
        let message = Message::Withdraw { name, place };
        self.mailbox.cast(vec![Item::Message(message)]);
    }

    /// Changes a setting of a lease, and returns the updated lease. The lease is created if it does not exist.
    pub async fn set(&self, name: &Name, setting: Setting) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.lease(Message::Set { name, setting }).await
    }

    /// Replaces the current and the next holder of a lease with those of a Fossil lease. The lease is created if it does not exist.
    ///
    /// # Errors
    /// Returns [`Refused::Running`] if a pass is running.
    pub async fn import(
        &self,
        name: &Name,
        current: Imported,
        next: Imported,
    ) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        let import = Message::Import { name, current, next };
        self.lease(import).await
    }

    /// Deletes a lease with all its settings. With `force`, a running pass is stopped first. Returns `true` if the lease has been deleted,
    /// or `false` if it will be deleted as soon as the pass has ended: see [`Leases::ended`].
    ///
    /// # Errors
    /// Returns [`Refused::Running`] if a pass is running and `force` is not set, or if the lease is being deleted already.
    pub async fn reset(&self, name: &Name, force: bool) -> Result<bool, LeaseError> {
        let message = Message::Reset { name: name.clone(), force };
        match self.send(message).await? {
            Reply::Done => Ok(true),
            Reply::Lease(_) => Ok(false),
            other => Err(refusal(&other)),
        }
    }

    /// Returns a lease.
    pub async fn get(&self, name: &Name) -> Result<LeaseView, LeaseError> {
        view(self.query(Query::Of(name.clone())).await?)
    }

    /// Returns up to `limit` leases whose names begin with `prefix`, ordered by name, but never more than 1,000. If `after` is given, only
    /// leases whose names follow it are returned.
    pub async fn list(
        &self,
        prefix: &Name,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Listing, LeaseError> {
        let list = Query::List { prefix: prefix.clone(), after: after.cloned(), limit };
        match self.query(list).await? {
            Reply::List(listing) => Ok(*listing),
            other => Err(refusal(&other)),
        }
    }

    /// Returns up to `most` active leases: first those with a running pass, longest-running first; then those with a waiting request or an
    /// owed pass; then those with a scheduled date, soonest first. At most 8192 active leases are examined.
    pub async fn active(&self, most: u32) -> Result<Listing, LeaseError> {
        match self.query(Query::Active { most }).await? {
            Reply::List(listing) => Ok(*listing),
            other => Err(refusal(&other)),
        }
    }

    /// Returns up to `most` leases whose latest pass overruns its period or did not run to completion, in the order of [`Self::active`], but
    /// those whose pass any client may have claimed follow all others. At most 8192 active leases are examined.
    pub async fn unwell(&self, most: u32) -> Result<Listing, LeaseError> {
        match self.query(Query::Unwell { most }).await? {
            Reply::List(listing) => Ok(*listing),
            other => Err(refusal(&other)),
        }
    }

    /// Returns up to `most` leases whose latest pass has ended and failed, the latest failure first, but never more than 1,000. Those whose
    /// pass any client may have claimed follow all others.
    pub async fn failed(&self, most: u32) -> Result<Listing, LeaseError> {
        match self.query(Query::Failed { most }).await? {
            Reply::List(listing) => Ok(*listing),
            other => Err(refusal(&other)),
        }
    }

    /// Returns the number of running passes, and the number of leases with a waiting request.
    pub async fn totals(&self) -> Result<Totals, LeaseError> {
        match self.query(Query::Totals).await? {
            Reply::Totals(totals) => Ok(totals),
            other => Err(refusal(&other)),
        }
    }

    /// Resolves with the lease when pass `number` or a later one has begun, or when no further pass is expected. If the pass runs a
    /// command, it counts as begun once the command's process has a record.
    pub async fn begun(&self, name: &Name, number: u64) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.watch(Watch::Begun { name, number }).await
    }

    /// Resolves with the lease when pass `number` or a later one has run to its end or was stopped for running too long, or when no pass is
    /// running or expected.
    pub async fn whole(&self, name: &Name, number: u64) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.watch(Watch::Whole { name, number }).await
    }

    /// Resolves when the pass with this token has ended.
    pub async fn ended(&self, name: &Name, token: Token) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.watch(Watch::Ended { name, token }).await
    }

    async fn watch(&self, watch: Watch) -> Result<LeaseView, LeaseError> {
        view(self.mailbox.watch(watch).await??)
    }

    async fn lease(&self, message: Message) -> Result<LeaseView, LeaseError> {
        view(self.send(message).await?)
    }

    async fn send(&self, message: Message) -> Result<Reply, LeaseError> {
        self.one(Item::once(message, self.key)).await
    }

    async fn query(&self, query: Query) -> Result<Reply, LeaseError> {
        self.one(Item::Query(query)).await
    }

    async fn one(&self, item: Item<LeaseMachine>) -> Result<Reply, LeaseError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

fn view(reply: Reply) -> Result<LeaseView, LeaseError> {
    match reply {
        Reply::Lease(lease) | Reply::Turned { lease, .. } => Ok(*lease),
        other => Err(refusal(&other)),
    }
}

/// Converts a reply of an unexpected kind to an error.
fn refusal(reply: &Reply) -> LeaseError {
    match reply {
        Reply::Refused(refused) => LeaseError::Refused(*refused),
        Reply::Absent => LeaseError::Absent,
        other => unexpected(other).into(),
    }
}

/// A guard that withdraws a claim when the future waiting for it is dropped, because no client would run the pass.
struct Withdrawal<'l> {
    leases: &'l Leases,
    name: &'l Name,
    place: Token,
    due: bool,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.due {
            self.leases.withdraw(self.name, self.place);
        }
    }
}
