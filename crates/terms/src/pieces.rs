//! Values put together from runs along one axis.
//!
//! A run holds `len` consecutive indices and is read at its own local axis,
//! counted from 0. Adjacent runs that continue the same read are one run;
//! runs of runs are flat; a read that stays inside one run is a read of it.

use crate::coef::Coef;
use crate::lin::{Ax, BOUND_SLOT, LinId, Lins, OWN_SLOT, Subst};
use crate::make::Build;
use crate::store::{Arg, Dt, Op, Store, Val};
use smallvec::SmallVec;

/// One run: its length, its value, and the atom that counts along it (of
/// size `len`; `None` if the length is 1 and the value needs no axis).
#[derive(Clone, Debug)]
pub struct Run {
    /// Number of indices.
    pub len: i64,
    /// Value, over `axis`.
    pub val: Val,
    /// Local axis.
    pub axis: Option<Ax>,
}

/// Most runs a value may have.
const MAX_RUNS: usize = 4096;

impl Store {
    /// The value whose indices along one axis are given by `runs`, read at
    /// `at` (a form with values in `0..sum of lengths`).
    pub fn pieces(&mut self, dt: Dt, runs: &[Run], at: LinId) -> Option<Val> {
        let mut flat: Vec<Run> = Vec::with_capacity(runs.len());
        for r in runs {
            if r.len == 0 {
                continue;
            }
            self.push_run(r.clone(), &mut flat)?;
            if flat.len() > MAX_RUNS {
                return None;
            }
        }
        let total: i64 = flat.iter().map(|r| r.len).sum();
        if let Some(r) = self.progression(&flat) {
            flat = vec![r];
        }
        // A read that may lie outside, where pieces are 0, stays one of pieces.
        let (low, high) = self.lins.range(at);
        if flat.len() == 1 && low >= 0 && high < total {
            let r = &flat[0];
            return match r.axis {
                Some(a) => {
                    let mut m = Subst::new();
                    m.set(a, at);
                    self.subst(&r.val, &m)
                }
                None => Some(r.val.clone()),
            };
        }
        // A common factor stands outside.
        let lead = flat.iter().find(|r| r.val.coef != Coef::ZERO);
        let mut k = lead.map_or(Coef::ONE, |r| r.val.coef);
        let is_number = |s: &Store, v: &Val| s.class(v.r.class).op == Op::One;
        if dt == Dt::INT || dt == Dt::BOOL || !self.rules.reals {
            k = Coef::ONE;
        }
        if lead.is_some_and(|r| is_number(self, &r.val)) {
            k = Coef::ONE;
        }
        let mut args: SmallVec<[Arg; 4]> = SmallVec::new();
        let mut captured: SmallVec<[Ax; 4]> = SmallVec::new();
        let inv = self.coefs.inv(k)?;
        for r in &flat {
            let a = match r.axis {
                Some(a) => a,
                None => self.lins.local(r.len),
            };
            captured.push(a);
            let coef = self.coefs.mul(r.val.coef, inv)?;
            args.push(Arg { coef, pow: 1, r: r.val.r.clone() });
        }
        let own = [(total, at)];
        let b = Build {
            op: Op::Pcs,
            dt,
            commutative: false,
            bound: &captured,
            captured: true,
            own: &own,
        };
        let (r, _) = self.make(&b, args);
        let v = Val { coef: k, r, dt };
        Some(self.norm(v))
    }

    /// Appends a run; flattens pieces and fuses with the run before.
    fn push_run(&mut self, r: Run, flat: &mut Vec<Run>) -> Option<()> {
        // A run that is itself pieces along the run's axis is taken apart.
        if let Some(a) = r.axis {
            if self.class(r.val.r.class).op == Op::Pcs {
                let c = self.class(r.val.r.class);
                let own = c.nfree as usize;
                let at = r.val.r.m[own];
                let form = self.lins.get(at);
                let simple = form.terms.len() == 1 && form.terms[0] == (1, a);
                let elsewhere = r.val.r.m[..own].iter().any(|&l| self.lins.mentions(l, a));
                if simple && !elsewhere {
                    let (lo, len) = (form.c0, r.len);
                    let lens = c.bound.clone();
                    let (args, axes) = self.open(&r.val.r)?;
                    let total: i64 = lens.iter().sum();
                    // Pieces are 0 before the first and after the last.
                    let dt = r.val.dt;
                    let none = if dt == Dt::INT { self.int(0) } else { self.zero(dt) };
                    let zeros = |len: i64| Run { len, val: none.clone(), axis: None };
                    if lo < 0 {
                        self.push_run(zeros(len.min(-lo)), flat)?;
                    }
                    let mut start = 0;
                    for (k, &n) in lens.iter().enumerate() {
                        let (s, e) = (start.max(lo), (start + n).min(lo + len));
                        if s < e {
                            let v = self.val_of(&args[k]);
                            let v = self.scale_any(&v, r.val.coef)?;
                            let piece = self.cut(&v, axes[k], s - start, e - s)?;
                            self.push_run(piece, flat)?;
                        }
                        start += n;
                    }
                    if lo + len > total {
                        self.push_run(zeros(len.min(lo + len - total)), flat)?;
                    }
                    return Some(());
                }
            }
        }
        if let Some(last) = flat.last() {
            if let Some(f) = self.fuse_runs(&last.clone(), &r) {
                flat.pop();
                flat.push(f);
                return Some(());
            }
        }
        flat.push(r);
        Some(())
    }

    /// Scales a value; for booleans and zero factors only by 0 or 1.
    fn scale_any(&mut self, v: &Val, k: Coef) -> Option<Val> {
        if k == Coef::ONE { Some(v.clone()) } else { self.scale(v, k) }
    }

    /// Indices `[from, from + len)` of a value along atom `axis`.
    pub(crate) fn cut(&mut self, v: &Val, axis: Ax, from: i64, len: i64) -> Option<Run> {
        let mut m = Subst::new();
        if len == 1 {
            let c = self.lins.constant(from);
            m.set(axis, c);
            return Some(Run { len, val: self.subst(v, &m)?, axis: None });
        }
        let a = self.lins.local(len);
        let l = self.lins.shift(Lins::plain(a), from);
        m.set(axis, l);
        Some(Run { len, val: self.subst(v, &m)?, axis: Some(a) })
    }

    /// Values of one class of which the reads move on by a fixed step: one
    /// value over a new axis that counts them.
    pub fn stack(&mut self, vals: &[Val]) -> Option<(Val, Ax)> {
        let runs: Vec<Run> =
            vals.iter().map(|v| Run { len: 1, val: v.clone(), axis: None }).collect();
        let r = self.progression(&runs)?;
        Some((r.val, r.axis?))
    }

    /// Runs of one index each, all of one class, of which the reads move on by
    /// a fixed step (of any length): one run.
    fn progression(&mut self, flat: &[Run]) -> Option<Run> {
        let [x, y, rest @ ..] = flat else { return None };
        if flat.iter().any(|r| r.len != 1 || r.axis.is_some() || r.val.coef != x.val.coef)
            || flat.iter().any(|r| r.val.r.class != x.val.r.class)
            || x.val.coef == Coef::ZERO
        {
            return None;
        }
        let n = flat.len() as i64;
        let a = self.lins.local(n);
        let mut m = SmallVec::new();
        for k in 0..x.val.r.m.len() {
            let l = *x.val.r.m.get(k)?;
            let at = |s: &Store, r: &Run| -> Option<i64> {
                let f = *r.val.r.m.get(k)?;
                let both = s.lins.as_constant(l).is_some() && s.lins.as_constant(f).is_some();
                (both || s.lins.linear(f) == s.lins.linear(l)).then(|| s.lins.c0(f))
            };
            let start = at(self, x)?;
            let step = at(self, y)?.checked_sub(start)?;
            for (j, r) in rest.iter().enumerate() {
                let want = start.checked_add(step.checked_mul(j as i64 + 2)?)?;
                if at(self, r)? != want {
                    return None;
                }
            }
            m.push(self.lins.combine(&[(1, l), (step, Lins::plain(a))])?);
        }
        let r = crate::Ref { class: x.val.r.class, m };
        Some(Run { len: n, val: Val { r, ..x.val.clone() }, axis: Some(a) })
    }

    /// One run in place of two, if the second continues the first.
    fn fuse_runs(&mut self, x: &Run, y: &Run) -> Option<Run> {
        if x.val.coef != y.val.coef || x.val.r.class != y.val.r.class {
            return None;
        }
        if x.val.coef == Coef::ZERO {
            return Some(Run { len: x.len + y.len, val: x.val.clone(), axis: None });
        }
        let a = self.lins.local(x.len + y.len);
        let mut m = SmallVec::new();
        for (&l, &r) in x.val.r.m.iter().zip(&y.val.r.m) {
            // l = rest + s*q, r = rest' + s*q.
            let (fl, fr) = (self.lins.get(l), self.lins.get(r));
            let slope = |f: &crate::Lin, ax: Option<Ax>| {
                ax.and_then(|a| f.terms.iter().find(|t| t.1 == a).map(|t| t.0)).unwrap_or(0)
            };
            // Tables over the run's axis are not continued.
            for (form, ax) in [(&fl, x.axis), (&fr, y.axis)] {
                if let Some(ax) = ax {
                    let direct = form.terms.iter().any(|t| t.1 == ax);
                    let deep = form.terms.iter().filter(|t| t.1 != ax);
                    for t in deep {
                        if self.lins.mentions(Lins::plain(t.1), ax) {
                            return None;
                        }
                    }
                    let _ = direct;
                }
            }
            let (sx, sy) = (slope(&fl, x.axis), slope(&fr, y.axis));
            let (lx, ly) = (x.axis.is_some() && x.len > 1, y.axis.is_some() && y.len > 1);
            let start = |s: &mut Store, l: LinId, ax: Option<Ax>| -> Option<LinId> {
                match ax {
                    Some(a) => {
                        let mut m = Subst::new();
                        let z = s.lins.constant(0);
                        m.set(a, z);
                        s.lins.substitute(l, &m)
                    }
                    None => Some(l),
                }
            };
            let (bx, by) = (start(self, l, x.axis)?, start(self, r, y.axis)?);
            if self.lins.linear(bx) != self.lins.linear(by)
                && !(self.lins.as_constant(bx).is_some() && self.lins.as_constant(by).is_some())
            {
                return None;
            }
            let diff = self.lins.c0(by) - self.lins.c0(bx);
            // A run of length 1 has no slope: it takes its neighbour's.
            let s = match (lx || x.len > 1, ly || y.len > 1) {
                (true, true) => {
                    if sx != sy {
                        return None;
                    }
                    sx
                }
                (true, false) => sx,
                (false, true) => sy,
                (false, false) => {
                    if diff != 0 && diff != 1 {
                        return None;
                    }
                    diff
                }
            };
            if diff != s.checked_mul(x.len)? {
                return None;
            }
            m.push(self.lins.combine(&[(1, bx), (s, Lins::plain(a))])?);
        }
        let r = crate::Ref { class: x.val.r.class, m };
        Some(Run { len: x.len + y.len, val: Val { r, ..x.val.clone() }, axis: Some(a) })
    }

    /// A read of pieces that stays within one run, or at both ends of a
    /// strict sub-range, as a read of less.
    pub(crate) fn step_into_piece(&mut self, v: &Val) -> Option<Val> {
        let c = self.class(v.r.class);
        let own = c.nfree as usize;
        let total = c.sizes[own];
        let lens = c.bound.clone();
        let at = v.r.m[own];
        let slot = |l: LinId| Lins::as_plain(l).is_some_and(|a| a < crate::lin::FIRST_ATOM);
        if slot(at) {
            return None;
        }
        let mut any_slot = false;
        self.lins.for_terms(at, |_, a| any_slot |= a < crate::lin::FIRST_ATOM);
        if any_slot {
            return None;
        }
        let (lo, hi) = self.lins.range(at);
        if lo < 0 || hi >= total || (lo == 0 && hi == total - 1) {
            return None;
        }
        let mut start = 0;
        for (k, &n) in lens.iter().enumerate() {
            if lo >= start && hi < start + n {
                let c = self.class(v.r.class);
                let arg = c.args[k].clone();
                let nfree = c.nfree as usize;
                let mut m = Subst::new();
                for i in 0..nfree {
                    m.set(i as u32, v.r.m[i]);
                }
                m.set(OWN_SLOT, at);
                let l = self.lins.shift(at, -start);
                m.set(BOUND_SLOT + k as u32, l);
                let r = self.subst_ref(&arg.r, &m)?;
                let coef = self.coefs.mul(arg.coef, v.coef)?;
                if coef == Coef::ZERO {
                    return Some(if v.dt == Dt::INT { self.int(0) } else { self.zero(v.dt) });
                }
                return Some(Val { coef, r, dt: v.dt });
            }
            start += n;
        }
        // Straddles a strict sub-range: clip to it.
        let (args, axes) = self.open(&v.r)?;
        let mut runs = Vec::new();
        let mut start = 0;
        for (k, &n) in lens.iter().enumerate() {
            let (s, e) = (start.max(lo), (start + n).min(hi + 1));
            if s < e {
                let x = self.val_of(&args[k]);
                let x = self.scale_any(&x, v.coef)?;
                runs.push(self.cut(&x, axes[k], s - start, e - s)?);
            }
            start += n;
        }
        let at = self.lins.shift(at, -lo);
        self.pieces(v.dt, &runs, at)
    }
}
