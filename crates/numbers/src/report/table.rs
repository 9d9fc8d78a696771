//! One line per tensor, comma separated.

use crate::compare::{Report, TensorReport};

/// The report as CSV (RFC 4180) with a head line. Missing values are empty;
/// numbers are as in JSON, with `NaN`, `Infinity` and `-Infinity`.
///
/// # Errors
/// None that occur: the table is built in memory.
pub fn csv(r: &Report) -> Result<String, csv::Error> {
    let mut w = csv::Writer::from_writer(Vec::new());
    w.write_record(COLUMNS.iter().map(|c| c.0))?;
    for t in &r.tensors {
        w.write_record(COLUMNS.iter().map(|c| c.1(t)))?;
    }
    let bytes = w.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn number(x: f64) -> String {
    #[derive(serde::Serialize)]
    struct X(#[serde(with = "crate::num")] f64);
    serde_json::to_string(&X(x)).unwrap_or_default().trim_matches('"').to_string()
}

fn kebab(x: impl serde::Serialize) -> String {
    serde_json::to_string(&x).unwrap_or_default().trim_matches('"').to_string()
}

fn metric(t: &TensorReport, f: impl Fn(&crate::Metrics) -> String) -> String {
    t.metrics.as_ref().map(f).unwrap_or_default()
}

fn sizes(d: &Option<Vec<i64>>) -> String {
    let text = |d: &Vec<i64>| d.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
    d.as_ref().map(text).unwrap_or_default()
}

type Column = (&'static str, fn(&TensorReport) -> String);

const COLUMNS: &[Column] = &[
    ("name", |t| t.name.clone()),
    ("verdict", |t| kebab(t.verdict)),
    ("expected_dtype", |t| t.dtypes[0].unwrap_or_default().into()),
    ("actual_dtype", |t| t.dtypes[1].unwrap_or_default().into()),
    ("expected_dims", |t| sizes(&t.dims[0])),
    ("actual_dims", |t| sizes(&t.dims[1])),
    ("criterion", |t| t.setting.as_ref().map(|s| s.criterion.name().into()).unwrap_or_default()),
    ("atol", |t| t.setting.as_ref().map(|s| number(s.atol)).unwrap_or_default()),
    ("rtol", |t| t.setting.as_ref().map(|s| number(s.rtol)).unwrap_or_default()),
    ("mismatched", |t| t.mismatched.map(|n| n.to_string()).unwrap_or_default()),
    ("elements", |t| metric(t, |m| m.elements.to_string())),
    ("finite_pairs", |t| metric(t, |m| m.finite_pairs.to_string())),
    ("max_abs", |t| metric(t, |m| number(m.max_abs))),
    ("mean_abs", |t| metric(t, |m| number(m.mean_abs))),
    ("rmse", |t| metric(t, |m| number(m.rmse))),
    ("max_rel", |t| metric(t, |m| number(m.max_rel))),
    ("mean_rel", |t| metric(t, |m| number(m.mean_rel))),
    ("p50", |t| metric(t, |m| number(m.percentiles.p50))),
    ("p90", |t| metric(t, |m| number(m.percentiles.p90))),
    ("p99", |t| metric(t, |m| number(m.percentiles.p99))),
    ("p99_9", |t| metric(t, |m| number(m.percentiles.p99_9))),
    ("cosine", |t| metric(t, |m| m.cosine.map(number).unwrap_or_default())),
    ("sqnr_db", |t| metric(t, |m| m.sqnr_db.map(number).unwrap_or_default())),
    ("max_ulp", |t| metric(t, |m| m.ulp.as_ref().map(|u| u.max.to_string()).unwrap_or_default())),
    ("different", |t| metric(t, |m| m.different.to_string())),
    ("sign_flips", |t| metric(t, |m| m.sign_flips.to_string())),
    ("nan_mismatches", |t| metric(t, |m| m.nan_mismatches.to_string())),
    ("inf_mismatches", |t| metric(t, |m| m.inf_mismatches.to_string())),
    ("top1", |t| metric(t, |m| m.top.as_ref().map(|t| number(t.share1())).unwrap_or_default())),
    ("top5", |t| metric(t, |m| m.top.as_ref().map(|t| number(t.share5())).unwrap_or_default())),
    ("findings", |t| t.findings.iter().map(|f| f.message.as_str()).collect::<Vec<_>>().join("; ")),
];
