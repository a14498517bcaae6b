//! Reproducible random numbers: the same seed gives the same numbers, so a failing run is identified by its seed.

/// A stream of choices, after the `SplitMix64` generator.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Creates the stream of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x005e_c570_a5ee_d5ed)
    }

    /// Returns a number of 64 bits.
    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }
}
