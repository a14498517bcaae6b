//! Loads a snapshot into machines. One thread reads pages, one decodes them, and the caller builds state from them, all at the same time,
//! because loading is CPU-bound, and startup leaves the other processors idle.
//!
//! Guarantees: pages reach the machine in the order in which they were read; besides the state, only a few pages are in memory. Only at the
//! end is it known whether everything was read and matches the seal.

use crate::ids::{ActorId, PageId, Seq};
use crate::persist::PersistError;
use crate::persist::snapshots::{Page, Seal, SlotId, Slots};
use crate::spine::guard::panic_words;
use crate::spine::machine::Paged;
use crate::spine::parallel::{Coming, ahead};
use crate::spine::receipts::{self, Receipts};
use std::iter::{self, Peekable};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Pages as they are read, in ascending order, actor by actor.
pub struct IncomingPages<'a> {
    pages: Peekable<Coming<'a, Page>>,
}

impl IncomingPages<'_> {
    /// Returns the actor whose pages come next; `None` after the last.
    pub fn actor(&mut self) -> Option<ActorId> {
        self.pages.peek().map(|page| page.actor)
    }

    /// Returns an iterator over the next pages, for as long as they belong to this actor.
    pub fn of(&mut self, actor: ActorId) -> impl Iterator<Item = Page> + Send {
        iter::from_fn(move || self.pages.next_if(|page| page.actor == actor))
    }
}

/// Reads a slot that was found sealed, while `build` consumes the pages. Returns the result of reading, and that of `build`, which may be
/// used only if reading succeeded.
pub fn while_read<T>(
    slots: &Slots,
    slot: SlotId,
    seal: &Seal,
    build: impl FnOnce(IncomingPages<'_>) -> T,
) -> (Result<(), PersistError>, T) {
    ahead(
        |made| {
            slots.read(slot, seal, &mut |page| {
                // The result of `push` is ignored: a consumer that stops early has failed, and returns the reason itself.
                made.push(page);
                Ok(())
            })
        },
        |pages| build(IncomingPages { pages: pages.peekable() }),
    )
}

/// Builds a machine and its receipts from their pages.
///
/// # Errors
/// Returns an error if a page does not decode, or if the machine finds that the pages contradict each other.
pub fn machine<M: Paged>(
    rules: M::Rules,
    pages: Coming<'_, Page>,
) -> Result<(M, Receipts), String> {
    let mut changes: Vec<(PageId, Seq)> = Vec::new();
    let mut receipts: receipts::Loaded = Vec::new();
    let build = || {
        ahead(
            |made| {
                for page in pages {
                    if !made.push(decode::<M>(&page)?) {
                        break;
                    }
                }
                Ok::<_, String>(())
            },
            |decoded| {
                let mut filled = decoded.filter_map(|(page, changed, content)| {
                    changes.push((page, changed));
                    match content? {
                        Content::Machine(content) => Some(content),
                        Content::Receipts(some) => {
                            receipts.extend(some);
                            None
                        }
                    }
                });
                let build = || M::from_pages(rules, &mut filled);
                catch_unwind(AssertUnwindSafe(build))
            },
        )
    };
    let words = |payload: Box<dyn std::any::Any + Send>| panic_words(payload.as_ref());
    let (decoded, built) = catch_unwind(AssertUnwindSafe(build)).map_err(words)?;
    // If a page does not decode, its error takes precedence over whatever was built from the others.
    decoded?;
    let mut machine = built.map_err(words)?;
    for (page, changed) in changes {
        machine.pages().loaded(page, changed);
    }
    Ok((machine, Receipts::load(receipts)?))
}

/// A page's id, the entry that changed it last, and its decoded content, if it has any.
type Decoded<M> = (PageId, Seq, Option<Content<<M as Paged>::Page>>);

/// The decoded content of a page.
enum Content<P> {
    Machine(P),
    Receipts(receipts::Loaded),
}

fn decode<M: Paged>(page: &Page) -> Result<Decoded<M>, String> {
    let filled = !page.content.is_empty();
    let content = filled.then(|| {
        if page.page.kind() == PageId::RECEIPTS {
            Receipts::decode(page.page, &page.content).map(Content::Receipts)
        } else {
            M::decode_page(page.page, &page.content).map(Content::Machine)
        }
    });
    Ok((page.page, page.changed, content.transpose()?))
}
