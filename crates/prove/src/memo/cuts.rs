//! Where both programs may be cut: values of the distributed program that are
//! the devices' blocks of baseline values. The first segments of each run are
//! lifted; what is found there is *proposed* of the others.

use super::flow::Flow;
use super::program::Program;
use super::runs::Split;
use super::{Places, Task};
use crate::decide::{Attempt, Laws};
use crate::relate;
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_ir::{InstrId, Opcode};
use scalify_terms::{Nature, Val};

/// Segments of each run of the baseline that are lifted.
const BASE_LIFTED: usize = 4;
/// Segments of each run of the distributed program that are lifted.
const DIST_LIFTED: usize = 3;
/// Steps that are rather done again than cut off.
const SMALL: usize = 64;
/// Runs of a program at most.
const MAX_RUNS: usize = 24;

/// A baseline value and the distributed value that is its block on each
/// device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub(super) base: u32,
    /// Number of the placement in [`Places`].
    pub(super) place: u32,
    /// What laws may ask of the baseline value.
    pub(super) nature: Nature,
}

/// Pairs by distributed node, in program order.
pub(super) type Pairs = FxHashMap<u32, Pair>;

/// True of values that a cut may go through: arrays of floats that depend on
/// inputs.
fn may_cut(f: &Flow<'_>, n: u32) -> bool {
    f.nodes[n as usize].open
        && f.opcode(n).is_some_and(|o| o != Opcode::Broadcast)
        && f.shape(n)
            .as_array()
            .is_some_and(|a| a.dynamic == 0 && (a.dtype.is_float() || a.dtype.is_complex()))
}

/// Finds pairs; `None` if the time is over or nothing repeats.
pub(super) fn find(
    t: &Task<'_, '_>,
    laws: Laws,
    (base, bs): (&mut Program<'_, '_>, &Split),
    (dist, ds): (&mut Program<'_, '_>, &Split),
    places: &mut Places,
) -> Option<Pairs> {
    if bs.runs.len() > MAX_RUNS || ds.runs.len() > MAX_RUNS {
        return None;
    }
    let bf = base.flow;
    let mut at = vec![usize::MAX; bf.nodes.len()];
    for (k, &n) in bs.order.iter().enumerate() {
        at[n as usize] = k;
    }
    let lifted = |n: u32| match bs.parts.get(bs.part[n as usize] as usize) {
        Some(Some((_, k))) => *k < BASE_LIFTED,
        _ => true,
    };
    let leaves: FxHashSet<u32> = bs
        .order
        .iter()
        .copied()
        .filter(|&n| bs.crosses[n as usize] && !lifted(n) && may_cut(bf, n))
        .collect();
    base.restart();
    for &n in bs.order.iter().filter(|&&n| lifted(n)) {
        base.compute(n, &|x| leaves.contains(&x));
    }
    for &n in bs.order.iter().filter(|n| leaves.contains(n)) {
        base.input(n);
    }
    base.finish(&[]);
    probe(t, laws, base, dist, (bs, &at), ds, places)
}

/// Lifts the first segments of each run in turn, as far as other parts use
/// them, and takes what is found for the other segments too.
fn probe(
    t: &Task<'_, '_>,
    laws: Laws,
    base: &Program<'_, '_>,
    dist: &mut Program<'_, '_>,
    (bs, at): (&Split, &[usize]),
    ds: &Split,
    places: &mut Places,
) -> Option<Pairs> {
    let df = dist.flow;
    let mut pairs = Pairs::default();
    let mut attempt: Option<Attempt> = None;
    // First position of what is not looked at yet.
    let mut from = 0;
    for run in &ds.runs {
        let end = run.start + run.count.min(DIST_LIFTED) * run.period;
        dist.restart();
        let wanted = |n: &u32| ds.crosses[*n as usize] && may_cut(df, *n);
        for &n in ds.order[from..end].iter().filter(|n| wanted(n)) {
            dist.compute(n, &|x| pairs.get(&x).is_some_and(|q| base.has(q.base)));
        }
        dist.finish(&[]);
        let p = t.problem(base, dist, &pairs, places, true)?;
        let claim = t.claim(base);
        let a = match attempt.take() {
            None => t.attempt(&base.m, &dist.m, &claim, &p, laws),
            Some(a) => a.again(&base.m, &dist.m, &claim, &p, &t.left()?, None),
        };
        let mut a = a;
        if a.stop.is_some() {
            return None;
        }
        let mut records: FxHashMap<InstrId, u32> = FxHashMap::default();
        for (k, r) in a.dist.iter().enumerate() {
            records.entry(r.instr).or_insert(k as u32);
        }
        let mut alike: FxHashMap<_, Vec<u32>> = FxHashMap::default();
        for (k, r) in a.base.iter().enumerate() {
            if let Some(t) = r.tv.as_ref().filter(|_| r.failed.is_none()) {
                alike.entry((t.val.r.class, t.val.coef)).or_default().push(k as u32);
            }
        }
        let mut found: FxHashMap<u32, Pair> = FxHashMap::default();
        let of: Vec<(u32, u32)> = records
            .iter()
            .filter_map(|(&i, &k)| Some((dist.node(i)?, k)))
            .filter(|&(n, _)| n != u32::MAX && wanted(&n) && !pairs.contains_key(&n))
            .collect();
        for (n, rec) in of {
            let key = a.dist[rec as usize].tv.as_ref().map(|t| (t.val.r.class, t.val.coef));
            let Some(among) = key.and_then(|k| alike.get_mut(&k)) else { continue };
            // An instruction of the same kind is the best counterpart.
            let op = df.opcode(n);
            among.sort_by_key(|&k| Some(base.m.instr(a.base[k as usize].instr).opcode) != op);
            let hit = relate::block_of_some(&mut a, &base.m, &dist.m, rec, among);
            if let Some((bi, q)) = hit {
                let Some(b) = base.node(bi).filter(|&b| may_cut(base.flow, b)) else { continue };
                let t = a.dist[rec as usize].tv.as_ref().map(|t| t.val.clone());
                let Some(nature) = t.and_then(|t| nature(&mut a, &t)) else { continue };
                found.insert(n, Pair { base: b, place: places.number(q), nature });
            }
        }
        attempt = Some(a);
        for (k, &n) in ds.order[from..end].iter().enumerate() {
            let gap = from + k < run.start;
            if let Some(&q) = found.get(&n).filter(|_| !gap || !small(df, n, &pairs)) {
                pairs.insert(n, q);
            }
        }
        // The same of the other segments.
        for j in 0..run.period {
            let node = |k: usize| ds.order[run.start + k * run.period + j];
            let (Some(x), Some(y)) =
                (found.get(&node(DIST_LIFTED - 2)), found.get(&node(DIST_LIFTED - 1)))
            else {
                continue;
            };
            if x.place != y.place {
                continue;
            }
            let Some((first, step)) = steps(bs, at, x.base, y.base) else { continue };
            for k in DIST_LIFTED..run.count {
                let Some(b) = first.checked_add((k - DIST_LIFTED + 1) * step) else { break };
                let Some(&b) = bs.order.get(b) else { break };
                if base.flow.nodes[b as usize].kind != base.flow.nodes[y.base as usize].kind {
                    break;
                }
                let nature = x.nature.or(y.nature);
                pairs.insert(node(k), Pair { base: b, place: y.place, nature });
            }
        }
        from = run.start + run.count * run.period;
    }
    Some(pairs)
}

/// The position of `y` and the distance from there to the value of the next
/// segments, as `x` and `y` in one run suggest it; 0 for one value.
fn steps(bs: &Split, at: &[usize], x: u32, y: u32) -> Option<(usize, usize)> {
    let (u, v) = (*at.get(x as usize)?, *at.get(y as usize)?);
    let run = |n: u32| bs.parts.get(*bs.part.get(n as usize)? as usize).copied().flatten();
    if u == v {
        return Some((v, 0));
    }
    let ((r, _), (q, _)) = (run(x)?, run(y)?);
    let step = v.checked_sub(u)?;
    (r == q && step % bs.runs.get(r)?.period == 0).then_some((v, step))
}

/// True of a value between runs that is computed from inputs and cuts in a
/// few steps. It is computed anew by each part: the baseline may compute it
/// more than once, where the distributed program does so once, and no cut says
/// that these are equal.
fn small(f: &Flow<'_>, n: u32, pairs: &Pairs) -> bool {
    let mut seen: FxHashSet<u32> = FxHashSet::default();
    let mut todo = vec![n];
    while let Some(x) = todo.pop() {
        if f.instr(x).is_none() || pairs.contains_key(&x) || !seen.insert(x) {
            continue;
        }
        if seen.len() > SMALL {
            return false;
        }
        todo.extend(&f.nodes[x as usize].operands);
    }
    true
}

/// What laws may ask of a value behind a cut; `None` if it cannot be cut. Laws
/// that hold to the bit ask nothing.
pub(super) fn nature(a: &mut Attempt, v: &Val) -> Option<Nature> {
    if a.is_exact() { Some(Nature::default()) } else { a.st.nature(v) }
}

/// What laws may ask of each baseline value that is cut.
pub(super) fn natures(pairs: &Pairs) -> FxHashMap<u32, Nature> {
    let mut out: FxHashMap<u32, Nature> = FxHashMap::default();
    // In any order: what holds of values of all natures.
    pairs.values().for_each(|q| {
        let n = out.entry(q.base).or_default();
        *n = n.or(q.nature);
    });
    out
}
