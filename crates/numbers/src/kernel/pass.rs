//! The pass over every chunk: sums, cells, and what else must be counted.

use super::{Params, Sums};
use crate::decode::{CHUNK, Chunk};
use crate::hist;
use multiversion::multiversion;

/// Independent accumulators of a sum. They are added in order at the end, so a
/// sum does not depend on the machine.
const LANES: usize = 16;

/// Lanes of the sum of relative errors, of which four are added at a time.
const FEW: usize = 8;

/// What a pass over a chunk finds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Seen {
    /// Relative errors only unless values are very small or large.
    pub(super) sums: Sums,
    pub(super) max_abs: f64,
    /// Largest and smallest magnitude of expected values.
    pub(super) max_e: f64,
    pub(super) min_e: f64,
    /// The smallest that are not zero; NaN if all are.
    pub(super) least_e: f64,
    pub(super) least_a: f64,
    /// Are there opposite signs?
    pub(super) opposite: bool,
    /// May errors exceed a tolerance?
    pub(super) far: bool,
    /// Does a relative error exceed the one known?
    pub(super) rel: bool,
}

/// A sum that vectorises.
#[inline(always)]
pub(super) fn sum(x: &[f64; CHUNK], y: &[f64; CHUNK], f: impl Fn(f64, f64) -> f64) -> f64 {
    let mut acc = [0.0f64; LANES];
    for (x, y) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0) {
        for l in 0..LANES {
            acc[l] += f(x[l], y[l]);
        }
    }
    total(acc)
}

pub(super) fn total<const N: usize>(v: [f64; N]) -> f64 {
    v.iter().fold(0.0, |a, b| a + b)
}

/// Looks at a chunk and fills its cells. `known` is a relative error.
pub(super) fn look(c: &mut Chunk, p: Params, known: f64) -> Seen {
    #[cfg(target_arch = "x86_64")]
    if let Some(v4) = crate::simd::v4() {
        return v4.vectorize(Look512 { v4, c, p, known });
    }
    look_any(c, p, known)
}

/// For any machine. Loops are separate and simple so that each becomes vector
/// instructions.
#[multiversion(targets("x86_64+avx2+fma"))]
fn look_any(c: &mut Chunk, p: Params, known: f64) -> Seen {
    // Sizes of floats that are not negative are ordered like their bits.
    let (mut max_abs, mut max_e, mut min_e) = (0u64, 0u64, u64::MAX);
    let (mut least_e, mut least_a) = (u64::MAX, u64::MAX);
    let (mut opposite, mut far, mut rel) = (0u64, 0u64, 0u64);
    for i in 0..CHUNK {
        let (d, e, a) = (c.d[i].abs(), c.e[i].abs(), c.a[i].abs());
        let t = p.rtol * e;
        far |= ((d > p.atol + t) | (d > p.atol) & (d > t * LOW)) as u64;
        rel |= ((e > p.atol) & (d >= known * e)) as u64;
        let (d, e, a) = (d.to_bits(), e.to_bits(), a.to_bits());
        max_abs = max_abs.max(d);
        max_e = max_e.max(e);
        min_e = min_e.min(e);
        least_e = least_e.min(e.wrapping_sub(1));
        least_a = least_a.min(a.wrapping_sub(1));
        opposite |= c.e[i].to_bits() ^ c.a[i].to_bits();
    }
    for i in 0..CHUNK {
        c.keys[i] = hist::key(c.d[i].abs(), c.e[i].abs(), i);
    }
    let mut parts = [0.0; FEW];
    for (d, e) in c.d.as_chunks::<{ 4 * FEW }>().0.iter().zip(c.e.as_chunks::<{ 4 * FEW }>().0) {
        for l in 0..FEW {
            let at = |k: usize| {
                let (d, e) = (d[l + k * FEW].abs(), e[l + k * FEW].abs());
                if e > p.atol { (d, e) } else { (0.0, 1.0) }
            };
            let ((d0, e0), (d1, e1), (d2, e2), (d3, e3)) = (at(0), at(1), at(2), at(3));
            let (x, y) = (e0 * e1, e2 * e3);
            let (m, n) = (d0 * e1 + d1 * e0, d2 * e3 + d3 * e2);
            parts[l] += (m * y + n * x) / (x * y);
        }
    }
    let (d, e, a) = (&c.d, &c.e, &c.a);
    Seen {
        sums: Sums {
            abs: sum(d, d, |d, _| d.abs()),
            square: sum(d, d, |d, _| d * d),
            e2: sum(e, e, |e, _| e * e),
            a2: sum(a, a, |a, _| a * a),
            ea: sum(e, a, |e, a| e * a),
            rel: total(parts),
        },
        max_abs: f64::from_bits(max_abs),
        max_e: f64::from_bits(max_e),
        min_e: f64::from_bits(min_e),
        least_e: least(least_e),
        least_a: least(least_a),
        opposite: opposite >> 63 != 0,
        far: far != 0,
        rel: rel != 0,
    }
}

/// Share by which a threshold is lowered: covers roundings.
const LOW: f64 = 1.0 - f64::EPSILON * 4.0;

/// From the smallest bits less one, where zeros wrap around.
fn least(bits: u64) -> f64 {
    if bits == u64::MAX { f64::NAN } else { f64::from_bits(bits + 1) }
}

/// The same with the instructions chosen by hand. Multiplications and additions
/// are not fused: other machines have the same sums.
#[cfg(target_arch = "x86_64")]
struct Look512<'a> {
    v4: pulp::x86::V4,
    c: &'a mut Chunk,
    p: Params,
    known: f64,
}

#[cfg(target_arch = "x86_64")]
impl pulp::NullaryFnOnce for Look512<'_> {
    type Output = Seen;

    #[inline(always)]
    fn call(self) -> Seen {
        use pulp::cast;
        use std::arch::x86_64::{__m512d, __m512i, _CMP_GE_OQ, _CMP_GT_OQ};
        let Look512 { v4, c, p, known } = self;
        let (f, w) = (v4.avx512f, v4.avx512bw);
        let all = |x: f64| f._mm512_set1_pd(x);
        let all32 = |x: i32| f._mm512_set1_epi32(x);
        let (atol, rtol, low, known) = (all(p.atol), all(p.rtol), all(LOW), all(known));
        let (one, zero) = (all(1.0), f._mm512_setzero_pd());
        let ones = f._mm512_set1_epi64(-1);
        // The upper halves of two times eight elements.
        let upper: __m512i = cast(std::array::from_fn::<u32, 16, _>(|i| 2 * i as u32 + 1));
        let lanes: __m512i = cast(std::array::from_fn::<u32, 16, _>(hist::zero_key));
        let [error, magnitude] = hist::FIRST.map(all32);
        let [errors, magnitudes] = hist::LAST.map(all32);
        let row = all32(hist::ROW);
        let mut acc = [[zero; LANES / 8]; 5];
        let mut parts = zero;
        let (mut max_abs, mut max_e, mut min_e) = (zero, zero, all(f64::INFINITY));
        let (mut least_e, mut least_a, mut signs) = (ones, ones, f._mm512_setzero_si512());
        let (mut far, mut rel) = (0u8, 0u8);
        let (d, e) = (c.d.as_chunks::<32>().0, c.e.as_chunks::<32>().0);
        let a = c.a.as_chunks::<32>().0;
        let keys = c.keys.as_chunks_mut::<32>().0;
        for (((d, e), a), keys) in d.iter().zip(e).zip(a).zip(keys) {
            let (d, a): ([__m512d; 4], [__m512d; 4]) = (cast(*d), cast(*a));
            let e: [__m512d; 4] = cast::<[f64; 32], _>(*e);
            let (mut num, mut den) = ([zero; 4], [zero; 4]);
            let (mut sizes, mut values) = ([zero; 4], [zero; 4]);
            let mut none = [0u8; 4];
            for k in 0..4 {
                let (size, m) = (f._mm512_abs_pd(d[k]), f._mm512_abs_pd(e[k]));
                let add = |s: &mut __m512d, x| *s = f._mm512_add_pd(*s, x);
                let [abs, square, e2, a2, ea] = &mut acc;
                add(&mut abs[k % 2], size);
                add(&mut square[k % 2], f._mm512_mul_pd(size, size));
                add(&mut e2[k % 2], f._mm512_mul_pd(m, m));
                add(&mut a2[k % 2], f._mm512_mul_pd(a[k], a[k]));
                add(&mut ea[k % 2], f._mm512_mul_pd(e[k], a[k]));
                max_abs = f._mm512_max_pd(max_abs, size);
                max_e = f._mm512_max_pd(max_e, m);
                min_e = f._mm512_min_pd(min_e, m);
                let less = |x| f._mm512_add_epi64(x, ones);
                least_e = f._mm512_min_epu64(least_e, less(cast(m)));
                least_a = f._mm512_min_epu64(least_a, less(cast(f._mm512_abs_pd(a[k]))));
                let both = f._mm512_xor_si512(cast(e[k]), cast(a[k]));
                signs = f._mm512_or_si512(signs, both);
                let over = f._mm512_cmp_pd_mask::<_CMP_GT_OQ>(m, atol);
                rel |=
                    f._mm512_mask_cmp_pd_mask::<_CMP_GE_OQ>(over, size, f._mm512_mul_pd(known, m));
                let t = f._mm512_mul_pd(rtol, m);
                far |= f._mm512_cmp_pd_mask::<_CMP_GT_OQ>(size, f._mm512_add_pd(atol, t));
                let beyond = f._mm512_cmp_pd_mask::<_CMP_GT_OQ>(size, atol);
                far |=
                    f._mm512_mask_cmp_pd_mask::<_CMP_GT_OQ>(beyond, size, f._mm512_mul_pd(t, low));
                num[k] = f._mm512_maskz_mov_pd(over, size);
                den[k] = f._mm512_mask_mov_pd(one, over, m);
                none[k] = f._mm512_cmpeq_epi64_mask(cast(size), cast(zero));
                (sizes[k], values[k]) = (size, m);
            }
            let (x, y) = (f._mm512_mul_pd(den[0], den[1]), f._mm512_mul_pd(den[2], den[3]));
            let cross = |a, b, c, d| f._mm512_add_pd(f._mm512_mul_pd(a, b), f._mm512_mul_pd(c, d));
            let m = cross(num[0], den[1], num[1], den[0]);
            let n = cross(num[2], den[3], num[3], den[2]);
            let ratio = f._mm512_div_pd(cross(m, y, n, x), f._mm512_mul_pd(x, y));
            parts = f._mm512_add_pd(parts, ratio);
            for (k, keys) in keys.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let halves = |v: &[__m512d; 4]| {
                    f._mm512_permutex2var_epi32(cast(v[2 * k]), upper, cast(v[2 * k + 1]))
                };
                let within = |x, first, last| {
                    let x = f._mm512_sub_epi32(x, first);
                    f._mm512_min_epi32(f._mm512_max_epi32(x, cast(zero)), last)
                };
                let x = within(
                    f._mm512_srli_epi32::<{ hist::SHIFT[0] }>(halves(&sizes)),
                    error,
                    errors,
                );
                let y = within(
                    f._mm512_srli_epi32::<{ hist::SHIFT[1] }>(halves(&values)),
                    magnitude,
                    magnitudes,
                );
                let key = f._mm512_add_epi32(w._mm512_madd_epi16(x, row), y);
                let none = none[2 * k] as u16 | (none[2 * k + 1] as u16) << 8;
                *keys = cast(f._mm512_mask_mov_epi32(key, none, lanes));
            }
        }
        let [abs, square, e2, a2, ea] = acc.map(|v| total(cast::<_, [f64; LANES]>(v)));
        let each = |v: __m512d| cast::<_, [f64; 8]>(v).into_iter();
        let bits = |v: __m512i| cast::<_, [u64; 8]>(v).into_iter();
        Seen {
            sums: Sums { abs, square, e2, a2, ea, rel: total(cast::<_, [f64; 8]>(parts)) },
            max_abs: each(max_abs).fold(0.0, f64::max),
            max_e: each(max_e).fold(0.0, f64::max),
            min_e: each(min_e).fold(f64::INFINITY, f64::min),
            least_e: least(bits(least_e).fold(u64::MAX, u64::min)),
            least_a: least(bits(least_a).fold(u64::MAX, u64::min)),
            opposite: bits(signs).fold(0, |a, b| a | b) >> 63 != 0,
            far: far != 0,
            rel: rel != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways see the same, to the last bit, of values of all sizes.
    #[test]
    fn both_ways_see_the_same() {
        let mut s = 1u64;
        let mut next = move || {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (s >> 33) as f64 / (1u64 << 31) as f64
        };
        for kind in 0..12 {
            let mut c = Chunk::new();
            for i in 0..CHUNK {
                let x = (next() - 0.5)
                    * 2f64.powi(((next() - 0.5) * [2.0, 60.0, 2000.0][kind % 3]) as i32);
                let y = match kind / 3 {
                    0 => x * (1.0 + next() * 1e-6),
                    1 => (next() - 0.5) * 2f64.powi((next() * 100.0) as i32),
                    2 => [x, -x, 0.0, -0.0][i % 4],
                    _ => f64::MIN_POSITIVE * next(),
                };
                (c.e[i], c.a[i], c.d[i]) = (x, y, y - x);
            }
            let p = Params { atol: 1e-3, rtol: 1e-7, tiny_e: 0.0, tiny_a: 0.0 };
            for known in [0.0, 1e-7, 1e3] {
                let x = look(&mut c, p, known);
                let keys = c.keys;
                let y = look_any(&mut c, p, known);
                assert_eq!(keys, c.keys, "{kind}");
                // NaN and infinity where relative errors are out of range.
                assert_eq!(format!("{x:?}"), format!("{y:?}"), "{kind}");
            }
        }
    }
}
