//! Waiting for events in another process or thread, with a timeout so long that it only expires if something hangs. So a
//! test does not fail because the machine is slow.

use std::time::Duration;

/// The time that a test waits for an event before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The time between two polls.
const LOOK: Duration = Duration::from_millis(2);

/// Polls until there is a value, and returns it. Fails the test after [`PATIENCE`].
#[expect(clippy::disallowed_methods, reason = "events of another process can only be polled for")]
pub(crate) fn until<T>(event: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for looks in 0..PATIENCE.as_millis() / LOOK.as_millis() {
        if let Some(found) = look() {
            return found;
        }
        // Most events happen soon, so the first polls do not sleep.
        if looks < 100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(LOOK);
        }
    }
    panic!("waited {PATIENCE:?} in vain: {event}");
}
