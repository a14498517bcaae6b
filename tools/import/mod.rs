//! `sexton import`: the configuration of another supervisor as tables of ours.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand, and where the result goes |
//! | `ini.rs` | supervisord's dialect of INI, with the line of each value |
//! | `document.rs` `glob.rs` | a file and what it includes |
//! | `expansion.rs` | `%(NAME)s` in values |
//! | `program.rs` `keys.rs` | what a program becomes; why a key becomes nothing |
//! | `output.rs` | how output is rotated |
//! | `supervisord.rs` | the whole: sections, groups, and what is told of them |
//! | `page.rs` | services as TOML |

mod command;
mod document;
mod expansion;
mod glob;
mod ini;
mod keys;
mod output;
mod page;
mod program;
mod supervisord;

pub(crate) use command::Import;
