//! Services: what is to run as long as the configuration has it, launched again when it ends.
//!
//! Part of the process machine, so that the end of a process and the launch that follows are one entry. What is next for a
//! service is derived from its durable state and the records of its processes (`next.rs`), and done one step at a time;
//! only a restart without a wait is part of the entry of the end before it. `docs/services.md` is the text for users.
//!
//! | file | holds |
//! |---|---|
//! | `definition.rs` | what the configuration says of a service, and what of it cannot be |
//! | `item.rs` | what is known of one, durable |
//! | `message.rs` `step.rs` | what is asked, and what becomes of services |
//! | `state.rs` `next.rs` | all services, where they are found; what is next for each |
//! | `decide.rs` `commit.rs` | the rules; and making it so |
//! | `view.rs` `look.rs` | what is shown, and who waits |
//! | `event.rs` | what subscribers are told |

mod commit;
mod decide;
mod definition;
mod event;
mod item;
mod look;
mod message;
mod next;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod view;

pub use definition::{Definition, Fault, Policy};
pub use item::{Instance, Last, Service, Verdict};
pub use message::Message;
pub(in crate::actors::process) use state::{Services, item_of, slot_of};
pub use step::{Step, Then};
pub use view::{InstanceView, ServiceView, Status};
