//! What a chunk is like, from the bits of both sides, and its pairs.

use super::{Look, Near};
use crate::decode::CHUNK;
use crate::hist;
use multiversion::multiversion;
use scalify_ir::DType;

const ABS: u32 = 0x7fff_ffff;

pub(super) const ABS16: u16 = 0x7fff;

/// Arrays with room behind for a whole vector.
pub(super) const ROOM: usize = CHUNK + 16;

macro_rules! look {
    ($name:ident, $t:ty, $n:literal, $abs:expr) => {
        /// Looks at both sides. `limit` is in bits.
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        pub(super) fn $name(e: &[[u8; $n]; CHUNK], a: &[[u8; $n]; CHUNK], limit: u32) -> Look {
            let (limit, mut above) = (limit as $t, 0 as $t);
            let (mut hi, mut lo, mut differ, mut ulp) = (0 as $t, <$t>::MAX, 0 as $t, 0 as $t);
            let (mut unequal, mut min) = (0 as $t, <$t>::MAX);
            for i in 0..CHUNK {
                let (x, y) = (<$t>::from_le_bytes(e[i]), <$t>::from_le_bytes(a[i]));
                let (mx, my) = (x & $abs, y & $abs);
                let (most, least) = (mx.max(my), mx.min(my));
                hi = hi.max(most);
                min = min.min(least);
                lo = lo.min(mx.wrapping_sub(1)).min(my.wrapping_sub(1));
                differ |= x ^ y;
                let u = most - least;
                ulp = ulp.max(u);
                unequal += (u != 0) as $t;
                above += (mx > limit) as $t;
            }
            Look {
                hi: hi as u32,
                lo: lo as u32,
                min: min as u32,
                differ: differ as u32,
                ulp: ulp as u32,
                unequal: unequal as u32,
                above: above as u32,
            }
        }
    };
}

look!(look32, u32, 4, ABS);
look!(look16, u16, 2, ABS16);

/// Looks at the pairs held, and takes their signs away.
#[cfg(target_arch = "x86_64")]
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
pub(super) fn look_held(c: &mut Near, sign: u32) -> Look {
    let n = c.padded();
    let (mut hi, mut lo, mut differ, mut ulp) = (0u32, u32::MAX, 0u32, 0u32);
    for (x, y) in c.x[..n].iter_mut().zip(&mut c.y[..n]) {
        differ |= *x ^ *y;
        (*x, *y) = (*x & !sign, *y & !sign);
        let (most, least) = ((*x).max(*y), (*x).min(*y));
        hi = hi.max(most);
        lo = lo.min(x.wrapping_sub(1)).min(y.wrapping_sub(1));
        ulp = ulp.max(most - least);
    }
    Look { hi, lo, differ, ulp, ..Look::default() }
}

macro_rules! look_one {
    ($name:ident, $t:ty, $n:literal, $abs:expr) => {
        /// Looks at one side: largest bits, and smallest less one.
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        pub(super) fn $name(e: &[[u8; $n]; CHUNK], limit: u32) -> Look {
            let (mut hi, mut lo, mut min) = (0 as $t, <$t>::MAX, <$t>::MAX);
            let (limit, mut above) = (limit as $t, 0 as $t);
            for x in e {
                let x = <$t>::from_le_bytes(*x) & $abs;
                hi = hi.max(x);
                min = min.min(x);
                above += (x > limit) as $t;
                lo = lo.min(x.wrapping_sub(1));
            }
            Look {
                hi: hi as u32,
                lo: lo as u32,
                min: min as u32,
                above: above as u32,
                ..Look::default()
            }
        }
    };
}

look_one!(one32, u32, 4, ABS);
look_one!(one16, u16, 2, ABS16);

macro_rules! spread {
    ($name:ident, $t:ty, $n:literal, $abs:expr) => {
        /// Bits without signs of all pairs.
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        pub(super) fn $name(e: &[[u8; $n]; CHUNK], a: &[[u8; $n]; CHUNK], c: &mut Near) {
            for i in 0..CHUNK {
                c.x[i] = (<$t>::from_le_bytes(e[i]) & $abs) as u32;
                c.y[i] = (<$t>::from_le_bytes(a[i]) & $abs) as u32;
            }
            c.held = CHUNK;
            c.sparse = false;
        }
    };
}

spread!(spread32, u32, 4, ABS);
spread!(spread16, u16, 2, ABS16);

/// A finite `f16` without sign that is zero or normal.
#[inline(always)]
pub(super) fn half(x: u32) -> f32 {
    f32::from_bits(x << 13) * f32::from_bits((127 + 112) << 23)
}

/// Any finite `f16` without sign; denormals go through integers, since to
/// multiply denormals of `f32` is slow.
#[inline(always)]
pub(super) fn any_half(x: u32) -> f32 {
    let small = x as i32 as f32 * f32::from_bits((127 - 24) << 23);
    if x < 0x400 { small } else { f32::from_bits((x << 13) + (112 << 23)) }
}

#[inline(always)]
pub(super) fn brain(x: u32) -> f32 {
    f32::from_bits(x << 16)
}

/// What [`values`] finds.
pub(super) struct Most {
    /// Largest error.
    pub(super) abs: f32,
    /// May a relative error exceed the one known?
    pub(super) rel: bool,
}

/// Values, differences and cells of the pairs held.
macro_rules! values {
    ($name:ident, $value:expr, $keys:ident, $key:expr) => {
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        fn $name(c: &mut Near, max_rel: f32) -> Most {
            let n = c.padded();
            let (mut most, mut rel) = (0u32, 0i32);
            let (value, key) = ($value, $key);
            let (x, y) = (&c.x[..n], &c.y[..n]);
            let (e, d, keys) = (&mut c.e[..n], &mut c.d[..n], &mut c.$keys[..n]);
            for i in 0..n {
                let (x, y): (f32, f32) = (value(x[i]), value(y[i]));
                let diff = y - x;
                let size = diff.abs();
                e[i] = x;
                d[i] = diff;
                keys[i] = key(size.to_bits(), x.to_bits(), i);
                most = most.max(size.to_bits());
                // The bits of what is above zero, and only those, are.
                rel = rel.max((size - max_rel * x).to_bits() as i32);
            }
            Most { abs: f32::from_bits(most), rel: rel > 0 }
        }
    };
}

values!(values_f32, f32::from_bits, short, hist::short_key);
values!(values_bf16, brain, short, hist::short_key);
values!(values_f16, half, short, hist::short_key);
values!(values_any_f16, any_half, keys, hist::near_key);

macro_rules! values_of_all {
    ($name:ident, $t:ty, $n:literal, $abs:expr, $value:expr) => {
        /// The same for all pairs of a chunk without denormals.
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        pub(super) fn $name(
            e: &[[u8; $n]; CHUNK],
            a: &[[u8; $n]; CHUNK],
            c: &mut Near,
            max_rel: f32,
        ) -> Most {
            (c.held, c.sparse) = (CHUNK, false);
            let (mut most, mut rel) = (0u32, 0i32);
            let value = $value;
            for i in 0..CHUNK {
                let x: f32 = value((<$t>::from_le_bytes(e[i]) & $abs) as u32);
                let y: f32 = value((<$t>::from_le_bytes(a[i]) & $abs) as u32);
                let diff = y - x;
                let size = diff.abs();
                c.e[i] = x;
                c.d[i] = diff;
                c.short[i] = hist::short_key(size.to_bits(), x.to_bits(), i);
                most = most.max(size.to_bits());
                rel = rel.max((size - max_rel * x).to_bits() as i32);
            }
            Most { abs: f32::from_bits(most), rel: rel > 0 }
        }
    };
}

values_of_all!(all_f32, u32, 4, ABS, f32::from_bits);
values_of_all!(all_bf16, u16, 2, ABS16, brain);
values_of_all!(all_f16, u16, 2, ABS16, half);

/// `close`: no `f16` denormals.
pub(super) fn values(t: DType, c: &mut Near, close: bool, max_rel: f32) -> Most {
    match t {
        DType::F32 => values_f32(c, max_rel),
        DType::Bf16 => values_bf16(c, max_rel),
        _ if close => values_f16(c, max_rel),
        _ => values_any_f16(c, max_rel),
    }
}

/// The value of bits without sign.
pub(super) fn value(t: DType, x: u32) -> f32 {
    match t {
        DType::F32 => f32::from_bits(x),
        DType::Bf16 => brain(x),
        _ => any_half(x),
    }
}

/// Denormals among `f16`.
pub(super) fn denormals(e: &[u8]) -> u64 {
    let m = e.as_chunks::<2>().0.iter().map(|x| u16::from_le_bytes(*x) & ABS16);
    m.fold(0, |n, x| n + (x.wrapping_sub(1) < 0x3ff) as u64)
}

/// Marks pairs held of which the exponents differ.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
pub(super) fn mark(c: &Near, exponent: u32, flags: &mut [u8; CHUNK]) {
    for i in 0..CHUNK {
        flags[i] = ((c.x[i] ^ c.y[i]) & exponent != 0) as u8;
    }
}

/// Distances in units in the last place of all pairs of 16-bit types.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
pub(super) fn levels(c: &mut Near) {
    for i in 0..CHUNK {
        let u = c.x[i].abs_diff(c.y[i]);
        c.level[i] = u.min(255) as u8;
        c.high[i] = (u >> 8) as u8;
    }
}

/// How many pairs are farther apart than `limit`.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
pub(crate) fn over(t: DType, e: &[u8], a: &[u8], limit: u32) -> u64 {
    let mut n = 0u32;
    if t == DType::F32 {
        for (x, y) in e.as_chunks::<4>().0.iter().zip(a.as_chunks::<4>().0) {
            let (x, y) = (u32::from_le_bytes(*x) & ABS, u32::from_le_bytes(*y) & ABS);
            n = n.wrapping_add((x.abs_diff(y) > limit) as u32);
        }
    } else {
        for (x, y) in e.as_chunks::<2>().0.iter().zip(a.as_chunks::<2>().0) {
            let (x, y) = (u16::from_le_bytes(*x) & ABS16, u16::from_le_bytes(*y) & ABS16);
            n = n.wrapping_add((x.abs_diff(y) as u32 > limit) as u32);
        }
    }
    n as u64
}

/// First pair at this distance.
pub(crate) fn first(t: DType, e: &[u8], a: &[u8], ulp: u32) -> Option<usize> {
    if t == DType::F32 {
        let word = |x: &[u8; 4]| u32::from_le_bytes(*x) & ABS;
        let mut pairs = e.as_chunks::<4>().0.iter().zip(a.as_chunks::<4>().0);
        pairs.position(|(x, y)| word(x).abs_diff(word(y)) == ulp)
    } else {
        let word = |x: &[u8; 2]| u16::from_le_bytes(*x) & ABS16;
        let mut pairs = e.as_chunks::<2>().0.iter().zip(a.as_chunks::<2>().0);
        pairs.position(|(x, y)| word(x).abs_diff(word(y)) as u32 == ulp)
    }
}
