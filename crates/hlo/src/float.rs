//! Float values between text and the bits of an element type.

use scalify_ir::DType;

/// How a binary float format spends its codes.
struct Format {
    man: u32,
    bias: i32,
    /// Sign bit present.
    signed: bool,
    kind: Kind,
}

#[derive(PartialEq, Clone, Copy)]
enum Kind {
    /// Infinities and NaNs in the top exponent.
    Ieee,
    /// No infinity, NaN is all ones.
    Fn,
    /// No infinity, NaN is the code of -0.
    Fnuz,
    /// Neither infinity nor NaN.
    Finite,
    /// Powers of two only, NaN is all ones.
    Exponent,
}

fn format(t: DType) -> Option<Format> {
    use DType::*;
    let (man, bias, kind) = match t {
        F8E5M2 => (2, 15, Kind::Ieee),
        F8E4M3 => (3, 7, Kind::Ieee),
        F8E3M4 => (4, 3, Kind::Ieee),
        F8E4M3Fn => (3, 7, Kind::Fn),
        F8E4M3B11Fnuz => (3, 11, Kind::Fnuz),
        F8E5M2Fnuz => (2, 16, Kind::Fnuz),
        F8E4M3Fnuz => (3, 8, Kind::Fnuz),
        F4E2M1Fn => (1, 1, Kind::Finite),
        F6E2M3Fn => (3, 1, Kind::Finite),
        F6E3M2Fn => (2, 3, Kind::Finite),
        F8E8M0Fnu => (0, 127, Kind::Exponent),
        _ => return None,
    };
    Some(Format { man, bias, signed: t != F8E8M0Fnu, kind })
}

/// Number of payload bits of a NaN of `t`, 0 if it has one NaN or none.
pub(crate) fn payload_bits(t: DType) -> u32 {
    match t {
        DType::F64 => 52,
        DType::F32 => 23,
        DType::F16 => 10,
        DType::Bf16 => 7,
        _ => format(t).filter(|f| f.kind == Kind::Ieee).map_or(0, |f| f.man),
    }
}

/// The bits of the NaN of `t` with this sign and payload (the whole
/// significand field; `None` is the default quiet NaN).
pub(crate) fn nan_bits(t: DType, negative: bool, payload: Option<u64>) -> u64 {
    let man = payload_bits(t);
    let width = t.bits();
    let sign = (negative as u64) << (width - 1);
    if man > 0 {
        let exp = ((1u64 << (width - 1 - man)) - 1) << man;
        return sign | exp | payload.unwrap_or(1 << (man - 1));
    }
    match format(t).map(|f| f.kind) {
        Some(Kind::Fnuz) => 1 << (width - 1),
        Some(Kind::Fn) => sign | ((1 << (width - 1)) - 1),
        Some(Kind::Exponent) => 0xFF,
        // No NaN: what a cast from a wider type gives.
        _ if negative => 0,
        _ => 1 << (width - 1),
    }
}

/// Nearest value of `t` (ties to even); `None` if a finite `x` is outside
/// its range. NaN gives the default NaN.
pub(crate) fn from_f64(t: DType, x: f64) -> Option<u64> {
    if x.is_nan() {
        return Some(nan_bits(t, x.is_sign_negative(), None));
    }
    let finite = |bits: u64, ok: bool| (ok || x.is_infinite()).then_some(bits);
    match t {
        DType::F64 => return Some(x.to_bits()),
        DType::F32 => {
            let v = x as f32;
            return finite(v.to_bits() as u64, v.is_finite());
        }
        DType::F16 => {
            let v = half::f16::from_f32(x as f32);
            return finite(v.to_bits() as u64, v.is_finite());
        }
        DType::Bf16 => {
            let v = half::bf16::from_f32(x as f32);
            return finite(v.to_bits() as u64, v.is_finite());
        }
        _ => {}
    }
    let f = format(t)?;
    let width = t.bits();
    let sign = if x.is_sign_negative() && f.signed { 1u64 << (width - 1) } else { 0 };
    let top = (1u64 << (width - f.signed as u32)) - 1;
    // Largest finite code without sign, and what infinity becomes.
    let (max, inf) = match f.kind {
        Kind::Ieee => {
            let inf = (top >> f.man) << f.man;
            (inf - 1, sign | inf)
        }
        Kind::Fn => (top - 1, sign | top),
        Kind::Fnuz => (top, 1 << (width - 1)),
        Kind::Finite => (top, sign | top),
        Kind::Exponent => (top - 1, top),
    };
    if x.is_infinite() {
        return Some(inf);
    }
    if f.kind == Kind::Exponent && x <= 0.0 {
        return None;
    }
    let a = x.abs();
    let lowest = if f.kind == Kind::Exponent { -f.bias } else { 1 - f.bias };
    let e = exponent(a).max(lowest);
    // Exact: a power of two within range of f64 scales without rounding here.
    let r = (a * 2f64.powi(f.man as i32 - e)).round_ties_even() as u64;
    let code = (((e - lowest) as u64) << f.man)
        + if f.kind == Kind::Exponent { r.saturating_sub(1) } else { r };
    if code > max {
        return None;
    }
    if code == 0 && f.kind == Kind::Fnuz {
        return Some(0);
    }
    Some(sign | code)
}

fn exponent(a: f64) -> i32 {
    ((a.to_bits() >> 52) as i32 & 0x7FF) - 1023
}

/// Exact value of the bits of an element of `t`.
pub(crate) fn to_f64(t: DType, bits: u64) -> f64 {
    match t {
        DType::F64 => return f64::from_bits(bits),
        DType::F32 => return f32::from_bits(bits as u32) as f64,
        DType::F16 => return half::f16::from_bits(bits as u16).to_f64(),
        DType::Bf16 => return half::bf16::from_bits(bits as u16).to_f64(),
        _ => {}
    }
    let Some(f) = format(t) else { return f64::NAN };
    let width = t.bits();
    let sign_bit = if f.signed { 1u64 << (width - 1) } else { 0 };
    let top = (1u64 << (width - f.signed as u32)) - 1;
    let code = bits & top;
    let sign = if bits & sign_bit != 0 { -1.0 } else { 1.0 };
    let inf = (top >> f.man) << f.man;
    match f.kind {
        Kind::Ieee if code == inf => return sign * f64::INFINITY,
        Kind::Ieee if code > inf => return f64::NAN.copysign(sign),
        Kind::Fn | Kind::Exponent if code == top => return f64::NAN.copysign(sign),
        Kind::Fnuz if bits & (top | sign_bit) == sign_bit => return f64::NAN,
        Kind::Exponent => return 2f64.powi(code as i32 - f.bias),
        _ => {}
    }
    let (e, m) = ((code >> f.man) as i32, (code & ((1 << f.man) - 1)) as f64);
    let unit = 2f64.powi(-(f.man as i32));
    sign * if e == 0 {
        m * unit * 2f64.powi(1 - f.bias)
    } else {
        (1.0 + m * unit) * 2f64.powi(e - f.bias)
    }
}

/// Appends the bits of an element as text that reads back to the same bits.
pub(crate) fn write(out: &mut String, t: DType, bits: u64) {
    use std::fmt::Write;
    let v = to_f64(t, bits);
    if v.is_nan() {
        let man = payload_bits(t);
        if bits >> (t.bits() - 1) & 1 == 1
            && format(t).is_none_or(|f| matches!(f.kind, Kind::Ieee | Kind::Fn))
        {
            out.push('-');
        }
        out.push_str("nan");
        if man > 0 {
            let payload = bits & ((1 << man) - 1);
            if payload != 1 << (man - 1) {
                let _ = write!(out, "(0x{payload:x})");
            }
        }
        return;
    }
    if v.is_infinite() {
        out.push_str(if v < 0.0 { "-inf" } else { "inf" });
        return;
    }
    if v == 0.0 {
        // XLA reads `-0` as an integer.
        out.push_str(if v.is_sign_negative() { "-0.0" } else { "0" });
        return;
    }
    let big = !(1e-5..1e15).contains(&v.abs());
    let start = out.len();
    if t != DType::F64 {
        let _ = if big { write!(out, "{:e}", v as f32) } else { write!(out, "{}", v as f32) };
        let back = out[start..].parse().ok().and_then(|x: f64| from_f64(t, x));
        if back == Some(bits) {
            return;
        }
        out.truncate(start);
    }
    let _ = if big { write!(out, "{v:e}") } else { write!(out, "{v}") };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_float_survives_text() {
        for t in DType::all().filter(|t| t.is_float() && t.bits() <= 16) {
            for bits in 0..1u64 << t.bits() {
                let mut s = String::new();
                write(&mut s, t, bits);
                let body = s.trim_start_matches('-');
                let back = match body.strip_prefix("nan") {
                    Some(p) => {
                        let hex = p.trim_matches(|c| c == '(' || c == ')').trim_start_matches("0x");
                        nan_bits(t, s.starts_with('-'), u64::from_str_radix(hex, 16).ok())
                    }
                    None => s.parse().ok().and_then(|x| from_f64(t, x)).expect("in range"),
                };
                assert_eq!(back, bits, "{t} {bits:#x} {s}");
            }
        }
    }
}
