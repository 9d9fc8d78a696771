//! Positions of largest values.
//!
//! `argmax_j x[j]` is the least `j` at which `x` is largest, an integer in
//! `0..n`. Laws, for values without NaN: a positive factor of `x` does not
//! matter; the position in blocks is the position in the whole,
//! `argmax_p x[p] = b*D + argmax_j x[b*D + j]` with
//! `D = argmax_d max_j x[b*d + j]`; minus infinity at the end does not matter.

use crate::coef::Coef;
use crate::lin::{Ax, Lins, Subst};
use crate::store::{Arg, Dt, Op, Ref, Store, Val};
use smallvec::SmallVec;

type Factors = SmallVec<[Arg; 4]>;

impl Store {
    /// The least index along atom `j` (consumed) at which `x` is largest.
    /// Needs values that are no NaN; the caller logs that.
    pub fn argmax(&mut self, x: &Val, j: Ax) -> Option<Val> {
        if x.coef == Coef::ZERO || !self.ref_mentions(&x.r, j) {
            return Some(self.int(0));
        }
        let n = self.lins.size(j);
        if n < 1 {
            return None;
        }
        if let Some(y) = self.without_tail(x, j)? {
            return self.argmax(&y.0, y.1);
        }
        let coef = if self.coefs.sign(x.coef) > 0 { Coef::ONE } else { Coef::NEG };
        let x = Val { coef, ..x.clone() };
        let s = self.sym(&format!("argmax:{n}"));
        self.set_sym_range(s, 0, n - 1);
        self.argmaxes.insert(s);
        Some(self.opaque(s, Dt::INT, &[x], &[j], &[]))
    }

    /// Pieces along `j` without the runs of minus infinity at their end: the
    /// least index of a largest value is before them.
    fn without_tail(&mut self, x: &Val, j: Ax) -> Option<Option<(Val, Ax)>> {
        let c = self.class(x.r.class);
        if c.op != Op::Pcs {
            return Some(None);
        }
        let (own, lens) = (c.nfree as usize, c.bound.clone());
        // What is read outside of pieces is 0, which is more than they end with.
        let total: i64 = lens.iter().sum();
        if self.lins.size(j) != total
            || x.r.m[own] != Lins::plain(j)
            || x.r.m[..own].iter().any(|&l| self.lins.mentions(l, j))
        {
            return Some(None);
        }
        let sign = self.coefs.sign(x.coef);
        let low = |s: &Store, a: &Arg| {
            s.class(a.r.class).op == Op::Const(crate::arith::NEG_INF)
                && s.coefs.sign(a.coef) * sign > 0
        };
        let args = c.args.clone();
        let keep = args.iter().rposition(|a| !low(self, a)).map_or(0, |k| k + 1);
        let n: i64 = lens.iter().take(keep).sum();
        if keep == 0 || keep == args.len() {
            return Some(None);
        }
        let q = self.lins.local(n);
        let mut map = Subst::new();
        map.set(j, Lins::plain(q));
        Some(Some((self.subst(x, &map)?, q)))
    }

    fn is_argmax(&self, r: &Ref) -> bool {
        matches!(self.class(r.class).op, Op::Opq(s) if self.argmaxes.contains(&s))
    }

    /// Puts `k*b*D + k * sum_d [d == D] argmax_j x[d, j]` among integer terms
    /// together. True if something changed.
    pub(crate) fn join_argmax(&mut self, flat: &mut Factors) -> Option<bool> {
        if self.argmaxes.is_empty() || flat.len() < 2 {
            return Some(false);
        }
        for i in 0..flat.len() {
            let c = self.class(flat[i].r.class);
            if c.op != Op::Sum || c.args.len() != 2 || c.bound.len() != 1 {
                continue;
            }
            if !c.args.iter().any(|a| self.is_argmax(&a.r)) {
                continue;
            }
            let Some((whole, at, block)) = self.argmax_of_blocks(&flat[i].r.clone())? else {
                continue;
            };
            let want = {
                let b = self.coefs.int(block);
                self.coefs.mul(flat[i].coef, b)?
            };
            let Some(k) = flat.iter().position(|a| a.r == at.r && a.coef == want) else { continue };
            flat[i] = Arg { coef: flat[i].coef, pow: 1, r: whole.r };
            flat.remove(k);
            return Some(true);
        }
        Some(false)
    }

    /// For `sum_d [d == D] argmax_j x[d, j]` with `D = argmax_d max_j x[d, j]`,
    /// where `d` and `j` are digits of one index: the position in the whole,
    /// `D`, and the size of `j`.
    fn argmax_of_blocks(&mut self, r: &Ref) -> Option<Option<(Val, Val, i64)>> {
        let (args, bound) = self.open(r)?;
        let d = bound[0];
        let (n, mut inner, mut at) = (self.lins.size(d), None, None);
        for a in &args {
            if a.pow != 1 || a.coef != Coef::ONE {
                return Some(None);
            }
            if self.is_argmax(&a.r) {
                inner = Some(a.clone());
            } else if self.is_indicator(&a.r) {
                let (p, _) = self.open(&a.r)?;
                if self.class(p[0].r.class).op != Op::Ew(self.known.eq0) {
                    return Some(None);
                }
                at = self.one_hot_axis(&p[0].r, &bound)?.map(|h| h.2);
            }
        }
        let (Some(inner), Some(at)) = (inner, at) else { return Some(None) };
        if at.coef != Coef::ONE || !self.is_argmax(&at.r) || self.ref_mentions(&at.r, d) {
            return Some(None);
        }
        let (x, js) = self.open(&inner.r)?;
        let (x, j) = (self.val_of(&x[0]), *js.first()?);
        let b = self.lins.size(j);
        // Digits of one index in every form.
        let mut digits = true;
        for &l in &x.r.m {
            let (mut cd, mut cj) = (0, 0);
            self.lins.for_terms(l, |c, a| {
                if a == d {
                    cd = c;
                } else if a == j {
                    cj = c;
                } else {
                    let p = Lins::plain(a);
                    digits &= !self.lins.mentions(p, d) && !self.lins.mentions(p, j);
                }
            });
            digits &= cj.checked_mul(b) == Some(cd);
        }
        if !digits {
            return Some(None);
        }
        // D must be the position of the largest block.
        let mut map = Subst::new();
        let (d2, j2) = (self.lins.local(n), self.lins.local(b));
        map.set(d, Lins::plain(d2));
        map.set(j, Lins::plain(j2));
        let y = self.subst(&x, &map)?;
        let m = self.max_over(y.dt, &y, &[j2])?;
        if self.argmax(&m, d2)? != at {
            return Some(None);
        }
        let p = self.lins.local(n.checked_mul(b)?);
        let zero = self.lins.constant(0);
        let mut map = Subst::new();
        map.set(d, zero);
        map.set(j, Lins::plain(p));
        let x = self.subst(&x, &map)?;
        let whole = self.argmax(&x, p)?;
        Some(Some((whole, at, b)))
    }
}
