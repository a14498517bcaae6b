//! The port of the `LeaseActor`: writes the log files of leases, including the counts that passes report.

mod counts;
mod port;

pub use port::LeasePort;
