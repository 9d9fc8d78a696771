//! Sums of terms: flat, commutative, equal terms combined.

use super::*;

impl Store {
    /// `sum terms`. `None` if a number grows too long.
    pub fn add(&mut self, dt: Dt, terms: &[Val]) -> Option<Val> {
        if !self.rules.reals && dt != Dt::INT {
            return self.add_exact(dt, terms);
        }
        let mut flat: Factors = SmallVec::new();
        let mut lin: SmallVec<[(i64, LinId); 4]> = SmallVec::new();
        for t in terms {
            if t.coef == Coef::ZERO {
                continue;
            }
            let c = self.class(t.r.class);
            if c.op == Op::Add && c.dt == dt && c.args.len() + flat.len() <= MAX_FLAT {
                let (args, _) = self.open(&t.r)?;
                for mut a in args {
                    a.coef = self.coefs.mul(a.coef, t.coef)?;
                    self.push_term(a, &mut flat, &mut lin, dt)?;
                }
            } else {
                self.push_term(Self::arg(t), &mut flat, &mut lin, dt)?;
            }
        }
        if dt == Dt::INT && flat.len() > 1 {
            self.combine_terms(&mut flat)?;
            while self.join_argmax(&mut flat)? {}
        }
        if dt == Dt::INT && !lin.is_empty() {
            let mut l = self.lins.combine(&lin)?;
            if flat.is_empty() {
                return Some(self.iota(l));
            }
            if self.lins.as_constant(l) != Some(0) {
                // The sign stands outside, so that the form has none.
                self.combine_terms(&mut flat)?;
                let negative = self.leads_negative(&flat);
                if negative {
                    for a in flat.iter_mut() {
                        a.coef = self.coefs.neg(a.coef);
                    }
                    l = self.lins.combine(&[(-1, l)])?;
                }
                let v = self.iota(l);
                if flat.is_empty() {
                    return Some(v);
                }
                flat.push(Self::arg(&v));
                let s = self.node(Op::Add, dt, true, flat);
                return if negative { self.scale(&s, Coef::NEG) } else { Some(s) };
            }
        }
        self.combine_terms(&mut flat)?;
        if dt != Dt::INT && flat.len() > 1 && self.pull_exp(dt, &mut flat)? {
            let terms: SmallVec<[Val; 8]> =
                flat.iter().map(|a| Val { coef: a.coef, r: a.r.clone(), dt }).collect();
            return self.add(dt, &terms);
        }
        if dt != Dt::INT
            && (self.gather_series(dt, &mut flat, |s, dt, v, z| s.sum(dt, v, &[z]))
                || self.join_sums(dt, &mut flat))
        {
            let terms: SmallVec<[Val; 8]> =
                flat.iter().map(|a| Val { coef: a.coef, r: a.r.clone(), dt }).collect();
            return self.add(dt, &terms);
        }
        match flat.len() {
            0 if dt == Dt::INT => Some(self.int(0)),
            0 => Some(self.zero(dt)),
            1 => {
                let a = flat.pop()?;
                if dt == Dt::INT {
                    let v = Val { coef: Coef::ONE, r: a.r, dt };
                    return self.scale(&v, a.coef);
                }
                Some(Val { coef: a.coef, r: a.r, dt })
            }
            _ => Some(self.node(Op::Add, dt, true, flat)),
        }
    }

    /// True if the terms of the least class have a negative factor of the
    /// largest size. Terms are sorted by reference.
    pub(super) fn leads_negative(&mut self, flat: &[Arg]) -> bool {
        let Some(first) = flat.first() else { return false };
        let mut lead = first.coef;
        for a in flat.iter().take_while(|a| a.r.class == first.r.class) {
            let (x, y) = (self.coefs.abs(a.coef), self.coefs.abs(lead));
            let (x, y) = (self.coefs.get(x), self.coefs.get(y));
            if x > y || (x == y && self.coefs.sign(a.coef) > self.coefs.sign(lead)) {
                lead = a.coef;
            }
        }
        self.coefs.sign(lead) < 0
    }

    pub(super) fn push_term(
        &mut self,
        a: Arg,
        flat: &mut Factors,
        lin: &mut SmallVec<[(i64, LinId); 4]>,
        dt: Dt,
    ) -> Option<()> {
        if dt == Dt::INT && self.class(a.r.class).op == Op::Iota {
            if let Some(c) = self.coefs.to_int(a.coef) {
                lin.push((c, a.r.m[0]));
                return Some(());
            }
        }
        if a.coef != Coef::ZERO {
            flat.push(a);
        }
        Some(())
    }

    /// Combines equal references; a sum that cancels needs finite values.
    pub(super) fn combine_terms(&mut self, flat: &mut Factors) -> Option<()> {
        if flat.len() < 2 {
            return Some(());
        }
        flat.sort_by(|x, y| x.r.cmp(&y.r));
        let mut out: Factors = SmallVec::with_capacity(flat.len());
        for a in flat.drain(..) {
            match out.last_mut() {
                Some(l) if l.r == a.r => l.coef = self.coefs.add(l.coef, a.coef)?,
                _ => out.push(a),
            }
        }
        let n = out.len();
        // inf - inf and NaN - NaN are NaN.
        let mut lost: Factors = SmallVec::new();
        for a in &out {
            if a.coef == Coef::ZERO && self.may_be_infinite(&a.r) {
                let v = self.zero_times(&a.r);
                lost.push(Self::arg(&v));
            }
        }
        if out.iter().any(|a| a.coef == Coef::ZERO && self.class(a.r.class).doubtful) {
            return None;
        }
        out.retain(|a| a.coef != Coef::ZERO);
        out.extend(lost);
        if out.len() < n {
            self.assume("x - x = 0");
        }
        *flat = out;
        Some(())
    }

    /// `0 * x` of an `x` that may be infinite: NaN there.
    pub(super) fn zero_times(&mut self, r: &Ref) -> Val {
        let dt = self.class(r.class).dt;
        if matches!(self.class(r.class).op, Op::Const(NEG_INF | NAN)) {
            return self.special(dt, NAN);
        }
        let s = self.sym("zero-times");
        self.ew(s, dt, false, &[Val { coef: Coef::ONE, r: r.clone(), dt }])
    }

    /// `e u + e v = e (u + v)` for an exponential `e` that several terms have
    /// as a factor. True if terms were put together.
    pub(super) fn pull_exp(&mut self, dt: Dt, flat: &mut Factors) -> Option<bool> {
        let exp = Op::Ew(self.known.exp);
        // The exponential in each term, with its power.
        let mut factor: SmallVec<[Option<(Ref, i32)>; 4]> = SmallVec::new();
        for a in flat.iter() {
            let c = self.class(a.r.class);
            factor.push(if self.is_exp(&a.r) {
                Some((a.r.clone(), 1))
            } else if c.op == Op::Prod
                && c.dt == dt
                && c.args.iter().any(|x| self.class(x.r.class).op == exp)
            {
                let (f, _) = self.open(&a.r)?;
                f.into_iter().find(|x| self.is_exp(&x.r)).map(|x| (x.r, x.pow))
            } else {
                None
            });
        }
        for i in 0..flat.len() {
            let Some((e, pow)) = factor[i].clone() else { continue };
            let same: SmallVec<[usize; 4]> = (i..flat.len())
                .filter(|&k| factor[k].as_ref().is_some_and(|f| f.0 == e && f.1 == pow))
                .collect();
            if same.len() < 2 {
                continue;
            }
            let mut rest: SmallVec<[Val; 4]> = SmallVec::new();
            for &k in &same {
                let a = &flat[k];
                if a.r == e {
                    rest.push(self.constant(dt, a.coef));
                    continue;
                }
                let (mut f, _) = self.open(&a.r.clone())?;
                let at = f.iter().position(|x| x.r == e && x.pow == pow)?;
                f.remove(at);
                let mut k = flat[k].coef;
                for x in f.iter_mut() {
                    k = self.coefs.mul(k, x.coef)?;
                    x.coef = Coef::ONE;
                }
                rest.push(self.product(dt, k, f)?);
            }
            let s = self.add(dt, &rest)?;
            let e = Arg { coef: Coef::ONE, pow, r: e };
            let p = self.product(
                dt,
                s.coef,
                SmallVec::from_iter([e, Arg { coef: Coef::ONE, pow: 1, r: s.r }]),
            )?;
            let mut out: Factors = SmallVec::new();
            for (k, a) in flat.drain(..).enumerate() {
                if !same.contains(&k) {
                    out.push(a);
                }
            }
            if p.coef != Coef::ZERO {
                out.push(Self::arg(&p));
            }
            *flat = out;
            return Some(true);
        }
        Some(false)
    }

    pub(super) fn add_exact(&mut self, dt: Dt, terms: &[Val]) -> Option<Val> {
        let mut acc = terms.first()?.clone();
        for t in &terms[1..] {
            acc = self.ew(self.known.add, dt, true, &[acc, t.clone()]);
        }
        Some(acc)
    }
}
