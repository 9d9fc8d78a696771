//! Complex numbers and their elementary functions.
//!
//! Functions are evaluated in `f64` parts and rounded once for `c64`.

/// A complex number of two floats.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(C)]
pub struct Complex<T> {
    /// Real part.
    pub re: T,
    /// Imaginary part.
    pub im: T,
}

/// Complex with `f32` parts (`c64`).
pub type C64 = Complex<f32>;
/// Complex with `f64` parts (`c128`).
pub type C128 = Complex<f64>;

/// Short constructor.
pub(crate) fn c(re: f64, im: f64) -> C128 {
    Complex { re, im }
}

impl C64 {
    /// Exact widening.
    pub fn wide(self) -> C128 {
        c(self.re as f64, self.im as f64)
    }

    /// Product as compiled code forms it: of the two products of each part one
    /// is rounded, the other fused into the sum.
    #[inline(always)]
    pub(crate) fn mul(self, o: C64) -> C64 {
        let fused = |a: f32, b: f32, c: f32| (a as f64 * b as f64 + c as f64) as f32;
        Complex {
            re: fused(self.re, o.re, -(self.im * o.im)),
            im: fused(self.im, o.re, self.re * o.im),
        }
    }
}

impl C128 {
    /// Rounds both parts.
    pub fn narrow(self) -> C64 {
        Complex { re: self.re as f32, im: self.im as f32 }
    }

    pub(crate) fn add(self, o: C128) -> C128 {
        c(self.re + o.re, self.im + o.im)
    }

    pub(crate) fn sub(self, o: C128) -> C128 {
        c(self.re - o.re, self.im - o.im)
    }

    pub(crate) fn neg(self) -> C128 {
        c(-self.re, -self.im)
    }

    pub(crate) fn conj(self) -> C128 {
        c(self.re, -self.im)
    }

    pub(crate) fn scale(self, s: f64) -> C128 {
        c(self.re * s, self.im * s)
    }

    pub(crate) fn mul(self, o: C128) -> C128 {
        c(self.re * o.re - self.im * o.im, self.re * o.im + self.im * o.re)
    }

    /// Quotient with the scaling and the special values of C99 annex G.
    pub(crate) fn div(self, o: C128) -> C128 {
        let (a, b) = (self.re, self.im);
        let (mut p, mut q) = (o.re, o.im);
        let m = p.abs().max(q.abs());
        let mut e = 0;
        if m.is_finite() && m > 0.0 {
            e = libm::ilogb(m);
            p = libm::scalbn(p, -e);
            q = libm::scalbn(q, -e);
        }
        let den = p * p + q * q;
        let re = libm::scalbn((a * p + b * q) / den, -e);
        let im = libm::scalbn((b * p - a * q) / den, -e);
        if re.is_nan() && im.is_nan() {
            if den == 0.0 && (!a.is_nan() || !b.is_nan()) {
                let inf = f64::INFINITY.copysign(p);
                return c(inf * a, inf * b);
            }
            if (a.is_infinite() || b.is_infinite()) && p.is_finite() && q.is_finite() {
                let unit = |x: f64| (if x.is_infinite() { 1.0 } else { 0.0f64 }).copysign(x);
                let (a, b) = (unit(a), unit(b));
                return c(f64::INFINITY * (a * p + b * q), f64::INFINITY * (b * p - a * q));
            }
            if m.is_infinite() && a.is_finite() && b.is_finite() {
                let unit = |x: f64| (if x.is_infinite() { 1.0 } else { 0.0f64 }).copysign(x);
                let (p, q) = (unit(p), unit(q));
                return c(0.0 * (a * p + b * q), 0.0 * (b * p - a * q));
            }
        }
        c(re, im)
    }

    pub(crate) fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }

    pub(crate) fn sign(self) -> C128 {
        let m = self.abs();
        if m.is_nan() {
            return c(f64::NAN, f64::NAN);
        }
        if m == 0.0 { self } else { c(self.re / m, self.im / m) }
    }

    pub(crate) fn exp(self) -> C128 {
        if self.im == 0.0 {
            return c(self.re.exp(), self.im);
        }
        if self.re == f64::NEG_INFINITY && !self.im.is_finite() {
            return c(0.0, 0.0);
        }
        // e^x may overflow where e^x*cos(y) does not: split the exponent.
        if self.re > 709.0 && self.re < 1500.0 {
            let h = (self.re * 0.5).exp();
            return c(h * self.im.cos() * h, h * self.im.sin() * h);
        }
        let e = self.re.exp();
        c(e * self.im.cos(), e * self.im.sin())
    }

    pub(crate) fn exp_m1(self) -> C128 {
        let (x, y) = (self.re, self.im);
        // e^x cos y - 1 = expm1(x) cos y - 2 sin^2(y/2)
        let s = (y * 0.5).sin();
        let em1 = x.exp_m1();
        let re = em1 * y.cos() - 2.0 * s * s;
        c(re, if y == 0.0 { y } else { (em1 + 1.0) * y.sin() })
    }

    pub(crate) fn log(self) -> C128 {
        let (x, y) = (self.re.abs(), self.im.abs());
        let (big, small) = if x >= y { (x, y) } else { (y, x) };
        let re = if big > 0.5 && big < 2.0 {
            // |z|^2 - 1 without cancellation near the unit circle.
            let hi = (big - 1.0) * (big + 1.0);
            let sq = two_sum(hi, small * small);
            let fix = small.mul_add(small, -(small * small));
            0.5 * (sq.0 + (sq.1 + fix)).ln_1p()
        } else {
            self.abs().ln()
        };
        c(re, self.im.atan2(self.re))
    }

    pub(crate) fn log1p(self) -> C128 {
        let (x, y) = (self.re, self.im);
        let re = if x.abs() < 0.5 && y.abs() < 1.0 || x.abs() < 1.0 && y.abs() < 0.5 {
            // |1+z|^2 - 1 = 2x + x^2 + y^2, summed with its rounding errors.
            let (xx, yy) = (x * x, y * y);
            let (ex, ey) = (x.mul_add(x, -xx), y.mul_add(y, -yy));
            let (s, e1) = two_sum(2.0 * x, xx);
            let (s, e2) = two_sum(s, yy);
            let v = s + (e1 + e2 + ex + ey);
            0.5 * v.ln_1p()
        } else {
            c(1.0 + x, y).log().re
        };
        c(re, y.atan2(1.0 + x))
    }

    pub(crate) fn sqrt(self) -> C128 {
        let (x, y) = (self.re, self.im);
        if x == 0.0 && y == 0.0 {
            return c(0.0, y);
        }
        if y.is_infinite() {
            return c(f64::INFINITY, y);
        }
        if x.is_infinite() {
            return if x > 0.0 {
                c(x, if y.is_nan() { y } else { 0.0f64.copysign(y) })
            } else {
                c(if y.is_nan() { y } else { 0.0 }, f64::INFINITY.copysign(y))
            };
        }
        let m = x.abs().max(y.abs());
        let (k, up) = if m < 1e-290 {
            (libm::scalbn(1.0, 108), -54)
        } else if m > 1e300 {
            (libm::scalbn(1.0, -4), 2)
        } else {
            (1.0, 0)
        };
        let (x, y) = (x * k, y * k);
        let t = ((x.abs() + x.hypot(y)) * 0.5).sqrt();
        let r = if x >= 0.0 { c(t, y / (2.0 * t)) } else { c(y.abs() / (2.0 * t), t.copysign(y)) };
        c(libm::scalbn(r.re, up), libm::scalbn(r.im, up))
    }

    pub(crate) fn rsqrt(self) -> C128 {
        if self.re == 0.0 && self.im == 0.0 {
            return c(f64::INFINITY, f64::NAN);
        }
        if self.re.is_infinite() || self.im.is_infinite() {
            return c(0.0, 0.0f64.copysign(-self.im));
        }
        c(1.0, 0.0).div(self.sqrt())
    }

    pub(crate) fn cbrt(self) -> C128 {
        if self.im == 0.0 && self.re >= 0.0 {
            return c(self.re.cbrt(), self.im);
        }
        self.pow(c(1.0 / 3.0, 0.0))
    }

    pub(crate) fn sin(self) -> C128 {
        let (x, y) = (self.re, self.im);
        if y.abs() > 709.0 {
            let h = (y.abs() * 0.5).exp();
            return c(x.sin() * h * 0.5 * h, x.cos() * h * 0.5 * h * y.signum());
        }
        c(x.sin() * y.cosh(), x.cos() * y.sinh())
    }

    pub(crate) fn cos(self) -> C128 {
        let (x, y) = (self.re, self.im);
        if y.abs() > 709.0 {
            let h = (y.abs() * 0.5).exp();
            return c(x.cos() * h * 0.5 * h, -(x.sin() * h * 0.5 * h * y.signum()));
        }
        c(x.cos() * y.cosh(), -(x.sin() * y.sinh()))
    }

    pub(crate) fn tanh(self) -> C128 {
        let (x, y) = (self.re, self.im);
        if x.abs() > 20.0 {
            let e = 4.0 * (-2.0 * x.abs()).exp();
            return c(1.0f64.copysign(x), e * y.sin() * y.cos());
        }
        let t = y.tan();
        let beta = 1.0 + t * t;
        let s = x.sinh();
        let rho = (1.0 + s * s).sqrt();
        if t.is_infinite() {
            return c(rho / s, 1.0 / t);
        }
        let den = 1.0 + beta * s * s;
        c(beta * rho * s / den, t / den)
    }

    pub(crate) fn tan(self) -> C128 {
        // tan z = -i tanh(iz)
        let t = c(-self.im, self.re).tanh();
        c(t.im, -t.re)
    }

    pub(crate) fn sinh(self) -> C128 {
        let t = c(-self.im, self.re).sin();
        c(t.im, -t.re)
    }

    pub(crate) fn cosh(self) -> C128 {
        c(-self.im, self.re).cos()
    }

    /// Principal value; from `acosh` by rotation.
    pub(crate) fn acos(self) -> C128 {
        let t = self.asin();
        c(std::f64::consts::FRAC_PI_2 - t.re, -t.im)
    }

    /// Hull, Fairgrieve and Tang's scheme without its extreme ranges.
    pub(crate) fn asin(self) -> C128 {
        let (x, y) = (self.re.abs(), self.im.abs());
        let (r, s) = ((x + 1.0).hypot(y), (x - 1.0).hypot(y));
        let a = 0.5 * (r + s);
        let b = x / a;
        let re = if b <= 0.6417 {
            b.asin()
        } else {
            let apx = a + x;
            let d = if x <= 1.0 {
                0.5 * apx * (y * y / (r + x + 1.0) + (s + (1.0 - x)))
            } else {
                0.5 * (apx / (r + x + 1.0) + apx / (s + (x - 1.0))) * y * y
            };
            x.atan2(d.sqrt())
        };
        let im = if a < 1.5 {
            let am1 = if x < 1.0 {
                0.5 * (y * y / (r + (x + 1.0)) + y * y / (s + (1.0 - x)))
            } else {
                0.5 * (y * y / (r + (x + 1.0)) + (s + (x - 1.0)))
            };
            (am1 + (am1 * (a + 1.0)).sqrt()).ln_1p()
        } else {
            (a + (a * a - 1.0).sqrt()).ln()
        };
        c(re.copysign(self.re), im.copysign(self.im))
    }

    pub(crate) fn acosh(self) -> C128 {
        let t = self.acos();
        // i*acos or -i*acos, whichever has a real part of at least zero.
        if t.im.is_sign_negative() { c(-t.im, t.re) } else { c(t.im, -t.re) }
    }

    pub(crate) fn asinh(self) -> C128 {
        let t = c(-self.im, self.re).asin();
        c(t.im, -t.re)
    }

    pub(crate) fn atanh(self) -> C128 {
        let (x, y) = (self.re, self.im);
        let den = (1.0 - x) * (1.0 - x) + y * y;
        let re = 0.25 * (4.0 * x / den).ln_1p();
        let im = 0.5 * (2.0 * y).atan2((1.0 - x) * (1.0 + x) - y * y);
        c(re, im)
    }

    /// `-i log((x + iy) / sqrt(x^2 + y^2))`.
    pub(crate) fn atan2(self, x: C128) -> C128 {
        let y = self;
        let n = x.add(c(-y.im, y.re));
        let q = n.div(x.mul(x).add(y.mul(y)).sqrt()).log();
        c(q.im, -q.re)
    }

    pub(crate) fn logistic(self) -> C128 {
        c(1.0, 0.0).div(c(1.0, 0.0).add(self.neg().exp()))
    }

    pub(crate) fn pow(self, e: C128) -> C128 {
        if e.re == 0.0 && e.im == 0.0 {
            return c(1.0, 0.0);
        }
        if self.re == 0.0 && self.im == 0.0 {
            if e.im == 0.0 && e.re > 0.0 {
                return c(0.0, 0.0);
            }
            return c(f64::NAN, f64::NAN);
        }
        let (lr, arg) = (self.log().re, self.im.atan2(self.re));
        let m = (e.re * lr - e.im * arg).exp();
        let t = e.im * lr + e.re * arg;
        c(m * t.cos(), m * t.sin())
    }
}

/// Sum and its rounding error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let bb = s - a;
    (s, (a - (s - bb)) + (b - bb))
}
