//! The keeper (the process that launches commands for a coordinator), tested over its socket: the real program with real children.

#![expect(clippy::wildcard_enum_match_arm, reason = "the test waits for one report among many")]

mod bytes;
mod hostile;
mod launching;
mod log;
mod many;
mod parcels;
mod placing;
mod rejoining;
mod steps;
mod upgrade;
mod wire;

#[path = "../support/groups.rs"]
mod groups;
#[path = "../support/left_out.rs"]
mod left_out;
#[path = "../support/may_look.rs"]
mod may_look;
#[path = "../support/patience.rs"]
mod patience;
