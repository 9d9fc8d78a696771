//! A neighbourhood as SVG.

use crate::graph::Graph;
use crate::layout::{self, Route};
use scalify_ir::InstrId;
use std::fmt::Write;

const HEIGHT: f32 = 46.0;
const ROW: f32 = 84.0;

/// Draws these instructions, the first one marked; edges among them only.
pub fn render(g: &Graph<'_>, only: &[InstrId]) -> String {
    let m = g.module;
    let mut ids: Vec<u32> =
        only.iter().map(|i| i.0).filter(|&i| (i as usize) < m.instrs.len()).collect();
    ids.sort_unstable();
    ids.dedup();
    // Operands before users: the order of each computation.
    let mut place = vec![u32::MAX; m.instrs.len()];
    let mut order: Vec<u32> = Vec::with_capacity(ids.len());
    let mut wanted = vec![false; m.instrs.len()];
    for &i in &ids {
        wanted[i as usize] = true;
    }
    for c in &m.comps {
        for i in &c.instrs {
            if wanted.get(i.0 as usize) == Some(&true) {
                place[i.0 as usize] = order.len() as u32;
                order.push(i.0);
            }
        }
    }
    let mut edges = Vec::new();
    for (k, &i) in order.iter().enumerate() {
        for o in &m.instr(InstrId(i)).operands {
            let from = place.get(o.0 as usize).copied().unwrap_or(u32::MAX);
            if (from as usize) < k {
                edges.push((from, k as u32, 1));
            }
        }
    }
    edges.sort_unstable();
    edges.dedup();
    let name = |i: u32| m.name_of(InstrId(i)).chars().take(40).collect::<String>();
    let shape = |i: u32| m.shape(InstrId(i)).to_string().chars().take(40).collect::<String>();
    let widths: Vec<f32> = order
        .iter()
        .map(|&i| {
            (name(i).chars().count().max(shape(i).chars().count()) as f32 * 6.6 + 18.0).max(80.0)
        })
        .collect();
    let l = layout::lay_out(&widths, &edges);
    let rows = l.layers.len().saturating_sub(1);
    let mut y = vec![0f32; l.items.len()];
    for (r, w) in l.layers.windows(2).enumerate() {
        y[w[0] as usize..w[1] as usize].fill(20.0 + r as f32 * ROW + HEIGHT / 2.0);
    }
    let half = |p: usize| {
        l.items.get(p).and_then(|&i| widths.get(usize::try_from(i).ok()?)).map_or(4.0, |w| w / 2.0)
    };
    let lo = (0..l.x.len()).map(|p| l.x[p] - half(p)).fold(0f32, f32::min) - 20.0;
    let hi = (0..l.x.len()).map(|p| l.x[p] + half(p)).fold(0f32, f32::max) + 20.0;
    let (w, h) = (hi - lo + l.lanes as f32 * 8.0, rows as f32 * ROW + 20.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"{lo:.0} 0 {w:.0} {h:.0}\" font-family=\"ui-monospace, monospace\" font-size=\"11\">\n<rect x=\"{lo:.0}\" width=\"{w:.0}\" height=\"{h:.0}\" fill=\"#fff\"/>\n<g fill=\"none\" stroke=\"#8a93a3\">\n"
    );
    for (a, b, r) in &l.routes {
        let (a, b) = (*a as usize, *b as usize);
        let (xa, ya, xb, yb) = (l.x[a], y[a] + HEIGHT / 2.0, l.x[b], y[b] - HEIGHT / 2.0);
        let _ = write!(out, "<path d=\"M{xa:.1} {ya:.1}");
        match r {
            Route::Through(via) => {
                let (mut px, mut py) = (xa, ya);
                for &p in via {
                    let (x, t, e) = (
                        l.x[p as usize],
                        y[p as usize] - HEIGHT / 2.0,
                        y[p as usize] + HEIGHT / 2.0,
                    );
                    let mid = (py + t) / 2.0;
                    let _ = write!(out, "C{px:.1} {mid:.1} {x:.1} {mid:.1} {x:.1} {t:.1}V{e:.1}");
                    (px, py) = (x, e);
                }
                let mid = (py + yb) / 2.0;
                let _ = write!(out, "C{px:.1} {mid:.1} {xb:.1} {mid:.1} {xb:.1} {yb:.1}");
            }
            Route::Lane(k) => {
                let x = hi + *k as f32 * 8.0;
                let _ = write!(out, "V{:.1}H{x:.1}V{:.1}H{xb:.1}V{yb:.1}", ya + 10.0, yb - 10.0);
            }
        }
        out.push_str("\"/>\n");
    }
    out.push_str("</g>\n");
    for (p, &item) in l.items.iter().enumerate() {
        let Some(&i) = usize::try_from(item).ok().and_then(|k| order.get(k)) else { continue };
        let (x, top, wide) = (l.x[p] - half(p), y[p] - HEIGHT / 2.0, half(p) * 2.0);
        let op = m.instr(InstrId(i)).opcode;
        let first = only.first() == Some(&InstrId(i));
        let fill = if op.is_collective() {
            "#ffe2b8"
        } else if g.folded[i as usize] {
            "#f2f3f5"
        } else {
            "#eaf0fb"
        };
        let (stroke, thick) = if first { ("#c2410c", 2.5) } else { ("#5b6472", 1.0) };
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{HEIGHT}\" rx=\"{}\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"{thick}\"/>",
            if op.is_collective() { 14 } else { 4 }
        );
        for (k, t) in [format!("{op}"), name(i), shape(i)].iter().enumerate() {
            let weight = if k == 0 { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\"{weight}>{}</text>",
                l.x[p],
                top + 13.0 + 14.0 * k as f32,
                scalify_page::esc(t)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}
