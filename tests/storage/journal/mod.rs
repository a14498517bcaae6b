//! The journal on disks that tear writes, flip bits, forget, fill up and wait: synced data is read back or its loss is reported.
//!
//! | file | holds |
//! |---|---|
//! | `disk.rs` | a disk in memory that can be damaged, filled, stopped and copied |
//! | `log.rs` | writing and reading small logs |
//! | `whole.rs` | what is written is read back |
//! | `tails.rs` | unfinished ends: cut, counted, and gone for good |
//! | `damage.rs` | flipped bytes, missing and foreign files |
//! | `begin.rs` | reading from the middle |
//! | `refusal.rs` | logs that lack data needed for reading from the middle |
//! | `trim.rs` | old segments are removed, and nothing that is needed |
//! | `space.rs` | a disk that fills up |
//! | `group.rs` | the journal thread |

mod begin;
mod damage;
mod disk;
mod group;
mod log;
mod refusal;
mod space;
mod tails;
mod trim;
mod whole;
