//! `sexton top`: a live view of a running coordinator, second by second.
//!
//! `command` is the subcommand, and `terminal` the only file that does I/O. The rest is pure: `sample`, `work` and `family` turn
//! answers into rates, histories and rows; `screen` holds what is shown and handles keys; `view` draws it with `chart`, `tables`,
//! `kin` and `details`.

mod chart;
mod command;
mod details;
mod family;
mod kin;
#[cfg(test)]
mod kin_tests;
mod sample;
mod screen;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
mod view;
mod work;

pub(crate) use command::Top;
