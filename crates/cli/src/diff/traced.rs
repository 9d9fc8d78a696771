//! `scalify diff --trace`: values that the second program had elsewhere.

use super::DiffArgs;
use crate::compare::Format;
use crate::{Exit, output};
use anyhow::Context as _;
use scalify_diff::diff::{DiffError, Options, prepare};
use scalify_diff::traced::{Traced, traced};
use scalify_interp::Tensor;
use scalify_ir::{ArrayShape, Module};
use scalify_refute::evaluate::Inputs;
use scalify_tensors::Archive;
use std::fmt::Write as _;
use std::path::Path;

/// Rows shown without `--all`.
const SHOWN: usize = 12;

pub(super) fn run(
    a: &DiffArgs,
    path: &Path,
    x: &Module,
    y: &Module,
    claim: &scalify_claim::Claim,
    given: Option<Inputs>,
    options: &Options,
) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        matches!(a.format, Format::Text | Format::Json) && a.report.is_empty(),
        "--trace writes text or JSON"
    );
    let archive = Archive::open(path)?;
    // Inputs are the trace's: none are searched on which the programs differ.
    let options = Options { samples: 0, ..*options };
    let mut p = prepare(x, y, claim, given, &options)?;
    let mut used = vec![false; archive.entries().len()];
    let mut lookup = |name: &str, s: &ArrayShape| -> Result<Option<Tensor>, DiffError> {
        let Some(k) = archive.find(name) else { return Ok(None) };
        used[k] = true;
        let bad = |e: String| DiffError::Problem(format!("{}: {name}: {e}", path.display()));
        let t = archive.tensor(k, Some(s.dtype)).map_err(|e| bad(e.to_string()))?;
        let found = ArrayShape::new(t.dtype(), t.dims().iter().copied());
        if t.dtype() != s.dtype || t.dims() != &s.dims[..] {
            return Err(bad(format!("is {found}, expected {s}")));
        }
        let bytes = t.bytes().map_err(|e| bad(e.to_string()))?;
        let t = Tensor::from_bytes(&found, &bytes);
        t.map(Some).ok_or_else(|| bad("the elements do not fit".into()))
    };
    let r = traced(&mut p, &mut lookup)?;
    let extra: Vec<&str> = (archive.entries().iter().zip(&used))
        .filter(|(_, u)| !**u)
        .map(|(e, _)| e.name.as_str())
        .collect();
    anyhow::ensure!(
        !r.rows.is_empty(),
        "{}: no value has the name of an operation of {} on all devices (NAME@DEVICE, as written by `scalify run --trace`)",
        path.display(),
        a.actual.display()
    );
    if !a.quiet {
        let text = if a.json || a.format == Format::Json {
            let mut j = serde_json::to_value(&r).context("JSON")?;
            j["unknown"] = extra.clone().into();
            serde_json::to_string_pretty(&j)? + "\n"
        } else {
            text(a, &r, &extra)
        };
        output::stdout(&text)?;
    }
    Ok(if r.first.is_some() { Exit::Refuted } else { Exit::Success })
}

fn text(a: &DiffArgs, r: &Traced, extra: &[&str]) -> String {
    let mut t = String::new();
    let over = r.rows.iter().filter(|x| x.ratio > 1.0).count();
    let _ = match r.first.map(|k| &r.rows[k]) {
        None => writeln!(
            t,
            "EQUAL up to rounding  {} operations of the trace are what they compute",
            r.rows.len()
        ),
        Some(f) => {
            let at = f.source.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
            let w = &f.worst;
            writeln!(
                t,
                "DIFFERENT  {over} of {} operations of the trace are not what they compute\nfirst: %{} {}{at}\n  at {:?} on device {} it is {}, its operands give {}; rounding explains {:.2e}",
                r.rows.len(),
                f.name,
                f.opcode,
                w.index,
                w.device,
                w.actual,
                w.expected,
                w.bound
            )
        }
    };
    let _ = writeln!(t, "\n{:>9} {:>9} {:>11}  operation", "of bound", "local", "accumulated");
    let mut order: Vec<usize> = (0..r.rows.len()).collect();
    if !a.all {
        order.sort_by(|&i, &j| r.rows[j].ratio.total_cmp(&r.rows[i].ratio));
        order.truncate(SHOWN);
    }
    for k in order {
        let x = &r.rows[k];
        let sum = x.accumulated.map_or("-".to_owned(), |v| format!("{v:.1e}"));
        let at = x.source.as_ref().map(|s| format!("  {s}")).unwrap_or_default();
        let _ = writeln!(
            t,
            "{:>9.2} {:>9.1e} {sum:>11}  %{} {}{at}",
            x.ratio, x.local.max, x.name, x.opcode
        );
    }
    let list = |names: &[&str]| {
        let shown = names.iter().take(4).copied().collect::<Vec<_>>().join(", ");
        if names.len() > 4 { format!("{shown}, ..") } else { shown }
    };
    if !r.absent.is_empty() {
        let names: Vec<&str> = r.absent.iter().map(String::as_str).collect();
        let _ = writeln!(
            t,
            "\n{} operations are not in the trace and were executed here: {}",
            names.len(),
            list(&names)
        );
    }
    if !extra.is_empty() {
        let _ = writeln!(
            t,
            "\n{} values of the trace belong to no operation: {}",
            extra.len(),
            list(extra)
        );
    }
    t
}
