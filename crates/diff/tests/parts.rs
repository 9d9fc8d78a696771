//! Small programs whose errors are known by hand.

use scalify_claim::Claim;
use scalify_diff::analyze::Kind;
use scalify_diff::diff::{Options, Verdict, diff};
use scalify_diff::flow::{Engine, Limits};
use scalify_diff::instrument::{Test, check_finite, first};
use scalify_diff::nan::trace;
use scalify_diff::report::Doc;
use scalify_diff::sample::{Design, Sobol, normal_quantile, permuted, sample};
use scalify_interp::{RunOptions, Tensor, Value};
use scalify_ir::{DType, Module};
use scalify_refute::evaluate::Inputs;
use std::time::Duration;

fn parse(text: &str) -> Module {
    scalify_hlo::parse(text).expect("test program parses")
}

fn f32s(v: &[f32]) -> Tensor {
    Tensor::from_vec(DType::F32, [v.len() as i64], v.to_vec()).unwrap()
}

const SUM: &str = "HloModule a
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] exponential(x)
  z = f32[4] multiply(y, y)
  ROOT r = f32[4] add(z, x)
}";

fn one(x: &[f32]) -> Option<Inputs> {
    Some(Inputs { values: vec![vec![f32s(x)]] })
}

#[test]
fn a_rounded_operand_is_named_and_what_follows_is_not() {
    let b = parse(
        "HloModule b
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] exponential(x)
  h = bf16[4] convert(y)
  g = f32[4] convert(h)
  z = f32[4] multiply(g, g)
  ROOT r = f32[4] add(z, x)
}",
    );
    let a = parse(SUM);
    let r = diff(&a, &b, &Claim::default(), one(&[0.1, 0.2, 0.3, 0.4]), &Options::default());
    let r = r.unwrap();
    assert_eq!(r.verdict, Verdict::Different);
    let f = r.first.as_ref().unwrap();
    assert_eq!(r.b.name(&b, f.node), "h");
    assert_eq!(f.kind, Kind::Precision);
    // The rest is fed with the reference's values: it introduces rounding only,
    // although its accumulated error is that of bf16.
    let row = |n: &str| {
        let at = |k: &&scalify_diff::analyze::Row| r.b.name(&b, r.b.slots[k.pair.b as usize]) == n;
        r.rows.iter().find(at).unwrap()
    };
    let last = row("r");
    assert_eq!(last.kind, Kind::Rounding);
    assert!(last.introduced.max < 1e-6 && last.accumulated.max > 1e-4, "{last:?}");
    // exp(0.1) = 1.10517.. in f32 against bf16: at most 2^-8 off.
    assert!(f.row.is_some_and(|k| r.rows[k].introduced.max < 2f64.powi(-8) * 1.5));
    let doc = Doc::new(["a", "b"], &a, &b, &r);
    let json: serde_json::Value = serde_json::from_str(&doc.json().unwrap()).unwrap();
    assert_eq!(json["verdict"], "different");
    assert_eq!(json["first"]["operation"], "h");
    assert!(doc.junit().unwrap().contains("<failure"));
    assert_eq!(doc.csv().unwrap().lines().count(), r.rows.len() + 1);
    assert_eq!(doc.jsonl().unwrap().lines().count(), r.rows.len() + 1);
}

#[test]
fn a_reordered_sum_is_rounding() {
    let a = parse(SUM);
    let b = parse(&SUM.replace("add(z, x)", "add(x, z)"));
    let r = diff(&a, &b, &Claim::default(), None, &Options::default()).unwrap();
    assert_eq!(r.verdict, Verdict::Equal);
}

#[test]
fn another_constant_is_named() {
    let text = "HloModule a
ENTRY e {
  x = f32[4] parameter(0)
  c = f32[] constant(0.125)
  d = f32[4] broadcast(c), dimensions={}
  y = f32[4] multiply(x, d)
  ROOT r = f32[4] tanh(y)
}";
    let (a, b) = (parse(text), parse(&text.replace("0.125", "0.1251")));
    let r = diff(&a, &b, &Claim::default(), None, &Options::default()).unwrap();
    let f = r.first.as_ref().unwrap();
    assert_eq!((r.b.name(&b, f.node).as_str(), f.kind), ("c", Kind::Function));
}

#[test]
fn first_writer_of_nan() {
    let m = parse(
        "HloModule n
ENTRY e {
  x = f32[3] parameter(0)
  l = f32[3] log(x)
  c = f32[] constant(-inf)
  d = f32[3] broadcast(c), dimensions={}
  m = f32[3] maximum(l, d)
  b = f32[3] exponential(x)
  ROOT r = f32[3] multiply(m, b)
}",
    );
    let limits = Limits::default();
    let mut e = Engine::new(&m, (1, 1), limits).unwrap();
    let f = e.flow(&[vec![Value::Tensor(f32s(&[1.0, -2.0, 80.0]))]], limits).unwrap();
    let found = trace(&m, &f, 1e-4);
    let w = &found.writers[0];
    assert_eq!((w.operation.as_str(), &w.index[..], w.count), ("l", &[1][..], 1));
    assert_eq!(w.operands[0].value, Some(-2.0));
    assert!(w.finite_operands && w.value.is_nan());
    // maximum with -inf moves elements; log(80) exp(80) and exp(80) = 5.5e34
    // are near 3.4e38.
    assert_eq!(found.writers.len(), 1, "{found:?}");
    let near: Vec<&str> = found.near.iter().map(|n| n.operation.as_str()).collect();
    assert_eq!(near, ["r", "b"]);
    assert!((found.near[1].share - 80f64.exp() / f64::from(f32::MAX)).abs() < 1e-8);
}

const LOOP: &str = "HloModule w
sq {
  p = f32[2] parameter(0)
  l = f32[2] log(p)
  ROOT m = f32[2] multiply(l, l)
}
body {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2] call(x), to_apply=sq
  ROOT r = (s32[], f32[2]) tuple(j, y)
}
cond {
  s.1 = (s32[], f32[2]) parameter(0)
  i.1 = s32[] get-tuple-element(s.1), index=0
  n = s32[] constant(2)
  ROOT c = pred[] compare(i.1, n), direction=LT
}
ENTRY e {
  a = f32[2] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[2]) tuple(z, a)
  w = (s32[], f32[2]) while(t), condition=cond, body=body
  ROOT o = f32[2] get-tuple-element(w), index=1
}";

fn bools(v: &Value) -> Vec<bool> {
    v.as_tensor().unwrap().to_i64().unwrap().iter().map(|x| *x != 0).collect()
}

#[test]
fn instrumented_loops_and_calls() {
    let m = parse(LOOP);
    let t = check_finite(&m, &|_| true).unwrap();
    // It is a well-formed program, in memory and as text.
    let bad = scalify_ir::validate(&t.module, &Default::default());
    assert!(bad.is_empty(), "{bad:?}");
    let again = parse(&scalify_hlo::write(&t.module, &Default::default()));
    let names: Vec<&str> = t.flags.iter().map(|f| f.instruction.as_str()).collect();
    assert_eq!(names, ["a", "a", "w/y/l", "w/y/l", "w/y/m", "w/y/m"]);
    let run = |x: &[f32]| {
        let v = scalify_interp::run(
            &again,
            None,
            &[vec![Value::Tensor(f32s(x))]],
            RunOptions::default(),
        );
        let v = v.unwrap();
        let parts = v[0].as_tuple().unwrap().to_vec();
        (parts[0].as_tensor().unwrap().to_f64(), bools(&parts[t.output]))
    };
    // log(log(3)^2)^2
    let (y, flags) = run(&[3.0, 3.0]);
    assert!((y[0] - (3f64.ln().powi(2)).ln().powi(2)).abs() < 1e-6);
    assert!(flags.iter().all(|ok| *ok));
    let (_, flags) = run(&[3.0, -1.0]);
    assert_eq!(flags, [true, true, false, false, false, false]);
    assert_eq!(first(&t.flags, &[flags], Test::Nan), Some((2, 0)));
    // log(1)^2 = 0, log(0) = -inf, (-inf)^2 = inf: infinite, never NaN.
    let (_, flags) = run(&[3.0, 1.0]);
    assert_eq!(flags, [true, true, true, false, true, false]);
}

#[test]
fn instrumented_branches() {
    let m = parse(
        "HloModule c
t {
  p = f32[] parameter(0)
  ROOT l = f32[] log(p)
}
f {
  q = f32[] parameter(0)
  ROOT s = f32[] sqrt(q)
}
ENTRY e {
  g = pred[] parameter(0)
  x = f32[] parameter(1)
  ROOT c = f32[] conditional(g, x, x), true_computation=t, false_computation=f
}",
    );
    let t = check_finite(&m, &|n| n != "x").unwrap();
    let again = parse(&scalify_hlo::write(&t.module, &Default::default()));
    for (g, want) in [(true, [true, false, true, true]), (false, [true, true, true, true])] {
        let args = vec![
            Value::Tensor(Tensor::from_vec(DType::Pred, [], vec![g]).unwrap()),
            Value::Tensor(Tensor::from_vec(DType::F32, [], vec![0f32]).unwrap()),
        ];
        let v = scalify_interp::run(&again, None, &[args], RunOptions::default()).unwrap();
        assert_eq!(bools(&v[0].as_tuple().unwrap()[t.output]), want, "{g}");
    }
}

/// loss = sum(tanh(x)^2); returns it and what stands for its gradient.
fn joint(gradient: &str) -> Module {
    parse(&format!(
        "HloModule j
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[5] parameter(0)
  y = f32[5] parameter(1)
  t = f32[5] tanh(x)
  q = f32[5] multiply(t, t)
  p = f32[5] multiply(q, y)
  z = f32[] constant(0)
  loss = f32[] reduce(p, z), dimensions={{0}}, to_apply=add
  one = f32[] constant(1)
  ones = f32[5] broadcast(one), dimensions={{}}
  d = f32[5] subtract(ones, q)
  ty = f32[5] multiply(t, y)
  h = f32[5] multiply(ty, d)
  g = f32[5] add(h, h)
  half = f32[] constant(0.5)
  halves = f32[5] broadcast(half), dimensions={{}}
  sg = f32[5] multiply(g, halves)
  step = f32[5] subtract(x, sg)
  ROOT r = (f32[], f32[5], f32[5]) tuple(loss, {gradient}, q)
}}"
    ))
}

#[test]
fn gradients_against_differences() {
    use scalify_diff::gradcheck::{Options, Role, Verdict, check, outputs, pairing};
    use scalify_refute::evaluate::RunLimits;
    let limits = RunLimits { memory: 1 << 30, time: Duration::from_secs(10) };
    let run = |gradient: &str, rate: Option<f64>| {
        let m = joint(gradient);
        let p = scalify_prove::problem::setup(&m, &m, &Claim::default());
        let x = f32s(&[0.3, -0.7, 1.1, 0.2, -1.5]);
        let y = f32s(&[1.0, 2.0, -1.0, 0.5, 1.5]);
        let x = Inputs { values: vec![vec![x], vec![y]] };
        // d loss / dx = 2 tanh(x) (1 - tanh(x)^2) y, d loss / dy = tanh(x)^2.
        let (loss, pairs) = pairing(&m, &p, &[(1, 0), (2, 1)]).unwrap();
        assert_eq!(loss, Some(0));
        let o = Options { directions: 2, elements: 3, seed: 1, role: None, rate, limits };
        let out = outputs(&m, &p, &x, limits).unwrap();
        let f = check(&m, &p, &x, loss.unwrap(), &out, &pairs, &o).unwrap();
        let of = |k: usize| (f.parameters[k].verdict, f.parameters[k].role);
        (f.verdict, of(0), of(1), f.rate)
    };
    let right = (Verdict::Pass, Role::Gradient);
    let (v, x, y, _) = run("g", None);
    assert_eq!((v, x, y), (Verdict::Pass, right, right));
    // Half of the gradient: the factor 2 forgotten.
    let (v, x, y, _) = run("h", None);
    assert_eq!((v, x.0, y), (Verdict::Fail, Verdict::Fail, right));
    // A step of 0.5.
    let (v, x, _, rate) = run("step", None);
    assert_eq!((v, x), (Verdict::Pass, (Verdict::Pass, Role::Step)));
    assert!((rate - 0.5).abs() < 1e-6);
    let (v, x, ..) = run("step", Some(0.25));
    assert_eq!((v, x.0), (Verdict::Fail, Verdict::Fail));
}

#[test]
fn latin_hypercube_uses_each_stratum_once() {
    for n in [1u64, 2, 10, 1000] {
        for key in 0..5 {
            let mut seen: Vec<u64> = (0..n).map(|k| permuted(k, n, key)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..n), "{n} {key}");
        }
    }
}

#[test]
fn sobol_fills_every_dimension_evenly() {
    // The first 2^k points of each dimension lie one in each of 2^k intervals.
    let s = Sobol::new(1024, 3);
    for d in [0, 1, 2, 7, 100, 1023] {
        let mut seen: Vec<u32> = (0..256).map(|k| s.bits(k, d) >> 24).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..256), "dimension {d}");
    }
}

#[test]
fn quantiles_of_the_normal_distribution() {
    // Table values: 0.5, 0.975, 0.99865, 1e-6.
    for (p, x) in [(0.5, 0.0), (0.975, 1.959963985), (0.9986501020, 3.0), (1e-6, -4.753424309)] {
        assert!((normal_quantile(p) - x).abs() < 1e-6, "{p}");
    }
}

#[test]
fn end_to_end_over_a_sample() {
    let a = parse(SUM);
    let same = parse(&SUM.replace("add(z, x)", "add(x, z)"));
    // Differs only where x > 2, some 2 % of a standard normal.
    let b = parse(
        "HloModule b
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] exponential(x)
  z = f32[4] multiply(y, y)
  c = f32[] constant(2)
  d = f32[4] broadcast(c), dimensions={}
  q = f32[4] minimum(x, d)
  ROOT r = f32[4] add(z, q)
}",
    );
    for design in [Design::Latin, Design::Sobol] {
        let t = Duration::from_secs(60);
        let s = sample(&a, &same, &Claim::default(), design, 200, 1, t).unwrap();
        assert_eq!((s.points, s.different), (200, 0), "{s:?}");
        let s = sample(&a, &b, &Claim::default(), design, 200, 1, t).unwrap();
        // 4 elements, each above 2 in 2.3 % of the points.
        assert!((8..=30).contains(&s.different), "{s:?}");
        let worst = s.inputs.unwrap().values[0][0].to_f64();
        assert!(worst.iter().any(|x| *x > 2.0));
    }
}
