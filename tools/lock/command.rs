//! The subcommands of `sexton lock`, and the requests they make.

use crate::client::{self, Answer, Target, Where};
use crate::events::{self, EventFilter};
use crate::lock::answer::{HELD_ON, refused, success, table};
use crate::lock::named::{EntrySelector, LockSelector, OwnerSelector, name, own_name, put, shown};
use crate::lock::{left, run};
use crate::numbers::between;
use crate::report::{Failure, print};
use crate::span::{SPAN, seconds};
use crate::text::{number, words};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use sexton::actors::lock::Name;
use sexton::refusal::Reason;

/// The maximum wait of one request, in seconds. Longer waits take several requests.
pub(super) const WAIT_MAX: u64 = 3600;

/// The maximum TTL of a lock, in seconds.
pub(super) const TTL_MAX: u64 = u16::MAX as u64;

/// The maximum number of entries per request.
const PAGE: u64 = 1000;

/// Take, renew and release locks, and show who holds them
///
/// Connects to `DATA/sexton.sock`, or to the coordinator of --url. Each `acquire` acts as a new owner, unless --owner or
/// `SEXTON_OWNER` names one. Anyone who has the token of a lock can renew and release it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  export SEXTON_OWNER=backup-$$                          one owner for all commands below
  sexton lock acquire backup --ttl 2h && ./backup; sexton lock release backup
  sexton lock acquire account 42 --wait 30 --ttl 2m      wait at most 30 s, hold it for two minutes
  sexton lock renew account 42 --token 17                hold it for two more minutes, unless it was lost
  sexton lock list                                       all holders and waiters

Exit status: 0 success; 1 refused: held, absent, lost; 2 usage; 3 no coordinator runs there; 4 it has halted.")]
pub(crate) struct Lock {
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
    /// Take a lock
    ///
    /// Without --owner, each call acts as a new owner, so of two calls only one gets the lock. If --owner already holds the lock, the
    /// lock is renewed with the new --ttl. Prints the token, which is larger for each later holder: pass it to the resource that the
    /// lock guards, so that the resource can refuse an earlier holder. If this command ends while it waits, by Ctrl-C or otherwise,
    /// it leaves the line; if the coordinator restarts meanwhile, the wait continues.
    #[command(after_help = "\
Examples:
  sexton lock acquire backup                   exit status 1 if another owner holds it
  sexton lock acquire backup --wait 10m        wait in line for up to ten minutes
  token=$(sexton lock acquire backup --json | jq -e .token) && ./backup
  sexton lock release backup --token \"$token\"")]
    Acquire {
        #[command(flatten)]
        which: LockSelector,
        /// Name of the owner [default: USER@HOST:PID of the shell, and 16 random digits]
        #[arg(long, value_name = "NAME", value_parser = name, env = "SEXTON_OWNER")]
        owner: Option<Name>,
        /// How long until the lock expires unless renewed: whole seconds, or a form such as 90s, 5m, 2h; at most 18h
        #[arg(long, value_name = SPAN, default_value = "60", value_parser = seconds(1, TTL_MAX))]
        ttl: u64,
        /// How long to wait for the lock: whole seconds, or a form such as 90s or 5m; at most 1h
        #[arg(long, value_name = SPAN, default_value = "0", value_parser = seconds(0, WAIT_MAX))]
        wait: u64,
        /// Priority among waiters; higher goes first
        #[arg(long, default_value_t = 0, value_parser = between(0, u8::MAX))]
        priority: u8,
    },
    Run(run::Run),
    /// Renew a lock, or a place in line for it, so that its time starts over
    #[command(after_help = "Example: sexton lock renew backup --token 17")]
    Renew {
        #[command(flatten)]
        which: LockSelector,
        #[command(flatten)]
        of: EntrySelector,
    },
    /// Release a lock, or leave the line for it
    ///
    /// With --force, releases the lock no matter who holds it: use it when the holder will not come back, or its process cannot be
    /// killed. A command that `sexton lock run` runs under the lock is stopped.
    #[command(after_help = "\
Examples:
  sexton lock release backup --token 17
  sexton lock release backup --force           take it from its holder")]
    Release {
        #[command(flatten)]
        which: LockSelector,
        #[command(flatten)]
        of: EntrySelector,
        /// Take the lock from its holder, even while the holder's command runs
        #[arg(long, conflicts_with_all = ["token"])]
        force: bool,
    },
    /// Release all locks of an owner, and give up its places in line
    #[command(after_help = "Example: sexton lock release-all --owner worker-7")]
    ReleaseAll {
        #[command(flatten)]
        whose: OwnerSelector,
    },
    /// Print who holds a lock
    #[command(after_help = "Example: sexton lock owner backup")]
    Owner {
        #[command(flatten)]
        which: LockSelector,
    },
    /// Print an owner's position in line; position 1 is the holder
    #[command(after_help = "Example: sexton lock place backup --owner worker-7")]
    Place {
        #[command(flatten)]
        which: LockSelector,
        #[command(flatten)]
        whose: OwnerSelector,
    },
    /// Show who holds locks and who waits for them
    #[command(after_help = "\
Examples:
  sexton lock list                             all of them
  sexton lock list account --owner worker-7    entries of one key and one owner
  sexton lock list --json | jq -r '.locks[].owner'")]
    List {
        /// Only this key
        #[arg(value_parser = name)]
        key: Option<Name>,
        /// Only this index
        #[arg(value_parser = name)]
        index: Option<Name>,
        /// Only this owner
        #[arg(long, value_name = "NAME", value_parser = name)]
        owner: Option<Name>,
        /// The maximum number of rows to show
        #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
    },
    /// Show events of locks as they happen; with --token, wait until the lock held with that token is lost
    ///
    /// Without --token, shows who is granted a lock, waits for one, releases it or lets it expire, until the coordinator stops.
    /// With --token, waits until the lock expires or anyone releases it.
    #[command(after_help = "\
Examples:
  sexton lock watch                            all locks, until Ctrl-C
  sexton lock watch 'account*'                 locks whose key begins with account
  sexton lock watch backup --token 17 && kill \"$worker\"

Exit status: 0 the lock is lost, or the coordinator stopped; 1 it is still held when --wait times out.")]
    Watch(Watched),
}

/// The lock or locks that `sexton lock watch` watches.
#[derive(Args)]
struct Watched {
    /// The key of the lock; without --token, a pattern in which * matches anything [default: all locks]
    #[arg(value_name = "KEY", value_parser = name)]
    key: Option<Name>,

    /// The index below the key
    #[arg(value_parser = name, requires = "token")]
    index: Option<Name>,

    /// The token of the holder
    #[arg(long, requires = "key", value_parser = crate::numbers::token)]
    token: Option<u64>,

    /// With --token, the owner that must hold the lock [default: any]
    #[arg(long, value_name = "NAME", value_parser = name, env = "SEXTON_OWNER")]
    owner: Option<Name>,

    /// How long to wait until the lock is lost: whole seconds, or a form such as 90s or 5m [default: no limit]
    #[arg(long, value_name = SPAN, requires = "token", value_parser = seconds(0, u64::MAX))]
    wait: Option<u64>,
}

/// The coordinator that receives the requests, and the format of the output.
struct ClientOptions {
    target: Target,
    json: bool,
}

impl Lock {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Action::Run(run) = self.action {
            return run.run(&self.at);
        }
        let options = ClientOptions { target: self.at.target()?, json: self.json };
        options.act(self.action)
    }
}

/// Builds the fields of a request from those names that are `Some`.
fn filter(names: [(&str, Option<Name>); 3]) -> Map<String, Value> {
    let mut filter = Map::new();
    for (field, name) in names {
        if let Some(name) = name {
            put(&mut filter, field, &name);
        }
    }
    filter
}

impl ClientOptions {
    fn act(&self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Acquire { which, owner, ttl, wait, priority } => {
                let terms =
                    [("ttl", ttl.into()), ("wait", wait.into()), ("priority", priority.into())];
                let owner = owner.map_or_else(own_name, Ok)?;
                let mut fields = entry(&which, &owner);
                fields.extend(members(terms));
                self.acquire(fields, wait)
            }
            Action::Run(_) => unreachable!("`lock run` makes its own requests"),
            Action::Renew { which, of } => {
                let mut fields = lock(&which);
                of.put(&mut fields)?;
                let answer = of.named_in(self.post("renew", fields, 0)?, &which);
                self.tell(&answer, |said| format!("renewed, {}\n", place(said)))
            }
            Action::Release { which, of, force } => {
                let mut fields = lock(&which);
                let answer = if force {
                    self.post("force", fields, 0)?
                } else {
                    of.put(&mut fields)?;
                    of.named_in(self.post("release", fields, 0)?, &which)
                };
                self.tell(&answer, |_| "released\n".to_owned())
            }
            Action::ReleaseAll { whose } => {
                let mut fields = Map::new();
                put(&mut fields, "owner", &whose.owner);
                let answer = self.post("release-all", fields, 0)?;
                self.tell(&answer, |said| format!("released {}\n", number(said, "/ended")))
            }
            Action::Owner { which } => {
                let answer = self.get("owner", &lock(&which))?;
                self.tell(&answer, |said| format!("{}\n", shown(said, "owner")))
            }
            Action::Place { which, whose } => {
                let answer = self.get("place", &entry(&which, &whose.owner))?;
                self.tell(&answer, |said| format!("{}\n", place(said)))
            }
            Action::List { key, index, owner, limit } => {
                self.list(&filter([("key", key), ("index", index), ("owner", owner)]), limit)
            }
            Action::Watch(watched) => self.watch(watched),
        }
    }

    /// Shows the events of locks. With a token, waits until the lock held with that token is lost instead.
    fn watch(&self, watched: Watched) -> Result<(), Failure> {
        let Watched { key, index, owner, token, wait } = watched;
        if let (Some(key), Some(token)) = (&key, token) {
            let key = key.clone();
            let mut fields = lock(&LockSelector { key, index });
            let token = Some(token);
            EntrySelector { token, owner }.put(&mut fields)?;
            return self.until_lost(&fields, wait);
        }
        let wanted =
            EventFilter { actor: Some("lock"), name: key.as_ref(), ..EventFilter::default() };
        events::follow(&self.target, &wanted, self.json)
    }

    fn acquire(&self, fields: Map<String, Value>, wait: u64) -> Result<(), Failure> {
        let answer = self.post("acquire", fields, wait)?;
        if wait > 0 && answer.is_refused_as(Reason::Held) {
            return Err(refused(answer.json()?).help(HELD_ON));
        }
        self.tell(&answer, |said| {
            let (owner, token) = (shown(said, "owner"), words(said, "/token"));
            format!("acquired as {owner}, token {token}\n")
        })
    }

    fn list(&self, filter: &Map<String, Value>, limit: u64) -> Result<(), Failure> {
        let mut entries: Vec<Value> = Vec::new();
        let mut next = Value::Null;
        loop {
            let left = limit - entries.len() as u64;
            let mut query = filter.clone();
            query.insert("limit".to_owned(), left.min(PAGE).to_string().into());
            if !next.is_null() {
                query.insert("after".to_owned(), next);
            }
            let mut said = success(&self.get("", &query)?)?;
            next = said.get_mut("next").map_or(Value::Null, Value::take);
            if let Some(Value::Array(found)) = said.get_mut("locks").map(Value::take) {
                entries.extend(found);
            }
            if next.is_null() || entries.len() as u64 >= limit {
                break;
            }
        }
        if self.json {
            return print(&format!("{}\n", json!({ "locks": entries, "next": next })));
        }
        if entries.is_empty() {
            return print("no locks\n");
        }
        // The answer to each request is sorted, but the list as a whole is not.
        entries.sort_by_cached_key(|entry| {
            let place = number(entry, "/place");
            (shown(entry, "key"), shown(entry, "index"), place)
        });
        print(&table(&entries))?;
        print(&left::lines(&self.target, &entries))?;
        if next.is_null() {
            return Ok(());
        }
        print(&format!("there are more: --limit is {limit}\n"))
    }

    /// Waits until the lock is lost, by repeating requests that each wait at most an hour, and prints the result. Fails if the lock is
    /// still held after `wait` seconds; if `wait` is `None`, waits without a limit.
    fn until_lost(&self, fields: &Map<String, Value>, wait: Option<u64>) -> Result<(), Failure> {
        let mut left = wait;
        loop {
            let turn = left.unwrap_or(WAIT_MAX).min(WAIT_MAX);
            let mut fields = fields.clone();
            fields.insert("wait".to_owned(), turn.into());
            let answer = self.post("watch", fields, turn)?;
            let said = success(&answer)?;
            left = left.map(|left| left - turn);
            let lost = said.pointer("/lost") == Some(&Value::Bool(true));
            if lost || left == Some(0) {
                if self.json {
                    print(&answer.body)?;
                }
                return match (lost, self.json) {
                    (true, true) => Ok(()),
                    (true, false) => print("lost\n"),
                    (false, _) => Err(Failure::found("timed out waiting: the lock is still held")),
                };
            }
        }
    }

    fn post(&self, what: &str, fields: Map<String, Value>, wait: u64) -> Result<Answer, Failure> {
        let path = format!("/v1/locks/{what}");
        if wait == 0 {
            return client::change(&self.target, &path, fields);
        }
        client::send(&self.target, &path, fields, wait)
    }

    fn get(&self, what: &str, fields: &Map<String, Value>) -> Result<Answer, Failure> {
        let mut path = "/v1/locks".to_owned();
        if !what.is_empty() {
            path.push('/');
            path.push_str(what);
        }
        client::look(&self.target, &path, fields)
    }

    /// Prints an answer, as JSON or formatted by `page`.
    fn tell(&self, answer: &Answer, page: impl FnOnce(&Value) -> String) -> Result<(), Failure> {
        if self.json {
            print(&answer.body)?;
        }
        let said = success(answer)?;
        if self.json { Ok(()) } else { print(&page(&said)) }
    }
}

fn lock(which: &LockSelector) -> Map<String, Value> {
    let mut fields = Map::new();
    put(&mut fields, "key", &which.key);
    if let Some(index) = &which.index {
        put(&mut fields, "index", index);
    }
    fields
}

pub(super) fn entry(which: &LockSelector, owner: &Name) -> Map<String, Value> {
    let mut fields = lock(which);
    put(&mut fields, "owner", owner);
    fields
}

fn members(
    members: impl IntoIterator<Item = (&'static str, Value)>,
) -> impl Iterator<Item = (String, Value)> {
    members.into_iter().map(|(field, value)| (field.to_owned(), value))
}

/// Describes a position in line.
fn place(said: &Value) -> String {
    match number(said, "/place") {
        first if first == 1 => {
            format!("place 1: it holds the lock, token {}", words(said, "/token"))
        }
        place if said.pointer("/away") == Some(&true.into()) => {
            format!("place {place}: it waits, and its client is away")
        }
        place => format!("place {place}: it waits"),
    }
}
