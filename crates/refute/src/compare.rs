//! Tells a real difference from rounding.
//!
//! Both programs are evaluated with floats held in `f64` and never rounded to
//! their types, so that reorderings and extra roundings of either leave no
//! trace. What is left is compared with a bound per element:
//!
//! `bound = 32 * max(e, rms(e), q) + 8 u |x|`, `e = max(|plain - x|, |x(1+u) - x|)`
//!
//! `q` is the smallest normal `f32`: what is below it devices flush to zero.
//! where `x` is the baseline in `f64`, `plain` the baseline in its own types,
//! `x(1+u)` the baseline on inputs moved by a unit roundoff `u` of its least
//! precise float type. `e` is thus the rounding error that the baseline itself
//! makes, and its sensitivity to such errors.

use scalify_interp::{Data, Tensor};
use scalify_ir::{DType, Module};

/// Numbers of a tensor: one per element, two (real, imaginary) if complex.
pub fn numbers(t: &Tensor) -> Vec<f64> {
    match &t.data {
        Data::C64(v) => v.iter().flat_map(|x| [f64::from(x.re), f64::from(x.im)]).collect(),
        Data::C128(v) => v.iter().flat_map(|x| [x.re, x.im]).collect(),
        _ => t.to_f64(),
    }
}

/// Numbers per element.
pub fn width(d: DType) -> usize {
    if d.is_complex() { 2 } else { 1 }
}

/// See `q` in the head of this file.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

/// Unit roundoff of the least precise float type that a module computes in;
/// that of `f32` if there is none.
pub fn roundoff(m: &Module) -> f64 {
    let mut bits = 52;
    let mut any = false;
    for i in &m.instrs {
        for s in m.shapes[i.shape.0 as usize].leaves() {
            let Some(d) = s.dtype() else { continue };
            let d = d.complex_part().unwrap_or(d);
            if let Some(b) = d.mantissa_bits().filter(|_| d.is_float()) {
                bits = bits.min(b);
                any = true;
            }
        }
    }
    if !any {
        bits = 23;
    }
    0.5f64.powi(bits.min(23) as i32 + 1)
}

/// Root mean square of the finite entries.
pub fn rms(v: impl Iterator<Item = f64>) -> f64 {
    let (mut s, mut n) = (0.0, 0u64);
    for x in v.filter(|x| x.is_finite()) {
        s += x * x;
        n += 1;
    }
    if n == 0 { 0.0 } else { (s / n as f64).sqrt() }
}

/// Bound per number of one output; infinite where the baseline itself is not
/// finite in both precisions.
pub fn bounds(wide: &[f64], plain: &[f64], moved: &[Vec<f64>], u: f64) -> Vec<f64> {
    let mut e: Vec<f64> = wide
        .iter()
        .enumerate()
        .map(|(k, &x)| {
            let mut m = (plain.get(k).copied().unwrap_or(f64::NAN) - x).abs();
            for v in moved {
                let d = (v.get(k).copied().unwrap_or(f64::NAN) - x).abs();
                m = if d.is_nan() { f64::INFINITY } else { m.max(d) };
            }
            // Infinite on both sides: an infinity is what is expected.
            if x.is_infinite() && plain.get(k) == Some(&x) {
                0.0
            } else if m.is_nan() {
                f64::INFINITY
            } else {
                m
            }
        })
        .collect();
    let typical = rms(e.iter().copied());
    for (k, e) in e.iter_mut().enumerate() {
        let x = if wide[k].is_finite() { wide[k].abs() } else { 0.0 };
        *e = 32.0 * e.max(typical).max(SMALLEST) + 8.0 * u * x;
    }
    e
}

/// True if `got` differs from `want` by more than `bound`.
pub fn differs(want: f64, got: f64, bound: f64) -> bool {
    if bound.is_infinite() || want.is_nan() || want == got {
        return false;
    }
    if want.is_infinite() || !got.is_finite() {
        return true;
    }
    (want - got).abs() > bound
}
