//! Sums and maxima of terms that are one class read along a progression.
//!
//! `C[w_0] + ... + C[w_(k-1)]` is `sum_(z<k) C[lo + g*z]` if on every device
//! the forms `w_t` take exactly the values `lo, lo + g, ...`, each once. This
//! is what makes an accumulation over constant slices, or over permuted
//! copies of the devices' values, the sum over an axis.

use crate::lin::{Ax, LinId, Lins};
use crate::store::{Arg, Dt, Op, Ref, Store, Val};
use smallvec::SmallVec;

/// Most terms of a progression.
const MAX_TERMS: usize = 256;
/// Most terms among which sums that go on are looked for.
const MAX_JOINED: usize = 12;
/// Most device points that are looked at.
const MAX_POINTS: i64 = 8192;

impl Store {
    /// Groups of terms that are a progression of one class, as reductions.
    /// `reduce` takes the value and the new bound axis. Terms that are in no
    /// such group are left. Returns whether something changed.
    pub(crate) fn gather_series(
        &mut self,
        dt: Dt,
        flat: &mut SmallVec<[Arg; 4]>,
        reduce: impl Fn(&mut Store, Dt, &Val, Ax) -> Option<Val>,
    ) -> bool {
        if flat.len() < 2 {
            return false;
        }
        flat.sort_by(|a, b| a.r.class.cmp(&b.r.class).then(a.coef.cmp(&b.coef)));
        let mut changed = false;
        let mut out: SmallVec<[Arg; 4]> = SmallVec::new();
        let mut i = 0;
        while i < flat.len() {
            let mut j = i + 1;
            while j < flat.len()
                && flat[j].r.class == flat[i].r.class
                && flat[j].coef == flat[i].coef
                && flat[j].pow == flat[i].pow
            {
                j += 1;
            }
            let group: SmallVec<[Ref; 4]> = flat[i..j].iter().map(|a| a.r.clone()).collect();
            let made = if group.len() > 1 && group.len() <= MAX_TERMS && flat[i].pow == 1 {
                self.series(&group)
                    .and_then(|(r, z)| reduce(self, dt, &Val { coef: flat[i].coef, r, dt }, z))
            } else {
                None
            };
            match made {
                Some(v) => {
                    out.push(Arg { coef: v.coef, pow: 1, r: v.r });
                    changed = true;
                }
                None => out.extend(flat[i..j].iter().cloned()),
            }
            i = j;
        }
        *flat = out;
        changed
    }

    /// Joins two terms of an addition where one goes on where the other ends:
    /// `sum_(z<n) F(z) + sum_(z<k) F(n+z)` is `sum_(z<n+k) F(z)`, and a lone
    /// `F(n)` counts as `k = 1`. Every read must stay inside its array.
    pub(crate) fn join_sums(&mut self, dt: Dt, flat: &mut SmallVec<[Arg; 4]>) -> bool {
        if flat.len() < 2 || flat.len() > MAX_JOINED {
            return false;
        }
        let classes = |s: &Store, a: &Arg| -> SmallVec<[crate::ClassId; 4]> {
            let c = s.class(a.r.class);
            match c.op {
                Op::Sum | Op::Prod => {
                    let mut v: SmallVec<[crate::ClassId; 4]> =
                        c.args.iter().map(|x| x.r.class).collect();
                    v.sort_unstable();
                    v
                }
                _ => SmallVec::from_slice(&[a.r.class]),
            }
        };
        for i in 0..flat.len() {
            let c = self.class(flat[i].r.class);
            if flat[i].pow != 1 || c.op != Op::Sum || c.dt != dt {
                continue;
            }
            for j in 0..flat.len() {
                if i == j
                    || flat[j].pow != 1
                    || flat[j].coef != flat[i].coef
                    || classes(self, &flat[i]) != classes(self, &flat[j])
                {
                    continue;
                }
                let (x, y) = (flat[i].r.clone(), flat[j].r.clone());
                let Some(v) = self.joined(dt, &x, &y) else { continue };
                let Some(k) = self.coefs.mul(v.coef, flat[i].coef) else { continue };
                flat[i] = Arg { coef: k, pow: 1, r: v.r };
                flat.remove(j);
                return true;
            }
        }
        false
    }

    /// The sum `x` lengthened by the term `y`, if `y` continues it.
    fn joined(&mut self, dt: Dt, x: &Ref, y: &Ref) -> Option<Val> {
        let sum = self.class(y.class).op == Op::Sum;
        let (args, bound) = self.open(x)?;
        for (b, &z) in bound.iter().enumerate() {
            let n = self.lins.size(z);
            let mut rest: SmallVec<[Ax; 4]> = bound.iter().copied().collect();
            rest.remove(b);
            // Candidates for the continuation: all of `y`, or `y` per index
            // of one of its bound axes.
            let mut tails: SmallVec<[(Val, Option<Ax>); 3]> = SmallVec::new();
            tails.push((Val { coef: crate::Coef::ONE, r: y.clone(), dt }, None));
            if sum {
                let count = self.class(y.class).bound.len();
                for k in 0..count {
                    let (f, mut bs) = self.open(y)?;
                    let t = bs.remove(k);
                    if let Some(v) = self.sum_prod(dt, crate::Coef::ONE, f, &bs) {
                        tails.push((v, Some(t)));
                    }
                }
            }
            for (tail, axis) in tails {
                let k = axis.map_or(1, |t| self.lins.size(t));
                let at = match axis {
                    Some(t) => self.lins.shift(Lins::plain(t), n),
                    None => self.lins.constant(n),
                };
                let Some((f, bs)) = self.reread(&args, &rest, z, at) else { continue };
                if self.sum_prod(dt, crate::Coef::ONE, f, &bs).as_ref() != Some(&tail) {
                    continue;
                }
                let long = self.lins.local(n + k);
                let (f, mut bs) = self.reread(&args, &rest, z, Lins::plain(long))?;
                bs.push(long);
                return self.sum_prod(dt, crate::Coef::ONE, f, &bs);
            }
        }
        None
    }

    /// Factors with `at` for `z` and fresh atoms for `rest`; `None` if a read
    /// would leave its array.
    fn reread(
        &mut self,
        args: &[Arg],
        rest: &[Ax],
        z: Ax,
        at: LinId,
    ) -> Option<(SmallVec<[Arg; 4]>, SmallVec<[Ax; 4]>)> {
        let mut map = crate::Subst::new();
        map.set(z, at);
        let fresh = self.fresh_like(rest, &mut map);
        let mut out: SmallVec<[Arg; 4]> = SmallVec::new();
        for a in args {
            let r = self.subst_ref(&a.r, &map)?;
            for (&l, &n) in r.m.iter().zip(&self.class(r.class).sizes) {
                let (lo, hi) = self.lins.range(l);
                if n != crate::UNBOUNDED && (lo < 0 || hi >= n) {
                    return None;
                }
            }
            let dt = self.class(a.r.class).dt;
            let v = self.norm(Val { coef: crate::Coef::ONE, r, dt });
            let k = self.coefs.pow(v.coef, a.pow)?;
            let coef = self.coefs.mul(a.coef, k)?;
            out.push(Arg { coef, pow: a.pow, r: v.r });
        }
        Some((out, fresh))
    }

    /// The group as one read along a new axis.
    fn series(&mut self, group: &[Ref]) -> Option<(Ref, Ax)> {
        let k = group.len() as i64;
        let rank = group[0].m.len();
        let differ: SmallVec<[usize; 4]> =
            (0..rank).filter(|&p| group.iter().any(|r| r.m[p] != group[0].m[p])).collect();
        if differ.is_empty() {
            return None;
        }
        // What differs must depend on devices alone (or on nothing).
        let mut axes: SmallVec<[Ax; 3]> = SmallVec::new();
        let mut deltas: SmallVec<[SmallVec<[LinId; 4]>; 4]> = SmallVec::new();
        for &p in &differ {
            let mut d: SmallVec<[LinId; 4]> = SmallVec::new();
            for r in group {
                let l = self.lins.combine(&[(1, r.m[p]), (-1, group[0].m[p])])?;
                self.lins.base_axes(l, &mut axes);
                d.push(l);
            }
            deltas.push(d);
        }
        let device = |s: &Store, a: Ax| s.lins.atom(a).kind == crate::AtomKind::Device;
        if !axes.iter().all(|&a| device(self, a)) {
            return None;
        }
        axes.sort_unstable();
        let sizes: SmallVec<[i64; 4]> = axes.iter().map(|&a| self.lins.size(a)).collect();
        let n = sizes.iter().try_fold(1i64, |p, &s| p.checked_mul(s))?;
        if n > MAX_POINTS || n * k > MAX_POINTS * 8 {
            return None;
        }
        let mut point: SmallVec<[i64; 4]> = SmallVec::from_elem(0, axes.len());
        // values[column][device point][term]
        let mut values: Vec<Vec<Vec<i64>>> = vec![Vec::new(); differ.len()];
        for x in 0..n {
            let mut r = x;
            for i in (0..axes.len()).rev() {
                point[i] = r % sizes[i];
                r /= sizes[i];
            }
            for (c, d) in deltas.iter().enumerate() {
                let mut row = Vec::with_capacity(k as usize);
                for &l in d {
                    row.push(self.lins.eval(l, &axes, &point)?);
                }
                values[c].push(row);
            }
        }
        for c in 0..differ.len() {
            // Primary column: an arithmetic progression of the same step.
            let mut step = 0;
            let mut lows = Vec::with_capacity(n as usize);
            let ok = values[c].iter().all(|row| {
                let mut s = row.clone();
                s.sort_unstable();
                let g = s[1] - s[0];
                if g <= 0 || (step != 0 && step != g) {
                    return false;
                }
                step = g;
                lows.push(s[0]);
                s.windows(2).all(|w| w[1] - w[0] == g)
            });
            if !ok {
                continue;
            }
            let z = self.lins.local(k);
            let low = self.lins.from_table(&axes, &sizes, &lows);
            let mut m = group[0].m.clone();
            m[differ[c]] = self.lins.combine(&[
                (1, group[0].m[differ[c]]),
                (1, low),
                (step, Lins::plain(z)),
            ])?;
            // Other columns as functions of (device, z).
            let mut all: SmallVec<[Ax; 4]> = axes.iter().copied().collect();
            all.push(z);
            let mut all_sizes: SmallVec<[i64; 4]> = sizes.clone();
            all_sizes.push(k);
            let mut good = true;
            for o in (0..differ.len()).filter(|&o| o != c) {
                let mut tab = vec![0i64; (n * k) as usize];
                for x in 0..n as usize {
                    for t in 0..k as usize {
                        let at = (values[c][x][t] - lows[x]) / step;
                        tab[x * k as usize + at as usize] = values[o][x][t];
                    }
                }
                let l = self.lins.from_table(&all, &all_sizes, &tab);
                let mut table = false;
                self.lins.for_terms(l, |_, a| table |= !all.contains(&a));
                good &= !table;
                m[differ[o]] = self.lins.combine(&[(1, group[0].m[differ[o]]), (1, l)])?;
            }
            if good {
                return Some((Ref { class: group[0].class, m }, z));
            }
        }
        None
    }
}
