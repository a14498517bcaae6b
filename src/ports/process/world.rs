//! The operations that the port needs from kernel, keeper and files. The production implementation is in `real.rs`; that of the simulation
//! also reuses PIDs, loses descriptors, delays exits and reboots.

use crate::actors::process::{Expectation, Failure, Identity, Message, Remains, Spec};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::ProcessId;
use crate::keeper::protocol::{Launch, Request};
use crate::kernel::pidfd::ExitStatus;

/// The result of looking up a process.
#[derive(Debug)]
pub enum Lookup<H> {
    /// The process is alive, and this descriptor refers to it and to no other process.
    Alive(H),
    /// The process has ended. Contains its status if the kernel can still report it.
    Gone(Option<u32>),
    /// The state is unknown: no descriptors are available, or the process may not be inspected.
    Unknown,
}

/// The live processes of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// The number of processes that belong to the tree.
    pub alive: u32,
    /// The number of processes that may belong to the tree.
    pub unknown: u32,
}

impl Survivors {
    /// Returns whether the tree certainly has no live process.
    pub const fn is_empty(self) -> bool {
        self.alive == 0 && self.unknown == 0
    }
}

/// A tree: the process of a record, which is its leader, and all descendants of that process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The id of the record.
    pub id: ProcessId,
    /// The identity of the leader.
    pub leader: Identity,
    /// Whether the tree has its own control group.
    pub contained: bool,
    /// Whether the tree was launched by the keeper.
    pub launched: bool,
    /// Whether the keeper that launched it has been joined ever since. Everything that descends from the leader then descends from the
    /// keeper, which inherits orphans.
    pub kept: bool,
}

/// Access to kernel, keeper and files. No method blocks for long.
pub trait World {
    /// A descriptor that always refers to the same process.
    type Handle;

    /// Returns the ids of this machine and this boot.
    fn machine_and_boot(&self) -> (u128, u128);
    /// Returns the wall-clock time.
    fn date(&self) -> Date;
    /// Returns the time of a monotonic clock, in milliseconds since an arbitrary origin.
    fn clock(&self) -> u64;

    /// Notes that an attempt is followed from now on, until [`forget`](Self::forget), and its leader once that is known.
    fn note(&mut self, _id: ProcessId, _leader: Option<&Identity>) {}
    /// Notes that an attempt is not followed any more.
    fn forget(&mut self, _id: ProcessId) {}

    /// Looks up a process.
    fn find(&mut self, identity: &Identity) -> Lookup<Self::Handle>;
    /// Arranges for `Follower::ended` to be called when the process ends.
    fn watch(&mut self, id: ProcessId, handle: &Self::Handle);
    /// Returns how the process ended, as far as this process can learn it from the kernel, or that it is still alive.
    fn status(&mut self, handle: &Self::Handle) -> ExitStatus;
    /// Sends signals, in this order, to the process or, if `group` is set, to its process group; returns the errno on failure.
    fn signal(&mut self, handle: &Self::Handle, signals: &[u8], group: bool) -> Result<(), i32>;

    /// Counts the live processes of a tree.
    fn survivors(&mut self, tree: &Tree) -> Survivors;
    /// Arranges for `Follower::emptied` to be called when a tree may have become empty, if the kernel supports that. This lasts until the
    /// tree is empty or cleared.
    fn watch_tree(&mut self, _tree: &Tree) {}
    /// Sends signals, in this order, to each process of a tree; returns the errno on failure.
    fn signal_tree(&mut self, tree: &Tree, signals: &[u8]) -> Result<(), i32>;

    /// Returns whether a keeper may be running, even if it has not been joined.
    fn has_keeper(&mut self) -> bool;
    /// Joins the running keeper, or starts one: connects to it and sends `Hello`.
    fn join(&mut self) -> Result<(), Failure>;
    /// Returns when [`join`](Self::join) may start a keeper again, by [`clock`](Self::clock), if it failed only because too many keepers
    /// have exited lately.
    fn paused_until(&self) -> Option<u64> {
        None
    }
    /// Closes the connection to a keeper that does not answer. Returns `false` if there is no such thing here.
    fn leave(&mut self) -> bool {
        false
    }
    /// Sends a request to the keeper. Does nothing without a keeper: the follower sends the request again to the next one.
    fn ask(&mut self, request: Request);

    /// Begins to use the paths of a launch at which another user may keep a process that opens them waiting. Returns whether that takes a
    /// while: then `Follower::fetched` is called, and this is to be called again. Otherwise, [`prepare`](Self::prepare) finds what was
    /// found there.
    fn fetch(&mut self, _id: ProcessId, _spec: &Spec) -> bool {
        false
    }
    /// Prepares the files and the environment of a launch.
    fn prepare(&mut self, id: ProcessId, spec: &Spec) -> Result<Launch, Failure>;
    /// Notes the user, by name or number, that a process was launched as. Called for a process that an earlier coordinator launched.
    fn note_user(&mut self, _id: ProcessId, _user: &str) {}
    /// Starts to expect notices from a launched process, unless notices are already expected from it.
    fn expect(&mut self, _id: ProcessId, _run_dir: Option<&Bytes>, _expectation: &Expectation) {}
    /// Starts reading the output of a hook in the background.
    fn read(&mut self, _id: ProcessId, _run_dir: Option<&Bytes>) {}
    /// Writes the PID file of a running process.
    fn write_pid_file(&mut self, id: ProcessId, run_dir: Option<&Bytes>, pid: u32);
    /// Collects what remains of a process that has ended.
    fn remains(&mut self, tree: &Tree, run_dir: Option<&Bytes>) -> Remains;
    /// Removes the PID file of a process whose end has been reported, before the next launch in its directory.
    fn remove_pid_file(&mut self, _tree: &Tree, _run_dir: Option<&Bytes>) {}
    /// Removes the control group of a process whose end is durable. Its PID file was removed when it ended; by now the directory may
    /// contain the PID file of the next process of the same service.
    fn clear(&mut self, tree: &Tree, run_dir: Option<&Bytes>);

    /// Begins to find out why the kernel did not execute the program of a launch. Returns whether that takes a while: then
    /// `Follower::fetched` is called. Otherwise, [`not_executed`](Self::not_executed) finds what was found.
    fn examine(&mut self, _id: ProcessId, _launch: &Launch, _errno: i32) -> bool {
        false
    }
    /// Takes the explanation why the kernel did not execute the program of a launch; `None` if the error says enough.
    fn not_executed(&mut self, _id: ProcessId) -> Option<String> {
        None
    }
    /// Sends a message to the actor.
    fn report(&mut self, message: Message);
}
