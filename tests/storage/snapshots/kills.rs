//! Kills the real program, with a hundred thousand locks, at random moments of its checkpoints. The other snapshot and
//! the journal must give the same state as a replay of the whole journal, and the directory must not grow.

use crate::chance::Chance;
use crate::daemon::{Daemon, sexton};
use crate::kept::Kept;
use crate::lockserver::{Client, release, request};
use crate::past::{self, Past};
use crate::patience::until;
use crate::snapshots::directory::{LARGE, open, take};
use crate::space::Space;
use sexton::actors::lock::LockMachine;
use sexton::spine::machine::{Observable as _, Paged as _};
use std::path::Path;
use std::process::Stdio;

const LOCKS: usize = 100_000;
const KILLS: usize = 20;
/// The number of locks that are acquired between two kills. Half of them are released again.
const CHANGES: u64 = 2000;
/// The maximum size of both snapshots together, in bytes. Each is a few times as large as its content.
const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;

/// Acquires locks with many different keys, and releases half of them. Returns the number of locks that stay held.
fn change(daemon: &Daemon, chance: &mut Chance, kill: usize) -> u64 {
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    let mut asked = Vec::new();
    let mut expected = Vec::new();
    for number in 0..CHANGES {
        let key = format!("key-{}", chance.below(20_000));
        let index = format!("{kill}-{number}");
        asked.extend(request(&key, &index, "bob", (60_000, 0, 0)));
        expected.extend([0, 1]);
        if number % 2 == 0 {
            asked.extend(release(&key, &index, "bob"));
            expected.extend([0, 1]);
        }
    }
    client.send(&asked).expect("connected");
    let found = client.receive(expected.len()).expect("answers");
    assert_eq!(found, expected);
    CHANGES / 2
}

/// Returns the status of the running program.
fn status(data: &Path) -> String {
    let asked = sexton().args(["status", "--json", "--data"]).arg(data).output();
    let answer = asked.expect("the program runs").stdout;
    String::from_utf8(answer).expect("UTF-8")
}

/// Reads the directory while no process uses it, and checks its state. Returns whether a snapshot was being written.
fn reckon(data: &Path, past: &mut Past<LockMachine>, kept: &Kept) -> bool {
    past.read_on(kept.keep());
    let (locks, found) = past::recovered::<LockMachine>(data);
    assert_eq!(locks.digest(), past.machine().digest(), "{found:?}");
    assert!(locks.view().entries == past.machine().view().entries, "{found:?}");
    assert!(found.snapshot.is_some(), "one is always complete: {found:?}");
    let amid = |wrong: &String| wrong.contains("was being written");
    assert!(found.mended.iter().all(amid), "{:?}", found.mended);
    !found.mended.is_empty()
}

#[test]
fn killed_amid_a_checkpoint_the_other_snapshot_and_the_journal_have_it_all() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let node = open(&data, LARGE);
    take(&node, 0..LOCKS);
    node.stop().expect("a clean stop");
    let kept = Kept::beside(&data);
    let mut past = past::read::<LockMachine>(kept.keep());
    let mut chance = Chance::new(7);
    let (mut held, mut amid, mut most) = (LOCKS as u64, 0, 0);
    let text = data.to_str().expect("UTF-8");
    for kill in 0.. {
        // The moment of a kill depends on the machine. So kills are repeated until enough were in a checkpoint, and
        // enough checkpoints succeeded.
        if kill >= KILLS && amid >= KILLS / 4 && past.checkpoints >= 3 {
            println!(
                "{kill} kills, {amid} amid a checkpoint, {} checkpoints taken, at most {} KiB of snapshots",
                past.checkpoints,
                most >> 10,
            );
            break;
        }
        assert!(kill < KILLS * 10, "{amid} of {kill} kills amid a checkpoint");
        let daemon = Daemon::serve(&["--data", text, "--journal-kept-max", "0"]);
        past.read_on(kept.keep());
        let said = status(&data);
        let digest = format!("\"digest\":\"{}\"", past.machine().digest());
        assert!(said.contains(&digest), "{digest}: {said}");
        let owners = format!("\"lock_owners\":{held},");
        assert!(said.contains(&owners), "{owners}: {said}");
        let space = Space::of(&data);
        space.check(SNAPSHOT_BYTES_MAX);
        most = most.max(space.snapshot_bytes());
        held += change(&daemon, &mut chance, kill);
        let mut asks = sexton()
            .args(["checkpoint", "--data", text])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        until("a snapshot is being written", || {
            let whole = ["a.seal", "b.seal"].map(|seal| data.join("snapshots").join(seal).exists());
            (whole != [true; 2]).then_some(())
        });
        if kill % 3 == 0 {
            // Let some checkpoints end, since otherwise no segment of the journal could be removed.
            asks.wait().expect("our child");
        } else {
            // Wait up to a quarter of a second, which is more than most checkpoints take. Kills early and late in a
            // checkpoint are equally likely.
            let scale = chance.below(9);
            let mut looks = chance.below(1 << scale);
            until("a moment passes", || {
                looks = looks.saturating_sub(1);
                (looks == 0).then_some(())
            });
        }
        daemon.kill();
        asks.wait().expect("our child");
        amid += usize::from(reckon(&data, &mut past, &kept));
    }
}
