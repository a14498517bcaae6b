//! Tests with intact, torn and damaged logs.

use super::{Contents, Log, LogError, NAME, read};
use crate::ids::ProcessId;
use crate::keeper::record::{LENGTH, Record, header};
use std::fs;
use std::path::Path;

const BOOT: u128 = 7;

fn intent(number: u128) -> Record {
    Record::Intent(ProcessId(number))
}

fn with_three(data: &Path) {
    let mut log = Log::begin(data, BOOT, [intent(0)].into_iter()).expect("the log is written");
    log.intend(intent(1), 0).expect("there is space");
    log.append(intent(2)).expect("there is space");
}

fn numbers(contents: &Contents) -> Vec<u128> {
    let number = |record: &Record| match record {
        Record::Intent(attempt) | Record::Forgotten(attempt) => attempt.0,
        other @ (Record::Started(_) | Record::Exited { .. } | Record::Failed { .. }) => {
            panic!("not written: {other:?}")
        }
    };
    contents.records.iter().map(number).collect()
}

#[test]
fn what_was_appended_is_read_and_another_boot_has_nothing() {
    let data = tempfile::tempdir().expect("there is space");
    assert_eq!(read(data.path(), BOOT).expect("a missing log is empty"), Contents::default());
    with_three(data.path());
    let contents = read(data.path(), BOOT).expect("the log can be read");
    assert_eq!((numbers(&contents), contents.damaged), (vec![0, 1, 2], 0));
    let other = read(data.path(), BOOT + 1).expect("the log can be read");
    assert_eq!(other, Contents::default());
}

#[test]
fn a_torn_end_and_a_damaged_middle_cost_what_they_hit() {
    let data = tempfile::tempdir().expect("there is space");
    with_three(data.path());
    let path = data.path().join(NAME);
    let whole = fs::read(&path).expect("the log exists");
    assert_eq!(whole.len(), 4 * LENGTH, "reserved space does not count as length");
    for end in 0..whole.len() {
        fs::write(&path, &whole[..end]).expect("there is space");
        let contents = read(data.path(), BOOT).expect("the log can be read");
        let wanted = (end / LENGTH).saturating_sub(1);
        assert_eq!(contents.records.len(), wanted, "cut at {end}");
    }
    let mut damaged = whole.clone();
    damaged[2 * LENGTH + 9] ^= 1;
    fs::write(&path, &damaged).expect("there is space");
    let contents = read(data.path(), BOOT).expect("the log can be read");
    assert_eq!((numbers(&contents), contents.damaged), (vec![0, 2], 1));
    damaged.copy_from_slice(&whole);
    damaged[20] ^= 1;
    fs::write(&path, &damaged).expect("there is space");
    let contents = read(data.path(), BOOT).expect("the log can be read");
    assert_eq!(contents, Contents::default(), "the boot of the log is unknown");
}

#[test]
fn a_newer_log_is_refused() {
    let data = tempfile::tempdir().expect("there is space");
    let mut bytes = header(BOOT);
    bytes[8] = 2;
    let sum = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    fs::write(data.path().join(NAME), bytes).expect("there is space");
    let found = read(data.path(), BOOT);
    assert!(matches!(found, Err(LogError::TooNew { found: 2, .. })));
}

#[test]
fn compaction_leaves_what_is_held() {
    let data = tempfile::tempdir().expect("there is space");
    let mut log = Log::begin(data.path(), BOOT, std::iter::empty()).expect("the log is written");
    for number in 0..5000 {
        log.append(intent(number)).expect("there is space");
    }
    assert!(log.is_mostly_past(1) && !log.is_mostly_past(3000));
    log.compact([intent(7)].into_iter()).expect("there is space");
    log.forget(&[ProcessId(8), ProcessId(9)]);
    let contents = read(data.path(), BOOT).expect("the log can be read");
    assert_eq!(numbers(&contents), [7, 8, 9]);
    assert!(!log.is_incomplete());
}

#[test]
fn what_cannot_be_written_anew_goes_on_as_it_is() {
    let data = tempfile::tempdir().expect("there is space");
    with_three(data.path());
    let mut torn = fs::read(data.path().join(NAME)).expect("the log exists");
    torn.extend([7; 20]);
    fs::write(data.path().join(NAME), torn).expect("there is space");
    // A file cannot be created where there is a directory.
    fs::create_dir(data.path().join(super::NEXT)).expect("there is space");
    let anew = Log::begin(data.path(), BOOT, std::iter::empty());
    assert!(matches!(anew, Err(LogError::Io { .. })));
    let contents = read(data.path(), BOOT).expect("the log can be read");
    assert_eq!(contents.places, Some(4), "the torn record has its own slot");
    let mut log = Log::resume(data.path(), BOOT, 4).expect("the log exists");
    log.intend(intent(3), 3).expect("there is space");
    log.compact(std::iter::empty()).expect_err("the new log still cannot be created");
    log.append(intent(4)).expect("there is space");
    let contents = read(data.path(), BOOT).expect("the log can be read");
    assert_eq!(numbers(&contents), [0, 1, 2, 3, 4]);
    assert_eq!(contents.damaged, 1);
}
