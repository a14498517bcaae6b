//! The program's allocator, and when it returns memory to the system.
//!
//! Serving a request takes about a dozen allocations, and mimalloc makes them faster: docs/benchmarks.md shows by how much. By default
//! mimalloc keeps freed memory for reuse and requests 2 MB pages, each of which stays resident while a single byte of it is in use. Both
//! defaults are costly for a program that holds many small objects and needs much memory only at times, as during a checkpoint. Returning
//! memory immediately is costly too: it makes startup a quarter slower. So freed memory is returned after a short delay.

use std::convert::Infallible;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of the option `mi_option_purge_delay` in mimalloc.h, for which the crate has no constant: the delay in milliseconds before
/// freed pages are returned.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// How long freed pages are kept for reuse, in milliseconds. The first free after this time purges them.
const WAIT_MS: i64 = 50;

/// How often to purge pages that no later free has purged.
const EVERY: Duration = Duration::from_millis(500);

/// Delays the purge of freed memory and disables transparent huge pages. Must be called before the first thread starts.
pub(crate) fn configure() {
    // Feature `no_thp` keeps mimalloc from requesting huge pages, but some systems use them without a request.
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "failed to disable transparent huge pages");
    }
    #[expect(
        unsafe_code,
        reason = "the crate has no safe call for this option of the allocator; it must be set while there is a single thread"
    )]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, WAIT_MS);
    }
}

/// Returns freed memory to the system at intervals of [`EVERY`]. Never completes; a server polls it for as long as it runs.
pub(crate) async fn give_back_forever() -> Infallible {
    let mut each = tokio::time::interval(EVERY);
    loop {
        each.tick().await;
        give_back();
    }
}

/// Returns all freed memory to the system now.
pub(crate) fn give_back() {
    #[expect(
        unsafe_code,
        reason = "the crate has no safe wrapper for this call of the allocator; any thread may make it at any time"
    )]
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    fn resident_pages() -> usize {
        let statm =
            std::fs::read_to_string("/proc/self/statm").expect("Linux should have this file");
        let resident = statm.split(' ').nth(1).expect("statm should have several fields");
        resident.parse().expect("the fields of statm should be numbers")
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
