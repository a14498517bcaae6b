//! Tests of the attempts held, and of the log that describes them.

use super::{AttemptState, Attempts};
use crate::ids::ProcessId;
use crate::keeper::protocol::{Report, Started};
use crate::keeper::record::Record;
use crate::kernel::wait::ChildExit;

fn started(attempt: u128, pid: u32) -> Started {
    Started {
        attempt: ProcessId(attempt),
        pid,
        namespace: 1,
        inode: 2,
        ticks: 3,
        at: 4,
        contained: false,
    }
}

fn ended(pid: u32) -> ChildExit {
    ChildExit { pid, status: 0x700, cpu_ms: 1, memory_max: 2 }
}

#[test]
fn a_log_tells_what_was_held_but_not_whose_children_they_were() {
    let mut attempts = Attempts::default();
    for (attempt, pid) in [(1, 11), (2, 12), (3, 13), (4, 14)] {
        attempts.start(started(attempt, pid));
    }
    attempts.run(ProcessId(1));
    attempts.fail(ProcessId(2), 9, 2);
    let exited = attempts.end(&ended(13), 99).expect("the process is a child of ours");
    assert_eq!(attempts.end(&ended(12), 99), None, "the attempt has already failed");
    attempts.end(&ended(14), 99).expect("the process is a child of ours");
    assert!(attempts.forget(ProcessId(4)).is_some());
    assert_eq!(attempts.forget(ProcessId(1)), None, "its process is still alive");

    let records: Vec<Record> = attempts.records().collect();
    let next = Attempts::restored(&records, |_| false);
    let report = |attempt| next.report(ProcessId(attempt));
    assert_eq!(report(1), Some(Report::Orphaned(started(1, 11))));
    assert!(matches!(report(2), Some(Report::Failed { step: 9, .. })));
    assert_eq!(report(3), Some(Report::Exited(exited)));
    assert_eq!(report(4), None);
    assert_eq!(next.alive(), 0);
    let ours = Attempts::restored(&records, |started| started.pid == 11);
    assert_eq!(ours.get(ProcessId(1)), Some(&AttemptState::Running(started(1, 11))));
    assert_eq!((ours.alive(), ours.len()), (1, 3));
}

#[test]
fn an_intent_alone_is_nothing_and_an_end_without_a_start_neither() {
    let end = Record::Exited { attempt: ProcessId(2), status: 0, at: 0, cpu_ms: 0, memory_max: 0 };
    let attempts = Attempts::restored(&[Record::Intent(ProcessId(1)), end], |_| false);
    assert!(attempts.is_empty());
}

#[test]
fn all_are_walked_once_while_some_come_and_go() {
    let mut attempts = Attempts::default();
    for attempt in 0..10 {
        attempts.fail(ProcessId(attempt), 1, 0);
    }
    let mut seen = Vec::new();
    let mut at = None;
    while let Some(attempt) = attempts.after(at) {
        seen.push(attempt.0);
        attempts.forget(attempt);
        at = Some(attempt);
    }
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}
