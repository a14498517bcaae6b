//! Mutual exclusion, seen from outside: fifty callers of `sexton lock run` on one lock, while anything is killed. Each
//! command writes to one file that it is there, and the kernel puts the lines in order.
//!
//! | file | holds |
//! |---|---|
//! | `callers.rs` | who calls, what the commands do, and what they leave |
//! | `judge.rs` | whether two were there at a time, from the file alone |
//! | `killed.rs` | the campaign: who is killed, and when |

mod callers;
mod judge;
mod killed;
