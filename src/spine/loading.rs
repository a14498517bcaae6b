//! A snapshot on its way into machines. One thread reads pages, one decodes them, and whoever asked builds state of them,
//! all at the same time: a start has much to do, and cores that wait.
//!
//! Promises: pages come to the machine in the order in which they were read; beside the state, few are in memory. Whether
//! all was read, and as it was sealed, is known only at the end.

use crate::ids::{ActorId, PageId, Seq};
use crate::persist::PersistError;
use crate::persist::snapshots::{Page, Seal, SlotId, Slots};
use crate::spine::guard::panic_words;
use crate::spine::machine::Paged;
use crate::spine::parallel::{Coming, ahead};
use crate::spine::receipts::{self, Receipts};
use std::iter::{self, Peekable};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Pages as they are read, ascending, actor by actor.
pub struct Arriving<'a> {
    pages: Peekable<Coming<'a, Page>>,
}

impl Arriving<'_> {
    /// Whose pages come next; `None` behind the last.
    pub fn actor(&mut self) -> Option<ActorId> {
        self.pages.peek().map(|page| page.actor)
    }

    /// The pages that come next, as long as they are this actor's.
    pub fn of(&mut self, actor: ActorId) -> impl Iterator<Item = Page> + Send {
        iter::from_fn(move || self.pages.next_if(|page| page.actor == actor))
    }
}

/// Reads a slot that was found sealed, and lets `build` take the pages meanwhile. What reading came to counts before
/// what was built.
pub fn while_read<T>(
    slots: &Slots,
    slot: SlotId,
    seal: &Seal,
    build: impl FnOnce(Arriving<'_>) -> T,
) -> (Result<(), PersistError>, T) {
    ahead(
        |made| {
            slots.read(slot, seal, &mut |page| {
                // Whoever takes no more has failed, and says why.
                made.push(page);
                Ok(())
            })
        },
        |pages| {
            build(Arriving {
                pages: pages.peekable(),
            })
        },
    )
}

/// A machine and its receipts, from their pages.
///
/// # Errors
/// If a page does not decode, or if the machine finds that they contradict each other.
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
    // A page that does not decode is the reason for what was built of the others.
    decoded?;
    let mut machine = built.map_err(words)?;
    for (page, changed) in changes {
        machine.pages().loaded(page, changed);
    }
    Ok((machine, Receipts::load(receipts)?))
}

/// A page, the entry that changed it last, and what it says, if it has any content.
type Decoded<M> = (PageId, Seq, Option<Content<<M as Paged>::Page>>);

/// What a page says.
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
