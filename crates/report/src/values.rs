//! Numbers and arrays, as short as they can be read.

use scalify_interp::{Data, Tensor};
use scalify_ir::DType;

/// Arrays up to this many elements are written whole.
const MAX_WHOLE: usize = 64;
/// And up to this many characters.
const MAX_TEXT: usize = 120;

/// `x` to at most `digits` significant digits, without trailing zeros.
pub fn number(x: f64, digits: usize) -> String {
    if x == 0.0 {
        return if x.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    if !x.is_finite() {
        let s = if x.is_nan() { "NaN" } else { "inf" };
        return if x < 0.0 { format!("-{s}") } else { s.into() };
    }
    let short = format!("{x:e}");
    let cut = format!("{x:.*e}", digits.clamp(1, 17) - 1);
    let text = if short.len() <= cut.len() { short } else { cut };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    let e: i32 = exponent.parse().unwrap_or(0);
    if !(-5..10).contains(&e) {
        return format!("{mantissa}e{e}");
    }
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let figures: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let point = e + 1;
    if point <= 0 {
        return format!("{sign}0.{}{figures}", "0".repeat(-point as usize));
    }
    let point = point as usize;
    match figures.split_at_checked(point) {
        Some((a, "")) => format!("{sign}{a}"),
        Some((a, b)) => format!("{sign}{a}.{b}"),
        None => format!("{sign}{figures}{}", "0".repeat(point - figures.len())),
    }
}

/// An element (or a part of a complex one) of type `d`: as few digits as tell
/// it from its neighbours in the type.
pub fn typed(x: f64, d: DType) -> String {
    if d == DType::Pred {
        return if x == 0.0 { "false" } else { "true" }.into();
    }
    let part = d.complex_part().unwrap_or(d);
    if !part.is_float() || !x.is_finite() {
        return if part.is_float() { number(x, 17) } else { format!("{x:.0}") };
    }
    let half = x.abs() * 0.5f64.powi(part.mantissa_bits().unwrap_or(52) as i32 + 2);
    for digits in 1..17 {
        let text = format!("{x:.*e}", digits - 1);
        if text.parse::<f64>().is_ok_and(|y| (y - x).abs() <= half) {
            return number(x, digits);
        }
    }
    number(x, 17)
}

/// Elements in row-major order as people write them.
fn elements(t: &Tensor) -> Vec<String> {
    if let Some(v) = t.to_i64().filter(|_| t.dtype != DType::Pred) {
        return v.iter().map(i64::to_string).collect();
    }
    let pair = |re: f64, im: f64| {
        let sign = if im.is_sign_negative() { "" } else { "+" };
        format!("{}{sign}{}i", typed(re, t.dtype), typed(im, t.dtype))
    };
    match &t.data {
        Data::C64(v) => v.iter().map(|x| pair(x.re.into(), x.im.into())).collect(),
        Data::C128(v) => v.iter().map(|x| pair(x.re, x.im)).collect(),
        _ => t.to_f64().iter().map(|&x| typed(x, t.dtype)).collect(),
    }
}

/// `[[1, 2], [3, 4]]`; `None` if there are too many elements for a line.
pub fn whole(t: &Tensor) -> Option<String> {
    if t.len() > MAX_WHOLE || t.is_empty() || t.rank() > 8 {
        return None;
    }
    let mut rows = elements(t);
    for &d in t.dims.iter().rev() {
        let d = usize::try_from(d).ok().filter(|&d| d > 0)?;
        rows = rows.chunks(d).map(|r| format!("[{}]", r.join(", "))).collect();
    }
    rows.pop().filter(|s| s.len() <= MAX_TEXT && rows.is_empty())
}

/// Facts about the elements of an array.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Summary {
    /// Elements.
    pub count: usize,
    /// Least and greatest of those that are not NaN; `None` if there are none.
    pub range: Option<(f64, f64)>,
    /// Mean of the finite ones; 0 if there are none.
    pub mean: f64,
    /// NaNs.
    pub nan: usize,
    /// Infinities.
    pub inf: usize,
}

/// Facts about the elements, of complex numbers about their parts.
pub fn summary(t: &Tensor) -> Summary {
    let v = scalify_refute::compare::numbers(t);
    let mut s = Summary { count: t.len(), ..Summary::default() };
    let (mut sum, mut finite) = (0.0, 0usize);
    for x in v {
        if x.is_nan() {
            s.nan += 1;
            continue;
        }
        s.range = Some(s.range.map_or((x, x), |(a, b)| (x.min(a), x.max(b))));
        if x.is_infinite() {
            s.inf += 1;
        } else {
            sum += x;
            finite += 1;
        }
    }
    s.mean = if finite == 0 { 0.0 } else { sum / finite as f64 };
    s
}

/// The array in one line: whole if it is small, else what it holds.
pub fn line(t: &Tensor) -> String {
    let s = summary(t);
    if let Some(w) = whole(t).filter(|_| s.range.is_none_or(|r| r.0 < r.1) || t.len() <= 4) {
        return w;
    }
    let odd = match (s.nan, s.inf) {
        (0, 0) => String::new(),
        (n, i) => format!(", {n} NaN, {i} infinite"),
    };
    match s.range {
        None => format!("{} elements{odd}", s.count),
        Some((a, b)) if a == b && s.nan == 0 && s.inf == 0 => format!("all {}", typed(a, t.dtype)),
        Some((a, b)) => {
            let (a, b) = (typed(a, t.dtype), typed(b, t.dtype));
            let mean = number(s.mean, 3);
            format!("{} elements, {a} to {b}, mean {mean}{odd}", s.count)
        }
    }
}

/// `[2, 3]`.
pub fn index(v: &[i64]) -> String {
    let v: Vec<String> = v.iter().map(i64::to_string).collect();
    format!("[{}]", v.join(", "))
}

/// Ascending ids in short: `0-3, 6`.
pub fn ids(v: &[u32]) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut k = 0;
    while k < v.len() {
        let mut j = k;
        while j + 1 < v.len() && Some(v[j + 1]) == v[j].checked_add(1) {
            j += 1;
        }
        out.push(match j - k {
            0 => v[k].to_string(),
            1 => format!("{}, {}", v[k], v[j]),
            _ => format!("{}-{}", v[k], v[j]),
        });
        k = j + 1;
    }
    out.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-0.25, "-0.25"),
            (1234567.0, "1234567"),
            (1e10, "1e10"),
            (-1.5e-7, "-1.5e-7"),
            (0.00012, "0.00012"),
            (100.0, "100"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (x, text) in cases {
            assert_eq!(number(x, 17), text);
        }
        assert_eq!(number(std::f64::consts::PI, 4), "3.142");
        assert_eq!(number(99999.6, 5), "100000");
    }

    #[test]
    fn typed_numbers_read_back() {
        for x in [0.1f32, 1.0 / 3.0, 16777217.0, 1e-30, 6.5e37, -2.75] {
            let t = typed(f64::from(x), DType::F32);
            assert_eq!(t.parse::<f32>(), Ok(x), "{t}");
        }
        assert_eq!(typed(f64::from(0.1f32), DType::F32), "0.1");
        assert_eq!(typed(1.0, DType::Pred), "true");
        assert_eq!(typed(7.0, DType::S32), "7");
        // bf16 has 8 significant bits: 3.140625 lies between 3.125 and 3.15625.
        assert_eq!(typed(3.140625, DType::Bf16), "3.14");
    }

    #[test]
    fn arrays() {
        let t = |dims: &[i64], v: Vec<f32>| {
            Tensor::from_vec(DType::F32, dims.iter().copied(), v).unwrap()
        };
        assert_eq!(line(&t(&[], vec![2.5])), "2.5");
        assert_eq!(line(&t(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])), "[[1, 2], [3, 4]]");
        assert_eq!(line(&t(&[100], vec![1.0; 100])), "all 1");
        let mut v = vec![0.0; 100];
        v[7] = 5.0;
        assert_eq!(line(&t(&[100], v.clone())), "100 elements, 0 to 5, mean 0.05");
        v[8] = f32::NAN;
        v[9] = f32::INFINITY;
        assert!(line(&t(&[100], v)).ends_with("1 NaN, 1 infinite"));
        assert_eq!(line(&t(&[0, 3], vec![])), "0 elements");
    }

    #[test]
    fn ids_are_ranges() {
        assert_eq!(ids(&[0, 1, 2, 3, 5, 7, 8]), "0-3, 5, 7, 8");
        assert_eq!(ids(&[]), "");
    }
}
