//! Chunks of `f32`, `bf16` and `f16` that differ by little: the same metrics as
//! [`crate::kernel`], most of them in 32 bits.
//!
//! A chunk is *near* if all values are finite, both sides have the same signs,
//! no `f32` or `bf16` is below [`LEAST`] but zeros, and no pair is farther apart
//! than an octave. Then differences are exact in `f32`, squares and products
//! are exact in `f64` (so that fused multiplication changes nothing), and what
//! depends on a threshold is decided in `f32` with a margin; a chunk with a
//! value within it is counted again in `f64`.

mod levels;
mod load;
mod sums;

use crate::decode::CHUNK;
use crate::hist;
use crate::kernel::{Params, Sums};
use multiversion::multiversion;
use scalify_ir::DType;

pub(crate) use levels::Levels;
pub(crate) use load::{first, over};

/// `2^-101` as bits of an `f32`: differences of values from here on are not
/// denormal.
const LEAST: u32 = 26 << 23;

/// Share by which thresholds are lowered: covers all roundings to `f32`.
const MARGIN: f64 = 1.0 - 1.0 / (1 << 20) as f64;

/// Pairs handled at a time in `f64`.
const PART: usize = 128;

/// Chunks with up to this number of unequal pairs are sparse.
const SPARSE: usize = 3 * PART;

/// Arrays of a chunk.
pub(crate) struct Near {
    /// Expected values without signs.
    pub(crate) e: [f32; CHUNK],
    /// `|actual| - |expected|`.
    pub(crate) d: [f32; CHUNK],
    /// Distances in units in the last place. `f32`: zeros before the first bit;
    /// else the distance, or 255.
    level: [u8; CHUNK],
    /// Distances of 16-bit types over 256.
    high: [u8; CHUNK],
    /// Cells, see [`hist::near_key`].
    pub(crate) keys: [u32; CHUNK],
    /// Place in the chunk of each pair held, if those that are equal are left
    /// out.
    index: [u16; CHUNK],
    sparse: bool,
    /// Pairs held.
    pub(crate) held: usize,
}

/// What decides how a chunk is handled.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// Largest bits without sign.
    hi: u32,
    /// Smallest bits without sign, less one: zeros wrap around.
    lo: u32,
    /// Bits in which sides differ.
    differ: u32,
    /// Largest distance in units in the last place.
    ulp: u32,
    /// Pairs that are not equal.
    unequal: u32,
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
    /// Denormals of both sides.
    pub(crate) denormal: [u64; 2],
}

/// Can chunks of this type be near?
pub(crate) fn handles(t: DType) -> bool {
    matches!(t, DType::F32 | DType::Bf16 | DType::F16)
}

/// Thresholds in `f32`, none above what it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest `f32` that is not above `atol`.
    above: f32,
    atol: f32,
    rtol: f32,
}

/// The largest `f32` that does not exceed `x >= 0`.
fn below(x: f64) -> f32 {
    let y = x.min(f32::MAX as f64) as f32;
    if y as f64 > x { f32::from_bits(y.to_bits() - 1) } else { y }
}

impl Limits {
    pub(crate) fn new(p: Params) -> Limits {
        Limits { above: below(p.atol), atol: below(p.atol * MARGIN), rtol: below(p.rtol * MARGIN) }
    }
}

/// Everything but distances in units in the last place. `within`: no error
/// exceeds a tolerance.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
fn measure(c: &mut Near, p: Params, l: Limits, max_rel: f32, within: bool, close: bool) -> Found {
    const N: usize = 32;
    let (mut max, mut least, mut rel) = ([0.0f32; N], [f32::MAX; N], [0.0f32; N]);
    let n = c.padded();
    let (ce, cd) = (&c.e[..n], &c.d[..n]);
    for (e, d) in ce.as_chunks::<N>().0.iter().zip(cd.as_chunks::<N>().0) {
        for i in 0..N {
            let (e, d) = (e[i], d[i].abs());
            max[i] = if d > max[i] { d } else { max[i] };
            least[i] = if e < least[i] { e } else { least[i] };
            let over = d - max_rel * e;
            rel[i] = if over > rel[i] { over } else { rel[i] };
        }
    }
    let most = |v: [f32; N]| sums::fold(v, |a, b| if b > a { b } else { a });
    let least = sums::fold(least, |a, b| if b < a { b } else { a });
    let max = most(max);
    let far = !within && max > l.atol && {
        let mut far = [0.0f32; N];
        for (e, d) in ce.as_chunks::<N>().0.iter().zip(cd.as_chunks::<N>().0) {
            for i in 0..N {
                let (e, d) = (e[i], d[i].abs());
                let t = l.rtol * e;
                let over = d - if t > l.atol { t } else { l.atol };
                far[i] = if over > far[i] { over } else { far[i] };
            }
        }
        most(far) > 0.0
    };
    for (i, ((e, d), k)) in ce.iter().zip(cd).zip(&mut c.keys).enumerate() {
        *k = hist::near_key(d.to_bits(), e.to_bits(), i);
    }
    let masked = least <= l.above;
    let rel_count =
        if masked { ce.iter().fold(0u32, |n, &e| n + (e > l.above) as u32) } else { n as u32 };
    let sums = sums::sums_of(c, p.atol, masked, close);
    let rel_count = rel_count as u64;
    Found { sums, rel_count, max_abs: max, rel: most(rel) > 0.0, far, ..Found::default() }
}

impl Near {
    pub(crate) fn new() -> Box<Near> {
        Box::new(Near {
            e: [0.0; CHUNK],
            d: [0.0; CHUNK],
            level: [0; CHUNK],
            high: [0; CHUNK],
            keys: [0; CHUNK],
            index: [0; CHUNK],
            sparse: false,
            held: 0,
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

    /// Keeps only pairs that are not equal.
    fn compress(&mut self) {
        let mut flags = [0u8; CHUNK];
        for i in 0..CHUNK {
            flags[i] = (self.d[i] != 0.0) as u8;
        }
        let mut n = 0;
        for (w, flags) in flags.as_chunks::<64>().0.iter().enumerate() {
            let mut word = 0u64;
            for (b, eight) in flags.as_chunks::<8>().0.iter().enumerate() {
                // Moves the lowest bits of eight bytes side by side.
                let bits = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
                word |= bits << (8 * b);
            }
            while word != 0 {
                let i = w * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                (self.e[n], self.d[n], self.index[n]) = (self.e[i], self.d[i], i as u16);
                n += 1;
            }
        }
        self.held = n;
        self.sparse = true;
        let end = self.padded();
        self.e[n..end].fill(1.0);
        self.d[n..end].fill(0.0);
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
    ) -> Option<Found> {
        macro_rules! load {
            ($n:literal, $f:ident) => {{
                let e = e.as_chunks::<$n>().0.first_chunk::<CHUNK>()?;
                let a = a.as_chunks::<$n>().0.first_chunk::<CHUNK>()?;
                load::$f(e, a, self)
            }};
        }
        let near = |k: &Look, infinity: u32, least: u32, octave: u32, sign: u32| {
            k.hi < infinity && k.lo >= least && k.ulp < octave && k.differ & sign == 0
        };
        let look = match t {
            DType::F32 => {
                let k = load!(4, f32);
                near(&k, 0xff << 23, LEAST, 1 << 23, 1 << 31).then_some(k)?
            }
            DType::Bf16 => {
                let k = load!(2, bf16);
                near(&k, 0xff << 7, LEAST >> 16, 1 << 7, 1 << 15).then_some(k)?
            }
            DType::F16 => {
                let k = load!(2, f16);
                near(&k, 0x1f << 10, 0, 1 << 10, 1 << 15).then_some(k)?
            }
            _ => return None,
        };
        let bits = match t {
            DType::F32 => 22,
            DType::Bf16 => 6,
            _ => 9,
        };
        // Without denormals of `f16`, errors are at most one part in `2^bits`
        // for each unit in the last place.
        let close = t != DType::F16 || look.lo >= 0x3ff;
        let within = close && look.ulp as f32 / (1u32 << bits) as f32 <= l.rtol;
        let denormal = if close { [0; 2] } else { denormal(self) };
        self.held = CHUNK;
        self.sparse = close && look.unequal as usize <= SPARSE;
        let mut whole = (0.0, 0);
        if self.sparse {
            whole = sums::squares(self, l.above);
            self.compress();
        }
        let mut found = measure(self, p, l, below(max_rel * MARGIN), within, close);
        if self.sparse {
            let s = &mut found.sums;
            (s.e2, found.rel_count) = whole;
            s.a2 += s.e2;
            s.ea += s.e2;
        }
        found.max_ulp = look.ulp;
        found.denormal = denormal;
        Some(found)
    }
}

impl Near {
    /// Measures a full chunk of which both sides are the same; `None` if some
    /// values are not finite or `f32` or `bf16` denormals.
    pub(crate) fn equal(&mut self, t: DType, e: &[u8], l: Limits) -> Option<Found> {
        let k = load::one(t, e, self);
        let (infinity, normal) = match t {
            DType::F32 => (0xff << 23, (1 << 23) - 1),
            DType::Bf16 => (0xff << 7, (1 << 7) - 1),
            _ => (0x1f << 10, 0),
        };
        if k.hi >= infinity || k.lo < normal {
            return None;
        }
        let (e2, rel_count) = sums::squares(self, l.above);
        let mut found = Found { rel_count, ..Found::default() };
        found.sums = Sums { e2, a2: e2, ea: e2, ..Sums::default() };
        if t == DType::F16 && k.lo < 0x3ff {
            self.d = [0.0; CHUNK];
            found.denormal = denormal(self);
        }
        Some(found)
    }
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
