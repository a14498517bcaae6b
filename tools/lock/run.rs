//! `sexton lock run`: runs a command only while it holds a lock.
//!
//! On the coordinator's machine this process is registered with the coordinator, and the lock is bound to it and all its descendants,
//! which include the command. No matter which process is killed, the lock is not granted again while a process of the command is
//! alive. Over TCP, the lock has only a TTL: see `by_ttl.rs`.

use crate::client::{self, Reply, Target, Where, fields, rest};
use crate::lock::answer::{refused, refused_by_holder, wait_line};
use crate::lock::by_ttl::ByTtl;
use crate::lock::command::{WAIT_MAX, ttl};
use crate::lock::named::{LockSelector, name, own_name};
use crate::numbers::between;
use crate::process::{
    ClientOptions, PARENT, WaitExtent, attached, has_ended, here, outcome, plain,
};
use crate::progress::Progress;
use crate::report::{Failure, tell};
use crate::span::{SPAN, seconds};
use crate::text::words;
use clap::{Args, ValueEnum};
use serde_json::Value;
use sexton_api::ids::Token;
use sexton_api::lock::{Acquire, EndedEntries, Granted, Holder, Release, Renew, Standing, Watch};
use sexton_api::name::{EntryNames, Name};
use sexton_api::process::Launch;
use sexton_api::refusal::Reason;
use sexton_api::value::Number;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long to wait for processes that outlive the command before a message about them is printed, in seconds.
const SETTLE: u64 = 1;

/// How long to wait before watching for the loss of the lock. Most short commands exit sooner, and so cause no request.
const SHORT: Duration = Duration::from_millis(100);

/// What to do with the command when its lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnLost {
    /// Send SIGTERM, and SIGKILL if the command is still alive after ten seconds
    Stop,
    /// Print a warning to standard error and let the command run
    Warn,
}

/// Run a command while it holds a lock
///
/// Waits in line, runs the command, and releases the lock when the command and everything it started have ended. The command runs in
/// the foreground as with `sexton run`, on a terminal of its own if standard input and output are terminals, and `sexton lock run`
/// exits with its exit status. The token of the lock is in the command's environment as `SEXTON_FENCE`.
///
/// The lock is bound to the processes themselves: if this process, its command or the coordinator is killed, the lock is granted
/// to the next owner only when no process of the command is left. So it needs no TTL. Over TCP (--url), the coordinator cannot see
/// the processes, so the lock has a TTL, which is renewed while the command runs. That is weaker: a machine that is suspended for
/// longer than the TTL loses the lock without noticing.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton lock run nightly -- ./backup               wait for as long as it takes
  sexton lock run --no-wait nightly -- ./backup     exit status 1 if another owner holds it
  sexton lock run account 42 --wait 30 -- ./settle
  sexton lock run deploy -- sh -c './deploy --fence \"$SEXTON_FENCE\"'

Exit status: that of the command, or 128 plus the signal that ended it; 1 (--conflict-exit) the lock was not granted; 75 \
(--lost-exit) the command lost the lock and was stopped; 125, 126, 127 it could not be launched, as for `sexton run`; 3 no coordinator runs \
there.")]
pub(super) struct Run {
    #[command(flatten)]
    which: LockSelector,

    /// Name of the owner [default: USER@HOST:PID of the shell, and 16 random digits]
    #[arg(long, value_name = "NAME", value_parser = name, env = "SEXTON_OWNER")]
    owner: Option<Name>,

    /// How long to wait for the lock [default: no limit]
    #[arg(long, value_name = SPAN, value_parser = seconds(0, u64::MAX), conflicts_with = "no_wait")]
    wait: Option<u64>,

    /// Do not wait; exit immediately if the lock is not free
    #[arg(long)]
    no_wait: bool,

    /// Priority among waiters; higher goes first
    #[arg(long, default_value_t = 0, value_parser = between(0, u8::MAX))]
    priority: u8,

    /// Kill the command when this process has not renewed the lock for this long [default: no TTL; over TCP, 60 s]
    #[arg(long, value_name = SPAN, value_parser = ttl)]
    ttl: Option<u16>,

    /// The exit status if the lock was not granted
    #[arg(long, value_name = "STATUS", default_value_t = 1)]
    conflict_exit: u8,

    /// The exit status if the lock was lost and the command was stopped
    #[arg(long, value_name = "STATUS", default_value_t = 75)]
    lost_exit: u8,

    /// Over TCP: what to do with the command when the lock is lost
    #[arg(long, value_enum, default_value = "stop")]
    on_lost: OnLost,

    /// The id of the parent process
    #[arg(long, value_name = "ID", env = PARENT)]
    parent: Option<String>,

    /// Run the command even if its arguments seem to contain a secret; they are stored unchanged, but masked when shown
    #[arg(long)]
    allow_secrets: bool,

    /// The command and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// A lock that this process holds.
#[derive(Clone)]
pub(super) struct HeldLock {
    pub(super) target: Target,
    pub(super) lock: Granted,
}

impl Run {
    pub(super) fn run(self, at: &Where) -> Result<(), Failure> {
        let options = ClientOptions::at(at, false)?;
        if !options.target.is_socket() {
            let ttl = self.ttl.unwrap_or(60);
            let with_ttl = Acquire { ttl: Some(Number(ttl)), ..Acquire::default() };
            let held = self.acquire(&options.target, with_ttl)?;
            let lost = (self.on_lost, self.lost_exit);
            return ByTtl::new(held, ttl.into(), lost).run(&self.command);
        }
        if self.on_lost == OnLost::Warn {
            let words = "--on-lost warn is only for a coordinator reached over TCP: on this machine, the command never outlives its lock";
            return Err(Failure::usage(words));
        }
        let command = plain(&self.command, self.allow_secrets, &here()?)?;
        let parent = self.parent.clone();
        let asked = fields([("type", "cli".into()), ("parent", parent.into())]);
        let registered = options.act("register", asked)?;
        let own = words(&registered, "/id");
        let bound = Acquire { process: Some(own.clone()), ..Acquire::default() };
        let held = self.acquire(&options.target, bound)?;
        self.attached(&options, (&own, command), &held)
    }

    /// Waits for the lock and takes it. Fails with the status of `--conflict-exit` if the wait times out. With `--no-wait`, does not wait.
    fn acquire(&self, target: &Target, how: Acquire) -> Result<HeldLock, Failure> {
        let (key, index) = self.which.names();
        let owner = Some(self.owner.clone().map_or_else(own_name, Ok)?);
        let asked = Acquire { key, index, owner, priority: self.priority, ..how };
        let lock = Holder { key: asked.key.clone(), index: asked.index.clone() };
        let mut left = if self.no_wait { Some(0) } else { self.wait };
        let is_shown = left != Some(0) && std::io::stderr().is_terminal();
        let _progress = is_shown.then(|| show_wait(target, &lock));
        loop {
            let turn = left.unwrap_or(WAIT_MAX).min(WAIT_MAX);
            let reply = client::wait(target, &asked, turn)?;
            left = left.map(|left| left - turn);
            let is_held = reply.is_refused_as(Reason::Held);
            if is_held && left != Some(0) {
                continue;
            }
            let has_waited = self.wait.is_some_and(|wait| wait > 0);
            let granted = reply.success(|body| {
                if !is_held {
                    return refused(body);
                }
                let failure = refused_by_holder(target, &lock, (body, has_waited));
                failure.with_status(self.conflict_exit)
            })?;
            return Ok(HeldLock { target: target.clone(), lock: granted.value });
        }
    }

    /// Runs the command, recorded as a child of this process, so that the lock is bound to the command too. Fails with the status of
    /// `--lost-exit` if the command was stopped because the lock was lost.
    fn attached(
        &self,
        options: &ClientOptions,
        (own, command): (&str, Launch),
        held: &HeldLock,
    ) -> Result<(), Failure> {
        let asked = Launch {
            env: [("SEXTON_FENCE".to_owned(), held.lock.token.to_string())].into(),
            parent: Some(own.to_owned()),
            bound: true,
            r#type: Some("cli".to_owned()),
            ..command
        };
        let lost = Arc::new(Mutex::new(false));
        let started = |record: &Value| {
            let id = words(record, "/id");
            if let Some(ttl) = self.ttl {
                held.keep_alive(&id, ttl);
            }
            let (held, lost) = (held.clone(), Arc::clone(&lost));
            // The thread ends with this process.
            let watching = move || {
                rest(SHORT);
                held.stop_when_lost(&id, &lost);
            };
            drop(Builder::new().name("watch".to_owned()).spawn(watching));
        };
        let name =
            self.command.first().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        attached::run(options, asked, started, &|record| {
            let is_fenced = record.pointer("/stopped_by") == Some(&"fence".into());
            let was_lost = *lost.lock().unwrap_or_else(PoisonError::into_inner);
            if is_fenced || was_lost {
                let words = format!("{name}: the lock was lost, so the command was stopped");
                return Err(Failure::of_command(self.lost_exit, words));
            }
            settle(options, record, held);
            outcome(record, &name)
        })
    }
}

/// Shows the holder of a lock on the terminal, until the returned value is dropped.
fn show_wait(target: &Target, lock: &Holder) -> Progress {
    let (target, lock) = (target.clone(), lock.clone());
    // The line is rewritten ten times a second, but one request a second is enough.
    let (looks, line) = (AtomicU32::new(0), Mutex::new(None));
    let words = move || {
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
            *line = wait_line(&target, &lock);
        }
        line.clone()
    };
    Progress::start(words, |_| {})
}

/// Releases the lock if no process of the command is left. Otherwise prints that the lock is held until the last of these processes has
/// ended.
fn settle(options: &ClientOptions, record: &Value, held: &HeldLock) {
    let tree = || options.wait(&words(record, "/id"), Some(SETTLE), WaitExtent::Tree);
    if has_ended(record) || tree().as_ref().is_ok_and(has_ended) {
        // An error does not matter: the lock is released when this process ends. The request only releases it sooner.
        drop(held.release(true));
    } else {
        tell(
            "processes that the command started are still running: the lock is held until they have ended",
        );
    }
}

impl HeldLock {
    /// Renews the lock.
    pub(super) fn renew(&self) -> Result<Reply<Standing>, Failure> {
        let (EntryNames { key, index, owner }, token) = self.names();
        let (owner, token) = (Some(owner), Some(token));
        client::wait(&self.target, &Renew { key, index, owner, token }, 0)
    }

    /// Releases the lock. `leaves` is whether the process that it is bound to is about to exit.
    pub(super) fn release(&self, leaves: bool) -> Result<Reply<EndedEntries>, Failure> {
        let (EntryNames { key, index, owner }, token) = self.names();
        let (owner, token) = (Some(owner), Some(token));
        client::wait(&self.target, &Release { key, index, owner, token, leaves }, 0)
    }

    fn names(&self) -> (EntryNames, Token) {
        (self.lock.names.clone(), self.lock.token)
    }

    /// Waits until the lock is lost, then stops the command, and sets `lost` if it was still running: the end of a command that the lock is
    /// bound to ends the lock as well. `lost` is locked until this is known.
    fn stop_when_lost(&self, id: &str, lost: &Mutex<bool>) {
        let (EntryNames { key, index, owner }, token) = self.names();
        let asked = Watch { key, index, owner: Some(owner), token, wait: Number(WAIT_MAX) };
        loop {
            let Ok(reply) = client::wait(&self.target, &asked, WAIT_MAX) else {
                // The coordinator cannot be reached, perhaps because it is restarting. A restart does not change the lock, so try again.
                rest(Duration::from_secs(1));
                continue;
            };
            if reply.success(refused).is_ok_and(|it| it.value.lost) {
                let mut lost = lost.lock().unwrap_or_else(PoisonError::into_inner);
                let stop = fields([("id", id.into()), ("tree", true.into())]);
                let stopped = client::send(&self.target, "/v1/processes/stop", stop, 0);
                *lost = stopped.is_ok_and(|answer| answer.status == 200);
                return;
            }
        }
    }

    /// Binds the lock to the command, and starts a thread that renews the lock. The command is killed if the lock is not renewed for
    /// `ttl` seconds.
    fn keep_alive(&self, id: &str, ttl: u16) {
        let EntryNames { key, index, owner } = self.lock.names.clone();
        let asked = Acquire {
            key,
            index,
            owner: Some(owner),
            ttl: Some(Number(ttl)),
            process: Some(id.to_owned()),
            kill_before_grant: true,
            ..Acquire::default()
        };
        // If this fails, the lock stays bound to this process.
        drop(client::wait(&self.target, &asked, 0));
        let held = self.clone();
        let renewing = move || {
            loop {
                rest(Duration::from_secs(ttl.into()) / 3);
                drop(held.renew());
            }
        };
        // If the thread cannot be spawned, the command is killed after the TTL.
        drop(Builder::new().name("renew".to_owned()).spawn(renewing));
    }
}
