//! Makes a data directory with something of everything that a format can hold. No clock, no chance and no thread is in
//! it but sled's, so it holds the same each time.

use crate::directory::{SEGMENTS, name};
use sexton::actors::ledger::{Ledger, Poisoned, Stage};
use sexton::actors::lock::{LockMachine, Message, Name, Rules};
use sexton::actors::machine::{Effects, Keeping, Machine as _, Stamp};
use sexton::actors::pages::slice;
use sexton::clock::{ManualClock, Timestamp};
use sexton::ids::Seq;
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::format::{Chance, Watermark};
use sexton::persist::journal::{InlineFiller, Tail, Writer};
use sexton::persist::retention::trim;
use sexton::persist::snapshots::{Manifest, Page, SledStores, SlotId, Slots};
use std::path::Path;
use std::sync::Arc;

/// A coordinator without its shell: one machine, one ledger, one writer, moved by hand.
struct Maker {
    disk: Arc<dyn Disk>,
    slots: Slots,
    clock: Arc<ManualClock>,
    ledger: Ledger,
    writer: Writer,
    locks: LockMachine,
    last: Seq,
    /// Up to where the newest snapshot goes.
    older: Seq,
}

/// Makes it.
pub(crate) fn make(data: &Path) {
    let mut maker = Maker::start(data);
    for number in 0..400 {
        maker.request(number);
    }
    maker.carry_out(&Message::Renew {
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
    maker.poison();
    let everything = Message::Release {
        key: name("key 5"),
        index: None,
        owner: name("owner 5"),
        token: None,
    };
    maker.carry_out(&everything);
    maker.clock.set_offset_ms(90_000);
    maker.ledger.watch_wall_clock();
    maker.checkpoint(SlotId::B);
    for number in 700..900 {
        maker.request(number);
    }
    maker.carry_out(&Message::ReleaseAll {
        owner: name("owner 7"),
    });
    maker.carry_out(&Message::Drain);
    // No stop: the end is one after a kill, behind which numbers go on at what was reserved.
    maker.write();
}

impl Maker {
    fn start(data: &Path) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(data));
        disk.create_folder("").expect("it can be made");
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let tail = Tail::default();
        let filler = Box::new(InlineFiller::new(Arc::clone(&disk)));
        let writer = Writer::open(Arc::clone(&disk), SEGMENTS, filler, &tail);
        let stores = Arc::new(SledStores::new(data));
        let mut maker = Self {
            slots: Slots::new(Arc::clone(&disk), stores),
            ledger: Ledger::new(Arc::clone(&clock) as _, &tail, false),
            writer: writer.expect("the journal opens"),
            locks: LockMachine::new(Rules::default()),
            last: Seq(0),
            older: Seq(0),
            disk,
            clock,
        };
        let start = maker.ledger.start(Chance([0x5e; 32]));
        maker.locks.start(start);
        maker.last = start.stamp.seq;
        maker.write();
        maker
    }

    /// One of a few hundred locks under names of every kind: some are waited for, some end soon.
    fn request(&mut self, number: u16) {
        let index = match number % 4 {
            0 => Name::new([0xff, 0, b'\\', b'"', number.to_le_bytes()[0]]),
            1 => Name::new("é ".repeat(usize::from(number % 60)).into_bytes()),
            _ => Name::new([]),
        };
        let message = Message::Request {
            key: name(&format!("key {}", number % 150)),
            index: index.expect("it is short"),
            owner: name(&format!("owner {}", number % 170)),
            ttl: if number.is_multiple_of(7) { 9 } else { 60_000 },
            ttw: if number.is_multiple_of(5) {
                8
            } else {
                u16::MAX
            },
            priority: number.to_le_bytes()[0],
        };
        self.carry_out(&message);
        self.clock.advance_ms(3);
        if number.is_multiple_of(50) {
            self.write();
        }
    }

    fn carry_out(&mut self, message: &Message) {
        self.pass();
        let at = self.ledger.now();
        self.decide(at, message);
    }

    /// Lets happen what is due.
    fn pass(&mut self) {
        let at = self.ledger.now();
        while let Some(item) = self.locks.due(at) {
            let tick = self.locks.tick(item);
            self.decide(at, &tick);
        }
    }

    fn decide(&mut self, at: Timestamp, message: &Message) {
        let outcome = self.locks.decide(at, message);
        if self.locks.keeping(message, &outcome) == Keeping::Nothing {
            return;
        }
        let stamp: Stamp = self.ledger.order(at);
        let mut effects = Effects::default();
        self.locks.commit(stamp, message, &outcome, &mut effects);
        self.ledger
            .append(LockMachine::ID, stamp, &(message, &outcome));
        self.last = stamp.seq;
    }

    /// A message that panicked.
    fn poison(&mut self) {
        let at = self.ledger.now();
        let stamp = self.ledger.order(at);
        let poisoned = Poisoned {
            stage: Stage::Decide,
            cause: "it was made up".to_owned(),
            message: Message::Drain,
        };
        self.ledger.poison(LockMachine::ID, stamp, &poisoned);
    }

    fn write(&mut self) {
        let mut batch = self.ledger.take_batch();
        self.writer.write(&mut batch).expect("it can be written");
        self.writer.sync().expect("it can be synced");
        self.ledger.durable(batch.last());
    }

    fn checkpoint(&mut self, slot: SlotId) {
        self.write();
        let mut writer = self.slots.write(slot).expect("it can be written");
        let state = Watermark {
            actor: LockMachine::ID,
            upto: self.last,
            digest: self.locks.digest(),
        };
        let manifest = Manifest {
            begun: self.ledger.last(),
            states: vec![state],
            at: self.ledger.now(),
            reserved: self.ledger.reserved(),
        };
        self.locks.pages().begin(Seq(0), self.last);
        loop {
            let (copied, done) = slice(&mut self.locks, 1 << 16);
            for page in copied {
                let page = Page {
                    actor: LockMachine::ID,
                    page: page.page,
                    changed: page.changed,
                    content: page.content,
                };
                writer.put(&page).expect("it can be written");
            }
            if done {
                break;
            }
        }
        let closed = writer.close(&manifest).expect("it can be closed");
        let mark = self.ledger.checkpoint(slot.number(), manifest.states).seq;
        self.write();
        self.slots.seal(closed, mark).expect("it can be sealed");
        trim(self.disk.as_ref(), self.older).expect("it can be trimmed");
        self.older = manifest.begun;
    }
}
