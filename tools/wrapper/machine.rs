//! The clock since boot, and the handling of signals to this process, for both ends.

use crate::signals::Signals;
use crate::wrapper::pipe;
use rustix::time::{ClockId, clock_gettime};
use std::io;

/// Returns the time since boot in milliseconds, including time spent suspended.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000_000
}

/// Starts a thread that calls `hand_on` with the number of each signal among `numbers` that this process receives, until `hand_on` returns
/// false.
pub(super) fn forward_signals(
    numbers: &[i32],
    mut hand_on: impl FnMut(i32) -> bool + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _in_runtime = runtime.enter();
        Signals::listen(numbers)?
    };
    pipe::begin("signals", move || {
        runtime.block_on(async {
            let mut never = Box::pin(std::future::pending::<()>());
            while let Err(number) = signals.until(&mut never).await {
                if !hand_on(number) {
                    return;
                }
            }
        });
    });
    Ok(())
}
