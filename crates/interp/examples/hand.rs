//! Runs pairs of baseline and per-device program on random inputs and
//! compares them: `hand DIR [SUBSTRING] [--global] [--f64] [--seed N]`, where
//! each folder of DIR holds `case.json`, `base.hlo.txt` and
//! `dist.body.hlo.txt` (`dist.hlo.txt` with `--global` or if there is no
//! body). A case passes if the outcome is the one `case.json` expects.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use scalify_interp::{Accumulate, Data, RunOptions, Tensor, Value, run};
use scalify_ir::{DType, SliceAttrs};
use serde_json::Value as Json;
use std::path::Path;
use std::time::{Duration, Instant};

type Res<T> = Result<T, String>;

struct Random(u64);

impl Random {
    /// splitmix64
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let r = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        r * (2.0 * std::f64::consts::PI * self.unit()).cos()
    }
}

/// A named value of the case: shape, per dimension the mesh axes.
struct Port {
    dims: Vec<i64>,
    dtype: String,
    range: Option<(i64, i64)>,
    spec: Vec<Vec<String>>,
}

fn strings(j: &Json) -> Vec<String> {
    match j {
        Json::String(s) => vec![s.clone()],
        Json::Array(a) => a.iter().filter_map(|x| x.as_str().map(str::to_string)).collect(),
        _ => Vec::new(),
    }
}

fn ints(j: &Json) -> Vec<i64> {
    j.as_array().map_or(Vec::new(), |a| a.iter().filter_map(Json::as_i64).collect())
}

fn ports(j: &Json) -> Vec<Port> {
    let one = |p: &Json| {
        let r = ints(&p["range"]);
        Port {
            dims: ints(&p["shape"]),
            dtype: p["dtype"].as_str().unwrap_or("").to_string(),
            range: (r.len() == 2).then(|| (r[0], r[1])),
            spec: p["spec"].as_array().map_or(Vec::new(), |a| a.iter().map(strings).collect()),
        }
    };
    j.as_array().map_or(Vec::new(), |a| a.iter().map(one).collect())
}

fn input(p: &Port, r: &mut Random) -> Res<Tensor> {
    let n: i64 = p.dims.iter().product();
    let dims = p.dims.iter().copied();
    let made = match p.dtype.as_str() {
        "float32" => {
            Tensor::from_vec(DType::F32, dims, (0..n).map(|_| r.normal() as f32).collect())
        }
        "bfloat16" => {
            let v = (0..n).map(|_| half::bf16::from_f64(r.normal())).collect();
            Tensor::from_vec(DType::Bf16, dims, v)
        }
        "int32" => {
            let (lo, hi) = p.range.unwrap_or((0, 7));
            let v = (0..n).map(|_| (lo + (r.next() % (hi - lo + 1) as u64) as i64) as i32);
            Tensor::from_vec(DType::S32, dims, v.collect())
        }
        t => return Err(format!("input type {t}")),
    };
    made.ok_or_else(|| "input shape".into())
}

/// The part of `t` that `device` holds, by a module of one slice.
fn part(t: &Tensor, p: &Port, mesh: &[(String, i64)], device: i64) -> Res<Tensor> {
    let mut s = SliceAttrs {
        start: t.dims.iter().map(|_| 0).collect(),
        limit: t.dims.clone(),
        stride: t.dims.iter().map(|_| 1).collect(),
    };
    for (d, axes) in p.spec.iter().enumerate().take(t.dims.len()) {
        let (mut n, mut at) = (1, 0);
        for a in axes {
            let k = mesh.iter().position(|m| &m.0 == a).ok_or("mesh axis")?;
            let stride: i64 = mesh[k + 1..].iter().map(|m| m.1).product();
            n *= mesh[k].1;
            at = at * mesh[k].1 + device / stride % mesh[k].1;
        }
        let w = t.dims[d] / n;
        (s.start[d], s.limit[d]) = (at * w, (at + 1) * w);
    }
    let list = |v: &[i64]| v.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let local: Vec<i64> = (0..t.dims.len()).map(|d| s.limit[d] - s.start[d]).collect();
    let ranges: Vec<String> =
        (0..t.dims.len()).map(|d| format!("[{}:{}]", s.start[d], s.limit[d])).collect();
    let text = format!(
        "HloModule s\nENTRY e {{\n p = {0}[{1}] parameter(0)\n ROOT r = {0}[{2}] slice(p), slice={{{3}}}\n}}\n",
        t.dtype,
        list(&t.dims),
        list(&local),
        ranges.join(", ")
    );
    let m = scalify_hlo::parse(&text).map_err(|e| e.to_string())?;
    let out = run(&m, None, &[vec![Value::Tensor(t.clone())]], RunOptions::default());
    match out.map_err(|e| e.to_string())?.pop() {
        Some(Value::Tensor(t)) => Ok(t),
        _ => Err("slice".into()),
    }
}

fn leaves(v: &Value) -> Vec<Tensor> {
    match v {
        Value::Tensor(t) => vec![t.clone()],
        Value::Tuple(v) => v.iter().flat_map(leaves).collect(),
        Value::Token => Vec::new(),
    }
}

/// Largest difference over the largest magnitude.
fn distance(a: &Tensor, b: &Tensor) -> Res<f64> {
    if a.dims != b.dims {
        return Err(format!("{:?} against {:?}", a.dims, b.dims));
    }
    if let (Data::I32(x), Data::I32(y)) = (&a.data, &b.data) {
        return Ok(if x == y { 0.0 } else { f64::INFINITY });
    }
    let (x, y) = (a.to_f64(), b.to_f64());
    let top = y.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs())).max(1e-30);
    let mut worst = 0f64;
    for (x, y) in x.iter().zip(&y) {
        let d = if x == y || x.is_nan() && y.is_nan() { 0.0 } else { (x - y).abs() / top };
        worst = if d.is_nan() { f64::INFINITY } else { worst.max(d) };
    }
    Ok(worst)
}

struct Outcome {
    error: f64,
    base: Duration,
    dist: Duration,
    devices: i64,
    how: &'static str,
}

fn case(dir: &Path, j: &Json, global: bool, wide: bool, seed: u64) -> Res<Outcome> {
    let read = |f: &str| std::fs::read_to_string(dir.join(f)).map_err(|e| format!("{f}: {e}"));
    let parse = |f: &str| scalify_hlo::parse(&read(f)?).map_err(|e| format!("{f}: {e}"));
    let mesh: Vec<(String, i64)> =
        strings(&j["mesh"]["axes"]).into_iter().zip(ints(&j["mesh"]["shape"])).collect();
    let devices: i64 = mesh.iter().map(|m| m.1).product();
    let (ins, outs) = (ports(&j["inputs"]), ports(&j["outputs"]));
    let mut r = Random(seed);
    let full: Vec<Tensor> = ins.iter().map(|p| input(p, &mut r)).collect::<Res<_>>()?;
    let kept = |side: &str| -> Vec<usize> {
        ints(&j["kept_inputs"][side]).into_iter().map(|i| i as usize).collect()
    };
    let accumulate = if wide { Accumulate::F64 } else { Accumulate::Plain };
    let options = |n: i64| RunOptions {
        partitions: n as usize,
        time_limit: Some(Duration::from_secs(60)),
        accumulate,
        ..Default::default()
    };
    let base = parse("base.hlo.txt")?;
    let args = kept("base").iter().map(|&i| Value::Tensor(full[i].clone())).collect();
    let t = Instant::now();
    let expect = run(&base, None, &[args], options(1)).map_err(|e| format!("base: {e}"))?;
    let base_time = t.elapsed();
    let body = dir.join("dist.body.hlo.txt").exists() && !global;
    let dist = parse(if body { "dist.body.hlo.txt" } else { "dist.hlo.txt" })?;
    let args: Vec<Vec<Value>> = (0..devices)
        .map(|d| {
            let one = |&i: &usize| {
                let t = if body { part(&full[i], &ins[i], &mesh, d)? } else { full[i].clone() };
                Ok(Value::Tensor(t))
            };
            kept("dist").iter().map(one).collect::<Res<Vec<_>>>()
        })
        .collect::<Res<_>>()?;
    let t = Instant::now();
    let got = run(&dist, None, &args, options(devices)).map_err(|e| format!("dist: {e}"))?;
    let dist_time = t.elapsed();
    let expect = leaves(&expect[0]);
    let mut error = 0f64;
    for (d, v) in got.iter().enumerate() {
        let got = leaves(v);
        if got.len() != expect.len() || outs.len() != expect.len() {
            return Err(format!("{} outputs against {}", got.len(), expect.len()));
        }
        for ((g, e), p) in got.iter().zip(&expect).zip(&outs) {
            let e = if body { part(e, p, &mesh, d as i64)? } else { e.clone() };
            error = error.max(distance(g, &e)?);
        }
    }
    let how = if body { "body" } else { "global" };
    Ok(Outcome { error, base: base_time, dist: dist_time, devices, how })
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |f: &str| {
        let i = args.iter().position(|a| a == f);
        i.map(|i| args.remove(i)).is_some()
    };
    let (global, wide) = (flag("--global"), flag("--f64"));
    let seed = match args.iter().position(|a| a == "--seed") {
        Some(i) if i + 1 < args.len() => {
            args.remove(i);
            args.remove(i).parse().unwrap_or(1)
        }
        _ => 1,
    };
    let Some(root) = args.first() else {
        eprintln!("usage: hand DIR [SUBSTRING] [--global] [--f64] [--seed N]");
        return;
    };
    let want = args.get(1).cloned().unwrap_or_default();
    let mut dirs: Vec<_> = match std::fs::read_dir(root) {
        Ok(d) => d.filter_map(|e| e.ok().map(|e| e.path())).collect(),
        Err(e) => return eprintln!("{root}: {e}"),
    };
    dirs.sort();
    println!("| case | expected | devices | form | error | base ms | dist ms | |");
    println!("|---|---|---:|---|---:|---:|---:|---|");
    let (mut good, mut total) = (0, 0);
    for dir in dirs {
        let name = dir.file_name().map_or(String::new(), |n| n.to_string_lossy().to_string());
        let Ok(text) = std::fs::read_to_string(dir.join("case.json")) else { continue };
        let Ok(j) = serde_json::from_str::<Json>(&text) else { continue };
        if !name.contains(&want) {
            continue;
        }
        total += 1;
        let expected = j["expected"].as_str().unwrap_or("");
        let tol = j["numeric"]["tol_rel"].as_f64().unwrap_or(1e-4);
        let tol = if wide { 1e-9 } else { tol };
        match case(&dir, &j, global, wide, seed) {
            Ok(o) => {
                let ok = (o.error <= tol) == (expected == "equivalent");
                good += ok as u32;
                let ms = |d: Duration| d.as_secs_f64() * 1e3;
                println!(
                    "| {name} | {expected} | {} | {} | {:.2e} | {:.1} | {:.1} | {} |",
                    o.devices,
                    o.how,
                    o.error,
                    ms(o.base),
                    ms(o.dist),
                    if ok { "ok" } else { "WRONG" }
                );
            }
            Err(e) => println!("| {name} | {expected} | | | | | | ERROR {e} |"),
        }
    }
    println!("\n{good} of {total} as expected");
}
