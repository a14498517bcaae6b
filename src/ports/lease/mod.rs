//! The port of the `LeaseActor`: log files of leases, and in them what passes count.

mod counts;
mod port;

pub use port::LeasePort;
