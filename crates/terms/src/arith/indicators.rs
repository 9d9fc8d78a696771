//! Indicators in sums over bound axes: they fix an axis or restrict it.

use super::*;

impl Store {
    /// Sums over a bound axis `b` with a guard `f + c*b >= 0` (or its
    /// negation), `f` free: the parts of the axis where the guard holds for
    /// certain, fails for certain (dropped: it selects 0), or neither.
    pub(super) fn split_by_guard(
        &mut self,
        dt: Dt,
        flat: &Factors,
        bound: &[Ax],
    ) -> Option<Decided> {
        for i in 0..flat.len() {
            if self.class(flat[i].r.class).op != Op::Ew(self.known.ind) || flat[i].pow != 1 {
                continue;
            }
            let (args, _) = self.open(&flat[i].r.clone())?;
            let mut p = self.val_of(&args[0]);
            let negated = self.class(p.r.class).op == Op::Ew(self.known.not);
            if negated {
                let (a, _) = self.open(&p.r)?;
                p = self.val_of(&a[0]);
            }
            if self.class(p.r.class).op != Op::Ew(self.known.ge0) || p.coef != Coef::ONE {
                continue;
            }
            let (a, _) = self.open(&p.r)?;
            let v = self.val_of(&a[0]);
            let Some(l) = self.as_iota(&v) else { continue };
            let form = self.lins.get(l);
            let mut inside = form.terms.iter().filter(|t| bound.contains(&t.1));
            let (Some(&(c, b)), None) = (inside.next(), inside.next()) else { continue };
            let tables = form.terms.iter().any(|t| {
                t.1 != b && bound.iter().any(|&x| self.lins.mentions(Lins::plain(t.1), x))
            });
            if tables {
                continue;
            }
            let n = self.lins.size(b);
            let f = self.lins.combine(&[(1, l), (-c, Lins::plain(b))])?;
            let (lo, hi) = self.lins.range(f);
            // First index from which on (c > 0), or below which (c < 0), the
            // form is not negative for certain, and at all.
            let edge = |f: i64| -> i64 {
                if c > 0 {
                    (-f).div_euclid(c) + i64::from((-f).rem_euclid(c) != 0)
                } else {
                    f.div_euclid(-c) + 1
                }
                .clamp(0, n)
            };
            let (sure, maybe) = (edge(lo), edge(hi));
            // (from, to, guard kept)
            let (holds, open, fails) = if c > 0 {
                ((sure, n), (maybe, sure), (0, maybe))
            } else {
                ((0, sure), (sure, maybe), (maybe, n))
            };
            let whole = if negated { fails } else { holds };
            if open == (0, n) {
                continue;
            }
            let mut out = Vec::new();
            for ((from, to), keep) in [(whole, false), (open, true)] {
                if from >= to {
                    continue;
                }
                let mut map = Subst::new();
                let rest: SmallVec<[Ax; 4]> = bound.iter().copied().filter(|&x| x != b).collect();
                let mut b2 = self.fresh_like(&rest, &mut map);
                if to - from == 1 {
                    let k = self.lins.constant(from);
                    map.set(b, k);
                } else {
                    let a = self.lins.local(to - from);
                    b2.push(a);
                    let k = self.lins.shift(Lins::plain(a), from);
                    map.set(b, k);
                }
                let f: Factors = flat
                    .iter()
                    .enumerate()
                    .filter(|x| keep || x.0 != i)
                    .map(|x| x.1.clone())
                    .collect();
                out.push((self.subst_factors(dt, &f, &map)?, b2));
            }
            return Some(Decided::Pieces(out));
        }
        Some(Decided::No)
    }

    /// The sums of the terms of factor `at`, an addition with a term that does
    /// not read the bound axis `b`.
    fn spread(
        &mut self,
        dt: Dt,
        flat: &Factors,
        bound: &[Ax],
        b: Ax,
        at: usize,
    ) -> Option<Option<Vec<(Factors, SmallVec<[Ax; 4]>)>>> {
        let (terms, _) = self.open(&flat[at].r)?;
        if terms.iter().all(|t| self.ref_mentions(&t.r, b)) {
            return Some(None);
        }
        let mut out = Vec::new();
        for t in &terms {
            let mut f: Factors = flat.iter().cloned().collect();
            f[at] = t.clone();
            let mut map = Subst::new();
            let fresh = self.fresh_like(bound, &mut map);
            let coefs: SmallVec<[Coef; 4]> = f.iter().map(|a| a.coef).collect();
            let mut f = self.subst_factors(dt, &f, &map)?;
            for (a, c) in f.iter_mut().zip(coefs) {
                a.coef = self.coefs.mul(a.coef, c)?;
            }
            out.push((f, fresh));
        }
        Some(Some(out))
    }

    /// A pair of indicators that hold where `0 <= y - w*b < w` for a bound axis
    /// `b`: of all windows of a tiling at most one holds. Where nothing else
    /// reads `b` their sum is `[0 <= y < w*n]`; over an addition with a term
    /// free of `b` they distribute.
    fn one_window(&mut self, dt: Dt, flat: &Factors, bound: &[Ax]) -> Option<Decided> {
        let mut guards: SmallVec<[(usize, Val); 4]> = SmallVec::new();
        for (i, a) in flat.iter().enumerate() {
            if a.pow == 1 && self.class(a.r.class).op == Op::Ew(self.known.ind) {
                let (p, _) = self.open(&a.r.clone())?;
                let p = self.val_of(&p[0]);
                if let Some(g) = self.bound_of(&p)? {
                    guards.push((i, g));
                }
            }
        }
        for x in 0..guards.len() {
            for y in x + 1..guards.len() {
                let ((i, g), (j, h)) = (guards[x].clone(), guards[y].clone());
                let both = self.add(Dt::INT, &[g.clone(), h])?;
                let Some(w) = self.as_int(&both).and_then(|w| w.checked_add(1)) else { continue };
                if w < 1 {
                    continue;
                }
                if w == 1 {
                    // g >= 0 and -g >= 0.
                    let p = self.eq0(&g)?;
                    let e = self.indicator(dt, &p);
                    let mut f: Factors = flat
                        .iter()
                        .enumerate()
                        .filter(|x| x.0 != i && x.0 != j)
                        .map(|x| x.1.clone())
                        .collect();
                    f.push(Arg { coef: e.coef, pow: 1, r: e.r });
                    return Some(Decided::Same(f, SmallVec::from_slice(bound)));
                }
                let Some((b, c)) = self.sole_slope(&g, bound)? else { continue };
                if c.abs() != w {
                    continue;
                }
                let n = self.lins.size(b);
                let last = n.checked_mul(w)?.checked_sub(1)?;
                let reads: SmallVec<[usize; 4]> = (0..flat.len())
                    .filter(|&k| k != i && k != j && self.ref_mentions(&flat[k].r, b))
                    .collect();
                match reads[..] {
                    [] => {
                        // Counted from the other end if the slope is positive.
                        let top = Lins::plain(b);
                        let l = self.lins.combine(&[(-c, top)])?;
                        let l = if c > 0 { self.lins.shift(l, c * (n - 1)) } else { l };
                        let l = self.iota(l);
                        let low = self.add(Dt::INT, &[g, l])?;
                        let neg = self.scale(&low, Coef::NEG)?;
                        let all = self.int(last);
                        let high = self.add(Dt::INT, &[neg, all])?;
                        let mut f: Factors = flat
                            .iter()
                            .enumerate()
                            .filter(|x| x.0 != i && x.0 != j)
                            .map(|x| x.1.clone())
                            .collect();
                        for v in [low, high] {
                            let p = self.ge0(&v)?;
                            let g = self.indicator(dt, &p);
                            f.push(Arg { coef: g.coef, pow: 1, r: g.r });
                        }
                        let b2 = bound.iter().copied().filter(|&x| x != b).collect();
                        return Some(Decided::Same(f, b2));
                    }
                    [k] => {
                        let c = self.class(flat[k].r.class);
                        if flat[k].pow == 1 && c.op == Op::Add && c.args.len() <= 8 && c.dt == dt {
                            if let Some(out) = self.spread(dt, flat, bound, b, k)? {
                                return Some(Decided::Pieces(out));
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        Some(Decided::No)
    }

    /// The bound axis that an integer reads, if it is one, in an index form
    /// and nowhere else: with its coefficient.
    fn sole_slope(&mut self, v: &Val, bound: &[Ax]) -> Option<Option<(Ax, i64)>> {
        let terms: SmallVec<[Val; 4]> = match self.class(v.r.class).op {
            Op::Iota => SmallVec::from_elem(v.clone(), 1),
            Op::Add => {
                let (a, _) = self.open(&v.r)?;
                let mut t = SmallVec::new();
                for x in &a {
                    let x = self.val_of(x);
                    t.push(self.scale(&x, v.coef)?);
                }
                t
            }
            _ => return Some(None),
        };
        let mut found = None;
        for t in &terms {
            let index = self.class(t.r.class).op == Op::Iota;
            let k = self.coefs.to_int(t.coef);
            for &b in bound.iter().filter(|&&b| self.ref_mentions(&t.r, b)) {
                let form = self.lins.get(t.r.m[0]);
                let direct = form.terms.iter().find(|x| x.1 == b);
                let deep =
                    form.terms.iter().any(|x| x.1 != b && self.lins.mentions(Lins::plain(x.1), b));
                match (direct, k) {
                    (Some(&(c, _)), Some(k)) if index && !deep && found.is_none() => {
                        found = Some((b, c.checked_mul(k)?));
                    }
                    _ => return Some(None),
                }
            }
        }
        Some(found)
    }

    /// Indicators that fix or restrict a bound axis.
    pub(super) fn decide_indicators(
        &mut self,
        dt: Dt,
        flat: &Factors,
        bound: &[Ax],
    ) -> Option<Decided> {
        if self.split_guards {
            let d = self.split_by_guard(dt, flat, bound)?;
            if !matches!(d, Decided::No) {
                return Some(d);
            }
        }
        let d = self.one_window(dt, flat, bound)?;
        if !matches!(d, Decided::No) {
            return Some(d);
        }
        for i in 0..flat.len() {
            if !self.is_indicator(&flat[i].r) || flat[i].pow != 1 {
                continue;
            }
            let selecting = self.class(flat[i].r.class).op == Op::Ew(self.known.ind);
            let r = flat[i].r.clone();
            let (args, _) = self.open(&r)?;
            let p = args[0].clone();
            let rest = || -> Factors {
                flat.iter().enumerate().filter(|x| x.0 != i).map(|x| x.1.clone()).collect()
            };
            // 0 * x for a converted predicate needs finite x.
            let others_finite = selecting || rest().iter().all(|a| self.is_indicator(&a.r));
            if !others_finite
                && (!self.rules.finite || rest().iter().any(|a| self.is_doubtful(&a.r)))
            {
                continue;
            }
            // [b == e]: the sum has the one term b := e.
            if self.class(p.r.class).op == Op::Ew(self.known.eq0) {
                let (ea, _) = self.open(&p.r)?;
                let v = self.val_of(&ea[0]);
                if let Some(l) = self.as_iota(&v) {
                    let form = self.lins.get(l);
                    let hit = form.terms.iter().find(|t| {
                        t.0.abs() == 1 && bound.contains(&t.1) && {
                            // Not inside a table elsewhere in the form.
                            form.terms
                                .iter()
                                .all(|u| u.1 == t.1 || !self.lins.mentions(Lins::plain(u.1), t.1))
                        }
                    });
                    if let Some(&(c, b)) = hit {
                        let e = self.lins.combine(&[(-c, l), (1, Lins::plain(b))])?;
                        let n = self.lins.size(b);
                        let mut map = Subst::new();
                        map.set(b, e);
                        let (lo, hi) = self.lins.range(e);
                        let inside = lo >= 0 && hi < n;
                        let mut out: Factors = SmallVec::new();
                        for a in rest() {
                            let v = Val { coef: Coef::ONE, r: a.r, dt };
                            // Outside its range the read is guarded below.
                            let v = self.subst(&v, &map)?;
                            let k = self.coefs.pow(v.coef, a.pow)?;
                            out.push(Arg { coef: k, pow: a.pow, r: v.r });
                        }
                        if !inside {
                            for l in [e, {
                                let n1 = self.lins.constant(n - 1);
                                self.lins.combine(&[(1, n1), (-1, e)])?
                            }] {
                                let v = self.iota(l);
                                let p = self.ge0(&v)?;
                                let g = self.indicator(dt, &p);
                                out.push(Arg { coef: g.coef, pow: 1, r: g.r });
                            }
                        }
                        if !others_finite {
                            self.assume("0 * x = 0");
                        }
                        let b2 = bound.iter().copied().filter(|&x| x != b).collect();
                        return Some(Decided::Same(out, b2));
                    }
                }
            }
            // [b == e] with e data: alone it sums to 1; over an addition with
            // a term free of b it distributes.
            if self.class(p.r.class).op == Op::Ew(self.known.eq0) {
                if let Some((b, inside, at)) = self.one_hot_axis(&p.r, bound)? {
                    // Only where the solution can lie.
                    let n = self.lins.size(b);
                    if let Some((lo, hi)) = self.int_range(&at) {
                        let (lo, hi) = (lo.max(0), hi.min(n - 1));
                        if lo < hi && hi - lo + 1 < n {
                            let a = self.lins.local(hi - lo + 1);
                            let l = self.lins.shift(Lins::plain(a), lo);
                            let mut map = Subst::new();
                            map.set(b, l);
                            let f = self.subst_factors(dt, flat, &map)?;
                            let b2 = bound.iter().map(|&x| if x == b { a } else { x }).collect();
                            if !others_finite {
                                self.assume("0 * x = 0");
                            }
                            return Some(Decided::Same(f, b2));
                        }
                    }
                    let others = rest();
                    let reads_b = |s: &Store, a: &Arg| s.ref_mentions(&a.r, b);
                    let in_b: SmallVec<[usize; 4]> =
                        (0..others.len()).filter(|&k| reads_b(self, &others[k])).collect();
                    if in_b.is_empty() && inside {
                        let b2 = bound.iter().copied().filter(|&x| x != b).collect();
                        return Some(Decided::Same(others, b2));
                    }
                    if let [k] = in_b[..] {
                        let c = self.class(others[k].r.class);
                        if others[k].pow == 1 && c.op == Op::Add && c.args.len() <= 8 && c.dt == dt
                        {
                            let at = if k < i { k } else { k + 1 };
                            if let Some(out) = self.spread(dt, flat, bound, b, at)? {
                                return Some(Decided::Pieces(out));
                            }
                        }
                        if selecting && inside {
                            if let Some(f) = self.read_first(dt, &p, &others[k], b)? {
                                let mut out = others;
                                out[k] = f;
                                let b2 = bound.iter().copied().filter(|&x| x != b).collect();
                                return Some(Decided::Same(out, b2));
                            }
                        }
                    }
                }
            }
            // A predicate of one bound axis only: restrict its domain.
            let mut axes: SmallVec<[Ax; 3]> = SmallVec::new();
            for &l in &p.r.m {
                self.lins.base_axes(l, &mut axes);
            }
            if axes.len() != 1 || !bound.contains(&axes[0]) {
                continue;
            }
            let b = axes[0];
            let n = self.lins.size(b);
            if n > MAX_TRUTH {
                continue;
            }
            let mut truth = Vec::with_capacity(n as usize);
            for k in 0..n {
                let Some(t) = self.eval_bool(&p.r, &[b], &[k], 8) else {
                    truth.clear();
                    break;
                };
                truth.push(t);
            }
            if truth.is_empty() {
                continue;
            }
            let mut runs: Vec<(i64, i64)> = Vec::new();
            for (k, &t) in truth.iter().enumerate() {
                if t {
                    match runs.last_mut() {
                        Some(r) if r.1 == k as i64 => r.1 += 1,
                        _ => runs.push((k as i64, k as i64 + 1)),
                    }
                }
            }
            if runs.len() > 8 {
                continue;
            }
            if !others_finite && runs != [(0, n)] {
                self.assume("0 * x = 0");
            }
            let mut out = Vec::new();
            for (lo, hi) in runs {
                let mut map = Subst::new();
                let mut b2: SmallVec<[Ax; 4]> = bound.iter().copied().filter(|&x| x != b).collect();
                if hi - lo == 1 {
                    let c = self.lins.constant(lo);
                    map.set(b, c);
                } else {
                    let a = self.lins.local(hi - lo);
                    b2.push(a);
                    let l = self.lins.shift(Lins::plain(a), lo);
                    map.set(b, l);
                }
                let mut f: Factors = SmallVec::new();
                for a in rest() {
                    let v = Val { coef: Coef::ONE, r: a.r, dt };
                    let v = self.subst(&v, &map)?;
                    let k = self.coefs.pow(v.coef, a.pow)?;
                    f.push(Arg { coef: k, pow: a.pow, r: v.r });
                }
                out.push((f, b2));
            }
            return Some(match out.len() {
                1 => {
                    let (f, b) = out.pop()?;
                    Decided::Same(f, b)
                }
                _ => Decided::Pieces(out),
            });
        }
        Some(Decided::No)
    }

    /// `sum_b [b == e] f(x[b]) = f(sum_b [b == e] x[b])` for an elementwise `f`
    /// and an `e` in the range of `b`, so that exactly one `b` is selected: what
    /// is read where data says is read before anything is computed from it.
    /// `p`: the equation; `f`: the factor, the only one that reads `b`.
    fn read_first(&mut self, dt: Dt, p: &Arg, f: &Arg, b: Ax) -> Option<Option<Arg>> {
        let (op, own) = (self.class(f.r.class).op, self.class(f.r.class).dt);
        let Op::Ew(s) = op else { return Some(None) };
        let k = self.known;
        let predicates = [k.ind, k.b2f, k.not, k.ge0, k.eq0];
        if f.pow != 1 || own != dt || predicates.contains(&s) {
            return Some(None);
        }
        let (mut args, _) = self.open(&f.r)?;
        for a in &mut args {
            if !self.ref_mentions(&a.r, b) {
                continue;
            }
            let adt = self.class(a.r.class).dt;
            if adt == Dt::BOOL || a.pow != 1 {
                return Some(None);
            }
            let p = self.val_of(p);
            let g = self.indicator(adt, &p);
            let mut map = Subst::new();
            let fresh = self.lins.local(self.lins.size(b));
            map.set(b, Lins::plain(fresh));
            let g = Arg { coef: g.coef, pow: 1, r: g.r };
            let read = Factors::from_iter([g, Arg { coef: Coef::ONE, ..a.clone() }]);
            let read = self.subst_factors(adt, &read, &map)?;
            let v = self.sum_prod(adt, a.coef, read, &[fresh])?;
            *a = Arg { coef: v.coef, pow: 1, r: v.r };
        }
        let v = self.built(op, dt, args, &[], &[], &[])?;
        let coef = self.coefs.mul(f.coef, v.coef)?;
        Some(Some(Arg { coef, pow: 1, r: v.r }))
    }

    /// For the predicate `x + c*b == 0` (c = 1 or -1, `x` free of the bound
    /// axis `b`): `b`, whether the solution lies in its range, the solution.
    pub(crate) fn one_hot_axis(
        &mut self,
        p: &Ref,
        bound: &[Ax],
    ) -> Option<Option<(Ax, bool, Val)>> {
        let (ea, _) = self.open(p)?;
        let e = self.val_of(&ea[0]);
        if self.class(e.r.class).op != Op::Add || e.coef != Coef::ONE {
            return Some(None);
        }
        let (terms, _) = self.open(&e.r)?;
        for t in &terms {
            if self.class(t.r.class).op != Op::Iota || t.coef != Coef::ONE {
                continue;
            }
            let form = self.lins.get(t.r.m[0]);
            for &(c, b) in &form.terms {
                if c.abs() != 1 || !bound.contains(&b) {
                    continue;
                }
                let elsewhere = terms.iter().any(|u| u.r != t.r && self.ref_mentions(&u.r, b))
                    || form
                        .terms
                        .iter()
                        .any(|u| u.1 != b && self.lins.mentions(Lins::plain(u.1), b));
                if elsewhere {
                    continue;
                }
                // b = -c * (e - c*b)
                let k = self.coefs.int(-c);
                let x = self.scale(&e, k)?;
                let b_val = self.iota(Lins::plain(b));
                let x = self.add(Dt::INT, &[x, b_val])?;
                let n = self.lins.size(b);
                let inside = self.int_range(&x).is_some_and(|r| r.0 >= 0 && r.1 < n);
                return Some(Some((b, inside, x)));
            }
        }
        Some(None)
    }
}
