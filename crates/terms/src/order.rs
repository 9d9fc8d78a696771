//! Maxima (and minima as negated maxima of negated values).
//!
//! Laws, all exact: a maximum is flat, commutative and idempotent; a maximum
//! over bound axes distributes over a maximum; bound axes that nothing reads
//! are dropped; positive coefficients stand outside; `-inf` is neutral.

use crate::coef::Coef;
use crate::lin::{Ax, Subst};
use crate::make::Build;
use crate::store::{Arg, Dt, Op, Store, Val};
use crate::tables::Untabled;
use smallvec::SmallVec;

impl Store {
    fn is_neg_inf(&self, v: &Val) -> bool {
        self.class(v.r.class).op == Op::Const(crate::arith::NEG_INF) && self.coefs.sign(v.coef) > 0
    }

    /// The largest of the values.
    pub fn max(&mut self, dt: Dt, vals: &[Val]) -> Option<Val> {
        let mut flat: SmallVec<[Arg; 4]> = SmallVec::new();
        let mut best: Option<Coef> = None;
        let mut work: SmallVec<[Val; 8]> = vals.iter().rev().cloned().collect();
        let mut seen_inf: Option<Val> = None;
        while let Some(v) = work.pop() {
            if self.is_neg_inf(&v) {
                seen_inf = Some(v);
                continue;
            }
            if let Some(c) = self.as_const(&v) {
                best = Some(match best {
                    Some(b) if self.coefs.get(b) >= self.coefs.get(c) => b,
                    _ => c,
                });
                continue;
            }
            let c = self.class(v.r.class);
            if c.op == Op::Max && c.dt == dt && self.coefs.sign(v.coef) > 0 {
                let (args, _) = self.open(&v.r)?;
                for a in args.iter().rev() {
                    let x = self.val_of(a);
                    work.push(self.scale(&x, v.coef)?);
                }
                continue;
            }
            if dt == Dt::INT {
                // Values that one argument always dominates are dropped below.
            }
            flat.push(Self::arg(&v));
        }
        if dt == Dt::INT {
            self.drop_dominated(&mut flat, &mut best);
        }
        if dt != Dt::INT && self.rules.finite {
            if let Some(c) = best {
                let sign = self.coefs.sign(c);
                let mut dropped = false;
                // c >= 0 is not below what is never positive, c <= 0 not above
                // what is never negative.
                let mut keep: SmallVec<[Arg; 4]> = SmallVec::new();
                for a in flat.drain(..) {
                    let unit = Val { coef: Coef::ONE, r: a.r.clone(), dt };
                    let never = self.is_nonnegative(&unit, 4);
                    let up = self.coefs.sign(a.coef) > 0;
                    if never && !up && sign >= 0 {
                        dropped = true;
                        continue;
                    }
                    if never && up && sign <= 0 {
                        best = None;
                    }
                    keep.push(a);
                }
                flat = keep;
                if dropped || best.is_none() {
                    self.assume("max(0, x) by the sign of x");
                }
            }
        }
        if let Some(c) = best {
            let v = self.constant(dt, c);
            flat.push(Self::arg(&v));
        }
        flat.sort_by(|a, b| a.r.cmp(&b.r).then(a.coef.cmp(&b.coef)));
        flat.dedup();
        if dt != Dt::INT && self.gather_series(dt, &mut flat, |s, dt, v, z| s.max_over(dt, v, &[z]))
        {
            let vals: SmallVec<[Val; 8]> =
                flat.iter().map(|a| Val { coef: a.coef, r: a.r.clone(), dt }).collect();
            return self.max(dt, &vals);
        }
        match flat.len() {
            0 => seen_inf,
            1 => {
                let a = flat.pop()?;
                Some(Val { coef: a.coef, r: a.r, dt })
            }
            _ => {
                // A common positive factor stands outside; 0 has any factor.
                let lead = flat.iter().map(|a| a.coef).find(|&c| c != Coef::ZERO)?;
                let k = self.coefs.abs(lead);
                let same = flat.iter().all(|a| {
                    a.coef == lead || a.coef == Coef::ZERO || {
                        let (x, y) = (self.coefs.get(a.coef), self.coefs.get(lead));
                        *x == -y
                    }
                });
                if same && k != Coef::ONE && k != Coef::ZERO {
                    let inv = self.coefs.inv(k)?;
                    for a in flat.iter_mut() {
                        a.coef = self.coefs.mul(a.coef, inv)?;
                    }
                    let v = self.node(Op::Max, dt, true, flat);
                    return self.scale(&v, k);
                }
                Some(self.node(Op::Max, dt, true, flat))
            }
        }
    }

    /// Integer arguments: drop what an interval shows never to be the largest.
    fn drop_dominated(&mut self, flat: &mut SmallVec<[Arg; 4]>, best: &mut Option<Coef>) {
        let Some(c) = *best else { return };
        let Some(k) = self.coefs.to_int(c) else { return };
        let mut i = 0;
        while i < flat.len() {
            let v = Val { coef: flat[i].coef, r: flat[i].r.clone(), dt: Dt::INT };
            if let Some((lo, hi)) = self.int_range(&v) {
                if lo >= k {
                    *best = None;
                    return;
                }
                if hi <= k {
                    flat.remove(i);
                    continue;
                }
            }
            i += 1;
        }
    }

    /// The smallest of the values.
    pub fn min(&mut self, dt: Dt, vals: &[Val]) -> Option<Val> {
        let mut neg: SmallVec<[Val; 4]> = SmallVec::new();
        for v in vals {
            neg.push(self.scale(v, Coef::NEG)?);
        }
        let m = self.max(dt, &neg)?;
        self.scale(&m, Coef::NEG)
    }

    /// The largest value over the bound atoms.
    pub fn max_over(&mut self, dt: Dt, v: &Val, bound: &[Ax]) -> Option<Val> {
        if bound.iter().any(|&b| self.lins.size(b) == 0) {
            // Nothing to take the largest of.
            return (dt != Dt::INT).then(|| self.special(dt, crate::arith::NEG_INF));
        }
        let bound: SmallVec<[Ax; 4]> =
            bound.iter().copied().filter(|&b| self.ref_mentions(&v.r, b)).collect();
        if bound.is_empty() || v.coef == Coef::ZERO {
            return Some(v.clone());
        }
        let arg = [Self::arg(v)];
        match self.untable(&arg, &bound)? {
            Untabled::Fine => {}
            Untabled::Reindex(map, b) => {
                let w = self.subst(v, &map)?;
                return self.max_over(dt, &w, &b);
            }
            Untabled::Enumerate(b, n, rest) => {
                let mut parts: SmallVec<[Val; 8]> = SmallVec::new();
                for k in 0..n {
                    let mut map = Subst::new();
                    let c = self.lins.constant(k);
                    map.set(b, c);
                    let fresh = self.fresh_like(&rest, &mut map);
                    let w = self.subst(v, &map)?;
                    parts.push(self.max_over(dt, &w, &fresh)?);
                }
                return self.max(dt, &parts);
            }
        }
        let c = self.class(v.r.class);
        if c.dt == dt && self.coefs.sign(v.coef) > 0 {
            if c.op == Op::Max {
                let (args, _) = self.open(&v.r)?;
                let mut parts: SmallVec<[Val; 4]> = SmallVec::new();
                for a in &args {
                    let x = self.val_of(a);
                    let x = self.scale(&x, v.coef)?;
                    parts.push(self.max_over(dt, &x, &bound)?);
                }
                return self.max(dt, &parts);
            }
            if c.op == Op::MaxR {
                let (args, b) = self.open(&v.r)?;
                let mut all = bound;
                all.extend(b);
                let x = self.val_of(&args[0]);
                let x = self.scale(&x, v.coef)?;
                return self.max_over(dt, &x, &all);
            }
        }
        let k = self.coefs.abs(v.coef);
        let inv = self.coefs.inv(k)?;
        let mut a = Self::arg(v);
        a.coef = self.coefs.mul(a.coef, inv)?;
        let b =
            Build { op: Op::MaxR, dt, commutative: true, bound: &bound, captured: false, own: &[] };
        let (r, _) = self.make(&b, SmallVec::from_elem(a, 1));
        self.scale(&Val { coef: Coef::ONE, r, dt }, k)
    }

    /// The smallest value over the bound atoms.
    pub fn min_over(&mut self, dt: Dt, v: &Val, bound: &[Ax]) -> Option<Val> {
        let n = self.scale(v, Coef::NEG)?;
        let m = self.max_over(dt, &n, bound)?;
        self.scale(&m, Coef::NEG)
    }
}
