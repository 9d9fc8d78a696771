//! Where both programs may be cut: values of the distributed program that are
//! the devices' blocks of baseline values. The first segments of each run are
//! lifted; what is found there is *proposed* of the others.

use super::flow::Flow;
use super::program::Program;
use super::runs::{Run, Split};
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
    let mut supposed: Vec<Supposed> = Vec::new();
    // First position of what is not looked at yet.
    let mut from = 0;
    for run in &ds.runs {
        if let Some(q) = supposed.iter().find_map(|s| s.again(base.flow, bs, df, ds, run, from)) {
            pairs.extend(q);
            from = run.start + run.count * run.period;
            continue;
        }
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
        let mut known = Supposed { run: *run, at: Vec::new() };
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
            let pair = Pair { nature: x.nature.or(y.nature), ..*y };
            let each = Each { offset: j, first, step, pair };
            for k in DIST_LIFTED..run.count {
                let Some(pair) = each.of(base.flow, bs, k) else { break };
                pairs.insert(node(k), pair);
            }
            known.at.push(each);
        }
        supposed.push(known);
        from = run.start + run.count * run.period;
    }
    Some(pairs)
}

/// What is supposed of one value of every segment of a run.
struct Each {
    /// Its place in a segment.
    offset: usize,
    /// Position of the baseline's value for the last segment that was lifted,
    /// and the distance from there to the next segment's.
    first: usize,
    step: usize,
    /// The pair of that segment.
    pair: Pair,
}

impl Each {
    /// The pair of segment `k`, counted from the start of the run.
    fn of(&self, bf: &Flow<'_>, bs: &Split, k: usize) -> Option<Pair> {
        let steps = k.checked_sub(DIST_LIFTED - 1)?;
        let b = *bs.order.get(self.first.checked_add(steps.checked_mul(self.step)?)?)?;
        let same = bf.nodes[b as usize].kind == bf.nodes[self.pair.base as usize].kind;
        same.then_some(Pair { base: b, ..self.pair })
    }
}

/// What is supposed of a run, for runs that go on with it: between them is a
/// segment that is not like the others.
struct Supposed {
    run: Run,
    at: Vec<Each>,
}

impl Supposed {
    /// Pairs for another run and what lies before it, from `from` on, if its
    /// segments are the same as this one's and the baseline's run covers both.
    fn again(
        &self,
        bf: &Flow<'_>,
        bs: &Split,
        df: &Flow<'_>,
        ds: &Split,
        run: &Run,
        from: usize,
    ) -> Option<Vec<(u32, Pair)>> {
        let p = self.run.period;
        if run.period != p || self.at.is_empty() {
            return None;
        }
        let kind = |k: usize| df.nodes[ds.order[k] as usize].kind;
        let gap = run.start - self.run.start;
        // Where it would begin if this run went on: as far from its start, but
        // for what the segment between has more or less.
        let fits =
            |&v: &usize| (0..p).all(|j| kind(run.start + j) == kind(self.run.start + (v + j) % p));
        let v = (0..=p / 2).flat_map(|d| [gap + d, gap.saturating_sub(d)]).find(fits)?;
        // What comes before it may be of the same segments too.
        let mut first = run.start;
        while first > from && v + first > run.start && {
            let at = v + first - 1 - run.start;
            kind(first - 1) == kind(self.run.start + at % p)
        } {
            first -= 1;
        }
        let of_run = |n: u32| bs.parts.get(bs.part[n as usize] as usize).copied().flatten();
        let mut out = Vec::new();
        for k in first..run.start + run.count * p {
            let at = v + k - run.start;
            for e in self.at.iter().filter(|e| e.offset == at % p) {
                let q = e.of(bf, bs, at / p)?;
                if e.step > 0 && of_run(q.base).map(|r| r.0) != of_run(e.pair.base).map(|r| r.0) {
                    return None;
                }
                out.push((ds.order[k], q));
            }
        }
        Some(out)
    }
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
