//! `scalify gradcheck`: gradients against finite differences.

use crate::numeric::{ProgramArgs, single};
use crate::{Exit, input, output};
use clap::{Args, ValueEnum};
use scalify_diff::gradcheck::{Found, Options, Role, Verdict, check, outputs, pairing};
use scalify_refute::domain::Profile;
use scalify_refute::evaluate::RunLimits;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Outputs {
    /// Gradients
    Gradient,
    /// Parameters after a plain step `p - s g`
    Step,
}

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 all gradients pass, 1 one is wrong, 2 bad usage or input, 3 the differences are too rough to tell"
)]
pub(crate) struct GradcheckArgs {
    /// A program that returns a scalar loss and gradients: HLO text or proto
    module: PathBuf,
    /// Another program that returns the gradients, e.g. the distributed one,
    /// with the same inputs
    gradients: Option<PathBuf>,
    #[command(flatten)]
    program: ProgramArgs,
    /// Output that is the gradient of an input, e.g. 1=3 (may repeat); else
    /// outputs take the inputs of their shape, from the last on
    #[arg(long, value_name = "OUTPUT=INPUT")]
    grad: Vec<String>,
    /// What the outputs are; else what fits better
    #[arg(long, value_enum, value_name = "WHAT")]
    outputs: Option<Outputs>,
    /// Size of the step; else the one that fits best, which hides a factor that
    /// all gradients have in common
    #[arg(long, value_name = "S")]
    rate: Option<f64>,
    /// Random directions per parameter
    #[arg(long, value_name = "N", default_value_t = 2)]
    directions: usize,
    /// Single elements per parameter
    #[arg(long, value_name = "N", default_value_t = 3)]
    elements: usize,
    /// Wall time of one run
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "60s")]
    time_limit: Duration,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(a: &GradcheckArgs) -> anyhow::Result<Exit> {
    let claim = a.program.claim()?;
    let m = input::load_valid(&a.module)?;
    let p = single(&m, &claim)?;
    anyhow::ensure!(
        !p.local_inputs,
        "{}: a program of one device's blocks; expected one that takes whole arrays",
        a.module.display()
    );
    if let Some(r) = a.rate {
        anyhow::ensure!(r.is_finite() && r > 0.0, "--rate {r}: expected a positive number");
    }
    let given: Vec<(usize, usize)> = a
        .grad
        .iter()
        .map(|t| {
            let pair = t.split_once('=').and_then(|(o, i)| {
                Some((o.trim_matches('#').parse().ok()?, i.trim_matches('#').parse().ok()?))
            });
            pair.ok_or_else(|| anyhow::anyhow!("--grad {t}: expected OUTPUT=INPUT, two numbers"))
        })
        .collect::<anyhow::Result<_>>()?;
    let other = a.gradients.as_ref().map(|path| input::load_valid(path)).transpose()?;
    let (g, pg) = match &other {
        Some(g) => (g, single(g, &claim)?),
        None => (&m, p.clone()),
    };
    let shapes = |p: &scalify_prove::problem::Problem| -> Vec<Vec<i64>> {
        p.dist_inputs.iter().map(|l| l.shape.dims().to_vec()).collect()
    };
    anyhow::ensure!(
        shapes(&p) == shapes(&pg) && !pg.local_inputs,
        "the two programs take different inputs: expected the same whole arrays in the same order"
    );
    let scalar = |s: &scalify_ir::Shape| {
        s.as_array().is_some_and(|s| s.dims.is_empty() && s.dtype.is_float())
    };
    let loss = scalify_prove::problem::output_shapes(&m).iter().position(scalar);
    let loss = loss.ok_or_else(|| {
        anyhow::anyhow!("{}: expected an output that is a scalar, the loss", a.module.display())
    })?;
    let (_, pairs) = pairing(g, &pg, &given)?;
    let x = match a.program.read(&m, &p, &claim)? {
        Some(x) => x,
        None => scalify_diff::diff::draw(&m, &p, &claim, Profile::Normal, a.program.seed)?,
    };
    let options = Options {
        directions: a.directions,
        elements: a.elements,
        seed: a.program.seed,
        role: a.outputs.map(|o| match o {
            Outputs::Gradient => Role::Gradient,
            Outputs::Step => Role::Step,
        }),
        rate: a.rate,
        limits: RunLimits { memory: 4 << 30, time: a.time_limit },
    };
    let out = outputs(g, &pg, &x, options.limits)?;
    let found = check(&m, &p, &x, loss, &out, &pairs, &options)?;
    let text = if a.json {
        serde_json::to_string_pretty(&found)? + "\n"
    } else {
        text(&found, &a.module.display().to_string())
    };
    output::stdout(&text)?;
    Ok(match found.verdict {
        Verdict::Pass => Exit::Success,
        Verdict::Fail => Exit::Refuted,
        Verdict::Unsure => Exit::Unknown,
    })
}

fn word(v: Verdict) -> &'static str {
    match v {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Unsure => "unsure",
    }
}

fn text(f: &Found, name: &str) -> String {
    let mut t = format!("{}  {name}: loss is output #{}\n", word(f.verdict), f.loss);
    if f.parameters.iter().any(|p| p.role == Role::Step) {
        let _ = writeln!(t, "outputs that are parameters after a step: of {:.4e}", f.rate);
    }
    if f.verdict == Verdict::Unsure && f.parameters.iter().all(|p| p.verdict != Verdict::Pass) {
        t += "no output fits: they may be neither gradients nor plain steps (--grad, --outputs)\n";
    }
    for p in &f.parameters {
        let far = |c: &scalify_diff::gradcheck::Check| (c.given - c.measured).abs();
        let worst = p.checks.iter().max_by(|a, b| {
            let bad = |c: &scalify_diff::gradcheck::Check| c.verdict != Verdict::Pass;
            bad(a).cmp(&bad(b)).then(far(a).total_cmp(&far(b)))
        });
        let what = if p.role == Role::Step { "stepped" } else { "gradient" };
        let _ = write!(
            t,
            "  {:6} #{} {} ({} is output #{})",
            word(p.verdict),
            p.input,
            p.name,
            what,
            p.output
        );
        if let Some(c) = worst {
            let along =
                c.element.map_or("a random direction".to_owned(), |e| format!("element {e}"));
            let _ = write!(
                t,
                "  {:.6e} along {along}, finite differences {:.6e} +- {:.0e}",
                c.given, c.measured, c.error
            );
        }
        t.push('\n');
    }
    t
}
