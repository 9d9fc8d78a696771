//! Sums over the pairs of a chunk.

use super::{Near, PART};
use crate::kernel::Sums;
use multiversion::multiversion;
use multiversion::target::selected_target;

const LANES: usize = 16;

/// Pairs of which relative errors are added at a time, and their lanes.
const GROUP: usize = 32;
const QUARTER: usize = GROUP / 4;

/// Joins lanes, whose number is a power of two, by halves.
#[inline(always)]
pub(super) fn fold<T: Copy, const N: usize>(mut v: [T; N], f: impl Fn(T, T) -> T) -> T {
    let mut n = N / 2;
    while n > 0 {
        for i in 0..n {
            v[i] = f(v[i], v[i + n]);
        }
        n /= 2;
    }
    v[0]
}

/// Adds to lanes what a function makes of both arrays.
#[inline(always)]
fn add<const N: usize, const LANES: usize>(
    acc: &mut [f64; LANES],
    x: &[f64; N],
    y: &[f64; N],
    f: impl Fn(f64, f64, f64) -> f64,
) {
    let mut held = *acc;
    for (x, y) in x.as_chunks::<LANES>().0.iter().zip(y.as_chunks::<LANES>().0) {
        for l in 0..LANES {
            held[l] = f(x[l], y[l], held[l]);
        }
    }
    *acc = held;
}

/// Sums of a chunk in `f64`. Fractions of four pairs are added before they are
/// divided. The loops are separate and simple so that each becomes vector
/// instructions. Of a sparse chunk squares of expected values are left out,
/// and what they add to others.
#[inline(always)]
fn sums<const FMA: bool, const MASKED: bool>(c: &Near, atol: f64, close: bool) -> Sums {
    let madd = |x: f64, y: f64, z: f64| if FMA { x.mul_add(y, z) } else { x * y + z };
    let (mut abs, mut square, mut rel) = ([0.0; LANES], [0.0; LANES], [0.0; QUARTER]);
    let (mut e2, mut a2, mut ed) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
    let (mut x, mut y) = ([0.0f64; PART], [0.0f64; PART]);
    let mut r = [0.0f64; PART / 4];
    let n = c.padded();
    for (e, d) in c.e[..n].as_chunks::<PART>().0.iter().zip(c.d[..n].as_chunks::<PART>().0) {
        for i in 0..PART {
            x[i] = e[i] as f64;
            y[i] = d[i] as f64;
        }
        add(&mut abs, &y, &y, |d, _, s| s + d.abs());
        add(&mut square, &y, &y, |d, _, s| madd(d, d, s));
        add(&mut ed, &x, &y, madd);
        if !c.sparse {
            add(&mut e2, &x, &x, |e, _, s| madd(e, e, s));
        }
        if !close {
            add(&mut a2, &x, &y, |e, d, s| madd(e + d, e + d, s));
        }
        for i in 0..PART / 4 {
            let first = i / QUARTER * GROUP + i % QUARTER;
            let at = |k: usize| {
                let (e, d) = (x[first + k * QUARTER], y[first + k * QUARTER].abs());
                let over = !MASKED || e > atol;
                (if over { e } else { 1.0 }, if over { d } else { 0.0 })
            };
            let ((e0, d0), (e1, d1), (e2, d2), (e3, d3)) = (at(0), at(1), at(2), at(3));
            let (p, q) = (e0 * e1, e2 * e3);
            let (m, n) = (d0 * e1 + d1 * e0, d2 * e3 + d3 * e2);
            r[i] = (m * q + n * p) / (p * q);
        }
        add(&mut rel, &r, &r, |r, _, s| s + r);
    }
    Lanes { abs, square, e2, a2, ed, rel }.sums(close)
}

/// Sums in lanes; `a2` may be left out of chunks without denormals.
pub(super) struct Lanes {
    pub(super) abs: [f64; LANES],
    pub(super) square: [f64; LANES],
    pub(super) e2: [f64; LANES],
    pub(super) a2: [f64; LANES],
    pub(super) ed: [f64; LANES],
    pub(super) rel: [f64; QUARTER],
}

impl Lanes {
    #[inline(always)]
    pub(super) fn sums(self, close: bool) -> Sums {
        let total = |v: [f64; LANES]| fold(v, |a, b| a + b);
        let (square, e2, ed) = (total(self.square), total(self.e2), total(self.ed));
        // Within an octave `a^2 >= e^2 / 4`: little cancels.
        let a2 = if close { e2 + (2.0 * ed + square) } else { total(self.a2) };
        let rel = fold(self.rel, |a, b| a + b);
        Sums { abs: total(self.abs), square, e2, a2, ea: e2 + ed, rel }
    }
}

/// The same as [`sums`] with the instructions chosen by hand: compilers spill
/// too much of a loop with so many sums.
#[cfg(target_arch = "x86_64")]
struct Sums512<'a, const MASKED: bool, const CLOSE: bool> {
    v4: pulp::x86::V4,
    c: &'a Near,
    atol: f64,
}

#[cfg(target_arch = "x86_64")]
impl<const MASKED: bool, const CLOSE: bool> pulp::NullaryFnOnce for Sums512<'_, MASKED, CLOSE> {
    type Output = Sums;

    #[inline(always)]
    fn call(self) -> Sums {
        use pulp::cast;
        let Sums512 { v4, c, atol } = self;
        let f = v4.avx512f;
        let zero = [f._mm512_setzero_pd(); 2];
        let (mut abs, mut square, mut e2, mut a2, mut ed) = (zero, zero, zero, zero, zero);
        let mut rel = f._mm512_setzero_pd();
        let (one, least) = (f._mm512_set1_pd(1.0), f._mm512_set1_pd(atol));
        let n = c.padded();
        for (x, y) in c.e[..n].as_chunks::<GROUP>().0.iter().zip(c.d[..n].as_chunks::<GROUP>().0) {
            let (mut num, mut den) = ([f._mm512_setzero_pd(); 4], [f._mm512_setzero_pd(); 4]);
            for k in 0..4 {
                let (x, y) = (x.as_chunks::<QUARTER>().0[k], y.as_chunks::<QUARTER>().0[k]);
                let e = f._mm512_cvtps_pd(cast(x));
                let d = f._mm512_cvtps_pd(cast(y));
                let m = f._mm512_abs_pd(d);
                abs[k % 2] = f._mm512_add_pd(abs[k % 2], m);
                square[k % 2] = f._mm512_fmadd_pd(d, d, square[k % 2]);
                ed[k % 2] = f._mm512_fmadd_pd(e, d, ed[k % 2]);
                if !c.sparse {
                    e2[k % 2] = f._mm512_fmadd_pd(e, e, e2[k % 2]);
                }
                if !CLOSE {
                    let a = f._mm512_add_pd(e, d);
                    a2[k % 2] = f._mm512_fmadd_pd(a, a, a2[k % 2]);
                }
                (num[k], den[k]) = (m, e);
                if MASKED {
                    let over = f._mm512_cmp_pd_mask::<{ std::arch::x86_64::_CMP_GT_OQ }>(e, least);
                    num[k] = f._mm512_maskz_mov_pd(over, m);
                    den[k] = f._mm512_mask_mov_pd(one, over, e);
                }
            }
            let p = f._mm512_mul_pd(den[0], den[1]);
            let q = f._mm512_mul_pd(den[2], den[3]);
            // Not fused: other machines have the same sums.
            let m =
                f._mm512_add_pd(f._mm512_mul_pd(num[0], den[1]), f._mm512_mul_pd(num[1], den[0]));
            let n =
                f._mm512_add_pd(f._mm512_mul_pd(num[2], den[3]), f._mm512_mul_pd(num[3], den[2]));
            let all = f._mm512_add_pd(f._mm512_mul_pd(m, q), f._mm512_mul_pd(n, p));
            rel = f._mm512_add_pd(rel, f._mm512_div_pd(all, f._mm512_mul_pd(p, q)));
        }
        Lanes {
            abs: cast(abs),
            square: cast(square),
            e2: cast(e2),
            a2: cast(a2),
            ed: cast(ed),
            rel: cast(rel),
        }
        .sums(CLOSE)
    }
}

/// [`sums`] for any machine but those with AVX-512.
#[multiversion(targets("x86_64+avx2+fma"))]
fn sums_any(c: &Near, atol: f64, masked: bool, close: bool) -> Sums {
    const FMA: bool = selected_target!().supports_feature_str("fma");
    if masked { sums::<FMA, true>(c, atol, close) } else { sums::<FMA, false>(c, atol, close) }
}

pub(super) fn sums_of(c: &Near, atol: f64, masked: bool, close: bool) -> Sums {
    #[cfg(target_arch = "x86_64")]
    if let Some(v4) = crate::simd::v4() {
        return match (masked, close) {
            (false, true) => v4.vectorize(Sums512::<false, true> { v4, c, atol }),
            (true, true) => v4.vectorize(Sums512::<true, true> { v4, c, atol }),
            (false, false) => v4.vectorize(Sums512::<false, false> { v4, c, atol }),
            (true, false) => v4.vectorize(Sums512::<true, false> { v4, c, atol }),
        };
    }
    sums_any(c, atol, masked, close)
}
