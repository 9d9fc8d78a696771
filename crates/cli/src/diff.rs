//! `scalify diff`: two programs, operation by operation.

mod traced;

use crate::compare::Format;
use crate::numeric::{ProgramArgs, format_of, save_inputs, save_text};
use crate::{Exit, input, output};
use clap::{Args, ValueEnum};
use scalify_diff::diff::{Options, Report, Verdict, diff};
use scalify_diff::report::Doc;
use scalify_diff::sample::{Design, sample};
use scalify_prove::problem;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Points {
    /// Latin hypercube
    Latin,
    /// Sobol sequence
    Sobol,
}

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 equal up to rounding, 1 different, 2 bad usage or input, 3 nothing could be compared"
)]
pub(crate) struct DiffArgs {
    /// The reference: HLO text or proto, may be compressed
    expected: PathBuf,
    /// The program to check: distributed, compiled or changed
    actual: PathBuf,
    #[command(flatten)]
    program: ProgramArgs,
    /// Inputs drawn to find ones on which the outputs differ
    #[arg(long, value_name = "N", default_value_t = 8)]
    samples: usize,
    /// Compare outputs only, over a sample that fills the space of inputs
    #[arg(long, value_enum, value_name = "DESIGN")]
    sample: Option<Points>,
    /// Points of that sample
    #[arg(long, value_name = "N", default_value_t = 1000)]
    points: usize,
    /// Judge values that the second program had elsewhere (npz, safetensors;
    /// named as by `run --trace`) against what its operations compute from them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sample", "html"])]
    trace: Option<PathBuf>,
    /// Wall time of the comparison of operations, or of the sample
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "2m")]
    time_limit: Duration,
    /// Save the inputs (npz, safetensors); with --sample the worst ones
    #[arg(long, value_name = "FILE")]
    save_inputs: Option<PathBuf>,
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
    /// Write a page
    #[arg(long, value_name = "FILE", conflicts_with = "sample")]
    html: Option<PathBuf>,
    /// List every operation
    #[arg(long)]
    all: bool,
    /// Print nothing; the exit code tells
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(a: &DiffArgs) -> anyhow::Result<Exit> {
    let claim = a.program.claim()?;
    let targets: Vec<_> =
        a.report.iter().map(|p| Ok((p, format_of(p)?))).collect::<anyhow::Result<_>>()?;
    let (x, y) = (input::load_valid(&a.expected)?, input::load_valid(&a.actual)?);
    let names = [a.expected.display().to_string(), a.actual.display().to_string()];
    if let Some(d) = a.sample {
        return sampled(a, &x, &y, &claim, d, &names);
    }
    let p = problem::setup(&x, &y, &claim);
    let given = a.program.read(&x, &p, &claim)?;
    let options = Options {
        seed: a.program.seed,
        samples: a.samples,
        compare: a.time_limit,
        ..Options::default()
    };
    if let Some(path) = &a.trace {
        return traced::run(a, path, &x, &y, &claim, given, &options);
    }
    let r: Report = diff(&x, &y, &claim, given, &options)?;
    let doc = Doc::new([&names[0], &names[1]], &x, &y, &r);
    for (path, format) in targets {
        save_text(path, &render(&doc, format, true)?)?;
    }
    if let Some(path) = &a.html {
        save_text(path, &doc.html())?;
    }
    if let Some(path) = &a.save_inputs {
        save_inputs(path, &r.inputs, &r.names)?;
    }
    if !a.quiet {
        let format = if a.json { Format::Json } else { a.format };
        output::stdout(&render(&doc, format, a.all)?)?;
    }
    Ok(match r.verdict {
        Verdict::Equal => Exit::Success,
        Verdict::Different => Exit::Refuted,
        Verdict::Unknown => Exit::Unknown,
    })
}

fn render(d: &Doc, f: Format, all: bool) -> anyhow::Result<String> {
    Ok(match f {
        Format::Text => d.text(all),
        Format::Json => d.json()?,
        Format::Jsonl => d.jsonl()?,
        Format::Csv => d.csv()?,
        Format::Junit => d.junit()?,
    })
}

fn sampled(
    a: &DiffArgs,
    x: &scalify_ir::Module,
    y: &scalify_ir::Module,
    claim: &scalify_claim::Claim,
    d: Points,
    names: &[String; 2],
) -> anyhow::Result<Exit> {
    anyhow::ensure!(a.points > 0, "--points 0: expected at least one point");
    anyhow::ensure!(a.program.inputs.is_empty(), "--sample draws all inputs: no --inputs");
    let (design, name) = match d {
        Points::Latin => (Design::Latin, "Latin hypercube"),
        Points::Sobol => (Design::Sobol, "Sobol sequence"),
    };
    let s = sample(x, y, claim, design, a.points, a.program.seed, a.time_limit)?;
    if let (Some(path), Some(worst)) = (&a.save_inputs, &s.inputs) {
        let names: Vec<String> = problem::inputs(x).iter().map(|l| l.name().to_owned()).collect();
        save_inputs(path, worst, &names)?;
    }
    let exit = match (s.points, s.different) {
        (0, _) => Exit::Unknown,
        (_, 0) => Exit::Success,
        _ => Exit::Refuted,
    };
    if !a.quiet {
        let text = if a.json || a.format != Format::Text {
            serde_json::to_string_pretty(&s)? + "\n"
        } else {
            let head = match exit {
                Exit::Success => "EQUAL up to rounding",
                Exit::Refuted => "DIFFERENT",
                _ => "UNKNOWN",
            };
            format!(
                "{head}  {} vs {}\n{} of {} points differ ({name} over all inputs)\nworst: output #{} at point {}, expected {}, is {}, {:.3} of what rounding explains\n",
                names[1],
                names[0],
                s.different,
                s.points,
                s.output,
                s.point,
                s.expected,
                s.actual,
                s.ratio
            )
        };
        output::stdout(&text)?;
    }
    Ok(exit)
}
