//! Evaluates terms by their definition, to test laws. Knows no law: it opens
//! nodes and computes in `f64`.

use crate::lin::{Ax, BOUND_SLOT, LinId, Lins, OWN_SLOT};
use crate::store::{ClassId, Op, Ref, Store, Val};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};

mod functions;

/// Input arrays by parameter id, row-major over the class's axes.
pub type Inputs = HashMap<u32, Vec<f64>, FxBuildHasher>;

/// Values of atoms or slots.
type Env = HashMap<Ax, i64, FxBuildHasher>;

/// What an operator does to its arguments; NaN: not known.
pub type Function = fn(&[f64]) -> f64;

/// Evaluates values of one store.
pub struct Evaluator<'a> {
    store: &'a Store,
    inputs: &'a Inputs,
    /// Meaning of operators by name; arguments to result.
    pub functions: HashMap<String, Function, FxBuildHasher>,
    /// Most steps (elements of reductions and reads) of all calls together.
    pub max_steps: u64,
    steps: Cell<u64>,
    memo: RefCell<HashMap<(ClassId, SmallVec<[i64; 4]>), Option<f64>, FxBuildHasher>>,
}

impl<'a> Evaluator<'a> {
    /// An evaluator that knows the operators of this crate and the elementwise
    /// operators of HLO, as functions of the reals and of wrapping integers.
    pub fn new(store: &'a Store, inputs: &'a Inputs) -> Self {
        let mut functions: HashMap<String, Function, FxBuildHasher> = HashMap::default();
        let table: [(&str, Function); 18] = [
            ("exponential", |a| a[0].exp()),
            ("log", |a| a[0].ln()),
            ("sqrt", |a| a[0].sqrt()),
            ("tanh", |a| a[0].tanh()),
            ("abs", |a| a[0].abs()),
            ("select", |a| if a[0] != 0.0 { a[1] } else { a[2] }),
            ("indicator", |a| a[0]),
            ("convert-pred", |a| a[0]),
            ("not", |a| 1.0 - a[0]),
            ("ge0", |a| f64::from(a[0] >= 0.0)),
            ("eq0", |a| f64::from(a[0] == 0.0)),
            ("add", |a| a[0] + a[1]),
            ("multiply", |a| a[0] * a[1]),
            ("divide", |a| a[0] / a[1]),
            ("convert-int", |a| a[0]),
            ("convert", |a| a[0]),
            ("zero-times", |a| 0.0 * a[0]),
            ("pred-eq", |a| f64::from(a[0] == a[1])),
        ];
        for (n, f) in table {
            functions.insert(n.to_owned(), f);
        }
        functions::floats(&mut functions);
        functions::ints(&mut functions);
        Evaluator {
            store,
            inputs,
            functions,
            max_steps: 1 << 40,
            steps: Cell::new(0),
            memo: RefCell::default(),
        }
    }

    /// Value at a point of the atoms; `None` if it reads out of range, an
    /// unknown operator or a special constant other than minus infinity.
    pub fn value(&self, v: &Val, axes: &[Ax], point: &[i64]) -> Option<f64> {
        let env: Env = axes.iter().copied().zip(point.iter().copied()).collect();
        if v.coef == crate::Coef::ZERO {
            return Some(0.0);
        }
        let x = self.scaled(v.coef, self.read(&v.r, &env)?);
        (!x.is_nan()).then_some(x)
    }

    fn scaled(&self, c: crate::Coef, x: f64) -> f64 {
        // A selecting zero: 0 * inf does not occur in a definition.
        if c == crate::Coef::ZERO { 0.0 } else { self.store.coefs.to_f64(c) * x }
    }

    fn lin(&self, l: LinId, env: &Env) -> Option<i64> {
        let f = self.store.lins.get(l);
        let mut v = f.c0;
        for &(c, a) in &f.terms {
            v += c * self.atom(a, env)?;
        }
        Some(v)
    }

    fn atom(&self, a: Ax, env: &Env) -> Option<i64> {
        if let Some(&v) = env.get(&a) {
            return Some(v);
        }
        if a < crate::lin::FIRST_ATOM {
            return None;
        }
        match &self.store.lins.atom(a).kind {
            crate::AtomKind::Table { axes, tab } => {
                let mut at = 0;
                for &x in axes {
                    at = at * self.store.lins.size(x) + self.atom(x, env)?;
                }
                tab.get(at as usize).copied()
            }
            _ => None,
        }
    }

    fn read(&self, r: &Ref, env: &Env) -> Option<f64> {
        let mut at: SmallVec<[i64; 4]> = SmallVec::with_capacity(r.m.len());
        for &l in &r.m {
            at.push(self.lin(l, env)?);
        }
        let key = (r.class, at);
        if let Some(&v) = self.memo.borrow().get(&key) {
            return v;
        }
        let v = self.class_at(r.class, &key.1);
        if self.steps.get() <= self.max_steps {
            self.memo.borrow_mut().insert(key, v);
        }
        v
    }

    /// Counts a step; `None` once there were too many.
    fn step(&self) -> Option<()> {
        self.steps.set(self.steps.get() + 1);
        (self.steps.get() <= self.max_steps).then_some(())
    }

    /// Value of a class at indices of its axes.
    fn class_at(&self, class: ClassId, at: &[i64]) -> Option<f64> {
        self.step()?;
        let c = self.store.class(class);
        // Pieces are 0 before the first and after the last.
        let anywhere = (c.op == Op::Pcs).then_some(c.nfree as usize);
        for (k, (i, n)) in at.iter().zip(&c.sizes).enumerate() {
            if *n != crate::UNBOUNDED && (*i < 0 || i >= n) && anywhere != Some(k) {
                return None;
            }
        }
        if let Some(f) = &c.forward {
            let mut inner = Env::default();
            for (i, &x) in at.iter().enumerate() {
                inner.insert(i as Ax, x);
            }
            return self.read(f, &inner);
        }
        let flat = || at.iter().zip(&c.sizes).fold(0i64, |k, (i, n)| k * n + i) as usize;
        match c.op {
            Op::One => return Some(1.0),
            Op::Iota => return Some(at[0] as f64),
            Op::Param(id) => return self.inputs.get(&id)?.get(flat()).copied(),
            Op::Arr(id) => {
                let a = &self.store.arrays[id as usize];
                return a.get(flat()).map(|&c| self.store.coefs.to_f64(c));
            }
            Op::Const(crate::arith::NEG_INF) => return Some(f64::NEG_INFINITY),
            Op::Const(crate::arith::NEG_ZERO) => return Some(-0.0),
            Op::Opq(s) if self.store.argmaxes.contains(&s) => return self.argmax_at(class, at),
            Op::Const(_) | Op::Opq(_) => return None,
            _ => {}
        }
        let nfree = c.nfree as usize;
        let mut inner = Env::default();
        for (i, &x) in at.iter().take(nfree).enumerate() {
            inner.insert(i as Ax, x);
        }
        for (i, &x) in at.iter().skip(nfree).enumerate() {
            inner.insert(OWN_SLOT + i as Ax, x);
        }
        if c.op == Op::Pcs {
            let mut p = *at.get(nfree)?;
            if p < 0 {
                return Some(0.0);
            }
            for (k, &n) in c.bound.iter().enumerate() {
                if p < n {
                    inner.insert(BOUND_SLOT + k as Ax, p);
                    let a = &c.args[k];
                    if a.coef == crate::Coef::ZERO {
                        return Some(0.0);
                    }
                    return Some(self.scaled(a.coef, self.read(&a.r, &inner)?));
                }
                p -= n;
            }
            return Some(0.0);
        }
        let total: i64 = c.bound.iter().product();
        let mut acc = match c.op {
            Op::Max | Op::MaxR => f64::NEG_INFINITY,
            Op::And | Op::AndR => 1.0,
            _ => 0.0,
        };
        if total == 0 {
            return Some(acc);
        }
        for k in 0..total {
            self.step()?;
            let mut r = k;
            for (i, &n) in c.bound.iter().enumerate().rev() {
                inner.insert(BOUND_SLOT + i as Ax, r % n);
                r /= n;
            }
            match c.op {
                Op::Add => {
                    for a in &c.args {
                        acc += self.scaled(a.coef, self.read(&a.r, &inner)?);
                    }
                }
                Op::Prod | Op::Sum => {
                    let mut p = 1.0;
                    // A false indicator selects zero whatever the rest is.
                    let bit = |a: &crate::Arg| self.store.is_indicator(&a.r);
                    let mut dead = false;
                    for a in c.args.iter().filter(|a| bit(a)) {
                        dead |= a.pow > 0 && self.read(&a.r, &inner)? == 0.0;
                    }
                    if dead {
                        p = 0.0;
                    } else {
                        for a in &c.args {
                            let x = self.scaled(a.coef, self.read(&a.r, &inner)?);
                            p *= x.powi(a.pow);
                        }
                    }
                    acc = if c.op == Op::Sum { acc + p } else { p };
                }
                Op::Max | Op::MaxR => {
                    for a in &c.args {
                        acc = acc.max(self.scaled(a.coef, self.read(&a.r, &inner)?));
                    }
                }
                Op::And | Op::AndR => {
                    for a in &c.args {
                        if a.coef == crate::Coef::ZERO || self.read(&a.r, &inner)? == 0.0 {
                            acc = 0.0;
                        }
                    }
                }
                Op::Ew(s) if self.store.sym_text(s) == "select" => {
                    // A branch that is not taken may read out of range.
                    let p = &c.args[0];
                    let p = p.coef != crate::Coef::ZERO && self.read(&p.r, &inner)? != 0.0;
                    let a = &c.args[if p { 1 } else { 2 }];
                    acc = if a.coef == crate::Coef::ZERO {
                        0.0
                    } else {
                        self.scaled(a.coef, self.read(&a.r, &inner)?)
                    };
                }
                Op::Ew(s) => {
                    let mut x = Vec::new();
                    for a in &c.args {
                        x.push(if a.coef == crate::Coef::ZERO {
                            0.0
                        } else {
                            self.scaled(a.coef, self.read(&a.r, &inner)?)
                        });
                    }
                    if x.iter().any(|v| v.is_nan()) {
                        return None;
                    }
                    let name = self.store.sym_text(s);
                    let from_int = self.store.class(c.args[0].r.class).dt == crate::Dt::INT;
                    let f = match name.strip_prefix("convert:") {
                        Some(d) if from_int => self.functions.get(&format!("wrap:{d}")),
                        _ if name.starts_with("operand-rounding:") => self.functions.get("convert"),
                        _ => self.functions.get(name),
                    };
                    acc = f?(&x);
                    if acc.is_nan() {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        Some(acc)
    }

    fn argmax_at(&self, class: ClassId, at: &[i64]) -> Option<f64> {
        let c = self.store.class(class);
        let mut inner: Env = at.iter().enumerate().map(|(i, &x)| (i as Ax, x)).collect();
        let (mut best, mut pos) = (f64::NAN, 0);
        for k in 0..*c.bound.first()? {
            self.step()?;
            inner.insert(BOUND_SLOT, k);
            let a = c.args.first()?;
            let x = self.scaled(a.coef, self.read(&a.r, &inner)?);
            if x.is_nan() {
                return None;
            }
            if best.is_nan() || x > best {
                (best, pos) = (x, k);
            }
        }
        Some(pos as f64)
    }

    /// True if an index form is a plain atom (helper for tests).
    pub fn is_plain(l: LinId) -> bool {
        Lins::as_plain(l).is_some()
    }
}
