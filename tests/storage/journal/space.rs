//! A disk that fills up: the journal reports it in advance, halts when there is no space, and works again once there is.

use crate::journal::disk::MemoryDisk;
use crate::journal::log::{self, read, records, writer};
use sexton::persist::journal::{Room, Sizes, Writer, segment};

const SIZES: Sizes = Sizes { first_bytes: 4096, max_bytes: 4096 };

#[test]
fn room_shrinks_step_by_step_until_nothing_can_be_written() {
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, SIZES).expect("the log opens");
    open.refill();
    // There is space for the segment after this one, which is prepared, but not for another.
    disk.leave(Some(100));
    let mut rooms = vec![open.room(0)];
    let mut kept = Vec::new();
    for seq in 1.. {
        let record = records(seq..=seq, 60);
        open.refill();
        match open.write(&mut log::batch(&record)) {
            Ok(()) => {
                open.sync().expect("a sync needs no space");
                kept.extend(record);
            }
            Err(error) => {
                assert!(error.is_disk_full(), "{error}");
                break;
            }
        }
        rooms.push(open.room(0));
    }
    assert!(rooms.is_sorted(), "room only shrinks: {rooms:?}");
    rooms.dedup();
    assert_eq!(rooms, [Room::Ample, Room::Low, Room::Scant]);
    let (found, tail) = read(&disk).expect("an intact log");
    assert_eq!((found, tail.cut), (kept, None), "only what was synced is there");
}

#[test]
fn what_is_on_its_way_counts_against_the_room() {
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, SIZES).expect("the log opens");
    disk.leave(Some(0));
    open.refill();
    assert_eq!(open.room(0), Room::Ample);
    assert_eq!(open.room(3500), Room::Low);
    assert_eq!(open.room(4000), Room::Scant);
}

#[test]
fn space_freed_gives_room_again() {
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, SIZES).expect("the log opens");
    disk.leave(Some(0));
    let mut kept = Vec::new();
    let mut seq = 0;
    while open.room(0) != Room::Scant {
        seq += 1;
        let record = records(seq..=seq, 60);
        open.write(&mut log::batch(&record)).expect("there is a reserve");
        kept.extend(record);
    }
    assert!(
        disk.names().iter().all(|name| !name.contains(".tmp")),
        "no incomplete segment is left"
    );
    disk.leave(None);
    open.refill();
    assert_eq!(open.room(0), Room::Ample);
    for more in seq + 1..seq + 200 {
        let record = records(more..=more, 60);
        open.write(&mut log::batch(&record)).expect("there is space");
        kept.extend(record);
    }
    assert_eq!(open.room(0), Room::Ample);
    assert_eq!(read(&disk).expect("an intact log").0, kept);
}

#[test]
fn the_next_segment_is_smaller_where_there_is_no_room_for_one_twice_as_large() {
    const FIRST: u64 = 128 << 10;
    let sizes = Sizes { first_bytes: FIRST, max_bytes: 8 * FIRST };
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, sizes).expect("the log opens");
    open.refill();
    disk.leave(Some(300 << 10));
    let (mut seq, mut kept) = (0, Vec::new());
    let mut fill = |open: &mut Writer, until: &dyn Fn(&Writer) -> bool| {
        while !until(open) {
            seq += 1;
            let record = records(seq..=seq, 30 << 10);
            open.write(&mut log::batch(&record)).expect("the disk has space");
            open.refill();
            kept.extend(record);
        }
    };
    let has = |ordinal: u64| disk.names().contains(&segment::name(ordinal));
    let len = |ordinal: u64| disk.bytes(&segment::name(ordinal)).len() as u64;
    fill(&mut open, &|_| has(3));
    assert_eq!((len(2), len(3)), (2 * FIRST, FIRST), "half of what is free");
    assert_eq!(open.room(0), Room::Ample);
    // The other half stays free for the snapshots, without which no segment can be removed.
    let Err(error) = segment::prepare(&disk, 4, sizes, 0) else {
        panic!("no space is left");
    };
    let error = error.to_string();
    let [wanted, free] = [2 * FIRST, FIRST].map(|bytes| bytes.to_string());
    assert!(
        error.contains(&format!("it takes {wanted} bytes, but only {free} are free")),
        "{error}"
    );
    fill(&mut open, &|open| open.room(0) != Room::Ample);
    disk.leave(None);
    open.refill();
    assert_eq!((open.room(0), len(4)), (Room::Ample, sizes.of(4)));
    fill(&mut open, &|_| has(6));
    assert_eq!(read(&disk).expect("an intact log").0, kept);
}

#[test]
fn a_log_that_cannot_begin_says_why() {
    let disk = MemoryDisk::default();
    disk.leave(Some(1000));
    let Err(error) = writer(&disk, SIZES) else {
        panic!("there is no space for a segment");
    };
    assert!(error.is_disk_full(), "{error}");
    disk.leave(None);
    assert!(writer(&disk, SIZES).is_ok());
}
