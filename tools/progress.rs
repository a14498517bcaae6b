//! Says where something is that takes long: on a terminal in one line that is written over, elsewhere now and then.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the line on a terminal is written over.
const LOOK: Duration = Duration::from_millis(100);
/// Nothing is said of what is over within so many looks.
const QUIET_LOOKS: u32 = 10;
/// Elsewhere than on a terminal, every so many looks.
const LOOKS_A_LINE: u32 = 50;

/// Goes on until it is dropped.
pub(crate) struct Progress {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Says what `words` gives, if that is anything; `elsewhere` takes the lines if standard error is no terminal.
    pub(crate) fn start(
        words: impl Fn() -> Option<String> + Send + 'static,
        elsewhere: fn(&str),
    ) -> Self {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&over);
        let say = move || {
            let terminal = std::io::stderr().is_terminal();
            for looks in 1.. {
                if wait(&theirs) {
                    break;
                }
                let due = looks >= QUIET_LOOKS && (terminal || looks % LOOKS_A_LINE == 0);
                match words().filter(|_| due) {
                    Some(words) if terminal => write(&format!("\r{words}\x1b[K")),
                    Some(words) => elsewhere(&words),
                    None => {}
                }
            }
            if terminal {
                write("\r\x1b[K");
            }
        };
        // Without a thread nothing is said: whatever takes long goes on all the same.
        let thread = std::thread::Builder::new()
            .name("sexton-progress".to_owned())
            .spawn(say)
            .ok();
        Self { over, thread }
    }
}

/// Waits for the next look; true if it is over.
fn wait(over: &(Mutex<bool>, Condvar)) -> bool {
    let (over, ended) = over;
    let is_on = |over: &mut bool| !*over;
    let waited = ended.wait_timeout_while(lock(over), LOOK, is_on);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn lock(over: &Mutex<bool>) -> MutexGuard<'_, bool> {
    over.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A terminal that is gone needs no telling.
fn write(text: &str) {
    let mut error = std::io::stderr().lock();
    drop(
        error
            .write_all(text.as_bytes())
            .and_then(|()| error.flush()),
    );
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
