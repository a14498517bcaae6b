//! Inventories: which servers there are, in a file, at a URL, or as a command prints them.

use crate::client::fields;
use crate::report::{Failure, tell};
use crate::task::asking::Asking;
use crate::text::number;
use clap::Args;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The longest inventory, in bytes.
const INVENTORY_BYTES_MAX: u64 = 4 << 20;

/// Between two looks at a file.
const WATCH: Duration = Duration::from_secs(1);

/// Where an inventory is.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(super) struct From {
    /// The inventory: a file, - for standard input, or a URL of http or https, which `curl` fetches
    #[arg(long, value_name = "FILE|URL")]
    from: Option<OsString>,
    /// A shell command that prints it
    #[arg(long, value_name = "COMMAND")]
    from_command: Option<String>,
}

impl From {
    /// Makes the servers those of the inventory, or says what that would change. As `wipctl server` has it, an end that is not well
    /// says that something had to change, so that a script may tell.
    pub(super) fn compare(&self, asking: &Asking, check: bool) -> Result<(), Failure> {
        match self.update(asking, check)? {
            0 => Ok(()),
            _ => Err(Failure::of_command(1, "")),
        }
    }

    /// Updates now, and whenever the file is another or was written; ends when it is ended.
    #[expect(
        clippy::disallowed_methods,
        reason = "a file on another file system tells nobody that it was written"
    )]
    pub(super) fn watch(&self, asking: &Asking) -> Result<(), Failure> {
        let file = self.from.clone().unwrap_or_default();
        if file == "-" || is_url(&file.to_string_lossy()) {
            let words = "--watch looks at a file: --from names one";
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
            // A pipe would let this wait for its writer.
            if fs::metadata(&file).is_ok_and(|it| !it.is_file()) {
                let words = format!("{} is no regular file", file.to_string_lossy());
                if words != told {
                    tell(&words);
                    told = words;
                }
            } else if done.is_none() || now != done {
                match self.update(asking, false) {
                    Ok(_) => (done, told) = (now, String::new()),
                    // What cannot be done is tried again, and told once.
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

    /// The same; how many servers changed.
    fn update(&self, asking: &Asking, check: bool) -> Result<u64, Failure> {
        let asked = fields([("hosts", self.hosts()?), ("check", check.into())]);
        let said = asking.act("servers/inventory", asked, 0)?;
        let counts =
            ["added", "removed", "changed"].map(|what| (what, number(&said, &format!("/{what}"))));
        asking.tell(&said, |_| {
            let would = if check { "would be " } else { "" };
            let counts = counts.map(|(what, count)| format!("{count} {would}{what}"));
            format!("{}\n", counts.join(", "))
        })?;
        Ok(counts.iter().map(|(_, count)| count).sum())
    }

    /// The hosts of the inventory.
    fn hosts(&self) -> Result<Value, Failure> {
        let (shown, text) = self.text();
        let failed = |error: &dyn std::fmt::Display| {
            Failure::unreachable(format!("failed to read the inventory {shown}: {error}"))
        };
        let text = text.map_err(|error| failed(&error))?;
        if text.len() as u64 > INVENTORY_BYTES_MAX {
            return Err(failed(&"it is longer than 4 MiB"));
        }
        let found: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        // A list, or what an inventory in an object calls its list.
        match found {
            Value::Array(_) => Ok(found),
            Value::Object(mut object) if object.contains_key("hosts") => {
                Ok(object.remove("hosts").unwrap_or_else(|| json!([])))
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => Err(failed(
                &"it is no list of hosts, as in [{\"host\":\"web-1\",\"max_procs\":4}]",
            )),
        }
    }

    /// What people call it, and what stands there.
    fn text(&self) -> (String, io::Result<String>) {
        if let Some(command) = &self.from_command {
            return (
                format!("of `{command}`"),
                printed(Command::new("sh").args(["-c", command])),
            );
        }
        let from = self.from.clone().unwrap_or_default();
        let shown = from.to_string_lossy().into_owned();
        let text = if is_url(&shown) {
            // Only what was asked for: neither a file of its own settings nor another protocol after a redirection.
            let flags = [
                "-q",
                "-fsSL",
                "--globoff",
                "--max-time",
                "30",
                "--proto",
                "=http,https",
                "--",
            ];
            printed(Command::new("curl").args(flags).arg(&from))
        } else if shown == "-" {
            read(io::stdin().lock())
        } else {
            File::open(&from).and_then(read)
        };
        (shown, text)
    }
}

/// Whether this is no file.
fn is_url(text: &str) -> bool {
    let begins = |with: &&str| text.starts_with(*with);
    ["http://", "https://"].iter().any(begins)
}

/// As much as an inventory may have, and a little more.
fn read(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(INVENTORY_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// What a command prints that ends well.
fn printed(command: &mut Command) -> io::Result<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let text = child.stdout.take().map_or(Ok(String::new()), read);
    let status = child.wait()?;
    if status.success() {
        text
    } else {
        Err(io::Error::other(format!("it ended with {status}")))
    }
}
