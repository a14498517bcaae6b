//! Another machine, as far as a coordinator can see: a real sshd on loopback, with this user.

use crate::daemon::text;
use crate::left_out::left_out;
use crate::network::{FAR_ADDRESS, Network};
use crate::patience::until;
use crate::tree::Tree;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

/// Another machine: an sshd that accepts one key, and only for sexton's wrapper.
pub(crate) struct Far {
    sshd: Option<Child>,
    pub(crate) port: u16,
    files: TempDir,
    network: Option<Network>,
}

fn quiet(command: &mut Command) {
    let done = command.output().expect("the command runs");
    assert!(done.status.success(), "{done:?}");
}

impl Far {
    /// Starts the machine. Reports a skipped test and returns `None` if no sshd is installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_in(None)
    }

    /// Starts the machine like [`start`](Self::start), but at the far end of this network, if there is one.
    pub(crate) fn start_in(network: Option<Network>) -> Option<Self> {
        let is_there = |program: &&str| Path::new(program).exists();
        let Some(sshd) = ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(is_there) else {
            left_out("tasks on another machine: there is no sshd");
            return None;
        };
        let files = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| files.path().join(name);
        for key in ["host", "key", "stranger"] {
            quiet(
                Command::new("ssh-keygen")
                    .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                    .arg(path(key)),
            );
        }
        let read = |name: &str| std::fs::read_to_string(path(name)).expect("the file exists");
        let write =
            |name: &str, text: String| std::fs::write(path(name), text).expect("a writable file");
        let state = path("state");
        let bound = format!("restrict,command=\"{SEXTON} wrapper --state {}\"", text(&state));
        write("authorized", format!("{bound} {}", read("key.pub")));
        // Use a port that was free a moment ago, because an sshd does not report which port it got for 0.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let root = text(files.path());
        let address = network.as_ref().map_or("127.0.0.1", |_| FAR_ADDRESS);
        write(
            "sshd_config",
            format!(
                "Port {port}\nListenAddress {address}\nHostKey {root}/host\nAuthorizedKeysFile {root}/authorized\n\
             PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nMaxStartups 100\nLogLevel ERROR\n"
            ),
        );
        let host = read("host.pub");
        write("known", format!("[{address}]:{port} {host}"));
        let user = Command::new("id").arg("-un").output().expect("the command runs").stdout;
        let user = String::from_utf8(user).expect("UTF-8");
        write(
            "config",
            format!(
                "Host far\n HostName {address}\n Port {port}\n User {}\n IdentityFile {root}/key\n IdentitiesOnly yes\n \
             UserKnownHostsFile {root}/known\n",
                user.trim()
            ),
        );
        if rustix::process::geteuid().is_root() {
            // sshd needs this directory for privilege separation when it runs as root.
            std::fs::create_dir_all("/run/sshd").expect("root may do this");
        }
        let mut far = Self { sshd: None, port, files, network };
        far.listen(sshd);
        Some(far)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(crate) fn listen(&mut self, sshd: &str) {
        let config = self.path("sshd_config");
        let mut command = match &self.network {
            None => Command::new(sshd),
            Some(network) => network.far(sshd),
        };
        let child = command
            .args(["-D", "-e", "-f"])
            .arg(config)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.sshd = Some(child.expect("the command runs"));
        if let Some(network) = &self.network {
            return network.until_listens(self.port);
        }
        until("sshd listens", || {
            let stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()?;
            let mut banner = String::new();
            BufReader::new(stream).read_line(&mut banner).ok()?;
            banner.starts_with("SSH-").then_some(())
        });
    }

    /// Returns the network between this machine and the coordinator.
    pub(crate) fn network(&self) -> &Network {
        self.network.as_ref().expect("it has one of its own")
    }

    /// Stops sshd from accepting connections. Existing connections stay.
    pub(crate) fn shut(&mut self) {
        let mut sshd = self.sshd.take().expect("it is running");
        sshd.kill().expect("a permitted signal");
        sshd.wait().expect("our child");
    }

    /// Adds this machine to the coordinator as the server `web`.
    pub(crate) fn add_to(&self, tree: &Tree, threads: u32) {
        let config = self.path("config");
        tree.well(&[
            "server",
            "add",
            "web",
            "--threads",
            &threads.to_string(),
            "--ssh",
            "far",
            "--ssh-config",
            text(&config),
        ]);
    }

    /// Returns the PIDs of this machine's processes whose command line contains these words.
    pub(crate) fn pids(&self, words: &str) -> Vec<Pid> {
        let state = text(&self.path("state")).to_owned();
        let entries = std::fs::read_dir("/proc").expect("the directory exists").flatten();
        let numbers = entries.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
        let is_one = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(words) && line.contains(&state)
        };
        numbers.filter(is_one).filter_map(Pid::from_raw).collect()
    }

    /// Returns the PIDs of the processes that keep the attempts on this machine.
    pub(crate) fn keepers(&self) -> Vec<Pid> {
        self.pids(" wrapper keep ")
    }

    /// Cuts all connections by killing their far ends, so that ssh notices it at once.
    pub(crate) fn cut(&self) {
        for pid in self.pids(" wrapper --state ") {
            // A connection that has ended since it was listed is cut, too.
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => panic!("a permitted signal: {error}"),
            }
        }
    }

    /// Leaves the state of a reboot: no process of this machine is alive, and the boot id differs. `commands` are the
    /// commands that run.
    pub(crate) fn reboot(&self, commands: impl IntoIterator<Item = Pid>) {
        let all: Vec<Pid> = self.keepers().into_iter().chain(commands).collect();
        for pid in &all {
            kill_process(*pid, Signal::STOP).expect("a permitted signal");
        }
        let kept = std::fs::read_dir(self.path("state")).expect("it is kept");
        for entry in kept.flatten() {
            std::fs::write(entry.path().join("boot"), "another\n").expect("a writable file");
        }
        for pid in all {
            kill_process(pid, Signal::KILL).expect("a permitted signal");
        }
    }

    /// Waits until no attempt is kept on this machine any more.
    pub(crate) fn assert_forgotten(&self) {
        until("nothing is kept there", || {
            let kept = std::fs::read_dir(self.path("state")).ok()?.count();
            (kept == 0 && self.keepers().is_empty()).then_some(())
        });
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Some(sshd) = &mut self.sshd {
            drop(sshd.kill());
            drop(sshd.wait());
        }
        // Each keeping process stops its command with all of its processes, and then exits.
        for pid in self.keepers() {
            // The process may have ended already.
            let _gone = kill_process(pid, Signal::TERM);
        }
    }
}

impl Far {
    /// Returns the PIDs of all processes with this name.
    pub(crate) fn all_with(&self, name: &str) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").expect("the directory exists").flatten();
        let numbers = entries.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
        let config = text(&self.path("config")).to_owned();
        let is_one = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.starts_with(&format!("{name}\0")) && line.contains(&config)
        };
        let found: Vec<i32> = numbers.filter(is_one).collect();
        assert!(!found.is_empty(), "no {name} is running");
        found
    }
}
