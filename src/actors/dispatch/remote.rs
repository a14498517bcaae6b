//! Attempts that run on another machine: how the machine is reached, and how an attempt is identified there. These types are stored: see
//! the change rule in `persist/format.rs`.
//!
//! Locally, such an attempt is a process like any other: `sexton wrapper near`. It connects to the machine by ssh and starts
//! `sexton wrapper` there, which runs the command. Before the local process exits, it reports how the command ended. That report is stored,
//! since no other process has the result. If the local process ends without a report, a replacement is launched, which only finds out what
//! happened to the attempt on the other machine, and does not run the command again.

use crate::actors::binding::Exit;
use crate::actors::lock::Name;
use crate::actors::process::Spec;
use crate::bytes::Bytes;
use crate::ids::ProcessId;
use serde::{Deserialize, Serialize};

/// How a server on another machine is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remote {
    /// The destination for ssh: `host`, `user@host`, `ssh://user@host:port`, or a host defined in ssh's configuration.
    pub to: Name,
    /// The configuration file for ssh; the default one if empty.
    pub config: Name,
    /// The path of the `sexton` program on that machine; if empty, the program is searched for in `PATH`.
    pub program: Name,
}

impl Remote {
    /// Returns whether a destination is set and no text can be misread on a command line. The words passed to ssh and to the remote shell
    /// are not quoted.
    pub(super) fn is_safe(&self) -> bool {
        // A word that begins with a dash would be taken for a flag.
        let is_plain = |name: &Name, more: &[u8]| {
            let bytes = name.as_bytes();
            let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || more.contains(byte);
            bytes.first() != Some(&b'-') && bytes.iter().all(is_one)
        };
        let is_text = |name: &Name| std::str::from_utf8(name.as_bytes()).is_ok();
        let is_path = |name: &Name| match name.as_bytes() {
            [] => true,
            bytes => bytes.first() == Some(&b'/') && !bytes.contains(&0) && is_text(name),
        };
        !self.to.as_bytes().is_empty()
            && is_plain(&self.to, b"._-@:/[]%")
            && is_plain(&self.program, b"._-/")
            && is_path(&self.config)
    }
}

/// How an attempt on another machine is reached, and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAttempt {
    /// How the machine is reached.
    pub remote: Remote,
    /// The name of the attempt on that machine: the id of its first local process.
    pub known_as: ProcessId,
    /// How long the attempt continues without contact with the coordinator before it stops itself, in milliseconds.
    pub lost_after_ms: u64,
    /// The highest number of an accepted report. A report with this or a lower number is a repetition, and changes nothing.
    pub heard: u64,
    /// How many times the local process was replaced because it ended without reporting the result.
    pub again: u32,
    /// Whether the latest replacement was launched to stop the attempt.
    pub stops: bool,
    /// The result of the attempt; `None` until it is reported.
    pub end: Option<RemoteEnd>,
}

/// The result of an attempt on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteEnd {
    /// The command ended in this way, and no process of the attempt is alive on the machine; [`Exit::Failed`] means that the command never
    /// ran.
    Ended(Exit),
    /// The machine could not be reached, so the command never ran.
    NotReached,
    /// The machine did not answer in time. Even if the machine is still up, the attempt there has stopped itself by now.
    Unreachable,
}

/// The maximum number of times that an attempt's local process is replaced because it ended without reporting the result.
const AGAIN_MAX: u32 = 10;

/// The extra time, in milliseconds, that the local process is given to stop before it is killed, on top of the command's grace period and
/// [`RemoteAttempt::lost_after_ms`].
const MORE_GRACE_MS: u32 = 30_000;

impl RemoteAttempt {
    /// Creates the state of a new attempt on another machine. `known_as` is the id of its local process.
    pub(super) fn new(remote: Remote, known_as: ProcessId, lost_after_ms: u64) -> Self {
        Self { remote, known_as, lost_after_ms, heard: 0, again: 0, stops: false, end: None }
    }

    /// Records the number of an accepted report, and the result if it contains one.
    pub(super) fn receive(&mut self, end: Option<RemoteEnd>, nth: Option<u64>) {
        self.end = end.or(self.end);
        self.heard = nth.unwrap_or(0).max(self.heard);
    }

    /// Given how the local process ended, returns how the attempt ended, and whether contact with it was lost: the machine was unreachable,
    /// or [`AGAIN_MAX`] replacements of the local process ended without reporting the result. Returns `None` if it is not known whether the
    /// attempt has ended.
    pub(super) fn settled(&self, exit: Exit) -> Option<(Exit, bool)> {
        match self.end {
            Some(RemoteEnd::Ended(exit)) => Some((exit, false)),
            Some(RemoteEnd::NotReached) => Some((Exit::Failed, false)),
            Some(RemoteEnd::Unreachable) => Some((Exit::Lost, true)),
            // The process failed to start, so it has not contacted the machine.
            None if exit == Exit::Failed && self.again == 0 => Some((exit, false)),
            None if self.again >= AGAIN_MAX => Some((Exit::Lost, true)),
            None => None,
        }
    }

    /// Returns whether the machine was never reached.
    pub(super) fn is_not_reached(&self) -> bool {
        self.end == Some(RemoteEnd::NotReached)
    }

    /// Records that a new local process replaces the previous one. The new process finds out what happened to the attempt, and stops the
    /// attempt if `stops` is true.
    pub(super) fn reattach(&mut self, stops: bool) {
        self.again += 1;
        self.stops = stops;
    }

    /// Rewrites a spec so that the command runs on the other machine. `secret` is the name of the environment variable with the secret that
    /// authorizes reports. The variable is not passed on, since only the local process uses it.
    pub(super) fn wrap(&self, spec: &mut Spec, secret: &str) {
        let flag = |name: &str, value: Vec<u8>| [Bytes::new(name.as_bytes()), Bytes::new(value)];
        let text = |number: u64| number.to_string().into_bytes();
        let name = |name: &Name| name.as_bytes().to_vec();
        let words = |words: &[&str]| -> Vec<Bytes> {
            words.iter().map(|it| Bytes::new(it.as_bytes())).collect()
        };
        // The keeper executes this path, so it names the keeper's own program, which must have the command `wrapper`.
        let mut argv = words(&["/proc/self/exe", "wrapper", "near"]);
        argv.extend(flag("--to", name(&self.remote.to)));
        if !self.remote.config.as_bytes().is_empty() {
            argv.extend(flag("--ssh-config", name(&self.remote.config)));
        }
        if !self.remote.program.as_bytes().is_empty() {
            argv.extend(flag("--program", name(&self.remote.program)));
        }
        let known_as = self.known_as.to_string().into_bytes();
        argv.extend(flag("--attempt", known_as));
        argv.extend(flag("--lost-after", text(self.lost_after_ms)));
        argv.extend(flag("--grace", text(spec.grace_ms.into())));
        argv.extend(flag("--dir", spec.dir.as_bytes().to_vec()));
        if let Some(file) = &spec.env_file {
            argv.extend(flag("--env-file", file.as_bytes().to_vec()));
        }
        if self.again > 0 {
            argv.extend(words(&["--attach"]));
        }
        if self.stops {
            argv.extend(words(&["--stop"]));
        }
        let own = spec.env.iter().map(|(name, _)| name);
        for name in own.chain(&spec.secrets).filter(|it| *it != secret) {
            argv.extend(flag("--pass", name.clone().into_bytes()));
        }
        argv.extend(words(&["--"]));
        argv.append(&mut spec.argv);
        spec.argv = argv;
        spec.dir = Bytes::new(*b"/");
        spec.limits = Vec::new();
        let lost_after = u32::try_from(self.lost_after_ms).unwrap_or(u32::MAX);
        let grace = spec.grace_ms.saturating_add(lost_after);
        spec.grace_ms = grace.saturating_add(MORE_GRACE_MS);
        // Whatever the stop signal of the command is, the local process must receive SIGTERM, which makes it stop the attempt cleanly.
        spec.stop_signal = 15;
    }
}
