//! Starts threads. Only this file does, apart from threads whose scope ends before the caller returns, so that every thread has a name, and
//! whoever starts one decides what happens when it ends. It never lets a panic end a thread unnoticed.

pub(crate) use crate::spine::guard::guard;
use std::io;
use std::thread::Builder;
pub(crate) use std::thread::JoinHandle;

/// Starts a thread. When `run` returns or panics, calls `ended` on the same thread, with the message of the panic if there was one.
///
/// # Errors
/// Returns the error of the operating system if no thread can be started. Neither function is called then.
pub(crate) fn start<T: 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
    ended: impl FnOnce(Result<T, String>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let thread = Builder::new().name(name.to_owned());
    thread.spawn(move || ended(guard(run)))
}

#[cfg(test)]
mod tests {
    use super::start;
    use std::sync::mpsc::channel;

    #[test]
    fn the_end_of_a_thread_is_reported_however_it_came() {
        let (report, reports) = channel();
        let reporter = report.clone();
        let ended = move |end: Result<u8, String>| reporter.send(end).expect("it is awaited");
        let thread = start("returns", || 7, ended).expect("a new thread");
        thread.join().expect("it does not panic");
        let ended = move |end: Result<u8, String>| report.send(end).expect("it is awaited");
        let thread = start("panics", || panic!("planted"), ended).expect("a new thread");
        thread.join().expect("the panic was caught");
        let ends: Vec<_> = reports.iter().collect();
        assert_eq!(ends, [Ok(7), Err("planted".to_owned())]);
    }
}
