//! Two spellings of a value meet in one term, the term has the value computed
//! here without the store, and near misses stay apart.

use scalify_terms::eval::{Evaluator, Inputs};
use scalify_terms::pieces::Run;
use scalify_terms::variants::VariantLimits;
use scalify_terms::{Ax, Dt, Lins, Rules, Store, Val};

const F: Dt = Dt(Dt::FIRST);

fn store() -> Store {
    Store::new(Rules { reals: true, finite: true })
}

/// A number without pattern for element `i` of input `id`.
fn element(id: u32, i: usize) -> f64 {
    let x = (i as f64 + 1.0) * 0.7548776662466927 + f64::from(id) * 0.5698402909980532;
    2.0 * (x - x.floor()) - 0.75
}

fn inputs(sizes: &[(u32, usize)]) -> Inputs {
    sizes.iter().map(|&(id, n)| (id, (0..n).map(|i| element(id, i)).collect())).collect()
}

/// Reads input `id` at atoms.
fn at(s: &mut Store, id: u32, sizes: &[i64], axes: &[Ax]) -> Val {
    let m: Vec<_> = axes.iter().map(|&a| Lins::plain(a)).collect();
    s.param(id, F, sizes, &m)
}

fn check(s: &Store, v: &Val, ins: &Inputs, axes: &[Ax], point: &[i64], want: f64) {
    let got = Evaluator::new(s, ins).value(v, axes, point).expect("defined");
    assert!((got - want).abs() < 1e-9 * want.abs().max(1.0), "{got} against {want}");
}

/// `P0[i] * P1[i]` at a constant.
fn term(s: &mut Store, i: i64) -> Val {
    let l = s.lins.constant(i);
    let (a, b) = (s.param(0, F, &[6], &[l]), s.param(1, F, &[6], &[l]));
    s.mul(F, &a, &b).unwrap()
}

#[test]
fn terms_added_one_by_one_are_a_sum() {
    let mut s = store();
    let mut acc = term(&mut s, 0);
    for i in 1..6 {
        let t = term(&mut s, i);
        acc = s.add(F, &[acc, t]).unwrap();
    }
    let z = s.lins.local(6);
    let (a, b) = (at(&mut s, 0, &[6], &[z]), at(&mut s, 1, &[6], &[z]));
    let whole = s.dot(F, &a, &b, &[z]).unwrap();
    assert_eq!(acc, whole);
    let want: f64 = (0..6).map(|i| element(0, i) * element(1, i)).sum();
    check(&s, &acc, &inputs(&[(0, 6), (1, 6)]), &[], &[], want);
    // One left out, and one counted twice.
    for pick in [[0, 1, 2, 3, 5, 5], [0, 1, 2, 3, 4, 4]] {
        let mut acc = term(&mut s, pick[0]);
        for &i in &pick[1..] {
            let t = term(&mut s, i);
            acc = s.add(F, &[acc, t]).unwrap();
        }
        assert_ne!(acc, whole);
        let want: f64 = pick.iter().map(|&i| element(0, i as usize) * element(1, i as usize)).sum();
        check(&s, &acc, &inputs(&[(0, 6), (1, 6)]), &[], &[], want);
    }
}

#[test]
fn a_factor_of_all_terms_leaves_the_sum() {
    // sum_k x[k] (m a[k] + m b[k]) = m sum_k x[k] (a[k] + b[k])
    let mut s = store();
    let k = s.lins.local(5);
    let m = s.param(3, F, &[], &[]);
    let x = at(&mut s, 0, &[5], &[k]);
    let (a, b) = (at(&mut s, 1, &[5], &[k]), at(&mut s, 2, &[5], &[k]));
    // Products that stay products: the square keeps the terms from fusing.
    let (ma, mb) =
        (s.prod(F, &[(m.clone(), 1), (a.clone(), 2)]).unwrap(), s.mul(F, &m, &b).unwrap());
    let inside = s.add(F, &[ma, mb]).unwrap();
    let one = s.dot(F, &x, &inside, &[k]).unwrap();
    let k2 = s.lins.local(5);
    let x = at(&mut s, 0, &[5], &[k2]);
    let (a, b) = (at(&mut s, 1, &[5], &[k2]), at(&mut s, 2, &[5], &[k2]));
    let aa = s.prod(F, &[(a, 2)]).unwrap();
    let sum = s.add(F, &[aa, b]).unwrap();
    let other = s.dot(F, &x, &sum, &[k2]).unwrap();
    let other = s.mul(F, &m, &other).unwrap();
    assert_eq!(one, other);
    let want: f64 = (0..5)
        .map(|i| element(0, i) * (element(1, i).powi(2) + element(2, i)) * element(3, 0))
        .sum();
    check(&s, &one, &inputs(&[(0, 5), (1, 5), (2, 5), (3, 1)]), &[], &[], want);
}

#[test]
fn a_dot_with_runs_is_runs_of_dots() {
    let mut s = store();
    let (k, j) = (s.lins.local(3), s.lins.local(7));
    let x = at(&mut s, 0, &[3], &[k]);
    let runs: Vec<Run> = [(1u32, 4i64), (2, 3)]
        .iter()
        .map(|&(id, n)| {
            let a = s.lins.local(n);
            Run { len: n, val: at(&mut s, id, &[3, n], &[k, a]), axis: Some(a) }
        })
        .collect();
    let w = s.pieces(F, &runs, Lins::plain(j)).unwrap();
    let y = s.dot(F, &x, &w, &[k]).unwrap();
    let ins = inputs(&[(0, 3), (1, 12), (2, 9)]);
    for p in 0..7usize {
        let want: f64 = (0..3)
            .map(|k| {
                element(0, k)
                    * if p < 4 { element(1, k * 4 + p) } else { element(2, k * 3 + p - 4) }
            })
            .sum();
        check(&s, &y, &ins, &[j], &[p as i64], want);
    }
    // A read of the second run is a dot with the second weight.
    let i = s.lins.local(3);
    let mut m = scalify_terms::Subst::new();
    let shifted = s.lins.shift(Lins::plain(i), 4);
    m.set(j, shifted);
    let second = s.subst(&y, &m).unwrap();
    let k2 = s.lins.local(3);
    let (x, w) = (at(&mut s, 0, &[3], &[k2]), at(&mut s, 2, &[3, 3], &[k2, i]));
    assert_eq!(second, s.dot(F, &x, &w, &[k2]).unwrap());
}

#[test]
fn partial_sums_added_first() {
    // sum_d (sum_k a[d,k] b[k] + sum_k c[d,k] e[k]), added before or after.
    let mut s = store();
    let part = |s: &mut Store, ids: (u32, u32), d: Ax| {
        let k = s.lins.local(3);
        let (a, b) = (at(s, ids.0, &[2, 3], &[d, k]), at(s, ids.1, &[3], &[k]));
        s.dot(F, &a, &b, &[k]).unwrap()
    };
    let d = s.lins.local(2);
    let (p, q) = (part(&mut s, (0, 1), d), part(&mut s, (2, 3), d));
    let both = s.add(F, &[p, q]).unwrap();
    let one = s.sum(F, &both, &[d]).unwrap();
    let (d1, d2) = (s.lins.local(2), s.lins.local(2));
    let (p, q) = (part(&mut s, (0, 1), d1), part(&mut s, (2, 3), d2));
    let (p, q) = (s.sum(F, &p, &[d1]).unwrap(), s.sum(F, &q, &[d2]).unwrap());
    assert_eq!(one, s.add(F, &[p, q]).unwrap());
    let dot =
        |a: u32, b: u32| -> f64 { (0..6).map(|i| element(a, i) * element(b, i % 3)).sum::<f64>() };
    check(&s, &one, &inputs(&[(0, 6), (1, 3), (2, 6), (3, 3)]), &[], &[], dot(0, 1) + dot(2, 3));
}

#[test]
fn a_bound_axis_has_one_direction() {
    // sum_k a[k] b[n-1-k], counted either way.
    let mut s = store();
    let n = 5;
    let mut made = Vec::new();
    for flip in [false, true] {
        let k = s.lins.local(n);
        let neg = s.lins.combine(&[(-1, Lins::plain(k))]).unwrap();
        let down = s.lins.shift(neg, n - 1);
        let (ka, kb) = if flip { (down, Lins::plain(k)) } else { (Lins::plain(k), down) };
        let (a, b) = (s.param(0, F, &[n], &[ka]), s.param(1, F, &[n], &[kb]));
        made.push(s.dot(F, &a, &b, &[k]).unwrap());
    }
    assert_eq!(made[0], made[1]);
    let want: f64 = (0..5).map(|i| element(0, i) * element(1, 4 - i)).sum();
    check(&s, &made[0], &inputs(&[(0, 5), (1, 5)]), &[], &[], want);
    let k = s.lins.local(n);
    let (a, b) = (at(&mut s, 0, &[n], &[k]), at(&mut s, 1, &[n], &[k]));
    assert_ne!(made[0], s.dot(F, &a, &b, &[k]).unwrap());
}

#[test]
fn integer_equations_have_one_sign() {
    let mut s = store();
    let j = s.lins.local(4);
    let p = s.param(0, Dt::INT, &[], &[]);
    let i = s.iota(Lins::plain(j));
    let neg = |s: &mut Store, v: &Val| s.scale(v, scalify_terms::Coef::NEG).unwrap();
    let (np, ni) = (neg(&mut s, &p), neg(&mut s, &i));
    let a = s.add(Dt::INT, &[p, ni]).unwrap();
    let b = s.add(Dt::INT, &[i, np]).unwrap();
    assert_eq!(s.eq0(&a).unwrap(), s.eq0(&b).unwrap());
}

#[test]
fn contraction_orders_are_variants() {
    // sum_(e,f) g[e] h[e,f] w[e,f] has the variant sum_e g[e] (sum_f h w).
    let mut s = store();
    let (e, f) = (s.lins.local(3), s.lins.local(4));
    let g = at(&mut s, 0, &[3], &[e]);
    let (h, w) = (at(&mut s, 1, &[3, 4], &[e, f]), at(&mut s, 2, &[3, 4], &[e, f]));
    let gh = s.mul(F, &g, &h).unwrap();
    let flat = s.dot(F, &gh, &w, &[e, f]).unwrap();
    let (e2, f2) = (s.lins.local(3), s.lins.local(4));
    let g = at(&mut s, 0, &[3], &[e2]);
    let (h, w) = (at(&mut s, 1, &[3, 4], &[e2, f2]), at(&mut s, 2, &[3, 4], &[e2, f2]));
    let inner = s.dot(F, &h, &w, &[f2]).unwrap();
    let nested = s.dot(F, &g, &inner, &[e2]).unwrap();
    let hit = s.search_variants(&flat, VariantLimits::default(), |_, v| *v == nested);
    assert_eq!(hit.as_ref(), Some(&nested));
    let want: f64 = (0..12).map(|i| element(0, i / 4) * element(1, i) * element(2, i)).sum();
    let ins = inputs(&[(0, 3), (1, 12), (2, 12)]);
    check(&s, &flat, &ins, &[], &[], want);
    check(&s, &nested, &ins, &[], &[], want);
}

#[test]
fn integer_tables_read_by_device_are_forms() {
    let mut s = store();
    let d0 = s.lins.fresh(2, scalify_terms::AtomKind::Device);
    let d1 = s.lins.fresh(4, scalify_terms::AtomKind::Device);
    let pid = s.lins.combine(&[(4, Lins::plain(d0)), (1, Lins::plain(d1))]).unwrap();
    let vals = (0..8).map(|i| s.coefs.int(8 * (i % 4))).collect();
    let v = s.array(Dt::INT, &[8], vals, &[pid]);
    let want = s.lins.combine(&[(8, Lins::plain(d1))]).unwrap();
    assert_eq!(s.as_iota(&v), Some(want));
    // Over a local axis it stays an array.
    let k = s.lins.local(8);
    let vals = (0..8).map(|i| s.coefs.int(8 * (i % 4))).collect();
    let v = s.array(Dt::INT, &[8], vals, &[Lins::plain(k)]);
    assert_eq!(s.as_iota(&v), None);
}
