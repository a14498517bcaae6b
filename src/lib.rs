//! sexton keeps an application's background work in order.

pub mod actors;
pub mod clock;
pub mod ids;
pub mod persist;
