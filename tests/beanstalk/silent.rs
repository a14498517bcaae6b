//! A thousand clients that reserve and say nothing more, over the real program: each loses its job when its time is over,
//! and not before; no job is lost or given twice.

use crate::beanstalkd::{Client, Server};
use crate::resources::connections;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

const CLIENTS: usize = 1000;

#[expect(
    clippy::disallowed_methods,
    reason = "another process is looked at, whose time is that of the machine"
)]
fn now() -> Instant {
    Instant::now()
}

/// A client that has a job of a tube of its own, and what it saw of that.
struct Silent {
    _client: Client,
    /// Its claim began between these.
    asked: Instant,
    told: Instant,
    ttr: Duration,
}

fn reserve(server: &Server, number: usize) -> (String, Silent) {
    let seconds = 1 + number as u64 % 3;
    let mut client = server.connect();
    let words = format!("use t{number}\r\nput 0 0 {seconds} 1\r\nx\r\nwatch t{number}\r\n");
    client
        .stream()
        .write_all(words.as_bytes())
        .expect("it is read");
    let [_, inserted, _] = [(); 3].map(|()| client.reply().expect("a reply"));
    let id = String::from_utf8_lossy(&inserted)
        .trim()
        .replace("INSERTED ", "");
    let asked = now();
    assert_eq!(client.ask("reserve"), format!("RESERVED {id} 1\r\nx"));
    let silent = Silent {
        _client: client,
        asked,
        told: now(),
        ttr: Duration::from_secs(seconds),
    };
    (id, silent)
}

#[test]
fn a_thousand_silent_clients_lose_their_jobs_in_time() {
    assert_eq!(
        connections(CLIENTS + 1),
        CLIENTS + 1,
        "all of them are open"
    );
    let mut server = Server::sexton(&[]);
    let mut silent: BTreeMap<String, Silent> = (0..CLIENTS)
        .map(|number| reserve(&server, number))
        .collect();
    assert_eq!(silent.len(), CLIENTS);
    let mut worker = server.connect();
    let watch = |number| format!("watch t{number}\r\n");
    let watch: Vec<String> = (0..CLIENTS).map(watch).collect();
    worker.send(watch.concat().as_bytes());
    for _ in 0..CLIENTS {
        drop(worker.reply().expect("a reply"));
    }
    let mut kept = Vec::new();
    let (mut latest, mut total) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..CLIENTS {
        let reserved = worker.ask("reserve");
        let at = now();
        let id = reserved.split(' ').nth(1).expect("a number").to_owned();
        assert_eq!(worker.ask(&format!("delete {id}")), "DELETED");
        let before = silent.remove(&id).expect("it is given once");
        // Spans begin and end in whole milliseconds.
        let early = (before.asked + before.ttr).saturating_duration_since(at);
        assert!(
            early < Duration::from_millis(1),
            "{early:?} early: job {id}"
        );
        let late = at.saturating_duration_since(before.told + before.ttr);
        latest = latest.max(late);
        total += late;
        kept.push(before);
    }
    println!(
        "{CLIENTS} jobs whose clients are silent: {} ms late at most, {} ms on average",
        latest.as_millis(),
        total.as_millis() / kept.len() as u128,
    );
    assert!(silent.is_empty(), "none is lost");
    assert_eq!(worker.ask("reserve-with-timeout 0"), "TIMED_OUT");
    assert!(server.is_running());
}
