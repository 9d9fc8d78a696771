//! Elementary functions of `f32`, evaluated in `f64` without branches, so that
//! loops over them vectorise, and rounded once: within 0.51 ulps of the exact
//! value for every argument, denormals included (`tests` below).
//!
//! Polynomials are Chebyshev interpolants (for the error function a least
//! squares quotient) on the reduced range; the comment beside each gives its
//! greatest error.

/// Adding it leaves the nearest integer in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// Horner's rule, highest coefficient first.
#[inline(always)]
fn poly<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut p = c[0];
    for k in &c[1..] {
        p = p * x + k;
    }
    p
}

/// `(e^r - 1, 2^n)` with `x = n ln 2 + r`; beyond +-200 as at +-200.
#[inline(always)]
fn exp_parts(x: f64) -> (f64, f64) {
    let c = if x > 200.0 { 200.0 } else { x };
    let c = if c < -200.0 { -200.0 } else { c };
    let t = c * std::f64::consts::LOG2_E + MAGIC;
    let n = t - MAGIC;
    // ln 2 in two parts, the first with trailing zeros.
    let r = c - n * 0.693_147_180_369_123_8 - n * 1.908_214_929_270_587_7e-10;
    // (e^r - 1) / r to 8.3e-14 for |r| < 0.3475.
    let p = poly(
        r,
        [
            2.7625465285147017e-06,
            2.4876563798611987e-05,
            0.00019841208100740808,
            0.0013888820955453977,
            0.008333333354046457,
            0.041666666894580776,
            0.16666666666647906,
            0.4999999999979357,
            1.0,
        ],
    );
    (r * p, f64::from_bits((t.to_bits() << 52).wrapping_add(1023 << 52)))
}

#[inline(always)]
fn exp(x: f64) -> f64 {
    let (q, scale) = exp_parts(x);
    scale + scale * q
}

#[inline(always)]
fn expm1(x: f64) -> f64 {
    let (q, scale) = exp_parts(x);
    scale * q + (scale - 1.0)
}

/// `e^x`.
#[inline(always)]
pub(crate) fn exp32(x: f32) -> f32 {
    exp(x as f64) as f32
}

/// `e^x - 1`.
#[inline(always)]
pub(crate) fn expm1_32(x: f32) -> f32 {
    expm1(x as f64).copysign(x as f64) as f32
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn logistic32(x: f32) -> f32 {
    (1.0 / (1.0 + exp(-(x as f64)))) as f32
}

/// Hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh32(x: f32) -> f32 {
    let x = x as f64;
    let e = expm1(2.0 * x.abs());
    (e / (e + 2.0)).copysign(x) as f32
}

/// Logarithm of `1 + y`, where `u` is `1 + y` rounded; with `y = u - 1` the
/// logarithm of `u`.
#[inline(always)]
fn log_of(u: f64, y: f64) -> f64 {
    /// Bits of the square root of 1/2.
    const LOW: u64 = 0x3fe6_a09e_667f_3bcd;
    let b = u.to_bits().wrapping_add((1023 << 52) - LOW);
    let m = f64::from_bits((b & ((1 << 52) - 1)) + LOW);
    let e = f64::from_bits((b >> 52 & 0x7ff) | 0x4330_0000_0000_0000)
        - (4_503_599_627_370_496.0 + 1023.0);
    // u = 2^e m, log m = 2 atanh((m - 1) / (m + 1)).
    let near = e == 0.0;
    let num = if near { y } else { m - 1.0 };
    let den = if near { y + 2.0 } else { m + 1.0 };
    let s = num / den;
    // 2 atanh(s) / s to 2.8e-14.
    let p = poly(
        s * s,
        [
            0.19608743813052198,
            0.22174207000684107,
            0.28572167127643644,
            0.39999994882809425,
            0.6666666667960768,
            1.9999999999999472,
        ],
    );
    let r = e * std::f64::consts::LN_2 + s * p;
    let r = if u < f64::INFINITY { r } else { u };
    let r = if u == 0.0 { f64::NEG_INFINITY } else { r };
    if u < 0.0 { f64::NAN } else { r }
}

/// Natural logarithm.
#[inline(always)]
pub(crate) fn log32(x: f32) -> f32 {
    let x = x as f64;
    log_of(x, x - 1.0) as f32
}

/// Natural logarithm of `1 + x`.
#[inline(always)]
pub(crate) fn log1p32(x: f32) -> f32 {
    let y = x as f64;
    let r = log_of(1.0 + y, y) as f32;
    if x == 0.0 { x } else { r }
}

/// Arguments from here on are reduced by the standard library.
const FAR: f32 = 1e6;

/// Sine of `x + turn * pi / 2`, `|x| <= FAR`.
#[inline(always)]
fn sine(x: f32, turn: u64) -> f32 {
    let x = x as f64;
    let t = x * std::f64::consts::FRAC_2_PI + MAGIC;
    let n = t - MAGIC;
    // pi / 2 in two parts; n times the first, of 33 bits, is exact.
    let r = x - n * 1.570_796_326_734_125_6 - n * 6.077_100_506_506_192e-11;
    let z = r * r;
    // sin(r) / r to 4.3e-15 and cos(r) to 4.8e-17.
    let s = r * poly(
        z,
        [
            -2.4756487429387385e-08,
            2.7555270903015517e-06,
            -0.00019841263293637903,
            0.008333333323868986,
            -0.16666666666616625,
            0.9999999999999957,
        ],
    );
    let c = poly(
        z,
        [
            2.0630394922057676e-09,
            -2.755523287606391e-07,
            2.4801578532197658e-05,
            -0.001388888886996033,
            0.04166666666647207,
            -0.4999999999999925,
            1.0,
        ],
    );
    let k = t.to_bits().wrapping_add(turn);
    let v = if k & 1 == 0 { s } else { c };
    f64::from_bits(v.to_bits() ^ (k & 2) << 62) as f32
}

/// Sines (or cosines) in place.
#[inline(always)]
fn turn32(v: &mut [f32], turn: u64, slow: fn(f64) -> f64) {
    for block in v.chunks_mut(64) {
        let near = block.iter().fold(true, |a, x| a & (x.abs() <= FAR));
        if near {
            block.iter_mut().for_each(|x| *x = sine(*x, turn));
        } else {
            block.iter_mut().for_each(|x| {
                *x = if x.abs() <= FAR { sine(*x, turn) } else { slow(*x as f64) as f32 }
            });
        }
    }
}

/// Sines in place.
#[inline(always)]
pub(crate) fn sin32(v: &mut [f32]) {
    turn32(v, 0, f64::sin);
}

/// Cosines in place.
#[inline(always)]
pub(crate) fn cos32(v: &mut [f32]) {
    turn32(v, 1, f64::cos);
}

/// Error function: `x` times a quotient of polynomials in `x^2`, which is
/// `erf(x) / x` to 2.4e-10 for `x^2 <= 15.5`, from where on it rounds to 1.
#[inline(always)]
pub(crate) fn erf32(x: f32) -> f32 {
    /// The square root of 15.5.
    const END: f64 = 3.937_003_937_005_905;
    let x = x as f64;
    let c = if x > END { END } else { x };
    let c = if c < -END { -END } else { c };
    let z = c * c;
    let p = poly(
        z,
        [
            -2.595060258379834e-09,
            8.12692126705973e-07,
            6.477173298807346e-05,
            0.0009254016660388801,
            0.011890944851959703,
            0.08085852392511206,
            0.3524776910935509,
            1.128379167033073,
        ],
    );
    let q = poly(
        z,
        [
            1.0566010447599513e-05,
            0.00025665417221852073,
            0.003566898877445967,
            0.03207502072582735,
            0.18689521933833433,
            0.6457085502710164,
            1.0,
        ],
    );
    (c * p / q) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance from the exact value in units of the last place of the nearest
    /// `f32`.
    fn ulps(got: f32, exact: f64) -> f64 {
        let near = exact as f32;
        if got.to_bits() == near.to_bits() || got.is_nan() && exact.is_nan() {
            return 0.0;
        }
        if !near.is_finite() || got == 0.0 && exact.is_sign_negative() != got.is_sign_negative() {
            return f64::INFINITY;
        }
        let e = libm::ilogb(exact).max(-126);
        (got as f64 - exact).abs() / libm::scalbn(1.0, e - 23)
    }

    fn check(name: &str, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) {
        let mut worst = (0.0, 0.0f32);
        let edges =
            [0.0, -0.0, 1.0, -1.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        // All exponents and signs, denormals included; and all fractions near one.
        let spread = (0..=u32::MAX).step_by(1021).map(f32::from_bits);
        let dense = (0x3f00_0000..0x4180_0000u32).step_by(61).map(f32::from_bits);
        for x in edges.into_iter().chain(spread).chain(dense.clone()).chain(dense.map(|x| -x)) {
            let u = ulps(f(x), exact(x as f64));
            if u > worst.0 {
                worst = (u, x);
            }
        }
        assert!(worst.0 <= 0.51, "{name}({:e}) is {} ulps off", worst.1, worst.0);
    }

    fn one(f: fn(&mut [f32])) -> impl Fn(f32) -> f32 {
        move |x| {
            let mut v = [x];
            f(&mut v);
            v[0]
        }
    }

    #[test]
    fn within_half_an_ulp_of_f64() {
        check("exp", exp32, f64::exp);
        check("expm1", expm1_32, f64::exp_m1);
        check("log", log32, f64::ln);
        check("log1p", log1p32, f64::ln_1p);
        check("tanh", tanh32, f64::tanh);
        check("logistic", logistic32, |x| 1.0 / (1.0 + (-x).exp()));
        check("erf", erf32, libm::erf);
        check("sin", one(sin32), f64::sin);
        check("cos", one(cos32), f64::cos);
    }
}
