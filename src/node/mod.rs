//! The composition root and the embedding API: opens a data directory, brings the actors up, opens the doors.
//!
//! Promises: no signal handlers, nothing printed, no exit. A node that halts says so on every handle and resolves
//! [`Node::halted`]; the host program goes on.

mod chance;
mod core;
mod doors;
mod faults;
mod ports;
mod swept;

use self::core::Core;
use self::doors::OpenDoors;
use crate::clock::ClockError;
use crate::config::Config;
use crate::handle::Command;
pub use crate::handle::{
    Added, Drain, Drains, Entry, Events, Fault, Handle, Inventoried, JobWait, LeaseError, Leases,
    Left, LockError, Locks, QueueError, Queues, Requested, Services, TaskError, Tasks, Terms,
};
#[cfg(feature = "replay")]
pub use crate::handle::{Answered, Past, PastError};
#[cfg(feature = "jobs")]
pub use crate::handle::{Attempt, Job, JobError, PushError, WorkError, Workers, put_of};
use crate::ids::Seq;
use crate::persist::PersistError;
use crate::persist::journal::Cut;
use crate::protocols::lockserver::{self, HostsError};
use crate::spine::recovery::RecoveryError;
use crate::spine::runtime;
use crate::spine::shared::Halt;
pub use crate::status::Recovered;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, watch};

/// Why a node did not open.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Settings that cannot be; each a line.
    #[error("check the configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The data directory cannot be used.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The past cannot be repeated.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The hosts list cannot be used.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// The token file cannot be used.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Token(#[from] crate::protocols::http::TokenError),
    /// The certificate or its key cannot be used.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Tls(#[from] crate::protocols::http::TlsError),
    /// A door cannot be opened.
    #[error("open the {door} door on {address}: {source}")]
    Door {
        /// Which.
        door: &'static str,
        /// Where.
        address: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The machine's clock shows no date.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// The operating system gave no thread or no chance.
    #[error("start the core: {0}")]
    Core(std::io::Error),
    /// An actor cannot begin.
    #[error("start an actor: it panicked: {0}")]
    Start(String),
    /// Opening ended in a halt.
    #[error(transparent)]
    Halted(#[from] Halt),
}

impl NodeError {
    /// A listener that did not open.
    fn door(door: &'static str, address: &impl ToString) -> impl FnOnce(std::io::Error) -> Self {
        let address = address.to_string();
        move |source| Self::Door {
            door,
            address,
            source,
        }
    }
}

#[cfg(feature = "http")]
impl From<crate::protocols::http::OpenError> for NodeError {
    fn from(error: crate::protocols::http::OpenError) -> Self {
        use crate::protocols::http::OpenError;
        match error {
            OpenError::Token(error) => Self::Token(error),
            OpenError::Tls(error) => Self::Tls(error),
            OpenError::Listen { address, source } => Self::door("http", &address)(source),
            OpenError::Thread(error) => Self::Core(error),
        }
    }
}

/// A running coordinator. Dropping it stops it in good order.
pub struct Node {
    handle: Handle,
    doors: OpenDoors,
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Opens a node: takes the directory, replays the journal, opens the doors.
    ///
    /// Blocks until the doors are open. Everything runs on threads of its own.
    pub fn open(config: Config) -> Result<Self, NodeError> {
        let problems = config.problems();
        if !problems.is_empty() {
            let problems = problems.iter().map(ToString::to_string);
            return Err(NodeError::Config(problems.collect()));
        }
        let (commands, received) = mpsc::unbounded_channel();
        let (ready, opened) = std::sync::mpsc::channel();
        let (halt, halted) = watch::channel(None);
        let theirs = commands.clone();
        let thread = std::thread::Builder::new()
            .name("sexton-core".to_owned())
            .spawn(move || {
                let fallback = halt.clone();
                let core = Core {
                    commands: theirs,
                    halt,
                    halted,
                };
                let run = || runtime::block_on(core.run(config, received, &ready));
                if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
                    let words = crate::spine::guard::panic_words(payload.as_ref());
                    fallback.send_replace(Some(Halt::CoreThread(words)));
                }
            })
            .map_err(NodeError::Core)?;
        match opened.recv() {
            Ok(Ok((handle, doors))) => Ok(Self {
                handle,
                doors,
                commands,
                thread: Some(thread),
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(NodeError::Halted(Halt::CoreThread(
                "it ended while opening".to_owned(),
            ))),
        }
    }

    /// A handle for others.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The LockServer door, if it is open.
    pub fn lockserver(&self) -> Option<&lockserver::Door> {
        self.doors.lockserver.as_ref()
    }

    /// The HTTP door, if it is open.
    #[cfg(feature = "http")]
    pub fn http(&self) -> Option<&crate::protocols::http::Door> {
        self.doors.http.as_ref()
    }

    /// Stops in good order: what was acknowledged is on disk, the next start is a clean one. Blocks.
    pub fn stop(mut self) -> Result<(), Halt> {
        self.stop_now();
        self.handle.halt.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits until the node halts by itself. Never, if it does not.
    pub async fn halted(&self) -> Halt {
        self.handle.halted().await
    }

    fn stop_now(&mut self) {
        // A core that has ended already needs no telling.
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

/// What was cut, in words for people.
pub fn cut_words(cut: &Cut) -> String {
    let seqs: Vec<String> = cut.seqs.iter().map(Seq::to_string).collect();
    let seqs = match seqs.as_slice() {
        [] => "no readable record".to_owned(),
        seqs => format!("sequence numbers {}", seqs.join(", ")),
    };
    format!(
        "cut the unfinished end of {} at offset {}: {} bytes, {seqs}; nothing of it was shown to be synced",
        cut.file, cut.offset, cut.bytes
    )
}
