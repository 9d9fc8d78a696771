//! Reports of a comparison.

mod junit;
mod table;
mod text;

pub use junit::junit;
pub use table::csv;
pub use text::{recheck as recheck_text, text};

use crate::compare::Report;
use serde::Serialize;
use std::fmt;

/// A number with up to seven digits, as `%.7g` prints it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Number(pub f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let x = self.0;
        if x.is_nan() {
            return f.write_str("NaN");
        }
        if x.is_infinite() {
            return f.write_str(if x > 0.0 { "inf" } else { "-inf" });
        }
        let e = format!("{x:.6e}");
        let (digits, exponent) = e.split_once('e').unwrap_or((&e, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if x != 0.0 && !(-5..7).contains(&exponent) {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            return write!(f, "{digits}e{exponent}");
        }
        let s = format!("{x:.*}", (6 - exponent).max(0) as usize);
        let s = if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.') } else { &s };
        f.write_str(s)
    }
}

/// The whole report as one JSON value, a line per tensor.
///
/// # Errors
/// None that occur: all fields have a form in JSON.
pub fn json(r: &Report) -> serde_json::Result<String> {
    let text = |s: &str| serde_json::to_string(s);
    let mut s = format!(
        "{{\"schema\": {},\n\"expected\": {},\n\"actual\": {},\n\"verdict\": {},\n\"counts\": {},\n\"tensors\": [",
        text(r.schema)?,
        text(&r.expected)?,
        text(&r.actual)?,
        serde_json::to_string(&r.verdict)?,
        serde_json::to_string(&r.counts)?,
    );
    for (i, t) in r.tensors.iter().enumerate() {
        s.push_str(if i == 0 { "\n" } else { ",\n" });
        s.push_str(&serde_json::to_string(t)?);
    }
    s.push_str("\n]}\n");
    Ok(s)
}

/// One JSON value per line: a head without `tensors`, then each tensor.
///
/// # Errors
/// None that occur.
pub fn jsonl(r: &Report) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Head<'a> {
        schema: &'a str,
        expected: &'a str,
        actual: &'a str,
        verdict: crate::compare::Verdict,
        counts: [u64; 3],
    }
    let head = Head {
        schema: r.schema,
        expected: &r.expected,
        actual: &r.actual,
        verdict: r.verdict,
        counts: r.counts,
    };
    let mut s = serde_json::to_string(&head)?;
    s.push('\n');
    for t in &r.tensors {
        s.push_str(&serde_json::to_string(t)?);
        s.push('\n');
    }
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::Number;

    #[test]
    fn numbers_print_as_with_seven_digits() {
        for (x, s) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.1f32 as f64, "0.1"),
            (-2.5, "-2.5"),
            (1234567.0, "1234567"),
            (12345678.0, "1.234568e7"),
            (1e-5, "0.00001"),
            (1.5e-6, "1.5e-6"),
            (9999999.9, "1e7"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
            (1e300, "1e300"),
            (100.0, "100"),
        ] {
            assert_eq!(Number(x).to_string(), s);
        }
    }
}
