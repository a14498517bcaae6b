//! The real program, killed at random moments under load and started again on the same directory.
//!
//! Snapshots are taken every few hundred entries. The coordinator removes the part of the journal that they make unnecessary, but the
//! tests keep it. After each kill the whole journal is read through the library: everything acknowledged is there, in the order of each
//! client; no lock has two owners; tokens and numbers only increase; snapshot and remaining journal give the same state as the whole
//! journal; the restarted program shows the same locks; and the directory does not grow.
//! `SEXTON_CRASH_KILLS=500 cargo test --test crash locks` is the long campaign; `SEXTON_CRASH_SEED` repeats one.

mod reference;
mod worker;

use crate::daemon::Daemon;
use crate::lives::{self, About, Counts, Lives};
use crate::lockserver::{self, Client};
use reference::Reference;
use sexton::actors::lock::{EntryView, LockMachine, Message, Name, View};
use sexton::spine::machine::Observable as _;
use std::collections::BTreeSet;
use worker::{Lock, Worker};

const WORKERS: u64 = 8;

const LOCKS: About<LockMachine> = About {
    flags: &[],
    shown: |locks| format!("{:?}", locks.view().entries),
    snapshot_bytes_max: 4 << 20,
};

/// The campaign on one data directory, over many runs of the program.
struct Campaign {
    lives: Lives<LockMachine>,
    workers: Vec<Worker>,
    reference: Reference,
    /// The number of entries that have already been compared.
    reckoned: usize,
}

impl Campaign {
    fn new(fsync: &'static str, seed: u64) -> Self {
        Self {
            lives: Lives::new(LOCKS, fsync, seed),
            workers: (0..WORKERS).map(|number| Worker::new(number, seed)).collect(),
            reference: Reference::default(),
            reckoned: 0,
        }
    }

    /// Starts the program, checks its state, lets the clients work, kills the program, and checks the journal.
    fn round(&mut self) {
        let daemon = self.lives.begin();
        self.compare_live(&daemon);
        let address = daemon.lockserver();
        self.lives.end(daemon, &mut self.workers, |worker, answered| {
            worker.work(address, answered);
        });
        self.reckon();
    }

    /// Compares the journal with what the clients know from their answers, and with the reference.
    fn reckon(&mut self) {
        let past = &self.lives.past;
        let fresh = past.entries.get(self.reckoned..).unwrap_or_default();
        self.reckoned = past.entries.len();
        for worker in &mut self.workers {
            let name = worker.name().to_owned();
            let its = fresh.iter().map(|entry| &entry.message);
            let its: Vec<&Message> =
                its.filter(|message| owner(message).to_text() == name).collect();
            worker.reckon(&its);
        }
        for entry in fresh {
            self.reference.apply(entry);
        }

        let View { entries, .. } = past.machine().view();
        self.reference.compare(&entries);
        for worker in &self.workers {
            let its: Vec<&EntryView> =
                entries.iter().filter(|entry| entry.owner.to_text() == worker.name()).collect();
            let there = its.iter().map(|entry| lock(entry)).collect();
            let owned =
                its.iter().filter(|entry| entry.place == 1).map(|entry| lock(entry)).collect();
            worker.compare(&there, &owned);
        }
    }

    /// Checks that the running program has the state that the journal gives.
    fn compare_live(&self, daemon: &Daemon) {
        let mut client = Client::connect(daemon.lockserver()).expect("connected");
        let View { entries, .. } = self.lives.past.machine().view();
        let keys: BTreeSet<String> = self.workers.iter().flat_map(Worker::keys).collect();
        for key in keys {
            let of_key = entries.iter().filter(|entry| entry.key.to_text() == key);
            let mut expected: Vec<lockserver::ListedEntry> = of_key
                .map(|entry| lockserver::ListedEntry {
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
}

fn owner(message: &Message) -> &Name {
    match message {
        Message::Request { owner, .. }
        | Message::Acquire { owner, .. }
        | Message::Renew { owner, .. }
        | Message::Release { owner, .. }
        | Message::ReleaseAll { owner } => owner,
        Message::EndMore(more) => &more.owner,
        Message::Expire { .. }
        | Message::Force { .. }
        | Message::Leave { .. }
        | Message::Gone(_)
        | Message::Drain
        | Message::Hold(_)
        | Message::Yield(_) => {
            panic!("no client sent {message:?}")
        }
    }
}

fn lock(entry: &EntryView) -> Lock {
    (entry.key.to_text(), entry.index.to_text())
}

/// Kills the program this many times, over as many directories as that takes.
fn campaign(fsync: &'static str, kills: u64) -> Counts {
    lives::campaign(kills, |seed, enough| {
        let mut campaign = Campaign::new(fsync, seed);
        while campaign.lives.counts.kills < enough {
            campaign.round();
            let killed = campaign.lives.counts.kills;
            if killed.is_multiple_of(5) || killed == enough {
                campaign.lives.compare_again();
            }
        }
        campaign.lives.counts
    })
}

#[test]
fn killed_with_fsync_always_nothing_acknowledged_is_lost() {
    let counts = campaign("always", lives::kills(50, 50));
    println!("fsync always: {counts}");
}

#[test]
fn killed_with_fsync_at_intervals_nothing_acknowledged_is_lost() {
    let counts = campaign("interval:50", lives::kills(25, 50));
    println!("fsync at intervals: {counts}");
}

#[test]
fn killed_without_fsync_nothing_acknowledged_is_lost() {
    let counts = campaign("never", lives::kills(25, 50));
    println!("no fsync: {counts}");
}
