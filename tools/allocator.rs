//! The program's allocator, and when it gives memory back to the system.
//!
//! A request allocates some dozen times on its way; docs/benchmarks.md has what mimalloc is worth there. Left alone it
//! keeps what was freed in case it is wanted again, and asks for pages of two megabytes, which stay whole while one
//! byte of them is in use. For a program that holds many small things, and now and then needs much for a moment, as a
//! checkpoint does, both cost more than they bring. But giving back at once what is wanted again at once costs too: a
//! start would take a quarter longer. So what is freed waits for a moment first. Never here: an allocation.

use std::convert::Infallible;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` in mimalloc.h, which the crate does not name: milliseconds until freed pages go back.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// How long freed pages wait for whoever wants them again. What is freed afterwards takes them along.
const WAIT_MS: i64 = 50;

/// How often those go back that nothing was freed after.
const EVERY: Duration = Duration::from_millis(500);

/// Makes freed memory wait for a moment before it goes back to the system. Before the first thread starts.
pub(crate) fn configure() {
    // Feature `no_thp` keeps mimalloc from asking for large pages; some systems give them unasked.
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "large pages stay as the system has them");
    }
    #[expect(
        unsafe_code,
        reason = "an option of the allocator that its crate has no safe call for; it wants no other thread beside it"
    )]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, WAIT_MS);
    }
}

/// Gives back what is left over, again and again. A program that serves does this beside everything else.
pub(crate) async fn give_back_forever() -> Infallible {
    let mut each = tokio::time::interval(EVERY);
    loop {
        each.tick().await;
        give_back();
    }
}

/// Gives back what is left over, now.
pub(crate) fn give_back() {
    #[expect(
        unsafe_code,
        reason = "a call of the allocator's that its crate has no safe one for; any thread may make it at any time"
    )]
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    fn resident_pages() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("the system has it");
        let resident = statm.split(' ').nth(1).expect("the second figure");
        resident.parse().expect("a number")
    }

    #[test]
    fn freed_memory_goes_back() {
        super::configure();
        let before = resident_pages();
        let held: Vec<Box<[u8]>> = (0..32_000).map(|_| vec![1; 4000].into()).collect();
        let while_held = resident_pages() - before;
        drop(held);
        super::give_back();
        let left = resident_pages().saturating_sub(before);
        assert!(left * 4 < while_held, "{left} of {while_held} pages left");
    }
}
