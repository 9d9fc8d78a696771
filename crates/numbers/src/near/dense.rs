//! Full chunks of which most pairs differ, with AVX-512 in one pass over both
//! sides: what [`super::load`], [`super::screen`] and [`super::sums`] find and do
//! one after the other, to the last bit.
//!
//! Counting cells waits for loads and stores, the rest for two units of
//! arithmetic; steps of both are mixed so that they run at the same time.

use super::sums::Lanes;
use super::{Limits, Near, Params};
use crate::ahead::Ahead;
use crate::decode::CHUNK;
use crate::hist;
use crate::kernel::Sums;
use pulp::cast;
use scalify_ir::DType;
use std::arch::x86_64::{__m512d, __m512i};

/// Pairs between which cells are counted.
const STEP: usize = 128;

/// What a pass found, of pairs that are not far.
pub(super) struct Seen {
    pub(super) sums: Sums,
    pub(super) max_abs: f32,
    /// Largest distance in units in the last place.
    pub(super) ulp: u32,
    /// Expected values above `atol`.
    pub(super) above: u32,
    /// May a relative error exceed the one known?
    pub(super) rel: bool,
    /// How many errors exceed the tolerances of `allclose` and of `xla`, and
    /// how many may, with [`Dense::count`].
    pub(super) not_close: [[u32; 2]; 2],
}

/// Thresholds, as bits of `f32`.
#[derive(Clone, Copy)]
pub(super) struct Bits {
    /// A pair is handled without a further look if the expected value is of
    /// these and sizes are within an octave.
    first: u32,
    range: u32,
    /// Expected values up to this one have no relative error.
    limit: u32,
    /// Pairs with a value up to this one, but for zeros, are far.
    least: u32,
    /// With a value below this one, but for zeros, nothing is done.
    normal: u32,
    max_rel: f32,
    close: [[f32; 2]; 2],
    /// Bits that the type does not have.
    shift: u32,
}

/// An octave of `f32`.
const OCTAVE: u32 = 1 << 23;
const INFINITY: u32 = 0xff << 23;

/// The smallest `f32` that is not below `x >= 0`.
fn above(x: f64) -> f32 {
    let y = x as f32;
    if (y as f64) < x { f32::from_bits(y.to_bits() + 1) } else { y }
}

impl Bits {
    pub(super) fn new(t: DType, p: Params, l: Limits, max_rel: f32) -> Bits {
        let half = t == DType::F16;
        let normal = if half { (127 - 14) << 23 } else { 0 };
        let least = if half { 0 } else { super::LEAST };
        let end = if half { (127 + 16) << 23 } else { INFINITY } - OCTAVE;
        let limit = l.above.to_bits();
        let first = (least.max(normal) + OCTAVE).max(limit + 1).min(end);
        let high = 1.0 + 1.0 / (1 << 20) as f64;
        Bits {
            first,
            range: end - first,
            limit,
            least,
            normal,
            max_rel,
            shift: super::shift(t),
            close: [[l.atol, l.rtol], [above(p.atol * high), above(p.rtol * high)]],
        }
    }
}

/// `N` bytes an element; cells of [`hist::short_key`].
pub(super) struct Dense<'a, 'b, const N: usize, const COUNT: bool> {
    pub(super) v4: pulp::x86::V4,
    pub(super) e: &'a [[u8; N]; CHUNK],
    pub(super) a: &'a [[u8; N]; CHUNK],
    pub(super) half: bool,
    pub(super) bits: Bits,
    /// Far pairs above this number end it.
    pub(super) few: usize,
    pub(super) c: &'a mut Near,
    pub(super) cells: &'a mut [u32; hist::SHORT],
    pub(super) ahead: &'a mut Ahead<'b>,
}

/// Counts cells.
#[inline(always)]
fn count(cells: &mut [u32; hist::SHORT], keys: &[u32]) {
    for &k in keys {
        let n = &mut cells[k as u16 as usize + hist::SHORT_FIRST];
        *n = n.wrapping_add(1);
    }
}

impl<const N: usize, const COUNT: bool> Dense<'_, '_, N, COUNT> {
    /// Bits of 16 values as `f32`.
    #[inline(always)]
    fn load(&self, b: &[[u8; N]; 16]) -> __m512i {
        let f = self.v4.avx512f;
        let bytes = b.as_flattened();
        match (bytes.first_chunk::<64>(), bytes.first_chunk::<32>()) {
            (Some(b), _) => cast(*b),
            (_, Some(b)) if self.half => cast(f._mm512_cvtph_ps(cast(*b))),
            (_, Some(b)) => f._mm512_slli_epi32::<16>(f._mm512_cvtepu16_epi32(cast(*b))),
            _ => f._mm512_setzero_si512(),
        }
    }

    /// Takes far pairs out of 16, and marks expected values without relative
    /// error; `None` if the chunk must be handled in another way.
    #[inline(always)]
    fn odd(&mut self, at: usize, e: __m512i, a: __m512i) -> Option<(__m512i, __m512i, u16)> {
        let (f, b) = (self.v4.avx512f, self.bits);
        let all = |x: u32| f._mm512_set1_epi32(x as i32);
        let abs = all(!(1 << 31));
        let (x, y) = (f._mm512_and_si512(e, abs), f._mm512_and_si512(a, abs));
        let (most, small) = (f._mm512_max_epu32(x, y), f._mm512_min_epu32(x, y));
        let ones = all(u32::MAX);
        let (x1, y1) = (f._mm512_add_epi32(x, ones), f._mm512_add_epi32(y, ones));
        let below = |t: u32| {
            let t = all(t);
            f._mm512_cmplt_epu32_mask(x1, t) | f._mm512_cmplt_epu32_mask(y1, t)
        };
        if f._mm512_cmpge_epu32_mask(most, all(INFINITY)) != 0 || below(b.normal.max(1) - 1) != 0 {
            return None;
        }
        let far = f._mm512_cmpge_epu32_mask(f._mm512_sub_epi32(most, small), all(OCTAVE))
            | f._mm512_test_epi32_mask(f._mm512_xor_si512(e, a), all(1 << 31))
            | below(b.least);
        let keep = !far;
        self.c.far.add(at, far);
        if self.c.far.all().len() > self.few {
            return None;
        }
        let over = f._mm512_mask_cmpgt_epu32_mask(keep, x, all(b.limit));
        let e = f._mm512_maskz_mov_epi32(keep, e);
        Some((e, f._mm512_maskz_mov_epi32(keep, a), !over))
    }

    /// Takes back what has been counted.
    fn undo(&mut self, done: usize) {
        for k in self.c.keys.get(..done).unwrap_or_default() {
            let k = (*k as u16) as usize + hist::SHORT_FIRST;
            self.cells[k] = self.cells[k].wrapping_sub(1);
        }
    }
}

impl<const N: usize, const COUNT: bool> pulp::NullaryFnOnce for Dense<'_, '_, N, COUNT> {
    type Output = Result<Seen, bool>;

    /// An error if pairs are not finite, or too many are far, or (true) few
    /// differ.
    #[inline(always)]
    fn call(mut self) -> Result<Seen, bool> {
        let (f, w) = (self.v4.avx512f, self.v4.avx512bw);
        let b = self.bits;
        let all = |x: u32| f._mm512_set1_epi32(x as i32);
        let abs = all(!(1 << 31));
        let (first, range, octave) = (all(b.first), all(b.range), all(OCTAVE));
        let exponent = all(INFINITY);
        let row = all(248);
        let known = f._mm512_set1_ps(b.max_rel);
        let lanes: __m512i = cast(std::array::from_fn::<u32, 16, _>(|i| i as u32));
        // Known only when it runs: so additions are masked, not of masks.
        let one = all(std::hint::black_box(1));
        let none = f._mm512_setzero_si512();
        let (mut ulp, mut most, mut rel, mut unequal) = (none, none, none, none);
        let (mut maybe0, mut maybe1, mut surely0, mut surely1) = (none, none, none, none);
        let [low, high] = b.close.map(|c| c.map(|x| f._mm512_set1_ps(x)));
        let zero = [f._mm512_setzero_pd(); 2];
        let (mut abses, mut square, mut e2, mut ed) = (zero, zero, zero, zero);
        let mut rels = f._mm512_setzero_pd();
        let mut unlike = 0u32;
        self.c.far.clear();
        self.c.cross.clear();
        let (e, a) = (self.e, self.a);
        let steps = e.as_chunks::<STEP>().0.iter().zip(a.as_chunks::<STEP>().0);
        for (s, (e, a)) in steps.enumerate() {
            self.ahead.part(CHUNK / STEP);
            let from = s * STEP;
            // Expected values without relative error.
            let mut small = [0u16; STEP / 16];
            // Which exponents differ.
            let mut cross = [0u16; STEP / 16];
            for (j, (e, a)) in e.as_chunks::<16>().0.iter().zip(a.as_chunks::<16>().0).enumerate() {
                let at = from + j * 16;
                let (mut e, mut a) = (self.load(e), self.load(a));
                let x = f._mm512_and_si512(e, abs);
                let good = f._mm512_cmplt_epu32_mask(f._mm512_sub_epi32(x, first), range);
                let mut far = f._mm512_abs_epi32(f._mm512_sub_epi32(e, a));
                // Neither are those good whose signs differ.
                let good = f._mm512_mask_cmplt_epu32_mask(good, far, octave);
                let mut x = x;
                // Without those that have no relative error.
                let mut own = x;
                if good != u16::MAX {
                    let Some((e1, a1, m)) = self.odd(at, e, a) else {
                        self.undo((from + j * STEP / 16).saturating_sub(STEP / 2));
                        return Err(false);
                    };
                    (e, a, small[j]) = (e1, a1, m);
                    x = f._mm512_and_si512(e, abs);
                    own = f._mm512_mask_mov_epi32(x, m, all(INFINITY));
                    far = f._mm512_abs_epi32(f._mm512_sub_epi32(e, a));
                }
                let both = f._mm512_xor_si512(e, a);
                cross[j] = f._mm512_test_epi32_mask(both, exponent);
                ulp = f._mm512_max_epu32(ulp, far);
                let d: __m512i = cast(f._mm512_sub_ps(cast(a), cast(e)));
                let size = f._mm512_and_si512(d, abs);
                most = f._mm512_max_epi32(most, size);
                // The bits of what is above zero, and only those, are.
                let over = f._mm512_fnmadd_ps(known, cast(own), cast(size));
                rel = f._mm512_max_epi32(rel, cast(over));
                let nonzero = f._mm512_test_epi32_mask(size, size);
                unequal = f._mm512_mask_add_epi32(unequal, nonzero, unequal, one);
                let t = w._mm512_madd_epi16(f._mm512_srli_epi32::<23>(x), row);
                let k = f._mm512_srli_epi32::<20>(size);
                let key = f._mm512_mask_add_epi32(lanes, nonzero, k, t);
                // The difference of sizes: turned with the sign of `e`.
                let turned = f._mm512_xor_si512(d, f._mm512_andnot_si512(abs, e));
                if COUNT {
                    let (x, size) = (cast(x), cast(size));
                    let beyond = |[atol, rtol]: [_; 2]| {
                        use std::arch::x86_64::_CMP_GT_OQ;
                        let t = f._mm512_max_ps(f._mm512_mul_ps(rtol, x), atol);
                        let near = f._mm512_cmp_ps_mask::<_CMP_GT_OQ>(
                            size,
                            f._mm512_fmadd_ps(rtol, x, atol),
                        );
                        [near, f._mm512_cmp_ps_mask::<_CMP_GT_OQ>(size, t)]
                    };
                    // In a loop the sums would be in memory.
                    let add = |n: &mut __m512i, m| *n = f._mm512_mask_add_epi32(*n, m, *n, one);
                    let ([m0, m1], [m2, m3]) = (beyond(low), beyond(high));
                    add(&mut maybe0, m0);
                    add(&mut maybe1, m1);
                    add(&mut surely0, m2);
                    add(&mut surely1, m3);
                }
                let c = &mut *self.c;
                let put = |to: Option<&mut [f32; 16]>, v: __m512i| {
                    if let Some(to) = to {
                        *to = cast(v);
                    }
                };
                put(c.e[at..].first_chunk_mut(), x);
                put(c.d[at..].first_chunk_mut(), turned);
                if let Some(to) = c.keys[at..].first_chunk_mut::<16>() {
                    *to = cast(key);
                }
                // The rest of the step before.
                if s > 0 {
                    let k = from - STEP / 2 + j * 8;
                    count(self.cells, &c.keys[k..k + 8]);
                }
            }
            for (k, &m) in cross.as_chunks::<4>().0.iter().enumerate() {
                self.c.cross.add_all(from + k * 64, m);
            }
            for g in 0..STEP / 32 {
                let at = from + g * 32;
                let c = &*self.c;
                let (x, y) = (c.e[at..].first_chunk::<32>(), c.d[at..].first_chunk::<32>());
                let (Some(x), Some(y)) = (x, y) else { break };
                let mut num = [f._mm512_setzero_pd(); 4];
                let mut den = num;
                for k in 0..4 {
                    let e = f._mm512_cvtps_pd(cast(x.as_chunks::<8>().0[k]));
                    let d = f._mm512_cvtps_pd(cast(y.as_chunks::<8>().0[k]));
                    let m = f._mm512_abs_pd(d);
                    abses[k % 2] = f._mm512_add_pd(abses[k % 2], m);
                    square[k % 2] = f._mm512_fmadd_pd(d, d, square[k % 2]);
                    ed[k % 2] = f._mm512_fmadd_pd(e, d, ed[k % 2]);
                    e2[k % 2] = f._mm512_fmadd_pd(e, e, e2[k % 2]);
                    (num[k], den[k]) = (m, e);
                }
                let few = small[2 * g] as u32 | (small[2 * g + 1] as u32) << 16;
                if few != 0 {
                    unlike += few.count_ones();
                    for k in 0..4 {
                        let over = !(few >> (8 * k)) as u8;
                        num[k] = f._mm512_maskz_mov_pd(over, num[k]);
                        den[k] = f._mm512_mask_mov_pd(f._mm512_set1_pd(1.0), over, den[k]);
                    }
                }
                let mul = |x, y| f._mm512_mul_pd(x, y);
                // Not fused: other machines have the same sums.
                let cross = |a: __m512d, b, c, d| f._mm512_add_pd(mul(a, b), mul(c, d));
                let (p, q) = (mul(den[0], den[1]), mul(den[2], den[3]));
                let m = cross(num[0], den[1], num[1], den[0]);
                let n = cross(num[2], den[3], num[3], den[2]);
                let ratio = f._mm512_div_pd(cross(m, q, n, p), mul(p, q));
                rels = f._mm512_add_pd(rels, ratio);
                let k = from + g * 16;
                count(self.cells, &c.keys[k..k + 16]);
            }
        }
        count(self.cells, &self.c.keys[CHUNK - STEP / 2..]);
        let each = |v: __m512i| cast::<_, [u32; 16]>(v).into_iter();
        let unequal: u32 = each(unequal).sum();
        if unequal <= super::SPARSE {
            self.undo(CHUNK);
            return Err(true);
        }
        self.c.held = CHUNK;
        self.c.sparse = false;
        let lanes = Lanes {
            abs: cast(abses),
            square: cast(square),
            e2: cast(e2),
            a2: [0.0; 16],
            ed: cast(ed),
            rel: cast(rels),
        };
        Ok(Seen {
            sums: lanes.sums(true),
            max_abs: f32::from_bits(each(most).fold(0, u32::max)),
            ulp: each(ulp).fold(0, u32::max) >> self.bits.shift,
            above: CHUNK as u32 - unlike,
            rel: each(rel).fold(0, |m, x| m.max(x as i32)) > 0,
            not_close: [[maybe0, maybe1], [surely0, surely1]].map(|c| c.map(|n| each(n).sum())),
        })
    }
}
