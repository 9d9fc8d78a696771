//! `scalify gradcheck`: gradients against finite differences, and against
//! derivatives worked out in the IR.

use crate::numeric::{ProgramArgs, save_text, single};
use crate::progress::Bar;
use crate::table::{OutputArgs, Row, Status, Table, object, take, text_of};
use crate::{Exit, input};
use clap::{Args, ValueEnum};
use scalify_diff::gradcheck::{
    Check, Found, Method, Options, Parameter, Role, Verdict, check, outputs, pairing,
};
use scalify_diff::symbolic::{self, Plan, Proof, Rule, WRONG, What};
use scalify_grad::Adam;
use scalify_prove::outcome::Verdict as Answer;
use scalify_refute::domain::Profile;
use scalify_refute::evaluate::RunLimits;
use serde::Serialize;
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
    after_help = "Exit codes: 0 all gradients pass, 1 one is wrong, 2 bad usage or input, 3 the differences are too rough to tell, or no proof was found"
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
    /// Only against finite differences
    #[arg(long, conflicts_with = "symbolic")]
    numeric: bool,
    /// Only against derivatives that are worked out and proved equal
    #[arg(long)]
    symbolic: bool,
    /// How parameters are moved, e.g. sgd:lr=0.1 or
    /// adamw:lr=0.001,b1=0.9,b2=0.999,eps=1e-8,wd=0.01,t=1
    #[arg(long, value_name = "RULE", conflicts_with = "rate")]
    step: Option<String>,
    /// Write the program that was worked out: the loss and its derivatives
    #[arg(long, value_name = "FILE")]
    save_gradient: Option<PathBuf>,
    /// Time of the proof
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "60s")]
    prove_time: Duration,
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
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(a: &GradcheckArgs) -> anyhow::Result<Exit> {
    a.output.check()?;
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
    let rule = match (&a.step, a.rate) {
        (Some(t), _) => Some(rule(t)?),
        (None, Some(r)) => Some(Rule::Sgd(r)),
        (None, None) => None,
    };
    let limits = RunLimits { memory: 4 << 30, time: a.time_limit };
    let draw = |seed: u64| -> anyhow::Result<_> {
        let x = scalify_diff::diff::draw(&m, &p, &claim, Profile::Normal, seed)?;
        Ok(symbolic::steady(&m, &p, &x, loss, limits)?)
    };
    let x = match a.program.read(&m, &p, &claim)? {
        Some(x) => x,
        None => draw(a.program.seed)?,
    };
    let options = Options {
        directions: a.directions,
        elements: a.elements,
        seed: a.program.seed,
        role: a.outputs.map(|o| match o {
            Outputs::Gradient => Role::Gradient,
            Outputs::Step => Role::Step,
        }),
        rate: match rule {
            Some(Rule::Sgd(r)) => Some(r),
            _ => None,
        },
        limits,
    };
    let bar = Bar::new(!a.output.prints_text());
    let derive = symbolic::Options {
        rule,
        gradients: a.outputs == Some(Outputs::Gradient),
        limits,
        derive: scalify_grad::Options::default(),
    };
    let planned = (|| -> anyhow::Result<(Plan, Verdict)> {
        let y = draw(a.program.seed.wrapping_add(1))?;
        let plan = symbolic::plan(&m, &p, g, &pg, &[&x, &y], loss, &pairs, &derive)?;
        // The derivative itself, against differences of the loss.
        let own = Options { directions: 1, elements: 1, role: Some(Role::Gradient), ..options };
        let all: Vec<_> = plan.wrt.iter().enumerate().map(|(k, &i)| (k + 1, vec![i])).collect();
        let out = outputs(&plan.derivative, &p, &x, limits)?;
        let v = check(&m, &p, &x, loss, &out, &all, &own)?.verdict;
        Ok((plan, v))
    })();
    if let (Some(path), Ok((plan, _))) = (&a.save_gradient, &planned) {
        let text = scalify_hlo::write(&plan.derivative, &scalify_hlo::WriteOptions::default());
        save_text(path, &text)?;
    }
    let mut report = Report {
        schema: "scalify-gradcheck/2",
        verdict: Verdict::Pass,
        loss,
        numeric: None,
        symbolic: None,
    };
    if !a.symbolic {
        let out = outputs(g, &pg, &x, options.limits)?;
        let (mut pairs, mut options) = (pairs, options);
        if let Ok((plan, _)) = &planned {
            // Which input an output belongs to; and what the first program's
            // outputs are, those of the second are.
            for t in &plan.targets {
                let made = matches!(t.what, What::Own(_) | What::Adam(_));
                if let Some(q) = pairs.iter_mut().find(|q| q.0 == t.output && !made) {
                    q.1 = vec![t.input];
                }
                let two = other.is_some();
                if let (What::Step(r), None, true) = (&t.what, options.rate, two) {
                    options.rate = Some(*r);
                }
            }
        }
        let mut found = check(&m, &p, &x, loss, &out, &pairs, &options)?;
        if let Ok((plan, right)) = &planned {
            let compared = plan.compare(&m, &p, g, &pg, &x, &derive)?;
            settle(&mut found, plan, *right, &compared, other.is_some());
        }
        report.verdict = found.verdict;
        report.numeric = Some(found);
    }
    if !a.numeric {
        match planned {
            Ok((plan, right)) => {
                let prover = scalify_prove::Options {
                    time_limit: Some(a.prove_time),
                    progress: Some(&bar),
                    ..Default::default()
                };
                let search = scalify_refute::Options {
                    seed: a.program.seed,
                    ..scalify_refute::Options::default()
                };
                let mut s = Symbolic {
                    derivative: right,
                    parameters: plan.prove(&m, &p, g, &claim, &prover, &search, &derive)?,
                    open: plan.open.iter().map(|o| format!("output #{}: {}", o.0, o.1)).collect(),
                    unavailable: None,
                };
                if right == Verdict::Fail {
                    // Neither proofs nor refutations count.
                    for q in &mut s.parameters {
                        q.verdict = Answer::Unknown;
                        q.reason = Some("the derivative that was worked out does not fit finite differences of the loss: please report the program".into());
                    }
                }
                let v = s.verdict();
                report.verdict = worst(report.verdict, v);
                report.symbolic = Some(s);
            }
            Err(e) if a.symbolic => return Err(e),
            Err(e) => {
                report.symbolic = Some(Symbolic {
                    derivative: Verdict::Unsure,
                    parameters: Vec::new(),
                    open: Vec::new(),
                    unavailable: Some(e.to_string()),
                });
            }
        }
    }
    bar.done();
    let name = a.module.display().to_string();
    let json = serde_json::to_string_pretty(&report)? + "\n";
    a.output.write(&report.table(&name)?, &json, &|_| report.text(&name), false)?;
    Ok(match report.verdict {
        Verdict::Pass => Exit::Success,
        Verdict::Fail => Exit::Refuted,
        Verdict::Unsure => Exit::Unknown,
    })
}

/// Assumptions in the text.
const SHOWN: usize = 8;

/// What was found, by both ways.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// The worse of both.
    verdict: Verdict,
    /// Output leaf of the loss.
    loss: usize,
    numeric: Option<Found>,
    symbolic: Option<Symbolic>,
}

#[derive(Serialize)]
struct Symbolic {
    /// The derivative that was worked out against finite differences.
    derivative: Verdict,
    parameters: Vec<Proof>,
    /// Outputs that are not checked.
    open: Vec<String>,
    /// Why there is none.
    unavailable: Option<String>,
}

impl Symbolic {
    fn verdict(&self) -> Verdict {
        self.parameters.iter().fold(Verdict::Pass, |v, p| {
            worst(
                v,
                match p.verdict {
                    Answer::Proved => Verdict::Pass,
                    Answer::Refuted => Verdict::Fail,
                    Answer::Unknown => Verdict::Unsure,
                },
            )
        })
    }
}

fn worst(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Fail, _) | (_, Verdict::Fail) => Verdict::Fail,
        (Verdict::Unsure, _) | (_, Verdict::Unsure) => Verdict::Unsure,
        _ => Verdict::Pass,
    }
}

/// Outputs that finite differences say nothing about, because an optimizer made
/// them, against what it makes of the derivative.
fn settle(
    found: &mut Found,
    plan: &Plan,
    right: Verdict,
    compared: &[symbolic::Compared],
    two: bool,
) {
    let declared = two || plan.targets.iter().any(|t| matches!(t.what, What::Adam(_)));
    for c in compared {
        let Some(t) = plan.targets.get(c.target) else { continue };
        let made = matches!(t.what, What::Own(_) | What::Adam(_));
        let Some(q) = found.parameters.iter_mut().find(|q| q.output == t.output) else { continue };
        if !made || q.verdict == Verdict::Pass && !declared {
            continue;
        }
        q.name.clone_from(&t.name);
        (q.input, q.role) = (t.input, Role::Update);
        q.checks.clear();
        q.off = Some(c.off);
        q.verdict = if right != Verdict::Pass {
            Verdict::Unsure
        } else if c.off > WRONG {
            Verdict::Fail
        } else if c.off < 0.1 * WRONG {
            Verdict::Pass
        } else {
            Verdict::Unsure
        };
    }
    found.verdict = found.parameters.iter().fold(Verdict::Pass, |v, p| worst(v, p.verdict));
}

/// `sgd:lr=..` or `adamw:lr=..,b1=..`.
fn rule(t: &str) -> anyhow::Result<Rule> {
    let (name, rest) = t.split_once(':').unwrap_or((t, ""));
    let mut a = Adam { rate: 1e-3, b1: 0.9, b2: 0.999, eps: 1e-8, decay: 0.0, step: 1.0 };
    let mut rate = None;
    for part in rest.split(',').filter(|p| !p.is_empty()) {
        let value = part.split_once('=').and_then(|(k, v)| Some((k, v.parse::<f64>().ok()?)));
        let (key, v) = value
            .filter(|v| v.1.is_finite())
            .ok_or_else(|| anyhow::anyhow!("--step {t}: `{part}`, expected NAME=NUMBER"))?;
        match (key, name) {
            ("lr", _) => rate = Some(v),
            ("b1", "adam" | "adamw") => a.b1 = v,
            ("b2", "adam" | "adamw") => a.b2 = v,
            ("eps", "adam" | "adamw") => a.eps = v,
            ("wd", "adamw") => a.decay = v,
            ("t", "adam" | "adamw") => a.step = v,
            _ => anyhow::bail!(
                "--step {t}: `{key}`, expected lr (sgd, adam, adamw), b1, b2, eps, t (adam, adamw), wd (adamw)"
            ),
        }
    }
    let rate = rate.filter(|r| *r > 0.0);
    let rate = rate.ok_or_else(|| anyhow::anyhow!("--step {t}: expected lr=NUMBER above 0"))?;
    match name {
        "sgd" => Ok(Rule::Sgd(rate)),
        "adam" | "adamw" => Ok(Rule::Adam(Adam { rate, ..a })),
        _ => anyhow::bail!("--step {t}: expected sgd:.., adam:.. or adamw:.."),
    }
}

const COLUMNS: &[&str] = &[
    "way", "name", "input", "output", "verdict", "role", "what", "grade", "method", "element",
    "given", "measured", "error", "step", "off", "reason",
];

impl Report {
    /// A row per parameter and way; of differences the test that is farthest
    /// off counts.
    fn table(&self, subject: &str) -> anyhow::Result<Table> {
        let mut head = object(self)?;
        let mut rows = Vec::new();
        for (way, key) in [("differences", "numeric"), ("derivative", "symbolic")] {
            let Some(serde_json::Value::Object(mut part)) = head.remove(key) else { continue };
            let parameters = take(&mut part, "parameters");
            for (k, v) in parameters.into_iter().enumerate() {
                let serde_json::Value::Object(mut v) = v else { continue };
                v.insert("way".into(), way.into());
                if let Some(q) = self.numeric.as_ref().filter(|_| way == "differences") {
                    let checks = take(&mut v, "checks");
                    let worst = q.parameters.get(k).and_then(farthest);
                    if let Some(serde_json::Value::Object(c)) =
                        worst.and_then(|i| checks.into_iter().nth(i))
                    {
                        // The parameter's verdict stays.
                        v.extend(c.into_iter().filter(|x| x.0 != "verdict"));
                    }
                }
                let value = serde_json::Value::Object(v);
                let verdict = text_of(&value, "verdict");
                rows.push(Row {
                    name: format!(
                        "{} ({way}, output #{})",
                        text_of(&value, "name"),
                        text_of(&value, "output")
                    ),
                    status: match verdict.as_str() {
                        "pass" | "proved" => Status::Pass,
                        "fail" | "refuted" => Status::Fail,
                        _ => Status::Open,
                    },
                    message: match text_of(&value, "reason") {
                        r if r.is_empty() => verdict,
                        r => r,
                    },
                    value,
                });
            }
            if let Some(e) = part.get("unavailable").filter(|e| e.is_string()) {
                head.insert("unavailable".into(), e.clone());
            }
        }
        Ok(Table {
            command: "scalify gradcheck",
            subject: subject.to_owned(),
            head: head.into(),
            columns: COLUMNS,
            rows,
        })
    }

    fn text(&self, name: &str) -> String {
        let mut t = format!("{}  {name}: loss is output #{}\n", word(self.verdict), self.loss);
        if let Some(f) = &self.numeric {
            t += "finite differences\n";
            t += &text(f);
        }
        let Some(s) = &self.symbolic else { return t };
        if let Some(e) = &s.unavailable {
            let _ = writeln!(t, "derivative\n  not worked out: {e}");
            return t;
        }
        t += "derivative\n";
        for p in &s.parameters {
            let v = match p.verdict {
                Answer::Proved => "PROVED",
                Answer::Refuted => "REFUTED",
                Answer::Unknown => "UNKNOWN",
            };
            let what = match &p.what {
                What::Gradient => "gradient".to_owned(),
                What::Step(r) => format!("stepped by {r} times the gradient"),
                What::Adam(w) => format!("{w} of AdamW"),
                What::Own(i) => {
                    format!("what the program makes of the gradient %{}", i.join(", %"))
                }
            };
            let grade = match p.grade {
                Some(scalify_prove::outcome::Grade::UnderAssumptions) => " (under assumptions)",
                _ => "",
            };
            let _ =
                write!(t, "  {v:7} #{} {} (output #{}: {what}){grade}", p.input, p.name, p.output);
            if let Some(r) = &p.reason {
                let _ = write!(t, "  {r}");
            }
            if !p.cancels.is_empty() {
                let c = p.cancels.join(", %");
                let _ = write!(
                    t,
                    "  given that what comes back through %{c} cancels (it does on two draws)"
                );
            }
            t.push('\n');
        }
        for o in &s.open {
            let _ = writeln!(t, "  not checked: {o}");
        }
        let mut seen: Vec<&String> = Vec::new();
        for a in s.parameters.iter().flat_map(|p| &p.assumptions) {
            if !seen.contains(&a) {
                seen.push(a);
            }
        }
        for a in seen.iter().take(SHOWN) {
            let _ = writeln!(t, "  assumed: {a}");
        }
        if seen.len() > SHOWN {
            let _ = writeln!(t, "  and {} more assumptions (--json)", seen.len() - SHOWN);
        }
        t
    }
}

/// The test of a parameter that is farthest off, those that do not pass first.
fn farthest(p: &Parameter) -> Option<usize> {
    let far = |c: &Check| (c.given - c.measured).abs();
    let bad = |c: &Check| c.verdict != Verdict::Pass;
    let order = |a: &Check, b: &Check| bad(a).cmp(&bad(b)).then(far(a).total_cmp(&far(b)));
    (0..p.checks.len()).max_by(|&i, &j| order(&p.checks[i], &p.checks[j]))
}

fn word(v: Verdict) -> &'static str {
    match v {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Unsure => "unsure",
    }
}

fn text(f: &Found) -> String {
    let mut t = String::new();
    if f.parameters.iter().any(|p| p.role == Role::Step) {
        let _ = writeln!(t, "  outputs that are parameters after a step: of {:.4e}", f.rate);
    }
    if f.verdict == Verdict::Unsure && f.parameters.iter().all(|p| p.verdict != Verdict::Pass) {
        t +=
            "  no output fits: they may be neither gradients nor plain steps (--grad, --outputs)\n";
    }
    for p in &f.parameters {
        let worst = farthest(p).and_then(|i| p.checks.get(i));
        let what = match p.role {
            Role::Step => "stepped",
            Role::Update => "updated",
            Role::Gradient => "gradient",
        };
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
            let by = match c.method {
                Method::Differences => "finite differences",
                Method::ComplexStep => "complex step",
            };
            let _ = write!(
                t,
                "  {:.6e} along {along}, {by} {:.6e} +- {:.0e}",
                c.given, c.measured, c.error
            );
        }
        if let Some(off) = p.off {
            let _ = write!(t, "  off by {off:.1e} of the change by the derivative");
        }
        t.push('\n');
    }
    t
}
