//! Work that is spread over the cores for a moment, while whoever asked for it waits. What a start has much of.
//!
//! Promises: results come in the order of the work; a panic goes on in the thread that asked.

use std::panic::resume_unwind;
use std::thread;

/// Does both at the same time.
pub fn both<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join();
        (one, other.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Does the work on equal shares of the items, one for each core, but no share of fewer than `share_min`.
pub fn in_shares<T: Sync, R: Send>(
    items: &[T],
    share_min: usize,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(cores).max(share_min).max(1);
    let work = &work;
    thread::scope(|scope| {
        let shares = items.chunks(share);
        let threads: Vec<_> = shares
            .map(|share| scope.spawn(move || work(share)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{both, in_shares};

    #[test]
    fn shares_come_back_in_order_and_whole() {
        let items: Vec<u32> = (0..1000).collect();
        for share_min in [0, 1, 7, 999, 1000, 5000] {
            let shares = in_shares(&items, share_min, <[u32]>::to_vec);
            assert_eq!(shares.concat(), items);
        }
        assert!(in_shares(&[0u8; 0], 4, <[u8]>::len).is_empty());
        assert_eq!(both(|| 1, || "two"), (1, "two"));
    }

    #[test]
    #[should_panic(expected = "told")]
    fn a_panic_goes_on_in_who_asked() {
        in_shares(&[1, 2], 1, |share| assert_eq!(share, [1], "told"));
    }
}
