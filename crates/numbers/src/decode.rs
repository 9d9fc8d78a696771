//! Blocks of elements as `f64`, and their distance in units in the last place.

use multiversion::multiversion;
use scalify_ir::DType;
use scalify_ir::dtype::DTypeClass;
use std::sync::OnceLock;

/// Elements handled at a time: the arrays of a [`Chunk`] stay in the first
/// level cache.
pub(crate) const CHUNK: usize = 1024;

/// A run of elements of both tensors. Unused elements at the end are zero.
pub(crate) struct Chunk {
    /// `actual - expected`; for complex numbers its modulus.
    pub(crate) d: [f64; CHUNK],
    /// Expected values; for complex numbers their moduli.
    pub(crate) e: [f64; CHUNK],
    /// Actual values, likewise.
    pub(crate) a: [f64; CHUNK],
    /// Distances in units in the last place, types of up to 32 bits.
    pub(crate) u: [u32; CHUNK],
    /// The same, types of 64 bits.
    pub(crate) w: [u64; CHUNK],
    /// Cells of the histogram.
    pub(crate) keys: [u32; CHUNK],
    /// Sum of the products of complex numbers.
    pub(crate) dot: f64,
}

impl Chunk {
    pub(crate) fn new() -> Box<Chunk> {
        Box::new(Chunk {
            d: [0.0; CHUNK],
            e: [0.0; CHUNK],
            a: [0.0; CHUNK],
            u: [0; CHUNK],
            w: [0; CHUNK],
            keys: [0; CHUNK],
            dot: 0.0,
        })
    }
}

/// What a pair of element types has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ulps {
    /// Types that differ.
    None,
    /// In [`Chunk::u`].
    Narrow,
    /// In [`Chunk::w`].
    Wide,
}

/// How elements of a pair of types are handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) e: DType,
    pub(crate) a: DType,
    pub(crate) ulps: Ulps,
    pub(crate) complex: bool,
}

impl Pair {
    pub(crate) fn new(e: DType, a: DType) -> Pair {
        let complex = e.is_complex() || a.is_complex();
        let ulps = match e.literal_bytes() {
            _ if e != a => Ulps::None,
            8 if !complex => Ulps::Wide,
            16 => Ulps::Wide,
            _ => Ulps::Narrow,
        };
        Pair { e, a, ulps, complex }
    }

    /// Fills only the expected values.
    pub(crate) fn fill_expected(&self, e: &[u8], n: usize, c: &mut Chunk) {
        values(self.e, e, &mut c.e);
        c.e[n..].fill(0.0);
    }

    /// The same as [`Pair::fill`] in one pass, for full chunks of one type of
    /// floats of 16 bits and more: are all values finite? `None` for others.
    pub(crate) fn fill_floats(&self, e: &[u8], a: &[u8], c: &mut Chunk) -> Option<bool> {
        macro_rules! both {
            ($f:ident) => {
                $f(e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?, c)
            };
        }
        if self.e != self.a || e.len() != CHUNK * self.e.literal_bytes() {
            return None;
        }
        Some(match self.e {
            DType::F32 => both!(both_f32),
            DType::F64 => both!(both_f64),
            DType::Bf16 => both!(both_bf16),
            DType::F16 => both!(both_f16),
            _ => return None,
        })
    }

    /// Fills a chunk from the bytes of `n` elements of each side; `n` is at
    /// most [`CHUNK`] and the slices have as many elements.
    pub(crate) fn fill(&self, e: &[u8], a: &[u8], n: usize, c: &mut Chunk) {
        if self.complex {
            complex(self, e, a, n, c);
        } else {
            values(self.e, e, &mut c.e);
            values(self.a, a, &mut c.a);
            difference(c);
            if self.e == self.a && matches!(self.e, DType::S64 | DType::U64) {
                exact64(self.e, e, a, c);
            } else {
                ulps(self.e, self.ulps, e, a, c);
            }
        }
        for v in [&mut c.d, &mut c.e, &mut c.a] {
            v[n..].fill(0.0);
        }
        c.u[n..].fill(0);
        c.w[n..].fill(0);
    }
}

/// Value and rank (distance from zero in representable values) of each code
/// of a type of eight bits or less.
pub(crate) struct Table {
    pub(crate) value: [f64; 256],
    pub(crate) rank: [i32; 256],
}

fn narrow_value(t: DType, code: u8) -> f64 {
    macro_rules! of {
        ($t:ident) => {
            f64::from(microfloat::$t::from_bits(code).to_f32())
        };
    }
    match t {
        DType::F8E5M2 => of!(f8e5m2),
        DType::F8E4M3 => of!(f8e4m3),
        DType::F8E4M3Fn => of!(f8e4m3fn),
        DType::F8E4M3B11Fnuz => of!(f8e4m3b11fnuz),
        DType::F8E3M4 => of!(f8e3m4),
        DType::F8E5M2Fnuz => of!(f8e5m2fnuz),
        DType::F8E4M3Fnuz => of!(f8e4m3fnuz),
        DType::F8E8M0Fnu => of!(f8e8m0fnu),
        DType::F4E2M1Fn => of!(f4e2m1fn),
        DType::F6E2M3Fn => of!(f6e2m3fn),
        DType::F6E3M2Fn => of!(f6e3m2fn),
        _ if t.is_signed() => f64::from(code as i8),
        _ => f64::from(code),
    }
}

/// The table of a type of eight bits or less.
pub(crate) fn table(t: DType) -> &'static Table {
    static TABLES: [OnceLock<Box<Table>>; 32] = [const { OnceLock::new() }; 32];
    static OTHER: OnceLock<Box<Table>> = OnceLock::new();
    TABLES.get(t as usize).unwrap_or(&OTHER).get_or_init(|| {
        let mut tab = Box::new(Table { value: [0.0; 256], rank: [0; 256] });
        // Codes beyond the width are those of their low bits.
        let mask = if t.is_int() || t.bits() >= 8 { 0xff } else { (1u16 << t.bits()) as u8 - 1 };
        for code in 0..=255u8 {
            tab.value[code as usize] = narrow_value(t, code & mask);
        }
        let mut seen: Vec<f64> = tab.value.iter().copied().filter(|v| v.is_finite()).collect();
        seen.push(0.0);
        // Both zeros are one value.
        seen.iter_mut().for_each(|v| *v += 0.0);
        seen.sort_by(f64::total_cmp);
        seen.dedup();
        let zero = seen.iter().position(|&v| v == 0.0).unwrap_or(0);
        for code in 0..256 {
            let v = tab.value[code] + 0.0;
            if let Ok(i) = seen.binary_search_by(|s| s.total_cmp(&v)) {
                tab.rank[code] = i as i32 - zero as i32;
            }
        }
        tab
    })
}

macro_rules! convert {
    ($bytes:expr, $out:expr, $t:ty, $f:expr) => {{
        const N: usize = size_of::<$t>();
        for (x, o) in $bytes.as_chunks::<N>().0.iter().zip($out.iter_mut()) {
            *o = $f(<$t>::from_le_bytes(*x));
        }
    }};
}

/// Values of real elements.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma+f16c"))]
pub(crate) fn values(t: DType, b: &[u8], out: &mut [f64]) {
    match t {
        DType::F32 => convert!(b, out, f32, |x| x as f64),
        DType::F64 => convert!(b, out, f64, |x| x),
        DType::Bf16 => convert!(b, out, u16, |x| f32::from_bits((x as u32) << 16) as f64),
        DType::F16 => convert!(b, out, u16, half_value),
        DType::S16 => convert!(b, out, i16, |x| x as f64),
        DType::U16 => convert!(b, out, u16, |x| x as f64),
        DType::S32 => convert!(b, out, i32, |x| x as f64),
        DType::U32 => convert!(b, out, u32, |x| x as f64),
        DType::S64 => convert!(b, out, i64, |x| x as f64),
        DType::U64 => convert!(b, out, u64, |x| x as f64),
        DType::C64 | DType::C128 => out.fill(0.0),
        _ => {
            let t = table(t);
            for (&x, o) in b.iter().zip(out.iter_mut()) {
                *o = t.value[x as usize];
            }
        }
    }
}

/// `f16` without branches, so that it vectorises: shifted into `f32`, whose
/// exponent is then corrected by a product that is exact also for denormals.
#[inline(always)]
pub(crate) fn half_value(x: u16) -> f64 {
    let x = x as u32;
    let v = f32::from_bits((x & 0x7fff) << 13) as f64 * f64::from_bits((1023 + 112) << 52);
    let special = (x & 0x7c00) == 0x7c00;
    let inf = f32::from_bits(0x7f80_0000 | (x & 0x3ff) << 13) as f64;
    let v = if special { inf } else { v };
    f64::from_bits(v.to_bits() | ((x as u64 & 0x8000) << 48))
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
fn difference(c: &mut Chunk) {
    for i in 0..CHUNK {
        c.d[i] = c.a[i] - c.e[i];
    }
}

/// Differences of 64-bit integers, exact before they become `f64`.
fn exact64(t: DType, e: &[u8], a: &[u8], c: &mut Chunk) {
    let pairs = e.as_chunks::<8>().0.iter().zip(a.as_chunks::<8>().0);
    for (i, (x, y)) in pairs.enumerate() {
        let (size, less) = if t == DType::S64 {
            let (x, y) = (i64::from_le_bytes(*x), i64::from_le_bytes(*y));
            (x.abs_diff(y), y < x)
        } else {
            let (x, y) = (u64::from_le_bytes(*x), u64::from_le_bytes(*y));
            (x.abs_diff(y), y < x)
        };
        c.w[i] = size;
        c.d[i] = if less { -(size as f64) } else { size as f64 };
    }
}

/// Bits to a number that grows with the value by one per representable value.
#[inline(always)]
fn order32(b: u32) -> i32 {
    let m = (b & 0x7fff_ffff) as i32;
    if (b as i32) < 0 { -m } else { m }
}

#[inline(always)]
fn order64(b: u64) -> i64 {
    let m = (b & (u64::MAX >> 1)) as i64;
    if (b as i64) < 0 { -m } else { m }
}

#[inline(always)]
fn order16(b: u16) -> i32 {
    let m = (b & 0x7fff) as i32;
    if (b as i16) < 0 { -m } else { m }
}

macro_rules! distances {
    ($e:expr, $a:expr, $out:expr, $n:literal, $t:ty, $o:expr) => {
        for ((x, y), o) in
            $e.as_chunks::<$n>().0.iter().zip($a.as_chunks::<$n>().0).zip($out.iter_mut())
        {
            *o = $o(<$t>::from_le_bytes(*x)).abs_diff($o(<$t>::from_le_bytes(*y)));
        }
    };
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
fn ulps(t: DType, which: Ulps, e: &[u8], a: &[u8], c: &mut Chunk) {
    if which == Ulps::None {
        return;
    }
    match t {
        DType::F32 => distances!(e, a, c.u, 4, u32, order32),
        DType::F16 | DType::Bf16 => distances!(e, a, c.u, 2, u16, order16),
        DType::F64 => distances!(e, a, c.w, 8, u64, order64),
        DType::S16 => distances!(e, a, c.u, 2, i16, |x: i16| x as i32),
        DType::U16 => distances!(e, a, c.u, 2, u16, |x: u16| x as i32),
        DType::S32 => distances!(e, a, c.u, 4, i32, |x: i32| x),
        DType::U32 => distances!(e, a, c.u, 4, u32, |x: u32| x),
        _ if t.class() == DTypeClass::Complex => {}
        _ => {
            let t = table(t);
            for ((&x, &y), o) in e.iter().zip(a).zip(c.u.iter_mut()) {
                *o = t.rank[x as usize].abs_diff(t.rank[y as usize]);
            }
        }
    }
}

macro_rules! both {
    ($name:ident, $t:ty, $n:literal, $value:expr, $order:expr, $out:ident) => {
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw",
            "x86_64+avx2+fma+f16c"
        ))]
        fn $name(e: &[[u8; $n]; CHUNK], a: &[[u8; $n]; CHUNK], c: &mut Chunk) -> bool {
            let (value, order) = ($value, $order);
            let mut bad = 0u64;
            for i in 0..CHUNK {
                let (x, y) = (<$t>::from_le_bytes(e[i]), <$t>::from_le_bytes(a[i]));
                let (v, w): (f64, f64) = (value(x), value(y));
                (c.e[i], c.a[i], c.d[i]) = (v, w, w - v);
                c.$out[i] = order(x).abs_diff(order(y));
                bad |= !((v.abs() < f64::INFINITY) & (w.abs() < f64::INFINITY)) as u64;
            }
            bad == 0
        }
    };
}

both!(both_f32, u32, 4, |x| f32::from_bits(x) as f64, order32, u);
both!(both_f64, u64, 8, f64::from_bits, order64, w);
both!(both_bf16, u16, 2, |x| f32::from_bits((x as u32) << 16) as f64, order16, u);
both!(both_f16, u16, 2, half_value, order16, u);

/// Real and imaginary part of element `i`; a real type has no imaginary part.
pub(crate) fn parts(t: DType, b: &[u8], i: usize) -> (f64, f64) {
    let size = t.literal_bytes();
    let Some(x) = b.get(i * size..(i + 1) * size) else {
        return (0.0, 0.0);
    };
    let mut v = [0.0; 2];
    match t.complex_part() {
        Some(part) => values(part, x, &mut v),
        None => values(t, x, &mut v[..1]),
    }
    (v[0], v[1])
}

fn modulus((re, im): (f64, f64)) -> f64 {
    if re.is_nan() || im.is_nan() { f64::NAN } else { re.hypot(im) }
}

fn complex(p: &Pair, e: &[u8], a: &[u8], n: usize, c: &mut Chunk) {
    c.dot = 0.0;
    for i in 0..n {
        let (x, y) = (parts(p.e, e, i), parts(p.a, a, i));
        c.e[i] = modulus(x);
        c.a[i] = modulus(y);
        if c.e[i].is_finite() && c.a[i].is_finite() {
            c.d[i] = modulus((y.0 - x.0, y.1 - x.1));
            c.dot += x.0 * y.0 + x.1 * y.1;
        } else {
            // Zero says that both are the same infinity.
            c.d[i] = if x == y { 0.0 } else { f64::NAN };
        }
        // The worse of the parts.
        match p.ulps {
            Ulps::Narrow => {
                let far = |x: f64, y: f64| {
                    order32((x as f32).to_bits()).abs_diff(order32((y as f32).to_bits()))
                };
                c.u[i] = far(x.0, y.0).max(far(x.1, y.1));
            }
            Ulps::Wide => {
                let far = |x: f64, y: f64| order64(x.to_bits()).abs_diff(order64(y.to_bits()));
                c.w[i] = far(x.0, y.0).max(far(x.1, y.1));
            }
            Ulps::None => {}
        }
    }
}

/// Smallest normal and largest finite value; `(0, inf)` for what has none.
pub(crate) fn limits(t: DType) -> (f64, f64) {
    let p = |e: i32| 2f64.powi(e);
    match t {
        DType::F32 => (p(-126), f32::MAX as f64),
        DType::F64 => (f64::MIN_POSITIVE, f64::MAX),
        DType::Bf16 => (p(-126), f32::from_bits(0x7f7f_0000) as f64),
        DType::F16 => (p(-14), 65504.0),
        _ if t.is_float() => {
            let max = table(t).value.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
            let normal = match t {
                DType::F8E5M2 => p(-14),
                DType::F8E4M3 | DType::F8E4M3Fn => p(-6),
                DType::F8E3M4 => p(-2),
                DType::F8E5M2Fnuz => p(-15),
                DType::F8E4M3Fnuz => p(-7),
                DType::F8E4M3B11Fnuz => p(-10),
                DType::F6E2M3Fn | DType::F4E2M1Fn => 1.0,
                DType::F6E3M2Fn => p(-2),
                _ => 0.0,
            };
            (normal, max)
        }
        _ => (0.0, f64::INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_halves() {
        for b in 0..=u16::MAX {
            let (x, y) = (half_value(b), half::f16::from_bits(b).to_f64());
            assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(), "{b:#x} {x} {y}");
        }
    }

    #[test]
    fn one_pass_fills_the_same() {
        let mut s = 1u64;
        for t in [DType::F32, DType::F64, DType::Bf16, DType::F16] {
            for special in [false, true] {
                let mut bytes = || -> Vec<u8> {
                    let size = t.literal_bytes();
                    let all = (0..CHUNK * size).map(|i| {
                        s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        // Without the exponent's second bit values are finite.
                        let last = i % size == size - 1 && !special;
                        (s >> 56) as u8 & if last { 0xbf } else { 0xff }
                    });
                    all.collect()
                };
                let (e, a) = (bytes(), bytes());
                let (mut x, mut y) = (Chunk::new(), Chunk::new());
                let pair = Pair::new(t, t);
                assert_eq!(pair.fill_floats(&e, &a, &mut x), Some(!special), "{t}");
                pair.fill(&e, &a, CHUNK, &mut y);
                let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                for (x, y) in [(&x.e, &y.e), (&x.a, &y.a), (&x.d, &y.d)] {
                    assert_eq!(bits(x), bits(y), "{t}");
                }
                assert_eq!((x.u, x.w), (y.u, y.w), "{t}");
                assert_eq!(pair.fill_floats(&e[8..], &a[8..], &mut x), None);
            }
        }
    }

    #[test]
    fn ranks_count_values() {
        // 1.0 and the next larger value of each format.
        for t in [DType::F8E4M3Fn, DType::F8E5M2, DType::F4E2M1Fn, DType::F8E8M0Fnu] {
            let tab = table(t);
            let one = (0..256).find(|&i| tab.value[i] == 1.0).unwrap();
            assert_eq!(tab.rank[one + 1] - tab.rank[one], 1, "{t}");
        }
        let t = table(DType::F8E5M2);
        assert_eq!((t.rank[0], t.rank[0x80]), (0, 0));
        assert_eq!(t.rank[0x81], -1);
    }
}
