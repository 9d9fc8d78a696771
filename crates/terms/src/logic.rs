//! Predicates, selection and indicators.
//!
//! Comparisons of integers become `e >= 0` and `e == 0`; conjunctions are
//! flat. `indicator(p)` is the factor of `select(p, x, 0) = indicator(p) * x`;
//! it selects, so the product is 0 where `p` is false even if `x` is not
//! finite. `convert-pred(p)` is the number 0 or 1 and does not.

use crate::coef::Coef;
use crate::lin::{Ax, Subst};
use crate::make::Build;
use crate::store::{Arg, Dt, Op, Ref, Store, Val};
use crate::tables::Untabled;
use smallvec::SmallVec;

impl Store {
    /// `true` or `false`.
    pub fn bool(&mut self, b: bool) -> Val {
        if b { self.one(Dt::BOOL) } else { self.zero(Dt::BOOL) }
    }

    /// The constant that a predicate is.
    pub fn as_bool(&self, p: &Val) -> Option<bool> {
        if p.coef == Coef::ZERO {
            return Some(false);
        }
        (self.class(p.r.class).op == Op::One).then_some(true)
    }

    /// Negation.
    pub fn not(&mut self, p: &Val) -> Val {
        match self.as_bool(p) {
            Some(b) => self.bool(!b),
            None => {
                if self.class(p.r.class).op == Op::Ew(self.known.not) {
                    if let Some((a, _)) = self.open(&p.r) {
                        return self.val_of(&a[0]);
                    }
                }
                self.ew(self.known.not, Dt::BOOL, false, std::slice::from_ref(p))
            }
        }
    }

    /// Conjunction.
    pub fn and(&mut self, ps: &[Val]) -> Val {
        let mut flat: SmallVec<[Arg; 4]> = SmallVec::new();
        for p in ps {
            match self.as_bool(p) {
                Some(true) => continue,
                Some(false) => return self.bool(false),
                None => {}
            }
            if self.class(p.r.class).op == Op::And {
                if let Some((a, _)) = self.open(&p.r) {
                    for x in a {
                        let v = self.val_of(&x);
                        match self.as_bool(&v) {
                            Some(true) => {}
                            Some(false) => return self.bool(false),
                            None => flat.push(x),
                        }
                    }
                    continue;
                }
            }
            flat.push(Self::arg(p));
        }
        flat.sort_by(|a, b| a.r.cmp(&b.r));
        flat.dedup();
        // p and not p.
        for i in 0..flat.len() {
            if self.class(flat[i].r.class).op == Op::Ew(self.known.not) {
                let v = self.val_of(&flat[i]);
                let n = self.not(&v);
                if flat.iter().any(|a| a.r == n.r) {
                    return self.bool(false);
                }
            }
        }
        match flat.len() {
            0 => self.bool(true),
            1 => Val { coef: Coef::ONE, r: flat[0].r.clone(), dt: Dt::BOOL },
            _ => self.node(Op::And, Dt::BOOL, true, flat),
        }
    }

    /// Disjunction.
    pub fn or(&mut self, ps: &[Val]) -> Val {
        let n: SmallVec<[Val; 4]> = ps.iter().map(|p| self.not(p)).collect();
        let a = self.and(&n);
        self.not(&a)
    }

    /// Conjunction over the bound atoms.
    pub fn and_over(&mut self, p: &Val, bound: &[Ax]) -> Option<Val> {
        if bound.iter().any(|&b| self.lins.size(b) == 0) {
            return Some(self.bool(true));
        }
        let bound: SmallVec<[Ax; 4]> =
            bound.iter().copied().filter(|&b| self.ref_mentions(&p.r, b)).collect();
        if bound.is_empty() || self.as_bool(p).is_some() {
            return Some(p.clone());
        }
        let arg = [Self::arg(p)];
        match self.untable(&arg, &bound)? {
            Untabled::Fine => {}
            Untabled::Reindex(map, b) => {
                let w = self.subst(p, &map)?;
                return self.and_over(&w, &b);
            }
            Untabled::Enumerate(b, n, rest) => {
                let mut parts: SmallVec<[Val; 8]> = SmallVec::new();
                for k in 0..n {
                    let mut map = Subst::new();
                    let c = self.lins.constant(k);
                    map.set(b, c);
                    let fresh = self.fresh_like(&rest, &mut map);
                    let w = self.subst(p, &map)?;
                    parts.push(self.and_over(&w, &fresh)?);
                }
                return Some(self.and(&parts));
            }
        }
        match self.class(p.r.class).op {
            Op::And => {
                let (a, _) = self.open(&p.r)?;
                let mut parts: SmallVec<[Val; 4]> = SmallVec::new();
                for x in &a {
                    let v = self.val_of(x);
                    parts.push(self.and_over(&v, &bound)?);
                }
                return Some(self.and(&parts));
            }
            Op::AndR => {
                let (a, b) = self.open(&p.r)?;
                let mut all = bound;
                all.extend(b);
                let v = self.val_of(&a[0]);
                return self.and_over(&v, &all);
            }
            _ => {}
        }
        let b = Build {
            op: Op::AndR,
            dt: Dt::BOOL,
            commutative: true,
            bound: &bound,
            captured: false,
            own: &[],
        };
        let (r, _) = self.make(&b, SmallVec::from_elem(Self::arg(p), 1));
        Some(Val { coef: Coef::ONE, r, dt: Dt::BOOL })
    }

    /// `v >= 0` for a mathematical integer.
    pub fn ge0(&mut self, v: &Val) -> Option<Val> {
        if let Some((lo, hi)) = self.int_range(v) {
            if lo >= 0 {
                return Some(self.bool(true));
            }
            if hi < 0 {
                return Some(self.bool(false));
            }
        }
        // Canonical sign: v >= 0 is not (-v - 1 >= 0).
        let flip = match self.as_iota(v) {
            Some(l) => self.lins.c0(l) < 0,
            None => self.coefs.sign(v.coef) < 0,
        };
        if flip {
            let n = self.scale(v, Coef::NEG)?;
            let m1 = self.int(-1);
            let n = self.add(Dt::INT, &[n, m1])?;
            let p = self.ew(self.known.ge0, Dt::BOOL, false, &[n]);
            return Some(self.not(&p));
        }
        Some(self.ew(self.known.ge0, Dt::BOOL, false, std::slice::from_ref(v)))
    }

    /// `v == 0` for a mathematical integer.
    pub fn eq0(&mut self, v: &Val) -> Option<Val> {
        if let Some((lo, hi)) = self.int_range(v) {
            if lo > 0 || hi < 0 {
                return Some(self.bool(false));
            }
            if lo == 0 && hi == 0 {
                return Some(self.bool(true));
            }
        }
        if let Some(w) = self.without_wrap(v)? {
            return self.eq0(&w);
        }
        let mut v = v.clone();
        let flip = match self.as_iota(&v) {
            Some(l) => {
                let x = self.lins.get(l);
                let lead = if x.c0 != 0 { x.c0 } else { x.terms.first().map_or(1, |t| t.0) };
                lead < 0
            }
            None => self.coefs.sign(v.coef) < 0,
        };
        if flip {
            v = self.scale(&v, Coef::NEG)?;
        }
        if self.as_iota(&v).is_none() {
            v.coef = Coef::ONE;
        }
        Some(self.ew(self.known.eq0, Dt::BOOL, false, &[v]))
    }

    /// For `v = w - k` with `w` the sum or difference of two integers modulo
    /// the size of their range: a value without the modulus that is 0 where
    /// `v` is. `x - y = k` modulo the size of the range is `x = k + y` if `k`
    /// and `k + y` lie in the range, as `x` does.
    fn without_wrap(&mut self, v: &Val) -> Option<Option<Val>> {
        const MOST: usize = 8;
        let unit = Val { coef: Coef::ONE, ..v.clone() };
        let terms: SmallVec<[Val; 4]> = match self.class(v.r.class).op {
            Op::Add => {
                let (a, _) = self.open(&v.r)?;
                a.iter().map(|t| self.val_of(t)).collect()
            }
            _ => SmallVec::from_elem(unit, 1),
        };
        if terms.len() > MOST {
            return Some(None);
        }
        for (i, t) in terms.iter().enumerate() {
            let Op::Ew(s) = self.class(t.r.class).op else { continue };
            let (Some(&minus), Some(&range)) = (self.wrapping.get(&s), self.sym_range.get(&s))
            else {
                continue;
            };
            let sign = self.coefs.sign(t.coef);
            if self.coefs.abs(t.coef) != Coef::ONE {
                continue;
            }
            // k = the other terms with the other sign.
            let by = if sign > 0 { Coef::NEG } else { Coef::ONE };
            let mut k = self.int(0);
            for (_, u) in terms.iter().enumerate().filter(|x| x.0 != i) {
                let u = self.scale(u, by)?;
                k = self.add(Dt::INT, &[k, u])?;
            }
            let (lo, hi) = (i128::from(range.0), i128::from(range.1));
            let fits = |s: &mut Store, v: &Val| {
                s.int_range_wide(v).is_some_and(|r| r.0 >= lo && r.1 <= hi)
            };
            if !fits(self, &k) {
                continue;
            }
            let (a, _) = self.open(&t.r)?;
            let [x, y] = &a[..] else { continue };
            let (x, y) = (self.val_of(x), self.val_of(y));
            let turns: &[(&Val, &Val)] = if minus { &[(&x, &y)] } else { &[(&x, &y), (&y, &x)] };
            for (x, y) in turns {
                let y = if minus { (*y).clone() } else { self.scale(y, Coef::NEG)? };
                let want = self.add(Dt::INT, &[k.clone(), y])?;
                if fits(self, &want) {
                    let n = self.scale(&want, Coef::NEG)?;
                    return Some(Some(self.add(Dt::INT, &[(*x).clone(), n])?));
                }
            }
        }
        Some(None)
    }

    /// Factor that is 1 where `p` holds and selects 0 elsewhere. A
    /// conjunction becomes a product.
    pub fn indicator(&mut self, dt: Dt, p: &Val) -> Val {
        self.pred_number(dt, p, true)
    }

    /// The number 1 where `p` holds, 0 elsewhere.
    pub fn convert_pred(&mut self, dt: Dt, p: &Val) -> Val {
        self.pred_number(dt, p, false)
    }

    fn pred_number(&mut self, dt: Dt, p: &Val, selecting: bool) -> Val {
        match self.as_bool(p) {
            Some(true) => {
                return if dt == Dt::INT { self.int(1) } else { self.one(dt) };
            }
            Some(false) => {
                return if dt == Dt::INT { self.int(0) } else { self.zero(dt) };
            }
            None => {}
        }
        // Under finite values a converted predicate selects too.
        let select = selecting || (self.rules.finite && dt != Dt::INT);
        if select && !selecting {
            self.assume("0 * x = 0");
        }
        let f = if select { self.known.ind } else { self.known.b2f };
        if self.rules.reals && self.class(p.r.class).op == Op::And {
            if let Some((a, _)) = self.open(&p.r) {
                let parts: SmallVec<[(Val, i32); 4]> = a
                    .iter()
                    .map(|x| {
                        let v = self.val_of(x);
                        (self.pred_number(dt, &v, selecting), 1)
                    })
                    .collect();
                if let Some(v) = self.prod(dt, &parts) {
                    return v;
                }
            }
        }
        self.ew(f, dt, false, std::slice::from_ref(p))
    }

    /// `p ? a : b`.
    pub fn select(&mut self, dt: Dt, p: &Val, a: &Val, b: &Val) -> Option<Val> {
        match self.as_bool(p) {
            Some(true) => return Some(a.clone()),
            Some(false) => return Some(b.clone()),
            None => {}
        }
        let (a, b) = (&self.given(a, p, true), &self.given(b, p, false));
        if a == b {
            return Some(a.clone());
        }
        if self.rules.reals && dt != Dt::BOOL && dt != Dt::INT {
            let inf =
                |s: &Store, v: &Val| s.class(v.r.class).op == Op::Const(crate::arith::NEG_INF);
            let (q, x, y) = if inf(self, b) { (p.clone(), a, b) } else { (self.not(p), b, a) };
            if inf(self, y) {
                if let Some(w) = self.selected_pieces(&q, x, y)? {
                    return Some(w);
                }
            }
        }
        if self.class(p.r.class).op == Op::Ew(self.known.not) {
            let q = self.not(p);
            return self.select(dt, &q, b, a);
        }
        if dt == Dt::BOOL {
            // (p and a) or (not p and b)
            let x = self.and(&[p.clone(), a.clone()]);
            let np = self.not(p);
            let y = self.and(&[np, b.clone()]);
            return Some(self.or(&[x, y]));
        }
        if self.rules.reals || dt == Dt::INT {
            let (za, zb) = (self.is_zero(a), self.is_zero(b));
            if za || zb {
                let (q, x) = if zb { (p.clone(), a) } else { (self.not(p), b) };
                if self.as_const(x) == Some(Coef::ONE) {
                    return Some(self.convert_pred(dt, &q));
                }
                let g = self.indicator(dt, &q);
                return self.mul(dt, &g, x);
            }
        }
        Some(self.ew(self.known.select, dt, false, &[p.clone(), a.clone(), b.clone()]))
    }

    /// Of a value that is a selection: the predicate, the value where it
    /// holds, and the other one, if that is not 0.
    pub fn selection(&mut self, v: &Val) -> Option<(Val, Val, Option<Val>)> {
        let (ind, select) = (self.known.ind, self.known.select);
        match self.class(v.r.class).op {
            Op::Ew(s) if s == select && v.coef == Coef::ONE => {
                let (a, _) = self.open(&v.r)?;
                let [p, x, y] = &a[..] else { return None };
                Some((self.val_of(p), self.val_of(x), Some(self.val_of(y))))
            }
            Op::Ew(s) if s == ind => {
                let (a, _) = self.open(&v.r)?;
                let one = self.one(v.dt);
                Some((self.val_of(a.first()?), self.scale(&one, v.coef)?, None))
            }
            Op::Prod => {
                let (a, _) = self.open(&v.r)?;
                let is = |s: &Store, x: &Arg| s.class(x.r.class).op == Op::Ew(ind) && x.pow == 1;
                let (guards, rest): (Vec<_>, Vec<_>) = a.iter().partition(|x| is(self, x));
                if guards.is_empty() {
                    return None;
                }
                let mut all: SmallVec<[Val; 4]> = SmallVec::new();
                for g in guards {
                    let (p, _) = self.open(&g.r)?;
                    all.push(self.val_of(p.first()?));
                }
                let p = self.and(&all);
                let rest: SmallVec<[(Val, i32); 4]> = rest
                    .iter()
                    .map(|x| (Val { coef: x.coef, r: x.r.clone(), dt: v.dt }, x.pow))
                    .collect();
                let x = self.prod(v.dt, &rest)?;
                Some((p, self.scale(&x, v.coef)?, None))
            }
            _ => None,
        }
    }

    /// Of a sum over one axis in which a predicate holds for one index at
    /// most, as in what a gather reads: the predicates, the factor, the axis.
    pub fn one_hot(&mut self, v: &Val) -> Option<(Val, Val, Ax)> {
        let ind = self.known.ind;
        if self.class(v.r.class).op != Op::Sum {
            return None;
        }
        let (a, bound) = self.open(&v.r)?;
        let [b] = bound[..] else { return None };
        let is = |s: &Store, x: &Arg| s.class(x.r.class).op == Op::Ew(ind) && x.pow == 1;
        let (guards, rest): (Vec<_>, Vec<_>) = a.iter().partition(|x| is(self, x));
        let (mut all, mut once) = (SmallVec::<[Val; 4]>::new(), false);
        for g in guards {
            let (p, _) = self.open(&g.r)?;
            let p = self.val_of(p.first()?);
            if self.class(p.r.class).op == Op::Ew(self.known.eq0) {
                once |= self.one_hot_axis(&p.r, &[b])?.is_some();
            }
            all.push(p);
        }
        if !once {
            return None;
        }
        let p = self.and(&all);
        let rest: SmallVec<[(Val, i32); 4]> =
            rest.iter().map(|x| (Val { coef: x.coef, r: x.r.clone(), dt: v.dt }, x.pow)).collect();
        let x = self.prod(v.dt, &rest)?;
        Some((p, self.scale(&x, v.coef)?, b))
    }

    /// Truth of a predicate at a point of the atoms, if its definition
    /// reaches down to index values within `depth` steps.
    pub fn eval_bool(&mut self, r: &Ref, axes: &[Ax], point: &[i64], depth: u32) -> Option<bool> {
        if depth == 0 {
            return None;
        }
        let op = self.class(r.class).op;
        match op {
            Op::One => Some(true),
            Op::Ew(s) if s == self.known.not => {
                let (a, _) = self.open(r)?;
                if a[0].coef == Coef::ZERO {
                    return Some(true);
                }
                Some(!self.eval_bool(&a[0].r, axes, point, depth - 1)?)
            }
            Op::And => {
                let (a, _) = self.open(r)?;
                for x in &a {
                    if x.coef == Coef::ZERO || !self.eval_bool(&x.r, axes, point, depth - 1)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Op::Ew(s) if s == self.known.ge0 || s == self.known.eq0 => {
                let (a, _) = self.open(r)?;
                let v = self.val_of(&a[0]);
                let x = self.eval_int(&v, axes, point, depth - 1)?;
                Some(if s == self.known.ge0 { x >= 0 } else { x == 0 })
            }
            _ => None,
        }
    }

    /// Value of an integer at a point of the atoms, likewise.
    pub fn eval_int(&mut self, v: &Val, axes: &[Ax], point: &[i64], depth: u32) -> Option<i64> {
        if depth == 0 {
            return None;
        }
        let k = self.coefs.to_int(v.coef)?;
        let x = match self.class(v.r.class).op {
            Op::Iota => self.lins.eval(v.r.m[0], axes, point)?,
            Op::Add => {
                let (a, _) = self.open(&v.r)?;
                let mut s = 0i64;
                for t in &a {
                    let t = self.val_of(t);
                    s = s.checked_add(self.eval_int(&t, axes, point, depth - 1)?)?;
                }
                s
            }
            Op::Ew(s) if s == self.known.b2f || s == self.known.ind => {
                let (a, _) = self.open(&v.r)?;
                i64::from(self.eval_bool(&a[0].r, axes, point, depth - 1)?)
            }
            Op::Max => {
                let (a, _) = self.open(&v.r)?;
                let mut s = i64::MIN;
                for t in &a {
                    let t = self.val_of(t);
                    s = s.max(self.eval_int(&t, axes, point, depth - 1)?);
                }
                s
            }
            Op::Ew(s) if s == self.known.select => {
                let (a, _) = self.open(&v.r)?;
                let p =
                    a[0].coef != Coef::ZERO && self.eval_bool(&a[0].r, axes, point, depth - 1)?;
                let t = self.val_of(&a[if p { 1 } else { 2 }]);
                self.eval_int(&t, axes, point, depth - 1)?
            }
            _ => return None,
        };
        k.checked_mul(x)
    }
}
