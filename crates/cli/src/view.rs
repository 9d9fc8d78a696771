//! `scalify view`.

use crate::progress::Bar;
use crate::{Exit, input, output, verify};
use anyhow::Context as _;
use clap::Args;
use scalify_claim::{Claim, Mesh};
use scalify_ir::Module;
use scalify_report::Subject;
use scalify_report::sources::Sources;
use scalify_view::{Graph, Page};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest report or file of numbers (bytes).
const MAX_JSON: u64 = 512 << 20;
/// Largest page (bytes).
const MAX_PAGE: usize = 512 << 20;
/// Instructions of an SVG.
const MAX_SVG: usize = 400;
/// Passes of a page.
const MAX_PASSES: usize = 1000;
/// Instructions of all passes.
const MAX_PASS_INSTRUCTIONS: usize = 4_000_000;

#[derive(Args)]
#[command(after_help = "Exit codes: 0 done, 2 bad usage or input")]
pub(crate) struct ViewArgs {
    /// HLO text or proto, may be compressed; text of several modules, shown as
    /// passes; or a folder that `--xla_dump_to`
    /// wrote with `--xla_dump_hlo_pass_re=.*`
    pub(crate) module: PathBuf,
    /// The distributed program, if MODULE is a baseline: both are shown in
    /// step, with the relations that the prover finds
    pub(crate) dist: Option<PathBuf>,
    /// Page to write, `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Take verdict and relations from this report (`verify --json
    /// --relations`) instead of running the prover
    #[arg(long, value_name = "FILE", requires = "dist")]
    pub(crate) report: Option<PathBuf>,
    /// Colour by these numbers or words: JSON, {name: value}, {name: {field:
    /// value}} or [{"instruction": name, field: value}]
    #[arg(long, value_name = "FILE")]
    pub(crate) numbers: Option<PathBuf>,
    /// Do not run the prover on two modules
    #[arg(long)]
    pub(crate) no_prove: bool,
    /// Time for the prover
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "60s")]
    pub(crate) time_limit: Duration,
    /// Device mesh, major axis first, e.g. dp=2,tp=4
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh: Option<String>,
    /// Spec file for the prover (see docs/SPEC.md)
    #[arg(long, value_name = "FILE", requires = "dist")]
    pub(crate) spec: Option<PathBuf>,
    /// Where source files are looked up (may repeat)
    #[arg(long, value_name = "DIR")]
    pub(crate) source_root: Vec<PathBuf>,
    /// Of a dump folder with several modules: the one whose name holds this
    #[arg(long, value_name = "NAME")]
    pub(crate) module_name: Option<String>,
    /// Write Graphviz DOT, of a neighbourhood with --around
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
    /// Write the neighbourhood of --around as SVG
    #[arg(long, value_name = "FILE", requires = "around")]
    pub(crate) svg: Option<PathBuf>,
    /// Centre of the neighbourhood
    #[arg(long, value_name = "INSTRUCTION")]
    pub(crate) around: Option<String>,
    /// Operand or user steps of the neighbourhood
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) hops: usize,
    /// Write JSON for Model Explorer
    #[arg(long, value_name = "FILE")]
    pub(crate) model_explorer: Option<PathBuf>,
}

pub(crate) fn run(a: &ViewArgs) -> anyhow::Result<Exit> {
    let wanted = [&a.output, &a.dot, &a.svg, &a.model_explorer];
    anyhow::ensure!(
        wanted.iter().any(|w| w.is_some()),
        "nothing to write: expected -o PAGE, --dot, --svg or --model-explorer"
    );
    let mesh = match &a.mesh {
        Some(t) => Some(Mesh::parse(t).map_err(|e| anyhow::anyhow!("--mesh: {e}"))?),
        None => None,
    };
    let is_dir = std::fs::metadata(&a.module).is_ok_and(|m| m.is_dir());
    let mut page = Page { title: title(a), ..Page::default() };
    let mut modules: Vec<(String, Module)> = Vec::new();
    if is_dir {
        anyhow::ensure!(a.dist.is_none(), "expected one folder of passes, or two modules");
        for (name, module) in passes(a)? {
            page.passes.push(name.clone());
            modules.push((name, module));
        }
    } else if let Some(dist) = &a.dist {
        let (x, y) = input::load_both(&a.module, dist)?;
        modules.push((name(&a.module), x));
        modules.push((name(dist), y));
    } else {
        modules = one_or_many(a)?;
        if modules.len() > 1 {
            page.passes = modules.iter().map(|m| m.0.clone()).collect();
        }
    }
    if let Some(path) = &a.numbers {
        page.numbers = Some(json(path)?);
    }
    page.report = match (&a.report, modules.as_slice()) {
        (Some(path), _) => Some(json(path)?),
        (None, [(_, base), (_, dist)]) if a.dist.is_some() && !a.no_prove => {
            Some(prove(a, base, dist, mesh.clone())?)
        }
        _ => None,
    };
    let shown_mesh = mesh.or_else(|| page.report.as_ref().and_then(report_mesh));
    let mut graphs = Vec::with_capacity(modules.len());
    for (k, (name, m)) in modules.iter().enumerate() {
        // The baseline runs on one device.
        let mesh = shown_mesh.clone().filter(|_| a.dist.is_none() || k == 1);
        graphs.push(Graph::new(m, name, mesh)?);
    }
    if let Some(path) = &a.output {
        let mut sources = Sources::new(a.source_root.clone());
        let mut line = |file: &str, n: u32| sources.line(file, n).map(str::to_owned);
        let html = scalify_view::render(&page, &graphs, &mut line)?;
        anyhow::ensure!(
            html.len() <= MAX_PAGE,
            "the page would have {} MB, expected at most {}",
            html.len() >> 20,
            MAX_PAGE >> 20
        );
        write(path, &html)?;
    }
    let last = graphs.last().context("no module")?;
    let around = match &a.around {
        Some(n) => {
            let at = last.find(n);
            let at = at.with_context(|| format!("{}: no instruction `{n}`", last.name))?;
            last.around(at, a.hops, MAX_SVG)
        }
        None => Vec::new(),
    };
    if let Some(path) = &a.dot {
        write(path, &scalify_view::dot::render(last, &around))?;
    }
    if let Some(path) = &a.svg {
        write(path, &scalify_view::svg::render(last, &around))?;
    }
    if let Some(path) = &a.model_explorer {
        let all = scalify_view::explorer::render(&graphs);
        write(path, &serde_json::to_string(&all)?)?;
    }
    drop(graphs);
    std::mem::forget(modules);
    Ok(Exit::Success)
}

fn name(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

fn title(a: &ViewArgs) -> String {
    match &a.dist {
        Some(d) => format!("{} – {}", name(&a.module), name(d)),
        None => name(&a.module),
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return output::stdout(text);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn json(path: &Path) -> anyhow::Result<Value> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    anyhow::ensure!(size <= MAX_JSON, "{shown} is too big");
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let v: Value =
        serde_json::from_slice(&bytes).with_context(|| format!("{shown}: expected JSON"))?;
    anyhow::ensure!(
        v.is_object() || v.is_array(),
        "{shown}: expected a JSON object or array at the top"
    );
    Ok(v)
}

fn report_mesh(report: &Value) -> Option<Mesh> {
    let axes = report.get("mesh")?.as_array()?;
    let axis = |a: &Value| Some((a.get("axis")?.as_str()?.to_owned(), a.get("size")?.as_i64()?));
    let axes: Vec<(String, i64)> = axes.iter().map(axis).collect::<Option<_>>()?;
    if axes.is_empty() { None } else { Mesh::new(axes).ok() }
}

/// The report of the prover alone, with relations.
fn prove(a: &ViewArgs, base: &Module, dist: &Module, mesh: Option<Mesh>) -> anyhow::Result<Value> {
    let mut claim = match &a.spec {
        Some(path) => verify::spec_file(path)?,
        None => Claim::default(),
    };
    if mesh.is_some() {
        claim.mesh = mesh;
    }
    let bar = Bar::new(false);
    let options = scalify_prove::Options {
        time_limit: Some(a.time_limit),
        progress: Some(&bar),
        ..Default::default()
    };
    let (outcome, related) = scalify_prove::verify_related(base, dist, &claim, &options);
    bar.done();
    let decision = scalify_refute::Decision::of(outcome);
    let problem = scalify_prove::problem::setup(base, dist, &claim);
    let (base_file, dist_file) = (a.module.display().to_string(), a.dist.as_deref());
    let subject = Subject {
        decision: &decision,
        problem: &problem,
        base,
        dist,
        base_file: &base_file,
        dist_file: &dist_file.map(|d| d.display().to_string()).unwrap_or_default(),
        seed: 0,
        witness: None,
    };
    let text = scalify_report::json::render_with(&subject, Some(&related))?;
    Ok(serde_json::from_str(&text)?)
}

/// The module of a file; of text that holds several one after the other, all
/// of them as passes, named by a headline before each (`//=== name`) or by
/// their own names.
fn one_or_many(a: &ViewArgs) -> anyhow::Result<Vec<(String, Module)>> {
    let one = |m| vec![(name(&a.module), m)];
    let (text, first) = match scalify_load::load(&a.module) {
        Ok(l) => return Ok(one(l.module)),
        Err(scalify_load::LoadError::Text { text, source, name }) => (text, (source, name)),
        Err(e) => return Err(e.into()),
    };
    // Where each module begins, with the last headline before it.
    let (mut starts, mut label, mut at) = (Vec::new(), String::new(), 0);
    for line in text.split_inclusive('\n') {
        if line.starts_with("HloModule ") {
            starts.push((at, std::mem::take(&mut label)));
        } else if let Some(c) = line.strip_prefix("//").map(str::trim)
            && c.starts_with(['=', '*'])
        {
            label = c.trim_matches(['=', '*', '-', ' ']).to_owned();
        }
        at += line.len();
    }
    if starts.len() < 2 {
        return Err(input::Rendered(first.0.render(&first.1, &text, output::stderr_color())).into());
    }
    anyhow::ensure!(
        starts.len() <= MAX_PASSES,
        "{}: {} modules, expected at most {MAX_PASSES}",
        first.1,
        starts.len()
    );
    let (mut out, mut total) = (Vec::new(), 0usize);
    for (k, (begin, label)) in starts.iter().enumerate() {
        let end = starts.get(k + 1).map_or(text.len(), |s| s.0);
        let part = text.get(*begin..end).unwrap_or("");
        let m = scalify_hlo::parse(part).map_err(|mut e| {
            // Places in the file, not in the part.
            e.line +=
                text.get(..*begin).unwrap_or("").bytes().filter(|&b| b == b'\n').count() as u32;
            let shift = u32::try_from(*begin).unwrap_or(0);
            for s in std::iter::once(&mut e.span).chain(e.labels.iter_mut().map(|l| &mut l.0)) {
                s.start = s.start.saturating_add(shift);
                s.end = s.end.saturating_add(shift);
            }
            input::Rendered(e.render(&first.1, &text, output::stderr_color()))
        })?;
        total += m.instrs.len();
        anyhow::ensure!(
            total <= MAX_PASS_INSTRUCTIONS,
            "{}: expected at most {MAX_PASS_INSTRUCTIONS} instructions in all modules",
            first.1
        );
        let label = if label.is_empty() { m.str(m.name).to_owned() } else { label.clone() };
        out.push((label, m));
    }
    Ok(out)
}

/// The passes of one module of a dump folder, in order; passes that changed
/// nothing are left out.
fn passes(a: &ViewArgs) -> anyhow::Result<Vec<(String, Module)>> {
    let dir = a.module.display();
    let all =
        scalify_load::dump_modules(&a.module).with_context(|| format!("cannot read {dir}"))?;
    let wanted =
        all.iter().filter(|m| a.module_name.as_ref().is_none_or(|n| m.name.contains(n.as_str())));
    let Some(module) = wanted.max_by_key(|m| m.files.len()) else {
        anyhow::bail!(
            "{dir}: no passes, expected files as `module_0001.name.0002.pass.txt`{}",
            a.module_name.as_ref().map(|n| format!(" of a module `{n}`")).unwrap_or_default()
        );
    };
    let files = &module.files;
    anyhow::ensure!(
        files.len() <= MAX_PASSES,
        "{dir}: {} passes, expected at most {MAX_PASSES}",
        files.len()
    );
    let options =
        scalify_hlo::WriteOptions { max_constant_elements: Some(64), ..Default::default() };
    let (mut out, mut last, mut total) = (Vec::new(), String::new(), 0usize);
    for f in files {
        let m = input::load(&f.path)?;
        let text = scalify_hlo::write(&m, &options);
        if text == last {
            continue;
        }
        last = text;
        total += m.instrs.len();
        anyhow::ensure!(
            total <= MAX_PASS_INSTRUCTIONS,
            "{dir}: expected at most {MAX_PASS_INSTRUCTIONS} instructions in all passes"
        );
        out.push((f.label.clone(), m));
    }
    Ok(out)
}
