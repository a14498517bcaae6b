//! Attempts that run on another machine: how it is reached, and what is known there of an attempt. Stored: see the change rule in
//! `persist/format.rs`.
//!
//! Here such an attempt is a process like any other: `sexton wrapper near`, which reaches the machine by ssh, has the command run
//! there by `sexton wrapper`, and reports how that ended before it ends itself. So what only it knows is told once and kept. If it
//! ends without having told, another takes its place, asks there what became of the attempt, and starts nothing.

use crate::actors::binding::Exit;
use crate::actors::lock::Name;
use crate::actors::process::Spec;
use crate::bytes::Bytes;
use crate::ids::ProcessId;
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
    /// Whether it is safe in the words of a command: what is given to ssh and to the shell there is quoted by nobody.
    pub(super) fn is_safe(&self) -> bool {
        let is_plain = |name: &Name, more: &[u8]| {
            let bytes = name.as_bytes();
            let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || more.contains(byte);
            bytes.first() != Some(&b'-') && bytes.iter().all(is_one)
        };
        let is_text = |name: &Name| std::str::from_utf8(name.as_bytes()).is_ok();
        // Words of a command are told from its flags by where they begin.
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

/// How many processes may take the place of one that had not told what became of its attempt.
const AGAIN_MAX: u32 = 10;

/// Milliseconds beyond what an attempt has to stop there, after which the process that waits for it here is killed.
const MORE_GRACE_MS: u32 = 30_000;

impl Reach {
    /// An attempt that begins on such a machine, known by this process.
    pub(super) fn new(remote: Remote, known_as: ProcessId, lost_after_ms: u64) -> Self {
        Self {
            remote,
            known_as,
            lost_after_ms,
            heard: 0,
            again: 0,
            stops: false,
            end: None,
        }
    }

    /// A report was heard: its number, and what became of the attempt, if it says so.
    pub(super) fn hear(&mut self, end: Option<FarEnd>, nth: Option<u64>) {
        self.end = end.or(self.end);
        self.heard = nth.unwrap_or(0).max(self.heard);
    }

    /// How it ended, now that its process here has ended so, and whether it could not be reached; `None` if that is not known.
    pub(super) fn settled(&self, exit: Exit) -> Option<(Exit, bool)> {
        match self.end {
            Some(FarEnd::Ended(exit)) => Some((exit, false)),
            Some(FarEnd::Unreachable) => Some((Exit::Lost, true)),
            // It has reached nobody yet.
            None if exit == Exit::Failed && self.again == 0 => Some((exit, false)),
            None if self.again >= AGAIN_MAX => Some((Exit::Lost, true)),
            None => None,
        }
    }

    /// Another process takes the place of the one before: it asks what became of the attempt, and stops it if that is to be.
    pub(super) fn reattach(&mut self, stops: bool) {
        self.again += 1;
        self.stops = stops;
    }

    /// Has what would run here run there. The secret by which the process here reports stays here.
    pub(super) fn wrap(&self, spec: &mut Spec, secret: &str) {
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
        // Who is told to stop it there is one process, and does it in good order.
        spec.stop_signal = 15;
    }
}
