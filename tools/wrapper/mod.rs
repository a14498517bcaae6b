//! `sexton wrapper`: attempts of tasks on another machine, both ends.
//!
//! | file | holds |
//! |---|---|
//! | `protocol.rs` `pipe.rs` `machine.rs` | what the two ends say to each other; lines over streams; clock and signals |
//! | `near.rs` `link.rs` | the end here: it waits for one attempt, over one connection after the other |
//! | `front.rs` | the far end of a connection: begins an attempt, or finds it |
//! | `keeping.rs` `reports.rs` | the far end of an attempt: it has the command run, and keeps its end until that is acknowledged |
//! | `place.rs` `descendants.rs` | its directory; what lives of it |

mod descendants;
mod front;
mod keeping;
mod link;
mod machine;
mod near;
mod pipe;
mod place;
mod protocol;
mod reports;

use crate::report::Failure;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Run attempts of tasks for a coordinator on another machine, which calls this through ssh
///
/// It speaks JSON on its standard streams, and is of no use to people. What runs for a coordinator is below --state, each in a
/// directory of its own, until the coordinator knows how it ended. A key that a coordinator logs in by can be bound to it in
/// `authorized_keys`: `restrict,command="sexton wrapper" ssh-ed25519 …`.
#[derive(Args)]
pub(crate) struct Wrapper {
    #[command(subcommand)]
    action: Option<Action>,

    #[arg(
        long,
        value_name = "DIR",
        help = "Where attempts are kept [default: $XDG_STATE_HOME/sexton/wrapper, or ~/.local/state/sexton/wrapper]"
    )]
    state: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    /// Wait here for an attempt that runs there
    #[command(hide = true)]
    Near(near::Near),
    /// Have the command of an attempt run
    #[command(hide = true)]
    Keep(keeping::Keep),
}

impl Wrapper {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            None => front::run(self.state),
            Some(Action::Near(near)) => near.run(),
            Some(Action::Keep(keep)) => keep.run(),
        }
    }
}
