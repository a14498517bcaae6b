//! The configuration of job types that is in force in the running coordinator.
//!
//! The file may have changed since it was loaded; `sexton config` shows the file.

use crate::client::{self, fields};
use crate::queue::answer::{ClientOptions, success};
use crate::queue::command::name;
use crate::report::{Failure, print_answer};
use crate::settings::types_table;
use crate::table::{Column, table};
use crate::text::grouped;
use clap::Args;
use serde_json::{Map, Value, json};
use sexton::actors::queue::QueueName;

/// Show the configuration of job types: class, order, number of tries, and so on
///
/// Shows the settings in force in the running coordinator, which read its configuration file when it started or was last reloaded;
/// `sexton config` shows the file. FROM is the table that applies: the type's own, or `default`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton queue config                            every type with its own table, and `default`
  sexton queue config mails                      the configuration of mails
  sexton queue config --json | jq '.types[] | select(.class == \"memory\").type'")]
pub(super) struct Configured {
    /// Only the configuration of this type
    #[arg(value_parser = name)]
    r#type: Option<QueueName>,
}

impl Configured {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let query = fields([("type", json!(self.r#type))]);
        let answer = client::look(&options.target, "/v1/queues/config", &query)?;
        print_answer(options.json, &success(&answer)?, page)
    }
}

fn page(body: &Value) -> String {
    let types = body.get("types").and_then(Value::as_array);
    let types = types.into_iter().flatten().filter_map(Value::as_object);
    let types: Vec<Map<String, Value>> = types.cloned().collect();
    let limits = body.get("limits").and_then(Value::as_object);
    let limits = limits.into_iter().flatten().map(|(key, most)| {
        let what = key.strip_suffix("_max").unwrap_or(key).replace('_', " ");
        [what, most.as_u64().map_or("-".to_owned(), grouped)]
    });
    let heads = [("IN ALL QUEUES", Column::Words), ("AT MOST", Column::Number)];
    format!("{}\n{}", types_table(&types), table(heads, limits))
}
