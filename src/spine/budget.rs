//! A byte budget shared by several holders. A request that would exceed the budget fails immediately instead of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit on the number of bytes held at the same time. A budget may be part of a larger one.
#[derive(Debug)]
pub struct Budget {
    held: AtomicU64,
    max: u64,
    whole: Option<Arc<Budget>>,
}

impl Budget {
    /// Creates a budget of `max` bytes.
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { held: AtomicU64::new(0), max, whole: None })
    }

    /// Creates a budget of half of `whole`; bytes held in it also count towards `whole`.
    pub fn half_of(whole: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicU64::new(0),
            max: whole.max / 2,
            whole: Some(Arc::clone(whole)),
        })
    }

    /// Creates a budget as large as half of `whole`, which is no part of it.
    pub fn beside(whole: &Self) -> Arc<Self> {
        Self::new(whole.max / 2)
    }

    /// Returns the number of bytes held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.max);
        let order = Ordering::Relaxed;
        if self.held.fetch_update(order, order, more).is_err() {
            return false;
        }
        let is_taken = self.whole.as_ref().is_none_or(|whole| whole.take(bytes));
        if !is_taken {
            self.held.fetch_sub(bytes, order);
        }
        is_taken
    }

    fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

/// Bytes held in a budget, which are freed on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Reservation {
    /// Creates an empty reservation in `budget`.
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Changes the number of bytes held to `bytes`. Returns false, and changes nothing, if the budget does not allow that.
    #[must_use]
    pub fn set(&mut self, bytes: usize) -> bool {
        let held = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        self.shrink(held.saturating_sub(bytes));
        self.grow(bytes.saturating_sub(held))
    }

    /// Takes `bytes` more bytes from the budget. Returns false, and changes nothing, if the budget does not allow that.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let is_taken = self.budget.take(bytes as u64);
        self.bytes += if is_taken { bytes as u64 } else { 0 };
        is_taken
    }

    /// Returns whether nothing is held in the budget.
    pub fn is_alone(&self) -> bool {
        self.budget.held() == 0
    }

    /// Returns `bytes` bytes to the budget, or all bytes held if those are fewer.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = self.bytes.min(bytes as u64);
        self.bytes -= bytes;
        self.budget.give_back(bytes);
    }

    /// Frees everything held.
    pub fn release(&mut self) {
        self.budget.give_back(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Reservation};

    #[test]
    fn halves_have_no_more_than_the_whole() {
        let whole = Budget::new(100);
        let halves = [(); 3].map(|()| Budget::half_of(&whole));
        let mut held = halves.each_ref().map(Reservation::new);
        assert!(!held[0].set(51), "more than half");
        assert!(held[0].set(50) && held[1].set(40));
        assert!(!held[2].set(20) && held[2].set(10));
        assert_eq!((whole.held(), halves[2].held()), (100, 10));
        assert!(!held[1].set(41) && held[1].set(30) && held[2].set(20));
        assert_eq!(halves.each_ref().map(|half| half.held()), [50, 30, 20]);
        drop(held);
        assert_eq!((whole.held(), halves[0].held()), (0, 0));
    }

    #[test]
    fn what_is_beside_the_whole_is_there_when_the_whole_is_taken() {
        let whole = Budget::new(100);
        let mut held = Reservation::new(&whole);
        assert!(held.set(100));
        let mut beside = Reservation::new(&Budget::beside(&whole));
        assert!(!beside.set(51) && beside.set(50));
        assert_eq!(whole.held(), 100);
    }
}
