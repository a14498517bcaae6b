//! A checkpoint, divided into steps. Anything else may happen between two of them.
//!
//! Follows `actors/checkpoint.rs` and `persist/snapshots/thread.rs`: the same decisions, slots and hosts, in the same
//! order. Where the runtime waits for an event, a step returns `Waiting`, and is repeated until the event has happened.

use crate::each::each;
use crate::node::Node;
use crate::planted_slots;
use crate::setting::Plant;
use sexton::ids::{ActorId, Seq};
use sexton::persist::PersistError;
use sexton::persist::mark::Watermark;
use sexton::persist::retention::Kept;
use sexton::persist::snapshots::{Manifest, Page, SlotId, Target, Writing};
use sexton::spine::Actor;
use sexton::spine::Host;
use sexton::spine::checkpoint::{begin, since, slot_to_write};

/// A checkpoint in progress.
pub(crate) struct Checkpoint {
    writing: Writing,
    slot: SlotId,
    /// The entry up to which the other slot contains the state.
    older: Seq,
    before: Manifest,
    manifest: Manifest,
    stage: Stage,
}

/// The next step.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    Begin,
    BeginActor(ActorId),
    Copy(ActorId),
    /// Pages to write, and whether they are the actor's last ones.
    Put(ActorId, Vec<Page>, bool),
    Close,
    Mark,
    Seal(Seq),
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// Another step follows.
    Going,
    /// The step could not be done yet.
    Waiting,
    /// The slot is sealed, and this number of segments was removed. The checkpoint is done.
    Sealed(u64),
    /// An actor's machine panicked and has no usable state. The checkpoint is abandoned.
    Interrupted,
}

impl Checkpoint {
    /// Opens the slot that is to be written next.
    pub(crate) fn open(node: &mut Node) -> Result<Self, PersistError> {
        let slot = slot_to_write(node.sealed);
        let relied_on = node.sealed[slot].take().is_some();
        let older = node.sealed[slot.other()];
        let (disk, slots) = (node.snapshots_disk(), node.slots.clone());
        let frees = None;
        let target = Target { slot, relied_on, frees };
        let writing = Writing::open(disk, slots, target)?;
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

    /// Takes one step.
    pub(crate) fn step(&mut self, node: &mut Node, bytes_max: usize) -> Result<Step, PersistError> {
        self.stage = match &self.stage {
            Stage::Begin => {
                self.manifest = begin(&mut node.ledger);
                let ids = node.actors.ids();
                Stage::BeginActor(*ids.first().expect("a node has actors"))
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
                let sealed = self.writing.seal(*mark, older, Kept::default())?;
                return Ok(Step::Sealed(sealed.trimmed.segments));
            }
        };
        Ok(Step::Going)
    }

    /// Ends the checkpoint, whether or not it succeeded: all actors stop copying pages, and the slot is closed.
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

/// The part of a host that a checkpoint uses.
trait Paged {
    fn begin(&mut self, since: Seq) -> Option<Watermark>;
    fn next(&mut self, bytes_max: usize) -> Option<(Vec<Page>, bool)>;
    fn abort(&mut self);
    fn newest(&self) -> Seq;
}

impl<M: Actor> Paged for Host<M> {
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
    let hosts = each!(actor in &mut node.actors => {
        (actor.host.actor(), &mut actor.host as &mut dyn Paged)
    });
    let host = hosts.into_iter().find(|(id, _)| *id == actor);
    call(host.expect("an actor of this node").1)
}
