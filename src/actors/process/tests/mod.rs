//! Tests of the rules of processes against a plain list, and against a second machine that only commits.
//!
//! | file | holds |
//! |---|---|
//! | `step.rs` | the steps of a history |
//! | `pair.rs` | the machine and its model, to which the steps are applied |
//! | `compare.rs` | the comparison of both |
//! | `run.rs` | the tests |
//! | `churn.rs` | a million short processes |

mod churn;
mod compare;
mod pair;
mod run;
mod step;
