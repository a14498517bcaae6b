//! The rules of processes against a plain list, and against a second machine that only commits.
//!
//! | file | holds |
//! |---|---|
//! | `step.rs` | what happens |
//! | `pair.rs` | the machine beside its model, brought through it |
//! | `compare.rs` | all that must be alike |
//! | `run.rs` | the tests |

mod compare;
mod pair;
mod run;
mod step;
