//! Hostile clients of the real program's beanstalkd listener, while an honest client is served: lines and bodies that are
//! too long, random bytes, ten thousand waiting connections, and clients that never read, never stop, or vanish. Exceeded
//! limits are reported with the protocol's errors, and memory stays bounded.

use crate::beanstalkd::{Client, Server};
use crate::chance::Chance;
use crate::patience::until;
use crate::resources::{connections, resident};
use std::io::{ErrorKind, Write as _};
use std::time::Duration;

/// An honest client with its own tube, which must get right replies whatever other clients do.
struct Honest {
    client: Client,
}

impl Honest {
    fn connect(server: &Server) -> Self {
        let mut client = server.connect();
        assert_eq!(client.ask("use honest"), "USING honest");
        assert_eq!(client.ask("watch honest"), "WATCHING 2");
        assert_eq!(client.ask("ignore default"), "WATCHING 1");
        Self { client }
    }

    fn is_served(&mut self) {
        let inserted = self.client.ask("put 0 0 60 4\r\nwork");
        let id = inserted.strip_prefix("INSERTED ").expect("the job is accepted");
        let reserved = self.client.ask("reserve");
        assert_eq!(reserved, format!("RESERVED {id} 4\r\nwork"));
        assert_eq!(self.client.ask(&format!("delete {id}")), "DELETED");
    }

    fn stat(&mut self, key: &str) -> usize {
        let stats = self.client.ask("stats");
        let line = stats.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.strip_prefix(": "));
        let number = number.and_then(|number| number.parse().ok());
        number.expect("`stats` has a number for this key")
    }

    fn until(&mut self, key: &str, count: usize) {
        until(&format!("{key}: {count}"), || (self.stat(key) == count).then_some(()));
    }
}

/// Sends bytes until the server stops reading. Returns the number of bytes that were sent.
fn flood(client: &Client, bytes: &[u8]) -> usize {
    let patience = Some(Duration::from_millis(500));
    let limited = client.stream().set_write_timeout(patience);
    limited.expect("a nonzero timeout");
    let mut taken = 0;
    while taken < 256 << 20 {
        match client.stream().write(bytes) {
            Ok(count) => taken += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            // A write with a timeout is not resumed after a signal, so it is repeated.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the server does not close the connection: {error}"),
        }
    }
    taken
}

#[test]
fn whoever_sends_much_behind_a_wait_and_goes_waits_no_longer() {
    let server = Server::sexton(&[]);
    let mut honest = Honest::connect(&server);
    let ghost = server.connect();
    let mut words = b"reserve\r\n".to_vec();
    words.extend(b"list-tube-used\r\n".repeat(2000));
    ghost.stream().write_all(&words).expect("connected");
    honest.until("current-waiting", 1);
    drop(ghost);
    honest.until("current-waiting", 0);
    honest.is_served();
}

#[test]
fn too_much_is_told_in_the_protocols_words() {
    let mut server = Server::sexton(&["-z", "100"]);
    let mut honest = Honest::connect(&server);
    let mut client = server.connect();
    let long = "x".repeat(100_000);
    for (said, told) in [
        (format!("use {long}"), "BAD_FORMAT"),
        (long.clone(), "BAD_FORMAT"),
        (format!("put 0 0 60 101\r\n{}", "b".repeat(101)), "JOB_TOO_BIG"),
        (format!("put 0 0 60 100000\r\n{long}"), "JOB_TOO_BIG"),
        (format!("put 0 0 60 100\r\n{}", "\0".repeat(100)), "INSERTED 5"),
        (format!("put 0 0 60 3\r\n{long}\r\nuse a"), "EXPECTED_CRLF"),
    ] {
        assert_eq!(client.ask(&said), told);
        honest.is_served();
    }
    // The bytes after the body up to the next line end are refused, and the command after them is executed.
    assert_eq!(client.reply().expect("a reply"), b"BAD_FORMAT\r\n");
    assert_eq!(client.reply().expect("a reply"), b"USING a\r\n");
    // A line ends with CR and LF. An LF alone does not end it, so there is no reply.
    client.send(b"list-tube-used\nlist-tube-used\n\0");
    honest.is_served();
    assert_eq!(client.reply_so_far(), None);
    assert_eq!(client.ask(""), "BAD_FORMAT");
    assert!(server.is_running());
}

#[test]
fn a_client_watches_no_more_than_it_may() {
    let server = Server::sexton(&[]);
    let mut honest = Honest::connect(&server);
    let mut client = server.connect();
    let mut words = Vec::new();
    for number in 0..1_100 {
        words.extend_from_slice(format!("watch t{number}\r\n").as_bytes());
    }
    client.send(&words);
    let told: Vec<Vec<u8>> = (0..1_100).map(|_| client.reply().expect("a reply")).collect();
    assert_eq!(told[1022], b"WATCHING 1024\r\n");
    assert!(told[1023..].iter().all(|told| told == b"OUT_OF_MEMORY\r\n"));
    honest.is_served();
    assert_eq!(client.ask("ignore t0"), "WATCHING 1023");
    assert_eq!(client.ask("watch t1099"), "WATCHING 1024");
    // A tube is removed when no connection watches it any more.
    drop(client);
    honest.until("current-tubes", 2);
}

#[test]
fn lists_that_nobody_reads_are_gathered_one_by_one() {
    const TUBES: usize = 20_000;
    let mut server = Server::serve(&[]);
    let mut honest = Honest::connect(&server);
    let mut producer = server.connect();
    for tube in 0..TUBES {
        let words = format!("use t{tube:06}\r\nput 0 0 60 0\r\n\r\n");
        producer.stream().write_all(words.as_bytes()).expect("room");
        if tube % 100 == 99 {
            for _ in 0..200 {
                drop(producer.reply().expect("a reply"));
            }
        }
    }
    let before = resident(server.pid());
    let listing: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = server.connect();
            client.send(&b"list-tubes\r\n".repeat(1024));
            honest.is_served();
            client
        })
        .collect();
    let mut reader = server.connect();
    reader.send(b"list-tube-used\r\n");
    drop(reader.reply().expect("a reply"));
    let grown = resident(server.pid()).saturating_sub(before);
    println!("4 that list {TUBES} tubes 1,024 times and never read: {grown} KiB more");
    assert!(grown < 64 * 1024, "{grown} KiB more");
    drop(listing);
    // A client that reads gets each list in full.
    reader.send(&b"list-tubes\r\n".repeat(20));
    for _ in 0..20 {
        let list = reader.reply().expect("a reply");
        let names = list.split(|byte| *byte == b'\n');
        let names = names.filter(|line| line.starts_with(b"- "));
        assert_eq!(names.count(), TUBES + 2);
    }
    honest.is_served();
    assert!(server.is_running());
}

#[test]
fn halves_of_jobs_are_held_up_to_a_bound() {
    const SENT: usize = 8 << 20;
    let mut server = Server::serve(&["--job-bytes", "16777216"]);
    let mut honest = Honest::connect(&server);
    let before = resident(server.pid());
    let half = [&b"put 0 0 60 16777216\r\n"[..], &vec![b'x'; SENT]].concat();
    let mut halves: Vec<Client> = (0..64)
        .map(|_| {
            let mut client = server.connect();
            client.send(&half);
            client
        })
        .collect();
    honest.is_served();
    let grown = resident(server.pid()).saturating_sub(before);
    println!("64 halves of jobs of 16 MiB: {grown} KiB more");
    assert!(grown < 352 * 1024, "{grown} KiB more");
    // A put that needs more memory than is left is refused once it is complete, and the connection continues.
    let mut last = halves.pop().expect("the list is not empty");
    let rest = [&vec![b'x'; SENT][..], b"\r\n"].concat();
    last.send(&rest);
    assert_eq!(last.reply().expect("a reply"), b"OUT_OF_MEMORY\r\n");
    assert_eq!(last.ask("list-tube-used"), "USING default");
    halves.truncate(1);
    honest.until("current-connections", 3);
    let first = halves.first_mut().expect("it is kept");
    first.send(&rest);
    assert_eq!(first.reply().expect("a reply"), b"INSERTED 2\r\n");
    last.send(&half);
    last.send(&rest);
    assert_eq!(last.reply().expect("a reply"), b"INSERTED 3\r\n");
    assert!(server.is_running());
}

#[test]
fn tubes_that_are_only_watched_cost_a_bounded_amount() {
    let mut server = Server::serve(&[]);
    let mut honest = Honest::connect(&server);
    let before = resident(server.pid());
    let mut refused = 0;
    let watching: Vec<Client> = (0..360)
        .map(|connection| {
            let mut client = server.connect();
            let watch = |tube: usize| format!("watch {connection:03}-{tube:04}-{:x>190}\r\n", "");
            let words: String = (0..1023).map(watch).collect();
            client.send(words.as_bytes());
            let replies = (0..1023).map(|_| client.reply().expect("a reply"));
            refused += replies.filter(|reply| reply == b"OUT_OF_MEMORY\r\n").count();
            client
        })
        .collect();
    honest.is_served();
    let grown = resident(server.pid()).saturating_sub(before);
    println!("360 that watch 1,023 tubes: {refused} refused, {grown} KiB more");
    assert!(refused > 0, "368,280 are watched, {grown} KiB more");
    assert!(grown < 400 * 1024, "{grown} KiB more");
    drop(watching);
    honest.until("current-tubes", 2);
    let mut client = server.connect();
    assert_eq!(client.ask("watch one-more"), "WATCHING 2");
    assert!(server.is_running());
}

#[test]
fn bytes_at_random_do_no_harm() {
    const WORDS: &[&str] = &[
        "put 0 0 1 5\r\nhello\r\n",
        "put 0 0 1 70000\r\n",
        "put 1 ",
        "reserve-with-timeout 0\r\n",
        "\r\n",
        "\n",
        "\0",
        "delete 1\r\n",
        "release 1 1 1\r\n",
        "bury 1 1\r\n",
        "kick 9\r\n",
        "stats\r\n",
        "watch x\r\n",
        "use x\r\n",
        "pause-tube x 1\r\n",
        "reserve-batch 9\r\n",
        "flush-tube x\r\n",
        "list-tubes\r\n",
        "4294967296 ",
        "-1 ",
    ];
    let mut server = Server::sexton(&[]);
    let mut honest = Honest::connect(&server);
    for seed in 0..200 {
        let mut chance = Chance::new(seed);
        let mut bytes = Vec::new();
        for _ in 0..chance.below(200) {
            if chance.below(4) == 0 {
                bytes.push(u8::try_from(chance.below(256)).expect("it is below 256"));
            } else {
                let at = usize::try_from(chance.below(WORDS.len() as u64)).expect("a small number");
                bytes.extend_from_slice(WORDS[at].as_bytes());
            }
        }
        let mut client = server.connect();
        client.send(&bytes);
        client.end();
        // This must return: the server closes the connection once the client has closed its sending side.
        drop(client.rest());
        honest.is_served();
    }
    honest.until("current-connections", 1);
    assert!(server.is_running());
}

#[test]
fn ten_thousand_that_wait_cost_little() {
    let count = connections(10_000);
    let mut server = Server::sexton(&[]);
    let mut honest = Honest::connect(&server);
    let before = resident(server.pid());
    let mut waiting: Vec<Client> = Vec::with_capacity(count);
    for number in 0..count {
        let mut client = server.connect();
        // Some clients send another command, which must wait for the reply to the first.
        client.send(if number % 10 == 0 {
            b"reserve\r\nlist-tube-used\r\n"
        } else {
            b"reserve\r\n"
        });
        waiting.push(client);
        if number % 1000 == 0 {
            honest.is_served();
        }
    }
    honest.until("current-waiting", count);
    honest.is_served();
    let grown = resident(server.pid()).saturating_sub(before);
    println!("{count} that wait: {grown} KiB more");
    assert!(grown < 32 * count as u64, "{grown} KiB for {count} that wait");
    // The clients are served in the order in which they began to wait.
    let mut producer = server.connect();
    for client in waiting.iter_mut().take(20) {
        let inserted = producer.ask("put 0 0 60 2\r\nhi");
        let id = inserted.strip_prefix("INSERTED ").expect("the job is accepted");
        let reply = client.reply().expect("a job");
        assert_eq!(reply, format!("RESERVED {id} 2\r\nhi\r\n").as_bytes());
    }
    assert_eq!(waiting[0].reply().expect("a reply"), b"USING default\r\n");
    drop(waiting);
    honest.until("current-connections", 2);
    // The jobs of the twenty closed connections are ready again.
    assert_eq!(honest.stat("current-jobs-ready"), 20);
    assert!(server.is_running());
}

#[test]
fn who_never_reads_is_not_read_from() {
    let mut server = Server::sexton(&[]);
    let mut honest = Honest::connect(&server);
    let mut client = server.connect();
    let body = "b".repeat(65_535);
    assert_eq!(client.ask(&format!("put 0 0 60 65535\r\n{body}")), "INSERTED 1");
    let before = resident(server.pid());
    let questions = b"peek 1\r\n".repeat(10_000);
    let small = b"list-tube-used\r\n".repeat(10_000);
    let floods: Vec<(Client, usize)> = (0..16)
        .map(|number| {
            let client = server.connect();
            let taken = flood(&client, if number % 2 == 0 { &questions } else { &small });
            honest.is_served();
            (client, taken)
        })
        .collect();
    let grown = resident(server.pid()).saturating_sub(before);
    let most = floods.iter().map(|(_, taken)| taken).max().expect("there are some");
    println!("16 that never read: at most {} KiB taken from one, {grown} KiB more", most / 1024);
    assert!(grown < 64 * 1024, "{grown} KiB more");
    drop(floods);
    honest.until("current-connections", 2);
    assert!(server.is_running());
}

#[test]
fn a_producer_that_never_stops_is_told_when_it_is_enough() {
    let mut server = Server::serve(&["--jobs", "1000"]);
    let mut honest = Honest::connect(&server);
    let mut producer = server.connect();
    let puts = b"put 5 0 60 3\r\njob\r\n".repeat(1_500);
    producer.send(&puts);
    let told: Vec<Vec<u8>> = (0..1_500).map(|_| producer.reply().expect("a reply")).collect();
    assert!(told[..1000].iter().all(|told| told.starts_with(b"INSERTED ")));
    assert!(told[1000..].iter().all(|told| told == b"OUT_OF_MEMORY\r\n"));
    // There is room again as soon as one job is finished.
    let mut worker = server.connect();
    assert!(worker.ask("reserve").starts_with("RESERVED "));
    let first = String::from_utf8_lossy(&told[0]).replace("INSERTED", "delete");
    assert_eq!(worker.ask(first.trim_end()), "DELETED");
    honest.is_served();
    assert!(server.is_running());
}

#[test]
fn who_vanishes_leaves_nothing_behind() {
    let mut server = Server::sexton(&[]);
    let mut honest = Honest::connect(&server);
    // Clients vanish in the middle of a line, a body, the end of a body, or a body that is too big.
    for half in [
        "put 0 0 60",
        "put 0 0 60 10\r\n",
        "put 0 0 60 10\r\nhalf",
        "put 0 0 60 4\r\nwork\r",
        "put 0 0 60 70000\r\nhalf",
    ] {
        let mut client = server.connect();
        client.send(half.as_bytes());
        honest.is_served();
        drop(client);
    }
    honest.until("current-connections", 1);
    assert_eq!(honest.stat("current-jobs-ready"), 0);
    // A thousand times, a client vanishes while it has a job and waits for another.
    let mut worker = server.connect();
    for round in 0..1000 {
        let mut producer = server.connect();
        let inserted = producer.ask("put 0 0 600 1\r\nx");
        let id = inserted.strip_prefix("INSERTED ").expect("the job is accepted");
        let mut mortal = server.connect();
        mortal.send(b"reserve\r\nreserve\r\n");
        let reply = mortal.reply().expect("the job");
        assert_eq!(reply, format!("RESERVED {id} 1\r\nx\r\n").as_bytes(), "{round}");
        worker.send(b"reserve\r\n");
        drop(mortal);
        let reply = worker.reply().expect("the same job");
        assert_eq!(reply, format!("RESERVED {id} 1\r\nx\r\n").as_bytes(), "{round}");
        assert_eq!(worker.ask(&format!("delete {id}")), "DELETED");
    }
    assert!(server.is_running());
}
