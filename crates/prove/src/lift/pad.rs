//! Pad: fill values around the elements of a dimension, between them, or
//! instead of some.

use super::{Lifter, dt_of};
use crate::tv::{Tv, TvOps};
use scalify_ir::{Attrs, InstrId};
use smallvec::SmallVec;

const REACH: &str = "index arithmetic is out of reach";

impl Lifter<'_> {
    pub(super) fn lift_pad(&mut self, i: InstrId, x: &Tv, fill: &Tv) -> Result<Tv, String> {
        let (_, d) = self.array(i)?;
        let Attrs::Pad(p) = &self.m.instr(i).attrs else {
            return Err("pad without configuration".to_owned());
        };
        self.pad_with(x, fill, p, d)
    }

    /// `x` padded (also inside and negatively) with a scalar.
    pub(super) fn pad_with(
        &mut self,
        x: &Tv,
        fill: &Tv,
        conf: &[scalify_ir::PadDim],
        d: scalify_ir::DType,
    ) -> Result<Tv, String> {
        let mut t = x.clone();
        for (k, p) in conf.iter().enumerate() {
            let n = self.st.dim_size(&t.dims[k]);
            let (mut lo, mut hi, mut n2) = (p.low, p.high, n);
            if p.interior > 0 && n > 1 {
                if let Some(r) = self.interleave_rows(&t, fill, k, p, d)? {
                    t = r;
                    continue;
                }
                t = self.interleave(&t, fill, k, p.interior, d)?;
                n2 = n + (n - 1) * p.interior;
            }
            // Negative padding cuts.
            let (from, cut_hi) = ((-lo).max(0), (-hi).max(0));
            if from + cut_hi > 0 {
                let keep = n2 - from - cut_hi;
                if keep < 0 {
                    // What one side adds, the other cuts again.
                    let (a, b) = (lo.max(0), hi.max(0));
                    let keep = n2 + lo + hi;
                    if keep < 0 {
                        return Err("padding cuts more than there is".to_owned());
                    }
                    let mut up = vec![scalify_ir::PadDim::default(); conf.len()];
                    up[k] = scalify_ir::PadDim { low: a, high: b, interior: 0 };
                    t = self.pad_with(&t, fill, &up, d)?;
                    self.cut_dim(&mut t, k, from, keep, 1).ok_or(REACH)?;
                    continue;
                }
                self.cut_dim(&mut t, k, from, keep, 1).ok_or(REACH)?;
                n2 = keep;
                lo = lo.max(0);
                hi = hi.max(0);
            }
            if lo == 0 && hi == 0 {
                continue;
            }
            let mut s: SmallVec<[i64; 6]> = t.dims.iter().map(|d| self.st.dim_size(d)).collect();
            let mut f = |n: i64| -> Tv {
                s[k] = n;
                let dims = self.st.fresh_dims(&s);
                Tv { val: fill.val.clone(), dims }
            };
            let parts = [(lo, f(lo)), (n2, t.clone()), (hi, f(hi))];
            s[k] = lo + n2 + hi;
            t = self.join(dt_of(d), &parts, k, &s)?;
        }
        Ok(t)
    }

    /// Dimension `k` padded inside and outside to a multiple of the distance
    /// of its elements: rows of one element and the fill values around it, so
    /// that rows and places in them are axes. `None` for other lengths.
    fn interleave_rows(
        &mut self,
        t: &Tv,
        fill: &Tv,
        k: usize,
        p: &scalify_ir::PadDim,
        d: scalify_ir::DType,
    ) -> Result<Option<Tv>, String> {
        let n = self.st.dim_size(&t.dims[k]);
        let row = p.interior.checked_add(1).ok_or(REACH)?;
        let inner = (n - 1).checked_mul(row).and_then(|x| x.checked_add(1)).ok_or(REACH)?;
        let total = inner.checked_add(p.low).and_then(|x| x.checked_add(p.high)).ok_or(REACH)?;
        if total <= 0 || total % row != 0 {
            return Ok(None);
        }
        let (above, before) = (p.low.div_euclid(row), p.low.rem_euclid(row));
        let mut s: SmallVec<[i64; 6]> = t.dims.iter().map(|d| self.st.dim_size(d)).collect();
        s.insert(k + 1, 1);
        let x = self.st.reshape(t, &s).ok_or(REACH)?;
        let mut f = |n: i64| -> Tv {
            s[k + 1] = n;
            Tv { val: fill.val.clone(), dims: self.st.fresh_dims(&s) }
        };
        let after = p.interior - before;
        let parts = [(before, f(before)), (1, x), (after, f(after))];
        s[k + 1] = row;
        let rows = self.join(dt_of(d), &parts, k + 1, &s)?;
        let mut conf = vec![scalify_ir::PadDim::default(); s.len()];
        let below = total / row - n - above;
        conf[k] = scalify_ir::PadDim { low: above, high: below, interior: 0 };
        let all = self.pad_with(&rows, fill, &conf, d)?;
        s.remove(k + 1);
        s[k] = total;
        Ok(Some(self.st.reshape(&all, &s).ok_or(REACH)?))
    }

    /// Fill values between the elements of dimension `k`.
    fn interleave(
        &mut self,
        t: &Tv,
        fill: &Tv,
        k: usize,
        gap: i64,
        d: scalify_ir::DType,
    ) -> Result<Tv, String> {
        let n = self.st.dim_size(&t.dims[k]);
        let mut s: SmallVec<[i64; 6]> = t.dims.iter().map(|d| self.st.dim_size(d)).collect();
        s.insert(k + 1, 1);
        let x = self.st.reshape(t, &s).ok_or(REACH)?;
        s[k + 1] = gap;
        let f = Tv { val: fill.val.clone(), dims: self.st.fresh_dims(&s) };
        s[k + 1] = 1 + gap;
        let j = self.join(dt_of(d), &[(1, x), (gap, f)], k + 1, &s)?;
        s.remove(k + 1);
        s[k] = n * (1 + gap);
        let mut r = self.st.reshape(&j, &s).ok_or(REACH)?;
        self.cut_dim(&mut r, k, 0, n + (n - 1) * gap, 1).ok_or(REACH)?;
        Ok(r)
    }
}
