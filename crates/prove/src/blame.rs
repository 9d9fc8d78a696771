//! Which instruction is to blame where there is no proof.

use crate::decide::{Attempt, ratio};
use crate::lift::Path;
use crate::outcome::*;
use crate::problem::Problem;
use crate::relate;
use scalify_claim::Claim;
use scalify_ir::{InstrId, Module, Opcode};

/// Most frontier items that are reported.
const MAX_ITEMS: usize = 16;

/// Frames of an instruction, inherited from its call site if it has none,
/// then those of the call sites.
pub(crate) fn frames(m: &Module, paths: &[Path], i: InstrId, path: u32) -> Vec<Frame> {
    let mut out: Vec<Frame> = Vec::new();
    let mut add = |i: InstrId| {
        for f in m.frames(i) {
            let f = Frame {
                file: f.file.to_owned(),
                function: f.function.to_owned(),
                line: f.line,
                column: f.column,
                end_column: f.end_column,
            };
            if !out.contains(&f) {
                out.push(f);
            }
        }
    };
    add(i);
    let mut p = path;
    for _ in 0..128 {
        let Some(q) = paths.get(p as usize) else { break };
        if let Some(c) = q.call {
            add(c);
        }
        p = q.parent;
    }
    out
}

/// The frontier: unrelated values of failing outputs whose operands are
/// related, the likely fault first.
pub(crate) fn frontier(
    a: &mut Attempt,
    base: &Module,
    dist: &Module,
    p: &Problem,
    claim: &Claim,
) -> Vec<FrontierItem> {
    let _ = (p, claim);
    let n = a.dist.len();
    // Unrelated values that failing outputs are computed from through
    // unrelated values only.
    let mut reach: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut order: Vec<u32> = Vec::new();
    for (k, o) in a.outputs.iter().enumerate() {
        if o.proved {
            continue;
        }
        let mut stack = vec![o.dist_rec];
        while let Some(r) = stack.pop() {
            let Some(rec) = a.dist.get(r as usize) else { continue };
            if reach[r as usize].contains(&k) {
                continue;
            }
            if rec.known(&a.dist) && r != o.dist_rec {
                continue;
            }
            reach[r as usize].push(k);
            if reach[r as usize].len() == 1 {
                order.push(r);
            }
            stack.extend(rec.operands.iter().copied());
        }
    }
    order.sort_unstable();
    let is_frontier = |r: u32| -> bool {
        let rec = &a.dist[r as usize];
        (rec.tv.is_some() || rec.failed.is_some())
            && rec.operands.iter().all(|&o| a.dist.get(o as usize).is_none_or(|x| x.known(&a.dist)))
    };
    let front: Vec<u32> = order.iter().copied().filter(|&r| is_frontier(r)).collect();
    let mut items = Vec::new();
    for &r in front.iter().take(MAX_ITEMS) {
        let rec = a.dist[r as usize].clone();
        let operands: Vec<(InstrId, Option<Relation>)> = rec
            .operands
            .iter()
            .filter_map(|&o| a.dist.get(o as usize).map(|x| (o, x.instr)))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(o, i)| (i, relate::relation(a, base, dist, o)))
            .collect();
        let op = dist.instr(rec.instr).opcode;
        let reason = match &rec.failed {
            Some(f) => f.to_string(),
            None => describe(a, r, op),
        };
        items.push(FrontierItem {
            instr: rec.instr,
            code: if rec.failed.is_some() { "not-lifted" } else { "unrelated" },
            reason,
            expected: None,
            frames: frames(dist, &a.dist_paths, rec.instr, rec.path),
            operands,
            counterpart: None,
            reaches: reach[r as usize].clone(),
        });
    }
    items
}

fn describe(a: &mut Attempt, r: u32, op: Opcode) -> String {
    let Some(t) = a.dist[r as usize].tv.clone() else { return "no array".to_owned() };
    let twin = a.base.iter().position(|b| {
        b.tv.as_ref().is_some_and(|b| b.val.r.class == t.val.r.class)
    });
    if let Some(k) = twin {
        let c = a.base[k].tv.as_ref().map(|b| b.val.coef);
        if let Some(c) = c {
            return format!(
                "the value is {} times a baseline value",
                ratio(&mut a.st, t.val.coef, c)
            );
        }
    }
    format!("no baseline value equals this {op}")
}
