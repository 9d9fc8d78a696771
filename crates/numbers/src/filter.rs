//! Which pairs have errors in some ranges, a vector at a time.
//!
//! Errors are told apart by their *class*: the error as it would be in `f32`,
//! of `f64` as it is. It never falls as errors grow, so that ranges of classes
//! are ranges of errors.

use crate::decode::{CHUNK, half_value};
use crate::near::each;
use multiversion::multiversion;
use scalify_ir::DType;
use std::ops::Range;

/// Ranges at a time.
pub(crate) const RANGES: usize = 4;

/// Places of a chunk with room behind for a whole vector.
pub(crate) type Index = [u32; CHUNK + 16];

/// Ranges of classes, as bits of `f32` or `f64`, in order and without overlap;
/// unused ones are empty at infinity.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    t: DType,
    low: [u64; RANGES],
    high: [u64; RANGES],
}

/// The class of infinite errors; those of NaN are above.
pub(crate) fn infinity(t: DType) -> u64 {
    if t == DType::F64 { f64::INFINITY.to_bits() } else { f32::INFINITY.to_bits() as u64 }
}

/// The class of an error of values of a type that is handled.
#[inline(always)]
pub(crate) fn class(t: DType, e: f64, a: f64) -> u64 {
    if t == DType::F64 {
        (a - e).abs().to_bits()
    } else {
        (a as f32 - e as f32).abs().to_bits() as u64
    }
}

#[inline(always)]
fn single(b: &[u8; 4]) -> f64 {
    f32::from_le_bytes(*b) as f64
}

#[inline(always)]
fn brain(b: &[u8; 2]) -> f64 {
    f32::from_bits((u16::from_le_bytes(*b) as u32) << 16) as f64
}

#[inline(always)]
fn half(b: &[u8; 2]) -> f64 {
    half_value(u16::from_le_bytes(*b))
}

#[inline(always)]
fn double(b: &[u8; 8]) -> f64 {
    f64::from_le_bytes(*b)
}

/// Calls a macro with bytes of an element and their value, by type.
macro_rules! by_type {
    ($t:expr, $run:ident) => {
        match $t {
            DType::F64 => $run!(8, double),
            DType::F32 => $run!(4, single),
            DType::Bf16 => $run!(2, brain),
            _ => $run!(2, half),
        }
    };
}

impl Filter {
    /// Are there classes of this type?
    pub(crate) fn handles(t: DType) -> bool {
        matches!(t, DType::F32 | DType::F64 | DType::Bf16 | DType::F16)
    }

    /// Of up to [`RANGES`] ranges.
    pub(crate) fn new(t: DType, ranges: &[Range<u64>]) -> Filter {
        let mut f = Filter { t, low: [infinity(t); RANGES], high: [infinity(t); RANGES] };
        for (k, r) in ranges.iter().enumerate().take(RANGES) {
            (f.low[k], f.high[k]) = (r.start, r.end);
        }
        f
    }

    pub(crate) fn dtype(&self) -> DType {
        self.t
    }

    /// Do errors up to this one have finite classes?
    pub(crate) fn covers(t: DType, max: f64) -> bool {
        t == DType::F64 || max < 2f64.powi(127)
    }

    /// Finds the pairs of a full chunk in any range; returns how many there
    /// are, and how many finite errors are in a range or above it. Other slices
    /// have none.
    pub(crate) fn run(&self, e: &[u8], a: &[u8], index: &mut Index) -> (usize, [u32; RANGES]) {
        macro_rules! run {
            ($n:literal, $value:ident) => {{
                let (Some(e), Some(a)) =
                    (e.as_chunks::<$n>().0.first_chunk(), a.as_chunks::<$n>().0.first_chunk())
                else {
                    return (0, [0; RANGES]);
                };
                #[cfg(target_arch = "x86_64")]
                if let Some(v4) = crate::simd::v4() {
                    return v4.vectorize(Run512::<$n> { v4, f: self, e, a, index });
                }
                let mut classes = [0u64; CHUNK];
                for ((x, y), c) in e.iter().zip(a).zip(&mut classes) {
                    *c = class(self.t, $value(x), $value(y));
                }
                self.run_any(&classes, index)
            }};
        }
        by_type!(self.t, run)
    }

    fn run_any(&self, classes: &[u64; CHUNK], index: &mut Index) -> (usize, [u32; RANGES]) {
        let mut flags = [0u8; CHUNK];
        let from = mark(classes, infinity(self.t), &self.low, &self.high, &mut flags);
        let mut n = 0;
        each(&flags, |i| {
            index[n] = i as u32;
            n += 1;
        });
        (n, from)
    }

    /// Calls `f` for the pairs in any range of these, with place, range and
    /// error.
    #[inline(always)]
    pub(crate) fn each(
        &self,
        e: &[u8],
        a: &[u8],
        places: impl Iterator<Item = usize>,
        mut f: impl FnMut(usize, usize, f64),
    ) {
        macro_rules! run {
            ($n:literal, $value:ident) => {{
                let (e, a) = (e.as_chunks::<$n>().0, a.as_chunks::<$n>().0);
                for i in places {
                    let (Some(x), Some(y)) = (e.get(i), a.get(i)) else { continue };
                    let (x, y): (f64, f64) = ($value(x), $value(y));
                    let c = class(self.t, x, y);
                    let at = (1..RANGES).fold(0, |k, r| if c >= self.low[r] { r } else { k });
                    if c >= self.low[at] && c < self.high[at] {
                        f(i, at, (y - x).abs());
                    }
                }
            }};
        }
        by_type!(self.t, run)
    }

    /// [`Filter::run`] for less than a chunk.
    pub(crate) fn run_few(&self, e: &[u8], a: &[u8]) -> [u32; RANGES] {
        let mut from = [0; RANGES];
        let top = infinity(self.t);
        macro_rules! run {
            ($n:literal, $value:ident) => {{
                for (x, y) in e.as_chunks::<$n>().0.iter().zip(a.as_chunks::<$n>().0) {
                    let c = class(self.t, $value(x), $value(y));
                    for (n, &low) in from.iter_mut().zip(&self.low) {
                        *n += (c >= low && c < top) as u32;
                    }
                }
            }};
        }
        by_type!(self.t, run);
        from
    }

    /// Bytes of an element.
    pub(crate) fn size(&self) -> usize {
        self.t.literal_bytes()
    }
}

/// For any machine.
#[multiversion(targets("x86_64+avx2+fma"))]
fn mark(
    classes: &[u64; CHUNK],
    top: u64,
    low: &[u64; RANGES],
    high: &[u64; RANGES],
    flags: &mut [u8; CHUNK],
) -> [u32; RANGES] {
    let mut from = [0u32; RANGES];
    for k in 0..RANGES {
        // Empty behind infinity.
        let (low, high) = (low[k] as i64, high[k] as i64);
        let mut n = 0u64;
        for (&c, flag) in classes.iter().zip(flags.iter_mut()) {
            let c = c as i64;
            let above = (c >= low) & (c < top as i64);
            n += above as u64;
            *flag |= (above & (c < high)) as u8;
        }
        from[k] = n as u32;
    }
    from
}

/// The same with the instructions chosen by hand.
#[cfg(target_arch = "x86_64")]
struct Run512<'a, const N: usize> {
    v4: pulp::x86::V4,
    f: &'a Filter,
    e: &'a [[u8; N]; CHUNK],
    a: &'a [[u8; N]; CHUNK],
    index: &'a mut Index,
}

#[cfg(target_arch = "x86_64")]
impl<const N: usize> pulp::NullaryFnOnce for Run512<'_, N> {
    type Output = (usize, [u32; RANGES]);

    #[inline(always)]
    fn call(self) -> (usize, [u32; RANGES]) {
        use pulp::cast;
        use std::arch::x86_64::{__m512, __m512i};
        let f = self.v4.avx512f;
        let half = self.f.t == DType::F16;
        let all = |x: u64| {
            if N == 8 { f._mm512_set1_epi64(x as i64) } else { f._mm512_set1_epi32(x as i32) }
        };
        let abs = all(if N == 8 { u64::MAX >> 1 } else { u32::MAX as u64 >> 1 });
        let top = all(infinity(self.f.t));
        let ([l0, l1, l2, l3], [h0, h1, h2, h3]) = (self.f.low.map(all), self.f.high.map(all));
        let none = f._mm512_setzero_si512();
        let (mut n0, mut n1, mut n2, mut n3) = (none, none, none, none);
        // Known only when it runs: so additions are masked, not of masks.
        let one = all(std::hint::black_box(1));
        let mut places: __m512i = cast(std::array::from_fn::<u32, 16, _>(|i| i as u32));
        let step = f._mm512_set1_epi32(16);
        let load = |b: &[[u8; N]; 16]| -> __m512 {
            let bytes = b.as_flattened();
            match (bytes.first_chunk::<64>(), bytes.first_chunk::<32>()) {
                (Some(b), _) => cast(*b),
                (_, Some(b)) if half => f._mm512_cvtph_ps(cast(*b)),
                (_, Some(b)) => cast(f._mm512_slli_epi32::<16>(f._mm512_cvtepu16_epi32(cast(*b)))),
                _ => f._mm512_setzero_ps(),
            }
        };
        let mut n = 0;
        for (e, a) in self.e.as_chunks::<16>().0.iter().zip(self.a.as_chunks::<16>().0) {
            let some = if let (Some(e), Some(a)) =
                (e.as_flattened().first_chunk::<128>(), a.as_flattened().first_chunk::<128>())
            {
                let (e, a): ([_; 2], [_; 2]) = (cast(*e), cast(*a));
                let mut some = 0u16;
                for k in 0..2 {
                    let d = f._mm512_and_si512(cast(f._mm512_sub_pd(a[k], e[k])), abs);
                    let finite = f._mm512_cmplt_epi64_mask(d, top);
                    let test = |n: &mut __m512i, low, high| {
                        let m = f._mm512_mask_cmpge_epi64_mask(finite, d, low);
                        *n = f._mm512_mask_add_epi64(*n, m, *n, one);
                        f._mm512_mask_cmplt_epi64_mask(m, d, high)
                    };
                    let (m0, m1) = (test(&mut n0, l0, h0), test(&mut n1, l1, h1));
                    let (m2, m3) = (test(&mut n2, l2, h2), test(&mut n3, l3, h3));
                    some |= ((m0 | m1 | m2 | m3) as u16) << (8 * k);
                }
                some
            } else {
                let d = f._mm512_and_si512(cast(f._mm512_sub_ps(load(a), load(e))), abs);
                let finite = f._mm512_cmplt_epi32_mask(d, top);
                let test = |n: &mut __m512i, low, high| {
                    let m = f._mm512_mask_cmpge_epi32_mask(finite, d, low);
                    *n = f._mm512_mask_add_epi32(*n, m, *n, one);
                    f._mm512_mask_cmplt_epi32_mask(m, d, high)
                };
                let (m0, m1) = (test(&mut n0, l0, h0), test(&mut n1, l1, h1));
                let (m2, m3) = (test(&mut n2, l2, h2), test(&mut n3, l3, h3));
                m0 | m1 | m2 | m3
            };
            if let Some(to) = self.index.get_mut(n..).and_then(<[u32]>::first_chunk_mut::<16>) {
                *to = cast(f._mm512_maskz_compress_epi32(some, places));
            }
            n += some.count_ones() as usize;
            places = f._mm512_add_epi32(places, step);
        }
        let sum = |v: __m512i| {
            if N == 8 {
                cast::<_, [u64; 8]>(v).into_iter().sum::<u64>() as u32
            } else {
                cast::<_, [u32; 16]>(v).into_iter().sum()
            }
        };
        (n, [n0, n1, n2, n3].map(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways find the same pairs and counts, whatever the values.
    #[test]
    fn both_ways_find_the_same() {
        let mut s = 1u64;
        let mut next = || {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            s >> 16
        };
        for t in [DType::F32, DType::F64, DType::Bf16, DType::F16] {
            let size = t.literal_bytes();
            for kind in 0..4 {
                let mut e: Vec<u8> = (0..CHUNK * size).map(|_| next() as u8).collect();
                let mut a: Vec<u8> = (0..CHUNK * size).map(|_| next() as u8).collect();
                for i in 0..CHUNK * size {
                    // Of any size; of size about one; most equal; near.
                    match (kind, size - 1 - i % size) {
                        (1 | 3, 0) => (e[i], a[i]) = (0x3f, 0x3f),
                        (2, _) if next() % 9 > 0 => a[i] = e[i],
                        _ => {}
                    }
                    if kind == 3 && i % size > 0 {
                        a[i] = e[i];
                    }
                }
                let mut classes = [0u64; CHUNK];
                for (i, c) in classes.iter_mut().enumerate() {
                    let at = i * size..(i + 1) * size;
                    let value = |b: &[u8]| crate::decode::parts(t, &b[at.clone()], 0).0;
                    *c = class(t, value(&e), value(&a));
                }
                let mut sorted = classes;
                sorted.sort_unstable();
                let top = infinity(t);
                let cut = |k: usize| sorted[k].clamp(1, top);
                for ranges in [
                    vec![],
                    vec![cut(500)..cut(600)],
                    vec![1..cut(100), cut(300)..cut(301) + 1, cut(900)..top],
                    vec![1..cut(10), cut(10)..cut(20), cut(20)..cut(30), cut(40)..top],
                ] {
                    let f = Filter::new(t, &ranges);
                    let (mut x, mut y) = ([0; CHUNK + 16], [0; CHUNK + 16]);
                    let (n, from) = f.run(&e, &a, &mut x);
                    assert_eq!((n, from), f.run_any(&classes, &mut y), "{t} {kind} {ranges:?}");
                    assert_eq!(x[..n], y[..n]);
                    assert_eq!(from, f.run_few(&e, &a));
                    let mut seen = 0;
                    f.each(&e, &a, 0..CHUNK, |i, at, _| {
                        assert!(ranges[at].contains(&classes[i]) && classes[i] < top);
                        assert_eq!(x[seen], i as u32);
                        seen += 1;
                    });
                    assert_eq!(seen, n);
                }
            }
        }
    }
}
