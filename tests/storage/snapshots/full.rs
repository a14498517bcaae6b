//! A full disk while a checkpoint is taken: no client is refused because of it, the other snapshot and the journal stay
//! intact, nothing incomplete is left, and the checkpoint is taken once there is space.
//!
//! The full disk is simulated by a limit on the size of files, which every user can set on their own process.

use crate::daemon::{Daemon, sexton, text};
use crate::lockserver::{Client, release, request};
use crate::patience::until;
use crate::snapshots::directory::{LARGE, bytes, open, sealed, start, take, timeless};
use sexton::spine::machine::Observable as _;
use std::path::Path;
use std::process::Output;

/// The number of locks with which a snapshot is larger than the largest segment of the journal.
const LOCKS: usize = 60_000;

fn serve(data: &Path) -> Daemon {
    Daemon::serve(&["--data", text(data)])
}

fn ask_for_a_checkpoint(data: &Path) -> Output {
    let mut ask = sexton();
    ask.args(["checkpoint", "--data"]).arg(data);
    ask.output().expect("the program runs")
}

fn works(client: &mut Client) {
    for number in 0..50 {
        let index = number.to_string();
        let asked = [
            request("while-full", &index, "bob", (60_000, 0, 0)),
            release("while-full", &index, "bob"),
        ];
        client.send(&asked.concat()).expect("connected");
        assert_eq!(client.receive(4).expect("answers"), [0, 1, 0, 1]);
    }
}

#[test]
fn a_full_disk_fails_the_checkpoint_and_nothing_else() {
    let files = tempfile::tempdir().unwrap();
    let data = files.path().join("data");
    let node = open(&data, LARGE);
    take(&node, 0..LOCKS);
    node.stop().unwrap();
    let (whole, past) = start(&data).unwrap();
    let whole = timeless(whole.view().entries);
    let (kept, _) = past.snapshot.expect("the stop left one");
    assert_eq!(past.sealed[kept.other()], None, "the other is not sealed");
    let snapshot = bytes(&data);

    let daemon = serve(&data);
    let mut client = Client::connect(daemon.lockserver()).unwrap();
    // No segment of the journal is larger than the limit, so only snapshots fail.
    daemon.limit_files(Some(LARGE.max_bytes));
    for _ in 0..3 {
        let ended = ask_for_a_checkpoint(&data);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(3), "{said}");
        works(&mut client);
        let now = bytes(&data);
        let of_slot = |slot: &str| {
            let slot = format!("snapshots/{slot}");
            now.iter().filter(move |(name, _)| name.starts_with(&slot))
        };
        for (name, bytes) in of_slot(&kept.to_string()) {
            assert!(snapshot[name] == *bytes, "{name} was changed");
        }
        assert_eq!(of_slot(&kept.other().to_string()).count(), 0, "nothing incomplete is left");
    }
    assert!(daemon.log().contains("no snapshot was taken; the journal is kept"));

    daemon.limit_files(None);
    let ended = ask_for_a_checkpoint(&data);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(sealed(&data), [true; 2]);
    works(&mut client);
    daemon.kill();
    let (locks, past) = start(&data).unwrap();
    assert_eq!(past.mended, Vec::<String>::new());
    assert!(timeless(locks.view().entries) == whole);
}

/// A coordinator that was killed while the disk was full recovers the same state.
#[test]
fn a_start_behind_a_full_disk_is_whole() {
    let files = tempfile::tempdir().unwrap();
    let data = files.path().join("data");
    let node = open(&data, LARGE);
    take(&node, 0..LOCKS);
    node.stop().unwrap();
    let (whole, _) = start(&data).unwrap();
    let whole = timeless(whole.view().entries);
    let daemon = serve(&data);
    daemon.limit_files(Some(LARGE.max_bytes));
    assert_eq!(ask_for_a_checkpoint(&data).status.code(), Some(3));
    daemon.kill();
    let daemon = serve(&data);
    until("a requested checkpoint is taken", || {
        ask_for_a_checkpoint(&data).status.success().then_some(())
    });
    daemon.kill();
    let (locks, past) = start(&data).unwrap();
    assert_eq!(past.mended, Vec::<String>::new());
    assert_eq!(sealed(&data), [true; 2]);
    assert!(timeless(locks.view().entries) == whole);
}
