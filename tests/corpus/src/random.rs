//! A seeded pseudo-random number generator for mutations of fuzz inputs.

/// SplitMix64 random number generator (Steele, Lea and Flood, 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    /// Returns a pseudo-random number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns a pseudo-random position in `0..=len`. Half of the positions are among the first 16 bytes, where formats
    /// keep the fields that steer decoding.
    pub(crate) fn position(&mut self, len: usize) -> usize {
        let reach = if self.below(2) == 0 { len.min(16) } else { len };
        self.below(reach + 1)
    }
}
