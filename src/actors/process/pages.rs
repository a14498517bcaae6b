//! The pages in which snapshots store durable state: records by slot, the profile of each record on its own page, services, and the head.
//!
//! Change rule: the layout is part of the on-disk format, see `persist/format.rs`.

use crate::actors::process::record::{Profile, Record};
use crate::actors::process::service::Service;
use crate::clock::Timestamp;
use crate::ids::{PageId, ProcessId, Seq, Slot};
use crate::lookup::durable::{DurableSlab, Loaded, Plain, Single, Singleton};
use serde::{Deserialize, Serialize};

/// The kind of the pages that each hold the profile of one record, indexed by slot. Pages of records have kind 0.
const PROFILES: u8 = 2;

/// The kind of pages that hold services.
pub(super) const SERVICES: u8 = <Service as Plain>::KIND;

/// Returns the page for the profile of the record in this slot.
pub(super) const fn profile_page(slot: Slot) -> PageId {
    PageId::new(PROFILES, slot.0)
}

/// Returns the slot whose profile this page holds, if it is a profile page.
pub(super) fn profile_slot(page: PageId) -> Option<Slot> {
    (page.kind() == PROFILES).then(|| Slot(page.index()))
}

/// A decoded page.
#[derive(Debug)]
pub enum Page {
    /// The head: the state that belongs to no single record or service.
    Head(Head),
    /// Records by slot.
    Records(Loaded<Record>),
    /// The immutable part of the record in a slot.
    Profile(Slot, Box<Profile>),
    /// Services by slot.
    Services(Loaded<Service>),
}

impl Page {
    /// Decodes a page. Returns a description of the error if the content is malformed.
    pub(super) fn decode(page: PageId, content: &[u8]) -> Result<Self, String> {
        if page == PageId::HEAD {
            return Singleton::decode(content).map(Self::Head);
        }
        match profile_slot(page) {
            Some(slot) => {
                let profile = rmp_serde::from_slice(content);
                let profile = profile.map_err(|error| error.to_string())?;
                Ok(Self::Profile(slot, Box::new(profile)))
            }
            None if page.kind() == SERVICES => {
                DurableSlab::decode(page, content).map(Self::Services)
            }
            None => DurableSlab::decode(page, content).map(Self::Records),
        }
    }
}

/// Appends a value to `content` in the encoding of pages, which is MessagePack.
pub(super) fn write<T: Serialize>(value: &T, content: &mut Vec<u8>) {
    rmp_serde::encode::write(content, value).expect("writing to memory should not fail");
}

/// The state that belongs to no single record or service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The time of the last startup of the server. The grace period of a stop that was requested earlier is counted from this time.
    pub(super) epoch: Timestamp,
    /// The entry of that startup.
    pub(super) start: Seq,
    /// The record of the server itself, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<ProcessId>,
}

impl Single for Head {
    fn canonical(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"process");
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&self.start.0.to_le_bytes());
        if let Some(server) = self.server {
            bytes.extend_from_slice(&server.0.to_le_bytes());
        }
    }
}
