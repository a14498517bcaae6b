//! Tests of the rules for processes: the machine is compared with a model (`model/`), which is a plain list of records, and with a second
//! machine that commits the same entries.
//!
//! | file | holds |
//! |---|---|
//! | `step.rs` | the steps of a history |
//! | `pair.rs` | the machine, its model and the second machine, to which the steps are applied |
//! | `compare.rs` | the comparison of machine and model |
//! | `run.rs` | the tests |
//! | `churn.rs` | a million short processes |

mod churn;
mod compare;
mod pair;
mod run;
mod step;
