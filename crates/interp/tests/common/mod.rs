//! The StableHLO suite: unpacking, running one program, judging its result.
#![allow(dead_code)]

use scalify_interp::{Data, RunOptions, Tensor, Value, run};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// One program of the suite.
pub(crate) struct Case {
    /// File name without ending.
    pub(crate) name: String,
    /// HLO text; the root is a tuple of (actual, expected) pairs.
    pub(crate) text: String,
    /// One word per pair.
    pub(crate) checks: Vec<String>,
}

/// Where the archive lies in the repository.
pub(crate) fn archive() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/suites/stablehlo.tar.gz")
}

/// All programs, by name.
pub(crate) fn cases() -> std::io::Result<Vec<Case>> {
    let file = std::fs::File::open(archive())?;
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut parts: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for entry in tar.entries()? {
        let mut e = entry?;
        let path = e.path()?.to_path_buf();
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
        let mut text = String::new();
        if let Some(stem) = name.strip_suffix(".hlo") {
            e.read_to_string(&mut text)?;
            parts.entry(stem.to_string()).or_default().0 = text;
        } else if let Some(stem) = name.strip_suffix(".checks") {
            e.read_to_string(&mut text)?;
            let checks = text.split_whitespace().map(str::to_string).collect();
            parts.entry(stem.to_string()).or_default().1 = checks;
        }
    }
    let case = |(name, (text, checks))| Case { name, text, checks };
    Ok(parts.into_iter().map(case).collect())
}

/// How well a program's results fit the expected ones.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fit {
    /// By the suite's own criterion.
    Strict,
    /// Not by that, but within 8 ulps of the largest expected magnitude of
    /// the array: the expected values carry their own rounding errors, which
    /// cancellation makes big against single elements. Says what differs.
    Normwise(String),
}

/// How a program ended: `Err` says why it is no pass.
pub(crate) fn judge(case: &Case) -> Result<Fit, String> {
    let module = scalify_hlo::parse(&case.text).map_err(|e| format!("does not parse: {e}"))?;
    let options = RunOptions { time_limit: Some(Duration::from_secs(60)), ..Default::default() };
    let out = run(&module, None, &[Vec::new()], options).map_err(|e| e.to_string())?;
    let leaves = match &out[0] {
        Value::Tuple(v) => v.clone(),
        v => return Err(format!("result is {v:?}")),
    };
    if leaves.len() != 2 * case.checks.len() || leaves.is_empty() {
        return Err(format!("{} results for {} checks", leaves.len(), case.checks.len()));
    }
    let mut fit = Fit::Strict;
    for (k, (pair, check)) in leaves.chunks(2).zip(&case.checks).enumerate() {
        let (Value::Tensor(a), Value::Tensor(e)) = (&pair[0], &pair[1]) else {
            return Err("results are no arrays".into());
        };
        if let Err(m) = compare(a, e, check) {
            let m = format!("pair {k} {check}: {m}");
            if !normwise(a, e) {
                return Err(m);
            }
            fit = Fit::Normwise(m);
        }
    }
    Ok(fit)
}

/// Elements as pairs of `f64` (imaginary part 0 for reals).
fn parts(t: &Tensor) -> Vec<(f64, f64)> {
    match &t.data {
        Data::C64(v) => v.iter().map(|x| (x.re as f64, x.im as f64)).collect(),
        Data::C128(v) => v.iter().map(|x| (x.re, x.im)).collect(),
        _ => t.to_f64().into_iter().map(|x| (x, 0.0)).collect(),
    }
}

/// Distance in units of the last place of the type of `t`.
fn ulps(t: &Tensor, a: f64, b: f64) -> f64 {
    if a == b || a.is_nan() && b.is_nan() {
        return 0.0;
    }
    if !a.is_finite() || !b.is_finite() {
        return f64::INFINITY;
    }
    let key32 = |x: f32| {
        let b = x.to_bits() as i32;
        if b < 0 { i32::MIN as i64 - b as i64 } else { b as i64 }
    };
    let key64 = |x: f64| {
        let b = x.to_bits() as i64;
        if b < 0 { i64::MIN as i128 - b as i128 } else { b as i128 }
    };
    match &t.data {
        Data::F64(_) | Data::C128(_) => (key64(a) - key64(b)).unsigned_abs() as f64,
        Data::F32(_) | Data::C64(_) => (key32(a as f32) - key32(b as f32)).unsigned_abs() as f64,
        _ => {
            // Narrow types: spacing at the larger magnitude.
            let p = t.dtype.mantissa_bits().unwrap_or(53) as i32;
            let e = a.abs().max(b.abs()).log2().floor() as i32;
            ((a - b) / 2f64.powi(e - p + 1)).abs()
        }
    }
}

/// Within 8 ulps of the largest finite magnitude that is expected?
fn normwise(a: &Tensor, e: &Tensor) -> bool {
    if a.dtype != e.dtype || a.dims != e.dims || !(a.dtype.is_float() || a.dtype.is_complex()) {
        return false;
    }
    let part = a.dtype.complex_part().unwrap_or(a.dtype);
    let ulp = 2f64.powi(1 - part.mantissa_bits().unwrap_or(53) as i32);
    let (x, y) = (parts(a), parts(e));
    let flat = |v: &[(f64, f64)]| -> Vec<f64> { v.iter().flat_map(|p| [p.0, p.1]).collect() };
    let (x, y) = (flat(&x), flat(&y));
    let top = y.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let ok = |(x, y): (&f64, &f64)| {
        x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 8.0 * ulp * top
    };
    x.iter().zip(&y).all(ok)
}

/// `expect_eq`: equal, NaN equals NaN. `expect_almost_eq`: within 1e-4.
/// `expect_close`: within 3 ulps.
fn compare(a: &Tensor, e: &Tensor, check: &str) -> Result<(), String> {
    if a.dtype != e.dtype || a.dims != e.dims {
        return Err(format!("{}{:?} where {}{:?} is expected", a.dtype, a.dims, e.dtype, e.dims));
    }
    if !a.dtype.is_float() && !a.dtype.is_complex() {
        let (x, y) = (a.to_bytes(), e.to_bytes());
        return if x == y { Ok(()) } else { Err(first(&a.to_f64(), &e.to_f64())) };
    }
    let mut worst = (0.0, String::new());
    for (i, (x, y)) in parts(a).into_iter().zip(parts(e)).enumerate() {
        for (x, y) in [(x.0, y.0), (x.1, y.1)] {
            let d = match check {
                "expect_eq" => (x != y && !(x.is_nan() && y.is_nan())) as u8 as f64,
                "expect_almost_eq" => {
                    let same = x == y || x.is_nan() && y.is_nan();
                    if same { 0.0 } else { ((x - y).abs() / 1e-4).max(f64::MIN_POSITIVE) }
                }
                _ => ulps(a, x, y) / 3.0,
            };
            if d.is_nan() || d > worst.0 {
                worst =
                    (if d.is_nan() { f64::INFINITY } else { d }, format!("[{i}] {x:e} for {y:e}"));
            }
        }
    }
    let limit = if check == "expect_eq" { 0.5 } else { 1.0 };
    if worst.0 <= limit { Ok(()) } else { Err(format!("{} ({:.3e} x limit)", worst.1, worst.0)) }
}

fn first(a: &[f64], e: &[f64]) -> String {
    match a.iter().zip(e).position(|(x, y)| x != y) {
        Some(i) => format!("[{i}] {} for {}", a[i], e[i]),
        None => "differs".into(),
    }
}
