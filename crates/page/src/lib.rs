//! Parts of static HTML pages that load nothing and run no scripts.
//!
//! **What lives here:** the style sheet, escaping, frames of pages, numbers
//! for people, logarithmic scales.
//!
//! **What may not:** the content of any report.

/// Style of all pages; light and dark.
pub const STYLE: &str = include_str!("style.css");

/// Text for HTML.
pub fn esc(t: &str) -> String {
    let mut out = String::with_capacity(t.len());
    for c in t.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Everything before the page's `<header>`; `title` is text.
pub fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        esc(title)
    )
}

/// The end of a page that has `<main>` open.
pub const TAIL: &str = "</main>\n</body>\n</html>\n";

/// Three digits with a decimal prefix, e.g. `1.23 G`; 0 and what is not finite
/// as they are.
pub fn si(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    const UNITS: [&str; 9] = ["n", "µ", "m", "", "k", "M", "G", "T", "P"];
    let mut e = (x.abs().log10() / 3.0).floor();
    // 999.9 is 1.00 k in three digits.
    if (x.abs() / 1000f64.powf(e)) >= 999.5 {
        e += 1.0;
    }
    let k = (e as i32 + 3).clamp(0, 8);
    let v = x / 1000f64.powi(k - 3);
    let digits = if v.abs() >= 99.95 {
        0
    } else if v.abs() >= 9.995 {
        1
    } else {
        2
    };
    let unit = UNITS[k as usize];
    if unit.is_empty() { format!("{v:.digits$}") } else { format!("{v:.digits$} {unit}") }
}

/// Three digits without a prefix where that is short (`0.872`, `18.3`), else
/// with an exponent.
pub fn plain(x: f64) -> String {
    match x {
        x if x == 0.0 || !x.is_finite() => x.to_string(),
        x if (1e-3..1e5).contains(&x.abs()) => {
            let d = (2 - x.abs().log10().floor() as i32).max(0) as usize;
            let t = format!("{x:.d$}");
            if t.contains('.') {
                t.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                t
            }
        }
        x => format!("{x:.2e}"),
    }
}

/// A number of things: whole numbers as they are, large ones with a prefix.
pub fn count(x: f64) -> String {
    if x.fract() == 0.0 && x.abs() < 1e6 { format!("{x:.0}") } else { si(x) }
}

/// Seconds with a prefix, e.g. `12.3 ms`.
pub fn seconds(x: f64) -> String {
    let t = si(x);
    if t.contains(' ') { t + "s" } else { t + " s" }
}

/// A quantity with a prefix and unit, e.g. `1.23 GB`.
pub fn quantity(x: f64, unit: &str) -> String {
    let t = si(x);
    if t.contains(' ') { t + unit } else { format!("{t} {unit}") }
}

/// A logarithmic scale from values to pixels.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    lo: f64,
    hi: f64,
    from: f64,
    to: f64,
}

impl Log {
    /// From the decade below the least to the one above the greatest of the
    /// positive finite values, drawn from `from` to `to`; one decade around 1
    /// if there are none. At most `decades`, counted from the greatest.
    pub fn new(values: impl Iterator<Item = f64>, decades: f64, from: f64, to: f64) -> Log {
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.filter(|v| v.is_finite() && *v > 0.0) {
            lo = lo.min(v.log10());
            hi = hi.max(v.log10());
        }
        if lo > hi {
            (lo, hi) = (0.0, 0.0);
        }
        let hi = (hi + 0.05).ceil();
        let lo = (lo - 0.05).floor().max(hi - decades).min(hi - 1.0);
        Log { lo, hi, from, to }
    }

    /// Pixel of a value; values off the scale are put at its ends.
    pub fn at(&self, v: f64) -> f64 {
        let e = if v > 0.0 { v.log10() } else { self.lo };
        let t = ((e - self.lo) / (self.hi - self.lo)).clamp(0.0, 1.0);
        self.from + t * (self.to - self.from)
    }

    /// Powers of ten on the scale, at most about a dozen.
    pub fn ticks(&self) -> Vec<f64> {
        let (lo, hi) = (self.lo as i32, self.hi as i32);
        let step = ((hi - lo) / 12 + 1).max(1);
        (lo..=hi).step_by(step as usize).map(|e| 10f64.powi(e)).collect()
    }

    /// Smallest and largest value of the scale.
    pub fn range(&self) -> (f64, f64) {
        (10f64.powf(self.lo), 10f64.powf(self.hi))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let all: Vec<String> = [0.0, 1.0, 1234.0, 999.96, 0.00123, 5e13, 42.0].map(si).into();
        assert_eq!(all, ["0", "1.00", "1.23 k", "1.00 k", "1.23 m", "50.0 T", "42.0"]);
        assert_eq!(
            [0.8716, 18.28, 0.1, 1e-9, 1000.0].map(plain),
            ["0.872", "18.3", "0.1", "1.00e-9", "1000"]
        );
        assert_eq!([2.0, 1.5, 3e9].map(count), ["2", "1.50", "3.00 G"]);
        assert_eq!(seconds(2.5), "2.50 s");
        assert_eq!(seconds(2.5e-5), "25.0 µs");
        assert_eq!(quantity(2e9, "FLOP/s"), "2.00 GFLOP/s");
    }

    #[test]
    fn scales_hold_their_values() {
        let s = Log::new([0.02, 300.0, f64::NAN, 0.0].into_iter(), 20.0, 100.0, 0.0);
        assert_eq!(s.range(), (0.01, 1000.0));
        assert!((s.at(0.01) - 100.0).abs() < 1e-9 && s.at(1e9) == 0.0 && s.at(0.0) == 100.0);
        assert_eq!(s.ticks().len(), 6);
    }

    #[test]
    fn escaping() {
        assert_eq!(esc("<a b='c'>&"), "&lt;a b=&#39;c&#39;&gt;&amp;");
    }
}
