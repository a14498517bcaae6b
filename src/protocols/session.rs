//! What a protocol is to a connection: it takes bytes, carries out what they ask, and gives bytes back.

use std::time::Duration;

/// One client's protocol state.
pub(crate) trait Session {
    /// Takes whole commands off the front of `input`; the number of bytes taken. What is left must be offered again
    /// with more behind it. Takes a bounded number of commands at a time.
    fn take(&mut self, input: &[u8]) -> usize;

    /// Carries out what was taken, and puts the answers behind `output`.
    async fn perform(&mut self, output: &mut Vec<u8>) -> Then;

    /// How much longer the client may take for what it has begun to send; as long as it likes if `None`.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// The answers are on their way to the client.
    fn answered(&mut self) {}

    /// Waits for what `perform` said it must wait for, and puts the answer behind `output`. May be given up at any
    /// moment, and begun again.
    async fn wait(&mut self, _output: &mut Vec<u8>) {}

    /// The client will ask nothing more: ends the wait, and puts its answer behind `output`.
    async fn give_up(&mut self, _output: &mut Vec<u8>) {}
}

/// What happens to the connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It goes on.
    Continue,
    /// The answers so far are written, then there is more to perform.
    Again,
    /// The answers so far are written, then it waits; after that there is more to perform.
    Wait,
    /// It ends once the answers so far are written.
    Close,
}
