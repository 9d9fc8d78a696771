//! Gradients against those of JAX: `tests/data` holds, per function, its HLO and
//! that of `jax.grad` (`scripts/check_grad.py --write`). Both are run in `f64`.

use scalify_grad::{Options, gradient};
use scalify_interp::{Accumulate, RunOptions, Tensor, Value, run};
use scalify_ir::{Module, Shape, ValidateOptions, validate};
use std::path::{Path, PathBuf};

fn load(p: &Path) -> Module {
    scalify_load::load(p).unwrap_or_else(|e| panic!("{}: {e}", p.display())).module
}

fn cases(device: bool) -> Vec<(String, PathBuf, PathBuf)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut v: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .filter_map(|e| {
            let n = e.unwrap().file_name().into_string().unwrap();
            let name = n.strip_suffix(".forward.hlo.txt.gz")?.to_owned();
            let back = dir.join(format!("{name}.gradient.hlo.txt.gz"));
            (name.starts_with("device_") == device).then(|| (name, dir.join(n), back))
        })
        .collect();
    v.sort();
    v
}

/// A number in (-1, 1) per element, by a linear congruence; coarse ones are
/// multiples of 1/2, so that there are ties.
fn draw(s: &Shape, seed: u64, coarse: bool, positive: bool) -> Tensor {
    let a = s.as_array().unwrap();
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let n = a.elements().unwrap() as usize;
    let v = (0..n)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let u = (x >> 11) as f64 / (1u64 << 53) as f64;
            let u = if positive { 0.25 + 0.5 * u } else { 1.9 * u - 0.95 };
            if coarse { (2.0 * u).round() } else { u }
        })
        .collect();
    Tensor::from_vec(a.dtype, a.dims.iter().copied(), v).unwrap()
}

fn leaves(v: &Value) -> Vec<Vec<f64>> {
    match v {
        Value::Tensor(t) => vec![t.to_f64()],
        Value::Tuple(t) => t.iter().flat_map(leaves).collect(),
        Value::Token => vec![],
    }
}

fn evaluate(m: &Module, devices: usize, inputs: &[Vec<Value>]) -> Vec<Vec<Vec<f64>>> {
    let o =
        RunOptions { partitions: devices, accumulate: Accumulate::F64, ..RunOptions::default() };
    run(m, None, inputs, o).unwrap().iter().map(leaves).collect()
}

fn compare(name: &str, devices: usize, forward: &Path, back: &Path, failures: &mut Vec<String>) {
    let (f, j) = (load(forward), load(back));
    let params = f.entry_comp().params.clone();
    let wrt: Vec<usize> = (0..params.len()).collect();
    let g = match gradient(&f, 0, &wrt, &Options::default()) {
        Ok(g) => g,
        Err(e) => {
            failures.push(format!("{name}: {e}"));
            return;
        }
    };
    if let Some(bad) = validate(&g, &ValidateOptions::default()).first() {
        failures.push(format!("{name}: invalid: {bad:?}"));
        return;
    }
    let text = scalify_hlo::write(&g, &scalify_hlo::WriteOptions::default());
    match scalify_hlo::parse(&text) {
        Ok(again) => {
            let d = scalify_ir::same::difference(&g, &again, scalify_ir::same::Compare::MEANING);
            assert_eq!(d, None, "{name}: printed and read");
        }
        Err(e) => failures.push(format!("{name}: printed text: {e}")),
    }
    let positive = ["log", "sqrt", "cbrt", "pow", "acosh", "integer_pow", "div", "atan2", "rem"]
        .iter()
        .any(|w| name.contains(w));
    for seed in 0..4u64 {
        let coarse = seed % 2 == 1 && name.contains("ties");
        let inputs: Vec<Vec<Value>> = (0..devices as u64)
            .map(|d| {
                let one = |(k, p): (usize, &scalify_ir::InstrId)| {
                    let mut t = draw(f.shape(*p), 97 * seed + 13 * k as u64 + d, coarse, positive);
                    if name.contains("acosh") {
                        let v = t.to_f64().iter().map(|x| x + 1.5).collect();
                        t = Tensor::from_vec(t.dtype, t.dims.iter().copied(), v).unwrap();
                    }
                    Value::Tensor(t)
                };
                params.iter().enumerate().map(one).collect()
            })
            .collect();
        let (a, b) = (evaluate(&g, devices, &inputs), evaluate(&j, devices, &inputs));
        for d in 0..devices {
            assert_eq!(a[d].len(), b[d].len() + 1, "{name}");
            for (k, (x, y)) in a[d][1..].iter().zip(&b[d]).enumerate() {
                assert_eq!(x.len(), y.len(), "{name}");
                let scale = y.iter().fold(1.0f64, |s, v| s.max(v.abs()));
                let worst = x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                let nan = x.iter().zip(y).any(|(x, y)| x.is_nan() != y.is_nan());
                // Constants are rounded to f32 on both sides.
                if nan || worst > 1e-6 * scale {
                    failures.push(format!("{name}: input {k}, seed {seed}: off by {worst:e}"));
                }
            }
        }
    }
}

#[test]
fn single_device() {
    let mut failures = Vec::new();
    let all = cases(false);
    assert!(all.len() > 100, "{} functions", all.len());
    for (name, f, g) in &all {
        compare(name, 1, f, g, &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn several_devices() {
    let mut failures = Vec::new();
    let all = cases(true);
    assert!(all.len() >= 10, "{} functions", all.len());
    for (name, f, g) in &all {
        compare(name, 4, f, g, &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
