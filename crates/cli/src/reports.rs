//! Files that `scalify verify` writes beside its report.

use crate::args::VerifyArgs;
use crate::output;
use anyhow::Context as _;
use clap::Args;
use scalify_report::sources::Sources;
use scalify_report::{Subject, html, json, machine};
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(next_help_heading = "Reports")]
pub(crate) struct ReportArgs {
    /// Write the verdict as an HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write SARIF 2.1.0
    #[arg(long, value_name = "FILE")]
    pub(crate) sarif: Option<PathBuf>,
    /// Write JUnit XML: a test case per output
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Print annotations for GitHub Actions and append a summary to the file
    /// that GITHUB_STEP_SUMMARY names
    #[arg(long, conflicts_with = "json")]
    pub(crate) github: bool,
}

/// Writes what was asked for; the text to print after the report.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write(a: &VerifyArgs, s: &Subject<'_>) -> anyhow::Result<String> {
    let r = &a.reports;
    if r.html.is_none() && r.sarif.is_none() && r.junit.is_none() && !r.github {
        return Ok(String::new());
    }
    let report = serde_json::from_str(&json::render(s)?)?;
    if let Some(path) = &r.html {
        save(path, &html::render(s, &mut Sources::new(a.source_root.clone()))?)?;
    }
    if let Some(path) = &r.sarif {
        save(path, &machine::sarif(&report)?)?;
    }
    if let Some(path) = &r.junit {
        save(path, &machine::junit(&report))?;
    }
    if !r.github {
        return Ok(String::new());
    }
    if let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut f| f.write_all(machine::markdown(&report).as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(machine::annotations(&report))
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return output::stdout(text);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
