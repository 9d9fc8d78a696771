//! Pairs of types of eight bits and less: there are only 65,536 different ones,
//! so that all metrics follow from how often each occurs.

use crate::ahead::Ahead;
use crate::decode::{Pair, Ulps, limits, table};
use crate::engine::{Gathered, Max, Options, insert};
use crate::kernel::Sums;
#[cfg(target_arch = "x86_64")]
use pulp::cast;
use scalify_ir::DType;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m512i;
use std::collections::BTreeMap;

/// Different pairs.
const PAIRS: usize = 1 << 16;

/// Positions are kept of up to this number of equal pairs.
pub(crate) const KEPT: usize = 32;

/// Pairs that differ by little have codes near one another.
#[inline(always)]
fn code(e: u8, a: u8) -> u16 {
    (a.wrapping_sub(e) as u16) << 8 | e as u16
}

/// The reverse of [`code`].
fn sides(code: u16) -> (u8, u8) {
    let e = code as u8;
    (e, e.wrapping_add((code >> 8) as u8))
}

/// Pairs counted between looks at what comes next.
const STEP: usize = 4096;

/// Pairs handled at a time.
const GROUP: usize = 64;

/// Up to this number of unequal pairs in a group those are counted one by one.
const SOME: u32 = 12;

/// Counts of one worker. Neighbours are counted apart: equal pairs in a row
/// would wait for one another.
pub(crate) struct Bytes {
    /// Equal pairs of groups in which most are, by value, less those that are in
    /// `plain` and not equal.
    same: Box<[[u32; 256]; 8]>,
    plain: Plain,
    integers: Option<Integers>,
    /// Are both sides of one type?
    same_type: bool,
    /// Others.
    counts: Box<[[u32; PAIRS]; 2]>,
    /// What did not fit into them.
    more: BTreeMap<u16, u64>,
    held: u64,
    /// How many positions are kept of each pair, and those.
    keep: u32,
    first: Vec<(u16, u64)>,
}

/// A kind of pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Kind {
    pub(crate) e: f64,
    pub(crate) a: f64,
    /// Distance in units in the last place, if types are the same.
    pub(crate) ulp: u64,
    pub(crate) count: u64,
}

/// Which of the pairs differ.
#[inline(always)]
fn unequal(e: &[u8; GROUP], a: &[u8; GROUP]) -> u64 {
    if e == a {
        return 0;
    }
    let mut mask = 0;
    for i in 0..GROUP {
        mask |= ((e[i] != a[i]) as u64) << i;
    }
    mask
}

/// Equal pairs of integers, of which nothing else matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plain {
    count: u64,
    /// Those above `atol`.
    above: u64,
    /// Sum of the squares of values.
    squares: u64,
}

impl Plain {
    /// Adds `n` pairs of one value, or takes them away.
    fn add(&mut self, magnitude: u8, most: u8, n: i64) {
        let square = (magnitude as i64).pow(2);
        self.count = self.count.wrapping_add_signed(n);
        self.above = self.above.wrapping_add_signed(if magnitude > most { n } else { 0 });
        self.squares = self.squares.wrapping_add_signed(n.wrapping_mul(square));
    }
}

/// Integers with bits of the same meaning on both sides.
#[derive(Clone, Copy)]
struct Integers {
    signed: bool,
    /// Magnitudes up to this one are not above `atol`.
    most: u8,
}

impl Integers {
    fn of(pair: &Pair, o: &Options) -> Option<Integers> {
        let signed = match pair.e {
            DType::S8 => true,
            DType::U8 => false,
            _ => return None,
        };
        let most = o.atol.min(255.0) as u8;
        (pair.e == pair.a && o.atol >= 0.0 && o.rtol >= 0.0).then_some(Integers { signed, most })
    }

    fn magnitude(self, bits: u8) -> u8 {
        if self.signed { (bits as i8).unsigned_abs() } else { bits }
    }
}

/// What is done of a group as a whole.
trait Whole {
    /// Which of the pairs differ.
    fn unequal(&self, e: &[u8; GROUP], a: &[u8; GROUP]) -> u64;

    /// Takes the values of a group, if it can.
    fn take(&mut self, e: &[u8; GROUP]) -> bool;
}

struct Scalar;

impl Whole for Scalar {
    #[inline(always)]
    fn unequal(&self, e: &[u8; GROUP], a: &[u8; GROUP]) -> u64 {
        unequal(e, a)
    }

    #[inline(always)]
    fn take(&mut self, _: &[u8; GROUP]) -> bool {
        false
    }
}

/// With instructions chosen by hand.
#[cfg(target_arch = "x86_64")]
struct Whole512 {
    v4: pulp::x86::V4,
    integers: Option<Integers>,
    groups: u64,
    above: __m512i,
    squares: [__m512i; 2],
}

#[cfg(target_arch = "x86_64")]
impl Whole for Whole512 {
    #[inline(always)]
    fn unequal(&self, e: &[u8; GROUP], a: &[u8; GROUP]) -> u64 {
        self.v4.avx512bw._mm512_cmpneq_epi8_mask(cast(*e), cast(*a))
    }

    #[inline(always)]
    fn take(&mut self, e: &[u8; GROUP]) -> bool {
        let Some(t) = self.integers else { return false };
        let (f, w) = (self.v4.avx512f, self.v4.avx512bw);
        let e = cast(*e);
        let m = if t.signed { w._mm512_abs_epi8(e) } else { e };
        // A byte and a sum hold what a step adds to them.
        const { assert!(STEP / GROUP < 256 && (STEP / GROUP) as i64 * 2 * 255 * 255 < 1 << 31) };
        let over = w._mm512_cmpgt_epu8_mask(m, f._mm512_set1_epi8(t.most as i8));
        self.above = w._mm512_mask_sub_epi8(self.above, over, self.above, f._mm512_set1_epi8(-1));
        let zero = f._mm512_setzero_si512();
        let halves = [w._mm512_unpacklo_epi8(m, zero), w._mm512_unpackhi_epi8(m, zero)];
        for (sum, x) in self.squares.iter_mut().zip(halves) {
            *sum = f._mm512_add_epi32(*sum, w._mm512_madd_epi16(x, x));
        }
        self.groups += 1;
        true
    }
}

/// [`count`] with them.
#[cfg(target_arch = "x86_64")]
struct Count512<'a, 'b> {
    v4: pulp::x86::V4,
    b: &'a mut Bytes,
    at: u64,
    e: &'a [u8],
    a: &'a [u8],
    ahead: &'a mut Ahead<'b>,
}

#[cfg(target_arch = "x86_64")]
impl pulp::NullaryFnOnce for Count512<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let none = self.v4.avx512f._mm512_setzero_si512();
        let (above, squares) = (none, [none; 2]);
        let integers = self.b.integers;
        let mut whole = Whole512 { v4: self.v4, integers, groups: 0, above, squares };
        count(self.b, self.at, self.e, self.a, self.ahead, &mut whole);
        if whole.groups > 0 {
            let plain = &mut self.b.plain;
            let bytes = cast::<_, [u8; 64]>(whole.above);
            let sums = whole.squares.map(cast::<_, [u32; 16]>);
            plain.count += whole.groups * GROUP as u64;
            plain.above += bytes.iter().map(|&n| n as u64).sum::<u64>();
            plain.squares += sums.iter().flatten().map(|&n| n as u64).sum::<u64>();
        }
    }
}

/// Positions of pairs that have not been met often.
struct First<'a> {
    list: &'a mut Vec<(u16, u64)>,
    keep: u32,
}

impl First<'_> {
    #[inline(always)]
    fn add(&mut self, counts: &[[u32; PAIRS]; 2], at: u64, code: u16, side: usize) {
        if counts[side][code as usize] < self.keep {
            self.list.push((code, at));
        }
    }
}

/// Counts up to [`STEP`] pairs.
#[inline(always)]
fn count(b: &mut Bytes, at: u64, e: &[u8], a: &[u8], ahead: &mut Ahead, whole: &mut impl Whole) {
    let ((eg, er), (ag, ar)) = (e.as_chunks::<GROUP>(), a.as_chunks::<GROUP>());
    let (same, counts, same_type) = (&mut *b.same, &mut *b.counts, b.same_type);
    let mut first = First { list: &mut b.first, keep: b.keep };
    for (g, (e, a)) in eg.iter().zip(ag).enumerate() {
        ahead.part(STEP / GROUP);
        let here = at + (g * GROUP) as u64;
        // Equal pairs of one type have no error, nor do they mismatch.
        let mut which = if same_type { whole.unequal(e, a) } else { u64::MAX };
        if which.count_ones() <= SOME {
            if !whole.take(e) {
                for e in e.as_chunks::<8>().0 {
                    for (n, &x) in same.iter_mut().zip(e) {
                        n[x as usize] = n[x as usize].wrapping_add(1);
                    }
                }
            }
            while which != 0 {
                let i = which.trailing_zeros() as usize % GROUP;
                which &= which - 1;
                let (e, code) = (e[i] as usize, code(e[i], a[i]));
                same[i % 8][e] = same[i % 8][e].wrapping_sub(1);
                first.add(counts, here + i as u64, code, i % 2);
                counts[i % 2][code as usize] += 1;
            }
            continue;
        }
        let mut codes = [0u16; GROUP];
        for i in 0..GROUP {
            codes[i] = code(e[i], a[i]);
        }
        while which != 0 {
            let i = which.trailing_zeros() as usize % GROUP;
            which &= which - 1;
            first.add(counts, here + i as u64, codes[i], i % 2);
        }
        let [even, odd] = &mut *counts;
        for [x, y] in codes.as_chunks::<2>().0 {
            even[*x as usize] += 1;
            odd[*y as usize] += 1;
        }
    }
    let from = at + (eg.len() * GROUP) as u64;
    for (i, (&x, &y)) in er.iter().zip(ar).enumerate() {
        let code = code(x, y);
        first.add(counts, from + i as u64, code, 0);
        counts[0][code as usize] += 1;
    }
}

impl Bytes {
    pub(crate) fn new(pair: &Pair, o: &Options) -> Bytes {
        let zeros = || vec![[0u32; PAIRS]; 2].into_boxed_slice().try_into();
        Bytes {
            same: Box::new([[0; 256]; 8]),
            plain: Plain::default(),
            integers: Integers::of(pair, o),
            same_type: pair.e == pair.a,
            counts: zeros().unwrap_or_else(|_| Box::new([[0; PAIRS]; 2])),
            more: BTreeMap::new(),
            held: 0,
            keep: o.worst.min(KEPT) as u32,
            first: Vec::new(),
        }
    }

    /// Can pairs be counted so?
    pub(crate) fn handles(p: &Pair) -> bool {
        let byte = |t: scalify_ir::DType| t.literal_bytes() == 1;
        byte(p.e) && byte(p.a) && !p.complex
    }

    /// Counts pairs from position `at` on; blocks come by growing position.
    pub(crate) fn add(&mut self, at: u64, e: &[u8], a: &[u8], mapped: bool) {
        for (c, (x, y)) in e.chunks(STEP).zip(a.chunks(STEP)).enumerate() {
            let mut ahead = Ahead::default();
            if mapped {
                let next = |b: &[u8]| b.len().min((c + 1) * STEP)..b.len().min((c + 2) * STEP);
                ahead = Ahead::new(
                    e.get(next(e)).unwrap_or_default(),
                    a.get(next(a)).unwrap_or_default(),
                );
            }
            let (at, e, a, ahead) = (at + (c * STEP) as u64, x, y, &mut ahead);
            #[cfg(target_arch = "x86_64")]
            if let Some(v4) = crate::simd::v4() {
                v4.vectorize(Count512 { v4, b: self, at, e, a, ahead });
                continue;
            }
            count(self, at, e, a, ahead, &mut Scalar);
        }
        self.held += e.len() as u64;
        if self.held > u32::MAX as u64 / 2 {
            self.spill();
        }
    }

    fn spill(&mut self) {
        for counts in self.same.iter_mut() {
            for (x, n) in counts.iter_mut().enumerate() {
                let n = std::mem::take(n);
                if let Some(t) = self.integers {
                    self.plain.add(t.magnitude(x as u8), t.most, n as i32 as i64);
                } else if n > 0 {
                    *self.more.entry(code(x as u8, x as u8)).or_default() += n as u64;
                }
            }
        }
        for counts in self.counts.iter_mut() {
            for (k, n) in counts.iter_mut().enumerate() {
                // Those that are left say that positions are kept already.
                let rest = (*n).min(self.keep);
                if *n > rest {
                    *self.more.entry(k as u16).or_default() += (*n - rest) as u64;
                    *n = rest;
                }
            }
        }
        self.held = 0;
    }
}

/// What all workers have counted.
struct Counts {
    plain: Plain,
    /// Other kinds by code.
    kinds: Vec<(u16, Kind)>,
    /// Positions of the first of each kind, not sorted.
    first: Vec<(u16, u64)>,
}

fn gather(pair: &Pair, workers: Vec<Bytes>) -> Counts {
    let mut counts = vec![0u64; PAIRS];
    let mut first = Vec::new();
    let (mut plain, mut integers) = (Plain::default(), None);
    for mut w in workers {
        w.spill();
        integers = w.integers;
        plain.count += w.plain.count;
        plain.above += w.plain.above;
        plain.squares += w.plain.squares;
        for side in w.counts.iter() {
            counts.iter_mut().zip(side).for_each(|(n, &m)| *n += m as u64);
        }
        for (k, n) in w.more {
            counts[k as usize] += n;
        }
        first.extend(w.first);
    }
    if let Some(t) = integers {
        for (x, n) in counts.iter_mut().enumerate().take(256) {
            let (x, n) = (x as u8, std::mem::take(n));
            plain.add(t.magnitude(x), t.most, n as i64);
        }
    }
    let (te, ta) = (table(pair.e), table(pair.a));
    let kinds = counts.iter().enumerate().filter(|(_, n)| **n > 0);
    let kind = |(k, &count): (usize, &u64)| {
        let (x, y) = sides(k as u16);
        let (x, y) = (x as usize, y as usize);
        let ulp = te.rank[x].abs_diff(ta.rank[y]) as u64;
        (k as u16, Kind { e: te.value[x], a: ta.value[y], ulp, count })
    };
    Counts { plain, kinds: kinds.map(kind).collect(), first }
}

/// The metrics of all pairs, and errors of finite ones with their counts.
pub(crate) fn settle(pair: &Pair, o: &Options, workers: Vec<Bytes>) -> (Gathered, Vec<(f64, u64)>) {
    let Counts { plain, kinds, mut first } = gather(pair, workers);
    first.sort_unstable();
    let ((tiny_e, max_e), (tiny_a, max_a)) = (limits(pair.e), limits(pair.a));
    let mut g = Gathered { bins: vec![0; 64], ..Gathered::default() };
    let mut errors = Vec::new();
    if plain.count > 0 {
        let e2 = plain.squares as f64;
        g.s.finite += plain.count;
        g.t.rel_count += plain.above;
        g.sums.push((0, Sums { e2, a2: e2, ea: e2, ..Sums::default() }));
        g.histogram.count(0.0, 0.0, plain.count);
        errors.push((0.0, plain.count));
    }
    let mut at = first.as_slice();
    for (code, k) in kinds {
        let own = at.partition_point(|f| f.0 == code);
        let (places, rest) = at.split_at(own);
        at = rest;
        let places = || places.iter().map(|p| p.1);
        let (e, a, n) = (k.e, k.a, k.count);
        for (x, side, tiny) in [(e, &mut g.s.e, tiny_e), (a, &mut g.s.a, tiny_a)] {
            side.count(x, tiny, n);
        }
        if !(e.is_finite() && a.is_finite()) {
            if g.s.not_finite(e, a, e == a, (max_e, max_a), n) {
                g.special.extend(places());
            }
            continue;
        }
        let (d, me, ma) = ((a - e).abs(), e.abs(), a.abs());
        let count = n as f64;
        let over = me > o.atol;
        g.s.finite += n;
        g.sums.push((
            code as u64,
            Sums {
                abs: count * d,
                square: count * (d * d),
                e2: count * (e * e),
                a2: count * (a * a),
                ea: count * (e * a),
                rel: if over { count * (d / me) } else { 0.0 },
            },
        ));
        let opposite = e.is_sign_negative() != a.is_sign_negative();
        let t = &mut g.t;
        t.rel_count += n * over as u64;
        t.sign_flips += n * (opposite && me > 0.0 && ma > 0.0) as u64;
        t.zero_signs += n * (opposite && me == 0.0 && ma == 0.0) as u64;
        t.not_allclose += n * (d > o.atol + o.rtol * me) as u64;
        t.not_xla += n * (d > o.atol && d / me > o.rtol) as u64;
        t.max_abs = t.max_abs.max(d);
        g.histogram.count(d, me, n);
        errors.push((d, n));
        let at = places().min().unwrap_or(0);
        if d > 0.0 {
            places().for_each(|at| insert(&mut g.worst, o.worst, Max { size: d, at }));
            if over {
                g.rel.take(Max { size: d / me, at });
            }
        }
        if pair.ulps != Ulps::None && k.ulp > 0 {
            g.ulp.take(Max { size: k.ulp, at });
            g.over += n * (k.ulp > o.ulp) as u64;
            g.bins.iter_mut().take(k.ulp.ilog2() as usize + 1).for_each(|b| *b += n);
        }
    }
    g.special.sort_unstable();
    g.special.truncate(o.worst);
    errors.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    (g, errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{MANY, general, measure};
    use scalify_tensors::Tensor;

    /// Counting pairs finds what handling each by itself does.
    #[test]
    fn counts_say_the_same() {
        let mut s = 9u64;
        let mut next = || {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (s >> 56) as u8
        };
        let pairs = [
            (DType::S8, DType::S8),
            (DType::U8, DType::U8),
            (DType::U8, DType::S8),
            (DType::S4, DType::S4),
            (DType::Pred, DType::Pred),
            (DType::F8E4M3Fn, DType::F8E4M3Fn),
            (DType::F8E5M2, DType::F8E5M2),
            (DType::F8E5M2, DType::F8E4M3),
            (DType::F8E8M0Fnu, DType::F8E8M0Fnu),
            (DType::F4E2M1Fn, DType::F4E2M1Fn),
        ];
        let n = MANY as usize + 7777;
        for (te, ta) in pairs {
            for near in [false, true] {
                let e: Vec<u8> = (0..n).map(|_| next()).collect();
                let a: Vec<u8> = e
                    .iter()
                    .map(|&x| match next() {
                        0..=20 if near => x ^ 1,
                        21 if near => x ^ 0x80,
                        _ if near => x,
                        y => y,
                    })
                    .collect();
                let t = |t, b| Tensor::new(t, [n as i64], b).unwrap();
                let (e, a) = (t(te, e), t(ta, a));
                let o = Options {
                    atol: 0.1,
                    rtol: 0.1,
                    ulp: 2,
                    worst: 7,
                    threads: 3,
                    ..Options::default()
                };
                let mut m = measure(&e, &a, &o).unwrap();
                let mut w = general(&e, &a, Pair::new(te, ta), &o).unwrap();
                let close = |x: f64, y: f64| x == y || (x - y).abs() <= 1e-12 * y.abs();
                assert!(close(m.mean_abs, w.mean_abs), "{te} {ta}");
                assert!(close(m.rmse, w.rmse), "{te} {ta}");
                assert!(close(m.mean_rel, w.mean_rel), "{te} {ta}");
                let (x, y) = (m.cosine.unwrap_or(2.0), w.cosine.unwrap_or(2.0));
                assert!((x - y).abs() < 1e-12, "{te} {ta}: {x} {y}");
                let (x, y) = (m.sqnr_db.unwrap_or(2.0), w.sqnr_db.unwrap_or(2.0));
                assert!(close(x, y) || (x - y).abs() < 1e-10, "{te} {ta}: {x} {y}");
                for m in [&mut m, &mut w] {
                    (m.mean_abs, m.rmse, m.mean_rel) = (0.0, 0.0, 0.0);
                    (m.cosine, m.sqnr_db) = (None, None);
                }
                let [m, w] = [m, w].map(|m| serde_json::to_string(&m).unwrap());
                assert_eq!(m, w, "{te} {ta} {near}");
            }
        }
    }

    #[test]
    fn large_counts_are_kept() {
        let pair = Pair::new(DType::U8, DType::U8);
        let mut b = Bytes::new(&pair, &Options { worst: 3, ..Options::default() });
        b.add(0, &[1; 4000], &[2; 4000], false);
        b.spill();
        b.add(4000, &[1; 1001], &[2; 1001], false);
        let Counts { kinds, first, .. } = gather(&pair, vec![b]);
        assert_eq!(kinds, [(code(1, 2), Kind { e: 1.0, a: 2.0, ulp: 1, count: 5001 })]);
        let mut at: Vec<u64> = first.iter().map(|f| f.1).collect();
        at.sort_unstable();
        assert_eq!(at[..4], [0, 1, 2, 3]);
    }
}
