//! A clean stop takes a checkpoint, and afterwards no process writes to the directory.

use crate::node;
use crate::patience::until;
use crate::snapshots::directory::{LARGE, open, sealed, settings, start, take, timeless};
use sexton::Node;
use sexton::actors::lock::{LockMachine, Message, Name};
use sexton::node::Handle;
use sexton::spine::checkpoint::Rules;
use sexton::spine::delivery::Item;
use sexton::spine::machine::Observable as _;

/// The maximum number of records that a startup replays after a clean stop. All of them are marks.
const MARKS_MAX: u64 = 4;

#[test]
fn a_start_behind_a_stop_has_nothing_to_repeat() {
    let files = tempfile::tempdir().unwrap();
    let node = open(files.path(), LARGE);
    take(&node, 0..3000);
    let mut expected = timeless(node::entries(&node.handle()));
    node.stop().unwrap();
    for round in 1..4 {
        let (locks, past) = start(files.path()).unwrap();
        let (_, seal) = past.snapshot.expect("the stop left one");
        assert!(past.tail.clean);
        assert!(past.tail.records <= MARKS_MAX, "{:?}", past.tail);
        assert!(seal.manifest.begun < past.tail.last);
        assert!(timeless(locks.view().entries) == expected);
        let node = open(files.path(), LARGE);
        let recovered = node.handle().recovered().clone();
        assert!(recovered.records <= MARKS_MAX, "{recovered:?}");
        assert!(recovered.clean && recovered.mended.is_empty(), "{recovered:?}");
        take(&node, round * 3000..round * 3000 + 10);
        expected = timeless(node::entries(&node.handle()));
        drop(node);
    }
}

/// Sends requests until the node refuses them because it has stopped.
fn pester(handle: &Handle, number: usize) {
    let name = Name::try_from(number.to_string().as_str()).expect("a short name");
    let request = || Message::Request {
        key: name.clone(),
        index: name.clone(),
        owner: name.clone(),
        ttl: 60_000,
        ttw: 0,
        priority: 0,
    };
    let ask = || -> Vec<Item<LockMachine>> { vec![Item::Message(request())] };
    while node::wait(handle.locks().batch(ask())).is_ok() {}
}

#[test]
fn a_stop_amid_checkpoints_leaves_none_half_written() {
    let files = tempfile::tempdir().unwrap();
    for round in 0..8 {
        let node = Node::open(sexton::Config {
            checkpoints: Rules::every(20),
            ..settings(files.path(), LARGE)
        })
        .unwrap();
        let recovered = node.handle().recovered().clone();
        assert!(recovered.mended.is_empty(), "round {round}: {recovered:?}");
        std::thread::scope(|threads| {
            for number in 0..4 {
                let handle = node.handle();
                threads.spawn(move || pester(&handle, number));
            }
            until("a checkpoint is taken", || {
                (node.handle().snapshots().taken > round / 4).then_some(())
            });
            node.stop().unwrap();
            // The node no longer uses the directory, so this process may read it.
            assert_eq!(sealed(files.path()), [true; 2], "round {round}");
        });
        let (_, past) = start(files.path()).unwrap();
        assert!(past.tail.clean);
        assert_eq!(past.mended, Vec::<String>::new(), "round {round}");
    }
}
