//! The subcommand `sexton import`. It writes only the new file, and starts nothing.

use crate::import::page::page;
use crate::import::supervisord::import;
use crate::report::{Failure, print, tell};
use crate::settings::problems_of;
use crate::text::{count, plain};
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Convert the configuration of another supervisor
#[derive(Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    Supervisord(Supervisord),
}

impl Import {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let From::Supervisord(supervisord) = self.from;
        supervisord.run()
    }
}

/// Convert a configuration of supervisord into [services.NAME] tables
///
/// Each [program:x] becomes a service. Keys without a counterpart are listed on standard error, one per line, with the reason;
/// docs/coming-from-supervisord.md has a table of all keys. Files named by an include section are read too. Nothing is started,
/// and supervisord is left alone.
///
/// Variables are filled in from the environment of this command, so run it with that of supervisord. Secrets are never written: a
/// variable with TOKEN, SECRET, PASSWORD or KEY in its name must be put into a file that the new table names. A program with a
/// `user` never runs as any other user. If root will run the services, import as root: otherwise such a program gets `autostart =
/// false`, since only root can launch it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton import supervisord /etc/supervisor/supervisord.conf              show the result
  sexton import supervisord /etc/supervisor/supervisord.conf -o app.toml
  sexton config --config app.toml                                         check it; nothing is started
  systemctl stop supervisor && sexton serve --config app.toml --data data

Exit status: 0 written, even if not everything was carried over; 1 the configuration has no program; 2 supervisord would not accept the \
configuration, and every problem is listed; 3 a file cannot be read or written.")]
struct Supervisord {
    /// The main file, such as /etc/supervisor/supervisord.conf
    file: PathBuf,

    /// Write to this file, which must not exist yet [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Supervisord {
    fn run(self) -> Result<(), Failure> {
        let uname = rustix::system::uname();
        let host = uname.nodename().to_string_lossy();
        let imported = import(&self.file, &host, variables(), user())?;
        let text = page(&self.file.display().to_string(), &imported.services);
        let name = self.output.as_deref().unwrap_or(Path::new("services.toml"));
        let problems = problems_of(name, &text);
        if !problems.is_empty() {
            let words = "the result is not a valid configuration";
            return Err(Failure::usage(words).listing(problems));
        }
        match &self.output {
            Some(path) => create(path, &text)?,
            None => print(&text)?,
        }
        for note in &imported.notes {
            tell(&plain(&note.to_string()));
        }
        let disabled = imported.services.iter().filter(|it| !it.remarks.is_empty());
        let (all, disabled) = (imported.services.len(), disabled.count());
        tell(&format!(
            "{}, {disabled} of them with autostart = false; {} about what is not carried over",
            count(all as u64, "service"),
            count(imported.notes.len() as u64, "remark")
        ));
        Ok(())
    }
}

/// Returns the environment variables whose names and values are valid UTF-8.
fn variables() -> BTreeMap<String, String> {
    let variables = std::env::vars_os();
    let texts =
        variables.map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.flatten().collect()
}

/// Returns the names and the number by which a program's `user` may refer to the user of this process; `None` for root.
fn user() -> Option<Vec<String>> {
    let user = rustix::process::geteuid();
    let number = user.as_raw().to_string();
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    let users = String::from_utf8_lossy(&users);
    let names = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    (!user.is_root()).then(|| names.chain([number.clone()]).collect())
}

fn create(path: &Path, text: &str) -> Result<(), Failure> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let failure = Failure::unreachable(format!("failed to write {shown}: {error}"));
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            failure.help("nothing is overwritten; name another file, or move this one away")
        } else {
            failure
        }
    })
}
