//! The program's allocator, and when it gives memory back to the system.
//!
//! A request allocates some dozen times on its way; docs/benchmarks.md has what mimalloc is worth there. Left alone it
//! keeps what was freed in case it is wanted again, and asks for pages of two megabytes, which stay whole while one
//! byte of them is in use. For a program that holds many small things, and now and then needs much for a moment, as a
//! checkpoint does, both cost more than they bring. But giving back at once what is wanted again at once costs too: a
//! start would take a quarter longer. So what is left over goes back once a second. Never here: an allocation.

use std::convert::Infallible;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` in mimalloc.h, which the crate does not name: milliseconds until freed pages go back.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Longer than anything takes: freed pages go back when they are called for, and not before.
const NEVER_MS: i64 = 1 << 40;

/// How often freed pages go back.
const EVERY: Duration = Duration::from_secs(1);

/// Makes freed memory wait until it is given back. Before the first thread starts.
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
        libmimalloc_sys::mi_option_set(PURGE_DELAY, NEVER_MS);
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

fn give_back() {
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

    /// Takes much, frees it, and says how many pages it had and how many of them are left.
    fn take_and_free(before: usize) -> (usize, usize) {
        let held: Vec<Box<[u8]>> = (0..32_000).map(|_| vec![1; 4000].into()).collect();
        let while_held = resident_pages() - before;
        drop(held);
        (while_held, resident_pages().saturating_sub(before))
    }

    #[test]
    fn freed_memory_goes_back_when_it_is_called_for() {
        super::configure();
        let before = resident_pages();
        for _ in 0..2 {
            let (held, kept) = take_and_free(before);
            assert!(kept * 2 > held, "only {kept} of {held} pages were kept");
            super::give_back();
            let left = resident_pages().saturating_sub(before);
            assert!(left * 4 < held, "{left} of {held} pages left");
        }
    }
}
