//! The inner loop: every additive metric of one chunk of finite pairs.

use crate::decode::{CHUNK, Chunk, Ulps};
use crate::hist;
use multiversion::multiversion;

/// What the loop is told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Params {
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
    /// Smallest normal values of both sides.
    pub(crate) tiny_e: f64,
    pub(crate) tiny_a: f64,
}

/// Sums over pairs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) abs: f64,
    pub(crate) square: f64,
    pub(crate) e2: f64,
    pub(crate) a2: f64,
    pub(crate) ea: f64,
    pub(crate) rel: f64,
}

/// Result of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partial {
    pub(crate) sums: Sums,
    pub(crate) max_abs: f64,
    pub(crate) max_rel: f64,
    pub(crate) rel_count: u64,
    pub(crate) different: u64,
    pub(crate) sign_flips: u64,
    pub(crate) zero_signs: u64,
    pub(crate) not_allclose: u64,
    pub(crate) not_xla: u64,
    pub(crate) denormal_e: u64,
    pub(crate) denormal_a: u64,
}

const LANES: usize = 8;

/// All pairs must be finite; unused ones zero. Fills [`Chunk::keys`].
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
pub(crate) fn run(c: &mut Chunk, p: Params) -> Partial {
    // One accumulator per lane; lanes are added in order at the end, so the
    // result does not depend on the machine.
    let z = [0.0f64; LANES];
    let (mut abs, mut square, mut e2, mut a2, mut ea, mut rel) = (z, z, z, z, z, z);
    let (mut max_abs, mut max_rel) = (z, z);
    let n = [0u64; LANES];
    let (mut rels, mut diff, mut flips, mut zeros, mut far, mut far_xla) = (n, n, n, n, n, n);
    let (mut den_e, mut den_a) = (n, n);
    for at in (0..CHUNK).step_by(LANES) {
        for l in 0..LANES {
            let i = at + l;
            let (d, e, a) = (c.d[i].abs(), c.e[i], c.a[i]);
            let (me, ma) = (e.abs(), a.abs());
            abs[l] += d;
            square[l] += d * d;
            e2[l] += e * e;
            a2[l] += a * a;
            ea[l] += e * a;
            max_abs[l] = if d > max_abs[l] { d } else { max_abs[l] };
            let q = d / me;
            let r = if me > p.atol { q } else { 0.0 };
            rel[l] += r;
            max_rel[l] = if r > max_rel[l] { r } else { max_rel[l] };
            rels[l] += (me > p.atol) as u64;
            diff[l] += (d != 0.0) as u64;
            let opposite = (e.to_bits() ^ a.to_bits()) >> 63;
            flips[l] += opposite & ((me > 0.0) & (ma > 0.0)) as u64;
            zeros[l] += opposite & ((me == 0.0) & (ma == 0.0)) as u64;
            far[l] += (d > p.atol + p.rtol * me) as u64;
            far_xla[l] += ((d > p.atol) & (q > p.rtol)) as u64;
            den_e[l] += ((me < p.tiny_e) & (me > 0.0)) as u64;
            den_a[l] += ((ma < p.tiny_a) & (ma > 0.0)) as u64;
            c.keys[i] = hist::key(d, me, i);
        }
    }
    let add = |v: [f64; LANES]| v.iter().fold(0.0, |a, b| a + b);
    let max = |v: [f64; LANES]| v.iter().fold(0.0, |a, &b| if b > a { b } else { a });
    let count = |v: [u64; LANES]| v.iter().sum::<u64>();
    Partial {
        sums: Sums {
            abs: add(abs),
            square: add(square),
            e2: add(e2),
            a2: add(a2),
            ea: add(ea),
            rel: add(rel),
        },
        max_abs: max(max_abs),
        max_rel: max(max_rel),
        rel_count: count(rels),
        different: count(diff),
        sign_flips: count(flips),
        zero_signs: count(zeros),
        not_allclose: count(far),
        not_xla: count(far_xla),
        denormal_e: count(den_e),
        denormal_a: count(den_a),
    }
}

/// Are all values of the chunk finite?
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
pub(crate) fn all_finite(c: &Chunk) -> bool {
    let mut bad = [false; LANES];
    for at in (0..CHUNK).step_by(LANES) {
        for l in 0..LANES {
            let i = at + l;
            bad[l] |= !((c.e[i].abs() < f64::INFINITY) & (c.a[i].abs() < f64::INFINITY));
        }
    }
    !bad.contains(&true)
}

/// Adds to `bins[k]` how many distances are at least `2^k`, to `over` how many
/// exceed `limit`; returns the largest.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
pub(crate) fn ulp_bins(
    c: &Chunk,
    which: Ulps,
    limit: u64,
    bins: &mut [u64; 64],
    over: &mut u64,
) -> u64 {
    match which {
        Ulps::None => 0,
        Ulps::Narrow => {
            let max = c.u.iter().fold(0, |m, &x| if x > m { x } else { m });
            for (k, bin) in bins.iter_mut().enumerate().take(32) {
                let t = 1u32 << k;
                if t > max {
                    break;
                }
                *bin += c.u.iter().fold(0u32, |n, &x| n + (x >= t) as u32) as u64;
            }
            if max as u64 > limit {
                let limit = limit as u32;
                *over += c.u.iter().fold(0u32, |n, &x| n + (x > limit) as u32) as u64;
            }
            max as u64
        }
        Ulps::Wide => {
            let max = c.w.iter().fold(0, |m, &x| if x > m { x } else { m });
            for (k, bin) in bins.iter_mut().enumerate() {
                let t = 1u64 << k;
                if t > max {
                    break;
                }
                *bin += c.w.iter().fold(0u64, |n, &x| n + (x >= t) as u64);
            }
            if max > limit {
                *over += c.w.iter().fold(0u64, |n, &x| n + (x > limit) as u64);
            }
            max
        }
    }
}
