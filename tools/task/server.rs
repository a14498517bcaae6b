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
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

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
  sexton server add web-1 --threads 4 --ssh deploy@web-1
  sexton server disable local               nothing new runs there until `enable`
  sexton server check --from servers.json   would an update change anything?
  sexton server update --from servers.json
  sexton server update --from https://inventory.example/servers.json
  sexton server update --from-command './list-servers --json'

An inventory is a list in JSON: [{\"host\":\"web-1\",\"max_procs\":4},{\"host\":\"web-2\",\"max_procs\":8,\"ssh\":{\"to\":\"deploy@web-2\"}}]

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
        #[command(flatten)]
        ssh: Ssh,
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

/// How a server is reached that is another machine.
#[derive(Args)]
struct Ssh {
    /// Another machine: where ssh goes, as HOST, USER@HOST or ssh://USER@HOST:PORT
    ///
    /// Tasks run there as the user that ssh logs in as, by `sexton wrapper`. Its host key must be known, and a key must let the
    /// coordinator's user in without being asked.
    #[arg(long = "ssh", id = "ssh", value_name = "DESTINATION")]
    to: Option<String>,
    /// The configuration file of ssh, as an absolute path
    #[arg(long = "ssh-config", value_name = "FILE", requires = "ssh")]
    config: Option<PathBuf>,
    /// The program sexton there, if not the one in its PATH
    #[arg(long, value_name = "PATH", requires = "ssh")]
    program: Option<String>,
}

impl Ssh {
    /// The fields of a request; `None` for this machine.
    fn fields(&self) -> Option<Value> {
        let mut ssh = json!({ "to": self.to.as_ref()? });
        let config = self.config.as_ref().map(|it| it.to_string_lossy());
        for (name, value) in [
            ("config", config),
            ("program", self.program.as_ref().map(Into::into)),
        ] {
            if let (Some(ssh), Some(value)) = (ssh.as_object_mut(), value) {
                ssh.insert(name.to_owned(), value.into());
            }
        }
        Some(ssh)
    }
}

/// Where an inventory is.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct From {
    /// The inventory: a file, - for standard input, or a URL of http or https, which `curl` fetches
    #[arg(long, value_name = "FILE|URL")]
    from: Option<OsString>,
    /// A shell command that prints it
    #[arg(long, value_name = "COMMAND")]
    from_command: Option<String>,
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
            Action::Add {
                which,
                threads,
                ssh,
            } => match ssh.fields() {
                None => set(&which, fields([("threads", threads.into())])),
                Some(ssh) => {
                    let mut asked = which.fields();
                    asked.extend(fields([("threads", threads.into()), ("ssh", ssh)]));
                    asking.done(&asking.act("servers/reach", asked, 0)?)
                }
            },
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
        let hosts = from.hosts()?;
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

impl From {
    /// The hosts of the inventory.
    fn hosts(&self) -> Result<Value, Failure> {
        let (shown, text) = self.text();
        let failed = |error: &dyn std::fmt::Display| {
            Failure::unreachable(format!("failed to read the inventory {shown}: {error}"))
        };
        let text = text.map_err(|error| failed(&error))?;
        if text.len() as u64 > INVENTORY_BYTES_MAX {
            return Err(failed(&"it is longer than 4 MiB"));
        }
        let found: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        // A list, or what an inventory in an object calls its list.
        match found {
            Value::Array(_) => Ok(found),
            Value::Object(mut object) if object.contains_key("hosts") => {
                Ok(object.remove("hosts").unwrap_or_else(|| json!([])))
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => Err(failed(
                &"it is no list of hosts, as in [{\"host\":\"web-1\",\"max_procs\":4}]",
            )),
        }
    }

    /// What people call it, and what stands there.
    fn text(&self) -> (String, io::Result<String>) {
        if let Some(command) = &self.from_command {
            return (
                format!("of `{command}`"),
                printed(Command::new("sh").args(["-c", command])),
            );
        }
        let from = self.from.clone().unwrap_or_default();
        let shown = from.to_string_lossy().into_owned();
        let is_url = ["http://", "https://"]
            .iter()
            .any(|it| shown.starts_with(it));
        let text = if is_url {
            // Only what was asked for: neither a file of its own settings nor another protocol after a redirection.
            let flags = [
                "-q",
                "-fsSL",
                "--max-time",
                "30",
                "--proto",
                "=http,https",
                "--",
            ];
            printed(Command::new("curl").args(flags).arg(&from))
        } else if shown == "-" {
            read(io::stdin().lock())
        } else {
            File::open(&from).and_then(read)
        };
        (shown, text)
    }
}

/// As much as an inventory may have, and a little more.
fn read(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(INVENTORY_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// What a command prints that ends well.
fn printed(command: &mut Command) -> io::Result<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let text = child.stdout.take().map_or(Ok(String::new()), read);
    let status = child.wait()?;
    if status.success() {
        text
    } else {
        Err(io::Error::other(format!("it ended with {status}")))
    }
}
