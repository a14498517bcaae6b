//! With what a right (a lock, a claim of a job, or a pass of a lease) that is bound to a process ends.

use serde::{Deserialize, Serialize};

/// How much of a process must have ended before the right bound to it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Extent {
    /// The process itself.
    Process,
    /// The process and everything it has started, including descendants with records of their own.
    #[default]
    Tree,
}
