//! `scalify bisect`.

use crate::args::{self, Color, RefuteLimits};
use crate::progress::Bar;
use crate::{Exit, output, verify};
use anyhow::Context as _;
use clap::Args;
use scalify_bisect::{Options, Selection, report};
use scalify_prove::Progress as _;
use scalify_prove::outcome::Verdict;
use scalify_report::machine;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 all steps proved, 1 a step refuted, 2 bad usage or input, 3 a step unknown"
)]
pub(crate) struct BisectArgs {
    /// Folder that `--xla_dump_to` wrote with `--xla_dump_hlo_pass_re=.*`, as
    /// text or proto
    pub(crate) folder: PathBuf,
    /// Only modules of this name, e.g. 'jit_step' or '*train*'
    #[arg(long, value_name = "GLOB")]
    pub(crate) module: Option<String>,
    /// Begin with the dump after this pass
    #[arg(long, value_name = "PASS")]
    pub(crate) from: Option<String>,
    /// End with the last dump after this pass
    #[arg(long, value_name = "PASS")]
    pub(crate) to: Option<String>,
    /// Do not stop at the first step that is not proved, and list all steps
    #[arg(long)]
    pub(crate) all: bool,
    /// Folder that keeps results for later runs
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Range of an integer input, e.g. 'tokens in [0, 31999]'
    #[arg(long, value_name = "INPUT in [LO, HI]")]
    pub(crate) assume: Vec<String>,
    /// Write a JSON report (see docs/JSON.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write SARIF 2.1.0 of the step to look at
    #[arg(long, value_name = "FILE")]
    pub(crate) sarif: Option<PathBuf>,
    /// Write JUnit XML: a test case per step
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Print annotations for GitHub Actions
    #[arg(long, conflicts_with = "json")]
    pub(crate) github: bool,
    /// Worker threads, 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
    /// Wall time of each step, e.g. 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Memory of each step, e.g. 4G
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// Where source files are looked up (may repeat)
    #[arg(long, value_name = "DIR")]
    pub(crate) source_root: Vec<PathBuf>,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
    /// One line per module, no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) refute: RefuteLimits,
}

pub(crate) fn run(a: &BisectArgs) -> anyhow::Result<Exit> {
    let shown = a.folder.display().to_string();
    let mut claim = scalify_claim::Claim::default();
    for t in &a.assume {
        claim.add_assume(t).map_err(|e| anyhow::anyhow!("--assume: {e}"))?;
    }
    let select = Selection::new(a.module.as_deref(), a.from.as_deref(), a.to.as_deref())?;
    let found =
        scalify_load::dump_modules(&a.folder).with_context(|| format!("cannot read {shown}"))?;
    anyhow::ensure!(
        !found.is_empty(),
        "{shown}: no passes, expected files as `module_0001.name.0002.pass.txt`"
    );
    let modules = select.modules(found).with_context(|| shown.clone())?;
    let mut work = Vec::new();
    for m in &modules {
        work.push((m, select.dumps(m).with_context(|| shown.clone())?));
    }
    let steps: usize = work.iter().map(|w| w.1.len().saturating_sub(1)).sum();
    anyhow::ensure!(steps > 0, "{shown}: expected at least two dumps of a module");
    let bar = Bar::new(a.quiet || a.json);
    bar.phase("passes", Some(steps as u64));
    let options = Options {
        claim: &claim,
        prover: scalify_prove::Options {
            threads: a.threads,
            time_limit: a.time_limit,
            memory_limit: a.memory_limit,
            progress: None,
            ..Default::default()
        },
        plan: verify::plan(&a.refute, a.memory_limit, false),
        all: a.all,
        cache: a.cache.as_deref(),
        source_root: &a.source_root,
    };
    let mut results = Vec::new();
    for (m, dumps) in work {
        let mut began = false;
        let found = scalify_bisect::run(m, dumps, &options, &mut |d, _, _| {
            if std::mem::replace(&mut began, true) {
                bar.advance(1);
            }
            bar.note(&format!("{} {}", m.name, d.pass()));
        });
        bar.advance(1);
        results.push(found);
    }
    bar.done();
    let text = if a.json {
        report::json(&shown, &results)?
    } else {
        let color = output::stdout_color(a.color);
        report::text(&results, report::TextOptions { color, quiet: a.quiet, all: a.all })
    };
    output::stdout(&text)?;
    if let Some(path) = &a.junit {
        save(path, &report::junit(&results))?;
    }
    let verdict = report::verdict(&results);
    let worst = results.iter().find(|r| r.verdict() == verdict).and_then(|r| r.first());
    let pair = worst.and_then(|s| s.report.as_ref());
    if let Some(path) = &a.sarif {
        let none = serde_json::json!({"verdict": "proved"});
        save(path, &machine::sarif(pair.unwrap_or(&none))?)?;
    }
    if let Some(pair) = pair.filter(|_| a.github) {
        output::stdout(&machine::annotations(pair))?;
    }
    Ok(match verdict {
        Verdict::Proved => Exit::Success,
        Verdict::Refuted => Exit::Refuted,
        Verdict::Unknown => Exit::Unknown,
    })
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
