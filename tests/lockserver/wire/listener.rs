//! How connections are accepted and end: refusals, unknown and incomplete commands, idle connections, statistics.

use crate::lockserver::{self, Client, STATS};
use crate::patience::until;
use crate::served;
use sexton::config::{LockserverConfig, LongWidth};
use sexton::{Config, Node};
use sexton_wire::lockserver::{Listener, Stats};
use std::net::SocketAddr;
use std::time::Duration;

fn open(listener: LockserverConfig) -> (Node, SocketAddr) {
    served::open(Config { lockserver: Some(listener), ..Config::in_memory() })
}

fn stats(node: &Node) -> Stats {
    let listener = node.listener::<Listener>().expect("the listener is open");
    listener.stats(0, 0)
}

/// Asserts that a new connection receives the single byte of a refusal and is then closed.
fn refused(address: SocketAddr) {
    let mut client = Client::dial(address).expect("it listens");
    assert_eq!(client.receive_all().expect("a clean end"), [0]);
}

#[test]
fn a_host_that_is_not_listed_is_refused_and_counted() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let hosts = files.path().join("hosts");
    std::fs::write(&hosts, "10.0.0.0/8 # not this machine\n").expect("a writable file");
    let (node, address) = open(LockserverConfig {
        hosts: Some(hosts.clone()),
        connections_max: 1,
        ..served::listener()
    });
    refused(address);
    refused(address);
    let counted = stats(&node);
    assert_eq!((counted.rejected_hosts, counted.rejected_busy), (2, 0));
    assert_eq!((counted.accepted, counted.active), (0, 0));

    std::fs::write(&hosts, "127.0.0.0/8\n").expect("a writable file");
    let listener = node.listener::<Listener>().expect("the listener is open");
    assert_eq!(listener.reload_hosts().expect("the list reads"), Some(true), "it changed");
    let mut client = Client::connect(address).expect("it is listed now");

    std::fs::write(&hosts, "10.0.0.0/8\n").expect("a writable file");
    assert_eq!(listener.reload_hosts().expect("the list reads"), Some(true), "it changed");
    let rest = client.receive_all().expect("a clean end");
    assert!(rest.is_empty(), "its connection is closed: {rest:?}");
}

#[test]
fn a_refused_client_that_has_begun_to_talk_still_gets_its_byte() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let hosts = files.path().join("hosts");
    std::fs::write(&hosts, "# nobody\n").expect("a writable file");
    let (_node, address) = open(LockserverConfig { hosts: Some(hosts), ..served::listener() });
    for _ in 0..50 {
        let mut client = Client::dial(address).expect("it listens");
        // This fails if the server has already closed the connection.
        drop(client.send(&lockserver::request("k", "i", "o", (60, 60, 0))));
        assert_eq!(client.receive_all().expect("a clean end"), [0]);
    }
}

#[test]
fn one_connection_too_many_is_refused_and_counted_apart() {
    let (node, address) = open(LockserverConfig { connections_max: 2, ..served::listener() });
    let first = Client::connect(address).expect("connected");
    let mut second = Client::connect(address).expect("connected");
    refused(address);
    refused(address);
    refused(address);
    let counted = stats(&node);
    assert_eq!((counted.rejected_hosts, counted.rejected_busy), (0, 3));
    assert_eq!((counted.accepted, counted.active), (2, 2));
    assert_eq!(second.owner("k", "i").expect("an answer"), b"");
    drop(first);
    until("a connection is free again", || (stats(&node).active == 1).then_some(()));
    let mut third = Client::connect(address).expect("a connection is free again");
    assert_eq!(third.owner("k", "i").expect("an answer"), b"");
}

#[test]
fn an_unknown_command_ends_the_connection_without_a_byte() {
    let (_node, address) = open(served::listener());
    for code in (0..=255).filter(|code| !(1..=8).contains(code)) {
        let mut client = Client::connect(address).expect("connected");
        client.send(&[code]).expect("connected");
        assert_eq!(client.receive_all().expect("a clean end"), [0_u8; 0], "{code:02x}");
    }
}

#[test]
fn what_came_before_an_unknown_command_is_answered() {
    let (_node, address) = open(served::listener());
    for (code, index) in [(9, "nine"), (0, "zero")] {
        let mut client = Client::connect(address).expect("connected");
        let mut bytes = lockserver::request("k", index, "alice", (60, 60, 0));
        bytes.extend(lockserver::find_owner("k", index));
        bytes.push(code);
        bytes.extend(lockserver::release("k", index, "alice"));
        client.send(&bytes).expect("connected");
        let found = client.receive_all().expect("a clean end");
        assert_eq!(found, *b"\x00\x01\x05alice");
        let mut another = Client::connect(address).expect("connected");
        let owner = another.owner("k", index).expect("an answer");
        assert_eq!(owner, b"alice", "nothing after the unknown command was done");
    }
}

#[test]
fn half_a_command_changes_nothing() {
    let (_node, address) = open(served::listener());
    let whole = lockserver::request("k", "i", "alice", (60, 60, 0));
    for len in 1..whole.len() {
        let mut client = Client::connect(address).expect("connected");
        client.send(&whole[..len]).expect("connected");
        client.end().expect("connected");
        assert_eq!(client.receive_all().expect("a clean end"), [0_u8; 0], "{len} bytes");
    }
    let mut client = Client::connect(address).expect("connected");
    assert_eq!(client.owner("k", "i").expect("an answer"), b"");
}

#[test]
fn silence_ends_a_connection_where_it_is_bounded() {
    let (node, address) =
        open(LockserverConfig { idle: Some(Duration::from_millis(100)), ..served::listener() });
    let mut client = Client::connect(address).expect("connected");
    assert_eq!(client.receive_all().expect("a clean end"), [0_u8; 0]);
    drop(client);
    until("its connection is free", || (stats(&node).active == 0).then_some(()));
    // An incomplete command does not keep a connection open either.
    let mut client = Client::connect(address).expect("connected");
    client.send(&[2, 4, b'a']).expect("connected");
    assert_eq!(client.receive_all().expect("a clean end"), [0_u8; 0]);
}

#[test]
fn statistics_count_themselves_and_come_in_either_width() {
    for (long, width) in [(LongWidth::Four, 4), (LongWidth::Eight, 8)] {
        let (_node, address) = open(LockserverConfig { long, ..served::listener() });
        let mut client = Client::connect(address).expect("connected");
        let mut asked = Vec::new();
        for owner in ["a", "b", "c"] {
            asked.extend(lockserver::request("k", "i", owner, (60, 60, 0)));
        }
        asked.extend(lockserver::request("k", "j", "", (60, 60, 0)));
        asked.extend(lockserver::find_owner("k", "i"));
        asked.extend(
            [lockserver::find_contender("k", "i", "z"), lockserver::find_contender("k", "i", "b")]
                .concat(),
        );
        asked.extend(lockserver::renew("k", "i", "nobody"));
        asked.extend(lockserver::release("k", "i", "c"));
        asked.extend(lockserver::release_all("nobody"));
        asked.extend(
            [lockserver::list("none"), lockserver::list("none"), lockserver::list("none")].concat(),
        );
        asked.extend(STATS);
        client.send(&asked).expect("connected");
        // Four places, an owner, two places, a renewal, two counts, three empty lists.
        client.receive(8 + 2 + 4 + 1 + 4 + 6).expect("the answers");
        let mut another = Client::connect(address).expect("connected");
        let size = 36 + 5 * width + 2;
        client.receive(size).expect("the first statistics");
        let found = another.ask(STATS, size).expect("the second statistics");
        let (ints, rest) = found.split_at(36);
        let (longs, active) = rest.split_at(5 * width);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let ints: Vec<u64> = ints.chunks(4).skip(1).map(number).collect();
        let longs: Vec<u64> = longs.chunks(width).map(number).collect();
        assert_eq!(ints, [4, 1, 2, 1, 1, 1, 3, 2], "commands, done or not");
        assert_eq!(longs, [2, 0, 0, 1, 1], "connections, owners, contenders");
        assert_eq!(number(active), 2);
        another.end().expect("connected");
        assert_eq!(another.receive_all().expect("a clean end"), [0_u8; 0]);
    }
}
