//! beanstalkd's protocol: each line, dialogues, comparison with beanstalkd itself, third-party clients, and hostile clients.

mod client_crate;
mod clients;
mod codec;
mod hostile;
mod peer;
mod silent;
mod wire;

#[path = "../support/beanstalkd.rs"]
mod beanstalkd;
#[path = "../support/chance.rs"]
mod chance;
#[path = "../support/client_programs.rs"]
mod client_programs;
#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod daemon;
#[path = "../support/left_out.rs"]
mod left_out;
#[path = "../support/patience.rs"]
mod patience;
#[path = "../support/resources.rs"]
mod resources;
#[path = "../support/unserved.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod unserved;
