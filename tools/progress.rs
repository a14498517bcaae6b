//! Reports the progress of long operations: on a terminal in a line that is rewritten in place, otherwise in occasional log lines.

use crate::text::plain;
use std::io::IsTerminal as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The interval at which progress is checked, and the line on a terminal is rewritten.
const LOOK: Duration = Duration::from_millis(100);
/// The number of intervals of [`LOOK`] before the first report: shorter operations are not reported.
const QUIET_LOOKS: u32 = 10;
/// The number of intervals from one report to the next if standard error is not a terminal.
const LOOKS_A_LINE: u32 = 50;

/// Reports progress until it is dropped.
pub(crate) struct Progress {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts reporting the text that `words` returns, if any, in a line on the terminal. If standard error is not a terminal, passes
    /// the text to `elsewhere`.
    pub(crate) fn start(
        words: impl Fn() -> Option<String> + Send + 'static,
        elsewhere: impl Fn(&str) + Send + 'static,
    ) -> Self {
        Self::with(LOOK, std::io::stderr().is_terminal(), words, elsewhere)
    }

    /// Like [`Self::start`], but passes the text to `elsewhere` even if standard error is a terminal.
    pub(crate) fn aside(
        words: impl Fn() -> Option<String> + Send + 'static,
        elsewhere: impl Fn(&str) + Send + 'static,
    ) -> Self {
        Self::with(LOOK, false, words, elsewhere)
    }

    fn with(
        look: Duration,
        terminal: bool,
        words: impl Fn() -> Option<String> + Send + 'static,
        elsewhere: impl Fn(&str) + Send + 'static,
    ) -> Self {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&over);
        let say = move || {
            for looks in 1.. {
                if wait(&theirs, look) {
                    break;
                }
                let due = looks >= QUIET_LOOKS && (terminal || looks % LOOKS_A_LINE == 0);
                match words().filter(|_| due) {
                    Some(words) if terminal => write(&format!("\r{}\x1b[K\r", plain(&words))),
                    Some(words) => elsewhere(&words),
                    None => {}
                }
            }
            if terminal {
                write("\x1b[K");
            }
        };
        // If the thread cannot be spawned, the operation continues without reports.
        let thread = std::thread::Builder::new().name("sexton-progress".to_owned()).spawn(say).ok();
        Self { over, thread }
    }
}

/// Waits for one interval, or less if the operation ends. Returns whether the operation is over.
fn wait(over: &(Mutex<bool>, Condvar), look: Duration) -> bool {
    let (over, ended) = over;
    let is_on = |over: &mut bool| !*over;
    let waited = ended.wait_timeout_while(lock(over), look, is_on);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn lock(over: &Mutex<bool>) -> MutexGuard<'_, bool> {
    over.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to standard error. Ignores errors, since the terminal may have been closed.
fn write(text: &str) {
    crate::log::write(text);
}

impl Drop for Progress {
    fn drop(&mut self) {
        *lock(&self.over.0) = true;
        self.over.1.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;
    use std::sync::Mutex;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn lines_come_now_and_then_and_end_with_it() {
        // Each call blocks until the test receives from it, so no call gets ahead of the test.
        let (asked, asks) = sync_channel(0);
        let words = move || {
            // Sending fails once the test has dropped the receiver.
            if asked.send(()).is_err() {
                return None;
            }
            Some("half-way".to_owned())
        };
        let keep = |line: &str| LINES.lock().unwrap().push(line.to_owned());
        let progress = Progress::with(Duration::from_micros(10), false, words, keep);
        let count = || LINES.lock().unwrap().len();
        for _ in 0..49 {
            asks.recv().expect("the thread calls `words` repeatedly");
        }
        assert_eq!(count(), 0, "a short operation is not reported");
        for _ in 49..200 {
            asks.recv().expect("the thread calls `words` repeatedly");
        }
        drop(asks);
        drop(progress);
        let lines = LINES.lock().unwrap().clone();
        assert!(lines.len() >= 3, "expected a line every fifty intervals: {lines:?}");
        assert!(lines.iter().all(|line| line == "half-way"));
    }
}
