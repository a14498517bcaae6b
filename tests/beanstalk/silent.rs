//! A thousand clients of the real program that reserve a job and then send nothing. Each client's job is ready again when
//! its claim expires, and not before. No job is lost or given to two clients.

use crate::beanstalkd::{Client, Server};
use crate::resources::connections;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

const CLIENTS: usize = 1000;

/// The shortest TTR, in seconds. It is usually long enough for all clients to reserve before the first claim expires.
const SHORTEST_S: u64 = 3;

#[expect(clippy::disallowed_methods, reason = "another process is observed, in real time")]
fn now() -> Instant {
    Instant::now()
}

/// A client with a job from its own tube, and when it got the job.
struct Silent {
    _client: Client,
    /// The claim began between `asked` and `told`.
    asked: Instant,
    told: Instant,
    ttr: Duration,
}

/// Formats how late jobs became ready after their claims expired. This is printed and not asserted, since a busy machine
/// is slow.
fn in_words(mut lateness: Vec<Duration>) -> String {
    lateness.sort_unstable();
    let late = |per_cent: usize| {
        let place = (lateness.len() * per_cent).div_ceil(100).max(1) - 1;
        let late = lateness.get(place).expect("no more than all of them");
        format!("{:.1} ms", late.as_secs_f64() * 1000.0)
    };
    format!(
        "{} clients were silent: half of their jobs came back at most {} late (median), 99 of 100 at most {} (p99), the last {} (longest)",
        lateness.len(),
        late(50),
        late(99),
        late(100),
    )
}

fn reserve(server: &Server, number: usize) -> (String, Silent) {
    let seconds = SHORTEST_S + number as u64 % 3;
    let mut client = server.connect();
    let words = format!("use t{number}\r\nput 0 0 {seconds} 1\r\nx\r\nwatch t{number}\r\n");
    client.stream().write_all(words.as_bytes()).expect("connected");
    let [_, inserted, _] = [(); 3].map(|()| client.reply().expect("a reply"));
    let id = String::from_utf8_lossy(&inserted).trim().replace("INSERTED ", "");
    let asked = now();
    assert_eq!(client.ask("reserve"), format!("RESERVED {id} 1\r\nx"));
    let silent = Silent { _client: client, asked, told: now(), ttr: Duration::from_secs(seconds) };
    (id, silent)
}

#[test]
fn a_thousand_silent_clients_lose_their_jobs_in_time() {
    assert_eq!(connections(CLIENTS + 1), CLIENTS + 1, "the limit of descriptors is high enough");
    let mut server = Server::sexton(&[]);
    let mut silent: BTreeMap<String, Silent> =
        (0..CLIENTS).map(|number| reserve(&server, number)).collect();
    assert_eq!(silent.len(), CLIENTS);
    let mut worker = server.connect();
    let watch = |number| format!("watch t{number}\r\n");
    let watch: Vec<String> = (0..CLIENTS).map(watch).collect();
    worker.send(watch.concat().as_bytes());
    for _ in 0..CLIENTS {
        drop(worker.reply().expect("a reply"));
    }
    let mut kept = Vec::new();
    let mut lateness = Vec::new();
    worker.send(b"reserve\r\n");
    let waiting = now();
    for left in (0..CLIENTS).rev() {
        let reserved = worker.reply().expect("a reply");
        let at = now();
        let reserved = String::from_utf8_lossy(&reserved);
        let id = reserved.split(' ').nth(1).expect("the reply has a number").to_owned();
        // Both commands are sent at once, so that the worker's own delay is not measured.
        let next = if left > 0 { "reserve" } else { "reserve-with-timeout 0" };
        worker.send(format!("delete {id}\r\n{next}\r\n").as_bytes());
        assert_eq!(worker.reply().as_deref(), Some(&b"DELETED\r\n"[..]));
        let before = silent.remove(&id).expect("it is given once");
        // sexton's spans begin and end in whole milliseconds, so a job may be early by less than one.
        let early = (before.asked + before.ttr).saturating_duration_since(at);
        assert!(early < Duration::from_millis(1), "{early:?} early: job {id}");
        let over = waiting.max(before.told + before.ttr);
        lateness.push(at.saturating_duration_since(over));
        kept.push(before);
    }
    println!("{}", in_words(lateness));
    assert!(silent.is_empty(), "no job is lost");
    assert_eq!(worker.reply().as_deref(), Some(&b"TIMED_OUT\r\n"[..]));
    assert!(server.is_running());
}
