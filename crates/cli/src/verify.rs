//! `scalify verify`.

use crate::args::{RefuteLimits, VerifyArgs};
use crate::progress::Bar;
use crate::{Exit, explain, output, reports, stages};
use anyhow::Context as _;
use scalify_claim::{Claim, FileFormat, Mesh, ParseError, Port, parse_spec_file};
use scalify_prove::outcome::Verdict;
use scalify_report::sources::Sources;
use scalify_report::{Subject, json, text};
use std::path::Path;
use std::time::Duration;

/// Largest spec file (bytes).
const MAX_SPEC: u64 = 64 << 20;

pub(crate) fn run(a: &VerifyArgs) -> anyhow::Result<Exit> {
    let claim = claim(a)?;
    if let Some(dir) = &a.refute.witness {
        // Before the work, not after it.
        scalify_witness::replaces(dir)?;
    }
    let programs = stages::programs(a, &claim)?;
    let (base, dist) = (&programs.base, &programs.dist);
    let bar = Bar::new(a.quiet || a.json);
    let options = scalify_prove::Options {
        threads: a.threads,
        time_limit: a.time_limit,
        memory_limit: a.memory_limit,
        progress: Some(&bar),
        memo: if a.no_memo { scalify_prove::Memo::Never } else { scalify_prove::Memo::Auto },
    };
    if let Some(name) = &a.explain {
        let text = explain::run(base, dist, &programs.claim(&claim), &options, name);
        bar.done();
        output::stdout(&text?)?;
        return Ok(Exit::Success);
    }
    let plan = plan(&a.refute.limits, a.memory_limit, a.refute.cross_check);
    let decide = |c: &Claim| scalify_refute::decide(base, dist, c, &options, &plan);
    let (decision, claim) = programs.decide(&claim, &decide);
    bar.done();
    let problem = scalify_prove::problem::setup(base, dist, &claim);
    let base_file = a.base.display().to_string();
    let stages = a.dist.iter().chain(&a.distributed).map(|p| p.display().to_string());
    let dist_file = stages.collect::<Vec<_>>().join(" + ");
    let (mut witness, mut saved) = (None, Ok(()));
    if let (Some(dir), Some(c)) = (&a.refute.witness, &decision.counterexample) {
        // The counterexample may be one of a smaller pair.
        let small = decision.reduced.as_deref();
        let (b, d) = small.map_or((base, dist), |r| (&r.base, &r.dist));
        let small = decision.reduced_problem.as_deref();
        let w = scalify_witness::Witness {
            base: b,
            dist: d,
            base_file: &base_file,
            dist_file: &dist_file,
            claim: &claim,
            problem: small.unwrap_or(&problem),
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
        base,
        dist,
        base_file: &base_file,
        dist_file: &dist_file,
        seed: a.refute.limits.seed,
        witness: witness.as_deref(),
    };
    let report = if a.json {
        let related =
            a.relations.then(|| scalify_prove::verify_related(base, dist, &claim, &options).1);
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
    std::mem::forget(programs);
    Ok(match decision.outcome.verdict {
        Verdict::Proved => Exit::Success,
        Verdict::Refuted => Exit::Refuted,
        Verdict::Unknown => Exit::Unknown,
    })
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
