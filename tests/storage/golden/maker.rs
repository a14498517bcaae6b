//! Makes a data directory with an example of everything that a format can contain. It uses no clock, no random numbers
//! and no threads except sled's, so the content is the same each time.

use crate::directory::{SEGMENTS, name};
use sexton::actors::lock::{self, LockMachine, Name};
use sexton::actors::queue::{
    Body, Claimant, Class, DedupKey, Message as Job, Pop, Put, QueueMachine, QueueName, Right,
    Root, Rules, TypeRules, Worker,
};
use sexton::clock::{ManualClock, Timestamp};
use sexton::ids::{ActorId, Chance};
use sexton::ids::{RequestKey, Seq, Token};
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::journal::{InlineFiller, Tail, Writer};
use sexton::persist::mark::{Marked, Watermark};
use sexton::persist::retention::trim;
use sexton::persist::snapshots::{Manifest, Page, SledStores, SlotId, SlotWriter, Slots};
use sexton::spine::delivery::Stage;
use sexton::spine::ledger::{Entry, Ledger, Poisoned};
use sexton::spine::machine::{self, Draining, Durability, Machine as _, Now};
use sexton::spine::pages::slice;
use sexton::spine::receipts::Receipts;
use sexton::spine::recovery::digest;
use std::path::Path;
use std::sync::Arc;

/// One in this many entries of an actor has a message with an idempotency key.
const KEYED: u64 = 8;

/// A machine without its actor, its remembered replies, its number of entries, and its last entry.
struct Actor<M> {
    machine: M,
    receipts: Receipts,
    entries: u64,
    last: Seq,
}

/// A coordinator without threads: its machines, one ledger and one writer, driven step by step.
struct Maker {
    disk: Arc<dyn Disk>,
    slots: Slots,
    clock: Arc<ManualClock>,
    ledger: Ledger,
    writer: Writer,
    locks: Actor<LockMachine>,
    queues: Actor<QueueMachine>,
    /// The entry up to which the latest snapshot has the state.
    older: Seq,
}

/// Makes the directory.
pub(crate) fn make(data: &Path) {
    let mut maker = Maker::start(data);
    for number in 0..400 {
        maker.request(number);
    }
    maker.fill();
    maker.lock(&lock::Message::Renew {
        key: name("key 3"),
        index: name(""),
        owner: name("owner 3"),
        token: None,
    });
    maker.clock.advance_ms(9_500);
    maker.pass();
    maker.checkpoint(SlotId::A);
    for number in 400..700 {
        maker.request(number);
    }
    maker.work();
    maker.poison();
    let everything = lock::Message::Release {
        key: name("key 5"),
        index: None,
        owner: name("owner 5"),
        token: None,
    };
    maker.lock(&everything);
    maker.clock.set_offset_ms(90_000);
    maker.ledger.watch_wall_clock();
    maker.checkpoint(SlotId::B);
    for number in 700..900 {
        maker.request(number);
    }
    maker.fill();
    maker.lock(&lock::Message::ReleaseAll { owner: name("owner 7") });
    maker.lock(&lock::Message::Drain);
    maker.job(&Job::Drain);
    maker.ledger.drain(ActorId::LOCK, Draining::All);
    maker.ledger.drain(ActorId::QUEUE, Draining::Additions);
    // There is no clean stop, as after a kill. So a later startup continues the sequence numbers at the reserved bound.
    maker.write();
}

fn queue(name: &str) -> QueueName {
    QueueName::parse(name.as_bytes()).expect("a valid name")
}

fn pop(names: &[&str], by: Claimant, weights: &[u32]) -> Job {
    Job::Pop(Pop {
        queues: names.iter().map(|name| queue(name)).collect(),
        by,
        waits: false,
        ticket: None,
        weights: weights.into(),
        ttr_ms: 0,
        any: None,
    })
}

fn bury(id: u64, by: Right, priority: Option<u32>) -> Job {
    Job::Bury { id, by, priority }
}

/// Returns rules for queues of each class and with each option.
fn rules() -> Rules {
    let default =
        TypeRules { claim_ttl_ms: 3_600_000, max_tries: 0, backoff: None, ..TypeRules::default() };
    let few = TypeRules { max_tries: 1, claim_ttl_ms: 1000, ..default.clone() };
    let memory = TypeRules { class: Class::Memory, ..default.clone() };
    let types = [("few", few), ("memory", memory)];
    Rules {
        types: types.map(|(name, rules)| (name.to_owned(), rules)).into(),
        default,
        ..Rules::default()
    }
}

impl<M: machine::Actor> Actor<M> {
    fn new(machine: M) -> Self {
        Self { machine, receipts: Receipts::default(), entries: 0, last: Seq(0) }
    }

    fn decide(&mut self, ledger: &mut Ledger, at: Timestamp, message: &M::Message) {
        let offset = ledger.both().offset;
        let moment = ledger.moment(M::ID, Now { at, offset });
        let outcome = self.machine.decide(&moment, message);
        let durability = self.machine.durability(message, &outcome);
        if durability == Durability::Nothing {
            return;
        }
        let stamp = ledger.order_some(at, M::numbers(&outcome));
        let mut effects = machine::Effects::<M>::default();
        self.machine.commit(stamp, message, &outcome, &mut effects);
        self.entries += 1;
        let key = self.entries.is_multiple_of(KEYED).then(|| RequestKey {
            id: u128::from(stamp.seq.0) << 64 | 0xf0,
            fingerprint: u128::from(stamp.at.0),
        });
        if let Some(key) = key {
            let pages = self.machine.pages();
            self.receipts.note(pages, stamp, (key, &outcome));
        }
        let outcome = &outcome;
        let entry = Entry { message, outcome, key };
        if durability == Durability::Durable || key.is_some() {
            ledger.append(M::ID, stamp, &entry);
        } else {
            ledger.append_transient(M::ID, stamp, &entry);
        }
        self.last = stamp.seq;
    }

    /// Processes everything that is due now.
    fn pass(&mut self, ledger: &mut Ledger) {
        let now = ledger.both();
        while let Some(item) = self.machine.due(now) {
            let tick = self.machine.tick(item);
            self.decide(ledger, now.at, &tick);
        }
    }

    fn state(&self) -> Watermark {
        Watermark { actor: M::ID, upto: self.last, digest: digest(&self.machine, &self.receipts) }
    }

    fn copy(&mut self, writer: &mut SlotWriter) {
        self.machine.pages().begin(Seq(0), self.last);
        loop {
            let (copied, done) = slice(&mut self.machine, &self.receipts, 1 << 16);
            for page in copied {
                let page = Page {
                    actor: M::ID,
                    page: page.page,
                    changed: page.changed,
                    content: page.content,
                };
                writer.put(&page).expect("a writable file");
            }
            if done {
                break;
            }
        }
    }
}

impl Maker {
    fn start(data: &Path) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(data));
        disk.create_folder("").expect("a new directory");
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let tail = Tail::default();
        let filler = Box::new(InlineFiller::new(Arc::clone(&disk)));
        let writer = Writer::open(Arc::clone(&disk), SEGMENTS, filler, &tail);
        let stores = Arc::new(SledStores::new(data));
        let mut maker = Self {
            slots: Slots::new(Arc::clone(&disk), stores),
            ledger: Ledger::new(Arc::clone(&clock) as _, &tail, Marked::default(), false),
            writer: writer.expect("the journal opens"),
            locks: Actor::new(LockMachine::new(lock::Rules::default())),
            queues: Actor::new(QueueMachine::new(rules())),
            older: Seq(0),
            disk,
            clock,
        };
        let start = maker.ledger.start(Chance([0x5e; 32]));
        maker.ledger.rules(QueueMachine::ID, &rules());
        maker.locks.machine.start(start);
        maker.queues.machine.start(start);
        maker.locks.last = start.stamp.seq;
        maker.queues.last = start.stamp.seq;
        maker.write();
        maker
    }

    /// Requests one of a few hundred locks, with names of every kind. Some of them have waiters, and some expire soon.
    fn request(&mut self, number: u16) {
        let index = match number % 4 {
            0 => Name::new([0xff, 0, b'\\', b'"', number.to_le_bytes()[0]]),
            1 => Name::new("é ".repeat(usize::from(number % 60)).into_bytes()),
            _ => Name::new([]),
        };
        let message = lock::Message::Request {
            key: name(&format!("key {}", number % 150)),
            index: index.expect("the name is short"),
            owner: name(&format!("owner {}", number % 170)),
            ttl: if number.is_multiple_of(7) { 9 } else { 60_000 },
            ttw: if number.is_multiple_of(5) { 8 } else { u16::MAX },
            priority: number.to_le_bytes()[0],
        };
        self.lock(&message);
        self.clock.advance_ms(3);
        if number.is_multiple_of(50) {
            self.write();
        }
    }

    fn lock(&mut self, message: &lock::Message) {
        self.pass();
        let at = self.ledger.now();
        self.locks.decide(&mut self.ledger, at, message);
    }

    fn job(&mut self, message: &Job) {
        self.pass();
        let at = self.ledger.now();
        self.queues.decide(&mut self.ledger, at, message);
    }

    /// Processes everything that is due now, in all machines.
    fn pass(&mut self) {
        self.locks.pass(&mut self.ledger);
        self.queues.pass(&mut self.ledger);
    }

    /// Adds jobs of every kind: long and short, ready and delayed, of tenants, with and without retries, in memory, with
    /// keys and roots.
    fn fill(&mut self) {
        let names = ["mails", "tenant:mails", "few", "memory", "a+b/c;d.e$f_(g)"];
        for (number, name) in (0..120_u32).zip(names.iter().cycle()) {
            let plain = Put::new(
                queue(name),
                Body::new(vec![0xf0 ^ number.to_le_bytes()[0]; number as usize * 7]),
            );
            let root =
                Root { key: DedupKey::of(&[number.to_le_bytes()[0] % 3]), at: number.into() };
            self.job(&Job::Put(Put {
                priority: number % 5 * 500,
                delay_ms: u64::from(number % 3) * 4000,
                ttr_ms: u64::from(number % 4) * 2500,
                dedup: (number % 6 == 0).then(|| DedupKey::of(&number.to_le_bytes())),
                retries: number % 7 != 0,
                root: (number % 8 == 0).then_some(root),
                is_root: number % 16 == 0,
                ..plain
            }));
            self.clock.advance_ms(1);
        }
        let batch = ["first", "second", "third"].map(|body| Put {
            dedup: Some(DedupKey::of(b"of a batch")),
            ..Put::new(queue("batches"), Body::new(body.as_bytes()))
        });
        self.job(&Job::Batch(batch.into()));
        self.job(&Job::Register(Root { key: DedupKey::of(b"registered"), at: 20_260_101_000_000 }));
        self.job(&Job::Spoil);
    }

    /// Claims jobs in each possible way.
    fn claim(&mut self) {
        for number in 1..8 {
            let worker = Claimant::Worker(Worker(number));
            self.job(&pop(&["mails", "few", "memory"], worker, &[]));
            self.job(&pop(&["tenant:mails", "mails"], Claimant::Bearer, &[2, 5]));
            self.job(&pop(&["few"], Claimant::Bearer, &[]));
        }
    }

    /// Ends claims in each possible way, and performs each operation on queues.
    fn work(&mut self) {
        self.claim();
        for id in 1..60 {
            let by = Claimant::Worker(Worker(id % 8));
            let worker = Right::Worker(Worker(id % 8));
            for right in [worker, Right::Unclaimed, Right::Token(Token(id))] {
                self.job(&match id % 6 {
                    0 => bury(id, right, Some(9)),
                    1 => Job::Release { id, by: right, priority: None, delay_ms: id * 100 },
                    2 => Job::Touch { id, by: right },
                    3 => Job::Fail {
                        id,
                        by: right,
                        retry_after_ms: Some(50_000),
                        error: None,
                        crashed: false,
                    },
                    4 => Job::Delete { id, by: right },
                    _ => Job::PopJob { id, by },
                });
            }
        }
        let pause = |name, ms| Job::Pause { queue: queue(name), ms };
        self.job(&pause("mails", 3_600_000));
        self.job(&pause("nobody", 10));
        self.clock.advance_ms(2000);
        let (mails, few, odd) = (queue("mails"), queue("few"), queue("a+b/c;d.e$f_(g)"));
        let count = 1;
        self.job(&Job::Kick { queue: mails, count });
        self.job(&Job::Repush { queue: few, count });
        self.job(&Job::KickJob { id: 6 });
        self.job(&Job::Depart { worker: Worker(2) });
        self.job(&Job::Flush { queue: odd });
        self.job(&pop(&["batches"], Claimant::Bearer, &[]));
        for id in 61..90 {
            let by = Claimant::Worker(Worker(3));
            self.job(&Job::PopJob { id, by });
            self.job(&bury(id, Right::Worker(Worker(3)), None));
        }
    }

    /// Records a message as one that panicked.
    fn poison(&mut self) {
        let at = self.ledger.now();
        let stamp = self.ledger.order(at);
        let poisoned = Poisoned {
            stage: Stage::Decide,
            cause: "it was made up".to_owned(),
            message: lock::Message::Drain,
        };
        self.ledger.poison(LockMachine::ID, stamp, &poisoned);
    }

    fn write(&mut self) {
        let mut batch = self.ledger.take_batch();
        self.writer.write(&mut batch).expect("a writable file");
        self.writer.sync().expect("it can be synced");
        self.ledger.durable(batch.last());
    }

    fn checkpoint(&mut self, slot: SlotId) {
        self.write();
        let mut writer = self.slots.write(slot).expect("a writable file");
        let manifest = Manifest {
            begun: self.ledger.last(),
            states: vec![self.locks.state(), self.queues.state()],
            at: self.ledger.now(),
            reserved: self.ledger.reserved(),
            marked: self.ledger.marked().clone(),
        };
        self.locks.copy(&mut writer);
        self.queues.copy(&mut writer);
        let closed = writer.close(&manifest).expect("it can be closed");
        let mark = self.ledger.checkpoint(slot.number(), manifest.states).seq;
        self.write();
        self.slots.seal(closed, mark).expect("it can be sealed");
        trim(self.disk.as_ref(), self.older).expect("it can be trimmed");
        self.older = manifest.begun;
    }
}
