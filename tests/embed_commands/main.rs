//! The library as a program uses it that launches commands: the program `sexton` is the keeper of its nodes.

mod audit;
mod example;
mod keyed;
mod processes;
mod tasks;

#[path = "../support/patience.rs"]
mod patience;
