//! Services: processes that are defined in the configuration, and launched again after they end if their restart policy says so.
//!
//! Services are part of the process machine, so that one entry can record both the end of a process and the launch of its successor. The
//! next step of a service is derived from its durable state and the records of its processes (`next.rs`). Each step is a separate entry,
//! except that a restart without delay is part of the entry that records the end. `docs/services.md` describes services for users.
//!
//! | file | holds |
//! |---|---|
//! | `definition.rs` | the definition of a service in the configuration, and its checks |
//! | `item.rs` | the durable state of one service |
//! | `message.rs` `step.rs` | messages about services, and the steps they cause |
//! | `state.rs` `next.rs` | all services with their indexes; the next step of each |
//! | `decide.rs` `commit.rs` | deciding messages and due steps; committing the outcomes |
//! | `view.rs` `look.rs` | views of services, and clients waiting for them |
//! | `event.rs` | events for subscribers |

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
pub use step::{Consequence, Step};
pub use view::{InstanceView, ServiceView, Status};
