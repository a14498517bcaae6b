//! The interface between a protocol and a connection: a session takes bytes, carries out the commands in them, and returns bytes.

use crate::bounds::Turns;
use std::time::Duration;

/// One client's protocol state.
pub(crate) trait Session {
    /// Takes complete commands off the front of `input`, up to a maximum number, and returns the number of bytes taken. The
    /// remaining bytes must be offered again once the commands have been carried out and, if none was taken, more bytes have arrived. May
    /// be called again before the commands are carried out, with these bytes and more.
    fn take(&mut self, input: &[u8]) -> usize;

    /// Carries out the commands that were taken, and appends the answers to `output`. Returns what happens to the connection next.
    async fn perform(&mut self, output: &mut Vec<u8>) -> NextStep;

    /// Returns the turns of the listener's connections.
    fn turns(&self) -> &Turns;

    /// Returns how much longer the client may take to complete what it has begun to send; `None` if there is no limit.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Called when the answers have been written to the client.
    fn answered(&mut self) {}

    /// Waits for the answer that was missing when `perform` returned [`NextStep::Wait`], and appends it to `output`. May be
    /// cancelled at any time and called again.
    async fn wait(&mut self, _output: &mut Vec<u8>) {}

    /// Called when the client has closed its side during [`Session::wait`]: stops waiting, and appends the answer to `output`.
    async fn give_up(&mut self, _output: &mut Vec<u8>) {}
}

/// What happens to the connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The connection continues.
    Continue,
    /// The answers so far are written, then `perform` is called again.
    Again,
    /// The answers so far are written, then the session waits; after that `perform` is called again.
    Wait,
    /// The connection is closed once the answers so far are written.
    Close,
}
