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
