//! Which pages of a machine's durable state have changed, and the copy of it that a checkpoint takes meanwhile.
//!
//! Durable state is divided into pages: page 0 is what the machine has but once, the others are ranges of its items.
//! Each page remembers the entry that changed it last, so what has changed since any earlier watermark is known without
//! keeping a mark for each snapshot. A checkpoint is copy-on-write: it begins at a watermark, a page not yet copied is
//! copied before its first change after that, and the rest is copied in slices while the machine goes on.
//!
//! The machine calls `touch` before every change of durable state. Nothing here is state: it is lost with the process,
//! and comes back from the pages themselves.

use crate::ids::{PageId, Seq};
use crate::spine::machine::Paged;

/// Pages of a kind have numbers of their own, so that each kind may grow.
const AREAS: usize = 4;

/// A page as it was at the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Which.
    pub page: PageId,
    /// The entry that changed it last.
    pub changed: Seq,
    /// Its content; empty if it has none any more. A snapshot keeps that, too: the other one may still have what was
    /// there, and must learn that it is gone.
    pub content: Vec<u8>,
}

/// The pages of one machine.
#[derive(Debug, Default)]
pub struct Pages {
    /// The entry that changed each page last, by area; zero if none ever did.
    changed: [Vec<Seq>; AREAS],
    running: Option<Running>,
}

/// A checkpoint under way.
#[derive(Debug)]
struct Running {
    /// Pages changed after this are wanted.
    since: Seq,
    /// The watermark: changes after it are not.
    upto: Seq,
    /// Pages before this one have been looked at.
    next: u64,
    /// Pages that were copied before their turn.
    early: Vec<Copied>,
}

impl Pages {
    /// Says that `page` changes with this entry. Copies it first, by `encode`, if a checkpoint still wants it as it is.
    pub fn touch(&mut self, page: PageId, entry: Seq, encode: impl FnOnce(&mut Vec<u8>)) {
        let (area, index) = (page.area(), page.in_area());
        let Some(area) = self.changed.get_mut(area) else {
            return;
        };
        if area.len() <= index {
            area.resize(index + 1, Seq(0));
        }
        let Some(changed) = area.get_mut(index) else {
            return;
        };
        let before = std::mem::replace(changed, entry);
        if let Some(running) = &mut self.running
            && running.wants(page, before)
        {
            let mut content = Vec::new();
            encode(&mut content);
            running.early.push(Copied {
                page,
                changed: before,
                content,
            });
        }
    }

    /// Notes what a snapshot says of a page that was loaded from it.
    pub fn loaded(&mut self, page: PageId, changed: Seq) {
        self.touch(page, changed, |_| {});
    }

    /// Begins a checkpoint of everything changed by entries after `since` and up to `upto`, the newest there is.
    pub fn begin(&mut self, since: Seq, upto: Seq) {
        self.running = Some(Running {
            since,
            upto,
            next: 0,
            early: Vec::new(),
        });
    }

    /// The next page that is wanted, with the entry that changed it last; `None` behind the last.
    fn next_wanted(&mut self) -> Option<(PageId, Seq)> {
        let running = self.running.as_mut()?;
        while let Ok(next) = u32::try_from(running.next) {
            let page = PageId(next);
            let area = self.changed.get(page.area());
            let Some(changed) = area.and_then(|area| area.get(page.in_area())) else {
                running.next = page.next_area();
                continue;
            };
            let wanted = running.wants(page, *changed);
            running.next += 1;
            if wanted {
                return Some((page, *changed));
            }
        }
        None
    }

    /// Ends a checkpoint before it is whole.
    pub fn abort(&mut self) {
        self.running = None;
    }

    /// Whether a checkpoint is under way.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

/// The next pages of the checkpoint that is under way, about `bytes_max` bytes of them; whether these are the last.
///
/// Those that were copied before their turn come first, and without a limit: they are copied already.
pub fn slice<M: Paged>(machine: &mut M, bytes_max: usize) -> (Vec<Copied>, bool) {
    let mut slice = match &mut machine.pages().running {
        Some(running) => std::mem::take(&mut running.early),
        None => return (Vec::new(), true),
    };
    let mut bytes = 0;
    while bytes < bytes_max {
        let Some((page, changed)) = machine.pages().next_wanted() else {
            machine.pages().running = None;
            return (slice, true);
        };
        let mut content = Vec::new();
        machine.encode_page(page, &mut content);
        // A page of nothing costs something, too.
        bytes += content.len().max(64);
        slice.push(Copied {
            page,
            changed,
            content,
        });
    }
    (slice, false)
}

impl Running {
    /// Whether a page that `changed` changed last is still to be copied.
    fn wants(&self, page: PageId, changed: Seq) -> bool {
        u64::from(page.0) >= self.next && changed > self.since && changed <= self.upto
    }
}
