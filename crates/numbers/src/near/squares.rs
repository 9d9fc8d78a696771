//! Sum of the squares of one side of a chunk, in lanes of `f64`.

use super::load::{ABS16, any_half, brain, half};
use super::{PART, sums};
use crate::decode::CHUNK;
use multiversion::multiversion;
use multiversion::target::selected_target;
use scalify_ir::DType;

pub(super) const LANES: usize = 32;

/// Squares are exact in `f64`, so that it makes no difference whether
/// multiplications are fused.
macro_rules! squares {
    ($name:ident, $t:ty, $n:literal, $value:expr) => {
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        fn $name(e: &[[u8; $n]; CHUNK]) -> f64 {
            const FMA: bool = selected_target!().supports_feature_str("fma");
            let value = $value;
            let mut acc = [0.0f64; LANES];
            let mut wide = [0.0f64; PART];
            for e in e.as_chunks::<PART>().0 {
                for (x, o) in e.iter().zip(&mut wide) {
                    let x: f32 = value(<$t>::from_le_bytes(*x));
                    *o = x as f64;
                }
                for x in wide.as_chunks::<LANES>().0 {
                    for l in 0..LANES {
                        let x = x[l];
                        acc[l] = if FMA { x.mul_add(x, acc[l]) } else { x * x + acc[l] };
                    }
                }
            }
            sums::fold(acc, |a, b| a + b)
        }
    };
}

squares!(f32_any, u32, 4, f32::from_bits);
squares!(bf16_any, u16, 2, |x: u16| brain(x as u32));
squares!(f16_close, u16, 2, |x: u16| half((x & ABS16) as u32));
squares!(f16_any, u16, 2, |x: u16| any_half((x & ABS16) as u32));

/// The same with the instructions chosen by hand.
#[cfg(target_arch = "x86_64")]
struct Squares512<'a, const N: usize> {
    v4: pulp::x86::V4,
    e: &'a [[u8; N]; CHUNK],
    t: DType,
}

#[cfg(target_arch = "x86_64")]
impl<const N: usize> pulp::NullaryFnOnce for Squares512<'_, N> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        use pulp::cast;
        let Squares512 { v4, e, t } = self;
        let f = v4.avx512f;
        let mut acc = [f._mm512_setzero_pd(); LANES / 8];
        for e in e.as_chunks::<LANES>().0 {
            for (e, acc) in e.as_chunks::<16>().0.iter().zip(acc.as_chunks_mut::<2>().0) {
                let bytes = e.as_flattened();
                let single = match (bytes.first_chunk::<64>(), bytes.first_chunk::<32>()) {
                    (Some(b), _) => cast(*b),
                    (_, Some(b)) if t == DType::F16 => f._mm512_cvtph_ps(cast(*b)),
                    (_, Some(b)) => {
                        cast(f._mm512_slli_epi32::<16>(f._mm512_cvtepu16_epi32(cast(*b))))
                    }
                    _ => f._mm512_setzero_ps(),
                };
                let halves: [_; 2] = cast(single);
                for (half, acc) in halves.into_iter().zip(acc) {
                    let x = f._mm512_cvtps_pd(half);
                    *acc = f._mm512_fmadd_pd(x, x, *acc);
                }
            }
        }
        sums::fold(cast::<_, [f64; LANES]>(acc), |a, b| a + b)
    }
}

/// `close`: no `f16` denormals. 0 if it is not a whole chunk of the type.
pub(super) fn squares(t: DType, e: &[u8], close: bool) -> f64 {
    let (narrow, wide) = (e.as_chunks::<2>().0.first_chunk(), e.as_chunks::<4>().0.first_chunk());
    #[cfg(target_arch = "x86_64")]
    if let Some(v4) = crate::simd::v4() {
        return match (t, narrow, wide) {
            (DType::F32, _, Some(e)) => v4.vectorize(Squares512 { v4, e, t }),
            (DType::Bf16, Some(e), _) => v4.vectorize(Squares512 { v4, e, t: DType::Bf16 }),
            (DType::F16, Some(e), _) => v4.vectorize(Squares512 { v4, e, t: DType::F16 }),
            _ => 0.0,
        };
    }
    any(t, narrow, wide, close)
}

fn any(
    t: DType,
    narrow: Option<&[[u8; 2]; CHUNK]>,
    wide: Option<&[[u8; 4]; CHUNK]>,
    close: bool,
) -> f64 {
    match (t, narrow, wide) {
        (DType::F32, _, Some(e)) => f32_any(e),
        (DType::Bf16, Some(e), _) => bf16_any(e),
        (DType::F16, Some(e), _) if close => f16_close(e),
        (DType::F16, Some(e), _) => f16_any(e),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_sum_the_same() {
        let mut s = 1u32;
        let mut next = || {
            s = s.wrapping_mul(1664525).wrapping_add(1013904223);
            s
        };
        for t in [DType::F32, DType::Bf16, DType::F16] {
            for denormal in [false, true] {
                let size = t.literal_bytes();
                let e: Vec<u8> = (0..CHUNK)
                    .flat_map(|_| {
                        let x = f32::from_bits(next() & 0x0fff_ffff | 0x3000_0000);
                        let bits = match t {
                            DType::F32 => x.to_bits(),
                            DType::Bf16 => x.to_bits() >> 16,
                            _ if denormal => next() >> 20 & 0x83ff,
                            _ => (next() >> 16 & 0xbfff) | 0x400,
                        };
                        bits.to_le_bytes()[..size].to_vec()
                    })
                    .collect();
                let (narrow, wide) =
                    (e.as_chunks::<2>().0.first_chunk(), e.as_chunks::<4>().0.first_chunk());
                let x = squares(t, &e, !denormal);
                assert_eq!(x, any(t, narrow, wide, !denormal), "{t}");
                assert!(x > 0.0);
            }
        }
    }
}
