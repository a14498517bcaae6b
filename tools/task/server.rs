//! The subcommands of `sexton server`: the servers that tasks run on.

use crate::client::{self, Fields, Where, fields};
use crate::lock::{name, put};
use crate::report::Failure;
use crate::task::inventory::{From, Reached};
use crate::task::page;
use crate::task::request::ClientOptions;
use crate::text::words;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sexton::actors::lock::Name;
use sexton::refusal::Reason;
use std::path::PathBuf;

/// Set where tasks run, and how many at a time
///
/// A server has threads, each of which runs one attempt at a time; a task goes to the least used server. A server without --ssh
/// is this machine, regardless of its name. If no server was ever added, the first task adds one called `local`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton server list
  sexton server add local --threads 8       repeat it to change the threads
  sexton server add web-1 --threads 4 --ssh deploy@web-1
  sexton server disable local               no new tasks run there until `enable`
  sexton server check --from servers.json   show what an update would change
  sexton server update --from servers.json
  sexton server update --from https://inventory.example/servers.json
  sexton server update --from-command './list-servers --json'

An inventory is a list in JSON: [{\"host\":\"web-1\",\"max_procs\":4},{\"host\":\"web-2\",\"max_procs\":8,\"ssh\":{\"to\":\"deploy@web-2\"}}]

Exit status: 0 success; 1 refused, or for `check` and `update`: a server had to change; 2 usage; 3 no coordinator runs there, or an \
inventory cannot be read.")]
pub(crate) struct Server {
    #[command(subcommand)]
    action: Action,

    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Show the servers
    List,
    /// Add a server, or change its number of threads
    Add {
        #[command(flatten)]
        which: ServerSelector,
        /// How many attempts run on the server at a time
        #[arg(long, value_name = "NUMBER")]
        threads: u32,
        #[command(flatten)]
        ssh: Ssh,
    },
    /// Remove a server; its attempts are stopped, and their tasks run elsewhere or fail
    Remove {
        #[command(flatten)]
        which: ServerSelector,
    },
    /// Allow tasks on a server again
    Enable {
        #[command(flatten)]
        which: ServerSelector,
    },
    /// Allow no new tasks on a server; running attempts finish, and no inventory enables it again
    Disable {
        #[command(flatten)]
        which: ServerSelector,
    },
    /// Show what an update would change
    Check {
        #[command(flatten)]
        from: From,
        #[command(flatten)]
        reached: Reached,
    },
    /// Update the servers to match an inventory
    ///
    /// Adds new servers, removes those that the inventory does not list, and sets how many threads each has. Disabled servers stay
    /// disabled. A file that other users may write to, or put another in the place of, is refused.
    Update {
        #[command(flatten)]
        from: From,
        #[command(flatten)]
        reached: Reached,
        /// Keep running, and update whenever the file of --from has changed
        ///
        /// The file is checked once a second. An inventory that cannot be read changes nothing, and is reported on standard
        /// error.
        #[arg(long, requires = "from")]
        watch: bool,
    },
    /// Report that a server has come online, and have the servers looked up again
    ///
    /// Meant to be called with --url from the boot script of a server. Requests a pass of the lease `server-refresh`, whose command,
    /// set by the operator, updates the servers. The coordinator itself requests a pass when an attempt cannot be launched, when a
    /// server is lost, and while tasks wait and no server is enabled.
    Announce,
}

/// Selects a server.
#[derive(Args)]
struct ServerSelector {
    /// The server
    #[arg(value_parser = name)]
    server: Name,
}

impl ServerSelector {
    fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        put(&mut fields, "server", &self.server);
        fields
    }
}

/// How to reach a server on another machine.
#[derive(Args)]
struct Ssh {
    /// The server is another machine; this is its destination for ssh, as HOST, USER@HOST or ssh://USER@HOST:PORT
    ///
    /// `sexton wrapper` runs the tasks there, as the user that ssh logs in as. The host key of the machine must be known, and the
    /// coordinator's user must be able to log in with a key and without a prompt.
    #[arg(long = "ssh", id = "ssh", value_name = "DESTINATION")]
    to: Option<String>,
    /// The configuration file for ssh, as an absolute path
    ///
    /// Nobody but root and the coordinator's user may write to it: it can run any command.
    #[arg(long = "ssh-config", value_name = "FILE", requires = "ssh")]
    config: Option<PathBuf>,
    /// The path of the sexton program on the other machine, if it is not in the PATH there
    #[arg(long, value_name = "PATH", requires = "ssh")]
    program: Option<String>,
}

impl Ssh {
    /// Returns the value of the field `ssh` of a request. Returns `None` if `--ssh` was not given: the server is then this machine.
    fn fields(&self) -> Option<Value> {
        let mut ssh = json!({ "to": self.to.as_ref()? });
        let config = self.config.as_ref().map(|it| it.to_string_lossy());
        for (name, value) in
            [("config", config), ("program", self.program.as_ref().map(Into::into))]
        {
            if let (Some(ssh), Some(value)) = (ssh.as_object_mut(), value) {
                ssh.insert(name.to_owned(), value.into());
            }
        }
        Some(ssh)
    }
}

impl Server {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions { target: self.at.target()?, json: self.json };
        let set = |which: &ServerSelector, members: Fields| {
            let mut asked = which.fields();
            asked.extend(members);
            options.done(&options.act("servers/set", asked)?)
        };
        match self.action {
            Action::List => {
                let servers = options.look("servers", &fields([]))?;
                options.tell(&servers, page::servers)
            }
            Action::Add { which, threads, ssh } => match ssh.fields() {
                None => set(&which, fields([("threads", threads.into())])),
                Some(ssh) => {
                    let mut asked = which.fields();
                    asked.extend(fields([("threads", threads.into()), ("ssh", ssh)]));
                    options.done(&options.act("servers/reach", asked)?)
                }
            },
            Action::Enable { which } => set(&which, fields([("enabled", true.into())])),
            Action::Disable { which } => set(&which, fields([("enabled", false.into())])),
            Action::Remove { which } => {
                options.done(&options.act("servers/remove", which.fields())?)
            }
            Action::Check { from, reached } => from.compare(&reached, &options, true),
            Action::Update { from, reached, watch } if watch => from.watch(&reached, &options),
            Action::Update { from, reached, .. } => from.compare(&reached, &options, false),
            Action::Announce => {
                let asked = client::change(&options.target, "/v1/servers/refresh", Fields::new())?;
                let body = asked.success(&[(Reason::Absent, NO_REFRESH)])?;
                options.tell(&body, |body| announced(&words(body, "/turn")).to_owned())
            }
        }
    }
}

/// The advice if the lease `server-refresh` does not exist.
const NO_REFRESH: &str =
    "`sexton lease set server-refresh command -- sexton server update --from INVENTORY` sets it up";

/// Returns the message about when the servers will be looked up, for the `turn` in the answer.
fn announced(turn: &str) -> &'static str {
    match turn {
        "current" => "the servers are being looked up now\n",
        "no-delay" => {
            "the servers are not looked up again: that was just done, and the lease server-refresh does not queue requests\n"
        }
        _ => "the servers will be looked up when the period of the lease server-refresh is over\n",
    }
}
