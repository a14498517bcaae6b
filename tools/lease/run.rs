//! `sexton lease run`: requests a pass that runs a command. Once the pass begins, this process acts like a shell that runs the command
//! in the foreground.
//!
//! The coordinator launches the command, and the pass ends only when all processes of the command have exited, so this process may be
//! killed at any time. The command gets this process's streams and environment, together called the *parcel*. Until the launch, the keeper
//! (the process that launches commands for the coordinator) holds the parcel, but only as long as this process runs.

use crate::client::{self, fields, rest, unreadable};
use crate::lease::command::LeaseSelector;
use crate::lease::request::{ClientOptions, HELPS, WAIT_MAX, refused};
use crate::lease::set::{log_file, max_run, period};
use crate::lock::put;
use crate::process::attached::{self, Foreground, HandoverError, HeldParcel};
use crate::process::{self, PARENT, detached, here, outcome, plain, variables};
use crate::report::{Failure, print_answer, tell};
use crate::span::SPAN;
use crate::text::{required, words};
use clap::Args;
use serde_json::Value;
use sexton_api::ids::Token;
use sexton_api::lease::{Get, Lease, Pass, Wait, Withdraw};
use sexton_api::name::Name;
use sexton_api::process::Launch;
use sexton_api::refusal::Reason;
use sexton_api::value::Number;
use std::ffi::OsString;
use std::process::Command;
use std::thread::Builder;
use std::time::Duration;

/// After a failed launch, how often to check whether the coordinator has launched the command again.
const AGAIN: Duration = Duration::from_millis(50);

/// The exit status if it is not known how the pass ended: `EX_TEMPFAIL` of sysexits.h.
const UNKNOWN: u8 = 75;

/// Request a pass: run a command, now or when its turn comes
///
/// If no pass runs and the period of the last one is over, the command runs immediately. Otherwise the request is next and waits
/// for its turn. If another request is already next, this exits with 0 immediately, since the pass of that request has yet to
/// begin and will do the work. So it is safe to request a pass whenever there may be work.
///
/// In the foreground, the command runs as with `sexton run`, on a terminal of its own if standard input and output are terminals,
/// and `sexton lease run` exits with the command's exit status. Ctrl-C during the wait cancels the request; if other requests were turned away because of it, the pass
/// still runs, in the background. The coordinator launches the command: if this process is killed by SIGKILL, a running pass
/// continues, and a waiting one runs in the background when its turn comes. A pass that is killed is run again when its period is
/// over, unless it was requested with --no-delay.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton lease run sync -- ./sync                       now, or when its turn comes
  sexton lease run sync --detach -- ./sync              without waiting: for a request handler
  sexton lease run sync --period 5m -- ./sync           the next pass begins no sooner than five minutes after this one
  sexton lease run sync --no-delay -- ./sync            now or not at all
  sexton lease run sync --max-run 10m -- ./sync         stops the pass if it runs for more than ten minutes
  sexton lease run sync --if 'test -s queue' -- ./sync  only if there is anything to do
  sexton lease run nightly                              the command of `sexton lease set nightly command`

The command has the fencing token of its pass in SEXTON_FENCE and the name of the lease in SEXTON_LEASE. Its program is resolved \
at each launch, so a replaced program runs from the next pass on.

Exit status: that of the command, or 128 plus the signal that ended it; 0 if no pass is needed, or with --no-delay if it is not this \
request's turn, with a note on standard error; 1 the lease is disabled or was reset; 75 it is not known how the pass ended; 125, 126, 127 it could not be launched, as for `sexton run`; 3 no \
coordinator runs there.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub(super) struct Run {
    #[command(flatten)]
    which: LeaseSelector,

    /// The minimum time from the start of this pass to the start of the next [default: that of the lease, or 60s]
    #[arg(long, value_name = SPAN, value_parser = period)]
    period: Option<u64>,

    /// Stop the pass after this time (stop signal, 10 s of grace, SIGKILL), 0 for never [default: that of the lease, or never]
    #[arg(long = "max-run", id = "max_run", value_name = SPAN, value_parser = max_run)]
    limit: Option<u64>,

    /// Do not wait; print the answer to the request and exit
    #[arg(long)]
    detach: bool,

    /// Never wait: run now, or exit with 0
    #[arg(long)]
    no_delay: bool,

    /// Run the command immediately and without the lease, like `sexton run`
    #[arg(long, conflicts_with_all = ["no_delay", "period", "max_run", "logfile"])]
    no_lease: bool,

    /// File to which a line is appended when the pass begins and when it ends [default: that of the lease]
    #[arg(long, value_name = "FILE")]
    logfile: Option<String>,

    /// A shell command that checks whether there is anything to do; if it fails, exit with 0 and request nothing
    #[arg(long = "if", value_name = "COMMAND")]
    condition: Option<OsString>,

    /// The command's working directory [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,

    /// Variables to set for the command, as NAME=VALUE
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Run the command even if its arguments seem to contain a secret; they are stored unchanged, but masked when shown
    #[arg(long)]
    allow_secrets: bool,

    /// With --no-lease, the id of the command's parent process
    #[arg(long, value_name = "ID", env = PARENT)]
    parent: Option<String>,

    /// The command and its arguments [default: those of the lease]
    #[arg(last = true)]
    command: Vec<OsString>,
}

impl Run {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        if !self.has_work()? {
            return Ok(());
        }
        let launch = self.launch()?;
        let processes =
            process::ClientOptions { target: options.target.clone(), json: options.json };
        if self.no_lease {
            let launch = launch.ok_or_else(|| Failure::usage("--no-lease needs a command"))?;
            let launch = Launch { parent: self.parent.clone(), ..launch };
            if self.detach {
                return detached(&processes, &launch);
            }
            let name = self.name();
            return attached::run(&processes, launch, |_| {}, &|record| outcome(record, &name));
        }
        match launch {
            Some(launch) if !self.detach => self.foreground(options, &processes, launch),
            None => {
                let body = self.request(options, None);
                self.answered(options, &body.map_err(|failure| self.without_command(failure))?)
            }
            launch @ Some(_) => {
                let body = self.request(options, launch.as_ref())?;
                self.answered(options, &body)
            }
        }
    }

    /// Adds advice on how to set a command, if a request without a command failed because the lease has none.
    fn without_command(&self, failure: Failure) -> Failure {
        if !failure.is_about("launch") {
            return failure;
        }
        let name = self.which.name.to_text();
        failure.help(format!(
            "give a command, as in `sexton lease run {name} -- ./sync`, or set one: `sexton lease set {name} command -- ./sync`"
        ))
    }

    /// Returns whether there is anything to do: the command of `--if` succeeds, or `--if` was not given.
    fn has_work(&self) -> Result<bool, Failure> {
        let Some(condition) = &self.condition else {
            return Ok(true);
        };
        let status = Command::new("/bin/sh").arg("-c").arg(condition).status();
        let status = status.map_err(|error| {
            Failure::unreachable(format!("failed to run the command of --if: {error}"))
        })?;
        Ok(status.success())
    }

    /// Returns the launch of the command, or `None` if the command line has no command.
    fn launch(&self) -> Result<Option<Launch>, Failure> {
        if self.command.is_empty() {
            return Ok(None);
        }
        let dir = here()?.join(self.dir.as_deref().unwrap_or_default());
        let env = variables(&self.env)?;
        Ok(Some(Launch { env, ..plain(&self.command, self.allow_secrets, &dir)? }))
    }

    /// Requests a pass, and returns the answer.
    fn request(&self, options: &ClientOptions, launch: Option<&Launch>) -> Result<Value, Failure> {
        let log = self.logfile.as_deref().map(log_file).transpose()?;
        let mut asked = fields([
            ("launch", launch.map(sexton_api::fields::of).into()),
            ("period_ms", self.period.into()),
            ("no_delay", self.no_delay.into()),
            ("logfile", log.into()),
            ("max_run_ms", self.limit.into()),
        ]);
        put(&mut asked, "name", &self.which.name);
        client::change(&options.target, "/v1/leases/run", asked)?.success(HELPS)
    }

    /// Returns the name of the command's program for messages, or an empty string if the command line has no command.
    fn name(&self) -> String {
        let first = self.command.first();
        first.map_or_else(String::new, |it| it.to_string_lossy().into_owned())
    }

    /// Prints the answer to a request that does not wait.
    fn answered(&self, options: &ClientOptions, body: &Value) -> Result<(), Failure> {
        if !options.json && self.report_refusal(body) {
            return Ok(());
        }
        print_answer(options.json, body, |body| match words(body, "/turn").as_str() {
            "current" => format!("runs: {}\n", words(body, "/process/id")),
            "next" => "next: the command runs when its turn comes\n".to_owned(),
            other => format!("{other}\n"),
        })
    }

    /// Returns whether the request was refused, and if so, prints why.
    fn report_refusal(&self, body: &Value) -> bool {
        let lease = self.which.name.to_text();
        match words(body, "/turn").as_str() {
            "not-needed" => {
                tell(&format!(
                    "{lease}: not needed: another request is next, and its pass covers this one"
                ));
                true
            }
            "no-delay" => {
                tell(&format!(
                    "{lease}: it is not this request's turn, and --no-delay does not wait"
                ));
                true
            }
            _ => false,
        }
    }

    /// Requests a pass and runs its command in the foreground.
    fn foreground(
        &self,
        options: &ClientOptions,
        processes: &process::ClientOptions,
        mut launch: Launch,
    ) -> Result<(), Failure> {
        // Catch signals before the request is made: from here on, a signal either withdraws the request or is sent to its command.
        let mut foreground = Foreground::listen()?;
        let handed = match HeldParcel::over(processes, &foreground, true) {
            Ok(handed) => {
                launch.parcel = Some(handed.ticket());
                Ok(handed)
            }
            // The keeper refused the parcel: make the request without it rather than fail.
            Err(HandoverError::Refused(reason)) => Err(reason),
            Err(other) => return Err(other.into()),
        };
        let body = self.request(options, Some(&launch))?;
        if self.report_refusal(&body) {
            return Ok(());
        }
        if let Err(reason) = &handed {
            tell(&format!(
                "{reason}: the command runs without this process's streams and environment; its output goes to files"
            ));
        }
        let place = Token(required(&body, "/place")?);
        let lease = body.pointer("/lease").cloned().unwrap_or_default();
        let lease: Lease = serde_json::from_value(lease).map_err(|error| unreadable(&error))?;
        let turn = Turn { options: options.clone(), name: self.which.name.clone(), place };
        let (id, signals) = turn.awaited(&mut foreground, lease)?;
        drop(handed);
        for signal in signals {
            // An error is ignored: the process may have ended meanwhile, as its record will show.
            drop(processes.send(&id, signal));
        }
        let name = self.name();
        foreground.follow(processes, &id, &|record| {
            if record.pointer("/failure/step") != Some(&"parcel".into()) {
                return outcome(record, &name);
            }
            // The keeper was killed and the parcel was lost with it. The coordinator launches the command again, without the parcel.
            tell("the keeper restarted, so the command runs without this process's streams");
            let id = turn.wait_for_relaunch(&id)?;
            outcome(&processes.wait(&id, None, process::WaitExtent::Leader)?, &name)
        })
    }
}

/// A request that waits for its turn.
#[derive(Clone)]
struct Turn {
    options: ClientOptions,
    /// The lease's name.
    name: Name,
    /// The number by which the coordinator knows the request. A pass that began after it has a larger token.
    place: Token,
}

impl Turn {
    /// Waits until the pass has begun, unless a signal withdraws the request. Returns the process id of the command, and the signals that
    /// arrived too late to withdraw the request. If it was withdrawn, fails with the exit status 128 plus the signal.
    fn awaited(
        &self,
        foreground: &mut Foreground,
        lease: Lease,
    ) -> Result<(String, Vec<i32>), Failure> {
        let (come, mut came) = tokio::sync::oneshot::channel();
        let turn = self.clone();
        // The thread is not joined: after a withdrawal it ends with this process.
        let waiting = move || drop(come.send(turn.wait_for_pass(lease)));
        let thread = Builder::new().name("turn".to_owned()).spawn(waiting);
        thread.map_err(|error| {
            Failure::unreachable(format!("failed to start the waiting thread: {error}"))
        })?;
        let mut late = Vec::new();
        loop {
            match foreground.until(&mut came) {
                Ok(Ok(id)) => return Ok((id?, late)),
                Ok(Err(_)) => return Err(Failure::unreachable("the waiting thread panicked")),
                Err(signal) if self.try_withdraw()? => {
                    let status = u8::try_from(128 + signal).unwrap_or(u8::MAX);
                    return Err(Failure::of_command(status, ""));
                }
                Err(signal) => late.push(signal),
            }
        }
    }

    /// Tries to withdraw the request. If it was withdrawn, prints that and returns `true`. Returns `false` if the request no longer waits:
    /// its pass has begun, or it was dropped.
    fn try_withdraw(&self) -> Result<bool, Failure> {
        let asked = Withdraw { name: self.name.clone(), place: self.place };
        let reply = client::ask(&self.options.target, &asked)?;
        if reply.is_refused_as(Reason::Absent) {
            return Ok(false);
        }
        let words = if reply.success(refused)?.value.follows {
            "request withdrawn, but others rely on a pass, which runs in the background when its turn comes"
        } else {
            "request withdrawn"
        };
        tell(&format!("{}: {words}", self.name.to_text()));
        Ok(true)
    }

    /// Waits for the process that is launched in place of `failed`, and returns its id. If the pass has ended, returns the id of its last
    /// process, which may be `failed`.
    fn wait_for_relaunch(&self, failed: &str) -> Result<String, Failure> {
        loop {
            let lease = self.options.ask(&Get { name: self.name.clone() })?.value;
            let is_over = lease.current.as_ref().is_none_or(|it| !it.running);
            let id = self.wait_for_pass(lease)?;
            if is_over || id != failed {
                return Ok(id);
            }
            rest(AGAIN);
        }
    }

    /// Waits until the pass of this request has begun, and returns the id of its process. Fails if the request was dropped, or if another
    /// pass has begun by the time the coordinator answers, so that nothing is known of this one.
    fn wait_for_pass(&self, mut lease: Lease) -> Result<String, Failure> {
        while lease.next.as_ref().is_some_and(|it| it.place == self.place) {
            lease = self.options.wait(&Wait {
                name: self.name.clone(),
                begun: Some(lease.begun + 1),
                whole: None,
                ended: None,
                wait: Number(WAIT_MAX),
            })?;
        }
        let name = self.name.to_text();
        match lease.current {
            Some(Pass { place, process: Some(id), .. }) if place == self.place => Ok(id),
            Some(latest) if latest.token > self.place => {
                let words = "it is not known how the pass of this request ended, or whether it began: another pass has begun since";
                Err(Failure::of_command(UNKNOWN, format!("{name}: {words}")))
            }
            Some(_) | None => {
                let words = "the request was dropped: the lease was disabled or reset";
                Err(Failure::found(format!("{name}: {words}")))
            }
        }
    }
}
