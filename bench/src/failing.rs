//! The commands of the tasks that `dispatch` measures. Each writes the time, and then fails or ends as requested.

use crate::event::clock;
use crate::failure::Failure;
use crate::pulse::Fifo;
use clap::{Args, ValueEnum};
use rustix::process::{Signal, getpid, kill_process};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// The number of bytes that a command writes: the task's number, the command's PID, and the time in nanoseconds, 8 bytes each.
const FRAME: usize = 24;

/// The command of a task. Started by `dispatch`.
#[derive(Args)]
pub(crate) struct Failing {
    /// How the command ends
    #[arg(value_enum)]
    how: CommandEnd,
    /// A pipe to which the command writes
    last: PathBuf,
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommandEnd {
    /// With status 0.
    Ends,
    /// By SIGKILL.
    Dies,
    /// By SIGKILL, after it has saved data.
    Saves,
    /// Never: it loops, and uses a processor.
    Loops,
    /// By a kill: it sleeps until then.
    Waits,
}

impl CommandEnd {
    /// Returns the word that selects this end on the command line.
    pub(crate) fn word(self) -> String {
        let value = self.to_possible_value();
        value.map(|it| it.get_name().to_owned()).unwrap_or_default()
    }
}

impl Failing {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        self.live().map_err(Failure::to("run the command of a task"))
    }

    fn live(&self) -> io::Result<()> {
        let variable = |name| {
            let value = std::env::var_os(name).and_then(|it| it.into_string().ok());
            value.ok_or_else(|| {
                io::Error::other(format!(
                    "{name} is not set: this process was not launched by a coordinator"
                ))
            })
        };
        let task: u64 = variable("SEXTON_TASK_ID")?.parse().map_err(io::Error::other)?;
        let mut last = File::options().append(true).open(&self.last)?;
        if self.how == CommandEnd::Saves {
            let secret = variable("SEXTON_TASK_SECRET")?;
            let mut report = UnixStream::connect(variable("SEXTON_TASK_REPORT")?)?;
            let save =
                serde_json::json!({ "secret": secret, "report": { "do": "save", "body": "half" } });
            report.write_all(format!("{save}\n").as_bytes())?;
            let mut answer = String::new();
            report.read_to_string(&mut answer)?;
            if !answer.contains("\"ok\":true") {
                return Err(io::Error::other(answer));
            }
        }
        let mut frame = [0; FRAME];
        frame[..8].copy_from_slice(&task.to_ne_bytes());
        frame[8..16].copy_from_slice(&u64::from(std::process::id()).to_ne_bytes());
        frame[16..].copy_from_slice(&clock().to_ne_bytes());
        last.write_all(&frame)?;
        match self.how {
            CommandEnd::Ends => Ok(()),
            CommandEnd::Dies | CommandEnd::Saves => Ok(kill_process(getpid(), Signal::KILL)?),
            CommandEnd::Loops => loop {
                std::hint::spin_loop();
            },
            CommandEnd::Waits => loop {
                std::thread::park();
            },
        }
    }
}

/// What a command wrote to the pipe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// The task's number.
    pub(crate) task: u64,
    /// The command's PID.
    pub(crate) pid: u32,
    /// When the command wrote this, by [`clock`], in nanoseconds. It then ends at once, unless it loops or waits.
    pub(crate) at: u64,
}

/// Waits until a command writes, and returns what it wrote.
pub(crate) fn written(last: &mut Fifo) -> Result<Written, Failure> {
    let mut frame = [0; FRAME];
    last.read(&mut frame)?;
    let (task, rest) = frame.split_at(8);
    let (pid, at) = rest.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    Ok(Written { task: number(task), pid: u32::try_from(number(pid)).unwrap_or(0), at: number(at) })
}
