//! Constants and iota.

use super::{Lifter, Lv, dt_of};
use crate::tv::{Tv, TvOps};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_ir::{ArrayShape, Attrs, DType, InstrId, Literal, LiteralData};
use scalify_terms::arith::{FIRST_SPECIAL, NAN, NEG_INF, NEG_ZERO};
use scalify_terms::{Coef, Dt, Lins, Val};
use smallvec::SmallVec;
use std::sync::Arc;

/// Largest constant array whose elements become numbers.
const MAX_NUMBERS: i64 = 1 << 12;
/// Parameter ids from here on are constants and unknown values.
const FIRST_CONST: u32 = 1 << 20;

/// Constants of both programs, so that equal bytes are one leaf.
#[derive(Clone, Default)]
pub(crate) struct ConstTable {
    ids: HashMap<(DType, Vec<i64>, Arc<[u8]>), u32, FxBuildHasher>,
    specials: HashMap<(DType, Vec<u8>), u32, FxBuildHasher>,
    symbols: HashMap<(u32, String), u32, FxBuildHasher>,
    /// How many loops with a symbolic state are around what is lifted.
    pub(crate) nesting: u32,
    next: u32,
}

impl ConstTable {
    /// A leaf for what the text describes, at this nesting of loops.
    pub(crate) fn symbol(&mut self, text: String) -> u32 {
        let key = (self.nesting, text);
        if let Some(&i) = self.symbols.get(&key) {
            return i;
        }
        let i = self.unknown();
        self.symbols.insert(key, i);
        i
    }

    /// This table, with new leaves that `later` has not given out.
    pub(crate) fn after(self, later: &ConstTable) -> ConstTable {
        ConstTable { next: self.next.max(later.next), ..self }
    }

    /// A leaf that equals no other.
    pub(crate) fn unknown(&mut self) -> u32 {
        self.next += 1;
        FIRST_CONST + self.next
    }

    /// Leaves with known values: parameter id, element type, bytes.
    pub(crate) fn leaves(&self) -> Vec<(u32, DType, Arc<[u8]>)> {
        let mut v: Vec<_> = self.ids.iter().map(|(k, &id)| (id, k.0, k.2.clone())).collect();
        v.sort_by_key(|x| x.0);
        v
    }

    fn of(&mut self, a: &ArrayShape, b: &Arc<[u8]>) -> u32 {
        let key = (a.dtype, a.dims.to_vec(), b.clone());
        if let Some(&i) = self.ids.get(&key) {
            return i;
        }
        let i = self.unknown();
        self.ids.insert(key, i);
        i
    }

    fn special(&mut self, d: DType, bytes: &[u8]) -> u32 {
        let n = self.specials.len() as u32;
        *self.specials.entry((d, bytes.to_vec())).or_insert(FIRST_SPECIAL + n)
    }
}

/// One element as an integer or a float.
enum Element {
    Int(i128),
    Float(f64),
    Other,
}

fn element(d: DType, b: &[u8]) -> Element {
    let le = |n: usize| -> u64 {
        b.iter().take(n).enumerate().fold(0u64, |a, (i, &x)| a | u64::from(x) << (8 * i))
    };
    match d {
        DType::Pred => Element::Int(i128::from(b[0] != 0)),
        DType::S1 | DType::S2 | DType::S4 | DType::S8 => Element::Int(i128::from(b[0] as i8)),
        DType::U1 | DType::U2 | DType::U4 | DType::U8 => Element::Int(i128::from(b[0])),
        DType::S16 => Element::Int(i128::from(le(2) as u16 as i16)),
        DType::U16 => Element::Int(i128::from(le(2))),
        DType::S32 => Element::Int(i128::from(le(4) as u32 as i32)),
        DType::U32 => Element::Int(i128::from(le(4))),
        DType::S64 => Element::Int(i128::from(le(8) as i64)),
        DType::U64 => Element::Int(i128::from(le(8))),
        DType::F32 => Element::Float(f64::from(f32::from_bits(le(4) as u32))),
        DType::F64 => Element::Float(f64::from_bits(le(8))),
        DType::Bf16 => Element::Float(f64::from(f32::from_bits((le(2) as u32) << 16))),
        DType::F16 => Element::Float(half_to_f64(le(2) as u16)),
        _ => Element::Other,
    }
}

/// IEEE binary16 to double, exact.
fn half_to_f64(h: u16) -> f64 {
    let sign = if h >> 15 == 1 { -1.0 } else { 1.0 };
    let (e, m) = (i32::from(h >> 10 & 31), f64::from(h & 1023));
    match e {
        0 => sign * m * 2f64.powi(-24),
        31 if m == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (1024.0 + m) * 2f64.powi(e - 25),
    }
}

/// Largest numerator and denominator under a root that a literal stands for.
const MAX_ROOT: i64 = 256;
/// Largest denominator of a simple fraction: few floats are near one by chance.
const MAX_DENOMINATOR: i64 = 1024;
/// The same for a numerator up to [`SMALL_NUMERATOR`], e.g. one over a count.
const MAX_COUNT: i64 = 1 << 17;
/// See [`MAX_COUNT`].
const SMALL_NUMERATOR: i64 = 8;

/// The fraction of small denominator whose nearest float
/// is `x`, if there is one and `x` is not exactly a fraction of a power of 2.
fn simple_fraction(x: f32) -> Option<(i64, i64)> {
    if !(1e-6..1e3).contains(&x.abs()) {
        return None;
    }
    // Continued fraction of the exact value.
    let (mut h, mut k) = ((1i64, 0i64), (0i64, 1i64));
    let mut r = f64::from(x.abs());
    for _ in 0..16 {
        let a = r.floor();
        (h, k) = (((a as i64) * h.0 + h.1, h.0), ((a as i64) * k.0 + k.1, k.0));
        if k.0 > if h.0 <= SMALL_NUMERATOR { MAX_COUNT } else { MAX_DENOMINATOR } {
            return None;
        }
        if (h.0 as f64 / k.0 as f64) as f32 == x.abs() {
            let p = if x < 0.0 { -h.0 } else { h.0 };
            return (k.0.count_ones() > 1).then_some((p, k.0));
        }
        if r == a {
            return None;
        }
        r = 1.0 / (r - a);
    }
    None
}

impl Lifter<'_> {
    pub(super) fn lift_constant(&mut self, i: InstrId) -> Result<Lv, String> {
        let m = self.m;
        let Some(l) = m.literal(i) else { return Err("constant without value".to_owned()) };
        self.literal(l)
    }

    fn literal(&mut self, l: &Literal) -> Result<Lv, String> {
        match &l.data {
            LiteralData::Elided => {
                Err("the value of the constant is elided in the file".to_owned())
            }
            LiteralData::Tuple(t) => {
                let v: Result<Vec<Lv>, String> = t.iter().map(|x| self.literal(x)).collect();
                Ok(Lv::Tuple(v?.into_iter().collect()))
            }
            LiteralData::Dense(b) => {
                let a = l.shape.as_array().ok_or("constant of no array")?;
                Ok(Lv::T(self.dense(a, b)?))
            }
        }
    }

    /// The scalar element of a type.
    fn number(&mut self, d: DType, b: &[u8]) -> Val {
        let dt = dt_of(d);
        match element(d, b) {
            Element::Int(x) if dt == Dt::BOOL => self.st.bool(x != 0),
            Element::Int(x) => match i64::try_from(x) {
                Ok(x) if x.unsigned_abs() < 1 << 56 => self.st.int(x),
                _ => {
                    let id = self.consts.special(d, b);
                    self.st.special(dt, id)
                }
            },
            Element::Float(x) if x == 0.0 && x.is_sign_negative() && !self.st.rules.reals => {
                self.st.special(dt, NEG_ZERO)
            }
            Element::Float(0.0) => self.st.zero(dt),
            Element::Float(f64::INFINITY) => {
                let v = self.st.special(dt, NEG_INF);
                Val { coef: Coef::NEG, ..v }
            }
            Element::Float(f64::NEG_INFINITY) => self.st.special(dt, NEG_INF),
            Element::Float(x) if x.is_nan() => self.st.special(dt, NAN),
            Element::Float(x) if self.st.rules.finite && d == DType::F32 => {
                match self.root(dt, x).or_else(|| {
                    let c = self.rational(d, x)?;
                    Some(self.st.constant(dt, c))
                }) {
                    Some(v) => v,
                    None => {
                        let id = self.consts.special(d, b);
                        self.st.special(dt, id)
                    }
                }
            }
            Element::Float(x) => match self.rational(d, x) {
                Some(c) => self.st.constant(dt, c),
                None => {
                    let id = self.consts.special(d, b);
                    self.st.special(dt, id)
                }
            },
            Element::Other if b.iter().all(|&x| x == 0) => self.st.zero(dt),
            Element::Other => {
                let id = self.consts.special(d, b);
                self.st.special(dt, id)
            }
        }
    }

    /// A literal within one rounding of the root of a simple fraction (softmax
    /// scales like `1/sqrt(24)`) as that root; logged.
    fn root(&mut self, dt: Dt, x: f64) -> Option<Val> {
        if simple_fraction(x as f32).is_some()
            || (x * 16_777_216.0).fract() == 0.0 && x.abs() < 4096.0
        {
            // A fraction itself, also of a power of two.
            let short = (x as f32).to_bits().trailing_zeros() >= 12;
            if short || simple_fraction(x as f32).is_some() {
                return None;
            }
        }
        let y = x * x;
        let (mut p0, mut q0, mut p1, mut q1) = (0i64, 1i64, 1i64, 0i64);
        let mut r = y;
        for _ in 0..12 {
            let a = r.floor();
            if !(0.0..1e6).contains(&a) {
                return None;
            }
            let a = a as i64;
            let (p, q) = (a * p1 + p0, a * q1 + q0);
            if p > MAX_ROOT || q > MAX_ROOT {
                return None;
            }
            (p0, q0, p1, q1) = (p1, q1, p, q);
            // The nearest float of the root, or what `1 / sqrt` gives in `f32`;
            // its neighbours are other numbers.
            let near = |p: i64, q: i64| {
                let root = (p as f64 / q as f64).sqrt() as f32;
                let inverse = 1.0 / (q as f32 / p as f32).sqrt();
                [root, inverse].contains(&(x.abs() as f32))
            };
            if p > 0 && near(p, q) {
                let (p, q) = (self.st.coefs.int(p), self.st.coefs.int(q));
                let q = self.st.coefs.inv(q)?;
                let c = self.st.coefs.mul(p, q)?;
                let v = self.st.constant(dt, c);
                let v = self.st.sqrt(dt, &v)?;
                if self.st.as_const(&v).is_some() {
                    // A fraction: its nearest float is told apart already.
                    return None;
                }
                self.st.assume("a constant stands for the root it is rounded from");
                return if x < 0.0 { self.st.scale(&v, Coef::NEG) } else { Some(v) };
            }
            let f = r - r.floor();
            if f < 1e-9 {
                return None;
            }
            r = 1.0 / f;
        }
        None
    }

    /// The number that a finite float stands for: a simple fraction if the
    /// float is its nearest (constants folded by the front end, e.g. `1/96`,
    /// meet divisions that are exact here), else its exact value. No two
    /// floats stand for the same number.
    fn rational(&mut self, d: DType, x: f64) -> Option<Coef> {
        if self.st.rules.finite && d == DType::F32 {
            if let Some((p, q)) = simple_fraction(x as f32) {
                self.st.assume("a constant stands for the fraction it is rounded from");
                let (p, q) = (self.st.coefs.int(p), self.st.coefs.int(q));
                let q = self.st.coefs.inv(q)?;
                return self.st.coefs.mul(p, q);
            }
        }
        self.st.coefs.float(x)
    }

    fn dense(&mut self, a: &ArrayShape, b: &Arc<[u8]>) -> Result<Tv, String> {
        let w = a.dtype.literal_bytes();
        let n = a.elements().ok_or("constant too large")?;
        if b.len() as i64 != n * w as i64 {
            return Err("constant with the wrong number of bytes".to_owned());
        }
        let dims = self.st.fresh_dims(&a.dims);
        if n == 0 {
            return Ok(Tv { val: self.st.zero(dt_of(a.dtype)), dims });
        }
        let first = &b[..w];
        if b.chunks_exact(w).all(|x| x == first) {
            return Ok(Tv { val: self.number(a.dtype, first), dims });
        }
        let dt = dt_of(a.dtype);
        let atoms: SmallVec<[_; 8]> = dims.iter().flatten().copied().collect();
        let sizes: SmallVec<[i64; 8]> = atoms.iter().map(|&x| self.st.lins.size(x)).collect();
        // Integers that are linear in the index, or a small table of it.
        if dt == Dt::INT && n <= scalify_terms::lin::MAX_TABLE {
            let tab: Option<Vec<i64>> = b
                .chunks_exact(w)
                .map(|x| match element(a.dtype, x) {
                    Element::Int(x) => i64::try_from(x).ok(),
                    _ => None,
                })
                .collect();
            if let Some(tab) = tab {
                if tab.iter().all(|x| x.unsigned_abs() < 1 << 40) {
                    let l = self.st.lins.from_table(&atoms, &sizes, &tab);
                    let mut table = false;
                    self.st.lins.for_terms(l, |_, t| table |= !atoms.contains(&t));
                    if !table {
                        return Ok(Tv { val: self.st.iota(l), dims });
                    }
                }
            }
        }
        let m: SmallVec<[_; 8]> = atoms.iter().map(|&x| Lins::plain(x)).collect();
        if n <= MAX_NUMBERS {
            let mut vals = Vec::with_capacity(n as usize);
            let mut all = true;
            for x in b.chunks_exact(w) {
                let v = self.number(a.dtype, x);
                match self.st.as_const(&v) {
                    Some(c) => vals.push(c),
                    None => {
                        all = false;
                        break;
                    }
                }
            }
            if all {
                return Ok(Tv { val: self.st.array(dt, &sizes, vals, &m), dims });
            }
        }
        let id = self.consts.of(a, b);
        Ok(Tv { val: self.st.param(id, dt, &sizes, &m), dims })
    }

    pub(super) fn lift_iota(&mut self, i: InstrId) -> Result<Tv, String> {
        let (dims, d) = self.array(i)?;
        let Attrs::Iota(k) = self.m.instr(i).attrs else {
            return Err("iota without dimension".into());
        };
        let t = self.st.fresh_dims(dims);
        let n = *dims.get(k as usize).ok_or("iota dimension out of range")?;
        let idx = self.st.dim_index(&t[k as usize]);
        let v = self.st.iota(idx);
        let val = if d.is_int() {
            let fits = d.int_range().is_some_and(|r| i128::from(n - 1) <= r.1);
            if !fits {
                return Err("iota overflows its type".to_owned());
            }
            v
        } else {
            self.convert(DType::S64, d, &v)?
        };
        Ok(Tv { val, dims: t })
    }
}

#[cfg(test)]
mod tests {
    use super::simple_fraction;

    #[test]
    fn fractions_whose_nearest_float_it_is() {
        for (p, q) in [(1i64, 96i64), (-2, 3), (1, 10), (1, 100_000), (5, 7), (999, 1001)] {
            let x = (p as f64 / q as f64) as f32;
            assert_eq!(simple_fraction(x), Some((p, q)));
            // The neighbours are other numbers.
            for y in [f32::from_bits(x.to_bits() + 1), f32::from_bits(x.to_bits() - 1)] {
                assert_ne!(simple_fraction(y), Some((p, q)));
            }
        }
        for x in [0.5f32, 1.0, 96.0, 0.375, 0.797_884_6, 1e30, f32::NAN, f32::INFINITY] {
            assert_eq!(simple_fraction(x), None);
        }
    }
}
