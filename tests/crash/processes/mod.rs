//! The real program with real children: coordinators, keepers and both are killed, and what is recorded of each child is
//! what it wrote itself.
//!
//! | file | holds |
//! |---|---|
//! | `host.rs` | a data directory, who runs on it, and an end to all of it |
//! | `asking.rs` | requests on the coordinator's Unix socket |
//! | `children.rs` | what is launched, and what each wrote of its own life |
//! | `killed.rs` | the campaign: coordinators killed again and again |
//! | `keepers.rs` | keepers killed, both killed, and the machine started again |
//! | `reused.rs` | strangers that have the PIDs of what ended unseen |
//!
//! `SEXTON_CRASH_KILLS=500 cargo test --test crash processes` is the long campaign.

pub(crate) mod asking;
mod children;
pub(crate) mod host;
mod keepers;
mod killed;
mod reused;
