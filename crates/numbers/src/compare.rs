//! Comparison of two files of named tensors.

use crate::criteria::{Change, Criterion, Fp64, Setting};
use crate::engine::{Bound, Options, measure};
use crate::metrics::Metrics;
use globset::GlobMatcher;
use rayon::prelude::*;
use scalify_ir::DType;
use scalify_tensors::{Archive, Stored, Tensor, TensorError};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Tensors with more elements are measured one after the other, each by all
/// workers; smaller ones side by side.
const LARGE: u64 = 1 << 20;

/// Is it equal?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// By the criterion, and nothing else differs.
    Equal,
    /// Something differs.
    Different,
    /// It could not be decided.
    Unknown,
}

impl Verdict {
    /// Of counts of tensors that are equal, different, undecided. Nothing
    /// compared is unknown.
    pub fn of([equal, different, unknown]: [u64; 3]) -> Verdict {
        match (equal, different, unknown) {
            (_, 1.., _) => Verdict::Different,
            (1.., 0, 0) => Verdict::Equal,
            _ => Verdict::Unknown,
        }
    }
}

/// What differs, but for values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// Expected, but not in the actual file.
    Missing,
    /// In the actual file only.
    Extra,
    /// Sizes differ: values are not compared.
    Shape,
    /// Element types differ; values are compared as `f64`.
    Dtype,
    /// The criterion does not hold.
    Values,
    /// The criterion could not be applied.
    Undecided,
}

/// Something found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// What it is.
    pub code: Code,
    /// In words.
    pub message: String,
}

/// One tensor of the report.
#[derive(Clone, Debug, Serialize)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// Equal?
    pub verdict: Verdict,
    /// Element types: expected, actual.
    pub dtypes: [Option<&'static str>; 2],
    /// Sizes: expected, actual.
    pub dims: [Option<Vec<i64>>; 2],
    /// Criterion and tolerances.
    pub setting: Option<Setting>,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Elements that break the criterion.
    pub mismatched: Option<u64>,
    /// `None` if values could not be compared.
    pub metrics: Option<Metrics>,
    /// Errors against the `f64` reference.
    pub fp64: Option<Fp64>,
}

/// The whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `scalify-compare/1`
    pub schema: &'static str,
    /// The expected file.
    pub expected: String,
    /// The actual file.
    pub actual: String,
    /// Equal?
    pub verdict: Verdict,
    /// Tensors that are equal, different, undecided.
    pub counts: [u64; 3],
    /// In the order of the expected file; extra ones last.
    pub tensors: Vec<TensorReport>,
}

/// Value of [`Report::schema`].
pub const SCHEMA: &str = "scalify-compare/1";

/// What to compare, and how.
#[derive(Default)]
pub struct Job<'a> {
    /// Changes to every tensor's preset.
    pub changes: Vec<Change>,
    /// Changes to tensors whose name matches, applied in order after those.
    pub overrides: Vec<(GlobMatcher, Vec<Change>)>,
    /// Type of tensors whose file does not name it.
    pub types: Vec<(GlobMatcher, DType)>,
    /// `f64` reference tensors.
    pub fp64: Option<&'a Archive>,
    /// Bounds of the errors.
    pub bound: Option<&'a Archive>,
    /// Do element types that differ leave tensors equal?
    pub ignore_dtype: bool,
    /// How many of the worst elements to name.
    pub worst: usize,
    /// See [`Options::exact_percentiles`].
    pub exact_percentiles: bool,
    /// Workers, at least 1.
    pub threads: usize,
}

impl Job<'_> {
    fn changes_of(&self, name: &str) -> Vec<&Change> {
        let more = self.overrides.iter().filter(|o| o.0.is_match(name)).flat_map(|o| &o.1);
        self.changes.iter().chain(more).collect()
    }

    fn hint(&self, name: &str) -> Option<DType> {
        self.types.iter().rev().find(|t| t.0.is_match(name)).map(|t| t.1)
    }
}

/// A tensor to be: its place in both archives.
struct Pairing {
    name: String,
    e: Option<usize>,
    a: Option<usize>,
}

fn pairings(e: &Archive, a: &Archive) -> Vec<Pairing> {
    // Two files with a single tensor each: names do not matter.
    if let ([x], [_]) = (e.entries(), a.entries()) {
        return vec![Pairing { name: x.name.clone(), e: Some(0), a: Some(0) }];
    }
    let of: HashMap<&str, usize> =
        a.entries().iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
    let mut all: Vec<Pairing> = e
        .entries()
        .iter()
        .enumerate()
        .map(|(i, t)| Pairing {
            name: t.name.clone(),
            e: Some(i),
            a: of.get(t.name.as_str()).copied(),
        })
        .collect();
    let known: std::collections::HashSet<&str> =
        e.entries().iter().map(|t| t.name.as_str()).collect();
    for (i, t) in a.entries().iter().enumerate() {
        if !known.contains(t.name.as_str()) {
            all.push(Pairing { name: t.name.clone(), e: None, a: Some(i) });
        }
    }
    all
}

/// Compares two archives.
///
/// # Errors
/// Unreadable files, element types nobody names, axes that do not exist.
pub fn compare(
    names: [&str; 2],
    expected: &Archive,
    actual: &Archive,
    job: &Job,
) -> Result<Report, TensorError> {
    let all = pairings(expected, actual);
    let size = |p: &Pairing| {
        let dims = p.e.and_then(|i| expected.entries().get(i)).map(|t| t.dims.iter());
        dims.map_or(0, |d| d.fold(1u64, |n, &d| n.saturating_mul(d.max(0) as u64)))
    };
    let one = |p: &Pairing, threads| tensor(p, expected, actual, job, threads);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(job.threads.max(1)).build();
    let small: Vec<&Pairing> = all.iter().filter(|p| size(p) <= LARGE).collect();
    let run = || small.par_iter().map(|p| one(p, 1)).collect::<Vec<_>>();
    let mut small = match pool {
        Ok(pool) => pool.install(run),
        Err(_) => run(),
    }
    .into_iter();
    let mut tensors = Vec::with_capacity(all.len());
    for p in &all {
        let t = if size(p) <= LARGE { small.next() } else { None };
        tensors.push(t.unwrap_or_else(|| one(p, job.threads))?);
    }
    let count = |v| tensors.iter().filter(|t| t.verdict == v).count() as u64;
    let counts = [count(Verdict::Equal), count(Verdict::Different), count(Verdict::Unknown)];
    let verdict = Verdict::of(counts);
    let [e, a] = names.map(String::from);
    Ok(Report { schema: SCHEMA, expected: e, actual: a, verdict, counts, tensors })
}

/// Types of both sides, one naming the other's where a file does not.
fn types(job: &Job, name: &str, e: Option<Stored>, a: Option<Stored>) -> [Option<DType>; 2] {
    let hint = job.hint(name);
    let own = |s: Option<Stored>| match s {
        Some(Stored::Known(t)) => Some(t),
        Some(Stored::Opaque(n)) => hint.filter(|t| t.literal_bytes() as u32 == n),
        None => None,
    };
    let (mut x, mut y) = (own(e), own(a));
    let other = |s: Option<Stored>, t: Option<DType>| match s {
        Some(Stored::Opaque(n)) => t.filter(|t| t.literal_bytes() as u32 == n),
        _ => None,
    };
    x = x.or_else(|| other(e, y)).or_else(|| e.and_then(Stored::dtype));
    y = y.or_else(|| other(a, x)).or_else(|| a.and_then(Stored::dtype));
    [x, y]
}

fn tensor(
    p: &Pairing,
    expected: &Archive,
    actual: &Archive,
    job: &Job,
    threads: usize,
) -> Result<TensorReport, TensorError> {
    let ee = p.e.and_then(|i| expected.entries().get(i));
    let ea = p.a.and_then(|i| actual.entries().get(i));
    let types = types(job, &p.name, ee.map(|t| t.stored), ea.map(|t| t.stored));
    let mut r = TensorReport {
        name: p.name.clone(),
        verdict: Verdict::Different,
        dtypes: types.map(|t| t.map(DType::name)),
        dims: [ee, ea].map(|t| t.map(|t| t.dims.to_vec())),
        setting: None,
        findings: Vec::new(),
        mismatched: None,
        metrics: None,
        fp64: None,
    };
    let mut find = |code, message: String| r.findings.push(Finding { code, message });
    let (Some(i), Some(j)) = (p.e, p.a) else {
        if p.e.is_some() {
            find(Code::Missing, "not in the actual file".into());
        } else {
            find(Code::Extra, "not in the expected file".into());
        }
        return Ok(r);
    };
    let (te, ta) = (expected.tensor(i, types[0])?, actual.tensor(j, types[1])?);
    let mut differs = false;
    if te.dtype() != ta.dtype() {
        differs = !job.ignore_dtype;
        find(Code::Dtype, format!("expected {}, got {}", te.dtype(), ta.dtype()));
    }
    if te.dims() != ta.dims() {
        find(Code::Shape, format!("expected {:?}, got {:?}", te.dims(), ta.dims()));
        return Ok(r);
    }
    let setting = Setting::with(te.dtype(), job.changes_of(&p.name));
    let extra = |archive: Option<&Archive>, what: &str| -> Result<Option<Tensor>, TensorError> {
        let Some(archive) = archive else { return Ok(None) };
        let at = match archive.entries() {
            [_] if expected.entries().len() == 1 => Some(0),
            _ => archive.find(&p.name),
        };
        let Some(at) = at else { return Ok(None) };
        let t = archive.tensor(at, job.hint(&p.name))?;
        if t.dims() != te.dims() {
            return Err(TensorError::Request {
                name: format!("{what} {}", p.name),
                message: format!("sizes {:?}", t.dims()),
                expected: format!("{:?}", te.dims()),
            });
        }
        Ok(Some(t))
    };
    let bounds = extra(job.bound, "bound")?;
    let factor = setting.bound_factor(te.dtype());
    let bound = match (&bounds, setting.sum_length) {
        (Some(b), _) => Some(Bound::Of(b, factor)),
        (None, Some(_)) if job.bound.is_none() && Setting::roundoff(te.dtype()).is_some() => {
            Some(Bound::OfExpected(factor))
        }
        _ => None,
    };
    let o = Options {
        atol: setting.atol,
        rtol: setting.rtol,
        ulp: setting.ulp,
        worst: job.worst,
        exact_percentiles: job.exact_percentiles,
        threads,
        bound,
        axis: setting.axis.filter(|_| !te.dtype().is_complex()),
    };
    let m = measure(&te, &ta, &o)?;
    if setting.criterion == Criterion::RmseFp64 {
        if let Some(t) = extra(job.fp64, "f64 reference")? {
            let o = Options { worst: 0, bound: None, axis: None, ..o };
            let (x, y) = (measure(&t, &te, &o)?, measure(&t, &ta, &o)?);
            r.fp64 = Some(Fp64 { expected_rmse: x.rmse, actual_rmse: y.rmse });
        }
    }
    let j = setting.judge(&m, r.fp64);
    r.mismatched = j.mismatched;
    r.verdict = match j.equal {
        Some(true) if !differs => Verdict::Equal,
        None if !differs => Verdict::Unknown,
        _ => Verdict::Different,
    };
    let code = if j.equal.is_none() { Code::Undecided } else { Code::Values };
    r.findings.extend(j.reasons.into_iter().map(|message| Finding { code, message }));
    r.setting = Some(setting);
    r.metrics = Some(m);
    Ok(r)
}
