//! Look-up structures of machines: they know slots and time, and nothing of what is kept.
//!
//! | file | holds |
//! |---|---|
//! | `slab.rs` | items by slot |
//! | `table.rs` | slots by name |
//! | `wheel.rs` | slots by deadline |

pub mod slab;
pub mod table;
pub mod wheel;
