//! Exponentials, logarithms, roots and signs.

use super::*;

impl Store {
    /// `e ^ v` with the laws of exponentials.
    pub fn exp(&mut self, dt: Dt, v: &Val) -> Option<Val> {
        let exp = self.known.exp;
        if !self.rules.reals {
            return Some(self.ew(exp, dt, false, std::slice::from_ref(v)));
        }
        if v.coef == Coef::ZERO {
            return Some(self.one(dt));
        }
        // Terms of the exponent.
        let mut terms: SmallVec<[Val; 4]> = SmallVec::new();
        if self.class(v.r.class).op == Op::Add {
            let (args, _) = self.open(&v.r)?;
            for a in &args {
                let t = self.val_of(a);
                terms.push(self.scale(&t, v.coef)?);
            }
        } else {
            terms.push(v.clone());
        }
        // -inf + x is -inf unless x is +inf or NaN.
        let odd = terms.iter().filter(|t| self.is_doubtful(&t.r)).count();
        let down =
            |t: &Val| self.class(t.r.class).op == Op::Const(NEG_INF) && self.coefs.sign(t.coef) > 0;
        if terms.len() > 1 && (odd > 1 || odd == 1 && !terms.iter().any(down)) {
            return Some(self.ew(exp, dt, false, std::slice::from_ref(v)));
        }
        let mut factors: SmallVec<[(Val, i32); 4]> = SmallVec::new();
        let mut rest: SmallVec<[Val; 4]> = SmallVec::new();
        // exp(-inf + x) = 0 unless x is infinite too, as it is where x is
        // minus the maximum of a row that is masked out entirely.
        let infinite: SmallVec<[bool; 4]> =
            terms.iter().map(|t| self.may_be_pos_inf(t, true)).collect();
        let alone = |i: usize| infinite.iter().enumerate().all(|(k, x)| k == i || !x);
        for (i, t) in terms.into_iter().enumerate() {
            let op = self.class(t.r.class).op;
            match op {
                // The exponential of a mask value is a factor of its own.
                Op::One if self.rules.finite && dt != Dt::INT && self.is_far(t.coef) => {
                    let down = self.coefs.sign(t.coef) < 0;
                    if down && self.drop_masks && alone(i) {
                        self.assume(MASK);
                        return Some(self.zero(dt));
                    }
                    let k = if down { t.coef } else { self.coefs.neg(t.coef) };
                    let c = self.constant(dt, k);
                    let e = self.ew(exp, dt, false, &[c]);
                    factors.push((e, if down { 1 } else { -1 }));
                }
                Op::Const(id) if id == NEG_INF && self.coefs.sign(t.coef) > 0 && alone(i) => {
                    if !rest.is_empty() || !factors.is_empty() {
                        self.assume("exp(-inf + x) = 0");
                    }
                    return Some(self.zero(dt));
                }
                Op::Ew(s) if s == self.known.select && self.coefs.sign(t.coef) > 0 && alone(i) => {
                    let (a, _) = self.open(&t.r)?;
                    let (p, x, y) = (self.val_of(&a[0]), self.val_of(&a[1]), self.val_of(&a[2]));
                    let (x, y) = (self.scale(&x, t.coef)?, self.scale(&y, t.coef)?);
                    let inf = |s: &mut Store, v: &Val| {
                        if s.is_mask(v) {
                            s.assume(MASK);
                            return true;
                        }
                        s.class(v.r.class).op == Op::Const(NEG_INF) && s.coefs.sign(v.coef) > 0
                    };
                    if inf(self, &y) {
                        let g = self.indicator(dt, &p);
                        factors.push((g, 1));
                        rest.push(x);
                    } else if inf(self, &x) {
                        let q = self.not(&p);
                        let g = self.indicator(dt, &q);
                        factors.push((g, 1));
                        rest.push(y);
                    } else {
                        rest.push(t);
                    }
                }
                // A mask that is added: minus infinity where p holds, else 0.
                Op::Prod if self.coefs.sign(t.coef) > 0 && alone(i) => {
                    let (a, _) = self.open(&t.r)?;
                    let is = |s: &Store, x: &Arg, op| x.pow == 1 && s.class(x.r.class).op == op;
                    let ind = Op::Ew(self.known.ind);
                    let infinite = a.iter().filter(|x| is(self, x, Op::Const(NEG_INF))).count();
                    let guards: SmallVec<[Arg; 4]> =
                        a.iter().filter(|x| is(self, x, ind)).cloned().collect();
                    if infinite != 1 || guards.is_empty() || guards.len() + 1 != a.len() {
                        rest.push(t);
                        continue;
                    }
                    let mut all: SmallVec<[Val; 4]> = SmallVec::new();
                    for g in &guards {
                        let (p, _) = self.open(&g.r)?;
                        all.push(self.val_of(&p[0]));
                    }
                    let p = self.and(&all);
                    let q = self.not(&p);
                    self.assume("exp(-inf + x) = 0");
                    let g = self.indicator(dt, &q);
                    factors.push((g, 1));
                }
                // The same by a number: m * [p] with m of at most -1e9.
                Op::Ew(s)
                    if (s == self.known.ind || s == self.known.b2f)
                        && self.drop_masks
                        && dt != Dt::INT
                        && self.coefs.to_f64(t.coef) <= MASK_VALUE =>
                {
                    let (a, _) = self.open(&t.r)?;
                    let p = self.val_of(&a[0]);
                    let q = self.not(&p);
                    self.assume(MASK);
                    let g = self.indicator(dt, &q);
                    factors.push((g, 1));
                }
                Op::Ew(s) if s == self.known.log && self.rules.finite => {
                    match self.coefs.to_int(t.coef) {
                        Some(k) if (-4..=4).contains(&k) => {
                            let (a, _) = self.open(&t.r)?;
                            let x = self.val_of(&a[0]);
                            self.assume("exp(log x) = x");
                            factors.push((x, k as i32));
                        }
                        _ => rest.push(t),
                    }
                }
                _ => rest.push(t),
            }
        }
        if factors.is_empty() {
            return Some(self.ew(exp, dt, false, std::slice::from_ref(v)));
        }
        let masks = factors.iter().all(|f| {
            let c = self.class(f.0.r.class);
            c.op == Op::Ew(exp) && !self.is_exp(&f.0.r)
        });
        if masks {
            // exp(m + x) = exp(m) * exp(x), over the reals.
        } else if rest.len() > 1 || !factors.is_empty() && rest.len() == 1 && factors.len() > 1 {
            self.assume("exp(-inf + x) = 0");
        }
        if !rest.is_empty() {
            let r = self.add(dt, &rest)?;
            let e = self.exp(dt, &r)?;
            factors.push((e, 1));
        }
        self.prod(dt, &factors)
    }

    /// True for a constant that masks a score out before a softmax, where such
    /// are taken for minus infinity.
    pub(super) fn is_mask(&mut self, v: &Val) -> bool {
        self.drop_masks
            && self.class(v.r.class).op == Op::One
            && v.dt != Dt::INT
            && self.coefs.to_f64(v.coef) <= MASK_VALUE
    }

    /// True for a number as large as a mask value, of either sign.
    pub(crate) fn is_far(&self, c: Coef) -> bool {
        self.coefs.to_f64(c).abs() >= -MASK_VALUE
    }

    /// True for an exponential, but not that of a mask value.
    pub(super) fn is_exp(&self, r: &Ref) -> bool {
        let c = self.class(r.class);
        c.op == Op::Ew(self.known.exp)
            && !(self.rules.finite
                && self.class(c.args[0].r.class).op == Op::One
                && self.is_far(c.args[0].coef))
    }

    /// Square root. That of a positive fraction is a fraction times the root
    /// of a square-free integer.
    pub fn sqrt(&mut self, dt: Dt, v: &Val) -> Option<Val> {
        if self.rules.reals && self.class(v.r.class).op == Op::One {
            if let Some((k, s)) = self.coefs.square_root(v.coef) {
                if s == Coef::ONE {
                    return Some(self.constant(dt, k));
                }
                let x = self.constant(dt, s);
                let r = self.ew(self.known.sqrt, dt, false, &[x]);
                return self.scale(&r, k);
            }
        }
        if self.rules.reals && self.class(v.r.class).op == Op::Prod {
            if let Some(w) = self.sqrt_of_product(dt, v)? {
                return Some(w);
            }
        }
        Some(self.ew(self.known.sqrt, dt, false, std::slice::from_ref(v)))
    }

    /// The root of a product as the product of the roots, where no factor is
    /// negative, selects, or may be infinite.
    fn sqrt_of_product(&mut self, dt: Dt, v: &Val) -> Option<Option<Val>> {
        let Some((k, s)) = self.coefs.square_root(v.coef) else { return Some(None) };
        let (args, _) = self.open(&v.r)?;
        for a in &args {
            let x = self.val_of(a);
            if self.selects(&a.r) || self.may_be_infinite(&a.r) || !self.is_nonnegative(&x, 8) {
                return Some(None);
            }
        }
        let s = self.constant(dt, s);
        let mut roots: SmallVec<[(Val, i32); 4]> = SmallVec::new();
        roots.push((self.sqrt(dt, &s)?, 1));
        for a in &args {
            let x = self.val_of(a);
            roots.push((self.sqrt(dt, &x)?, a.pow));
        }
        let w = self.prod(dt, &roots)?;
        Some(Some(self.scale(&w, k)?))
    }

    /// Natural logarithm.
    pub fn log(&mut self, dt: Dt, v: &Val) -> Option<Val> {
        let log = self.known.log;
        if self.rules.reals && self.rules.finite {
            // log(exp(a)^p * x) = p*a + log x, x > 0.
            let c = self.class(v.r.class);
            let is_exp = |s: &Store, r: &Ref| s.class(r.class).op == Op::Ew(s.known.exp);
            if is_exp(self, &v.r) && v.coef == Coef::ONE {
                let (a, _) = self.open(&v.r)?;
                return Some(self.val_of(&a[0]));
            }
            if c.op == Op::Prod && self.coefs.sign(v.coef) > 0 {
                let (args, _) = self.open(&v.r)?;
                if let Some(i) = args.iter().position(|a| is_exp(self, &a.r)) {
                    let others: Factors =
                        args.iter().enumerate().filter(|x| x.0 != i).map(|x| x.1.clone()).collect();
                    let x = self.product(dt, v.coef, others)?;
                    if self.is_positive(&x, 8) {
                        self.assume("log(exp(a) * x) = a + log x");
                        let (e, _) = self.open(&args[i].r)?;
                        let e = self.val_of(&e[0]);
                        let p = self.coefs.int(i64::from(args[i].pow));
                        let e = self.scale(&e, p)?;
                        let l = self.log(dt, &x)?;
                        return self.add(dt, &[e, l]);
                    }
                }
            }
        }
        if self.rules.reals && v.coef == Coef::ONE && self.class(v.r.class).op == Op::One {
            return Some(self.zero(dt));
        }
        Some(self.ew(log, dt, false, std::slice::from_ref(v)))
    }

    /// True if the value is positive wherever it is finite. Structural:
    /// exponentials, even powers times positives, sums and products and
    /// maxima of such. A sum of indicators times exponentials counts as
    /// positive only if no indicator is in it.
    pub fn is_positive(&mut self, v: &Val, depth: u32) -> bool {
        if depth == 0 || self.coefs.sign(v.coef) <= 0 {
            return false;
        }
        let c = self.class(v.r.class);
        let args: SmallVec<[Arg; 2]> = c.args.clone();
        match c.op {
            Op::One => true,
            Op::Ew(s) if s == self.known.exp => true,
            Op::Prod | Op::Sum | Op::Add => args.iter().all(|a| {
                let v = self.val_of(a);
                self.is_positive(&v, depth - 1)
            }),
            Op::Max | Op::MaxR => args.iter().any(|a| {
                let v = self.val_of(a);
                self.is_positive(&v, depth - 1)
            }),
            _ => false,
        }
    }

    /// True if the value is never negative (same reading as `is_positive`).
    pub fn is_nonnegative(&mut self, v: &Val, depth: u32) -> bool {
        if v.coef == Coef::ZERO || self.is_positive(v, depth) {
            return true;
        }
        if depth == 0 || self.coefs.sign(v.coef) < 0 {
            return false;
        }
        let c = self.class(v.r.class);
        let args: SmallVec<[Arg; 2]> = c.args.clone();
        match c.op {
            Op::Ew(s) if s == self.known.ind || s == self.known.b2f || s == self.known.sqrt => true,
            Op::Ew(s) if s == self.known.abs => true,
            Op::Prod | Op::Sum => args.iter().all(|a| {
                let v = self.val_of(a);
                a.pow % 2 == 0 || self.is_nonnegative(&v, depth - 1)
            }),
            Op::Add | Op::Pcs => args.iter().all(|a| {
                let v = self.val_of(a);
                self.is_nonnegative(&v, depth - 1)
            }),
            Op::Max | Op::MaxR => args.iter().any(|a| {
                let v = self.val_of(a);
                self.is_nonnegative(&v, depth - 1)
            }),
            _ => false,
        }
    }
}
