//! Ends the measurement early on Ctrl-C or SIGTERM, but lets it stop its servers and remove its directories first.

use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// A flag, shared between threads, that is set when the measurement should end.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns an error if the measurement should end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) { Err(Failure::new("interrupted")) } else { Ok(()) }
    }
}

/// Runs a measurement on its own thread, and returns the measurement's result. Meanwhile, this thread waits for Ctrl-C and SIGTERM, and
/// sets the [`Stop`] flag when one of them arrives.
pub(crate) fn watched(
    measure: impl FnOnce(&Stop) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    let cannot = |error| Failure::new(format!("failed to start the measurement: {error}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let stop = Stop::default();
        let theirs = stop.clone();
        let (done, mut result) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("sexton-bench".to_owned())
            .spawn(move || drop(done.send(measure(&theirs))))
            .map_err(cannot)?;
        let result = loop {
            tokio::select! {
                result = &mut result => break result,
                _ = interrupt.recv() => stop.0.store(true, Ordering::Relaxed),
                _ = terminate.recv() => stop.0.store(true, Ordering::Relaxed),
            }
        };
        // Either the result has arrived, or the thread has panicked, which the next line reports.
        drop(thread.join());
        result.unwrap_or_else(|_| Err(Failure::new("the measurement panicked")))
    })
}
