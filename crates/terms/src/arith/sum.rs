//! Sums over bound axes of products, in normal form.

use super::*;

impl Store {
    /// `sum over bound of v`. Bound atoms are consumed: they must be fresh to
    /// the caller's context or not used by it afterwards.
    pub fn sum(&mut self, dt: Dt, v: &Val, bound: &[Ax]) -> Option<Val> {
        if bound.is_empty() {
            return Some(v.clone());
        }
        if !self.rules.reals && dt != Dt::INT {
            let a = SmallVec::from_elem(Self::arg(v), 1);
            return self.opaque_sum(dt, a, bound);
        }
        let f = SmallVec::from_elem(Arg { coef: Coef::ONE, pow: 1, r: v.r.clone() }, 1);
        self.sum_prod(dt, v.coef, f, bound)
    }

    /// `sum over bound of a * b` (a dot product).
    pub fn dot(&mut self, dt: Dt, a: &Val, b: &Val, bound: &[Ax]) -> Option<Val> {
        if !self.rules.reals && dt != Dt::INT {
            let args = SmallVec::from_iter([Self::arg(a), Self::arg(b)]);
            return self.opaque_sum(dt, args, bound);
        }
        let p = self.multiply(dt, a, b)?;
        self.sum(dt, &p, bound)
    }

    /// Exact mode: a reduction whose order is part of its meaning. Bound axes
    /// are fused with each other (the order over the fused index is the
    /// same), never with anything else, and factors stay inside.
    pub(crate) fn opaque_sum(&mut self, dt: Dt, args: Factors, bound: &[Ax]) -> Option<Val> {
        Some(self.node_bound(Op::Sum, dt, true, args, bound))
    }

    /// `coef * sum over bound of prod factors`.
    pub(crate) fn sum_prod(
        &mut self,
        dt: Dt,
        mut coef: Coef,
        f: Factors,
        bound: &[Ax],
    ) -> Option<Val> {
        if bound.iter().any(|&b| self.lins.size(b) == 0) {
            return Some(if dt == Dt::INT { self.int(0) } else { self.zero(dt) });
        }
        let mut bound: SmallVec<[Ax; 4]> = SmallVec::from_slice(bound);
        let mut flat = self.flatten(dt, &mut coef, f)?;
        for round in 0..64 {
            if coef == Coef::ZERO {
                return Some(self.zero(dt));
            }
            // Bound axes that nothing reads count their size.
            let mut i = 0;
            while i < bound.len() {
                let b = bound[i];
                if flat.iter().any(|a| self.ref_mentions(&a.r, b)) {
                    i += 1;
                } else {
                    let n = self.lins.size(b);
                    let n = self.coefs.int(n);
                    coef = self.coefs.mul(coef, n)?;
                    bound.remove(i);
                }
            }
            if bound.is_empty() {
                return self.product(dt, coef, flat);
            }
            match self.untable(&flat, &bound)? {
                Untabled::Fine => {}
                Untabled::Reindex(map, b) => {
                    flat = self.subst_factors(dt, &flat, &map)?;
                    flat = self.flatten(dt, &mut coef, flat)?;
                    bound = b;
                    continue;
                }
                Untabled::Enumerate(b, n, rest) => {
                    let mut terms: SmallVec<[Val; 8]> = SmallVec::new();
                    for k in 0..n {
                        let mut map = Subst::new();
                        let c = self.lins.constant(k);
                        map.set(b, c);
                        let fresh = self.fresh_like(&rest, &mut map);
                        let f = self.subst_factors(dt, &flat, &map)?;
                        terms.push(self.sum_prod(dt, coef, f, &fresh)?);
                    }
                    return self.add(dt, &terms);
                }
            }
            if self.pull_common(dt, &mut coef, &mut flat, &bound)? {
                flat = self.flatten(dt, &mut coef, flat)?;
                continue;
            }
            if self.rules.finite && self.shift_exp(dt, &mut flat, &bound)? {
                // The bound axes are used up.
                return self.product(dt, coef, flat);
            }
            let (inside, outside): (Factors, Factors) =
                flat.into_iter().partition(|a| self.ref_mentions_any(&a.r, &bound));
            if !outside.is_empty() {
                let s = self.sum_prod(dt, Coef::ONE, inside, &bound)?;
                coef = self.coefs.mul(coef, s.coef)?;
                let mut f = outside;
                f.push(Arg { coef: Coef::ONE, pow: 1, r: s.r });
                return self.product(dt, coef, f);
            }
            flat = inside;
            if let Some(groups) = self.components(&flat, &bound) {
                let mut f: Factors = SmallVec::new();
                for (args, b) in groups {
                    let s = self.sum_prod(dt, Coef::ONE, args, &b)?;
                    coef = self.coefs.mul(coef, s.coef)?;
                    f.push(Arg { coef: Coef::ONE, pow: 1, r: s.r });
                }
                return self.product(dt, coef, f);
            }
            // A sole nested sum is merged.
            if flat.len() == 1 && flat[0].pow == 1 {
                let c = self.class(flat[0].r.class);
                if c.op == Op::Sum && c.dt == dt {
                    let (args, b) = self.open(&flat[0].r)?;
                    bound.extend(b);
                    flat = self.flatten(dt, &mut coef, args.into_iter().collect())?;
                    continue;
                }
            }
            if let Some(terms) = self.sums_added(dt, &flat)? {
                let mut out: SmallVec<[Val; 4]> = SmallVec::new();
                for t in terms {
                    let mut map = Subst::new();
                    let fresh = self.fresh_like(&bound, &mut map);
                    let k = self.coefs.mul(t.coef, coef)?;
                    let f = self.subst_factors(dt, &[Arg { coef: Coef::ONE, ..t }], &map)?;
                    out.push(self.sum_prod(dt, k, f, &fresh)?);
                }
                return self.add(dt, &out);
            }
            if self.rules.finite && flat.len() == 1 && flat[0].pow == 2 {
                if let Some(parts) = self.expand_square(dt, &flat[0], &bound)? {
                    let mut terms: SmallVec<[Val; 4]> = SmallVec::new();
                    for (k, f, b) in parts {
                        let k = self.coefs.mul(k, coef)?;
                        terms.push(self.sum_prod(dt, k, f, &b)?);
                    }
                    return self.add(dt, &terms);
                }
            }
            if flat.len() > 1 && self.use_guards(dt, &mut coef, &mut flat)? {
                flat = self.flatten(dt, &mut coef, flat)?;
                continue;
            }
            let odd = flat.len() > 1 && flat.iter().any(|a| self.is_doubtful(&a.r));
            if let Some(i) = self.free_pieces(&flat, &bound).filter(|_| !odd) {
                return self.sum_of_pieces(dt, coef, &flat, &bound, i);
            }
            if round < 60 {
                match self.decide_indicators(dt, &flat, &bound)? {
                    Decided::No => {}
                    Decided::Same(f, b) => {
                        flat = self.flatten(dt, &mut coef, f)?;
                        bound = b;
                        continue;
                    }
                    Decided::Pieces(ps) => {
                        let mut terms: SmallVec<[Val; 4]> = SmallVec::new();
                        for (f, b) in ps {
                            terms.push(self.sum_prod(dt, coef, f, &b)?);
                        }
                        return self.add(dt, &terms);
                    }
                }
            }
            let v = self.node_bound(Op::Sum, dt, true, flat, &bound);
            return self.scale(&v, coef);
        }
        None
    }

    /// The terms of a sole factor that is an addition of sums: partial sums
    /// added before their reduction are reduced one by one.
    pub(super) fn sums_added(
        &mut self,
        dt: Dt,
        flat: &[Arg],
    ) -> Option<Option<SmallVec<[Arg; 4]>>> {
        let [a] = flat else { return Some(None) };
        let c = self.class(a.r.class);
        let sums = a.pow == 1
            && c.op == Op::Add
            && c.dt == dt
            && c.args.len() <= MAX_SUMS_ADDED
            && c.args.iter().all(|x| self.class(x.r.class).op == Op::Sum);
        if !sums {
            return Some(None);
        }
        let (terms, _) = self.open(&a.r)?;
        Some(Some(terms))
    }

    /// The factor that is pieces along an axis that is free in the sum and
    /// that no other factor reads.
    pub(super) fn free_pieces(&self, flat: &[Arg], bound: &[Ax]) -> Option<usize> {
        flat.iter().position(|a| {
            let c = self.class(a.r.class);
            let own = c.nfree as usize;
            if a.pow != 1 || c.op != Op::Pcs || c.args.len() > MAX_RUNS_OUT {
                return false;
            }
            let mut alone = true;
            self.lins.for_terms(a.r.m[own], |_, x| {
                alone &= !bound.contains(&x)
                    && a.r.m[..own].iter().all(|&l| !self.lins.mentions(l, x))
                    && flat.iter().all(|o| std::ptr::eq(o, a) || !self.ref_mentions(&o.r, x));
            });
            alone && !bound.iter().any(|&b| self.lins.mentions(a.r.m[own], b))
        })
    }

    /// A sum with a factor in pieces as pieces that are sums.
    pub(super) fn sum_of_pieces(
        &mut self,
        dt: Dt,
        coef: Coef,
        flat: &[Arg],
        bound: &[Ax],
        i: usize,
    ) -> Option<Val> {
        let c = self.class(flat[i].r.class);
        let (lens, at) = (c.bound.clone(), flat[i].r.m[c.nfree as usize]);
        let (args, axes) = self.open(&flat[i].r)?;
        let mut runs = Vec::with_capacity(args.len());
        for (k, a) in args.iter().enumerate() {
            let mut map = Subst::new();
            let fresh = self.fresh_like(bound, &mut map);
            let mut f: Factors = flat.iter().cloned().collect();
            f[i] = Arg { coef: a.coef, pow: 1, r: a.r.clone() };
            let f = if a.coef == Coef::ZERO {
                Factors::new()
            } else {
                let mut g = self.subst_factors(dt, &f, &map)?;
                g[i].coef = self.coefs.mul(g[i].coef, a.coef)?;
                g
            };
            let val = if a.coef == Coef::ZERO {
                self.assume("0 * x = 0");
                self.zero(dt)
            } else {
                self.sum_prod(dt, coef, f, &fresh)?
            };
            runs.push(crate::pieces::Run { len: lens[k], val, axis: Some(axes[k]) });
        }
        self.pieces(dt, &runs, at)
    }

    /// `sum_b (m u + m v) F = sum_b m (u + v) F` for factors `m` that all
    /// terms of an addition share and that are free of the bound axes.
    pub(super) fn pull_common(
        &mut self,
        dt: Dt,
        coef: &mut Coef,
        flat: &mut Factors,
        bound: &[Ax],
    ) -> Option<bool> {
        for i in 0..flat.len() {
            let c = self.class(flat[i].r.class);
            if flat[i].pow != 1 || c.op != Op::Add || c.dt != dt || c.args.len() > MAX_FLAT {
                continue;
            }
            let all_products = c.args.iter().all(|a| self.class(a.r.class).op == Op::Prod);
            if !all_products || !self.ref_mentions_any(&flat[i].r, bound) {
                continue;
            }
            let (terms, _) = self.open(&flat[i].r.clone())?;
            let mut split: SmallVec<[(Coef, Factors); 4]> = SmallVec::new();
            for t in &terms {
                if self.class(t.r.class).op != Op::Prod {
                    break;
                }
                let (f, _) = self.open(&t.r)?;
                split.push((t.coef, f));
            }
            if split.len() != terms.len() {
                continue;
            }
            let common: Factors = split[0]
                .1
                .iter()
                .filter(|x| {
                    x.coef == Coef::ONE
                        && !self.ref_mentions_any(&x.r, bound)
                        && split.iter().all(|s| s.1.contains(x))
                })
                .cloned()
                .collect();
            if common.is_empty() {
                continue;
            }
            let mut rest: SmallVec<[Val; 4]> = SmallVec::new();
            for (k, f) in split {
                let f = f.into_iter().filter(|x| !common.contains(x)).collect();
                rest.push(self.product(dt, k, f)?);
            }
            let s = self.add(dt, &rest)?;
            *coef = self.coefs.mul(*coef, s.coef)?;
            flat[i] = Arg { coef: Coef::ONE, pow: 1, r: s.r };
            flat.extend(common);
            return Some(true);
        }
        Some(false)
    }

    /// `sum_b (u + v)^2 = sum_b u^2 + 2 v sum_b u + n v^2` where `v` holds the
    /// terms of an addition that are free of all bound axes.
    pub(super) fn expand_square(
        &mut self,
        dt: Dt,
        a: &Arg,
        bound: &[Ax],
    ) -> Option<Option<Vec<(Coef, Factors, SmallVec<[Ax; 4]>)>>> {
        let c = self.class(a.r.class);
        if c.op != Op::Add || c.dt != dt || c.args.len() > 64 {
            return Some(None);
        }
        let (terms, _) = self.open(&a.r)?;
        let (mut u, mut v): (Vec<Val>, Vec<Val>) = (Vec::new(), Vec::new());
        for t in &terms {
            let x = self.val_of(t);
            if self.ref_mentions_any(&x.r, bound) { u.push(x) } else { v.push(x) }
        }
        if u.is_empty() || v.is_empty() {
            return Some(None);
        }
        let (u, v) = (self.add(dt, &u)?, self.add(dt, &v)?);
        let two = self.coefs.int(2);
        let mut out = Vec::new();
        for (k, pu, pv) in [(Coef::ONE, 2, 0), (two, 1, 1), (Coef::ONE, 0, 2)] {
            let mut map = Subst::new();
            let fresh = self.fresh_like(bound, &mut map);
            let mut f: Factors = SmallVec::new();
            let mut k = k;
            for (x, p) in [(&u, pu), (&v, pv)] {
                if p > 0 {
                    let y = self.subst(x, &map)?;
                    let c = self.coefs.pow(y.coef, p)?;
                    k = self.coefs.mul(k, c)?;
                    f.push(Arg { coef: Coef::ONE, pow: p, r: y.r });
                }
            }
            out.push((k, f, fresh));
        }
        Some(Some(out))
    }

    /// Replaces atoms in factors; coefficients that come out stay on them.
    pub(super) fn subst_factors(&mut self, dt: Dt, f: &[Arg], map: &Subst) -> Option<Factors> {
        let mut out: Factors = SmallVec::new();
        for a in f {
            let v = Val { coef: Coef::ONE, r: a.r.clone(), dt };
            let v = self.subst(&v, map)?;
            let k = self.coefs.pow(v.coef, a.pow)?;
            out.push(Arg { coef: k, pow: a.pow, r: v.r });
        }
        Some(out)
    }

    /// Fresh axes in place of `axes`, added to the replacement.
    pub(crate) fn fresh_like(&mut self, axes: &[Ax], map: &mut Subst) -> SmallVec<[Ax; 4]> {
        axes.iter()
            .map(|&a| {
                let n = self.lins.size(a);
                let x = self.lins.local(n);
                map.set(a, Lins::plain(x));
                x
            })
            .collect()
    }

    /// Softmax shift: `sum_b exp(u + v) F = exp(v) sum_b exp(u) F` for terms
    /// `v` free of all bound axes. Needs finite `v`.
    pub(super) fn shift_exp(&mut self, dt: Dt, flat: &mut Factors, bound: &[Ax]) -> Option<bool> {
        let exp = self.known.exp;
        for i in 0..flat.len() {
            let a = &flat[i];
            if a.pow != 1 || self.class(a.r.class).op != Op::Ew(exp) {
                continue;
            }
            let arg = self.class(a.r.class).args[0].r.class;
            if self.class(arg).op != Op::Add || !self.ref_mentions_any(&a.r, bound) {
                continue;
            }
            let r = a.r.clone();
            let (args, _) = self.open(&r)?;
            if self.class(args[0].r.class).op != Op::Add {
                continue;
            }
            let k = args[0].coef;
            let (terms, _) = self.open(&args[0].r)?;
            let mut u: SmallVec<[Val; 4]> = SmallVec::new();
            let mut v: SmallVec<[Val; 4]> = SmallVec::new();
            for t in &terms {
                let t = Val { coef: self.coefs.mul(t.coef, k)?, ..self.val_of(t) };
                if self.ref_mentions_any(&t.r, bound) { u.push(t) } else { v.push(t) }
            }
            let odd = |t: &Val| self.is_doubtful(&t.r) || self.may_be_infinite(&t.r);
            if v.is_empty() || u.is_empty() || v.iter().any(odd) {
                continue;
            }
            self.assume("sum exp(x + c) = exp(c) * sum exp(x)");
            let (u, v) = (self.add(dt, &u)?, self.add(dt, &v)?);
            let (eu, ev) = (self.exp(dt, &u)?, self.exp(dt, &v)?);
            if eu.coef != Coef::ONE || ev.coef != Coef::ONE {
                continue;
            }
            flat[i] = Arg { coef: Coef::ONE, pow: 1, r: eu.r };
            // The bound-free part must not merge back: it is pulled out next.
            let (inside, mut outside): (Factors, Factors) =
                flat.drain(..).partition(|a| self.ref_mentions_any(&a.r, bound));
            outside.push(Arg { coef: Coef::ONE, pow: 1, r: ev.r });
            let s = self.sum_prod(dt, Coef::ONE, inside, bound)?;
            outside.push(Arg { coef: s.coef, pow: 1, r: s.r });
            *flat = outside;
            return Some(true);
        }
        Some(false)
    }

    /// Groups of factors that share no bound axis; `None` if there is one.
    pub(super) fn components(
        &self,
        flat: &Factors,
        bound: &[Ax],
    ) -> Option<Vec<(Factors, SmallVec<[Ax; 4]>)>> {
        if flat.len() < 2 || bound.len() < 2 {
            return None;
        }
        let mut group: SmallVec<[usize; 8]> = (0..bound.len()).collect();
        for a in flat {
            let mut first: Option<usize> = None;
            for (i, &b) in bound.iter().enumerate() {
                if self.ref_mentions(&a.r, b) {
                    match first {
                        None => first = Some(group[i]),
                        Some(g) => {
                            let old = group[i];
                            for x in group.iter_mut().filter(|x| **x == old) {
                                *x = g;
                            }
                        }
                    }
                }
            }
        }
        let mut ids: SmallVec<[usize; 8]> = group.clone();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() < 2 {
            return None;
        }
        Some(
            ids.iter()
                .map(|&g| {
                    let b: SmallVec<[Ax; 4]> =
                        (0..bound.len()).filter(|&i| group[i] == g).map(|i| bound[i]).collect();
                    let f =
                        flat.iter().filter(|a| self.ref_mentions_any(&a.r, &b)).cloned().collect();
                    (f, b)
                })
                .collect(),
        )
    }
}
