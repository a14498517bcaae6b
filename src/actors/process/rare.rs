//! The fields that few records have. They take memory only in those.

use crate::actors::process::message::{Failure, HookOutput};
use crate::actors::process::record::{Sending, Sent, Stop, Stuck};
use crate::clock::Timestamp;
use std::ops::{Deref, DerefMut};

/// The fields of a [`Record`](crate::actors::process::Record) that few records have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RareFields {
    /// How it is being stopped, or was stopped.
    pub stop: Option<Stop>,
    /// Why it could not be started.
    pub failure: Option<Failure>,
    /// The error text that it reported when it ended.
    pub error: Option<String>,
    /// The processes that survived SIGKILL.
    pub stuck: Option<Stuck>,
    /// Signals on their way to it.
    pub signals: Vec<Sending>,
    /// The result of the most recent signal.
    pub sent: Option<Sent>,
    /// When it is stopped if it is not ready, in node time.
    pub ready_by: Option<Timestamp>,
    /// Its latest status text.
    pub said: Option<String>,
    /// For a hook, what was found in its output.
    pub found: Option<Box<HookOutput>>,
}

/// The fields of a record that has none of them.
static NONE: RareFields = RareFields {
    stop: None,
    failure: None,
    error: None,
    stuck: None,
    signals: Vec::new(),
    sent: None,
    ready_by: None,
    said: None,
    found: None,
};

/// The rare fields of a record: allocated when one of them is written, until [`settle`](Rare::settle) finds none set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rare(Option<Box<RareFields>>);

impl Rare {
    /// Returns the fields if one of them may be set.
    pub(super) fn get_mut(&mut self) -> Option<&mut RareFields> {
        self.0.as_deref_mut()
    }

    /// Frees the memory if no field is set. Called after each change, so that equal records compare equal.
    pub(super) fn settle(&mut self) {
        if self.0.as_deref() == Some(&NONE) {
            self.0 = None;
        }
    }
}

impl From<RareFields> for Rare {
    fn from(fields: RareFields) -> Self {
        Self((fields != NONE).then(|| Box::new(fields)))
    }
}

impl Deref for Rare {
    type Target = RareFields;

    fn deref(&self) -> &RareFields {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Rare {
    fn deref_mut(&mut self) -> &mut RareFields {
        self.0.get_or_insert_default()
    }
}
