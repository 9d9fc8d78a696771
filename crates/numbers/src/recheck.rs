//! Judging a report again under other tolerances, without the tensors.
//!
//! Counts at new tolerances follow from the histogram only up to the width of
//! its cells: a tensor is equal if no cell can hold a mismatch, different if
//! some cell holds nothing else, and undecided between.

use crate::Histogram;
use crate::compare::{Code, SCHEMA, Verdict};
use crate::criteria::{Change, Criterion, Fp64, Setting};
use crate::num;
use globset::GlobMatcher;
use scalify_ir::DType;
use serde::{Deserialize, Serialize};

/// What is read of a tensor of a report.
#[derive(Deserialize)]
struct Recorded {
    name: String,
    dtypes: [Option<String>; 2],
    findings: Vec<RecordedFinding>,
    setting: Option<Setting>,
    metrics: Option<RecordedMetrics>,
    fp64: Option<Fp64>,
}

#[derive(Deserialize)]
struct RecordedFinding {
    code: Code,
    message: String,
}

#[derive(Deserialize)]
struct RecordedMetrics {
    finite_pairs: u64,
    #[serde(with = "num")]
    max_abs: f64,
    #[serde(with = "num")]
    max_rel: f64,
    #[serde(with = "num")]
    rel_above: f64,
    nan_mismatches: u64,
    nan_pairs: u64,
    inf_mismatches: u64,
    inf_saturated: u64,
    not_allclose: u64,
    not_xla: u64,
    over_bound: Option<u64>,
    ulp: Option<RecordedUlp>,
    top: Option<RecordedTop>,
    histogram: Histogram,
}

#[derive(Deserialize)]
struct RecordedUlp {
    max: u64,
    over: u64,
    limit: u64,
    histogram: Vec<[u64; 2]>,
}

#[derive(Deserialize)]
struct RecordedTop {
    axis: usize,
    rows: u64,
    top1: u64,
    top5: u64,
}

#[derive(Deserialize)]
struct RecordedHead {
    schema: String,
    #[serde(default)]
    tensors: Option<Vec<Recorded>>,
}

/// A tensor judged again.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RecheckedTensor {
    /// Its name.
    pub name: String,
    /// Equal?
    pub verdict: Verdict,
    /// Criterion and tolerances.
    pub setting: Option<Setting>,
    /// Smallest and largest possible number of elements that break it.
    pub mismatched: Option<[u64; 2]>,
    /// What breaks it, or why it is not known.
    pub reasons: Vec<String>,
}

/// A report judged again.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rechecked {
    /// Equal?
    pub verdict: Verdict,
    /// Tensors that are equal, different, undecided.
    pub counts: [u64; 3],
    /// In the order of the report.
    pub tensors: Vec<RecheckedTensor>,
}

/// Judges a JSON or JSON-lines report of [`crate::compare`] after changes to
/// its settings.
///
/// # Errors
/// What is wrong with the report, with line and column.
pub fn recheck(
    text: &str,
    changes: &[Change],
    overrides: &[(GlobMatcher, Vec<Change>)],
) -> Result<Rechecked, String> {
    let mut recorded = Vec::new();
    let schema = |h: &RecordedHead| {
        if h.schema == SCHEMA {
            return Ok(());
        }
        Err(format!("schema \"{}\", expected \"{SCHEMA}\"", h.schema))
    };
    match serde_json::from_str::<RecordedHead>(text) {
        Ok(h) => {
            schema(&h)?;
            recorded = h.tensors.unwrap_or_default();
        }
        Err(whole) => {
            let mut lines = text.lines().enumerate();
            let head = lines.next().and_then(|(_, l)| serde_json::from_str::<RecordedHead>(l).ok());
            match head {
                Some(h) if h.tensors.is_none() => schema(&h)?,
                _ => return Err(format!("{whole}, expected a report of scalify compare")),
            }
            for (i, l) in lines.filter(|l| !l.1.trim().is_empty()) {
                let t = serde_json::from_str(l)
                    .map_err(|e| format!("line {}: {e}, expected a tensor", i + 1))?;
                recorded.push(t);
            }
        }
    }
    let tensors: Vec<RecheckedTensor> =
        recorded.iter().map(|t| tensor(t, changes, overrides)).collect();
    let count = |v| tensors.iter().filter(|t| t.verdict == v).count() as u64;
    let counts = [count(Verdict::Equal), count(Verdict::Different), count(Verdict::Unknown)];
    Ok(Rechecked { verdict: Verdict::of(counts), counts, tensors })
}

fn tensor(
    t: &Recorded,
    changes: &[Change],
    overrides: &[(GlobMatcher, Vec<Change>)],
) -> RecheckedTensor {
    let structural: Vec<String> = t
        .findings
        .iter()
        .filter(|f| !matches!(f.code, Code::Values | Code::Undecided))
        .map(|f| f.message.clone())
        .collect();
    let mut out = RecheckedTensor {
        name: t.name.clone(),
        verdict: Verdict::Different,
        setting: None,
        mismatched: None,
        reasons: structural,
    };
    let (Some(m), Some(old)) = (&t.metrics, &t.setting) else {
        return out;
    };
    let all: Vec<&Change> = changes
        .iter()
        .chain(overrides.iter().filter(|o| o.0.is_match(&t.name)).flat_map(|o| &o.1))
        .collect();
    // A preset starts afresh; else the recorded setting is changed.
    let dtype = t.dtypes[0].as_deref().and_then(DType::from_name);
    let fresh = all.iter().any(|c| matches!(c, Change::Preset(_)));
    let s = match dtype {
        Some(t) if fresh => Setting::with(t, all.iter().copied()),
        _ => old.clone().changed(all.iter().copied()),
    };
    let [lo, hi] = judge(&s, old, m, t.fp64, &mut out.reasons);
    let differs = !out.reasons.is_empty() && t.findings.iter().any(|f| f.code == Code::Dtype);
    out.mismatched = (hi != u64::MAX).then_some([lo, hi]);
    out.verdict = match (lo, hi) {
        _ if differs => Verdict::Different,
        (_, 0) => Verdict::Equal,
        (1.., _) => Verdict::Different,
        _ => Verdict::Unknown,
    };
    if out.verdict == Verdict::Unknown && hi != u64::MAX {
        out.reasons.push("the histogram is too coarse to tell; compare the tensors again".into());
    }
    out.setting = Some(s);
    out
}

/// Bounds of the number of mismatches; `[0, u64::MAX]` if nothing is known and
/// `[1, u64::MAX]` if there is one, of a criterion that does not count.
fn judge(
    s: &Setting,
    old: &Setting,
    m: &RecordedMetrics,
    fp64: Option<Fp64>,
    reasons: &mut Vec<String>,
) -> [u64; 2] {
    let special =
        s.special(m.nan_pairs, m.nan_mismatches, m.inf_mismatches, m.inf_saturated, reasons);
    let plus = |[lo, hi]: [u64; 2]| [lo.saturating_add(special), hi.saturating_add(special)];
    let yes_no = |close: bool| plus(if close { [0, 0] } else { [1, u64::MAX] });
    let unknown = |reasons: &mut Vec<String>, why: &str| {
        reasons.push(why.into());
        plus([0, u64::MAX])
    };
    match s.criterion {
        Criterion::Allclose if (s.atol, s.rtol) == (old.atol, old.rtol) => {
            plus([m.not_allclose, m.not_allclose])
        }
        Criterion::Xla if (s.atol, s.rtol) == (old.atol, old.rtol) => plus([m.not_xla, m.not_xla]),
        Criterion::Allclose => plus(count(m, |c, most| {
            let passes = c.error.1.min(most) <= s.atol + times(s.rtol, c.magnitude.0);
            let fails = c.error.0 > s.atol + times(s.rtol, c.magnitude.1);
            (passes, fails)
        })),
        Criterion::Xla => plus(count(m, |c, most| {
            let (lo, hi) = (c.error.0, c.error.1.min(most));
            let passes = hi <= s.atol || hi <= times(s.rtol, c.magnitude.0);
            let fails = lo > s.atol && lo > times(s.rtol, c.magnitude.1);
            (passes, fails)
        })),
        Criterion::Seed => {
            if m.max_abs <= s.atol {
                return yes_no(true);
            }
            if s.atol == m.rel_above {
                return yes_no(m.max_rel <= s.rtol);
            }
            // The largest relative error is over other elements now.
            let [lo, hi] = count(m, |c, most| {
                let hi = c.error.1.min(most);
                let passes = c.magnitude.1 <= s.atol || hi <= times(s.rtol, c.magnitude.0);
                let fails = c.magnitude.0 > s.atol && c.error.0 > times(s.rtol, c.magnitude.1);
                (passes, fails)
            });
            plus([lo.min(1), if hi == 0 { 0 } else { u64::MAX }])
        }
        Criterion::Ulp => match &m.ulp {
            None => unknown(reasons, "units in the last place need one element type"),
            Some(u) if u.max <= s.ulp => plus([0, 0]),
            Some(u) if u.limit == s.ulp => plus([u.over, u.over]),
            Some(u) => {
                // Bins from `from` up lie above; the one that holds the limit
                // may.
                let above = u.histogram.iter().filter(|b| b[0] > s.ulp).map(|b| b[1]);
                let above = above.fold(0, u64::saturating_add);
                let holds = u.histogram.iter().rev().find(|b| b[0] <= s.ulp).map_or(0, |b| b[1]);
                plus([above.max(1), above.saturating_add(holds).max(1)])
            }
        },
        Criterion::RmseFp64 => match fp64 {
            Some(f) => yes_no(f.actual_rmse <= s.multiplier * f.expected_rmse + s.atol),
            None => unknown(reasons, "the report has no f64 reference"),
        },
        Criterion::Bound => match m.over_bound {
            Some(n) => plus([n, n]),
            None => unknown(reasons, "the report has no bounds"),
        },
        Criterion::Top => match &m.top {
            Some(t) if s.axis.is_none_or(|a| a < 0 || a as usize == t.axis) => {
                let share = |n: u64| if t.rows == 0 { 1.0 } else { n as f64 / t.rows as f64 };
                yes_no(share(t.top1) >= s.min_top1 && share(t.top5) >= s.min_top5)
            }
            _ => unknown(reasons, "the report has no agreement along this axis"),
        },
    }
}

/// A relative tolerance of a magnitude that may be infinite.
fn times(rtol: f64, magnitude: f64) -> f64 {
    if rtol == 0.0 { 0.0 } else { rtol * magnitude }
}

/// Counts cells that cannot pass and those that may fail.
fn count(m: &RecordedMetrics, decide: impl Fn(&crate::Cell, f64) -> (bool, bool)) -> [u64; 2] {
    let (mut lo, mut hi) = (0u64, 0u64);
    for c in m.histogram.cells() {
        let (passes, fails) = decide(&c, m.max_abs);
        lo = lo.saturating_add(if fails { c.count } else { 0 });
        hi = hi.saturating_add(if passes { 0 } else { c.count });
    }
    [lo.min(m.finite_pairs), hi.min(m.finite_pairs)]
}

/// Writes it as JSON.
///
/// # Errors
/// None that occur.
pub fn json(r: &Rechecked) -> serde_json::Result<String> {
    let mut s = serde_json::to_string_pretty(r)?;
    s.push('\n');
    Ok(s)
}
