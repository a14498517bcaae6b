//! Which pages of a machine's durable state have changed, and the copy of it that a checkpoint takes meanwhile.
//!
//! Durable state is divided into pages: page 0 is what the machine has but once, the others are ranges of its items.
//! Each page remembers the entry that changed it last, so what has changed since any earlier watermark is known without
//! keeping a mark for each snapshot. A checkpoint is copy-on-write: it begins at a watermark, a page not yet copied is
//! copied before its first change after that, and the rest is copied in slices while the machine goes on.
//!
//! A page is touched before every change of what it holds. Nothing here is state: it is lost with the process, and comes
//! back from the pages themselves.

use crate::ids::{PageId, Seq};

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
    /// The entry that changed each page last, by kind and index; zero if none ever did.
    changed: [Vec<Seq>; PageId::KINDS],
    running: Option<Running>,
}

/// A change of durable state: the entry that makes it, and the pages that note it.
#[derive(Debug)]
pub struct Change<'a> {
    pages: &'a mut Pages,
    entry: Seq,
}

/// A checkpoint under way.
#[derive(Debug)]
struct Running {
    /// Pages changed after this are wanted.
    since: Seq,
    /// The watermark: changes after it are not.
    upto: Seq,
    /// Pages before this one have been looked at: its kind and index, whether or not there is one.
    next: (u8, u32),
    /// Pages that were copied before their turn.
    early: Vec<Copied>,
}

impl Pages {
    /// The change that this entry makes.
    pub fn by(&mut self, entry: Seq) -> Change<'_> {
        Change { pages: self, entry }
    }

    /// Notes that `page` changes with this entry. Copies it first, by `encode`, if a checkpoint still wants it as it is.
    pub fn touch(&mut self, page: PageId, entry: Seq, encode: impl FnOnce(&mut Vec<u8>)) {
        let kind = self.changed.get_mut(usize::from(page.kind()));
        let kind = kind.expect("there is a list for each kind");
        let index = page.index() as usize;
        if kind.len() <= index {
            kind.resize(index + 1, Seq(0));
        }
        let Some(changed) = kind.get_mut(index) else {
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
            next: (0, 0),
            early: Vec::new(),
        });
    }

    /// The pages of the checkpoint under way that were copied before their turn, as far as they were not taken yet.
    pub fn take_early(&mut self) -> Vec<Copied> {
        let running = self.running.as_mut();
        running.map_or_else(Vec::new, |running| std::mem::take(&mut running.early))
    }

    /// The next page that the checkpoint under way wants, with the entry that changed it last. Ends the checkpoint, with
    /// `None`, after the last.
    pub fn next_wanted(&mut self) -> Option<(PageId, Seq)> {
        let running = self.running.as_mut()?;
        while let Some(pages) = self.changed.get(usize::from(running.next.0)) {
            let (kind, index) = running.next;
            let Some(changed) = pages.get(index as usize) else {
                running.next = (kind + 1, 0);
                continue;
            };
            let page = PageId::new(kind, index);
            let wanted = running.wants(page, *changed);
            running.next.1 += 1;
            if wanted {
                return Some((page, *changed));
            }
        }
        self.running = None;
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

impl Running {
    /// Whether a page that `changed` changed last is still to be copied.
    fn wants(&self, page: PageId, changed: Seq) -> bool {
        (page.kind(), page.index()) >= self.next && changed > self.since && changed <= self.upto
    }
}

impl Change<'_> {
    /// Notes that `page` changes, see [`Pages::touch`].
    pub fn touch(self, page: PageId, encode: impl FnOnce(&mut Vec<u8>)) {
        self.pages.touch(page, self.entry, encode);
    }
}
