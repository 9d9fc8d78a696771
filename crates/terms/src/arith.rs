//! Sums, products and exponentials in normal form.
//!
//! Laws (reals; each noted with its side condition where it is applied):
//! sums and products are flat and commutative, equal terms are combined, a
//! coefficient stands outside; a sum over bound axes has connected factors,
//! factors free of the bound axes stand outside, a sole nested sum is merged;
//! products of exponentials are one exponential.

use crate::coef::Coef;
use crate::lin::{Ax, LinId, Lins, Subst};
use crate::make::Build;
use crate::store::{Arg, Dt, Op, Ref, Store, Sym, Val};
use crate::tables::Untabled;
use smallvec::SmallVec;

/// Sums longer than this are not flattened into their user.
const MAX_FLAT: usize = 64;

/// Most terms over which a sum is distributed.
const MAX_SUMS_ADDED: usize = 8;

/// Most pieces that a sum is split into.
const MAX_RUNS_OUT: usize = 8;

/// Largest number of points over which a predicate on bound axes is decided.
const MAX_TRUTH: i64 = 4096;

type Factors = SmallVec<[Arg; 4]>;

impl Store {
    pub(crate) fn node(&mut self, op: Op, dt: Dt, commutative: bool, args: Factors) -> Val {
        let b = Build { op, dt, commutative, bound: &[], captured: false, own: &[] };
        let (r, coef) = self.make(&b, args);
        Val { coef, r, dt }
    }

    fn node_bound(
        &mut self,
        op: Op,
        dt: Dt,
        commutative: bool,
        args: Factors,
        bound: &[Ax],
    ) -> Val {
        let b = Build { op, dt, commutative, bound, captured: false, own: &[] };
        let (r, coef) = self.make(&b, args);
        Val { coef, r, dt }
    }

    /// A function applied pointwise, without laws.
    pub fn ew(&mut self, f: Sym, dt: Dt, commutative: bool, args: &[Val]) -> Val {
        if commutative {
            self.commutative.insert(f);
        }
        let args = args.iter().map(Self::arg).collect();
        self.node(Op::Ew(f), dt, commutative, args)
    }

    /// A function of whole arrays. `captured` are the atoms of the arguments
    /// that the function sees as a whole, in order; `own` the result axes
    /// (size, form at which the result is read).
    pub fn opaque(
        &mut self,
        f: Sym,
        dt: Dt,
        args: &[Val],
        captured: &[Ax],
        own: &[(i64, LinId)],
    ) -> Val {
        let args = args.iter().map(Self::arg).collect();
        let b =
            Build { op: Op::Opq(f), dt, commutative: false, bound: captured, captured: true, own };
        let (r, coef) = self.make(&b, args);
        Val { coef, r, dt }
    }

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
    fn leads_negative(&mut self, flat: &[Arg]) -> bool {
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

    fn push_term(
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
    fn combine_terms(&mut self, flat: &mut Factors) -> Option<()> {
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
    fn zero_times(&mut self, r: &Ref) -> Val {
        let dt = self.class(r.class).dt;
        if matches!(self.class(r.class).op, Op::Const(NEG_INF | NAN)) {
            return self.special(dt, NAN);
        }
        let s = self.sym("zero-times");
        self.ew(s, dt, false, &[Val { coef: Coef::ONE, r: r.clone(), dt }])
    }

    /// `e u + e v = e (u + v)` for an exponential `e` that several terms have
    /// as a factor. True if terms were put together.
    fn pull_exp(&mut self, dt: Dt, flat: &mut Factors) -> Option<bool> {
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

    fn add_exact(&mut self, dt: Dt, terms: &[Val]) -> Option<Val> {
        let mut acc = terms.first()?.clone();
        for t in &terms[1..] {
            acc = self.ew(self.known.add, dt, true, &[acc, t.clone()]);
        }
        Some(acc)
    }

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

    fn selects(&self, r: &Ref) -> bool {
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

    fn prod_exact(&mut self, dt: Dt, vals: &[(Val, i32)]) -> Option<Val> {
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
    fn flatten(&mut self, dt: Dt, coef: &mut Coef, f: Factors) -> Option<Factors> {
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
        Some(flat)
    }

    /// True of the constants infinity and NaN and of what is always one of
    /// them: to assume it finite would prove anything.
    pub fn is_not_finite(&self, r: &Ref) -> bool {
        self.class(r.class).never_finite
    }

    /// True of what may never be finite: it is not assumed to be.
    fn is_doubtful(&self, r: &Ref) -> bool {
        let c = self.class(r.class);
        c.never_finite || c.doubtful
    }

    pub(crate) fn is_indicator(&self, r: &Ref) -> bool {
        matches!(self.class(r.class).op, Op::Ew(s) if s == self.known.ind || s == self.known.b2f)
    }

    /// `sum over bound of v`. Bound atoms are consumed: they must be fresh to
    /// the caller's context or not used by it afterwards.
    pub fn sum(&mut self, dt: Dt, v: &Val, bound: &[Ax]) -> Option<Val> {
        if bound.is_empty() {
            return Some(v.clone());
        }
        if !self.rules.reals && dt != Dt::INT {
            let a = SmallVec::from_elem(Self::arg(v), 1);
            return self.opaque_sum(dt, a, bound);
        }
        let f = SmallVec::from_elem(Arg { coef: Coef::ONE, pow: 1, r: v.r.clone() }, 1);
        self.sum_prod(dt, v.coef, f, bound)
    }

    /// `sum over bound of a * b` (a dot product).
    pub fn dot(&mut self, dt: Dt, a: &Val, b: &Val, bound: &[Ax]) -> Option<Val> {
        if !self.rules.reals && dt != Dt::INT {
            let args = SmallVec::from_iter([Self::arg(a), Self::arg(b)]);
            return self.opaque_sum(dt, args, bound);
        }
        let p = self.multiply(dt, a, b)?;
        self.sum(dt, &p, bound)
    }

    /// Exact mode: a reduction whose order is part of its meaning. Bound axes
    /// are fused with each other (the order over the fused index is the
    /// same), never with anything else, and factors stay inside.
    pub(crate) fn opaque_sum(&mut self, dt: Dt, args: Factors, bound: &[Ax]) -> Option<Val> {
        Some(self.node_bound(Op::Sum, dt, true, args, bound))
    }

    /// `coef * sum over bound of prod factors`.
    pub(crate) fn sum_prod(
        &mut self,
        dt: Dt,
        mut coef: Coef,
        f: Factors,
        bound: &[Ax],
    ) -> Option<Val> {
        if bound.iter().any(|&b| self.lins.size(b) == 0) {
            return Some(if dt == Dt::INT { self.int(0) } else { self.zero(dt) });
        }
        let mut bound: SmallVec<[Ax; 4]> = SmallVec::from_slice(bound);
        let mut flat = self.flatten(dt, &mut coef, f)?;
        for round in 0..64 {
            if coef == Coef::ZERO {
                return Some(self.zero(dt));
            }
            // Bound axes that nothing reads count their size.
            let mut i = 0;
            while i < bound.len() {
                let b = bound[i];
                if flat.iter().any(|a| self.ref_mentions(&a.r, b)) {
                    i += 1;
                } else {
                    let n = self.lins.size(b);
                    let n = self.coefs.int(n);
                    coef = self.coefs.mul(coef, n)?;
                    bound.remove(i);
                }
            }
            if bound.is_empty() {
                return self.product(dt, coef, flat);
            }
            match self.untable(&flat, &bound)? {
                Untabled::Fine => {}
                Untabled::Reindex(map, b) => {
                    flat = self.subst_factors(dt, &flat, &map)?;
                    flat = self.flatten(dt, &mut coef, flat)?;
                    bound = b;
                    continue;
                }
                Untabled::Enumerate(b, n, rest) => {
                    let mut terms: SmallVec<[Val; 8]> = SmallVec::new();
                    for k in 0..n {
                        let mut map = Subst::new();
                        let c = self.lins.constant(k);
                        map.set(b, c);
                        let fresh = self.fresh_like(&rest, &mut map);
                        let f = self.subst_factors(dt, &flat, &map)?;
                        terms.push(self.sum_prod(dt, coef, f, &fresh)?);
                    }
                    return self.add(dt, &terms);
                }
            }
            if self.pull_common(dt, &mut coef, &mut flat, &bound)? {
                flat = self.flatten(dt, &mut coef, flat)?;
                continue;
            }
            if self.rules.finite && self.shift_exp(dt, &mut flat, &bound)? {
                // The bound axes are used up.
                return self.product(dt, coef, flat);
            }
            let (inside, outside): (Factors, Factors) =
                flat.into_iter().partition(|a| self.ref_mentions_any(&a.r, &bound));
            if !outside.is_empty() {
                let s = self.sum_prod(dt, Coef::ONE, inside, &bound)?;
                coef = self.coefs.mul(coef, s.coef)?;
                let mut f = outside;
                f.push(Arg { coef: Coef::ONE, pow: 1, r: s.r });
                return self.product(dt, coef, f);
            }
            flat = inside;
            if let Some(groups) = self.components(&flat, &bound) {
                let mut f: Factors = SmallVec::new();
                for (args, b) in groups {
                    let s = self.sum_prod(dt, Coef::ONE, args, &b)?;
                    coef = self.coefs.mul(coef, s.coef)?;
                    f.push(Arg { coef: Coef::ONE, pow: 1, r: s.r });
                }
                return self.product(dt, coef, f);
            }
            // A sole nested sum is merged.
            if flat.len() == 1 && flat[0].pow == 1 {
                let c = self.class(flat[0].r.class);
                if c.op == Op::Sum && c.dt == dt {
                    let (args, b) = self.open(&flat[0].r)?;
                    bound.extend(b);
                    flat = self.flatten(dt, &mut coef, args.into_iter().collect())?;
                    continue;
                }
            }
            if let Some(terms) = self.sums_added(dt, &flat)? {
                let mut out: SmallVec<[Val; 4]> = SmallVec::new();
                for t in terms {
                    let mut map = Subst::new();
                    let fresh = self.fresh_like(&bound, &mut map);
                    let k = self.coefs.mul(t.coef, coef)?;
                    let f = self.subst_factors(dt, &[Arg { coef: Coef::ONE, ..t }], &map)?;
                    out.push(self.sum_prod(dt, k, f, &fresh)?);
                }
                return self.add(dt, &out);
            }
            if self.rules.finite && flat.len() == 1 && flat[0].pow == 2 {
                if let Some(parts) = self.expand_square(dt, &flat[0], &bound)? {
                    let mut terms: SmallVec<[Val; 4]> = SmallVec::new();
                    for (k, f, b) in parts {
                        let k = self.coefs.mul(k, coef)?;
                        terms.push(self.sum_prod(dt, k, f, &b)?);
                    }
                    return self.add(dt, &terms);
                }
            }
            if flat.len() > 1 && self.use_guards(dt, &mut coef, &mut flat)? {
                flat = self.flatten(dt, &mut coef, flat)?;
                continue;
            }
            let odd = flat.len() > 1 && flat.iter().any(|a| self.is_doubtful(&a.r));
            if let Some(i) = self.free_pieces(&flat, &bound).filter(|_| !odd) {
                return self.sum_of_pieces(dt, coef, &flat, &bound, i);
            }
            if round < 60 {
                match self.decide_indicators(dt, &flat, &bound)? {
                    Decided::No => {}
                    Decided::Same(f, b) => {
                        flat = self.flatten(dt, &mut coef, f)?;
                        bound = b;
                        continue;
                    }
                    Decided::Pieces(ps) => {
                        let mut terms: SmallVec<[Val; 4]> = SmallVec::new();
                        for (f, b) in ps {
                            terms.push(self.sum_prod(dt, coef, f, &b)?);
                        }
                        return self.add(dt, &terms);
                    }
                }
            }
            let v = self.node_bound(Op::Sum, dt, true, flat, &bound);
            return self.scale(&v, coef);
        }
        None
    }

    /// The terms of a sole factor that is an addition of sums: partial sums
    /// added before their reduction are reduced one by one.
    fn sums_added(&mut self, dt: Dt, flat: &[Arg]) -> Option<Option<SmallVec<[Arg; 4]>>> {
        let [a] = flat else { return Some(None) };
        let c = self.class(a.r.class);
        let sums = a.pow == 1
            && c.op == Op::Add
            && c.dt == dt
            && c.args.len() <= MAX_SUMS_ADDED
            && c.args.iter().all(|x| self.class(x.r.class).op == Op::Sum);
        if !sums {
            return Some(None);
        }
        let (terms, _) = self.open(&a.r)?;
        Some(Some(terms))
    }

    /// The factor that is pieces along an axis that is free in the sum and
    /// that no other factor reads.
    fn free_pieces(&self, flat: &[Arg], bound: &[Ax]) -> Option<usize> {
        flat.iter().position(|a| {
            let c = self.class(a.r.class);
            let own = c.nfree as usize;
            if a.pow != 1 || c.op != Op::Pcs || c.args.len() > MAX_RUNS_OUT {
                return false;
            }
            let mut alone = true;
            self.lins.for_terms(a.r.m[own], |_, x| {
                alone &= !bound.contains(&x)
                    && a.r.m[..own].iter().all(|&l| !self.lins.mentions(l, x))
                    && flat.iter().all(|o| std::ptr::eq(o, a) || !self.ref_mentions(&o.r, x));
            });
            alone && !bound.iter().any(|&b| self.lins.mentions(a.r.m[own], b))
        })
    }

    /// A sum with a factor in pieces as pieces that are sums.
    fn sum_of_pieces(
        &mut self,
        dt: Dt,
        coef: Coef,
        flat: &[Arg],
        bound: &[Ax],
        i: usize,
    ) -> Option<Val> {
        let c = self.class(flat[i].r.class);
        let (lens, at) = (c.bound.clone(), flat[i].r.m[c.nfree as usize]);
        let (args, axes) = self.open(&flat[i].r)?;
        let mut runs = Vec::with_capacity(args.len());
        for (k, a) in args.iter().enumerate() {
            let mut map = Subst::new();
            let fresh = self.fresh_like(bound, &mut map);
            let mut f: Factors = flat.iter().cloned().collect();
            f[i] = Arg { coef: a.coef, pow: 1, r: a.r.clone() };
            let f = if a.coef == Coef::ZERO {
                Factors::new()
            } else {
                let mut g = self.subst_factors(dt, &f, &map)?;
                g[i].coef = self.coefs.mul(g[i].coef, a.coef)?;
                g
            };
            let val = if a.coef == Coef::ZERO {
                self.assume("0 * x = 0");
                self.zero(dt)
            } else {
                self.sum_prod(dt, coef, f, &fresh)?
            };
            runs.push(crate::pieces::Run { len: lens[k], val, axis: Some(axes[k]) });
        }
        self.pieces(dt, &runs, at)
    }

    /// `sum_b (m u + m v) F = sum_b m (u + v) F` for factors `m` that all
    /// terms of an addition share and that are free of the bound axes.
    fn pull_common(
        &mut self,
        dt: Dt,
        coef: &mut Coef,
        flat: &mut Factors,
        bound: &[Ax],
    ) -> Option<bool> {
        for i in 0..flat.len() {
            let c = self.class(flat[i].r.class);
            if flat[i].pow != 1 || c.op != Op::Add || c.dt != dt || c.args.len() > MAX_FLAT {
                continue;
            }
            let all_products = c.args.iter().all(|a| self.class(a.r.class).op == Op::Prod);
            if !all_products || !self.ref_mentions_any(&flat[i].r, bound) {
                continue;
            }
            let (terms, _) = self.open(&flat[i].r.clone())?;
            let mut split: SmallVec<[(Coef, Factors); 4]> = SmallVec::new();
            for t in &terms {
                if self.class(t.r.class).op != Op::Prod {
                    break;
                }
                let (f, _) = self.open(&t.r)?;
                split.push((t.coef, f));
            }
            if split.len() != terms.len() {
                continue;
            }
            let common: Factors = split[0]
                .1
                .iter()
                .filter(|x| {
                    x.coef == Coef::ONE
                        && !self.ref_mentions_any(&x.r, bound)
                        && split.iter().all(|s| s.1.contains(x))
                })
                .cloned()
                .collect();
            if common.is_empty() {
                continue;
            }
            let mut rest: SmallVec<[Val; 4]> = SmallVec::new();
            for (k, f) in split {
                let f = f.into_iter().filter(|x| !common.contains(x)).collect();
                rest.push(self.product(dt, k, f)?);
            }
            let s = self.add(dt, &rest)?;
            *coef = self.coefs.mul(*coef, s.coef)?;
            flat[i] = Arg { coef: Coef::ONE, pow: 1, r: s.r };
            flat.extend(common);
            return Some(true);
        }
        Some(false)
    }

    /// `sum_b (u + v)^2 = sum_b u^2 + 2 v sum_b u + n v^2` where `v` holds the
    /// terms of an addition that are free of all bound axes.
    fn expand_square(
        &mut self,
        dt: Dt,
        a: &Arg,
        bound: &[Ax],
    ) -> Option<Option<Vec<(Coef, Factors, SmallVec<[Ax; 4]>)>>> {
        let c = self.class(a.r.class);
        if c.op != Op::Add || c.dt != dt || c.args.len() > 64 {
            return Some(None);
        }
        let (terms, _) = self.open(&a.r)?;
        let (mut u, mut v): (Vec<Val>, Vec<Val>) = (Vec::new(), Vec::new());
        for t in &terms {
            let x = self.val_of(t);
            if self.ref_mentions_any(&x.r, bound) { u.push(x) } else { v.push(x) }
        }
        if u.is_empty() || v.is_empty() {
            return Some(None);
        }
        let (u, v) = (self.add(dt, &u)?, self.add(dt, &v)?);
        let two = self.coefs.int(2);
        let mut out = Vec::new();
        for (k, pu, pv) in [(Coef::ONE, 2, 0), (two, 1, 1), (Coef::ONE, 0, 2)] {
            let mut map = Subst::new();
            let fresh = self.fresh_like(bound, &mut map);
            let mut f: Factors = SmallVec::new();
            let mut k = k;
            for (x, p) in [(&u, pu), (&v, pv)] {
                if p > 0 {
                    let y = self.subst(x, &map)?;
                    let c = self.coefs.pow(y.coef, p)?;
                    k = self.coefs.mul(k, c)?;
                    f.push(Arg { coef: Coef::ONE, pow: p, r: y.r });
                }
            }
            out.push((k, f, fresh));
        }
        Some(Some(out))
    }

    /// Replaces atoms in factors; coefficients that come out stay on them.
    fn subst_factors(&mut self, dt: Dt, f: &[Arg], map: &Subst) -> Option<Factors> {
        let mut out: Factors = SmallVec::new();
        for a in f {
            let v = Val { coef: Coef::ONE, r: a.r.clone(), dt };
            let v = self.subst(&v, map)?;
            let k = self.coefs.pow(v.coef, a.pow)?;
            out.push(Arg { coef: k, pow: a.pow, r: v.r });
        }
        Some(out)
    }

    /// Fresh axes in place of `axes`, added to the replacement.
    pub(crate) fn fresh_like(&mut self, axes: &[Ax], map: &mut Subst) -> SmallVec<[Ax; 4]> {
        axes.iter()
            .map(|&a| {
                let n = self.lins.size(a);
                let x = self.lins.local(n);
                map.set(a, Lins::plain(x));
                x
            })
            .collect()
    }

    /// Softmax shift: `sum_b exp(u + v) F = exp(v) sum_b exp(u) F` for terms
    /// `v` free of all bound axes. Needs finite `v`.
    fn shift_exp(&mut self, dt: Dt, flat: &mut Factors, bound: &[Ax]) -> Option<bool> {
        let exp = self.known.exp;
        for i in 0..flat.len() {
            let a = &flat[i];
            if a.pow != 1 || self.class(a.r.class).op != Op::Ew(exp) {
                continue;
            }
            let arg = self.class(a.r.class).args[0].r.class;
            if self.class(arg).op != Op::Add || !self.ref_mentions_any(&a.r, bound) {
                continue;
            }
            let r = a.r.clone();
            let (args, _) = self.open(&r)?;
            if self.class(args[0].r.class).op != Op::Add {
                continue;
            }
            let k = args[0].coef;
            let (terms, _) = self.open(&args[0].r)?;
            let mut u: SmallVec<[Val; 4]> = SmallVec::new();
            let mut v: SmallVec<[Val; 4]> = SmallVec::new();
            for t in &terms {
                let t = Val { coef: self.coefs.mul(t.coef, k)?, ..self.val_of(t) };
                if self.ref_mentions_any(&t.r, bound) { u.push(t) } else { v.push(t) }
            }
            let odd = |t: &Val| self.is_doubtful(&t.r) || self.may_be_infinite(&t.r);
            if v.is_empty() || u.is_empty() || v.iter().any(odd) {
                continue;
            }
            self.assume("sum exp(x + c) = exp(c) * sum exp(x)");
            let (u, v) = (self.add(dt, &u)?, self.add(dt, &v)?);
            let (eu, ev) = (self.exp(dt, &u)?, self.exp(dt, &v)?);
            if eu.coef != Coef::ONE || ev.coef != Coef::ONE {
                continue;
            }
            flat[i] = Arg { coef: Coef::ONE, pow: 1, r: eu.r };
            // The bound-free part must not merge back: it is pulled out next.
            let (inside, mut outside): (Factors, Factors) =
                flat.drain(..).partition(|a| self.ref_mentions_any(&a.r, bound));
            outside.push(Arg { coef: Coef::ONE, pow: 1, r: ev.r });
            let s = self.sum_prod(dt, Coef::ONE, inside, bound)?;
            outside.push(Arg { coef: s.coef, pow: 1, r: s.r });
            *flat = outside;
            return Some(true);
        }
        Some(false)
    }

    /// Groups of factors that share no bound axis; `None` if there is one.
    fn components(
        &self,
        flat: &Factors,
        bound: &[Ax],
    ) -> Option<Vec<(Factors, SmallVec<[Ax; 4]>)>> {
        if flat.len() < 2 || bound.len() < 2 {
            return None;
        }
        let mut group: SmallVec<[usize; 8]> = (0..bound.len()).collect();
        for a in flat {
            let mut first: Option<usize> = None;
            for (i, &b) in bound.iter().enumerate() {
                if self.ref_mentions(&a.r, b) {
                    match first {
                        None => first = Some(group[i]),
                        Some(g) => {
                            let old = group[i];
                            for x in group.iter_mut().filter(|x| **x == old) {
                                *x = g;
                            }
                        }
                    }
                }
            }
        }
        let mut ids: SmallVec<[usize; 8]> = group.clone();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() < 2 {
            return None;
        }
        Some(
            ids.iter()
                .map(|&g| {
                    let b: SmallVec<[Ax; 4]> =
                        (0..bound.len()).filter(|&i| group[i] == g).map(|i| bound[i]).collect();
                    let f =
                        flat.iter().filter(|a| self.ref_mentions_any(&a.r, &b)).cloned().collect();
                    (f, b)
                })
                .collect(),
        )
    }

    /// Sums over a bound axis `b` with a guard `f + c*b >= 0` (or its
    /// negation), `f` free: the parts of the axis where the guard holds for
    /// certain, fails for certain (dropped: it selects 0), or neither.
    fn split_by_guard(&mut self, dt: Dt, flat: &Factors, bound: &[Ax]) -> Option<Decided> {
        for i in 0..flat.len() {
            if self.class(flat[i].r.class).op != Op::Ew(self.known.ind) || flat[i].pow != 1 {
                continue;
            }
            let (args, _) = self.open(&flat[i].r.clone())?;
            let mut p = self.val_of(&args[0]);
            let negated = self.class(p.r.class).op == Op::Ew(self.known.not);
            if negated {
                let (a, _) = self.open(&p.r)?;
                p = self.val_of(&a[0]);
            }
            if self.class(p.r.class).op != Op::Ew(self.known.ge0) || p.coef != Coef::ONE {
                continue;
            }
            let (a, _) = self.open(&p.r)?;
            let v = self.val_of(&a[0]);
            let Some(l) = self.as_iota(&v) else { continue };
            let form = self.lins.get(l);
            let mut inside = form.terms.iter().filter(|t| bound.contains(&t.1));
            let (Some(&(c, b)), None) = (inside.next(), inside.next()) else { continue };
            let tables = form.terms.iter().any(|t| {
                t.1 != b && bound.iter().any(|&x| self.lins.mentions(Lins::plain(t.1), x))
            });
            if tables {
                continue;
            }
            let n = self.lins.size(b);
            let f = self.lins.combine(&[(1, l), (-c, Lins::plain(b))])?;
            let (lo, hi) = self.lins.range(f);
            // First index from which on (c > 0), or below which (c < 0), the
            // form is not negative for certain, and at all.
            let edge = |f: i64| -> i64 {
                if c > 0 {
                    (-f).div_euclid(c) + i64::from((-f).rem_euclid(c) != 0)
                } else {
                    f.div_euclid(-c) + 1
                }
                .clamp(0, n)
            };
            let (sure, maybe) = (edge(lo), edge(hi));
            // (from, to, guard kept)
            let (holds, open, fails) = if c > 0 {
                ((sure, n), (maybe, sure), (0, maybe))
            } else {
                ((0, sure), (sure, maybe), (maybe, n))
            };
            let whole = if negated { fails } else { holds };
            if open == (0, n) {
                continue;
            }
            let mut out = Vec::new();
            for ((from, to), keep) in [(whole, false), (open, true)] {
                if from >= to {
                    continue;
                }
                let mut map = Subst::new();
                let rest: SmallVec<[Ax; 4]> = bound.iter().copied().filter(|&x| x != b).collect();
                let mut b2 = self.fresh_like(&rest, &mut map);
                if to - from == 1 {
                    let k = self.lins.constant(from);
                    map.set(b, k);
                } else {
                    let a = self.lins.local(to - from);
                    b2.push(a);
                    let k = self.lins.shift(Lins::plain(a), from);
                    map.set(b, k);
                }
                let f: Factors = flat
                    .iter()
                    .enumerate()
                    .filter(|x| keep || x.0 != i)
                    .map(|x| x.1.clone())
                    .collect();
                out.push((self.subst_factors(dt, &f, &map)?, b2));
            }
            return Some(Decided::Pieces(out));
        }
        Some(Decided::No)
    }

    /// Indicators that fix or restrict a bound axis.
    fn decide_indicators(&mut self, dt: Dt, flat: &Factors, bound: &[Ax]) -> Option<Decided> {
        if self.split_guards {
            let d = self.split_by_guard(dt, flat, bound)?;
            if !matches!(d, Decided::No) {
                return Some(d);
            }
        }
        for i in 0..flat.len() {
            if !self.is_indicator(&flat[i].r) || flat[i].pow != 1 {
                continue;
            }
            let selecting = self.class(flat[i].r.class).op == Op::Ew(self.known.ind);
            let r = flat[i].r.clone();
            let (args, _) = self.open(&r)?;
            let p = args[0].clone();
            let rest = || -> Factors {
                flat.iter().enumerate().filter(|x| x.0 != i).map(|x| x.1.clone()).collect()
            };
            // 0 * x for a converted predicate needs finite x.
            let others_finite = selecting || rest().iter().all(|a| self.is_indicator(&a.r));
            if !others_finite
                && (!self.rules.finite || rest().iter().any(|a| self.is_doubtful(&a.r)))
            {
                continue;
            }
            // [b == e]: the sum has the one term b := e.
            if self.class(p.r.class).op == Op::Ew(self.known.eq0) {
                let (ea, _) = self.open(&p.r)?;
                let v = self.val_of(&ea[0]);
                if let Some(l) = self.as_iota(&v) {
                    let form = self.lins.get(l);
                    let hit = form.terms.iter().find(|t| {
                        t.0.abs() == 1 && bound.contains(&t.1) && {
                            // Not inside a table elsewhere in the form.
                            form.terms
                                .iter()
                                .all(|u| u.1 == t.1 || !self.lins.mentions(Lins::plain(u.1), t.1))
                        }
                    });
                    if let Some(&(c, b)) = hit {
                        let e = self.lins.combine(&[(-c, l), (1, Lins::plain(b))])?;
                        let n = self.lins.size(b);
                        let mut map = Subst::new();
                        map.set(b, e);
                        let (lo, hi) = self.lins.range(e);
                        let inside = lo >= 0 && hi < n;
                        let mut out: Factors = SmallVec::new();
                        for a in rest() {
                            let v = Val { coef: Coef::ONE, r: a.r, dt };
                            // Outside its range the read is guarded below.
                            let v = self.subst(&v, &map)?;
                            let k = self.coefs.pow(v.coef, a.pow)?;
                            out.push(Arg { coef: k, pow: a.pow, r: v.r });
                        }
                        if !inside {
                            for l in [e, {
                                let n1 = self.lins.constant(n - 1);
                                self.lins.combine(&[(1, n1), (-1, e)])?
                            }] {
                                let v = self.iota(l);
                                let p = self.ge0(&v)?;
                                let g = self.indicator(dt, &p);
                                out.push(Arg { coef: g.coef, pow: 1, r: g.r });
                            }
                        }
                        if !others_finite {
                            self.assume("0 * x = 0");
                        }
                        let b2 = bound.iter().copied().filter(|&x| x != b).collect();
                        return Some(Decided::Same(out, b2));
                    }
                }
            }
            // [b == e] with e data: alone it sums to 1; over an addition with
            // a term free of b it distributes.
            if self.class(p.r.class).op == Op::Ew(self.known.eq0) {
                if let Some((b, inside, _)) = self.one_hot_axis(&p.r, bound)? {
                    let others = rest();
                    let reads_b = |s: &Store, a: &Arg| s.ref_mentions(&a.r, b);
                    let in_b: SmallVec<[usize; 4]> =
                        (0..others.len()).filter(|&k| reads_b(self, &others[k])).collect();
                    if in_b.is_empty() && inside {
                        let b2 = bound.iter().copied().filter(|&x| x != b).collect();
                        return Some(Decided::Same(others, b2));
                    }
                    if let [k] = in_b[..] {
                        let c = self.class(others[k].r.class);
                        if others[k].pow == 1 && c.op == Op::Add && c.args.len() <= 8 && c.dt == dt
                        {
                            let (terms, _) = self.open(&others[k].r)?;
                            if terms.iter().any(|t| !reads_b(self, t)) {
                                let mut out = Vec::new();
                                for t in &terms {
                                    let mut f: Factors = flat.iter().cloned().collect();
                                    let at = if k < i { k } else { k + 1 };
                                    f[at] = t.clone();
                                    let mut map = Subst::new();
                                    let fresh = self.fresh_like(bound, &mut map);
                                    let coefs: SmallVec<[Coef; 4]> =
                                        f.iter().map(|a| a.coef).collect();
                                    let mut f = self.subst_factors(dt, &f, &map)?;
                                    for (a, c) in f.iter_mut().zip(coefs) {
                                        a.coef = self.coefs.mul(a.coef, c)?;
                                    }
                                    out.push((f, fresh));
                                }
                                return Some(Decided::Pieces(out));
                            }
                        }
                    }
                }
            }
            // A predicate of one bound axis only: restrict its domain.
            let mut axes: SmallVec<[Ax; 3]> = SmallVec::new();
            for &l in &p.r.m {
                self.lins.base_axes(l, &mut axes);
            }
            if axes.len() != 1 || !bound.contains(&axes[0]) {
                continue;
            }
            let b = axes[0];
            let n = self.lins.size(b);
            if n > MAX_TRUTH {
                continue;
            }
            let mut truth = Vec::with_capacity(n as usize);
            for k in 0..n {
                let Some(t) = self.eval_bool(&p.r, &[b], &[k], 8) else {
                    truth.clear();
                    break;
                };
                truth.push(t);
            }
            if truth.is_empty() {
                continue;
            }
            let mut runs: Vec<(i64, i64)> = Vec::new();
            for (k, &t) in truth.iter().enumerate() {
                if t {
                    match runs.last_mut() {
                        Some(r) if r.1 == k as i64 => r.1 += 1,
                        _ => runs.push((k as i64, k as i64 + 1)),
                    }
                }
            }
            if runs.len() > 8 {
                continue;
            }
            if !others_finite && runs != [(0, n)] {
                self.assume("0 * x = 0");
            }
            let mut out = Vec::new();
            for (lo, hi) in runs {
                let mut map = Subst::new();
                let mut b2: SmallVec<[Ax; 4]> = bound.iter().copied().filter(|&x| x != b).collect();
                if hi - lo == 1 {
                    let c = self.lins.constant(lo);
                    map.set(b, c);
                } else {
                    let a = self.lins.local(hi - lo);
                    b2.push(a);
                    let l = self.lins.shift(Lins::plain(a), lo);
                    map.set(b, l);
                }
                let mut f: Factors = SmallVec::new();
                for a in rest() {
                    let v = Val { coef: Coef::ONE, r: a.r, dt };
                    let v = self.subst(&v, &map)?;
                    let k = self.coefs.pow(v.coef, a.pow)?;
                    f.push(Arg { coef: k, pow: a.pow, r: v.r });
                }
                out.push((f, b2));
            }
            return Some(match out.len() {
                1 => {
                    let (f, b) = out.pop()?;
                    Decided::Same(f, b)
                }
                _ => Decided::Pieces(out),
            });
        }
        Some(Decided::No)
    }

    /// For the predicate `x + c*b == 0` (c = 1 or -1, `x` free of the bound
    /// axis `b`): `b`, whether the solution lies in its range, the solution.
    pub(crate) fn one_hot_axis(
        &mut self,
        p: &Ref,
        bound: &[Ax],
    ) -> Option<Option<(Ax, bool, Val)>> {
        let (ea, _) = self.open(p)?;
        let e = self.val_of(&ea[0]);
        if self.class(e.r.class).op != Op::Add || e.coef != Coef::ONE {
            return Some(None);
        }
        let (terms, _) = self.open(&e.r)?;
        for t in &terms {
            if self.class(t.r.class).op != Op::Iota || t.coef != Coef::ONE {
                continue;
            }
            let form = self.lins.get(t.r.m[0]);
            for &(c, b) in &form.terms {
                if c.abs() != 1 || !bound.contains(&b) {
                    continue;
                }
                let elsewhere = terms.iter().any(|u| u.r != t.r && self.ref_mentions(&u.r, b))
                    || form
                        .terms
                        .iter()
                        .any(|u| u.1 != b && self.lins.mentions(Lins::plain(u.1), b));
                if elsewhere {
                    continue;
                }
                // b = -c * (e - c*b)
                let k = self.coefs.int(-c);
                let x = self.scale(&e, k)?;
                let b_val = self.iota(Lins::plain(b));
                let x = self.add(Dt::INT, &[x, b_val])?;
                let n = self.lins.size(b);
                let inside = self.int_range(&x).is_some_and(|r| r.0 >= 0 && r.1 < n);
                return Some(Some((b, inside, x)));
            }
        }
        Some(None)
    }

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
                // A mask that is added: m * [p] with m of at most -1e9.
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
    fn is_mask(&mut self, v: &Val) -> bool {
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
    fn is_exp(&self, r: &Ref) -> bool {
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
        Some(self.ew(self.known.sqrt, dt, false, std::slice::from_ref(v)))
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

/// Constants of at most this mask scores out.
pub(crate) const MASK_VALUE: f64 = -1e9;
/// The law for such constants.
pub const MASK: &str = "exp(m + x) = 0 for a mask value m of at most -1e9: every softmax row has a score that is not masked";

/// Id of the constant minus infinity, see [`Store::special`].
pub const NEG_INF: u32 = 0;
/// Id of the constant NaN.
pub const NAN: u32 = 1;
/// Id of minus zero, where it is kept apart from zero.
pub const NEG_ZERO: u32 = 2;
/// First id free for other special constants.
pub const FIRST_SPECIAL: u32 = 16;

enum Decided {
    No,
    Same(Factors, SmallVec<[Ax; 4]>),
    Pieces(Vec<(Factors, SmallVec<[Ax; 4]>)>),
}
