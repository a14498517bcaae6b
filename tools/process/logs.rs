//! `sexton logs`: what a process wrote. Its files are read here, where whoever asks may read them.

use crate::client::{self, Where, fields};
use crate::process::asking::{Asking, has_ended};
use crate::report::{Failure, print_bytes};
use crate::text::words;
use clap::Args;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// How soon a file is looked at again that is being written.
const LOOK: Duration = Duration::from_millis(200);

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// Show what a process wrote.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton logs 0192f5e0               its standard output
  sexton logs 0192f5e0 --stderr      its standard error
  sexton logs 0192f5e0 --follow      go on until it has ended
  sexton logs 0192f5e0 --tail 20     the last 20 lines

What ran in the foreground wrote to its terminal. Exit status: 0 success; 1 there is no such process, or it has no files; 3 no coordinator runs
there, or the files cannot be read.")]
pub(crate) struct Logs {
    /// Which, by id or the first eight or more digits of it
    id: String,

    #[command(flatten)]
    how: How,

    #[command(flatten)]
    at: Where,
}

/// What of the output is shown.
#[derive(Args)]
pub(super) struct How {
    /// Its standard error
    #[arg(long)]
    stderr: bool,

    /// Go on until it has ended
    #[arg(long, short)]
    follow: bool,

    /// Begin with the last LINES lines
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
}

impl Logs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let asking = Asking::at(&self.at, false)?;
        let query = fields([("id", self.id.as_str().into())]);
        let record = asking.look("/process", &query)?;
        let dir = record.pointer("/run_dir").and_then(Value::as_str);
        let dir =
            dir.ok_or_else(|| Failure::found("it was not launched here, so it has no files"))?;
        let id = words(&record, "/id");
        let query = fields([("id", id.as_str().into())]);
        let ended = || Ok(has_ended(&asking.look("/process", &query)?));
        self.how.show(Path::new(dir), ended)
    }
}

impl How {
    /// Shows the files of a directory, until what writes them has ended if they are followed.
    pub(super) fn show(
        &self,
        dir: &Path,
        has_ended: impl Fn() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let name = if self.stderr {
            "stderr.log"
        } else {
            "stdout.log"
        };
        let path = dir.join(name);
        let mut file = File::open(&path).map_err(|error| unread(&path, &error))?;
        if let Some(lines) = self.tail {
            let from = last_lines(&mut file, lines).map_err(|error| unread(&path, &error))?;
            let sought = file.seek(SeekFrom::Start(from));
            sought.map_err(|error| unread(&path, &error))?;
        }
        loop {
            // Whether it has ended is asked before the file is read: what it wrote until then is there.
            let ended = !self.follow || has_ended()?;
            copy(&mut file, &path)?;
            if ended {
                return Ok(());
            }
            client::rest(LOOK);
        }
    }
}

fn copy(file: &mut File, path: &Path) -> Result<(), Failure> {
    // Rotated: what was taken away has been read, and what is left begins at the beginning.
    let is_shorter = file
        .stream_position()
        .and_then(|at| Ok(at > file.metadata()?.len()));
    if is_shorter.unwrap_or(false) {
        let sought = file.rewind();
        sought.map_err(|error| unread(path, &error))?;
    }
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = file
            .read(&mut chunk)
            .map_err(|error| unread(path, &error))?;
        if length == 0 {
            return Ok(());
        }
        print_bytes(chunk.get(..length).unwrap_or_default())?;
    }
}

/// Where the last lines begin.
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
        io::Read::by_ref(file)
            .take(from - start)
            .read_to_end(&mut part)?;
        for (place, byte) in part.iter().enumerate().rev() {
            let at = start + place as u64;
            // The end of the last line is no beginning of another.
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
            "{} is not there: it ran in the foreground, or was never started",
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
