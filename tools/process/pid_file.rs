//! PID files of other programs: checks whether the PID still belongs to the process that the file names, and signals only that
//! process.
//!
//! A PID file is about as old as its process, and `cmd.sh` beside it names the program. A process matches if it has the PID,
//! started when the file was written, and runs that program, and if both files and their directory belong to root or to the user of the
//! process. No path with a link that another user made is followed: see `pinned.rs`. The process is signalled through a descriptor that was opened before all of this was read, and that still referred to it afterwards.

use crate::process::pinned::Directory;
use crate::words;
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc::{self, Stat};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The start of a process and the modification time of its PID file must differ by less than this, in milliseconds.
const APART_MS: u64 = 5000;

/// The maximum size of a PID file, in bytes.
const PID_BYTES_MAX: u64 = 64;

/// The file beside a PID file that names the program.
const SCRIPT: &str = "cmd.sh";

/// The maximum size of `cmd.sh`, in bytes.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;

/// The maximum number of directory entries to read.
const ENTRIES_MAX: usize = 100_000;
/// The maximum depth of subdirectories to read.
const DEPTH_MAX: usize = 16;

/// The contents of a PID file, and of `cmd.sh` beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) pid: u32,
    /// When the PID file was written, in milliseconds since 1970.
    pub(super) written_ms: u64,
    /// The UIDs of the owners of the PID file, of its directory and of `cmd.sh`.
    pub(super) owners: Vec<u32>,
    /// The program that `cmd.sh` runs; `None` if there is no such file, or if it names no program.
    pub(super) program: Option<String>,
}

/// The kernel's data about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// When it started, in milliseconds since 1970.
    pub(super) started_ms: u64,
    /// Whether it is a zombie.
    pub(super) has_ended: bool,
    /// The UID that it runs as.
    pub(super) owner: u32,
    pub(super) argv: Vec<Vec<u8>>,
}

/// Whether a process is the one that a PID file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is that process, and it is alive.
    Lives,
    /// It was that process, which has ended but has not been reaped by its parent.
    Ended,
    /// No process has this PID.
    Gone,
    /// Another process has this PID: it did not start when the file was written.
    Reused,
    /// The process runs another program.
    OtherProgram,
    /// There is no `cmd.sh` that names the program.
    NoProgram,
    /// The file, its directory or `cmd.sh` belongs neither to root nor to the user of the process.
    OtherUser,
}

impl Verdict {
    /// Compares the claim of a PID file with the process that has the PID now. `facts` is `None` if there is no such process.
    pub(super) fn of(claim: &Claim, facts: Option<&Facts>) -> Self {
        let Some(facts) = facts else {
            return Self::Gone;
        };
        if facts.started_ms.abs_diff(claim.written_ms) >= APART_MS {
            return Self::Reused;
        }
        // A user who can write a PID file must not be able to use it to signal other users' processes.
        let may_name = |owner: &u32| [0, facts.owner].contains(owner);
        if !claim.owners.iter().all(may_name) {
            return Self::OtherUser;
        }
        if facts.has_ended {
            // A zombie no longer has its arguments.
            return Self::Ended;
        }
        match &claim.program {
            None => Self::NoProgram,
            Some(program) if runs(&facts.argv, program) => Self::Lives,
            Some(_) => Self::OtherProgram,
        }
    }

    /// Returns the verdict's name in JSON.
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
            Self::Ended => "ended, but not reaped by its parent",
            Self::Gone => "gone: no process has this PID",
            Self::Reused => "gone: this PID now belongs to another process, which did not start when the file was written",
            Self::OtherProgram => "gone: the process with this PID does not run the program that cmd.sh names",
            Self::NoProgram => "unknown: there is no cmd.sh beside the file, or it names no program",
            Self::OtherUser => "unknown: the file, its directory or cmd.sh belongs neither to root nor to the user of the process with this PID",
        })
    }
}

/// Returns whether one of the arguments is `program` or its file name. All arguments are compared, since an interpreter and its flags may
/// precede the program.
fn runs(argv: &[Vec<u8>], program: &str) -> bool {
    let name = Path::new(program).file_name().map_or(&b""[..], OsStr::as_bytes);
    let is_it = |argument: &Vec<u8>| argument == program.as_bytes() || argument == name;
    !name.is_empty() && argv.iter().any(is_it)
}

/// A PID file and the process that has its PID.
#[derive(Debug)]
pub(super) struct CheckedPidFile {
    pub(super) claim: Claim,
    pub(super) facts: Option<Facts>,
    pub(super) verdict: Verdict,
    /// A descriptor of the process, if the verdict is `Lives`.
    pub(super) process: Option<Pidfd>,
}

impl CheckedPidFile {
    /// Reads a PID file and looks for its process.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let claim = Claim::read(path)?;
        let process = Pidfd::open(claim.pid)?;
        let facts = match &process {
            Some(process) => Facts::read(claim.pid, process)?,
            None => None,
        };
        let verdict = Verdict::of(&claim, facts.as_ref());
        Ok(Self { process: process.filter(|_| verdict == Verdict::Lives), claim, facts, verdict })
    }
}

impl Claim {
    fn read(path: &Path) -> io::Result<Self> {
        let directory = Directory::of(path)?;
        let name = path.file_name().unwrap_or_default();
        let (text, metadata) = directory.read(name, PID_BYTES_MAX)?;
        let pid = text.trim().parse().ok().filter(|pid| *pid > 0);
        let pid = pid.ok_or_else(|| io::Error::other("it contains no PID"))?;
        let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
        let nanoseconds = u64::try_from(metadata.mtime_nsec()).unwrap_or(0);
        let mut owners = vec![metadata.uid(), directory.owner()?];
        let program = match directory.read(OsStr::new(SCRIPT), SCRIPT_BYTES_MAX) {
            Ok((script, metadata)) => {
                owners.push(metadata.uid());
                program_of(&script)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let words = format!("{}: {error}", path.with_file_name(SCRIPT).display());
                return Err(io::Error::other(words));
            }
        };
        Ok(Self { pid, written_ms: seconds * 1000 + nanoseconds / 1_000_000, owners, program })
    }
}

impl Facts {
    /// Reads the data of the process that `process` refers to; `None` if it has ended and was reaped.
    fn read(pid: u32, process: &Pidfd) -> io::Result<Option<Self>> {
        let Some(stat) = proc::stat(pid)? else {
            return Ok(None);
        };
        let argv = proc::cmdline(pid)?.unwrap_or_default();
        let owner = fs::metadata(format!("/proc/{pid}")).map(|it| it.uid());
        // If `process` still has the PID, everything above was read from that process.
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

/// Returns the wall-clock time at which a process started, in milliseconds since 1970.
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

/// Returns the program that a `cmd.sh` of sexton or `ArchiveBox` runs: the first word after the lines and words that only prepare the
/// command. Returns `None` if there is no such word.
fn program_of(script: &str) -> Option<String> {
    let before = ["#", ": ", "export ", "cd "];
    let is_before =
        |line: &&str| line.trim().is_empty() || before.iter().any(|it| line.starts_with(it));
    let lines: Vec<&str> = script.lines().skip_while(is_before).collect();
    let words = words::command(&lines.join("\n")).ok()?;
    let mut words = words.into_iter().skip_while(|word| word == "exec").peekable();
    if words.next_if(|word| word == "env").is_some() {
        return words.find(|word| !word.contains('='));
    }
    words.next()
}

/// Lists the files whose names end with `.pid` in a directory and its subdirectories, down to [`DEPTH_MAX`] levels, sorted. Symbolic links
/// are not followed. Fails if there are more than [`ENTRIES_MAX`] entries in all.
pub(super) fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![(directory.to_owned(), 0)];
    let mut seen = 0;
    while let Some((directory, depth)) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            // A subdirectory that was removed meanwhile, or is not readable, counts as empty.
            Err(_) if depth > 0 => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            seen += 1;
            if seen > ENTRIES_MAX {
                let words = format!("it contains more than {ENTRIES_MAX} files and directories");
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
