//! Reads at constants and within sub-ranges, pushed into the definitions.
//!
//! A class is defined over its whole domain; read at one index or in a part
//! of it, pieces are chosen, predicates decided and the rest is put into
//! normal form anew. Exact: each definition is opened and built again.
//! *Deep* rebuilds everything, and splits sums over an axis where a guard on
//! it holds for certain, fails for certain, or neither, and where pieces begin.

use crate::arith::MASK;
use crate::coef::Coef;
use crate::lin::{Ax, LinId, Lins, Subst, UNBOUNDED};
use crate::pieces::Run;
use crate::store::{Arg, ClassId, Op, Ref, Store, Val};
use crate::variants::VariantLimits;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

/// How one axis is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Narrow {
    /// All over.
    All,
    /// At one index.
    At(i64),
    /// From an index on, so many.
    From(i64, i64),
}

/// What is looked for in a definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Seek {
    /// An exponential that depends on such a maximum.
    Exponential,
    /// A maximum that a mask value may reach.
    Maximum,
    /// What may be a mask value, also scaled.
    Mask,
}

/// Indices of an axis.
type Breaks = SmallVec<[i64; 4]>;
type Signature = SmallVec<[Narrow; 6]>;
/// A class narrowed, over one atom per axis (none where it is read at one
/// index).
type Narrowed = Option<(Val, SmallVec<[Option<Ax>; 6]>)>;

/// Work done so far, to be shared by calls on one store.
#[derive(Default)]
pub struct Special {
    memo: HashMap<(ClassId, Signature), Narrowed, FxBuildHasher>,
    breaks: HashMap<(ClassId, u32), Breaks, FxBuildHasher>,
    depth: u32,
    /// Count of nodes at which the work ends; 0: not begun.
    until: u64,
    /// Entries of `memo` when it began.
    known: usize,
    deep: bool,
    /// Mask values are minus infinity.
    masks: bool,
    /// For what is compared without masks.
    unmasked: Option<Box<Special>>,
    seen: HashMap<(ClassId, Seek), bool, FxBuildHasher>,
}

impl Special {
    /// Narrows everything below, also what is read all over.
    pub fn deep() -> Self {
        let unmasked = Special { deep: true, masks: true, ..Special::default() };
        Special { deep: true, unmasked: Some(Box::new(unmasked)), ..Special::default() }
    }

    /// True if the work ended before a comparison was decided.
    pub fn is_spent(&self, st: &Store) -> bool {
        self.until != 0 && st.nodes_tried > self.until
    }

    /// Allows as much work again as at first, with what is known kept: for
    /// the next of several comparisons.
    pub fn renew(&mut self) {
        self.until = 0;
        self.known = self.memo.len();
        if let Some(u) = &mut self.unmasked {
            u.renew();
        }
    }
}

/// Most narrowed classes.
const MAX_NARROWED: usize = 20_000;
/// Deepest nesting of definitions.
const MAX_DEPTH: u32 = 400;
/// Forms of a sum that are tried.
const FEW: VariantLimits = VariantLimits { depth: 2, count: 12 };
/// Most nodes that are made or looked up for one comparison of programs, at
/// least, and for each class of the store: where a big program differs early,
/// all that follows would be narrowed in vain.
const WORK: u64 = 50_000;
const WORK_PER_CLASS: u64 = 4;
/// Most places where an axis is split.
const MAX_BREAKS: usize = 8;
/// Most points at which two values are compared.
const MAX_POINTS: i64 = 1024;
/// Constants of at least this magnitude may be part of a mask value.
const LARGE: f64 = 1e5;
/// Largest index that is reasoned about.
const FAR: i64 = 1 << 40;

impl Store {
    /// The value with reads of strict parts of an axis pushed into the
    /// definitions. `None` if that is too much work or a number overflows.
    pub fn specialise(&mut self, v: &Val, sp: &mut Special) -> Option<Val> {
        let v = self.norm(v.clone());
        let c = self.class(v.r.class);
        if matches!(c.op, Op::One | Op::Iota | Op::Param(_) | Op::Const(_) | Op::Arr(_))
            || v.coef == Coef::ZERO
        {
            return Some(v);
        }
        let sizes = c.sizes.clone();
        let mut sig = Signature::new();
        for (&l, &n) in v.r.m.iter().zip(&sizes) {
            sig.push(match self.lins.as_constant(l) {
                Some(c) => Narrow::At(c),
                None => {
                    let (lo, hi) = self.lins.range(l);
                    if lo == 0 && hi == n - 1 {
                        Narrow::All
                    } else if lo.abs() >= FAR || hi.abs() >= FAR {
                        if n != UNBOUNDED {
                            return Some(v);
                        }
                        Narrow::All
                    } else {
                        Narrow::From(lo, hi - lo + 1)
                    }
                }
            });
        }
        if sig.iter().all(|s| *s == Narrow::All) && !sp.deep {
            return Some(v);
        }
        let key = (v.r.class, sig);
        if !sp.memo.contains_key(&key) {
            if sp.until == 0 {
                sp.until = self.nodes_tried + WORK.max(WORK_PER_CLASS * self.len() as u64);
            }
            let spent = self.nodes_tried > sp.until;
            if spent || sp.memo.len() - sp.known > MAX_NARROWED || sp.depth > MAX_DEPTH {
                return None;
            }
            sp.depth += 1;
            let before = (self.split_guards, self.drop_masks);
            (self.split_guards, self.drop_masks) = (sp.deep, sp.masks);
            let made = self.narrowed(&v, &key.1, &sizes, sp);
            (self.split_guards, self.drop_masks) = before;
            sp.depth -= 1;
            if made.is_none() && self.nodes_tried > sp.until {
                // Too much work for now: it may be enough another time.
                return None;
            }
            sp.memo.insert(key.clone(), made);
        }
        let (w, atoms) = sp.memo.get(&key)?.clone()?;
        let mut map = Subst::new();
        for ((a, s), &l) in atoms.iter().zip(&key.1).zip(&v.r.m) {
            if let Some(a) = a {
                let lo = if let Narrow::From(lo, _) = s { *lo } else { 0 };
                let l = self.lins.shift(l, -lo);
                map.set(*a, l);
            }
        }
        let w = self.subst(&w, &map)?;
        if v.coef == Coef::ONE { Some(w) } else { self.scale(&w, v.coef) }
    }

    fn narrowed(&mut self, v: &Val, sig: &Signature, sizes: &[i64], sp: &mut Special) -> Narrowed {
        let mut atoms: SmallVec<[Option<Ax>; 6]> = SmallVec::new();
        let mut m: SmallVec<[LinId; 4]> = SmallVec::new();
        for (s, &n) in sig.iter().zip(sizes) {
            let (atom, l) = match *s {
                Narrow::At(c) | Narrow::From(c, 1) => (None, self.lins.constant(c)),
                Narrow::From(lo, len) => {
                    let a = self.lins.local(len);
                    (Some(a), self.lins.shift(Lins::plain(a), lo))
                }
                Narrow::All => {
                    let a = self.lins.local(n);
                    (Some(a), Lins::plain(a))
                }
            };
            atoms.push(atom);
            m.push(l);
        }
        let read = Val { coef: Coef::ONE, r: Ref { class: v.r.class, m }, dt: v.dt };
        // Predicates and integers stay: they are decided where they are used.
        let number = v.dt != crate::Dt::BOOL && v.dt != crate::Dt::INT && !self.is_indicator(&v.r);
        if sp.deep && number {
            if let Some(w) = self.hoisted(&read, sig, &atoms, sp)? {
                return Some((w, atoms));
            }
        }
        let w = self.norm(read.clone());
        let w =
            if w.r.class == v.r.class { self.rebuilt(&w, sp)? } else { self.specialise(&w, sp)? };
        Some((w, atoms))
    }

    /// Pieces in place of a value whose definition changes along an axis, by
    /// pieces or predicates inside.
    fn hoisted(
        &mut self,
        read: &Val,
        sig: &Signature,
        atoms: &[Option<Ax>],
        sp: &mut Special,
    ) -> Option<Option<Val>> {
        let mut best: Option<(Breaks, Ax)> = None;
        for (k, a) in atoms.iter().enumerate() {
            let Some(a) = *a else { continue };
            let lo = if let Narrow::From(lo, _) = sig[k] { lo } else { 0 };
            let b = self.breaks_at(read.r.class, k, (1, lo), self.lins.size(a), sp, 0);
            if !b.is_empty() && best.as_ref().is_none_or(|x| b < x.0) {
                best = Some((b, a));
            }
        }
        let Some((breaks, a)) = best else { return Some(None) };
        let mut runs: SmallVec<[Run; 4]> = SmallVec::new();
        let mut start = 0;
        for end in breaks.iter().copied().chain([self.lins.size(a)]) {
            let (y, l) = self.part(start, end);
            let mut map = Subst::new();
            map.set(a, l);
            let w = self.subst(read, &map)?;
            let val = self.specialise(&w, sp)?;
            runs.push(Run { len: end - start, val, axis: y });
            start = end;
        }
        Some(Some(self.pieces(read.dt, &runs, Lins::plain(a))?))
    }

    /// A node built again from its narrowed arguments.
    fn rebuilt(&mut self, v: &Val, sp: &mut Special) -> Option<Val> {
        let c = self.class(v.r.class);
        let (op, dt, nfree) = (c.op, v.dt, c.nfree as usize);
        let (own_sizes, lens) = (c.sizes[nfree..].to_vec(), c.bound.clone());
        let own: SmallVec<[(i64, LinId); 2]> =
            own_sizes.into_iter().zip(v.r.m[nfree..].iter().copied()).collect();
        let (args, bound) = self.open(&v.r)?;
        let reduces = op == Op::MaxR || (op == Op::Sum && self.rules.reals && dt != crate::Dt::INT);
        if sp.deep && reduces {
            let parts = self.by_breaks(&args, &bound, sp)?;
            if parts.len() > 1 {
                let mut vals: SmallVec<[Val; 4]> = SmallVec::new();
                for (f, b) in parts {
                    let w = if op == Op::MaxR {
                        let x = self.val_of(f.first()?);
                        self.max_over(dt, &x, &b)?
                    } else {
                        self.sum_prod(dt, Coef::ONE, f, &b)?
                    };
                    vals.push(self.specialise(&w, sp)?);
                }
                let w = if op == Op::MaxR { self.max(dt, &vals)? } else { self.add(dt, &vals)? };
                return if v.coef == Coef::ONE { Some(w) } else { self.scale(&w, v.coef) };
            }
        }
        let mut done: SmallVec<[Arg; 4]> = SmallVec::new();
        for a in &args {
            let d = self.class(a.r.class).dt;
            let x = self.specialise(&Val { coef: Coef::ONE, r: a.r.clone(), dt: d }, sp)?;
            let k = self.coefs.pow(x.coef, a.pow)?;
            done.push(Arg { coef: self.coefs.mul(a.coef, k)?, pow: a.pow, r: x.r });
        }
        if matches!(op, Op::One | Op::Iota | Op::Param(_) | Op::Const(_) | Op::Arr(_)) {
            return Some(v.clone());
        }
        let w = self.built(op, dt, done, &bound, &own, &lens)?;
        if v.coef == Coef::ONE { Some(w) } else { self.scale(&w, v.coef) }
    }

    /// A node from arguments over atoms, by the laws of its operator; `None`
    /// of operators without arguments. `own`: of an opaque function and of
    /// pieces, whose lengths are `lens`.
    pub(crate) fn built(
        &mut self,
        op: Op,
        dt: crate::Dt,
        done: SmallVec<[Arg; 4]>,
        bound: &[Ax],
        own: &[(i64, LinId)],
        lens: &[i64],
    ) -> Option<Val> {
        let vals: SmallVec<[Val; 4]> = done.iter().map(|a| self.val_of(a)).collect();
        let w = match op {
            Op::Add => self.add(dt, &vals)?,
            Op::Prod => self.product(dt, Coef::ONE, done)?,
            Op::Sum if !self.rules.reals && dt != crate::Dt::INT => {
                self.opaque_sum(dt, done, bound)?
            }
            Op::Sum => self.sum_prod(dt, Coef::ONE, done, bound)?,
            Op::Max => self.max(dt, &vals)?,
            Op::MaxR => self.max_over(dt, vals.first()?, bound)?,
            Op::And => self.and(&vals),
            Op::AndR => self.and_over(vals.first()?, bound)?,
            Op::Ew(s) => {
                let k = self.known;
                let x = vals.first()?;
                match vals.len() {
                    1 if s == k.exp => self.exp(dt, x)?,
                    1 if s == k.log => self.log(dt, x)?,
                    1 if s == k.sqrt => self.sqrt(dt, x)?,
                    1 if s == k.ind => self.indicator(dt, x),
                    1 if s == k.b2f => self.convert_pred(dt, x),
                    1 if s == k.not => self.not(x),
                    1 if s == k.ge0 => self.ge0(x)?,
                    1 if s == k.eq0 => self.eq0(x)?,
                    3 if s == k.select => self.select(dt, x, &vals[1], &vals[2])?,
                    _ => {
                        let commutative = self.commutative.contains(&s);
                        self.ew(s, dt, commutative, &vals)
                    }
                }
            }
            Op::Opq(f) => self.opaque(f, dt, &vals, bound, own),
            Op::Pcs => {
                let runs: SmallVec<[Run; 4]> = vals
                    .iter()
                    .enumerate()
                    .map(|(k, x)| Run { len: lens[k], val: x.clone(), axis: Some(bound[k]) })
                    .collect();
                self.pieces(dt, &runs, own.first()?.1)?
            }
            Op::One | Op::Iota | Op::Param(_) | Op::Const(_) | Op::Arr(_) => return None,
        };
        Some(w)
    }

    /// True if the values are equal when narrowed, after splitting the axes
    /// along which one of them is pieces. Both are over the same atoms.
    pub fn same_by_parts(&mut self, a: &Val, b: &Val, sp: &mut Special, depth: u32) -> bool {
        let (a, b) = (self.norm(a.clone()), self.norm(b.clone()));
        if a == b {
            return true;
        }
        if a.dt != b.dt || depth == 0 {
            return false;
        }
        let (whole_a, whole_b) = (a, b);
        let (Some(a), Some(b)) = (self.specialise(&whole_a, sp), self.specialise(&whole_b, sp))
        else {
            return false;
        };
        if a == b || self.same_unmasked(&a, &b, sp) {
            return true;
        }
        let Some((x, breaks)) = self.break_in(&a, sp).or_else(|| self.break_in(&b, sp)) else {
            return false;
        };
        let mut start = 0;
        let ends: Vec<i64> = breaks.iter().copied().chain([self.lins.size(x)]).collect();
        ends.into_iter().all(|end| {
            let mut map = Subst::new();
            let l = self.part(start, end).1;
            map.set(x, l);
            start = end;
            match (self.subst(&whole_a, &map), self.subst(&whole_b, &map)) {
                // Parts are taken of the whole: what is split once is split best.
                (Some(a), Some(b)) => self.same_by_parts(&a, &b, sp, depth - 1),
                _ => false,
            }
        })
    }

    /// True if the values are equal when narrowed at every point of the local
    /// and device atoms that they read: of all, or of the smallest ones where
    /// there are many points. `sp` is deep.
    pub fn same_at_points(&mut self, a: &Val, b: &Val, sp: &mut Special) -> bool {
        if a.dt != b.dt || !sp.deep {
            return false;
        }
        let mut axes: SmallVec<[Ax; 3]> = SmallVec::new();
        for v in [a, b] {
            for &l in &v.r.m {
                self.lins.base_axes(l, &mut axes);
            }
        }
        axes.sort_by_key(|&x| (self.lins.size(x), x));
        let mut points = 1i64;
        axes.retain(|x| {
            let n = points.saturating_mul(self.lins.size(*x));
            let few = n <= MAX_POINTS;
            if few {
                points = n;
            }
            few
        });
        if axes.is_empty() {
            return false;
        }
        (0..points).all(|p| {
            let mut rest = p;
            let mut map = Subst::new();
            for &x in &axes {
                let n = self.lins.size(x);
                let at = self.lins.constant(rest % n);
                map.set(x, at);
                rest /= n;
            }
            let mut at = |v: &Val| {
                let v = self.subst(v, &map)?;
                self.specialise(&v, sp)
            };
            match (at(a), at(b)) {
                (Some(x), Some(y)) => self.norm(x) == self.norm(y),
                _ => false,
            }
        })
    }

    /// Equality where the exponentials of mask values are 0.
    ///
    /// A mask value is so far below all scores that its exponential vanishes
    /// beside theirs. That holds for what is left once running maxima have
    /// cancelled: a maximum over masked scores alone is a mask value itself,
    /// so no exponential may depend on a maximum that a mask value reaches.
    fn same_unmasked(&mut self, a: &Val, b: &Val, sp: &mut Special) -> bool {
        if !self.rules.finite || self.tainted(a.r.class, sp) || self.tainted(b.r.class, sp) {
            return false;
        }
        let Some(inner) = sp.unmasked.as_deref_mut() else { return false };
        let logged = self.log.len();
        let same = match (self.specialise(a, inner), self.specialise(b, inner)) {
            (Some(x), Some(y)) => {
                // Sums in another order of summation.
                let sums = [&x, &y].iter().all(|v| self.class(v.r.class).op == Op::Sum);
                x == y
                    || (sums
                        && (self.search_variants(&x, FEW, |_, w| *w == y).is_some()
                            || self.search_variants(&y, FEW, |_, w| *w == x).is_some()))
            }
            _ => false,
        };
        // What was narrowed before is not logged again.
        let new: Vec<_> = self.log.drain(logged..).filter(|u| u.law != MASK).collect();
        self.log.extend(new);
        if same {
            self.assume(MASK);
        }
        same
    }

    /// True if an exponential below depends on a maximum that a mask value
    /// may reach.
    fn tainted(&self, c: ClassId, sp: &mut Special) -> bool {
        self.seek(c, Seek::Exponential, sp)
    }

    fn seek(&self, c: ClassId, what: Seek, sp: &mut Special) -> bool {
        if let Some(&t) = sp.seen.get(&(c, what)) {
            return t;
        }
        let class = self.class(c);
        let max = matches!(class.op, Op::Max | Op::MaxR) && class.dt != crate::Dt::INT;
        let exp = class.op == Op::Ew(self.known.exp);
        let large = |a: &Arg| {
            self.coefs.to_f64(a.coef).abs() >= LARGE
                || matches!(self.class(a.r.class).op, Op::Const(_))
        };
        let t = class.forward.is_some()
            || class.args.iter().any(|a| {
                let x = a.r.class;
                match what {
                    Seek::Exponential => exp && self.seek(x, Seek::Maximum, sp),
                    Seek::Maximum => max && (large(a) || self.seek(x, Seek::Mask, sp)),
                    Seek::Mask => large(a),
                }
            })
            || class.args.iter().any(|a| self.seek(a.r.class, what, sp));
        sp.seen.insert((c, what), t);
        t
    }

    /// Indices `[from, to)` of an axis: the new atom, if more than one, and
    /// the form.
    fn part(&mut self, from: i64, to: i64) -> (Option<Ax>, LinId) {
        if to - from == 1 {
            return (None, self.lins.constant(from));
        }
        let y = self.lins.local(to - from);
        (Some(y), self.lins.shift(Lins::plain(y), from))
    }

    /// A local atom that one axis is read at (up to an offset), and where the
    /// definition changes along it.
    fn break_in(&mut self, v: &Val, sp: &mut Special) -> Option<(Ax, Breaks)> {
        for (k, &l) in v.r.m.clone().iter().enumerate() {
            let f = self.lins.get(l);
            let [(c @ (1 | -1), x)] = f.terms[..] else { continue };
            if self.lins.atom(x).kind != crate::AtomKind::Local {
                continue;
            }
            let b = self.breaks_at(v.r.class, k, (c, f.c0), self.lins.size(x), sp, 0);
            if !b.is_empty() {
                return Some((x, b));
            }
        }
        None
    }

    /// Breaks of an axis of a class as seen by an atom of the size that reads
    /// it at `slope * atom + offset`, slope 1 or -1.
    fn breaks_at(
        &mut self,
        c: ClassId,
        axis: usize,
        (slope, offset): (i64, i64),
        size: i64,
        sp: &mut Special,
        depth: u32,
    ) -> Breaks {
        let mut b: Breaks = self
            .breaks(c, axis, sp, depth)
            .into_iter()
            .map(|p| if slope > 0 { p - offset } else { offset - p + 1 })
            .filter(|&p| p > 0 && p < size)
            .collect();
        b.sort_unstable();
        b
    }

    /// Indices of an axis at which pieces in the definition begin or a
    /// predicate of the index changes; none if there are many.
    fn breaks(&mut self, c: ClassId, axis: usize, sp: &mut Special, depth: u32) -> Breaks {
        let key = (c, axis as u32);
        if let Some(b) = sp.breaks.get(&key) {
            return b.clone();
        }
        let mut out = Breaks::new();
        let class = self.class(c);
        let (op, nfree) = (class.op, class.nfree as usize);
        let (args, lens) = (class.args.clone(), class.bound.clone());
        let size = class.sizes[axis];
        let slot =
            if axis < nfree { axis as Ax } else { crate::lin::OWN_SLOT + (axis - nfree) as Ax };
        // `x >= 0` and `x == 0` of an index.
        let of_index = args.len() == 1
            && self.class(args[0].r.class).op == Op::Iota
            && args[0].coef == Coef::ONE
            && axis == 0
            && self.lins.get(args[0].r.m[0]).terms[..] == [(1, 0)];
        if of_index && (op == Op::Ew(self.known.ge0) || op == Op::Ew(self.known.eq0)) {
            let at = -self.lins.c0(args[0].r.m[0]);
            out.push(at);
            if op == Op::Ew(self.known.eq0) {
                out.push(at + 1);
            }
        } else if depth < MAX_DEPTH && sp.breaks.len() < MAX_NARROWED {
            let mut start = 0;
            for (k, a) in args.iter().enumerate() {
                let run = op == Op::Pcs && axis == nfree;
                let (slot, at, n) = if run {
                    (crate::lin::BOUND_SLOT + k as Ax, start, lens[k])
                } else {
                    (slot, 0, size)
                };
                if run {
                    if start > 0 {
                        out.push(start);
                    }
                    start += lens[k];
                }
                for (i, &l) in a.r.m.iter().enumerate() {
                    let f = self.lins.get(l);
                    if let [(c @ (1 | -1), x)] = f.terms[..] {
                        if x != slot {
                            continue;
                        }
                        let b = self.breaks_at(a.r.class, i, (c, f.c0), n, sp, depth + 1);
                        out.extend(b.into_iter().map(|p| p + at));
                    }
                }
            }
            out.sort_unstable();
            out.dedup();
            if out.len() > MAX_BREAKS {
                out.clear();
            }
        }
        sp.breaks.insert(key, out.clone());
        out
    }

    /// A reduction over bound atoms split where pieces begin along them.
    fn by_breaks(
        &mut self,
        args: &[Arg],
        bound: &[Ax],
        sp: &mut Special,
    ) -> Option<Vec<(SmallVec<[Arg; 4]>, SmallVec<[Ax; 4]>)>> {
        let mut done = vec![(args.iter().cloned().collect(), SmallVec::from_slice(bound))];
        for &b in bound {
            let mut breaks = Breaks::new();
            for a in args {
                for (k, &l) in a.r.m.iter().enumerate() {
                    let f = self.lins.get(l);
                    if let [(c @ (1 | -1), x)] = f.terms[..] {
                        if x == b {
                            let n = self.lins.size(b);
                            breaks.extend(self.breaks_at(a.r.class, k, (c, f.c0), n, sp, 0));
                        }
                    }
                }
            }
            breaks.sort_unstable();
            breaks.dedup();
            if breaks.is_empty() || breaks.len() * done.len() > MAX_BREAKS * 2 {
                continue;
            }
            let ends: Vec<i64> = breaks.iter().copied().chain([self.lins.size(b)]).collect();
            let mut next = Vec::new();
            for (f, bs) in &done {
                let (f, bs): (&SmallVec<[Arg; 4]>, &SmallVec<[Ax; 4]>) = (f, bs);
                let mut start = 0;
                for &end in &ends {
                    let mut map = Subst::new();
                    let rest: SmallVec<[Ax; 4]> = bs.iter().copied().filter(|&x| x != b).collect();
                    let mut fresh = self.fresh_like(&rest, &mut map);
                    let (y, l) = self.part(start, end);
                    map.set(b, l);
                    fresh.extend(y);
                    start = end;
                    let mut g = f.clone();
                    for a in g.iter_mut() {
                        let d = self.class(a.r.class).dt;
                        let x = Val { coef: Coef::ONE, r: a.r.clone(), dt: d };
                        let x = self.subst(&x, &map)?;
                        let k = self.coefs.pow(x.coef, a.pow)?;
                        *a = Arg { coef: self.coefs.mul(a.coef, k)?, pow: a.pow, r: x.r };
                    }
                    next.push((g, fresh));
                }
            }
            // The other bound atoms were renamed: one axis per reduction.
            return Some(next);
        }
        done.truncate(1);
        Some(done)
    }
}
