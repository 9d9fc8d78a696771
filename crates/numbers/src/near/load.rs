//! Reading both sides of a chunk.

use super::{Look, Near};
use crate::decode::CHUNK;
use multiversion::multiversion;
use scalify_ir::DType;

const ABS: u32 = 0x7fff_ffff;

const ABS16: u16 = 0x7fff;

/// A finite `f16` without sign. `lo` as in [`Look`]: denormals go through
/// integers, since to multiply denormals of `f32` is slow.
#[inline(always)]
fn half(x: u16, lo: u16) -> f32 {
    let bits = (x as u32) << 13;
    if lo >= 0x3ff {
        f32::from_bits(bits) * f32::from_bits((127 + 112) << 23)
    } else {
        let small = x as i32 as f32 * f32::from_bits((127 - 24) << 23);
        if x < 0x400 { small } else { f32::from_bits(bits + (112 << 23)) }
    }
}

/// Reads both sides; not near chunks leave the arrays in any state.
macro_rules! load16 {
    ($name:ident, $widen:expr) => {
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        pub(super) fn $name(e: &[[u8; 2]; CHUNK], a: &[[u8; 2]; CHUNK], c: &mut Near) -> Look {
            let (mut hi, mut lo, mut differ, mut ulp) = (0u16, u16::MAX, 0u16, 0u16);
            let mut unequal = 0u16;
            for i in 0..CHUNK {
                let (x, y) = (u16::from_le_bytes(e[i]), u16::from_le_bytes(a[i]));
                let (mx, my) = (x & ABS16, y & ABS16);
                hi = hi.max(mx).max(my);
                lo = lo.min(mx.wrapping_sub(1)).min(my.wrapping_sub(1));
                differ |= x ^ y;
                let u = mx.abs_diff(my);
                ulp = ulp.max(u);
                unequal += (u != 0) as u16;
                c.level[i] = u.min(255) as u8;
            }
            if ulp > 255 {
                for i in 0..CHUNK {
                    let (x, y) = (u16::from_le_bytes(e[i]), u16::from_le_bytes(a[i]));
                    c.high[i] = ((x & ABS16).abs_diff(y & ABS16) >> 8) as u8;
                }
            }
            let widen = $widen;
            for i in 0..CHUNK {
                let (x, y) = (u16::from_le_bytes(e[i]), u16::from_le_bytes(a[i]));
                let (x, y): (f32, f32) = (widen(x & ABS16, lo), widen(y & ABS16, lo));
                c.e[i] = x;
                c.d[i] = y - x;
            }
            Look {
                hi: hi as u32,
                lo: lo as u32,
                differ: differ as u32,
                ulp: ulp as u32,
                unequal: unequal as u32,
            }
        }
    };
}

load16!(bf16, |x: u16, _| f32::from_bits((x as u32) << 16));

load16!(f16, half);

#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
pub(super) fn f32(e: &[[u8; 4]; CHUNK], a: &[[u8; 4]; CHUNK], c: &mut Near) -> Look {
    let (mut hi, mut lo, mut differ, mut ulp) = (0u32, u32::MAX, 0u32, 0u32);
    let mut unequal = 0u32;
    for i in 0..CHUNK {
        let (x, y) = (u32::from_le_bytes(e[i]), u32::from_le_bytes(a[i]));
        let (mx, my) = (x & ABS, y & ABS);
        hi = hi.max(mx).max(my);
        lo = lo.min(mx.wrapping_sub(1)).min(my.wrapping_sub(1));
        differ |= x ^ y;
        let u = mx.abs_diff(my);
        ulp = ulp.max(u);
        unequal += (u != 0) as u32;
        c.level[i] = u.leading_zeros() as u8;
        let (mx, my) = (f32::from_bits(mx), f32::from_bits(my));
        c.e[i] = mx;
        c.d[i] = my - mx;
    }
    Look { hi, lo, differ, ulp, unequal }
}

/// Reads one side.
#[multiversion(targets(
    "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
    "x86_64+avx2+fma"
))]
pub(super) fn one(t: DType, e: &[u8], c: &mut Near) -> Look {
    let (mut hi, mut lo) = (0u32, u32::MAX);
    let (mut hi16, mut lo16) = (0u16, u16::MAX);
    if t == DType::F32 {
        for (x, o) in e.as_chunks::<4>().0.iter().zip(&mut c.e) {
            let x = u32::from_le_bytes(*x) & ABS;
            hi = hi.max(x);
            lo = lo.min(x.wrapping_sub(1));
            *o = f32::from_bits(x);
        }
        return Look { hi, lo, ..Look::default() };
    }
    for x in e.as_chunks::<2>().0 {
        let x = u16::from_le_bytes(*x) & ABS16;
        hi16 = hi16.max(x);
        lo16 = lo16.min(x.wrapping_sub(1));
    }
    if t == DType::Bf16 {
        for (x, o) in e.as_chunks::<2>().0.iter().zip(&mut c.e) {
            *o = f32::from_bits(((u16::from_le_bytes(*x) & ABS16) as u32) << 16);
        }
    } else {
        for (x, o) in e.as_chunks::<2>().0.iter().zip(&mut c.e) {
            *o = half(u16::from_le_bytes(*x) & ABS16, lo16);
        }
    }
    Look { hi: hi16 as u32, lo: lo16 as u32, ..Look::default() }
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
