//! The program's allocator, and when it gives memory back to the system.
//!
//! A request allocates some dozen times on its way; docs/benchmarks.md has what mimalloc is worth there. Left alone it
//! keeps what was freed in case it is wanted again, and asks for pages of two megabytes, which stay whole while one
//! byte of them is in use. For a program that holds many small things, and now and then needs much for a moment, as a
//! checkpoint does, both cost more than they bring. Never here: an allocation.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` in mimalloc.h, which the crate does not name: milliseconds until freed pages go back.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// How long freed pages stay where much is freed and wanted again at once.
const WHILE_BUSY_MS: i64 = 1000;

/// Makes freed memory go back to the system at once.
pub(crate) fn configure() {
    // Feature `no_thp` keeps mimalloc from asking for large pages; some systems give them unasked.
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "large pages stay as the system has them");
    }
    set_purge_delay(0);
}

/// Does work that takes and frees much in a moment, as a start does: giving it back each time, and asking for it again,
/// would be a quarter of the work. What is left over goes back at the end.
pub(crate) fn keep_while<T>(work: impl FnOnce() -> T) -> T {
    set_purge_delay(WHILE_BUSY_MS);
    let done = work();
    // While there is a delay: without one it takes it that nothing is left over.
    #[expect(
        unsafe_code,
        reason = "a call of the allocator's that its crate has no safe one for; any thread may make it at any time"
    )]
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
    set_purge_delay(0);
    done
}

fn set_purge_delay(milliseconds: i64) {
    #[expect(
        unsafe_code,
        reason = "an option of the allocator that its crate has no safe call for: one aligned word, of which other threads \
                  read the old value or the new, and both are right"
    )]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, milliseconds);
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
    fn freed_memory_goes_back_at_once_or_when_the_work_is_done() {
        super::configure();
        let before = resident_pages();
        let (held, left) = take_and_free(before);
        assert!(left * 4 < held, "{left} of {held} pages left");

        let (held, kept) = super::keep_while(|| take_and_free(before));
        assert!(kept * 2 > held, "only {kept} of {held} pages were kept");
        let left = resident_pages().saturating_sub(before);
        assert!(left * 4 < held, "{left} of {held} pages left");
    }
}
