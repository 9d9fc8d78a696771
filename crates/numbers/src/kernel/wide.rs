//! Full chunks of floats with AVX-512 in one pass over both sides: what
//! [`super::run`] and [`super::ulp_bins`] find, and the cells, to the last bit.

use super::pass::total;
use super::planes::{CHUNK_PLANES, Planes};
use super::{Params, Sums};
use crate::ahead::Ahead;
use crate::decode::CHUNK;
use crate::hist;
use pulp::cast;
use scalify_ir::DType;
use std::arch::x86_64::{__m512d, __m512i, _CMP_GT_OQ};

/// Pairs between which distances are counted.
const STEP: usize = 128;

/// What a pass found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) sums: Sums,
    pub(crate) max_abs: f64,
    pub(crate) rel_count: u64,
    pub(crate) denormal: [u64; 2],
    pub(crate) sign_flips: u64,
    pub(crate) zero_signs: u64,
    /// Largest distance in units in the last place.
    pub(crate) ulp: u64,
    /// May a relative error exceed the one known?
    pub(crate) rel: bool,
    /// How many errors exceed the tolerances of `allclose`, of `xla`, and may
    /// exceed the latter, if they are counted.
    pub(crate) not_close: Option<[u64; 3]>,
}

/// Which values are handled without a further look, as upper bits of `f64` or
/// bits of `f32`.
#[derive(Clone, Copy)]
struct Bits {
    /// Smallest normal value, first and number of what is good for expected
    /// and for actual values, first that is not finite, or too large.
    normal: u32,
    first: u32,
    range: [u32; 2],
    end: u32,
}

/// `N` bytes an element. With `FAR` signs may differ, and errors beyond
/// tolerances are counted.
pub(crate) struct Wide<'a, 'b, const N: usize, const FAR: bool> {
    pub(crate) v4: pulp::x86::V4,
    pub(crate) t: DType,
    pub(crate) e: &'a [[u8; N]; CHUNK],
    pub(crate) a: &'a [[u8; N]; CHUNK],
    pub(crate) p: Params,
    /// Largest relative error known.
    pub(crate) known: f64,
    pub(crate) cells: &'a mut [u32; hist::CELLS],
    pub(crate) keys: &'a mut [u32; CHUNK],
    pub(crate) planes: &'a mut Planes,
    pub(crate) ahead: &'a mut Ahead<'b>,
}

/// 16 elements: values, upper bits of values, bits.
struct Values {
    value: [__m512d; 2],
    upper: __m512i,
    bits: [__m512i; 2],
}

#[inline(always)]
fn count(cells: &mut [u32; hist::CELLS], keys: &[u32]) {
    for &k in keys {
        if let Some(n) = cells.get_mut(k as usize) {
            *n = n.wrapping_add(1);
        }
    }
}

/// Adds eight vectors to counts of bits.
#[inline(always)]
fn tally(v4: pulp::x86::V4, planes: &mut [__m512i; CHUNK_PLANES], v: [__m512i; 8]) {
    let f = v4.avx512f;
    let [mut p0, mut p1, mut p2, more @ ..] = *planes;
    macro_rules! full {
        ($x:ident, $y:expr, $z:expr) => {{
            let (y, z) = ($y, $z);
            let carry = f._mm512_ternarylogic_epi64::<0xe8>($x, y, z);
            $x = f._mm512_ternarylogic_epi64::<0x96>($x, y, z);
            carry
        }};
    }
    let two = [
        full!(p0, v[0], v[1]),
        full!(p0, v[2], v[3]),
        full!(p0, v[4], v[5]),
        full!(p0, v[6], v[7]),
    ];
    let four = [full!(p1, two[0], two[1]), full!(p1, two[2], two[3])];
    let mut carry = full!(p2, four[0], four[1]);
    [planes[0], planes[1], planes[2]] = [p0, p1, p2];
    for (p, held) in planes[3..].iter_mut().zip(more) {
        *p = f._mm512_xor_si512(held, carry);
        carry = f._mm512_and_si512(held, carry);
    }
}

impl<const N: usize, const FAR: bool> Wide<'_, '_, N, FAR> {
    fn bits(&self) -> Bits {
        // Products of four `f64` and an error must be normal.
        let f64s = [(1023 - 200) << 20, (1023 + 200) << 20];
        let (normal, end) = match self.t {
            DType::F64 => (f64s[0], f64s[1]),
            DType::F16 => ((127 - 14) << 23, 0xff << 23),
            _ => (1 << 23, 0xff << 23),
        };
        let above = if N == 8 {
            (self.p.atol.to_bits() >> 32) as u32
        } else {
            let x = self.p.atol.min(f32::MAX as f64) as f32;
            x.to_bits()
        };
        let first = normal.max(above.saturating_add(1)).min(end);
        Bits { normal, first, range: [end - first, end - normal], end }
    }

    /// Takes back what has been counted, but for the last group before `at`.
    #[cold]
    fn undo(self, at: usize) {
        for &k in self.keys.get(..at.saturating_sub(32)).unwrap_or_default() {
            if let Some(n) = self.cells.get_mut(k as usize) {
                *n = n.wrapping_sub(1);
            }
        }
    }

    #[inline(always)]
    fn load(&self, b: &[[u8; N]; 16]) -> Values {
        let f = self.v4.avx512f;
        let bytes = b.as_flattened();
        let none = f._mm512_setzero_si512();
        if let Some(b) = bytes.first_chunk::<128>() {
            let bits: [__m512i; 2] = cast(*b);
            let odd: __m512i = cast(std::array::from_fn::<u32, 16, _>(|i| 2 * i as u32 + 1));
            let upper = f._mm512_permutex2var_epi32(bits[0], odd, bits[1]);
            return Values { value: cast(bits), upper, bits };
        }
        let (single, bits) = match (bytes.first_chunk::<64>(), bytes.first_chunk::<32>()) {
            (Some(b), _) => (cast(*b), cast(*b)),
            (_, Some(b)) => {
                let bits = f._mm512_cvtepu16_epi32(cast(*b));
                let single: __m512i = if matches!(self.t, DType::F16) {
                    cast(f._mm512_cvtph_ps(cast(*b)))
                } else {
                    f._mm512_slli_epi32::<16>(bits)
                };
                (single, bits)
            }
            _ => (none, none),
        };
        let [low, high]: [std::arch::x86_64::__m256; 2] = cast(single);
        Values {
            value: [f._mm512_cvtps_pd(low), f._mm512_cvtps_pd(high)],
            upper: single,
            bits: [bits, none],
        }
    }
}

impl<const N: usize, const FAR: bool> pulp::NullaryFnOnce for Wide<'_, '_, N, FAR> {
    type Output = Option<Seen>;

    #[inline(always)]
    fn call(self) -> Option<Seen> {
        let (f, w, c, q) = (self.v4.avx512f, self.v4.avx512bw, self.v4.avx512cd, self.v4.avx512dq);
        let b = self.bits();
        let p = self.p;
        let all = |x: f64| f._mm512_set1_pd(x);
        let all32 = |x: u32| f._mm512_set1_epi32(x as i32);
        let (low, high) = (all(1.0 - f64::EPSILON * 4.0), all(1.0 + f64::EPSILON * 4.0));
        let (atol, rtol) = (all(p.atol), all(p.rtol));
        let known = all(self.known * (1.0 - f64::EPSILON * 4.0));
        let zero = f._mm512_setzero_pd();
        let none = f._mm512_setzero_si512();
        let ones = f._mm512_set1_epi64(-1);
        let abs = all32(!(1 << 31));
        let odd: __m512i = cast(std::array::from_fn::<u32, 16, _>(|i| 2 * i as u32 + 1));
        let lanes: __m512i = cast(std::array::from_fn::<u32, 16, _>(hist::zero_key));
        let [error, magnitude] = hist::FIRST.map(|x| all32(x as u32));
        let [errors, magnitudes] = hist::LAST.map(|x| all32(x as u32));
        let row = all32(hist::ROW as u32);
        // Bits of a value without sign.
        let size_mask = match N {
            8 => f._mm512_set1_epi64(i64::MAX),
            4 => all32(u32::MAX >> 1),
            _ => all32(u16::MAX as u32 >> 1),
        };
        let mut acc = [[zero; 2]; 5];
        let mut parts = zero;
        let (mut max_abs, mut over_known) = (zero, zero);
        let mut ulp = none;
        let (mut small, mut flips, mut zeros) = (0u32, 0u32, 0u32);
        let mut denormal = [0u32; 2];
        // Known only when it runs: so additions are masked, not of masks.
        let one = f._mm512_set1_epi64(std::hint::black_box(1));
        let (mut close, mut xla, mut maybe) = (none, none, none);
        let mut planes = [none; CHUNK_PLANES];
        let steps = self.e.as_chunks::<STEP>().0.iter().zip(self.a.as_chunks::<STEP>().0);
        let mut reach = [[none; 2]; STEP / 16];
        for (s, (e, a)) in steps.enumerate() {
            self.ahead.part(CHUNK / STEP);
            for g in 0..STEP / 32 {
                let (mut num, mut den) = ([zero; 4], [zero; 4]);
                for h in 0..2 {
                    let j = 2 * g + h;
                    let (e, a) = (e.as_chunks::<16>().0, a.as_chunks::<16>().0);
                    let (Some(e), Some(a)) = (e.get(j), a.get(j)) else { break };
                    let (e, a) = (self.load(e), self.load(a));
                    let (x, y) =
                        (f._mm512_and_si512(e.upper, abs), f._mm512_and_si512(a.upper, abs));
                    let both = f._mm512_xor_si512(e.upper, a.upper);
                    let differ = q._mm512_movepi32_mask(both);
                    let good = f._mm512_cmplt_epu32_mask(
                        f._mm512_sub_epi32(x, all32(b.first)),
                        all32(b.range[0]),
                    );
                    let good = f._mm512_mask_cmplt_epu32_mask(
                        good,
                        f._mm512_sub_epi32(y, all32(b.normal)),
                        all32(b.range[1]),
                    );
                    let mut above = u16::MAX;
                    if good != u16::MAX || !FAR && differ != 0 {
                        if !FAR && differ != 0 {
                            self.undo(s * STEP + g * 32);
                            return None;
                        }
                        let end = all32(b.end);
                        let sides = [(x, 0), (y, 1)];
                        if sides.iter().any(|s| f._mm512_cmpge_epu32_mask(s.0, end) != 0) {
                            self.undo(s * STEP + g * 32);
                            return None;
                        }
                        let zero = |v: &Values, x| match N {
                            8 => {
                                let [p, q] = v.bits;
                                let zero = |p| f._mm512_testn_epi64_mask(p, size_mask);
                                zero(p) as u16 | (zero(q) as u16) << 8
                            }
                            _ => f._mm512_testn_epi32_mask(x, x),
                        };
                        let (ze, za) = (zero(&e, x), zero(&a, y));
                        for ((x, k), z) in sides.into_iter().zip([ze, za]) {
                            let tiny = f._mm512_cmplt_epu32_mask(x, all32(b.normal)) & !z;
                            // Of `f64` those are not only denormals.
                            if N == 8 && tiny != 0 {
                                self.undo(s * STEP + g * 32);
                                return None;
                            }
                            denormal[k] += tiny.count_ones();
                        }
                        let over = |v: __m512d| {
                            f._mm512_cmp_pd_mask::<_CMP_GT_OQ>(f._mm512_abs_pd(v), atol) as u16
                        };
                        above = over(e.value[0]) | over(e.value[1]) << 8;
                        small += (!above).count_ones();
                        zeros += (differ & ze & za).count_ones();
                        flips += (differ & !(ze | za)).count_ones();
                    } else if FAR {
                        flips += differ.count_ones();
                    }
                    // Distances.
                    let mut far = [none; 2];
                    for (i, far) in far.iter_mut().enumerate().take(if N == 8 { 2 } else { 1 }) {
                        let (x, y) = (e.bits[i], a.bits[i]);
                        let m =
                            (f._mm512_and_si512(x, size_mask), f._mm512_and_si512(y, size_mask));
                        if N == 8 {
                            *far = f._mm512_abs_epi64(f._mm512_sub_epi64(m.0, m.1));
                            if FAR {
                                let k = (differ >> (8 * i)) as u8;
                                *far = f._mm512_mask_add_epi64(*far, k, m.0, m.1);
                            }
                            ulp = f._mm512_max_epu64(ulp, *far);
                            *far = f._mm512_srlv_epi64(ones, c._mm512_lzcnt_epi64(*far));
                        } else {
                            *far = f._mm512_abs_epi32(f._mm512_sub_epi32(m.0, m.1));
                            if FAR {
                                *far = f._mm512_mask_add_epi32(*far, differ, m.0, m.1);
                            }
                            ulp = f._mm512_max_epu32(ulp, *far);
                            *far = f._mm512_srlv_epi32(ones, c._mm512_lzcnt_epi32(*far));
                        }
                    }
                    reach[j] = far;
                    let mut sizes = [zero; 2];
                    let mut nonzero = 0u16;
                    for k in 0..2 {
                        let (e, a) = (e.value[k], a.value[k]);
                        let size = f._mm512_abs_pd(f._mm512_sub_pd(a, e));
                        let m = f._mm512_abs_pd(e);
                        let add = |s: &mut __m512d, x| *s = f._mm512_add_pd(*s, x);
                        let [abs, square, e2, a2, ea] = &mut acc;
                        add(&mut abs[k], size);
                        add(&mut square[k], f._mm512_mul_pd(size, size));
                        add(&mut e2[k], f._mm512_mul_pd(e, e));
                        add(&mut a2[k], f._mm512_mul_pd(a, a));
                        add(&mut ea[k], f._mm512_mul_pd(e, a));
                        max_abs = f._mm512_max_pd(max_abs, size);
                        if FAR {
                            let t = f._mm512_mul_pd(rtol, m);
                            let gt = |x, y| f._mm512_cmp_pd_mask::<_CMP_GT_OQ>(x, y);
                            let beyond = gt(size, atol);
                            let over = |t| f._mm512_mask_cmp_pd_mask::<_CMP_GT_OQ>(beyond, size, t);
                            let add =
                                |n: &mut __m512i, k| *n = f._mm512_mask_add_epi64(*n, k, *n, one);
                            add(&mut close, gt(size, f._mm512_add_pd(atol, t)));
                            add(&mut maybe, over(f._mm512_mul_pd(t, low)));
                            add(&mut xla, over(f._mm512_mul_pd(t, high)));
                        }
                        nonzero |=
                            (f._mm512_test_epi64_mask(cast(size), cast(size)) as u16) << (8 * k);
                        sizes[k] = size;
                        (num[2 * h + k], den[2 * h + k]) = (size, m);
                    }
                    if above != u16::MAX {
                        for k in 0..2 {
                            let over = (above >> (8 * k)) as u8;
                            let (num, den) = (&mut num[2 * h + k], &mut den[2 * h + k]);
                            *num = f._mm512_maskz_mov_pd(over, *num);
                            *den = f._mm512_mask_mov_pd(all(1.0), over, *den);
                        }
                    }
                    for k in 2 * h..2 * h + 2 {
                        let beyond = f._mm512_sub_pd(num[k], f._mm512_mul_pd(known, den[k]));
                        over_known = f._mm512_max_pd(over_known, beyond);
                    }
                    let within = |x, first, last| {
                        let x = f._mm512_sub_epi32(x, first);
                        f._mm512_min_epi32(f._mm512_max_epi32(x, none), last)
                    };
                    let [s0, s1] = sizes;
                    let upper = f._mm512_permutex2var_epi32(cast(s0), odd, cast(s1));
                    let k = within(f._mm512_srli_epi32::<{ hist::SHIFT[0] }>(upper), error, errors);
                    let m = if N == 8 {
                        x
                    } else {
                        let [e0, e1] = e.value.map(|v| f._mm512_abs_pd(v));
                        f._mm512_permutex2var_epi32(cast(e0), odd, cast(e1))
                    };
                    let m =
                        within(f._mm512_srli_epi32::<{ hist::SHIFT[1] }>(m), magnitude, magnitudes);
                    let key =
                        f._mm512_mask_add_epi32(lanes, nonzero, w._mm512_madd_epi16(k, row), m);
                    if let Some(to) = self.keys[s * STEP + j * 16..].first_chunk_mut::<16>() {
                        *to = cast(key);
                    }
                }
                let mul = |x, y| f._mm512_mul_pd(x, y);
                let cross = |a, b, c, d| f._mm512_add_pd(mul(a, b), mul(c, d));
                let (x, y) = (mul(den[0], den[1]), mul(den[2], den[3]));
                let m = cross(num[0], den[1], num[1], den[0]);
                let n = cross(num[2], den[3], num[3], den[2]);
                let ratio = f._mm512_div_pd(cross(m, y, n, x), mul(x, y));
                parts = f._mm512_add_pd(parts, ratio);
                // Those of the group before.
                let at = s * STEP + g * 32;
                if at > 0 {
                    count(self.cells, &self.keys[at - 32..at]);
                }
            }
            tally(self.v4, &mut planes, reach.map(|r| r[0]));
            if N == 8 {
                tally(self.v4, &mut planes, reach.map(|r| r[1]));
            }
        }
        count(self.cells, &self.keys[CHUNK - 32..]);
        self.planes.add(planes.map(cast));
        let [abs, square, e2, a2, ea] = acc.map(|v| total(cast::<_, [f64; 16]>(v)));
        let each = |v: __m512d| cast::<_, [f64; 8]>(v).into_iter();
        let ulp = if N == 8 {
            cast::<_, [u64; 8]>(ulp).into_iter().fold(0, u64::max)
        } else {
            cast::<_, [u32; 16]>(ulp).into_iter().fold(0, u32::max) as u64
        };
        Some(Seen {
            sums: Sums { abs, square, e2, a2, ea, rel: total(cast::<_, [f64; 8]>(parts)) },
            max_abs: each(max_abs).fold(0.0, f64::max),
            rel_count: CHUNK as u64 - small as u64,
            denormal: denormal.map(u64::from),
            sign_flips: flips as u64,
            zero_signs: zeros as u64,
            ulp,
            rel: each(over_known).any(|x| x > 0.0),
            not_close: FAR
                .then(|| [close, xla, maybe].map(|n| cast::<_, [u64; 8]>(n).into_iter().sum())),
        })
    }
}
