//! `sexton config`: shows the settings in force and where each comes from. It reads the files that the settings name, to check them,
//! and shows no secrets: for the token file, only its path.

use crate::protocols;
use crate::report::{Failure, print, tell};
use crate::settings::layer::{Effective, Entry, ParsedFlags, Values};
use crate::settings::{queue, service, task, tenant};
use crate::table::{self, Column};
use crate::text;
use clap::Args;
use serde_json::{Map, Value, json};
use sexton::Config;
use sexton::node::Node;
use std::ffi::OsStr;

/// Show the settings that `sexton serve` would use, and where each comes from
///
/// A flag overrides the environment (`SEXTON_LOCK_ENTRIES` for --lock-entries), the environment overrides the file, and the file
/// overrides the default. Everything is checked as `serve` would check it, including the token file, the certificate and the hosts
/// list that the settings name.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton config                              what `sexton serve` without flags would use
  sexton config --config /etc/sexton.toml    check a file before a restart

Exit status: 0 the settings are valid; 2 they are invalid, and every problem is listed; 3 the file, \
or one that it names, cannot be read or used.")]
pub(crate) struct ShowConfig {
    #[command(flatten)]
    given: ParsedFlags,

    /// Print the settings as JSON
    #[arg(long)]
    json: bool,
}

impl ShowConfig {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Effective { entries, node, unknown_variables, .. } = self.given.settle()?;
        Node::check_files(&node, &protocols::all())?;
        for name in unknown_variables {
            tell(&format!("{name} in the environment is not a setting"));
        }
        let text = if self.json {
            let mut document = document(&entries, &node);
            document.insert("services".to_owned(), service::document(&node.services));
            format!("{:#}\n", Value::Object(document))
        } else {
            let queues = queue::table(&node.rules.queue);
            let tasks = task::words(&node);
            let mut text = format!("{}\n{tasks}\n{queues}", table(&entries));
            if !node.services.is_empty() {
                text.push('\n');
                text.push_str(&service::table(&node.services));
            }
            text
        };
        print(&text)
    }
}

fn document(entries: &[Entry], node: &Config) -> Map<String, Value> {
    let queues = &node.rules.queue;
    let settings = entries.iter().map(|entry| {
        let value = match &entry.values {
            Values::Unset => Value::Null,
            Values::Switch(is) => json!(is),
            Values::One(value) => one(value),
            Values::Several(values) => values.iter().map(|value| one(value)).collect(),
        };
        let from = entry.source.rank();
        let place = entry.source.to_string();
        let shown = json!({"value": value, "from": from, "place": place});
        (entry.key.clone(), shown)
    });
    let settings = Value::Object(settings.collect());
    let tenants = tenant::document(&queues.across.tenants);
    let queues = queue::document(queues);
    Map::from_iter([
        ("settings".to_owned(), settings),
        ("queues".to_owned(), queues),
        ("tenants".to_owned(), tenants),
        ("tasks".to_owned(), task::document(node)),
    ])
}

/// Converts a value to a JSON number if it is a whole number of at least 0, otherwise to a string.
fn one(value: &OsStr) -> Value {
    let text = value.to_string_lossy();
    text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number))
}

fn table(entries: &[Entry]) -> String {
    let rows = entries.iter().map(|entry| {
        let value = match &entry.values {
            Values::Unset => "-".to_owned(),
            Values::Switch(is) => is.to_string(),
            Values::One(value) => word(value),
            Values::Several(values) if values.is_empty() => "-".to_owned(),
            Values::Several(values) => {
                let words: Vec<String> = values.iter().map(|value| word(value)).collect();
                words.join(", ")
            }
        };
        [entry.key.clone(), value, entry.source.to_string()]
    });
    let heads = ["SETTING", "VALUE", "FROM"].map(|head| (head, Column::Words));
    table::table(heads, rows)
}

/// Returns a value with control characters replaced by spaces.
fn word(value: &OsStr) -> String {
    text::plain(&value.to_string_lossy())
}
