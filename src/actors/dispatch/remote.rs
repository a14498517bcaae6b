//! Attempts that run on another machine: how it is reached, and what is known there of an attempt. Stored: see the change rule in
//! `persist/format.rs`.
//!
//! Here such an attempt is a process like any other: `sexton wrapper near`, which reaches the machine by ssh, has the command run
//! there by `sexton wrapper`, and reports how that ended before it ends itself. So what only it knows is told once and kept. If it
//! ends without having told, another takes its place, asks there what became of the attempt, and starts nothing.

use crate::actors::binding::Exit;
use crate::actors::dispatch::machine::DispatchMachine;
use crate::actors::dispatch::message::Report;
use crate::actors::dispatch::outcome::{Outcome, Refused, TaskStep};
use crate::actors::dispatch::task::{Attempt, Cause, Task};
use crate::actors::dispatch::{decide::of_task, server::Server};
use crate::actors::lock::Name;
use crate::actors::process::Spec;
use crate::bytes::Bytes;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Moment;
use serde::{Deserialize, Serialize};

/// How a server is reached that is another machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remote {
    /// Where ssh goes: `host`, `user@host`, `ssh://user@host:port`, or a name that its configuration has.
    pub to: Name,
    /// The configuration file of ssh; its own if empty.
    pub config: Name,
    /// The program `sexton` there; the one in `PATH` if empty.
    pub program: Name,
}

impl Remote {
    /// Checks that it is safe in the words of a command: what is given to ssh and to the shell there is quoted by nobody.
    ///
    /// # Errors
    /// [`Refused::Remote`].
    pub(super) fn check(&self) -> Result<(), Refused> {
        let is_plain = |name: &Name, more: &[u8]| {
            let bytes = name.as_bytes();
            let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || more.contains(byte);
            bytes.first() != Some(&b'-') && bytes.iter().all(is_one)
        };
        let is_text = |name: &Name| std::str::from_utf8(name.as_bytes()).is_ok();
        let is_path = |name: &Name| !name.as_bytes().contains(&0) && is_text(name);
        let is_right = !self.to.as_bytes().is_empty()
            && is_plain(&self.to, b"._-@:/[]%")
            && is_plain(&self.program, b"._-/")
            && is_path(&self.config);
        if is_right {
            Ok(())
        } else {
            Err(Refused::Remote)
        }
    }
}

/// An attempt that runs on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// How that is reached.
    pub remote: Remote,
    /// What it is known by there: the first of its processes here.
    pub known_as: ProcessId,
    /// Milliseconds without a word from here after which it is stopped there, by itself.
    pub lost_after_ms: u64,
    /// The number of the last report that was heard: each is heard once.
    pub heard: u64,
    /// How many processes here took the place of one that had not told what became of it.
    pub again: u32,
    /// Whether the newest of them is to stop it there.
    pub stops: bool,
    /// What became of it there, once that is known.
    pub end: Option<FarEnd>,
}

/// What became of an attempt on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FarEnd {
    /// Nothing of it lives there, and its command ended so; it never ran if [`Exit::Failed`].
    Ended(Exit),
    /// The machine did not answer for so long that it must have stopped by itself, if that goes on at all.
    Unreachable,
}

/// So many processes take the place of one that had not told what became of its attempt.
const AGAIN_MAX: u32 = 10;

/// Milliseconds beyond what an attempt has to stop there, after which the process that waits for it here is killed.
const MORE_GRACE_MS: u32 = 30_000;

impl Attempt {
    /// How it ended, now that its process here has ended so, and what was in its way; `None` if that is not known yet.
    fn end_there(&self, exit: Exit) -> Option<(Exit, Option<Cause>)> {
        let Some(reach) = &self.reach else {
            return Some((exit, None));
        };
        let unreachable = (Exit::Lost, Some(Cause::ServerLost));
        match reach.end {
            Some(FarEnd::Ended(exit)) => Some((exit, None)),
            Some(FarEnd::Unreachable) => Some(unreachable),
            // It has reached nobody yet.
            None if exit == Exit::Failed && reach.again == 0 => Some((exit, None)),
            None if reach.again >= AGAIN_MAX => Some(unreachable),
            None => None,
        }
    }
}

impl DispatchMachine {
    /// The process of an attempt has ended, with all of its tree.
    pub(super) fn settled(&self, moment: &Moment, slot: Slot, exit: Exit) -> Outcome {
        let task = self.state.tasks.get(slot);
        let attempt = task.and_then(|it| it.attempt.as_ref());
        match attempt.and_then(|it| it.end_there(exit)) {
            Some((exit, None)) => self.ended(moment, slot, Some(exit)),
            Some((exit, cause)) => {
                super::decide::changed(self.ends(moment, slot, (Some(exit), cause)))
            }
            None => {
                let process = moment.process_id(0);
                of_task(slot, TaskStep::Reattached { process })
            }
        }
    }

    /// For how long an attempt goes on there without a word from here, if it is to run on another machine.
    pub(super) fn lost_after(&self, server: Slot) -> Option<u64> {
        let server = self.state.servers.get(server)?;
        server.remote.as_ref().map(|_| self.rules.lost_after_ms)
    }
}

impl Server {
    /// An attempt there, known by this process.
    pub(super) fn reach(&self, known_as: ProcessId, lost_after_ms: Option<u64>) -> Option<Reach> {
        Some(Reach {
            remote: self.remote.clone()?,
            known_as,
            lost_after_ms: lost_after_ms?,
            heard: 0,
            again: 0,
            stops: false,
            end: None,
        })
    }
}

impl Report {
    /// Whether it says what became of an attempt on another machine.
    pub(super) const fn is_far(&self) -> bool {
        matches!(self, Self::Far(_))
    }
}

impl Attempt {
    /// Whether this was heard before: what is sent from another machine is sent again until it is answered.
    pub(super) fn has_heard(&self, report: &Report, nth: Option<u64>) -> Result<bool, Refused> {
        match &self.reach {
            Some(reach) if report.is_far() => Ok(reach.end.is_some()),
            Some(reach) => Ok(nth.is_some_and(|nth| nth <= reach.heard)),
            None if report.is_far() => Err(Refused::Stale),
            None => Ok(false),
        }
    }
}

impl Reach {
    /// A report was heard.
    pub(super) fn hear(&mut self, report: &Report, nth: Option<u64>) {
        if let Report::Far(end) = report {
            self.end = Some(*end);
        }
        self.heard = nth.unwrap_or(0).max(self.heard);
    }

    /// Another process takes the place of the one before: it asks what became of the attempt, and stops it if that is to be.
    pub(super) fn reattach(&mut self, stops: bool) {
        self.again += 1;
        self.stops = stops;
    }

    /// Has what would run here run there.
    pub(super) fn wrap(&self, spec: &mut Spec) {
        let flag = |name: &str, value: Vec<u8>| [Bytes::new(name.as_bytes()), Bytes::new(value)];
        let text = |number: u64| number.to_string().into_bytes();
        let name = |name: &Name| name.as_bytes().to_vec();
        let words = |words: &[&str]| -> Vec<Bytes> {
            words.iter().map(|it| Bytes::new(it.as_bytes())).collect()
        };
        // The keeper executes it, and is this very program.
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
        for name in own.chain(&spec.secrets).filter(|it| *it != Task::SECRET) {
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
        // Who is told to stop it there is one process, and does it in good order.
        spec.stop_signal = 15;
    }
}
