//! `sexton top`: a live view of a running coordinator, second by second.
//!
//! `command` is the subcommand and prints frames and JSON; `terminal` does all other I/O. The other modules are pure: `sample`, `work`
//! and `family` turn answers into rates, histories and rows; `screen` holds the state of the screen and handles keys; `view` draws it
//! with `chart`, `tables`, `processes` and `details`.

mod chart;
mod command;
mod details;
mod family;
mod processes;
#[cfg(test)]
mod processes_tests;
mod sample;
mod screen;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
mod view;
mod work;

pub(crate) use command::Top;
