//! Lets a checkpoint request an actor's pages, in messages among the actor's others.

use super::shell::Shell;
use crate::ids::{ActorId, Seq};
use crate::persist::mark::Watermark;
use crate::persist::snapshots::Page;
use crate::spine::machine::Actor;
use crate::spine::page_source::PageSource;
use actix::{Addr, Handler, Message};
use tokio::sync::oneshot;

/// The approximate size of the slices in which an actor sends its pages, in bytes. Copying one takes less than half a millisecond.
const SLICE_BYTES: usize = 64 * 1024;

/// The address from which a checkpoint requests an actor's pages.
pub(super) struct Pager<M: Actor> {
    address: Addr<Shell<M>>,
    actor: ActorId,
}

impl<M: Actor> Pager<M> {
    pub(super) const fn new(address: Addr<Shell<M>>, actor: ActorId) -> Self {
        Self { address, actor }
    }
}

impl<M: Actor> PageSource for Pager<M> {
    fn actor(&self) -> ActorId {
        self.actor
    }

    fn begin(&self, since: Seq) -> oneshot::Receiver<Option<Watermark>> {
        let (answer, begun) = oneshot::channel();
        self.address.do_send(BeginCheckpoint { since, answer });
        begun
    }

    fn next(&self) -> oneshot::Receiver<Option<(Vec<Page>, bool)>> {
        let (answer, pages) = oneshot::channel();
        self.address.do_send(NextPages(answer));
        pages
    }

    fn abort(&self) {
        self.address.do_send(AbortCheckpoint);
    }
}

struct BeginCheckpoint {
    since: Seq,
    answer: oneshot::Sender<Option<Watermark>>,
}

impl Message for BeginCheckpoint {
    type Result = ();
}

impl<M: Actor> Handler<BeginCheckpoint> for Shell<M> {
    type Result = ();

    fn handle(&mut self, begin: BeginCheckpoint, _: &mut Self::Context) {
        drop(begin.answer.send(self.host.begin_checkpoint(begin.since)));
    }
}

struct NextPages(oneshot::Sender<Option<(Vec<Page>, bool)>>);

impl Message for NextPages {
    type Result = ();
}

impl<M: Actor> Handler<NextPages> for Shell<M> {
    type Result = ();

    fn handle(&mut self, NextPages(answer): NextPages, _: &mut Self::Context) {
        drop(answer.send(self.host.next_pages(SLICE_BYTES)));
    }
}

struct AbortCheckpoint;

impl Message for AbortCheckpoint {
    type Result = ();
}

impl<M: Actor> Handler<AbortCheckpoint> for Shell<M> {
    type Result = ();

    fn handle(&mut self, AbortCheckpoint: AbortCheckpoint, _: &mut Self::Context) {
        self.host.abort_checkpoint();
    }
}
