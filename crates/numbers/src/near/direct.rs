//! Chunks handled in the way of the last one, without a look at them first, with
//! AVX-512.

use super::{Found, Kind, Limits, MARGIN, Near, Way, below, dense, far, load, pack, shift, sparse};
use crate::ahead::Ahead;
use crate::decode::CHUNK;
use crate::hist;
use crate::kernel::Params;
use scalify_ir::DType;

/// So often in a row chunks may have more before those are tried first of which
/// most pairs differ.
const MANY: u8 = 3;

impl Near {
    /// The same as [`Near::run`], with one pass over most pairs, for chunks of
    /// which most pairs are equal; `None` if that is not so or not worth trying.
    pub(crate) fn sparse(
        &mut self,
        t: DType,
        e: &[u8],
        a: &[u8],
        p: Params,
        l: Limits,
        max_rel: f64,
        ahead: &mut Ahead,
    ) -> Option<Found> {
        let v4 = crate::simd::v4().filter(|_| self.way == Way::Sparse)?;
        let kind = &Kind::of(t)?;
        let half = t == DType::F16;
        let index = &mut self.index;
        macro_rules! run {
            ($n:literal, $half:literal) => {{
                let (e, a) = (e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?);
                let limits = l;
                let seen = match v4.vectorize(sparse::Sparse::<$n, $half> {
                    v4,
                    e,
                    a,
                    kind,
                    limits,
                    index,
                    ahead,
                }) {
                    Ok(seen) => seen,
                    Err(many) => {
                        self.many = if many { self.many + 1 } else { 0 };
                        if self.many > MANY {
                            (self.way, self.many) = (Way::Dense, 1);
                        }
                        return None;
                    }
                };
                self.many = 0;
                pack::fetch(e, a, seen.unequal, kind.one, self);
                seen
            }};
        }
        let seen = match t {
            DType::F32 => run!(4, false),
            DType::F16 => run!(2, true),
            _ => run!(2, false),
        };
        let mut look = load::look_held(self, kind.sign);
        let tiny = if half { (1 << kind.bits) - 1 } else { kind.least };
        if look.hi >= kind.infinity
            || look.lo < tiny
            || look.ulp >> kind.bits != 0
            || look.differ & kind.sign != 0
        {
            return None;
        }
        self.far.clear();
        look.above = seen.above;
        let parts = (1u32 << (kind.bits - 1)) as f32;
        let within = look.ulp as f32 / parts <= l.rtol;
        let most = load::values(t, self, true, below(max_rel * MARGIN));
        let masked = (seen.above as usize) < CHUNK;
        let mut found = self.rest(look, most, p, l, true, masked, within, seen.squares);
        found.denormal = [seen.denormal as u64; 2];
        if look.differ & kind.infinity != 0 {
            self.crossings(kind);
        }
        Some(found)
    }

    /// The same in one pass, for chunks of which most pairs differ, leaving out
    /// up to `few` far pairs; `None` if that is not so or not worth trying.
    pub(crate) fn dense(
        &mut self,
        t: DType,
        e: &[u8],
        a: &[u8],
        p: Params,
        l: Limits,
        max_rel: f64,
        few: usize,
        cells: &mut [u32; hist::SHORT],
        ahead: &mut Ahead,
    ) -> Option<Found> {
        let v4 = crate::simd::v4().filter(|_| self.way == Way::Dense || self.many > 0)?;
        let kind = Kind::of(t)?;
        let half = t == DType::F16;
        let max_rel = below(max_rel * MARGIN);
        let bits = dense::Bits::new(t, p, l, max_rel);
        macro_rules! run {
            ($n:literal, $count:literal) => {{
                let (e, a) = (e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?);
                let c = &mut *self;
                v4.vectorize(dense::Dense::<$n, $count> {
                    v4,
                    e,
                    a,
                    half,
                    bits,
                    few,
                    c,
                    cells,
                    ahead,
                })
            }};
        }
        let seen = match (t == DType::F32, self.count) {
            (true, false) => run!(4, false),
            (true, true) => run!(4, true),
            (false, false) => run!(2, false),
            (false, true) => run!(2, true),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(few) => {
                if few {
                    self.way = Way::Sparse;
                }
                return None;
            }
        };
        let parts = (1u32 << (kind.bits - 1)) as f32;
        // Errors of values that have no relative error are below `atol`.
        let within = seen.ulp as f32 / parts <= l.rtol || !seen.rel && max_rel <= l.rtol;
        let [maybe, surely] = seen.not_close;
        let known = self.count && maybe == surely;
        let may = if self.count {
            maybe != [0; 2]
        } else {
            !within && seen.max_abs > l.atol && far(self, l)
        };
        self.count = may;
        for &i in self.cross.all() {
            let (e, d, k) =
                match (self.e.get(i as usize), self.d.get(i as usize), self.keys.get(i as usize)) {
                    (Some(e), Some(d), Some(k)) => (e, d, k),
                    _ => continue,
                };
            let far = e.to_bits().abs_diff((e + d).to_bits()) >> shift(t);
            self.levels[(far | 1).ilog2() as usize & 31] += 1;
            let k = (*k as u16).wrapping_add(hist::SHORT_FIRST as u16);
            if let Some(n) = hist::short_level(k, kind.bits) {
                self.levels[n & 31] -= 1;
            }
        }
        Some(Found {
            sums: seen.sums,
            max_abs: seen.max_abs,
            rel_count: seen.above as u64,
            max_ulp: seen.ulp,
            rel: seen.rel,
            far: may,
            not_close: known.then(|| surely.map(u64::from)),
            close: true,
            counted: true,
            denormal: [0; 2],
        })
    }
}
