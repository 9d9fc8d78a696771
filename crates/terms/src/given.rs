//! Values where a predicate is known: selections by it take their branch.
//!
//! `select(p, f(select(p, x, z)), y) = select(p, f(x), y)`, bit by bit: where
//! `p` holds the inner selection is `x`, elsewhere the outer one does not read
//! it. Through what is computed element by element, and through sums over
//! axes that `p` does not have: `p` is read where the outer selection reads it.

use crate::coef::Coef;
use crate::store::{Arg, ClassId, Dt, Op, Ref, Store, Val};
use smallvec::SmallVec;

/// Operations looked through.
const DEPTH: u32 = 6;
/// Classes looked at for a selection.
const LOOK: u32 = 96;

impl Store {
    /// A value that equals `v` wherever `p` is `holds`.
    pub(crate) fn given(&mut self, v: &Val, p: &Val, holds: bool) -> Val {
        let (yes, no) = if holds { (p.clone(), self.not(p)) } else { (self.not(p), p.clone()) };
        let mut left = LOOK;
        if !self.may_select(v.r.class, (yes.r.class, no.r.class), DEPTH, &mut left) {
            return v.clone();
        }
        self.take(v, (&yes, &no), DEPTH).unwrap_or_else(|| v.clone())
    }

    /// True if a selection by one of two predicates is near.
    fn may_select(&self, c: ClassId, p: (ClassId, ClassId), depth: u32, left: &mut u32) -> bool {
        if depth == 0 || *left == 0 {
            return false;
        }
        *left -= 1;
        let c = self.class(c);
        match c.op {
            Op::Ew(s) if s == self.known.select || s == self.known.ind => {
                let q = c.args[0].r.class;
                if q == p.0 || q == p.1 {
                    return true;
                }
            }
            Op::Ew(_) | Op::Add | Op::Prod | Op::Sum | Op::Max => {}
            _ => return false,
        }
        c.args.iter().any(|a| self.may_select(a.r.class, p, depth - 1, left))
    }

    /// True or false if the predicate is one of the two.
    fn decided(&mut self, r: &Ref, (yes, no): (&Val, &Val)) -> Option<bool> {
        let v = self.norm(Val { coef: Coef::ONE, r: r.clone(), dt: Dt::BOOL });
        match v {
            v if v == *yes => Some(true),
            v if v == *no => Some(false),
            _ => None,
        }
    }

    /// `None` if nothing changes.
    fn take(&mut self, v: &Val, p: (&Val, &Val), depth: u32) -> Option<Val> {
        let depth = depth.checked_sub(1)?;
        let op = self.class(v.r.class).op;
        if !matches!(op, Op::Ew(_) | Op::Add | Op::Prod | Op::Sum | Op::Max) {
            return None;
        }
        let (args, bound) = self.open(&v.r)?;
        if op == Op::Ew(self.known.select) {
            if let Some(t) = self.decided(&args[0].r, p) {
                let x = self.val_of(&args[if t { 1 } else { 2 }]);
                let x = self.take(&x, p, depth).unwrap_or(x);
                return self.scale(&x, v.coef);
            }
        }
        if op == Op::Ew(self.known.ind) {
            let x = match self.decided(&args[0].r, p)? {
                true => self.one(v.dt),
                false => self.zero(v.dt),
            };
            return self.scale(&x, v.coef);
        }
        let mut changed = false;
        let mut done: SmallVec<[Arg; 4]> = SmallVec::new();
        for a in &args {
            let dt = self.class(a.r.class).dt;
            let x = Val { coef: Coef::ONE, r: a.r.clone(), dt };
            // A factor that selects 0 does so whatever the others are.
            let guard = matches!(op, Op::Prod | Op::Sum)
                && self.class(a.r.class).op == Op::Ew(self.known.ind);
            if guard && a.pow > 0 {
                let (q, _) = self.open(&a.r)?;
                if self.decided(&q[0].r, p) == Some(false) {
                    return Some(self.zero(v.dt));
                }
            }
            match self.take(&x, p, depth) {
                None => done.push(a.clone()),
                Some(x) => {
                    changed = true;
                    let k = self.coefs.pow(x.coef, a.pow)?;
                    done.push(Arg { coef: self.coefs.mul(a.coef, k)?, pow: a.pow, r: x.r });
                }
            }
        }
        if !changed {
            return None;
        }
        let w = self.built(op, v.dt, done, &bound, &[], &[])?;
        self.scale(&w, v.coef)
    }
}
