//! Running sums: windows of at least half a dimension.

use super::reduce::Monoid;
use super::{Lifter, Lv, dt_of};
use crate::tv::{Atoms, Tv, TvOps};
use scalify_ir::{Attrs, InstrId, WindowDim};
use scalify_terms::{Lins, Val};
use smallvec::SmallVec;

const REACH: &str = "index arithmetic is out of reach";
const OTHER: &str = "the window is no running sum";

impl Lifter<'_> {
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
