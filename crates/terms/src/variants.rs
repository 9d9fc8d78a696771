//! Equal forms of a value that the normal form does not choose, tried one
//! after the other where a value matches nothing.

use crate::coef::Coef;
use crate::store::{Arg, Dt, Op, Store, Val};
use smallvec::SmallVec;

/// Bounds of a search.
#[derive(Clone, Copy, Debug)]
pub struct VariantLimits {
    /// Rewrites in a row.
    pub depth: u32,
    /// Variants in all.
    pub count: usize,
}

impl Default for VariantLimits {
    fn default() -> Self {
        VariantLimits { depth: 3, count: 24 }
    }
}

impl Store {
    /// Calls `accept` with variants of `v`, nearest first, until it returns
    /// true; returns that variant.
    pub fn search_variants(
        &mut self,
        v: &Val,
        limits: VariantLimits,
        mut accept: impl FnMut(&mut Store, &Val) -> bool,
    ) -> Option<Val> {
        let mut seen: Vec<Val> = vec![v.clone()];
        let mut frontier = vec![v.clone()];
        for _ in 0..limits.depth {
            let mut next = Vec::new();
            for f in &frontier {
                for w in self.variants(f) {
                    if seen.contains(&w) {
                        continue;
                    }
                    if accept(self, &w) {
                        return Some(w);
                    }
                    seen.push(w.clone());
                    if seen.len() > limits.count {
                        return None;
                    }
                    next.push(w);
                }
            }
            frontier = next;
        }
        None
    }

    /// One rewrite away: (a) a nested sum that shares a bound axis is
    /// inlined; (b) a bound axis that some factors alone read is summed inside
    /// those; (c) a product distributes over an addition; (d) two products or
    /// sums that share factors become one, of the sum of what they do not.
    pub fn variants(&mut self, v: &Val) -> Vec<Val> {
        let mut out = Vec::new();
        let (op, dt) = {
            let c = self.class(v.r.class);
            (c.op, c.dt)
        };
        match op {
            Op::Sum => {
                let n = self.class(v.r.class).args.len();
                for i in 0..n {
                    if let Some(w) = self.inline_sum(v, dt, i) {
                        out.push(w);
                    }
                }
                for i in 0..n {
                    if let Some(w) = self.push_into_factor(v, dt, i) {
                        out.push(w);
                    }
                }
                for b in 0..self.class(v.r.class).bound.len() {
                    if let Some(w) = self.sum_first(v, dt, b) {
                        out.push(w);
                    }
                }
                for i in 0..n {
                    if let Some(w) = self.distribute(v, dt, i) {
                        out.push(w);
                    }
                }
            }
            Op::Prod => {
                // Rewrites inside one factor.
                let Some((args, _)) = self.open(&v.r) else { return out };
                for i in 0..args.len() {
                    let x = Val { coef: Coef::ONE, r: args[i].r.clone(), dt };
                    if args[i].pow != 1 {
                        continue;
                    }
                    for w in self.variants(&x) {
                        let mut f: SmallVec<[Arg; 4]> = args.clone();
                        f[i] = Arg { coef: w.coef, pow: 1, r: w.r };
                        if let Some(p) = self.product(dt, v.coef, f) {
                            out.push(p);
                        }
                    }
                }
                for i in 0..args.len() {
                    if let Some(w) = self.distribute(v, dt, i) {
                        out.push(w);
                    }
                }
            }
            Op::Add => {
                let Some((args, _)) = self.open(&v.r) else { return out };
                if args.len() > 8 {
                    return out;
                }
                for i in 0..args.len() {
                    let x = self.val_of(&args[i]);
                    for w in self.variants(&x) {
                        let mut terms: Vec<Val> = args.iter().map(|a| self.val_of(a)).collect();
                        terms[i] = w;
                        let s = self.add(dt, &terms).and_then(|s| self.scale(&s, v.coef));
                        out.extend(s);
                    }
                }
                for j in 1..args.len() {
                    for i in 0..j {
                        self.join_terms(v, dt, (i, j), &mut out);
                    }
                }
            }
            _ => {}
        }
        out
    }

    fn inline_sum(&mut self, v: &Val, dt: Dt, i: usize) -> Option<Val> {
        let inner = self.class(v.r.class).args[i].clone();
        if inner.pow != 1 || self.class(inner.r.class).op != Op::Sum {
            return None;
        }
        let (mut args, mut bound) = self.open(&v.r)?;
        let (sub, b) = self.open(&args[i].r)?;
        if b.is_empty() {
            return None;
        }
        args.remove(i);
        args.extend(sub);
        bound.extend(b);
        self.sum_prod_raw(dt, v.coef, args, &bound)
    }

    fn push_into_factor(&mut self, v: &Val, dt: Dt, i: usize) -> Option<Val> {
        let (mut args, bound) = self.open(&v.r)?;
        if args[i].pow != 1 {
            return None;
        }
        let only: SmallVec<[crate::Ax; 2]> = bound
            .iter()
            .copied()
            .filter(|&b| {
                args.iter().enumerate().all(|(k, a)| (k == i) == self.ref_mentions(&a.r, b))
            })
            .collect();
        if only.is_empty() || only.len() == bound.len() {
            return None;
        }
        let x = Val { coef: Coef::ONE, r: args[i].r.clone(), dt };
        let s = self.sum(dt, &x, &only)?;
        args[i] = Arg { coef: s.coef, pow: 1, r: s.r };
        let rest: SmallVec<[crate::Ax; 2]> =
            bound.iter().copied().filter(|b| !only.contains(b)).collect();
        self.sum_prod(dt, v.coef, args, &rest)
    }

    /// Sums over bound axis `k` first: the factors that read it become one,
    /// together with the axes that only they read.
    fn sum_first(&mut self, v: &Val, dt: Dt, k: usize) -> Option<Val> {
        let (args, bound) = self.open(&v.r)?;
        let axis = *bound.get(k)?;
        let (inside, mut outside): (SmallVec<[Arg; 4]>, SmallVec<[Arg; 4]>) =
            args.into_iter().partition(|a| self.ref_mentions(&a.r, axis));
        if inside.len() < 2 || outside.is_empty() {
            return None;
        }
        let (only, rest): (SmallVec<[crate::Ax; 2]>, SmallVec<[crate::Ax; 2]>) = bound
            .iter()
            .copied()
            .partition(|&b| !outside.iter().any(|a| self.ref_mentions(&a.r, b)));
        if rest.is_empty() {
            return None;
        }
        let s = self.sum_prod(dt, Coef::ONE, inside, &only)?;
        outside.push(Arg { coef: s.coef, pow: 1, r: s.r });
        self.sum_prod(dt, v.coef, outside, &rest)
    }

    fn distribute(&mut self, v: &Val, dt: Dt, i: usize) -> Option<Val> {
        let a = self.class(v.r.class).args[i].clone();
        let c = self.class(a.r.class);
        if a.pow != 1 || c.op != Op::Add || c.args.len() > 8 {
            return None;
        }
        let is_sum = self.class(v.r.class).op == Op::Sum;
        let (args, bound) = self.open(&v.r)?;
        let (terms, _) = self.open(&args[i].r)?;
        // 0 * inf is NaN: what is 0 as a whole may have terms that are not, and
        // the other way round.
        if dt != Dt::INT && (0..args.len()).any(|k| k != i && self.may_be_infinite(&args[k].r)) {
            return None;
        }
        let mut out: SmallVec<[Val; 8]> = SmallVec::new();
        for t in &terms {
            let mut f = args.clone();
            f[i] = Arg { coef: t.coef, pow: 1, r: t.r.clone() };
            out.push(if is_sum {
                // Each summand has its own bound axes.
                let mut m = crate::Subst::new();
                let mut fresh: SmallVec<[crate::Ax; 2]> = SmallVec::new();
                for &b in &bound {
                    let n = self.lins.size(b);
                    let x = self.lins.local(n);
                    m.set(b, crate::Lins::plain(x));
                    fresh.push(x);
                }
                for a in f.iter_mut() {
                    a.r = self.subst_ref(&a.r, &m)?;
                }
                self.sum_prod(dt, v.coef, f, &fresh)?
            } else {
                self.product(dt, v.coef, f)?
            });
        }
        self.add(dt, &out)
    }

    /// True of an addition of a few terms of which two or more are products or
    /// sums of products.
    pub fn may_join(&self, v: &Val) -> bool {
        let c = self.class(v.r.class);
        let product = |a: &&Arg| matches!(self.class(a.r.class).op, Op::Sum | Op::Prod);
        c.op == Op::Add && c.args.len() <= 4 && c.args.iter().filter(product).count() > 1
    }

    /// True of a sum with a factor that is an addition of a few terms.
    pub fn may_split(&self, v: &Val) -> bool {
        let c = self.class(v.r.class);
        let few = |a: &Arg| {
            let c = self.class(a.r.class);
            a.pow == 1 && c.op == Op::Add && c.args.len() <= 4
        };
        c.op == Op::Sum && c.args.iter().any(few)
    }

    /// Terms `i` and `j` of an addition as one: `x w + y w = (x + y) w`, and
    /// the same under sums, in each order of the axes that fits. Axes that only
    /// one of them is summed over are summed in what is its own.
    fn join_terms(&mut self, v: &Val, dt: Dt, (i, j): (usize, usize), out: &mut Vec<Val>) {
        if !self.rules.reals && dt != Dt::INT {
            return;
        }
        let Some((args, _)) = self.open(&v.r) else { return };
        let (Some(x), Some(y)) = (self.factors(&args[i]), self.factors(&args[j])) else { return };
        let (mut few, mut many) = ((x, args[i].coef), (y, args[j].coef));
        if few.0.1.len() > many.0.1.len() {
            std::mem::swap(&mut few, &mut many);
        }
        let (((f, b), kf), ((g, c), kg)) = (few, many);
        if c.len() > 3 {
            return;
        }
        let size = |s: &Store, x: crate::Ax| s.lins.size(x);
        let mut done: Vec<SmallVec<[usize; 4]>> = Vec::new();
        for order in orders(c.len()) {
            let order: SmallVec<[usize; 4]> = order[..b.len()].into();
            if done.contains(&order)
                || b.iter().zip(&order).any(|(&x, &k)| size(self, x) != size(self, c[k]))
            {
                continue;
            }
            // Without a common factor one order is as good as another.
            let plain = done.is_empty() && b.len() == c.len();
            done.push(order.clone());
            let mut m = crate::Subst::new();
            for (&x, &k) in b.iter().zip(&order) {
                m.set(c[k], crate::Lins::plain(x));
            }
            let more: SmallVec<[crate::Ax; 2]> =
                (0..c.len()).filter(|k| !order.contains(k)).map(|k| c[k]).collect();
            let mut theirs: SmallVec<[Arg; 4]> = SmallVec::new();
            for a in &g {
                let Some(r) = self.subst_ref(&a.r, &m) else { return };
                theirs.push(Arg { r, ..a.clone() });
            }
            // What both have, and what is left of each.
            let (mut rest, mut own): (SmallVec<[Arg; 4]>, SmallVec<[Arg; 4]>) = Default::default();
            for a in &f {
                match theirs.iter().position(|s| s == a) {
                    Some(k) => rest.push(theirs.remove(k)),
                    None => own.push(a.clone()),
                }
            }
            // A sum of selections selects nothing, and what adds up to 0 has
            // terms that are not: 0 * inf is NaN.
            let selects = own.iter().chain(&theirs).any(|a| self.selects(&a.r))
                || dt != Dt::INT && rest.iter().any(|a| self.may_be_infinite(&a.r));
            let apart = more.iter().any(|&x| rest.iter().any(|a| self.ref_mentions(&a.r, x)));
            if selects || apart || rest.is_empty() && !plain {
                continue;
            }
            let joined = (|| {
                let x = self.product(dt, Coef::ONE, own)?;
                let y = if more.is_empty() {
                    self.product(dt, Coef::ONE, theirs)?
                } else {
                    self.sum_prod(dt, Coef::ONE, theirs, &more)?
                };
                let (x, y) = (self.scale(&x, kf)?, self.scale(&y, kg)?);
                let both = self.add(dt, &[x, y]).filter(|s| s.coef != Coef::ZERO)?;
                let k = self.coefs.mul(both.coef, v.coef)?;
                rest.push(Arg { coef: Coef::ONE, pow: 1, r: both.r });
                let w = if b.is_empty() {
                    self.product(dt, k, rest)?
                } else {
                    self.sum_prod(dt, k, rest, &b)?
                };
                let mut terms: SmallVec<[Val; 8]> = SmallVec::from_elem(w, 1);
                for n in (0..args.len()).filter(|&n| n != i && n != j) {
                    let t = self.val_of(&args[n]);
                    terms.push(self.scale(&t, v.coef)?);
                }
                self.add(dt, &terms)
            })();
            out.extend(joined);
        }
    }

    /// The factors of a term of an addition and the axes that they are summed
    /// over.
    fn factors(&mut self, a: &Arg) -> Option<(SmallVec<[Arg; 4]>, SmallVec<[crate::Ax; 2]>)> {
        let op = self.class(a.r.class).op;
        if !matches!(op, Op::Sum | Op::Prod) {
            let one = Arg { coef: Coef::ONE, pow: 1, r: a.r.clone() };
            return Some((SmallVec::from_elem(one, 1), SmallVec::new()));
        }
        self.open(&a.r)
    }

    /// A sum whose factors may be sums that share its bound axes; like
    /// [`Store::sum_prod`] otherwise.
    fn sum_prod_raw(
        &mut self,
        dt: Dt,
        coef: Coef,
        args: SmallVec<[Arg; 4]>,
        bound: &[crate::Ax],
    ) -> Option<Val> {
        self.sum_prod(dt, coef, args, bound)
    }
}

/// All orders of `n` things, the given one first.
fn orders(n: usize) -> Vec<SmallVec<[usize; 4]>> {
    let mut out: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new()];
    for k in 0..n {
        let longer = |o: &SmallVec<[usize; 4]>| {
            (0..=k)
                .rev()
                .map(|at| {
                    let mut o = o.clone();
                    o.insert(at, k);
                    o
                })
                .collect::<Vec<_>>()
        };
        out = out.iter().flat_map(longer).collect();
    }
    out
}
