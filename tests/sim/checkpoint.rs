//! A checkpoint, cut into its steps: everything else may happen between any two.
//!
//! Follows `spine/checkpoint.rs` and `persist/snapshots/thread.rs` with the same decisions, slots and hosts below, in
//! the same order. What the runtime waits for, a step looks at, and is taken again if it is not so yet.

use crate::each::{ACTORS, each};
use crate::node::Node;
use crate::planted_slots;
use crate::setting::Plant;
use sexton::ids::{ActorId, Seq};
use sexton::persist::PersistError;
use sexton::persist::format::Watermark;
use sexton::persist::snapshots::{Manifest, Page, SlotId, Writing};
use sexton::spine::Host;
use sexton::spine::checkpoint::{begin, since, slot_to_write};
use sexton::spine::machine::Machine;

/// A checkpoint under way.
pub(crate) struct Checkpoint {
    writing: Writing,
    slot: SlotId,
    /// Up to where the other slot goes.
    older: Seq,
    before: Manifest,
    manifest: Manifest,
    stage: Stage,
}

/// What is to be done next.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    Begin,
    BeginActor(ActorId),
    Copy(ActorId),
    /// Whether these are the actor's last pages.
    Put(ActorId, Vec<Page>, bool),
    Close,
    Mark,
    Seal(Seq),
}

/// What came of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// There is more to do.
    Going,
    /// Nothing could be done yet.
    Waiting,
    /// The slot is sealed, and so many segments are gone.
    Sealed(u64),
    /// An actor's state is spent: there will be no snapshot.
    Interrupted,
}

impl Checkpoint {
    /// Opens the slot whose turn it is.
    pub(crate) fn open(node: &mut Node) -> Result<Self, PersistError> {
        let slot = slot_to_write(node.sealed);
        let relied_on = node.sealed[slot].take().is_some();
        let older = node.sealed[slot.other()];
        let (disk, slots) = (node.snapshots_disk(), node.slots.clone());
        let writing = Writing::open(disk, slots, slot, relied_on)?;
        Ok(Self {
            slot,
            older: older.unwrap_or_default(),
            before: writing.before().cloned().unwrap_or_default(),
            writing,
            manifest: Manifest::default(),
            stage: Stage::Begin,
        })
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Goes on by one step.
    pub(crate) fn step(&mut self, node: &mut Node, bytes_max: usize) -> Result<Step, PersistError> {
        self.stage = match &self.stage {
            Stage::Begin => {
                self.manifest = begin(&mut node.ledger);
                let [first, ..] = node.actors.ids();
                Stage::BeginActor(first)
            }
            Stage::BeginActor(actor) => {
                let since =
                    planted_slots::since(node.plant, since(&self.before, *actor), &node.ledger);
                let Some(state) = on_host(node, *actor, |host| host.begin(since)) else {
                    return Ok(Step::Interrupted);
                };
                self.manifest.states.push(state);
                Stage::Copy(*actor)
            }
            Stage::Copy(actor) => {
                let begun = self.manifest.state(*actor).map(|state| state.upto);
                let last = on_host(node, *actor, |host| Some(host.newest()));
                node.met.slices_copied += 1;
                node.met.slices_copied_behind_changes += u64::from(last > begun);
                let late = node.plant == Some(Plant::CopiedLate);
                let since = since(&self.before, *actor);
                let copied = on_host(node, *actor, |host| {
                    if late {
                        host.begin(since).and_then(|_| host.next(usize::MAX))
                    } else {
                        host.next(bytes_max)
                    }
                });
                let Some((pages, done)) = copied else {
                    return Ok(Step::Interrupted);
                };
                Stage::Put(*actor, pages, done)
            }
            Stage::Put(actor, pages, done) => {
                self.writing.put(pages)?;
                let all = node.actors.ids();
                let next = all.iter().skip_while(|it| *it != actor).nth(1);
                match next {
                    _ if !done => Stage::Copy(*actor),
                    Some(next) => Stage::BeginActor(*next),
                    None => Stage::Close,
                }
            }
            Stage::Close => {
                self.writing.close(&self.manifest)?;
                if node.plant == Some(Plant::TrimBeforeSeal) {
                    planted_slots::trim(node, self.manifest.begun)?;
                }
                Stage::Mark
            }
            Stage::Mark => {
                let states = self.manifest.states.clone();
                let mark = node.ledger.checkpoint(self.slot.number(), states).seq;
                Stage::Seal(mark)
            }
            Stage::Seal(mark) => {
                let durable = node.log.released >= *mark;
                if !durable && node.plant != Some(Plant::SealBeforeMark) {
                    return Ok(Step::Waiting);
                }
                let older = planted_slots::older(node.plant, self.older);
                let sealed = self.writing.seal(*mark, older)?;
                return Ok(Step::Sealed(sealed.trimmed.segments));
            }
        };
        Ok(Step::Going)
    }

    /// Lets go of the slot, whatever came of it.
    pub(crate) fn end(self, node: &mut Node) {
        for actor in node.actors.ids() {
            on_host(node, actor, |host| {
                host.abort();
                Some(())
            });
        }
        let seal = self.writing.end();
        node.sealed[self.slot] = seal.map(|seal| seal.manifest.begun);
    }
}

/// A host, as far as a checkpoint is concerned.
trait Paged {
    fn begin(&mut self, since: Seq) -> Option<Watermark>;
    fn next(&mut self, bytes_max: usize) -> Option<(Vec<Page>, bool)>;
    fn abort(&mut self);
    fn newest(&self) -> Seq;
}

impl<M: Machine> Paged for Host<M> {
    fn begin(&mut self, since: Seq) -> Option<Watermark> {
        self.begin_checkpoint(since)
    }

    fn next(&mut self, bytes_max: usize) -> Option<(Vec<Page>, bool)> {
        self.next_pages(bytes_max)
    }

    fn abort(&mut self) {
        self.abort_checkpoint();
    }

    fn newest(&self) -> Seq {
        self.last()
    }
}

fn on_host<T>(
    node: &mut Node,
    actor: ActorId,
    call: impl FnOnce(&mut dyn Paged) -> Option<T>,
) -> Option<T> {
    let hosts: [(ActorId, &mut dyn Paged); ACTORS] =
        each!(actor in node.actors.each_mut() => (actor.host.actor(), &mut actor.host));
    let host = hosts.into_iter().find(|(id, _)| *id == actor);
    call(host.expect("an actor of this node").1)
}
