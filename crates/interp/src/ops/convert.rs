//! `convert`, `bitcast-convert`, `stochastic-convert`. Conversions round once,
//! to nearest even; floats become integers by truncation with saturation and
//! NaN becomes zero.

use super::elementwise::to_bf16;
use super::int::Int;
use super::par::map1;
use crate::complex::{C64, C128};
use crate::error::{Res, invalid, unsupported};
use crate::narrow;
use crate::tensor::{Data, F8, Kind, Tensor, storage_of};
use half::{bf16, f16};
use scalify_ir::{ArrayShape, DType};

/// A 64-bit integer as the `f64` that keeps later rounding right: the odd
/// neighbour if it is not exact.
fn odd(x: i128) -> f64 {
    let f = x as f64;
    let back = f as i128;
    if back == x {
        return f;
    }
    // Truncate towards zero, then set the last bit.
    let t =
        if back.unsigned_abs() > x.unsigned_abs() { f64::from_bits(f.to_bits() - 1) } else { f };
    f64::from_bits(t.to_bits() | 1)
}

/// From `f64`s that round correctly to any narrower float.
fn from_f64(v: Vec<f64>, to: DType, wide: bool) -> Data {
    if wide && to.is_float() {
        return Data::from_vec(v);
    }
    match storage_of(to) {
        Kind::F64 => Data::from_vec(v),
        Kind::F32 => Data::from_vec(map1(&v, |x| x as f32)),
        Kind::F16 => Data::from_vec(map1(&v, f16::from_f64)),
        Kind::Bf16 => Data::from_vec(map1(&v, bf16::from_f64)),
        _ => Data::from_vec(map1(&v, |x| F8(narrow::encode(to, x)))),
    }
}

/// To an integer type: integers wrap, floats truncate and saturate.
fn int_data(t: &Tensor, to: DType) -> Res<Data> {
    match (&t.data, storage_of(to)) {
        (Data::F32(v), Kind::I32) => return Ok(Data::from_vec(map1(v, |x: f32| x as i32))),
        (Data::I32(v), Kind::U32) => return Ok(Data::from_vec(map1(v, |x: i32| x as u32))),
        (Data::U32(v), Kind::I32) => return Ok(Data::from_vec(map1(v, |x: u32| x as i32))),
        (Data::U64(v), Kind::I64) => return Ok(Data::from_vec(map1(v, |x: u64| x as i64))),
        (Data::U64(v), Kind::U64) => return Ok(Data::U64(v.clone())),
        _ => {}
    }
    let v: Vec<i64> = match &t.data {
        Data::U64(v) => map1(v, |x: u64| x as i64),
        _ => match t.to_i64() {
            Some(v) => v,
            None => {
                let x = t.to_f64();
                if storage_of(to) == Kind::U64 {
                    return Ok(Data::from_vec(map1(&x, |x: f64| x as u64)));
                }
                let (lo, hi) = to.int_range().unwrap_or((0, 0));
                let (lo, hi) = (lo as i64, hi.min(i64::MAX as i128) as i64);
                map1(&x, |x: f64| (x as i64).clamp(lo, hi))
            }
        },
    };
    let bits = to.bits();
    Ok(match storage_of(to) {
        Kind::I8 => Data::from_vec(map1(&v, |x: i64| Int::wrap(x as i8, bits))),
        Kind::I16 => Data::from_vec(map1(&v, |x: i64| x as i16)),
        Kind::I32 => Data::from_vec(map1(&v, |x: i64| x as i32)),
        Kind::I64 => Data::from_vec(v),
        Kind::U8 => Data::from_vec(map1(&v, |x: i64| Int::wrap(x as u8, bits))),
        Kind::U16 => Data::from_vec(map1(&v, |x: i64| x as u16)),
        Kind::U32 => Data::from_vec(map1(&v, |x: i64| x as u32)),
        _ => Data::from_vec(map1(&v, |x: i64| x as u64)),
    })
}

/// `convert`. In `wide` mode floats stay `f64`.
pub(crate) fn convert(t: Tensor, to: DType, wide: bool) -> Res<Tensor> {
    if t.dtype == to {
        return Ok(t);
    }
    let dims = t.dims.clone();
    let data = convert_data(&t, to, wide)?;
    Ok(Tensor { dtype: to, dims, data, sizes: None })
}

fn convert_data(t: &Tensor, to: DType, wide: bool) -> Res<Data> {
    if to.is_complex() {
        let c128 = wide || to == DType::C128;
        return Ok(match &t.data {
            Data::C64(v) if c128 => Data::from_vec(map1(v, |x: C64| x.wide())),
            Data::C64(v) => Data::C64(v.clone()),
            Data::C128(v) if c128 => Data::C128(v.clone()),
            Data::C128(v) => Data::from_vec(map1(v, |x: C128| x.narrow())),
            _ => {
                let re = if c128 {
                    convert_data(t, DType::F64, wide)?
                } else {
                    convert_data(t, DType::F32, wide)?
                };
                match re {
                    Data::F64(v) => Data::from_vec(map1(&v, |re| C128 { re, im: 0.0 })),
                    Data::F32(v) => Data::from_vec(map1(&v, |re| C64 { re, im: 0.0 })),
                    _ => return unsupported("element type"),
                }
            }
        });
    }
    if t.dtype.is_complex() && (to != DType::Pred) {
        let re = super::elementwise::unary(scalify_ir::Opcode::Real, t.clone())?;
        return convert_data(&re, to, wide);
    }
    if to == DType::Pred {
        return Ok(Data::from_vec(match &t.data {
            Data::Bool(v) => v.to_vec(),
            Data::F32(v) => map1(v, |x: f32| x != 0.0),
            Data::C64(v) => map1(v, |x: C64| x.re != 0.0 || x.im != 0.0),
            Data::C128(v) => map1(v, |x: C128| x.re != 0.0 || x.im != 0.0),
            _ => match t.to_i64() {
                Some(v) => map1(&v, |x| x != 0),
                None => map1(&t.to_f64(), |x| x != 0.0),
            },
        }));
    }
    if to.is_int() {
        return int_data(t, to);
    }
    // To a real float.
    if !wide {
        match (&t.data, storage_of(to)) {
            (Data::F32(v), Kind::Bf16) => return Ok(Data::from_vec(map1(v, to_bf16))),
            (Data::F32(v), Kind::F16) => return Ok(Data::from_vec(map1(v, f16::from_f32))),
            (Data::F32(v), Kind::F64) => return Ok(Data::from_vec(map1(v, |x: f32| x as f64))),
            (Data::Bf16(v), Kind::F32) => {
                return Ok(Data::from_vec(map1(v, |x: bf16| x.to_f32())));
            }
            (Data::F16(v), Kind::F32) => return Ok(Data::from_vec(map1(v, |x: f16| x.to_f32()))),
            (Data::I32(v), Kind::F32) => return Ok(Data::from_vec(map1(v, |x: i32| x as f32))),
            (Data::U32(v), Kind::F32) => return Ok(Data::from_vec(map1(v, |x: u32| x as f32))),
            (Data::Bool(v), Kind::F32) => {
                return Ok(Data::from_vec(map1(v, |x: bool| x as u8 as f32)));
            }
            _ => {}
        }
    }
    let exact = wide || storage_of(to) == Kind::F64;
    let v = match &t.data {
        Data::I64(v) if !exact => map1(v, |x: i64| odd(x as i128)),
        Data::U64(v) if !exact => map1(v, |x: u64| odd(x as i128)),
        _ => t.to_f64(),
    };
    Ok(from_f64(v, to, wide))
}

/// `bitcast-convert`, also between widths: the minor dimension appears,
/// vanishes or (for `bitcast`) scales. Sub-byte elements are packed from the
/// low bits on.
pub(crate) fn bitcast_convert(t: Tensor, to: DType, dims: &[i64], wide: bool) -> Res<Tensor> {
    let Some(n) = crate::tensor::count(dims) else { return invalid("result too big") };
    if t.dtype == to {
        return super::movement::reshape(t, dims);
    }
    let (a, b) = (t.dtype.bits() as usize, to.bits() as usize);
    if t.len().checked_mul(a) != n.checked_mul(b) {
        return invalid(format!("{}{:?} has not the bits of {}{:?}", t.dtype, t.dims, to, dims));
    }
    let mut bytes = t.to_bytes();
    if a < 8 {
        bytes = pack(&bytes, a);
    }
    if b < 8 {
        bytes = unpack(&bytes, b, n, to.is_signed());
    }
    let shape = ArrayShape::new(to, dims.iter().copied());
    match Tensor::from_bytes(&shape, &bytes) {
        Some(r) => Ok(if wide { r.widened() } else { r }),
        None => invalid("bit counts differ"),
    }
}

fn pack(v: &[u8], bits: usize) -> Vec<u8> {
    let mut out = vec![0u8; (v.len() * bits).div_ceil(8)];
    for (i, &x) in v.iter().enumerate() {
        for k in 0..bits {
            let at = i * bits + k;
            out[at / 8] |= (x >> k & 1) << (at % 8);
        }
    }
    out
}

fn unpack(v: &[u8], bits: usize, n: usize, signed: bool) -> Vec<u8> {
    let one = |i: usize| {
        let mut x = 0u8;
        for k in 0..bits {
            let at = i * bits + k;
            x |= (v.get(at / 8).copied().unwrap_or(0) >> (at % 8) & 1) << k;
        }
        if signed { Int::wrap(x as i8, bits as u32) as u8 } else { x }
    };
    (0..n).map(one).collect()
}

/// `stochastic-convert`: rounds away from zero if the discarded fraction
/// exceeds the random bits read as a fraction.
pub(crate) fn stochastic_convert(
    t: &Tensor,
    random: &Tensor,
    to: DType,
    wide: bool,
) -> Res<Tensor> {
    if t.dims != random.dims || random.dtype.bits() != t.dtype.bits() {
        return invalid("random bits of another shape or width");
    }
    let Some(r) = random.to_i64() else { return invalid("random bits are no integers") };
    let scale = libm::scalbn(1.0, -(random.dtype.bits() as i32));
    let mask = if random.dtype.bits() >= 64 { !0u64 } else { (1 << random.dtype.bits()) - 1 };
    let x = t.to_f64();
    if to.is_int() {
        let (lo, hi) = to.int_range().unwrap_or((0, 0));
        let one = |(&x, &r): (&f64, &i64)| {
            if x.is_nan() {
                return 0i64;
            }
            let frac = x.abs().fract();
            let up = (r as u64 & mask) as f64 * scale < frac;
            let m = x.abs().trunc() + if up { 1.0 } else { 0.0 };
            (m.copysign(x) as i128).clamp(lo, hi) as i64
        };
        let v: Vec<i64> = x.iter().zip(&r).map(one).collect();
        return convert(Tensor::raw(DType::S64, &t.dims, Data::from_vec(v)), to, wide);
    }
    let Some(p) = to.mantissa_bits() else { return unsupported(format!("to {to}")) };
    let one = |(&x, &r): (&f64, &i64)| {
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let q = libm::scalbn(1.0, libm::ilogb(x) - (p as i32 - 1));
        let m = x.abs() / q;
        let up = (r as u64 & mask) as f64 * scale < m.fract();
        ((m.trunc() + if up { 1.0 } else { 0.0 }) * q).copysign(x)
    };
    let v: Vec<f64> = x.iter().zip(&r).map(one).collect();
    Ok(Tensor::raw(to, &t.dims, from_f64(v, to, wide)))
}
