//! The journal on disks with torn writes, flipped bits, lost data, no space or slow syncs: synced data is read back, or
//! its loss is reported.
//!
//! | file | holds |
//! |---|---|
//! | `disk.rs` | a disk in memory that can be damaged, filled, stopped and copied |
//! | `log.rs` | writing and reading small logs |
//! | `whole.rs` | what is written is read back |
//! | `tails.rs` | incomplete ends: cut off, counted, and never read again |
//! | `damage.rs` | flipped bytes, missing and foreign files |
//! | `begin.rs` | reading from the middle |
//! | `refusal.rs` | logs that lack data needed for reading from the middle |
//! | `trim.rs` | the removal of old segments that are not needed any more |
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
