//! What lemmas show of programs of which one part is not proved: where the
//! fault is, and which values before it are blocks of the baseline's.
//!
//! **What may not live here:** laws, and the verdict PROVED.

use super::cuts::Pairs;
use super::flow::Flow;
use super::groups::{Group, How};
use super::program::Program;
use super::{Output, Places, Task};
use crate::conclude;
use crate::decide::Attempt;
use crate::outcome::*;
use rustc_hash::FxHashMap;
use scalify_claim::{Claim, Placement};
use scalify_ir::InstrId;

/// Parts without a proof, at most: a fault is in one layer. What fails in every
/// layer is a law that lemmas lack, or a fault that the whole shows as well.
const FEW: usize = 4;
/// Fewest parts in which such a one stands out.
const MANY: usize = 16;

/// An unfinished proof by lemmas.
pub(crate) struct Open {
    /// UNKNOWN, with the frontier of the parts that are not proved.
    pub(crate) outcome: Outcome,
    /// Distributed values that are proved to be the devices' blocks of
    /// baseline values, of instructions that have one value.
    pub(crate) blocks: FxHashMap<InstrId, (InstrId, Placement)>,
}

/// What an attempt at the lemmas shows; `None` if it fails in many parts.
/// `ok`: of each result of the part, whether its lemma holds. `at`: of each
/// group that is the first of its kind, its first result.
pub(super) fn open(
    t: &Task<'_, '_>,
    claim: &Claim,
    a: &mut Attempt,
    inner: (&Claim, &crate::problem::Problem),
    (b, d): (&Program<'_, '_>, &Program<'_, '_>),
    (pairs, places): (&Pairs, &Places),
    (groups, at, ok): (&[Group], &[usize], &[bool]),
    outputs: &[Output],
) -> Option<Open> {
    let holds = |g: &Group, k: usize| {
        at[g.like].checked_add(k).and_then(|n| ok.get(n)).copied().unwrap_or(false)
    };
    let failed = groups.iter().filter(|g| (0..g.targets.len()).any(|k| !holds(g, k))).count();
    if groups.len() < MANY || !(1..=FEW).contains(&failed) {
        return None;
    }
    let (bf, df) = (b.flow, d.flow);
    // Values computed from cuts that are proved alone, and those cuts.
    let mut lemma = vec![false; df.nodes.len()];
    for g in groups {
        for (k, t) in g.targets.iter().enumerate().filter(|(_, t)| matches!(t.how, How::Block(_))) {
            lemma[t.dist as usize] = holds(g, k);
        }
    }
    let mut sound = vec![false; df.nodes.len()];
    for n in 0..df.nodes.len() {
        let given = |&o: &u32| sound[o as usize] && (lemma[o as usize] || !pairs.contains_key(&o));
        sound[n] = df.nodes[n].operands.iter().all(given);
    }
    let shown = conclude::outcome(a, None, &b.m, &d.m, inner.0, inner.1, t.options, t.start, true);
    let mut frontier = shown.frontier;
    for f in &mut frontier {
        f.reaches = d.node(f.instr).map_or_else(Vec::new, |n| reached(df, n));
        whole(f, b, d);
    }
    let proved = |g: &Group, k: usize| holds(g, k) && sound[g.targets[k].dist as usize];
    let (results, layouts) = super::results(t, a, (b, d), (groups, at), outputs, proved);
    let mut assumptions = Vec::new();
    if results.iter().any(|r| r.verdict == Verdict::Proved) {
        assumptions = super::assumed(t, claim, a, (b, d));
        assumptions.extend(layouts);
    }
    Some(Open {
        outcome: Outcome {
            outputs: results,
            frontier,
            mesh: t.p.mesh.clone(),
            notes: t.p.notes.clone(),
            assumptions,
            stats: Stats {
                base_instructions: bf.nodes.len(),
                dist_instructions: df.nodes.len(),
                ..shown.stats
            },
            ..shown
        },
        blocks: blocks(bf, df, pairs, places, |n| lemma[n as usize] && sound[n as usize]),
    })
}

/// A finding of the part as one of the whole programs.
fn whole(f: &mut FrontierItem, b: &Program<'_, '_>, d: &Program<'_, '_>) {
    f.instr = d.origin(f.instr);
    f.counterpart = f.counterpart.map(|i| b.origin(i));
    for (i, r) in &mut f.operands {
        *i = d.origin(*i);
        if let Some(r) = r {
            r.base = b.origin(r.base);
        }
    }
}

/// Outputs that are computed from a value.
fn reached(f: &Flow<'_>, from: u32) -> Vec<usize> {
    let mut hit = vec![false; f.nodes.len()];
    hit[from as usize] = true;
    // Operands come before users.
    for n in from as usize + 1..f.nodes.len() {
        hit[n] = f.nodes[n].operands.iter().any(|&o| hit[o as usize]);
    }
    let out = f.outputs.iter().enumerate().filter(|(_, o)| hit[o.node as usize]);
    out.map(|(k, _)| k).collect()
}

/// The cuts that are proved, of instructions that stand for one value.
fn blocks(
    bf: &Flow<'_>,
    df: &Flow<'_>,
    pairs: &Pairs,
    places: &Places,
    proved: impl Fn(u32) -> bool,
) -> FxHashMap<InstrId, (InstrId, Placement)> {
    let counts = |f: &Flow<'_>| {
        let mut c = vec![0u8; f.m.instrs.len()];
        for n in 0..f.nodes.len() {
            if let Some(i) = f.instr(n as u32) {
                c[i.0 as usize] = c[i.0 as usize].saturating_add(1);
            }
        }
        c
    };
    let (bc, dc) = (counts(bf), counts(df));
    let one = |q: (&u32, &super::cuts::Pair)| {
        let (&n, pair) = q;
        let (d, b) = (df.instr(n)?, bf.instr(pair.base)?);
        let once = bc[b.0 as usize] == 1 && dc[d.0 as usize] == 1;
        let place = places.list.get(pair.place as usize)?.clone()?;
        (once && proved(n)).then_some((d, (b, place)))
    };
    pairs.iter().filter_map(one).collect()
}
