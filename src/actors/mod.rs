//! The node's actors, and the only list of all of them.
//!
//! Each actor has a folder that contains its machine: a state machine that does no I/O. [`crate::spine`] runs the machines;
//! [`crate::lookup`] provides the collections in which they store their items.

pub mod binding;
pub mod dispatch;
pub mod lease;
pub mod lock;
pub mod process;
pub mod queue;
pub mod supervisor;

use crate::ids::ActorId;
use crate::spine::each::{Family, MailboxOf, ReplicaOf, RulesOf};
use crate::spine::event;
use crate::spine::machine::{Machine, Observable};
use crate::spine::recovery::{Recovering, Replica};
use std::collections::BTreeSet;
use std::fmt;

/// Calls the `list_of_actors!` macro with a node's actors, followed by the actors given in braces. Other crates, such as the integration
/// tests, use it to define lists with additional actors.
#[doc(hidden)]
#[macro_export]
macro_rules! actors_of_a_node {
    ($d:tt $each:ident; $(#[$about:meta])* $vis:vis struct $list:ident<$family:ident: $bound:path> { $($more:tt)* }) => {
        $crate::list_of_actors! {
            $d $each;
            $(#[$about])*
            $vis struct $list<$family: $bound> {
                /// The supervisor, which restarts the other actors.
                supervisor: $crate::actors::supervisor::SupervisorMachine,
                /// Locks.
                lock: $crate::actors::lock::LockMachine,
                /// Job queues.
                queue: $crate::actors::queue::QueueMachine,
                /// Processes.
                process: $crate::actors::process::ProcessMachine,
                /// Leases.
                lease: $crate::actors::lease::LeaseMachine,
                /// Tasks.
                dispatch: $crate::actors::dispatch::DispatchMachine,
                $($more)*
            }
        }
    };
}

crate::actors_of_a_node! {
    $ each;
    /// One value for each actor of a node, in the order in which the actors start.
    pub struct Actors<F: Family> {}
}
pub(crate) use each;

impl Actors<ReplicaOf> {
    /// Creates an empty machine for each actor. Recovery then restores their state from the snapshot and the journal.
    #[expect(
        clippy::clone_on_copy,
        reason = "the rules of some actors are `Copy`, those of others are not"
    )]
    pub fn empty(rules: &Rules) -> Self {
        each!(list: rules in &rules => Replica::new(rules.clone()))
    }

    /// Returns every machine as a trait object, for recovery.
    pub fn recovering(&mut self) -> Vec<&mut dyn Recovering> {
        each!(replica in &mut self => replica as &mut dyn Recovering).into()
    }
}

/// Returns the names of all actors.
pub fn names() -> Vec<&'static str> {
    each!(type M => <M as Machine>::NAME).into()
}

/// Returns the name of the actor with this id, or `None` if no actor has it.
pub fn name_of(id: ActorId) -> Option<&'static str> {
    let known = each!(type M => (<M as Machine>::ID, <M as Machine>::NAME));
    let its = known.into_iter().find(|(of, _)| *of == id);
    its.map(|(_, name)| name)
}

/// Returns every kind of event that an actor or the node publishes.
pub fn kinds() -> BTreeSet<&'static str> {
    let theirs = each!(type M => <M as Observable>::KINDS);
    theirs.concat().into_iter().chain(event::KINDS).collect()
}

/// Returns the names of the actors whose events are shown only to those who may start and end processes.
pub fn guarded() -> Vec<&'static str> {
    let all = each!(type M => (<M as Machine>::NAME, <M as Observable>::GUARDED));
    all.into_iter().filter(|(_, is_guarded)| *is_guarded).map(|(name, _)| name).collect()
}

/// Returns every kind of event that only those may see who may start and end processes.
pub fn guarded_kinds() -> BTreeSet<&'static str> {
    let kinds = each!(type M => (<M as Observable>::GUARDED, <M as Observable>::KINDS));
    let of = |guarded| {
        let of = kinds.into_iter().filter(move |(is_guarded, _)| *is_guarded == guarded);
        of.flat_map(|(_, kinds)| kinds.iter().copied())
    };
    let open: BTreeSet<_> = of(false).chain(event::KINDS.iter().copied()).collect();
    of(true).filter(|kind| !open.contains(kind)).collect()
}

/// The rules of every actor, as configured.
pub type Rules = Actors<RulesOf>;

impl Default for Rules {
    fn default() -> Self {
        each!(list: type M => <M as Machine>::Rules::default())
    }
}

impl Clone for Actors<MailboxOf> {
    fn clone(&self) -> Self {
        each!(list: mailbox in &self => mailbox.clone())
    }
}

impl Actors<MailboxOf> {
    /// Returns the addresses of the same actors, for senders of limited authority.
    pub(crate) fn limited(&self) -> Self {
        each!(list: mailbox in &self => mailbox.limited())
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = each!(rules in &self => rules as &dyn fmt::Debug);
        f.debug_list().entries(rules).finish()
    }
}

impl Clone for Rules {
    #[expect(
        clippy::clone_on_copy,
        reason = "the rules of some actors are `Copy`, those of others are not"
    )]
    fn clone(&self) -> Self {
        each!(list: rules in &self => rules.clone())
    }
}

/// If two actors had the same id, each would be given the other's journal entries without an error.
#[test]
fn no_two_actors_have_one_number_or_one_name() {
    let ids = each!(type M => <M as Machine>::ID);
    let own = BTreeSet::from(ids);
    assert_eq!(own.len(), ids.len(), "{ids:?}");
    assert!(own.iter().all(|id| (1..200).contains(&id.0)), "{ids:?}");
    let names = [names(), vec![event::NODE]].concat();
    let different: BTreeSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "{names:?}");
}
