//! The port of the `LeaseActor`: writes the log files of leases, including the counts that passes report.

mod counts;
mod port;
mod seldom;

pub use port::LeasePort;
