//! The port of the `LeaseActor`: writes a line to a log file when a pass (one run of a lease's command) begins, and another when it ends,
//! like Fossil's backoffice. A pass that failed or overruns its period, and missed dates of a schedule, are also reported in the server's own
//! log, since nobody may be waiting for them.
//!
//! A separate thread writes the lines, so that a slow disk does not delay the node. Each is written once, after the journal entry of its
//! event is durable: it is lost if the server is killed in between, or if the file cannot be written. A failed write is logged.

use crate::actors::binding::Exit;
use crate::actors::lease::{Action, LeaseMachine, LogEvent};
use crate::clock::{Clock as _, Date, SystemClock, Timestamp};
use crate::kernel::file::{self, Place};
use crate::ports::lease::counts::counts;
use crate::schedule;
use crate::spine::effect;
use crate::spine::halt::Sentry;
use crate::spine::port::Port;
use crate::spine::seldom::Seldom;
use crate::thread::JoinHandle;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::{Mode, OFlags};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The maximum number of lines waiting to be written. If the disk cannot keep up, further lines are dropped, and their number is logged.
const LINES_MAX: usize = 10_000;

/// The maximum size of a log file. One that has reached it is renamed, and replaces the one that was renamed before.
const FILE_BYTES_MAX: u64 = 10 << 20;

/// The suffix of the name of a log file that was full.
const OLD: &str = ".old";

/// The port of the `LeaseActor`.
#[derive(Debug)]
pub struct LeasePort {
    data: Option<PathBuf>,
    sentry: Sentry,
    writing: Option<Writing>,
    lost: u64,
    /// The lines in the server's log that any client may cause.
    plain: Seldom,
}

/// The thread that writes the lines. It is started for the first line.
#[derive(Debug)]
struct Writing {
    lines: Sender<(Date, PathBuf, Action)>,
    thread: JoinHandle<()>,
}

impl LeasePort {
    /// Creates a port. `data` is the data directory, which contains the output of passes; if it is `None`, no counts are logged.
    pub fn new(data: Option<PathBuf>, sentry: Sentry) -> Self {
        Self { data, sentry, writing: None, lost: 0, plain: Seldom::default() }
    }

    /// Logs a warning if the action asks for one, and if few others of its kind were logged in the last minute.
    fn warn(&mut self, action: &Action) {
        let is_plain = match action.what {
            LogEvent::Ended { warns: false, .. } | LogEvent::Began => return,
            LogEvent::Ended { plain, .. } | LogEvent::Overran { plain, .. } => plain,
            LogEvent::Missed(_) => false,
        };
        let left_out = if is_plain { self.plain.admit(date().0) } else { Some(0) };
        if let Some(left_out) = left_out {
            warn(action, Some(left_out).filter(|it| *it > 0));
        }
    }

    fn start(&self) -> io::Result<Writing> {
        let (lines, asked) = bounded(LINES_MAX);
        let data = self.data.clone();
        let thread = self.sentry.thread("lease-log", move || {
            write(&asked, data.as_deref());
            // The thread ends only when the port is dropped.
            true
        })?;
        Ok(Writing { lines, thread })
    }
}

impl Port<LeaseMachine> for LeasePort {
    fn perform(&mut self, action: effect::Action<Action>) {
        self.warn(&action.what);
        let Some(file) = action.what.file.as_ref().map(PathBuf::from) else {
            return;
        };
        if self.writing.is_none() {
            match self.start() {
                Ok(writing) => self.writing = Some(writing),
                Err(error) => tracing::error!("failed to start the thread for log files: {error}"),
            }
        }
        let line = (date(), file, action.what);
        let writing = self.writing.as_ref();
        if writing.is_none_or(|it| it.lines.try_send(line).is_err()) {
            self.lost += 1;
            if self.lost.is_power_of_two() {
                tracing::warn!(lost = self.lost, "dropped lines for lease log files");
            }
        }
    }
}

impl Drop for LeasePort {
    fn drop(&mut self) {
        if let Some(Writing { lines, thread }) = self.writing.take() {
            // The thread exits after writing the remaining lines.
            drop(lines);
            drop(thread.join());
        }
    }
}

fn date() -> Date {
    Date(SystemClock::starting_at(Timestamp(0)).wall().0)
}

/// Logs a warning, which names how many were left out before it.
fn warn(action: &Action, left_out: Option<u64>) {
    let (lease, token) = (action.lease.to_text(), action.token.0);
    match &action.what {
        LogEvent::Ended { ran_ms, exit, launched, .. } => {
            let process = launched.as_ref().map(|(process, _)| process.to_string());
            let end = words(*exit);
            tracing::warn!(
                lease,
                token,
                process,
                end,
                ran_ms,
                left_out,
                "a pass failed: `sexton lease show` shows it"
            );
        }
        LogEvent::Overran { ran_ms, over_ms, .. } => tracing::warn!(
            lease,
            token,
            ran_ms,
            over_ms,
            left_out,
            "a pass runs longer than its period, so the next one waits: `sexton lease set NAME max-run` limits it"
        ),
        LogEvent::Missed(missed) => tracing::warn!(
            lease,
            first = schedule::utc(missed.first),
            noticed = schedule::utc(missed.noticed),
            cause = missed.cause(),
            "dates of the schedule were missed: `sexton lease run NAME` makes up for them, `sexton lease set NAME catch-up on` does so in future"
        ),
        LogEvent::Began => {}
    }
}

fn write(asked: &Receiver<(Date, PathBuf, Action)>, data: Option<&Path>) {
    for (at, file, action) in asked {
        let line = line(at, &action, data);
        match append(&file, &line) {
            Ok(false) => {}
            Ok(true) => tracing::warn!(
                file = %file.display(),
                limit = FILE_BYTES_MAX,
                "a lease log file was full: it was renamed with the suffix {OLD}"
            ),
            Err(error) => tracing::warn!(
                file = %file.display(),
                "failed to write a lease log file: {error}"
            ),
        }
    }
}

/// Appends a line. The file is opened for each line, so it is created again if it was moved away.
///
/// A file that would exceed [`FILE_BYTES_MAX`] is renamed first. Returns whether it was.
fn append(path: &Path, line: &str) -> io::Result<bool> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    // Another user who may write to its directory may have made it a link to one of our files, or a pipe, which would stop the thread.
    let place = Place::of(path)?;
    let open = || file::own(&place.path(), flags, Mode::from_raw_mode(0o644));
    let mut file = open()?;
    let is_full = file.metadata()?.len() + line.len() as u64 > FILE_BYTES_MAX;
    if is_full {
        std::fs::rename(place.path(), place.beside(OLD))?;
        file = open()?;
    }
    file.write_all(line.as_bytes())?;
    Ok(is_full)
}

/// Formats a line: the date in UTC, the lease name with its blanks replaced by dashes, and the event of the pass.
fn line(at: Date, action: &Action, data: Option<&Path>) -> String {
    let lease = action.lease.to_text().replace(' ', "-");
    let mut line = format!("{} {lease}", schedule::utc(at));
    match &action.what {
        LogEvent::Began => write!(line, " began token {}", action.token.0),
        LogEvent::Ended { ran_ms, exit, launched, .. } => {
            let launched = launched.as_ref().zip(data);
            let counts = launched.and_then(|(launched, data)| counts(launched, data));
            for (name, count) in counts.into_iter().flatten() {
                write!(line, " {count} {name}").expect("writing to a string should not fail");
            }
            write!(line, " elapse-time {ran_ms} ms {}", words(*exit))
        }
        LogEvent::Overran { ran_ms, over_ms, .. } => write!(
            line,
            " overran token {} elapse-time {ran_ms} ms, {over_ms} ms after its period",
            action.token.0
        ),
        LogEvent::Missed(missed) => {
            let (first, noticed) = (schedule::utc(missed.first), schedule::utc(missed.noticed));
            let cause = missed.cause();
            write!(line, " missed from {first} until {noticed} {cause}")
        }
    }
    .expect("writing to a string should not fail");
    line.push('\n');
    line
}

fn words(exit: Option<Exit>) -> String {
    exit.unwrap_or(Exit::Lost).to_string()
}

#[cfg(test)]
mod tests {
    use super::{FILE_BYTES_MAX, LeasePort, append, date};
    use crate::actors::binding::Exit;
    use crate::actors::lease::{Action, LogEvent};
    use crate::actors::lock::Name;
    use crate::ids::{ProcessId, Seq, Token};
    use crate::ports::process::files::{STDOUT, run_dir};
    use crate::schedule;
    use crate::spine::effect;
    use crate::spine::halt::Sentry;
    use crate::spine::port::Port as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    /// Whether counts are read, which requires a JSON parser.
    const READS_COUNTS: bool = cfg!(feature = "replay");

    /// Returns the log lines of a pass that printed `output`.
    fn logged(folder: &Path, output: &str) -> String {
        let (file, id) = (folder.join("log"), ProcessId(7));
        let dir = run_dir(folder, id, None);
        std::fs::create_dir_all(&dir).expect("a directory can be created");
        std::fs::write(dir.join(STDOUT), output).expect("the file can be written");
        let mut port = LeasePort::new(Some(folder.to_owned()), Sentry::default());
        let ended = LogEvent::Ended {
            ran_ms: 1250,
            exit: Some(Exit::Code(3)),
            launched: Some((id, None)),
            warns: false,
            plain: false,
        };
        for what in [LogEvent::Began, ended] {
            let what = Action {
                file: Some(file.to_str().expect("the path is UTF-8").to_owned()),
                lease: Name::new(b"send mails".to_vec()).expect("the name is short"),
                token: Token(41),
                what,
            };
            let (id, attempt) = (0, Seq(1));
            port.perform(effect::Action { id, attempt, what });
        }
        drop(port);
        let lines = std::fs::read_to_string(&file).expect("the log file can be read");
        std::fs::remove_file(&file).expect("the file exists");
        // The dates vary, so they are cut off.
        let lines = lines.lines().map(|line| line[19..].to_owned() + "\n");
        lines.collect()
    }

    #[test]
    fn a_pass_has_a_line_as_it_begins_and_one_as_it_ends() {
        let folder = tempfile::tempdir().expect("a directory can be created");
        let began = " send-mails began token 41\n";
        let ended = " elapse-time 1250 ms exit 3\n";
        for (output, counts) in [
            ("", ""),
            ("3 mails\n", ""),
            ("{\"counts\":{\"mails\":3,\"alerts\":0}}\n", " 0 alerts 3 mails"),
            ("{\"counts\":{\"mails\":1}}\n{\"counts\":{\"mails\":2}}\n{}\n", " 2 mails"),
            ("{\"counts\":{\"two words\":1,\"\":2,\"a\\n\":3}}", ""),
            ("{\"counts\":{\"mails\":-1}}\n", ""),
            ("{\"counts\":{\"mails\":1}", ""),
        ] {
            let counts = if READS_COUNTS { counts } else { "" };
            let expected = format!("{began} send-mails{counts}{ended}");
            assert_eq!(logged(folder.path(), output), expected, "{output}");
        }
        let long = "x".repeat(64 << 10);
        let before = format!("{{\"counts\":{{\"a\":1}}}}\n{long}");
        assert!(!logged(folder.path(), &before).contains(" 1 a"));
        let after = format!("{long}\n{{\"counts\":{{\"a\":1}}}}\n");
        assert_eq!(logged(folder.path(), &after).contains(" 1 a "), READS_COUNTS);
    }

    #[test]
    fn only_regular_files_are_written() {
        assert!(append(Path::new("/dev/null"), "x\n").is_err());
        assert!(append(Path::new("/"), "x\n").is_err());
        assert_eq!(schedule::utc(date()).len(), 19);
        let dir = tempfile::tempdir().expect("a directory can be created");
        let (other, log) = (dir.path().join("other"), dir.path().join("log"));
        std::fs::write(&other, "important").expect("the file can be written");
        std::fs::hard_link(&other, &log).expect("the file can be linked");
        assert!(append(&log, "x\n").is_err());
        std::fs::remove_file(&log).expect("it exists");
        std::os::unix::fs::symlink(&other, &log).expect("the file can be linked");
        let refused = append(&log, "x\n").expect_err("it is a link").to_string();
        assert_eq!(refused, "it is a symbolic link");
        let kept = std::fs::read_to_string(&other).expect("the file exists");
        assert_eq!(kept, "important");
    }

    #[test]
    fn a_file_is_written_through_no_link_that_another_user_may_have_made() {
        let folder = tempfile::tempdir().expect("a directory can be created");
        let path = |name: &str| folder.path().join(name);
        for name in ["ours", "shared"] {
            std::fs::create_dir(path(name)).expect("a directory can be created");
        }
        std::os::unix::fs::symlink(path("ours"), path("shared/link")).expect("a link");
        let set = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path("shared"), mode).expect("our own");
        };
        set(0o777);
        let refused = append(&path("shared/link/log"), "x\n").expect_err("it is a link");
        assert!(refused.to_string().contains("shared/link is a symbolic link"), "{refused}");
        assert!(!path("ours/log").exists());
        // A directory of theirs may be written to, and a link of ours leads where it says.
        append(&path("shared/log"), "x\n").expect("it is a file of ours");
        set(0o755);
        append(&path("shared/link/log"), "x\n").expect("only we may write there");
        assert_eq!(std::fs::read_to_string(path("ours/log")).expect("it was written"), "x\n");
    }

    #[test]
    fn a_file_that_is_full_is_renamed_and_one_of_these_is_kept() {
        let folder = tempfile::tempdir().expect("a directory can be created");
        let (log, old) = (folder.path().join("log"), folder.path().join("log.old"));
        let fill = |bytes: u64| {
            let file = std::fs::File::options().write(true).create(true).truncate(false).open(&log);
            file.and_then(|it| it.set_len(bytes)).expect("the file can be written");
        };
        let length = |path: &Path| std::fs::metadata(path).expect("it exists").len();
        fill(FILE_BYTES_MAX - 2);
        assert!(!append(&log, "a\n").expect("it is written"), "it is full, and no more");
        assert_eq!((length(&log), old.exists()), (FILE_BYTES_MAX, false));
        for line in ["b\n", "c\n"] {
            fill(FILE_BYTES_MAX);
            assert!(append(&log, line).expect("it is written"));
            assert_eq!(std::fs::read_to_string(&log).expect("it exists"), line);
            assert_eq!(length(&old), FILE_BYTES_MAX);
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 2);
        // What is there instead of the renamed one is replaced, not followed.
        std::fs::remove_file(&old).expect("it exists");
        std::fs::write(folder.path().join("other"), "important").expect("a file");
        std::os::unix::fs::symlink(folder.path().join("other"), &old).expect("a link");
        fill(FILE_BYTES_MAX);
        append(&log, "d\n").expect("it is written");
        assert_eq!(length(&folder.path().join("other")), 9);
    }

    #[test]
    fn a_pipe_in_place_of_the_output_does_not_block() {
        let folder = tempfile::tempdir().expect("a directory can be created");
        let dir = run_dir(folder.path(), ProcessId(7), None);
        std::fs::create_dir_all(&dir).expect("a directory can be created");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join(STDOUT), mode).expect("a pipe");
        let launched = (ProcessId(7), None);
        assert!(super::counts(&launched, folder.path()).is_none());
    }
}
