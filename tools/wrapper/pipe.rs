//! Lines over streams that may block: one thread for each direction.

use crate::wrapper::protocol::{LINE_BYTES_MAX, line};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

/// The maximum number of lines waiting to be written.
const WAITING_MAX: usize = 256;

/// Spawns a thread. Panics if that fails, since the process is useless without it.
pub(super) fn begin(name: &str, run: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name(name.to_owned());
    drop(thread.spawn(run).expect("it should be possible to start a thread"));
}

/// Starts a thread that reads messages and passes each to `hand_on`, until `hand_on` returns false. At the end of the stream, or at an
/// invalid line, passes `None` and ends.
pub(super) fn read<T: DeserializeOwned>(
    stream: impl Read + Send + 'static,
    mut hand_on: impl FnMut(Option<T>) -> bool + Send + 'static,
) {
    begin("reader", move || {
        let mut stream = BufReader::new(stream);
        while let Some(said) = next(&mut stream) {
            if !hand_on(Some(said)) {
                return;
            }
        }
        hand_on(None);
    });
}

/// Reads the next message; `None` at the end of the stream, after an error, and for an invalid line.
pub(super) fn next<T: DeserializeOwned>(stream: &mut BufReader<impl Read>) -> Option<T> {
    let mut bytes = Vec::new();
    let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    stream.take(most).read_until(b'\n', &mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// A queue of lines to be written.
pub(super) struct Writer(SyncSender<String>);

impl Writer {
    /// Starts a thread that writes lines to `stream`, and calls `done` when it ends: after an error, or when the `Writer` is dropped.
    pub(super) fn to(
        mut stream: impl Write + Send + 'static,
        done: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (sender, lines): (_, Receiver<String>) = sync_channel(WAITING_MAX);
        begin("writer", move || {
            for line in lines {
                let written = stream.write_all(line.as_bytes());
                if written.and_then(|()| stream.flush()).is_err() {
                    break;
                }
            }
            done();
        });
        Self(sender)
    }

    /// Queues a message. Returns `false` if the queue is full or the stream is closed.
    pub(super) fn send(&self, said: &impl Serialize) -> bool {
        match self.0.try_send(line(said)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}
