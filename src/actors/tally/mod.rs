//! The `TallyActor`: counters with names, which are added to, read, and forgotten when nobody has added for a while.
//!
//! A toy, and all that an actor needs:
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` | what can be asked, what can come of it, what is answered |
//! | `machine.rs` | the counters, the rules of adding and forgetting, and what is shown of them |

mod machine;
mod message;

pub use machine::{TallyMachine, View};
pub use message::{Counter, Message, Name, Outcome, Query, Refused, Reply, Rules};

/// The actor around the counters.
pub type TallyActor = crate::spine::Host<TallyMachine>;
