//! The subcommands of `sexton server`: where tasks run.

use crate::client::{Fields, Where, fields};
use crate::lock::{name, put};
use crate::report::Failure;
use crate::task::asking::Asking;
use crate::task::page;
use crate::text::number;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sexton::actors::lock::Name;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The longest inventory, in bytes.
const INVENTORY_BYTES_MAX: u64 = 4 << 20;

/// Say where tasks run, and how many at a time.
///
/// A server has threads: as many attempts run there at a time, and a task goes to the server that is used the least. The server
/// `local`, this machine, is made with the first task if there is none.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton server list
  sexton server add local --threads 8       the same again sets its threads
  sexton server disable local               nothing new runs there until `enable`
  sexton server check --from servers.json   would an update change anything?
  sexton server update --from servers.json

An inventory is a list in JSON: [{\"host\":\"web-1\",\"max_procs\":4},{\"host\":\"web-2\",\"max_procs\":8}]

Exit status: 0 well; 1 the answer is no, and of `check` and `update`: something had to change; 2 usage; 3 no coordinator runs there.")]
pub(crate) struct Server {
    #[command(subcommand)]
    action: Action,

    #[command(flatten)]
    at: Where,

    /// Print the answer as it is, in JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Show the servers
    List,
    /// Add a server, or set the threads of one
    Add {
        #[command(flatten)]
        which: Which,
        /// How many attempts run there at a time
        #[arg(long, value_name = "NUMBER")]
        threads: u32,
    },
    /// Remove a server: what runs there is stopped, and goes on elsewhere or is failed
    Remove {
        #[command(flatten)]
        which: Which,
    },
    /// Give tasks to a server again
    Enable {
        #[command(flatten)]
        which: Which,
    },
    /// Give no tasks to a server: what runs there comes to its end, and no inventory enables it again
    Disable {
        #[command(flatten)]
        which: Which,
    },
    /// Say what an update would change
    Check {
        #[command(flatten)]
        from: From,
    },
    /// Make the servers those of an inventory
    ///
    /// Adds what is new, removes what is gone, and takes threads from the inventory. What was disabled stays as it is.
    Update {
        #[command(flatten)]
        from: From,
    },
}

/// Which server.
#[derive(Args)]
struct Which {
    /// The server
    #[arg(value_parser = name)]
    server: Name,
}

impl Which {
    fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        put(&mut fields, "server", &self.server);
        fields
    }
}

/// Where an inventory is.
#[derive(Args)]
struct From {
    /// The file of the inventory; - for standard input
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
}

impl Server {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let asking = Asking {
            target: self.at.target()?,
            json: self.json,
        };
        let set = |which: &Which, members: Fields| {
            let mut asked = which.fields();
            asked.extend(members);
            asking.done(&asking.act("servers/set", asked, 0)?)
        };
        match self.action {
            Action::List => {
                let servers = asking.look("servers", &fields([]))?;
                asking.tell(&servers, page::servers)
            }
            Action::Add { which, threads } => set(&which, fields([("threads", threads.into())])),
            Action::Enable { which } => set(&which, fields([("enabled", true.into())])),
            Action::Disable { which } => set(&which, fields([("enabled", false.into())])),
            Action::Remove { which } => {
                asking.done(&asking.act("servers/remove", which.fields(), 0)?)
            }
            Action::Check { from } => asking.update(&from, true),
            Action::Update { from } => asking.update(&from, false),
        }
    }
}

impl Asking {
    fn update(&self, from: &From, check: bool) -> Result<(), Failure> {
        let hosts = inventory(&from.from)?;
        let asked = fields([("hosts", hosts), ("check", check.into())]);
        let said = self.act("servers/inventory", asked, 0)?;
        self.tell(&said, |said| {
            let would = if check { "would be " } else { "" };
            let counts = ["added", "removed", "changed"]
                .map(|what| format!("{} {would}{what}", number(said, &format!("/{what}"))));
            format!("{}\n", counts.join(", "))
        })?;
        let changes: u64 = ["/added", "/removed", "/changed"]
            .map(|path| number(&said, path))
            .iter()
            .sum();
        if changes == 0 {
            Ok(())
        } else {
            // As `wipctl server` has it, so that a script may tell.
            Err(Failure::of_command(1, ""))
        }
    }
}

/// The hosts of an inventory.
fn inventory(path: &Path) -> Result<Value, Failure> {
    let shown = path.display();
    let failed = |error: &dyn std::fmt::Display| {
        Failure::unreachable(format!("failed to read the inventory {shown}: {error}"))
    };
    let mut text = String::new();
    let read = if path == Path::new("-") {
        let stdin = std::io::stdin().lock();
        stdin.take(INVENTORY_BYTES_MAX).read_to_string(&mut text)
    } else {
        let file = File::open(path).map_err(|error| failed(&error))?;
        file.take(INVENTORY_BYTES_MAX).read_to_string(&mut text)
    };
    read.map_err(|error| failed(&error))?;
    let found: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    // A list, or what an inventory in an object calls its list.
    match found {
        Value::Array(_) => Ok(found),
        Value::Object(mut object) if object.contains_key("hosts") => {
            Ok(object.remove("hosts").unwrap_or_else(|| json!([])))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(failed(
                &"it is no list of hosts, as in [{\"host\":\"web-1\",\"max_procs\":4}]",
            ))
        }
    }
}
