//! Runs a million short processes, and checks that neither the records nor the indexes grow without bound.

use super::step::BEGIN;
use crate::actors::process::{
    End, Identity, Launching, Message, Outcome, Parentage, Phase, ProcessMachine, Remains, Rules,
    Spec,
};
use crate::bytes::Bytes;
use crate::clock::{Now, Offset};
use crate::ids::{Chance, ProcessId, Seq};
use crate::spine::machine::{Effects, Machine as _, Moment};

const ALL: u64 = 1_000_000;
const RECORDS_MAX: u32 = 1000;

/// A machine, and the sequence number of its last entry.
struct Churn {
    machine: ProcessMachine,
    seq: u64,
}

impl Churn {
    fn now(&self) -> Now {
        Now { at: BEGIN.plus_ms(self.seq / 3), offset: Offset(0) }
    }

    fn send(&mut self, message: &Message) -> Outcome {
        self.seq += 1;
        let moment = Moment {
            seq: Seq(self.seq),
            now: self.now(),
            chance: Chance([3; 32]),
            ..Moment::default()
        };
        let outcome = self.machine.decide(&moment, message);
        let mut effects = Effects::<ProcessMachine>::default();
        self.machine.commit(moment.stamp(), message, &outcome, &mut effects);
        outcome
    }

    /// Launches and starts a process, and returns its id.
    fn launch(&mut self, number: u64, named: Option<ProcessId>) -> ProcessId {
        let argv = [b"job".to_vec(), number.to_string().into_bytes()];
        let launching = Launching {
            spec: Spec { argv: argv.map(Bytes::new).to_vec(), ..Spec::default() },
            parentage: Parentage { named, ..Parentage::default() },
            ..Launching::default()
        };
        let launched = self.send(&Message::Launch(Box::new(launching)));
        let Outcome::Launched(insertion) = launched else {
            panic!("the launch was not accepted: {launched:?}");
        };
        let id = insertion.id;
        let identity = Identity {
            machine: 7,
            boot: 1,
            namespace: 3,
            pid: 2 + u32::try_from(number % 30_000).expect("the remainder is small"),
            inode: 100 + number,
            ticks: number,
        };
        let (at, contained) = (self.now().date(), true);
        self.send(&Message::Started { id, identity, at, contained });
        id
    }
}

#[test]
fn a_million_short_processes_leave_no_more_than_the_limit() {
    let rules = Rules { records_max: RECORDS_MAX, ..Rules::default() };
    let mut churn = Churn { machine: ProcessMachine::new(rules), seq: 0 };
    let root = churn.launch(0, None);
    for number in 1..ALL {
        let id = churn.launch(number, Some(root));
        let at = churn.now().date();
        let left = Box::new(Remains { empty: true, ..Remains::default() });
        let end = End::Code(0);
        churn.send(&Message::Ended { id, end, at, left });
        if number % (ALL / 10) == 0 {
            let (records, index) = (&churn.machine.state.records, &churn.machine.state.index);
            let most = RECORDS_MAX as usize;
            assert_eq!([records.len(), index.ids.len()], [most; 2], "after {number}");
            assert_eq!(index.children.len(), most - 1, "after {number}");
            assert_eq!(index.trees.len(), most - 1, "after {number}");
            assert_eq!(index.removable.len(), most - 1, "after {number}");
            // Free slots are reused.
            assert!(records.extent() <= RECORDS_MAX, "after {number}");
        }
    }
    // The live record is kept, and the indexes equal those that are built anew from the records.
    let (_, record) = churn.machine.state.find(root).expect("a live record is kept");
    assert_eq!(record.phase, Phase::Running);
    churn.machine.assert_whole();
}
