//! Measures how soon a killed service runs again under sexton, supervisord and runit, all of which run the same script.

use crate::coordinator::{Coordinator, Grounds, signal};
use crate::failure::Failure;
use crate::figures::Latencies;
use crate::interrupt::Stop;
use crate::load::now;
use crate::peer::directory;
use crate::pulse::Fifo;
use crate::question::rest;
use rustix::process::Signal;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const SUPERVISORD: &str = "supervisord";
const RUNSV: &str = "runsv";

/// How long a supervisor may take to exit before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The supervisor that restarts the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supervisor {
    Sexton,
    Supervisord,
    Runit,
}

impl Supervisor {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sexton => "sexton",
            Self::Supervisord => SUPERVISORD,
            Self::Runit => "runit",
        }
    }

    /// Checks that the supervisor is installed and can be run; the error is the reason why not.
    pub(crate) fn installed(self) -> Result<(), String> {
        let program = match self {
            Self::Sexton => return Ok(()),
            Self::Supervisord => SUPERVISORD,
            Self::Runit => RUNSV,
        };
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // `runsv` does not have this flag and fails, but a failure also shows that it is installed.
        let ran = command.stderr(Stdio::null()).arg("--version").status();
        ran.map(drop).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                format!("{program} is not installed")
            } else {
                format!("{program} does not start: {error}")
            }
        })
    }

    /// Returns the pause between a start and the next kill. If a service ran for less than a second, runit waits before it starts
    /// the service again, until one second after the previous start, and supervisord does not count the service as started.
    const fn apart(self) -> Duration {
        match self {
            Self::Sexton => Duration::from_millis(25),
            Self::Supervisord | Self::Runit => Duration::from_millis(1200),
        }
    }

    /// Kills the service `kills` times, and measures the time from each kill until the next process of the service writes its PID.
    pub(crate) fn measure(
        self,
        kills: u32,
        grounds: Grounds<'_>,
        stop: &Stop,
    ) -> Result<Latencies, Failure> {
        let folder = directory(&grounds.site.root())?;
        let mut pulse = Fifo::create(&folder.path().join("pulse"))?;
        let running = self.start(folder, grounds)?;
        let mut latencies = Latencies::default();
        let mut pid = pulse.next_pid()?;
        for _ in 0..kills {
            stop.check()?;
            rest(self.apart());
            let began = now();
            signal(pid, Signal::KILL);
            pid = pulse.next_pid()?;
            latencies.note(now() - began);
        }
        drop(running);
        Ok(latencies)
    }

    fn start(self, folder: TempDir, grounds: Grounds<'_>) -> Result<Running, Failure> {
        let cannot = || Failure::to(format!("start {}", self.name()));
        let root = folder.path();
        let script = root.join("run");
        let pulse = root.join("pulse");
        let words = format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000000\n", pulse.display());
        write_program(&script, &words).map_err(cannot())?;
        let command = match self {
            Self::Sexton => {
                let config = root.join("services.toml");
                fs::write(&config, services(&script)).map_err(cannot())?;
                let coordinator = Coordinator::start(Some(&config), grounds)?;
                return Ok(Running::Sexton(coordinator, folder));
            }
            Self::Supervisord => {
                let config = root.join("supervisord.conf");
                fs::write(&config, programs(root)).map_err(cannot())?;
                let mut command = Command::new(SUPERVISORD);
                command.arg("--configuration").arg(config);
                command
            }
            Self::Runit => {
                let mut command = Command::new(RUNSV);
                command.arg(root);
                command
            }
        };
        let child = peer(command).map_err(cannot())?;
        Ok(Running::Peer(child, folder))
    }
}

/// A running supervisor and its directory.
enum Running {
    Sexton(Coordinator, TempDir),
    Peer(Child, TempDir),
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            // sexton is stopped by its own `drop`.
            Self::Sexton(_coordinator, _folder) => {}
            Self::Peer(child, _folder) => {
                // On SIGTERM, the supervisor stops its service before it exits.
                signal(child.id(), Signal::TERM);
                let patience = now() + PATIENCE;
                while matches!(child.try_wait(), Ok(None)) && now() < patience {
                    rest(Duration::from_millis(1));
                }
                drop(child.kill());
                drop(child.wait());
            }
        }
    }
}

fn peer(mut command: Command) -> io::Result<Child> {
    // In a process group of its own, the supervisor does not receive Ctrl-C: the measurement does, and then stops the supervisor.
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn()
}

fn write_program(path: &Path, words: &str) -> io::Result<()> {
    fs::write(path, words)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// Returns a configuration without back-off and without a limit on restarts, so that no configured delay is measured.
fn services(script: &Path) -> String {
    format!(
        "[services.killed]\ncommand = [{:?}]\nbackoff = {{ first = \"0ms\", max = \"0ms\" }}\nintensity = false\n",
        script.display().to_string()
    )
}

fn programs(root: &Path) -> String {
    let root = root.display();
    format!(
        "[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={root}/supervisord.pid\n\n\
         [program:killed]\ncommand={root}/run\nautorestart=true\n\
         stdout_logfile={root}/stdout.log\nstderr_logfile={root}/stderr.log\n"
    )
}
