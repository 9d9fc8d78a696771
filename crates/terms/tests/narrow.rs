//! Laws about positions of largest values, common exponentials, masks, and
//! comparison in parts: where they hold and where a side condition fails.
//! Values come from arithmetic on the inputs.

use scalify_terms::arith::MASK;
use scalify_terms::eval::{Evaluator, Inputs};
use scalify_terms::pieces::Run;
use scalify_terms::special::Special;
use scalify_terms::{Ax, Coef, Dt, Lin, LinId, Lins, Rules, Store, Val};

const F: Dt = Dt(Dt::FIRST);
const ALL: Rules = Rules { reals: true, finite: true };
const REALS: Rules = Rules { reals: true, finite: false };

fn form(st: &mut Store, c0: i64, terms: &[(i64, Ax)]) -> LinId {
    let mut l = Lin::constant(c0);
    for &(c, a) in terms {
        l.push(c, a);
    }
    st.lins.make(l)
}

fn read(st: &mut Store, id: u32, n: i64, c0: i64, terms: &[(i64, Ax)]) -> Val {
    let l = form(st, c0, terms);
    st.param(id, F, &[n], &[l])
}

fn scaled(st: &mut Store, v: &Val, k: i64) -> Val {
    let k = st.coefs.int(k);
    st.scale(v, k).unwrap()
}

fn number(st: &mut Store, x: f64) -> Val {
    let c = st.coefs.float(x).unwrap();
    st.constant(F, c)
}

/// Which of the conditions of the law of blocks is broken.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Break {
    Nothing,
    /// Offsets of another block size.
    Offset,
    /// The best block is chosen by another array.
    Chooser,
    /// Blocks overlap: not digits of one index.
    Overlap,
    /// The best block is chosen by the smallest value.
    Smallest,
}

#[test]
fn the_position_in_blocks_is_the_position_in_the_whole() {
    let (n, b) = (3i64, 4i64);
    for how in [Break::Nothing, Break::Offset, Break::Chooser, Break::Overlap, Break::Smallest] {
        let mut st = Store::new(ALL);
        let step = if how == Break::Overlap { b - 1 } else { b };
        let block =
            |st: &mut Store, id: u32, d: Ax, j: Ax| read(st, id, 12, 0, &[(step, d), (1, j)]);
        // D
        let (d, j) = (st.lins.local(n), st.lins.local(b));
        let x = block(&mut st, if how == Break::Chooser { 1 } else { 0 }, d, j);
        let mut m = st.max_over(F, &x, &[j]).unwrap();
        if how == Break::Smallest {
            m = st.scale(&m, Coef::NEG).unwrap();
        }
        let best = st.argmax(&m, d).unwrap();
        assert_eq!(st.int_range(&best), Some((0, n - 1)));
        // sum_d [d == D] argmax_j x[d, j]
        let (d, j) = (st.lins.local(n), st.lins.local(b));
        let x = block(&mut st, 0, d, j);
        let own = st.argmax(&x, j).unwrap();
        let l = form(&mut st, 0, &[(-1, d)]);
        let minus = st.iota(l);
        let e = st.add(Dt::INT, &[best.clone(), minus]).unwrap();
        let p = st.eq0(&e).unwrap();
        let g = st.indicator(Dt::INT, &p);
        let f = st.mul(Dt::INT, &g, &own).unwrap();
        let picked = st.sum(Dt::INT, &f, &[d]).unwrap();
        let k = if how == Break::Offset { b + 1 } else { b };
        let offset = scaled(&mut st, &best, k);
        let got = st.add(Dt::INT, &[offset, picked]).unwrap();
        // The position in the whole.
        let p = st.lins.local(12);
        let x = read(&mut st, 0, 12, 0, &[(1, p)]);
        let whole = st.argmax(&x, p).unwrap();
        assert_eq!(got == whole, how == Break::Nothing, "{how:?}");
        // Values with many ties.
        let mut seed = 1u64;
        for _ in 0..400 {
            let mut draw = || {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 33) % 4
            };
            let x: Vec<f64> = (0..12).map(|_| draw() as f64).collect();
            let y: Vec<f64> = (0..12).map(|_| draw() as f64).collect();
            let first = |v: &[f64]| {
                let m = v.iter().copied().fold(f64::MIN, f64::max);
                v.iter().position(|&a| a == m).unwrap()
            };
            let at = |v: &[f64], d: i64| {
                let s = (d * step) as usize;
                v[s..s + b as usize].to_vec()
            };
            let chooser = if how == Break::Chooser { &y } else { &x };
            let sign = if how == Break::Smallest { -1.0 } else { 1.0 };
            let tops: Vec<f64> = (0..n)
                .map(|d| sign * at(chooser, d).into_iter().fold(f64::MIN, f64::max))
                .collect();
            let best = first(&tops) as i64;
            let want = k * best + first(&at(&x, best)) as i64;
            let ins: Inputs = [(0, x), (1, y)].into_iter().collect();
            let v = Evaluator::new(&st, &ins).value(&got, &[], &[]);
            assert_eq!(v, Some(want as f64), "{how:?}");
        }
    }
}

#[test]
fn positions_do_not_see_positive_factors() {
    let mut st = Store::new(ALL);
    let at = |st: &mut Store, k: i64| {
        let j = st.lins.local(5);
        let x = read(st, 0, 5, 0, &[(1, j)]);
        let x = scaled(st, &x, k);
        st.argmax(&x, j).unwrap()
    };
    let (one, three, minus) = (at(&mut st, 1), at(&mut st, 3), at(&mut st, -2));
    assert_eq!(one, three);
    assert_ne!(one, minus);
    let ins: Inputs = [(0, vec![2.0, 7.0, -1.0, 7.0, -1.0])].into_iter().collect();
    let ev = Evaluator::new(&st, &ins);
    assert_eq!(ev.value(&one, &[], &[]), Some(1.0));
    assert_eq!(ev.value(&minus, &[], &[]), Some(2.0));
}

#[test]
fn exponentials_that_terms_share_stand_outside() {
    let mut st = Store::new(REALS);
    let (i, k) = (st.lins.local(3), st.lins.local(3));
    let m = read(&mut st, 0, 3, 0, &[(1, i)]);
    let other = read(&mut st, 0, 3, 0, &[(1, k)]);
    let (u, v) = (read(&mut st, 1, 3, 0, &[(1, k)]), read(&mut st, 2, 3, 0, &[(1, k)]));
    let (e, f) = (st.exp(F, &m).unwrap(), st.exp(F, &other).unwrap());
    let (eu, ev, fv) =
        (st.mul(F, &e, &u).unwrap(), st.mul(F, &e, &v).unwrap(), st.mul(F, &f, &v).unwrap());
    let ev2 = scaled(&mut st, &ev, -2);
    let got = st.add(F, &[eu.clone(), ev2]).unwrap();
    let v2 = scaled(&mut st, &v, -2);
    let s = st.add(F, &[u.clone(), v2]).unwrap();
    assert_eq!(got, st.mul(F, &e, &s).unwrap());
    assert!(st.log.is_empty());
    // Exponentials read elsewhere, or of another power, are others.
    let mixed = st.add(F, &[eu.clone(), fv]).unwrap();
    let over = st.prod(F, &[(e.clone(), -1), (v.clone(), 1)]).unwrap();
    let powers = st.add(F, &[eu, over]).unwrap();
    let data: [Vec<f64>; 3] = [vec![0.5, -1.0, 2.0], vec![3.0, -2.0, 0.25], vec![1.5, 4.0, -3.0]];
    let ins: Inputs = data.iter().cloned().enumerate().map(|(k, v)| (k as u32, v)).collect();
    let value = Evaluator::new(&st, &ins);
    for a in 0..3usize {
        for b in 0..3usize {
            let (e, f) = (data[0][a].exp(), data[0][b].exp());
            let (u, v) = (data[1][b], data[2][b]);
            for (t, want) in
                [(&got, e * (u - 2.0 * v)), (&mixed, e * u + f * v), (&powers, e * u + v / e)]
            {
                let x = value.value(t, &[i, k], &[a as i64, b as i64]).unwrap();
                assert!((x - want).abs() < 1e-9 * (1.0 + want.abs()), "{x} is not {want}");
            }
        }
    }
}

/// A mask value and the axis, scores, and predicate of a masked row.
struct Row {
    st: Store,
    i: Ax,
    x: Val,
    p: Val,
    ex: Val,
    ind: Val,
}

fn row(rules: Rules) -> Row {
    let mut st = Store::new(rules);
    let i = st.lins.local(4);
    let x = read(&mut st, 0, 4, 0, &[(1, i)]);
    let l = form(&mut st, -2, &[(1, i)]);
    let g = st.iota(l);
    let p = st.ge0(&g).unwrap();
    let ex = st.exp(F, &x).unwrap();
    let ind = st.indicator(F, &p);
    Row { st, i, x, p, ex, ind }
}

#[test]
fn masks_are_far_below_all_scores_and_logged() {
    for (m, rules, masks) in [
        (-1e9, ALL, true),
        (-3.4e38, ALL, true),
        (-9.9e8, ALL, false),
        (-1e4, ALL, false),
        (1e30, ALL, false),
        (-1e30, REALS, false),
    ] {
        let what = format!("{m} {rules:?}");
        // exp(p ? x : m)
        let mut t = row(rules);
        let c = number(&mut t.st, m);
        let s = t.st.select(F, &t.p, &t.x, &c).unwrap();
        let got = t.st.exp(F, &s).unwrap();
        let want = t.st.mul(F, &t.ind, &t.ex).unwrap();
        assert_ne!(got, want, "in a definition the exponential is a number");
        assert_eq!(t.st.same_by_parts(&got, &want, &mut Special::deep(), 3), masks, "{what}");
        assert_eq!(t.st.log.iter().any(|u| u.law == MASK), masks, "{what}");
        let plain = t.st.same_by_parts(&got, &want, &mut Special::default(), 3);
        assert!(!plain, "not without the law");
        // x + m * [p]
        let mut t = row(rules);
        let n = t.st.convert_pred(F, &t.p);
        let k = t.st.coefs.float(m).unwrap();
        let n = t.st.scale(&n, k).unwrap();
        let s = t.st.add(F, &[t.x.clone(), n]).unwrap();
        let got = t.st.exp(F, &s).unwrap();
        let q = t.st.not(&t.p);
        let ind = t.st.indicator(F, &q);
        let want = t.st.mul(F, &ind, &t.ex).unwrap();
        assert_eq!(t.st.same_by_parts(&got, &want, &mut Special::deep(), 3), masks, "{what}");
        // x + m
        let mut t = row(rules);
        let c = number(&mut t.st, m);
        let s = t.st.add(F, &[t.x.clone(), c]).unwrap();
        let got = t.st.exp(F, &s).unwrap();
        let zero = t.st.zero(F);
        assert!(!t.st.is_zero(&got));
        assert_eq!(t.st.same_by_parts(&got, &zero, &mut Special::deep(), 3), masks, "{what}");
    }
}

#[test]
fn a_maximum_may_be_a_mask_value_itself() {
    // exp(s - max s) for masked scores s: where all are masked it is 1.
    for m in [-1e9, -1e30] {
        let mut t = row(ALL);
        let c = number(&mut t.st, m);
        let s = t.st.select(F, &t.p, &t.x, &c).unwrap();
        let top = t.st.max_over(F, &s, &[t.i]).unwrap();
        let minus = t.st.scale(&top, Coef::NEG).unwrap();
        let e = t.st.add(F, &[s, minus.clone()]).unwrap();
        let got = t.st.exp(F, &e).unwrap();
        let e = t.st.add(F, &[t.x.clone(), minus.clone()]).unwrap();
        let e = t.st.exp(F, &e).unwrap();
        let want = t.st.mul(F, &t.ind, &e).unwrap();
        assert!(!t.st.same_by_parts(&got, &want, &mut Special::deep(), 3));
        // exp(m - max s) alone, also with the maximum behind other operators.
        for f in ["convert", "tanh"] {
            let f = t.st.sym(f);
            let hidden = t.st.ew(f, F, false, std::slice::from_ref(&minus));
            for x in [&minus, &hidden] {
                let e = t.st.add(F, &[c.clone(), x.clone()]).unwrap();
                let got = t.st.exp(F, &e).unwrap();
                let zero = t.st.zero(F);
                assert!(!t.st.same_by_parts(&got, &zero, &mut Special::deep(), 3));
            }
        }
        assert!(t.st.log.iter().all(|u| u.law != MASK));
        // exp(m - m) is 1.
        let less = t.st.scale(&c, Coef::NEG).unwrap();
        let e = t.st.add(F, &[c.clone(), less]).unwrap();
        let one = t.st.exp(F, &e).unwrap();
        assert_eq!(one, t.st.one(F));
        // exp(m + x) / exp(m) = exp(x).
        let e = t.st.add(F, &[c.clone(), t.x.clone()]).unwrap();
        let (e, d) = (t.st.exp(F, &e).unwrap(), t.st.exp(F, &c).unwrap());
        assert_eq!(t.st.prod(F, &[(e, 1), (d, -1)]).unwrap(), t.ex);
    }
}

#[test]
fn maxima_with_constants_use_the_sign() {
    for (sign, c, rules, want) in [
        (-1, 0.0, ALL, Some(0.0)),
        (-1, 2.0, ALL, Some(2.0)),
        (-1, -0.5, ALL, None),
        (-1, 0.0, REALS, None),
        (1, -1.0, ALL, Some(f64::NAN)),
        (1, 0.5, ALL, None),
    ] {
        let mut st = Store::new(rules);
        let x = read(&mut st, 0, 3, 0, &[]);
        let abs = st.sym("abs");
        let a = st.ew(abs, F, false, &[x]);
        let a = scaled(&mut st, &a, sign);
        let k = number(&mut st, c);
        let m = st.max(F, &[a.clone(), k.clone()]).unwrap();
        let simple = match want {
            Some(w) if w.is_nan() => m == a,
            Some(_) => m == k,
            None => m != a && m != k,
        };
        assert!(simple, "max({sign}*|x|, {c}) {rules:?}");
        for x in [-3.0, -0.25, 0.0, 1.0] {
            let ins: Inputs = [(0, vec![x; 3])].into_iter().collect();
            let want = (sign as f64 * f64::abs(x)).max(c);
            assert_eq!(Evaluator::new(&st, &ins).value(&m, &[], &[]), Some(want));
        }
    }
}

#[test]
fn parts_are_compared_one_by_one() {
    // tanh(pieces) against pieces of tanh, whole and with one part changed.
    for wrong in [false, true] {
        let mut st = Store::new(REALS);
        let i = st.lins.local(6);
        let tanh = st.sym("tanh");
        let run = |st: &mut Store, len: i64, id: u32, outer: bool| {
            let a = st.lins.local(len);
            let v = read(st, id, 6, 0, &[(1, a)]);
            let val = if outer { st.ew(tanh, F, false, &[v]) } else { v };
            Run { len, val, axis: Some(a) }
        };
        let inner = [run(&mut st, 2, 0, false), run(&mut st, 4, 1, false)];
        let outer = [run(&mut st, 2, 0, true), run(&mut st, 4, if wrong { 2 } else { 1 }, true)];
        let a = st.pieces(F, &inner, Lins::plain(i)).unwrap();
        let a = st.ew(tanh, F, false, &[a]);
        let b = st.pieces(F, &outer, Lins::plain(i)).unwrap();
        assert_ne!(a, b, "the normal form does not choose");
        for mut sp in [Special::default(), Special::deep()] {
            assert_eq!(st.same_by_parts(&a, &b, &mut sp, 4), !wrong);
        }
    }
    // A causal sum in a block of rows: sure, unsure and dropped columns.
    for shift in [0, 1] {
        let mut st = Store::new(REALS);
        let rows = st.lins.local(2);
        let causal = |st: &mut Store, from: i64, len: i64| {
            let j = st.lins.local(len);
            let x = read(st, 0, 8, from, &[(1, j)]);
            let l = form(st, 4 - from, &[(1, rows), (-1, j)]);
            let g = st.iota(l);
            let p = st.ge0(&g).unwrap();
            let g = st.indicator(F, &p);
            let f = st.mul(F, &g, &x).unwrap();
            st.sum(F, &f, &[j]).unwrap()
        };
        let whole = causal(&mut st, 0, 8);
        let (head, tail) = (causal(&mut st, 0, 4), causal(&mut st, 4, 2 - shift));
        let parts = st.add(F, &[head, tail]).unwrap();
        assert_eq!(st.same_by_parts(&whole, &parts, &mut Special::deep(), 4), shift == 0);
        let x: Vec<f64> = (0..8).map(|k| f64::from(1 << k)).collect();
        let ins: Inputs = [(0, x.clone())].into_iter().collect();
        let deep = st.specialise(&whole, &mut Special::deep()).unwrap();
        for r in 0..2usize {
            let want: f64 = x[..=4 + r].iter().sum();
            let v = Evaluator::new(&st, &ins).value(&deep, &[rows], &[r as i64]);
            assert_eq!(v, Some(want));
        }
    }
}

/// Interleaved rows read at every second index: `x[0], y[0], x[1], y[1], ..`.
/// Parts do not tell them apart, points do.
#[test]
fn values_are_compared_at_points() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Change {
        None,
        Last,
        Shallow,
        Many,
    }
    for how in [Change::None, Change::Last, Change::Shallow, Change::Many] {
        let mut st = Store::new(REALS);
        let n = if how == Change::Many { 2048 } else { 8 };
        // p[j] = j == 0 ? x[0] : x[2 j] + y[j]: pieces and a stride.
        let rows = |st: &mut Store, at: LinId, last: i64| {
            let q = st.lins.local(n - 1);
            let first = read(st, 0, 4 * n, 0, &[]);
            let a = read(st, 0, 4 * n, 2, &[(2, q)]);
            let b = read(st, 1, 4 * n, 1, &[(1, q)]);
            let body = st.add(F, &[a, b]).unwrap();
            let mut runs = vec![
                Run { len: 1, val: first, axis: None },
                Run { len: n - 1, val: body, axis: Some(q) },
            ];
            if last != 0 {
                // The last element is read elsewhere.
                let z = read(st, 1, 4 * n, last, &[]);
                let cut = st.lins.local(n - 2);
                let a = read(st, 0, 4 * n, 2, &[(2, cut)]);
                let b = read(st, 1, 4 * n, 1, &[(1, cut)]);
                let body = st.add(F, &[a, b]).unwrap();
                runs[1] = Run { len: n - 2, val: body, axis: Some(cut) };
                runs.push(Run { len: 1, val: z, axis: None });
            }
            st.pieces(F, &runs, at).unwrap()
        };
        let j = st.lins.local(n);
        let at = Lins::plain(j);
        let a = rows(&mut st, at, 0);
        // The same, one element at a time.
        let b = if how == Change::Last {
            rows(&mut st, at, 5)
        } else {
            let mut runs = Vec::new();
            for k in 0..n.min(8) {
                let x = read(&mut st, 0, 4 * n, 2 * k, &[]);
                let y = read(&mut st, 1, 4 * n, k, &[]);
                let val = if k == 0 { x } else { st.add(F, &[x, y]).unwrap() };
                runs.push(Run { len: 1, val, axis: None });
            }
            if n > 8 {
                let q = st.lins.local(n - 8);
                let x = read(&mut st, 0, 4 * n, 16, &[(2, q)]);
                let y = read(&mut st, 1, 4 * n, 8, &[(1, q)]);
                let val = st.add(F, &[x, y]).unwrap();
                runs.push(Run { len: n - 8, val, axis: Some(q) });
            }
            st.pieces(F, &runs, at).unwrap()
        };
        let mut sp = if how == Change::Shallow { Special::default() } else { Special::deep() };
        let same = st.same_at_points(&a, &b, &mut sp);
        assert_eq!(same, how == Change::None, "{how:?}");
    }
}
