//! Which pairs have errors in some ranges, a vector at a time.
//!
//! Errors are told apart by their *class*: exponent and seven bits of the
//! fraction of the error as it would be in `f32`, of `f64` as it is. It never
//! falls as errors grow, so that ranges of classes are ranges of errors.

use crate::decode::{CHUNK, half_value};
use crate::near::each;
use multiversion::multiversion;
use scalify_ir::DType;
use std::ops::Range;

/// Ranges at a time.
pub(crate) const RANGES: usize = 4;

/// Places of a chunk with room behind for some more.
pub(crate) type Index = [u16; CHUNK + 16];

/// Ranges of classes, in order and without overlap; unused ones are empty at
/// infinity.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    t: DType,
    low: [u32; RANGES],
    high: [u32; RANGES],
}

/// Bits of an `f32` and of an `f64` below those of a class.
const SHIFT: [u32; 2] = [16, 45];

/// The class of infinite errors, and of no finite one if [`Filter::covers`] the
/// largest; those of NaN are not below.
pub(crate) fn infinity(t: DType) -> u32 {
    class(t, 0.0, f64::INFINITY)
}

/// The class of an error of values of a type that is handled.
#[inline(always)]
pub(crate) fn class(t: DType, e: f64, a: f64) -> u32 {
    if t == DType::F64 {
        ((a - e).abs().to_bits() >> SHIFT[1]) as u32
    } else {
        (a as f32 - e as f32).abs().to_bits() >> SHIFT[0]
    }
}

/// The middle of a class.
pub(crate) fn middle(t: DType, class: u32) -> f64 {
    if t == DType::F64 {
        f64::from_bits((class as u64) << SHIFT[1] | 1 << (SHIFT[1] - 1))
    } else {
        f32::from_bits(class << SHIFT[0] | 1 << (SHIFT[0] - 1)) as f64
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
    pub(crate) fn new(t: DType, ranges: &[Range<u32>]) -> Filter {
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
                let mut classes = [0u32; CHUNK];
                for ((x, y), c) in e.iter().zip(a).zip(&mut classes) {
                    *c = class(self.t, $value(x), $value(y));
                }
                self.run_any(&classes, index)
            }};
        }
        by_type!(self.t, run)
    }

    fn run_any(&self, classes: &[u32; CHUNK], index: &mut Index) -> (usize, [u32; RANGES]) {
        let mut flags = [0u8; CHUNK];
        let from = mark(classes, infinity(self.t), &self.low, &self.high, &mut flags);
        let mut n = 0;
        each(&flags, |i| {
            index[n] = i as u16;
            n += 1;
        });
        (n, from)
    }

    /// Adds errors at some places, as bits of `f64`.
    pub(crate) fn errors(&self, e: &[u8], a: &[u8], places: &[u16], to: &mut Vec<u64>) {
        macro_rules! run {
            ($n:literal, $value:ident) => {{
                let (e, a) = (e.as_chunks::<$n>().0, a.as_chunks::<$n>().0);
                let error = |x, y| ($value(y) - $value(x)).abs().to_bits();
                if let (Some(e), Some(a)) = (e.first_chunk::<CHUNK>(), a.first_chunk::<CHUNK>()) {
                    let places = places.iter().map(|&i| i as usize % CHUNK);
                    to.extend(places.map(|i| error(&e[i], &a[i])));
                } else {
                    let places = places.iter().map(|&i| i as usize);
                    to.extend(places.filter_map(|i| Some(error(e.get(i)?, a.get(i)?))));
                }
            }};
        }
        by_type!(self.t, run)
    }

    /// [`Filter::run`] for less than a chunk.
    pub(crate) fn run_few(&self, e: &[u8], a: &[u8], index: &mut Index) -> (usize, [u32; RANGES]) {
        let mut classes = [0; CHUNK];
        macro_rules! run {
            ($n:literal, $value:ident) => {{
                let pairs = e.as_chunks::<$n>().0.iter().zip(a.as_chunks::<$n>().0);
                for ((x, y), c) in pairs.zip(&mut classes) {
                    *c = class(self.t, $value(x), $value(y));
                }
            }};
        }
        by_type!(self.t, run);
        self.run_any(&classes, index)
    }

    /// Bytes of an element.
    pub(crate) fn size(&self) -> usize {
        self.t.literal_bytes()
    }
}

/// For any machine.
#[multiversion(targets("x86_64+avx2+fma"))]
fn mark(
    classes: &[u32; CHUNK],
    top: u32,
    low: &[u32; RANGES],
    high: &[u32; RANGES],
    flags: &mut [u8; CHUNK],
) -> [u32; RANGES] {
    let mut from = [0u32; RANGES];
    for k in 0..RANGES {
        let mut n = 0;
        for (&c, flag) in classes.iter().zip(flags.iter_mut()) {
            let above = (c >= low[k]) & (c < top);
            n += above as u32;
            *flag |= (above & (c < high[k])) as u8;
        }
        from[k] = n;
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

/// Four numbers of 16 bits.
#[cfg(target_arch = "x86_64")]
const fn four(x: u64) -> u64 {
    x * 0x0001_0001_0001_0001
}

/// Adds the places of a mask, of which mostly few bits are set; `place` makes
/// four of four numbers of bits.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn put(index: &mut Index, n: &mut usize, mut mask: u64, place: impl Fn(u64) -> u64) {
    let end = *n + mask.count_ones() as usize;
    // Some at a time, to guess less often how many there are.
    loop {
        let mut bits = 0;
        for k in 0..4 {
            bits |= (mask.trailing_zeros() as u64) << (16 * k);
            mask &= mask.wrapping_sub(1);
        }
        let Some(to) = index.get_mut(*n..).and_then(<[u16]>::first_chunk_mut::<4>) else { break };
        *to = pulp::cast(place(bits));
        *n += 4;
        if *n >= end {
            break;
        }
    }
    *n = end;
}

#[cfg(target_arch = "x86_64")]
impl<const N: usize> pulp::NullaryFnOnce for Run512<'_, N> {
    type Output = (usize, [u32; RANGES]);

    #[inline(always)]
    fn call(self) -> (usize, [u32; RANGES]) {
        use pulp::cast;
        use std::arch::x86_64::{__m512, __m512i};
        let (f, w) = (self.v4.avx512f, self.v4.avx512bw);
        let half = self.f.t == DType::F16;
        // Upper halves of `f64`; of `f32` two classes side by side.
        let all = |c: u32| f._mm512_set1_epi32(if N == 8 { c << 13 } else { c | c << 16 } as i32);
        let abs = f._mm512_set1_epi32(if N == 8 { i32::MAX } else { 0x7fff_7fff });
        let top = all(infinity(self.f.t));
        let ([l0, l1, l2, l3], [h0, h1, h2, h3]) = (self.f.low.map(all), self.f.high.map(all));
        let none = f._mm512_setzero_si512();
        let (mut n0, mut n1, mut n2, mut n3) = (none, none, none, none);
        // Known only when it runs: so additions are masked, not of masks.
        let one = std::hint::black_box(1);
        let one = f._mm512_set1_epi32(if N == 8 { one } else { one << 16 | one });
        let odd: __m512i = cast(std::array::from_fn::<u32, 16, _>(|i| 2 * i as u32 + 1));
        let upper = f._mm512_set1_epi32(!0xffff);
        let load = |b: &[[u8; N]]| -> __m512 {
            let bytes = b.as_flattened();
            match (bytes.first_chunk::<64>(), bytes.first_chunk::<32>()) {
                (Some(b), _) => cast(*b),
                (_, Some(b)) if half => f._mm512_cvtph_ps(cast(*b)),
                (_, Some(b)) => cast(f._mm512_slli_epi32::<16>(f._mm512_cvtepu16_epi32(cast(*b)))),
                _ => f._mm512_setzero_ps(),
            }
        };
        let (e, a) = (self.e, self.a);
        let mut n = 0;
        for (k, (e, a)) in e.as_chunks::<64>().0.iter().zip(a.as_chunks::<64>().0).enumerate() {
            let from = four(64 * k as u64);
            let mut mask = 0u64;
            if N == 8 {
                let parts = e.as_chunks::<16>().0.iter().zip(a.as_chunks::<16>().0);
                for (h, (e, a)) in parts.enumerate() {
                    let [e, a] = [e, a].map(|b| b.as_flattened().first_chunk::<128>());
                    let (Some(e), Some(a)) = (e, a) else { break };
                    let (e, a): ([_; 2], [_; 2]) = (cast(*e), cast(*a));
                    let d = [f._mm512_sub_pd(a[0], e[0]), f._mm512_sub_pd(a[1], e[1])];
                    let d = f._mm512_permutex2var_epi32(cast(d[0]), odd, cast(d[1]));
                    let d = f._mm512_and_si512(d, abs);
                    let finite = f._mm512_cmplt_epi32_mask(d, top);
                    let test = |n: &mut __m512i, low, high| {
                        let m = f._mm512_mask_cmpge_epi32_mask(finite, d, low);
                        *n = f._mm512_mask_add_epi32(*n, m, *n, one);
                        f._mm512_mask_cmplt_epi32_mask(m, d, high)
                    };
                    let (m0, m1) = (test(&mut n0, l0, h0), test(&mut n1, l1, h1));
                    let (m2, m3) = (test(&mut n2, l2, h2), test(&mut n3, l3, h3));
                    mask |= ((m0 | m1 | m2 | m3) as u64) << (16 * h);
                }
                put(self.index, &mut n, mask, |b| from + b);
            } else {
                let parts = e.as_chunks::<32>().0.iter().zip(a.as_chunks::<32>().0);
                for (h, (e, a)) in parts.enumerate() {
                    let ([e0, e1], [a0, a1]) = ([&e[..16], &e[16..]], [&a[..16], &a[16..]]);
                    let d0 = cast(f._mm512_sub_ps(load(a0), load(e0)));
                    let d1 = cast(f._mm512_sub_ps(load(a1), load(e1)));
                    let d0 = f._mm512_srli_epi32::<{ SHIFT[0] }>(d0);
                    let d = f._mm512_ternarylogic_epi32::<0xf8>(d0, d1, upper);
                    let d = f._mm512_and_si512(d, abs);
                    let finite = w._mm512_cmplt_epi16_mask(d, top);
                    let test = |n: &mut __m512i, low, high| {
                        let m = w._mm512_mask_cmpge_epi16_mask(finite, d, low);
                        *n = w._mm512_mask_add_epi16(*n, m, *n, one);
                        w._mm512_mask_cmplt_epi16_mask(m, d, high)
                    };
                    let (m0, m1) = (test(&mut n0, l0, h0), test(&mut n1, l1, h1));
                    let (m2, m3) = (test(&mut n2, l2, h2), test(&mut n3, l3, h3));
                    mask |= ((m0 | m1 | m2 | m3) as u64) << (32 * h);
                }
                // Classes of two vectors alternate.
                put(self.index, &mut n, mask, |b| {
                    let (h, i, odd) = (b & four(32), b & four(30), b & four(1));
                    from + h + (i >> 1) + (odd << 4)
                });
            }
        }
        let sum = |v: __m512i| {
            let pairs = w._mm512_madd_epi16(v, f._mm512_set1_epi16(1));
            f._mm512_reduce_add_epi32(if N == 8 { v } else { pairs }) as u32
        };
        (n, [sum(n0), sum(n1), sum(n2), sum(n3)])
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
                let mut classes = [0u32; CHUNK];
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
                    vec![cut(500)..cut(600), top..top],
                    vec![1..cut(100), cut(300)..cut(301) + 1, cut(900)..top],
                    vec![1..cut(10), cut(10)..cut(20), cut(20)..cut(30), cut(40)..top],
                ] {
                    let f = Filter::new(t, &ranges);
                    let (mut x, mut y) = ([0; CHUNK + 16], [0; CHUNK + 16]);
                    let (n, from) = f.run(&e, &a, &mut x);
                    x[..n].sort_unstable();
                    assert_eq!((n, from), f.run_any(&classes, &mut y), "{t} {kind} {ranges:?}");
                    assert_eq!(x[..n], y[..n]);
                    assert_eq!((n, from), f.run_few(&e, &a, &mut y));
                    let within = |c: &u32| ranges.iter().any(|r| r.contains(c)) && *c < top;
                    assert_eq!(classes.iter().filter(|c| within(c)).count(), n);
                    assert!(x[..n].iter().all(|&i| within(&classes[i as usize])));
                    let mut seen = Vec::new();
                    f.errors(&e, &a, &x[..n], &mut seen);
                    let of = |d: u64| class(t, 0.0, f64::from_bits(d));
                    let near = |(&d, &i): (&u64, &u16)| of(d).abs_diff(classes[i as usize]) < 2;
                    assert!(seen.len() == n && seen.iter().zip(&x).all(near));
                }
            }
        }
    }
}
