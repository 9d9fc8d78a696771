//! Loops of which the number of iterations is not known: what they compute as
//! a function of the state they begin with.
//!
//! The state is a function over *axes*: the index forms at which the carried
//! values are read. One iteration on a symbolic state gives the next state as
//! terms read at the same forms, so by induction all states are functions over
//! them. Two loops that begin with the same functions, and whose condition
//! and next state are the same terms, end with the same functions.

use super::opaque::rebuild;
use super::{Lifter, Lv, dt_of};
use crate::tv::{Tv, TvOps};
use scalify_ir::{InstrId, Shape};
use scalify_terms::{LinId, UNBOUNDED, Val};
use smallvec::SmallVec;
use std::fmt::Write;

/// Most times the axes of a state are extended.
const MAX_ROUNDS: usize = 4;

/// A carried array.
struct Carried {
    /// What the loop begins with.
    init: Tv,
    /// Forms that are the axes of the state, with their sizes.
    axes: SmallVec<[(LinId, i64); 4]>,
}

impl Lifter<'_> {
    /// The state after the loop; `None` if it is not such a function.
    pub(super) fn by_induction(
        &mut self,
        i: InstrId,
        begin: &Lv,
        rec: u32,
        path: u32,
    ) -> Option<(Lv, u32)> {
        if self.each || self.stop.is_some() {
            return None;
        }
        let m = self.m;
        let (cond, body) = (*m.instr(i).calls.first()?, *m.instr(i).calls.get(1)?);
        let shape = m.shape(i).clone();
        let kinds: Vec<Shape> = shape.leaves().into_iter().cloned().collect();
        let begin = begin.leaves();
        if begin.len() != kinds.len() {
            return None;
        }
        let mut state: Vec<Carried> = Vec::new();
        for x in &begin {
            let init = x.tensor()?.clone();
            let mut c = Carried { init, axes: SmallVec::new() };
            self.extend(&c.init.val.clone(), &mut c.axes)?;
            state.push(c);
        }
        for _ in 0..MAX_ROUNDS {
            // All that the loop begins with tells its symbols from others'.
            let mut from = String::new();
            for c in &state {
                let v = c.init.val.clone();
                self.describe(&v, &c.axes, &mut from)?;
            }
            let args = self.symbols(&from, "state", &state, &kinds)?;
            let arg = rebuild(&shape, &mut args.into_iter().map(Lv::T));
            self.consts.nesting += 1;
            let on = self.inline(i, cond, vec![(arg.clone(), rec)], path);
            let next = self.inline(i, body, vec![(arg, rec)], path);
            self.consts.nesting -= 1;
            let (on, next) = (on?.0, next?.0.leaves());
            if self.stop.is_some() || next.len() != state.len() {
                return None;
            }
            let mut key = from;
            // The same on all devices, or they would not stop together.
            self.describe(&on.tensor()?.val.clone(), &[], &mut key)?;
            let mut grown = false;
            for (c, x) in state.iter_mut().zip(&next) {
                let mut x = x.tensor()?.clone();
                let dims = c.init.dims.clone();
                for _ in 0..2 {
                    self.st.align(&mut c.init, &mut x)?;
                }
                let n = c.axes.len();
                if c.init.dims != dims {
                    // Dimensions were split: the forms are others.
                    c.axes.clear();
                    self.extend(&c.init.val.clone(), &mut c.axes)?;
                    grown = true;
                }
                self.extend(&x.val, &mut c.axes)?;
                if grown || c.axes.len() > n {
                    grown = true;
                    continue;
                }
                self.describe(&x.val, &c.axes, &mut key)?;
            }
            if grown {
                continue;
            }
            let ends = self.symbols(&key, "end", &state, &kinds)?;
            let v = rebuild(&shape, &mut ends.into_iter().map(Lv::T));
            return Some(self.record(i, path, SmallVec::from_elem(rec, 1), v, None));
        }
        None
    }

    /// Adds the forms of a value that are not constant.
    fn extend(&mut self, v: &Val, axes: &mut SmallVec<[(LinId, i64); 4]>) -> Option<()> {
        let sizes = self.st.class(v.r.class).sizes.clone();
        for (&l, &n) in v.r.m.iter().zip(&sizes) {
            if self.st.lins.as_constant(l).is_some() || axes.iter().any(|a| a.0 == l) {
                continue;
            }
            let n = if n == UNBOUNDED {
                let (lo, hi) = self.st.lins.range(l);
                (lo >= 0 && hi < UNBOUNDED / 2).then_some(hi + 1)?
            } else {
                n
            };
            axes.push((l, n));
        }
        Some(())
    }

    /// A value as text: its term, and the axis or constant each index is.
    /// `None` if an index is something else, or where the laws for finite
    /// values must not be used on it.
    fn describe(&mut self, v: &Val, axes: &[(LinId, i64)], out: &mut String) -> Option<()> {
        if self.st.may_not_be_finite(&v.r) {
            return None;
        }
        let _ = write!(out, "{}*{}[", v.coef.0, v.r.class.0);
        for &l in &v.r.m {
            let _ = match self.st.lins.as_constant(l) {
                Some(c) => write!(out, "{c},"),
                None => write!(out, "a{},", axes.iter().position(|a| a.0 == l)?),
            };
        }
        out.push(']');
        Some(())
    }

    /// One symbol per carried value, the same for the same text.
    fn symbols(
        &mut self,
        key: &str,
        what: &str,
        state: &[Carried],
        kinds: &[Shape],
    ) -> Option<Vec<Tv>> {
        let mut out = Vec::new();
        for (k, (c, s)) in state.iter().zip(kinds).enumerate() {
            let dtype = s.as_array()?.dtype;
            let sizes: Vec<i64> = c.axes.iter().map(|a| a.1).collect();
            let id = self.consts.symbol(format!("{what} {k} {dtype} {sizes:?} {key}"));
            if let Some((lo, hi)) = dtype.int_range() {
                if let (Ok(lo), Ok(hi)) = (i64::try_from(lo), i64::try_from(hi)) {
                    self.st.set_param_range(id, lo, hi);
                }
            }
            let m: Vec<LinId> = c.axes.iter().map(|a| a.0).collect();
            let val = self.st.param(id, dt_of(dtype), &sizes, &m);
            out.push(Tv { val, dims: c.init.dims.clone() });
        }
        Some(out)
    }
}
