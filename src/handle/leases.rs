//! Leases of a node, typed: what a program that embeds it calls, and what the listeners are made of.
//!
//! A call can be awaited in any runtime, and from a plain thread through [`crate::block_on`]. What changes something is
//! answered when the journal has it; a request for a pass, so, before its command runs.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an answer of another kind is a refusal, whichever it is"
)]

use crate::actors::binding::Binding;
use crate::actors::lease::{
    Imported, LeaseMachine, LeaseView, Listing, Message, Query, Refused, Reply, Requesting,
    Setting, Totals, Turn, Watch,
};
use crate::actors::lock::Name;
use crate::ids::{RequestKey, Token};
use crate::refusal::Reason;
use crate::spine::delivery::{Failed, Item};
use crate::spine::runtime::{Mailbox, Stopped};

/// Why something was not done, or not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// There is no such lease.
    #[error("there is no such lease")]
    Absent,
    /// Not done, and why.
    #[error("{0}")]
    Refused(Refused),
    /// The command panicked and was not applied. The actor goes on.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl LeaseError {
    /// Why, for programs: with its status over HTTP and the exit status of the command line.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Absent => Reason::Absent,
            Self::Refused(refused) => match refused {
                Refused::Disabled => Reason::Disabled,
                Refused::Draining => Reason::Draining,
                Refused::Full => Reason::Full,
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
            },
            Self::Failed(_) => Reason::Failed,
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

/// What came of a request for a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// What.
    pub turn: Turn,
    /// By which its pass and its place are known: [`Leases::turn`] waits for it. Zero if it has neither.
    pub place: Token,
    /// The lease.
    pub lease: LeaseView,
}

impl Requested {
    /// The number of the pass that this request is followed by: [`Leases::begun`] and [`Leases::whole`] wait for it.
    pub fn pass(&self) -> u64 {
        let begun = self.lease.lease.begun;
        match self.turn {
            Turn::Current => begun,
            Turn::Next | Turn::NotNeeded | Turn::Kept | Turn::NoDelay => begun + 1,
        }
    }
}

/// The leases of a node, from any thread. Cloning gives another handle.
#[derive(Clone)]
pub struct Leases {
    mailbox: Mailbox<LeaseMachine>,
    key: Option<RequestKey>,
}

impl Leases {
    pub(super) const fn new(mailbox: Mailbox<LeaseMachine>) -> Self {
        Self { mailbox, key: None }
    }

    /// A handle for one request: what it changes is changed once, however often the request is made under this key.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self {
            key: Some(key),
            ..self.clone()
        }
    }

    /// Asks for a pass. With a command, the coordinator launches it when its turn comes, whatever becomes of whoever asked.
    /// With a claim that waits, the place is that of the caller until [`Leases::withdraw`]: see [`Leases::claim`].
    ///
    /// # Errors
    /// [`Refused::Disabled`], [`Refused::Draining`], [`Refused::NoCommand`], and what is wrong with the request.
    pub async fn request(&self, requesting: Requesting) -> Result<Requested, LeaseError> {
        let message = Message::Request(Box::new(requesting));
        match self.tell(message).await? {
            Reply::Turned { turn, place, lease } => Ok(Requested {
                turn,
                place,
                lease: *lease,
            }),
            other => Err(refusal(&other)),
        }
    }

    /// Asks for a pass that the caller runs itself, and waits for its turn; the token of the pass, or `None` if it gets
    /// none. Dropping the future while it waits takes the place away, but not under a key, by which it can be asked for
    /// again; it is not taken away either if the future is dropped before the request is answered.
    ///
    /// # Errors
    /// [`LeaseError::Absent`] if the place was taken away meanwhile.
    pub async fn claim(
        &self,
        requesting: Requesting,
    ) -> Result<(Option<Token>, Requested), LeaseError> {
        let name = requesting.name.clone();
        let requested = self.request(requesting).await?;
        if !matches!(requested.turn, Turn::Current | Turn::Next) {
            return Ok((None, requested));
        }
        let token = self.turn(&name, &requested).await?;
        Ok((Some(token), requested))
    }

    /// Waits for the turn of a claim: the token of its pass. Dropping the future takes the place away, but not under a key.
    pub async fn turn(&self, name: &Name, requested: &Requested) -> Result<Token, LeaseError> {
        let place = requested.place;
        let mut withdrawal = Withdrawal {
            leases: self,
            name,
            place,
            due: self.key.is_none(),
        };
        let lease = self.begun_from(name, (place, &requested.lease)).await;
        withdrawal.due = false;
        let lease = lease?.lease;
        let current = lease.running().filter(|it| it.place == place);
        current.map(|it| it.token).ok_or(LeaseError::Absent)
    }

    /// Waits until the pass of a place has begun, and its command has a record, or the place is taken away: the lease, as it
    /// is then.
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

    /// A client that runs a pass itself still does; on which process it depends from now on, if on another.
    pub async fn renew(
        &self,
        name: &Name,
        token: Token,
        process: Option<Binding>,
    ) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.lease(Message::Renew {
            name,
            token,
            process,
        })
        .await
    }

    /// A pass that a client runs itself has ended, with this exit status.
    pub async fn finish(
        &self,
        name: &Name,
        token: Token,
        code: u8,
    ) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.lease(Message::Finish { name, token, code }).await
    }

    /// Gives a place back that waits for its turn: the lease, as it is then. What was asked for is owed no more, unless
    /// others rely on it.
    ///
    /// # Errors
    /// [`LeaseError::Absent`] if its pass has begun, or it was taken away.
    pub async fn give_back(&self, name: &Name, place: Token) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.lease(Message::Withdraw { name, place }).await
    }

    /// Whoever claimed this place does not wait for it any more. If its pass has begun meanwhile, that has ended.
    pub fn withdraw(&self, name: &Name, place: Token) {
        let name = name.clone();
        let message = Message::Withdraw { name, place };
        self.mailbox.cast(vec![Item::Message(message)]);
    }

    /// Sets something, from now on. A lease that is not there is made.
    pub async fn set(&self, name: &Name, setting: Setting) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.lease(Message::Set { name, setting }).await
    }

    /// Makes a lease what Fossil has it: who has the pass, and who is next.
    ///
    /// # Errors
    /// [`Refused::Running`] if a pass runs.
    pub async fn import(
        &self,
        name: &Name,
        current: Imported,
        next: Imported,
    ) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        let import = Message::Import {
            name,
            current,
            next,
        };
        self.lease(import).await
    }

    /// Forgets a lease with all that is set; whether it is gone at once. By force, a pass that runs is stopped first, and
    /// the lease is gone when that is: see [`Leases::ended`].
    ///
    /// # Errors
    /// [`Refused::Running`] if a pass runs, and there is no force.
    pub async fn reset(&self, name: &Name, force: bool) -> Result<bool, LeaseError> {
        let message = Message::Reset {
            name: name.clone(),
            force,
        };
        match self.tell(message).await? {
            Reply::Done => Ok(true),
            Reply::Lease(_) => Ok(false),
            other => Err(refusal(&other)),
        }
    }

    /// A lease.
    pub async fn get(&self, name: &Name) -> Result<LeaseView, LeaseError> {
        view(self.ask(Query::Of(name.clone())).await?)
    }

    /// Some of the leases whose names begin so, by name, after this one.
    pub async fn list(
        &self,
        prefix: &Name,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Listing, LeaseError> {
        let list = Query::List {
            prefix: prefix.clone(),
            after: after.cloned(),
            limit,
        };
        match self.ask(list).await? {
            Reply::List(listing) => Ok(*listing),
            other => Err(refusal(&other)),
        }
    }

    /// Leases with a pass that runs or is to come: those that run, the longest first, then those that are next, then by
    /// date. Of very many, some are looked at.
    pub async fn stirring(&self, most: u32) -> Result<Listing, LeaseError> {
        match self.ask(Query::Stirring { most }).await? {
            Reply::List(listing) => Ok(*listing),
            other => Err(refusal(&other)),
        }
    }

    /// How many passes run, and how many places are taken.
    pub async fn totals(&self) -> Result<Totals, LeaseError> {
        match self.ask(Query::Totals).await? {
            Reply::Totals(totals) => Ok(totals),
            other => Err(refusal(&other)),
        }
    }

    /// Resolves when a pass of this number or a later one has begun, or none is on its way.
    pub async fn begun(&self, name: &Name, number: u64) -> Result<LeaseView, LeaseError> {
        let name = name.clone();
        self.watch(Watch::Begun { name, number }).await
    }

    /// Resolves when a whole pass of this number or a later one has ended, or none is on its way.
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
        view(self.tell(message).await?)
    }

    async fn tell(&self, message: Message) -> Result<Reply, LeaseError> {
        self.one(Item::once(message, self.key)).await
    }

    async fn ask(&self, query: Query) -> Result<Reply, LeaseError> {
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

/// What an answer means that is not the one hoped for.
const fn refusal(reply: &Reply) -> LeaseError {
    match reply {
        Reply::Refused(refused) => LeaseError::Refused(*refused),
        _ => LeaseError::Absent,
    }
}

/// Takes a place away when whoever claimed it goes: nobody would run its pass.
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
