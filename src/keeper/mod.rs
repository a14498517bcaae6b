//! The keeper: the one other process of a node. It launches children and waits for them, so that neither the end of the
//! coordinator nor that of an actor loses a child or its exit status.
//!
//! | file | holds |
//! |---|---|
//! | `protocol.rs` | what a coordinator and its keeper say to each other |

pub mod protocol;
