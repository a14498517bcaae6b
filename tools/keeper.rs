//! `sexton keeper`: the process that launches a coordinator's commands and waits for them. It is started by the coordinator, not by users.

use crate::report::Failure;
use clap::Args;
use sexton::keeper::{self, KeeperError, Resumption};
use std::path::PathBuf;

/// Launch a coordinator's commands and wait for them, even after the coordinator has exited
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
