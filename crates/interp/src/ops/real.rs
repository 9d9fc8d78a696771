//! Scalar functions of real numbers. `f32` functions without a good native
//! version are evaluated in `f64` and rounded once.

/// What the elementwise kernels need of `f32` and `f64`.
pub(crate) trait Flt: Copy + Default + PartialEq + PartialOrd {
    fn f64(self) -> f64;
    fn of(x: f64) -> Self;
    fn rabs(self) -> Self;
    fn rneg(self) -> Self;
    fn rexp(self) -> Self;
    fn rlog(self) -> Self;
    fn rsqrt_exact(self) -> Self;
    fn rfloor(self) -> Self;
    fn rceil(self) -> Self;
    fn rround(self) -> Self;
    fn reven(self) -> Self;
    fn rpow(self, o: Self) -> Self;
    fn rrem(self, o: Self) -> Self;
    /// Total-order key: compares as IEEE 754 `totalOrder`.
    fn key(self) -> i64;

    fn rcos(self) -> Self {
        Self::of(self.f64().cos())
    }
    fn rsin(self) -> Self {
        Self::of(self.f64().sin())
    }
    fn rtan(self) -> Self {
        Self::of(self.f64().tan())
    }
    fn rcosh(self) -> Self {
        Self::of(self.f64().cosh())
    }
    fn rsinh(self) -> Self {
        Self::of(self.f64().sinh())
    }
    fn rtanh(self) -> Self {
        Self::of(tanh(self.f64()))
    }
    fn racos(self) -> Self {
        Self::of(self.f64().acos())
    }
    fn rasin(self) -> Self {
        Self::of(self.f64().asin())
    }
    fn racosh(self) -> Self {
        Self::of(libm::acosh(self.f64()))
    }
    fn rasinh(self) -> Self {
        Self::of(libm::asinh(self.f64()))
    }
    fn ratanh(self) -> Self {
        Self::of(libm::atanh(self.f64()))
    }
    fn ratan2(self, x: Self) -> Self {
        Self::of(self.f64().atan2(x.f64()))
    }
    fn rcbrt(self) -> Self {
        Self::of(self.f64().cbrt())
    }
    fn rerf(self) -> Self {
        Self::of(libm::erf(self.f64()))
    }
    fn rexpm1(self) -> Self {
        Self::of(self.f64().exp_m1())
    }
    fn rlog1p(self) -> Self {
        Self::of(self.f64().ln_1p())
    }
    fn rlogistic(self) -> Self {
        Self::of(1.0 / (1.0 + (-self.f64()).exp()))
    }
    fn rrsqrt(self) -> Self {
        Self::of(1.0 / self.f64().sqrt())
    }
    fn rsign(self) -> Self {
        let x = self.f64();
        if x > 0.0 {
            Self::of(1.0)
        } else if x < 0.0 {
            Self::of(-1.0)
        } else {
            self
        }
    }
    /// NaN if either is NaN; +0 above -0.
    fn rmax(self, o: Self) -> Self;
    /// NaN if either is NaN; -0 below +0.
    fn rmin(self, o: Self) -> Self;
}

/// `e^x` for results that are rounded to `f32`: relative error below 1e-13,
/// no branches, so that loops over it vectorise. Beyond +-200 the result is
/// that at +-200, which rounds to infinity or zero.
#[inline]
fn exp_core(x: f64) -> f64 {
    /// Adding it leaves the nearest integer in the low bits.
    const MAGIC: f64 = 6755399441055744.0;
    let c = if x > 200.0 { 200.0 } else { x };
    let c = if c < -200.0 { -200.0 } else { c };
    let t = c * std::f64::consts::LOG2_E + MAGIC;
    let n = t - MAGIC;
    // ln 2 in two parts, the first with trailing zeros.
    let r = c - n * 0.693_147_180_369_123_8 - n * 1.908_214_929_270_587_7e-10;
    // Taylor series: |r| <= 0.35.
    let mut p = 1.0 / 3_628_800.0;
    for k in [362_880.0, 40_320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0f64] {
        p = p * r + 1.0 / k;
    }
    let scale = f64::from_bits((t.to_bits() << 52).wrapping_add(1023 << 52));
    let y = p * scale;
    if x.is_nan() { x } else { y }
}

/// `f32` exponential, within 0.5001 ulps.
#[inline]
pub(crate) fn exp32(x: f32) -> f32 {
    exp_core(x as f64) as f32
}

/// `f32` logistic function.
#[inline]
pub(crate) fn logistic32(x: f32) -> f32 {
    (1.0 / (1.0 + exp_core(-(x as f64)))) as f32
}

/// `f32` hyperbolic tangent: its series near zero, else from the exponential.
#[inline]
pub(crate) fn tanh32(x: f32) -> f32 {
    let x = x as f64;
    let q = x * x;
    let series = x
        * (1.0
            + q * (-1.0 / 3.0
                + q * (2.0 / 15.0
                    + q * (-17.0 / 315.0
                        + q * (62.0 / 2835.0
                            + q * (-1382.0 / 155_925.0 + q * (21_844.0 / 6_081_075.0)))))));
    let far = 1.0 - 2.0 / (exp_core(2.0 * x.abs()) + 1.0);
    let far = far.copysign(x);
    (if q < 0.04 { series } else { far }) as f32
}

fn tanh(x: f64) -> f64 {
    let a = x.abs();
    let t = if a < 0.3 {
        let e = (2.0 * a).exp_m1();
        e / (e + 2.0)
    } else {
        1.0 - 2.0 / ((2.0 * a).exp() + 1.0)
    };
    if x.is_nan() { x } else { t.copysign(x) }
}

macro_rules! real {
    ($t:ident, $bits:ident, $shift:literal) => {
        impl Flt for $t {
            fn f64(self) -> f64 {
                self as f64
            }
            fn of(x: f64) -> Self {
                x as $t
            }
            fn rabs(self) -> Self {
                self.abs()
            }
            fn rneg(self) -> Self {
                -self
            }
            fn rexp(self) -> Self {
                self.exp()
            }
            fn rlog(self) -> Self {
                self.ln()
            }
            fn rsqrt_exact(self) -> Self {
                self.sqrt()
            }
            fn rfloor(self) -> Self {
                self.floor()
            }
            fn rceil(self) -> Self {
                self.ceil()
            }
            fn rround(self) -> Self {
                self.round()
            }
            fn reven(self) -> Self {
                self.round_ties_even()
            }
            fn rpow(self, o: Self) -> Self {
                self.powf(o)
            }
            fn rrem(self, o: Self) -> Self {
                self % o
            }
            fn rmax(self, o: Self) -> Self {
                if self > o || self.is_nan() {
                    self
                } else if self < o || o.is_nan() || self.is_sign_negative() {
                    o
                } else {
                    self
                }
            }
            fn rmin(self, o: Self) -> Self {
                if self < o || self.is_nan() {
                    self
                } else if self > o || o.is_nan() || o.is_sign_negative() {
                    o
                } else {
                    self
                }
            }
            fn key(self) -> i64 {
                let b = self.to_bits() as $bits;
                (b ^ (((b >> $shift) as u64) >> 1) as $bits) as i64
            }
        }
    };
}
real!(f32, i32, 31);
real!(f64, i64, 63);
