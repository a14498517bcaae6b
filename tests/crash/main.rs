//! The real program, killed at random moments under load and started again on the same directory.
//!
//! Snapshots are taken every few hundred entries, and the journal that they stand for is let go; the tests keep it. After
//! each end all of it is read through the library: everything answered is there, in the order of each client; no lock
//! has two owners; tokens and numbers only grow; snapshot and rest come to what the whole comes to; the restarted program
//! shows the same locks; and the directory does not grow.
//! `SEXTON_CRASH_KILLS=500 cargo test --test crash` is the long campaign; `SEXTON_CRASH_SEED` repeats one.

#![cfg(feature = "cli")]

mod counts;
mod reference;
mod worker;

#[path = "../support/chance.rs"]
mod chance;
#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod daemon;
#[path = "../support/kept.rs"]
mod kept;
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
#[path = "../support/space.rs"]
mod space;

use chance::Chance;
use counts::Counts;
use daemon::Daemon;
use kept::Kept;
use lockserver::Client;
use past::Past;
use patience::until;
use reference::Reference;
use rustix::process::Signal;
use sexton::actors::lock::{Listed, Message, Name, View};
use sexton::actors::machine::Machine as _;
use sexton::ids::Seq;
use sexton::persist::disk::RealDisk;
use sexton::persist::journal::segment;
use sexton::{Config, Node};
use space::Space;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use worker::{Lock, Worker};

const WORKERS: u64 = 8;

/// Kills after which a fresh directory is taken: what is kept of its journal is read after each.
const KILLS_PER_DIRECTORY: u64 = 25;

/// Entries between two checkpoints.
const CHECKPOINT_EVERY: &str = "300";

/// Bytes of both snapshots at most. What is in them takes a few kilobytes here; the rest is how sled lays it out, half
/// a mebibyte at a time.
const SNAPSHOT_BYTES_MAX: u64 = 4 << 20;

/// The most answers before a kill.
const ANSWERS_MAX: u64 = 1500;

/// One directory's life, over many processes.
struct Campaign {
    files: TempDir,
    kept: Kept,
    fsync: &'static str,
    chance: Chance,
    workers: Vec<Worker>,
    reference: Reference,
    /// Everything read so far.
    past: Past,
    /// Smaller numbers may have been handed out before the last end.
    bound: Seq,
    /// How many entries have been reckoned with.
    reckoned: usize,
    counts: Counts,
}

impl Campaign {
    fn new(fsync: &'static str, seed: u64) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        Self {
            kept: Kept::beside(&files.path().join("data")),
            files,
            fsync,
            chance: Chance::new(seed),
            workers: (0..WORKERS)
                .map(|number| Worker::new(number, seed))
                .collect(),
            reference: Reference::default(),
            past: Past::default(),
            bound: Seq(0),
            reckoned: 0,
            counts: Counts::default(),
        }
    }

    fn data(&self) -> String {
        let data = self.files.path().join("data");
        data.to_str()
            .expect("temporary directories have plain names")
            .to_owned()
    }

    /// Starts the program, checks what it shows, loads it, ends it, and reckons.
    fn round(&mut self) {
        if self.chance.below(4) == 0 {
            self.kill_while_starting();
        }
        let daemon = Daemon::serve(&[
            "--data",
            &self.data(),
            "--fsync",
            self.fsync,
            "--checkpoint-every",
            CHECKPOINT_EVERY,
        ]);
        self.compare_live(&daemon);
        let space = Space::of(Path::new(&self.data()));
        space.check(SNAPSHOT_BYTES_MAX);
        let bytes = space.snapshot_bytes();
        self.counts.snapshot_bytes_max = self.counts.snapshot_bytes_max.max(bytes);
        let ask_nicely = self.chance.below(8) == 0;
        let enough = 1 + self.chance.below(ANSWERS_MAX);
        let checkpoint_first = self.chance.below(2) == 0;
        let answered = AtomicU64::new(0);
        let address = daemon.lockserver();
        std::thread::scope(|threads| {
            for worker in &mut self.workers {
                threads.spawn(|| worker.work(address, &answered));
            }
            until("enough is answered", || {
                self.kept.keep();
                let answered = answered.load(Ordering::Relaxed);
                let taken = !checkpoint_first || daemon.log().contains("took a snapshot");
                (answered >= enough && taken).then_some(())
            });
            if ask_nicely {
                daemon.signal(Signal::TERM);
                let (status, log) = daemon.end();
                assert_eq!(status.code(), Some(0), "{log}");
            } else {
                daemon.kill();
            }
        });
        self.counts.answered += answered.into_inner();
        self.counts.kills += u64::from(!ask_nicely);
        let clean = self.reckon();
        assert_eq!(clean, ask_nicely, "stopped in order, or not");
    }

    /// A start that does not come to its end, or hardly does.
    fn kill_while_starting(&mut self) {
        let flags = ["--fsync", self.fsync, "--data", &self.data()];
        let daemon = Daemon::begin(daemon::serve(&flags));
        let mut looks = self.chance.below(120);
        until("a moment passes", || {
            looks = looks.saturating_sub(1);
            (looks == 0).then_some(())
        });
        daemon.kill();
        self.reckon();
    }

    /// Reads the directory that nobody has now, and compares it with all that is known. Whether it was left in order.
    fn reckon(&mut self) -> bool {
        self.past.read_on(self.kept.keep());
        let past = &self.past;
        let in_order = past.numbers.is_sorted_by(|a, b| a < b);
        assert!(in_order, "numbers only grow");
        self.bound = if past.tail.clean {
            Seq(past.tail.last.0 + 1)
        } else {
            past.tail.reserved
        };
        let fresh = past.entries.get(self.reckoned..).unwrap_or_default();
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

        let View { entries, .. } = past.locks().view();
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
        self.compare_recovered(&entries);
        self.past.tail.clean
    }

    /// What the next start will find: the newest snapshot and the rest come to what the whole journal comes to.
    fn compare_recovered(&mut self, entries: &[Listed]) {
        let data = self.data();
        let (locks, found) = past::recovered(Path::new(&data));
        assert_eq!(locks.digest(), self.past.locks().digest(), "{found:?}");
        assert_eq!(locks.view().entries, entries, "{found:?}");
        if self.past.tail.clean {
            assert_eq!(found.mended, Vec::<String>::new(), "it was left in order");
        }
        let amid = |wrong: &String| wrong.contains("was being written");
        assert!(found.mended.iter().all(amid), "{:?}", found.mended);
        self.counts.kills_amid += u64::from(!found.mended.is_empty());
        self.counts.starts_from += u64::from(found.snapshot.is_some());
        self.counts.checkpoints = self.past.checkpoints;
        let disk = RealDisk::new(&data);
        let first = segment::ordinals(&disk).expect("the folder reads");
        self.counts.trimmed = first.first().map_or(0, |first| first - 1);
    }

    /// The running program shows what the journal says.
    fn compare_live(&mut self, daemon: &Daemon) {
        let before = self.past.numbers.len();
        self.past.read_on(self.kept.keep());
        let past = &self.past;
        let first = past.numbers.get(before).expect("a start leaves its marks");
        assert!(
            *first >= self.bound,
            "{first} may have been handed out before"
        );
        let digest = live_digest(Path::new(&self.data()));
        assert_eq!(
            digest,
            past.locks().digest().to_string(),
            "it has what a replay gives"
        );
        let mut client = Client::connect(daemon.lockserver()).expect("let in");
        let View { entries, .. } = past.locks().view();
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

    /// What was read once stays; and a node on a copy of the directory comes to the digest that a replay of its own
    /// journal gives.
    fn compare_again(&self) {
        let whole = past::read(self.kept.keep());
        assert!(
            whole.numbers == self.past.numbers,
            "what was in the journal stays in it"
        );
        assert_eq!(whole.locks().digest(), self.past.locks().digest());
        let copy = tempfile::tempdir().expect("a temporary directory");
        copy_folder(Path::new(&self.data()), copy.path());
        let node = Node::open(Config::at(copy.path())).expect("the copy opens");
        let status = node::wait(node.handle().status()).expect("the node runs");
        let digest = status.actors.first().and_then(|actor| actor.status.digest);
        node.stop().expect("it stops in order");
        let (locks, _) = past::recovered(copy.path());
        assert_eq!(digest, Some(locks.digest()), "the node and a replay agree");
    }
}

/// Copies files and folders, but no sockets.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder is created");
    for entry in std::fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("it reads");
        let kind = entry.file_type().expect("it has a type");
        let place = to.join(entry.file_name());
        if kind.is_dir() {
            copy_folder(&entry.path(), &place);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), place).expect("it copies");
        }
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

/// As many kills as asked for, over as many directories as that takes.
fn campaign(fsync: &'static str, kills: u64) -> Counts {
    let mut seed = setting("SEXTON_CRASH_SEED").unwrap_or(1);
    let mut counts = Counts::default();
    while counts.kills < kills {
        let mut campaign = Campaign::new(fsync, seed);
        let enough = KILLS_PER_DIRECTORY.min(kills - counts.kills);
        while campaign.counts.kills < enough {
            campaign.round();
            let killed = campaign.counts.kills;
            if killed.is_multiple_of(5) || killed == enough {
                campaign.compare_again();
            }
        }
        counts += campaign.counts;
        seed += 1;
    }
    counts
}

fn kills(default: u64) -> u64 {
    setting("SEXTON_CRASH_KILLS").map_or(default, |kills| kills * default / 50)
}

#[test]
fn killed_with_fsync_always_nothing_acknowledged_is_lost() {
    let counts = campaign("always", kills(50));
    println!("fsync always: {counts}");
    counts.check();
}

#[test]
fn killed_with_fsync_at_intervals_nothing_acknowledged_is_lost() {
    let counts = campaign("interval:50", kills(25));
    println!("fsync at intervals: {counts}");
    counts.check();
}

#[test]
fn killed_without_fsync_nothing_acknowledged_is_lost() {
    let counts = campaign("never", kills(25));
    println!("no fsync: {counts}");
    counts.check();
}
