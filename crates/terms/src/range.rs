//! Intervals of integer values.

use crate::lin::UNBOUNDED;
use crate::store::{Dt, Op, Store, Val};

const DEPTH: u32 = 12;

impl Store {
    /// Smallest and largest value of an integer over the whole domain of its
    /// atoms; `None` if nothing is known.
    pub fn int_range(&mut self, v: &Val) -> Option<(i64, i64)> {
        self.range_at(v, DEPTH)
    }

    fn range_at(&mut self, v: &Val, depth: u32) -> Option<(i64, i64)> {
        if v.dt != Dt::INT {
            return None;
        }
        let k = self.coefs.to_int(v.coef)?;
        if k == 0 {
            return Some((0, 0));
        }
        let (lo, hi) = self.class_range(v, depth)?;
        let (a, b) = (lo.checked_mul(k)?, hi.checked_mul(k)?);
        let r = (a.min(b), a.max(b));
        (r.0 > -UNBOUNDED && r.1 < UNBOUNDED).then_some(r)
    }

    fn class_range(&mut self, v: &Val, depth: u32) -> Option<(i64, i64)> {
        if depth == 0 {
            return None;
        }
        let op = self.class(v.r.class).op;
        match op {
            Op::Iota => Some(self.lins.range(v.r.m[0])),
            Op::Param(id) => self.param_range.get(&id).copied(),
            Op::Arr(id) => {
                let a = self.arrays[id as usize].clone();
                let mut r: Option<(i64, i64)> = None;
                for &c in a.iter() {
                    let x = self.coefs.to_int(c)?;
                    r = Some(r.map_or((x, x), |(lo, hi)| (lo.min(x), hi.max(x))));
                }
                r
            }
            Op::Ew(s) if s == self.known.b2f || s == self.known.ind => Some((0, 1)),
            Op::Ew(s) if s == self.known.select => {
                let (a, _) = self.open(&v.r)?;
                let (x, y) = (self.val_of(&a[1]), self.val_of(&a[2]));
                let (x, y) = (self.range_at(&x, depth - 1)?, self.range_at(&y, depth - 1)?);
                Some((x.0.min(y.0), x.1.max(y.1)))
            }
            Op::Ew(s) | Op::Opq(s) => self.sym_range.get(&s).copied(),
            Op::Add => {
                let (a, _) = self.open(&v.r)?;
                let mut sum = (0i64, 0i64);
                for t in &a {
                    let t = self.val_of(t);
                    let r = self.range_at(&t, depth - 1)?;
                    sum = (sum.0.checked_add(r.0)?, sum.1.checked_add(r.1)?);
                }
                Some(sum)
            }
            Op::Max => {
                let (a, _) = self.open(&v.r)?;
                let mut out: Option<(i64, i64)> = None;
                let mut bounded = true;
                let mut floor = i64::MIN;
                for t in &a {
                    let t = self.val_of(t);
                    match self.range_at(&t, depth - 1) {
                        Some(r) => {
                            floor = floor.max(r.0);
                            out = Some(out.map_or(r, |o| (o.0.max(r.0), o.1.max(r.1))));
                        }
                        None => bounded = false,
                    }
                }
                if bounded { out } else { None }
            }
            Op::MaxR => {
                let (a, _) = self.open(&v.r)?;
                let t = self.val_of(&a[0]);
                self.range_at(&t, depth - 1)
            }
            Op::Prod => {
                let (a, _) = self.open(&v.r)?;
                let mut out = (1i64, 1i64);
                for t in &a {
                    if t.pow != 1 {
                        return None;
                    }
                    let x = self.val_of(t);
                    let r = self.range_at(&x, depth - 1)?;
                    let c = [
                        out.0.checked_mul(r.0)?,
                        out.0.checked_mul(r.1)?,
                        out.1.checked_mul(r.0)?,
                        out.1.checked_mul(r.1)?,
                    ];
                    out = (*c.iter().min()?, *c.iter().max()?);
                }
                Some(out)
            }
            Op::Sum => {
                let (a, b) = self.open(&v.r)?;
                let mut n = 1i64;
                for x in b {
                    n = n.checked_mul(self.lins.size(x))?;
                }
                let mut out = (1i64, 1i64);
                for t in &a {
                    if t.pow != 1 {
                        return None;
                    }
                    let x = self.val_of(t);
                    let r = self.range_at(&x, depth - 1)?;
                    let c = [
                        out.0.checked_mul(r.0)?,
                        out.0.checked_mul(r.1)?,
                        out.1.checked_mul(r.0)?,
                        out.1.checked_mul(r.1)?,
                    ];
                    out = (*c.iter().min()?, *c.iter().max()?);
                }
                Some((out.0.min(0).checked_mul(n)?, out.1.max(0).checked_mul(n)?))
            }
            Op::Pcs => {
                let (a, _) = self.open(&v.r)?;
                let mut out: Option<(i64, i64)> = None;
                for t in &a {
                    let x = self.val_of(t);
                    let r = self.range_at(&x, depth - 1)?;
                    out = Some(out.map_or(r, |o| (o.0.min(r.0), o.1.max(r.1))));
                }
                out
            }
            Op::One => Some((1, 1)),
            _ => None,
        }
    }
}
