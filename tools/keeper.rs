//! `sexton keeper`: the process that holds a coordinator's children. The coordinator starts it; users do not.

use crate::report::Failure;
use clap::Args;
use sexton::keeper::{self, KeeperError, Resumption};
use std::path::PathBuf;

/// Hold the children of a coordinator, even after it has ended
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct Keeper {
    /// The coordinator's data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Descriptors inherited from the keeper that this program replaces
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
    Resumption::parse(text).ok_or("expected three numbers separated by commas")
}
