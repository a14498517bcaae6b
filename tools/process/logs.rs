//! `sexton logs`: shows the output of a process. The files are read by this command, with the rights of its user.

use crate::client::{self, Where, fields};
use crate::process::follow::Follower;
use crate::process::request::{ClientOptions, has_ended};
use crate::report::{Failure, print_bytes, tell};
use crate::text::words;
use clap::Args;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// How often to look for new output.
const LOOK: Duration = Duration::from_millis(200);

/// The maximum number of bytes per read.
const CHUNK: usize = 64 << 10;

/// Show the output of a process
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton logs 0192f5e0               its standard output
  sexton logs 0192f5e0 --stderr      its standard error
  sexton logs 0192f5e0 --follow      show new output until it has ended
  sexton logs 0192f5e0 --tail 20     the last 20 lines

A process in the foreground writes to its terminal and has no files. Exit status: 0 success; 1 there is no such process, or it has no \
files; 3 no coordinator runs there, or the files cannot be read.")]
pub(crate) struct Logs {
    /// Process id, or at least its first eight digits
    id: String,

    #[command(flatten)]
    how: OutputOptions,

    #[command(flatten)]
    at: Where,
}

/// Selects the part of the output to show.
#[derive(Args)]
pub(super) struct OutputOptions {
    /// Show standard error instead of standard output
    #[arg(long)]
    stderr: bool,

    /// Show new output until the process has ended
    #[arg(long, short)]
    follow: bool,

    /// Begin with the last LINES lines
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
}

impl Logs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions::at(&self.at, false)?;
        let query = fields([("id", self.id.as_str().into())]);
        let record = options.look("/process", &query)?;
        let dir = record.pointer("/run_dir").and_then(Value::as_str);
        let dir = dir.ok_or_else(|| {
            Failure::found("this coordinator did not launch the process, so it has no output files")
        })?;
        let id = words(&record, "/id");
        let query = fields([("id", id.as_str().into())]);
        let ended = || Ok(has_ended(&options.look("/process", &query)?));
        self.how.show(Path::new(dir), ended)
    }
}

impl OutputOptions {
    /// Prints an output file in `dir`; with `--follow`, also new output until `has_ended` returns true. Prints a hint first if the file is
    /// empty.
    pub(super) fn show(
        &self,
        dir: &Path,
        has_ended: impl Fn() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        self.hint(dir);
        let name = if self.stderr { "stderr.log" } else { "stdout.log" };
        let path = dir.join(name);
        let begin = |file: &mut File| match self.tail {
            Some(lines) => last_lines(file, lines),
            None => Ok(0),
        };
        let follower = Follower::open(&path, begin);
        let mut follower = follower.map_err(|error| unread(&path, &error))?;
        loop {
            // Check for the end before reading the file, so that all output up to the end is read.
            let ended = !self.follow || has_ended()?;
            follower.copy(&mut print_bytes)?;
            if ended {
                return Ok(());
            }
            client::rest(LOOK);
        }
    }

    /// Prints a hint if the selected stream (standard output or standard error) has no output yet: that the opposite stream has output, or
    /// that neither has.
    fn hint(&self, dir: &Path) {
        let is_there = |name: &str| {
            let found = dir.join(name).metadata();
            found.is_ok_and(|it| it.len() > 0)
        };
        let (out, err) = (is_there("stdout.log"), is_there("stderr.log"));
        match (self.stderr, out, err) {
            (false, false, true) => {
                tell("nothing on standard output; --stderr shows standard error");
            }
            (true, true, false) => {
                tell("nothing on standard error; leave out --stderr to see standard output");
            }
            (_, false, false) => tell("no output so far"),
            (..) => {}
        }
    }
}

/// Returns the offset at which the last `lines` lines begin, which is 0 if there are fewer lines.
fn last_lines(file: &mut File, lines: usize) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(length);
    }
    let (mut from, mut left) = (length, lines);
    while from > 0 {
        let start = from.saturating_sub(CHUNK as u64);
        file.seek(SeekFrom::Start(start))?;
        let mut part = Vec::new();
        io::Read::by_ref(file).take(from - start).read_to_end(&mut part)?;
        for (place, byte) in part.iter().enumerate().rev() {
            let at = start + place as u64;
            // No line begins after a line break at the end of the file.
            if *byte == b'\n' && at + 1 < length {
                left = left.saturating_sub(1);
                if left == 0 {
                    return Ok(at + 1);
                }
            }
        }
        from = start;
    }
    Ok(0)
}

fn unread(path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        Failure::found(format!(
            "{} does not exist: the process ran in the foreground, was never started, or its file was removed or renamed",
            path.display()
        ))
    } else {
        Failure::unreachable(format!("failed to read {}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::last_lines;
    use std::io::Write as _;

    #[test]
    fn the_last_lines_begin_behind_the_line_before_them() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"one\ntwo\nthree\n").expect("it is written");
        let places = [0, 1, 2, 3, 9].map(|lines| last_lines(&mut file, lines).expect("it is read"));
        assert_eq!(places, [14, 8, 4, 0, 0]);
    }
}
