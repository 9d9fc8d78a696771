//! For the terminal.

use super::Number as N;
use crate::compare::{Report, TensorReport, Verdict};
use crate::criteria::Criterion;
use crate::metrics::{Element, Metrics, Side};
use crate::recheck::Rechecked;
use std::fmt::Write;

struct Style(bool);

impl Style {
    fn paint(&self, v: Verdict, s: &str) -> String {
        let code = match v {
            _ if !self.0 => return s.into(),
            Verdict::Equal => 32,
            Verdict::Different => 31,
            Verdict::Unknown => 33,
        };
        format!("\x1b[1;{code}m{s}\x1b[0m")
    }
}

fn word(v: Verdict) -> &'static str {
    match v {
        Verdict::Equal => "EQUAL",
        Verdict::Different => "DIFFERENT",
        Verdict::Unknown => "UNKNOWN",
    }
}

fn at(e: &Element) -> String {
    let i: Vec<String> = e.index.iter().map(u64::to_string).collect();
    format!("({})", i.join(", "))
}

fn counts(c: [u64; 3]) -> String {
    let all: u64 = c.iter().sum();
    let mut s = format!("{} of {all} tensors equal", c[0]);
    for (n, what) in [(c[1], "different"), (c[2], "not decided")] {
        if n > 0 {
            let _ = write!(s, ", {n} {what}");
        }
    }
    s
}

/// The report as text. `all` also shows the metrics of tensors that are equal.
pub fn text(r: &Report, all: bool, color: bool) -> String {
    let style = Style(color);
    let mut s = format!("{}  {}\n", style.paint(r.verdict, word(r.verdict)), counts(r.counts));
    if r.tensors.is_empty() {
        s.push_str("neither file has tensors: nothing was compared\n");
    }
    for t in &r.tensors {
        if t.verdict != Verdict::Equal || all {
            tensor(&mut s, t, &style);
        }
    }
    s
}

fn shape(dtype: Option<&str>, dims: &Option<Vec<i64>>) -> String {
    match dims {
        Some(d) => {
            let d: Vec<String> = d.iter().map(i64::to_string).collect();
            format!("{}[{}]", dtype.unwrap_or("?"), d.join(","))
        }
        None => "nothing".into(),
    }
}

fn tensor(s: &mut String, t: &TensorReport, style: &Style) {
    let [e, a] = [0, 1].map(|i| shape(t.dtypes[i], &t.dims[i]));
    let shape = if e == a { e } else { format!("expected {e}, got {a}") };
    let name = if t.name.is_empty() { "(tensor)" } else { &t.name };
    let _ = writeln!(s, "\n{}  {name}  {shape}", style.paint(t.verdict, word(t.verdict)));
    if let (Some(m), Some(set)) = (&t.metrics, &t.setting) {
        if let Some(n) = t.mismatched {
            let share = if m.elements == 0 { 0.0 } else { n as f64 / m.elements as f64 * 100.0 };
            let _ = writeln!(s, "  Mismatched elements: {n} / {} ({share:.1}%)", m.elements);
        }
        let allowed = |x: f64| match set.criterion {
            Criterion::Allclose | Criterion::Xla | Criterion::Seed => {
                format!(" (up to {} allowed)", N(x))
            }
            _ => String::new(),
        };
        if let Some(w) = m.worst.first() {
            let _ = writeln!(
                s,
                "  Greatest absolute difference: {} at index {}{}",
                N(w.abs),
                at(w),
                allowed(set.atol)
            );
        }
        if let Some(w) = &m.worst_rel {
            let _ = writeln!(
                s,
                "  Greatest relative difference: {} at index {}{}",
                N(m.max_rel),
                at(w),
                allowed(set.rtol)
            );
        }
        let _ = writeln!(s, "  criterion: {} (preset {})", set.describe(), set.preset);
    }
    for f in &t.findings {
        let _ = writeln!(s, "  - {}", f.message);
    }
    if let Some(m) = &t.metrics {
        metrics(s, m);
    }
    if let Some(f) = t.fp64 {
        let (e, a) = (N(f.expected_rmse), N(f.actual_rmse));
        let _ = writeln!(s, "  RMSE against f64: expected {e}, actual {a}");
    }
}

fn side(s: &mut String, what: &str, c: Side) {
    let _ = writeln!(
        s,
        "  {what}: {} NaN, {} +Inf, {} -Inf, {} denormal",
        c.nan, c.pos_inf, c.neg_inf, c.denormal
    );
}

fn metrics(s: &mut String, m: &Metrics) {
    let p = m.percentiles;
    let about = if p.exact { "" } else { " (within 1/8)" };
    let or = |x: Option<f64>| x.map_or("undefined".into(), |x| N(x).to_string());
    let _ = writeln!(
        s,
        "  absolute error: mean {}, max {}, RMSE {}; p50 {}, p90 {}, p99 {}, p99.9 {}{about}",
        N(m.mean_abs),
        N(m.max_abs),
        N(m.rmse),
        N(p.p50),
        N(p.p90),
        N(p.p99),
        N(p.p99_9)
    );
    let _ = writeln!(
        s,
        "  relative error: mean {}, max {}, over {} elements with |expected| > {}",
        N(m.mean_rel),
        N(m.max_rel),
        m.rel_elements,
        N(m.rel_above)
    );
    let _ = writeln!(
        s,
        "  cosine {}, SQNR {} dB, {} values differ, {} signs flipped",
        or(m.cosine),
        or(m.sqnr_db),
        m.different,
        m.sign_flips
    );
    if let Some(u) = &m.ulp {
        let bins: Vec<String> = u
            .histogram
            .iter()
            .filter(|b| b[1] > 0)
            .map(|[from, n]| match from {
                0 | 1 => format!("{from}: {n}"),
                _ => format!("{from}..: {n}"),
            })
            .collect();
        let _ = writeln!(s, "  ULP distance: max {}; {}", u.max, bins.join(", "));
    }
    let plain = Side::default();
    if (m.expected, m.actual) != (plain, plain) {
        side(s, "expected", m.expected);
        side(s, "actual", m.actual);
    }
    if let Some(t) = &m.top {
        let _ = writeln!(
            s,
            "  along axis {}: {} rows, top-1 agreement {}, top-5 {}, overlap of five {}",
            t.axis,
            t.rows,
            N(t.share1()),
            N(t.share5()),
            N(t.overlap5)
        );
        if let Some(i) = &t.first_mismatch {
            let _ = writeln!(s, "  first row with another largest element: {i:?}");
        }
    }
    if !m.special.is_empty() {
        let list: Vec<String> = m
            .special
            .iter()
            .map(|e| format!("{}: expected {}, got {}", at(e), e.expected, e.actual))
            .collect();
        let _ = writeln!(s, "  first NaN or Inf that do not match: {}", list.join("; "));
    }
    if !m.worst.is_empty() {
        let _ = writeln!(s, "  worst elements:");
        for e in &m.worst {
            let rel = e.rel.map_or(String::new(), |r| format!(", relative {}", N(r)));
            let ulp = e.ulp.map_or(String::new(), |u| format!(", {u} ULP"));
            let _ = writeln!(
                s,
                "    {}: expected {}, got {}, error {}{rel}{ulp}",
                at(e),
                e.expected,
                e.actual,
                N(e.abs)
            );
        }
    }
}

/// The judgements of a report under other tolerances.
pub fn recheck(r: &Rechecked, all: bool, color: bool) -> String {
    let style = Style(color);
    let mut s = format!("{}  {}\n", style.paint(r.verdict, word(r.verdict)), counts(r.counts));
    for t in &r.tensors {
        if t.verdict == Verdict::Equal && !all {
            continue;
        }
        let name = if t.name.is_empty() { "(tensor)" } else { &t.name };
        let _ = writeln!(s, "\n{}  {name}", style.paint(t.verdict, word(t.verdict)));
        if let Some(set) = &t.setting {
            let _ = writeln!(s, "  criterion: {} (preset {})", set.describe(), set.preset);
        }
        match t.mismatched {
            Some([lo, hi]) if lo == hi => {
                let _ = writeln!(s, "  Mismatched elements: {lo}");
            }
            Some([lo, hi]) => {
                let _ = writeln!(s, "  Mismatched elements: from {lo} to {hi}");
            }
            None => {}
        }
        for m in &t.reasons {
            let _ = writeln!(s, "  - {m}");
        }
    }
    s
}
