//! Elementwise operations. Integers wrap; floats below `f32` are computed in
//! `f32` and rounded once; storage wider than the element type (accumulation
//! mode `F64`) is not rounded.

use super::int::Int;
use super::par::{map1, map1_same, map2, map2_same};
use super::real::Flt;
use crate::complex::{C64, C128};
use crate::error::{Res, invalid, unsupported};
use crate::narrow;
use crate::tensor::{Data, F8, Tensor, each};
use half::{bf16, f16};
use scalify_ir::{CompareKind, Comparison, DType, Opcode};
use scalify_ir::dtype::DTypeClass;
use std::sync::Arc;

/// Nearest `bf16`, ties to even.
pub(crate) fn to_bf16(x: f32) -> bf16 {
    let b = x.to_bits();
    let r = (b.wrapping_add(0x7fff + (b >> 16 & 1))) >> 16;
    bf16::from_bits(if x.is_nan() { b >> 16 | 0x40 } else { r } as u16)
}

fn widen(x: bf16) -> f32 {
    f32::from_bits((x.to_bits() as u32) << 16)
}

/// Applies a function of [`Flt`] to float storage.
macro_rules! float1 {
    ($t:expr, $f:expr) => {
        match $t.data {
            Data::F32(v) => Data::F32(map1_same(v, |x: f32| $f(x))),
            Data::F64(v) => Data::F64(map1_same(v, |x: f64| $f(x))),
            Data::F16(v) => Data::F16(map1_same(v, |x: f16| f16::from_f32($f(x.to_f32())))),
            Data::Bf16(v) => Data::Bf16(map1_same(v, |x: bf16| to_bf16($f(widen(x))))),
            Data::F8(v) => {
                let tab = narrow::table($t.dtype);
                let all: Vec<F8> =
                    tab.iter().map(|&x| F8(narrow::encode($t.dtype, $f(x) as f64))).collect();
                Data::F8(map1_same(v, |x| all[x.0 as usize]))
            }
            _ => return unsupported("element type"),
        }
    };
}

macro_rules! float2 {
    ($a:expr, $b:expr, $f:expr) => {
        match ($a.data, $b.data) {
            (Data::F32(v), Data::F32(w)) => Data::F32(map2_same(v, w, |x: f32, y: f32| $f(x, y))),
            (Data::F64(v), Data::F64(w)) => Data::F64(map2_same(v, w, |x: f64, y: f64| $f(x, y))),
            (Data::F16(v), Data::F16(w)) => {
                Data::F16(map2_same(v, w, |x, y| f16::from_f32($f(x.to_f32(), y.to_f32()))))
            }
            (Data::Bf16(v), Data::Bf16(w)) => {
                Data::Bf16(map2_same(v, w, |x, y| to_bf16($f(widen(x), widen(y)))))
            }
            (Data::F8(v), Data::F8(w)) => {
                let (d, tab) = ($a.dtype, narrow::table($a.dtype));
                Data::F8(map2_same(v, w, |x: F8, y: F8| {
                    F8(narrow::encode(d, $f(tab[x.0 as usize], tab[y.0 as usize]) as f64))
                }))
            }
            _ => return unsupported("element type"),
        }
    };
}

macro_rules! int1 {
    ($t:expr, $f:expr) => {
        match $t.data {
            Data::I8(v) => Data::I8(map1_same(v, |x: i8| $f(x))),
            Data::I16(v) => Data::I16(map1_same(v, |x: i16| $f(x))),
            Data::I32(v) => Data::I32(map1_same(v, |x: i32| $f(x))),
            Data::I64(v) => Data::I64(map1_same(v, |x: i64| $f(x))),
            Data::U8(v) => Data::U8(map1_same(v, |x: u8| $f(x))),
            Data::U16(v) => Data::U16(map1_same(v, |x: u16| $f(x))),
            Data::U32(v) => Data::U32(map1_same(v, |x: u32| $f(x))),
            Data::U64(v) => Data::U64(map1_same(v, |x: u64| $f(x))),
            _ => return unsupported("element type"),
        }
    };
}

macro_rules! int2 {
    ($a:expr, $b:expr, $f:expr) => {
        match ($a.data, $b.data) {
            (Data::I8(v), Data::I8(w)) => Data::I8(map2_same(v, w, |x: i8, y: i8| $f(x, y))),
            (Data::I16(v), Data::I16(w)) => Data::I16(map2_same(v, w, |x: i16, y: i16| $f(x, y))),
            (Data::I32(v), Data::I32(w)) => Data::I32(map2_same(v, w, |x: i32, y: i32| $f(x, y))),
            (Data::I64(v), Data::I64(w)) => Data::I64(map2_same(v, w, |x: i64, y: i64| $f(x, y))),
            (Data::U8(v), Data::U8(w)) => Data::U8(map2_same(v, w, |x: u8, y: u8| $f(x, y))),
            (Data::U16(v), Data::U16(w)) => Data::U16(map2_same(v, w, |x: u16, y: u16| $f(x, y))),
            (Data::U32(v), Data::U32(w)) => Data::U32(map2_same(v, w, |x: u32, y: u32| $f(x, y))),
            (Data::U64(v), Data::U64(w)) => Data::U64(map2_same(v, w, |x: u64, y: u64| $f(x, y))),
            _ => return unsupported("element type"),
        }
    };
}

fn complex1(t: Tensor, f: impl Fn(C128) -> C128 + Sync) -> Res<Data> {
    Ok(match t.data {
        Data::C64(v) => Data::C64(map1_same(v, |x: C64| f(x.wide()).narrow())),
        Data::C128(v) => Data::C128(map1_same(v, f)),
        _ => return unsupported("element type"),
    })
}

fn complex2(a: Tensor, b: Tensor, f: impl Fn(C128, C128) -> C128 + Sync) -> Res<Data> {
    Ok(match (a.data, b.data) {
        (Data::C64(v), Data::C64(w)) => {
            Data::C64(map2_same(v, w, |x: C64, y: C64| f(x.wide(), y.wide()).narrow()))
        }
        (Data::C128(v), Data::C128(w)) => Data::C128(map2_same(v, w, f)),
        _ => return unsupported("element types"),
    })
}

/// Wraps integers of less than eight bits.
fn wrap_bits(t: DType, d: Data) -> Data {
    let bits = t.bits();
    match d {
        Data::I8(v) if bits < 8 => Data::I8(map1_same(v, |x: i8| x.wrap(bits))),
        Data::U8(v) if bits < 8 => Data::U8(map1_same(v, |x: u8| x.wrap(bits))),
        d => d,
    }
}

/// Unary operations whose result has the operand's element type, and
/// `is-finite`, `real`, `imag`, `abs` of complex.
pub(crate) fn unary(op: Opcode, t: Tensor) -> Res<Tensor> {
    use Opcode::*;
    let (dtype, dims) = (t.dtype, t.dims.clone());
    let done = |dtype: DType, data: Data| Ok(Tensor { dtype, dims: dims.clone(), data, sizes: None });
    let part = dtype.complex_part();
    match op {
        Copy => return Ok(t),
        IsFinite => {
            let data = match &t.data {
                Data::F32(v) => Data::from_vec(map1(v, |x: f32| x.is_finite())),
                Data::F64(v) => Data::from_vec(map1(v, |x: f64| x.is_finite())),
                Data::F16(v) => Data::from_vec(map1(v, |x: f16| x.is_finite())),
                Data::Bf16(v) => Data::from_vec(map1(v, |x: bf16| x.is_finite())),
                Data::F8(v) => {
                    let tab = narrow::table(dtype);
                    Data::from_vec(map1(v, |x: F8| tab[x.0 as usize].is_finite()))
                }
                _ => return unsupported("element type"),
            };
            return done(DType::Pred, data);
        }
        Real | Imag => {
            let re = op == Real;
            let data = match &t.data {
                Data::C64(v) => Data::from_vec(map1(v, |x: C64| if re { x.re } else { x.im })),
                Data::C128(v) => Data::from_vec(map1(v, |x: C128| if re { x.re } else { x.im })),
                _ if !re => float1!(t, |x| Flt::rabs(Flt::rsign(x)) * Flt::of(0.0)),
                _ => t.data,
            };
            return done(part.unwrap_or(dtype), data);
        }
        Abs if dtype.is_complex() => {
            let data = match &t.data {
                Data::C64(v) => Data::from_vec(map1(v, |x: C64| x.wide().abs() as f32)),
                Data::C128(v) => Data::from_vec(map1(v, |x: C128| x.abs())),
                _ => return unsupported("element type"),
            };
            return done(part.unwrap_or(dtype), data);
        }
        _ => {}
    }
    let data = match dtype.class() {
        DTypeClass::Bool => match (op, t.data) {
            (Not, Data::Bool(v)) => Data::Bool(map1_same(v, |x: bool| !x)),
            (Negate | Abs | Sign, d) => d,
            (PopulationCount, d) => d,
            _ => return unsupported("element type"),
        },
        DTypeClass::Signed | DTypeClass::Unsigned => {
            let bits = dtype.bits();
            let d = match op {
                Abs => int1!(t, Int::abs),
                Negate => int1!(t, Int::neg),
                Sign => int1!(t, Int::sign),
                Not => int1!(t, std::ops::Not::not),
                Clz => int1!(t, |x| Int::clz(x, bits)),
                PopulationCount => int1!(t, |x| Int::popcnt(x, bits)),
                _ => return unsupported("element type"),
            };
            wrap_bits(dtype, d)
        }
        DTypeClass::Float => match op {
            Abs => float1!(t, Flt::rabs),
            Negate => float1!(t, Flt::rneg),
            Sign => float1!(t, Flt::rsign),
            Exponential => float1!(t, Flt::rexp),
            ExponentialMinusOne => float1!(t, Flt::rexpm1),
            Log => float1!(t, Flt::rlog),
            LogPlusOne => float1!(t, Flt::rlog1p),
            Logistic => float1!(t, Flt::rlogistic),
            Sqrt => float1!(t, Flt::rsqrt_exact),
            Rsqrt => float1!(t, Flt::rrsqrt),
            Cbrt => float1!(t, Flt::rcbrt),
            Floor => float1!(t, Flt::rfloor),
            Ceil => float1!(t, Flt::rceil),
            RoundNearestAfz => float1!(t, Flt::rround),
            RoundNearestEven => float1!(t, Flt::reven),
            Cosine => float1!(t, Flt::rcos),
            Sine => float1!(t, Flt::rsin),
            Tan => float1!(t, Flt::rtan),
            Cosh => float1!(t, Flt::rcosh),
            Sinh => float1!(t, Flt::rsinh),
            Tanh => float1!(t, Flt::rtanh),
            Acos => float1!(t, Flt::racos),
            Asin => float1!(t, Flt::rasin),
            Acosh => float1!(t, Flt::racosh),
            Asinh => float1!(t, Flt::rasinh),
            Atanh => float1!(t, Flt::ratanh),
            Erf => float1!(t, Flt::rerf),
            _ => return unsupported("element type"),
        },
        DTypeClass::Complex => complex1(
            t,
            match op {
                Negate => C128::neg,
                Sign => C128::sign,
                Exponential => C128::exp,
                ExponentialMinusOne => C128::exp_m1,
                Log => C128::log,
                LogPlusOne => C128::log1p,
                Logistic => C128::logistic,
                Sqrt => C128::sqrt,
                Rsqrt => C128::rsqrt,
                Cbrt => C128::cbrt,
                Cosine => C128::cos,
                Sine => C128::sin,
                Tan => C128::tan,
                Cosh => C128::cosh,
                Sinh => C128::sinh,
                Tanh => C128::tanh,
                Acos => C128::acos,
                Asin => C128::asin,
                Acosh => C128::acosh,
                Asinh => C128::asinh,
                Atanh => C128::atanh,
                _ => return unsupported("element type"),
            },
        )?,
    };
    done(dtype, data)
}

fn same_dims(a: &Tensor, b: &Tensor) -> Res<()> {
    if a.dims != b.dims || a.len() != b.len() {
        return invalid(format!("operand dimensions {:?} and {:?} differ", a.dims, b.dims));
    }
    Ok(())
}

/// Binary operations of equal element types, and `complex`.
pub(crate) fn binary(op: Opcode, a: Tensor, b: Tensor) -> Res<Tensor> {
    use Opcode::*;
    same_dims(&a, &b)?;
    if a.dtype != b.dtype {
        return invalid(format!("operand element types {} and {} differ", a.dtype, b.dtype));
    }
    let (dtype, dims) = (a.dtype, a.dims.clone());
    if op == Complex {
        let (out, data) = match (&a.data, &b.data) {
            (Data::F32(x), Data::F32(y)) => {
                (DType::C64, Data::from_vec(map2(x, y, |re, im| C64 { re, im })))
            }
            (Data::F64(x), Data::F64(y)) => {
                let out = if dtype == DType::F64 { DType::C128 } else { DType::C64 };
                (out, Data::from_vec(map2(x, y, |re, im| C128 { re, im })))
            }
            _ => return unsupported("element type"),
        };
        return Ok(Tensor { dtype: out, dims, data, sizes: None });
    }
    let data = match dtype.class() {
        DTypeClass::Bool => {
            let f: fn(bool, bool) -> bool = match op {
                Add | Or | Maximum => |x, y| x | y,
                Multiply | And | Minimum => |x, y| x & y,
                Xor | Subtract => |x, y| x ^ y,
                Power => |x, y| x | !y,
                Divide => |x, y| x | !y,
                Remainder => |x, y| x & !y,
                ShiftLeft | ShiftRightLogical => |x, y| x & !y,
                ShiftRightArithmetic => |x, _| x,
                _ => return unsupported("element type"),
            };
            match (a.data, b.data) {
                (Data::Bool(v), Data::Bool(w)) => Data::Bool(map2_same(v, w, f)),
                _ => return unsupported("element type"),
            }
        }
        DTypeClass::Signed | DTypeClass::Unsigned => {
            let bits = dtype.bits();
            let d = match op {
                Add => int2!(a, b, Int::add),
                Subtract => int2!(a, b, Int::sub),
                Multiply => int2!(a, b, Int::mul),
                Divide => int2!(a, b, Int::div),
                Remainder => int2!(a, b, Int::rem),
                Power => int2!(a, b, Int::pow),
                Maximum => int2!(a, b, Ord::max),
                Minimum => int2!(a, b, Ord::min),
                And => int2!(a, b, std::ops::BitAnd::bitand),
                Or => int2!(a, b, std::ops::BitOr::bitor),
                Xor => int2!(a, b, std::ops::BitXor::bitxor),
                ShiftLeft => int2!(a, b, |x, y| Int::shl(x, Int::wrap_shift(y, bits), bits)),
                ShiftRightLogical => {
                    int2!(a, b, |x, y| Int::shr(x, Int::wrap_shift(y, bits), bits))
                }
                ShiftRightArithmetic => {
                    int2!(a, b, |x, y| Int::sar(x, Int::wrap_shift(y, bits), bits))
                }
                _ => return unsupported("element type"),
            };
            wrap_bits(dtype, d)
        }
        DTypeClass::Float => match op {
            Add => float2!(a, b, |x, y| x + y),
            Subtract => float2!(a, b, |x, y| x - y),
            Multiply => float2!(a, b, |x, y| x * y),
            Divide => float2!(a, b, |x, y| x / y),
            Remainder => float2!(a, b, Flt::rrem),
            Power => float2!(a, b, Flt::rpow),
            Maximum => float2!(a, b, Flt::rmax),
            Minimum => float2!(a, b, Flt::rmin),
            Atan2 => float2!(a, b, Flt::ratan2),
            _ => return unsupported("element type"),
        },
        DTypeClass::Complex => match op {
            Add => complex2(a, b, C128::add)?,
            Subtract => complex2(a, b, C128::sub)?,
            Multiply => complex2(a, b, C128::mul)?,
            Divide => complex2(a, b, C128::div)?,
            Power => complex2(a, b, C128::pow)?,
            Atan2 => complex2(a, b, C128::atan2)?,
            Maximum => complex2(a, b, |x, y| if lex(x, y) { y } else { x })?,
            Minimum => complex2(a, b, |x, y| if lex(x, y) { x } else { y })?,
            _ => return unsupported("element type"),
        },
    };
    Ok(Tensor { dtype, dims, data, sizes: None })
}

fn lex(x: C128, y: C128) -> bool {
    x.re < y.re || x.re == y.re && x.im < y.im
}

fn by<T: PartialOrd>(d: Comparison) -> fn(T, T) -> bool {
    match d {
        Comparison::Eq => |x, y| x == y,
        Comparison::Ne => |x, y| x != y,
        Comparison::Ge => |x, y| x >= y,
        Comparison::Gt => |x, y| x > y,
        Comparison::Le => |x, y| x <= y,
        Comparison::Lt => |x, y| x < y,
    }
}

/// Monomorphic loop per direction.
macro_rules! cmp {
    ($d:expr, $v:expr, $w:expr, $k:expr) => {
        match $d {
            Comparison::Eq => map2($v, $w, |x, y| $k(x) == $k(y)),
            Comparison::Ne => map2($v, $w, |x, y| $k(x) != $k(y)),
            Comparison::Ge => map2($v, $w, |x, y| $k(x) >= $k(y)),
            Comparison::Gt => map2($v, $w, |x, y| $k(x) > $k(y)),
            Comparison::Le => map2($v, $w, |x, y| $k(x) <= $k(y)),
            Comparison::Lt => map2($v, $w, |x, y| $k(x) < $k(y)),
        }
    };
}

/// `compare`.
pub(crate) fn compare(
    d: Comparison,
    kind: Option<CompareKind>,
    a: &Tensor,
    b: &Tensor,
) -> Res<Tensor> {
    same_dims(a, b)?;
    let total = kind == Some(CompareKind::TotalOrder);
    let out = match (&a.data, &b.data) {
        (Data::F32(v), Data::F32(w)) if total => cmp!(d, v, w, |x: f32| x.key()),
        (Data::F64(v), Data::F64(w)) if total => cmp!(d, v, w, |x: f64| x.key()),
        (Data::F16(v), Data::F16(w)) if total => cmp!(d, v, w, |x: f16| x.to_f32().key()),
        (Data::Bf16(v), Data::Bf16(w)) if total => cmp!(d, v, w, |x: bf16| widen(x).key()),
        (Data::F8(v), Data::F8(w)) => {
            let (t, u) = (narrow::table(a.dtype), narrow::table(b.dtype));
            if total {
                map2(v, w, |x, y| by(d)(t[x.0 as usize].key(), u[y.0 as usize].key()))
            } else {
                map2(v, w, |x, y| by(d)(t[x.0 as usize], u[y.0 as usize]))
            }
        }
        (Data::F16(v), Data::F16(w)) => cmp!(d, v, w, |x: f16| x.to_f32()),
        (Data::Bf16(v), Data::Bf16(w)) => cmp!(d, v, w, widen),
        (Data::F32(v), Data::F32(w)) => cmp!(d, v, w, |x: f32| x),
        (Data::F64(v), Data::F64(w)) => cmp!(d, v, w, |x: f64| x),
        (Data::Bool(v), Data::Bool(w)) => cmp!(d, v, w, |x: bool| x),
        (Data::I8(v), Data::I8(w)) => cmp!(d, v, w, |x: i8| x),
        (Data::I16(v), Data::I16(w)) => cmp!(d, v, w, |x: i16| x),
        (Data::I32(v), Data::I32(w)) => cmp!(d, v, w, |x: i32| x),
        (Data::I64(v), Data::I64(w)) => cmp!(d, v, w, |x: i64| x),
        (Data::U8(v), Data::U8(w)) => cmp!(d, v, w, |x: u8| x),
        (Data::U16(v), Data::U16(w)) => cmp!(d, v, w, |x: u16| x),
        (Data::U32(v), Data::U32(w)) => cmp!(d, v, w, |x: u32| x),
        (Data::U64(v), Data::U64(w)) => cmp!(d, v, w, |x: u64| x),
        (Data::C64(v), Data::C64(w)) if matches!(d, Comparison::Eq | Comparison::Ne) => {
            map2(v, w, |x, y| (x == y) == (d == Comparison::Eq))
        }
        (Data::C128(v), Data::C128(w)) if matches!(d, Comparison::Eq | Comparison::Ne) => {
            map2(v, w, |x, y| (x == y) == (d == Comparison::Eq))
        }
        _ => return unsupported(format!("compare of {} and {}", a.dtype, b.dtype)),
    };
    Ok(Tensor::raw(DType::Pred, &a.dims, Data::from_vec(out)))
}

/// `select`: the predicate may be a scalar.
pub(crate) fn select(p: &Tensor, a: Tensor, b: Tensor) -> Res<Tensor> {
    same_dims(&a, &b)?;
    let Data::Bool(p_data) = &p.data else { return invalid("predicate is not pred") };
    if p.rank() == 0 && a.rank() != 0 {
        return Ok(if p_data.first() == Some(&true) { a } else { b });
    }
    if p.dims != a.dims {
        return invalid(format!("predicate {:?} against {:?}", p.dims, a.dims));
    }
    fn pick<T: crate::tensor::Store>(p: &[bool], a: &[T], b: &[T]) -> Data {
        Data::from_vec(super::par::fill(a.len(), |at, out| {
            let it = out.iter_mut().zip(&p[at..]).zip(&a[at..]).zip(&b[at..]);
            for (((o, &p), &x), &y) in it {
                *o = if p { x } else { y };
            }
        }))
    }
    let data = each!(&a.data, v => {
        let Some(w) = crate::tensor::Store::get(&b.data) else {
            return invalid("branches differ in element type");
        };
        pick(p_data, v, w)
    });
    Ok(Tensor { data, ..a })
}

/// `clamp`: `min(max(x, lo), hi)`; the bounds may be scalars.
pub(crate) fn clamp(lo: Tensor, x: Tensor, hi: Tensor) -> Res<Tensor> {
    let spread = |t: Tensor| {
        if t.rank() == 0 && x.rank() != 0 {
            let n = x.len();
            let data = each!(&t.data, v => Data::from_vec(vec![v.first().copied().unwrap_or_default(); n]));
            Tensor { data, dims: x.dims.clone(), ..t }
        } else {
            t
        }
    };
    let (lo, hi) = (spread(lo), spread(hi));
    binary(Opcode::Minimum, binary(Opcode::Maximum, x, lo)?, hi)
}

/// `reduce-precision` to `exponent` and `mantissa` bits.
pub(crate) fn reduce_precision(t: Tensor, exponent: u32, mantissa: u32) -> Res<Tensor> {
    if !(1..=11).contains(&exponent) || mantissa > 52 {
        return unsupported(format!("{exponent} exponent and {mantissa} mantissa bits"));
    }
    let dtype = t.dtype;
    if dtype.bits() < 64 && matches!(t.data, Data::F64(_)) {
        return Ok(t);
    }
    let bias = (1 << (exponent - 1)) - 1;
    let (emin, emax) = (1 - bias, bias);
    let round = move |x: f64| -> f64 {
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let e = libm::ilogb(x);
        if e < emin {
            // Rounds at the format's quantum of its smallest normal, then
            // flushes what stays below it.
            let m = libm::scalbn(x.abs(), mantissa as i32 - e).round_ties_even();
            let r = libm::scalbn(m, e - mantissa as i32);
            return if r >= libm::scalbn(1.0, emin) { r } else { 0.0f64 }.copysign(x);
        }
        let m = libm::scalbn(x.abs(), mantissa as i32 - e).round_ties_even();
        let r = libm::scalbn(m, e - mantissa as i32);
        let over = r >= libm::scalbn(2.0, emax.min(1023)) || r.is_infinite();
        if over { f64::INFINITY } else { r }.copysign(x)
    };
    fn through<T: Flt>(x: T, f: &impl Fn(f64) -> f64) -> T {
        T::of(f(x.f64()))
    }
    let data = float1!(t, |x| through(x, &round));
    Ok(Tensor { data, dtype, dims: t.dims, sizes: None })
}

/// `map1` over shared storage, for other kernels.
pub(crate) fn splat(t: &Tensor, n: usize) -> Data {
    each!(&t.data, v => Data::from_vec(vec![v.first().copied().unwrap_or_default(); n]))
}

/// Shares storage of a fresh vector.
pub(crate) fn shared<T>(v: Vec<T>) -> Arc<Vec<T>> {
    Arc::new(v)
}

/// `n` zeros of the same storage.
pub(crate) fn zeros(d: &Data, n: usize) -> Data {
    fn like<T: crate::tensor::Store>(_: &[T], n: usize) -> Data {
        Data::from_vec(vec![T::default(); n])
    }
    each!(d, v => like(v, n))
}
