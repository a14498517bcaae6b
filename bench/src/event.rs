//! Receives the events of a coordinator, and records when each arrived. A coordinator sends an event once it is on disk.

use crate::coordinator::Coordinator;
use crate::failure::Failure;
use crate::question::read_more;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The maximum time to wait for the response to a subscription.
const PATIENCE: Duration = Duration::from_secs(30);

/// An event, and when it arrived.
#[derive(Debug)]
pub(crate) struct Event {
    /// The event as received.
    pub(crate) what: Value,
    /// When it arrived, by [`clock`], in nanoseconds.
    pub(crate) at: u64,
}

/// Reads the monotonic clock, which all processes of a machine share, in nanoseconds.
pub(crate) fn clock() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Subscribes to the events that match this query. Every event that is sent after this returns is received, until the connection fails:
/// the last item is then an error.
pub(crate) fn listen(
    coordinator: &Coordinator,
    query: &str,
) -> Result<Receiver<Result<Event, Failure>>, Failure> {
    let (heard, events) = channel();
    let mut stream = coordinator.connect()?;
    let request = format!("GET /v1/events?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let asked = stream.write_all(request.as_bytes());
    asked.map_err(Failure::to("request events"))?;
    let (begun, begins) = channel();
    std::thread::Builder::new()
        .name("sexton-bench-events".to_owned())
        .spawn(move || receive(stream, &begun, &heard))
        .map_err(Failure::to("start a thread"))?;
    let begins = begins.recv_timeout(PATIENCE);
    begins.map_err(|_| Failure::new("the request for events was not answered"))?;
    Ok(events)
}

/// Passes on each event with the time of its arrival, until the connection closes or the receiver is dropped.
fn receive(mut stream: UnixStream, begun: &Sender<()>, heard: &Sender<Result<Event, Failure>>) {
    let mut input = Vec::new();
    let mut has_begun = false;
    loop {
        if let Err(error) = read_more(&mut stream, &mut input) {
            drop(heard.send(Err(Failure::to("receive events")(error))));
            return;
        }
        let at = clock();
        if !has_begun {
            // The head of the response has arrived, so no event is missed from now on. `listen` may have stopped waiting for it.
            has_begun = true;
            let _ = begun.send(());
        }
        while let Some(end) = input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = input.drain(..=end).collect();
            let Some(data) = line.strip_prefix(b"data: ") else {
                continue;
            };
            let what = serde_json::from_slice(data).unwrap_or_default();
            if heard.send(Ok(Event { what, at })).is_err() {
                return;
            }
        }
    }
}
