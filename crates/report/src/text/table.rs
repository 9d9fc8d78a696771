//! The table of outputs.

use super::{MAX_OUTPUTS, Paint, output_name};
use crate::{Subject, names};
use scalify_prove::outcome::{OutputResult, Verdict};
use std::fmt::Write as _;

pub(super) fn render(t: &mut String, s: &Subject<'_>, p: Paint, all: bool) {
    let outputs = &s.decision.outcome.outputs;
    if outputs.is_empty() {
        return;
    }
    let _ = writeln!(t, "\n{}", p.bold("outputs"));
    if all || outputs.len() <= MAX_OUTPUTS {
        let every: Vec<&OutputResult> = outputs.iter().collect();
        rows(t, s, p, &every);
        return;
    }
    let open: Vec<&OutputResult> =
        outputs.iter().filter(|r| r.verdict != Verdict::Proved).collect();
    let head: Vec<&OutputResult> = open.iter().take(MAX_OUTPUTS).copied().collect();
    rows(t, s, p, &head);
    if open.len() > head.len() {
        let more = format!("... and {} more not proved", open.len() - head.len());
        let _ = writeln!(t, "  {}", p.dim(&more));
    }
    // Proved ones by layout, most frequent first; order of appearance on ties.
    let mut groups: Vec<(String, Vec<&OutputResult>)> = Vec::new();
    for r in outputs.iter().filter(|r| r.verdict == Verdict::Proved) {
        let key = r.relation.as_ref().map_or(String::new(), names::layout);
        match groups.iter_mut().find(|g| g.0 == key) {
            Some(g) => g.1.push(r),
            None => groups.push((key, vec![r])),
        }
    }
    groups.sort_by_key(|g| std::cmp::Reverse(g.1.len()));
    for (layout, members) in groups {
        let example = members.first().map_or(String::new(), |r| output_name(r));
        let count = members.len();
        let of = if count == 1 { example } else { format!("{count} outputs, such as {example}") };
        let layout = if layout.is_empty() { String::new() } else { format!("  {layout}") };
        let _ = writeln!(t, "  {}  {of}{layout}", p.small_verdict(Verdict::Proved));
    }
}

fn rows(t: &mut String, s: &Subject<'_>, p: Paint, rows: &[&OutputResult]) {
    let cells: Vec<(String, String)> =
        rows.iter().map(|r| (output_name(r), names::shape(s.dist, r.dist))).collect();
    let width = |f: fn(&(String, String)) -> usize| cells.iter().map(f).max().unwrap_or(0).min(40);
    let (w0, w1) = (width(|c| c.0.chars().count()), width(|c| c.1.chars().count()));
    for (r, (name, shape)) in rows.iter().zip(&cells) {
        let _ = write!(t, "  {}  {name:w0$}  {shape:w1$}", p.small_verdict(r.verdict));
        let example = s.decision.counterexample.as_ref();
        let differs = example.and_then(|c| c.outputs.iter().find(|d| d.output == r.index));
        match (&r.relation, &r.reason) {
            _ if r.verdict == Verdict::Refuted && differs.is_some() => {
                let count = differs.map_or((0, 0), |d| d.count);
                let _ = write!(t, "  {} of {} elements differ", count.0, count.1);
            }
            (Some(rel), _) => {
                let text = if rel.text.is_empty() {
                    format!("= {}, {}", names::name(s.base, rel.base), names::layout(rel))
                } else {
                    rel.text.clone()
                };
                let _ = write!(t, "  {text}");
                let steps = names::bijection(&rel.bijection);
                if !steps.is_empty() {
                    let _ = write!(t, "  {}", p.dim(&format!("[{steps}]")));
                }
            }
            (None, Some(reason)) => {
                let _ = write!(t, "  {reason}");
            }
            (None, None) => {}
        }
        while t.ends_with(' ') {
            t.pop();
        }
        t.push('\n');
    }
}
