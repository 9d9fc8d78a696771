//! Products: flat, commutative, one exponential, equal factors merged.

use super::*;

impl Store {
    /// The product that a program computes. Where one factor selects and the
    /// other may be infinite it is not a selection: `0 * inf` is NaN.
    pub fn multiply(&mut self, dt: Dt, a: &Val, b: &Val) -> Option<Val> {
        if self.rules.reals && dt != Dt::INT {
            for (x, y) in [(a, b), (b, a)] {
                if self.selects(&x.r) && self.may_be_infinite(&y.r) {
                    return Some(self.ew(self.known.mul, dt, true, &[a.clone(), b.clone()]));
                }
            }
        }
        self.mul(dt, a, b)
    }

    /// True of indicators and what has one as a factor.
    pub(crate) fn selects(&self, r: &Ref) -> bool {
        let c = self.class(r.class);
        self.is_indicator(r)
            || matches!(c.op, Op::Prod | Op::Sum) && c.args.iter().any(|a| self.is_indicator(&a.r))
    }

    /// `a * b`, where a factor that is an indicator selects.
    pub fn mul(&mut self, dt: Dt, a: &Val, b: &Val) -> Option<Val> {
        self.prod(dt, &[(a.clone(), 1), (b.clone(), 1)])
    }

    /// `prod v ^ pow`. `None` for a zero divisor or too long numbers.
    pub fn prod(&mut self, dt: Dt, vals: &[(Val, i32)]) -> Option<Val> {
        if !self.rules.reals && dt != Dt::INT {
            return self.prod_exact(dt, vals);
        }
        let mut coef = Coef::ONE;
        let mut f: Factors = SmallVec::new();
        for (v, p) in vals {
            if dt == Dt::INT {
                if let Some(i) = self.as_int(v) {
                    let i = self.coefs.int(i);
                    let k = self.coefs.pow(i, *p)?;
                    coef = self.coefs.mul(coef, k)?;
                    continue;
                }
            }
            let k = self.coefs.pow(v.coef, *p)?;
            coef = self.coefs.mul(coef, k)?;
            f.push(Arg { coef: Coef::ONE, pow: *p, r: v.r.clone() });
        }
        self.product(dt, coef, f)
    }

    pub(super) fn prod_exact(&mut self, dt: Dt, vals: &[(Val, i32)]) -> Option<Val> {
        let mut acc: Option<Val> = None;
        for (v, p) in vals {
            acc = Some(match (acc, p) {
                (None, 1) => v.clone(),
                (None, -1) => {
                    let one = self.one(dt);
                    self.ew(self.known.div, dt, false, &[one, v.clone()])
                }
                (Some(a), 1) => self.ew(self.known.mul, dt, true, &[a, v.clone()]),
                (Some(a), -1) => self.ew(self.known.div, dt, false, &[a, v.clone()]),
                _ => return None,
            });
        }
        acc
    }

    /// A product in normal form from factors with coefficient 1.
    pub(crate) fn product(&mut self, dt: Dt, mut coef: Coef, f: Factors) -> Option<Val> {
        if coef == Coef::ZERO {
            if let Some(a) = f.iter().find(|a| a.pow > 0 && self.may_be_infinite(&a.r)) {
                return Some(self.zero_times(&a.r.clone()));
            }
            if f.iter().any(|a| self.class(a.r.class).doubtful) {
                return None;
            }
            if !f.is_empty() && dt != Dt::INT {
                self.assume("0 * x = 0");
            }
            return Some(if dt == Dt::INT { self.int(0) } else { self.zero(dt) });
        }
        let mut flat = self.flatten(dt, &mut coef, f)?;
        if coef == Coef::ZERO {
            return Some(if dt == Dt::INT { self.int(0) } else { self.zero(dt) });
        }
        if flat.len() > 1 && self.use_guards(dt, &mut coef, &mut flat)? {
            return self.product(dt, coef, flat);
        }
        match flat.len() {
            0 => Some(self.constant(dt, coef)),
            1 if flat[0].pow == 1 => {
                let a = flat.pop()?;
                let v = Val { coef: Coef::ONE, r: a.r, dt };
                self.scale(&v, coef)
            }
            _ => {
                let v = self.node(Op::Prod, dt, true, flat);
                self.scale(&v, coef)
            }
        }
    }

    /// Flattens products, merges exponentials and equal factors.
    pub(super) fn flatten(&mut self, dt: Dt, coef: &mut Coef, f: Factors) -> Option<Factors> {
        let mut flat: Factors = SmallVec::new();
        let mut exps: SmallVec<[Val; 4]> = SmallVec::new();
        let mut exp_n = 0;
        let mut exp_one = None;
        let mut work: SmallVec<[Arg; 8]> = f.into_iter().collect();
        work.reverse();
        while let Some(a) = work.pop() {
            if a.coef != Coef::ONE {
                *coef = self.coefs.mul(*coef, a.coef)?;
            }
            let a = Arg { coef: Coef::ONE, ..a };
            let c = self.class(a.r.class);
            match c.op {
                Op::One => {}
                Op::Prod if c.dt == dt => {
                    let (args, _) = self.open(&a.r)?;
                    for x in args.into_iter().rev() {
                        let k = self.coefs.pow(x.coef, a.pow)?;
                        work.push(Arg { coef: k, pow: x.pow.checked_mul(a.pow)?, r: x.r });
                    }
                }
                Op::Ew(s) if s == self.known.exp && self.is_exp(&a.r) => {
                    let (args, _) = self.open(&a.r)?;
                    let p = self.coefs.int(i64::from(a.pow));
                    let v = self.val_of(&args[0]);
                    exps.push(self.scale(&v, p)?);
                    exp_n += 1;
                    exp_one = Some(a);
                }
                Op::Ew(s) if s == self.known.sqrt && (a.pow < 0 || a.pow > 1) => {
                    // sqrt(s)^p of a constant: whole powers of s stand outside.
                    let x = c.args[0].clone();
                    if self.class(x.r.class).op == Op::One {
                        let k = self.coefs.pow(x.coef, a.pow.div_euclid(2))?;
                        *coef = self.coefs.mul(*coef, k)?;
                        if a.pow.rem_euclid(2) == 1 {
                            flat.push(Arg { pow: 1, ..a });
                        }
                    } else {
                        flat.push(a);
                    }
                }
                Op::Ew(s) if (s == self.known.ind || s == self.known.b2f) && a.pow > 1 => {
                    flat.push(Arg { pow: 1, ..a });
                }
                _ => flat.push(a),
            }
        }
        match (exp_n, exp_one) {
            (1, Some(a)) if a.pow == 1 => flat.push(a),
            (0, _) => {}
            _ => {
                let e = self.add(dt, &exps)?;
                let e = self.exp(dt, &e)?;
                *coef = self.coefs.mul(*coef, e.coef)?;
                let c = self.class(e.r.class);
                if c.op == Op::Prod && c.dt == dt {
                    let (args, _) = self.open(&e.r)?;
                    for x in args {
                        *coef = self.coefs.mul(*coef, x.coef)?;
                        flat.push(Arg { coef: Coef::ONE, ..x });
                    }
                } else if c.op != Op::One {
                    flat.push(Arg { coef: Coef::ONE, pow: 1, r: e.r });
                }
            }
        }
        // A converted predicate selects where all factors are finite.
        if flat.len() > 1 && self.rules.finite && dt != Dt::INT {
            for i in 0..flat.len() {
                if self.class(flat[i].r.class).op != Op::Ew(self.known.b2f) {
                    continue;
                }
                let (p, _) = self.open(&flat[i].r.clone())?;
                let q = self.val_of(&p[0]);
                let v = self.indicator(dt, &q);
                let not = |(k, a): (usize, &Arg)| k != i && self.is_doubtful(&a.r);
                if v.coef == Coef::ONE
                    && self.is_indicator(&v.r)
                    && !flat.iter().enumerate().any(not)
                {
                    self.assume("0 * x = 0");
                    flat[i].r = v.r;
                }
            }
        }
        // Merge equal factors.
        if flat.len() > 1 {
            flat.sort_by(|x, y| x.r.cmp(&y.r).then(x.pow.cmp(&y.pow)));
            let mut out: Factors = SmallVec::with_capacity(flat.len());
            for a in flat.drain(..) {
                match out.last_mut() {
                    // An indicator over itself is no 1 where it is 0, nor is an
                    // infinity.
                    Some(l)
                        if l.r == a.r
                            && ((l.pow > 0) == (a.pow > 0)
                                || !(self.is_indicator(&l.r)
                                    || self.is_doubtful(&l.r)
                                    || self.may_be_infinite(&l.r))) =>
                    {
                        l.pow = l.pow.checked_add(a.pow)?;
                        if self.is_indicator(&l.r) {
                            l.pow = l.pow.clamp(-1, 1);
                        }
                    }
                    _ => out.push(a),
                }
            }
            let n = out.len();
            out.retain(|a| a.pow != 0);
            if out.len() < n {
                self.assume("x / x = 1");
            }
            flat = out;
        }
        // sqrt(x)^2 = x where x is not negative.
        for i in 0..flat.len() {
            let (r, pow) = (flat[i].r.clone(), flat[i].pow);
            let root = self.class(r.class).op == Op::Ew(self.known.sqrt) && pow.abs() > 1;
            if !root || !self.rules.reals || dt == Dt::INT {
                continue;
            }
            let (x, _) = self.open(&r)?;
            let x = self.val_of(&x[0]);
            if self.class(x.r.class).op == Op::One || !self.is_nonnegative(&x, 8) {
                continue;
            }
            let half = pow / 2;
            let k = self.coefs.pow(x.coef, half)?;
            *coef = self.coefs.mul(*coef, k)?;
            flat[i].pow = pow % 2;
            flat.retain(|a| a.pow != 0);
            flat.push(Arg { coef: Coef::ONE, pow: half, r: x.r });
            return self.flatten(dt, coef, flat);
        }
        Some(flat)
    }
}
