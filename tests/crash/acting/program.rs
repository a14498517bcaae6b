//! The process that is killed: two counters, a journal and bells, connected as in a node.

use super::late::Late;
use super::wires::Wires;
use super::world::Bells;
use crate::counter::{CounterMachine, CounterMessage, LEFT, RIGHT};
use sexton::clock::SystemClock;
use sexton::ids::{ActorId, Chance, Seq, Slot};
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::journal::{Fsync, Journal, JournalThread, Sizes, ThreadFiller, Writer};
use sexton::persist::snapshots::{SledStores, Slots};
use sexton::spine::Host;
use sexton::spine::delivery::Item;
use sexton::spine::directory::Admission;
use sexton::spine::ledger::Ledger;
use sexton::spine::machine::Start;
use sexton::spine::recovery::{Recovering, Replica, Scope, recover};
use sexton::spine::runtime::{self, Mailbox};
use sexton::spine::shared::{Spine, SpineFiles};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

pub(super) const DATA: &str = "SEXTON_COUNTERS_DATA";
pub(super) const PLANT: &str = "SEXTON_COUNTERS_PLANT";
pub(super) const ADDS: &str = "SEXTON_COUNTERS_ADDS";

type Counters<const ID: u8> = CounterMachine<ID>;

static STARTED: OnceLock<Seq> = OnceLock::new();

/// Returns the sequence number of the mark that this process wrote at startup.
pub(super) fn started() -> Seq {
    *STARTED.get().expect("it was noted")
}

#[expect(clippy::disallowed_methods, reason = "the process is configured by its environment")]
fn said(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
#[ignore = "is run by the other tests here, as a process of its own"]
fn counters() {
    let Some(data) = said(DATA).map(PathBuf::from) else {
        return;
    };
    let plant = said(PLANT).unwrap_or_default();
    let adds = said(ADDS).and_then(|adds| adds.parse().ok());
    let adds: u32 = adds.expect("the variable is a number");
    runtime::block_on(async move {
        let (left, right, _thread) = open(&data, &plant);
        tokio::join!(add(left, adds), add(right, adds));
        std::future::pending::<()>().await;
    });
}

/// Replays the log into both actors, and starts them.
fn open(
    data: &Path,
    plant: &str,
) -> (Mailbox<Counters<LEFT>>, Mailbox<Counters<RIGHT>>, JournalThread) {
    let disk: Arc<dyn Disk> =
        if plant == "early" { Arc::new(Late::new(data)) } else { Arc::new(RealDisk::new(data)) };
    let slots = Slots::new(Arc::clone(&disk), Arc::new(SledStores::new(data)));
    let (mut left, mut right) = (Replica::new(()), Replica::new(()));
    let replicas: &mut [&mut dyn Recovering] = &mut [&mut left, &mut right];
    let past = recover(disk.as_ref(), Some(&slots), replicas, Scope::default());
    let past = past.expect("the journal reads");
    let clock = Arc::new(SystemClock::starting_at(past.tail.last_at));
    let filler = ThreadFiller::start(Arc::clone(&disk), 7).expect("a new thread");
    let writer = Writer::open(Arc::clone(&disk), Sizes::default(), Box::new(filler), &past.tail);
    let mut writer = writer.expect("the journal is continued");
    let mut ledger = Ledger::new(clock, &past.tail, past.marked, false);
    let start = ledger.start(Chance([7; 32]));
    writer.write(&mut ledger.take_batch()).expect("a writable file");
    writer.sync().expect("it is on disk");
    // This cannot fail, since a process opens the journal once.
    let _ = STARTED.set(start.stamp.seq);
    let (journal, thread) = Journal::start(writer, Fsync::Always).expect("a new thread");
    let files = SpineFiles { journal, disk, slots };
    let (halt, _) = watch::channel(None);
    let spine = Rc::new(Spine::new(ledger, Some(files), halt));
    let writing = Rc::clone(&spine);
    runtime::spawn("journal writer", async move { writing.write_forever().await });
    let releasing = Rc::clone(&spine);
    runtime::spawn("release of answers", async move {
        releasing.release_forever().await;
    });
    let (mut left, mut right) = (host(left, start), host(right, start));
    if plant == "undrained" {
        // The tells that the actors requested in `resume` are discarded.
        drop((left.take_tells(), right.take_tells()));
    }
    let bells = |files: &Path| (files.to_owned(), plant.to_owned());
    let ((files, plant), (of_right, planted)) = (bells(data), bells(data));
    let left = runtime::start(left, (), &spine, Admission::new(64), move |completions| {
        Box::new(Bells::start(&files, plant, completions))
    });
    let of_left = planted.clone();
    let right = runtime::start(right, (), &spine, Admission::new(64), move |completions| {
        Box::new(Bells::start(&of_right, of_left, completions))
    });
    for actor in [LEFT, RIGHT] {
        Wires::between(&spine, ActorId(actor), &planted);
    }
    (left, right, thread)
}

fn host<const ID: u8>(replica: Replica<Counters<ID>>, start: Start) -> Host<Counters<ID>> {
    let mut host = Host::new(replica.into_parts());
    host.start(start).expect("it begins");
    host
}

/// Adds to four counters in turn, this many times in total, and prints each addition.
#[expect(clippy::print_stdout, reason = "the test that kills this process counts the lines")]
async fn add<const ID: u8>(counters: Mailbox<Counters<ID>>, times: u32) {
    for name in (0..times).map(|time| time % 4) {
        // The span after which an unanswered request is repeated is an hour, so that only a restart can repair a loss.
        let addition = (Slot(name), CounterMessage::Add(3, 3_600_000, String::new()));
        let answer = counters.call(vec![Item::Message(addition)]).await;
        println!("answered {ID} {name} {answer:?}");
    }
}
