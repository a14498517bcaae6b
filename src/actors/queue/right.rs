//! The claimants of jobs, and what a message about a job presents to prove that its sender may change the job.
//!
//! Change rule: these types are stored in the journal and in pages, see `message.rs`.

use crate::actors::binding::Binding;
use crate::ids::{ProcessId, Token};
use serde::{Deserialize, Serialize};

/// A worker that claims jobs over a connection, identified by a number that is unique during the life of the server
/// process. When the connection closes, the jobs are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Worker(pub u64);

/// The party for which a claim is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimant {
    /// A connection. When it closes, the job is given back.
    Worker(Worker),
    /// Any client that presents the token.
    Bearer,
    /// Any client that presents the token. The job is given back when the process or its whole tree, whichever the binding
    /// specifies, has ended. The claim times out only if the request for it sets a time limit.
    Process(Binding),
}

/// What proves that the sender of a message may change a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// The connection that claimed the job. Any connection may also delete an unclaimed job.
    Worker(Worker),
    /// The token of the job's claim.
    Token(Token),
    /// Nothing. This is sufficient only to delete a job that is not claimed.
    Unclaimed,
}

/// The process that works on a claimed job on behalf of the process that the claim was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The id of its record.
    pub process: ProcessId,
    /// Whether its exit status is the result of the job if the claimant is gone: 0 completes it, any other status fails it.
    pub completes: bool,
}
