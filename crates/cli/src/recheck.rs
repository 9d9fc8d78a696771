//! `scalify recheck`.

use crate::args::Color;
use crate::compare::{ToleranceArgs, exit};
use crate::table::{OutputArgs, Row, Status, Table, object, take, text_of};
use crate::{Exit, output};
use anyhow::{Context as _, anyhow};
use clap::Args;
use scalify_numbers::compare::Verdict;
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
    #[command(flatten)]
    output: OutputArgs,
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
    a.output.check()?;
    let (changes, overrides) = a.tolerance.changes()?;
    let name = a.report.display();
    let cannot = || format!("cannot read {name}");
    let size = std::fs::metadata(&a.report).with_context(cannot)?.len();
    if size > MAX {
        return Err(anyhow!("{name}: {size} bytes, expected a report of at most {MAX}"));
    }
    let text = std::fs::read_to_string(&a.report).with_context(cannot)?;
    let r = recheck::recheck(&text, &changes, &overrides).map_err(|e| anyhow!("{name}: {e}"))?;
    let text =
        |terminal| report::recheck_text(&r, a.all, terminal && output::stdout_color(a.color));
    a.output.write(&table(&name.to_string(), &r)?, &recheck::json(&r)?, &text, a.quiet)?;
    Ok(exit(r.verdict))
}

const COLUMNS: &[&str] =
    &["name", "verdict", "criterion", "atol", "rtol", "ulp", "least", "most", "reasons"];

fn table(name: &str, r: &recheck::Rechecked) -> anyhow::Result<Table> {
    let mut head = object(r)?;
    let values = take(&mut head, "tensors");
    let rows = r.tensors.iter().zip(values).map(|(t, mut value)| {
        // Columns of what is nested.
        let setting = value.get("setting").cloned().unwrap_or_default();
        let [least, most] = match t.mismatched {
            Some(m) => m.map(|n| Some(n).into()),
            None => [(); 2].map(|()| serde_json::Value::Null),
        };
        if let Some(v) = value.as_object_mut() {
            for key in ["criterion", "atol", "rtol", "ulp"] {
                v.insert(key.into(), setting.get(key).cloned().unwrap_or_default());
            }
            v.insert("least".into(), least);
            v.insert("most".into(), most);
        }
        Row {
            name: t.name.clone(),
            status: match t.verdict {
                Verdict::Equal => Status::Pass,
                Verdict::Different => Status::Fail,
                Verdict::Unknown => Status::Open,
            },
            message: match (text_of(&value, "reasons"), t.mismatched) {
                (r, Some([a, b])) if r.is_empty() && a == b => format!("{a} elements break it"),
                (r, Some([a, b])) if r.is_empty() => format!("{a} to {b} elements break it"),
                (r, _) => r,
            },
            value,
        }
    });
    let rows = rows.collect();
    Ok(Table {
        command: "scalify recheck",
        subject: name.to_owned(),
        head: head.into(),
        columns: COLUMNS,
        rows,
    })
}
