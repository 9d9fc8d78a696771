//! Counts of distances in units in the last place.

use crate::decode::{CHUNK, Chunk, Ulps};
use multiversion::multiversion;

/// Adds to `bins[k]` how many distances are at least `2^k`, to `over` how many
/// exceed `limit`; returns the largest.
pub(crate) fn ulp_bins(
    c: &Chunk,
    which: Ulps,
    limit: u64,
    bins: &mut [u64; 64],
    over: &mut u64,
) -> u64 {
    let mut level = [0u8; CHUNK];
    let max = match which {
        Ulps::None => return 0,
        Ulps::Narrow => levels32(&c.u, &mut level) as u64,
        Ulps::Wide => levels64(&c.w, &mut level),
    };
    if max == 0 {
        return 0;
    }
    let (least, nonzero) = lowest(&level);
    let most = 64 - max.leading_zeros() as u8;
    for k in 1..=most {
        // All that are not zero are as far as the least of them.
        let n = if k <= least { nonzero } else { reach(&level, k) };
        bins[k as usize - 1] += n;
        if limit == (1 << (k - 1)) - 1 {
            *over += n;
        }
    }
    if max > limit && !limit.wrapping_add(1).is_power_of_two() {
        *over += match which {
            Ulps::Narrow => beyond32(&c.u, limit as u32),
            _ => beyond64(&c.w, limit),
        };
    }
    max
}

macro_rules! levels {
    ($name:ident, $beyond:ident, $t:ty) => {
        /// Bits of each distance; returns the largest distance.
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd",
            "x86_64+avx2+fma"
        ))]
        fn $name(x: &[$t; CHUNK], level: &mut [u8; CHUNK]) -> $t {
            let mut max = 0;
            for (&x, l) in x.iter().zip(level) {
                *l = (<$t>::BITS - x.leading_zeros()) as u8;
                max = if x > max { x } else { max };
            }
            max
        }

        /// How many distances exceed a limit.
        #[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
        fn $beyond(x: &[$t; CHUNK], limit: $t) -> u64 {
            x.iter().fold(0 as $t, |n, &x| n + (x > limit) as $t) as u64
        }
    };
}

levels!(levels32, beyond32, u32);
levels!(levels64, beyond64, u64);

/// The least level that is not zero (255 without one), and how many are not.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
fn lowest(level: &[u8; CHUNK]) -> (u8, u64) {
    let least = level.iter().fold(u8::MAX, |m, &l| m.min(l.wrapping_sub(1)));
    let mut n = [0u8; 64];
    for level in level.as_chunks::<64>().0 {
        for l in 0..64 {
            n[l] += (level[l] > 0) as u8;
        }
    }
    (least.saturating_add(1), n.iter().map(|&n| n as u64).sum())
}

/// How many levels are at least `k`.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
fn reach(level: &[u8; CHUNK], k: u8) -> u64 {
    let mut n = [0u8; 64];
    for level in level.as_chunks::<64>().0 {
        for l in 0..64 {
            n[l] += (level[l] >= k) as u8;
        }
    }
    n.iter().map(|&n| n as u64).sum()
}
