//! LockServer's protocol over a real socket: every byte vector, however its bytes are split, on a node with files and on one without.

mod listener;
mod time;
mod vector;

use crate::lockserver::{self, Client};
use crate::node;
use crate::patience::until;
use crate::served;
use sexton::node::Drain;
use sexton::{Config, Node};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use tempfile::TempDir;
use vector::{Vector, answers, commands, section};

/// A node under test, and its data directory if it has one.
struct Server {
    node: Node,
    address: SocketAddr,
    files: Option<TempDir>,
}

impl Server {
    fn open(files: Option<TempDir>) -> Self {
        let config = match &files {
            Some(files) => Config::at(files.path()),
            None => Config::in_memory(),
        };
        let (node, address) =
            served::open(Config { lockserver: Some(served::listener()), ..config });
        Self { node, address, files }
    }

    fn connect(&self) -> Client {
        Client::connect(self.address).expect("loopback is accepted")
    }
}

/// Starts one server without files, and one with files.
fn servers() -> [Server; 2] {
    let files = tempfile::tempdir().expect("a temporary directory");
    [Server::open(None), Server::open(Some(files))]
}

fn one_by_one(client: &mut Client, vectors: &[Vector]) {
    for Vector { name, command, answer } in vectors {
        let found = client.ask(command, answer.len()).expect("an answer");
        assert_eq!(&found, answer, "{name}");
    }
}

/// Closes the client's end of the connection, and asserts that the server closes it without sending more.
fn ends_silently(mut client: Client) {
    client.end().expect("connected");
    let rest = client.receive_all().expect("a clean end");
    assert!(rest.is_empty(), "unexpected bytes: {rest:02x?}");
}

#[test]
fn every_vector_holds() {
    for part in ["ordinary", "names", "binary", "equals"] {
        for server in servers() {
            let mut client = server.connect();
            one_by_one(&mut client, &section(part));
            ends_silently(client);
        }
    }
}

#[test]
fn a_newcomer_is_turned_away_while_draining_and_the_rest_goes_on() {
    for server in servers() {
        let mut client = server.connect();
        let held = lockserver::request("other", "1", "alice", (60, 30, 0));
        assert_eq!(client.number(&held).expect("an answer"), 1);
        let handle = server.node.handle();
        let drained = std::thread::scope(|threads| {
            let drain = threads.spawn(|| node::wait(handle.drain(Drain::Locks)));
            until("the drain is in force", || {
                let newcomer = lockserver::request("probe", "", "p", (0, 0, 0));
                (client.number(&newcomer).expect("an answer") == 0).then_some(())
            });
            one_by_one(&mut client, &section("draining"));
            assert_eq!(client.number(&held).expect("an answer"), 1, "a repeated request renews");
            assert!(client.renew("other", "1", "alice").expect("an answer"));
            let release = lockserver::release("other", "1", "alice");
            assert_eq!(client.number(&release).expect("an answer"), 1);
            drain.join().expect("no panic")
        });
        drained.expect("the node runs");
    }
}

#[test]
fn all_in_one_write_gives_the_same_bytes() {
    for part in ["ordinary", "names", "binary", "equals"] {
        let vectors = section(part);
        for server in servers() {
            let mut client = server.connect();
            client.send(&commands(&vectors)).expect("connected");
            let found = client.receive(answers(&vectors).len());
            assert_eq!(found.expect("an answer"), answers(&vectors), "{part}");
            ends_silently(client);
        }
    }
}

#[test]
fn one_byte_at_a_time_gives_the_same_bytes() {
    for server in servers() {
        for part in ["ordinary", "names"] {
            let mut client = server.connect();
            for vector in section(part) {
                for byte in &vector.command {
                    client.send(&[*byte]).expect("connected");
                    until_taken(&client);
                }
                let found = client.receive(vector.answer.len());
                assert_eq!(found.expect("an answer"), vector.answer, "{}", vector.name);
            }
            ends_silently(client);
        }
    }
}

#[test]
fn a_cut_at_any_byte_gives_the_same_bytes() {
    let vectors = section("ordinary");
    let bytes = commands(&vectors);
    for server in servers() {
        for cut in 0..=bytes.len() {
            let (early, late) = bytes.split_at(cut);
            let mut client = server.connect();
            client.send(early).expect("connected");
            until_taken(&client);
            // Complete commands are answered before the rest arrives.
            let mut end = 0;
            let whole = vectors.iter().take_while(|vector| {
                end += vector.command.len();
                end <= cut
            });
            let due: Vec<u8> = whole.flat_map(|vector| vector.answer.clone()).collect();
            let mut found = client.receive(due.len()).expect("complete requests are answered");
            client.send(late).expect("connected");
            let rest = answers(&vectors).len() - due.len();
            found.extend(client.receive(rest).expect("the rest is answered"));
            assert_eq!(found, answers(&vectors), "cut at byte {cut}");
            ends_silently(client);
        }
    }
}

#[test]
fn a_client_that_has_said_all_still_gets_its_answers() {
    for server in servers() {
        let vectors = section("ordinary");
        let mut client = server.connect();
        client.send(&commands(&vectors)).expect("connected");
        client.end().expect("connected");
        let found = client.receive_all().expect("a clean end");
        assert_eq!(found, answers(&vectors));
    }
}

/// Waits until the server has read everything that was sent. The kernel's table of sockets shows how much it has not read yet.
fn until_taken(client: &Client) {
    let port = |address: std::io::Result<SocketAddr>| address.expect("it is connected").port();
    let theirs = port(client.stream().peer_addr());
    let ours = port(client.stream().local_addr());
    let wanted = [format!(":{theirs:04X}"), format!(":{ours:04X}")];
    until("the server reads", || {
        let table = File::open("/proc/net/tcp").expect("the kernel shows its sockets");
        // The table is read only up to the wanted line: the kernel writes each line when it is read, and there may be thousands.
        let mut lines = BufReader::new(table).lines().map_while(Result::ok);
        lines.find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, local, remote, _, queues, ..] = words.as_slice() else {
                return None;
            };
            let found = local.ends_with(&wanted[0]) && remote.ends_with(&wanted[1]);
            (found && queues.ends_with(":00000000")).then_some(())
        })
    });
}
