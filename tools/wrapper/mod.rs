//! `sexton wrapper`: attempts (runs of a task's command) on another machine. The near end is on the coordinator's machine, the far end
//! on the machine where the command runs.
//!
//! | file | holds |
//! |---|---|
//! | `protocol.rs` `pipe.rs` `machine.rs` | the messages between the two ends; lines over streams; clock and signals |
//! | `near.rs` `link.rs` `timing.rs` | the near end: waits for one attempt, over one connection after another; when it gives up |
//! | `front.rs` | the far end of a connection: begins or finds an attempt |
//! | `keeping.rs` `reports.rs` | the far end of an attempt: runs the command, and keeps its result until it is acknowledged |
//! | `place.rs` `descendants.rs` | the attempt's directory; its live processes |

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
mod timing;

use crate::report::Failure;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Run attempts of tasks for a coordinator on another machine, which calls this through ssh
///
/// This command uses JSON on its standard streams and is not meant for interactive use. Each attempt has a directory below --state
/// until the coordinator knows how it ended. The key that a coordinator logs in with can be restricted to this command in
/// `authorized_keys`: `restrict,command="sexton wrapper" ssh-ed25519 …`.
#[derive(Args)]
pub(crate) struct Wrapper {
    #[command(subcommand)]
    action: Option<Action>,

    #[arg(
        long,
        value_name = "DIR",
        help = "The directory of attempts [default: $XDG_STATE_HOME/sexton/wrapper, or ~/.local/state/sexton/wrapper]"
    )]
    state: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    /// Wait on the coordinator's machine for an attempt on another machine
    #[command(hide = true)]
    Near(near::Near),
    /// Run the command of an attempt
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
