//! Reads at constants and within sub-ranges, pushed into the definitions.
//!
//! A class is defined over its whole domain; read at one index or in a part
//! of it, pieces are chosen, predicates decided and the rest is put into
//! normal form anew. Exact: each definition is opened and built again.
//! *Deep* rebuilds everything, and splits sums over an axis where a guard on
//! it holds for certain, fails for certain, or neither.

use crate::coef::Coef;
use crate::lin::{Ax, LinId, Lins, Subst, UNBOUNDED};
use crate::pieces::Run;
use crate::store::{Arg, ClassId, Op, Ref, Store, Val};
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

type Signature = SmallVec<[Narrow; 6]>;
/// A class narrowed, over one atom per axis (none where it is read at one
/// index).
type Narrowed = Option<(Val, SmallVec<[Option<Ax>; 6]>)>;

/// Work done so far, to be shared by calls on one store.
#[derive(Default)]
pub struct Special {
    memo: HashMap<(ClassId, Signature), Narrowed, FxBuildHasher>,
    depth: u32,
    deep: bool,
}

impl Special {
    /// Narrows everything below, also what is read all over.
    pub fn deep() -> Self {
        Special { deep: true, ..Special::default() }
    }
}

/// Most narrowed classes.
const MAX_NARROWED: usize = 20_000;
/// Deepest nesting of definitions.
const MAX_DEPTH: u32 = 400;
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
                    } else if n == UNBOUNDED || (lo >= 0 && hi < n) {
                        Narrow::From(lo, hi - lo + 1)
                    } else {
                        // A guarded read that may leave its array.
                        return Some(v);
                    }
                }
            });
        }
        if sig.iter().all(|s| *s == Narrow::All) && !sp.deep {
            return Some(v);
        }
        let key = (v.r.class, sig);
        if !sp.memo.contains_key(&key) {
            if sp.memo.len() > MAX_NARROWED || sp.depth > MAX_DEPTH {
                return None;
            }
            sp.depth += 1;
            let before = std::mem::replace(&mut self.split_guards, sp.deep);
            let made = self.narrowed(&v, &key.1, &sizes, sp);
            self.split_guards = before;
            sp.depth -= 1;
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
        let w = self.norm(read.clone());
        let w =
            if w.r.class == v.r.class { self.rebuilt(&w, sp)? } else { self.specialise(&w, sp)? };
        Some((w, atoms))
    }

    /// A node built again from its narrowed arguments.
    fn rebuilt(&mut self, v: &Val, sp: &mut Special) -> Option<Val> {
        let c = self.class(v.r.class);
        let (op, dt, nfree) = (c.op, v.dt, c.nfree as usize);
        let (own_sizes, lens) = (c.sizes[nfree..].to_vec(), c.bound.clone());
        let own: SmallVec<[(i64, LinId); 2]> =
            own_sizes.into_iter().zip(v.r.m[nfree..].iter().copied()).collect();
        let (args, bound) = self.open(&v.r)?;
        let mut done: SmallVec<[Arg; 4]> = SmallVec::new();
        for a in &args {
            let d = self.class(a.r.class).dt;
            let x = self.specialise(&Val { coef: Coef::ONE, r: a.r.clone(), dt: d }, sp)?;
            let k = self.coefs.pow(x.coef, a.pow)?;
            done.push(Arg { coef: self.coefs.mul(a.coef, k)?, pow: a.pow, r: x.r });
        }
        let vals: SmallVec<[Val; 4]> = done.iter().map(|a| self.val_of(a)).collect();
        let w = match op {
            Op::Add => self.add(dt, &vals)?,
            Op::Prod => self.product(dt, Coef::ONE, done)?,
            Op::Sum if !self.rules.reals && dt != crate::Dt::INT => {
                self.opaque_sum(dt, done, &bound)?
            }
            Op::Sum => self.sum_prod(dt, Coef::ONE, done, &bound)?,
            Op::Max => self.max(dt, &vals)?,
            Op::MaxR => self.max_over(dt, vals.first()?, &bound)?,
            Op::And => self.and(&vals),
            Op::AndR => self.and_over(vals.first()?, &bound)?,
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
            Op::Opq(f) => self.opaque(f, dt, &vals, &bound, &own),
            Op::Pcs => {
                let runs: SmallVec<[Run; 4]> = vals
                    .iter()
                    .enumerate()
                    .map(|(k, x)| Run { len: lens[k], val: x.clone(), axis: Some(bound[k]) })
                    .collect();
                self.pieces(dt, &runs, own.first()?.1)?
            }
            Op::One | Op::Iota | Op::Param(_) | Op::Const(_) | Op::Arr(_) => {
                return Some(v.clone());
            }
        };
        if v.coef == Coef::ONE { Some(w) } else { self.scale(&w, v.coef) }
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
        let (Some(a), Some(b)) = (self.specialise(&a, sp), self.specialise(&b, sp)) else {
            return false;
        };
        if a == b {
            return true;
        }
        for v in [&a, &b] {
            let c = self.class(v.r.class);
            if c.op != Op::Pcs {
                continue;
            }
            let (lens, at) = (c.bound.clone(), v.r.m[c.nfree as usize]);
            let Some(x) = Lins::as_plain(at) else { continue };
            if self.lins.size(x) != lens.iter().sum::<i64>() {
                continue;
            }
            let mut start = 0;
            return lens.iter().all(|&n| {
                let mut map = Subst::new();
                let l = if n == 1 {
                    self.lins.constant(start)
                } else {
                    let y = self.lins.local(n);
                    self.lins.shift(Lins::plain(y), start)
                };
                map.set(x, l);
                start += n;
                match (self.subst(&a, &map), self.subst(&b, &map)) {
                    (Some(a), Some(b)) => self.same_by_parts(&a, &b, sp, depth - 1),
                    _ => false,
                }
            });
        }
        false
    }
}
