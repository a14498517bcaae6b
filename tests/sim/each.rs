//! One of something for each actor of the simulated node: the one place that lists them.
//!
//! `each!` does the same with every one of them, whatever its type. A new actor is a field here, its rules in a file of
//! its own, and what its clients ask for in `workload.rs`.

use crate::actor::{Actor, Turn};
use crate::counter::{LEFT, RIGHT};
use crate::counters::Counters;
use crate::locks::Locks;
use crate::queues::Queues;
use crate::reference::{Reference, replica};
use crate::witness::Witness;
use sexton::ids::{ActorId, Digest};
use sexton::spine::ledger::Ledger;
use sexton::spine::machine::Tell;
use sexton::spine::recovery::{Recovering, Replica};

/// How many actors there are.
pub(crate) const ACTORS: usize = 4;

/// One of something for each actor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Each<K, L, R, Q> {
    pub(crate) lock: K,
    pub(crate) left: L,
    pub(crate) right: R,
    pub(crate) queue: Q,
}

/// The actors of a node.
pub(crate) type Actors =
    Each<Actor<Locks>, Actor<Counters<LEFT>>, Actor<Counters<RIGHT>>, Actor<Queues>>;

/// Their witnesses.
pub(crate) type Witnesses =
    Each<Witness<Locks>, Witness<Counters<LEFT>>, Witness<Counters<RIGHT>>, Witness<Queues>>;

type ReplicaOf<R> = Replica<<R as Reference>::Machine>;

/// Their machines, on their way to where the log ends.
pub(crate) type Replicas = Each<
    ReplicaOf<Locks>,
    ReplicaOf<Counters<LEFT>>,
    ReplicaOf<Counters<RIGHT>>,
    ReplicaOf<Queues>,
>;

/// Which actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Lock,
    Left,
    Right,
    Queue,
}

impl Who {
    pub(crate) const ALL: [Self; ACTORS] = [Self::Lock, Self::Left, Self::Right, Self::Queue];
}

/// The values of an expression for each actor, in order: `each!(actor in actors.each_mut() => actor.turn())`.
macro_rules! each {
    ($($name:ident in $all:expr),+ => $value:expr) => {{
        $(let $name = $all;)+
        [
            { $(let $name = $name.lock;)+ $value },
            { $(let $name = $name.left;)+ $value },
            { $(let $name = $name.right;)+ $value },
            { $(let $name = $name.queue;)+ $value },
        ]
    }};
}
pub(crate) use each;

impl<K, L, R, Q> Each<K, L, R, Q> {
    pub(crate) fn each_ref(&self) -> Each<&K, &L, &R, &Q> {
        Each {
            lock: &self.lock,
            left: &self.left,
            right: &self.right,
            queue: &self.queue,
        }
    }

    pub(crate) fn each_mut(&mut self) -> Each<&mut K, &mut L, &mut R, &mut Q> {
        Each {
            lock: &mut self.lock,
            left: &mut self.left,
            right: &mut self.right,
            queue: &mut self.queue,
        }
    }
}

impl Replicas {
    /// Replicas with nothing in them.
    pub(crate) fn new() -> Self {
        Self {
            lock: replica::<Locks>(),
            left: replica::<Counters<LEFT>>(),
            right: replica::<Counters<RIGHT>>(),
            queue: replica::<Queues>(),
        }
    }

    pub(crate) fn recovering(&mut self) -> [&mut dyn Recovering; ACTORS] {
        each!(replica in self.each_mut() => {
            let replica: &mut dyn Recovering = replica;
            replica
        })
    }

    pub(crate) fn digests(&self) -> [Digest; ACTORS] {
        each!(replica in self.each_ref() => replica.digest())
    }
}

impl Actors {
    /// Actors around recovered machines.
    pub(crate) fn new(replicas: Replicas) -> Self {
        Self {
            lock: Actor::new(replicas.lock.into_parts()),
            left: Actor::new(replicas.left.into_parts()),
            right: Actor::new(replicas.right.into_parts()),
            queue: Actor::new(replicas.queue.into_parts()),
        }
    }

    pub(crate) fn turn(&mut self, who: Who, ledger: &mut Ledger) -> Turn {
        match who {
            Who::Lock => self.lock.turn(ledger),
            Who::Left => self.left.turn(ledger),
            Who::Right => self.right.turn(ledger),
            Who::Queue => self.queue.turn(ledger),
        }
    }

    /// Brings a tell to its actor's mailbox.
    pub(crate) fn post_tell(&mut self, tell: &Tell) {
        let posted = each!(actor in self.each_mut() => {
            let is_its = actor.host.actor() == tell.to;
            if is_its {
                actor.post_tell(tell);
            }
            is_its
        });
        assert!(posted.contains(&true), "nobody tells {} anything", tell.to);
    }

    pub(crate) fn ids(&self) -> [ActorId; ACTORS] {
        each!(actor in self.each_ref() => actor.host.actor())
    }

    /// None of them may be spent.
    pub(crate) fn digests(&self) -> [Digest; ACTORS] {
        use sexton::spine::Machine as _;
        each!(actor in self.each_ref() => actor.host.machine().digest())
    }
}
