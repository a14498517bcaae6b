//! What machines keep their items in: it knows slots, time and pages, and nothing of any rule.
//!
//! | file | holds |
//! |---|---|
//! | `kept.rs` | durable items by slot, with their digest, their deadlines and their pages |
//! | `pages.rs` | which pages of durable state changed, and a checkpoint's copy of them |
//! | `slab.rs` | items by slot |
//! | `table.rs` | slots by name |
//! | `deadlines.rs` | slots by deadline, of spans and of dates |
//! | `wheel.rs` | slots by deadline |

mod deadlines;
pub mod kept;
pub mod pages;
pub mod slab;
pub mod table;
pub mod wheel;
