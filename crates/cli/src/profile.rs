//! `scalify profile`: cost of a module, and traces of it.

use crate::{Exit, input, output};
use anyhow::Context as _;
use clap::Args;
use scalify_claim::{Mesh, parse_sdy_meshes};
use scalify_ir::Module;
use scalify_profile::attach::{Attached, Names, attach};
use scalify_profile::compare::{Side, compare};
use scalify_profile::cost::{Axis, ModuleCost};
use scalify_profile::peaks::Peaks;
use scalify_profile::report::{Doc, TraceInfo};
use scalify_profile::trace::{self, Trace};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Largest report of `diff` (bytes).
const MAX_JSON: u64 = 512 << 20;

#[derive(Args)]
#[command(after_help = "Exit codes: 0 done, 2 bad usage or input")]
pub(crate) struct ProfileArgs {
    /// The module that ran: HLO text or proto, may be compressed. Traces name
    /// instructions of the compiled module
    module: PathBuf,
    /// Trace of it: Chrome trace JSON (jax.profiler, torch.profiler), XPlane
    /// protobuf, may be compressed; or the folder of `jax.profiler.trace`
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// A later trace to compare with
    #[arg(long, value_name = "TRACE", requires = "trace")]
    trace2: Option<PathBuf>,
    /// The module of the later trace, if it changed
    #[arg(long, value_name = "MODULE", requires = "trace2")]
    module2: Option<PathBuf>,
    /// Report of `scalify diff --json` of both modules: was precision traded
    /// for speed?
    #[arg(long, value_name = "FILE", requires = "trace2")]
    numbers: Option<PathBuf>,
    /// Peak FLOP/s of a device, e.g. 312T
    #[arg(long, value_name = "RATE", value_parser = crate::args::rate, requires = "peak_bytes")]
    peak_flops: Option<f64>,
    /// Peak bytes/s of a device's memory, e.g. 2.04T
    #[arg(long, value_name = "RATE", value_parser = crate::args::rate, requires = "peak_flops")]
    peak_bytes: Option<f64>,
    /// Device mesh, major axis first, e.g. dp=2,tp=4: names the axes of
    /// collectives
    #[arg(long, value_name = "AXES")]
    mesh: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// List everything
    #[arg(long)]
    all: bool,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
}

/// A trace with what it is attached to.
struct Loaded {
    file: String,
    trace: Trace,
    attached: Attached,
}

fn load(path: &Path, m: &Module, cost: &ModuleCost) -> anyhow::Result<Loaded> {
    let names = Names::new(m, cost);
    let file = trace::find(path)?;
    let trace = trace::read(&file, &|n| names.has(n))?;
    let attached = attach(m, cost, &names, &trace);
    Ok(Loaded { file: file.display().to_string(), trace, attached })
}

/// The mesh as given, else the first that the module declares.
fn mesh(a: &ProfileArgs, m: &Module) -> anyhow::Result<Vec<Axis>> {
    if let Some(t) = &a.mesh {
        return Ok(Mesh::parse(t).map_err(|e| anyhow::anyhow!("--mesh: {e}"))?.axes);
    }
    let declared = m.header_attr("xla.sdy.meshes").and_then(|t| parse_sdy_meshes(t).ok());
    let first = declared.and_then(|v| v.into_iter().find(|m| !m.mesh.axes.is_empty()));
    Ok(first.map_or_else(Vec::new, |m| m.mesh.axes))
}

fn numbers(path: &Path) -> anyhow::Result<Value> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    anyhow::ensure!(size <= MAX_JSON, "{shown}: expected at most {} MB", MAX_JSON >> 20);
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let v: Value =
        serde_json::from_slice(&bytes).with_context(|| format!("{shown}: expected JSON"))?;
    let known =
        v.get("schema").and_then(Value::as_str).is_some_and(|s| s.starts_with("scalify-diff/"));
    anyhow::ensure!(known, "{shown}: expected a report of `scalify diff --json`");
    Ok(v)
}

pub(crate) fn run(a: &ProfileArgs) -> anyhow::Result<Exit> {
    let m = input::load(&a.module)?;
    let cost = ModuleCost::new(&m);
    let mesh = mesh(a, &m)?;
    let given = a.peak_flops.zip(a.peak_bytes).map(|(flops, bytes)| Peaks {
        flops,
        bytes,
        source: "given".into(),
    });
    let first = a.trace.as_ref().map(|p| load(p, &m, &cost)).transpose()?;
    let file = a.module.display().to_string();
    let shown = first.as_ref().map(|t| (t.file.as_str(), &t.trace, &t.attached));
    let mut doc = Doc::new(&file, &m, &cost, &mesh, shown, given);
    if let (Some(path), Some(x)) = (&a.trace2, &first) {
        let other = match &a.module2 {
            Some(p) => {
                let n = input::load(p)?;
                let c = ModuleCost::new(&n);
                Some((p.display().to_string(), n, c))
            }
            None => None,
        };
        let (n, c) = other.as_ref().map_or((&m, &cost), |o| (&o.1, &o.2));
        let y = load(path, n, c)?;
        let diff = a.numbers.as_ref().map(|p| numbers(p)).transpose()?;
        let info = TraceInfo::new(&y.file, &y.trace, &y.attached);
        doc.comparison = Some(compare(
            &Side { module: &m, attached: &x.attached },
            &Side { module: n, attached: &y.attached },
            info,
            other.as_ref().map(|o| o.0.clone()),
            diff.as_ref(),
        ));
    }
    if let Some(path) = &a.html {
        std::fs::write(path, doc.html())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if !a.quiet {
        output::stdout(&if a.json { doc.json()? } else { doc.text(a.all) })?;
    }
    // Modules are large and the process ends.
    std::mem::forget((m, doc));
    Ok(Exit::Success)
}
