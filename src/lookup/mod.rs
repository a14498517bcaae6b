//! The containers in which machines keep their items. They know about slots, time and pages, but not about a machine's rules.
//!
//! | file | holds |
//! |---|---|
//! | `kept.rs` | durable items by slot, with their digest, their deadlines and their pages |
//! | `pages.rs` | which pages of durable state changed, and a checkpoint's copy of them |
//! | `slab.rs` | items by slot |
//! | `table.rs` | slots by name |
//! | `deadlines.rs` | slots by deadline, for spans and for dates |
//! | `wheel.rs` | slots by deadline |

mod deadlines;
pub mod kept;
pub mod pages;
pub mod slab;
pub mod table;
pub mod wheel;
