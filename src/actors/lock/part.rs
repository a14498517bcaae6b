//! How far a request to end all entries of an owner has come.
//!
//! Change rule: these types are stored in the journal, see `message.rs`.

use crate::ids::{Seq, Slot, Token};
use serde::{Deserialize, Serialize};
use sexton_api::name::Name;

/// The rest of a request to end all entries of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndMore {
    /// The owner of the entries.
    pub owner: Name,
    /// If given, the key of the entries.
    pub key: Option<Name>,
    /// If given, the token that each of these entries must have.
    pub token: Option<Token>,
    /// What earlier parts have done.
    pub part: Part,
}

/// How far a request to end all entries of an owner has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The number of entries that were ended before this part.
    pub ended: u32,
    /// Whether entries stay because they are being fenced.
    pub fencing: bool,
    /// Whether every entry has been examined and has the token that was given. Until then, none ends, so that a request with a wrong token
    /// changes nothing. Not used without a token.
    pub checked: bool,
    /// The entries to end are not younger than this: the owner may request locks meanwhile.
    pub upto: Seq,
    /// The slot and the number of the entry with which to continue. In an outcome, `None` for the last part.
    pub next: Option<(Slot, Seq)>,
}

impl Part {
    /// Returns the first part of a request that arrives at this entry.
    pub(super) const fn first(at: Seq) -> Self {
        Self { ended: 0, fencing: false, checked: false, upto: at, next: None }
    }

    /// Returns the number of entries that have ended after this part.
    pub(super) fn ended_with(&self, gone: usize) -> u32 {
        let gone = u32::try_from(gone).unwrap_or(u32::MAX);
        self.ended.saturating_add(gone)
    }
}
