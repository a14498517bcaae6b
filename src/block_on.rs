//! Waits for futures without an async runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `future` completes, and returns its output.
///
/// Use it on plain threads only: inside an async runtime, it would block every other task on the thread. The futures of [`crate::handle`]
/// need no runtime.
///
/// ```
/// assert_eq!(sexton::block_on(async { 1 + 1 }), 2);
/// ```
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            // `park` returns immediately if the future was woken since the poll.
            Poll::Pending => thread::park(),
        }
    }
}
