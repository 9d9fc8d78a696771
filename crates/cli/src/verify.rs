//! `scalify verify`.

use crate::args::{RefuteLimits, VerifyArgs};
use crate::progress::Bar;
use crate::{Exit, explain, input, output, reports};
use anyhow::Context as _;
use scalify_claim::{Claim, FileFormat, Mesh, ParseError, Port, Selector, parse_spec_file};
use scalify_ir::Module;
use scalify_ir::validate::{Severity, ValidateOptions, validate};
use scalify_prove::outcome::Verdict;
use scalify_report::sources::Sources;
use scalify_report::{Subject, json, text};
use std::path::Path;
use std::time::Duration;

/// Largest spec file (bytes).
const MAX_SPEC: u64 = 64 << 20;

pub(crate) fn run(a: &VerifyArgs) -> anyhow::Result<Exit> {
    let mut claim = claim(a)?;
    if let Some(dir) = &a.refute.witness {
        // Before the work, not after it.
        scalify_witness::replaces(dir)?;
    }
    let (base, dist, notes) = programs(a, &mut claim)?;
    let bar = Bar::new(a.quiet || a.json);
    let options = scalify_prove::Options {
        threads: a.threads,
        time_limit: a.time_limit,
        memory_limit: a.memory_limit,
        progress: Some(&bar),
    };
    if let Some(name) = &a.explain {
        let text = explain::run(&base, &dist, &claim, &options, name);
        bar.done();
        output::stdout(&text?)?;
        return Ok(Exit::Success);
    }
    let plan = plan(&a.refute.limits, a.memory_limit, a.refute.cross_check);
    let mut decision = scalify_refute::decide(&base, &dist, &claim, &options, &plan);
    bar.done();
    decision.outcome.notes.extend(notes);
    let problem = scalify_prove::problem::setup(&base, &dist, &claim);
    let base_file = a.base.display().to_string();
    let stages = a.dist.iter().chain(&a.distributed).map(|p| p.display().to_string());
    let dist_file = stages.collect::<Vec<_>>().join(" + ");
    let (mut witness, mut saved) = (None, Ok(()));
    if let (Some(dir), Some(c)) = (&a.refute.witness, &decision.counterexample) {
        // The counterexample may be one of the pair at reduced sizes.
        let small = decision.reduced.as_deref();
        let (b, d) = small.map_or((&base, &dist), |r| (&r.base, &r.dist));
        let small = small.map(|r| scalify_prove::problem::setup(&r.base, &r.dist, &claim));
        let w = scalify_witness::Witness {
            base: b,
            dist: d,
            base_file: &base_file,
            dist_file: &dist_file,
            claim: &claim,
            problem: small.as_ref().unwrap_or(&problem),
            example: c,
            seed: a.refute.limits.seed,
        };
        saved = scalify_witness::save(dir, &w);
        if saved.is_ok() {
            witness = Some(dir.display().to_string());
        }
    }
    let subject = Subject {
        decision: &decision,
        problem: &problem,
        base: &base,
        dist: &dist,
        base_file: &base_file,
        dist_file: &dist_file,
        seed: a.refute.limits.seed,
        witness: witness.as_deref(),
    };
    let report = if a.json {
        let related =
            a.relations.then(|| scalify_prove::verify_related(&base, &dist, &claim, &options).1);
        json::render_with(&subject, related.as_deref())?
    } else {
        let mut options = text::TextOptions {
            color: output::stdout_color(a.color),
            quiet: a.quiet,
            all: a.all,
            sources: Sources::new(a.source_root.clone()),
        };
        text::render(&subject, &mut options)
    };
    let more = reports::write(a, &subject);
    output::stdout(&report)?;
    output::stdout(&more?)?;
    saved?;
    // Freeing two big modules takes longer than leaving that to the system.
    std::mem::forget((base, dist));
    Ok(match decision.outcome.verdict {
        Verdict::Proved => Exit::Success,
        Verdict::Refuted => Exit::Refuted,
        Verdict::Unknown => Exit::Unknown,
    })
}

/// Both programs, and what was taken for granted in joining stages.
fn programs(a: &VerifyArgs, claim: &mut Claim) -> anyhow::Result<(Module, Module, Vec<String>)> {
    if let Some(dist) = &a.dist {
        let (base, dist) = input::load_both(&a.base, dist)?;
        return Ok((base, dist, Vec::new()));
    }
    let base = input::load_valid(&a.base)?;
    let mut stages = Vec::new();
    for path in &a.distributed {
        stages.push(input::load_valid_with_text(path)?);
    }
    let modules: Vec<&Module> = stages.iter().map(|s| &s.0).collect();
    let joined = scalify_stages::join(&modules, &claim.links, &claim.results).map_err(|e| {
        let stage = a.distributed.get(e.stage).map(|p| p.display().to_string());
        let name = stage.unwrap_or_default();
        let text = stages.get(e.stage).and_then(|s| s.1.as_deref());
        input::at_place(&name, text, e.span, e.message, e.expected)
    })?;
    let options = ValidateOptions { mixed_precision: true, ..ValidateOptions::default() };
    let found = validate(&joined.module, &options);
    if let Some(bad) = found.into_iter().find(|i| i.severity == Severity::Error) {
        let whose = bad.instr.map(|i| joined.module.name_of(i).to_owned()).unwrap_or_default();
        anyhow::bail!(
            "internal error: the joined stages are ill-formed at %{whose}: {}",
            bad.message
        );
    }
    let pairs = same_names(&base, &joined, claim);
    claim.pairs.extend(pairs);
    Ok((base, joined.module, joined.notes))
}

/// Inputs that several stages call by the name of one input of the baseline
/// stand for that, unless they are paired otherwise.
fn same_names(
    base: &Module,
    joined: &scalify_stages::Joined,
    claim: &Claim,
) -> Vec<(Selector, Selector)> {
    let inputs = |m| scalify_prove::problem::inputs(m);
    let (left, right) = (inputs(base), inputs(&joined.module));
    let mut out = Vec::new();
    for (old, new) in &joined.renamed {
        if scalify_prove::problem::is_generic(old) {
            continue;
        }
        let mut hits = left.iter().filter(|l| l.names.contains(old));
        let (Some(b), None) = (hits.next(), hits.next()) else { continue };
        let Some(d) = right.iter().find(|l| l.names.contains(new)) else { continue };
        let names: Vec<&str> = d.names.iter().map(String::as_str).collect();
        if claim.pairs.iter().all(|p| !p.1.matches(d.index, &names)) {
            out.push((Selector::Index(b.index), Selector::Index(d.index)));
        }
    }
    out
}

/// What to do beyond the proof.
pub(crate) fn plan(
    r: &RefuteLimits,
    memory: Option<u64>,
    cross_check: bool,
) -> scalify_refute::Plan {
    let mut plan = scalify_refute::Plan {
        refute: !r.no_refute,
        repair: if r.no_repair { Duration::ZERO } else { r.repair_time },
        cross_check,
        ..Default::default()
    };
    plan.search.time = r.refute_time;
    plan.search.samples = r.samples;
    plan.search.seed = r.seed;
    if let Some(bytes) = memory {
        plan.search.memory = plan.search.memory.min(bytes);
    }
    plan
}

/// The claim of spec file and options.
fn claim(a: &VerifyArgs) -> anyhow::Result<Claim> {
    let mut claim = match &a.spec {
        Some(path) => spec_file(path)?,
        None => Claim::default(),
    };
    let mut add = Claim::default();
    let bad = |option: &'static str| move |e: ParseError| anyhow::anyhow!("--{option}: {e}");
    if let Some(m) = &a.mesh {
        add.mesh = Some(Mesh::parse(m).map_err(bad("mesh"))?);
    }
    for t in &a.inputs {
        add.add_input(t).map_err(bad("in"))?;
    }
    for t in &a.outputs {
        add.add_output(t).map_err(bad("out"))?;
    }
    for t in &a.assume {
        add.add_assume(t).map_err(bad("assume"))?;
    }
    for t in &a.pair {
        add.add_pair(t).map_err(bad("pair"))?;
    }
    for t in &a.link {
        add.add_link(t).map_err(bad("link"))?;
    }
    for t in &a.result {
        add.results.push(Port::parse_output(t).map_err(bad("result"))?);
    }
    claim.extend(add);
    if let Some(mesh) = &claim.mesh {
        for (selector, spec) in claim.inputs.iter().chain(&claim.outputs) {
            let unknown = spec.dims.iter().flatten().find(|axis| mesh.axis(axis).is_none());
            if let Some(axis) = unknown {
                anyhow::bail!("{selector}={spec}: the mesh `{mesh}` has no axis `{axis}`");
            }
        }
    }
    Ok(claim)
}

pub(crate) fn spec_file(path: &Path) -> anyhow::Result<Claim> {
    let name = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?.len();
    anyhow::ensure!(size <= MAX_SPEC, "{name} is too big for a spec file");
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let format = match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => Some(FileFormat::Toml),
        Some("json") => Some(FileFormat::Json),
        _ => None,
    };
    parse_spec_file(&text, format).with_context(|| name.to_string())
}
