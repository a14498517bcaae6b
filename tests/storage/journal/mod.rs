//! The journal on disks that tear, flip, forget, fill up and wait: what was synced is read back or its loss is named.
//!
//! | file | holds |
//! |---|---|
//! | `disk.rs` | a disk in memory that can be damaged, filled, stopped and copied |
//! | `log.rs` | writing and reading small logs |
//! | `whole.rs` | what is written is what is read |
//! | `tails.rs` | ends that were being written: cut, counted, never back again |
//! | `damage.rs` | flipped bytes, missing and foreign files |
//! | `begin.rs` | reading from the middle |
//! | `refusal.rs` | logs that lack what reading from the middle needs |
//! | `trim.rs` | old segments go, and nothing that is needed |
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
