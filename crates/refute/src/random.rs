//! Reproducible random numbers (splitmix64; Steele, Lea, Flood 2014).

/// A generator; equal seeds give equal sequences on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box, Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let r = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        r * (2.0 * std::f64::consts::PI * self.unit()).cos()
    }

    /// Uniform in `lo..=hi`; `lo` if the range is empty.
    pub fn int(&mut self, lo: i64, hi: i64) -> i64 {
        let n = (i128::from(hi) - i128::from(lo) + 1).max(1);
        if n > i128::from(u64::MAX) {
            return self.bits() as i64;
        }
        // It fits in 64 bits, whose division is much faster.
        lo.wrapping_add((self.bits() % n as u64) as i64)
    }
}
