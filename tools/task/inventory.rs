//! Inventories: lists of servers, from a file, a URL, or the output of a command.
//!
//! Others may write inventories, so an inventory decides which machines there are, and nothing about what runs on this one: a
//! configuration of ssh can name any command, so it is named on the command line only. A file is read only if nobody else can write it.

use crate::client::{fields, instant, rest};
use crate::report::{Failure, tell};
use crate::task::request::ClientOptions;
use crate::text::required;
use crate::within::within;
use clap::Args;
use serde_json::Value;
use sexton::kernel::file;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The maximum size of an inventory, in bytes.
const INVENTORY_BYTES_MAX: u64 = 4 << 20;

/// The interval at which `--watch` checks the file.
const WATCH: Duration = Duration::from_secs(1);

/// How long a command may take to print an inventory.
const PRINTED_WITHIN: Duration = Duration::from_mins(5);

/// The source of an inventory.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(super) struct From {
    /// The inventory: a file, - for standard input, or an http or https URL, which `curl` fetches
    #[arg(long, value_name = "FILE|URL")]
    from: Option<OsString>,
    /// A shell command that prints the inventory, within five minutes
    #[arg(long, value_name = "COMMAND")]
    from_command: Option<String>,
}

/// How the servers of an inventory that are other machines are reached.
#[derive(Args)]
pub(super) struct Reached {
    /// The configuration file for ssh, as an absolute path, for all servers of the inventory that are other machines
    ///
    /// An inventory cannot name it, since it can run any command as the coordinator's user.
    #[arg(long = "ssh-config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The path of the sexton program on these machines, if it is not in the PATH there
    #[arg(long, value_name = "PATH")]
    program: Option<String>,
}

impl From {
    /// Updates the servers to match the inventory; with `check`, only prints what would change. Fails with exit status 1 if any
    /// server differs, so that a script can detect it; `wipctl server` of Acquia's Wip does the same.
    pub(super) fn compare(
        &self,
        reached: &Reached,
        options: &ClientOptions,
        check: bool,
    ) -> Result<(), Failure> {
        match self.update(reached, options, check)? {
            0 => Ok(()),
            _ => Err(Failure::of_command(1, "")),
        }
    }

    /// Updates the servers now, and again whenever the file has been replaced or written to. Fails if the source is standard input or a
    /// URL; otherwise never returns.
    #[expect(
        clippy::disallowed_methods,
        reason = "the file is polled, because writes to a remote file system cause no events"
    )]
    pub(super) fn watch(&self, reached: &Reached, options: &ClientOptions) -> Result<(), Failure> {
        let file = self.from.clone().unwrap_or_default();
        if file == "-" || is_url(&file.to_string_lossy()) {
            let words = "--watch needs a file: name it with --from";
            return Err(Failure::usage(words));
        }
        let look = || {
            let found = fs::metadata(&file).ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
        };
        let mut done = None;
        let mut told = String::new();
        loop {
            let now = look();
            // Reading a pipe would block until it has a writer.
            if fs::metadata(&file).is_ok_and(|it| !it.is_file()) {
                let words = format!("{} is not a regular file", file.to_string_lossy());
                if words != told {
                    tell(&words);
                    told = words;
                }
            } else if done.is_none() || now != done {
                match self.update(reached, options, false) {
                    Ok(_) => (done, told) = (now, String::new()),
                    // A failed update is tried again, but reported only once.
                    Err(failure) if failure.whole() == told => {}
                    Err(failure) => {
                        told = failure.whole();
                        tell(&told);
                    }
                }
            }
            thread::sleep(WATCH);
        }
    }

    /// Updates or checks the servers, and returns how many differ.
    fn update(
        &self,
        reached: &Reached,
        options: &ClientOptions,
        check: bool,
    ) -> Result<u64, Failure> {
        let config = reached.config.as_ref().map(|it| it.to_string_lossy());
        let asked = fields([
            ("hosts", self.hosts()?),
            ("config", config.into()),
            ("program", reached.program.clone().into()),
            ("check", check.into()),
        ]);
        let body = options.act("servers/inventory", asked)?;
        let mut counts = [("added", 0), ("removed", 0), ("changed", 0)];
        for (what, count) in &mut counts {
            *count = required(&body, &format!("/{what}"))?;
        }
        options.tell(&body, |_| {
            let would = if check { "would be " } else { "" };
            let counts = counts.map(|(what, count)| format!("{count} {would}{what}"));
            format!("{}\n", counts.join(", "))
        })?;
        Ok(counts.iter().map(|(_, count)| *count).sum())
    }

    /// Reads the hosts of the inventory.
    fn hosts(&self) -> Result<Value, Failure> {
        let (shown, text) = self.text();
        let failed = |error: &dyn std::fmt::Display| {
            Failure::unreachable(format!("failed to read the inventory {shown}: {error}"))
        };
        let text = text.map_err(|error| failed(&error))?;
        if text.len() as u64 > INVENTORY_BYTES_MAX {
            return Err(failed(&"it is larger than 4 MiB"));
        }
        let found: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        // Either a list, or an object with the list as its field `hosts`.
        let hosts = match found.get("hosts") {
            Some(hosts) => hosts.clone(),
            None => found,
        };
        let Some(all) = hosts.as_array() else {
            return Err(failed(
                &"expected a list of hosts, such as [{\"host\":\"web-1\",\"max_procs\":4}]",
            ));
        };
        for (field, flag) in [("config", "--ssh-config"), ("program", "--program")] {
            let path = format!("/ssh/{field}");
            if let Some(host) = all.iter().find(|host| host.pointer(&path).is_some()) {
                let host = host.get("host").and_then(Value::as_str).unwrap_or_default();
                return Err(failed(&format!(
                    "the server {host} has `ssh.{field}`, which says what is run to reach it, and so is not for an inventory to say: remove it, and name it with {flag}"
                )));
            }
        }
        Ok(hosts)
    }

    /// Returns the name of the source, for messages, and its content.
    fn text(&self) -> (String, io::Result<String>) {
        if let Some(command) = &self.from_command {
            let mut shell = Command::new("sh");
            let text = printed(shell.args(["-c", command]), PRINTED_WITHIN);
            return (format!("of `{command}`"), text);
        }
        let from = self.from.clone().unwrap_or_default();
        let shown = from.to_string_lossy().into_owned();
        let text = if is_url(&shown) {
            // Fetch only what was requested: no configuration file of curl, and no other protocol after a redirection.
            let flags =
                ["-q", "-fsSL", "--globoff", "--max-time", "30", "--proto", "=http,https", "--"];
            printed(Command::new("curl").args(flags).arg(&from), PRINTED_WITHIN)
        } else if shown == "-" {
            read(io::stdin().lock())
        } else {
            let own = rustix::process::geteuid().as_raw();
            file::of_user(Path::new(&from), own).and_then(read)
        };
        (shown, text)
    }
}

/// Returns whether `text` is an http or https URL rather than a path.
fn is_url(text: &str) -> bool {
    let begins = |with: &&str| text.starts_with(*with);
    ["http://", "https://"].iter().any(begins)
}

/// Reads at most one byte more than an inventory may have, so that the caller can detect one that is too large.
fn read(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(INVENTORY_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the standard output of a command. Fails if its exit status is not 0, or if it takes longer than `limit`: then it is killed, and
/// what it has started is left alone.
fn printed(command: &mut Command, limit: Duration) -> io::Result<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let begun = instant();
    let is_over = || begun.elapsed() >= limit;
    let stdout = child.stdout.take();
    let reading = within("sexton-inventory", limit, move || stdout.map_or(Ok(String::new()), read));
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if is_over() => break None,
            None => rest(Duration::from_millis(10)),
        }
    };
    let Some(status) = status else {
        child.kill()?;
        child.wait()?;
        let words = format!("it has not ended within {} s, and was killed", limit.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, words));
    };
    if status.success() {
        reading
    } else {
        Err(io::Error::other(format!("it ended with {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::printed;
    use std::io::ErrorKind;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let limit = Duration::from_millis(1);
        for script in ["exec sleep 1000", "exec sleep 1000 >&-"] {
            let late = printed(Command::new("sh").args(["-c", script]), limit);
            assert_eq!(late.expect_err(script).kind(), ErrorKind::TimedOut, "{script}");
        }
    }

    #[test]
    fn what_a_command_prints_in_time_is_read() {
        let limit = Duration::from_secs(1000);
        let mut shell = Command::new("sh");
        assert_eq!(printed(shell.args(["-c", "echo []"]), limit).expect("it succeeds"), "[]\n");
        let failed = printed(Command::new("false").args(["x"]), limit).expect_err("it fails");
        assert!(failed.to_string().contains("exit status: 1"), "{failed}");
    }
}
