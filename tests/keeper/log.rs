//! Starting a keeper on logs that a crash, a disk error or another boot left.

use crate::wire::{Kept, attempt};
use sexton::keeper::protocol::Report;
use sexton::kernel::host;
use std::fs;

const LENGTH: usize = 64;

fn sealed(mut bytes: [u8; LENGTH]) -> [u8; LENGTH] {
    let sum = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the header of a log, as specified in `docs/protocols/keeper.md`.
fn header(boot: u128) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(b"sextonkl");
    bytes[8] = 1;
    bytes[16..32].copy_from_slice(&boot.to_le_bytes());
    sealed(bytes)
}

fn record(kind: u8, attempt_number: u64, number: u8) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[0] = kind;
    bytes[4] = 5; // PID, status or errno
    bytes[8..24].copy_from_slice(&attempt(attempt_number).0.to_be_bytes());
    bytes[56] = number;
    sealed(bytes)
}

#[test]
fn an_intent_alone_never_ran_and_may_be_asked_for_again() {
    let mut kept = Kept::unkept();
    let log = [header(host::boot()), record(1, 1, 0)].concat();
    fs::write(kept.path("keeper.log"), log).expect("the disk has space");
    kept.start();
    let (mut peer, told) = kept.hello();
    assert_eq!(told.len(), 1);
    assert_eq!(peer.run_through(attempt(1), kept.shell("exit 4")), 0x400);
}

#[test]
fn damage_costs_what_it_hit() {
    let mut kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let mut exits = Vec::new();
    for number in 0..3 {
        peer.launch(attempt(number), kept.shell(&format!("exit {number}")));
        exits.push(Report::Exited(peer.exit(attempt(number))));
    }
    kept.kill();
    let path = kept.path("keeper.log");
    let mut log = fs::read(&path).expect("the file exists");
    assert_eq!(log.len(), LENGTH * 10, "three records each, and the header");
    // Damages the second attempt's record of its start, and appends half a record at the end.
    log[LENGTH * 5 + 10] ^= 0x40;
    log.extend([7; 20]);
    fs::write(&path, log).expect("the disk has space");
    kept.start();
    let (_, told) = kept.hello();
    assert_eq!(told[1..], [exits[0].clone(), exits[2].clone()]);
}

#[test]
fn another_boot_has_nothing_and_a_newer_log_is_not_touched() {
    let mut kept = Kept::unkept();
    let started = record(2, 1, 0);
    let log = [header(host::boot() ^ 1), started].concat();
    fs::write(kept.path("keeper.log"), log).expect("the disk has space");
    kept.start();
    assert_eq!(kept.hello().1.len(), 1);
    kept.kill();

    let mut newer = header(host::boot());
    newer[8] = 2;
    let newer = [sealed(newer), started].concat();
    fs::write(kept.path("keeper.log"), &newer).expect("the disk has space");
    let words = kept.try_start().expect_err("the two lists differ");
    assert!(words.contains("version 2"), "{words}");
    assert_eq!(fs::read(kept.path("keeper.log")).expect("the file exists"), newer);
}
