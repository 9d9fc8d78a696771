//! Chunks of `f32`, `bf16` and `f16` that differ by little: the same metrics as
//! [`crate::kernel`], most of them in 32 bits.
//!
//! A chunk is *near* if all values are finite, both sides have the same signs,
//! no `f32` or `bf16` is below [`LEAST`] but zeros, and no pair is farther apart
//! than an octave. Then differences are exact in `f32`, squares and products
//! are exact in `f64` (so that fused multiplication changes nothing), and what
//! depends on a threshold is decided in `f32` with a margin; a chunk with a
//! value within it is counted again in `f64`.

#[cfg(target_arch = "x86_64")]
mod dense;
#[cfg(target_arch = "x86_64")]
mod direct;
mod levels;
mod load;
mod pack;
mod places;
mod screen;
#[cfg(target_arch = "x86_64")]
mod sparse;
mod squares;
mod sums;

use crate::ahead::Ahead;
use crate::decode::CHUNK;
use crate::hist;
use crate::kernel::{Params, Sums};
use load::ROOM;
use multiversion::multiversion;
use places::Places;
use scalify_ir::DType;

pub(crate) use levels::Levels;
pub(crate) use load::{first, over};
pub(crate) use pack::each;
pub(crate) use screen::{FAR, SPECIAL, Screen, all_nan, blank, screen};

/// `2^-101` as bits of an `f32`: differences of values from here on are not
/// denormal.
const LEAST: u32 = 26 << 23;

/// Share by which thresholds are lowered: covers all roundings to `f32`.
const MARGIN: f64 = 1.0 - 1.0 / (1 << 20) as f64;

/// Pairs handled at a time in `f64`.
const PART: usize = 128;

/// Of chunks with up to this number of unequal pairs only those are kept.
const SPARSE: u32 = 2 * PART as u32;

/// Arrays of a chunk.
pub(crate) struct Near {
    /// Bits without signs of the pairs held.
    x: [u32; ROOM],
    y: [u32; ROOM],
    /// Expected values without signs.
    pub(crate) e: [f32; CHUNK],
    /// `|actual| - |expected|`.
    pub(crate) d: [f32; CHUNK],
    /// Distances in units in the last place, or 255, and over 256; of chunks
    /// with denormals only.
    level: [u8; CHUNK],
    high: [u8; CHUNK],
    /// Cells, see [`hist::short_key`].
    pub(crate) short: [u16; CHUNK],
    /// Cells, see [`hist::near_key`], of chunks with denormals.
    pub(crate) keys: [u32; CHUNK],
    /// Place in the chunk of each pair held, if those that are equal are left
    /// out.
    index: [u32; ROOM],
    sparse: bool,
    /// Pairs held.
    pub(crate) held: usize,
    /// To add to counts by powers of two that follow from cells.
    pub(crate) levels: [i64; 32],
    /// Places of far pairs that [`Near::dense`] left out, and of those whose
    /// exponents differ.
    pub(crate) far: Places,
    cross: Places,
    /// Which way is worth trying first, and are errors beyond tolerances
    /// counted on it? Both only matter for speed.
    pub(crate) way: Way,
    count: bool,
    /// How often in a row too many pairs differed for [`Way::Sparse`].
    many: u8,
}

/// How chunks are handled at first, without a look at them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Most pairs differ.
    Dense,
    /// Most pairs are equal.
    Sparse,
    /// Not at all.
    Look,
}

/// What decides how a chunk is handled.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// Largest bits without sign.
    hi: u32,
    /// Smallest bits without sign, less one: zeros wrap around.
    lo: u32,
    /// Smallest bits without sign.
    min: u32,
    /// Bits in which sides differ.
    differ: u32,
    /// Largest distance in units in the last place.
    ulp: u32,
    /// Pairs that are not equal.
    unequal: u32,
    /// Expected values above `atol`.
    above: u32,
}

/// Result of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) sums: Sums,
    pub(crate) max_abs: f32,
    pub(crate) rel_count: u64,
    pub(crate) max_ulp: u32,
    /// May a relative error exceed the one known?
    pub(crate) rel: bool,
    /// May an error exceed a tolerance?
    pub(crate) far: bool,
    /// How many do, if that is known.
    pub(crate) not_close: Option<[u64; 2]>,
    /// Are cells in [`Near::short`]?
    pub(crate) close: bool,
    /// Are cells counted?
    pub(crate) counted: bool,
    /// Denormals of both sides.
    pub(crate) denormal: [u64; 2],
}

/// Can chunks of this type be near?
pub(crate) fn handles(t: DType) -> bool {
    matches!(t, DType::F32 | DType::Bf16 | DType::F16)
}

/// Bits of the fraction of a type that is handled, else 0.
pub(crate) fn fraction(t: DType) -> u32 {
    Kind::of(t).map_or(0, |k| k.bits)
}

/// Bits that an `f32` has more.
fn shift(t: DType) -> u32 {
    23 - fraction(t)
}

/// Thresholds in `f32`, none above what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest `f32` that is not above `atol`, and bits of the largest value
    /// of the type.
    above: f32,
    bits: u32,
    atol: f32,
    rtol: f32,
}

/// The largest `f32` that does not exceed `x >= 0`.
fn below(x: f64) -> f32 {
    let y = x.min(f32::MAX as f64) as f32;
    if y as f64 > x { f32::from_bits(y.to_bits() - 1) } else { y }
}

impl Limits {
    pub(crate) fn new(t: DType, p: Params) -> Limits {
        let above = below(p.atol);
        let bits = match Kind::of(t) {
            Some(k) if t != DType::F32 => {
                let (mut low, mut high) = (0, k.infinity + 1);
                while high - low > 1 {
                    let x = low.midpoint(high);
                    *(if load::value(t, x) <= above { &mut low } else { &mut high }) = x;
                }
                low
            }
            _ => above.to_bits(),
        };
        Limits { above, bits, atol: below(p.atol * MARGIN), rtol: below(p.rtol * MARGIN) }
    }
}

/// May errors of the pairs held exceed a tolerance?
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
fn far(c: &Near, l: Limits) -> bool {
    let n = c.padded();
    let mut far = 0i32;
    for (&e, &d) in c.e[..n].iter().zip(&c.d[..n]) {
        let t = l.rtol * e;
        let over = d.abs() - if t > l.atol { t } else { l.atol };
        far = far.max(over.to_bits() as i32);
    }
    far > 0
}

/// What a type has.
struct Kind {
    /// Bits of infinity, of one.
    infinity: u32,
    one: u32,
    /// Least bits of what is not zero.
    least: u32,
    /// Bits of the fraction.
    bits: u32,
    sign: u32,
}

impl Kind {
    fn of(t: DType) -> Option<Kind> {
        Some(match t {
            DType::F32 => {
                Kind { infinity: 0xff << 23, one: 127 << 23, least: LEAST, bits: 23, sign: 1 << 31 }
            }
            DType::Bf16 => Kind {
                infinity: 0xff << 7,
                one: 127 << 7,
                least: LEAST >> 16,
                bits: 7,
                sign: 1 << 15,
            },
            DType::F16 => {
                Kind { infinity: 0x1f << 10, one: 15 << 10, least: 0, bits: 10, sign: 1 << 15 }
            }
            _ => return None,
        })
    }
}

impl Near {
    pub(crate) fn new() -> Box<Near> {
        Box::new(Near {
            x: [0; ROOM],
            y: [0; ROOM],
            e: [0.0; CHUNK],
            d: [0.0; CHUNK],
            level: [0; CHUNK],
            high: [0; CHUNK],
            short: [0; CHUNK],
            keys: [0; CHUNK],
            index: [0; ROOM],
            sparse: false,
            held: 0,
            levels: [0; 32],
            far: Places::new(),
            cross: Places::new(),
            way: Way::Dense,
            count: false,
            many: 0,
        })
    }

    /// Place in the chunk of pair `i` of those held.
    pub(crate) fn place(&self, i: usize) -> u64 {
        if self.sparse { self.index[i] as u64 } else { i as u64 }
    }

    /// Expected values and differences of the pairs held.
    fn pairs(&self) -> impl Iterator<Item = (&f32, &f32)> {
        self.e[..self.held].iter().zip(&self.d[..self.held])
    }

    /// Pairs held, with empty ones up to whole parts.
    fn padded(&self) -> usize {
        self.held.next_multiple_of(PART).min(CHUNK)
    }

    /// Measures a full chunk if it is near. `max_rel` is the largest relative
    /// error known.
    pub(crate) fn run(
        &mut self,
        t: DType,
        e: &[u8],
        a: &[u8],
        p: Params,
        l: Limits,
        max_rel: f64,
        ahead: &mut Ahead,
    ) -> Option<Found> {
        let kind = Kind::of(t)?;
        let look = if t == DType::F32 {
            let (e, a) = (e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?);
            load::look32(e, a, l.bits)
        } else {
            let (e, a) = (e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?);
            load::look16(e, a, l.bits)
        };
        ahead.part(8);
        if look.hi >= kind.infinity
            || look.lo < kind.least
            || look.ulp >> kind.bits != 0
            || look.differ & kind.sign != 0
        {
            self.way = Way::Look;
            return None;
        }
        // Without denormals of `f16`, errors are at most one part in `2^bits`
        // for each unit in the last place.
        let mut close = t != DType::F16 || look.lo >= 0x3ff;
        let mut denormals = 0;
        if !close && look.unequal <= SPARSE {
            let (e16, a16) = (e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?);
            pack::pack::<2>(e16, a16, look.unequal, kind.one, self);
            // Of equal pairs denormals do not matter.
            let held = self.x[..self.held].iter().zip(&self.y[..self.held]);
            close =
                held.map(|(&x, &y)| x.wrapping_sub(1).min(y.wrapping_sub(1))).all(|x| x >= 0x3ff);
            denormals = if close { load::denormals(e) } else { 0 };
        }
        let parts = (1u32 << (kind.bits - 1)) as f32;
        let within = close && look.ulp as f32 / parts <= l.rtol;
        let sparse = close && look.unequal <= SPARSE;
        if close {
            self.way = if sparse { Way::Sparse } else { Way::Dense };
        }
        self.far.clear();
        let mut whole = 0.0;
        if sparse {
            whole = squares::squares(t, e, close && denormals == 0);
            ahead.part(4);
        }
        let max_rel = below(max_rel * MARGIN);
        let most = if t == DType::F32 {
            let (e, a) = (e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?);
            if sparse {
                pack::pack(e, a, look.unequal, kind.one, self);
                ahead.part(4);
                load::values(t, self, close, max_rel)
            } else {
                load::all_f32(e, a, self, max_rel)
            }
        } else {
            let (e, a) = (e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?);
            if sparse {
                pack::pack(e, a, look.unequal, kind.one, self);
                ahead.part(4);
                load::values(t, self, close, max_rel)
            } else if !close {
                load::spread16(e, a, self);
                load::values(t, self, close, max_rel)
            } else if t == DType::F16 {
                load::all_f16(e, a, self, max_rel)
            } else {
                load::all_bf16(e, a, self, max_rel)
            }
        };
        ahead.part(8);
        let masked = load::value(t, look.min) <= l.above;
        let mut found = self.rest(look, most, p, l, close, masked, within, whole);
        ahead.part(8);
        found.denormal = [denormals; 2];
        if !close {
            load::levels(self);
            found.denormal = denormal(self);
        } else if look.differ & kind.infinity != 0 {
            if !self.sparse {
                self.spread(e, a);
            }
            self.crossings(&kind);
        }
        Some(found)
    }

    /// What is left to measure once the pairs held have values. `whole` is the
    /// sum of the squares of expected values if only some are held.
    fn rest(
        &mut self,
        look: Look,
        most: load::Most,
        p: Params,
        l: Limits,
        close: bool,
        masked: bool,
        within: bool,
        whole: f64,
    ) -> Found {
        let mut found = Found {
            sums: sums::sums_of(self, p.atol, masked, close),
            max_abs: most.abs,
            rel_count: look.above as u64,
            rel: most.rel,
            far: !within && most.abs > l.atol && far(self, l),
            max_ulp: look.ulp,
            close,
            ..Found::default()
        };
        if self.sparse {
            let s = &mut found.sums;
            s.e2 = whole;
            s.a2 += s.e2;
            s.ea += s.e2;
        }
        found
    }

    /// One side with zeros where pairs were left out.
    pub(crate) fn without_far(&self, t: DType, b: &[u8]) -> Vec<u8> {
        let (mut b, size) = (b.to_vec(), t.literal_bytes());
        for i in self.far.all().iter().map(|&i| i as usize * size) {
            b.get_mut(i..i + size).unwrap_or_default().fill(0);
        }
        b
    }

    /// Fills the bits of all pairs.
    fn spread(&mut self, e: &[u8], a: &[u8]) {
        let wide = (e.as_chunks().0.first_chunk(), a.as_chunks().0.first_chunk());
        let narrow = (e.as_chunks().0.first_chunk(), a.as_chunks().0.first_chunk());
        match (wide, narrow) {
            ((Some(e), Some(a)), _) => load::spread32(e, a, self),
            (_, (Some(e), Some(a))) => load::spread16(e, a, self),
            _ => {}
        }
    }

    /// Distances of pairs whose exponents differ do not follow from cells.
    fn crossings(&mut self, kind: &Kind) {
        let mut flags = [0u8; CHUNK];
        load::mark(self, kind.infinity, &mut flags);
        flags[self.held..].fill(0);
        let mut levels = self.levels;
        pack::each(&flags, |i| {
            let level = (self.x[i].abs_diff(self.y[i]) | 1).ilog2() as usize;
            levels[level & 31] += 1;
            if let Some(n) = hist::short_level(self.short[i], kind.bits) {
                levels[n & 31] -= 1;
            }
        });
        self.levels = levels;
    }
}

/// Measures a full chunk of which both sides are the same; `None` if some
/// values are not finite or `f32` or `bf16` denormals.
pub(crate) fn equal(t: DType, e: &[u8], l: Limits) -> Option<Found> {
    let kind = Kind::of(t)?;
    let k = if t == DType::F32 {
        load::one32(e.as_chunks().0.first_chunk()?, l.bits)
    } else {
        load::one16(e.as_chunks().0.first_chunk()?, l.bits)
    };
    let normal = 1u32 << kind.bits;
    let close = k.lo >= normal - 1;
    if k.hi >= kind.infinity || !(close || t == DType::F16) {
        return None;
    }
    let e2 = squares::squares(t, e, close);
    let mut found = Found {
        rel_count: k.above as u64,
        sums: Sums { e2, a2: e2, ea: e2, ..Sums::default() },
        ..Found::default()
    };
    if !close {
        found.denormal = [load::denormals(e); 2];
    }
    Some(found)
}

/// Denormals of `f16` on both sides.
fn denormal(c: &Near) -> [u64; 2] {
    let tiny = f32::from_bits((127 - 14) << 23);
    let mut n = [0u64; 2];
    for (&e, &d) in c.e.iter().zip(&c.d) {
        let a = e + d;
        n[0] += (e < tiny && e > 0.0) as u64;
        n[1] += (a < tiny && a > 0.0) as u64;
    }
    n
}

/// Largest relative error.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
pub(crate) fn max_rel(c: &Near, atol: f64) -> f64 {
    // Sizes of floats that are not negative are ordered like their bits.
    let mut max = 0i64;
    for (&e, &d) in c.pairs() {
        let (e, d) = (e as f64, (d as f64).abs());
        let q = if e > atol { d / e } else { 0.0 };
        max = max.max(q.to_bits() as i64);
    }
    f64::from_bits(max as u64)
}

/// How many errors exceed the tolerances of `allclose` and of `xla`.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
pub(crate) fn not_close(c: &Near, p: Params) -> [u64; 2] {
    let (mut close, mut xla, mut maybe) = (0u64, 0u64, 0u64);
    // Away from equality a product decides as the quotient does.
    let (low, high) = (1.0 - f64::EPSILON * 4.0, 1.0 + f64::EPSILON * 4.0);
    for (&e, &d) in c.pairs() {
        let (e, d) = (e as f64, (d as f64).abs());
        let t = p.rtol * e;
        close = close.wrapping_add((d > p.atol + t) as u64);
        let above = (d > p.atol) & (d > t * low);
        maybe = maybe.wrapping_add(above as u64);
        xla = xla.wrapping_add((above & (d > t * high)) as u64);
    }
    if xla != maybe {
        let far = |(&e, &d): (&f32, &f32)| {
            let (e, d) = (e as f64, (d as f64).abs());
            d > p.atol && d / e > p.rtol
        };
        xla = c.pairs().filter(|&x| far(x)).count() as u64;
    }
    [close, xla]
}
