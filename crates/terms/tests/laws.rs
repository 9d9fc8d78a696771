//! Random expressions, built through the public builders and computed
//! directly: the term that the laws make of an expression has its value, so
//! have all variants and all substitutions. Directed tests for the edges of
//! side conditions follow; there, too, values come from arithmetic on the
//! inputs, not from the store.

use scalify_terms::eval::{Evaluator, Inputs};
use scalify_terms::pieces::Run;
use scalify_terms::special::Special;
use scalify_terms::{AtomKind, Ax, Coef, Dt, Lin, Lins, Rules, Store, Subst, Val};
use std::collections::HashMap;

const F: Dt = Dt(Dt::FIRST);
const ALL: Rules = Rules { reals: true, finite: true };
const REALS: Rules = Rules { reals: true, finite: false };
const EXACT: Rules = Rules { reals: false, finite: false };

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn between(&mut self, lo: i64, hi: i64) -> i64 {
        lo + self.below((hi - lo + 1) as usize) as i64
    }
}

/// Parameters: id, sizes. Floats 0 and 1, integers 2 (in `0..6`), 3 (in
/// `-3..=8`), booleans 4.
const SIZES: [&[i64]; 5] = [&[12], &[12, 12], &[12], &[12], &[12]];

/// An axis of an expression, by number.
type Axis = usize;

/// An index: constant, (coefficient, axis), and a table of an axis.
#[derive(Clone, Debug)]
struct Index {
    c0: i64,
    terms: Vec<(i64, Axis)>,
    table: Option<(Axis, Vec<i64>)>,
}

#[derive(Clone, Debug)]
enum Int {
    At(Index),
    Param(u32, Index),
    Add(Box<Int>, i64, Box<Int>),
    Max(Box<Int>, Box<Int>),
    Min(Box<Int>, Box<Int>),
    Select(Box<Bool>, Box<Int>, Box<Int>),
}

#[derive(Clone, Debug)]
enum Bool {
    Ge0(Int),
    Eq0(Int),
    Param(Index),
    And(Box<Bool>, Box<Bool>),
    Or(Box<Bool>, Box<Bool>),
    Not(Box<Bool>),
}

#[derive(Clone, Debug)]
enum Num {
    Const(i64, i64),
    One(Index),
    Two(Index, Index),
    /// `sum coef * x`.
    Add(Vec<((i64, i64), Num)>),
    Mul(Vec<Num>),
    /// `x / exp(y)`.
    Over(Box<Num>, Box<Num>),
    Square(Box<Num>),
    Exp(Box<Num>),
    /// `exp(p ? x : -inf)`.
    MaskedExp(Box<Bool>, Box<Num>),
    /// `log(exp(x) * exp(y))`.
    Log(Box<Num>, Box<Num>),
    Max(Vec<Num>),
    Select(Box<Bool>, Box<Num>, Box<Num>),
    Indicator(Box<Bool>),
    Convert(Box<Bool>),
    Sum(Axis, i64, Box<Num>),
    MaxOver(Axis, i64, Box<Num>),
    /// `sum_b [b == i] x(b)`.
    OneHot(Axis, i64, Int, Box<Num>),
    /// Pieces along the axis: run lengths and values over the run's axis.
    Pieces(Axis, Vec<(i64, Option<Axis>, Num)>),
}

/// Sizes of axes by number.
#[derive(Clone, Default)]
struct Scope {
    size: HashMap<Axis, i64>,
    /// Axes that may be read now.
    live: Vec<Axis>,
    device: Vec<Axis>,
    next: Axis,
}

impl Scope {
    fn axis(&mut self, n: i64) -> Axis {
        self.next += 1;
        self.size.insert(self.next, n);
        self.next
    }
}

/// An index with values in `0..12`.
fn index(r: &mut Rng, s: &Scope) -> Index {
    let mut i = Index { c0: 0, terms: Vec::new(), table: None };
    let (mut lo, mut hi) = (0, 0);
    for _ in 0..r.below(3) {
        let a = s.live[r.below(s.live.len())];
        let c = [1, 1, 2, 3, 4, -1][r.below(6)];
        let top = c * (s.size[&a] - 1);
        let (l, h) = (lo + top.min(0), hi + top.max(0));
        if h - l < 12 && i.terms.iter().all(|t| t.1 != a) {
            i.terms.push((c, a));
            (lo, hi) = (l, h);
        }
    }
    if !s.device.is_empty() && r.below(4) == 0 {
        let a = s.device[r.below(s.device.len())];
        let tab: Vec<i64> = (0..s.size[&a]).map(|_| r.between(0, 4)).collect();
        let (l, h) = (lo + tab.iter().min().unwrap(), hi + tab.iter().max().unwrap());
        if h - l < 12 {
            i.table = Some((a, tab));
            (lo, hi) = (l, h);
        }
    }
    i.c0 = r.between(-lo, 11 - hi);
    i
}

fn small(r: &mut Rng, s: &Scope) -> Int {
    let mut i = index(r, s);
    i.c0 -= r.between(0, 12);
    Int::At(i)
}

fn int(r: &mut Rng, s: &Scope, depth: u32) -> Int {
    match if depth == 0 { r.below(3) } else { r.below(8) } {
        0 | 1 => small(r, s),
        2 => Int::Param(2 + r.below(2) as u32, index(r, s)),
        3 | 4 => Int::Add(
            Box::new(int(r, s, depth - 1)),
            [1, -1, 2][r.below(3)],
            Box::new(int(r, s, depth - 1)),
        ),
        5 => Int::Max(Box::new(int(r, s, depth - 1)), Box::new(int(r, s, depth - 1))),
        6 => Int::Min(Box::new(int(r, s, depth - 1)), Box::new(int(r, s, depth - 1))),
        _ => Int::Select(
            Box::new(boolean(r, s, depth - 1)),
            Box::new(int(r, s, depth - 1)),
            Box::new(int(r, s, depth - 1)),
        ),
    }
}

fn boolean(r: &mut Rng, s: &Scope, depth: u32) -> Bool {
    match if depth == 0 { r.below(5) } else { r.below(9) } {
        0 => Bool::Ge0(small(r, s)),
        1 => Bool::Eq0(small(r, s)),
        2 => Bool::Ge0(int(r, s, depth)),
        3 => Bool::Eq0(int(r, s, depth)),
        4 => Bool::Param(index(r, s)),
        5 | 6 => Bool::And(Box::new(boolean(r, s, depth - 1)), Box::new(boolean(r, s, depth - 1))),
        7 => Bool::Or(Box::new(boolean(r, s, depth - 1)), Box::new(boolean(r, s, depth - 1))),
        _ => Bool::Not(Box::new(boolean(r, s, depth - 1))),
    }
}

/// A range check of an integer and a read at it, clamped by selection.
fn guarded(r: &mut Rng, s: &mut Scope, depth: u32) -> Num {
    let e = match r.below(3) {
        0 => small(r, s),
        1 => Int::Param(3, index(r, s)),
        _ => Int::Add(Box::new(Int::Param(3, index(r, s))), -1, Box::new(small(r, s))),
    };
    let n = r.between(2, 5);
    let at = |c0| Int::At(Index { c0, terms: vec![], table: None });
    let lo = Bool::Ge0(Int::Add(Box::new(e.clone()), 1, Box::new(at(0))));
    // Now and then off by one, then the guard must stay.
    let top = n - 1 + [0, 0, 0, 1, -1][r.below(5)];
    let hi = Bool::Ge0(Int::Add(Box::new(at(top)), -1, Box::new(e.clone())));
    let ok = Bool::And(Box::new(lo.clone()), Box::new(hi.clone()));
    let idx = match r.below(4) {
        0 => e.clone(),
        1 => Int::Select(Box::new(ok.clone()), Box::new(e.clone()), Box::new(at(0))),
        2 => Int::Max(Box::new(e.clone()), Box::new(at(0))),
        _ => {
            Int::Min(Box::new(at(n - 1)), Box::new(Int::Max(Box::new(e.clone()), Box::new(at(0)))))
        }
    };
    let b = s.axis(n);
    s.live.push(b);
    let body = num(r, s, depth.saturating_sub(1));
    s.live.pop();
    let read = Num::OneHot(b, n, idx, Box::new(body));
    match r.below(3) {
        0 => Num::Select(Box::new(ok), Box::new(read), Box::new(Num::Const(0, 1))),
        1 => Num::Mul(vec![Num::Indicator(Box::new(hi)), read, Num::Indicator(Box::new(lo))]),
        _ => read,
    }
}

fn num(r: &mut Rng, s: &mut Scope, depth: u32) -> Num {
    if depth == 0 {
        return match r.below(8) {
            0 => Num::Const(r.between(-3, 3), r.between(1, 4)),
            1..=4 => Num::One(index(r, s)),
            _ => Num::Two(index(r, s), index(r, s)),
        };
    }
    let d = depth - 1;
    match r.below(20) {
        0..=2 => Num::Add(
            (0..1 + r.below(3))
                .map(|_| ((r.between(-2, 2), r.between(1, 3)), num(r, s, d)))
                .collect(),
        ),
        3..=5 => Num::Mul((0..1 + r.below(3)).map(|_| num(r, s, d)).collect()),
        6 => Num::Over(Box::new(num(r, s, d)), Box::new(num(r, s, 0))),
        7 => Num::Square(Box::new(num(r, s, d))),
        8 => Num::Exp(Box::new(num(r, s, d.min(1)))),
        9 => Num::MaskedExp(Box::new(boolean(r, s, 1)), Box::new(num(r, s, d.min(1)))),
        10 => Num::Log(Box::new(num(r, s, d.min(1))), Box::new(num(r, s, 0))),
        11 => Num::Max((0..1 + r.below(3)).map(|_| num(r, s, d)).collect()),
        12 => Num::Select(
            Box::new(boolean(r, s, 1)),
            Box::new(num(r, s, d)),
            Box::new(if r.below(2) == 0 { Num::Const(0, 1) } else { num(r, s, d) }),
        ),
        13 => Num::Mul(vec![
            if r.below(2) == 0 {
                Num::Indicator(Box::new(boolean(r, s, 2)))
            } else {
                Num::Convert(Box::new(boolean(r, s, 2)))
            },
            num(r, s, d),
        ]),
        14..=16 => {
            let n = r.between(1, 4);
            let b = s.axis(n);
            s.live.push(b);
            let x = num(r, s, d);
            s.live.pop();
            if r.below(4) == 0 {
                Num::MaxOver(b, n, Box::new(x))
            } else {
                Num::Sum(b, n, Box::new(x))
            }
        }
        17 => guarded(r, s, d),
        18 => {
            // One array at several places: a progression, or nearly one.
            let k = r.between(2, 4);
            let i = index(r, &Scope { live: s.live[..1].to_vec(), ..s.clone() });
            let (start, step) = (r.between(0, 3), r.between(1, 2));
            let odd = r.below(3) == 0;
            Num::Add(
                (0..k)
                    .map(|t| {
                        let mut j = i.clone();
                        let off = if odd && t == k - 1 { t * step + 1 } else { t * step };
                        j.c0 = start + off;
                        j.terms.clear();
                        j.table = None;
                        ((1, 1), Num::Two(j, i.clone()))
                    })
                    .collect(),
            )
        }
        _ => {
            let a = s.live[r.below(s.live.len())];
            let mut left = s.size[&a];
            let mut runs = Vec::new();
            while left > 0 {
                let n = r.between(1, left);
                left -= n;
                let outer = s.live.clone();
                s.live.retain(|&x| x != a);
                if s.live.is_empty() {
                    s.live = outer.clone();
                }
                let q = (n > 1).then(|| s.axis(n));
                s.live.extend(q);
                // Reads that may or may not continue the run before.
                let x = if r.below(2) == 0 {
                    let c0 = r.between(0, 11 - n);
                    let terms = q.map(|q| (1, q)).into_iter().collect();
                    Num::One(Index { c0, terms, table: None })
                } else {
                    num(r, s, 0)
                };
                s.live = outer;
                runs.push((n, q, x));
            }
            if runs.iter().any(|x| mentions(&x.2, a)) {
                return num(r, s, 0);
            }
            Num::Pieces(a, runs)
        }
    }
}

fn mentions(x: &Num, a: Axis) -> bool {
    let at =
        |i: &Index| i.terms.iter().any(|t| t.1 == a) || i.table.as_ref().is_some_and(|t| t.0 == a);
    match x {
        Num::Const(..) => false,
        Num::One(i) => at(i),
        Num::Two(i, j) => at(i) || at(j),
        _ => true,
    }
}

// ---- direct computation

type Env = HashMap<Axis, i64>;

struct Data {
    arrays: Vec<Vec<f64>>,
}

fn data(r: &mut Rng) -> Data {
    let n = |k: usize| SIZES[k].iter().product::<i64>();
    let mut arrays: Vec<Vec<f64>> = Vec::new();
    for k in 0..5 {
        let v = (0..n(k))
            .map(|_| match k {
                2 => r.between(0, 5) as f64,
                3 => r.between(-3, 8) as f64,
                4 => r.below(2) as f64,
                _ => (r.between(-16, 16) as f64) / 16.0,
            })
            .collect();
        arrays.push(v);
    }
    Data { arrays }
}

impl Data {
    fn index(&self, i: &Index, e: &Env) -> i64 {
        let t = i.table.as_ref().map_or(0, |(a, tab)| tab[e[a] as usize]);
        i.c0 + t + i.terms.iter().map(|&(c, a)| c * e[&a]).sum::<i64>()
    }

    fn read(&self, k: usize, at: &[i64]) -> f64 {
        let mut flat = 0;
        for (i, n) in at.iter().zip(SIZES[k]) {
            assert!((0..*n).contains(i), "the generator stays in range");
            flat = flat * n + i;
        }
        self.arrays[k][flat as usize]
    }

    fn int(&self, x: &Int, e: &Env) -> i64 {
        match x {
            Int::At(i) => self.index(i, e),
            Int::Param(k, i) => self.read(*k as usize, &[self.index(i, e)]) as i64,
            Int::Add(a, k, b) => self.int(a, e) + k * self.int(b, e),
            Int::Max(a, b) => self.int(a, e).max(self.int(b, e)),
            Int::Min(a, b) => self.int(a, e).min(self.int(b, e)),
            Int::Select(p, a, b) => self.int(if self.bool(p, e) { a } else { b }, e),
        }
    }

    fn bool(&self, x: &Bool, e: &Env) -> bool {
        match x {
            Bool::Ge0(i) => self.int(i, e) >= 0,
            Bool::Eq0(i) => self.int(i, e) == 0,
            Bool::Param(i) => self.read(4, &[self.index(i, e)]) != 0.0,
            Bool::And(a, b) => self.bool(a, e) && self.bool(b, e),
            Bool::Or(a, b) => self.bool(a, e) || self.bool(b, e),
            Bool::Not(a) => !self.bool(a, e),
        }
    }

    fn num(&self, x: &Num, e: &Env) -> f64 {
        let bit = |b: bool| f64::from(b);
        match x {
            Num::Const(p, q) => *p as f64 / *q as f64,
            Num::One(i) => self.read(0, &[self.index(i, e)]),
            Num::Two(i, j) => self.read(1, &[self.index(i, e), self.index(j, e)]),
            Num::Add(t) => t.iter().map(|((p, q), x)| *p as f64 / *q as f64 * self.num(x, e)).sum(),
            Num::Mul(f) => f.iter().map(|x| self.num(x, e)).product(),
            Num::Over(a, b) => self.num(a, e) / self.num(b, e).exp(),
            Num::Square(a) => self.num(a, e).powi(2),
            Num::Exp(a) => self.num(a, e).exp(),
            Num::MaskedExp(p, a) => {
                if self.bool(p, e) {
                    self.num(a, e).exp()
                } else {
                    0.0
                }
            }
            Num::Log(a, b) => self.num(a, e) + self.num(b, e),
            Num::Max(v) => v.iter().map(|x| self.num(x, e)).fold(f64::NEG_INFINITY, f64::max),
            Num::Select(p, a, b) => self.num(if self.bool(p, e) { a } else { b }, e),
            Num::Indicator(p) | Num::Convert(p) => bit(self.bool(p, e)),
            Num::Sum(b, n, x) => self.over(*b, *n, x, e).sum(),
            Num::MaxOver(b, n, x) => self.over(*b, *n, x, e).fold(f64::NEG_INFINITY, f64::max),
            Num::OneHot(b, n, i, x) => {
                let i = self.int(i, e);
                if !(0..*n).contains(&i) {
                    return 0.0;
                }
                let mut e = e.clone();
                e.insert(*b, i);
                self.num(x, &e)
            }
            Num::Pieces(a, runs) => {
                let mut p = e[a];
                for (n, q, x) in runs {
                    if p < *n {
                        let mut e = e.clone();
                        e.extend(q.map(|q| (q, p)));
                        return self.num(x, &e);
                    }
                    p -= n;
                }
                unreachable!("runs cover the axis")
            }
        }
    }

    fn over<'a>(
        &'a self,
        b: Axis,
        n: i64,
        x: &'a Num,
        e: &'a Env,
    ) -> impl Iterator<Item = f64> + 'a {
        (0..n).map(move |k| {
            let mut e = e.clone();
            e.insert(b, k);
            self.num(x, &e)
        })
    }
}

// ---- through the builders

struct Build<'a> {
    st: &'a mut Store,
    atoms: HashMap<Axis, Ax>,
    size: HashMap<Axis, i64>,
}

impl Build<'_> {
    fn lin(&mut self, i: &Index) -> scalify_terms::LinId {
        let mut l = Lin::constant(i.c0);
        for &(c, a) in &i.terms {
            l.push(c, self.atoms[&a]);
        }
        let l = self.st.lins.make(l);
        match &i.table {
            Some((a, tab)) => {
                let n = self.size[a];
                let t = self.st.lins.from_table(&[self.atoms[a]], &[n], tab);
                self.st.lins.combine(&[(1, l), (1, t)]).unwrap()
            }
            None => l,
        }
    }

    fn param(&mut self, k: usize, dt: Dt, at: &[&Index]) -> Val {
        let m: Vec<_> = at.iter().map(|i| self.lin(i)).collect();
        self.st.param(k as u32, dt, SIZES[k], &m)
    }

    fn int(&mut self, x: &Int) -> Option<Val> {
        Some(match x {
            Int::At(i) => {
                let l = self.lin(i);
                self.st.iota(l)
            }
            Int::Param(k, i) => self.param(*k as usize, Dt::INT, &[i]),
            Int::Add(a, k, b) => {
                let (a, b) = (self.int(a)?, self.int(b)?);
                let k = self.st.coefs.int(*k);
                let b = self.st.scale(&b, k)?;
                self.st.add(Dt::INT, &[a, b])?
            }
            Int::Max(a, b) => {
                let v = [self.int(a)?, self.int(b)?];
                self.st.max(Dt::INT, &v)?
            }
            Int::Min(a, b) => {
                let v = [self.int(a)?, self.int(b)?];
                self.st.min(Dt::INT, &v)?
            }
            Int::Select(p, a, b) => {
                let (p, a, b) = (self.bool(p)?, self.int(a)?, self.int(b)?);
                self.st.select(Dt::INT, &p, &a, &b)?
            }
        })
    }

    fn bool(&mut self, x: &Bool) -> Option<Val> {
        Some(match x {
            Bool::Ge0(i) => {
                let v = self.int(i)?;
                self.st.ge0(&v)?
            }
            Bool::Eq0(i) => {
                let v = self.int(i)?;
                self.st.eq0(&v)?
            }
            Bool::Param(i) => self.param(4, Dt::BOOL, &[i]),
            Bool::And(a, b) => {
                let v = [self.bool(a)?, self.bool(b)?];
                self.st.and(&v)
            }
            Bool::Or(a, b) => {
                let v = [self.bool(a)?, self.bool(b)?];
                self.st.or(&v)
            }
            Bool::Not(a) => {
                let v = self.bool(a)?;
                self.st.not(&v)
            }
        })
    }

    fn ratio(&mut self, p: i64, q: i64) -> Coef {
        let (p, q) = (self.st.coefs.int(p), self.st.coefs.int(q));
        let q = self.st.coefs.inv(q).unwrap();
        self.st.coefs.mul(p, q).unwrap()
    }

    fn bind(&mut self, b: Axis, n: i64) -> Ax {
        let a = self.st.lins.local(n);
        self.atoms.insert(b, a);
        a
    }

    fn nums(&mut self, v: &[Num]) -> Option<Vec<Val>> {
        v.iter().map(|x| self.num(x)).collect()
    }

    fn num(&mut self, x: &Num) -> Option<Val> {
        Some(match x {
            Num::Const(p, q) => {
                let c = self.ratio(*p, *q);
                self.st.constant(F, c)
            }
            Num::One(i) => self.param(0, F, &[i]),
            Num::Two(i, j) => self.param(1, F, &[i, j]),
            Num::Add(t) => {
                let mut v = Vec::new();
                for ((p, q), x) in t {
                    let (c, x) = (self.ratio(*p, *q), self.num(x)?);
                    v.push(self.st.scale(&x, c)?);
                }
                self.st.add(F, &v)?
            }
            Num::Mul(f) => {
                let v: Vec<(Val, i32)> = self.nums(f)?.into_iter().map(|x| (x, 1)).collect();
                self.st.prod(F, &v)?
            }
            Num::Over(a, b) => {
                let (a, b) = (self.num(a)?, self.num(b)?);
                let b = self.st.exp(F, &b)?;
                self.st.prod(F, &[(a, 1), (b, -1)])?
            }
            Num::Square(a) => {
                let a = self.num(a)?;
                self.st.mul(F, &a, &a)?
            }
            Num::Exp(a) => {
                let a = self.num(a)?;
                self.st.exp(F, &a)?
            }
            Num::MaskedExp(p, a) => {
                let (p, a) = (self.bool(p)?, self.num(a)?);
                let inf = self.st.special(F, scalify_terms::arith::NEG_INF);
                let s = self.st.select(F, &p, &a, &inf)?;
                self.st.exp(F, &s)?
            }
            Num::Log(a, b) => {
                let (a, b) = (self.num(a)?, self.num(b)?);
                let (a, b) = (self.st.exp(F, &a)?, self.st.exp(F, &b)?);
                let p = self.st.mul(F, &a, &b)?;
                self.st.log(F, &p)?
            }
            Num::Max(v) => {
                let v = self.nums(v)?;
                self.st.max(F, &v)?
            }
            Num::Select(p, a, b) => {
                let (p, a, b) = (self.bool(p)?, self.num(a)?, self.num(b)?);
                self.st.select(F, &p, &a, &b)?
            }
            Num::Indicator(p) => {
                let p = self.bool(p)?;
                self.st.indicator(F, &p)
            }
            Num::Convert(p) => {
                let p = self.bool(p)?;
                self.st.convert_pred(F, &p)
            }
            Num::Sum(b, n, x) => {
                let a = self.bind(*b, *n);
                let x = self.num(x)?;
                self.st.sum(F, &x, &[a])?
            }
            Num::MaxOver(b, n, x) => {
                let a = self.bind(*b, *n);
                let x = self.num(x)?;
                self.st.max_over(F, &x, &[a])?
            }
            Num::OneHot(b, n, i, x) => {
                let i = self.int(i)?;
                let a = self.bind(*b, *n);
                let x = self.num(x)?;
                let mut l = Lin::constant(0);
                l.push(-1, a);
                let l = self.st.lins.make(l);
                let minus = self.st.iota(l);
                let d = self.st.add(Dt::INT, &[i, minus])?;
                let p = self.st.eq0(&d)?;
                let g = self.st.indicator(F, &p);
                let y = self.st.mul(F, &g, &x)?;
                self.st.sum(F, &y, &[a])?
            }
            Num::Pieces(a, runs) => {
                let at = Lins::plain(self.atoms[a]);
                let mut v = Vec::new();
                for (n, q, x) in runs {
                    let axis = q.map(|q| self.bind(q, *n));
                    v.push(Run { len: *n, val: self.num(x)?, axis });
                }
                self.st.pieces(F, &v, at)?
            }
        })
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-8 * (1.0 + a.abs().max(b.abs()))
}

fn inputs(d: &Data) -> Inputs {
    d.arrays.iter().enumerate().map(|(k, v)| (k as u32, v.clone())).collect()
}

/// All points of the free axes.
fn points(size: &[i64]) -> Vec<Vec<i64>> {
    let n: i64 = size.iter().product();
    (0..n)
        .map(|mut k| {
            let mut p = vec![0; size.len()];
            for i in (0..size.len()).rev() {
                p[i] = k % size[i];
                k /= size[i];
            }
            p
        })
        .collect()
}

/// Compares a term with direct values; how many points were evaluated.
fn agrees(
    st: &Store,
    d: &Data,
    v: &Val,
    axes: &[Ax],
    want: &[(Vec<i64>, f64)],
    what: &dyn Fn() -> String,
) -> usize {
    let ins = inputs(d);
    let ev = Evaluator::new(st, &ins);
    let mut n = 0;
    for (p, w) in want {
        let Some(got) = ev.value(v, axes, p) else { continue };
        n += 1;
        assert!(
            close(got, *w),
            "at {p:?} the term is {got}, not {w}\n{}\n{}",
            st.show(v, 6),
            what()
        );
    }
    n
}

fn random(rules: Rules, seeds: std::ops::Range<u64>, depth: u32) {
    let (mut seen, mut all) = (0, 0);
    for seed in seeds {
        let mut r = Rng(seed);
        let d = data(&mut r);
        let mut s = Scope::default();
        let free = [s.axis(r.between(2, 4)), s.axis(r.between(1, 3)), s.axis(r.between(2, 3))];
        s.live = free.to_vec();
        s.device = vec![free[2]];
        let x = num(&mut r, &mut s, depth);
        let mut st = Store::new(rules);
        st.set_param_range(2, 0, 5);
        st.set_param_range(3, -3, 8);
        let mut atoms = HashMap::new();
        let mut axes = Vec::new();
        for (k, a) in free.iter().enumerate() {
            let kind = if k == 2 { AtomKind::Device } else { AtomKind::Local };
            let y = st.lins.fresh(s.size[a], kind);
            atoms.insert(*a, y);
            axes.push(y);
        }
        let mut b = Build { st: &mut st, atoms, size: s.size.clone() };
        let Some(v) = b.num(&x) else { continue };
        let sizes: Vec<i64> = free.iter().map(|a| s.size[a]).collect();
        let env = |p: &[i64]| -> Env { free.iter().copied().zip(p.iter().copied()).collect() };
        let want: Vec<(Vec<i64>, f64)> =
            points(&sizes).into_iter().map(|p| (p.clone(), d.num(&x, &env(&p)))).collect();
        if want.iter().any(|w| !w.1.is_finite() || w.1.abs() > 1e12) {
            continue;
        }
        let what = || format!("seed {seed}, {rules:?}\n{x:?}");
        all += want.len();
        seen += agrees(&st, &d, &v, &axes, &want, &what);
        // Every variant is the same function.
        if rules.reals {
            let mut found = Vec::new();
            st.search_variants(&v, Default::default(), |_, w| {
                found.push(w.clone());
                false
            });
            for w in &found {
                agrees(&st, &d, w, &axes, &want, &|| format!("variant, {}", what()));
            }
        }
        // Rebuilt with everything pushed in.
        let narrow = |st: &mut Store, v: &Val| -> Vec<Val> {
            [Special::default(), Special::deep()]
                .iter_mut()
                .filter_map(|sp| st.specialise(v, sp))
                .collect()
        };
        for w in narrow(&mut st, &v) {
            agrees(&st, &d, &w, &axes, &want, &|| format!("narrowed, {}", what()));
        }
        // Substitution of an axis by a constant, and by a shifted part.
        let k = r.below(3);
        let c = r.between(0, sizes[k] - 1);
        let mut m = Subst::new();
        let l = st.lins.constant(c);
        m.set(axes[k], l);
        if let Some(w) = st.subst(&v, &m) {
            let at: Vec<_> = want.iter().filter(|x| x.0[k] == c).cloned().collect();
            agrees(&st, &d, &w, &axes, &at, &|| format!("axis {k} := {c}, {}", what()));
            for w in narrow(&mut st, &w) {
                agrees(&st, &d, &w, &axes, &at, &|| format!("narrow {k} := {c}, {}", what()));
            }
        }
        if sizes[k] > 2 {
            let n = sizes[k] - 1;
            let y = st.lins.local(n);
            let mut m = Subst::new();
            let l = st.lins.shift(Lins::plain(y), 1);
            m.set(axes[k], l);
            if let Some(w) = st.subst(&v, &m) {
                let mut axes = axes.clone();
                axes[k] = y;
                let at: Vec<_> = want
                    .iter()
                    .filter(|x| x.0[k] > 0)
                    .map(|x| {
                        let mut p = x.0.clone();
                        p[k] -= 1;
                        (p, x.1)
                    })
                    .collect();
                agrees(&st, &d, &w, &axes, &at, &|| format!("axis {k} shifted, {}", what()));
                for w in narrow(&mut st, &w) {
                    agrees(&st, &d, &w, &axes, &at, &|| format!("narrow {k} shifted, {}", what()));
                }
            }
        }
    }
    assert!(seen * 10 > all * 9, "only {seen} of {all} points can be evaluated");
}

#[test]
fn random_expressions_under_all_laws() {
    random(ALL, 0..4000, 2);
    random(ALL, 10_000..12_500, 3);
    random(ALL, 20_000..20_800, 4);
}

#[test]
fn random_expressions_over_the_reals() {
    random(REALS, 0..3000, 2);
    random(REALS, 30_000..31_500, 3);
}

#[test]
fn random_expressions_bitwise() {
    random(EXACT, 0..3000, 2);
    random(EXACT, 40_000..41_500, 3);
}

#[test]
fn random_integers_stay_in_their_ranges() {
    let (mut known, mut maxima) = (0, 0);
    for seed in 0..20_000 {
        let mut r = Rng(seed);
        let d = data(&mut r);
        let mut s = Scope::default();
        let free = [s.axis(r.between(2, 4)), s.axis(r.between(2, 3))];
        s.live = free.to_vec();
        let depth = 2 + r.below(3) as u32;
        let x = int(&mut r, &s, depth);
        let mut st = Store::new(EXACT);
        st.set_param_range(2, 0, 5);
        st.set_param_range(3, -3, 8);
        let mut atoms = HashMap::new();
        for a in free {
            atoms.insert(a, st.lins.fresh(s.size[&a], AtomKind::Local));
        }
        let mut b = Build { st: &mut st, atoms, size: s.size.clone() };
        let Some(v) = b.int(&x) else { continue };
        let Some((lo, hi)) = st.int_range(&v) else { continue };
        known += 1;
        maxima += usize::from(matches!(&x, Int::Add(a, _, b) if
            [a, b].iter().any(|y| matches!(***y, Int::Max(..) | Int::Min(..)))));
        let sizes: Vec<i64> = free.iter().map(|a| s.size[a]).collect();
        for p in points(&sizes) {
            let at: Env = free.iter().copied().zip(p).collect();
            let y = d.int(&x, &at);
            assert!((lo..=hi).contains(&y), "seed {seed}: {y} is not in {lo}..={hi}\n{x:?}");
        }
    }
    assert!(known > 10_000 && maxima > 1_000, "{known} ranges, {maxima} sums with a maximum");
}

// ---- edges of side conditions

/// A store with axes to write terms by hand.
struct T {
    st: Store,
}

impl T {
    fn new(rules: Rules) -> Self {
        T { st: Store::new(rules) }
    }

    fn axis(&mut self, n: i64) -> Ax {
        self.st.lins.local(n)
    }

    fn lin(&mut self, c0: i64, terms: &[(i64, Ax)]) -> scalify_terms::LinId {
        let mut l = Lin::constant(c0);
        for &(c, a) in terms {
            l.push(c, a);
        }
        self.st.lins.make(l)
    }

    fn iota(&mut self, c0: i64, terms: &[(i64, Ax)]) -> Val {
        let l = self.lin(c0, terms);
        self.st.iota(l)
    }

    /// Float parameter `id` of the sizes read at atoms.
    fn x(&mut self, id: u32, at: &[Ax]) -> Val {
        let sizes: Vec<i64> = at.iter().map(|&a| self.st.lins.size(a)).collect();
        let m: Vec<_> = at.iter().map(|&a| Lins::plain(a)).collect();
        self.st.param(id, F, &sizes, &m)
    }

    /// A float parameter with one axis of size `n`, read at `c0 + terms`.
    fn at(&mut self, id: u32, n: i64, c0: i64, terms: &[(i64, Ax)]) -> Val {
        let l = self.lin(c0, terms);
        self.st.param(id, F, &[n], &[l])
    }

    fn add(&mut self, v: &[Val]) -> Val {
        self.st.add(F, v).unwrap()
    }

    fn mul(&mut self, v: &[Val]) -> Val {
        let f: Vec<(Val, i32)> = v.iter().map(|x| (x.clone(), 1)).collect();
        self.st.prod(F, &f).unwrap()
    }

    fn sum(&mut self, v: &Val, b: &[Ax]) -> Val {
        self.st.sum(F, v, b).unwrap()
    }

    fn neg(&mut self, v: &Val) -> Val {
        self.st.scale(v, Coef::NEG).unwrap()
    }

    fn one(&mut self) -> Val {
        self.st.one(F)
    }

    /// `[b == e]`.
    fn hit(&mut self, b: Ax, e: &Val) -> Val {
        let m = self.iota(0, &[(-1, b)]);
        let d = self.st.add(Dt::INT, &[e.clone(), m]).unwrap();
        let p = self.st.eq0(&d).unwrap();
        self.st.indicator(F, &p)
    }

    /// `[v >= 0]`.
    fn ge(&mut self, v: &Val) -> Val {
        let p = self.st.ge0(v).unwrap();
        self.st.indicator(F, &p)
    }
}

#[test]
fn float_sums_keep_their_grouping_bitwise() {
    for (rules, same) in [(EXACT, false), (REALS, true)] {
        let mut t = T::new(rules);
        let (a, b, c) = (t.x(0, &[]), t.x(1, &[]), t.x(2, &[]));
        let ab = t.add(&[a.clone(), b.clone()]);
        let ba = t.add(&[b.clone(), a.clone()]);
        assert_eq!(ab, ba, "a single addition commutes");
        let l = t.add(&[ab, c.clone()]);
        let bc = t.add(&[b, c]);
        let r = t.add(&[a, bc]);
        assert_eq!(l == r, same, "{rules:?}");
        // A sum over two axes, over their product, and one after the other.
        let (i, j, k) = (t.axis(2), t.axis(3), t.axis(6));
        let x = t.at(3, 6, 0, &[(3, i), (1, j)]);
        let y = t.at(3, 6, 0, &[(1, k)]);
        let both = t.sum(&x, &[i, j]);
        assert_eq!(both, t.sum(&y, &[k]), "the same elements in one sum");
        let (i, j) = (t.axis(2), t.axis(3));
        let x = t.at(3, 6, 0, &[(3, i), (1, j)]);
        let inner = t.sum(&x, &[j]);
        assert_eq!(t.sum(&inner, &[i]) == both, same, "{rules:?}");
    }
}

#[test]
fn sums_count_axes_that_nothing_reads() {
    for rules in [EXACT, REALS, ALL] {
        let mut t = T::new(rules);
        let x = t.x(0, &[]);
        let sums: Vec<Val> = [0, 1, 4, 8]
            .iter()
            .map(|&n| {
                let b = t.axis(n);
                t.sum(&x, &[b])
            })
            .collect();
        for i in 0..4 {
            for j in 0..i {
                assert_ne!(sums[i], sums[j], "{rules:?}");
            }
        }
        let ins: Inputs = [(0, vec![2.5])].into_iter().collect();
        let ev = Evaluator::new(&t.st, &ins);
        for (v, n) in sums.iter().zip([0.0, 1.0, 4.0, 8.0]) {
            assert_eq!(ev.value(v, &[], &[]), Some(2.5 * n), "{rules:?}");
        }
    }
}

#[test]
fn maxima_and_conjunctions_over_nothing() {
    let mut t = T::new(ALL);
    let (x, b) = (t.x(0, &[]), t.axis(0));
    let m = t.st.max_over(F, &x, &[b]).unwrap();
    assert_ne!(m, x);
    assert_eq!(m, t.st.special(F, scalify_terms::arith::NEG_INF));
    let p = t.st.param(1, Dt::BOOL, &[], &[]);
    assert_eq!(t.st.and_over(&p, &[b]), Some(t.st.bool(true)));
    // Over four copies both are the value itself.
    let b = t.axis(4);
    assert_eq!(t.st.max_over(F, &x, &[b]), Some(x));
    assert_eq!(t.st.and_over(&p, &[b]), Some(p));
}

#[test]
fn one_hot_sums_to_one_only_inside() {
    let mut t = T::new(ALL);
    let i = t.axis(4);
    for (c0, one) in [(0, true), (1, false), (-1, false)] {
        let b = t.axis(4);
        let e = t.iota(c0, &[(1, i)]);
        let h = t.hit(b, &e);
        let s = t.sum(&h, &[b]);
        assert_eq!(s == t.one(), one, "index {c0} + i");
        let ins = Inputs::default();
        let ev = Evaluator::new(&t.st, &ins);
        for k in 0..4 {
            let want = f64::from((0..4).contains(&(k + c0)));
            assert_eq!(ev.value(&s, &[i], &[k]), Some(want), "{c0} + {k}");
        }
    }
    // An index that is data counts as inside only with a declared range.
    for (range, one) in [(None, false), (Some((0, 3)), true), (Some((0, 4)), false)] {
        let mut t = T::new(ALL);
        if let Some((lo, hi)) = range {
            t.st.set_param_range(7, lo, hi);
        }
        let b = t.axis(4);
        let e = t.st.param(7, Dt::INT, &[], &[]);
        let h = t.hit(b, &e);
        assert_eq!(t.sum(&h, &[b]) == t.one(), one, "{range:?}");
    }
}

#[test]
fn guards_go_only_where_the_read_implies_them() {
    for (top, dropped) in [(3, true), (4, true), (2, false)] {
        let mut t = T::new(ALL);
        let e = t.st.param(7, Dt::INT, &[], &[]);
        let b = t.axis(4);
        let h = t.hit(b, &e);
        let x = t.x(0, &[b]);
        let hx = t.mul(&[h, x]);
        let read = t.sum(&hx, &[b]);
        let minus = t.st.scale(&e, Coef::NEG).unwrap();
        let c = t.st.int(top);
        let d = t.st.add(Dt::INT, &[c, minus]).unwrap();
        let g = t.ge(&d);
        let v = t.mul(&[g, read.clone()]);
        assert_eq!(v == read, dropped, "[e <= {top}] before a read of 0..4");
    }
}

#[test]
fn a_tie_under_guards_keeps_one_argument() {
    // [y >= w][w >= y] * sum_b [b == max(x, y, w)] F(b), on all small inputs.
    let mut t = T::new(ALL);
    let v: Vec<Val> = (0..3).map(|k| t.st.param(10 + k, Dt::INT, &[], &[])).collect();
    let diff = |t: &mut T, a: &Val, b: &Val| {
        let n = t.st.scale(b, Coef::NEG).unwrap();
        t.st.add(Dt::INT, &[a.clone(), n]).unwrap()
    };
    let (d, e) = (diff(&mut t, &v[1], &v[2]), diff(&mut t, &v[2], &v[1]));
    let (g, h) = (t.ge(&d), t.ge(&e));
    let m = t.st.max(Dt::INT, &v).unwrap();
    let b = t.axis(4);
    let hit = t.hit(b, &m);
    let x = t.x(0, &[b]);
    let hx = t.mul(&[hit, x]);
    let read = t.sum(&hx, &[b]);
    let r = t.mul(&[g, h, read]);
    let table = [1.0, 10.0, 100.0, 1000.0];
    for p in points(&[4, 4, 4]) {
        let mut ins: Inputs = [(0, table.to_vec())].into_iter().collect();
        for k in 0..3 {
            ins.insert(10 + k, vec![p[k as usize] as f64]);
        }
        let want =
            if p[1] == p[2] { table[p.iter().copied().max().unwrap() as usize] } else { 0.0 };
        assert_eq!(Evaluator::new(&t.st, &ins).value(&r, &[], &[]), Some(want), "{p:?}");
    }
}

#[test]
fn progressions_merge_and_others_do_not() {
    for (at, merges) in
        [(vec![0, 1], true), (vec![2, 1], true), (vec![0, 2], true), (vec![1, 1], false)]
    {
        let mut t = T::new(ALL);
        let v: Vec<Val> = at.iter().map(|&k| t.at(0, 6, k, &[])).collect();
        let s = t.add(&v);
        let (lo, g) = (*at.iter().min().unwrap(), (at[1] - at[0]).abs());
        let z = t.axis(2);
        let x = t.at(0, 6, lo, &[(g.max(1), z)]);
        assert_eq!(s == t.sum(&x, &[z]), merges, "{at:?}");
    }
    // Terms at tables of the device: a permutation on every device, or not.
    for (tabs, merges) in [
        ([[0, 1, 2], [1, 2, 0], [2, 0, 1]], true),
        ([[0, 1, 2], [2, 2, 0], [2, 0, 1]], false),
        ([[0, 1, 2], [1, 2, 0], [1, 2, 0]], false),
    ] {
        let mut t = T::new(ALL);
        let d = t.st.lins.fresh(3, AtomKind::Device);
        let v: Vec<Val> = tabs
            .iter()
            .map(|tab| {
                let l = t.st.lins.from_table(&[d], &[3], tab);
                t.st.param(0, F, &[3], &[l])
            })
            .collect();
        let s = t.add(&v);
        let z = t.axis(3);
        let x = t.x(0, &[z]);
        assert_eq!(s == t.sum(&x, &[z]), merges, "{tabs:?}");
        let table = [1.0, 10.0, 100.0];
        let ins: Inputs = [(0, table.to_vec())].into_iter().collect();
        for k in 0..3 {
            let want: f64 = tabs.iter().map(|tab| table[tab[k] as usize]).sum();
            let got = Evaluator::new(&t.st, &ins).value(&s, &[d], &[k as i64]);
            assert_eq!(got, Some(want), "{tabs:?}");
        }
    }
}

#[test]
fn predicates_of_a_bound_axis_restrict_it() {
    for (rules, converted, same) in [(REALS, false, true), (REALS, true, false), (ALL, true, true)]
    {
        let mut t = T::new(rules);
        let (b, c) = (t.axis(5), t.axis(2));
        let v = t.iota(1, &[(-1, b)]);
        let p = t.st.ge0(&v).unwrap();
        let g = if converted { t.st.convert_pred(F, &p) } else { t.st.indicator(F, &p) };
        let x = t.x(0, &[b]);
        let gx = t.mul(&[g, x]);
        let s = t.sum(&gx, &[b]);
        let y = t.at(0, 5, 0, &[(1, c)]);
        // A number 0 times a value needs that to be finite.
        assert_eq!(s == t.sum(&y, &[c]), same, "{rules:?}, converted {converted}");
        let d = t.axis(3);
        let y = t.at(0, 5, 0, &[(1, d)]);
        assert_ne!(s, t.sum(&y, &[d]));
    }
}

#[test]
fn shifts_squares_and_logarithms_need_finite_values() {
    for (rules, same) in [(REALS, false), (ALL, true)] {
        let mut t = T::new(rules);
        let (b, i) = (t.axis(4), t.axis(3));
        let (x, v) = (t.x(0, &[i, b]), t.x(1, &[i]));
        let e = t.add(&[x.clone(), v.clone()]);
        let e = t.st.exp(F, &e).unwrap();
        let l = t.sum(&e, &[b]);
        let (ex, ev) = (t.st.exp(F, &x).unwrap(), t.st.exp(F, &v).unwrap());
        let s = t.sum(&ex, &[b]);
        assert_eq!(l == t.mul(&[ev, s]), same, "softmax shift, {rules:?}");
        assert_eq!(t.st.log.is_empty(), !same, "its use is logged");
        // (x - v)^2 with v free of b.
        let b = t.axis(4);
        let x = t.x(0, &[i, b]);
        let n = t.neg(&v);
        let d = t.add(&[x.clone(), n]);
        let d2 = t.mul(&[d.clone(), d]);
        let l = t.sum(&d2, &[b]);
        let b = t.axis(4);
        let x = t.x(0, &[i, b]);
        let xx = t.mul(&[x.clone(), x.clone()]);
        let (q, s) = (t.sum(&xx, &[b]), t.sum(&x, &[b]));
        let (vs, vv) = (t.mul(&[v.clone(), s]), t.mul(&[v.clone(), v.clone()]));
        let (m2, four) = (t.st.coefs.int(-2), t.st.coefs.int(4));
        let (vs, vv) = (t.st.scale(&vs, m2).unwrap(), t.st.scale(&vv, four).unwrap());
        assert_eq!(l == t.add(&[q, vs, vv]), same, "square, {rules:?}");
        let lx = t.st.log(F, &v).unwrap();
        assert_eq!(t.st.exp(F, &lx).unwrap() == v, same, "exp log, {rules:?}");
    }
    // A shift that depends on the bound axis stays.
    let mut t = T::new(ALL);
    let b = t.axis(4);
    let (x, v) = (t.x(0, &[b]), t.x(1, &[b]));
    let e = t.add(&[x.clone(), v.clone()]);
    let e = t.st.exp(F, &e).unwrap();
    let l = t.sum(&e, &[b]);
    let ex = t.st.exp(F, &x).unwrap();
    let s = t.sum(&ex, &[b]);
    let ev = t.st.exp(F, &v).unwrap();
    assert_ne!(l, t.mul(&[ev, s]));
    // log(exp(a) * x) splits only where x is positive by its form.
    let mut t = T::new(ALL);
    let (a, y) = (t.x(0, &[]), t.x(1, &[]));
    let ea = t.st.exp(F, &a).unwrap();
    let p = t.mul(&[ea.clone(), y.clone()]);
    let l = t.st.log(F, &p).unwrap();
    let ly = t.st.log(F, &y).unwrap();
    assert_ne!(l, t.add(&[a.clone(), ly]), "y may be negative");
    let two = t.st.coefs.int(2);
    let b = t.axis(3);
    let z = t.x(2, &[b]);
    let ez = t.st.exp(F, &z).unwrap();
    let pos = t.sum(&ez, &[b]);
    let pos = t.st.scale(&pos, two).unwrap();
    let p = t.mul(&[ea, pos.clone()]);
    let l = t.st.log(F, &p).unwrap();
    let lp = t.st.log(F, &pos).unwrap();
    assert_eq!(l, t.add(&[a, lp]));
}

#[test]
fn pieces_fuse_only_where_they_continue() {
    // Runs (start, length) of one array; the single read they are, if any.
    for (runs, whole) in [
        (vec![(0, 1), (1, 3)], Some((0, 1, 4))),
        (vec![(0, 2), (2, 2)], Some((0, 1, 4))),
        (vec![(3, 1), (4, 1)], Some((3, 1, 2))),
        (vec![(3, 1), (3, 1)], Some((3, 0, 2))),
        (vec![(0, 1), (2, 3)], None),
        (vec![(0, 2), (3, 2)], None),
        (vec![(3, 1), (5, 1)], None),
        (vec![(4, 1), (3, 1)], None),
        (vec![(1, 2), (2, 1)], None),
    ] {
        let mut t = T::new(EXACT);
        let total: i64 = runs.iter().map(|r| r.1).sum();
        let mut v = Vec::new();
        for &(start, len) in &runs {
            let q = (len > 1).then(|| t.axis(len));
            let terms: Vec<_> = q.map(|q| (1, q)).into_iter().collect();
            v.push(Run { len, val: t.at(0, 8, start, &terms), axis: q });
        }
        let j = t.axis(total);
        let p = t.st.pieces(F, &v, Lins::plain(j)).unwrap();
        let array: Vec<f64> = (0..8).map(|k| k as f64).collect();
        let ins: Inputs = [(0, array)].into_iter().collect();
        let want: Vec<i64> = runs.iter().flat_map(|r| r.0..r.0 + r.1).collect();
        for k in 0..total {
            let got = Evaluator::new(&t.st, &ins).value(&p, &[j], &[k]);
            assert_eq!(got, Some(want[k as usize] as f64), "{runs:?}");
        }
        for (start, step) in [(0, 1), (3, 1), (3, 0), (1, 1)] {
            let fits = start + step * (total - 1) < 8;
            if fits {
                let w = t.at(0, 8, start, &[(step, j)]);
                assert_eq!(p == w, whole == Some((start, step, total)), "{runs:?}, {start}");
            }
        }
    }
}

#[test]
fn symmetric_classes() {
    let mut t = T::new(ALL);
    let (i, j) = (t.axis(4), t.axis(4));
    // sum_k X[i,k] X[j,k] is symmetric, sum_k X[i,k] X[k,j] is not.
    let dot = |t: &mut T, i: Ax, j: Ax, gram: bool| {
        let k = t.axis(4);
        let a = t.x(0, &[i, k]);
        let b = if gram { t.x(0, &[j, k]) } else { t.x(0, &[k, j]) };
        let p = t.mul(&[a, b]);
        t.sum(&p, &[k])
    };
    let (ij, ji) = (dot(&mut t, i, j, true), dot(&mut t, j, i, true));
    assert_eq!(ij, ji);
    let (p, q) = (dot(&mut t, i, j, false), dot(&mut t, j, i, false));
    assert_ne!(p, q);
    assert_ne!(p.r.class, ij.r.class);
    // A function of the symmetric class inherits the symmetry, a product with
    // an array that has none does not.
    assert_eq!(t.st.exp(F, &ij), t.st.exp(F, &ji));
    let y = t.x(1, &[i, j]);
    let yt = t.x(1, &[j, i]);
    let (l, r) = (t.mul(&[ij.clone(), y]), t.mul(&[ij, yt]));
    assert_ne!(l, r);
    assert_eq!(l.r.class, r.r.class, "the same class, read the other way");
}

#[test]
fn zero_and_infinity() {
    let mut t = T::new(ALL);
    let inf = t.st.special(F, scalify_terms::arith::NEG_INF);
    let nan = t.st.special(F, scalify_terms::arith::NAN);
    let minus = t.neg(&inf);
    let d = t.add(&[inf.clone(), minus]);
    assert_eq!(d, nan, "inf - inf");
    let zero = t.st.zero(F);
    assert_eq!(t.mul(&[zero.clone(), inf.clone()]), nan, "0 * inf");
    assert_ne!(t.st.prod(F, &[(inf.clone(), 1), (inf, -1)]), Some(t.one()), "inf / inf");
    let x = t.x(0, &[]);
    assert_eq!(t.mul(&[zero, x.clone()]), t.st.zero(F));
    assert_eq!(t.st.prod(F, &[(x.clone(), 1), (x, -1)]), Some(t.one()));
    assert!(t.st.log.iter().any(|u| u.law == "x / x = 1"), "its use is logged");
    // An indicator is 0 somewhere.
    let mut t = T::new(REALS);
    let p = t.st.param(1, Dt::BOOL, &[], &[]);
    for g in [t.st.indicator(F, &p), t.st.convert_pred(F, &p)] {
        assert_eq!(t.mul(&[g.clone(), g.clone()]), g, "its square is itself");
        assert_ne!(t.st.prod(F, &[(g.clone(), 1), (g, -1)]), Some(t.one()));
    }
}

/// `exp(s - max s)` of a row `s = select(p, x, -inf)`, against the selection
/// `[p] exp(x - max s)`: NaN against 0 where `p` holds nowhere in the row.
#[test]
fn a_row_that_may_be_masked_out_is_not_finite() {
    /// Coefficients of the row and the column and an offset: `>= 0` is seen.
    type Mask = (i64, i64, i64);
    let causal: Mask = (1, -1, 0);
    let future: Mask = (-1, 1, 0);
    let strict_past: Mask = (1, -1, -1);
    let first: Mask = (0, -1, 1);
    let cases = [
        (None, false),
        (Some(causal), true),
        (Some(future), true),
        (Some(first), true),
        (Some(strict_past), false),
    ];
    for (mask, same) in cases {
        let mut t = T::new(ALL);
        let row = |t: &mut T, i: Ax, j: Ax| {
            let p = match mask {
                Some((a, b, c)) => {
                    let e = t.iota(c, &[(a, i), (b, j)]);
                    t.st.ge0(&e).unwrap()
                }
                None => t.st.param(4, Dt::BOOL, &[5, 5], &[Lins::plain(i), Lins::plain(j)]),
            };
            let x = t.x(1, &[i, j]);
            let inf = t.st.special(F, scalify_terms::arith::NEG_INF);
            (t.st.select(F, &p, &x, &inf).unwrap(), p, x)
        };
        let (i, j, k) = (t.axis(5), t.axis(5), t.axis(5));
        let (s, ..) = row(&mut t, i, k);
        let top = t.st.max_over(F, &s, &[k]).unwrap();
        let top = t.neg(&top);
        let (s, p, x) = row(&mut t, i, j);
        let d = t.add(&[s.clone(), top.clone()]);
        let l = t.st.exp(F, &d).unwrap();
        let d = t.add(&[x, top.clone()]);
        let e = t.st.exp(F, &d).unwrap();
        let g = t.st.indicator(F, &p);
        assert_eq!(l == t.mul(&[g.clone(), e]), same, "{mask:?}");
        // max - max, and a product with the mask.
        let minus = t.neg(&top);
        let zero = t.st.zero(F);
        assert_eq!(t.add(&[top.clone(), minus]) == zero, same, "{mask:?}");
        assert_eq!(t.mul(&[zero.clone(), top.clone()]) == zero, same, "{mask:?}");
        let product = t.st.multiply(F, &g, &l).unwrap();
        assert_eq!(product == t.mul(&[g, l]), same, "{mask:?}");
    }
}

#[test]
fn predicates_have_one_spelling() {
    let mut t = T::new(EXACT);
    let v = t.st.param(7, Dt::INT, &[], &[]);
    let n = t.st.scale(&v, Coef::NEG).unwrap();
    let m1 = t.st.int(-1);
    let w = t.st.add(Dt::INT, &[n.clone(), m1]).unwrap();
    let (p, q) = (t.st.ge0(&v).unwrap(), t.st.ge0(&w).unwrap());
    assert_eq!(p, t.st.not(&q), "v >= 0 is not -v - 1 >= 0");
    let r = t.st.ge0(&n).unwrap();
    assert_ne!(r, t.st.not(&p), "-v >= 0 is not the negation of v >= 0");
    assert_eq!(t.st.eq0(&v), t.st.eq0(&n));
    assert_eq!(t.st.and(&[p.clone(), q]), t.st.bool(false));
    assert_ne!(t.st.and(&[p, r]), t.st.bool(false), "both hold at 0");
}

#[test]
fn values_of_different_kinds_stay_apart() {
    let mut t = T::new(ALL);
    let g = Dt(Dt::FIRST + 1);
    assert_ne!(t.st.one(F), t.st.one(g));
    assert_ne!(t.st.param(0, F, &[], &[]), t.st.param(0, g, &[], &[]));
    assert_ne!(t.st.one(F), t.st.one(Dt::BOOL));
    let c = t.st.coefs.int(3);
    assert_ne!(t.st.constant(F, c), t.st.constant(Dt::INT, c));
}

#[test]
fn values_at_a_fixed_step_stack_and_others_do_not() {
    let table: Vec<f64> = (0..24).map(|k| f64::from(k * k)).collect();
    let ins: Inputs = [(0, table.clone())].into_iter().collect();
    for (starts, stacks) in [
        (vec![0, 6, 12], true),
        (vec![12, 6, 0], true),
        (vec![5, 5, 5], true),
        (vec![0, 6, 13], false),
        (vec![0, 12, 6], false),
    ] {
        let mut t = T::new(EXACT);
        let q = t.axis(2);
        let v: Vec<Val> = starts.iter().map(|&k| t.at(0, 24, k, &[(3, q)])).collect();
        let found = t.st.stack(&v);
        assert_eq!(found.is_some(), stacks, "{starts:?}");
        let Some((x, a)) = found else { continue };
        for (k, &start) in starts.iter().enumerate() {
            for j in 0..2 {
                let got = Evaluator::new(&t.st, &ins).value(&x, &[a, q], &[k as i64, j]);
                assert_eq!(got, Some(table[(start + 3 * j) as usize]), "{starts:?}");
            }
        }
    }
    // Another step within the parts, another factor, another array.
    let mut t = T::new(EXACT);
    let q = t.axis(2);
    let x = t.at(0, 24, 0, &[(3, q)]);
    let y = t.at(0, 24, 6, &[(2, q)]);
    assert!(t.st.stack(&[x.clone(), y]).is_none());
    let y = t.at(0, 24, 6, &[(3, q)]);
    let y = t.neg(&y);
    assert!(t.st.stack(&[x.clone(), y]).is_none());
    let y = t.at(1, 24, 6, &[(3, q)]);
    assert!(t.st.stack(&[x, y]).is_none());
}

/// `sum_(k<n) F(k)` in two axes that count in opposite directions is the sum
/// over one; with a gap between the rows it is not.
#[test]
fn bound_axes_of_opposite_directions_fuse() {
    for (stride, whole) in [(4, true), (3, false), (5, false)] {
        let mut s = Store::new(REALS);
        let one = {
            let k = s.lins.local(12);
            let v = s.param(0, F, &[20], &[Lins::plain(k)]);
            s.sum(F, &v, &[k]).unwrap()
        };
        let two = {
            let (x, y) = (s.lins.local(3), s.lins.local(4));
            let mut l = Lin::constant(2 * stride);
            l.push(-stride, x);
            l.push(1, y);
            let l = s.lins.make(l);
            let v = s.param(0, F, &[20], &[l]);
            s.sum(F, &v, &[x, y]).unwrap()
        };
        assert_eq!(one == two, whole, "stride {stride}");
    }
}

/// `(x + y) mod m == k`, `m` the size of the range of all three, is
/// `x == k - y` where `k` and `k - y` are in the range.
#[test]
fn equations_lose_a_modulus_only_in_range() {
    let (lo, hi) = (-8i64, 7i64);
    let wrap = |x: i64| (x - lo).rem_euclid(hi - lo + 1) + lo;
    for minus in [false, true] {
        for y in -3..=3i64 {
            for k in -12..=12i64 {
                let mut s = Store::new(EXACT);
                s.set_param_range(2, lo, hi);
                let f = s.sym(if minus { "sub:i4" } else { "add:i4" });
                s.set_sym_range(f, lo, hi);
                s.set_wrapping(f, minus);
                let at = s.lins.local(4);
                let x = s.param(2, Dt::INT, &[4], &[Lins::plain(at)]);
                let c = s.int(y);
                let w = s.ew(f, Dt::INT, !minus, &[x.clone(), c]);
                let n = s.int(-k);
                let e = s.add(Dt::INT, &[w, n]).unwrap();
                let p = s.eq0(&e).unwrap();
                // The one x for which it holds, if the law was used.
                let want = if minus { k + y } else { k - y };
                let n = s.int(-want);
                let e = s.add(Dt::INT, &[x, n]).unwrap();
                let q = s.eq0(&e).unwrap();
                for x in lo..=hi {
                    let holds = wrap(if minus { x - y } else { x + y }) == k;
                    let said = match s.as_bool(&p) {
                        Some(b) => b,
                        None if p == q => x == want,
                        None => holds,
                    };
                    assert_eq!(said, holds, "minus {minus} y {y} k {k} x {x}");
                }
                let inside = |v: i64| (lo..=hi).contains(&v);
                if inside(k) && inside(want) {
                    assert_eq!(p, q);
                } else if s.as_bool(&p).is_none() {
                    assert_ne!(p, q, "minus {minus} y {y} k {k}");
                }
            }
        }
    }
}

/// `sum_(b<n) [0 <= y - s*b < w]` is `[0 <= y < w*n]` for `s = w` only, and
/// over `x - z(b)` the windows distribute: whatever is made of it has the value.
#[test]
fn windows_of_a_tiling_hold_once() {
    let data: Vec<f64> = (0..12).map(|k| f64::from(k) * 1.5 - 4.0).collect();
    for (slope, width) in [(3, 3), (-3, 3), (2, 3), (4, 3), (3, 2), (1, 1)] {
        for other in [false, true] {
            let mut s = Store::new(ALL);
            let (b, y) = (s.lins.local(4), s.lins.local(24));
            let x = s.param(2, Dt::INT, &[24], &[Lins::plain(y)]);
            let mut l = Lin::constant(-6);
            l.push(-slope, b);
            let l = s.lins.make(l);
            let i = s.iota(l);
            let g = s.add(Dt::INT, &[x, i]).unwrap();
            let n = s.scale(&g, Coef::NEG).unwrap();
            let w1 = s.int(width - 1);
            let h = s.add(Dt::INT, &[n, w1]).unwrap();
            let (p, q) = (s.ge0(&g).unwrap(), s.ge0(&h).unwrap());
            let both = s.and(&[p, q]);
            let mut v = s.indicator(F, &both);
            if other {
                let a = s.param(0, F, &[12], &[Lins::plain(b)]);
                let c = s.lins.constant(11);
                let z = s.param(0, F, &[12], &[c]);
                let d = s.add(F, &[a, z]).unwrap();
                v = s.mul(F, &v, &d).unwrap();
            }
            let v = s.sum(F, &v, &[b]).unwrap();
            let ins: Inputs =
                [(0, data.clone()), (2, (0..24).map(f64::from).collect())].into_iter().collect();
            let ev = Evaluator::new(&s, &ins);
            for k in 0..24i64 {
                let want: f64 = (0..4)
                    .filter(|b| (0..width).contains(&(k - 6 - slope * b)))
                    .map(|b| if other { data[b as usize] + data[11] } else { 1.0 })
                    .sum();
                let got = ev.value(&v, &[y], &[k]).unwrap();
                assert!(close(got, want), "slope {slope} width {width} at {k}: {got} {want}");
            }
            if !other {
                // A window of one index is an equation.
                let sums = s.show(&v, 3).contains("sum<");
                assert_eq!(sums, slope.abs() != width || width == 1, "{slope} {width}");
            }
        }
    }
}

/// `[c + s*j >= 0] * pieces(j)` is pieces with zeros where the index is the
/// one the guard bounds; with another factor only if values are finite.
#[test]
fn guards_on_the_index_of_pieces_cut_them() {
    let data: Vec<f64> = (0..12).map(|k| f64::from(k) + 0.5).collect();
    for rules in [ALL, REALS] {
        for (c, slope, factor, cut) in [
            (-3, 1, false, true),
            (5, -1, false, true),
            (-3, 2, false, false),
            (-20, 1, false, false),
            (-3, 1, true, rules.finite),
        ] {
            let mut s = Store::new(rules);
            let j = s.lins.local(8);
            let (a, b) = (s.lins.local(3), s.lins.local(5));
            let mut l = Lin::constant(4);
            l.push(1, b);
            let l = s.lins.make(l);
            let x = s.param(0, F, &[12], &[Lins::plain(a)]);
            let y = s.param(0, F, &[12], &[l]);
            let runs =
                [Run { len: 3, val: x, axis: Some(a) }, Run { len: 5, val: y, axis: Some(b) }];
            let p = s.pieces(F, &runs, Lins::plain(j)).unwrap();
            let mut g = Lin::constant(c);
            g.push(slope, j);
            let g = s.lins.make(g);
            let g = s.iota(g);
            let q = s.ge0(&g).unwrap();
            let g = s.indicator(F, &q);
            let mut f = vec![(p, 1), (g, 1)];
            if factor {
                f.push((s.param(1, F, &[], &[]), 1));
            }
            let v = s.prod(F, &f).unwrap();
            let ins: Inputs = [(0, data.clone()), (1, vec![3.0])].into_iter().collect();
            let ev = Evaluator::new(&s, &ins);
            for k in 0..8i64 {
                let at = if k < 3 { k } else { k + 1 };
                let mut want = if c + slope * k >= 0 { data[at as usize] } else { 0.0 };
                if factor {
                    want *= 3.0;
                }
                assert_eq!(ev.value(&v, &[j], &[k]), Some(want), "{c} + {slope}*{k}");
            }
            let kept = s.show(&v, 6).contains("indicator");
            assert_eq!(kept, !cut && c > -8, "{c} + {slope}*j, factor {factor}");
            let noted = s.log.iter().any(|u| u.law == "0 * x = 0");
            assert_eq!(noted, c <= -8 || factor && cut);
        }
    }
}

/// `[g >= 0] * [-g >= 0]` is `[g == 0]`, and a one-hot sum runs where its index
/// can lie; bounds that are not opposite stay.
#[test]
fn opposite_bounds_are_an_equation() {
    let data: Vec<f64> = (0..12).map(|k| f64::from(k) - 3.5).collect();
    for (gap, range) in [(0, (0, 1)), (0, (-2, 5)), (0, (2, 2)), (1, (0, 1)), (2, (1, 3))] {
        let mut s = Store::new(ALL);
        s.set_param_range(2, range.0, range.1);
        let b = s.lins.local(4);
        let x = s.param(2, Dt::INT, &[], &[]);
        let n = s.scale(&x, Coef::NEG).unwrap();
        let i = s.iota(Lins::plain(b));
        let g = s.add(Dt::INT, &[i, n]).unwrap();
        let n = s.scale(&g, Coef::NEG).unwrap();
        let more = s.int(gap);
        let h = s.add(Dt::INT, &[n, more]).unwrap();
        let (p, q) = (s.ge0(&g).unwrap(), s.ge0(&h).unwrap());
        let both = s.and(&[p, q]);
        let k = s.indicator(F, &both);
        let y = s.param(0, F, &[12], &[Lins::plain(b)]);
        let v = s.mul(F, &k, &y).unwrap();
        let v = s.sum(F, &v, &[b]).unwrap();
        for x in range.0..=range.1 {
            let ins: Inputs = [(0, data.clone()), (2, vec![x as f64])].into_iter().collect();
            let want: f64 =
                (0..4).filter(|b| (0..=gap).contains(&(b - x))).map(|b| data[b as usize]).sum();
            let got = Evaluator::new(&s, &ins).value(&v, &[], &[]);
            assert_eq!(got, Some(want), "gap {gap} range {range:?} at {x}");
        }
        let text = s.show(&v, 6);
        assert_eq!(text.contains("ge0"), gap > 0, "gap {gap}: {text}");
        if gap == 0 && range == (0, 1) {
            assert!(text.contains("sum<2>"), "{text}");
        }
    }
}

/// `p ? pieces(j) : -inf` with `p` a bound on `j` is pieces; others stay.
#[test]
fn selected_pieces_end_in_minus_infinity() {
    let data: Vec<f64> = (0..12).map(|k| f64::from(k) - 4.25).collect();
    for (c, slope, cut) in [(5, -1, true), (-2, 1, true), (5, -2, false)] {
        for flip in [false, true] {
            let mut s = Store::new(REALS);
            let j = s.lins.local(8);
            let (a, b) = (s.lins.local(3), s.lins.local(5));
            let x = s.param(0, F, &[12], &[Lins::plain(a)]);
            let l = s.lins.shift(Lins::plain(b), 4);
            let y = s.param(0, F, &[12], &[l]);
            let y = s.scale(&y, Coef::NEG).unwrap();
            let runs =
                [Run { len: 3, val: x, axis: Some(a) }, Run { len: 5, val: y, axis: Some(b) }];
            let p = s.pieces(F, &runs, Lins::plain(j)).unwrap();
            let mut g = Lin::constant(c);
            g.push(slope, j);
            let g = s.lins.make(g);
            let g = s.iota(g);
            let q = s.ge0(&g).unwrap();
            let low = s.special(F, scalify_terms::arith::NEG_INF);
            let v = if flip {
                let n = s.not(&q);
                s.select(F, &n, &low, &p).unwrap()
            } else {
                s.select(F, &q, &p, &low).unwrap()
            };
            let ins: Inputs = [(0, data.clone())].into_iter().collect();
            let ev = Evaluator::new(&s, &ins);
            for k in 0..8i64 {
                let at = if k < 3 { data[k as usize] } else { -data[k as usize + 1] };
                let want = if c + slope * k >= 0 { at } else { f64::NEG_INFINITY };
                assert_eq!(ev.value(&v, &[j], &[k]), Some(want), "{c} + {slope}*{k}");
            }
            assert_eq!(s.show(&v, 6).contains("select"), !cut);
        }
    }
}

/// Minus infinity after the last other run does not matter to an argmax;
/// before it, or plus infinity, it does.
#[test]
fn the_tail_of_an_argmax_goes() {
    for (runs, coef, short) in [
        (&[1, 0][..], 1, true),
        (&[0, 1], 1, false),
        (&[1, 0], -1, false),
        (&[1, 0, 1, 0], 1, true),
    ] {
        let mut s = Store::new(ALL);
        let total = 2 * runs.len() as i64;
        let j = s.lins.local(total);
        let low = s.special(F, scalify_terms::arith::NEG_INF);
        let mut all = Vec::new();
        for (k, &x) in runs.iter().enumerate() {
            let a = s.lins.local(2);
            let l = s.lins.shift(Lins::plain(a), 3 * k as i64);
            let v = s.param(0, F, &[12], &[l]);
            let val = if x == 1 { v } else { low.clone() };
            all.push(Run { len: 2, val, axis: Some(a) });
        }
        let p = s.pieces(F, &all, Lins::plain(j)).unwrap();
        let c = s.coefs.int(coef);
        let p = s.scale(&p, c).unwrap();
        let v = s.argmax(&p, j).unwrap();
        let text = s.show(&v, 2);
        let n = if short { total - 2 } else { total };
        assert!(text.contains(&format!("argmax:{n}<")), "{runs:?} {coef}: {text}");
    }
}
