//! Edges of laws: forms alike on which a side condition holds, and on which it
//! does not.

mod common;

use common::{close, points};
use scalify_terms::eval::{Evaluator, Inputs};
use scalify_terms::pieces::Run;
use scalify_terms::{AtomKind, Ax, Coef, Dt, Lin, Lins, Rules, Store, Val};

const F: Dt = Dt(Dt::FIRST);
const ALL: Rules = Rules { reals: true, finite: true };
const REALS: Rules = Rules { reals: true, finite: false };
const EXACT: Rules = Rules { reals: false, finite: false };

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
    // Read beyond their end pieces are 0, which may be more than all before.
    let mut s = Store::new(ALL);
    let (a, b, j) = (s.lins.local(2), s.lins.local(2), s.lins.local(5));
    let val = s.param(0, F, &[2], &[Lins::plain(a)]);
    let low = s.special(F, scalify_terms::arith::NEG_INF);
    let runs = [Run { len: 2, val, axis: Some(a) }, Run { len: 2, val: low, axis: Some(b) }];
    let p = s.pieces(F, &runs, Lins::plain(j)).unwrap();
    let v = s.argmax(&p, j).unwrap();
    let text = s.show(&v, 2);
    assert!(text.contains("argmax:5<"), "{text}");
}

#[test]
fn a_positive_factor_leaves_a_maximum_with_zero() {
    for (rules, k, j) in [(ALL, 3, 3), (REALS, 3, -3), (REALS, 3, 2)] {
        let mut t = T::new(rules);
        let (x, y) = (t.x(0, &[]), t.x(1, &[]));
        let zero = t.st.zero(F);
        let mut times = |v: &Val, k: i64| {
            let c = t.st.coefs.int(k);
            t.st.scale(v, c).unwrap()
        };
        let (kx, jy) = (times(&x, k), times(&y, j));
        let (ux, uy) = (times(&x, 1), times(&y, if j < 0 { -1 } else { 1 }));
        let inside = t.st.max(F, &[kx.clone(), jy.clone(), zero.clone()]).unwrap();
        let m = t.st.max(F, &[ux, uy, zero.clone()]).unwrap();
        let c = t.st.coefs.int(k);
        let outside = t.st.scale(&m, c).unwrap();
        assert_eq!(inside == outside, k == j.abs(), "{k} {j}");
        // A minimum with zero is a negated maximum of what is negated.
        let low = t.st.min(F, &[kx, zero]).unwrap();
        for (a, b) in [(1.5, -2.0), (-1.5, 2.0), (-0.5, -4.0), (0.0, 0.0)] {
            let ins: Inputs = [(0, vec![a]), (1, vec![b])].into_iter().collect();
            let ev = Evaluator::new(&t.st, &ins);
            let want = (k as f64 * a).max(j as f64 * b).max(0.0);
            assert_eq!(ev.value(&inside, &[], &[]), Some(want));
            assert_eq!(ev.value(&low, &[], &[]), Some((k as f64 * a).min(0.0)));
        }
    }
}

#[test]
fn roots_of_products_and_squares_of_roots() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Kind {
        /// `|x| + 1` and `|y| + 1`.
        Positive,
        /// Of either sign.
        Any,
        /// A factor selects.
        Selected,
        /// Bitwise, a root is rounded.
        Exact,
    }
    for kind in [Kind::Positive, Kind::Any, Kind::Selected, Kind::Exact] {
        let mut t = T::new(if kind == Kind::Exact { EXACT } else { REALS });
        let (x, y) = (t.x(0, &[]), t.x(1, &[]));
        let abs = t.st.sym("abs");
        let mut up = |v: &Val| {
            if kind == Kind::Any {
                return v.clone();
            }
            let a = t.st.ew(abs, F, false, std::slice::from_ref(v));
            let one = t.st.one(F);
            t.st.add(F, &[a, one]).unwrap()
        };
        let (mut a, b) = (up(&x), up(&y));
        if kind == Kind::Selected {
            let n = t.st.param(7, Dt::INT, &[], &[]);
            a = t.ge(&n);
        }
        let (ra, rb) = (t.st.sqrt(F, &a).unwrap(), t.st.sqrt(F, &b).unwrap());
        let ab = t.mul(&[a.clone(), b.clone()]);
        let one_root = t.st.sqrt(F, &ab).unwrap();
        let roots = t.mul(&[ra.clone(), rb.clone()]);
        let square = t.mul(&[rb.clone(), rb.clone()]);
        let law = kind == Kind::Positive;
        assert_eq!(one_root == roots, law, "{kind:?}");
        let known = matches!(kind, Kind::Positive | Kind::Selected);
        assert_eq!(square == b, known, "{kind:?}");
        let cube = t.st.prod(F, &[(rb.clone(), -3)]);
        for (p, q) in [(1.5, 2.0), (-1.5, 0.25), (0.5, -4.0)] {
            let ins: Inputs = [(0, vec![p]), (1, vec![q]), (7, vec![1.0])].into_iter().collect();
            let ev = Evaluator::new(&t.st, &ins);
            let f = |v: f64| if kind == Kind::Any { v } else { v.abs() + 1.0 };
            let (va, vb) = (if kind == Kind::Selected { 1.0 } else { f(p) }, f(q));
            let near = |v: &Val, want: f64| {
                let got = ev.value(v, &[], &[]);
                // Bitwise functions have no value here, nor have roots of
                // negative numbers.
                if let Some(g) = got {
                    assert!(close(g, want) || g.is_nan() && want.is_nan(), "{kind:?} {g} {want}");
                }
                got.is_some() || want.is_nan()
            };
            let all = [
                near(&one_root, (va * vb).sqrt()),
                near(&roots, va.sqrt() * vb.sqrt()),
                near(&square, vb.sqrt() * vb.sqrt()),
                cube.as_ref().is_none_or(|c| near(c, vb.sqrt().powi(-3))),
            ];
            assert!(kind == Kind::Exact || all == [true; 4], "{kind:?} {all:?}");
        }
    }
}

/// Pieces of lengths 2 and 2 over parameters 0 and 1, read at `at`.
fn two_runs(t: &mut T, at: scalify_terms::LinId) -> Val {
    let (q, r) = (t.axis(2), t.axis(2));
    let (x, y) = (t.at(0, 2, 0, &[(1, q)]), t.at(1, 2, 0, &[(1, r)]));
    let run = |len, val, axis| Run { len, val, axis: Some(axis) };
    t.st.pieces(F, &[run(2, x, q), run(2, y, r)], at).unwrap()
}

#[test]
fn pieces_are_zero_outside_wherever_they_go() {
    let ins: Inputs = [(0, vec![3.0, 5.0]), (1, vec![7.0, 11.0])].into_iter().collect();
    let inside = [3.0, 5.0, 7.0, 11.0];
    for (from, len) in [(-3, 3), (-3, 5), (-1, 6), (3, 4), (5, 2), (-2, 8), (0, 4)] {
        let mut t = T::new(ALL);
        let a = t.axis(len);
        let l = t.lin(from, &[(1, a)]);
        let p = two_runs(&mut t, l);
        // As one run of further pieces, with one more index behind.
        let one = t.st.constant(F, Coef::ONE);
        let all = t.axis(len + 1);
        let runs =
            [Run { len, val: p.clone(), axis: Some(a) }, Run { len: 1, val: one, axis: None }];
        let q = t.st.pieces(F, &runs, Lins::plain(all)).unwrap();
        let ev = Evaluator::new(&t.st, &ins);
        let want = |k: i64| usize::try_from(from + k).ok().and_then(|k| inside.get(k)).copied();
        for k in 0..=len {
            let w = if k == len { 1.0 } else { want(k).unwrap_or(0.0) };
            assert!(close(ev.value(&q, &[all], &[k]).unwrap(), w), "{from} {len} {k}");
        }
    }
    // One run is still 0 outside.
    let mut t = T::new(ALL);
    let (q, a) = (t.axis(2), t.axis(4));
    let x = t.at(0, 2, 0, &[(1, q)]);
    let l = t.lin(-1, &[(1, a)]);
    let p = t.st.pieces(F, &[Run { len: 2, val: x, axis: Some(q) }], l).unwrap();
    let ev = Evaluator::new(&t.st, &ins);
    let got: Vec<f64> = (0..4).map(|k| ev.value(&p, &[a], &[k]).unwrap()).collect();
    assert_eq!(got, [0.0, 3.0, 5.0, 0.0]);
}

#[test]
fn pieces_read_outside_are_not_what_a_selection_puts_there() {
    // e >= 0 ? pieces(e) : -inf, where e may be negative and pieces(e) is 0.
    let mut t = T::new(ALL);
    let a = t.axis(6);
    let l = t.lin(-2, &[(1, a)]);
    let p = two_runs(&mut t, l);
    let e = t.iota(-2, &[(1, a)]);
    let ok = t.st.ge0(&e).unwrap();
    let inf = t.st.special(F, scalify_terms::arith::NEG_INF);
    let v = t.st.select(F, &ok, &p, &inf).unwrap();
    assert_ne!(v, p);
    // Inside it is a run of them.
    let b = t.axis(4);
    let p = two_runs(&mut t, Lins::plain(b));
    let e = t.iota(-1, &[(1, b)]);
    let ok = t.st.ge0(&e).unwrap();
    let v = t.st.select(F, &ok, &p, &inf).unwrap();
    assert!(t.st.show(&v, 3).starts_with("concat"), "{}", t.st.show(&v, 3));
}

#[test]
fn a_selection_takes_its_predicate_for_true() {
    for rules in [EXACT, REALS, ALL] {
        let mut t = T::new(rules);
        let a = t.axis(4);
        let (x, y, z) = (t.x(0, &[a]), t.x(1, &[a]), t.x(2, &[a]));
        let p = t.st.param(3, Dt::BOOL, &[4], &[Lins::plain(a)]);
        let other = t.st.param(4, Dt::BOOL, &[4], &[Lins::plain(a)]);
        let not = t.st.not(&p);
        let tanh = t.st.sym("tanh");
        let f = |t: &mut T, v: &Val| t.st.ew(tanh, F, false, std::slice::from_ref(v));
        let sel = |t: &mut T, p: &Val, a: &Val, b: &Val| t.st.select(F, p, a, b).unwrap();
        let fx = f(&mut t, &x);
        let want = sel(&mut t, &p, &fx, &y);
        // Through a function, in either branch, by the negation too.
        let inner = sel(&mut t, &p, &x, &z);
        let v = f(&mut t, &inner);
        assert_eq!(sel(&mut t, &p, &v, &y), want);
        let inner = sel(&mut t, &not, &z, &x);
        let v = f(&mut t, &inner);
        assert_eq!(sel(&mut t, &p, &v, &y), want);
        let inner = sel(&mut t, &p, &z, &x);
        let v = f(&mut t, &inner);
        assert_eq!(sel(&mut t, &not, &v, &y), sel(&mut t, &not, &fx, &y));
        // The other branch, another predicate, and the same one elsewhere.
        let inner = sel(&mut t, &p, &z, &x);
        let v = f(&mut t, &inner);
        assert_ne!(sel(&mut t, &p, &v, &y), want);
        let inner = sel(&mut t, &other, &x, &z);
        let v = f(&mut t, &inner);
        assert_ne!(sel(&mut t, &p, &v, &y), want);
        let back = t.lin(3, &[(-1, a)]);
        let q = t.st.param(3, Dt::BOOL, &[4], &[back]);
        let inner = sel(&mut t, &q, &x, &z);
        let v = f(&mut t, &inner);
        assert_ne!(sel(&mut t, &p, &v, &y), want);
    }
}

#[test]
fn a_mask_that_is_added_is_a_selection_in_exponentials() {
    let mut t = T::new(ALL);
    let a = t.axis(4);
    let x = t.x(0, &[a]);
    let p = t.st.param(3, Dt::BOOL, &[4], &[Lins::plain(a)]);
    let inf = t.st.special(F, scalify_terms::arith::NEG_INF);
    let zero = t.st.zero(F);
    let mask = t.st.select(F, &p, &zero, &inf).unwrap();
    let sum = t.add(&[x.clone(), mask]);
    let got = t.st.exp(F, &sum).unwrap();
    let masked = t.st.select(F, &p, &x, &inf).unwrap();
    let want = t.st.exp(F, &masked).unwrap();
    assert_eq!(got, want);
    assert!(t.st.log.iter().any(|u| u.law.contains("-inf")));
    // Plus infinity is none, and what may be infinite itself is not known.
    let up = t.st.scale(&inf, Coef::NEG).unwrap();
    let other = t.st.select(F, &p, &zero, &up).unwrap();
    let sum = t.add(&[x.clone(), other.clone()]);
    assert_ne!(t.st.exp(F, &sum).unwrap(), want);
    let mask = t.st.select(F, &p, &zero, &inf).unwrap();
    let sum = t.add(&[x, mask, other]);
    let e = t.st.exp(F, &sum).unwrap();
    assert_ne!(e, want);
}

#[test]
fn terms_that_share_factors_have_a_joined_variant() {
    let hit = |t: &mut T, v: &Val, want: &Val| {
        t.st.search_variants(v, Default::default(), |_, w| w == want).is_some()
    };
    // x w + y w = (x + y) w, summed or not.
    let mut t = T::new(REALS);
    let (i, b, c) = (t.axis(3), t.axis(4), t.axis(4));
    let (x, y) = (t.x(0, &[i, b]), t.x(1, &[i, b]));
    let w = t.x(2, &[b]);
    let both = t.add(&[x.clone(), y.clone()]);
    let want = t.st.dot(F, &both, &w, &[b]).unwrap();
    let first = t.st.dot(F, &x, &w, &[b]).unwrap();
    let (y, w) = (t.x(1, &[i, c]), t.x(2, &[c]));
    let second = t.st.dot(F, &y, &w, &[c]).unwrap();
    let apart = t.add(&[first.clone(), second]);
    assert!(hit(&mut t, &apart, &want));
    // Another weight, and the same one read backwards, are no common factor.
    for w in [t.x(3, &[c]), {
        let l = t.lin(3, &[(-1, c)]);
        t.st.param(2, F, &[4], &[l])
    }] {
        let second = t.st.dot(F, &y, &w, &[c]).unwrap();
        let apart = t.add(&[first.clone(), second]);
        assert!(!hit(&mut t, &apart, &want));
    }
    // Without a factor in common: sums over the same axes.
    let (e, f) = (t.axis(4), t.axis(4));
    let (x1, y1) = (t.x(0, &[i, e]), t.x(1, &[i, e]));
    let both = t.add(&[x1, y1]);
    let want = t.st.sum(F, &both, &[e]).unwrap();
    let (x1, y1) = (t.x(0, &[i, e]), t.x(1, &[i, f]));
    let (p, q) = (t.st.sum(F, &x1, &[e]).unwrap(), t.st.sum(F, &y1, &[f]).unwrap());
    let apart = t.add(&[p, q]);
    assert!(hit(&mut t, &apart, &want), "{} {}", t.st.show(&apart, 5), t.st.show(&want, 5));
    // Axes that one of them alone is summed over: x w + x (u v).
    let (k, r) = (t.axis(4), t.axis(2));
    let (x, w) = (t.x(0, &[i, k]), t.x(2, &[k]));
    let (u, v) = (t.x(4, &[k, r]), t.x(5, &[r]));
    let uv = t.st.dot(F, &u, &v, &[r]).unwrap();
    let merged = t.add(&[w.clone(), uv]);
    let want = t.st.dot(F, &x, &merged, &[k]).unwrap();
    let own = t.st.dot(F, &x, &w, &[k]).unwrap();
    let xu = t.st.dot(F, &x, &u, &[k]).unwrap();
    let low = t.st.dot(F, &xu, &v, &[r]).unwrap();
    let apart = t.add(&[own, low]);
    assert!(hit(&mut t, &apart, &want));
    // A sum of selections selects nothing: no variant joins them.
    let a = t.axis(4);
    let (p, q) = (
        t.st.param(6, Dt::BOOL, &[4], &[Lins::plain(a)]),
        t.st.param(7, Dt::BOOL, &[4], &[Lins::plain(a)]),
    );
    let (g, h, x) = (t.st.indicator(F, &p), t.st.indicator(F, &q), t.x(2, &[a]));
    let (gx, hx) = (t.mul(&[g.clone(), x.clone()]), t.mul(&[h.clone(), x.clone()]));
    let apart = t.add(&[gx, hx]);
    let sum = t.add(&[g, h]);
    let joined = t.mul(&[sum, x]);
    assert!(!hit(&mut t, &apart, &joined));
    // Neither joined nor split where the common factor may be infinite: of
    // 1 * inf - 1 * inf and (1 - 1) * inf one may be a number for other values.
    for far in [false, true] {
        let mut t = T::new(REALS);
        let nature = scalify_terms::Nature { infinite: far, masked: far };
        t.st.set_param_nature(2, nature);
        let (a, b, c) = (t.axis(4), t.axis(4), t.axis(4));
        let (x, y) = (t.x(0, &[a]), t.x(1, &[a]));
        let w = t.x(2, &[a]);
        let both = t.add(&[x, y]);
        let whole = t.st.dot(F, &both, &w, &[a]).unwrap();
        let (x, w) = (t.x(0, &[b]), t.x(2, &[b]));
        let first = t.st.dot(F, &x, &w, &[b]).unwrap();
        let (y, w) = (t.x(1, &[c]), t.x(2, &[c]));
        let second = t.st.dot(F, &y, &w, &[c]).unwrap();
        let apart = t.add(&[first, second]);
        assert_eq!(hit(&mut t, &apart, &whole), !far);
        assert_eq!(hit(&mut t, &whole, &apart), !far);
    }
}

#[test]
fn what_is_read_at_data_is_read_first() {
    // sum_b [b == e] f(x[b], y) = f(sum_b [b == e] x[b], y), for an e in range.
    for rules in [REALS, ALL] {
        for (last, pulled) in [(3, true), (4, false)] {
            let mut t = T::new(rules);
            let (i, b, d) = (t.axis(5), t.axis(4), t.axis(4));
            let at = t.st.param(9, Dt::INT, &[5], &[Lins::plain(i)]);
            t.st.set_param_range(9, 0, last);
            let hit = |t: &mut T, b: scalify_terms::Ax| {
                let k = t.iota(0, &[(1, b)]);
                let minus = t.st.scale(&at, Coef::NEG).unwrap();
                let e = t.st.add(Dt::INT, &[k, minus]).unwrap();
                t.st.eq0(&e).unwrap()
            };
            // The sum of `x`, which reads `b`, where it is the place.
            let read = |t: &mut T, b: scalify_terms::Ax, x: &Val| {
                let p = hit(t, b);
                let g = t.st.indicator(x.dt, &p);
                let gx = t.st.mul(x.dt, &g, x).unwrap();
                t.st.sum(x.dt, &gx, &[b]).unwrap()
            };
            let f = t.st.sym("atan2");
            let ew = |t: &mut T, x: &Val, y: &Val| t.st.ew(f, F, false, &[x.clone(), y.clone()]);
            let (x, y) = (t.x(0, &[b]), t.x(1, &[i]));
            let fx = ew(&mut t, &x, &y);
            let v = read(&mut t, b, &fx);
            let xd = t.x(0, &[d]);
            let first = read(&mut t, d, &xd);
            let w = ew(&mut t, &first, &y);
            // Out of range nothing is selected: 0, and f(0, y).
            assert_eq!(v == w, pulled, "{} {}", t.st.show(&v, 5), t.st.show(&w, 5));
            // With a coefficient of what is read.
            let k = t.st.coefs.int(-3);
            let kx = t.st.scale(&x, k).unwrap();
            let ex = t.st.exp(F, &kx).unwrap();
            let v = read(&mut t, b, &ex);
            let kr = t.st.scale(&first, k).unwrap();
            assert_eq!(v == t.st.exp(F, &kr).unwrap(), pulled);
            // A function of an integer.
            let h = t.st.sym("to float");
            let n = |t: &mut T, b| t.st.param(8, Dt::INT, &[4], &[Lins::plain(b)]);
            let (nb, nd) = (n(&mut t, b), n(&mut t, d));
            let hn = t.st.ew(h, F, false, &[nb]);
            let v = read(&mut t, b, &hn);
            let r = read(&mut t, d, &nd);
            assert_eq!(v == t.st.ew(h, F, false, &[r]), pulled);
            assert!(t.st.log.is_empty());
            // A converted predicate selects nothing: 0 * f(x) is NaN where
            // f(x) is infinite, though f of what is read is not.
            let p = hit(&mut t, b);
            let c = t.st.convert_pred(F, &p);
            let inside = t.mul(&[c, fx]);
            let v = t.st.sum(F, &inside, &[b]).unwrap();
            assert!(v != w || rules.finite && !t.st.log.is_empty());
        }
    }
}

#[test]
fn integers_in_pieces_are_zero_outside() {
    for (from, size, range) in [(0, 2, (5, 6)), (-1, 3, (0, 6)), (0, 3, (0, 6))] {
        let mut t = T::new(ALL);
        let a = t.axis(size);
        let at = t.lin(from, &[(1, a)]);
        let runs = [5, 6].map(|n| Run { len: 1, val: t.st.int(n), axis: None });
        let p = t.st.pieces(Dt::INT, &runs, at).unwrap();
        assert_eq!(t.st.int_range(&p), Some(range), "{from} {size}: {}", t.st.show(&p, 3));
        // As one run of further pieces they have the same values.
        let all = t.axis(size + 1);
        let seven = Run { len: 1, val: t.st.int(7), axis: None };
        let own = Run { len: size, val: p, axis: Some(a) };
        let q = t.st.pieces(Dt::INT, &[own, seven], Lins::plain(all)).unwrap();
        let none = Inputs::default();
        let ev = Evaluator::new(&t.st, &none);
        for k in 0..size {
            let want = [0.0, 5.0, 6.0, 0.0][(from + k + 1) as usize];
            assert!(close(ev.value(&q, &[all], &[k]).unwrap(), want), "{from} {size} {k}");
        }
    }
}
