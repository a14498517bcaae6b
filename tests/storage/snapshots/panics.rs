//! A commit that panics while a checkpoint is taken. The actor is rebuilt from the other slot and the journal. The
//! checkpoint is completed, or abandoned if not all pages were copied; then the next one is completed.

use crate::chance::Chance;
use crate::node;
use crate::patience::until;
use crate::snapshots::directory::{
    SMALL, checkpoint, let_go, sealed, settings, start, take, timeless,
};
use sexton::actors::Rules;
use sexton::actors::lock::{Message, Name};
use sexton::spine::checkpoint::CheckpointError;
use sexton::spine::delivery::Item;
use sexton::spine::delivery::Stage;
use sexton::spine::machine::Observable as _;
use sexton::{Config, Node};

const LOCKS: usize = 20_000;
/// The number of panics that must happen during a checkpoint. Their moments depend on the machine, so they are repeated.
const AMID: usize = 5;
const PANICS_MAX: usize = 60;

fn culprit() -> Message {
    let name = Name::try_from("culprit").expect("a short name");
    Message::Request {
        key: name.clone(),
        index: name.clone(),
        owner: name,
        ttl: 1,
        ttw: 1,
        priority: 0,
    }
}

/// Returns rules under which the limit on panics is never reached.
fn often() -> Rules {
    let mut rules = Rules::default();
    rules.supervisor.rebuilds.restarts_max = 1000;
    rules
}

#[test]
fn a_commit_that_panics_amid_a_checkpoint_spoils_nothing() {
    let files = tempfile::tempdir().unwrap();
    let node = Node::open(Config { rules: often(), ..settings(files.path(), SMALL) }).unwrap();
    let handle = node.handle();
    handle.actors().lock.inject_panics(Box::new(|stage, message| {
        let culprit =
            matches!(message, Some(Message::Request { owner, .. }) if owner.as_bytes() == b"culprit");
        assert!(stage != Stage::Commit || !culprit, "planted");
    }));
    take(&node, 0..LOCKS);
    checkpoint(&node);
    checkpoint(&node);
    let mut chance = Chance::new(6);
    let (mut amid, mut interrupted) = (0, 0);
    let mut panics = 0;
    while amid < AMID {
        assert!(panics < PANICS_MAX, "{amid} of {panics} panics amid a checkpoint");
        // The first lock differs in each round, so that no lock is released twice.
        let first = panics % 20 * 1000 + panics / 20;
        let_go(&node, (0..100).map(|number| first + number * 3));
        let expected = node::entries(&handle);
        let taken = handle.snapshots().taken;
        let result = std::thread::scope(|threads| {
            let asks = threads.spawn(|| node::wait(handle.checkpoint()));
            // Wait a random time, so that panics early and late in the checkpoint are equally likely.
            let scale = chance.below(8);
            let mut looks = chance.below(1 << scale);
            until("it has got this far, or is over", || {
                let now = handle.snapshots();
                looks = looks.saturating_sub(u64::from(now.running));
                (looks == 0 && now.running || now.taken > taken).then_some(())
            });
            amid += usize::from(handle.snapshots().running);
            let answers = node::wait(handle.locks().batch(vec![Item::Message(culprit())])).unwrap();
            assert!(matches!(answers.as_slice(), [Err(_)]), "{answers:?}");
            asks.join().unwrap()
        });
        match result {
            Ok(_) => {}
            Err(CheckpointError::Interrupted) => interrupted += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(node::entries(&handle) == expected, "panic {panics}: the rest is unchanged");
        let status = node::wait(handle.status()).unwrap();
        assert_eq!(status.halted, None);
        let locks = status.actors.iter().find(|it| it.status.name == "lock");
        let rebuilds = locks.map(|it| it.panics.rebuilds);
        assert_eq!(rebuilds, Some(panics as u64 + 1));
        if panics % 3 == 0 {
            checkpoint(&node);
            assert_eq!(sealed(files.path()), [true; 2], "panic {panics}");
        }
        panics += 1;
    }
    println!("{amid} of {panics} panics amid a checkpoint, {interrupted} of which were given up");
    checkpoint(&node);
    assert_eq!(sealed(files.path()), [true; 2]);
    let expected = timeless(node::entries(&handle));
    node.stop().unwrap();
    let (locks, past) = start(files.path()).unwrap();
    assert_eq!(past.mended, Vec::<String>::new());
    assert!(timeless(locks.view().entries) == expected);
}
