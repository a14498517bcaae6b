//! Locks of a node, typed: what a program that embeds it calls, and what the doors beside LockServer's are made of.
//!
//! A call can be awaited in any runtime, and from a plain thread through [`crate::block_on`]. One that changes something
//! is answered when the journal has it.

use crate::actors::binding::Binding;
use crate::actors::lock::{
    Contended, Listed, LockMachine, Message, Name, Query, Ranking, Refused, Reply, Selection,
    Standing, Tie, Watch,
};
use crate::ids::{RequestKey, Slot, Token};
use crate::refusal::Reason;
use crate::spine::delivery::{Answer, Failed, Item};
use crate::spine::runtime::{Mailbox, Stopped};

/// Which lock, and for whom: one entry, owned or waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Name,
    /// The index below it; empty for none.
    pub index: Name,
    /// Who has it or waits for it. One name for each that does: an entry is ended by whoever knows its names. To renew,
    /// release or watch what is held, a token says enough: the name may be empty then.
    pub owner: Name,
}

impl Entry {
    /// The lock of a key alone.
    ///
    /// # Errors
    /// If a name has more than [`Name::BYTES_MAX`] bytes.
    pub fn new(key: &str, owner: &str) -> Result<Self, serde::de::value::Error> {
        Ok(Self {
            key: key.try_into()?,
            index: Name::default(),
            owner: owner.try_into()?,
        })
    }
}

/// For how long, and after whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Seconds until the lock passes on, unless it is renewed. With 0 it does so at the next command.
    pub ttl: u16,
    /// Seconds to wait for it at most; 0 does not wait.
    pub wait: u16,
    /// Standing among those who wait; the larger goes first, unless the node is set otherwise.
    pub priority: u8,
}

impl Default for Terms {
    /// A minute to live, no waiting, the lowest standing.
    fn default() -> Self {
        Self {
            ttl: 60,
            wait: 0,
            priority: 0,
        }
    }
}

/// Why a lock was not acquired, renewed or released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it, and the wait is over.
    #[error("somebody else holds the lock")]
    Held {
        /// Where the entry stood in line when it came; 2 for the first that waited.
        place: u32,
    },
    /// There is no such entry: it never was, was released, or its time ran out.
    #[error("there is no such holder or waiter")]
    Absent,
    /// Not done, and why.
    #[error("{}", words(*.0))]
    Refused(Refused),
    /// The command panicked and was not applied. The actor goes on.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl LockError {
    /// Why, for programs: with its status over HTTP and the exit status of the command line.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Held { .. } => Reason::Held,
            Self::Absent => Reason::Absent,
            Self::Refused(Refused::Draining) => Reason::Draining,
            Self::Refused(Refused::NoOwner) => Reason::Field,
            Self::Refused(Refused::Reserved) => Reason::Reserved,
            Self::Refused(Refused::StaleToken) => Reason::Stale,
            Self::Refused(Refused::Fencing) => Reason::Fencing,
            Self::Refused(Refused::Full) => Reason::Full,
            Self::Refused(Refused::DiskFull) => Reason::DiskFull,
            Self::Refused(Refused::KeyReused) => Reason::KeyReused,
            Self::Failed(_) => Reason::Failed,
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

const fn words(refused: Refused) -> &'static str {
    match refused {
        Refused::Draining => "the coordinator drains and takes no new locks",
        Refused::NoOwner => "the owner is empty",
        Refused::Reserved => "the key is kept for the coordinator itself",
        Refused::StaleToken => "the token is stale: the lock has passed on",
        Refused::Fencing => "the time of the lock has run out, and its process is being killed",
        Refused::Full => "there are as many entries as are allowed",
        Refused::DiskFull => "the disk is full",
        Refused::KeyReused => "the key came before, with another request",
    }
}

/// The locks of a node, from any thread. Cloning gives another handle.
#[derive(Clone)]
pub struct Locks {
    mailbox: Mailbox<LockMachine>,
    key: Option<RequestKey>,
    bound: Option<Binding>,
}

impl Locks {
    pub(super) const fn new(mailbox: Mailbox<LockMachine>) -> Self {
        Self {
            mailbox,
            key: None,
            bound: None,
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

    /// A handle whose locks, and places in line, end with a process: at once when it is gone, and not before. Terms of
    /// 65,535 seconds have no end then. With [`Binding::fence`], which needs [`Until::Tree`](crate::actors::binding::Until),
    /// a lock whose time runs out passes on only when the process and its tree have been killed and are proved gone; until
    /// then it is neither renewed nor released, but by [`Locks::force`].
    #[must_use]
    pub fn bound(&self, binding: Binding) -> Self {
        Self {
            bound: Some(binding),
            ..self.clone()
        }
    }

    /// Carries out commands in order, and gives their answers in the same order: one write, one sync, one wake-up for
    /// all of them.
    pub async fn batch(
        &self,
        items: Vec<Item<LockMachine>>,
    ) -> Result<Vec<Answer<Reply>>, Stopped> {
        self.mailbox.call(items).await
    }

    /// Acquires a lock, and waits for it as long as the terms say. What the entry has already is renewed, and has the
    /// new TTL from then on.
    ///
    /// The token is to be shown to whatever the lock guards: it only ever grows, so who comes with an older one has
    /// lost the lock since. Dropping the future before it
    /// has resolved ends the entry, waiting or not, and so does a start of the node while it waits; but not under a key, by
    /// which it can be asked for again, nor where it is bound to a process.
    ///
    /// # Errors
    /// [`LockError::Held`] when the wait is over, [`LockError::Absent`] when somebody ended the entry meanwhile.
    pub async fn acquire(&self, entry: &Entry, terms: Terms) -> Result<Token, LockError> {
        let Entry { key, index, owner } = entry.clone();
        let mut withdrawal = Withdrawal {
            locks: self,
            entry,
            due: self.key.is_none() && self.bound.is_none(),
        };
        let tie = match (self.bound, self.key) {
            (Some(binding), _) => Tie::Process(binding),
            (None, None) => Tie::Connection,
            (None, Some(_)) => Tie::None,
        };
        let standing = self
            .standing(self.message(Message::Acquire {
                key,
                index,
                owner,
                ttl: terms.ttl,
                ttw: terms.wait,
                priority: terms.priority,
                tie,
            }))
            .await;
        // What is refused made no entry, and one that was there before stays.
        withdrawal.due &= standing.is_ok();
        let standing = standing?;
        let granted = match standing.token {
            Some(token) => Ok(token),
            // It has ended with that command: without waiting, the time to wait is over at once.
            None if terms.wait == 0 => Err(LockError::Held {
                place: standing.place,
            }),
            None => self.granted(entry, standing.place).await,
        };
        withdrawal.due = false;
        granted
    }

    /// Waits until an entry that stands in line owns its lock.
    async fn granted(&self, entry: &Entry, place: u32) -> Result<Token, LockError> {
        let Entry { key, index, owner } = entry.clone();
        let watch = Watch::Granted { key, index, owner };
        let reply = self.mailbox.watch(watch).await??;
        if let Reply::Standing(Standing {
            token: Some(token), ..
        }) = reply
        {
            Ok(token)
        } else {
            Err(LockError::Held { place })
        }
    }

    /// Resolves when the entry no longer owns its lock with this token: released by whoever, or out of time.
    pub async fn lost(&self, entry: &Entry, token: Token) -> Result<(), LockError> {
        let Entry { key, index, owner } = entry.clone();
        let watch = Watch::Lost {
            key,
            index,
            owner,
            token,
        };
        self.mailbox.watch(watch).await??;
        Ok(())
    }

    /// Begins an entry's span again. With a token, only if the entry owns its lock with it.
    pub async fn renew(&self, entry: &Entry, token: Option<Token>) -> Result<Standing, LockError> {
        let Entry { key, index, owner } = entry.clone();
        self.standing(self.message(Message::Renew {
            key,
            index,
            owner,
            token,
        }))
        .await
    }

    /// Ends an entry. With a token, only if the entry owns its lock with it.
    pub async fn release(&self, entry: &Entry, token: Option<Token>) -> Result<(), LockError> {
        let Entry { key, index, owner } = entry.clone();
        let release = Message::Release {
            key,
            index: Some(index),
            owner,
            token,
        };
        let reply = self.one(self.message(release)).await?;
        if let Reply::Ended(_) = reply {
            Ok(())
        } else {
            Err(refusal(&reply))
        }
    }

    /// Ends the entry that holds a lock with this token, since the process that it is bound to ends now: where nobody waits
    /// for the lock, this resolves before that is on disk.
    ///
    /// # Errors
    /// [`LockError::Absent`] if nobody holds it, or what is wrong with the token.
    pub async fn leave(&self, key: &Name, index: &Name, token: Token) -> Result<(), LockError> {
        let (key, index) = (key.clone(), index.clone());
        let leave = Message::Leave { key, index, token };
        let reply = self.one(self.message(leave)).await?;
        if let Reply::Ended(_) = reply {
            Ok(())
        } else {
            Err(refusal(&reply))
        }
    }

    /// Ends the entry that holds a lock, regardless of its owner and of what lives of the process that it is bound to.
    ///
    /// # Errors
    /// [`LockError::Absent`] if nobody holds it.
    pub async fn force(&self, key: &Name, index: &Name) -> Result<(), LockError> {
        let (key, index) = (key.clone(), index.clone());
        let reply = self
            .one(self.message(Message::Force { key, index }))
            .await?;
        if let Reply::Ended(_) = reply {
            Ok(())
        } else {
            Err(refusal(&reply))
        }
    }

    /// Ends every entry of an owner, held and waiting; how many there were.
    pub async fn release_all(&self, owner: &Name) -> Result<u32, LockError> {
        let owner = owner.clone();
        let release = Message::ReleaseAll { owner };
        let reply = self.one(self.message(release)).await?;
        match (&reply, refusal(&reply)) {
            (Reply::Ended(ended), _) => Ok(*ended),
            // What is being fenced ends with its tree.
            (_, LockError::Absent | LockError::Refused(Refused::Fencing)) => Ok(0),
            (_, refused) => Err(refused),
        }
    }

    /// Who holds a lock.
    pub async fn owner(&self, key: &Name, index: &Name) -> Result<Option<Name>, LockError> {
        let (key, index) = (key.clone(), index.clone());
        let reply = self.one(Item::Query(Query::Owner { key, index })).await?;
        if let Reply::Owner(owner) = reply {
            Ok(owner)
        } else {
            Err(refusal(&reply))
        }
    }

    /// Where an entry stands: 1 holds the lock.
    pub async fn place(&self, entry: &Entry) -> Result<Standing, LockError> {
        let Entry { key, index, owner } = entry.clone();
        self.standing(Item::Query(Query::Place { key, index, owner }))
            .await
    }

    /// Holders and waiters of a key, or of all: by key, then by index in the order of its first request, then in line.
    pub async fn list(&self, key: Option<&Name>, most: u32) -> Result<Vec<Listed>, LockError> {
        let list = Query::List {
            key: key.cloned(),
            entries_max: most,
        };
        let reply = self.one(Item::Query(list)).await?;
        if let Reply::List(entries) = reply {
            Ok(entries)
        } else {
            Err(refusal(&reply))
        }
    }

    /// Some of the entries that a filter lets through, and where to go on; nowhere if that was the last. A long table
    /// is walked without holding up others, so it is not a picture of one moment: an entry that comes or goes
    /// meanwhile may or may not be in it, one that stays is in it once.
    pub async fn select(
        &self,
        selection: Selection,
    ) -> Result<(Vec<Listed>, Option<Slot>), LockError> {
        let asked = vec![Item::Query(Query::Select(selection))];
        let reply = self.mailbox.walk(asked).await?.pop().ok_or(Stopped)??;
        if let Reply::Page { entries, next } = reply {
            Ok((entries, next))
        } else {
            Err(refusal(&reply))
        }
    }

    /// Locks that are waited for, and how many there are. If those are more than some thousands, not all of them are
    /// looked at.
    pub async fn contended(
        &self,
        most: u32,
        by: Ranking,
    ) -> Result<(Vec<Contended>, u32), LockError> {
        let asked = vec![Item::Query(Query::Contended { most, by })];
        let reply = self.mailbox.walk(asked).await?.pop().ok_or(Stopped)??;
        if let Reply::Contended { locks, all } = reply {
            Ok((locks, all))
        } else {
            Err(refusal(&reply))
        }
    }

    /// A request is one message here.
    fn message(&self, message: Message) -> Item<LockMachine> {
        Item::once(message, self.key)
    }

    async fn standing(&self, item: Item<LockMachine>) -> Result<Standing, LockError> {
        let reply = self.one(item).await?;
        if let Reply::Standing(standing) = reply {
            Ok(standing)
        } else {
            Err(refusal(&reply))
        }
    }

    async fn one(&self, item: Item<LockMachine>) -> Result<Reply, LockError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

/// What an answer means that is not the one hoped for.
const fn refusal(reply: &Reply) -> LockError {
    match reply {
        Reply::Refused(refused) => LockError::Refused(*refused),
        Reply::Standing(_)
        | Reply::Ended(_)
        | Reply::Absent
        | Reply::Draining
        | Reply::Owner(_)
        | Reply::List(_)
        | Reply::Page { .. }
        | Reply::Counts { .. }
        | Reply::Contended { .. }
        | Reply::Due => LockError::Absent,
    }
}

/// Ends an entry when whoever acquires it goes away before it has the answer: nobody would release it.
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
        let release = Message::Release {
            key,
            index: Some(index),
            owner,
            token: None,
        };
        self.locks.mailbox.cast(vec![Item::Message(release)]);
    }
}
