//! `scalify compare`.

use crate::args::Color;
use crate::{Exit, output};
use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use globset::{Glob, GlobMatcher};
use scalify_ir::DType;
use scalify_numbers::compare::{Job, Report, Verdict, compare};
use scalify_numbers::criteria::Change;
use scalify_numbers::report;
use scalify_tensors::Archive;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Format of a report.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON value
    Json,
    /// A JSON value per line
    Jsonl,
    /// Comma separated values
    Csv,
    /// JUnit XML
    Junit,
}

/// Criterion and tolerances; what is not given is the preset of each tensor's
/// element type.
#[derive(Args)]
pub(crate) struct ToleranceArgs {
    /// Start from a preset: exact, f64, f32, bf16, f16, f8, int8
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// allclose, xla, seed, ulp, rmse-fp64, bound or top (see docs/NUMBERS.md)
    #[arg(long, value_name = "NAME")]
    criterion: Option<String>,
    /// Absolute tolerance
    #[arg(long, value_name = "X")]
    atol: Option<String>,
    /// Relative tolerance; the expected value is the denominator
    #[arg(long, value_name = "X")]
    rtol: Option<String>,
    /// Allow this distance in units in the last place (criterion ulp)
    #[arg(long, value_name = "N")]
    ulp: Option<String>,
    /// NaN equals NaN
    #[arg(long)]
    equal_nan: bool,
    /// What an infinity may meet: equal, saturate (the largest finite value
    /// too) or ignore
    #[arg(long, value_name = "POLICY")]
    inf: Option<String>,
    /// Axis along which the largest elements are compared
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    axis: Option<String>,
    /// Smallest share of rows with the same largest element (criterion top)
    #[arg(long, value_name = "SHARE")]
    min_top1: Option<String>,
    /// Smallest share of rows whose largest expected element is among the five
    /// largest actual ones (criterion top)
    #[arg(long, value_name = "SHARE")]
    min_top5: Option<String>,
    /// Allowed RMSE as a multiple of the expected one's (criterion rmse-fp64)
    #[arg(long, value_name = "X")]
    multiplier: Option<String>,
    /// Elements are sums of this many terms (criterion bound)
    #[arg(long, value_name = "N")]
    sum_length: Option<String>,
    /// Settings of tensors whose name matches, e.g.
    /// 'layers.*.norm: atol=1e-3, criterion=xla' (may repeat, later ones win)
    #[arg(long = "set", value_name = "GLOB: KEY=VALUE, ..")]
    overrides: Vec<String>,
}

impl ToleranceArgs {
    /// Changes to all tensors, and to those that match.
    ///
    /// # Errors
    /// Keys, values and patterns that do not exist.
    pub(crate) fn changes(&self) -> anyhow::Result<(Vec<Change>, Vec<(GlobMatcher, Vec<Change>)>)> {
        let mut all = Vec::new();
        for (key, value) in [
            ("preset", &self.preset),
            // `ulp` chooses its criterion; one that is named comes after.
            ("ulp", &self.ulp),
            ("criterion", &self.criterion),
            ("atol", &self.atol),
            ("rtol", &self.rtol),
            ("inf", &self.inf),
            ("axis", &self.axis),
            ("min_top1", &self.min_top1),
            ("min_top5", &self.min_top5),
            ("multiplier", &self.multiplier),
            ("sum_length", &self.sum_length),
        ] {
            if let Some(v) = value {
                all.push(Change::parse(&format!("{key}={v}")).map_err(|e| anyhow!("--{e}"))?);
            }
        }
        if self.equal_nan {
            all.push(Change::EqualNan(true));
        }
        let overrides = self
            .overrides
            .iter()
            .map(|text| {
                let bad = |e: String| anyhow!("--set '{text}': {e}");
                let (pattern, changes) =
                    text.rsplit_once(':').ok_or_else(|| bad("expected GLOB: KEY=VALUE".into()))?;
                let changes = changes
                    .split(',')
                    .map(|c| Change::parse(c.trim()).map_err(bad))
                    .collect::<Result<_, _>>()?;
                Ok((glob(pattern.trim())?, changes))
            })
            .collect::<anyhow::Result<_>>()?;
        Ok((all, overrides))
    }
}

fn glob(pattern: &str) -> anyhow::Result<GlobMatcher> {
    Ok(Glob::new(pattern).with_context(|| format!("pattern '{pattern}'"))?.compile_matcher())
}

#[derive(Args)]
pub(crate) struct CompareArgs {
    /// The expected tensors: npz, npy, safetensors, or a folder of npy files
    expected: PathBuf,
    /// The actual tensors
    actual: PathBuf,
    #[command(flatten)]
    tolerance: ToleranceArgs,
    /// Third file with f64 reference tensors (criterion rmse-fp64)
    #[arg(long, value_name = "FILE")]
    fp64: Option<PathBuf>,
    /// File with the largest allowed error of each element, or, with
    /// --sum-length, the sum of the magnitudes of its terms (criterion bound)
    #[arg(long, value_name = "FILE")]
    bound: Option<PathBuf>,
    /// Element type of tensors whose file does not name it: TYPE or GLOB=TYPE
    /// (may repeat)
    #[arg(long, value_name = "TYPE")]
    dtype: Vec<String>,
    /// Both files are bare elements of this type and sizes, e.g. 'bf16[8,128]'
    #[arg(long, value_name = "SHAPE")]
    raw: Option<String>,
    /// Element types may differ
    #[arg(long)]
    ignore_dtype: bool,
    /// How many of the worst elements to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    worst: usize,
    /// Exact percentiles of tensors with more than 2^24 elements too
    #[arg(long)]
    exact_percentiles: bool,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long)]
    json: bool,
    /// Also write a report; its format is that of the ending: .json, .jsonl,
    /// .csv, .xml (JUnit) or .txt (may repeat)
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
    /// Worker threads, 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Show the metrics of equal tensors too
    #[arg(long)]
    all: bool,
    /// Print nothing; the exit code tells
    #[arg(short, long)]
    quiet: bool,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
}

/// The exit code of a verdict.
pub(crate) fn exit(v: Verdict) -> Exit {
    match v {
        Verdict::Equal => Exit::Success,
        Verdict::Different => Exit::Refuted,
        Verdict::Unknown => Exit::Unknown,
    }
}

pub(crate) fn run(a: &CompareArgs) -> anyhow::Result<Exit> {
    let (changes, overrides) = a.tolerance.changes()?;
    // Before the work, not after it.
    let targets: Vec<(&Path, Format)> =
        a.report.iter().map(|p| Ok((p.as_path(), format_of(p)?))).collect::<anyhow::Result<_>>()?;
    let open = |p: &Path| match &a.raw {
        Some(shape) => {
            let (t, dims) = raw_shape(shape)?;
            Ok::<Archive, anyhow::Error>(Archive::open_raw(p, t, &dims, 0)?)
        }
        None => Ok(Archive::open(p)?),
    };
    let (expected, actual) = (open(&a.expected)?, open(&a.actual)?);
    let fp64 = a.fp64.as_deref().map(Archive::open).transpose()?;
    let bound = a.bound.as_deref().map(Archive::open).transpose()?;
    let job = Job {
        changes,
        overrides,
        types: a.dtype.iter().map(|t| dtype(t)).collect::<anyhow::Result<_>>()?,
        fp64: fp64.as_ref(),
        bound: bound.as_ref(),
        ignore_dtype: a.ignore_dtype,
        worst: a.worst.min(1000),
        exact_percentiles: a.exact_percentiles,
        threads: match a.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        },
    };
    let names = [&a.expected, &a.actual].map(|p| p.display().to_string());
    let r = compare([&names[0], &names[1]], &expected, &actual, &job)?;
    for (path, format) in targets {
        let text = render(&r, format, true, false)?;
        let name = path.display();
        scalify_tensors::save_atomically(path, |f| {
            f.write_all(text.as_bytes()).with_context(|| format!("cannot write {name}"))
        })?;
    }
    if !a.quiet {
        let format = if a.json { Format::Json } else { a.format };
        output::stdout(&render(&r, format, a.all, output::stdout_color(a.color))?)?;
    }
    Ok(exit(r.verdict))
}

fn render(r: &Report, f: Format, all: bool, color: bool) -> anyhow::Result<String> {
    Ok(match f {
        Format::Text => report::text(r, all, color),
        Format::Json => report::json(r)?,
        Format::Jsonl => report::jsonl(r)?,
        Format::Csv => report::csv(r)?,
        Format::Junit => report::junit(r)?,
    })
}

pub(crate) fn format_of(p: &Path) -> anyhow::Result<Format> {
    Ok(match p.extension().and_then(|e| e.to_str()) {
        Some("json") => Format::Json,
        Some("jsonl") => Format::Jsonl,
        Some("csv") => Format::Csv,
        Some("xml") => Format::Junit,
        Some("txt") => Format::Text,
        _ => {
            bail!("--report {}: expected the ending .json, .jsonl, .csv, .xml or .txt", p.display())
        }
    })
}

fn type_named(t: &str) -> anyhow::Result<DType> {
    DType::from_name(t)
        .ok_or_else(|| anyhow!("'{t}', expected an HLO element type such as bf16 or f8e4m3fn"))
}

fn dtype(text: &str) -> anyhow::Result<(GlobMatcher, DType)> {
    let (pattern, t) = text.rsplit_once('=').unwrap_or(("*", text));
    Ok((glob(pattern)?, type_named(t).context("--dtype")?))
}

fn raw_shape(text: &str) -> anyhow::Result<(DType, Vec<i64>)> {
    let parse = || {
        let (t, dims) = text.trim().strip_suffix(']')?.split_once('[')?;
        let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty());
        Some((t, dims.map(|d| d.parse::<i64>().ok()).collect::<Option<Vec<_>>>()?))
    };
    let (t, dims) =
        parse().ok_or_else(|| anyhow!("--raw '{text}': expected a shape such as f32[8,128]"))?;
    Ok((type_named(t).context("--raw")?, dims))
}
