//! Mutual exclusion, observed from outside: fifty callers of `sexton lock run` for one lock, while callers, commands, coordinators and
//! keepers are killed. All commands write to one file while they run, and the kernel orders the lines.
//!
//! | file | holds |
//! |---|---|
//! | `callers.rs` | the callers, their commands, and the processes that these leave |
//! | `judge.rs` | whether two commands ran at the same time, from the file alone |
//! | `killed.rs` | the campaign: what is killed, and when |

mod callers;
mod judge;
mod killed;
