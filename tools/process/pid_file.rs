//! PID files that others wrote: whether the process of one is still the process that wrote it, and a signal to that one alone.
//!
//! A PID file is as old as its process, and `cmd.sh` beside it says what that runs. Only one that has the PID, began when the
//! file was written, runs that, and is of the same user, is the one that is meant. It is signalled by a descriptor that was
//! opened before all of this was read, and that says afterwards that it is still of the same process.

use crate::words;
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc::{self, Stat};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The times of a file and of its process are less than so many milliseconds apart.
const APART_MS: u64 = 5000;

/// A longer file has no PID in it.
const PID_BYTES_MAX: u64 = 64;

/// A longer file is no `cmd.sh`.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;

/// The most entries of directories that are looked at, and how deep.
const ENTRIES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 16;

/// What a PID file says, with what stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) pid: u32,
    /// When it was written, in milliseconds since 1970.
    pub(super) written_ms: u64,
    pub(super) owner: u32,
    /// The program that `cmd.sh` runs; none without such a file.
    pub(super) program: Option<String>,
}

/// What the kernel says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// In milliseconds since 1970.
    pub(super) started_ms: u64,
    pub(super) has_ended: bool,
    pub(super) owner: u32,
    pub(super) argv: Vec<Vec<u8>>,
}

/// Whether a process is the one of a PID file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is, and it lives.
    Lives,
    /// It is, and it has ended: its parent has not asked how.
    Ended,
    /// No process has this PID.
    Gone,
    /// Another process has this PID by now: it began at another time.
    Reused,
    /// It runs something else.
    OtherProgram,
    /// Nothing says what it runs.
    NoProgram,
    /// The file is of a user who has no say about it.
    OtherUser,
}

impl Verdict {
    /// Compares what a file claims with what has its PID.
    pub(super) fn of(claim: &Claim, facts: Option<&Facts>) -> Self {
        let Some(facts) = facts else {
            return Self::Gone;
        };
        if facts.started_ms.abs_diff(claim.written_ms) >= APART_MS {
            return Self::Reused;
        }
        // Whoever may write a file may not thereby have a process of others signalled.
        if ![0, facts.owner].contains(&claim.owner) {
            return Self::OtherUser;
        }
        if facts.has_ended {
            // Its arguments went with its memory.
            return Self::Ended;
        }
        match &claim.program {
            None => Self::NoProgram,
            Some(program) if runs(&facts.argv, program) => Self::Lives,
            Some(_) => Self::OtherProgram,
        }
    }

    /// In a word, for programs.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Lives => "running",
            Self::Ended => "ended",
            Self::Gone => "gone",
            Self::Reused => "reused",
            Self::OtherProgram => "other-program",
            Self::NoProgram => "unknown-program",
            Self::OtherUser => "other-user",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lives => "running",
            Self::Ended => "ended, and its parent has not asked how",
            Self::Gone => "gone: no process has this PID",
            Self::Reused => "gone: another process has this PID, which did not begin when the file was written",
            Self::OtherProgram => "gone: the process with this PID runs something else than cmd.sh says",
            Self::NoProgram => "not known: there is no cmd.sh beside the file that says what it runs",
            Self::OtherUser => "not known: the file is neither of root nor of the user of the process with this PID",
        })
    }
}

/// Whether one of the arguments is the program, or its name: an interpreter may stand before it.
fn runs(argv: &[Vec<u8>], program: &str) -> bool {
    let name = Path::new(program)
        .file_name()
        .map_or(&b""[..], OsStr::as_bytes);
    let is_it = |argument: &Vec<u8>| argument == program.as_bytes() || argument == name;
    !name.is_empty() && argv.iter().any(is_it)
}

/// A PID file, and what came of looking for its process.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) claim: Claim,
    pub(super) facts: Option<Facts>,
    pub(super) verdict: Verdict,
    /// Of the process that is meant, and of no other.
    pub(super) process: Option<Pidfd>,
}

impl Found {
    /// Reads a PID file, and looks for its process.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let claim = Claim::read(path)?;
        let process = Pidfd::open(claim.pid)?;
        let facts = match &process {
            Some(process) => Facts::read(claim.pid, process)?,
            None => None,
        };
        let verdict = Verdict::of(&claim, facts.as_ref());
        Ok(Self {
            process: process.filter(|_| verdict == Verdict::Lives),
            claim,
            facts,
            verdict,
        })
    }
}

impl Claim {
    fn read(path: &Path) -> io::Result<Self> {
        let (text, metadata) = content(path, PID_BYTES_MAX)?;
        let pid = text.trim().parse().ok().filter(|pid| *pid > 0);
        let pid = pid.ok_or_else(|| io::Error::other("there is no PID in it"))?;
        let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
        let nanoseconds = u64::try_from(metadata.mtime_nsec()).unwrap_or(0);
        let script = path.with_file_name("cmd.sh");
        let program = match content(&script, SCRIPT_BYTES_MAX) {
            Ok((script, _)) => program_of(&script),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let words = format!("{}: {error}", script.display());
                return Err(io::Error::other(words));
            }
        };
        Ok(Self {
            pid,
            written_ms: seconds * 1000 + nanoseconds / 1_000_000,
            owner: metadata.uid(),
            program,
        })
    }
}

impl Facts {
    /// What is known of the process of this descriptor, whose PID this is; none if it is gone.
    fn read(pid: u32, process: &Pidfd) -> io::Result<Option<Self>> {
        let Some(stat) = proc::stat(pid)? else {
            return Ok(None);
        };
        let argv = proc::cmdline(pid)?.unwrap_or_default();
        let owner = fs::metadata(format!("/proc/{pid}")).map(|it| it.uid());
        // All of it was of this one, if the PID is still its own.
        if !process.is_held()? {
            return Ok(None);
        }
        Ok(Some(Self {
            started_ms: started(&stat),
            has_ended: stat.is_zombie(),
            owner: owner?,
            argv: argv.iter().map(|it| it.as_bytes().to_vec()).collect(),
        }))
    }
}

/// When a process began, by the wall clock.
fn started(stat: &Stat) -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let ms = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
    };
    let (wall, up) = (ms(ClockId::Realtime), ms(ClockId::Boottime));
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let since_boot = stat.start_ticks.saturating_mul(1000) / per_second;
    wall.saturating_sub(up.saturating_sub(since_boot))
}

/// The text of a file, and what is known of that very file.
fn content(path: &Path, bytes_max: u64) -> io::Result<(String, fs::Metadata)> {
    use rustix::fs::{Mode, OFlags};
    // A pipe without a writer would be waited for, for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let words = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::other(words));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text"))?;
    Ok((text, metadata))
}

/// The program that a `cmd.sh` runs, of ours or of `ArchiveBox`: its first word after what sets the scene.
fn program_of(script: &str) -> Option<String> {
    let before = ["#", ": ", "export ", "cd "];
    let is_before =
        |line: &&str| line.trim().is_empty() || before.iter().any(|it| line.starts_with(it));
    let lines: Vec<&str> = script.lines().skip_while(is_before).collect();
    let words = words::command(&lines.join("\n")).ok()?;
    let mut words = words
        .into_iter()
        .skip_while(|word| word == "exec")
        .peekable();
    if words.next_if(|word| word == "env").is_some() {
        return words.find(|word| !word.contains('='));
    }
    words.next()
}

/// The PID files below a directory, in their order: those whose name ends with `.pid`. No link is followed.
pub(super) fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![(directory.to_owned(), 0)];
    let mut seen = 0;
    while let Some((directory, depth)) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            // One that goes away meanwhile, or that may not be read, has none.
            Err(_) if depth > 0 => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            seen += 1;
            if seen > ENTRIES_MAX {
                let words = format!("there are more than {ENTRIES_MAX} files below it");
                return Err(io::Error::other(words));
            }
            let kind = entry.file_type()?;
            if kind.is_dir() && depth < DEPTH_MAX {
                open.push((entry.path(), depth + 1));
            } else if kind.is_file() && entry.path().extension() == Some(OsStr::new("pid")) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
#[path = "pid_file_tests.rs"]
mod tests;
