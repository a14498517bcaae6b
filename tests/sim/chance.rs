//! Random numbers from a seed: the same numbers in the same order on every machine (splitmix64, Steele and others 2014).

/// A source of pseudorandom numbers.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Returns the source that belongs to a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// Returns an independent source, seeded with the next number of this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number from `low` to `high`, ends included.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true with a probability of `times` in a thousand.
    pub(crate) fn per_mille(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// Returns an index of a list of this length, which is not zero.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// Returns one of these items.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.index(from.len());
        from.get(index).expect("the index is below the length")
    }

    /// Returns an item. The probability of each is proportional to its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, table: &[(u64, T)]) -> T {
        let total = table.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, what) in table {
            if at < *weight {
                return *what;
            }
            at -= weight;
        }
        unreachable!("the weights sum up to the total")
    }
}
