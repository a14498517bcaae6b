//! Pages of durable lock state: one head page, and entries by slot.
//!
//! Change rule: the layout is part of the on-disk format, see `persist/format.rs`.

use crate::actors::binding::{Binding, Until};
use crate::actors::lock::entry::{Client, Entry, Rare, Ring};
use crate::actors::lock::message::Tie;
use crate::clock::{Deadline, Timestamp};
use crate::ids::{PageId, Seq, Slot, Token};
use crate::lookup::durable::{DurableSlab, Item, Loaded, Single, Singleton};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A decoded page.
#[derive(Debug)]
pub enum Page {
    /// The state that does not belong to any one entry.
    Head(Head),
    /// A range of entries, by slot.
    Entries(Loaded<Entry>),
}

impl Page {
    /// Decodes the content of a page. Returns a description of the problem if the content is invalid.
    pub(super) fn decode(page: PageId, content: &[u8]) -> Result<Self, String> {
        if page == PageId::HEAD {
            Singleton::decode(content).map(Self::Head)
        } else {
            DurableSlab::decode(page, content).map(Self::Entries)
        }
    }
}

/// The state that does not belong to any one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When the server last started, which restarted all timeouts.
    pub epoch: Timestamp,
    /// Whether new entries are refused.
    pub draining: bool,
}

impl Single for Head {
    fn canonical(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        bytes.push(self.draining.into());
    }
}

/// An entry as stored in a page.
#[derive(Serialize, Deserialize)]
pub struct Stored<'a> {
    /// The slot, counted from the first slot of the page.
    place: u8,
    key_len: u8,
    index_len: u8,
    #[serde(borrow)]
    names: Bytes<'a>,
    since: Timestamp,
    seq: Seq,
    token: Token,
    first: Seq,
    ttl: u16,
    ttw: u16,
    priority: u8,
    /// What can end the entry; `None` if nothing can and no member follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tie: Option<Tie>,
    /// Whether the owner has timed out and its process tree is being killed; `None` if it is not and no member follows. Only an entry bound
    /// to a process can be fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fencing: Option<bool>,
    /// Whether the client of a contender is there.
    #[serde(default, skip_serializing_if = "Client::polls")]
    client: Client,
}

impl Item for Entry {
    const KIND: u8 = 0;
    const SLOTS: u32 = 32;

    type Stored<'a> = Stored<'a>;

    fn store(&self, place: u8) -> Stored<'_> {
        let (tie, fencing, client) = (self.tie(), self.is_fencing(), self.client());
        let is_last = client.polls();
        Stored {
            place,
            key_len: self.key_len,
            index_len: self.index_len,
            names: Bytes(&self.names),
            since: self.since,
            seq: self.seq,
            token: self.token(),
            first: self.first(),
            ttl: self.ttl,
            ttw: self.ttw,
            priority: self.priority,
            tie: (!tie.is_none() || !is_last).then_some(tie),
            fencing: (fencing || !is_last).then_some(fencing),
            client,
        }
    }

    fn place(stored: &Stored<'_>) -> u8 {
        stored.place
    }

    fn restore(stored: Stored<'_>, slot: Slot) -> Result<Self, String> {
        let lens = usize::from(stored.key_len) + usize::from(stored.index_len);
        if lens > stored.names.0.len() {
            return Err(format!("the key and index in {slot:?} are longer than the stored names"));
        }
        let standing = (stored.token, stored.first);
        let tie = (stored.tie.unwrap_or_default(), stored.fencing.unwrap_or_default());
        let mut entry = Self {
            names: stored.names.0.into(),
            since: stored.since,
            seq: stored.seq,
            rare: Rare::unless_plain(stored.seq, standing, tie),
            of_owner: Ring::alone(slot),
            of_key: Ring::alone(slot),
            ttl: stored.ttl,
            ttw: stored.ttw,
            priority: stored.priority,
            key_len: stored.key_len,
            index_len: stored.index_len,
        };
        entry.set_client(stored.client);
        Ok(entry)
    }

    fn canonical(&self, _slot: Slot, bytes: &mut Vec<u8>) {
        for word in [self.since.0, self.seq.0, self.token().0, self.first().0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.ttl.to_le_bytes());
        bytes.extend_from_slice(&self.ttw.to_le_bytes());
        bytes.extend_from_slice(&[self.priority, self.key_len, self.index_len]);
        // Earlier versions knew only clients that poll, so their digests stay what they are.
        let client = match self.client() {
            Client::Polls => 0,
            Client::Waits => 4,
            Client::Away => 8,
        };
        match self.tie() {
            Tie::None => bytes.push(client),
            Tie::Connection => bytes.push(1 + client),
            Tie::Process(Binding { process, until, fence }) => {
                bytes.push(2 + client);
                bytes.extend_from_slice(&process.0.to_le_bytes());
                let until = match until {
                    Until::Process => 0,
                    Until::Tree => 1,
                };
                bytes.extend_from_slice(&[until, fence.into(), self.is_fencing().into()]);
            }
            Tie::Actor(actor) => bytes.extend_from_slice(&[3 + client, actor.0]),
        }
        bytes.extend_from_slice(&self.names);
    }

    fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
        self.ends(epoch).map(Deadline::Time)
    }
}

/// A byte string that is serialised as bytes, not as a sequence, and deserialised without copying.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed;
        impl<'de> Visitor<'de> for Borrowed {
            type Value = Bytes<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_borrowed_bytes<E: serde::de::Error>(
                self,
                bytes: &'de [u8],
            ) -> Result<Bytes<'de>, E> {
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_bytes(Borrowed).map_err(D::Error::custom)
    }
}
