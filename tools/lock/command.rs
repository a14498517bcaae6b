//! The subcommands of `sexton lock`, and the requests they make.

use crate::client::{self, Reply, Target, Where};
use crate::events::{self, EventFilter};
use crate::lock::answer::{HELD_ON, refused, table};
use crate::lock::named::{EntrySelector, LockSelector, OwnerSelector, name, own_name};
use crate::lock::{left, run};
use crate::numbers::between;
use crate::report::{Failure, print};
use crate::span::{SPAN, seconds};
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sexton_api::ids::Token;
use sexton_api::lock::{
    self as api, Acquire, Force, Granted, Holder, List, Locks, Place, Release, ReleaseAll, Renew,
    Standing, Watch,
};
use sexton_api::name::Name;
use sexton_api::refusal::Reason;
use sexton_api::value::Number;

/// The maximum wait of one request, in seconds. Longer waits take several requests.
pub(super) const WAIT_MAX: u64 = 3600;

/// Parses the TTL of a lock, in seconds.
pub(super) fn ttl(text: &str) -> Result<u16, String> {
    let seconds = seconds(1, u16::MAX.into())(text)?;
    Ok(u16::try_from(seconds).expect("the span should be within its bounds"))
}

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
        #[arg(long, value_name = SPAN, default_value = "60", value_parser = ttl)]
        ttl: u16,
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

impl ClientOptions {
    fn act(&self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Acquire { which, owner, ttl, wait, priority } => {
                let owner = owner.map_or_else(own_name, Ok)?;
                let (key, index) = which.names();
                let ttl = Some(Number(ttl));
                let asked =
                    Acquire { key, index, owner: Some(owner), ttl, priority, ..Acquire::default() };
                self.acquire(&asked, wait)
            }
            Action::Run(_) => unreachable!("`lock run` makes its own requests"),
            Action::Renew { which, of } => {
                of.check()?;
                let (key, index) = which.names();
                let asked =
                    Renew { key, index, owner: of.owner.clone(), token: of.token.map(Token) };
                let reply = of.named_in(client::ask(&self.target, &asked)?, &which);
                self.tell(reply, |it| format!("renewed, {}\n", place(*it, false)))
            }
            Action::Release { which, of, force } => {
                let (key, index) = which.names();
                let reply = if force {
                    client::ask(&self.target, &Force { key, index })?
                } else {
                    of.check()?;
                    let (owner, token) = (of.owner.clone(), of.token.map(Token));
                    let asked = Release { key, index, owner, token, leaves: false };
                    of.named_in(client::ask(&self.target, &asked)?, &which)
                };
                self.tell(reply, |_| "released\n".to_owned())
            }
            Action::ReleaseAll { whose: OwnerSelector { owner } } => {
                let reply = client::ask(&self.target, &ReleaseAll { owner })?;
                self.tell(reply, |it| format!("released {}\n", it.ended))
            }
            Action::Owner { which } => {
                let (key, index) = which.names();
                let reply = client::ask(&self.target, &Holder { key, index })?;
                self.tell(reply, |it| format!("{}\n", it.names.owner.to_text()))
            }
            Action::Place { which, whose: OwnerSelector { owner } } => {
                let (key, index) = which.names();
                let reply = client::ask(&self.target, &Place { key, index, owner })?;
                self.tell(reply, |it| format!("{}\n", place(it.standing, it.away)))
            }
            Action::List { key, index, owner, limit } => {
                self.list(&List { key, index, owner, ..List::default() }, limit)
            }
            Action::Watch(watched) => self.watch(watched),
        }
    }

    /// Shows the events of locks. With a token, waits until the lock held with that token is lost instead.
    fn watch(&self, watched: Watched) -> Result<(), Failure> {
        let Watched { key, index, owner, token, wait: wait_max } = watched;
        if let (Some(key), Some(token)) = (&key, token) {
            let (key, index) = (key.clone(), index.unwrap_or_default());
            let wait = Number::default();
            return self
                .until_lost(Watch { key, index, owner, token: Token(token), wait }, wait_max);
        }
        let wanted =
            EventFilter { actor: Some("lock"), name: key.as_ref(), ..EventFilter::default() };
        events::follow(&self.target, &wanted, self.json)
    }

    fn acquire(&self, asked: &Acquire, wait: u64) -> Result<(), Failure> {
        if wait == 0 {
            return self.tell(client::ask(&self.target, asked)?, acquired);
        }
        let reply = client::wait(&self.target, asked, wait)?;
        let is_held = reply.is_refused_as(Reason::Held);
        self.tell(reply, acquired).map_err(|it| if is_held { it.help(HELD_ON) } else { it })
    }

    fn list(&self, asked: &List, limit: u64) -> Result<(), Failure> {
        let (entries, next) = client::all(limit, |limit, after| {
            let reply = client::ask(&self.target, &List { limit, after, ..asked.clone() })?;
            let page = reply.read_as::<Locks<Value>>().success(refused)?.value;
            Ok((page.locks, page.next))
        })?;
        if self.json {
            let locks = client::written(&entries);
            return print(&format!("{}\n", json!({ "locks": locks, "next": next })));
        }
        let mut entries: Vec<api::Lock> = entries.into_iter().map(|entry| entry.it).collect();
        if entries.is_empty() {
            return print("no locks\n");
        }
        // The answer to each request is sorted, but the list as a whole is not.
        let text = |name: &Name| name.to_text();
        entries.sort_by_cached_key(|it| {
            (text(&it.names.key), text(&it.names.index), it.standing.place)
        });
        print(&table(&entries))?;
        print(&left::lines(&self.target, &entries))?;
        if next.is_none() {
            return Ok(());
        }
        print(&format!("there are more: --limit is {limit}\n"))
    }

    /// Waits until the lock is lost, by repeating requests that each wait at most an hour, and prints the result. Fails if the lock is
    /// still held after `wait` seconds; if `wait` is `None`, waits without a limit.
    fn until_lost(&self, mut asked: Watch, wait: Option<u64>) -> Result<(), Failure> {
        let mut left = wait;
        loop {
            let turn = left.unwrap_or(WAIT_MAX).min(WAIT_MAX);
            asked.wait = Number(turn);
            let answer = client::wait(&self.target, &asked, turn)?.success(refused)?;
            left = left.map(|left| left - turn);
            let lost = answer.value.lost;
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

    /// Prints an answer, as JSON or formatted by `page`.
    fn tell<A: DeserializeOwned>(
        &self,
        reply: Reply<A>,
        page: impl FnOnce(&A) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            print(reply.body())?;
        }
        let answer = reply.success(refused)?;
        if self.json { Ok(()) } else { print(&page(&answer.value)) }
    }
}

fn acquired(it: &Granted) -> String {
    format!("acquired as {}, token {}\n", it.names.owner.to_text(), it.token)
}

/// Describes a position in line.
fn place(Standing { place, token }: Standing, away: bool) -> String {
    match (place, token) {
        (1, Some(token)) => format!("place 1: it holds the lock, token {token}"),
        _ if away => format!("place {place}: it waits, and its client is away"),
        _ => format!("place {place}: it waits"),
    }
}
