//! A network between two machines, as far as programs can see: two network namespaces, and a pair of virtual interfaces
//! that can be taken down.

use crate::left_out::left_out;
use crate::patience::until;
use std::process::{Child, Command, Stdio};

/// The address of the far machine.
pub(crate) const FAR_ADDRESS: &str = "10.99.0.2";
const NEAR_ADDRESS: &str = "10.99.0.1";

/// A network namespace, which exists as long as this process.
struct Namespace(Child);

/// The network between the coordinator's machine and another.
pub(crate) struct Network {
    near: Namespace,
    far: Namespace,
}

fn does(command: &mut Command) -> bool {
    let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|it| it.success())
}

impl Namespace {
    fn make() -> Option<Self> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "--", "sleep", "infinity"]);
        let mut namespace = Self(holder.stdin(Stdio::null()).spawn().ok()?);
        let own = std::fs::read_link("/proc/self/ns/net").ok()?;
        let pid = namespace.0.id();
        let has_own = until("the namespace is there", || {
            if !matches!(namespace.0.try_wait(), Ok(None)) {
                return Some(false);
            }
            let its = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
            (its != own).then_some(true)
        });
        has_own.then_some(namespace)
    }

    /// Returns a command that runs a program in this namespace.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.0.id().to_string();
        command.args(["--target", &pid, "--net", "--", program]);
        command
    }

    fn ip(&self, words: &[&str]) -> bool {
        does(self.command("ip").args(words))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Network {
    /// Creates a network. Reports a skipped test and returns `None` if this user may not create namespaces.
    pub(crate) fn make() -> Option<Self> {
        let made = Self::try_make();
        if made.is_none() {
            left_out("a network between two machines: no network namespaces can be made here");
        }
        made
    }

    fn try_make() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let network = Self { near: Namespace::make()?, far: Namespace::make()? };
        let (near, far) = (&network.near, &network.far);
        let far_pid = far.0.id().to_string();
        let link = [
            "link",
            "add",
            "near0",
            "type",
            "veth",
            "peer",
            "name",
            "far0",
            "netns",
            far_pid.as_str(),
        ];
        let is_made = near.ip(&["link", "set", "lo", "up"])
            && far.ip(&["link", "set", "lo", "up"])
            && near.ip(&link)
            && near.ip(&["addr", "add", &format!("{NEAR_ADDRESS}/24"), "dev", "near0"])
            && far.ip(&["addr", "add", &format!("{FAR_ADDRESS}/24"), "dev", "far0"])
            && near.ip(&["link", "set", "near0", "up"])
            && far.ip(&["link", "set", "far0", "up"]);
        is_made.then_some(network)
    }

    /// Returns the beginning of a command that runs a program on the coordinator's machine.
    pub(crate) fn near(&self) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.near.0.id().to_string();
        command.args(["--target", &pid, "--net", "--"]);
        command
    }

    /// Returns a command that runs a program on the far machine.
    pub(crate) fn far(&self, program: &str) -> Command {
        self.far.command(program)
    }

    /// Takes the link down, or up again.
    pub(crate) fn set_link(&self, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        assert!(self.near.ip(&["link", "set", "near0", state]), "{state}");
    }

    /// Waits until an sshd listens on the far machine.
    pub(crate) fn until_listens(&self, port: u16) {
        until("sshd listens", || {
            let mut scan = self.near.command("ssh-keyscan");
            let port = port.to_string();
            scan.args(["-T", "5", "-p", &port, FAR_ADDRESS]);
            let found = scan.stderr(Stdio::null()).output().ok()?;
            (!found.stdout.is_empty()).then_some(())
        });
    }
}
