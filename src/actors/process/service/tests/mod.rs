//! Tests of the rules of services: each rule in turn, and all of them in random histories.
//!
//! | file | holds |
//! |---|---|
//! | `bench.rs` | the machine, and the world around it |
//! | `rules.rs` | each rule |
//! | `any.rs` | properties that hold in any history |

mod any;
mod bench;
mod rules;
