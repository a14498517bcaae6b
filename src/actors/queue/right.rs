//! The claimants of jobs, and the rights by which a job may be changed.
//!
//! Change rule: stored in the journal and in pages, see `message.rs`.

use crate::actors::binding::Binding;
use crate::ids::Token;
use serde::{Deserialize, Serialize};

/// A worker that claims jobs over a connection. When the connection ends, the jobs are given back. Unique during the life of the
/// server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Worker(pub u64);

/// The party for which a claim is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimant {
    /// A connection. When it ends, the job is given back.
    Worker(Worker),
    /// Any client that presents the token.
    Bearer,
    /// Any client that presents the token, as long as a process lives. When the process ends, the job is given back. The
    /// claim does not time out unless it sets a time limit.
    Process(Binding),
}

/// The right by which a job is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// The connection that claimed it. The connection may also delete an unclaimed job.
    Worker(Worker),
    /// The token of its claim.
    Token(Token),
    /// No right. Sufficient only for unclaimed jobs.
    Unclaimed,
}
