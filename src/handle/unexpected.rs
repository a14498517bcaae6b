//! Requests that fail inside the node: replies of a kind that a request cannot have, and panics.

use crate::refusal::Reason;
use crate::spine::delivery::Failed;
use std::fmt::Debug;

/// Logs a reply of an unexpected kind, which is an error of this program, and returns the error for the client. It must not be mistaken for
/// the answer that something does not exist.
pub(super) fn unexpected(reply: &impl Debug) -> Failed {
    tracing::error!(?reply, "an actor answered with a reply of an unexpected kind");
    Failed::Unapplied
}

/// Returns the reason for a refusal that this error is the cause of.
pub(super) const fn reason_of(failed: Failed) -> Reason {
    match failed {
        Failed::Unapplied => Reason::Failed,
        Failed::Interrupted => Reason::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use crate::actors::queue;
    use crate::handle::ProcessError;
    use crate::handle::queue_error::{QueueError, refusal};
    use crate::refusal::Reason;

    #[test]
    fn an_unexpected_reply_is_not_the_absence_of_anything() {
        let error = ProcessError::from(super::unexpected(&"a reply"));
        assert_eq!(error.reason(), Reason::Failed);
        let error = refusal(&queue::Reply::Count(1));
        assert_eq!(error.reason(), Reason::Failed);
        assert_eq!(refusal(&queue::Reply::Absent), QueueError::Absent);
    }
}
