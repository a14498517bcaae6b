//! `sexton keeper`: the process that holds the children of a coordinator, which starts it. Nobody else needs to.

use crate::report::Failure;
use clap::Args;
use sexton::keeper::{self, KeeperError, Resumption};
use std::path::PathBuf;

/// Hold the children of a coordinator, in its place when it ends
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct Keeper {
    /// The coordinator's data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Descriptors of the program that this one takes the place of
    #[arg(long, value_name = "LOCK,LISTENER,STATE", value_parser = resumption)]
    resume: Option<Resumption>,
}

impl Keeper {
    pub(crate) fn run(self) -> Result<(), Failure> {
        keeper::run(&self.data, self.resume).map_err(|error| match error {
            KeeperError::Kept { .. } => Failure::found(error.to_string()),
            KeeperError::Io { .. } | KeeperError::Threads | KeeperError::Log(_) => {
                Failure::unreachable(error.to_string())
            }
        })
    }
}

fn resumption(text: &str) -> Result<Resumption, &'static str> {
    Resumption::parse(text).ok_or("three numbers with commas between them")
}
