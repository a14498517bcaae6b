//! How requests are sent that remove what has ended, of which there may be more than one message removes.

use crate::ids::RequestKey;

/// The maximum number of items removed by one message.
pub(super) const PRUNED_AT_ONCE: u32 = 1000;

/// The number of messages that remove everything: more than a million items are never kept.
const ALL: u64 = 1000;

/// Returns how many messages of a request are sent together.
///
/// Without a key, a message is sent only if there is more to remove than the one before has removed. With a key, all are sent in one delivery,
/// because a message that removes nothing leaves no receipt: only in a delivery does a repeated request skip such a message instead of
/// carrying it out, and removing what has ended meanwhile.
pub(super) const fn together(key: Option<RequestKey>) -> u64 {
    if key.is_some() { ALL } else { 1 }
}
