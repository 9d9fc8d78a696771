//! Counts by distance in units in the last place.

use super::Near;
use crate::decode::CHUNK;
use multiversion::multiversion;

/// Counts of pairs by distance in units in the last place.
pub(crate) struct Levels {
    /// Of distances of `2^k` and more, in lanes of bytes.
    lanes: [[u8; 64]; 32],
    /// Chunks in them.
    held: usize,
    /// What the lanes have been added to.
    bins: [u64; 32],
}

impl Levels {
    pub(crate) fn new() -> Levels {
        Levels { lanes: [[0; 64]; 32], held: 0, bins: [0; 32] }
    }

    /// Counts a near chunk with denormals.
    pub(crate) fn add(&mut self, c: &Near, max: u32) {
        if max == 0 {
            return;
        }
        if (self.held + 1) * (CHUNK / 64) > 255 {
            self.flush();
        }
        self.held += 1;
        count(&mut self.lanes, &c.level, max.min(255));
        if let (256.., Some((_, high))) = (max, self.lanes.split_at_mut_checked(8)) {
            count(high, &c.high, max >> 8);
        }
    }

    fn flush(&mut self) {
        for (lanes, bin) in self.lanes.iter_mut().zip(&mut self.bins) {
            *bin += lanes.iter().map(|&n| n as u64).sum::<u64>();
            *lanes = [0; 64];
        }
        self.held = 0;
    }

    /// How many distances are at least `2^k`, for each `k`.
    pub(crate) fn bins(&mut self) -> [u64; 32] {
        self.flush();
        self.bins
    }
}

/// Adds to `lanes[k]` how many distances are `2^k` or more.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
fn count(lanes: &mut [[u8; 64]], x: &[u8; CHUNK], max: u32) {
    for (k, n) in lanes.iter_mut().enumerate().take(32) {
        if 1u32 << k > max {
            break;
        }
        let mut held = *n;
        for x in x.as_chunks::<64>().0 {
            for l in 0..64 {
                held[l] = held[l].wrapping_add((x[l] >= 1u8 << (k & 7)) as u8);
            }
        }
        *n = held;
    }
}
