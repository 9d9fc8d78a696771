//! Guards: factors `indicator(p)` of a product.
//!
//! Where `p` is false the product selects 0, so the other factors may take
//! `p` for true: selections by it and clamps that it makes idle are resolved
//! inside one-hot reads. A guard that a one-hot read implies (the sum is empty
//! wherever the guard fails) is dropped, and so is a bound on the index at
//! which pieces are read: the runs outside are 0.

use crate::coef::Coef;
use crate::lin::{LinId, UNBOUNDED};
use crate::pieces::Run;
use crate::store::{Arg, Dt, Op, Store, Val};
use smallvec::SmallVec;

type Factors = SmallVec<[Arg; 4]>;

impl Store {
    /// True if the factor is a sum with an indicator of an integer equation.
    fn is_one_hot(&self, a: &Arg) -> bool {
        let c = self.class(a.r.class);
        a.pow == 1
            && c.op == Op::Sum
            && c.args.iter().any(|x| {
                self.is_indicator(&x.r) && {
                    let p = &self.class(x.r.class).args[0].r;
                    self.class(p.class).op == Op::Ew(self.known.eq0)
                }
            })
    }

    /// `[c + j >= 0] * pieces(j)`: the pieces with 0 for the indices where the
    /// guard fails. Also for `c - j` and the negation.
    fn guarded_pieces(&mut self, dt: Dt, flat: &mut Factors) -> Option<bool> {
        for k in 0..flat.len() {
            let c = self.class(flat[k].r.class);
            if flat[k].pow != 1 || c.op != Op::Pcs || c.dt != dt {
                continue;
            }
            for i in 0..flat.len() {
                if self.class(flat[i].r.class).op != Op::Ew(self.known.ind) || flat[i].pow != 1 {
                    continue;
                }
                let (p, _) = self.open(&flat[i].r.clone())?;
                let p = self.val_of(&p[0]);
                let Some(g) = self.bound_of(&p)? else { continue };
                let Some(l) = self.as_iota(&g) else { continue };
                // Where the guard fails the other factors are multiplied by 0.
                let others: SmallVec<[usize; 4]> = (0..flat.len())
                    .filter(|&n| n != i && n != k && !self.is_indicator(&flat[n].r))
                    .collect();
                if !others.is_empty()
                    && (!self.rules.finite
                        || others.iter().any(|&n| {
                            self.is_doubtful(&flat[n].r) || self.may_be_infinite(&flat[n].r)
                        }))
                {
                    continue;
                }
                let zero = self.zero(dt);
                let v = Val { coef: Coef::ONE, r: flat[k].r.clone(), dt };
                let Some(w) = self.cut_pieces(&v, l, &zero)? else { continue };
                if !others.is_empty() {
                    self.assume("0 * x = 0");
                }
                flat[k] = Arg { coef: w.coef, pow: 1, r: w.r };
                flat.remove(i);
                return Some(true);
            }
        }
        Some(false)
    }

    /// Pieces with `fill`, a constant, at the indices where the form is
    /// negative; `None` unless it bounds the index they are read at.
    fn cut_pieces(&mut self, v: &Val, l: LinId, fill: &Val) -> Option<Option<Val>> {
        let c = self.class(v.r.class);
        let own = c.nfree as usize;
        let (total, lens) = (c.sizes[own], c.bound.clone());
        let at = v.r.m[own];
        // Outside pieces are 0, whatever is put where the guard fails.
        let (low, high) = self.lins.range(at);
        if fill.coef != Coef::ZERO && (low < 0 || high >= total) {
            return Some(None);
        }
        // Not negative in `from..to`.
        let plus = self.lins.combine(&[(1, l), (-1, at)])?;
        let minus = self.lins.combine(&[(1, l), (1, at)])?;
        let (from, to) = match (self.lins.as_constant(plus), self.lins.as_constant(minus)) {
            (Some(c), _) => (c.checked_neg()?.clamp(0, total), total),
            (_, Some(c)) => (0, c.checked_add(1)?.clamp(0, total)),
            _ => return Some(None),
        };
        let (args, axes) = self.open(&v.r.clone())?;
        let mut runs: Vec<Run> = Vec::new();
        let mut start = 0;
        for (n, a) in args.iter().enumerate() {
            let end = start + lens[n];
            let (s, e) = (start.max(from), end.min(to).max(start.max(from)));
            let x = self.val_of(a);
            let x = if v.coef == Coef::ONE { x } else { self.scale(&x, v.coef)? };
            let none = |len: i64| Run { len, val: fill.clone(), axis: None };
            if s >= e {
                runs.push(none(end - start));
            } else {
                runs.push(none(s - start));
                runs.push(self.cut(&x, axes[n], s - start, e - s)?);
                runs.push(none(end - e));
            }
            start = end;
        }
        Some(Some(self.pieces(v.dt, &runs, at)?))
    }

    /// `p ? pieces : -inf` where `p` bounds the index the pieces are read at,
    /// as pieces.
    pub(crate) fn selected_pieces(&mut self, p: &Val, v: &Val, fill: &Val) -> Option<Option<Val>> {
        if self.class(v.r.class).op != Op::Pcs || v.coef == Coef::ZERO {
            return Some(None);
        }
        let Some(g) = self.bound_of(p)? else { return Some(None) };
        match self.as_iota(&g) {
            Some(l) => self.cut_pieces(v, l, fill),
            None => Some(None),
        }
    }

    /// Uses the guards of a product on its one-hot reads. True if something
    /// changed; the factors are then to be put into normal form again.
    pub(crate) fn use_guards(
        &mut self,
        dt: Dt,
        coef: &mut Coef,
        flat: &mut Factors,
    ) -> Option<bool> {
        let selecting = |s: &Store, a: &Arg| s.class(a.r.class).op == Op::Ew(s.known.ind);
        if !flat.iter().any(|a| selecting(self, a)) {
            return Some(false);
        }
        if dt != Dt::INT && self.guarded_pieces(dt, flat)? {
            return Some(true);
        }
        // A one-hot read, else a bare indicator of an equation.
        let bare = |s: &Store, a: &Arg| {
            a.pow == 1 && s.is_indicator(&a.r) && {
                let p = &s.class(a.r.class).args[0].r;
                s.class(p.class).op == Op::Ew(s.known.eq0)
            }
        };
        let sum = flat.iter().position(|a| self.is_one_hot(a));
        let Some(k) = sum.or_else(|| flat.iter().position(|a| bare(self, a))) else {
            return Some(false);
        };
        let mut truths: SmallVec<[Val; 4]> = SmallVec::new();
        let mut guards: SmallVec<[usize; 4]> = SmallVec::new();
        for (i, a) in flat.iter().enumerate() {
            if selecting(self, a) && a.pow > 0 && i != k {
                guards.push(i);
            }
        }
        for &i in &guards {
            let r = flat[i].r.clone();
            let (a, _) = self.open(&r)?;
            truths.push(self.val_of(&a[0]));
        }
        // Equations of the one-hot read, over fresh bound atoms.
        if guards.is_empty() {
            return Some(false);
        }
        let read = flat[k].r.clone();
        let (mut args, bound) = if sum.is_some() {
            self.open(&read)?
        } else {
            (SmallVec::from_elem(flat[k].clone(), 1), SmallVec::new())
        };
        let mut changed = false;
        let mut equations: SmallVec<[Val; 2]> = SmallVec::new();
        for x in args.iter_mut() {
            if !self.is_indicator(&x.r) || x.pow != 1 {
                continue;
            }
            let num = self.class(x.r.class).op;
            let (p, _) = self.open(&x.r)?;
            if self.class(p[0].r.class).op != Op::Ew(self.known.eq0) {
                continue;
            }
            let (e, _) = self.open(&p[0].r)?;
            let e = self.val_of(&e[0]);
            let s = self.under(&e, &truths, 6)?;
            if s != e {
                changed = true;
                let q = self.eq0(&s)?;
                let g = match num {
                    Op::Ew(f) if f == self.known.ind => self.indicator(dt, &q),
                    _ => self.convert_pred(dt, &q),
                };
                *x = Arg { coef: g.coef, pow: 1, r: g.r };
            }
            equations.push(s);
        }
        if changed {
            let s = if sum.is_some() {
                self.sum_prod(dt, Coef::ONE, args, &bound)?
            } else {
                self.product(dt, Coef::ONE, args)?
            };
            flat[k] = Arg { coef: s.coef, pow: 1, r: s.r };
            return Some(true);
        }
        // Guards that the equations imply.
        for (n, &i) in guards.iter().enumerate() {
            if self.implied(&truths[n].clone(), &equations)? {
                flat.remove(i);
                return Some(true);
            }
        }
        let _ = coef;
        Some(false)
    }

    /// `v` where all of `truths` hold: selections by a truth take its branch,
    /// maxima lose arguments that a truth shows not to exceed another.
    fn under(&mut self, v: &Val, truths: &[Val], depth: u32) -> Option<Val> {
        if depth == 0 || v.dt != Dt::INT {
            return Some(v.clone());
        }
        let unit = Val { coef: Coef::ONE, ..v.clone() };
        let r = match self.class(v.r.class).op {
            Op::Ew(s) if s == self.known.select => {
                let (a, _) = self.open(&v.r)?;
                let (x, y) = (self.val_of(&a[1]), self.val_of(&a[2]));
                match self.truth(&a[0], truths) {
                    Some(true) => self.under(&x, truths, depth - 1)?,
                    Some(false) => self.under(&y, truths, depth - 1)?,
                    None => return Some(v.clone()),
                }
            }
            Op::Ew(s) if s == self.known.ind || s == self.known.b2f => {
                let (a, _) = self.open(&v.r)?;
                match self.truth(&a[0], truths) {
                    Some(t) => self.int(i64::from(t)),
                    None => return Some(v.clone()),
                }
            }
            // A sum that wraps is the sum where the truths keep it in range.
            Op::Ew(s) if self.wrapping.contains_key(&s) => {
                let (a, _) = self.open(&v.r)?;
                let ([x, y], Some(&minus), Some(&(lo, hi))) =
                    (&a[..], self.wrapping.get(&s), self.sym_range.get(&s))
                else {
                    return Some(v.clone());
                };
                if lo <= -UNBOUNDED || hi >= UNBOUNDED {
                    return Some(v.clone());
                }
                let (x, y) = (self.val_of(x), self.val_of(y));
                let y = if minus { self.scale(&y, Coef::NEG)? } else { y };
                let sum = self.add(Dt::INT, &[x, y])?;
                let neg = self.scale(&sum, Coef::NEG)?;
                let (low, high) = (self.int(-lo), self.int(hi));
                let above = self.add(Dt::INT, &[sum.clone(), low])?;
                let below = self.add(Dt::INT, &[neg, high])?;
                if !self.nonnegative_under(&above, truths)?
                    || !self.nonnegative_under(&below, truths)?
                {
                    return Some(v.clone());
                }
                self.under(&sum, truths, depth - 1)?
            }
            Op::Add | Op::Prod => {
                let prod = self.class(v.r.class).op == Op::Prod;
                let (a, _) = self.open(&v.r)?;
                let mut parts: SmallVec<[Val; 4]> = SmallVec::new();
                for x in &a {
                    if x.pow != 1 {
                        return Some(v.clone());
                    }
                    let t = self.val_of(x);
                    parts.push(self.under(&t, truths, depth - 1)?);
                }
                if prod {
                    let p: SmallVec<[(Val, i32); 4]> = parts.into_iter().map(|p| (p, 1)).collect();
                    self.prod(Dt::INT, &p)?
                } else {
                    self.add(Dt::INT, &parts)?
                }
            }
            Op::Max => {
                let (a, _) = self.open(&v.r)?;
                let mut parts: SmallVec<[Val; 4]> = SmallVec::new();
                for x in &a {
                    let t = self.val_of(x);
                    parts.push(self.under(&t, truths, depth - 1)?);
                }
                // Dropped one by one, each below one that is still there.
                let mut keep = parts;
                let mut i = 0;
                while i < keep.len() {
                    let mut dominated = false;
                    for j in (0..keep.len()).filter(|&j| j != i) {
                        let n = self.scale(&keep[i], Coef::NEG)?;
                        let d = self.add(Dt::INT, &[keep[j].clone(), n])?;
                        if self.nonnegative_under(&d, truths)? {
                            dominated = true;
                            break;
                        }
                    }
                    if dominated {
                        keep.remove(i);
                    } else {
                        i += 1;
                    }
                }
                self.max(Dt::INT, &keep)?
            }
            _ => return Some(v.clone()),
        };
        if r == unit { Some(v.clone()) } else { self.scale(&r, v.coef) }
    }

    /// Truth value of a predicate that is one of the truths or the negation
    /// of one.
    fn truth(&mut self, p: &Arg, truths: &[Val]) -> Option<bool> {
        // A read that became a constant carries it in its coefficient.
        let v = Val { coef: p.coef, r: p.r.clone(), dt: Dt::BOOL };
        if let Some(b) = self.as_bool(&v) {
            return Some(b);
        }
        if truths.contains(&v) {
            return Some(true);
        }
        let n = self.not(&v);
        if truths.contains(&n) {
            return Some(false);
        }
        if self.class(p.r.class).op == Op::And {
            let (a, _) = self.open(&p.r)?;
            let mut all = true;
            for x in &a {
                match self.truth(x, truths) {
                    Some(true) => {}
                    Some(false) => return Some(false),
                    None => all = false,
                }
            }
            return all.then_some(true);
        }
        if self.class(n.r.class).op == Op::And {
            return self.truth(&Self::arg(&n), truths).map(|t| !t);
        }
        None
    }

    /// True if `d >= 0` wherever the truths hold.
    fn nonnegative_under(&mut self, d: &Val, truths: &[Val]) -> Option<bool> {
        if self.int_range(d).is_some_and(|r| r.0 >= 0) {
            return Some(true);
        }
        for t in truths {
            let Some(g) = self.bound_of(t)? else { continue };
            // d - g >= 0 and g >= 0.
            let n = self.scale(&g, Coef::NEG)?;
            let x = self.add(Dt::INT, &[d.clone(), n])?;
            if self.int_range(&x).is_some_and(|r| r.0 >= 0) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// `g` such that the predicate is `g >= 0`.
    pub(crate) fn bound_of(&mut self, p: &Val) -> Option<Option<Val>> {
        let op = self.class(p.r.class).op;
        if op == Op::Ew(self.known.ge0) {
            let (a, _) = self.open(&p.r)?;
            return Some(Some(self.val_of(&a[0])));
        }
        if op == Op::Ew(self.known.not) {
            let q = self.not(p);
            if self.class(q.r.class).op == Op::Ew(self.known.ge0) {
                // not (x >= 0) is -x - 1 >= 0.
                let (a, _) = self.open(&q.r)?;
                let x = self.val_of(&a[0]);
                let n = self.scale(&x, Coef::NEG)?;
                let m1 = self.int(-1);
                return Some(Some(self.add(Dt::INT, &[n, m1])?));
            }
        }
        Some(None)
    }

    /// True if `e == 0` for all equations implies the predicate.
    fn implied(&mut self, p: &Val, equations: &[Val]) -> Option<bool> {
        let Some(g) = self.bound_of(p)? else { return Some(false) };
        for e in equations {
            for k in [1i64, -1] {
                let k = self.coefs.int(k);
                let e = self.scale(e, k)?;
                let x = self.add(Dt::INT, &[g.clone(), e])?;
                if self.int_range(&x).is_some_and(|r| r.0 >= 0) {
                    return Some(true);
                }
            }
        }
        Some(false)
    }
}
