//! Runs two functions at the same time, one on the calling thread and one on another. Recovery does this in many places.
//!
//! Guarantees: one thread takes items in the order in which the other makes them; a panic is passed on to the calling thread.

use crossbeam_channel::{Sender, bounded};
use std::mem;
use std::panic::resume_unwind;
use std::thread;

/// The number of items handed over at a time: enough to make the cost of handing over negligible.
const BATCH: usize = 128;
/// The maximum number of batches that may wait to be taken.
const BATCHES_MAX: usize = 8;

/// Runs both functions at the same time, and returns both results.
pub fn both<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join();
        (one, other.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// The items made by the other thread, as they arrive.
pub type Coming<'a, T> = &'a mut (dyn Iterator<Item = T> + Send);

/// Runs `make` on another thread, while `take` consumes its items on this one. Returns the results of both. If `take` stops early,
/// [`BatchSender::push`] returns false, and `make` may have made more items than were taken.
pub fn ahead<T: Send, M: Send, R>(
    make: impl FnOnce(&mut BatchSender<T>) -> M + Send,
    take: impl FnOnce(Coming<'_, T>) -> R,
) -> (M, R) {
    thread::scope(|scope| {
        let (sender, batches) = bounded(BATCHES_MAX);
        let making = scope.spawn(move || {
            let batch = Vec::with_capacity(BATCH);
            let mut made = BatchSender { batch, sender };
            let result = make(&mut made);
            made.hand_over();
            result
        });
        let taken = take(&mut batches.into_iter().flatten());
        let made = making.join();
        (made.unwrap_or_else(|panic| resume_unwind(panic)), taken)
    })
}

/// The sending end for the items that one thread makes and the other takes.
pub struct BatchSender<T> {
    batch: Vec<T>,
    sender: Sender<Vec<T>>,
}

impl<T> BatchSender<T> {
    /// Adds an item to the batch, and hands the batch over when it is full. Returns false if that fails, because the consumer has stopped
    /// taking items.
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
            let make =
                |made: &mut super::BatchSender<usize>| (0..things).all(|thing| made.push(thing));
            let (all, taken) = ahead(make, |things| things.collect::<Vec<_>>());
            assert!(all);
            assert_eq!(taken, (0..things).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_is_made_for_nobody() {
        let make = |made: &mut super::BatchSender<usize>| {
            (0..100_000).take_while(|thing| made.push(*thing)).count()
        };
        let (made, taken) = ahead(make, |things| things.take(3).collect::<Vec<_>>());
        assert_eq!(taken, [0, 1, 2]);
        assert!(made <= (BATCHES_MAX + 2) * BATCH, "{made}");
    }

    #[test]
    #[should_panic(expected = "told")]
    fn a_panic_of_who_makes_goes_on_in_who_asked() {
        ahead(|_: &mut super::BatchSender<u8>| panic!("told"), |things| things.count());
    }
}
