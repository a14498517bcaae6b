//! The rules of services, each by what happens; and all of them together, whatever happens.
//!
//! | file | holds |
//! |---|---|
//! | `bench.rs` | the machine, and the world around it |
//! | `rules.rs` | each rule |
//! | `any.rs` | what holds whatever happens |

mod any;
mod bench;
mod rules;
