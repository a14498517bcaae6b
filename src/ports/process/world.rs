//! What the port needs of kernel, keeper and files. The real world is in `real.rs`, and the simulation has one that reuses
//! PIDs, loses descriptors, delays exits and reboots.

use crate::actors::process::{Expectation, Failure, Identity, Message, Remains, Spec};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::ProcessId;
use crate::keeper::protocol::{Launch, Request};
use crate::kernel::pidfd::ExitStatus;

/// What came of looking for a process.
#[derive(Debug)]
pub enum Found<H> {
    /// It lives, and this descriptor is of it and of no other.
    Alive(H),
    /// It is gone; how it ended, if the kernel still knows.
    Gone(Option<u32>),
    /// Nobody can say now: no descriptors are left, or it may not be looked at.
    Unknown,
}

/// What lives of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// Processes that belong to it.
    pub alive: u32,
    /// Processes that may.
    pub unknown: u32,
}

impl Survivors {
    /// Whether nothing lives.
    pub const fn is_empty(self) -> bool {
        self.alive == 0 && self.unknown == 0
    }
}

/// A tree: what was launched or registered under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The record.
    pub id: ProcessId,
    /// Its leader.
    pub leader: Identity,
    /// Whether it has a control group of its own.
    pub contained: bool,
    /// Whether the keeper launched it.
    pub launched: bool,
}

/// Kernel, keeper and files. No function waits for long.
pub trait World {
    /// A descriptor that is of one process and never of another.
    type Handle;

    /// The machine and the boot that are here.
    fn here(&self) -> (u128, u128);
    /// The wall clock.
    fn date(&self) -> Date;
    /// Milliseconds that only grow.
    fn clock(&self) -> u64;

    /// Looks for a process.
    fn find(&mut self, identity: &Identity) -> Found<Self::Handle>;
    /// Has `Follower::ended` called when the process has.
    fn watch(&mut self, id: ProcessId, handle: &Self::Handle);
    /// How it ended, as far as the kernel says so to others than its parent.
    fn status(&mut self, handle: &Self::Handle) -> ExitStatus;
    /// Sends a signal to the process, or to its group; an errno if it cannot be sent.
    fn signal(&mut self, handle: &Self::Handle, signal: u8, group: bool) -> Result<(), i32>;

    /// What lives of a tree.
    fn survivors(&mut self, tree: &Tree) -> Survivors;
    /// Has `Follower::emptied` called when nothing of a tree may live any more, where the kernel says so: until it is empty, or
    /// cleared.
    fn watch_tree(&mut self, _tree: &Tree) {}
    /// Sends a signal to all of a tree; an errno if it cannot be sent.
    fn signal_tree(&mut self, tree: &Tree, signal: u8) -> Result<(), i32>;

    /// Whether a keeper runs, joined or not.
    fn has_keeper(&mut self) -> bool;
    /// Has a keeper: joins the one that is there, or starts one. Says `Hello` to it.
    fn join(&mut self) -> Result<(), Failure>;
    /// Asks the keeper. Nothing if there is none: the next is asked anew.
    fn ask(&mut self, request: Request);

    /// Makes what a launch needs, files and environment.
    fn prepare(&mut self, id: ProcessId, spec: &Spec) -> Result<Launch, Failure>;
    /// What was launched is to be looked after as this says, unless it is already.
    fn expect(&mut self, _id: ProcessId, _run_dir: Option<&Bytes>, _expectation: &Expectation) {}
    /// Has the output of a hook read, aside.
    fn read(&mut self, _id: ProcessId, _run_dir: Option<&Bytes>) {}
    /// It runs: writes its PID file.
    fn note(&mut self, id: ProcessId, run_dir: Option<&Bytes>, pid: u32);
    /// What is left of a process that ended.
    fn remains(&mut self, tree: &Tree, run_dir: Option<&Bytes>) -> Remains;
    /// Its end is durable: removes its control group. Its PID file went with its end; by now another process, the next of the
    /// same service, may have one there.
    fn clear(&mut self, tree: &Tree, run_dir: Option<&Bytes>);

    /// What a program lacks that is there, and of which the kernel says that it is not: its interpreter.
    fn lacks(&mut self, _launch: &Launch) -> Option<String> {
        None
    }
    /// Tells the actor.
    fn report(&mut self, message: Message);
}
