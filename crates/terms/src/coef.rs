//! Exact rational coefficients, interned so that a coefficient is one word
//! and equality is identity.

use hashbrown::{HashMap, HashSet};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use rustc_hash::FxBuildHasher;

/// An interned rational number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Coef(pub u32);

impl Coef {
    /// 0
    pub const ZERO: Coef = Coef(0);
    /// 1
    pub const ONE: Coef = Coef(1);
    /// -1
    pub const NEG: Coef = Coef(2);
}

/// Largest size of a numerator or denominator in bits; beyond it an operation
/// is refused and the caller keeps the numbers apart.
const MAX_BITS: u64 = 4096;

/// Most numbers of which products are looked for.
const MAX_FACTORS: usize = 64;

/// Bits of an `f32` that hold its exponent.
const EXPONENT: u32 = 0x7f80_0000;

/// The interner. Index 0, 1, 2 are 0, 1, -1.
#[derive(Debug)]
pub struct Coefs {
    values: Vec<BigRational>,
    ids: HashMap<BigRational, Coef, FxBuildHasher>,
    /// Numbers met by [`Coefs::near`], by sign and significand of their nearest
    /// `f32`.
    met: HashMap<u32, Vec<Coef>, FxBuildHasher>,
    /// Significands of literals that are an `f32`.
    stand: HashSet<u32, FxBuildHasher>,
    /// Literals of a program and what each is read as.
    literals: HashMap<Coef, Coef, FxBuildHasher>,
    /// Those of which products are looked for, no powers of two.
    factors: Vec<Coef>,
    products: HashMap<(Coef, Coef), Option<Coef>, FxBuildHasher>,
    sums: HashMap<(Coef, Coef), Option<Coef>, FxBuildHasher>,
}

impl Default for Coefs {
    fn default() -> Self {
        let mut c = Coefs {
            values: Vec::new(),
            ids: HashMap::default(),
            met: HashMap::default(),
            stand: HashSet::default(),
            literals: HashMap::default(),
            factors: Vec::new(),
            products: HashMap::default(),
            sums: HashMap::default(),
        };
        for v in [0, 1, -1] {
            c.intern(BigRational::from_integer(BigInt::from(v)));
        }
        c
    }
}

impl Coefs {
    fn intern(&mut self, v: BigRational) -> Option<Coef> {
        if v.numer().bits() > MAX_BITS || v.denom().bits() > MAX_BITS {
            return None;
        }
        if let Some(&id) = self.ids.get(&v) {
            return Some(id);
        }
        let id = Coef(self.values.len() as u32);
        self.values.push(v.clone());
        self.ids.insert(v, id);
        Some(id)
    }

    /// The value of a coefficient.
    pub fn get(&self, c: Coef) -> &BigRational {
        &self.values[c.0 as usize]
    }

    /// From an integer.
    pub fn int(&mut self, v: i64) -> Coef {
        match v {
            0 => Coef::ZERO,
            1 => Coef::ONE,
            -1 => Coef::NEG,
            // 64 bits are below MAX_BITS.
            _ => self.intern(BigRational::from_integer(BigInt::from(v))).unwrap_or(Coef::ZERO),
        }
    }

    /// Exactly a finite float; `None` for NaN and infinities.
    pub fn float(&mut self, v: f64) -> Option<Coef> {
        self.intern(BigRational::from_float(v)?)
    }

    /// True if the number is an `f32` (not too large or small), so that no
    /// rounding is in it.
    fn is_f32(&self, c: Coef) -> bool {
        let x = self.to_f64(c);
        x.is_finite()
            && f64::from(x as f32) == x
            && BigRational::from_float(x).as_ref() == Some(self.get(c))
    }

    /// The number met before of which `c` is the nearest `f32`, or that is the
    /// nearest `f32` of `c`, both up to a power of two: scaling by it is exact.
    /// Else `c`, which counts as met. The one that is an `f32` has to stand in a
    /// program, up to a power of two, as rounding makes literals: a coefficient
    /// that came about exactly (`1 + 1/64`) is no rounding of its neighbours.
    /// Two different `f32` numbers are never taken for each other, neighbours
    /// of the nearest one are other numbers, and powers of two are themselves.
    pub fn near(&mut self, c: Coef) -> Coef {
        let x = self.to_f64(c);
        if !x.is_finite() || x.abs() < 1e-30 || x.abs() > 1e30 {
            return c;
        }
        let bits = (x as f32).to_bits();
        let key = bits & !EXPONENT;
        if key & i32::MAX as u32 == 0 {
            return c;
        }
        let own = self.is_f32(c);
        for d in self.met.get(&key).cloned().unwrap_or_default() {
            let other = (self.to_f64(d) as f32).to_bits() & EXPONENT;
            let steps = (i64::from(bits & EXPONENT) - i64::from(other)) >> 23;
            let Some(e) = self.doubled(d, steps) else { continue };
            if e == c {
                return c;
            }
            if own != self.is_f32(d) && self.stand.contains(&(key & i32::MAX as u32)) {
                return e;
            }
        }
        self.met.entry(key).or_default().push(c);
        c
    }

    /// [`Coefs::near`] for a number that stands in a program, or by which it
    /// divides. Such a number may also be the nearest `f32` of the product of
    /// two others that stand in one, up to a power of two (constants that a
    /// compiler multiplied): then it is read as the product.
    pub fn literal(&mut self, c: Coef) -> Coef {
        if let Some(&k) = self.literals.get(&c) {
            return k;
        }
        // Only what it is read as counts as met.
        let own = self.is_f32(c);
        if own {
            let bits = (self.to_f64(c) as f32).to_bits();
            self.stand.insert(bits & !EXPONENT & i32::MAX as u32);
        }
        let p = if own { self.as_product(c) } else { None };
        let k = self.near(p.unwrap_or(c));
        self.literals.insert(c, k);
        let bits = (self.to_f64(k) as f32).to_bits();
        let whole = self.is_f32(k) && bits & !EXPONENT & i32::MAX as u32 == 0;
        if !whole && k != Coef::ZERO && self.factors.len() < MAX_FACTORS {
            self.factors.push(k);
        }
        k
    }

    fn as_product(&mut self, c: Coef) -> Option<Coef> {
        let significand = |x: f64| (x as f32).to_bits() & !EXPONENT & i32::MAX as u32;
        let x = self.to_f64(c).abs();
        if !(1e-30..1e30).contains(&x) || significand(x) == 0 {
            return None;
        }
        for i in 0..self.factors.len() {
            for j in 0..=i {
                let (a, b) = (self.factors[i], self.factors[j]);
                if significand(self.to_f64(a) * self.to_f64(b)) != significand(x) {
                    continue;
                }
                let p = self.mul(a, b)?;
                let y = self.to_f64(p).abs();
                if !(1e-30..1e30).contains(&y) {
                    continue;
                }
                let e = |v: f64| i64::from((v as f32).to_bits() & EXPONENT) >> 23;
                let p = if self.sign(p) == self.sign(c) { p } else { self.neg(p) };
                let p = self.doubled(p, e(x) - e(y))?;
                // The exact product, once more: `c` is its nearest `f32`.
                if (self.to_f64(p) as f32).to_bits() == (self.to_f64(c) as f32).to_bits() {
                    return Some(p);
                }
            }
        }
        None
    }

    /// `c` times two to the power of `steps`.
    fn doubled(&mut self, c: Coef, steps: i64) -> Option<Coef> {
        if steps == 0 {
            return Some(c);
        }
        let mut k = BigInt::from(1);
        k <<= u32::try_from(steps.unsigned_abs()).ok()?;
        let k = self.intern(BigRational::from_integer(k))?;
        let k = if steps < 0 { self.inv(k)? } else { k };
        self.mul(c, k)
    }

    /// The integer value, if it is one and fits.
    pub fn to_int(&self, c: Coef) -> Option<i64> {
        let v = self.get(c);
        if v.is_integer() { v.numer().to_i64() } else { None }
    }

    /// Nearest float.
    pub fn to_f64(&self, c: Coef) -> f64 {
        self.get(c).to_f64().unwrap_or(f64::NAN)
    }

    /// Sign: -1, 0 or 1.
    pub fn sign(&self, c: Coef) -> i32 {
        let v = self.get(c);
        if v.is_zero() {
            0
        } else if v.is_positive() {
            1
        } else {
            -1
        }
    }

    /// `a * b`; `None` if the result is too long.
    pub fn mul(&mut self, a: Coef, b: Coef) -> Option<Coef> {
        match (a, b) {
            (Coef::ZERO, _) | (_, Coef::ZERO) => return Some(Coef::ZERO),
            (Coef::ONE, x) | (x, Coef::ONE) => return Some(x),
            _ => {}
        }
        let k = (a.min(b), a.max(b));
        if let Some(&r) = self.products.get(&k) {
            return r;
        }
        let v = self.get(a) * self.get(b);
        let r = self.intern(v);
        self.products.insert(k, r);
        r
    }

    /// `a + b`; `None` if the result is too long.
    pub fn add(&mut self, a: Coef, b: Coef) -> Option<Coef> {
        match (a, b) {
            (Coef::ZERO, x) | (x, Coef::ZERO) => return Some(x),
            _ => {}
        }
        let k = (a.min(b), a.max(b));
        if let Some(&r) = self.sums.get(&k) {
            return r;
        }
        let v = self.get(a) + self.get(b);
        let r = self.intern(v);
        self.sums.insert(k, r);
        r
    }

    /// `-a`
    pub fn neg(&mut self, a: Coef) -> Coef {
        self.mul(a, Coef::NEG).unwrap_or(Coef::ZERO)
    }

    /// `1 / a`, `None` for zero.
    pub fn inv(&mut self, a: Coef) -> Option<Coef> {
        if a == Coef::ZERO {
            return None;
        }
        if a == Coef::ONE || a == Coef::NEG {
            return Some(a);
        }
        let v = self.get(a).recip();
        self.intern(v)
    }

    /// `a ^ n`; `None` for zero to a negative power or a too long result.
    pub fn pow(&mut self, a: Coef, n: i32) -> Option<Coef> {
        if n == 1 || a == Coef::ONE {
            return Some(a);
        }
        if a == Coef::ZERO && n <= 0 {
            return None;
        }
        let bits = self.get(a).numer().bits().max(self.get(a).denom().bits());
        if bits.saturating_mul(u64::from(n.unsigned_abs())) > MAX_BITS {
            return None;
        }
        let v = num_traits::pow::Pow::pow(self.get(a), n);
        self.intern(v)
    }

    /// `(k, s)` with `sqrt(a) = k * sqrt(s)` and `s` a square-free integer, for
    /// a positive fraction of small numbers.
    pub fn square_root(&mut self, a: Coef) -> Option<(Coef, Coef)> {
        let v = self.get(a);
        let (p, q) = (v.numer().to_i64()?, v.denom().to_i64()?);
        if p <= 0 || p > 1 << 30 || q > 1 << 30 {
            return None;
        }
        // sqrt(p/q) = sqrt(p*q) / q
        let mut rest = p.checked_mul(q)?;
        let (mut whole, mut free) = (1i64, 1i64);
        let mut d = 2i64;
        while d * d <= rest && d < 1 << 16 {
            while rest % (d * d) == 0 {
                rest /= d * d;
                whole = whole.checked_mul(d)?;
            }
            if rest % d == 0 {
                rest /= d;
                free = free.checked_mul(d)?;
            }
            d += 1;
        }
        // What is left has no divisor below 2^16: a prime, or two equal ones.
        let root = (rest as f64).sqrt() as i64;
        if rest > 1 && root * root == rest {
            whole = whole.checked_mul(root)?;
        } else {
            free = free.checked_mul(rest)?;
        }
        let k = self.intern(BigRational::new(BigInt::from(whole), BigInt::from(q)))?;
        Some((k, self.int(free)))
    }

    /// `|a|`
    pub fn abs(&mut self, a: Coef) -> Coef {
        if self.sign(a) < 0 { self.neg(a) } else { a }
    }

    /// Greatest common divisor of integer coefficients (positive); 1 if any
    /// is no integer.
    pub fn gcd(&mut self, all: impl Iterator<Item = Coef>) -> Coef {
        let mut g = BigInt::zero();
        for c in all {
            let v = self.get(c);
            if !v.is_integer() {
                return Coef::ONE;
            }
            let (mut a, mut b) = (g, v.numer().abs());
            while !b.is_zero() {
                let r = &a % &b;
                a = b;
                b = r;
            }
            g = a;
            if g.is_one() {
                return Coef::ONE;
            }
        }
        if g.is_zero() { Coef::ONE } else { self.intern(g.into()).unwrap_or(Coef::ONE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_exact_and_bounded() {
        let mut c = Coefs::default();
        let tenth = c.float(f64::from(0.1f32)).unwrap();
        let inv = c.inv(tenth).unwrap();
        assert_eq!(c.mul(tenth, inv), Some(Coef::ONE));
        let n = c.neg(tenth);
        assert_eq!(c.add(tenth, n), Some(Coef::ZERO));
        assert_eq!(c.float(f64::NAN), None);
        assert_eq!(c.inv(Coef::ZERO), None);
        let mut big = c.int(i64::MAX);
        let mut steps = 0;
        while let Some(b) = c.mul(big, big) {
            big = b;
            steps += 1;
        }
        assert!(steps < 8, "the size limit stops growth");
        for (p, q) in [(1, 8), (9, 4), (3, 7), (50, 1), (1, 72), (65_537, 1)] {
            let a = c.intern(BigRational::new(BigInt::from(p), BigInt::from(q))).unwrap();
            let (k, s) = c.square_root(a).unwrap();
            let (kk, two) = (c.mul(k, k).unwrap(), c.mul(k, k).unwrap());
            assert_eq!(kk, two);
            assert_eq!(c.mul(kk, s), Some(a), "k^2 * s = {p}/{q}");
        }
        let (six, four) = (c.int(6), c.int(-4));
        assert_eq!(c.gcd([six, four].into_iter()), c.int(2));
    }

    #[test]
    fn a_float_stands_for_what_it_is_rounded_from() {
        let mut c = Coefs::default();
        let (a, b) = (
            c.float(f64::from(0.797_884_6f32)).unwrap(),
            c.float(f64::from(0.044_715f32)).unwrap(),
        );
        let exact = c.mul(a, b).unwrap();
        let folded = 0.797_884_6f32 * 0.044_715f32;
        let near = c.float(f64::from(folded)).unwrap();
        let next = c.float(f64::from(f32::from_bits(folded.to_bits() + 1))).unwrap();
        assert_eq!(c.near(exact), exact);
        assert_eq!(c.literal(near), exact, "the product folded in f32");
        assert_eq!(c.near(near), exact);
        // Powers of two are exact factors.
        let eighth = c.float(f64::from(folded) / 8.0).unwrap();
        let k = c.int(8);
        let k = c.inv(k).unwrap();
        let want = c.mul(exact, k).unwrap();
        assert_eq!(c.near(eighth), want);
        let close = c.float(f64::from(f32::from_bits(folded.to_bits() + 1)) / 8.0).unwrap();
        assert_eq!(c.near(close), close);
        assert_eq!(c.near(next), next, "its neighbour is another number");
        // Sums of literals are no roundings: `1 + 1/64`, and one with the next
        // float of `1/64`.
        let mut t = Coefs::default();
        let small = 1.0f32 / 64.0;
        let next = f32::from_bits(small.to_bits() + 1);
        let [small, next] = [small, next].map(|x| t.float(f64::from(x)).unwrap());
        let sums = [small, next].map(|x| t.add(Coef::ONE, x).unwrap());
        assert_eq!([small, next].map(|x| t.literal(x)), [small, next]);
        assert_eq!(sums.map(|x| t.near(x)), sums);
        // Nor is what lies beside a power of two.
        let beside = {
            let tiny = t.float(1e-9).unwrap();
            t.add(Coef::ONE, tiny).unwrap()
        };
        assert_eq!(t.literal(Coef::ONE), Coef::ONE);
        assert_eq!(t.near(beside), beside);
        // A literal that nothing had as a coefficient is the product of two.
        let mut l = Coefs::default();
        let [a, b] = [0.797_884_6f32, 0.044_715].map(|x| l.float(f64::from(x)).unwrap());
        assert_eq!((l.literal(a), l.literal(b)), (a, b));
        let exact_l = l.mul(a, b).unwrap();
        let half = l.float(f64::from(folded) / 2.0).unwrap();
        let next_l = l.float(f64::from(f32::from_bits(folded.to_bits() + 1))).unwrap();
        let two = l.int(2);
        let (twice, minus) = (l.literal(half), l.float(-f64::from(folded)).unwrap());
        assert_eq!(l.mul(twice, two), Some(exact_l));
        assert_eq!(l.near(exact_l), exact_l, "the folded number was not met");
        assert_eq!(l.literal(next_l), next_l, "the neighbour of the product");
        let (m, want) = (l.literal(minus), l.neg(exact_l));
        assert_eq!(m, want);
        // Two numbers that are no f32 stay apart, and so do two that are.
        let two = c.int(1 << 40);
        let tiny = c.inv(two).unwrap();
        let other = c.add(exact, tiny).unwrap();
        assert_eq!(c.near(other), other);
        assert_eq!(c.near(a), a);
        assert_eq!(c.near(b), b);
    }
}
