//! A connection to the machine of an attempt: an ssh process, with a restricted environment and fixed options.

use crate::client::rest;
use crate::wrapper::near::Event;
use crate::wrapper::pipe::{self, Writer};
use crate::wrapper::protocol::{FarMessage, Order};
use sexton::kernel::file;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// The environment variables that ssh gets. The secret of the attempt is not among them.
const ENVIRONMENT: [&str; 9] = [
    "HOME",
    "KRB5CCNAME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SSH_AUTH_SOCK",
    "TMPDIR",
    "USER",
    "XDG_RUNTIME_DIR",
];

/// Options that override the configuration: no prompts, no unknown hosts, and no shared connection, since a shared connection
/// would live as long as the attempt that happened to open it.
const OPTIONS: [&str; 7] = [
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=10",
    "ControlMaster=no",
    "ControlPath=none",
    "ForwardAgent=no",
    "ClearAllForwardings=yes",
];

/// A shell script that runs ssh with SIGHUP, SIGINT and SIGTERM ignored. When the near end receives one of them, it orders the far end to
/// stop the attempt, so a signal to its whole process group must not close the connection.
const SHIELD: &str = "trap '' HUP INT TERM; exec ssh \"$@\"";

/// The interval at which to check whether ssh has ended after its input was closed.
const END: Duration = Duration::from_millis(10);
/// The number of such checks before ssh is killed.
const ENDS: u32 = 100;

/// How to reach a machine by ssh.
pub(super) struct Target<'a> {
    pub(super) to: &'a str,
    pub(super) config: Option<&'a Path>,
    pub(super) program: &'a str,
}

impl Target<'_> {
    /// Fails if others than root and our user may write to the configuration, which can run any command, or put another in its place.
    pub(super) fn check(&self) -> io::Result<()> {
        let Some(config) = self.config else {
            return Ok(());
        };
        let own = rustix::process::geteuid().as_raw();
        let checked = file::of_user(config, own).map(drop);
        checked.map_err(|error| {
            let words = format!("its configuration {} is refused: {error}", config.display());
            io::Error::new(error.kind(), words)
        })
    }
}

/// A connection.
pub(super) struct Link {
    ssh: Child,
    writer: Writer,
}

impl Link {
    /// Opens a connection. Each message that is received, and the end of the connection, is sent to `events` together with `number`.
    pub(super) fn open(
        target: &Target<'_>,
        number: u64,
        events: &SyncSender<Event>,
    ) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SHIELD, "ssh", "-T", "-e", "none"]);
        for option in OPTIONS {
            command.args(["-o", option]);
        }
        if let Some(config) = target.config {
            command.arg("-F").arg(config);
        }
        command.args(["--", target.to, target.program, "wrapper"]);
        command.env_clear();
        let kept = ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(kept);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ssh = command.spawn()?;
        let (Some(input), Some(output)) = (ssh.stdin.take(), ssh.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let heard = events.clone();
        pipe::read(output, move |word: Option<FarMessage>| {
            heard.send(Event::Received(number, word)).is_ok()
        });
        Ok(Self { ssh, writer: Writer::to(input, || {}) })
    }

    /// Queues an order to be sent; returns whether there was room for it.
    pub(super) fn send(&self, order: &Order) -> bool {
        self.writer.send(order)
    }

    /// Closes the connection. If `all_is_said`, waits for a limited time until what is queued has been sent; otherwise closes it
    /// immediately.
    pub(super) fn close(self, all_is_said: bool) {
        let Self { mut ssh, writer } = self;
        drop(writer);
        for _ in 0..if all_is_said { ENDS } else { 0 } {
            if !matches!(ssh.try_wait(), Ok(None)) {
                return;
            }
            rest(END);
        }
        // An error means that the process has already ended.
        drop(ssh.kill());
        drop(ssh.wait());
    }
}
