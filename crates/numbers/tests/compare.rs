//! Metrics and criteria on cases whose answers follow from arithmetic. The
//! comparison with numpy on many more is `scripts/check_numbers.py`.

use scalify_ir::DType;
use scalify_numbers::compare::{Code, Job, Report, Verdict, compare};
use scalify_numbers::criteria::Change;
use scalify_numbers::recheck::recheck;
use scalify_numbers::{Metrics, Options, Value, measure, report};
use scalify_tensors::{Archive, Tensor, TensorRef, write_npz};

fn f32s(dims: &[i64], v: &[f32]) -> Tensor {
    let b: Vec<u8> = v.iter().flat_map(|x| x.to_le_bytes()).collect();
    Tensor::new(DType::F32, dims.iter().copied(), b).unwrap()
}

fn of(e: &[f32], a: &[f32]) -> Metrics {
    let n = [e.len() as i64];
    let o = Options { atol: 0.5, rtol: 0.25, ..Options::default() };
    measure(&f32s(&n, e), &f32s(&n, a), &o).unwrap()
}

#[test]
fn small_numbers_by_hand() {
    // Errors 0, 1, 0.25, 2; relative (above 0.5): 0, 1, 0.5.
    let m = of(&[1.0, -1.0, 0.25, 4.0], &[1.0, -2.0, 0.0, 6.0]);
    assert_eq!((m.max_abs, m.mean_abs, m.max_rel, m.mean_rel), (2.0, 0.8125, 1.0, 0.5));
    assert_eq!((m.rel_elements, m.different, m.sign_flips), (3, 3, 0));
    assert_eq!(m.rmse, ((1.0 + 0.0625 + 4.0f64) / 4.0).sqrt());
    // 0.5 + 0.25 |e| is 0.75, 0.75, 0.5625, 1.5.
    assert_eq!((m.not_allclose, m.not_xla), (2, 2));
    assert_eq!(m.worst[0].index, [3]);
    assert_eq!((m.worst[0].expected, m.worst[0].actual), (Value::Real(4.0), Value::Real(6.0)));
    assert_eq!(m.worst_rel.unwrap().index, [1]);
    assert_eq!(m.percentiles.p50, 0.625);
    // From 1 to 2 and from 4 to 6 there are 2^23 and 2^22 floats.
    let u = m.ulp.unwrap();
    assert_eq!(u.max, 0.25f32.to_bits() as u64);
    assert_eq!(
        u.histogram.iter().filter(|b| b[1] > 0).map(|b| b[0]).collect::<Vec<_>>(),
        [0, 1 << 22, 1 << 23, 1 << 29]
    );
}

#[test]
fn what_is_not_finite_is_counted_apart() {
    let (n, i) = (f32::NAN, f32::INFINITY);
    let m = of(&[n, n, i, i, -i, 1.0, 1e-40], &[n, 0.0, i, -i, f32::MIN, i, 1e-40]);
    assert_eq!((m.nan_pairs, m.nan_mismatches, m.inf_mismatches, m.inf_saturated), (1, 1, 3, 1));
    assert_eq!((m.finite_pairs, m.max_abs), (1, 0.0));
    assert_eq!((m.expected.nan, m.expected.pos_inf, m.expected.neg_inf), (2, 2, 1));
    assert_eq!((m.expected.denormal, m.actual.denormal), (1, 1));
    assert_eq!(m.special.iter().map(|s| s.index[0]).collect::<Vec<_>>(), [1, 3, 4, 5]);
}

#[test]
fn threads_do_not_matter() {
    let n = 300_000;
    let mut s = 7u32;
    let mut next = || {
        s = s.wrapping_mul(1664525).wrapping_add(1013904223);
        s as f32 / u32::MAX as f32
    };
    let e: Vec<f32> = (0..n).map(|_| next()).collect();
    let a: Vec<f32> = e.iter().map(|x| x + next() * 1e-3).collect();
    let (e, a) = (f32s(&[3, n / 3], &e), f32s(&[3, n / 3], &a));
    let json = |threads| {
        let o = Options { threads, axis: Some(1), ..Options::default() };
        serde_json::to_string(&measure(&e, &a, &o).unwrap()).unwrap()
    };
    assert_eq!(json(1), json(5));
}

/// Writes two archives and compares them.
fn archives(e: &[(&str, TensorRef)], a: &[(&str, TensorRef)], changes: &[&str]) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let (p, q) = (dir.path().join("e.npz"), dir.path().join("a.npz"));
    write_npz(&p, e.iter().copied()).unwrap();
    write_npz(&q, a.iter().copied()).unwrap();
    let changes = changes.iter().map(|c| Change::parse(c).unwrap()).collect();
    let job = Job { changes, worst: 3, threads: 2, ..Job::default() };
    compare(["e", "a"], &Archive::open(&p).unwrap(), &Archive::open(&q).unwrap(), &job).unwrap()
}

#[test]
fn structure_is_never_skipped() {
    let x = TensorRef { dtype: DType::U8, dims: &[2], bytes: &[1, 2] };
    let y = TensorRef { dtype: DType::U8, dims: &[2, 1], bytes: &[1, 2] };
    let z = TensorRef { dtype: DType::S8, dims: &[2], bytes: &[1, 2] };
    let all = [("a", x), ("b", x), ("c", x), ("d", x)];
    let r = archives(&all, &[("a", x), ("b", y), ("c", z), ("e", x)], &[]);
    assert_eq!((r.verdict, r.counts), (Verdict::Different, [1, 4, 0]));
    let codes: Vec<Option<Code>> =
        r.tensors.iter().map(|t| t.findings.first().map(|f| f.code)).collect();
    let want = [None, Some(Code::Shape), Some(Code::Dtype), Some(Code::Missing), Some(Code::Extra)];
    assert_eq!(codes, want);
    // Nothing to compare is not equality.
    assert_eq!(archives(&[], &[], &[]).verdict, Verdict::Unknown);
}

#[test]
fn reports_are_strict_and_can_be_judged_again() {
    let b = |v: [f32; 3]| v.map(f32::to_le_bytes).concat();
    let (e, a) = (b([1.0, f32::NAN, 100.0]), b([1.001, f32::NAN, 100.0]));
    let t = |bytes| TensorRef { dtype: DType::F32, dims: &[3], bytes };
    let r = archives(&[("x", t(&e))], &[("x", t(&a))], &["atol=0", "rtol=1e-6"]);
    assert_eq!(r.verdict, Verdict::Different);
    assert_eq!(r.tensors[0].mismatched, Some(2));
    let again = |text: &str, changes: &[&str]| {
        let c: Vec<Change> = changes.iter().map(|c| Change::parse(c).unwrap()).collect();
        recheck(text, &c, &[]).unwrap()
    };
    for text in [report::json(&r).unwrap(), report::jsonl(&r).unwrap()] {
        assert_eq!(again(&text, &[]).tensors[0].mismatched, Some([2, 2]));
        assert_eq!(again(&text, &["rtol=1e-2"]).tensors[0].mismatched, Some([1, 1]));
        assert_eq!(again(&text, &["rtol=1e-2", "equal_nan=true"]).verdict, Verdict::Equal);
        // 0.001 is inside a cell: not known at a tolerance inside it.
        let v = again(&text, &["atol=0.001", "rtol=0", "equal_nan=true"]);
        assert_eq!(v.verdict, Verdict::Unknown);
        assert!(again(&text, &["ulp=9000", "equal_nan=true"]).verdict == Verdict::Equal);
    }
    for bad in ["", "{}", "[1]", "{\"schema\": \"x\", \"tensors\": []}", "{\"schema\": 3}"] {
        assert!(recheck(bad, &[], &[]).is_err(), "{bad}");
    }
    assert!(report::csv(&r).unwrap().lines().count() == 2);
    assert!(report::junit(&r).unwrap().contains("<failure"));
    let text = report::text(&r, false, false);
    assert!(text.contains("Mismatched elements: 2 / 3 (66.7%)"), "{text}");
}

#[test]
fn settings_are_checked() {
    for bad in [
        "atol=-1",
        "rtol=x",
        "ulp=1.5",
        "criterion=near",
        "inf=maybe",
        "atol",
        "wat=1",
        "min_top1=2",
    ] {
        assert!(Change::parse(bad).is_err(), "{bad}");
    }
}

/// Pairs of a type with errors of many kinds and sizes, a block and a bit more.
fn noisy(t: DType, kind: u64) -> (Tensor, Tensor) {
    let mut s = kind * 77 + 1;
    let mut next = move || {
        s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (s >> 40) as f32 / (1u64 << 24) as f32
    };
    let (mut e, mut a) = (Vec::new(), Vec::new());
    for i in 0..70_001 {
        let scale = 2f32.powi((next() * 40.0) as i32 - 25);
        let x = (next() - 0.5) * if kind.is_multiple_of(2) { scale } else { 2.0 };
        let y = match kind {
            0 => x,
            1 | 2 => x * (1.0 + (next() - 0.5) * 1e-4),
            3 => x * (1.0 + (next() - 0.5) * 3e-2),
            4 => x * (1.0 + (next() - 0.5) * 2f32.powi((next() * -23.0) as i32)),
            5 => x + (next() - 0.5) * 1e-3,
            6 => {
                if next() < 0.02 {
                    x * 1.01
                } else {
                    x
                }
            }
            7 => next() - 0.5,
            8 => 0.0,
            // Few pairs that are not near, of each sort.
            10 => match (next() * 300.0) as u32 {
                0 => -x,
                1 => f32::NAN,
                2 => f32::NEG_INFINITY,
                3 => x * 5.0,
                4 => f32::MIN_POSITIVE * next(),
                5 => f32::MAX,
                _ => x * (1.0 + (next() - 0.5) * 1e-2),
            },
            _ => [x, 0.0, -0.0, f32::NAN, f32::INFINITY, f32::MAX][(next() * 6.0) as usize],
        };
        // On the other side too.
        let x = match (kind, (next() * 200.0) as u32) {
            (10, 0) => f32::NAN,
            (10, 1) => f32::NEG_INFINITY,
            (10, 2) => f32::INFINITY,
            (10, 3) => f32::MIN_POSITIVE * next(),
            (10, 4) => y,
            _ => x,
        };
        // Some chunks have values at the ends of the range.
        let (x, y) = match (i % 5000, kind) {
            (7, 1..=6) => (f32::MIN_POSITIVE / 3.0, f32::MIN_POSITIVE / 3.0),
            (8, 1..=6) => (0.0, 0.0),
            (9, 3) => (-0.0, 0.0),
            (10, 4) => (f32::MAX, f32::MAX * 0.9),
            _ => (x, y),
        };
        let push = |v: &mut Vec<u8>, x: f32| match t {
            DType::Bf16 => v.extend(half::bf16::from_f32(x).to_le_bytes()),
            DType::F16 => v.extend(half::f16::from_f32(x).to_le_bytes()),
            _ => v.extend(x.to_le_bytes()),
        };
        push(&mut e, x);
        push(&mut a, y);
    }
    let n = 70_001;
    (Tensor::new(t, [n], e).unwrap(), Tensor::new(t, [n], a).unwrap())
}

/// The tensor as `f64`, whose values, and thus errors, are the same.
fn widened(t: &Tensor) -> Tensor {
    let b = t.bytes().unwrap();
    let wide = |x: f64| x.to_le_bytes();
    let v: Vec<u8> = match t.dtype() {
        DType::Bf16 => b
            .as_chunks()
            .0
            .iter()
            .flat_map(|x| wide(half::bf16::from_le_bytes(*x).to_f64()))
            .collect(),
        DType::F16 => b
            .as_chunks()
            .0
            .iter()
            .flat_map(|x| wide(half::f16::from_le_bytes(*x).to_f64()))
            .collect(),
        _ => b.as_chunks().0.iter().flat_map(|x| wide(f32::from_le_bytes(*x) as f64)).collect(),
    };
    Tensor::new(DType::F64, t.dims().iter().copied(), v).unwrap()
}

/// The ways for narrow floats that differ by little find what the general one
/// finds for the same values.
#[test]
fn all_ways_agree() {
    for t in [DType::F32, DType::Bf16, DType::F16] {
        for kind in 0..11 {
            let (e, a) = noisy(t, kind);
            for (atol, rtol) in
                [(0.0, 1e-3), (1e-5, 1e-3), (1e-3, 1.6e-2), (0.3, 0.0), (1e-3, 5e-5)]
            {
                let o = Options { atol, rtol, ulp: 2, threads: 2, ..Options::default() };
                let m = measure(&e, &a, &o).unwrap();
                let w = measure(&widened(&e), &widened(&a), &o).unwrap();
                let what = format!("{t} {kind} {atol} {rtol}");
                let counts = |m: &Metrics| {
                    let c =
                        [m.finite_pairs, m.rel_elements, m.different, m.sign_flips, m.zero_signs];
                    let d = [
                        m.nan_mismatches,
                        m.nan_pairs,
                        m.inf_mismatches,
                        m.not_allclose,
                        m.not_xla,
                    ];
                    (c, d)
                };
                assert_eq!(counts(&m), counts(&w), "{what}");
                assert_eq!((m.max_abs, m.max_rel), (w.max_abs, w.max_rel), "{what}");
                assert_eq!(m.histogram, w.histogram, "{what}");
                let p = |m: &Metrics| {
                    let p = m.percentiles;
                    (p.exact, p.p50, p.p90, p.p99, p.p99_9)
                };
                assert_eq!(p(&m), p(&w), "{what}");
                let places = |v: &[scalify_numbers::Element]| {
                    v.iter().map(|x| x.index[0]).collect::<Vec<_>>()
                };
                let at = |v: &[scalify_numbers::Element]| {
                    v.iter().map(|x| (x.index[0], x.abs)).collect::<Vec<_>>()
                };
                assert_eq!(at(&m.worst), at(&w.worst), "{what}");
                assert_eq!(at(m.worst_rel.as_slice()), at(w.worst_rel.as_slice()), "{what}");
                assert_eq!(places(&m.special), places(&w.special), "{what}");
                let sides =
                    |m: &Metrics| [m.expected, m.actual].map(|s| (s.nan, s.pos_inf, s.neg_inf));
                assert_eq!(sides(&m), sides(&w), "{what}");
                let near = |x: f64, y: f64| x == y || (x - y).abs() <= 1e-12 * y.abs();
                for (x, y) in [
                    (m.mean_abs, w.mean_abs),
                    (m.rmse, w.rmse),
                    (m.mean_rel, w.mean_rel),
                    (m.cosine.unwrap_or(2.0), w.cosine.unwrap_or(2.0)),
                    (m.sqnr_db.unwrap_or(1e9), w.sqnr_db.unwrap_or(1e9)),
                ] {
                    assert!(near(x, y), "{what}: {x} {y}");
                }
                // Distances and denormals follow from the bits.
                let (u, over, den) = by_bits(&e, &a);
                let place = m.worst_ulp.as_ref().map(|x| x.ulp);
                assert_eq!(
                    place,
                    (m.ulp.as_ref().unwrap().max > 0).then(|| u.iter().max().copied()),
                    "{what}"
                );
                let ulp = m.ulp.unwrap();
                assert_eq!(
                    (ulp.max, ulp.over),
                    (u.iter().copied().max().unwrap_or(0), over),
                    "{what}"
                );
                for (k, b) in ulp.histogram.iter().enumerate() {
                    let end = ulp.histogram.get(k + 1).map_or(u64::MAX, |b| b[0]);
                    let want = u.iter().filter(|&&x| b[0] <= x && x < end).count();
                    assert_eq!(b[1], want as u64, "{what} {k}");
                }
                assert_eq!([m.expected.denormal, m.actual.denormal], den, "{what}");
            }
        }
    }
}

/// Distances of finite pairs, how many exceed 2, denormals of both sides.
fn by_bits(e: &Tensor, a: &Tensor) -> (Vec<u64>, u64, [u64; 2]) {
    let (size, field) = match e.dtype() {
        DType::F32 => (4, 23),
        DType::Bf16 => (2, 7),
        _ => (2, 10),
    };
    let sign = 1i64 << (8 * size - 1);
    let word = |b: &[u8]| b.iter().rev().fold(0i64, |w, &b| w << 8 | b as i64);
    let finite = |w: i64| (w & (sign - 1)) >> field != (sign - 1) >> field;
    let denormal = |w: i64| (w & (sign - 1)) >> field == 0 && w & (sign - 1) != 0;
    let rank = |w: i64| if w & sign == 0 { w } else { -(w & (sign - 1)) };
    let (e, a) = (e.bytes().unwrap(), a.bytes().unwrap());
    let (mut u, mut den) = (Vec::new(), [0; 2]);
    for (x, y) in e.chunks(size).zip(a.chunks(size)) {
        let (x, y) = (word(x), word(y));
        den[0] += denormal(x) as u64;
        den[1] += denormal(y) as u64;
        if finite(x) && finite(y) {
            u.push(rank(x).abs_diff(rank(y)));
        }
    }
    let over = u.iter().filter(|&&x| x > 2).count() as u64;
    (u, over, den)
}

/// Chunks of nothing but NaN, with some that have other values between them.
#[test]
fn tensors_of_nan_are_counted() {
    for t in [DType::F32, DType::Bf16, DType::F16] {
        let size = t.literal_bytes();
        let n = 20_000;
        let value = |x: f32| match t {
            DType::F32 => x.to_le_bytes().to_vec(),
            DType::Bf16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
            _ => half::f16::from_f32(x).to_le_bytes().to_vec(),
        };
        let side = |others: &[(usize, f32)]| {
            let mut b = value(f32::NAN).repeat(n);
            for &(i, x) in others {
                b[i * size..][..size].copy_from_slice(&value(x));
            }
            Tensor::new(t, [n as i64], b).unwrap()
        };
        let inf = f32::INFINITY;
        let e = side(&[(3000, 1.0), (7000, inf), (9000, 2.0), (19_999, 4.0)]);
        let a = side(&[(3000, 1.5), (7000, inf), (12_000, -inf), (15_360, 0.0)]);
        let m = measure(&e, &a, &Options::default()).unwrap();
        assert_eq!((m.nan_pairs, m.nan_mismatches), (n as u64 - 6, 4), "{t}");
        assert_eq!((m.finite_pairs, m.inf_mismatches, m.max_abs), (1, 0, 0.5), "{t}");
        assert_eq!((m.expected.nan, m.actual.nan), (n as u64 - 4, n as u64 - 4), "{t}");
        assert_eq!((m.expected.pos_inf, m.actual.neg_inf), (1, 1), "{t}");
        let at: Vec<_> = m.special.iter().map(|s| s.index[0]).collect();
        assert_eq!(at, [9000, 12_000, 15_360, 19_999], "{t}");
    }
}

/// `numpy.percentile`, linear, of errors by sorting them.
fn sorted_percentiles(e: &Tensor, a: &Tensor) -> [f64; 4] {
    let (e, a) = (f64s(e), f64s(a));
    let pairs = e.iter().zip(&a).filter(|(e, a)| e.is_finite() && a.is_finite());
    let mut d: Vec<f64> = pairs.map(|(e, a)| (a - e).abs()).collect();
    d.sort_unstable_by(f64::total_cmp);
    [50.0, 90.0, 99.0, 99.9].map(|p| {
        let Some(last) = d.len().checked_sub(1) else { return 0.0 };
        let at = last as f64 * (p / 100.0);
        let (below, t) = (at.floor() as usize, at - at.floor());
        let (x, y) = (d[below], d[(below + 1).min(last)]);
        if x == y {
            x
        } else if t >= 0.5 {
            y - (y - x) * (1.0 - t)
        } else {
            x + (y - x) * t
        }
    })
}

fn f64s(t: &Tensor) -> Vec<f64> {
    let b = t.bytes().unwrap();
    let short = |x: &[u8]| u16::from_le_bytes([x[0], x[1]]);
    b.chunks(t.dtype().literal_bytes())
        .map(|x| match t.dtype() {
            DType::F32 => f32::from_le_bytes(x.try_into().unwrap()) as f64,
            DType::Bf16 => half::bf16::from_bits(short(x)).to_f64(),
            DType::F16 => half::f16::from_bits(short(x)).to_f64(),
            _ => f64::from_le_bytes(x.try_into().unwrap()),
        })
        .collect()
}

/// Whatever the errors and wherever they are, percentiles are those of all of
/// them sorted, on any number of threads.
#[test]
fn percentiles_are_exact() {
    let mut s = 7u64;
    let mut next = move || {
        s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (s >> 11) as f64 / (1u64 << 53) as f64
    };
    let n = 150_001;
    for t in [DType::F32, DType::F64, DType::Bf16, DType::F16] {
        for kind in 0..13 {
            let (mut e, mut a) = (Vec::new(), Vec::new());
            for i in 0..n {
                let x = next() * 2.0 - 1.0;
                let share = i as f64 / n as f64;
                let (x, y) = match kind {
                    0 => (x, x * (1.0 + 1e-4 * next())),
                    1 => (x, x + 1e-3 * next()),
                    2 => (x, next() - 0.5),
                    // Growing; only at one place; by steps.
                    3 => (x, x + share),
                    4 => (x, if (0.3..0.301).contains(&share) { x + 1.0 } else { x }),
                    5 => (x, x + (share * 20.0).floor()),
                    // Of few values; of one; none.
                    6 => (0.0, (next() * 4.0).floor()),
                    7 => (1.0, -1.0),
                    8 => (x, x),
                    // Of all sizes, and not finite.
                    9 => (x * 1e30, x * 1e30 * (1.0 + next())),
                    10 => (x * 3e38, x * -3e38 * next()),
                    11 => (x, [x, f64::NAN, f64::INFINITY, x * next()][(next() * 4.0) as usize]),
                    _ => (f64::NAN, f64::NAN),
                };
                e.extend(encoded(t, x));
                a.extend(encoded(t, y));
            }
            let [e, a] = [e, a].map(|b| Tensor::new(t, [n], b).unwrap());
            for threads in [1, 3] {
                let m = measure(&e, &a, &Options { threads, ..Options::default() }).unwrap();
                let p = m.percentiles;
                let found = [p.p50, p.p90, p.p99, p.p99_9];
                assert!(p.exact);
                assert_eq!(found, sorted_percentiles(&e, &a), "{t} {kind} {threads}");
            }
        }
    }
}

fn encoded(t: DType, x: f64) -> Vec<u8> {
    match t {
        DType::F32 => (x as f32).to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::from_f64(x).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(x).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    }
}

/// More errors of the same size than are ever collected.
#[test]
fn percentiles_of_many_equal_errors_are_exact() {
    let n = 9_000_000usize;
    let e = vec![0.0f32; n];
    let mut a = vec![0.3f32; n];
    let o = Options { threads: 2, ..Options::default() };
    let m = measure(&f32s(&[n as i64], &e), &f32s(&[n as i64], &a), &o).unwrap();
    let one = 0.3f32 as f64;
    assert_eq!((m.percentiles.p50, m.percentiles.p99_9), (one, one));
    // Two neighbours of which one is the median.
    let other = f32::from_bits(0.3f32.to_bits() + 1);
    a[..n * 2 / 5].fill(other);
    let m = measure(&f32s(&[n as i64], &e), &f32s(&[n as i64], &a), &o).unwrap();
    assert_eq!((m.percentiles.p50, m.percentiles.p90), (one, other as f64));
}
