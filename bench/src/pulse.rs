//! Named pipes through which processes under test report that they run, under any supervisor.

use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// A process that sends nothing for this long has failed.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// A named pipe, opened for both reading and writing, so that opening it does not block and reading it never returns the end of the file.
pub(crate) struct Fifo {
    file: File,
    path: PathBuf,
}

impl Fifo {
    /// Creates a named pipe.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let mode = Mode::RUSR | Mode::WUSR;
        let made = mknodat(CWD, path, FileType::Fifo, mode, 0).map_err(io::Error::from);
        let file = made.and_then(|()| File::options().read(true).write(true).open(path));
        Ok(Self {
            file: file.map_err(Failure::to(format!("create {}", path.display())))?,
            path: path.to_owned(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(Failure::to("write to a pipe"))
    }

    /// Reads until `bytes` is full. Returns an error if nothing can be read for [`PATIENCE`].
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<(), Failure> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let ready = poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&PATIENCE));
            match ready {
                Ok(0) => return Err(Failure::new("no process reported that it runs")),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(Failure::to("wait for a process")(error)),
            }
            let read = self.file.read(rest).map_err(Failure::to("read a pipe"))?;
            rest = rest.get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads the line that the next process writes, and returns the PID in it.
    pub(crate) fn next_pid(&mut self) -> Result<u32, Failure> {
        let mut line = String::new();
        loop {
            let mut byte = [0];
            self.read(&mut byte)?;
            if byte == *b"\n" {
                return line.parse().map_err(Failure::to(format!("read {line:?}")));
            }
            line.push(byte[0].into());
        }
    }
}
