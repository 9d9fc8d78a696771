//! Float formats of eight bits and less: one decoder and one encoder for all,
//! driven by a table of format parameters. Rounds to nearest, ties to even,
//! once, from `f64`.

use scalify_ir::DType;
use std::sync::OnceLock;

/// How a format spends its top codes.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// Infinities and NaNs in the top exponent.
    Ieee,
    /// Only the all-ones code is NaN; no infinity.
    Fn,
    /// Only the code of minus zero is NaN; no infinity, no minus zero.
    Fnuz,
    /// Every code is finite; overflow saturates.
    Finite,
    /// Powers of two without sign; the top code is NaN.
    E8M0,
}

#[derive(Clone, Copy)]
struct Format {
    exp: u32,
    man: u32,
    bias: i32,
    special: Special,
}

fn format(t: DType) -> Option<Format> {
    use Special::*;
    let f = |exp, man, bias, special| Some(Format { exp, man, bias, special });
    match t {
        DType::F8E5M2 => f(5, 2, 15, Ieee),
        DType::F8E4M3 => f(4, 3, 7, Ieee),
        DType::F8E3M4 => f(3, 4, 3, Ieee),
        DType::F8E4M3Fn => f(4, 3, 7, Fn),
        DType::F8E4M3B11Fnuz => f(4, 3, 11, Fnuz),
        DType::F8E5M2Fnuz => f(5, 2, 16, Fnuz),
        DType::F8E4M3Fnuz => f(4, 3, 8, Fnuz),
        DType::F4E2M1Fn => f(2, 1, 1, Finite),
        DType::F6E2M3Fn => f(2, 3, 1, Finite),
        DType::F6E3M2Fn => f(3, 2, 3, Finite),
        DType::F8E8M0Fnu => f(8, 0, 127, E8M0),
        _ => None,
    }
}

fn pow2(e: i32) -> f64 {
    libm::scalbn(1.0, e)
}

impl Format {
    fn decode(self, bits: u8) -> f64 {
        if self.special == Special::E8M0 {
            return if bits == 255 { f64::NAN } else { pow2(bits as i32 - 127) };
        }
        let width = self.exp + self.man;
        let sign = if bits >> width & 1 == 1 { -1.0 } else { 1.0 };
        let code = bits as u32 & ((1 << width) - 1);
        let (e, m) = (code >> self.man, code & ((1 << self.man) - 1));
        match self.special {
            Special::Ieee if e == (1 << self.exp) - 1 => {
                return if m == 0 { sign * f64::INFINITY } else { f64::NAN.copysign(sign) };
            }
            Special::Fn if code == (1 << width) - 1 => return f64::NAN.copysign(sign),
            Special::Fnuz if code == 0 && sign < 0.0 => return f64::NAN,
            _ => {}
        }
        let (m, e) = if e == 0 { (m, 1) } else { (m | 1 << self.man, e as i32) };
        sign * m as f64 * pow2(e - self.bias - self.man as i32)
    }

    fn encode(self, x: f64) -> u8 {
        let width = self.exp + self.man;
        if self.special == Special::E8M0 {
            return encode_e8m0(x);
        }
        let sign = (x.is_sign_negative() as u8) << width;
        let top = (1u32 << width) - 1;
        let (max_code, over) = match self.special {
            Special::Ieee => {
                let inf = top & !((1 << self.man) - 1);
                (inf - 1, inf as u8 | sign)
            }
            Special::Fn => (top - 1, top as u8 | sign),
            Special::Fnuz => (top, 1 << width),
            Special::Finite | Special::E8M0 => (top, top as u8 | sign),
        };
        if x.is_nan() {
            return match self.special {
                Special::Ieee => over | 1 << (self.man - 1),
                Special::Finite => 1 << width,
                _ => over,
            };
        }
        let a = x.abs();
        if a == f64::INFINITY {
            return over;
        }
        let emin = 1 - self.bias;
        let e = ((a.to_bits() >> 52) as i32 - 1023).max(emin);
        let q = (a * pow2(self.man as i32 - e)).round_ties_even() as u32;
        let code = (((e - emin).min(1 << self.exp) as u32) << self.man) + q;
        if code > max_code {
            return over;
        }
        if code == 0 && self.special == Special::Fnuz {
            return 0;
        }
        code as u8 | sign
    }
}

fn encode_e8m0(x: f64) -> u8 {
    if x.is_nan() || x <= 0.0 || x == f64::INFINITY {
        return 255;
    }
    // To the nearest value; halfway (1.5 * 2^e) goes up.
    let bits = x.to_bits();
    let e = (bits >> 52) as i64 - 1023 + (bits >> 51 & 1) as i64;
    if e > 127 { 255 } else { (e + 127).max(0) as u8 }
}

/// Values of all 256 codes of a format of this module, exact in `f32`.
pub(crate) fn table(t: DType) -> &'static [f32; 256] {
    static TABLES: OnceLock<Vec<[f32; 256]>> = OnceLock::new();
    let all = TABLES.get_or_init(|| {
        let row = |t: DType| {
            let f = format(t);
            std::array::from_fn(|i| f.map_or(0.0, |f| f.decode(i as u8) as f32))
        };
        DType::all().map(row).collect()
    });
    &all[t as usize]
}

/// The code nearest to `x` in a format of this module.
pub(crate) fn encode(t: DType, x: f64) -> u8 {
    format(t).map_or(0, |f| f.encode(x))
}
