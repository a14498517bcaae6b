//! The real program with real children. Coordinators and keepers are killed, alone and together, and the record of each child must have
//! the end that the child itself wrote.
//!
//! | file | holds |
//! |---|---|
//! | `host.rs` | a data directory, its processes, and a way to end them |
//! | `asking.rs` | requests on the coordinator's Unix socket |
//! | `children.rs` | the children, and what each wrote about itself |
//! | `killed.rs` | the campaign: coordinators killed again and again |
//! | `keepers.rs` | keepers killed, both killed, and the machine rebooted |
//! | `reused.rs` | unrelated processes that get the PIDs of processes that ended unobserved |
//!
//! `SEXTON_CRASH_KILLS=500 cargo test --test crash processes` is the long campaign.

pub(crate) mod asking;
mod children;
pub(crate) mod host;
mod keepers;
mod killed;
mod reused;
