//! Keeping only the pairs of a chunk that are not equal.

use super::Near;
use super::load::ROOM;
use crate::decode::CHUNK;

/// Calls `f` for each flag that is set (its lowest bit).
#[inline(always)]
pub(crate) fn each(flags: &[u8; CHUNK], mut f: impl FnMut(usize)) {
    for (w, flags) in flags.as_chunks::<64>().0.iter().enumerate() {
        let mut word = 0u64;
        for (b, eight) in flags.as_chunks::<8>().0.iter().enumerate() {
            // Moves the lowest bits of eight bytes side by side.
            let bits = (u64::from_le_bytes(*eight) & 0x0101_0101_0101_0101)
                .wrapping_mul(0x0102_0408_1020_4080)
                >> 56;
            word |= bits << (8 * b);
        }
        while word != 0 {
            f(w * 64 + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}

/// What is kept of a chunk: bits without signs, places.
struct Kept<'a> {
    x: &'a mut [u32; ROOM],
    y: &'a mut [u32; ROOM],
    index: &'a mut [u32; ROOM],
}

const fn sign_mask<const N: usize>() -> u32 {
    u32::MAX >> (33 - 8 * N)
}

/// Bits without sign.
#[inline(always)]
fn word<const N: usize>(b: &[u8; N]) -> u32 {
    b.iter().rev().fold(0u32, |w, &b| w << 8 | b as u32) & sign_mask::<N>()
}

/// For any machine. Equal pairs have equal signs.
fn pack_any<const N: usize>(e: &[[u8; N]; CHUNK], a: &[[u8; N]; CHUNK], to: Kept) -> usize {
    let mut flags = [0u8; CHUNK];
    for i in 0..CHUNK {
        flags[i] = (e[i] != a[i]) as u8;
    }
    let mut n = 0;
    each(&flags, |i| {
        (to.x[n], to.y[n], to.index[n]) = (word(&e[i]), word(&a[i]), i as u32);
        n += 1;
    });
    n
}

/// The same with a vector at a time.
#[cfg(target_arch = "x86_64")]
struct Pack512<'a, const N: usize> {
    v4: pulp::x86::V4,
    e: &'a [[u8; N]; CHUNK],
    a: &'a [[u8; N]; CHUNK],
    to: Kept<'a>,
    /// Bits are looked up one by one.
    few: bool,
}

#[cfg(target_arch = "x86_64")]
impl<const N: usize> Pack512<'_, N> {
    /// Which of 64 elements differ.
    #[inline(always)]
    fn unequal(&self, e: &[[u8; N]; 64], a: &[[u8; N]; 64]) -> u64 {
        use pulp::cast;
        let (f, b) = (self.v4.avx512f, self.v4.avx512bw);
        let vectors = e.as_flattened().as_chunks::<64>().0.iter();
        let mut all = 0;
        for (k, (e, a)) in vectors.zip(a.as_flattened().as_chunks::<64>().0).enumerate() {
            let (e, a) = (cast(*e), cast(*a));
            all |= if N == 4 {
                (f._mm512_cmpneq_epi32_mask(e, a) as u64) << (16 * k)
            } else {
                (b._mm512_cmpneq_epi16_mask(e, a) as u64) << ((32 * k) & 63)
            };
        }
        all
    }

    /// Bits without sign of 16 elements.
    #[inline(always)]
    fn load(&self, b: &[[u8; N]; 16]) -> std::arch::x86_64::__m512i {
        use pulp::cast;
        let f = self.v4.avx512f;
        let bytes = b.as_flattened();
        let all = match (bytes.first_chunk::<64>(), bytes.first_chunk::<32>()) {
            (Some(b), _) => cast(*b),
            (_, Some(b)) => f._mm512_cvtepu16_epi32(cast(*b)),
            _ => f._mm512_setzero_si512(),
        };
        f._mm512_and_si512(all, f._mm512_set1_epi32(sign_mask::<N>() as i32))
    }
}

#[cfg(target_arch = "x86_64")]
impl<const N: usize> pulp::NullaryFnOnce for Pack512<'_, N> {
    type Output = usize;

    #[inline(always)]
    fn call(mut self) -> usize {
        use pulp::cast;
        let f = self.v4.avx512f;
        let mut n = 0;
        if self.few {
            for (w, (e, a)) in
                self.e.as_chunks::<64>().0.iter().zip(self.a.as_chunks::<64>().0).enumerate()
            {
                let mut word = self.unequal(e, a);
                let end = n + word.count_ones() as usize;
                // Eight at a time, to guess less often how many there are.
                while n < end {
                    let Some(to) =
                        self.to.index.get_mut(n..).and_then(<[u32]>::first_chunk_mut::<8>)
                    else {
                        break;
                    };
                    for to in to {
                        *to = (w as u32 * 64 + word.trailing_zeros()) % CHUNK as u32;
                        word &= word.wrapping_sub(1);
                    }
                    n += 8;
                }
                n = end;
            }
            let Kept { x, y, index } = &mut self.to;
            for ((&i, x), y) in index[..n].iter().zip(x.iter_mut()).zip(y.iter_mut()) {
                let i = i as usize % CHUNK;
                (*x, *y) = (word(&self.e[i]), word(&self.a[i]));
            }
            return n;
        }
        let mut places: std::arch::x86_64::__m512i =
            cast(std::array::from_fn::<u32, 16, _>(|i| i as u32));
        let step = f._mm512_set1_epi32(16);
        for (e, a) in self.e.as_chunks::<16>().0.iter().zip(self.a.as_chunks::<16>().0) {
            let (x, y) = (self.load(e), self.load(a));
            let k = f._mm512_cmpneq_epi32_mask(x, y);
            let put = |to: &mut [u32; ROOM], v| {
                if let Some(to) = to.get_mut(n..).and_then(<[u32]>::first_chunk_mut::<16>) {
                    *to = cast(f._mm512_maskz_compress_epi32(k, v));
                }
            };
            put(self.to.x, x);
            put(self.to.y, y);
            put(self.to.index, places);
            n += k.count_ones() as usize;
            places = f._mm512_add_epi32(places, step);
        }
        n
    }
}

/// Puts the pairs that are not equal into `x`, `y` and `index`, and then what
/// `one` stands for up to a whole part.
pub(super) fn pack<const N: usize>(
    e: &[[u8; N]; CHUNK],
    a: &[[u8; N]; CHUNK],
    unequal: u32,
    one: u32,
    c: &mut Near,
) {
    let to = Kept { x: &mut c.x, y: &mut c.y, index: &mut c.index };
    c.held = match unequal {
        0 => 0,
        _ => pack_how(e, a, unequal, to),
    }
    .min(CHUNK);
    c.sparse = true;
    let end = c.padded();
    c.x[c.held..end].fill(one);
    c.y[c.held..end].fill(one);
}

/// Puts listed pairs into `x` and `y`, with signs, and then what `one` stands
/// for up to a whole part.
#[cfg(target_arch = "x86_64")]
pub(super) fn fetch<const N: usize>(
    e: &[[u8; N]; CHUNK],
    a: &[[u8; N]; CHUNK],
    listed: usize,
    one: u32,
    c: &mut Near,
) {
    let whole = |b: &[u8; N]| b.iter().rev().fold(0u32, |w, &b| w << 8 | b as u32);
    c.held = listed.min(CHUNK);
    c.sparse = true;
    let to = c.x.iter_mut().zip(c.y.iter_mut());
    for (&i, (x, y)) in c.index[..c.held].iter().zip(to) {
        let i = i as usize % CHUNK;
        (*x, *y) = (whole(&e[i]), whole(&a[i]));
    }
    let end = c.padded();
    c.x[c.held..end].fill(one);
    c.y[c.held..end].fill(one);
}

fn pack_how<const N: usize>(
    e: &[[u8; N]; CHUNK],
    a: &[[u8; N]; CHUNK],
    unequal: u32,
    to: Kept,
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(v4) = crate::simd::v4() {
        return v4.vectorize(Pack512 { v4, e, a, to, few: unequal < 192 });
    }
    let _ = unequal;
    pack_any(e, a, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_pack_the_same() {
        let mut s = 1u32;
        let mut next = || {
            s = s.wrapping_mul(1664525).wrapping_add(1013904223);
            s >> 8
        };
        for of in [1, 2, 10, 100, 10000] {
            let mut e = [[0u8; 2]; CHUNK];
            let mut wide = [[0u8; 4]; CHUNK];
            for i in 0..CHUNK {
                e[i] = (next() as u16).to_le_bytes();
                wide[i] = next().wrapping_mul(77777).to_le_bytes();
            }
            let (mut a, mut wide_a) = (e, wide);
            let mut unequal = 0;
            for i in 0..CHUNK {
                if next() % of == 0 {
                    // Not the sign.
                    a[i][0] ^= 1;
                    wide_a[i][2] ^= 4;
                    unequal += 1;
                }
            }
            let mut c = Near::new();
            let mut any = Near::new();
            pack(&e, &a, unequal, 7, &mut c);
            let to = Kept { x: &mut any.x, y: &mut any.y, index: &mut any.index };
            let n = pack_any(&e, &a, to);
            assert_eq!((n, c.held), (unequal as usize, n));
            assert_eq!((&c.x[..n], &c.y[..n]), (&any.x[..n], &any.y[..n]));
            assert_eq!(c.index[..n], any.index[..n]);
            assert!(c.x[n..c.padded()].iter().all(|&x| x == 7));
            pack(&wide, &wide_a, unequal, 7, &mut c);
            let to = Kept { x: &mut any.x, y: &mut any.y, index: &mut any.index };
            assert_eq!(pack_any(&wide, &wide_a, to), c.held);
            assert_eq!((&c.x[..n], &c.y[..n]), (&any.x[..n], &any.y[..n]));
            assert!(c.index[..n].iter().is_sorted());
        }
    }
}
