//! The checkpoint of one actor: its pages are copied in slices, between messages. No checkpoint is taken while the machine is *spent* (a
//! panic has made it unusable until it is rebuilt).

use super::Host;
use crate::ids::Seq;
use crate::lookup::pages::Copied;
use crate::persist::mark::Watermark;
use crate::persist::snapshots::Page;
use crate::spine::guard::guard;
use crate::spine::machine::Actor;
use crate::spine::pages;
use crate::spine::recovery::digest;

impl<M: Actor> Host<M> {
    /// Begins a checkpoint of the pages that changed after `since`, and returns the watermark of the state; `None` while the machine is
    /// spent.
    pub fn begin_checkpoint(&mut self, since: Seq) -> Option<Watermark> {
        if self.spent {
            return None;
        }
        self.machine.pages().begin(since, self.last);
        Some(Watermark {
            actor: M::ID,
            upto: self.last,
            digest: digest(&self.machine, &self.receipts),
        })
    }

    /// Returns the next pages of the checkpoint under way, about `bytes_max` bytes of them, and whether these are the last. Returns `None`
    /// if the checkpoint was abandoned, copying a page panicked, or the machine is spent.
    pub fn next_pages(&mut self, bytes_max: usize) -> Option<(Vec<Page>, bool)> {
        if self.spent || !self.machine.pages().is_running() {
            return None;
        }
        let (machine, receipts) = (&mut self.machine, &self.receipts);
        match guard(|| pages::slice(machine, receipts, bytes_max)) {
            Ok((copied, done)) => {
                let page = |copied: Copied| Page {
                    actor: M::ID,
                    page: copied.page,
                    changed: copied.changed,
                    content: copied.content,
                };
                Some((copied.into_iter().map(page).collect(), done))
            }
            Err(cause) => {
                tracing::error!(actor = M::NAME, cause, "failed to copy a page");
                self.abort_checkpoint();
                None
            }
        }
    }

    /// Abandons the checkpoint under way, if there is one.
    pub fn abort_checkpoint(&mut self) {
        if !self.spent {
            self.machine.pages().abort();
        }
    }
}
