//! Copies a machine and its receipts for a checkpoint, slice by slice, while the machine continues.

use crate::ids::PageId;
use crate::lookup::pages::Copied;
use crate::spine::machine::Paged;
use crate::spine::receipts::Receipts;

/// The minimum size counted for a page, in bytes, because even an empty page takes time to copy.
const PAGE_BYTES_MIN: usize = 64;

/// Returns the next pages of the checkpoint under way, about `bytes_max` bytes of them, and whether these are the last.
///
/// Pages copied early, because they were about to change, come first. `bytes_max` does not limit them, since they have been copied already.
pub fn slice<M: Paged>(
    machine: &mut M,
    receipts: &Receipts,
    bytes_max: usize,
) -> (Vec<Copied>, bool) {
    let mut slice = machine.pages().take_early();
    let mut bytes = 0;
    while bytes < bytes_max {
        let Some((page, changed)) = machine.pages().next_wanted() else {
            return (slice, true);
        };
        let mut content = Vec::new();
        if page.kind() == PageId::RECEIPTS {
            receipts.encode(page, &mut content);
        } else {
            machine.encode_page(page, &mut content);
        }
        bytes += content.len().max(PAGE_BYTES_MIN);
        slice.push(Copied { page, changed, content });
    }
    (slice, false)
}
