//! Output that a server writes to a standard stream. A thread of its own writes it, so that a stream that nobody reads stops nothing but
//! that thread.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// The number of lines that wait to be written before further ones are dropped.
const LINES_MAX: usize = 8192;
/// The number of their bytes. A longer line is kept if no other waits.
const BYTES_MAX: usize = 4 << 20;
/// About the number of bytes of one write.
const WRITE_BYTES: usize = 32 << 10;

/// The lines that wait for one stream.
pub(crate) struct Output {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    parts: VecDeque<Part>,
    lines: usize,
    bytes: usize,
    /// Whether lines are dropped until half of what waits has been written. So a reader that is slow is not told of each line.
    is_full: bool,
    is_writing: bool,
    has_thread: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Line(Vec<u8>),
    /// This number of lines was dropped here.
    Lost(u64),
}

impl Output {
    pub(crate) const fn new() -> Self {
        let waiting = Waiting {
            parts: VecDeque::new(),
            lines: 0,
            bytes: 0,
            is_full: false,
            is_writing: false,
            has_thread: false,
        };
        Self { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    /// Appends a line, or drops it if too much waits already. Never waits for the stream.
    pub(crate) fn push(&self, line: &[u8]) {
        self.lock().push(line);
        self.changed.notify_all();
    }

    /// Starts the thread that writes the lines to `stream`, unless there is one. Where lines were dropped, the thread calls `lost` with
    /// their number.
    ///
    /// # Errors
    /// Returns the error of the operating system if no thread can be started.
    pub(crate) fn start(
        &'static self,
        name: &str,
        stream: BorrowedFd<'static>,
        lost: impl Fn(u64) + Send + 'static,
    ) -> io::Result<()> {
        if std::mem::replace(&mut self.lock().has_thread, true) {
            return Ok(());
        }
        let run = move || {
            loop {
                match self.next() {
                    Part::Line(lines) => write(stream, &lines),
                    Part::Lost(lines) => lost(lines),
                }
            }
        };
        let started = Builder::new().name(name.to_owned()).spawn(run);
        self.lock().has_thread = started.is_ok();
        started.map(drop)
    }

    /// Waits until everything is written, but no longer than `limit`.
    pub(crate) fn flush(&self, limit: Duration) {
        let is_left = |waiting: &mut Waiting| waiting.is_writing || !waiting.parts.is_empty();
        let waiting = self.lock();
        if waiting.has_thread {
            drop(self.changed.wait_timeout_while(waiting, limit, is_left));
        }
    }

    /// Waits for the next part, and returns it when the previous one is written.
    fn next(&self) -> Part {
        let mut waiting = self.lock();
        waiting.is_writing = false;
        self.changed.notify_all();
        let is_idle = |waiting: &mut Waiting| waiting.parts.is_empty();
        let waiting = self.changed.wait_while(waiting, is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        waiting.is_writing = true;
        waiting.take()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn push(&mut self, line: &[u8]) {
        let is_room = self.lines < LINES_MAX && self.bytes + line.len() <= BYTES_MAX;
        let is_much = self.lines > LINES_MAX / 2 || self.bytes > BYTES_MAX / 2;
        if self.lines > 0 && (!is_room || (self.is_full && is_much)) {
            self.is_full = true;
            match self.parts.back_mut() {
                Some(Part::Lost(lines)) => *lines += 1,
                _ => self.parts.push_back(Part::Lost(1)),
            }
            return;
        }
        self.is_full = false;
        self.lines += 1;
        self.bytes += line.len();
        self.parts.push_back(Part::Line(line.to_vec()));
    }

    /// Takes the first part, which consists of several lines if they are short. There must be one.
    fn take(&mut self) -> Part {
        let mut lines = match self.parts.pop_front() {
            Some(Part::Line(line)) => line,
            Some(lost) => return lost,
            None => return Part::Line(Vec::new()),
        };
        self.lines -= 1;
        while lines.len() < WRITE_BYTES
            && let Some(Part::Line(line)) =
                self.parts.pop_front_if(|part| matches!(part, Part::Line(_)))
        {
            self.lines -= 1;
            lines.extend_from_slice(&line);
        }
        self.bytes -= lines.len();
        Part::Line(lines)
    }
}

/// Writes all of `bytes` to `stream`, however long that takes. If it fails, such as on a full disk, the rest is dropped: there is nowhere to
/// report that.
pub(super) fn write(stream: BorrowedFd<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or(&[]),
            Err(Errno::INTR) => {}
            // Another process may have made the stream, which it shares with this one, one that does not block.
            Err(Errno::AGAIN) => {
                if poll(&mut [PollFd::new(&stream, PollFlags::OUT)], None).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, LINES_MAX, Output, Part, Waiting};
    use std::time::Duration;

    fn all(waiting: &mut Waiting) -> Vec<Part> {
        let mut parts = Vec::new();
        while !waiting.parts.is_empty() {
            parts.push(waiting.take());
        }
        assert_eq!((waiting.lines, waiting.bytes), (0, 0));
        parts
    }

    #[test]
    fn lines_are_written_in_order_and_together() {
        let mut waiting = Waiting::default();
        for line in ["a\n", "b\n", "c\n"] {
            waiting.push(line.as_bytes());
        }
        assert_eq!(all(&mut waiting), [Part::Line(b"a\nb\nc\n".to_vec())]);
    }

    #[test]
    fn what_does_not_fit_is_counted_where_it_was_dropped() {
        for (line, fit) in [(vec![b'a'; 10], LINES_MAX), (vec![b'a'; 4096], BYTES_MAX / 4096)] {
            let mut waiting = Waiting::default();
            for _ in 0..fit + 3 {
                waiting.push(&line);
            }
            assert_eq!(waiting.lines, fit);
            // Lines are dropped until half of them is written.
            drop(waiting.take());
            waiting.push(b"x");
            while waiting.lines > fit / 2 {
                drop(waiting.take());
            }
            waiting.push(b"y");
            waiting.push(b"z");
            let parts = all(&mut waiting);
            let end = parts.iter().rev().take(2).rev().collect::<Vec<_>>();
            assert_eq!(end, [&Part::Lost(4), &Part::Line(b"yz".to_vec())]);
        }
    }

    #[test]
    fn a_line_of_any_length_is_kept_if_no_other_waits() {
        let mut waiting = Waiting::default();
        waiting.push(&vec![b'a'; BYTES_MAX + 1]);
        assert_eq!(waiting.lines, 1);
        waiting.push(b"b");
        assert_eq!(waiting.parts.back(), Some(&Part::Lost(1)));
    }

    #[test]
    fn flushing_ends_although_nothing_is_written() {
        let output = Output::new();
        output.lock().has_thread = true;
        output.push(b"a");
        output.flush(Duration::ZERO);
        assert_eq!(output.lock().lines, 1);
    }
}
