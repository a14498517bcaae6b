//! Lines over streams that may block: a thread for each direction.

use crate::wrapper::protocol::{LINE_BYTES_MAX, line};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

/// How many lines wait to be written.
const WAITING_MAX: usize = 256;

/// Begins a thread. A process that can have none is of no use to anybody.
pub(super) fn begin(name: &str, run: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name(name.to_owned());
    drop(thread.spawn(run).expect("a thread can be begun"));
}

/// Reads lines until the stream ends, or one is none of the protocol; hands each on, and `None` at the end.
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

/// The next line; `None` at the end of the stream, and of one that is none.
pub(super) fn next<T: DeserializeOwned>(stream: &mut BufReader<impl Read>) -> Option<T> {
    let mut bytes = Vec::new();
    let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    stream.take(most).read_until(b'\n', &mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Where lines go.
pub(super) struct Writer(SyncSender<String>);

impl Writer {
    /// Writes to this stream; `done` when that is over.
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

    /// Says something; whether there was room for it and somebody to read it.
    pub(super) fn say(&self, said: &impl Serialize) -> bool {
        match self.0.try_send(line(said)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}
