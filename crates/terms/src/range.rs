//! Intervals of integer values.

use crate::lin::UNBOUNDED;
use crate::store::{Dt, Op, Store, Val};

const DEPTH: u32 = 12;

/// Ends of an interval further out are not kept. Values of 64-bit types and
/// their sums are nearer.
const FAR: i128 = 1 << 90;

fn wide(r: (i64, i64)) -> (i128, i128) {
    (i128::from(r.0), i128::from(r.1))
}

/// The interval, if it stays far from the ends of `i64`.
fn narrow(r: (i128, i128)) -> Option<(i64, i64)> {
    let far = i128::from(UNBOUNDED);
    (r.0 > -far && r.1 < far).then_some((r.0 as i64, r.1 as i64))
}

impl Store {
    /// Smallest and largest value of an integer over the whole domain of its
    /// atoms; `None` if nothing is known.
    pub fn int_range(&mut self, v: &Val) -> Option<(i64, i64)> {
        narrow(self.range_at(v, DEPTH)?)
    }

    /// [`Store::int_range`] of values that may be as large as 64-bit types
    /// hold.
    pub fn int_range_wide(&mut self, v: &Val) -> Option<(i128, i128)> {
        self.range_at(v, DEPTH)
    }

    /// Range of an integer where a predicate holds; the plain range if it
    /// holds nowhere.
    pub fn int_range_where(&mut self, v: &Val, p: &Val) -> Option<(i128, i128)> {
        self.range_where(v, std::slice::from_ref(p), DEPTH)
    }

    fn range_at(&mut self, v: &Val, depth: u32) -> Option<(i128, i128)> {
        if v.dt != Dt::INT {
            return None;
        }
        let k = i128::from(self.coefs.to_int(v.coef)?);
        if k == 0 {
            return Some((0, 0));
        }
        let (lo, hi) = self.class_range(v, depth)?;
        let (a, b) = (lo.checked_mul(k)?, hi.checked_mul(k)?);
        let r = (a.min(b), a.max(b));
        (r.0 > -FAR && r.1 < FAR).then_some(r)
    }

    /// Range of a value where all of `truths` hold. An empty range (the
    /// truths contradict each other) is reported as the plain range.
    fn range_where(&mut self, x: &Val, truths: &[Val], depth: u32) -> Option<(i128, i128)> {
        let plain = self.range_at(x, depth);
        let (mut lo, mut hi) = plain.unwrap_or((i128::MIN, i128::MAX));
        for t in truths {
            let (g, negated) = match self.class(t.r.class).op {
                Op::Ew(s) if s == self.known.ge0 => (t.clone(), false),
                Op::Ew(s) if s == self.known.not => (self.not(t), true),
                Op::And => {
                    let (a, _) = self.open(&t.r)?;
                    let parts: Vec<Val> = a.iter().map(|y| self.val_of(y)).collect();
                    if let Some(r) = self.range_where(x, &parts, depth.saturating_sub(1)) {
                        lo = lo.max(r.0);
                        hi = hi.min(r.1);
                    }
                    continue;
                }
                _ => continue,
            };
            if self.class(g.r.class).op != Op::Ew(self.known.ge0) {
                continue;
            }
            let (a, _) = self.open(&g.r)?;
            let g = self.val_of(&a[0]);
            // x = s*g + rest with s = 1 or -1, and g >= 0 (or g <= -1).
            for s in [1i64, -1] {
                let k = self.coefs.int(-s);
                let n = self.scale(&g, k)?;
                let rest = self.add(Dt::INT, &[x.clone(), n])?;
                let Some(r) = self.range_at(&rest, depth.min(3)) else { continue };
                match (s, negated) {
                    (1, false) => lo = lo.max(r.0),
                    (1, true) => hi = hi.min(r.1 - 1),
                    (_, false) => hi = hi.min(r.1),
                    (_, true) => lo = lo.max(r.0 + 1),
                }
            }
        }
        if lo > hi {
            return plain;
        }
        (lo > i128::MIN && hi < i128::MAX).then_some((lo, hi))
    }

    fn class_range(&mut self, v: &Val, depth: u32) -> Option<(i128, i128)> {
        if depth == 0 {
            return None;
        }
        let op = self.class(v.r.class).op;
        match op {
            Op::Iota => Some(wide(self.lins.range(v.r.m[0]))),
            Op::Param(id) => self.param_range.get(&id).copied().map(wide),
            Op::Arr(id) => {
                let a = self.arrays[id as usize].clone();
                let mut r: Option<(i128, i128)> = None;
                for &c in a.iter() {
                    let x = i128::from(self.coefs.to_int(c)?);
                    r = Some(r.map_or((x, x), |(lo, hi)| (lo.min(x), hi.max(x))));
                }
                r
            }
            Op::Ew(s) if s == self.known.b2f || s == self.known.ind => Some((0, 1)),
            Op::Ew(s) if s == self.known.select => {
                let (a, _) = self.open(&v.r)?;
                let (p, x, y) = (self.val_of(&a[0]), self.val_of(&a[1]), self.val_of(&a[2]));
                let q = self.not(&p);
                let x = self.range_where(&x, &[p], depth - 1)?;
                let y = self.range_where(&y, &[q], depth - 1)?;
                Some((x.0.min(y.0), x.1.max(y.1)))
            }
            Op::Ew(s) | Op::Opq(s) => self.sym_range.get(&s).copied().map(wide),
            Op::Add => {
                let one = Val { coef: crate::Coef::ONE, ..v.clone() };
                match self.sum_bounds(&one, depth) {
                    (Some(lo), Some(hi)) => Some((lo, hi)),
                    _ => None,
                }
            }
            Op::Max => {
                let (a, _) = self.open(&v.r)?;
                let mut out: Option<(i128, i128)> = None;
                let mut bounded = true;
                let mut floor = i128::MIN;
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
                // Indicators restrict the other factors: where one fails the
                // product is 0.
                let (a, _) = self.open(&v.r)?;
                let mut truths = Vec::new();
                for t in &a {
                    if self.is_indicator(&t.r) {
                        let (p, _) = self.open(&t.r)?;
                        truths.push(self.val_of(&p[0]));
                    }
                }
                let mut out = (1i128, 1i128);
                for t in &a {
                    if t.pow != 1 {
                        return None;
                    }
                    if self.is_indicator(&t.r) {
                        continue;
                    }
                    let x = self.val_of(t);
                    let r = self.range_where(&x, &truths, depth - 1)?;
                    let c = [
                        out.0.checked_mul(r.0)?,
                        out.0.checked_mul(r.1)?,
                        out.1.checked_mul(r.0)?,
                        out.1.checked_mul(r.1)?,
                    ];
                    out = (*c.iter().min()?, *c.iter().max()?);
                }
                if !truths.is_empty() {
                    out = (out.0.min(0), out.1.max(0));
                }
                Some(out)
            }
            Op::Sum => {
                let (a, b) = self.open(&v.r)?;
                let mut n = 1i128;
                for x in b {
                    n = n.checked_mul(i128::from(self.lins.size(x)))?;
                }
                let mut out = (1i128, 1i128);
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
                let c = self.class(v.r.class);
                let own = c.nfree as usize;
                let (low, high) = self.lins.range(v.r.m[own]);
                // Outside pieces are 0.
                let outside = low < 0 || high >= c.sizes[own];
                let (a, _) = self.open(&v.r)?;
                let mut out: Option<(i128, i128)> = outside.then_some((0, 0));
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

    /// Least and largest value, as far as known, of a sum in which a maximum
    /// (or minimum) may cancel against the rest: `max(a, b) + c` is
    /// `max(a + c, b + c)`, so `clamp(lo, x, hi) - lo` is in `0..=hi - lo`.
    fn sum_bounds(&mut self, v: &Val, depth: u32) -> (Option<i128>, Option<i128>) {
        const MOST: usize = 4;
        let known = |r: Option<(i128, i128)>| (r.map(|r| r.0), r.map(|r| r.1));
        if depth == 0 || v.dt != Dt::INT {
            return (None, None);
        }
        if self.class(v.r.class).op != Op::Add {
            return known(self.range_at(v, depth - 1));
        }
        let Some((args, _)) = self.open(&v.r) else { return (None, None) };
        let Some(terms) = args
            .iter()
            .map(|t| {
                let t = self.val_of(t);
                self.scale(&t, v.coef)
            })
            .collect::<Option<Vec<Val>>>()
        else {
            return (None, None);
        };
        let (mut lo, mut hi) = (Some(0i128), Some(0i128));
        for t in &terms {
            let r = self.range_at(t, depth - 1);
            lo = lo.zip(r).and_then(|(s, r)| s.checked_add(r.0));
            hi = hi.zip(r).and_then(|(s, r)| s.checked_add(r.1));
        }
        if terms.len() > MOST {
            return (lo, hi);
        }
        for (k, t) in terms.iter().enumerate() {
            if self.class(t.r.class).op != Op::Max {
                continue;
            }
            let Some((parts, _)) = self.open(&t.r) else { continue };
            if parts.len() > MOST {
                continue;
            }
            let least = self.coefs.sign(t.coef) < 0;
            let mut ends: Vec<(Option<i128>, Option<i128>)> = Vec::new();
            for a in &parts {
                let x = self.val_of(a);
                let mut all: Vec<Val> = terms.clone();
                let Some(x) = self.scale(&x, t.coef) else { return (lo, hi) };
                all[k] = x;
                let sum = self.add(Dt::INT, &all);
                ends.push(match sum {
                    Some(s) => self.sum_bounds(&s, depth.min(5) - 1),
                    None => (None, None),
                });
            }
            // One known end of a maximum bounds it from below, all of them
            // from above; of a minimum the other way round.
            let los = ends.iter().map(|e| e.0);
            let his = ends.iter().map(|e| e.1);
            let (l, h) = if least {
                (
                    los.clone().min().flatten().filter(|_| los.clone().all(|e| e.is_some())),
                    his.flatten().min(),
                )
            } else {
                (
                    los.flatten().max(),
                    his.clone().max().flatten().filter(|_| his.clone().all(|e| e.is_some())),
                )
            };
            lo = lo.max(l);
            hi = match (hi, h) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        (lo, hi)
    }
}
