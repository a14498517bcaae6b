//! `sexton import`: converts the configuration of another supervisor.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand, and where the result goes |
//! | `ini.rs` | supervisord's dialect of INI, with the line of each value |
//! | `document.rs` `glob.rs` | a file and the files it includes |
//! | `expansion.rs` | `%(NAME)s` in values |
//! | `program.rs` `keys.rs` | converting a program; why keys are not carried over |
//! | `output.rs` | rotation of output |
//! | `supervisord.rs` | the whole configuration: sections, groups, and the report |
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
