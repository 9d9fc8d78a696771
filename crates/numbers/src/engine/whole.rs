//! Ways to handle a full chunk in one pass, with AVX-512.

use super::worker::{FEW, Worker};
use crate::ahead::Ahead;
use crate::decode::CHUNK;
use crate::kernel::{self, Partial, Sums};
use crate::near::{Near, Way};
use scalify_ir::DType;

impl Worker<'_> {
    /// Handles full chunks whose values are near one another as the last one was
    /// handled, and sets aside far pairs.
    pub(super) fn direct(
        &mut self,
        at: u64,
        e: &[u8],
        a: &[u8],
        ahead: &mut Ahead,
    ) -> Option<Sums> {
        if !self.may_be_near(e) {
            return None;
        }
        let t = self.pair.e;
        let mut c = self.near.take().unwrap_or_else(Near::new);
        let few = FEW as usize;
        let (p, l, rel) = (self.p, self.limits, self.rel.size);
        let mut found = None;
        if c.way == Way::Sparse {
            found = c.sparse(t, e, a, p, l, rel, ahead);
        }
        if let (None, true, Some(cells)) = (found, c.way != Way::Look, self.table.short_cells()) {
            found = c.dense(t, e, a, p, l, rel, few, cells, ahead);
        }
        if let Some(found) = found {
            let size = t.literal_bytes();
            let gone = c.far.all();
            for i in gone.iter().map(|&i| i as usize) {
                for (to, from) in self.aside.iter_mut().zip([e, a]) {
                    to.extend_from_slice(from.get(i * size..(i + 1) * size).unwrap_or_default());
                }
                self.aside_at.push(at + i as u64);
            }
            let gone = gone.len() as u64;
            self.s.finite += CHUNK as u64 - gone;
            self.t.rel_count += found.rel_count;
            self.s.e.denormal += found.denormal[0];
            self.s.a.denormal += found.denormal[1];
            if found.counted {
                self.table.counted(CHUNK);
            }
            // In their places were pairs of zeros.
            self.table.remove_zeros(gone);
            self.near_pairs(at, e, a, &c, found, ahead);
        }
        self.near = Some(c);
        found.map(|f| f.sums)
    }

    /// A full chunk of floats of one type, all finite.
    pub(super) fn wide(&mut self, at: u64, e: &[u8], a: &[u8], ahead: &mut Ahead) -> Option<Sums> {
        let t = self.pair.e;
        let v4 = crate::simd::v4()?;
        let float = matches!(t, DType::F32 | DType::F64 | DType::Bf16 | DType::F16);
        if !float || t != self.pair.a || e.len() != CHUNK * t.literal_bytes() {
            return None;
        }
        if !(self.p.atol >= 0.0 && self.p.rtol >= 0.0)
            || self.o.bound.is_some()
            || !self.o.ulp.wrapping_add(1).is_power_of_two()
        {
            return None;
        }
        let cells = self.table.cells()?;
        let (p, known) = (self.p, self.rel.size);
        let (keys, planes) = (&mut self.c.keys, &mut *self.planes);
        macro_rules! run {
            ($n:literal, $far:literal) => {{
                let (e, a) = (e.as_chunks().0.first_chunk()?, a.as_chunks().0.first_chunk()?);
                v4.vectorize(kernel::Wide::<$n, $far> {
                    v4,
                    t,
                    e,
                    a,
                    p,
                    known,
                    cells,
                    keys,
                    planes,
                    ahead,
                })
            }};
        }
        let mut seen = None;
        if !self.spread {
            seen = match t.literal_bytes() {
                2 => run!(2, false),
                4 => run!(4, false),
                _ => run!(8, false),
            };
        }
        if seen.is_none() {
            self.spread = true;
            seen = match t.literal_bytes() {
                2 => run!(2, true),
                4 => run!(4, true),
                _ => run!(8, true),
            };
        }
        let seen = seen?;
        self.table.counted(CHUNK);
        self.s.finite += CHUNK as u64;
        let mut part = Partial {
            sums: seen.sums,
            max_abs: seen.max_abs,
            rel_count: seen.rel_count,
            sign_flips: seen.sign_flips,
            zero_signs: seen.zero_signs,
            denormal_e: seen.denormal[0],
            denormal_a: seen.denormal[1],
            ..Partial::default()
        };
        let least = match self.worst.last() {
            Some(w) if self.worst.len() >= self.o.worst => w.size,
            _ => 0.0,
        };
        // If all have a relative error, the largest tells that none is beyond.
        let within = !seen.rel
            && seen.rel_count == CHUNK as u64
            && known <= self.p.rtol * (1.0 - f64::EPSILON * 8.0);
        let close = match seen.not_close {
            Some([close, xla, maybe]) if xla == maybe => Some([close, xla]),
            None if within || seen.max_abs <= self.p.atol => Some([0, 0]),
            _ => None,
        };
        if close.is_none() || seen.rel || seen.ulp > self.ulp.size || seen.max_abs > least {
            self.pair.fill_floats(e, a, &mut self.c);
            if seen.rel {
                part.max_rel = kernel::max_rel(&self.c, self.p.atol);
            }
            self.largest(&part, at, CHUNK, false);
            self.farthest(seen.ulp, at, CHUNK, false);
        }
        let [close, xla] = close.unwrap_or_else(|| kernel::not_close(&self.c, self.p, false));
        (part.not_allclose, part.not_xla) = (close, xla);
        self.spread = !within || seen.sign_flips + seen.zero_signs + close + xla > 0;
        self.take(&part);
        Some(part.sums)
    }
}
