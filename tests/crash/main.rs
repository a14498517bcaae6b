//! The real program, killed at random moments under load and started again on the same directory.
//!
//! After each end the journal is read through the library: everything answered is there, in the order of each client;
//! no lock has two owners; tokens and numbers only grow; and the restarted program shows the same locks.
//! `SEXTON_CRASH_KILLS=500 cargo test --test crash` is the long campaign; `SEXTON_CRASH_SEED` repeats one.

mod reference;
mod worker;

#[path = "../support/chance.rs"]
mod chance;
#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod daemon;
#[path = "../support/lockserver.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod lockserver;
#[path = "../support/node.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod node;
#[path = "../support/past.rs"]
mod past;
#[path = "../support/patience.rs"]
mod patience;

use chance::Chance;
use daemon::{Daemon, sexton};
use lockserver::Client;
use past::Past;
use patience::until;
use reference::Reference;
use rustix::process::Signal;
use sexton::actors::lock::{Listed, Message, Name, View};
use sexton::actors::machine::Machine as _;
use sexton::ids::Seq;
use sexton::{Config, Node};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use worker::{Lock, Worker};

const WORKERS: u64 = 8;

/// Kills after which a fresh directory is taken: a start replays the whole journal.
const KILLS_PER_DIRECTORY: u64 = 25;

/// The most answers before a kill.
const ANSWERS_MAX: u64 = 1500;

/// One directory's life, over many processes.
struct Campaign {
    files: TempDir,
    fsync: &'static str,
    chance: Chance,
    workers: Vec<Worker>,
    reference: Reference,
    /// The number of every record read so far.
    numbers: Vec<Seq>,
    /// Smaller numbers may have been handed out before the last end.
    bound: Seq,
    /// How many entries have been reckoned with.
    reckoned: usize,
    answered: u64,
}

impl Campaign {
    fn new(fsync: &'static str, seed: u64) -> Self {
        Self {
            files: tempfile::tempdir().expect("a temporary directory"),
            fsync,
            chance: Chance::new(seed),
            workers: (0..WORKERS)
                .map(|number| Worker::new(number, seed))
                .collect(),
            reference: Reference::default(),
            numbers: Vec::new(),
            bound: Seq(0),
            reckoned: 0,
            answered: 0,
        }
    }

    fn data(&self) -> String {
        let data = self.files.path().join("data");
        data.to_str()
            .expect("temporary directories have plain names")
            .to_owned()
    }

    /// Starts the program, checks what it shows, loads it, ends it, and reckons. Whether the end was a kill.
    fn round(&mut self) -> bool {
        if self.chance.below(4) == 0 {
            self.kill_while_starting();
        }
        let daemon = Daemon::serve(&["--data", &self.data(), "--fsync", self.fsync]);
        self.compare_live(&daemon);
        let ask_nicely = self.chance.below(8) == 0;
        let enough = 1 + self.chance.below(ANSWERS_MAX);
        let answered = AtomicU64::new(0);
        let address = daemon.lockserver();
        std::thread::scope(|threads| {
            for worker in &mut self.workers {
                threads.spawn(|| worker.work(address, &answered));
            }
            until("enough is answered", || {
                (answered.load(Ordering::Relaxed) >= enough).then_some(())
            });
            if ask_nicely {
                daemon.signal(Signal::TERM);
                let (status, log) = daemon.end();
                assert_eq!(status.code(), Some(0), "{log}");
            } else {
                daemon.kill();
            }
        });
        self.answered += answered.into_inner();
        let past = self.reckon();
        assert_eq!(past.tail.clean, ask_nicely, "stopped in order, or not");
        !ask_nicely
    }

    /// A start that does not come to its end, or hardly does.
    fn kill_while_starting(&mut self) {
        let mut command = sexton();
        command.args([
            "serve",
            "--lockserver",
            "127.0.0.1:0",
            "--http",
            "off",
            "--fsync",
            self.fsync,
        ]);
        command.args(["--data", &self.data()]);
        let daemon = Daemon::begin(command);
        let mut looks = self.chance.below(120);
        until("a moment passes", || {
            looks = looks.saturating_sub(1);
            (looks == 0).then_some(())
        });
        daemon.kill();
        self.reckon();
    }

    /// Reads the directory that nobody has now, and compares it with all that is known.
    fn reckon(&mut self) -> Past {
        let data = self.data();
        let past = past::read(Path::new(&data));
        self.reckon_numbers(&past);
        let fresh = past.entries.get(self.reckoned..);
        let fresh = fresh.expect("what was in the journal stays in it");
        self.reckoned = past.entries.len();
        for worker in &mut self.workers {
            let name = worker.name().to_owned();
            let its = fresh.iter().map(|entry| &entry.message);
            let its: Vec<&Message> = its
                .filter(|message| owner(message).to_text() == name)
                .collect();
            worker.reckon(&its);
        }
        for entry in fresh {
            self.reference.apply(entry);
        }

        let View { entries, .. } = past.locks.view();
        self.reference.compare(&entries);
        for worker in &self.workers {
            let its: Vec<&Listed> = entries
                .iter()
                .filter(|entry| entry.owner.to_text() == worker.name())
                .collect();
            let there = its.iter().map(|entry| lock(entry)).collect();
            let owned = its
                .iter()
                .filter(|entry| entry.place == 1)
                .map(|entry| lock(entry))
                .collect();
            worker.compare(&there, &owned);
        }
        let digest = past::recovered_digest(Path::new(&data));
        assert_eq!(past.locks.digest(), digest, "two replays agree");
        past
    }

    /// What was read once stays, and what is new has larger numbers than were ever handed out.
    fn reckon_numbers(&mut self, past: &Past) {
        assert!(past.numbers.is_sorted_by(|a, b| a < b), "numbers only grow");
        assert!(
            past.numbers.starts_with(&self.numbers),
            "what was in the journal stays in it"
        );
        self.numbers.clone_from(&past.numbers);
        self.bound = if past.tail.clean {
            Seq(past.tail.last.0 + 1)
        } else {
            past.tail.reserved
        };
    }

    /// The running program shows what the journal says.
    fn compare_live(&self, daemon: &Daemon) {
        let Some(past) = (!self.numbers.is_empty()).then(|| past::read(Path::new(&self.data())))
        else {
            return;
        };
        let before = self.numbers.len();
        let first = past.numbers.get(before).expect("a start leaves its marks");
        assert!(
            *first >= self.bound,
            "{first} may have been handed out before"
        );
        let digest = live_digest(Path::new(&self.data()));
        assert_eq!(
            digest,
            past.locks.digest().to_string(),
            "it has what a replay gives"
        );
        let mut client = Client::connect(daemon.lockserver()).expect("let in");
        let View { entries, .. } = past.locks.view();
        let keys: BTreeSet<String> = self.workers.iter().flat_map(Worker::keys).collect();
        for key in keys {
            let of_key = entries.iter().filter(|entry| entry.key.to_text() == key);
            let mut expected: Vec<lockserver::Listed> = of_key
                .map(|entry| lockserver::Listed {
                    priority: entry.priority,
                    ttl: entry.ttl,
                    ttw: entry.ttw,
                    index: entry.index.as_bytes().to_vec(),
                    owner: entry.owner.as_bytes().to_vec(),
                    owns: entry.place == 1,
                })
                .collect();
            let mut found = client.list(&key).expect("an answer");
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{key}");
        }
    }

    /// A node on a copy of the directory comes to the digest that a replay of its own journal gives.
    fn compare_node(&self) {
        let copy = tempfile::tempdir().expect("a temporary directory");
        let journal = copy.path().join("journal");
        std::fs::create_dir(&journal).expect("a folder is created");
        let files = Path::new(&self.data()).join("journal");
        for file in std::fs::read_dir(files).expect("the journal is there") {
            let file = file.expect("it reads");
            std::fs::copy(file.path(), journal.join(file.file_name())).expect("it copies");
        }
        let node = Node::open(Config::at(copy.path())).expect("the copy opens");
        let status = node::wait(node.handle().status()).expect("the node runs");
        let digest = status.actors.first().and_then(|actor| actor.status.digest);
        node.stop().expect("it stops in order");
        assert_eq!(
            digest,
            Some(past::recovered_digest(copy.path())),
            "the node and a replay agree"
        );
    }
}

/// The digest of the locks in the running program, as its status says it.
fn live_digest(data: &Path) -> String {
    let socket = data.join("sexton.sock");
    let mut stream = UnixStream::connect(socket).expect("the socket is open");
    stream
        .write_all(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("it takes the request");
    let answer = std::io::read_to_string(stream).expect("an answer");
    let digest = answer.split("\"digest\":\"").nth(1);
    let digest = digest.and_then(|rest| rest.split('"').next());
    digest
        .unwrap_or_else(|| panic!("no digest in {answer}"))
        .to_owned()
}

fn owner(message: &Message) -> &Name {
    match message {
        Message::Request { owner, .. }
        | Message::Renew { owner, .. }
        | Message::Release { owner, .. }
        | Message::ReleaseAll { owner } => owner,
        Message::Expire { .. } | Message::Drain => panic!("nobody asked for {message:?}"),
    }
}

fn lock(entry: &Listed) -> Lock {
    (entry.key.to_text(), entry.index.to_text())
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var_os(name)?.into_string().ok()?;
    Some(text.parse().expect("the setting is a number"))
}

/// As many kills as asked for, over as many directories as that takes; the commands answered.
fn campaign(fsync: &'static str, kills: u64) -> u64 {
    let mut seed = setting("SEXTON_CRASH_SEED").unwrap_or(1);
    let (mut killed, mut answered) = (0, 0);
    while killed < kills {
        let mut campaign = Campaign::new(fsync, seed);
        let enough = kills.min(killed + KILLS_PER_DIRECTORY);
        while killed < enough {
            killed += u64::from(campaign.round());
            if killed % 5 == 0 || killed == enough {
                campaign.compare_node();
            }
        }
        answered += campaign.answered;
        seed += 1;
    }
    answered
}

fn kills(default: u64) -> u64 {
    setting("SEXTON_CRASH_KILLS").map_or(default, |kills| kills * default / 50)
}

#[test]
fn killed_with_fsync_always_nothing_acknowledged_is_lost() {
    let kills = kills(50);
    let answered = campaign("always", kills);
    println!("{kills} rounds, {answered} commands answered");
}

#[test]
fn killed_with_fsync_at_intervals_nothing_acknowledged_is_lost() {
    let kills = kills(25);
    let answered = campaign("interval:50", kills);
    println!("{kills} rounds, {answered} commands answered");
}

#[test]
fn killed_without_fsync_nothing_acknowledged_is_lost() {
    let kills = kills(25);
    let answered = campaign("never", kills);
    println!("{kills} rounds, {answered} commands answered");
}
