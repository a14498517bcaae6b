//! Tracks which pages of a machine's durable state have changed, and copies them for a checkpoint while the machine continues.
//!
//! Durable state is divided into pages: page 0 holds the singleton state, and the others hold ranges of the machine's items. For each page,
//! the last journal entry that changed it is recorded. So for any earlier watermark (the last entry that a snapshot includes), the pages
//! that changed since are known, without a set of changed pages for each snapshot. A checkpoint is copy-on-write: it begins at a watermark,
//! and from then on a page that has not been copied yet is copied before its first change. The other pages are copied in slices while the
//! machine continues.
//!
//! [`Pages::touch`] must be called before every change to the content of a page. Nothing here is durable: it is lost with the process, and
//! rebuilt when pages are loaded.

use crate::ids::{PageId, Seq};

/// A page as it was at the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The page's id.
    pub page: PageId,
    /// The last journal entry that changed the page.
    pub changed: Seq,
    /// The content; empty if the page was removed. A snapshot stores empty pages, too, because they replace the former content in an older
    /// snapshot.
    pub content: Vec<u8>,
}

/// The pages of one machine, and the checkpoint under way, if any.
#[derive(Debug, Default)]
pub struct Pages {
    /// For each page, by kind and index, the last journal entry that changed it; zero if none did.
    changed: [Vec<Seq>; PageId::KINDS],
    running: Option<Running>,
}

/// A change of durable state: the journal entry that makes it, and the pages that record it.
#[derive(Debug)]
pub struct Change<'a> {
    pages: &'a mut Pages,
    entry: Seq,
}

/// A checkpoint under way.
#[derive(Debug)]
struct Running {
    /// Pages changed after this entry are copied.
    since: Seq,
    /// The watermark: changes after this entry are left out.
    upto: Seq,
    /// The next page to examine, by kind and index, whether or not it exists.
    next: (u8, u32),
    /// Pages that were copied before their turn, because they were about to change.
    early: Vec<Copied>,
}

impl Pages {
    /// Returns a change that `entry` makes, to be passed to the container whose item changes.
    pub fn by(&mut self, entry: Seq) -> Change<'_> {
        Change { pages: self, entry }
    }

    /// Notes that `page` changes with this `entry`. If the checkpoint under way still needs the page as it is, copies it first with
    /// `encode`.
    pub fn touch(&mut self, page: PageId, entry: Seq, encode: impl FnOnce(&mut Vec<u8>)) {
        let kind = self.changed.get_mut(usize::from(page.kind()));
        let kind = kind.expect("there should be a list for each kind");
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
            running.early.push(Copied { page, changed: before, content });
        }
    }

    /// Records the last entry that changed a page, when the page is loaded from a snapshot.
    pub fn loaded(&mut self, page: PageId, changed: Seq) {
        self.touch(page, changed, |_| {});
    }

    /// Begins a checkpoint of all pages changed by entries after `since` and up to `upto`, the latest entry.
    pub fn begin(&mut self, since: Seq, upto: Seq) {
        self.running = Some(Running { since, upto, next: (0, 0), early: Vec::new() });
    }

    /// Returns the pages copied before their turn since the last call of this function; empty if no checkpoint is under way.
    pub fn take_early(&mut self) -> Vec<Copied> {
        let running = self.running.as_mut();
        running.map_or_else(Vec::new, |running| std::mem::take(&mut running.early))
    }

    /// Returns the next page that the checkpoint under way must copy, with the last entry that changed it. After the last page, returns
    /// `None` and ends the checkpoint; without a checkpoint, returns `None`.
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

    /// Ends the checkpoint before it is complete.
    pub fn abort(&mut self) {
        self.running = None;
    }

    /// Returns whether a checkpoint is under way.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl Running {
    /// Returns whether the checkpoint still has to copy a page that was last changed by the entry `changed`.
    fn wants(&self, page: PageId, changed: Seq) -> bool {
        (page.kind(), page.index()) >= self.next && changed > self.since && changed <= self.upto
    }
}

impl Change<'_> {
    /// Notes that this change affects `page`; see [`Pages::touch`].
    pub fn touch(self, page: PageId, encode: impl FnOnce(&mut Vec<u8>)) {
        self.pages.touch(page, self.entry, encode);
    }
}
