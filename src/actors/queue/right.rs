//! The claimants of jobs, and the rights by which a job may be changed.
//!
//! Change rule: stored in the journal and in pages, see `message.rs`.

use crate::actors::binding::Binding;
use crate::ids::Token;
use serde::{Deserialize, Serialize};

/// A worker that claims jobs over a connection, whose end gives them back. Unique during the life of the server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Worker(pub u64);

/// The party for which a claim is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimant {
    /// A connection. Its end gives the job back.
    Worker(Worker),
    /// Any client that presents the token.
    Bearer,
    /// Any client that presents the token, as long as a process lives. The end of the process gives the job back;
    /// unless the claim sets a time limit, nothing else does.
    Process(Binding),
}

/// The right by which a job is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// The connection that claimed it. It may also delete a job that nobody has claimed.
    Worker(Worker),
    /// The token of its claim.
    Token(Token),
    /// No right; enough only for jobs that nobody has claimed.
    Unclaimed,
}
