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

impl Sums {
    pub(crate) fn add(&mut self, o: &Sums) {
        self.abs += o.abs;
        self.square += o.square;
        self.e2 += o.e2;
        self.a2 += o.a2;
        self.ea += o.ea;
        self.rel += o.rel;
    }
}

/// Result of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partial {
    pub(crate) sums: Sums,
    pub(crate) max_abs: f64,
    pub(crate) max_rel: f64,
    pub(crate) rel_count: u64,
    pub(crate) sign_flips: u64,
    pub(crate) zero_signs: u64,
    pub(crate) not_allclose: u64,
    pub(crate) not_xla: u64,
    pub(crate) denormal_e: u64,
    pub(crate) denormal_a: u64,
}

/// Independent accumulators of a sum. They are added in order at the end, so a
/// sum does not depend on the machine.
const LANES: usize = 32;

/// A sum that vectorises.
#[inline(always)]
fn sum(x: &[f64; CHUNK], y: &[f64; CHUNK], f: impl Fn(f64, f64) -> f64) -> f64 {
    let mut acc = [0.0f64; LANES];
    for (x, y) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0) {
        for l in 0..LANES {
            acc[l] += f(x[l], y[l]);
        }
    }
    acc.iter().fold(0.0, |a, b| a + b)
}

/// All pairs must be finite; unused ones zero. Fills [`Chunk::keys`] and makes
/// differences absolute.
///
/// Loops are separate and simple so that each becomes vector instructions.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
pub(crate) fn run(c: &mut Chunk, p: Params) -> Partial {
    let mut rel = [0.0f64; CHUNK];
    // Sizes of floats that are not negative are ordered like their bits.
    let (mut max_abs, mut max_rel) = (0i64, 0i64);
    let (mut rels, mut far, mut far_xla) = (0u64, 0u64, 0u64);
    for i in 0..CHUNK {
        let d = c.d[i].abs();
        let me = c.e[i].abs();
        c.d[i] = d;
        let q = d / me;
        let over = me > p.atol;
        let r = if over { q } else { 0.0 };
        rel[i] = r;
        let (bd, br) = (d.to_bits() as i64, r.to_bits() as i64);
        max_abs = if bd > max_abs { bd } else { max_abs };
        max_rel = if br > max_rel { br } else { max_rel };
        rels = rels.wrapping_add(over as u64);
        far = far.wrapping_add((d > p.atol + p.rtol * me) as u64);
        far_xla = far_xla.wrapping_add(((d > p.atol) & (q > p.rtol)) as u64);
    }
    let (mut flips, mut zeros, mut den_e, mut den_a) = (0u64, 0u64, 0u64, 0u64);
    for i in 0..CHUNK {
        let (e, a) = (c.e[i], c.a[i]);
        let (me, ma) = (e.abs(), a.abs());
        let opposite = (e.to_bits() ^ a.to_bits()) >> 63;
        flips = flips.wrapping_add(opposite & ((me > 0.0) & (ma > 0.0)) as u64);
        zeros = zeros.wrapping_add(opposite & ((me == 0.0) & (ma == 0.0)) as u64);
        den_e = den_e.wrapping_add(((me < p.tiny_e) & (me > 0.0)) as u64);
        den_a = den_a.wrapping_add(((ma < p.tiny_a) & (ma > 0.0)) as u64);
    }
    for i in 0..CHUNK {
        c.keys[i] = hist::key(c.d[i], c.e[i].abs(), i);
    }
    let (d, e, a) = (&c.d, &c.e, &c.a);
    Partial {
        sums: Sums {
            abs: sum(d, d, |d, _| d),
            square: sum(d, d, |d, _| d * d),
            e2: sum(e, e, |e, _| e * e),
            a2: sum(a, a, |a, _| a * a),
            ea: sum(e, a, |e, a| e * a),
            rel: sum(&rel, &rel, |r, _| r),
        },
        max_abs: f64::from_bits(max_abs as u64),
        max_rel: f64::from_bits(max_rel as u64),
        rel_count: rels,
        sign_flips: flips,
        zero_signs: zeros,
        not_allclose: far,
        not_xla: far_xla,
        denormal_e: den_e,
        denormal_a: den_a,
    }
}

/// [`run`] for pairs that are all equal, of which only the expected values are
/// filled in; `None` if some are not finite.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
pub(crate) fn run_equal(c: &Chunk, p: Params) -> Option<Partial> {
    let (mut bad, mut rels, mut den) = (0u64, 0u64, 0u64);
    for i in 0..CHUNK {
        let me = c.e[i].abs();
        bad |= !me.is_finite() as u64;
        rels = rels.wrapping_add((me > p.atol) as u64);
        den = den.wrapping_add(((me < p.tiny_e) & (me > 0.0)) as u64);
    }
    let e2 = sum(&c.e, &c.e, |e, _| e * e);
    (bad == 0).then(|| Partial {
        sums: Sums { e2, a2: e2, ea: e2, ..Sums::default() },
        rel_count: rels,
        denormal_e: den,
        denormal_a: den,
        ..Partial::default()
    })
}

/// Are all values of the chunk finite?
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
pub(crate) fn all_finite(c: &Chunk) -> bool {
    let mut bad = 0u64;
    for i in 0..CHUNK {
        bad |= !((c.e[i].abs() < f64::INFINITY) & (c.a[i].abs() < f64::INFINITY)) as u64;
    }
    bad == 0
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
                *bin += c.u.iter().fold(0u32, |n, &x| n.wrapping_add((x >= t) as u32)) as u64;
            }
            if max as u64 > limit {
                let limit = limit as u32;
                *over += c.u.iter().fold(0u32, |n, &x| n.wrapping_add((x > limit) as u32)) as u64;
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
                *bin += c.w.iter().fold(0u64, |n, &x| n.wrapping_add((x >= t) as u64));
            }
            if max > limit {
                *over += c.w.iter().fold(0u64, |n, &x| n.wrapping_add((x > limit) as u64));
            }
            max
        }
    }
}
