//! The real program, killed at random moments under load from beanstalkd's protocol, and started again on the same
//! directory.
//!
//! Some connections have tubes of their own, so that every reply, and what may exist after a kill, can be predicted exactly
//! (`owner.rs`, `tubes.rs`). Others share tubes, and record what they do in one book (`sharer.rs`, `book.rs`).
//! After each restart every job is queried over the protocol: an acknowledged job exists until its delete was acknowledged,
//! no deleted job returns, no job is held by two connections, ids never repeat, and counters, bodies and the order of buried
//! jobs are unchanged. Journal and snapshots are checked by `support/lives.rs`.
//! `SEXTON_CRASH_KILLS=500 cargo test --test crash queues` is the long campaign; `SEXTON_CRASH_SEED` repeats one.

pub(crate) mod book;
mod owner;
mod sharer;
mod tubes;

use crate::beanstalk::Client;
use crate::daemon::Daemon;
use crate::lives::{self, About, Counts, Lives};
use crate::patience::until;
use book::Book;
use owner::{InitialState, Owner, expect};
use sexton::actors::queue::QueueMachine;
use sexton::spine::machine::Observable as _;
use sharer::Sharer;
use tubes::Job;

const OWNERS: u64 = 4;
const SHARERS: u64 = 4;

/// The tube of the job whose claim expires.
const BRIEF: &str = "brief";

pub(crate) const QUEUES: About<QueueMachine> = About {
    flags: &["--beanstalk", "127.0.0.1:0", "--lockserver", "off"],
    // Counts that only cover the time since startup are left out.
    shown: |queues| {
        let view = queues.view();
        let pauses = view.queues.iter();
        let pauses = pauses.map(|queue| (&queue.name, queue.paused_until));
        let pauses: Vec<_> = pauses.collect();
        format!("{} {pauses:?} {:?}", view.next_id, view.jobs)
    },
    snapshot_bytes_max: 64 << 20,
};

/// The campaign on one data directory, over many runs of the program.
struct Campaign {
    lives: Lives<QueueMachine>,
    owners: Vec<Owner>,
    sharers: Vec<Sharer>,
    book: Book,
}

/// A connection under load.
enum Worker<'a> {
    Owner(&'a mut Owner),
    Sharer(&'a mut Sharer),
}

impl Campaign {
    fn new(fsync: &'static str, seed: u64) -> Self {
        Self {
            lives: Lives::new(QUEUES, fsync, seed),
            owners: (0..OWNERS).map(|number| Owner::new(number, seed)).collect(),
            sharers: (0..SHARERS).map(|number| Sharer::new(number, seed)).collect(),
            book: Book::default(),
        }
    }

    /// Starts the program, checks its state, lets the connections work, and kills it.
    fn round(&mut self) {
        let daemon = self.lives.begin();
        self.reckon(&daemon);
        let (address, book) = (daemon.beanstalk(), &self.book);
        let owners = self.owners.iter_mut().map(Worker::Owner);
        let workers = owners.chain(self.sharers.iter_mut().map(Worker::Sharer));
        self.lives.end(daemon, workers, |worker, answered| match worker {
            Worker::Owner(owner) => {
                owner.work(address, answered, &|id| book.open().inserted(id));
            }
            Worker::Sharer(sharer) => sharer.work(address, answered, book),
        });
    }

    /// Compares the state of a program that has just started with what each connection expects and what the book has.
    fn reckon(&mut self, daemon: &Daemon) {
        let mut client = Client::connect(daemon.beanstalk()).expect("connected");
        let found = self.found(&mut client);
        for owner in &mut self.owners {
            owner.reckon(&found);
            owner.compare(&mut client);
        }
        self.book.open().reckon(&found);
    }

    /// Returns every job and every pause of the program.
    fn found(&self, client: &mut Client) -> InitialState {
        let mut found = found(&self.lives, client);
        for owner in &self.owners {
            for name in owner.tubes() {
                let told = client.ask(&format!("stats-tube {name}")).expect("a reply");
                if told.statistic("pause").is_some_and(|pause| pause != "0") {
                    found.paused.insert(name);
                }
            }
        }
        found
    }

    /// Checks that an expired claim is still expired after a kill if any later command was acknowledged, and that all buried jobs
    /// keep their order.
    fn finish(&mut self) {
        let daemon = self.lives.begin();
        self.reckon(&daemon);
        let mut client = Client::connect(daemon.beanstalk()).expect("connected");
        for owner in &self.owners {
            owner.compare_order(&mut client);
        }
        expect(&mut client, &format!("use {BRIEF}"), "USING brief").expect("a reply");
        let put = client.ask("put 0 0 1 5\r\nbrief").expect("a reply");
        let id = put.number("INSERTED").expect("an answer");
        let reserved = client.ask(&format!("reserve-job {id}")).expect("a reply");
        assert_eq!(reserved.line, format!("RESERVED {id} 5"));
        let stats = format!("stats-job {id}");
        until("its claim has expired", || {
            let stats = client.ask(&stats).expect("a reply");
            (stats.statistic("state") == Some("ready")).then_some(())
        });
        assert!(client.ask("put 9 0 1 1\r\nx").expect("a reply").line.starts_with("INSERTED"));
        daemon.kill();
        self.lives.reckon();
        let daemon = self.lives.begin();
        let mut client = Client::connect(daemon.beanstalk()).expect("connected");
        let stats = client.ask(&stats).expect("a reply");
        for (key, value) in [("state", "ready"), ("reserves", "1"), ("timeouts", "1")] {
            assert_eq!(stats.statistic(key), Some(value), "{key}: {stats:?}");
        }
        daemon.kill();
        self.lives.reckon();
    }
}

/// Returns every job of the program. The protocol has no command that lists ids, so these are read from the directory, and their number is
/// compared with the program's counts.
pub(crate) fn found(lives: &Lives<QueueMachine>, client: &mut Client) -> InitialState {
    let view = lives.past.machine().view();
    let mut found = InitialState::default();
    for id in view.jobs.iter().map(|job| job.id) {
        let statistics = client.ask(&format!("stats-job {id}")).expect("a reply");
        let peeked = client.ask(&format!("peek {id}")).expect("a reply");
        assert_eq!(peeked.number("FOUND"), Some(id), "{peeked:?}");
        found.jobs.insert(id, Job::told(&statistics, peeked.body));
    }
    let all = client.ask("stats").expect("a reply");
    let count = |key: &str| -> u64 {
        let count = all.statistic(key).and_then(|it| it.parse().ok());
        count.unwrap_or_else(|| panic!("{key} in {all:?}"))
    };
    let phases = ["ready", "reserved", "delayed", "buried"];
    let counted = phases.map(|phase| count(&format!("current-jobs-{phase}")));
    assert_eq!(counted.iter().sum::<u64>(), found.jobs.len() as u64, "{all:?}");
    found
}

/// Kills the program this many times, over as many directories as that takes.
fn campaign(fsync: &'static str, kills: u64) -> Counts {
    lives::campaign(kills, |seed, enough| {
        let mut campaign = Campaign::new(fsync, seed);
        while campaign.lives.counts.kills < enough {
            campaign.round();
            if campaign.lives.counts.kills.is_multiple_of(5) {
                campaign.lives.compare_again();
            }
        }
        campaign.finish();
        campaign.lives.counts
    })
}

#[test]
fn killed_with_fsync_always_nothing_acknowledged_is_lost() {
    let counts = campaign("always", lives::kills(10, 20));
    println!("fsync always: {counts}");
}

#[test]
fn killed_with_fsync_at_intervals_nothing_acknowledged_is_lost() {
    let counts = campaign("interval:50", lives::kills(5, 20));
    println!("fsync at intervals: {counts}");
}

#[test]
fn killed_without_fsync_nothing_acknowledged_is_lost() {
    let counts = campaign("never", lives::kills(5, 20));
    println!("no fsync: {counts}");
}
