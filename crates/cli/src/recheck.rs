//! `scalify recheck`.

use crate::args::Color;
use crate::compare::{ToleranceArgs, exit};
use crate::{Exit, output};
use anyhow::{Context as _, anyhow};
use clap::Args;
use scalify_numbers::{recheck, report};
use std::path::PathBuf;

/// Largest report (bytes).
const MAX: u64 = 4 << 30;

#[derive(Args)]
pub(crate) struct RecheckArgs {
    /// A .json or .jsonl report of `scalify compare`
    report: PathBuf,
    #[command(flatten)]
    tolerance: ToleranceArgs,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Show equal tensors too
    #[arg(long)]
    all: bool,
    /// Print nothing; the exit code tells
    #[arg(short, long)]
    quiet: bool,
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
}

pub(crate) fn run(a: &RecheckArgs) -> anyhow::Result<Exit> {
    let (changes, overrides) = a.tolerance.changes()?;
    let name = a.report.display();
    let cannot = || format!("cannot read {name}");
    let size = std::fs::metadata(&a.report).with_context(cannot)?.len();
    if size > MAX {
        return Err(anyhow!("{name}: {size} bytes, expected a report of at most {MAX}"));
    }
    let text = std::fs::read_to_string(&a.report).with_context(cannot)?;
    let r = recheck::recheck(&text, &changes, &overrides).map_err(|e| anyhow!("{name}: {e}"))?;
    if !a.quiet {
        let text = if a.json {
            recheck::json(&r)?
        } else {
            report::recheck_text(&r, a.all, output::stdout_color(a.color))
        };
        output::stdout(&text)?;
    }
    Ok(exit(r.verdict))
}
