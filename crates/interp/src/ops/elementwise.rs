//! Elementwise operations. Integers wrap; floats below `f32` are computed in
//! `f32` and rounded once; storage wider than the element type (accumulation
//! mode `F64`) is not rounded.

use super::approx::{cos32, erf32, exp32, expm1_32, log1p32, log32, logistic32, sin32, tanh32};
use super::int::Int;
use super::par::{map_slice, map1, map1_same, map2, map2_same};
use super::real::Flt;
use super::simd::vector;
use crate::complex::{C64, C128};
use crate::error::{Res, invalid, unsupported};
use crate::narrow;
use crate::tensor::{Data, F8, Store, Tensor, each};
use half::{bf16, f16};
use scalify_ir::dtype::DTypeClass;
use scalify_ir::{CompareKind, Comparison, DType, Opcode};
use std::sync::Arc;

/// Nearest `bf16`, ties to even.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> bf16 {
    let b = x.to_bits();
    let r = (b.wrapping_add(0x7fff + (b >> 16 & 1))) >> 16;
    bf16::from_bits(if x.is_nan() { b >> 16 | 0x40 } else { r } as u16)
}

#[inline(always)]
fn widen(x: bf16) -> f32 {
    f32::from_bits((x.to_bits() as u32) << 16)
}

/// A function of `f32` applied to storage below `f64`.
fn through_f32(d: DType, data: Data, f: impl Fn(f32) -> f32 + Sync + Copy) -> Res<Data> {
    Ok(match data {
        Data::F32(v) => Data::F32(map1_same(v, f)),
        Data::F16(v) => Data::F16(map1_same(v, |x: f16| f16::from_f32(f(x.to_f32())))),
        Data::Bf16(v) => Data::Bf16(map1_same(v, |x: bf16| to_bf16(f(widen(x))))),
        Data::F8(v) => {
            let code = |&x: &f32| F8(narrow::encode(d, f(x) as f64));
            let all: Vec<F8> = narrow::table(d).iter().map(code).collect();
            Data::F8(map1_same(v, |x| all[x.0 as usize]))
        }
        _ => return unsupported("element type"),
    })
}

/// A pair of functions applied to float storage.
fn float1(d: DType, data: Data, f: fn(f32) -> f32, g: fn(f64) -> f64) -> Res<Data> {
    match data {
        Data::F64(v) => Ok(Data::F64(map1_same(v, g))),
        data => through_f32(d, data, f),
    }
}

fn float_unary(op: Opcode, d: DType, data: Data) -> Res<Data> {
    use Opcode::*;
    // Loops that vectorise.
    macro_rules! cheap {
        ($data:expr, $($o:ident => $f:expr),*) => {
            match (op, $data) {
                $(($o, Data::F32(v)) => return Ok(Data::F32(map1_same(v, $f))),
                ($o, Data::Bf16(v)) => {
                    return Ok(Data::Bf16(map1_same(v, |x: bf16| to_bf16($f(widen(x))))));
                })*
                (_, data) => data,
            }
        };
    }
    macro_rules! long {
        ($data:expr, $($o:ident => $f:expr),*) => {
            match (op, $data) {
                $(($o, Data::F32(v)) => {
                    return Ok(Data::F32(map_slice(
                        v,
                        #[inline(always)]
                        |c: &mut [f32]| c.iter_mut().for_each(|x| *x = $f(*x)),
                    )));
                }
                ($o, Data::Bf16(v)) => {
                    return Ok(Data::Bf16(map_slice(
                        v,
                        #[inline(always)]
                        |c: &mut [bf16]| c.iter_mut().for_each(|x| *x = to_bf16($f(widen(*x)))),
                    )));
                }
                ($o, data @ (Data::F16(_) | Data::F8(_))) => {
                    return through_f32(d, data, $f as fn(f32) -> f32);
                })*
                (_, data) => data,
            }
        };
    }
    let data = cheap!(data, Abs => f32::abs, Negate => |x: f32| -x, Sqrt => f32::sqrt,
        Rsqrt => Flt::rrsqrt, Floor => f32::floor, Ceil => f32::ceil,
        RoundNearestEven => f32::round_ties_even, Sign => Flt::rsign);
    let data = long!(data, Exponential => exp32, ExponentialMinusOne => expm1_32, Log => log32,
        LogPlusOne => log1p32, Tanh => tanh32, Logistic => logistic32, Erf => erf32);
    match (op, data) {
        (Sine, Data::F32(v)) => Ok(Data::F32(map_slice(v, sin32))),
        (Cosine, Data::F32(v)) => Ok(Data::F32(map_slice(v, cos32))),
        (Negate, Data::F64(v)) => Ok(Data::F64(map1_same(v, |x: f64| -x))),
        (Abs, Data::F64(v)) => Ok(Data::F64(map1_same(v, f64::abs))),
        (Sqrt, Data::F64(v)) => Ok(Data::F64(map1_same(v, f64::sqrt))),
        (Rsqrt, Data::F64(v)) => Ok(Data::F64(map1_same(v, Flt::rrsqrt))),
        (_, data) => {
            macro_rules! table {
                ($($o:ident => $f:ident),*) => {
                    match op {
                        $(Opcode::$o => float1(d, data, Flt::$f, Flt::$f),)*
                        _ => unsupported("element type"),
                    }
                };
            }
            table!(Abs => rabs, Negate => rneg, Sign => rsign, Exponential => rexp,
                ExponentialMinusOne => rexpm1, Log => rlog, LogPlusOne => rlog1p,
                Logistic => rlogistic, Sqrt => rsqrt_exact, Rsqrt => rrsqrt, Cbrt => rcbrt,
                Floor => rfloor, Ceil => rceil, RoundNearestAfz => rround,
                RoundNearestEven => reven, Cosine => rcos, Sine => rsin, Tan => rtan,
                Cosh => rcosh, Sinh => rsinh, Tanh => rtanh, Acos => racos, Asin => rasin,
                Acosh => racosh, Asinh => rasinh, Atanh => ratanh, Erf => rerf)
        }
    }
}

fn float_binary(op: Opcode, d: DType, a: Data, b: Data) -> Res<Data> {
    use Opcode::*;
    macro_rules! table {
        ($t:ty) => {{
            let f: fn($t, $t) -> $t = match op {
                Add => |x, y| x + y,
                Subtract => |x, y| x - y,
                Multiply => |x, y| x * y,
                Divide => |x, y| x / y,
                Remainder => Flt::rrem,
                Power => Flt::rpow,
                Maximum => Flt::rmax,
                Minimum => Flt::rmin,
                Atan2 => Flt::ratan2,
                _ => return unsupported("element type"),
            };
            f
        }};
    }
    macro_rules! hot {
        ($v:expr, $w:expr, $t:ty) => {
            match op {
                Add => map2_same($v, $w, |x: $t, y: $t| x + y),
                Subtract => map2_same($v, $w, |x: $t, y: $t| x - y),
                Multiply => map2_same($v, $w, |x: $t, y: $t| x * y),
                Divide => map2_same($v, $w, |x: $t, y: $t| x / y),
                Maximum => map2_same($v, $w, |x: $t, y: $t| x.rmax(y)),
                Minimum => map2_same($v, $w, |x: $t, y: $t| x.rmin(y)),
                _ => map2_same($v, $w, table!($t)),
            }
        };
    }
    Ok(match (a, b) {
        (Data::F32(v), Data::F32(w)) => Data::F32(hot!(v, w, f32)),
        (Data::F64(v), Data::F64(w)) => Data::F64(hot!(v, w, f64)),
        (Data::Bf16(v), Data::Bf16(w)) => Data::Bf16(match op {
            Add => map2_same(v, w, |x, y| to_bf16(widen(x) + widen(y))),
            Subtract => map2_same(v, w, |x, y| to_bf16(widen(x) - widen(y))),
            Multiply => map2_same(v, w, |x, y| to_bf16(widen(x) * widen(y))),
            Divide => map2_same(v, w, |x, y| to_bf16(widen(x) / widen(y))),
            Maximum => map2_same(v, w, |x, y| to_bf16(widen(x).rmax(widen(y)))),
            Minimum => map2_same(v, w, |x, y| to_bf16(widen(x).rmin(widen(y)))),
            _ => {
                let f = table!(f32);
                map2_same(v, w, |x, y| to_bf16(f(widen(x), widen(y))))
            }
        }),
        (Data::F16(v), Data::F16(w)) => {
            let f = table!(f32);
            Data::F16(map2_same(v, w, |x, y| f16::from_f32(f(x.to_f32(), y.to_f32()))))
        }
        (Data::F8(v), Data::F8(w)) => {
            let (f, t) = (table!(f32), narrow::table(d));
            Data::F8(map2_same(v, w, |x: F8, y: F8| {
                F8(narrow::encode(d, f(t[x.0 as usize], t[y.0 as usize]) as f64))
            }))
        }
        _ => return unsupported("element types"),
    })
}

/// Runs `$e` with `$v`, `$w` as equally stored integer operands of type `$t`.
macro_rules! ints {
    ($a:expr, $b:expr, |$v:ident, $w:ident: $t:ident| $e:expr) => {
        match ($a, $b) {
            (Data::I8($v), Data::I8($w)) => {
                type $t = i8;
                Data::I8($e)
            }
            (Data::I16($v), Data::I16($w)) => {
                type $t = i16;
                Data::I16($e)
            }
            (Data::I32($v), Data::I32($w)) => {
                type $t = i32;
                Data::I32($e)
            }
            (Data::I64($v), Data::I64($w)) => {
                type $t = i64;
                Data::I64($e)
            }
            (Data::U8($v), Data::U8($w)) => {
                type $t = u8;
                Data::U8($e)
            }
            (Data::U16($v), Data::U16($w)) => {
                type $t = u16;
                Data::U16($e)
            }
            (Data::U32($v), Data::U32($w)) => {
                type $t = u32;
                Data::U32($e)
            }
            (Data::U64($v), Data::U64($w)) => {
                type $t = u64;
                Data::U64($e)
            }
            _ => return unsupported("element types"),
        }
    };
}

fn int_unary(op: Opcode, bits: u32, data: Data) -> Res<Data> {
    let none = data.clone();
    Ok(ints!(data, none, |v, _w: T| {
        let f: fn(T, u32) -> T = match op {
            Opcode::Abs => |x, _| Int::abs(x),
            Opcode::Negate => |x, _| Int::neg(x),
            Opcode::Sign => |x, _| Int::sign(x),
            Opcode::Not => |x, _| !x,
            Opcode::Clz => Int::clz,
            Opcode::PopulationCount => Int::popcnt,
            _ => return unsupported("element type"),
        };
        map1_same(v, |x| f(x, bits))
    }))
}

fn int_binary(op: Opcode, bits: u32, a: Data, b: Data) -> Res<Data> {
    use Opcode::*;
    macro_rules! hot {
        ($v:expr, $w:expr, $s:ident) => {
            match op {
                Add => return Ok(Data::$s(map2_same($v, $w, Int::add))),
                Subtract => return Ok(Data::$s(map2_same($v, $w, Int::sub))),
                Multiply => return Ok(Data::$s(map2_same($v, $w, Int::mul))),
                Maximum => return Ok(Data::$s(map2_same($v, $w, Ord::max))),
                Minimum => return Ok(Data::$s(map2_same($v, $w, Ord::min))),
                And => return Ok(Data::$s(map2_same($v, $w, |x, y| x & y))),
                Or => return Ok(Data::$s(map2_same($v, $w, |x, y| x | y))),
                Xor => return Ok(Data::$s(map2_same($v, $w, |x, y| x ^ y))),
                ShiftLeft => return Ok(Data::$s(map2_same($v, $w, |x, y| Int::shl(x, y, 32)))),
                ShiftRightLogical => {
                    return Ok(Data::$s(map2_same($v, $w, |x, y| Int::shr(x, y, 32))));
                }
                ShiftRightArithmetic => {
                    return Ok(Data::$s(map2_same($v, $w, |x, y| Int::sar(x, y, 32))));
                }
                _ => (Data::$s($v), Data::$s($w)),
            }
        };
    }
    let (a, b) = match (a, b) {
        (Data::I32(v), Data::I32(w)) => hot!(v, w, I32),
        (Data::U32(v), Data::U32(w)) => hot!(v, w, U32),
        ab => ab,
    };
    Ok(ints!(a, b, |v, w: T| {
        let f: fn(T, T, u32) -> T = match op {
            Add => |x, y, _| Int::add(x, y),
            Subtract => |x, y, _| Int::sub(x, y),
            Multiply => |x, y, _| Int::mul(x, y),
            Divide => |x, y, _| Int::div(x, y),
            Remainder => |x, y, _| Int::rem(x, y),
            Power => |x, y, _| Int::pow(x, y),
            Maximum => |x, y, _| Ord::max(x, y),
            Minimum => |x, y, _| Ord::min(x, y),
            And => |x, y, _| x & y,
            Or => |x, y, _| x | y,
            Xor => |x, y, _| x ^ y,
            ShiftLeft => |x, y, b| Int::shl(x, Int::wrap_shift(y, b), b),
            ShiftRightLogical => |x, y, b| Int::shr(x, Int::wrap_shift(y, b), b),
            ShiftRightArithmetic => |x, y, b| Int::sar(x, Int::wrap_shift(y, b), b),
            _ => return unsupported("element type"),
        };
        map2_same(v, w, |x, y| f(x, y, bits))
    }))
}

fn complex1(t: Tensor, f: fn(C128) -> C128) -> Res<Data> {
    Ok(match t.data {
        Data::C64(v) => Data::C64(map1_same(v, |x: C64| f(x.wide()).narrow())),
        Data::C128(v) => Data::C128(map1_same(v, f)),
        _ => return unsupported("element type"),
    })
}

fn complex2(a: Tensor, b: Tensor, f: fn(C128, C128) -> C128) -> Res<Data> {
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
    let done =
        |dtype: DType, data: Data| Ok(Tensor { dtype, dims: dims.clone(), data, sizes: None });
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
                _ if !re => zeros(&t.data, t.len()),
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
            let d = int_unary(op, dtype.bits(), t.data)?;
            wrap_bits(dtype, d)
        }
        DTypeClass::Float => float_unary(op, dtype, t.data)?,
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
                (Data::Bool(v), Data::Bool(w)) => Data::Bool(match op {
                    And => map2_same(v, w, |x, y| x & y),
                    Or => map2_same(v, w, |x, y| x | y),
                    _ => map2_same(v, w, f),
                }),
                _ => return unsupported("element type"),
            }
        }
        DTypeClass::Signed | DTypeClass::Unsigned => {
            let d = int_binary(op, dtype.bits(), a.data, b.data)?;
            wrap_bits(dtype, d)
        }
        DTypeClass::Float => float_binary(op, dtype, a.data, b.data)?,
        DTypeClass::Complex => match op {
            Multiply if matches!((&a.data, &b.data), (Data::C64(_), Data::C64(_))) => {
                match (a.data, b.data) {
                    (Data::C64(v), Data::C64(w)) => Data::C64(map2_same(v, w, C64::mul)),
                    _ => return unsupported("element types"),
                }
            }
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

/// `compare`.
pub(crate) fn compare(
    d: Comparison,
    kind: Option<CompareKind>,
    a: &Tensor,
    b: &Tensor,
) -> Res<Tensor> {
    use Comparison::*;
    same_dims(a, b)?;
    // x > y is y < x; x != y is not x == y.
    let (x, y, d) = match d {
        Gt => (b, a, Lt),
        Ge => (b, a, Le),
        d => (a, b, d),
    };
    macro_rules! cmp {
        ($v:expr, $w:expr) => {
            match d {
                Lt => map2($v, $w, |x, y| x < y),
                Le => map2($v, $w, |x, y| x <= y),
                Eq => map2($v, $w, |x, y| x == y),
                _ => map2($v, $w, |x, y| x != y),
            }
        };
    }
    let total = kind == Some(CompareKind::TotalOrder);
    let keys = |t: &Tensor| map1(&t.to_f64(), |x: f64| x.key());
    let floats = |t: &Tensor| -> Vec<f32> {
        match &t.data {
            Data::Bf16(v) => map1(v, widen),
            Data::F16(v) => map1(v, |x: f16| x.to_f32()),
            _ => t.to_f64().into_iter().map(|x| x as f32).collect(),
        }
    };
    let out = match (&x.data, &y.data) {
        _ if x.dtype != y.dtype => {
            return invalid(format!("element types {} and {}", x.dtype, y.dtype));
        }
        _ if total && x.dtype.is_float() => cmp!(&keys(x), &keys(y)),
        (Data::F32(v), Data::F32(w)) => cmp!(v, w),
        (Data::F64(v), Data::F64(w)) => cmp!(v, w),
        (Data::I32(v), Data::I32(w)) => cmp!(v, w),
        (Data::U32(v), Data::U32(w)) => cmp!(v, w),
        (Data::U64(v), Data::U64(w)) => cmp!(v, w),
        (Data::C64(v), Data::C64(w)) if matches!(d, Eq | Ne) => {
            map2(v, w, |x, y| (x == y) == (d == Eq))
        }
        (Data::C128(v), Data::C128(w)) if matches!(d, Eq | Ne) => {
            map2(v, w, |x, y| (x == y) == (d == Eq))
        }
        _ if x.dtype.is_float() => cmp!(&floats(x), &floats(y)),
        _ => match (x.to_i64(), y.to_i64()) {
            (Some(v), Some(w)) => cmp!(&v, &w),
            _ => return unsupported(format!("compare of {}", x.dtype)),
        },
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
    let (dtype, dims) = (a.dtype, a.dims);
    // By masks, so that the loop vectorises.
    macro_rules! blend {
        ($($s:ident $bits:ty, $to:expr, $from:expr);*) => {
            match (a.data, b.data) {
                $((Data::$s(v), Data::$s(w)) => Data::$s(pick(p_data, v, w, |p, x, y| {
                    let m = (0 as $bits).wrapping_sub(p as $bits);
                    $from($to(x) & m | $to(y) & !m)
                })),)*
                (a, b) => each!(a, v => {
                    let Some(w) = Store::take(b) else {
                        return invalid("branches differ in element type");
                    };
                    Store::wrap(pick(p_data, v, w, |p, x, y| if p { x } else { y }))
                }),
            }
        };
    }
    let data = blend!(F32 u32, f32::to_bits, f32::from_bits; F64 u64, f64::to_bits, f64::from_bits;
        Bf16 u16, bf16::to_bits, bf16::from_bits; I32 i32, |x: i32| x, |x: i32| x;
        U32 u32, |x: u32| x, |x: u32| x; Bool u8, |x: bool| x as u8, |x: u8| x != 0);
    Ok(Tensor { dtype, dims, data, sizes: None })
}

/// `f(p, a, b)`, in the place of an operand that is not shared.
fn pick<T: Store>(
    p: &[bool],
    a: Arc<Vec<T>>,
    mut b: Arc<Vec<T>>,
    f: impl Fn(bool, T, T) -> T + Sync,
) -> Arc<Vec<T>> {
    if Arc::strong_count(&a) > 1
        && let Some(w) = Arc::get_mut(&mut b)
    {
        super::par::update(w, 1, 1, &|at, c| {
            vector(
                #[inline(always)]
                || {
                    let it = c.iter_mut().zip(&a[at..]).zip(&p[at..]);
                    it.for_each(|((y, &x), &p)| *y = f(p, x, *y));
                },
            );
        });
        return b;
    }
    let mut a = Arc::unwrap_or_clone(a);
    super::par::update(&mut a, 1, 1, &|at, c| {
        vector(
            #[inline(always)]
            || {
                let it = c.iter_mut().zip(&b[at..]).zip(&p[at..]);
                it.for_each(|((x, &y), &p)| *x = f(p, *x, y));
            },
        );
    });
    Arc::new(a)
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
    let data = match t.data {
        Data::F64(v) => Data::F64(map1_same(v, round)),
        data => through_f32(dtype, data, |x| round(x as f64) as f32)?,
    };
    Ok(Tensor { data, dtype, dims: t.dims, sizes: None })
}

/// `n` copies of a scalar.
pub(crate) fn splat(t: &Tensor, n: usize) -> Data {
    each!(&t.data, v => Data::from_vec(vec![v.first().copied().unwrap_or_default(); n]))
}

/// `n` zeros of the same storage.
pub(crate) fn zeros(d: &Data, n: usize) -> Data {
    fn like<T: crate::tensor::Store>(_: &[T], n: usize) -> Data {
        Data::from_vec(vec![T::default(); n])
    }
    each!(d, v => like(v, n))
}

/// `n` zeros as the element type is stored.
pub(crate) fn blank(t: DType, wide: bool, n: usize) -> Data {
    use crate::tensor::Kind;
    match crate::tensor::storage_of(t) {
        Kind::F8 | Kind::F16 | Kind::Bf16 | Kind::F32 | Kind::F64 if wide => {
            Data::from_vec(vec![0f64; n])
        }
        Kind::C64 if wide => Data::from_vec(vec![C128::default(); n]),
        Kind::Bool => Data::from_vec(vec![false; n]),
        Kind::I8 => Data::from_vec(vec![0i8; n]),
        Kind::I16 => Data::from_vec(vec![0i16; n]),
        Kind::I32 => Data::from_vec(vec![0i32; n]),
        Kind::I64 => Data::from_vec(vec![0i64; n]),
        Kind::U8 => Data::from_vec(vec![0u8; n]),
        Kind::U16 => Data::from_vec(vec![0u16; n]),
        Kind::U32 => Data::from_vec(vec![0u32; n]),
        Kind::U64 => Data::from_vec(vec![0u64; n]),
        Kind::F8 => Data::from_vec(vec![F8(0); n]),
        Kind::F16 => Data::from_vec(vec![f16::ZERO; n]),
        Kind::Bf16 => Data::from_vec(vec![bf16::ZERO; n]),
        Kind::F32 => Data::from_vec(vec![0f32; n]),
        Kind::F64 => Data::from_vec(vec![0f64; n]),
        Kind::C64 => Data::from_vec(vec![C64::default(); n]),
        Kind::C128 => Data::from_vec(vec![C128::default(); n]),
    }
}
