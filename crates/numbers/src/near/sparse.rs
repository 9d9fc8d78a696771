//! Full chunks of which most pairs are equal, with AVX-512 in one pass over both
//! sides: what [`super::load`], [`super::squares`] and [`super::pack`] find one
//! after the other, but for what only unequal pairs have.

use super::squares::LANES;
use super::{Kind, Limits, SPARSE, sums};
use crate::ahead::Ahead;
use crate::decode::CHUNK;
use pulp::cast;
use std::arch::x86_64::__m512i;

/// Pairs looked at side by side.
const WORD: usize = 64;

/// What a pass found.
pub(super) struct Seen {
    /// Sum of the squares of expected values.
    pub(super) squares: f64,
    /// Expected values above `atol`.
    pub(super) above: u32,
    /// Pairs that are not equal; their places are listed.
    pub(super) unequal: usize,
    /// Denormals among expected values.
    pub(super) denormal: u32,
}

/// `N` bytes an element.
pub(super) struct Sparse<'a, 'b, const N: usize, const HALF: bool> {
    pub(super) v4: pulp::x86::V4,
    pub(super) e: &'a [[u8; N]; CHUNK],
    pub(super) a: &'a [[u8; N]; CHUNK],
    pub(super) kind: &'a Kind,
    pub(super) limits: Limits,
    pub(super) index: &'a mut [u32; super::ROOM],
    pub(super) ahead: &'a mut Ahead<'b>,
}

impl<const N: usize, const HALF: bool> Sparse<'_, '_, N, HALF> {
    /// Elements of 64 bytes for which something holds of the bits without sign.
    #[inline(always)]
    fn test(&self, b: &[[u8; N]; WORD], from: u32, end: u32) -> u64 {
        let (f, w) = (self.v4.avx512f, self.v4.avx512bw);
        let mut all = 0;
        for (k, b) in b.as_flattened().as_chunks::<64>().0.iter().enumerate() {
            let x: __m512i = cast(*b);
            if N == 4 {
                let of = |x: u32| f._mm512_set1_epi32(x as i32);
                let x = f._mm512_and_si512(x, of(u32::MAX >> 1));
                let x = f._mm512_sub_epi32(x, of(from));
                all |= (f._mm512_cmplt_epu32_mask(x, of(end - from)) as u64) << (16 * k);
            } else {
                let of = |x: u32| f._mm512_set1_epi16(x as i16);
                let x = f._mm512_and_si512(x, of(u16::MAX as u32 >> 1));
                let x = w._mm512_sub_epi16(x, of(from));
                all |= (w._mm512_cmplt_epu16_mask(x, of(end - from)) as u64) << ((32 * k) & 63);
            }
        }
        all
    }

    /// Which of 64 pairs differ.
    #[inline(always)]
    fn unequal(&self, e: &[[u8; N]; WORD], a: &[[u8; N]; WORD]) -> u64 {
        let (f, w) = (self.v4.avx512f, self.v4.avx512bw);
        let vectors = e.as_flattened().as_chunks::<64>().0.iter();
        let mut all = 0;
        for (k, (e, a)) in vectors.zip(a.as_flattened().as_chunks::<64>().0).enumerate() {
            let (e, a) = (cast(*e), cast(*a));
            all |= if N == 4 {
                (f._mm512_cmpneq_epi32_mask(e, a) as u64) << (16 * k)
            } else {
                (w._mm512_cmpneq_epi16_mask(e, a) as u64) << ((32 * k) & 63)
            };
        }
        all
    }
}

impl<const N: usize, const HALF: bool> pulp::NullaryFnOnce for Sparse<'_, '_, N, HALF> {
    type Output = Result<Seen, bool>;

    /// An error if expected values are not finite, or but for `f16` almost
    /// denormal, or (true) too many pairs differ.
    #[inline(always)]
    fn call(self) -> Result<Seen, bool> {
        let f = self.v4.avx512f;
        let k = self.kind;
        // Bits up to this one are those of zero or of values that are not near.
        let tiny = if HALF { (1 << k.bits) - 1 } else { k.least };
        let over = self.limits.bits.saturating_add(1).min(k.infinity);
        let mut acc = [f._mm512_setzero_pd(); LANES / 8];
        let (mut n, mut above, mut denormal) = (0usize, 0u32, 0u32);
        let mut places: __m512i = cast(std::array::from_fn::<u32, 16, _>(|i| i as u32));
        let step = f._mm512_set1_epi32(16);
        let words = self.e.as_chunks::<WORD>().0.iter().zip(self.a.as_chunks::<WORD>().0);
        for (e, a) in words {
            self.ahead.part(CHUNK / WORD);
            let good = self.test(e, tiny + 1, k.infinity);
            if good != u64::MAX {
                let small = self.test(e, 1, tiny + 1);
                if good | self.test(e, 0, 1) | if HALF { small } else { 0 } != u64::MAX {
                    return Err(false);
                }
                denormal += small.count_ones();
            }
            above += self.test(e, over, k.infinity).count_ones();
            let word = self.unequal(e, a);
            if n + word.count_ones() as usize > SPARSE as usize {
                return Err(true);
            }
            for g in 0..WORD / 16 {
                let some = (word >> (16 * g)) as u16;
                if let Some(to) = self.index.get_mut(n..).and_then(<[u32]>::first_chunk_mut::<16>) {
                    *to = cast(f._mm512_maskz_compress_epi32(some, places));
                }
                n += some.count_ones() as usize;
                places = f._mm512_add_epi32(places, step);
            }
            for e in e.as_chunks::<LANES>().0 {
                for (e, acc) in e.as_chunks::<16>().0.iter().zip(acc.as_chunks_mut::<2>().0) {
                    let bytes = e.as_flattened();
                    let single = match (bytes.first_chunk::<64>(), bytes.first_chunk::<32>()) {
                        (Some(b), _) => cast(*b),
                        (_, Some(b)) if HALF => f._mm512_cvtph_ps(cast(*b)),
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
        }
        Ok(Seen {
            squares: sums::fold(cast::<_, [f64; LANES]>(acc), |a, b| a + b),
            above,
            unequal: n,
            denormal,
        })
    }
}
