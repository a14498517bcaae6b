//! Who claims jobs, and by what right a job is changed.
//!
//! Change rule: stored in the journal and in pages, see `message.rs`.

use crate::actors::binding::Binding;
use crate::ids::Token;
use serde::{Deserialize, Serialize};

/// Who works on jobs over a connection, whose end gives them back. Unique as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Worker(pub u64);

/// For whom a claim is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimant {
    /// A connection: its end gives the job back.
    Worker(Worker),
    /// Whoever shows the token.
    Bearer,
    /// Whoever shows the token, as long as a process lives: its end gives the job back. Unless it says how long it lasts,
    /// such a claim has no other end.
    Process(Binding),
}

/// By what right a job is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// The connection that claimed it. To delete, a job that nobody has claimed will do.
    Worker(Worker),
    /// The token of its claim.
    Token(Token),
    /// None: only for jobs that nobody has claimed.
    Unclaimed,
}
