//! `sexton start`: launches processes whose launch was deferred by `sexton run --detach --deferred`.

use crate::client::{Where, fields};
use crate::process::page::standing;
use crate::process::request::ClientOptions;
use crate::process::run::launched;
use crate::report::Failure;
use crate::text::words;
use clap::Args;
use serde_json::Value;

/// Launch processes that were made by `sexton run --detach --deferred`
///
/// Until then such a process is `queued`, also across restarts of the coordinator and of the machine. `sexton kill ID` cancels it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  id=$(sexton run --detach --deferred -- sleep 60)
  sexton ps --status queued          what waits to be started
  sexton start \"$id\"                 launch it
  sexton kill \"$id\"                  or cancel it

Exit status: 0 started; 1 there is no such process, it was launched or cancelled before; 125 it could not be launched, 126 it cannot be \
executed, 127 it was not found; 2 wrong flags; 3 no coordinator runs there.")]
pub(crate) struct Start {
    /// Process ids, or at least their first eight digits
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    #[command(flatten)]
    at: Where,

    /// Print the records as JSON
    #[arg(long)]
    json: bool,
}

impl Start {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions::at(&self.at, self.json)?;
        for id in &self.ids {
            let record = options.act("start", fields([("id", Value::from(id.as_str()))]))?;
            let record = launched(record)?;
            options.tell(&record, |record| {
                format!("{}  {}\n", words(record, "/id"), standing(record))
            })?;
        }
        Ok(())
    }
}
