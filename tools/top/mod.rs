//! `sexton top`: what a running coordinator does, second by second, to be left open.
//!
//! `command` is the subcommand, `terminal` the only file that touches the world. The rest is pure: `sample` makes rates
//! and histories of answers and `work` and `family` rows of them, `screen` is what a person sees and may change, `view` draws it with
//! `chart`, `tables`, `kin` and `details`.

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
