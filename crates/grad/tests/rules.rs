//! Rules that JAX does not reach, against central differences; and errors.

use scalify_grad::{Options, Ties, gradient};
use scalify_interp::{Accumulate, RunOptions, Tensor, Value, run};
use scalify_ir::{DType, Module, ValidateOptions, validate};

fn parse(t: &str) -> Module {
    scalify_hlo::parse(t).unwrap_or_else(|e| panic!("{}\n{t}", e.message))
}

const ADD: &str = "HloModule t, num_partitions=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
";

fn evaluate(m: &Module, x: &[Vec<Vec<f64>>]) -> Vec<Vec<Vec<f64>>> {
    let args: Vec<Vec<Value>> = x
        .iter()
        .map(|x| {
            let one = |(p, v): (&scalify_ir::InstrId, &Vec<f64>)| {
                let d = m.shape(*p).dims().to_vec();
                Value::Tensor(Tensor::from_vec(DType::F32, d, v.clone()).unwrap())
            };
            m.entry_comp().params.iter().zip(x).map(one).collect()
        })
        .collect();
    let o =
        RunOptions { partitions: x.len(), accumulate: Accumulate::F64, ..RunOptions::default() };
    let flat = |v: &Value| match v {
        Value::Tuple(t) => t.iter().map(|v| v.as_tensor().unwrap().to_f64()).collect(),
        v => vec![v.as_tensor().unwrap().to_f64()],
    };
    run(m, None, &args, o).unwrap().iter().map(flat).collect()
}

/// Derivatives of the sum over devices of output 0 against central differences.
fn check(text: &str, sizes: &[usize], devices: usize) {
    let m = parse(text);
    let wrt: Vec<usize> = (0..sizes.len()).collect();
    let g = gradient(&m, 0, &wrt, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(validate(&g, &ValidateOptions::default()), []);
    let wave = |k: usize| (k as f64 * 1.7 + 0.3).sin() * 1.2 + 0.05 * k as f64;
    let mut k = 0;
    let x: Vec<Vec<Vec<f64>>> = (0..devices)
        .map(|_| {
            let v = sizes.iter().map(|&n| {
                (0..n)
                    .map(|_| {
                        k += 1;
                        wave(k)
                    })
                    .collect()
            });
            v.collect()
        })
        .collect();
    let given = evaluate(&g, &x);
    let total = |x: &[Vec<Vec<f64>>]| evaluate(&m, x).iter().map(|o| o[0][0]).sum::<f64>();
    for d in 0..devices {
        for i in 0..sizes.len() {
            for e in 0..sizes[i] {
                let at = |h: f64| {
                    let mut y = x.clone();
                    y[d][i][e] += h;
                    total(&y)
                };
                let h = 1e-5;
                let slope = (at(h) - at(-h)) / (2.0 * h);
                let got = given[d][1 + i][e];
                assert!(
                    (slope - got).abs() < 1e-6 * (1.0 + slope.abs()),
                    "device {d} input {i} element {e}: {got}, by differences {slope}\n{text}"
                );
            }
        }
    }
}

/// `body` computes `y` from parameters `p0..`; the loss is a sum of `y^2 c`.
fn loss(params: &[&str], y: &str, dims: &str, body: &str) -> String {
    let mut t = format!("{ADD}ENTRY e {{\n");
    for (k, p) in params.iter().enumerate() {
        t += &format!("  p{k} = f32{p} parameter({k})\n");
    }
    let rank = dims.matches(',').count() + usize::from(dims != "[]");
    let all: Vec<String> = (0..rank).map(|k| k.to_string()).collect();
    t + body
        + &format!(
            "
  i = f32{dims} iota(), iota_dimension=0
  s = f32{dims} sine(i)
  one = f32[] constant(1)
  ones = f32{dims} broadcast(one), dimensions={{}}
  c = f32{dims} add(s, ones)
  yy = f32{dims} multiply({y}, {y})
  yc = f32{dims} multiply(yy, c)
  zero = f32[] constant(0)
  ROOT l = f32[] reduce(yc, zero), dimensions={{{}}}, to_apply=add
}}",
            all.join(",")
        )
}

#[test]
fn batch_normalisation() {
    let train = "
  b = (f32[4,3], f32[3], f32[3]) batch-norm-training(p0, p1, p2), epsilon=0.01, feature_index=1
  y = f32[4,3] get-tuple-element(b), index=0";
    check(&loss(&["[4,3]", "[3]", "[3]"], "y", "[4,3]", train), &[12, 3, 3], 1);
    let infer = "
  v = f32[3] multiply(p4, p4)
  y = f32[4,3] batch-norm-inference(p0, p1, p2, p3, v), epsilon=0.01, feature_index=1";
    let params = ["[4,3]", "[3]", "[3]", "[3]", "[3]"];
    check(&loss(&params, "y", "[4,3]", infer), &[12, 3, 3, 3, 3], 1);
}

#[test]
fn collectives_of_other_kinds() {
    let groups = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true";
    let max = format!("\n  y = f32[4] all-reduce(p0), {groups}, to_apply=max");
    check(&loss(&["[4]"], "y", "[4]", &max), &[4], 2);
    let halves = format!(
        "
  q = f32[4] all-reduce-start(p0), {groups}, to_apply=add
  r = f32[4] all-reduce-done(q)
  y = f32[4] multiply(r, p0)"
    );
    check(&loss(&["[4]"], "y", "[4]", &halves), &[4], 2);
    let tuple = "
  a = f32[2] slice(p0), slice={[0:2]}
  b = f32[2] slice(p0), slice={[2:4]}
  t = (f32[2], f32[2]) all-to-all(a, b), channel_id=1, replica_groups={{0,1}}
  c0 = f32[2] get-tuple-element(t), index=0
  c1 = f32[2] get-tuple-element(t), index=1
  y = f32[4] concatenate(c0, c1), dimensions={0}";
    check(&loss(&["[4]"], "y", "[4]", tuple), &[4], 2);
}

#[test]
fn calls_and_spelled_out_operations() {
    let top = "
  k = (f32[2,2], s32[2,2]) custom-call(p0), custom_call_target=\"TopK\", called_computations={gt}
  y = f32[2,2] get-tuple-element(k), index=0";
    let gt = "gt { a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=GT }\n";
    let t = loss(&["[2,4]"], "y", "[2,2]", top).replace("ENTRY", &format!("{gt}ENTRY"));
    check(&t, &[8], 1);
    // 1 / (1 + exp(v))
    let logistic = "
  x = f32[] constant(1)
  w = f32[3] broadcast(x), dimensions={}
  n = f32[3] exponential(p0)
  d = f32[3] add(w, n)
  y = f32[3] divide(w, d)";
    check(&loss(&["[3]"], "y", "[3]", logistic), &[3], 1);
    // The same value twice as an operand of a branch.
    let cond = "
  b = s32[] constant(1)
  t = (f32[3], f32[3]) tuple(p0, p0)
  y = f32[3] conditional(b, p0, t), branch_computations={left, right}";
    let branches = "left { x = f32[3] parameter(0)
  ROOT r = f32[3] negate(x) }
right { t = (f32[3], f32[3]) parameter(0)
  a = f32[3] get-tuple-element(t), index=0
  b = f32[3] get-tuple-element(t), index=1
  s = f32[3] sine(b)
  ROOT r = f32[3] multiply(a, s) }\n";
    let t = loss(&["[3]"], "y", "[3]", cond).replace("ENTRY", &format!("{branches}ENTRY"));
    check(&t, &[3], 1);
}

#[test]
fn ties_at_zero() {
    let m = parse(&loss(
        &["[2]"],
        "y",
        "[2]",
        "\n  z = f32[] constant(0)\n  w = f32[2] broadcast(z), dimensions={}\n  m = f32[2] maximum(p0, w)\n  x1 = f32[] constant(1)\n  x2 = f32[2] broadcast(x1), dimensions={}\n  y = f32[2] add(m, x2)",
    ));
    // At 0: d (m + 1)^2 = 2 m', times c = 1 and 1 + sin 1.
    for (ties, share) in [(Ties::Split, 0.5), (Ties::Zero, 0.0)] {
        let g = gradient(&m, 0, &[0], &Options { ties, ..Options::default() }).unwrap();
        let out = evaluate(&g, &[vec![vec![0.0, 0.0]]]);
        assert!((out[0][1][0] - 2.0 * share).abs() < 1e-12);
        assert!((out[0][1][1] - 2.0 * share * (1.0 + 1f64.sin())).abs() < 1e-7);
    }
}

fn error(text: &str, loss: usize, wrt: &[usize]) -> String {
    gradient(&parse(text), loss, wrt, &Options::default()).unwrap_err().to_string()
}

#[test]
fn errors_name_the_instruction_and_what_was_expected() {
    let t = loss(&["[2,2]"], "y", "[2,2]", "\n  y = f32[2,2] cholesky(p0), lower=true");
    assert_eq!(
        error(&t, 0, &[0]),
        "%y (cholesky): no derivative of cholesky is known, expected an operation with a rule (docs/NUMBERS.md lists them)"
    );
    let t =
        loss(&["[2]"], "y", "[2]", "\n  y = f32[2] custom-call(p0), custom_call_target=\"mine\"");
    assert!(
        error(&t, 0, &[0]).starts_with("%y (custom-call): a derivative of custom-call \"mine\"")
    );
    let two = loss(&["[2]"], "p0", "[2]", "");
    assert_eq!(error(&two, 1, &[0]), "output 1 of 1, expected an output that exists");
    assert_eq!(error(&two, 0, &[7]), "input 7 of 1, expected an input that exists");
    let whole = "HloModule t\nENTRY e {\n  a = f32[3] parameter(0)\n  ROOT b = f32[3] sine(a)\n}";
    assert_eq!(error(whole, 0, &[0]), "output 0 is f32[3], expected a float scalar");
    let ints = "HloModule t\nENTRY e {\n  a = s32[] parameter(0)\n  ROOT b = f32[] convert(a)\n}";
    assert_eq!(error(ints, 0, &[0]), "input 0 is s32[], expected an array of floats");
    // A loop that ends when a value says so.
    let until = "HloModule t
c { p = (f32[]) parameter(0)
  x = f32[] get-tuple-element(p), index=0
  n = f32[] constant(9)
  ROOT r = pred[] compare(x, n), direction=LT }
b { p = (f32[]) parameter(0)
  x = f32[] get-tuple-element(p), index=0
  y = f32[] add(x, x)
  ROOT t = (f32[]) tuple(y) }
ENTRY e {
  a = f32[] parameter(0)
  t = (f32[]) tuple(a)
  w = (f32[]) while(t), condition=c, body=b
  ROOT r = f32[] get-tuple-element(w), index=0
}";
    assert!(error(until, 0, &[0]).starts_with("%w (while): a loop whose trip count is not known"));
}

#[test]
fn what_the_loss_does_not_need_is_not_differentiated() {
    let t = loss(&["[2,2]"], "p0", "[2,2]", "\n  y = f32[2,2] cholesky(p0), lower=true");
    check(&t, &[4], 1);
}
