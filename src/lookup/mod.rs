//! The containers in which machines keep their items. They deal with slots, time and pages, and do not depend on the rules of any machine.
//!
//! | file | holds |
//! |---|---|
//! | `durable.rs` | durable items by slot, with their digest, their deadlines and their pages |
//! | `pages.rs` | which pages of durable state changed, and a checkpoint's copy of them |
//! | `slab.rs` | items by slot |
//! | `table.rs` | slots by name |
//! | `deadlines.rs` | slots by deadline, for spans and for dates |
//! | `wheel.rs` | slots by deadline, on one clock |

mod deadlines;
pub mod durable;
pub mod pages;
pub mod slab;
pub mod table;
pub mod wheel;
