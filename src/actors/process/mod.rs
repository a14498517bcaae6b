//! The `ProcessActor`: one record for every process, in one tree, from the command line down to the last binary.
//!
//! | file | holds |
//! |---|---|
//! | `identity.rs` | which process is meant, so that a reused PID is never taken for it |
//! | `spec.rs` | what is to be run, and how |
//! | `message.rs` | what is asked, what the kernel tells, what is to be done |

mod identity;
mod message;
mod spec;

pub use identity::Identity;
pub use message::{
    Action, End, Failure, Launching, Lost, Message, Output, Reach, Registering, Remains, Step,
};
pub use spec::{Parentage, Spec, Tags};
