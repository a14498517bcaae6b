//! Runs a command under a lock with a TTL, which is renewed while the command runs. This is for a coordinator that is reached over TCP,
//! since it cannot watch the command's processes. It is weaker than a lock that is bound to processes: if the machine is suspended for
//! longer than the TTL, another owner may get the lock before this process can stop the command.

use crate::client::{Reply, instant, rest};
use crate::lock::run::{HeldLock, OnLost};
use crate::report::{Failure, tell};
use crate::signals::Signals;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sexton_api::lock::Standing;
use sexton_api::refusal::Reason;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;

/// The time between SIGTERM and SIGKILL for a command whose lock was lost.
const GRACE: Duration = Duration::from_secs(10);

/// Signals that are forwarded to the command.
const FORWARDED: [Signal; 4] = [Signal::HUP, Signal::USR1, Signal::USR2, Signal::TERM];

/// Signals that the terminal also sends to the command; this process ignores them and waits for the command.
const IGNORED: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// A held lock with a TTL, and what to do with the command if the lock is lost.
pub(super) struct ByTtl {
    held: HeldLock,
    ttl: Duration,
    on_lost: OnLost,
    lost_exit: u8,
}

impl ByTtl {
    pub(super) const fn new(held: HeldLock, ttl: u64, (on_lost, lost_exit): (OnLost, u8)) -> Self {
        Self { held, ttl: Duration::from_secs(ttl), on_lost, lost_exit }
    }

    /// Runs the command, and fails with its exit status unless that is 0. If the command was stopped because the lock was lost, fails with
    /// the status `lost_exit` instead.
    pub(super) fn run(self, command: &[OsString]) -> Result<(), Failure> {
        let (name, arguments) = command.split_first().expect("a command should be required");
        let failed = |error: &dyn std::fmt::Display| {
            Failure::of_command(125, format!("{}: {error}", name.to_string_lossy()))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        // Catch signals before the command starts, so that no signal meant for it is missed.
        let heard = [&FORWARDED[..], &IGNORED].concat();
        let heard: Vec<i32> = heard.into_iter().map(Signal::as_raw).collect();
        let signals = runtime.block_on(async { Signals::listen(&heard) });
        let signals = signals.map_err(|error| failed(&error))?;
        let mut child = Command::new(name)
            .args(arguments)
            .env("SEXTON_FENCE", self.held.lock.token.to_string())
            .spawn()
            .map_err(|error| {
                let is_absent = error.kind() == std::io::ErrorKind::NotFound;
                let status = if is_absent { 127 } else { 126 };
                Failure::of_command(status, format!("{}: {error}", name.to_string_lossy()))
            })?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
        let process = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        // The child has not been waited for, so its PID cannot belong to another process.
        let process = Arc::new(
            process
                .transpose()
                .map_err(|error| failed(&error))?
                .expect("a child should have a PID"),
        );
        let lost = Arc::new(AtomicBool::new(false));
        self.renew(&process, &lost);
        let (ended, end) = tokio::sync::oneshot::channel();
        let waiting = move || {
            let status = child.wait();
            let _ = ended.send(());
            status
        };
        let waiting = Builder::new().name("wait".to_owned()).spawn(waiting);
        let waiting = waiting.map_err(|error| failed(&error))?;
        runtime.block_on(signals.pass_on(end, |number| {
            let forwarded = FORWARDED.into_iter().find(|it| it.as_raw() == number);
            if let Some(signal) = forwarded {
                // An error is ignored: the command may have ended meanwhile, as `wait` will show.
                let _ = pidfd_send_signal(&*process, signal);
            }
        }));
        let status = waiting.join().map_err(|_| failed(&"the waiting thread panicked"))?;
        let status = status.map_err(|error| failed(&error))?;
        // After the release, the next renewal is refused: that is no loss.
        let was_lost = lost.load(Ordering::Acquire);
        drop(self.held.release(false));
        if was_lost && self.on_lost == OnLost::Stop {
            let words = format!(
                "{}: the lock was lost, so the command was stopped",
                name.to_string_lossy()
            );
            return Err(Failure::of_command(self.lost_exit, words));
        }
        exit(status)
    }

    /// Starts a thread that renews the lock. If the lock is lost, the thread sets `lost`, and prints a warning or stops the command.
    fn renew(&self, process: &Arc<OwnedFd>, lost: &Arc<AtomicBool>) {
        let (held, ttl, on_lost) = (self.held.clone(), self.ttl, self.on_lost);
        let (process, lost) = (Arc::clone(process), Arc::clone(lost));
        let renewing = move || {
            let mut kept = instant();
            loop {
                rest(ttl / 3);
                let asked = instant();
                let reply = held.renew();
                let is_gone = |reply: &Reply<Standing>| {
                    let reasons = [Reason::Absent, Reason::Stale, Reason::Fencing];
                    reasons.into_iter().any(|reason| reply.is_refused_as(reason))
                };
                match reply {
                    Ok(reply) if is_gone(&reply) => break,
                    Ok(reply) if reply.is_success() => kept = asked,
                    // The renewal failed, but the TTL has not expired yet.
                    Ok(_) | Err(_) if kept.elapsed() < ttl => {}
                    Ok(_) | Err(_) => break,
                }
            }
            lost.store(true, Ordering::Release);
            if on_lost == OnLost::Warn {
                tell("the lock was lost; the command keeps running");
                return;
            }
            let _ = pidfd_send_signal(&*process, Signal::TERM);
            // A suspended command handles SIGTERM only once it continues.
            let _ = pidfd_send_signal(&*process, Signal::CONT);
            rest(GRACE);
            let _ = pidfd_send_signal(&*process, Signal::KILL);
        };
        // If the thread cannot be spawned, the lock expires after its TTL, as on a suspended machine.
        drop(Builder::new().name("renew".to_owned()).spawn(renewing));
    }
}

/// Fails with the exit status that a shell would report for the command, unless that is 0: its exit code, or 128 plus the number of the
/// signal that killed it.
fn exit(status: ExitStatus) -> Result<(), Failure> {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(0) => Ok(()),
        code => Err(Failure::of_command(code.unwrap_or(125), "")),
    }
}
