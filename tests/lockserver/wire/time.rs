//! Vectors that depend on time, in real time over TCP. The test waits for events and never asserts how soon they happen; the
//! elapsed node time is read from the journal afterwards, where it is exact.

use crate::lockserver::{self, Client};
use crate::node;
use crate::patience::until;
use crate::wire::{Server, servers};
use sexton::actors::lock::{LockMachine, Message, Outcome};
use sexton::clock::Timestamp;
use sexton::persist::disk::RealDisk;
use sexton::persist::format::Kind;
use sexton::persist::journal::Reader;
use sexton::spine::recovery::Replica;
use std::path::Path;

/// Returns the owner of the lock with this key and an empty index, and bob's position.
fn look(client: &mut Client, key: &str) -> (String, u16) {
    client.send(&lockserver::find_contender(key, "", "bob")).expect("connected");
    let place = client.receive_number().expect("an answer");
    let owner = client.owner(key, "").expect("an answer");
    (String::from_utf8(owner).expect("owners here are text"), place)
}

/// Polls until the lock is in the last state of `story`, and asserts that every state observed until then is in `story`, in order.
fn follow(client: &mut Client, key: &str, story: &[(&str, u16)]) {
    let mut chapter = 0;
    until("the lock is in its final state", || {
        // The lock may change between the answers about position and owner, so a state counts only if it is read twice in a row.
        let (owner, place) = look(client, key);
        let (again, after) = look(client, key);
        if (&owner, place) != (&again, after) {
            return None;
        }
        let found = story.iter().skip(chapter).position(|(who, at)| *who == owner && *at == place);
        let ahead = found.unwrap_or_else(|| {
            panic!("{owner:?} owns, bob at {place}: not after step {chapter} of {story:?}")
        });
        chapter += ahead;
        (chapter + 1 == story.len()).then_some(())
    });
}

/// Returns the journal's entries about a key as text, each with the milliseconds since the first of them.
fn spans(files: &Path, key: &str) -> Vec<(u64, String)> {
    let disk = RealDisk::new(files);
    let mut reader = Reader::open(&disk).expect("the journal opens");
    let mut told = Vec::new();
    let mut slots = Vec::new();
    let mut began = None;
    while let Some(record) = reader.next().expect("the journal reads") {
        if record.kind != Kind::Entry {
            continue;
        }
        let entry = Replica::<LockMachine>::decode(&record).expect("entries decode");
        let line = match (&entry.message, &entry.outcome) {
            (
                Message::Request { key: k, owner, .. },
                Outcome::Granted { slot } | Outcome::Queued { slot, .. },
            ) if k.as_bytes() == key.as_bytes() => {
                slots.push(*slot);
                format!("{} asks", owner.to_text())
            }
            (Message::Renew { key: k, owner, .. }, Outcome::Renewed { .. })
                if k.as_bytes() == key.as_bytes() =>
            {
                format!("{} renews", owner.to_text())
            }
            (Message::Expire { slot }, Outcome::Ended { gone }) if slots.contains(slot) => {
                let heirs = gone.iter().filter(|gone| gone.heir.is_some()).count();
                format!("{} end, {heirs} inherit", gone.len())
            }
            _ => continue,
        };
        let Timestamp(at) = record.at;
        told.push((at - *began.get_or_insert(at), line));
    }
    told
}

/// Asserts that the journal's entries about a key are these lines, and that certain pairs of them are at least so far apart: the two
/// indexes, and the time in milliseconds. Does nothing for a server without files.
fn told(server: Server, key: &str, lines: &[&str], at_least: &[(usize, usize, u64)]) {
    let Server { node, files, .. } = server;
    node.stop().expect("a clean stop");
    let Some(files) = files else { return };
    let told = spans(files.path(), key);
    let found: Vec<&str> = told.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(found, lines);
    for (from, to, ms) in at_least {
        let place = |line: &usize| told.get(*line).expect("the line is among those told");
        let (from, to) = (place(from), place(to));
        assert!(to.0 - from.0 >= *ms, "less than {ms} ms from {from:?} to {to:?}");
    }
}

#[test]
fn a_contender_goes_when_its_wait_ends_and_the_owner_when_its_time_is_over() {
    for server in servers() {
        let mut client = server.connect();
        let alice = lockserver::request("k", "", "alice", (2, 60, 0));
        let bob = lockserver::request("k", "", "bob", (60, 1, 0));
        client.send(&[alice, bob].concat()).expect("connected");
        assert_eq!(client.receive(4).expect("the answers"), [0, 1, 0, 2]);
        follow(&mut client, "k", &[("alice", 2), ("alice", 0), ("", 0)]);
        let lines = ["alice asks", "bob asks", "1 end, 0 inherit", "1 end, 0 inherit"];
        told(server, "k", &lines, &[(1, 2, 1000), (0, 3, 2000)]);
    }
}

#[test]
fn a_contender_that_waits_long_enough_inherits_and_its_time_begins_then() {
    for server in servers() {
        let mut client = server.connect();
        let alice = lockserver::request("k", "", "alice", (2, 60, 0));
        let bob = lockserver::request("k", "", "bob", (60, 5, 0));
        client.send(&[alice, bob].concat()).expect("connected");
        assert_eq!(client.receive(4).expect("the answers"), [0, 1, 0, 2]);
        follow(&mut client, "k", &[("alice", 2), ("bob", 1)]);
        let entries = node::entries(&server.node.handle());
        let [entry] = entries.as_slice() else { panic!("only bob is left, not {entries:?}") };
        let until = entry.deadline;
        let lines = ["alice asks", "bob asks", "1 end, 1 inherit"];
        let files = server.files.as_ref().map(|files| files.path().to_owned());
        if let Some(files) = files {
            let granted = promotion(&files);
            assert_eq!(until, Some(granted.plus_seconds(60)), "sixty seconds from the promotion");
        }
        told(server, "k", &lines, &[(0, 2, 2000)]);
    }
}

#[test]
fn a_renewal_begins_the_time_again() {
    for server in servers() {
        let mut client = server.connect();
        let witness = lockserver::request("w", "", "witness", (1, 60, 0));
        let alice = lockserver::request("k", "", "alice", (2, 60, 0));
        client.send(&[witness, alice].concat()).expect("connected");
        assert_eq!(client.receive(4).expect("the answers"), [0, 1, 0, 1]);
        follow(&mut client, "w", &[("witness", 0), ("", 0)]);
        // If the machine stalls for a second here, alice's lock has already expired, and nothing is asserted about the renewal.
        let renewed = client.renew("k", "", "alice").expect("an answer");
        follow(&mut client, "k", &[("alice", 0), ("", 0)]);
        if renewed {
            let lines = ["alice asks", "alice renews", "1 end, 0 inherit"];
            told(server, "k", &lines, &[(1, 2, 2000), (0, 2, 3000)]);
        }
    }
}

#[test]
fn no_time_at_all_is_an_attempt() {
    for server in servers() {
        let mut client = server.connect();
        let mut asked = lockserver::request("k", "", "alice", (60, 60, 0));
        asked.extend(lockserver::request("k", "", "bob", (60, 0, 0)));
        asked.extend(lockserver::find_contender("k", "", "bob"));
        asked.extend(lockserver::request("z", "", "alice", (0, 60, 0)));
        asked.extend(lockserver::find_owner("z", ""));
        client.send(&asked).expect("connected");
        let found = client.receive(9).expect("the answers");
        assert_eq!(found, [0, 1, 0, 2, 0, 0, 0, 1, 0], "gone at the next query");
    }
}

/// Returns the time of the journal's last entry, which is the promotion of the contender.
fn promotion(files: &Path) -> Timestamp {
    let disk = RealDisk::new(files);
    let mut reader = Reader::open(&disk).expect("the journal opens");
    let mut last = Timestamp(0);
    while let Some(record) = reader.next().expect("the journal reads") {
        if record.kind == Kind::Entry {
            last = record.at;
        }
    }
    last
}
