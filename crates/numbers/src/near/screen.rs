//! Which pairs keep a chunk from being near.

use super::Kind;
use super::load::ABS16;
use crate::ahead::Ahead;
use crate::decode::CHUNK;
use multiversion::multiversion;
use scalify_ir::DType;

/// Marks of pairs.
pub(crate) const SPECIAL: u8 = 2;
/// See [`SPECIAL`].
pub(crate) const FAR: u8 = 1;

/// How many pairs of a full chunk are not near. Special pairs are not finite on
/// both sides; what follows counts those only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Screen {
    pub(crate) far: u64,
    pub(crate) special: u64,
    pub(crate) nan: [u64; 2],
    pub(crate) pos_inf: [u64; 2],
    pub(crate) neg_inf: [u64; 2],
    pub(crate) denormal: [u64; 2],
    pub(crate) nan_pairs: u64,
    /// Pairs of the same infinity.
    pub(crate) equal: u64,
    pub(crate) saturated: u64,
}

macro_rules! screen {
    ($name:ident, $nan:ident, $blank:ident, $t:ty, $n:literal, $abs:expr) => {
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        fn $name(
            k: &Kind,
            e: &[[u8; $n]; CHUNK],
            a: &[[u8; $n]; CHUNK],
            marks: &mut [u8; CHUNK],
        ) -> Screen {
            const ABS: $t = $abs;
            let (inf, least, sign) = (k.infinity as $t, k.least as $t, k.sign as $t);
            let bits = k.bits & 31;
            let (mut far, mut special) = (0 as $t, 0 as $t);
            for i in 0..CHUNK {
                let (x, y) = (<$t>::from_le_bytes(e[i]), <$t>::from_le_bytes(a[i]));
                let (mx, my) = (x & ABS, y & ABS);
                let (most, small) = (mx.max(my), mx.min(my));
                let s = most >= inf;
                let f = ((most - small) >> bits != 0)
                    | ((x ^ y) & sign != 0)
                    | (mx.wrapping_sub(1) < least)
                    | (my.wrapping_sub(1) < least);
                let f = f & !s;
                far += f as $t;
                special += s as $t;
                marks[i] = if s { SPECIAL } else { f as u8 };
            }
            let mut out = Screen { far: far as u64, special: special as u64, ..Screen::default() };
            if special == 0 {
                return out;
            }
            let mut n = [0 as $t; 11];
            let normal: $t = (1 << k.bits) - 1;
            for i in 0..CHUNK {
                let (x, y) = (<$t>::from_le_bytes(e[i]), <$t>::from_le_bytes(a[i]));
                let (mx, my) = (x & ABS, y & ABS);
                let s = (mx >= inf) | (my >= inf);
                n[0] += (mx > inf) as $t;
                n[1] += (my > inf) as $t;
                n[2] += (x == inf) as $t;
                n[3] += (y == inf) as $t;
                n[4] += (x == inf | sign) as $t;
                n[5] += (y == inf | sign) as $t;
                n[6] += ((mx.wrapping_sub(1) < normal) & s) as $t;
                n[7] += ((my.wrapping_sub(1) < normal) & s) as $t;
                n[8] += ((mx > inf) & (my > inf)) as $t;
                let same = (mx == inf) & (x == y);
                n[9] += same as $t;
                let full = |m| (m >= inf - 1) & (m <= inf);
                let both = full(mx) & full(my) & ((x ^ y) & sign == 0);
                n[10] += (both & s & !same) as $t;
            }
            let n = n.map(|n| n as u64);
            out.nan = [n[0], n[1]];
            out.pos_inf = [n[2], n[3]];
            out.neg_inf = [n[4], n[5]];
            out.denormal = [n[6], n[7]];
            (out.nan_pairs, out.equal, out.saturated) = (n[8], n[9], n[10]);
            out
        }

        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        fn $nan(inf: $t, e: &[u8], a: &[u8]) -> bool {
            let mut least = <$t>::MAX;
            for (x, y) in e.as_chunks().0.iter().zip(a.as_chunks().0) {
                let (x, y) = (<$t>::from_le_bytes(*x) & $abs, <$t>::from_le_bytes(*y) & $abs);
                least = least.min(x).min(y);
            }
            least > inf
        }

        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw+avx512cd+fma",
            "x86_64+avx2+fma"
        ))]
        fn $blank(from: &[[u8; $n]; CHUNK], marks: &[u8; CHUNK], least: u8, to: &mut [u8]) {
            for ((o, x), m) in to.as_chunks_mut::<$n>().0.iter_mut().zip(from).zip(marks) {
                let keep = (<$t>::from(*m < least)).wrapping_neg();
                *o = (<$t>::from_le_bytes(*x) & keep).to_le_bytes();
            }
        }
    };
}

screen!(screen32, nan32, blank32, u32, 4, 0x7fff_ffff);
screen!(screen16, nan16, blank16, u16, 2, ABS16);

/// `None` if it is not a full chunk of a type that is handled.
pub(crate) fn screen(t: DType, e: &[u8], a: &[u8], marks: &mut [u8; CHUNK]) -> Option<Screen> {
    let k = Kind::of(t)?;
    Some(if t == DType::F32 {
        screen32(&k, e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?, marks)
    } else {
        screen16(&k, e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?, marks)
    })
}

/// Are all pairs of a full chunk pairs of NaN?
pub(crate) fn all_nan(t: DType, e: &[u8], a: &[u8], ahead: &mut Ahead) -> bool {
    let Some(k) = Kind::of(t) else { return false };
    /// Few enough that others end it early.
    const PART: usize = 128;
    let parts = e.chunks(PART * t.literal_bytes()).zip(a.chunks(PART * t.literal_bytes()));
    let inf = k.infinity;
    let mut nan = e.len() == CHUNK * t.literal_bytes() && e.len() == a.len();
    for (e, a) in parts {
        ahead.part(CHUNK / PART);
        nan = nan && if t == DType::F32 { nan32(inf, e, a) } else { nan16(inf as u16, e, a) };
    }
    nan
}

/// One side with zeros where marks are at least `least`.
pub(crate) fn blank(t: DType, from: &[u8], marks: &[u8; CHUNK], least: u8, to: &mut Vec<u8>) {
    to.resize(from.len(), 0);
    match (t, from.as_chunks().0.first_chunk(), from.as_chunks().0.first_chunk()) {
        (DType::F32, Some(x), _) => blank32(x, marks, least, to),
        (_, _, Some(x)) => blank16(x, marks, least, to),
        _ => {}
    }
}
