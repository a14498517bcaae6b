//! A LockServer client: its commands become messages for the LockActor, and the answers are returned in order.
//!
//! A command that panicked in the actor is answered as refused if the protocol can express that; otherwise, the connection is
//! closed (see "internal errors" in `docs/protocols/lockserver.md`).

use crate::bounds::{Turns, Unread};
use crate::lockserver::DEBUG_TARGET;
use crate::lockserver::codec::{self, Answer, Command, LISTED_MAX};
use crate::lockserver::shared::Shared;
use crate::lockserver::stats::Stats;
use crate::session::{NextStep, Session};
use sexton::actors::lock::{LockMachine, Message, Query, Reply};
use sexton::config::LongWidth;
use sexton::spine::delivery::{self, Item};
use sexton::spine::runtime::Mailbox;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The maximum number of commands that are taken from the input before they are carried out.
const BATCH_MAX: usize = 1024;

/// The maximum size of an answer other than a listing, in bytes: an owner of 255 bytes, with its length.
const ANSWER_BYTES_MAX: usize = 256;

/// A client's protocol state.
pub(crate) struct LockserverSession {
    locks: Mailbox<LockMachine>,
    shared: Arc<Shared>,
    peer: IpAddr,
    long: LongWidth,
    /// The commands to carry out. Each [`Command::Stats`] is paired with the counters as they were when it arrived.
    taken: Vec<(Command, Option<Stats>)>,
    /// Whether bytes that are not a command have arrived. The connection is closed once the commands before them are answered.
    lost: bool,
    /// The permit for a large answer, held while a listing of up to tens of megabytes is being built and sent.
    listing: Option<OwnedSemaphorePermit>,
    /// The memory reserved for the answers to the commands taken.
    unread: Unread,
}

impl LockserverSession {
    pub(crate) fn new(
        locks: &Mailbox<LockMachine>,
        shared: Arc<Shared>,
        peer: IpAddr,
        long: LongWidth,
    ) -> Self {
        Self {
            // The protocol has neither tokens nor users: whoever can connect is trusted with nothing that a process depends on.
            locks: locks.for_strangers(),
            unread: Unread::new(&shared.unread),
            shared,
            peer,
            long,
            taken: Vec::new(),
            lost: false,
            listing: None,
        }
    }
}

impl LockserverSession {
    /// Returns whether another command may be taken before those taken are answered. The first one always may.
    fn may_take(&mut self) -> bool {
        match self.taken.last() {
            None => !self.lost,
            // A listing may be large, so there is at most one per batch.
            Some((Command::List(_), _)) => false,
            Some(_) => {
                self.taken.len() < BATCH_MAX && !self.lost && self.unread.reserve(ANSWER_BYTES_MAX)
            }
        }
    }
}

impl Session for LockserverSession {
    fn turns(&self) -> &Turns {
        &self.shared.turns
    }

    fn take(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while self.may_take() {
            match codec::decode(input.get(taken..).unwrap_or(&[])) {
                Ok(Some((command, len))) => {
                    taken += len;
                    self.shared.counters.command(&command);
                    // The counters are read now; the actor's answer adds the owners and contenders.
                    let stats = (command == Command::Stats).then(|| self.shared.stats((0, 0)));
                    self.taken.push((command, stats));
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(target: DEBUG_TARGET, "{} {error}", self.peer);
                    self.lost = true;
                    // It is unknown where the next command would begin.
                    taken = input.len();
                }
            }
        }
        taken
    }

    async fn perform(&mut self, output: &mut Vec<u8>) -> NextStep {
        let taken = std::mem::take(&mut self.taken);
        let end = if self.lost { NextStep::Close } else { NextStep::Continue };
        if taken.is_empty() {
            return end;
        }
        let items = taken.iter().map(|(command, _)| item(command)).collect();
        let replies = if let Some((Command::List(_), _)) = taken.last() {
            self.listing = Some(self.shared.large.admit().await);
            self.locks.scan(items).await
        } else {
            self.locks.call(items).await
        };
        let Ok(replies) = replies else {
            return NextStep::Close;
        };
        for ((command, stats), reply) in taken.into_iter().zip(replies) {
            let Some(answer) = answer(&command, stats, reply) else {
                return NextStep::Close;
            };
            tracing::debug!(target: DEBUG_TARGET, "{} {command} -> {answer}", self.peer);
            codec::encode(&answer, self.long, output);
        }
        end
    }

    fn answered(&mut self) {
        self.listing = None;
        self.unread.written();
    }
}

/// Converts a command to a message or query for the LockActor.
fn item(command: &Command) -> Item<LockMachine> {
    match command.clone() {
        Command::FindOwner(lock) => Item::Query(Query::Owner { key: lock.key, index: lock.index }),
        Command::Request { lock, owner, ttl, ttw, priority } => Item::Message(Message::Request {
            key: lock.key,
            index: lock.index,
            owner,
            ttl,
            ttw,
            priority,
        }),
        Command::FindContender(lock, owner) => {
            Item::Query(Query::Place { key: lock.key, index: lock.index, owner })
        }
        Command::Renew(lock, owner) => {
            Item::Message(Message::Renew { key: lock.key, index: lock.index, owner, token: None })
        }
        Command::Release(lock, owner) => {
            // Row 24 of `docs/protocols/lockserver.md`: only here, an index of "*" means every index.
            let all = lock.index.as_bytes() == b"*";
            Item::Message(Message::Release {
                key: lock.key,
                index: (!all).then_some(lock.index),
                owner,
                token: None,
            })
        }
        Command::ReleaseAll(owner) => Item::Message(Message::ReleaseAll { owner }),
        Command::List(key) => Item::Query(Query::List { key: Some(key), entries_max: LISTED_MAX }),
        Command::Stats => Item::Query(Query::Counts),
    }
}

/// Returns the answer to a command; `None` if the protocol cannot express the result.
fn answer(
    command: &Command,
    stats: Option<Stats>,
    reply: delivery::Answer<Reply>,
) -> Option<Answer> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(delivery::Failed::Unapplied) => return failed(command),
        // There is no count of what was done, and it is not 0.
        Err(delivery::Failed::Interrupted) => return None,
    };
    Some(match (command, reply) {
        (Command::Renew(..), Reply::LinePosition(_)) => Answer::Renewed(true),
        (Command::Renew(..), Reply::Absent | Reply::Refused(_)) => Answer::Renewed(false),
        (Command::Request { .. } | Command::FindContender(..), Reply::LinePosition(standing)) => {
            Answer::Location(standing.place)
        }
        (
            Command::Request { .. } | Command::FindContender(..),
            Reply::Refused(_) | Reply::Absent,
        ) => Answer::Location(0),
        (Command::Release(..) | Command::ReleaseAll(_), Reply::Ended(count)) => {
            Answer::Count(count)
        }
        (Command::Release(..) | Command::ReleaseAll(_), Reply::Absent | Reply::Refused(_)) => {
            Answer::Count(0)
        }
        (Command::FindOwner(_), Reply::Owner(owner)) => Answer::Owner(owner),
        (Command::List(_), Reply::List(entries)) => Answer::List(entries),
        (Command::Stats, Reply::Counts { owners, contenders }) => {
            Answer::Stats(Stats { owners: owners.into(), contenders: contenders.into(), ..stats? })
        }
        (command, reply) => unreachable!("{reply:?} is not an answer to {command}"),
    })
}

/// Returns the answer to a command that panicked, and so had no effect. Returns `None` for a query, to which any answer would be a guess.
fn failed(command: &Command) -> Option<Answer> {
    match command {
        Command::Request { .. } => Some(Answer::Location(0)),
        Command::Renew(..) => Some(Answer::Renewed(false)),
        Command::Release(..) | Command::ReleaseAll(_) => Some(Answer::Count(0)),
        Command::FindOwner(_) | Command::FindContender(..) | Command::List(_) | Command::Stats => {
            None
        }
    }
}
