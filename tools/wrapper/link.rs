//! A connection to the machine that an attempt runs on: ssh, with what it may use and nothing else.

use crate::client::rest;
use crate::wrapper::near::Event;
use crate::wrapper::pipe::{self, Writer};
use crate::wrapper::protocol::{Order, Word};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// What ssh needs of the environment. The secret of the attempt is not among it.
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

/// What holds whatever its configuration says: nobody is asked, no unknown host is trusted, and no connection is shared, since a
/// shared one would live as long as one attempt that happened to open it.
const OPTIONS: [&str; 7] = [
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=10",
    "ControlMaster=no",
    "ControlPath=none",
    "ForwardAgent=no",
    "ClearAllForwardings=yes",
];

/// A signal to all of an attempt is for the command, and goes there: ssh is not to be cut off by it.
const SHIELD: &str = "trap '' HUP INT TERM; exec ssh \"$@\"";

/// How long ssh may take to end by itself when nothing is left to say.
const END: Duration = Duration::from_millis(10);
const ENDS: u32 = 100;

/// How a machine is reached.
pub(super) struct Target<'a> {
    pub(super) to: &'a str,
    pub(super) config: Option<&'a Path>,
    pub(super) program: &'a str,
}

/// A connection.
pub(super) struct Link {
    ssh: Child,
    writer: Writer,
    /// Whether the far end has said its name.
    pub(super) greeted: bool,
}

impl Link {
    /// Begins one; what is heard on it is told as that of this number.
    pub(super) fn open(
        target: &Target<'_>,
        number: u64,
        events: &Sender<Event>,
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
        let kept = ENVIRONMENT
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(kept);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ssh = command.spawn()?;
        let (Some(input), Some(output)) = (ssh.stdin.take(), ssh.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let heard = events.clone();
        pipe::read(output, move |word: Option<Word>| {
            heard.send(Event::Said(number, word)).is_ok()
        });
        Ok(Self {
            ssh,
            writer: Writer::to(input, || {}),
            greeted: false,
        })
    }

    /// Says something; whether there was room for it.
    pub(super) fn say(&self, order: &Order) -> bool {
        self.writer.say(order)
    }

    /// Ends it: by itself if all is said, at once if it hangs.
    pub(super) fn close(self, all_is_said: bool) {
        let Self {
            mut ssh, writer, ..
        } = self;
        drop(writer);
        for _ in 0..if all_is_said { ENDS } else { 0 } {
            if !matches!(ssh.try_wait(), Ok(None)) {
                return;
            }
            rest(END);
        }
        // It may have ended meanwhile.
        drop(ssh.kill());
        drop(ssh.wait());
    }
}
