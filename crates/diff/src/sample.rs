//! Two programs end to end, over a sample of their inputs that fills the space
//! evenly: for programs whose inner values have no counterparts.
//!
//! Each element of each input is a dimension. A *Latin hypercube* cuts every
//! dimension into as many strata of equal probability as there are points and
//! uses each once. The *Sobol* sequence is taken over 1024 dimensions; elements
//! beyond share a dimension, each with a digital shift of its own.

use crate::diff::{DiffError, number};
use scalify_claim::Claim;
use scalify_interp::{Accumulate, Tensor};
use scalify_ir::{ArrayShape, Module, Shape};
use scalify_prove::problem::{self, Problem};
use scalify_refute::compare::{self, numbers};
use scalify_refute::domain::{self, Domain};
use scalify_refute::evaluate::{self, Inputs, RunLimits};
use scalify_refute::place;
use scalify_refute::random::Random;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Which points.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Design {
    /// Latin hypercube.
    Latin,
    /// Sobol sequence.
    Sobol,
}

/// What a sample showed.
#[derive(Clone, Debug, Serialize)]
pub struct Sampled {
    /// Points evaluated.
    pub points: usize,
    /// Points on which an output differs by more than rounding.
    pub different: usize,
    /// Largest error over what rounding explains.
    #[serde(serialize_with = "number")]
    pub ratio: f64,
    /// Output of the worst error, and the point (from 0).
    pub output: usize,
    /// See `output`.
    pub point: usize,
    /// Expected value there.
    #[serde(serialize_with = "number")]
    pub expected: f64,
    /// Actual value there.
    #[serde(serialize_with = "number")]
    pub actual: f64,
    /// The inputs of that point.
    #[serde(skip)]
    pub inputs: Option<Inputs>,
}

/// A pseudo-random number of two numbers.
fn mix(a: u64, b: u64) -> u64 {
    Random::new(a ^ b.wrapping_mul(0xD6E8_FEB8_6659_FD93)).bits()
}

/// Position of point `k` in a random permutation of `0..n` that `key` chooses:
/// a Feistel network on the next even number of bits, walked until it is in
/// range.
pub fn permuted(k: u64, n: u64, key: u64) -> u64 {
    let bits = (64 - n.max(2).saturating_sub(1).leading_zeros()).div_ceil(2);
    let mask = (1u64 << bits) - 1;
    let mut x = k;
    loop {
        let (mut l, mut r) = (x >> bits, x & mask);
        for round in 0..4 {
            (l, r) = (r, (l ^ mix(key.wrapping_add(round), r)) & mask);
        }
        x = (l << bits) | r;
        if x < n {
            return x;
        }
    }
}

/// Quantile of the standard normal distribution (Acklam's rational
/// approximation, relative error below 1.2e-9).
pub fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 5] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416];
    let poly = |c: &[f64], x: f64| c.iter().fold(0.0, |s, c| s * x + c);
    let tail = |q: f64| poly(&C, q) / (poly(&D, q) * q + 1.0);
    let p = p.clamp(1e-300, 1.0 - 1e-16);
    if p < 0.02425 {
        tail((-2.0 * p.ln()).sqrt())
    } else if p > 1.0 - 0.02425 {
        -tail((-2.0 * (1.0 - p).ln()).sqrt())
    } else {
        let q = p - 0.5;
        let r = q * q;
        poly(&A, r) * q / (poly(&B, r) * r + 1.0)
    }
}

/// Dimensions of the Sobol sequence.
const SOBOL: usize = 1024;

/// Direction numbers of the Sobol sequence.
pub struct Sobol(Vec<[u32; 32]>);

impl Sobol {
    /// The first `dimensions` (at most 1024): dimension 0 is van der Corput's;
    /// the others take primitive polynomials over GF(2) by rising degree, with
    /// odd initial numbers drawn by `seed`.
    pub fn new(dimensions: usize, seed: u64) -> Sobol {
        let mut all = Vec::new();
        let mut first = [0u32; 32];
        for (k, v) in first.iter_mut().enumerate() {
            *v = 1 << (31 - k);
        }
        all.push(first);
        let mut r = Random::new(seed);
        'degrees: for degree in 1..16u32 {
            for middle in 0..1u32 << degree.saturating_sub(1) {
                if all.len() >= dimensions.min(SOBOL) {
                    break 'degrees;
                }
                let poly = (1 << degree) | (middle << 1) | 1;
                if !primitive(poly, degree) {
                    continue;
                }
                let s = degree as usize;
                let mut v = [0u32; 32];
                for k in 0..32 {
                    v[k] = if k < s {
                        let odd = (r.bits() as u32 & ((1 << k) - 1) << 1) | 1;
                        odd << (31 - k)
                    } else {
                        let mut x = v[k - s] ^ (v[k - s] >> s);
                        for j in 1..s {
                            if poly >> (s - j) & 1 == 1 {
                                x ^= v[k - j];
                            }
                        }
                        x
                    };
                }
                all.push(v);
            }
        }
        Sobol(all)
    }

    /// Coordinate of point `k` in dimension `d`, as 32 bits after the point.
    pub fn bits(&self, k: u64, d: usize) -> u32 {
        let gray = (k ^ (k >> 1)) as u32;
        let v = &self.0[d % self.0.len()];
        (0..32).filter(|b| gray >> b & 1 == 1).fold(0, |x, b| x ^ v[b])
    }
}

/// Is a polynomial over GF(2) primitive: has x the order 2^degree - 1?
fn primitive(poly: u32, degree: u32) -> bool {
    let order = (1u64 << degree) - 1;
    let times = |mut a: u32, mut b: u32| {
        let mut x = 0;
        while b != 0 {
            if b & 1 == 1 {
                x ^= a;
            }
            b >>= 1;
            a <<= 1;
            if a >> degree & 1 == 1 {
                a ^= poly;
            }
        }
        x
    };
    let power = |mut e: u64| {
        let (mut r, mut b) = (1u32, if degree == 1 { 1 } else { 2u32 });
        while e != 0 {
            if e & 1 == 1 {
                r = times(r, b);
            }
            b = times(b, b);
            e >>= 1;
        }
        r
    };
    if power(order) != 1 {
        return false;
    }
    let (mut n, mut q) = (order, 2u64);
    while n > 1 {
        if n % q == 0 {
            if order > 1 && power(order / q) == 1 && degree > 1 {
                return false;
            }
            while n % q == 0 {
                n /= q;
            }
        }
        q += 1;
    }
    true
}

/// The inputs of point `k` of `n`.
fn point(
    p: &Problem,
    domains: &[Domain],
    design: Design,
    sobol: &Sobol,
    k: u64,
    n: u64,
    seed: u64,
) -> Option<Inputs> {
    let copies = if p.local_inputs { p.devices as usize } else { 1 };
    let mut values = Vec::new();
    let mut element = 0u64;
    for (leaf, d) in p.base_inputs.iter().zip(domains) {
        let Shape::Array(a) = &leaf.shape else {
            values.push(Vec::new());
            continue;
        };
        let count = usize::try_from(a.elements()?).ok()?;
        let mut per = Vec::new();
        for _ in 0..copies {
            let mut unit = || -> f64 {
                element += 1;
                let key = mix(seed, element);
                match design {
                    Design::Latin => {
                        let stratum = permuted(k, n, key);
                        let inside = Random::new(mix(key, k)).unit();
                        (stratum as f64 + inside) / n as f64
                    }
                    Design::Sobol => {
                        let x = sobol.bits(k, element as usize % SOBOL) ^ (key >> 32) as u32;
                        (f64::from(x) + 0.5) / 4294967296.0
                    }
                }
            };
            let dims = a.dims.iter().copied();
            let t = if a.dtype.is_float() {
                let v: Vec<f64> = (0..count).map(|_| normal_quantile(unit())).collect();
                Tensor::from_vec(a.dtype, dims, v).map(|t| t.narrowed())
            } else if a.dtype.is_int() {
                let (lo, hi) = match d {
                    Domain::Int(lo, hi) => (*lo, *hi),
                    _ => (-8, 8),
                };
                let span = (hi as f64 - lo as f64) + 1.0;
                let v: Vec<i64> =
                    (0..count).map(|_| lo.saturating_add((unit() * span) as i64).min(hi)).collect();
                ints(a, &v)
            } else {
                let mut r = Random::new(mix(seed ^ k, element));
                element += count as u64;
                domain::draw(a, *d, domain::Profile::Normal, &mut r)
            };
            per.push(t?);
        }
        values.push(per);
    }
    Some(Inputs { values })
}

fn ints(a: &ArrayShape, v: &[i64]) -> Option<Tensor> {
    let w = a.dtype.literal_bytes();
    let bytes: Vec<u8> = v.iter().flat_map(|x| x.to_le_bytes().into_iter().take(w)).collect();
    Tensor::from_bytes(&ArrayShape::new(a.dtype, a.dims.iter().copied()), &bytes)
}

/// Compares outputs over a sample of the inputs.
///
/// # Errors
/// Programs that do not fit or cannot be run.
pub fn sample(
    a: &Module,
    b: &Module,
    claim: &Claim,
    design: Design,
    points: usize,
    seed: u64,
    time: Duration,
) -> Result<Sampled, DiffError> {
    let bad = |s: String| DiffError::Problem(s);
    let p = problem::setup(a, b, claim);
    if let Some(e) = p.errors.first() {
        return Err(bad(e.clone()));
    }
    let domains = domain::domains(a, &p, claim, false);
    let sobol = Sobol::new(if design == Design::Sobol { SOBOL } else { 1 }, seed);
    let placements: Vec<_> = p.pairs.iter().map(|q| q.placement.clone()).collect();
    let (bs, ds) = (problem::output_shapes(a), problem::output_shapes(b));
    if bs.len() != ds.len() {
        return Err(bad(format!("{} outputs against {}", bs.len(), ds.len())));
    }
    let mut layouts = Vec::new();
    for (k, (g, l)) in bs.iter().zip(&ds).enumerate() {
        let (Shape::Array(g), Shape::Array(l)) = (g, l) else { continue };
        let q = if p.base_spmd && g.dims == l.dims {
            None
        } else {
            let q = problem::output_layouts(&p, claim, b, k, g, l).map_err(bad)?;
            q.into_iter().next().map(|q| q.0)
        };
        layouts.push((g.dims.to_vec(), compare::width(g.dtype), q));
    }
    let limits = RunLimits { memory: 2 << 30, time };
    let run = |e: scalify_interp::RunError| DiffError::Run("first", e.into());
    let start = Instant::now();
    let u = compare::roundoff(a);
    let mut out = Sampled {
        points: 0,
        different: 0,
        ratio: 0.0,
        output: 0,
        point: 0,
        expected: 0.0,
        actual: 0.0,
        inputs: None,
    };
    for k in 0..points as u64 {
        if start.elapsed() > time {
            break;
        }
        let x = point(&p, &domains, design, &sobol, k, points as u64, seed)
            .ok_or_else(|| bad("an input cannot be drawn".into()))?;
        let wide = evaluate::base(a, &p, &x, Accumulate::F64, limits).map_err(run)?;
        let plain = evaluate::base(a, &p, &x, Accumulate::Plain, limits).map_err(run)?;
        let mut r = Random::new(mix(seed, k));
        let mut near = x.clone();
        for t in near.values.iter_mut().flatten().filter(|t| t.dtype.is_float()) {
            let v = t.to_f64().iter().map(|x| x * (1.0 + u * (2.0 * r.unit() - 1.0))).collect();
            if let Some(new) = Tensor::from_vec(t.dtype, t.dims.iter().copied(), v) {
                *t = new;
            }
        }
        let near = evaluate::base(a, &p, &near, Accumulate::F64, limits).map_err(run)?;
        let got = evaluate::dist(b, &p, &placements, &x, Accumulate::Plain, limits)
            .map_err(|e| DiffError::Run("second", e.into()))?;
        out.points += 1;
        let (mut differs, mut worst) = (false, false);
        for (o, (dims, w, q)) in layouts.iter().enumerate() {
            for d in 0..p.devices as usize {
                let own = if p.local_inputs || wide.len() > 1 { d } else { 0 };
                let get = |r: &evaluate::Results, d: usize| {
                    r.get(d).and_then(|v| v.get(o)).map(numbers).unwrap_or_default()
                };
                let (x64, x32, y) = (get(&wide, own), get(&plain, own), get(&got, d));
                let bounds = compare::bounds(&x64, &x32, &[get(&near, own)], u);
                let places = place::positions(dims, q.as_ref(), d as u32).unwrap_or_default();
                for (l, g) in places {
                    for c in 0..*w {
                        let (l, g) = (l * w + c, g * w + c);
                        let (Some(&e), Some(&z), Some(&limit)) =
                            (x64.get(g), y.get(l), bounds.get(g))
                        else {
                            continue;
                        };
                        let over = compare::differs(e, z, limit);
                        differs |= over;
                        let q = (e - z).abs() / limit;
                        let q = if over && q.is_nan() { f64::INFINITY } else { q };
                        if q > out.ratio || out.inputs.is_none() && !worst {
                            out.ratio = if q.is_nan() { 0.0 } else { q };
                            (out.output, out.point) = (o, k as usize);
                            (out.expected, out.actual) = (e, z);
                            worst = true;
                        }
                    }
                }
            }
        }
        out.different += usize::from(differs);
        if worst {
            out.inputs = Some(x);
        }
    }
    Ok(out)
}
