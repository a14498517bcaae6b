//! Tests of the rules for services: one by one, and together in random histories.
//!
//! | file | holds |
//! |---|---|
//! | `bench.rs` | a machine with a simulated world around it |
//! | `rules.rs` | each rule |
//! | `supervisor.rs` | the record of the server, above those of its services |
//! | `any.rs` | properties that hold in any history |

mod any;
mod bench;
mod rules;
mod supervisor;
