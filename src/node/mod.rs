//! The composition root and the embedding API: opens a data directory, starts the actors, opens the listeners.
//!
//! A node installs no signal handlers, prints nothing and never exits the process. When it halts, every handle reports that and
//! [`Node::halted`] resolves; the host program continues.

mod chance;
mod cleanup;
mod core;
mod faults;
mod listeners;
mod ports;
mod protocol;

use self::core::Core;
use self::listeners::OpenListeners;
pub use self::protocol::{BEANSTALK, HTTP, LOCKSERVER, LocalFuture, Protocol, Protocols, Served};
use crate::clock::ClockError;
use crate::config::Config;
use crate::handle::Command;
pub use crate::handle::{
    Added, Drain, Drains, Entry, Events, Fault, Handle, InProgress, Inventoried, JobWait,
    LeaseError, Leases, LockError, Locks, QueueError, Queues, Requested, Services, TaskError,
    Tasks, Terms,
};
#[cfg(feature = "replay")]
pub use crate::handle::{Answered, Past, PastError};
#[cfg(feature = "jobs")]
pub use crate::handle::{Attempt, Job, JobError, PushError, WorkError, Workers, put_of};
use crate::ids::Seq;
use crate::persist::PersistError;
use crate::persist::journal::Cut;
use crate::spine::recovery::RecoveryError;
use crate::spine::runtime;
use crate::spine::shared::Halt;
pub use crate::status::Recovered;
use crate::thread::{self, JoinHandle};
use std::any::Any;
use tokio::sync::{mpsc, watch};

/// Why a node could not be opened. Each text is meant to follow "failed to", except that of [`Halted`](Self::Halted).
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The settings are invalid; the list contains a description of each problem.
    #[error("check the configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The data directory cannot be used.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The state cannot be recovered from the journal.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A protocol cannot be served, for a reason of its own.
    #[error(transparent)]
    Protocol(Box<dyn std::error::Error + Send + Sync>),
    /// A listener could not be opened.
    #[error("open the {listener} listener on {address}: {source}")]
    Listener {
        /// The protocol of the listener.
        listener: &'static str,
        /// The listener's address.
        address: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The machine's clock does not show a valid date.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// The operating system could not provide a thread or random bytes.
    #[error("start the core: {0}")]
    Core(std::io::Error),
    /// An actor panicked while starting.
    #[error("start an actor: it panicked: {0}")]
    Start(String),
    /// The node halted while it was being opened.
    #[error(transparent)]
    Halted(#[from] Halt),
}

impl NodeError {
    /// Returns a function that wraps the error of a listener that did not open.
    pub fn listener(
        listener: &'static str,
        address: &impl ToString,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let address = address.to_string();
        move |source| Self::Listener { listener, address, source }
    }
}

/// A running coordinator. Dropping it stops it cleanly.
pub struct Node {
    handle: Handle,
    listeners: OpenListeners,
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Opens a node without listeners: locks the directory, and replays the journal. Blocks until this is done. The node runs on its own
    /// threads.
    ///
    /// # Errors
    /// Among others, [`NodeError::Config`] if a protocol is configured, which another package serves: see [`open_with`](Self::open_with).
    pub fn open(config: Config) -> Result<Self, NodeError> {
        Self::open_with(config, Vec::new())
    }

    /// Opens a node like [`open`](Self::open) that also serves `protocols`, which other packages implement. Blocks until their listeners are
    /// open.
    ///
    /// # Errors
    /// Among others, [`NodeError::Config`] if a protocol is configured and not among these.
    pub fn open_with(config: Config, protocols: Protocols) -> Result<Self, NodeError> {
        let unserved = OpenListeners::unserved(&config, &protocols);
        if !unserved.is_empty() {
            return Err(NodeError::Config(unserved));
        }
        let problems = config.problems();
        if !problems.is_empty() {
            let problems = problems.iter().map(ToString::to_string);
            return Err(NodeError::Config(problems.collect()));
        }
        let (commands, received) = mpsc::unbounded_channel();
        let (ready, opened) = std::sync::mpsc::channel();
        let (halt, halted) = watch::channel(None);
        let theirs = commands.clone();
        let fallback = halt.clone();
        let core = Core { commands: theirs, halt, halted };
        let thread = thread::start(
            "sexton-core",
            move || runtime::block_on(core.run((config, protocols), received, &ready)),
            move |ended| {
                if let Err(words) = ended {
                    fallback.send_replace(Some(Halt::CoreThread(words)));
                }
            },
        )
        .map_err(NodeError::Core)?;
        match opened.recv() {
            Ok(Ok((handle, listeners))) => {
                Ok(Self { handle, listeners, commands, thread: Some(thread) })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(NodeError::Halted(Halt::CoreThread(
                "it exited while the node was being opened".to_owned(),
            ))),
        }
    }

    /// Checks that the files which a configuration names for `protocols` can be used. Opening a node checks them, too.
    pub fn check_files(config: &Config, protocols: &Protocols) -> Result<(), NodeError> {
        OpenListeners::check_files(config, protocols)
    }

    /// Returns a handle to the node.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns the open listener of this type, if a [`Protocol`] of the node has opened one.
    pub fn listener<T: Served>(&self) -> Option<&T> {
        let OpenListeners(listeners) = &self.listeners;
        listeners.iter().find_map(|listener| (&**listener as &dyn Any).downcast_ref())
    }

    /// Stops cleanly: everything acknowledged is on disk, and the next startup needs no repair. Blocks until the node has stopped.
    ///
    /// # Errors
    /// Returns the reason if the node had halted.
    pub fn stop(mut self) -> Result<(), Halt> {
        self.stop_now();
        self.handle.halt.borrow().clone().map_or(Ok(()), Err)
    }

    /// Resolves with the reason when the node halts, and never if it stops normally.
    pub async fn halted(&self) -> Halt {
        self.handle.halted().await
    }

    fn stop_now(&mut self) {
        // A core thread that has exited already needs no command.
        drop(self.commands.send(Command::Stop));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the core thread panicked");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop_now();
    }
}

/// Describes, for users, the unfinished end that was cut from the journal.
pub fn cut_words(cut: &Cut) -> String {
    let seqs: Vec<String> = cut.seqs.iter().map(Seq::to_string).collect();
    let seqs = match seqs.as_slice() {
        [] => "no readable record".to_owned(),
        seqs => format!("sequence numbers {}", seqs.join(", ")),
    };
    format!(
        "cut the unfinished end of {} at offset {}: {} bytes, {seqs}; nothing in it is known to have been synced",
        cut.file, cut.offset, cut.bytes
    )
}
