//! Hostile clients, against the real program while an honest client is served: random bytes, incomplete commands, ten
//! thousand idle connections, clients that never read their answers. Memory stays bounded.

use crate::chance::Chance;
use crate::daemon::Daemon;
use crate::lockserver::{self, Client, STATS, request};
use crate::patience::until;
use crate::resources::{connections, resident};
use rustix::net::sockopt::set_socket_linger;
use std::io::ErrorKind;
use std::time::Duration;

/// An honest client, which must get correct answers whatever others do.
struct Honest {
    client: Client,
    rounds: u32,
}

impl Honest {
    fn connect(daemon: &Daemon) -> Self {
        Self { client: Client::connect(daemon.lockserver()).expect("connected"), rounds: 0 }
    }

    fn is_served(&mut self) {
        self.rounds += 1;
        let index = self.rounds.to_string();
        let number = self.client.number(&request("honest", &index, "alice", (600, 60, 0)));
        assert_eq!(number.expect("an answer"), 1);
        assert_eq!(self.client.owner("honest", &index).expect("an answer"), b"alice");
        let gone = self.client.number(&lockserver::release("honest", &index, "alice"));
        assert_eq!(gone.expect("an answer"), 1);
    }

    /// Returns the number of open connections, from the statistics.
    fn connections(&mut self) -> u16 {
        let found = self.client.ask(STATS, 58).expect("an answer");
        found.last_chunk().map_or(0, |last| u16::from_be_bytes(*last))
    }
}

/// Asserts that the server is still running, and that nothing inside it panicked.
fn is_well(daemon: &mut Daemon) {
    assert!(daemon.is_running(), "{}", daemon.log());
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

/// Reads everything until the server closes the connection, whether it does so cleanly or with a reset.
fn drain(client: &mut Client) {
    if let Err(error) = client.receive_all() {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it ends");
    }
}

#[test]
fn bytes_at_random_do_no_harm() {
    let mut daemon = Daemon::serve(&["--memory"]);
    let mut honest = Honest::connect(&daemon);
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let len = 1 + chance.below(4000);
        // Half of the streams have only small bytes, which look like commands, so that some of them are decoded.
        let likely = chance.below(2) == 0;
        let bytes: Vec<u8> = (0..len)
            .map(|_| chance.below(if likely { 10 } else { 256 }))
            .map(|byte| u8::try_from(byte).expect("it is below 256"))
            .collect();
        let mut client = Client::connect(daemon.lockserver()).expect("connected");
        // These fail if the server has already closed the connection.
        if client.send(&bytes).is_ok() && client.end().is_ok() {
            drain(&mut client);
        }
        honest.is_served();
    }
    is_well(&mut daemon);
}

#[test]
fn refusals_of_a_crowd_are_a_few_lines_of_the_log() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let hosts = files.path().join("hosts");
    std::fs::write(&hosts, "10.0.0.0/8\n").expect("a writable file");
    let hosts = hosts.to_str().expect("UTF-8");
    let mut daemon = Daemon::serve(&["--memory", "--hosts", hosts]);
    for _ in 0..500 {
        assert!(Client::connect(daemon.lockserver()).is_err(), "let in");
    }
    daemon.until_logged("so_far=256");
    let log = daemon.log();
    assert_eq!(log.matches("not in the hosts list").count(), 9, "{log}");
    is_well(&mut daemon);
}

#[test]
fn halves_of_commands_hold_nobody_up() {
    let mut daemon = Daemon::serve(&["--memory"]);
    let mut honest = Honest::connect(&daemon);
    let whole = request("key", "index", "mallory", (600, 60, 0));
    let mut halves: Vec<Client> = (0..500)
        .map(|number| {
            let mut client = Client::connect(daemon.lockserver()).expect("connected");
            let half = &whole[..=number % (whole.len() - 1)];
            client.send(half).expect("connected");
            client
        })
        .collect();
    honest.is_served();
    assert_eq!(honest.client.owner("key", "index").expect("an answer"), b"");
    for client in &mut halves {
        client.end().expect("connected");
        assert_eq!(client.receive_all().expect("a clean end"), b"");
    }
    drop(halves);
    until("their connections are free", || (honest.connections() == 1).then_some(()));
    is_well(&mut daemon);
}

#[test]
fn ten_thousand_that_say_nothing_cost_little() {
    let count = connections(10_000);
    let mut daemon = Daemon::serve(&["--memory", "--lockserver-connections", "12000"]);
    let mut honest = Honest::connect(&daemon);
    let before = resident(daemon.pid().as_raw_nonzero());
    let mut idle = Vec::with_capacity(count);
    for number in 0..count {
        idle.push(Client::connect(daemon.lockserver()).expect("connected"));
        if number % 500 == 0 {
            honest.is_served();
        }
    }
    assert_eq!(usize::from(honest.connections()), count + 1);
    honest.is_served();
    let grown = resident(daemon.pid().as_raw_nonzero()).saturating_sub(before);
    println!("{count} idle connections: {grown} KiB more");
    assert!(grown < 16 * count as u64, "{grown} KiB for {count} idle connections");
    // All of them are still open.
    for client in idle.iter_mut().step_by(997) {
        assert_eq!(client.owner("k", "i").expect("an answer"), b"");
    }
    // Without a reset, the kernel would keep each connection for a minute, in a table that other tests read.
    let reset = |client: &Client| set_socket_linger(client.stream(), Some(Duration::ZERO));
    assert!(idle.iter().all(|client| reset(client).is_ok()));
    drop(idle);
    until("their connections are free", || (honest.connections() == 1).then_some(()));
    is_well(&mut daemon);
}

/// Sends the same bytes again and again until the server stops reading, and returns how many bytes were accepted.
fn flood(client: &mut Client, bytes: &[u8]) -> usize {
    let patience = Some(Duration::from_millis(500));
    client.stream().set_write_timeout(patience).expect("a nonzero timeout");
    let mut taken = 0;
    loop {
        use std::io::Write as _;
        match client.stream().write(bytes) {
            Ok(count) => taken += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return taken;
            }
            Err(error) => panic!("the server does not close the connection: {error}"),
        }
    }
}

#[test]
fn who_asks_and_never_reads_is_not_read_from() {
    let mut daemon = Daemon::serve(&["--memory"]);
    let mut honest = Honest::connect(&daemon);
    // A short request with a long answer.
    let long = "o".repeat(255);
    let number = honest.client.number(&request("k", "", &long, (6000, 60, 0)));
    assert_eq!(number.expect("an answer"), 1);
    let before = resident(daemon.pid().as_raw_nonzero());
    let questions = lockserver::find_owner("k", "").repeat(15_000);
    let statistics = STATS.repeat(60_000);
    let floods: Vec<(Client, usize)> = (0..16)
        .map(|number| {
            let mut client = Client::connect(daemon.lockserver()).expect("connected");
            let taken = flood(&mut client, if number % 2 == 0 { &questions } else { &statistics });
            honest.is_served();
            (client, taken)
        })
        .collect();
    let grown = resident(daemon.pid().as_raw_nonzero()).saturating_sub(before);
    let most = floods.iter().map(|(_, taken)| taken).max().expect("there are some") / 1024;
    println!(
        "16 that never read: at most {most} KiB taken from one, {grown} KiB more in the server"
    );
    // The kernel's own buffers hold megabytes; the server must not.
    assert!(grown < 64 * 1024, "{grown} KiB more");
    honest.is_served();
    drop(floods);
    until("their connections are free", || (honest.connections() == 1).then_some(()));
    is_well(&mut daemon);
}

#[test]
fn who_lists_much_and_never_reads_holds_nobody_up() {
    const ENTRIES: usize = 65_000;
    let mut daemon = Daemon::serve(&["--memory"]);
    let mut honest = Honest::connect(&daemon);
    let owner = "o".repeat(200);
    let numbers: Vec<usize> = (0..ENTRIES).collect();
    for burst in numbers.chunks(500) {
        let asked =
            burst.iter().map(|number| request("big", &number.to_string(), &owner, (6000, 60, 0)));
        honest.client.send(&asked.collect::<Vec<_>>().concat()).expect("connected");
        let found = honest.client.receive(burst.len() * 2).expect("answers");
        assert_eq!(found, [0, 1].repeat(burst.len()));
    }
    let before = resident(daemon.pid().as_raw_nonzero());
    // Each listing is 14 MB, more than the kernel buffers for a connection.
    let never_read: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = Client::connect(daemon.lockserver()).expect("connected");
            client.send(&lockserver::list("big").repeat(20)).expect("connected");
            honest.is_served();
            client
        })
        .collect();
    let mut others: Vec<Client> =
        (0..4).map(|_| Client::connect(daemon.lockserver()).expect("connected")).collect();
    for client in &mut others {
        let listed = client.list("big").expect("the whole list");
        assert_eq!(listed.len(), ENTRIES);
        assert!(listed.iter().all(|entry| entry.owns && entry.owner == owner.as_bytes()));
        honest.is_served();
    }
    let grown = resident(daemon.pid().as_raw_nonzero()).saturating_sub(before);
    println!("4 listings of {ENTRIES} unread entries: {grown} KiB more");
    assert!(grown < 400 * 1024, "{grown} KiB more");
    drop(never_read);
    drop(others);
    until("their connections are free", || (honest.connections() == 1).then_some(()));
    is_well(&mut daemon);
}
