//! Why a node halts, and the means to halt it from any thread.
//!
//! The node depends on several threads and tasks: the journal's, those of the ports and the listeners, the actors themselves. If one of them
//! ends while the node runs, whether it panicked or returned, the node would go on without it and some requests would wait for ever. So each
//! is started through a [`Sentry`], which halts the node then, with a reason that names what ended.

use crate::persist::PersistError;
use crate::spine::delivery::Report;
use crate::spine::recovery::RecoveryError;
use crate::thread::{self, JoinHandle};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Why a node halted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Halt {
    /// The journal cannot be written.
    #[error("halted, nothing more is acknowledged: failed to {0}")]
    Journal(Arc<PersistError>),
    /// An actor panics too often.
    #[error("halted, {} panics too often; the last time at sequence number {}: {}", .0.actor, .0.seq, .0.cause)]
    Panics(Report),
    /// An actor's state is spent, and there is no journal to rebuild it from.
    #[error("halted, {} lost its state to a panic and keeps no journal: {}", .0.actor, .0.cause)]
    Spent(Report),
    /// An actor's state is spent, and rebuilding it failed.
    #[error("halted, an actor could not be rebuilt after a panic: failed to {0}")]
    Rebuild(Arc<RecoveryError>),
    /// The core thread, or another thread or task that the node depends on, panicked or ended early; or a thread that rebuilds an actor
    /// panicked or could not be started. The text names it.
    #[error("halted, internal error: {0}")]
    CoreThread(String),
}

/// Halts the node when something that it depends on ends. Clones refer to the same node.
#[derive(Clone, Debug)]
pub struct Sentry {
    halt: watch::Sender<Option<Halt>>,
    is_stopping: Arc<AtomicBool>,
}

impl Default for Sentry {
    /// Creates a sentry whose halts nobody learns of.
    fn default() -> Self {
        Self::new(watch::Sender::new(None))
    }
}

impl Sentry {
    /// Creates the sentry of a node. The reason for a halt is sent to `halt`.
    pub fn new(halt: watch::Sender<Option<Halt>>) -> Self {
        Self { halt, is_stopping: Arc::default() }
    }

    /// Halts the node: nothing is acknowledged from now on. Only the first reason is kept. Returns whether this is the first.
    pub fn halt(&self, reason: Halt) -> bool {
        self.halt.send_if_modified(|halt| {
            let is_first = halt.is_none();
            if is_first {
                *halt = Some(reason);
            }
            is_first
        })
    }

    /// Returns whether the node has halted.
    pub fn is_halted(&self) -> bool {
        self.halt.borrow().is_some()
    }

    /// Waits until the node halts.
    pub async fn until_halted(&self) {
        let mut halt = self.halt.subscribe();
        if halt.wait_for(Option::is_some).await.is_err() {
            unreachable!("the sentry holds the sender");
        }
    }

    /// Notes that the node stops: from now on, its threads and tasks may end.
    pub fn stopping(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Notes that something that the node depends on has ended, with the message of the panic if it panicked. Halts the node, unless it
    /// stops or has halted.
    pub fn ended(&self, name: &str, end: Result<(), String>) {
        if self.is_stopping.load(Ordering::Acquire) {
            return;
        }
        let words = match end {
            Ok(()) => format!("{name} ended early"),
            Err(cause) => format!("{name} panicked: {cause}"),
        };
        if self.halt(Halt::CoreThread(words.clone())) {
            tracing::error!("{words}; nothing more is acknowledged");
        }
    }

    /// Starts a thread that the node depends on. `run` returns whether it was asked to end.
    ///
    /// # Errors
    /// Returns the error of the operating system if no thread can be started.
    pub fn thread(
        &self,
        name: &'static str,
        run: impl FnOnce() -> bool + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let sentry = self.clone();
        thread::start(name, run, move |end| match end {
            Ok(true) => {}
            Ok(false) => sentry.ended(&format!("the thread {name:?}"), Ok(())),
            Err(cause) => sentry.ended(&format!("the thread {name:?}"), Err(cause)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Sentry;
    use tokio::sync::watch;

    /// Returns why the node halted, if it did.
    fn reason(end: fn() -> bool, is_stopping: bool) -> Option<String> {
        let (halt, halted) = watch::channel(None);
        let sentry = Sentry::new(halt);
        if is_stopping {
            sentry.stopping();
        }
        let thread = sentry.thread("planted", end).expect("a new thread");
        thread.join().expect("the panic was caught");
        halted.borrow().as_ref().map(ToString::to_string)
    }

    #[test]
    fn a_thread_that_ends_unasked_halts_the_node_that_it_serves() {
        let early = "halted, internal error: the thread \"planted\" ended early";
        assert_eq!(reason(|| false, false).as_deref(), Some(early));
        let panicked = "halted, internal error: the thread \"planted\" panicked: oh";
        assert_eq!(reason(|| panic!("oh"), false).as_deref(), Some(panicked));
        assert_eq!(reason(|| true, false), None);
        assert_eq!(reason(|| false, true), None);
        assert_eq!(reason(|| panic!("oh"), true), None);
    }
}
