//! Graphviz DOT.

use crate::graph::Graph;
use scalify_ir::InstrId;
use std::fmt::Write;

/// The instructions `only` (all, if empty) as a digraph, computations as
/// clusters, folded instructions left out.
pub fn render(g: &Graph<'_>, only: &[InstrId]) -> String {
    let m = g.module;
    let mut keep = vec![only.is_empty(); m.instrs.len()];
    for i in only {
        if let Some(k) = keep.get_mut(i.0 as usize) {
            *k = true;
        }
    }
    let shown = |i: u32| {
        keep.get(i as usize) == Some(&true)
            && (!only.is_empty() || g.folded.get(i as usize) == Some(&false))
    };
    let mut out = String::from(
        "digraph module {\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n",
    );
    for (k, c) in m.comps.iter().enumerate() {
        if !c.instrs.iter().any(|i| shown(i.0)) {
            continue;
        }
        let _ = writeln!(out, "  subgraph cluster_{k} {{\n    label={};", quote(m.str(c.name)));
        for &InstrId(i) in &c.instrs {
            if !shown(i) {
                continue;
            }
            let op = m.instr(InstrId(i)).opcode;
            let mut shape = m.shape(InstrId(i)).to_string();
            if let Some((at, _)) = shape.char_indices().nth(60) {
                shape.truncate(at);
                shape.push('…');
            }
            let style = if op.is_collective() {
                ", style=\"filled,bold\", fillcolor=\"#ffd9a0\""
            } else {
                ""
            };
            let label = format!("{}\n{op} {shape}", m.name_of(InstrId(i)));
            let _ = writeln!(out, "    n{i} [label={}{style}];", quote(&label));
        }
        out.push_str("  }\n");
    }
    for (k, i) in m.instrs.iter().enumerate() {
        if !shown(k as u32) {
            continue;
        }
        for o in &i.operands {
            if shown(o.0) {
                let _ = writeln!(out, "  n{} -> n{k};", o.0);
            }
        }
    }
    out.push_str("}\n");
    out
}

fn quote(t: &str) -> String {
    let mut out = String::from("\"");
    for c in t.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
