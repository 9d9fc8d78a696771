//! Which values may be infinite although all inputs and all other constants
//! are finite: those that an infinite constant reaches, as the maximum over a
//! row that is masked out entirely. Laws that need a finite value ask here
//! before they assume it. For the exponential, constants that serve as minus
//! infinity (mask values) count as infinite too.

use crate::arith::{MASK_VALUE, NAN, NEG_INF};
use crate::coef::Coef;
use crate::lin::{Lins, Subst};
use crate::store::{Arg, ClassId, Dt, Op, Ref, Store, Val};
use smallvec::SmallVec;

/// Whether a constant may make a value infinite or NaN; the same where mask
/// values count as infinite.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nature {
    /// By an infinite constant.
    pub infinite: bool,
    /// By one of these or a mask value.
    pub masked: bool,
}

impl Nature {
    /// What holds of values of either nature.
    #[must_use]
    pub fn or(self, o: Nature) -> Nature {
        Nature { infinite: self.infinite || o.infinite, masked: self.masked || o.masked }
    }

    /// True if nothing is asked of this nature's values that the other's do
    /// not grant.
    pub fn within(self, o: Nature) -> bool {
        self.or(o) == o
    }
}

/// May be minus infinity, may be plus infinity. A NaN counts as both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Infinite {
    neg: bool,
    pos: bool,
}

impl Infinite {
    const BOTH: Infinite = Infinite { neg: true, pos: true };

    fn any(self) -> bool {
        self.neg || self.pos
    }

    fn or(self, o: Infinite) -> Infinite {
        Infinite { neg: self.neg || o.neg, pos: self.pos || o.pos }
    }
}

impl Store {
    /// True if the value may be plus infinity by way of an infinite constant,
    /// or with `masks` of a mask value.
    pub(crate) fn may_be_pos_inf(&mut self, v: &Val, masks: bool) -> bool {
        self.infinite(v.r.class, masks);
        self.times(v.coef, v.r.class, masks).pos
    }

    /// True if the value may be infinite or NaN by way of such a constant.
    pub(crate) fn may_be_infinite(&mut self, r: &Ref) -> bool {
        self.infinite(r.class, false).any()
    }

    /// What laws ask of a value before they assume it finite, as far as an
    /// input can stand for it; `None` if none can: constants, and what is of
    /// doubtful value.
    pub fn nature(&mut self, v: &Val) -> Option<Nature> {
        if v.coef == Coef::ZERO || self.class(v.r.class).op == Op::One || self.is_doubtful(&v.r) {
            return None;
        }
        let mut far = |masks| {
            self.infinite(v.r.class, masks);
            self.times(v.coef, v.r.class, masks).any()
        };
        Some(Nature { infinite: far(false), masked: far(true) })
    }

    /// Gives an input a nature; without, it counts as finite. To be called
    /// before the input is used.
    pub fn set_param_nature(&mut self, id: u32, n: Nature) {
        self.natures.insert(id, n);
    }

    /// Of a class, at any indices.
    fn infinite(&mut self, c: ClassId, masks: bool) -> Infinite {
        let mut work: SmallVec<[ClassId; 16]> = SmallVec::from_slice(&[c]);
        while let Some(&c) = work.last() {
            if self.infinite_cache.contains_key(&(c, masks)) {
                work.pop();
                continue;
            }
            let class = self.class(c);
            let next: SmallVec<[ClassId; 4]> = match (&class.forward, class.op) {
                (Some(f), _) => SmallVec::from_slice(&[f.class]),
                (None, Op::And | Op::AndR) => SmallVec::new(),
                _ => class.args.iter().map(|a| a.r.class).collect(),
            };
            let open: SmallVec<[ClassId; 4]> = next
                .into_iter()
                .filter(|n| !self.infinite_cache.contains_key(&(*n, masks)))
                .collect();
            if open.is_empty() {
                let i = self.infinite_of(c, masks);
                self.infinite_cache.insert((c, masks), i);
                work.pop();
            } else {
                work.extend(open);
            }
        }
        self.known_infinite(c, masks)
    }

    fn known_infinite(&self, c: ClassId, masks: bool) -> Infinite {
        self.infinite_cache.get(&(c, masks)).copied().unwrap_or(Infinite::BOTH)
    }

    /// Of `coef * c` for a class that is known.
    fn times(&self, coef: Coef, c: ClassId, masks: bool) -> Infinite {
        let class = self.class(c);
        if class.op == Op::One {
            let far = masks && class.dt != Dt::INT && class.dt != Dt::BOOL;
            let k = if far { self.coefs.to_f64(coef) } else { 0.0 };
            return Infinite { neg: k <= MASK_VALUE, pos: -k <= MASK_VALUE };
        }
        let i = self.known_infinite(c, masks);
        match self.coefs.sign(coef) {
            0 if i.any() => Infinite::BOTH,
            s if s < 0 => Infinite { neg: i.pos, pos: i.neg },
            _ => i,
        }
    }

    /// From its arguments, which are known.
    fn infinite_of(&mut self, c: ClassId, masks: bool) -> Infinite {
        let class = self.class(c);
        if let Some(f) = &class.forward {
            return self.known_infinite(f.class, masks);
        }
        let (op, args) = (class.op, class.args.clone());
        let each: SmallVec<[Infinite; 4]> =
            args.iter().map(|a| self.times(a.coef, a.r.class, masks)).collect();
        let all = each.iter().fold(Infinite::default(), |a, &b| a.or(b));
        let worst = if all.any() { Infinite::BOTH } else { all };
        match op {
            Op::Const(NEG_INF) => Infinite { neg: true, pos: false },
            Op::Const(NAN) => Infinite::BOTH,
            Op::Param(id) => {
                let n = self.natures.get(&id).copied().unwrap_or_default();
                let far = if masks { n.masked } else { n.infinite };
                if far { Infinite::BOTH } else { Infinite::default() }
            }
            Op::One | Op::Iota | Op::Const(_) | Op::Arr(_) | Op::And | Op::AndR => {
                Infinite::default()
            }
            Op::Max => Infinite { neg: each.iter().all(|i| i.neg) || all == Infinite::BOTH, ..all },
            Op::MaxR => {
                if all == (Infinite { neg: true, pos: false }) && self.never_all_neg(c, masks) {
                    return Infinite::default();
                }
                all
            }
            Op::Ew(s) if s == self.known.select => {
                each.iter().skip(1).fold(Infinite::default(), |a, &b| a.or(b))
            }
            Op::Ew(s) if s == self.known.exp => match all {
                Infinite::BOTH => all,
                _ => Infinite { neg: false, ..all },
            },
            Op::Add | Op::Pcs => all,
            Op::Prod | Op::Sum | Op::Ew(_) | Op::Opq(_) => worst,
        }
    }

    /// True if for all indices of the maximum `c` some element of its row is
    /// seen not to be minus infinity: the first, the last, or one of the
    /// diagonal.
    fn never_all_neg(&mut self, c: ClassId, masks: bool) -> bool {
        let sizes = self.class(c).sizes.clone();
        let m: SmallVec<[_; 4]> = sizes.iter().map(|&n| self.lins.local(n)).collect();
        let r = Ref { class: c, m: m.iter().map(|&a| Lins::plain(a)).collect() };
        let Some((args, bound)) = self.open(&r) else { return false };
        let Some(arg) = args.first() else { return false };
        let v = self.val_of(arg);
        let mut tries: SmallVec<[Subst; 4]> = SmallVec::new();
        for last in [false, true] {
            let mut map = Subst::new();
            for &b in &bound {
                let k = if last { self.lins.size(b) - 1 } else { 0 };
                let k = self.lins.constant(k);
                map.set(b, k);
            }
            tries.push(map);
        }
        if let [b] = bound[..] {
            for &a in &m {
                if self.lins.size(a) <= self.lins.size(b) {
                    let mut map = Subst::new();
                    map.set(b, Lins::plain(a));
                    tries.push(map);
                }
            }
        }
        tries
            .iter()
            .any(|map| self.subst(&v, map).is_some_and(|v| !self.may_be_neg_at(&v, masks, 8)))
    }

    /// As the class says, but with the truth of predicates at these indices.
    fn may_be_neg_at(&mut self, v: &Val, masks: bool, depth: u32) -> bool {
        self.infinite(v.r.class, masks);
        let i = self.times(v.coef, v.r.class, masks);
        if !i.neg {
            return i.pos;
        }
        if depth == 0 || self.coefs.sign(v.coef) <= 0 {
            return true;
        }
        let op = self.class(v.r.class).op;
        let Some((args, _)) = self.open(&v.r) else { return true };
        match op {
            Op::Ew(s) if s == self.known.select && args.len() == 3 => {
                let (x, y) = (self.val_of(&args[1]), self.val_of(&args[2]));
                match self.holds(&args[0], depth) {
                    Some(true) => self.may_be_neg_at(&x, masks, depth - 1),
                    Some(false) => self.may_be_neg_at(&y, masks, depth - 1),
                    None => {
                        self.may_be_neg_at(&x, masks, depth - 1)
                            || self.may_be_neg_at(&y, masks, depth - 1)
                    }
                }
            }
            Op::Max => args.iter().all(|a| {
                let x = self.val_of(a);
                self.may_be_neg_at(&x, masks, depth - 1)
            }),
            Op::Add => args.iter().any(|a| {
                let x = self.val_of(a);
                self.may_be_pos_inf(&x, masks) || self.may_be_neg_at(&x, masks, depth - 1)
            }),
            _ => true,
        }
    }

    /// The truth of a predicate, from the ranges of what it compares.
    fn holds(&mut self, p: &Arg, depth: u32) -> Option<bool> {
        let v = Val { coef: p.coef, r: p.r.clone(), dt: Dt::BOOL };
        if let Some(b) = self.as_bool(&v) {
            return Some(b);
        }
        if depth == 0 {
            return None;
        }
        let op = self.class(p.r.class).op;
        let (args, _) = self.open(&p.r)?;
        match op {
            Op::Ew(s) if s == self.known.not => Some(!self.holds(args.first()?, depth - 1)?),
            Op::Ew(s) if s == self.known.ge0 || s == self.known.eq0 => {
                let e = self.val_of(args.first()?);
                let (lo, hi) = self.int_range(&e)?;
                if s == self.known.ge0 {
                    if lo >= 0 { Some(true) } else { (hi < 0).then_some(false) }
                } else if (lo, hi) == (0, 0) {
                    Some(true)
                } else {
                    (lo > 0 || hi < 0).then_some(false)
                }
            }
            Op::And => {
                let mut all = Some(true);
                for a in &args {
                    match self.holds(a, depth - 1) {
                        Some(true) => {}
                        Some(false) => return Some(false),
                        None => all = None,
                    }
                }
                all
            }
            _ => None,
        }
    }
}
