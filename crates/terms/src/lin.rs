//! Index arithmetic: atoms and interned linear forms over them.
//!
//! An index of one axis of a class is `c0 + sum coef * atom`. An atom is an
//! axis (of a value's dimensions, a device axis, a bound axis) or a lookup
//! table over other atoms. Inside a class's node the atoms are *slots*
//! (numbered free, own and bound axes) instead.

use hashbrown::{HashMap, HashTable};
use rustc_hash::{FxBuildHasher, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// An atom: a slot (below [`FIRST_ATOM`]) or an entry of [`Lins::atoms`].
pub type Ax = u32;

/// First context atom; smaller numbers are slots.
pub const FIRST_ATOM: Ax = 1024;
/// Slots of free axes are `0..`, of own axes `OWN_SLOT..`, of bound axes
/// `BOUND_SLOT..`.
pub const OWN_SLOT: Ax = 256;
/// See [`OWN_SLOT`].
pub const BOUND_SLOT: Ax = 512;

/// Size of an axis that has no bound: the domain of an iota.
pub const UNBOUNDED: i64 = i64::MAX / 8;

/// Largest table that is enumerated.
pub const MAX_TABLE: i64 = 1 << 16;

/// An interned linear form. The top bit marks a single atom with coefficient
/// one, which needs no table entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LinId(pub u32);

const PLAIN: u32 = 1 << 31;

/// Terms of a linear form, by falling coefficient, then atom; no zeros.
pub type Terms = SmallVec<[(i64, Ax); 3]>;

/// A linear form in the open.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lin {
    /// Constant part.
    pub c0: i64,
    /// Linear part.
    pub terms: Terms,
}

impl Lin {
    /// A constant.
    pub fn constant(c: i64) -> Self {
        Lin { c0: c, terms: Terms::new() }
    }

    /// `coef * atom`.
    pub fn axis(coef: i64, a: Ax) -> Self {
        let mut l = Lin::constant(0);
        l.push(coef, a);
        l
    }

    /// Adds `coef * atom` (not yet normal; see [`Lin::normalize`]).
    pub fn push(&mut self, coef: i64, a: Ax) {
        if coef != 0 {
            self.terms.push((coef, a));
        }
    }

    /// Adds `k` times another form; `None` on overflow.
    pub fn add_scaled(&mut self, k: i64, o: &Lin) -> Option<()> {
        self.c0 = self.c0.checked_add(k.checked_mul(o.c0)?)?;
        for &(c, a) in &o.terms {
            self.push(k.checked_mul(c)?, a);
        }
        Some(())
    }

    /// Combines equal atoms, drops zeros and sorts.
    pub fn normalize(&mut self) {
        if self.terms.len() > 1 {
            self.terms.sort_unstable_by_key(|t| t.1);
            let mut out = Terms::new();
            for &(c, a) in &self.terms {
                match out.last_mut() {
                    Some(l) if l.1 == a => l.0 += c,
                    _ => out.push((c, a)),
                }
            }
            out.retain(|t| t.0 != 0);
            out.sort_unstable_by(|x, y| y.0.cmp(&x.0).then(x.1.cmp(&y.1)));
            self.terms = out;
        }
    }
}

/// What an atom is.
#[derive(Clone, PartialEq, Debug)]
pub enum AtomKind {
    /// An axis of a value or a bound axis.
    Local,
    /// A digit of the device id.
    Device,
    /// A lookup table over other atoms (row-major over `axes`); its values
    /// have minimum 0 and gcd 1.
    Table {
        /// The atoms it depends on; local or device.
        axes: SmallVec<[Ax; 3]>,
        /// Values.
        tab: Rc<[i64]>,
    },
}

/// An atom of a context.
#[derive(Clone, Debug)]
pub struct Atom {
    /// Values are `0..size`.
    pub size: i64,
    /// What it is.
    pub kind: AtomKind,
}

struct LinData {
    lin: Lin,
    /// The same form without its constant.
    linear: LinId,
}

/// Atoms and interned linear forms.
#[derive(Default)]
pub struct Lins {
    atoms: Vec<Atom>,
    data: Vec<LinData>,
    table: HashTable<u32>,
    tables: HashMap<(SmallVec<[Ax; 3]>, Rc<[i64]>), Ax, FxBuildHasher>,
}

fn hash_lin(l: &Lin) -> u64 {
    let mut h = FxHasher::default();
    l.c0.hash(&mut h);
    for t in &l.terms {
        t.hash(&mut h);
    }
    h.finish()
}

impl Lins {
    /// A new atom.
    pub fn fresh(&mut self, size: i64, kind: AtomKind) -> Ax {
        self.atoms.push(Atom { size, kind });
        FIRST_ATOM + (self.atoms.len() - 1) as Ax
    }

    /// A new local axis.
    pub fn local(&mut self, size: i64) -> Ax {
        self.fresh(size, AtomKind::Local)
    }

    /// The atom behind a context id.
    pub fn atom(&self, a: Ax) -> &Atom {
        &self.atoms[(a - FIRST_ATOM) as usize]
    }

    /// Size of an atom.
    pub fn size(&self, a: Ax) -> i64 {
        self.atom(a).size
    }

    /// Number of atoms made so far.
    pub fn atom_count(&self) -> usize {
        self.atoms.len()
    }

    /// True if a lookup table over device atoms was made.
    pub fn has_device_tables(&self) -> bool {
        self.atoms.iter().any(|a| match &a.kind {
            AtomKind::Table { axes, .. } => {
                axes.iter().any(|&x| self.atom(x).kind == AtomKind::Device)
            }
            _ => false,
        })
    }

    /// Interns a form that is normal.
    pub fn intern(&mut self, lin: Lin) -> LinId {
        if lin.c0 == 0 && lin.terms.len() == 1 && lin.terms[0].0 == 1 {
            return LinId(PLAIN | lin.terms[0].1);
        }
        let h = hash_lin(&lin);
        let data = &self.data;
        if let Some(&i) = self.table.find(h, |&i| data[i as usize].lin == lin) {
            return LinId(i);
        }
        let linear = if lin.c0 == 0 {
            None
        } else {
            Some(self.intern(Lin { c0: 0, terms: lin.terms.clone() }))
        };
        let id = self.data.len() as u32;
        self.data.push(LinData { lin, linear: linear.unwrap_or(LinId(id)) });
        let data = &self.data;
        self.table.insert_unique(h, id, |&i| hash_lin(&data[i as usize].lin));
        LinId(id)
    }

    /// Normalizes and interns.
    pub fn make(&mut self, mut lin: Lin) -> LinId {
        lin.normalize();
        self.intern(lin)
    }

    /// The form `atom`.
    pub fn plain(a: Ax) -> LinId {
        LinId(PLAIN | a)
    }

    /// The atom, if the form is just one.
    pub fn as_plain(l: LinId) -> Option<Ax> {
        (l.0 & PLAIN != 0).then_some(l.0 & !PLAIN)
    }

    /// A constant form.
    pub fn constant(&mut self, c: i64) -> LinId {
        self.intern(Lin::constant(c))
    }

    /// The form in the open.
    pub fn get(&self, l: LinId) -> Lin {
        match Self::as_plain(l) {
            Some(a) => Lin { c0: 0, terms: SmallVec::from_slice(&[(1, a)]) },
            None => self.data[l.0 as usize].lin.clone(),
        }
    }

    /// Constant part.
    pub fn c0(&self, l: LinId) -> i64 {
        if l.0 & PLAIN != 0 { 0 } else { self.data[l.0 as usize].lin.c0 }
    }

    /// The form without its constant part.
    pub fn linear(&self, l: LinId) -> LinId {
        if l.0 & PLAIN != 0 { l } else { self.data[l.0 as usize].linear }
    }

    /// The value, if the form is constant.
    pub fn as_constant(&self, l: LinId) -> Option<i64> {
        if l.0 & PLAIN != 0 {
            return None;
        }
        let d = &self.data[l.0 as usize].lin;
        d.terms.is_empty().then_some(d.c0)
    }

    /// Calls `f` with each (coefficient, atom).
    pub fn for_terms(&self, l: LinId, mut f: impl FnMut(i64, Ax)) {
        match Self::as_plain(l) {
            Some(a) => f(1, a),
            None => {
                for &(c, a) in &self.data[l.0 as usize].lin.terms {
                    f(c, a);
                }
            }
        }
    }

    /// True if atom `a` occurs, also inside a table.
    pub fn mentions(&self, l: LinId, a: Ax) -> bool {
        let mut hit = false;
        self.for_terms(l, |_, t| hit |= t == a || self.table_mentions(t, a));
        hit
    }

    fn table_mentions(&self, t: Ax, a: Ax) -> bool {
        if t < FIRST_ATOM {
            return false;
        }
        match &self.atom(t).kind {
            AtomKind::Table { axes, .. } => {
                axes.iter().any(|&x| x == a || self.table_mentions(x, a))
            }
            _ => false,
        }
    }

    /// Smallest and largest value over the whole domain of the atoms.
    pub fn range(&self, l: LinId) -> (i64, i64) {
        let (mut lo, mut hi) = (self.c0(l), self.c0(l));
        self.for_terms(l, |c, a| {
            let top = c.saturating_mul(self.size(a) - 1);
            if top >= 0 {
                hi = hi.saturating_add(top);
            } else {
                lo = lo.saturating_add(top);
            }
        });
        (lo, hi)
    }

    /// `l` plus a constant.
    pub fn shift(&mut self, l: LinId, by: i64) -> LinId {
        if by == 0 {
            return l;
        }
        let mut x = self.get(l);
        x.c0 += by;
        self.intern(x)
    }

    /// `sum k_i * l_i`; `None` on overflow.
    pub fn combine(&mut self, parts: &[(i64, LinId)]) -> Option<LinId> {
        let mut out = Lin::constant(0);
        for &(k, l) in parts {
            let x = self.get(l);
            out.add_scaled(k, &x)?;
        }
        Some(self.make(out))
    }

    /// Replaces atoms by forms, all at once. Tables over replaced atoms are
    /// re-indexed if the replacement is an atom or a constant, or enumerated
    /// over the atoms of the replacement; `None` if that is too large or a
    /// number overflows.
    pub fn substitute(&mut self, l: LinId, map: &Subst) -> Option<LinId> {
        if map.is_empty() {
            return Some(l);
        }
        if let Some(a) = Self::as_plain(l) {
            if let Some(x) = map.get(a) {
                return Some(x);
            }
            if a < FIRST_ATOM || !matches!(self.atom(a).kind, AtomKind::Table { .. }) {
                return Some(l);
            }
        }
        let old = self.get(l);
        let mut out = Lin::constant(old.c0);
        let mut changed = false;
        for &(c, a) in &old.terms {
            match map.get(a) {
                Some(x) => {
                    changed = true;
                    let x = self.get(x);
                    out.add_scaled(c, &x)?;
                }
                None => {
                    let is_table =
                        a >= FIRST_ATOM && matches!(self.atom(a).kind, AtomKind::Table { .. });
                    if is_table {
                        let t = self.substitute_table(a, map)?;
                        changed |= t != Self::plain(a);
                        let t = self.get(t);
                        out.add_scaled(c, &t)?;
                    } else {
                        out.push(c, a);
                    }
                }
            }
        }
        if !changed {
            return Some(l);
        }
        Some(self.make(out))
    }

    fn substitute_table(&mut self, t: Ax, map: &Subst) -> Option<LinId> {
        let AtomKind::Table { axes, tab } = self.atom(t).kind.clone() else {
            return Some(Self::plain(t));
        };
        if !axes.iter().any(|&a| map.get(a).is_some()) {
            return Some(Self::plain(t));
        }
        let subs: SmallVec<[LinId; 3]> =
            axes.iter().map(|&a| map.get(a).unwrap_or(Self::plain(a))).collect();
        let sizes: SmallVec<[i64; 3]> = axes.iter().map(|&a| self.size(a)).collect();
        self.tabulate(&subs, |v| {
            let mut at = 0i64;
            for (x, n) in v.iter().zip(&sizes) {
                if *x < 0 || x >= n {
                    return None;
                }
                at = at * n + x;
            }
            tab.get(at as usize).copied()
        })
    }

    /// The function `f` of some forms as a linear form, exact: enumerates the
    /// atoms that the forms depend on, and finds a linear form if there is
    /// one, else makes a table atom. `None` if there are more than
    /// [`MAX_TABLE`] points or `f` is undefined somewhere.
    pub fn tabulate(&mut self, args: &[LinId], f: impl Fn(&[i64]) -> Option<i64>) -> Option<LinId> {
        let mut axes: SmallVec<[Ax; 3]> = SmallVec::new();
        for &l in args {
            self.base_axes(l, &mut axes);
        }
        axes.sort_unstable();
        axes.dedup();
        let sizes: SmallVec<[i64; 4]> = axes.iter().map(|&a| self.size(a)).collect();
        let n = sizes.iter().try_fold(1i64, |p, &s| p.checked_mul(s))?;
        if n > MAX_TABLE {
            return None;
        }
        let lins: SmallVec<[Lin; 3]> = args.iter().map(|&l| self.get(l)).collect();
        let mut point: SmallVec<[i64; 4]> = SmallVec::from_elem(0, axes.len());
        let mut vals: SmallVec<[i64; 3]> = SmallVec::new();
        let mut tab = Vec::with_capacity(n as usize);
        for k in 0..n {
            let mut r = k;
            for i in (0..axes.len()).rev() {
                point[i] = r % sizes[i];
                r /= sizes[i];
            }
            vals.clear();
            for l in &lins {
                vals.push(self.eval_lin(l, &axes, &point)?);
            }
            tab.push(f(&vals)?);
        }
        Some(self.from_table(&axes, &sizes, &tab))
    }

    /// Atoms that are not tables, on which `l` depends.
    pub fn base_axes(&self, l: LinId, out: &mut SmallVec<[Ax; 3]>) {
        self.for_terms(l, |_, a| self.base_axes_of(a, out));
    }

    fn base_axes_of(&self, a: Ax, out: &mut SmallVec<[Ax; 3]>) {
        match &self.atom(a).kind {
            AtomKind::Table { axes, .. } => {
                for &x in axes {
                    self.base_axes_of(x, out);
                }
            }
            _ => {
                if !out.contains(&a) {
                    out.push(a);
                }
            }
        }
    }

    fn eval_lin(&self, l: &Lin, axes: &[Ax], point: &[i64]) -> Option<i64> {
        let mut v = l.c0;
        for &(c, a) in &l.terms {
            v = v.checked_add(c.checked_mul(self.eval_atom(a, axes, point)?)?)?;
        }
        Some(v)
    }

    fn eval_atom(&self, a: Ax, axes: &[Ax], point: &[i64]) -> Option<i64> {
        if let Some(i) = axes.iter().position(|&x| x == a) {
            return Some(point[i]);
        }
        match &self.atom(a).kind {
            AtomKind::Table { axes: inner, tab } => {
                let mut at = 0i64;
                for &x in inner {
                    at = at * self.size(x) + self.eval_atom(x, axes, point)?;
                }
                tab.get(at as usize).copied()
            }
            _ => None,
        }
    }

    /// Value of a form at a point of base atoms; `None` if an atom is missing.
    pub fn eval(&self, l: LinId, axes: &[Ax], point: &[i64]) -> Option<i64> {
        self.eval_lin(&self.get(l), axes, point)
    }

    /// A table over base axes (row-major) as a form: axes it does not depend
    /// on are dropped, a linear table becomes linear, anything else becomes
    /// `min + gcd * table`.
    pub fn from_table(&mut self, axes: &[Ax], sizes: &[i64], tab: &[i64]) -> LinId {
        let rank = axes.len();
        let mut stride: SmallVec<[i64; 4]> = SmallVec::from_elem(1, rank);
        for i in (0..rank.saturating_sub(1)).rev() {
            stride[i] = stride[i + 1] * sizes[i + 1];
        }
        let c0 = tab.first().copied().unwrap_or(0);
        let coefs: SmallVec<[i64; 4]> = (0..rank)
            .map(|i| if sizes[i] > 1 { tab[stride[i] as usize] - c0 } else { 0 })
            .collect();
        let linear = tab.iter().enumerate().all(|(k, &v)| {
            let w: i64 = (0..rank).map(|i| coefs[i] * (k as i64 / stride[i] % sizes[i])).sum();
            v == c0 + w
        });
        if linear {
            let mut l = Lin::constant(c0);
            for i in 0..rank {
                l.push(coefs[i], axes[i]);
            }
            return self.make(l);
        }
        // Drop an axis the table does not depend on.
        for i in 0..rank {
            let free = (0..tab.len()).all(|k| {
                let j = k as i64 / stride[i] % sizes[i];
                tab[k] == tab[(k as i64 - j * stride[i]) as usize]
            });
            if free {
                let sub: Vec<i64> = (0..tab.len())
                    .filter(|&k| k as i64 / stride[i] % sizes[i] == 0)
                    .map(|k| tab[k])
                    .collect();
                let keep = |v: &[i64]| -> SmallVec<[i64; 4]> {
                    (0..rank).filter(|&j| j != i).map(|j| v[j]).collect()
                };
                let a: SmallVec<[Ax; 4]> = (0..rank).filter(|&j| j != i).map(|j| axes[j]).collect();
                return self.from_table(&a, &keep(sizes), &sub);
            }
        }
        let min = tab.iter().copied().min().unwrap_or(0);
        let gcd = tab.iter().fold(0i64, |g, &v| gcd(g, v - min)).max(1);
        let norm: Rc<[i64]> = tab.iter().map(|v| (v - min) / gcd).collect();
        let size = norm.iter().copied().max().unwrap_or(0) + 1;
        let key = (SmallVec::from_slice(axes), norm.clone());
        let atom = match self.tables.get(&key) {
            Some(&a) => a,
            None => {
                let kind = AtomKind::Table { axes: key.0.clone(), tab: norm };
                let a = self.fresh(size, kind);
                self.tables.insert(key, a);
                a
            }
        };
        let mut l = Lin::axis(gcd, atom);
        l.c0 = min;
        self.make(l)
    }

    /// Splits `l` into `(hi, lo)` with `l = w*hi + lo` and `0 <= lo < w` over
    /// the whole domain, if the terms allow it.
    pub fn divide(&mut self, l: LinId, w: i64) -> Option<(LinId, LinId)> {
        if w <= 0 {
            return None;
        }
        if w == 1 {
            let z = self.constant(0);
            return Some((l, z));
        }
        let x = self.get(l);
        let mut hi = Lin::constant(x.c0.div_euclid(w));
        let mut lo = Lin::constant(x.c0.rem_euclid(w));
        for &(c, a) in &x.terms {
            if c % w == 0 {
                hi.push(c / w, a);
            } else {
                lo.push(c, a);
            }
        }
        let (hi, lo) = (self.make(hi), self.make(lo));
        let r = self.range(lo);
        if r.0 >= 0 && r.1 < w {
            return Some((hi, lo));
        }
        // A carry: take whole multiples out of the low part if it stays in one.
        let k = r.0.div_euclid(w);
        if k == r.1.div_euclid(w) {
            return Some((self.shift(hi, k), self.shift(lo, -k * w)));
        }
        None
    }
}

/// Greatest common divisor of absolute values.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

/// A simultaneous replacement of atoms by forms.
#[derive(Clone, Debug, Default)]
pub struct Subst {
    map: SmallVec<[(Ax, LinId); 6]>,
}

impl Subst {
    /// An empty replacement.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `a := l`. Identities are left out.
    pub fn set(&mut self, a: Ax, l: LinId) {
        if l != Lins::plain(a) {
            self.map.push((a, l));
        }
    }

    /// The replacement of `a`.
    pub fn get(&self, a: Ax) -> Option<LinId> {
        self.map.iter().find(|m| m.0 == a).map(|m| m.1)
    }

    /// True if nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_tables_become_linear_forms() {
        let mut l = Lins::default();
        let (a, b) = (l.local(2), l.local(4));
        let tab: Vec<i64> = (0..8).map(|k| 3 + 16 * (k / 4) + 4 * (k % 4)).collect();
        let x = l.from_table(&[a, b], &[2, 4], &tab);
        let mut want = Lin::constant(3);
        want.push(16, a);
        want.push(4, b);
        assert_eq!(x, l.make(want));
        // A rotation is a table atom; both spellings share it.
        let rot: Vec<i64> = (0..4).map(|k| (k + 1) % 4 * 4).collect();
        let y = l.from_table(&[b], &[4], &rot);
        let z = l.tabulate(&[Lins::plain(b)], |v| Some((v[0] + 1) % 4)).unwrap();
        let y4 = l.combine(&[(4, z)]).unwrap();
        assert_eq!(y, y4);
        // Substituting a constant evaluates it.
        let mut s = Subst::new();
        let three = l.constant(3);
        s.set(b, three);
        let v = l.substitute(y, &s).unwrap();
        assert_eq!(l.as_constant(v), Some(0));
    }

    #[test]
    fn divide_respects_carries() {
        let mut l = Lins::default();
        let (a, b) = (l.local(3), l.local(4));
        let mut x = Lin::constant(8);
        x.push(4, a);
        x.push(1, b);
        let x = l.make(x);
        let (hi, lo) = l.divide(x, 4).unwrap();
        assert_eq!(lo, Lins::plain(b));
        assert_eq!(hi, l.shift(Lins::plain(a), 2));
        let y = l.shift(x, 1);
        assert!(l.divide(y, 4).is_none(), "b + 1 crosses a carry");
    }
}
