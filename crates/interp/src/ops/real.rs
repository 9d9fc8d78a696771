//! Scalar functions of real numbers. `f32` functions are evaluated in `f64` and
//! rounded once; those worth vectorising are in [`super::approx`].

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
    #[inline(always)]
    fn rrsqrt(self) -> Self {
        Self::of(1.0 / self.f64().sqrt())
    }
    #[inline(always)]
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
            #[inline(always)]
            fn rmax(self, o: Self) -> Self {
                if self > o || self.is_nan() {
                    self
                } else if self < o || o.is_nan() || self.is_sign_negative() {
                    o
                } else {
                    self
                }
            }
            #[inline(always)]
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
