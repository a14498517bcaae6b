//! Waits for a limited time for something that knows no limit of its own, such as the resolution of a name.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Returns the result of `work`, which runs on a thread of this name. If that takes longer than `limit`, the thread is left alone: it ends
/// with the process.
///
/// # Errors
/// Returns the error of `work`, `TimedOut`, or why the thread could not be started.
pub(crate) fn within<T: Send + 'static>(
    name: &str,
    limit: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (results, result) = sync_channel(1);
    Builder::new().name(name.to_owned()).spawn(move || drop(results.send(work())))?;
    result.recv_timeout(limit).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => {
            let words = format!("there was no answer within {} s", limit.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, words))
        }
        RecvTimeoutError::Disconnected => Err(io::Error::other("the thread has ended")),
    })
}

#[cfg(test)]
mod tests {
    use super::within;
    use std::io;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn what_never_ends_is_given_up() {
        let (end, ends) = channel::<()>();
        let late = within("late", Duration::from_millis(1), move || Ok(ends.recv().is_ok()));
        let error = late.expect_err("nothing is sent");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "there was no answer within 0 s");
        drop(end);
    }

    #[test]
    fn a_result_in_time_is_passed_on() {
        let limit = Duration::from_secs(1000);
        assert_eq!(within("early", limit, || Ok(1)).expect("it succeeds"), 1);
        let failed = within::<u8>("early", limit, || Err(io::ErrorKind::NotFound.into()));
        assert_eq!(failed.expect_err("it fails").kind(), io::ErrorKind::NotFound);
    }
}
