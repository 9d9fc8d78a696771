//! Random expressions, built through the public builders and computed
//! directly: the term that the laws make of an expression has its value, so
//! have all variants and all substitutions. Edges of side conditions are in
//! `edges.rs`.

mod common;

use common::{close, points};
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
    match r.below(22) {
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
        19 => {
            // A selection inside a selection by the same predicate.
            let p = boolean(r, s, 1);
            let (x, z, y) = (num(r, s, d.min(1)), num(r, s, 0), num(r, s, 0));
            let mut inner = Num::Select(Box::new(p.clone()), Box::new(x), Box::new(z));
            for _ in 0..r.below(3) {
                inner = match r.below(4) {
                    0 => Num::Exp(Box::new(inner)),
                    1 => Num::Max(vec![inner, num(r, s, 0)]),
                    2 => Num::Mul(vec![inner, num(r, s, 0)]),
                    _ => Num::Add(vec![((1, 2), inner), ((-1, 1), num(r, s, 0))]),
                };
            }
            let (a, b) = if r.below(2) == 0 { (inner, y) } else { (y, inner) };
            Num::Select(Box::new(p), Box::new(a), Box::new(b))
        }
        20 => {
            // Products that share a factor, as they are or summed.
            let n = r.between(1, 3);
            let term = |r: &mut Rng, s: &mut Scope, b: Axis, shared: &Index| {
                s.live.push(b);
                let own = num(r, s, d.min(1));
                s.live.pop();
                let mut at = shared.clone();
                at.terms.push((1, b));
                Num::Sum(b, n, Box::new(Num::Mul(vec![own, Num::One(at)])))
            };
            let shared = Index { c0: r.between(0, 6), terms: vec![], table: None };
            let (b, c) = (s.axis(n), s.axis(n));
            let (x, y) = (term(r, s, b, &shared), term(r, s, c, &shared));
            let k = (r.between(-2, 2), r.between(1, 3));
            Num::Add(vec![((1, 1), x), (k, y)])
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

fn inputs(d: &Data) -> Inputs {
    d.arrays.iter().enumerate().map(|(k, v)| (k as u32, v.clone())).collect()
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
