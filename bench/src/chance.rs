//! Pseudorandom numbers, the same in every run: Marsaglia's xorshift with the triple 13, 7, 17.

/// A pseudorandom number generator.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u32) -> Self {
        // Seeds that differ in few bits would give similar first numbers, so the bits are spread by a multiplication.
        Self((u64::from(seed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns a pseudorandom number less than `end`. All such numbers are equally likely, up to rounding.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let scaled = (self.0 >> 32) * u64::from(end);
        u32::try_from(scaled >> 32).expect("the number is less than `end`")
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    #[test]
    fn every_number_comes_at_times() {
        let mut chance = Chance::new(7);
        let mut seen = [0; 10];
        for _ in 0..1000 {
            seen[chance.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
