//! Functions that wait for the answers of a node in the test's own process.

pub(crate) use sexton::block_on as wait;

use sexton::actors::lock::{EntryView, Query, Reply};
use sexton::node::Handle;
use sexton::spine::delivery::Item;

/// Returns every lock entry of a node.
pub(crate) fn entries(handle: &Handle) -> Vec<EntryView> {
    let all = Query::List { key: None, entries_max: u32::MAX };
    let mut answers = wait(handle.locks().batch(vec![Item::Query(all)])).expect("the node runs");
    match answers.pop() {
        Some(Ok(Reply::List(entries))) => entries,
        answer => panic!("a listing is not answered with {answer:?}"),
    }
}
