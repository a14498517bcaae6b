//! The reason why a measurement ended early. `main` prints it, and exits with status 1.

use sexton::node::NodeError;
use sexton::spine::shared::Halt;
use std::fmt;

/// A description of what went wrong.
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// Returns a function for `map_err` that turns an error into "failed to `what`: error".
    pub(crate) fn to<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("failed to {what}: {error}"))
    }
}

/// Prints the description itself, since Rust prints the error that `main` returns with `Debug`.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self(format!("failed to {error}"))
    }
}

impl From<Halt> for Failure {
    fn from(halt: Halt) -> Self {
        Self(halt.to_string())
    }
}
