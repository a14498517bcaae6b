//! Work that is done on two threads at a time, while whoever asked for it waits. What a start has much of.
//!
//! Promises: what is made on one thread is taken on the other in the same order; a panic goes on in the thread that asked.

use crossbeam_channel::{Sender, bounded};
use std::mem;
use std::panic::resume_unwind;
use std::thread;

/// Things that are handed over at a time: enough that handing over costs nothing beside them.
const BATCH: usize = 128;
/// Batches that may wait to be taken.
const BATCHES_MAX: usize = 8;

/// Does both at the same time.
pub fn both<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join();
        (one, other.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// What is taken, as it comes.
pub type Coming<'a, T> = &'a mut (dyn Iterator<Item = T> + Send);

/// Lets another thread make things while this one takes what was made before. What making them came to counts only as
/// far as they were taken.
pub fn ahead<T: Send, M: Send, R>(
    make: impl FnOnce(&mut Made<T>) -> M + Send,
    take: impl FnOnce(Coming<'_, T>) -> R,
) -> (M, R) {
    thread::scope(|scope| {
        let (sender, batches) = bounded(BATCHES_MAX);
        let making = scope.spawn(move || {
            let batch = Vec::with_capacity(BATCH);
            let mut made = Made { batch, sender };
            let result = make(&mut made);
            made.hand_over();
            result
        });
        let taken = take(&mut batches.into_iter().flatten());
        let made = making.join();
        (made.unwrap_or_else(|panic| resume_unwind(panic)), taken)
    })
}

/// Where what was made goes.
pub struct Made<T> {
    batch: Vec<T>,
    sender: Sender<Vec<T>>,
}

impl<T> Made<T> {
    /// Hands a thing over. False if nobody takes any more, for a reason of their own.
    pub fn push(&mut self, thing: T) -> bool {
        self.batch.push(thing);
        self.batch.len() < BATCH || self.hand_over()
    }

    fn hand_over(&mut self) -> bool {
        let full = mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.sender.send(full).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, BATCHES_MAX, ahead, both};

    #[test]
    fn both_are_done() {
        assert_eq!(both(|| 1, || "two"), (1, "two"));
    }

    #[test]
    #[should_panic(expected = "told")]
    fn a_panic_goes_on_in_who_asked() {
        both(|| (), || panic!("told"));
    }

    #[test]
    fn what_is_made_is_taken_in_order_and_whole() {
        for things in [0, 1, BATCH - 1, BATCH, 3 * BATCHES_MAX * BATCH + 1] {
            let make = |made: &mut super::Made<usize>| (0..things).all(|thing| made.push(thing));
            let (all, taken) = ahead(make, |things| things.collect::<Vec<_>>());
            assert!(all);
            assert_eq!(taken, (0..things).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_is_made_for_nobody() {
        let make = |made: &mut super::Made<usize>| {
            (0..100_000).take_while(|thing| made.push(*thing)).count()
        };
        let (made, taken) = ahead(make, |things| things.take(3).collect::<Vec<_>>());
        assert_eq!(taken, [0, 1, 2]);
        assert!(made <= (BATCHES_MAX + 2) * BATCH, "{made}");
    }

    #[test]
    #[should_panic(expected = "told")]
    fn a_panic_of_who_makes_goes_on_in_who_asked() {
        ahead(
            |_: &mut super::Made<u8>| panic!("told"),
            |things| things.count(),
        );
    }
}
