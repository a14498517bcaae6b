//! One value for each actor of the simulated node, which are the actors of every node and two counters.

use crate::actor::{Actor, Turn};
use crate::counter::{CounterMachine, LEFT, RIGHT};
use crate::reference::{Clients, Reference, replica};
use crate::setting::Setting;
use crate::witness::Witness;
use crate::world::World;
use sexton::ids::{ActorId, Digest};
use sexton::spine::effect::Tell;
use sexton::spine::ledger::Ledger;
use sexton::spine::machine::{self, Machine};
use sexton::spine::recovery::{Recovering, Replica};

/// An actor with a second implementation of its rules.
pub(crate) trait Judged: machine::Actor {
    /// The second implementation of its rules.
    type Reference: Reference<Machine = Self> + 'static;
}

/// A type with one value for each actor.
pub(crate) trait Family {
    type Of<M: Judged>;
}

sexton::actors_of_a_node! {
    $ each;
    /// One value for each actor.
    pub(crate) struct Each<F: Family> {
        left: CounterMachine<LEFT>,
        /// More counters.
        right: CounterMachine<RIGHT>,
    }
}
#[expect(
    clippy::single_component_path_imports,
    reason = "other files use the macro by its path"
)]
pub(crate) use each;

/// The actors of a node.
pub(crate) type Actors = Each<ActorOf>;
/// The witnesses of the actors.
pub(crate) type Witnesses = Each<WitnessOf>;
/// The machines of the actors while the log is replayed.
pub(crate) type Replicas = Each<ReplicaOf>;

pub(crate) struct ActorOf;

impl Family for ActorOf {
    type Of<M: Judged> = Actor<M::Reference>;
}

pub(crate) struct WitnessOf;

impl Family for WitnessOf {
    type Of<M: Judged> = Witness<M::Reference>;
}

pub(crate) struct ReplicaOf;

impl Family for ReplicaOf {
    type Of<M: Judged> = Replica<M>;
}

pub(crate) struct ClientsOf;

impl Family for ClientsOf {
    type Of<M: Judged> = <M::Reference as Reference>::Clients;
}

impl Each<ClientsOf> {
    pub(crate) fn new(setting: &Setting) -> Self {
        each!(list: type M => Clients::<<M as Judged>::Reference>::new(setting))
    }
}

/// Returns the id of each actor with three weights: of its clients' calls, of their waits, and of its turns.
pub(crate) fn weights() -> Vec<(ActorId, [u64; 3])> {
    fn of<M: Judged>() -> (ActorId, [u64; 3]) {
        let weights = [M::Reference::CALLS, M::Reference::WATCHES, M::Reference::TURNS];
        (M::ID, weights)
    }
    each!(type M => of::<M>()).into()
}

/// Returns the names of the actors.
pub(crate) fn names() -> Vec<&'static str> {
    each!(type M => <M as Machine>::NAME).into()
}

impl Default for Witnesses {
    fn default() -> Self {
        each!(list: type M => Witness::<<M as Judged>::Reference>::default())
    }
}

impl Replicas {
    /// Creates empty replicas.
    pub(crate) fn new() -> Self {
        each!(list: type M => replica::<<M as Judged>::Reference>())
    }

    pub(crate) fn recovering(&mut self) -> Vec<&mut dyn Recovering> {
        each!(replica in &mut self => replica as &mut dyn Recovering).into()
    }

    pub(crate) fn digests(&self) -> Vec<Digest> {
        each!(replica in &self => replica.digest()).into()
    }
}

impl Actors {
    /// Creates actors around recovered machines.
    pub(crate) fn new(replicas: Replicas) -> Self {
        each!(list: replica in replicas => Actor::new(replica.into_parts()))
    }

    /// Connects the actors to this world, which performs their actions.
    pub(crate) fn attach(&self, world: &World) {
        let Each { supervisor, process, lease, left, right, .. } = self;
        supervisor.host.outbox().set_port(Box::new(world.clone()));
        let port = Box::new(world.processes.clone());
        process.host.outbox().set_port(port);
        lease.host.outbox().set_port(Box::new(world.clone()));
        left.host.outbox().set_port(Box::new(world.clone()));
        right.host.outbox().set_port(Box::new(world.clone()));
    }

    pub(crate) fn turn(&mut self, id: ActorId, ledger: &mut Ledger) -> Turn {
        let turns =
            each!(actor in &mut self => (actor.host.actor() == id).then(|| actor.turn(ledger)));
        let turn = turns.into_iter().flatten().next();
        turn.expect("some actor is due")
    }

    /// Puts a tell into the mailbox of the actor that it is for.
    pub(crate) fn post_tell(&mut self, tell: &Tell) {
        let posted = each!(actor in &mut self => {
            let is_its = actor.host.actor() == tell.to;
            if is_its {
                actor.post_tell(tell);
            }
            is_its
        });
        assert!(posted.contains(&true), "no actor sends tells to {}", tell.to);
    }

    pub(crate) fn ids(&self) -> Vec<ActorId> {
        each!(actor in &self => actor.host.actor()).into()
    }

    /// Returns the digests of all actors. No actor may be spent.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        each!(actor in &self => actor.host.digest().expect("it is not spent")).into()
    }
}
