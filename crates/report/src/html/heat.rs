//! Heat maps of the output that differs most: expected, actual, difference.

use crate::Subject;
use scalify_interp::Accumulate;
use scalify_refute::evaluate::{self, RunLimits};
use scalify_refute::{compare, place};
use std::fmt::Write;
use std::time::Duration;

/// Devices shown.
const MAX_DEVICES: usize = 8;
/// Cells along a side.
const MAX_CELLS: usize = 40;
/// Colour steps.
const STEPS: usize = 16;
const LIMITS: RunLimits = RunLimits { memory: 2 << 30, time: Duration::from_secs(20) };

/// A plane of an array, cells joined where there are too many.
struct Plane {
    rows: usize,
    cols: usize,
    values: Vec<f64>,
}

/// Maps of the worst output on the first devices; empty if it cannot be
/// evaluated again.
pub(super) fn maps(s: &Subject<'_>) -> String {
    draw(s).unwrap_or_default()
}

fn draw(s: &Subject<'_>) -> Option<String> {
    let c = s.decision.counterexample.as_deref()?;
    let d = c.outputs.first()?;
    let small = s.decision.reduced.as_deref();
    let (base, dist) = small.map_or((s.base, s.dist), |r| (&r.base, &r.dist));
    let problem = s.decision.reduced_problem.as_deref().unwrap_or(s.problem);
    if problem.base_spmd {
        return None;
    }
    let run = |x: Result<evaluate::Results, _>| x.ok();
    let want = run(evaluate::base(base, problem, &c.inputs, Accumulate::F64, LIMITS))?;
    let got =
        run(evaluate::dist(dist, problem, &c.placements, &c.inputs, Accumulate::F64, LIMITS))?;
    let whole = want.first()?.get(d.output)?;
    let expected = compare::numbers(whole);
    // Complex numbers take two places each; they are not drawn.
    if expected.len() != whole.len() {
        return None;
    }
    let mut o = format!("<h3>Output #{}, plane of the worst element", d.output);
    if small.is_some() {
        o.push_str(", at reduced sizes");
    }
    if d.local.len() > 2 {
        let fixed: Vec<String> = d.local[..d.local.len() - 2].iter().map(i64::to_string).collect();
        let _ = write!(o, " [{}, :, :]", fixed.join(", "));
    }
    o.push_str("</h3>\n");
    let mut devices: Vec<usize> = (0..got.len()).collect();
    devices.sort_by_key(|&k| k as u32 != d.device);
    devices.truncate(MAX_DEVICES);
    devices.sort_unstable();
    let mut planes: Vec<(usize, Plane, Plane, Plane)> = Vec::new();
    for k in devices {
        let t = got.get(k)?.get(d.output)?;
        let actual = compare::numbers(t);
        if actual.len() != t.len() {
            return None;
        }
        let mut block = vec![f64::NAN; actual.len()];
        for (a, b) in place::positions(&whole.dims, d.placement.as_ref(), k as u32)? {
            *block.get_mut(a)? = *expected.get(b)?;
        }
        let diff: Vec<f64> = block
            .iter()
            .zip(&actual)
            .map(|(e, a)| if e == a || (e.is_nan() && a.is_nan()) { 0.0 } else { (a - e).abs() })
            .collect();
        let cut = |v: &[f64]| plane(v, &t.dims, &d.local);
        planes.push((k, cut(&block)?, cut(&actual)?, cut(&diff)?));
    }
    let range = |f: &dyn Fn(&(usize, Plane, Plane, Plane)) -> Vec<f64>| {
        let all = planes.iter().flat_map(f).filter(|v| v.is_finite());
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)))
    };
    let (lo, hi) = range(&|p| p.1.values.iter().chain(&p.2.values).copied().collect());
    let (_, worst) = range(&|p| p.3.values.clone());
    let _ = writeln!(
        o,
        "<div class=\"heat\" style=\"grid-template-columns: auto auto auto auto\">\n<span></span><b>expected</b><b>actual</b><b>difference</b>"
    );
    for (k, e, a, x) in &planes {
        let _ = writeln!(
            o,
            "<b>device {k}</b>{}{}{}",
            map(e, lo, hi, 220),
            map(a, lo, hi, 220),
            map(x, 0.0, worst, 15)
        );
    }
    let n = |x| crate::values::number(x, 5);
    let _ = writeln!(
        o,
        "</div>\n<p class=\"legend\">Values from {} (light) to {} (dark); difference from 0 to {}. Black: NaN or infinite.{}</p>",
        n(lo),
        n(hi),
        n(worst),
        if got.len() > planes.len() {
            format!(" {} more devices are not drawn.", got.len() - planes.len())
        } else {
            String::new()
        }
    );
    Some(o)
}

/// The last two dimensions at the position of the worst element. Joined cells
/// take the value of the largest size.
fn plane(v: &[f64], dims: &[i64], at: &[i64]) -> Option<Plane> {
    let size = |k: usize| usize::try_from(*dims.get(k)?).ok();
    let (r, c) = match dims.len() {
        0 => (1, 1),
        1 => (1, size(0)?),
        n => (size(n - 2)?, size(n - 1)?),
    };
    let mut start = 0usize;
    for k in 0..dims.len().saturating_sub(2) {
        start = start.checked_mul(size(k)?)?.checked_add(usize::try_from(*at.get(k)?).ok()?)?;
    }
    let start = start.checked_mul(r.checked_mul(c)?)?;
    if r == 0 || c == 0 {
        return None;
    }
    let (rows, cols) = (r.min(MAX_CELLS), c.min(MAX_CELLS));
    let mut values = vec![0.0f64; rows * cols];
    let mut set = vec![false; rows * cols];
    for i in 0..r {
        for j in 0..c {
            let x = *v.get(start + i * c + j)?;
            let k = (i * rows / r) * cols + j * cols / c;
            if !set[k] || !x.is_finite() || (values[k].is_finite() && x.abs() > values[k].abs()) {
                values[k] = x;
                set[k] = true;
            }
        }
    }
    Some(Plane { rows, cols, values })
}

/// One map: a path per colour.
fn map(p: &Plane, lo: f64, hi: f64, hue: u32) -> String {
    let cell = (160 / p.rows.max(p.cols)).clamp(4, 24);
    let (w, h) = (p.cols * cell, p.rows * cell);
    let mut paths = vec![String::new(); STEPS + 1];
    for (k, v) in p.values.iter().enumerate() {
        let step = if !v.is_finite() {
            STEPS
        } else if hi > lo {
            (((v - lo) / (hi - lo) * (STEPS - 1) as f64).round() as usize).min(STEPS - 1)
        } else {
            0
        };
        let (x, y) = (k % p.cols * cell, k / p.cols * cell);
        let _ = write!(paths[step], "M{x} {y}h{cell}v{cell}h-{cell}z");
    }
    let mut o = format!("<svg width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\">");
    for (k, d) in paths.iter().enumerate().filter(|(_, d)| !d.is_empty()) {
        let fill = if k == STEPS {
            "#000\" stroke=\"#fff".to_owned()
        } else {
            format!("hsl({hue} 70% {}%)", 96 - k * 80 / (STEPS - 1))
        };
        let _ = write!(o, "<path d=\"{d}\" fill=\"{fill}\"/>");
    }
    o.push_str("</svg>");
    o
}
