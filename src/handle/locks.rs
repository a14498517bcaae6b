//! Typed access to a node's locks: the API for programs that embed the node, and the basis of every listener but LockServer's.
//!
//! Calls can be awaited in any runtime, and made from a plain thread through [`crate::block_on`]. A change is answered once it is in the
//! journal.

use crate::actors::binding::Binding;
use crate::actors::lock::{
    Contended, EntryView, LinePosition, LockMachine, Message, Name, NameTooLong, Query, Ranking,
    Refused, Reply, Selection, Tie, Watch,
};
use crate::handle::unexpected::{reason_of, unexpected};
use crate::ids::{RequestKey, Slot, Token};
use crate::refusal::Reason;
use crate::spine::delivery::{Answer, Failed, Item};
use crate::spine::machine::DISK_FULL;
use crate::spine::runtime::{Mailbox, Stopped};

/// The names that identify a lock entry: the key and index of the lock, and the owner that holds the lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Name,
    /// The index below the key; empty if there is none.
    pub index: Name,
    /// The owner. Use a different name for each holder or waiter: anyone who knows all three names can end the entry. May be empty when a
    /// held lock is renewed, released or watched by its token, because the token then identifies the entry.
    pub owner: Name,
}

impl Entry {
    /// Creates an entry for a key without an index.
    ///
    /// # Errors
    /// Returns an error if a name is longer than [`Name::BYTES_MAX`] bytes.
    pub fn new(key: &str, owner: &str) -> Result<Self, NameTooLong> {
        Ok(Self { key: key.try_into()?, index: Name::default(), owner: owner.try_into()? })
    }
}

/// The terms of a request for a lock: how long to hold it, how long to wait for it, and at which priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Seconds until the lock expires unless it is renewed. With 0, it expires before the next command is carried out.
    pub ttl: u16,
    /// The maximum number of seconds to wait for the lock; 0 to fail immediately if the lock is held.
    pub wait: u16,
    /// Priority among the waiters; the highest goes first, unless the node is configured otherwise.
    pub priority: u8,
}

impl Default for Terms {
    /// Returns terms with a TTL of one minute, no waiting, and priority 0.
    fn default() -> Self {
        Self { ttl: 60, wait: 0, priority: 0 }
    }
}

/// Why a lock operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Another owner holds the lock, and the request did not wait, timed out, or was withdrawn while it waited.
    #[error("another owner holds the lock")]
    Held {
        /// The entry's position in line when the lock was requested; the first waiter has position 2.
        place: u32,
    },
    /// There is no such entry: it never existed, was released, or has expired.
    #[error("there is no such lock entry: it was released, it expired, or it never existed")]
    Absent,
    /// The operation was refused, for this reason.
    #[error("{}", words(*.0))]
    Refused(Refused),
    /// The actor panicked while it handled the request, which was not applied, or only in part ([`Failed::Interrupted`]). The actor continues.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl LockError {
    /// Returns the machine-readable reason, which determines the HTTP status and the command line's exit status.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Held { .. } => Reason::Held,
            Self::Absent => Reason::Absent,
            Self::Refused(Refused::Draining) => Reason::Draining,
            Self::Refused(Refused::NoOwner) => Reason::Field,
            Self::Refused(Refused::Reserved) => Reason::Reserved,
            Self::Refused(Refused::StaleToken) => Reason::Stale,
            Self::Refused(Refused::Fencing) => Reason::Fencing,
            Self::Refused(Refused::Full | Refused::ReceiptsFull) => Reason::Full,
            Self::Refused(Refused::DiskFull) => Reason::DiskFull,
            Self::Refused(Refused::KeyReused) => Reason::KeyReused,
            Self::Refused(Refused::Forbidden) => Reason::OutOfScope,
            Self::Failed(failed) => reason_of(*failed),
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

const fn words(refused: Refused) -> &'static str {
    match refused {
        Refused::Draining => "the coordinator is draining and accepts no new locks",
        Refused::NoOwner => "the owner is empty",
        Refused::Reserved => "the key is reserved for the coordinator",
        Refused::StaleToken => "the token is stale: the lock was released or has expired",
        Refused::Fencing => "the lock has expired, and its process is being killed",
        Refused::Full => "the limit on holders and waiters of locks is reached",
        Refused::DiskFull => DISK_FULL,
        Refused::KeyReused => "the idempotency key was already used for a different request",
        Refused::ReceiptsFull => {
            "too many idempotency keys were used in the last ten minutes: repeat the request later, or without a key"
        }
        Refused::Forbidden => "the lock is bound to a process: this requires the scope run",
    }
}

/// A handle to the locks of a node, usable from any thread. Clones share the node.
#[derive(Clone)]
pub struct Locks {
    mailbox: Mailbox<LockMachine>,
    key: Option<RequestKey>,
    bound: Option<Binding>,
}

impl Locks {
    pub(super) const fn new(mailbox: Mailbox<LockMachine>) -> Self {
        Self { mailbox, key: None, bound: None }
    }

    /// Returns a handle that sends `key` with each change: a change that is repeated with the same key is carried out only once, and is
    /// answered as before.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self { key: Some(key), ..self.clone() }
    }

    /// Returns a handle whose lock entries are bound to a process, whether they hold a lock or wait for it: besides being released or
    /// expiring, an entry ends when the process, or its whole tree if the binding says so, has exited. A TTL or wait of 65,535 seconds then
    /// means no timeout.
    ///
    /// With [`Binding::fence`], which needs [`Until::Tree`](crate::actors::binding::Until), a lock that expires is granted to the next
    /// waiter only when the process and its tree have been killed and are known to have exited. Until then, the lock can be neither renewed
    /// nor released, except by [`Locks::force`].
    #[must_use]
    pub fn bound(&self, binding: Binding) -> Self {
        Self { bound: Some(binding), ..self.clone() }
    }

    /// Returns the mailbox of the LockActor, for protocols that deliver a client's commands in order and many at a time.
    pub const fn mailbox(&self) -> &Mailbox<LockMachine> {
        &self.mailbox
    }

    /// Carries out commands in order and returns their answers in the same order, with a single write, sync and wake-up for
    /// all of them.
    pub async fn batch(
        &self,
        items: Vec<Item<LockMachine>>,
    ) -> Result<Vec<Answer<Reply>>, Stopped> {
        self.mailbox.call(items).await
    }

    /// Acquires a lock, waiting for it as long as `terms` allow. If the entry exists already, it is renewed with the new
    /// TTL.
    ///
    /// Present the token to the resource that the lock guards: tokens only ever increase, so a client whose token is lower than one already
    /// seen has lost the lock. Dropping the future before it resolves ends the entry, waiting or held. A restart of the node ends a
    /// waiting entry. Neither applies to a request with an idempotency key, which can be repeated, or to one that is bound to a process.
    /// After a restart, such an entry is away until it is requested or renewed again: it keeps its position in line, but the lock passes it
    /// over as long as others wait that are not away.
    ///
    /// # Errors
    /// Returns [`LockError::Held`] if the lock is not granted within `terms.wait` seconds, or if the entry is ended while it waits.
    pub async fn acquire(&self, entry: &Entry, terms: Terms) -> Result<Token, LockError> {
        let Entry { key, index, owner } = entry.clone();
        let mut withdrawal =
            Withdrawal { locks: self, entry, due: self.key.is_none() && self.bound.is_none() };
        let tie = match (self.bound, self.key) {
            (Some(binding), _) => Tie::Process(binding),
            (None, None) => Tie::Connection,
            (None, Some(_)) => Tie::None,
        };
        let standing = self
            .position_of(self.message(Message::Acquire {
                key,
                index,
                owner,
                ttl: terms.ttl,
                ttw: terms.wait,
                priority: terms.priority,
                tie,
                waits: terms.wait > 0 && tie != Tie::Connection,
            }))
            .await;
        // A refused request has created no entry, and must not end one that existed before.
        withdrawal.due &= standing.is_ok();
        let standing = standing?;
        let granted = match standing.token {
            Some(token) => Ok(token),
            // A request that does not wait expires immediately, so there is no entry left to wait for.
            None if terms.wait == 0 => Err(LockError::Held { place: standing.place }),
            None => {
                if self.key.is_some() {
                    self.come_back(entry).await;
                }
                self.granted(entry, standing.place).await
            }
        };
        withdrawal.due = false;
        granted
    }

    /// Renews a waiting entry if it is away. A request that is repeated with its idempotency key is answered without being carried out, so
    /// it does not show that its client is back.
    async fn come_back(&self, entry: &Entry) {
        if self.place(entry).await.is_ok_and(|standing| standing.away) {
            let Entry { key, index, owner } = entry.clone();
            let renewal = Message::Renew { key, index, owner, token: None };
            // If it is refused, as on a full disk, the lock passes the entry over as long as others wait.
            drop(self.one(Item::Message(renewal)).await);
        }
    }

    /// Waits until a waiting entry owns its lock, and returns the token. Returns [`LockError::Held`] if the entry ends before that.
    async fn granted(&self, entry: &Entry, place: u32) -> Result<Token, LockError> {
        let Entry { key, index, owner } = entry.clone();
        let watch = Watch::Granted { key, index, owner };
        let reply = self.mailbox.watch(watch).await??;
        if let Reply::LinePosition(LinePosition { token: Some(token), .. }) = reply {
            Ok(token)
        } else {
            Err(LockError::Held { place })
        }
    }

    /// Resolves when the entry no longer owns its lock with this token: for example, because it was released or has expired, even if its
    /// process tree is still being killed.
    pub async fn lost(&self, entry: &Entry, token: Token) -> Result<(), LockError> {
        let Entry { key, index, owner } = entry.clone();
        let watch = Watch::Lost { key, index, owner, token };
        self.mailbox.watch(watch).await??;
        Ok(())
    }

    /// Restarts an entry's timeout. Returns the entry's position in line and, if it holds the lock, its token. If `token` is given, the
    /// entry must hold the lock with that token.
    pub async fn renew(
        &self,
        entry: &Entry,
        token: Option<Token>,
    ) -> Result<LinePosition, LockError> {
        let Entry { key, index, owner } = entry.clone();
        self.position_of(self.message(Message::Renew { key, index, owner, token })).await
    }

    /// Ends an entry. If `token` is given, the entry must hold the lock with that token.
    pub async fn release(&self, entry: &Entry, token: Option<Token>) -> Result<(), LockError> {
        let Entry { key, index, owner } = entry.clone();
        let release = Message::Release { key, index: Some(index), owner, token };
        let reply = self.one(self.message(release)).await?;
        if let Reply::Ended(_) = reply { Ok(()) } else { Err(refusal(&reply)) }
    }

    /// Ends the entry that holds a lock with this token, because the process it is bound to is ending. If there are no waiters, this
    /// resolves before the change is on disk.
    ///
    /// # Errors
    /// Returns [`LockError::Absent`] if the lock is not held, or [`LockError::Refused`] if it is held with another token or has expired and
    /// its process is being killed.
    pub async fn leave(&self, key: &Name, index: &Name, token: Token) -> Result<(), LockError> {
        let (key, index) = (key.clone(), index.clone());
        let leave = Message::Leave { key, index, token };
        let reply = self.one(self.message(leave)).await?;
        if let Reply::Ended(_) = reply { Ok(()) } else { Err(refusal(&reply)) }
    }

    /// Ends the entry that holds a lock, regardless of its owner and of any bound process that is still alive.
    ///
    /// # Errors
    /// Returns [`LockError::Absent`] if the lock is not held.
    pub async fn force(&self, key: &Name, index: &Name) -> Result<(), LockError> {
        let (key, index) = (key.clone(), index.clone());
        let reply = self.one(self.message(Message::Force { key, index })).await?;
        if let Reply::Ended(_) = reply { Ok(()) } else { Err(refusal(&reply)) }
    }

    /// Ends every entry of an owner, whether it holds its lock or waits for it, and returns the number of entries that ended. The entry of
    /// a lock that has expired, but whose process tree is still being killed, ends only with that tree and is not counted.
    pub async fn release_all(&self, owner: &Name) -> Result<u32, LockError> {
        let owner = owner.clone();
        let release = Message::ReleaseAll { owner };
        let reply = self.one(self.message(release)).await?;
        if let Reply::Ended(ended) = reply {
            return Ok(ended);
        }
        // Entries that are being fenced end later, with their process trees.
        if matches!(reply, Reply::Absent | Reply::Refused(Refused::Fencing)) {
            return Ok(0);
        }
        Err(refusal(&reply))
    }

    /// Returns the owner that holds a lock, if there is one.
    pub async fn owner(&self, key: &Name, index: &Name) -> Result<Option<Name>, LockError> {
        let (key, index) = (key.clone(), index.clone());
        let reply = self.one(Item::Query(Query::Owner { key, index })).await?;
        if let Reply::Owner(owner) = reply { Ok(owner) } else { Err(refusal(&reply)) }
    }

    /// Returns an entry's position in line, which is 1 if it holds the lock, and its token if it holds the lock.
    pub async fn place(&self, entry: &Entry) -> Result<LinePosition, LockError> {
        let Entry { key, index, owner } = entry.clone();
        self.position_of(Item::Query(Query::Place { key, index, owner })).await
    }

    /// Returns up to `most` holders and waiters of a key, or of all keys if `key` is `None`. They are ordered by key, then by lock in the
    /// order in which each was first requested, then by position in line.
    pub async fn list(&self, key: Option<&Name>, most: u32) -> Result<Vec<EntryView>, LockError> {
        let list = Query::List { key: key.cloned(), entries_max: most };
        let reply = self.one(Item::Query(list)).await?;
        if let Reply::List(entries) = reply { Ok(entries) } else { Err(refusal(&reply)) }
    }

    /// Returns a page of the entries that match a filter, and the slot at which the next page begins, or `None` after the last page. A long
    /// table is walked without delaying other requests, so the pages are not a consistent snapshot: an entry that is created or ends in the
    /// meantime may be missing, but every other entry is listed exactly once.
    pub async fn select(
        &self,
        selection: Selection,
    ) -> Result<(Vec<EntryView>, Option<Slot>), LockError> {
        let asked = vec![Item::Query(Query::Select(selection))];
        let reply = self.mailbox.scan(asked).await?.pop().ok_or(Stopped)??;
        if let Reply::Page { entries, next } = reply {
            Ok((entries, next))
        } else {
            Err(refusal(&reply))
        }
    }

    /// Returns up to `most` contended locks, ordered by rank, and the number of locks that have waiters. At most 8192 of those locks are
    /// examined.
    pub async fn contended(
        &self,
        most: u32,
        by: Ranking,
    ) -> Result<(Vec<Contended>, u32), LockError> {
        let asked = vec![Item::Query(Query::Contended { most, by })];
        let reply = self.mailbox.scan(asked).await?.pop().ok_or(Stopped)??;
        if let Reply::Contended { locks, all } = reply {
            Ok((locks, all))
        } else {
            Err(refusal(&reply))
        }
    }

    /// Wraps a message with the handle's idempotency key, if it has one. No separate keys are derived from it as in
    /// [`Queues`](super::Queues), because each request to the locks is a single message.
    fn message(&self, message: Message) -> Item<LockMachine> {
        Item::once(message, self.key)
    }

    async fn position_of(&self, item: Item<LockMachine>) -> Result<LinePosition, LockError> {
        let reply = self.one(item).await?;
        if let Reply::LinePosition(standing) = reply { Ok(standing) } else { Err(refusal(&reply)) }
    }

    async fn one(&self, item: Item<LockMachine>) -> Result<Reply, LockError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

/// Converts a reply of an unexpected kind to an error.
fn refusal(reply: &Reply) -> LockError {
    match reply {
        Reply::Refused(refused) => LockError::Refused(*refused),
        Reply::Absent => LockError::Absent,
        Reply::LinePosition(_)
        | Reply::Ended(_)
        | Reply::Draining
        | Reply::Owner(_)
        | Reply::List(_)
        | Reply::Page { .. }
        | Reply::Counts { .. }
        | Reply::Contended { .. }
        | Reply::Due => unexpected(reply).into(),
    }
}

/// A guard that ends an entry if the future of [`Locks::acquire`] is dropped before it resolves, because no client would release the entry.
struct Withdrawal<'l> {
    locks: &'l Locks,
    entry: &'l Entry,
    due: bool,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if !self.due {
            return;
        }
        let Entry { key, index, owner } = self.entry.clone();
        let release = Message::Release { key, index: Some(index), owner, token: None };
        self.locks.mailbox.cast(vec![Item::Message(release)]);
    }
}
