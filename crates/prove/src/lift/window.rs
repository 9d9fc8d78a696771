//! Reductions over windows: running sums (windows of at least half a
//! dimension) as masked sums, all others as reductions of shifted reads.

use super::reduce::Monoid;
use super::{Lifter, Lv, dt_of};
use crate::tv::{Atoms, Tv, TvOps};
use scalify_ir::{Attrs, InstrId, WindowDim};
use scalify_terms::{Dt, Lins, Val};
use smallvec::SmallVec;

const REACH: &str = "index arithmetic is out of reach";
const OTHER: &str = "the window is no running sum";

impl Lifter<'_> {
    /// `y[i] = op over w of x[stride * i + dilation * w - low]`, where the
    /// initial value is neutral and so stands for what lies outside. `Err`:
    /// any other window.
    pub(super) fn lift_windowed(&mut self, i: InstrId, v: &[Lv]) -> Result<Tv, String> {
        const NO: &str = "the window is no plain reduction";
        let m = self.m;
        let ins = m.instr(i);
        let (out, d) = self.array(i)?;
        let (Attrs::Window(ws), [x, init]) = (&ins.attrs, v) else { return Err(NO.to_owned()) };
        let body = *ins.calls.first().ok_or(NO)?;
        let op = self.monoid(body).ok_or(NO)?;
        let init = init.tensor().ok_or(NO)?.clone();
        // The order of a float sum is free over the reals only.
        if (d.is_float() && op == Monoid::Add && !self.st.rules.reals)
            || (op == Monoid::Mul && dt_of(d) != Dt::BOOL)
            || !self.is_identity(op, d, &init.val)
            || ws.len() != out.len()
        {
            return Err(NO.to_owned());
        }
        let mut t = self.st.freshen(x.tensor().ok_or(NO)?).ok_or(REACH)?;
        let mut bound: SmallVec<[_; 8]> = SmallVec::new();
        for (k, w) in ws.iter().enumerate() {
            if *w == WindowDim::default() {
                continue;
            }
            let mut conf = vec![scalify_ir::PadDim::default(); ws.len()];
            conf[k] = scalify_ir::PadDim {
                low: w.pad_low,
                high: w.pad_high,
                interior: w.base_dilation - 1,
            };
            t = self.pad_with(&t, &init, &conf, d)?;
            let padded = self.st.dim_size(&t.dims[k]);
            // Windows side by side are a dimension of a reshape.
            if w.window_dilation == 1
                && w.stride == w.size
                && w.size > 0
                && out[k].checked_mul(w.size) == Some(padded)
            {
                let mut sizes: SmallVec<[i64; 6]> =
                    t.dims.iter().map(|d| self.st.dim_size(d)).collect();
                sizes[k] = out[k];
                sizes.insert(k + 1, w.size);
                t = self.st.reshape(&t, &sizes).ok_or(REACH)?;
                bound.extend(t.dims.remove(k + 1));
                continue;
            }
            let y = self.st.fresh_dims(&[out[k]]).remove(0);
            let u = self.st.fresh_dims(&[w.size]).remove(0);
            let mut parts: SmallVec<[_; 2]> = SmallVec::new();
            if let Some(&a) = y.first() {
                parts.push((w.stride, Lins::plain(a)));
            }
            if let Some(&a) = u.first() {
                parts.push((w.window_dilation, Lins::plain(a)));
            }
            let at = self.st.lins.combine(&parts).ok_or(REACH)?;
            let (lo, hi) = self.st.lins.range(at);
            if out[k] < 1 || w.size < 1 || lo < 0 || hi >= padded.max(1) {
                return Err("the window leaves the padded operand".to_owned());
            }
            self.st.index_dim(&mut t, k, at).ok_or(REACH)?;
            t.dims[k] = y;
            bound.extend(u.iter().copied());
        }
        t.val = self.reduce_over(op, d, &t.val.clone(), &bound)?;
        Ok(t)
    }

    /// `y[i] = sum_p [p in the window of i] x[p]` for float sums over windows
    /// of at least half the dimension. `Err`: any other window.
    pub(super) fn lift_running_sum(&mut self, i: InstrId, v: &[Lv]) -> Result<Tv, String> {
        let m = self.m;
        let ins = m.instr(i);
        let (out, d) = self.array(i)?;
        let (Attrs::Window(ws), [x, init]) = (&ins.attrs, v) else {
            return Err(OTHER.to_owned());
        };
        let body = *ins.calls.first().ok_or(OTHER)?;
        if !self.st.rules.reals
            || !d.is_float()
            || self.monoid(body) != Some(Monoid::Add)
            || ws.len() != out.len()
        {
            return Err(OTHER.to_owned());
        }
        let init = init.tensor().ok_or(OTHER)?.val.clone();
        if !self.st.is_zero(&init) {
            return Err(OTHER.to_owned());
        }
        let mut t = x.tensor().ok_or(OTHER)?.clone();
        let dt = dt_of(d);
        let mut bound: SmallVec<[_; 8]> = SmallVec::new();
        let mut factors: Vec<Val> = Vec::new();
        for (k, w) in ws.iter().enumerate() {
            if *w == WindowDim::default() {
                continue;
            }
            let n = self.st.dim_size(&t.dims[k]);
            let plain = WindowDim {
                size: w.size,
                pad_low: w.pad_low,
                pad_high: w.pad_high,
                ..WindowDim::default()
            };
            if *w != plain || n < 2 || w.size.saturating_mul(2) < n || out[k] < 1 {
                return Err(OTHER.to_owned());
            }
            let p = self.st.lins.local(n);
            self.st.index_dim(&mut t, k, Lins::plain(p)).ok_or(REACH)?;
            bound.push(p);
            // 0 <= p - i + pad_low < size
            let mut dim = Atoms::new();
            let mut at = self.st.lins.shift(Lins::plain(p), w.pad_low);
            if out[k] > 1 {
                let y = self.st.lins.local(out[k]);
                dim.push(y);
                at = self.st.lins.combine(&[(1, at), (-1, Lins::plain(y))]).ok_or(REACH)?;
            }
            let top = self.st.lins.constant(w.size - 1);
            let left = self.st.lins.combine(&[(1, top), (-1, at)]).ok_or(REACH)?;
            for l in [at, left] {
                let g = self.st.iota(l);
                let q = self.st.ge0(&g).ok_or(REACH)?;
                factors.push(self.st.indicator(dt, &q));
            }
            t.dims[k] = dim;
        }
        if bound.is_empty() {
            return Err(OTHER.to_owned());
        }
        let mut val = t.val.clone();
        for f in factors {
            val = self.st.mul(dt, &f, &val).ok_or(REACH)?;
        }
        t.val = self.st.sum(dt, &val, &bound).ok_or(REACH)?;
        Ok(t)
    }
}
