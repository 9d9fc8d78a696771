//! Layer memoisation: parts of the programs that repeat themselves are proved
//! once, as a lemma, and used for every instance.
//!
//! Both programs become graphs of values ([`flow`]) in which repeated segments
//! are found ([`runs`]). Where a distributed value is the devices' block of a
//! baseline value, both graphs may be cut ([`cuts`]): behind the cut, the
//! baseline value is an input of which nothing is known, and the distributed
//! value its block. What is to be proved, that each cut and each output is in
//! its layout, falls into groups ([`groups`]); groups whose graphs between
//! cuts are the same but for the names of inputs are one lemma. The first of
//! each goes into one pair of programs ([`program`]), which the ordinary
//! prover proves, with the ordinary laws.
//!
//! **Why this is sound.** By induction along the distributed program: a cut
//! or output is in its layout if the cuts that it is computed from are, by its
//! lemma, which holds of all values of the cuts. Cuts are found by looking at a
//! few segments and supposed of the others; nothing rests on that, as every
//! cut is in a group, and equal groups are equal word by word: opcodes, shapes,
//! attributes, constants, called computations, how values are used, layouts
//! and declared ranges of inputs.
//!
//! Laws also ask what is known of a value: whether a constant makes it
//! infinite, a mask or zero. That is part of a cut ([`Nature`]): a lemma may
//! use what the input grants, and is refused if the value does not. Constants
//! and values of doubt are not cut, and no assumption may be made of what is
//! computed from a cut.
//!
//! A pair that is not proved in this way is proved, or not, as a whole.
//!
//! **What may not live here:** laws, and verdicts other than PROVED.

mod cuts;
mod flow;
mod groups;
mod kinds;
mod open;
mod program;
mod runs;

use crate::Options;
use crate::conclude;
use crate::decide::{self, Attempt, Laws};
use crate::lift::Lifted;
use crate::outcome::*;
use crate::problem::{self, InputPair, Layouts, Leaf, Problem};
use crate::relate;
use cuts::Pairs;
use flow::{Flow, What};
use groups::{Group, How, Target};
pub(crate) use open::Open;
use program::Program;
use runs::Split;
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_claim::{Assume, Claim, Placement, Selector};
use scalify_ir::{InstrId, Module, Shape};
use scalify_terms::Nature;
use std::time::Instant;

/// Fewest values of a distributed program that is worth it.
const MIN_NODES: usize = 1500;

/// Placements and lists of layouts by number: equal ones have one number.
#[derive(Default)]
struct Places {
    /// `None`: the whole array, as declared.
    list: Vec<Option<Placement>>,
    lists: Vec<Layouts>,
}

impl Places {
    fn number(&mut self, q: Placement) -> u32 {
        self.maybe(Some(q))
    }

    fn maybe(&mut self, q: Option<Placement>) -> u32 {
        let k = self.list.iter().position(|x| *x == q).unwrap_or_else(|| {
            self.list.push(q);
            self.list.len() - 1
        });
        k as u32
    }

    fn layouts(&mut self, l: Layouts) -> u32 {
        // The sentences name the output: placements tell lists apart.
        let same = |x: &Layouts| x.len() == l.len() && x.iter().zip(&l).all(|(a, b)| a.0 == b.0);
        let k = self.lists.iter().position(same).unwrap_or_else(|| {
            self.lists.push(l.clone());
            self.lists.len() - 1
        });
        k as u32
    }
}

/// The two programs and what is claimed of them.
struct Task<'a, 'm> {
    base: &'m Module,
    dist: &'m Module,
    p: &'a Problem,
    options: &'a Options<'a>,
    start: Instant,
    /// Declared ranges of the baseline's inputs.
    ranges: Vec<Option<(i64, i64)>>,
}

impl<'m> Task<'_, 'm> {
    /// Declared range of a baseline input.
    fn range(&self, leaf: usize) -> Option<(i64, i64)> {
        self.ranges.get(leaf).copied().flatten()
    }

    /// The baseline node whose block an input of the distributed program is,
    /// and the number of the placement.
    fn input(&self, df: &Flow<'_>, n: u32, places: &mut Places) -> Option<(u32, u32)> {
        let What::Input { leaf, block, .. } = &df.nodes[n as usize].what else { return None };
        let pair = self.p.pairs.get(*leaf)?;
        let q = match (&pair.placement, block) {
            (q, None) => q.clone(),
            (None, Some(q)) => Some(q.clone()),
            (Some(_), Some(_)) => return None,
        };
        // Inputs are the first nodes of a graph.
        Some((u32::try_from(pair.base?).ok()?, places.maybe(q)))
    }

    /// What is left of the time.
    fn left(&self) -> Option<Options<'_>> {
        let mut o = *self.options;
        if let Some(t) = o.time_limit {
            o.time_limit = Some(t.checked_sub(self.start.elapsed())?);
        }
        Some(o)
    }

    fn attempt(
        &self,
        base: &Module,
        dist: &Module,
        claim: &Claim,
        p: &Problem,
        laws: Laws,
    ) -> Attempt {
        let Laws { rules, each, glance } = laws;
        decide::attempt(base, dist, claim, p, rules, false, each, glance, self.start, self.options)
    }

    /// The ranges of a part's inputs.
    fn claim(&self, base: &Program<'_, '_>) -> Claim {
        let mut c = Claim::default();
        for (k, &n) in base.inputs.iter().enumerate() {
            if let What::Input { leaf, .. } = base.flow.nodes[n as usize].what {
                if let Some((lo, hi)) = self.range(leaf) {
                    c.assume.push(Assume { selector: Selector::Index(k), lo, hi });
                }
            }
        }
        c
    }

    /// How the inputs of two parts stand to each other. In a probe, blocks may
    /// be of values that the baseline's part computes; a proof takes them from
    /// its inputs alone.
    fn problem(
        &self,
        base: &Program<'_, '_>,
        dist: &Program<'_, '_>,
        pairs: &Pairs,
        places: &mut Places,
        probe: bool,
    ) -> Option<Problem> {
        let leaves = |p: &Program<'_, '_>| -> Vec<Leaf> {
            let leaf = |(index, &n): (usize, &u32)| Leaf {
                param: index,
                index,
                names: vec![format!("#{index}")],
                shape: p.flow.shape(n).clone(),
            };
            p.inputs.iter().enumerate().map(leaf).collect()
        };
        let at: FxHashMap<u32, usize> =
            base.inputs.iter().enumerate().map(|(k, &n)| (n, k)).collect();
        let mut list = Vec::with_capacity(dist.inputs.len());
        let mut computed = Vec::with_capacity(dist.inputs.len());
        for (k, &n) in dist.inputs.iter().enumerate() {
            let (b, place) = match pairs.get(&n) {
                Some(q) => (q.base, q.place),
                None => self.input(dist.flow, n, places)?,
            };
            computed.push(match at.get(&b) {
                None if probe => base.computed(b),
                _ => None,
            });
            list.push(InputPair {
                dist: k,
                base: at.get(&b).copied(),
                placement: places.list[place as usize].clone(),
                inferred: false,
            });
        }
        Some(Problem {
            devices: self.p.devices,
            mesh: self.p.mesh.clone(),
            base_inputs: leaves(base),
            dist_inputs: leaves(dist),
            pairs: list,
            replica_mode: self.p.replica_mode,
            computed: if probe { computed } else { Vec::new() },
            natures: {
                let cut = cuts::natures(pairs);
                let of = |n: &u32| cut.get(n).copied().unwrap_or_default();
                base.inputs.iter().map(of).collect()
            },
            ..Problem::default()
        })
    }
}

/// What lemmas say of a pair.
pub(crate) enum Answer {
    /// It is proved.
    Proved(Outcome),
    /// A few parts are not.
    Open(Open),
    /// Nothing: too much is not proved, or nothing repeats.
    Nothing,
}

/// A proof by lemmas, or what comes closest.
pub(crate) fn prove(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    options: &Options<'_>,
    start: Instant,
) -> Answer {
    answer(base, dist, claim, p, options, start).unwrap_or(Answer::Nothing)
}

/// `None` if the programs are small, or have parts that cannot be shown.
fn answer(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    options: &Options<'_>,
    start: Instant,
) -> Option<Answer> {
    let always = options.memo == crate::Memo::Always;
    if options.memo == crate::Memo::Never
        || !p.errors.is_empty()
        || p.base_spmd
        || p.local_inputs
        || (!always && dist.instrs.len() < MIN_NODES)
    {
        return None;
    }
    let devices = u32::try_from(p.devices).ok()?;
    let graph = |m, devices| {
        let f = flow::flow(m, devices)?;
        let s = runs::split(&f);
        Some((f, s))
    };
    let (b, d) = if options.threads == 1 {
        (graph(base, 1), graph(dist, devices))
    } else {
        std::thread::scope(|s| {
            let other = std::thread::Builder::new()
                .stack_size(crate::STACK)
                .spawn_scoped(s, || graph(base, 1));
            let d = graph(dist, devices);
            (other.ok().and_then(|t| t.join().ok()).flatten(), d)
        })
    };
    let ((bf, bs), (df, ds)) = (b?, d?);
    // Half of the program at least must be instances.
    let saved: usize = ds.runs.iter().map(|r| r.count.saturating_sub(4) * r.period).sum();
    if saved == 0 || (!always && saved < ds.order.len() / 2) {
        return None;
    }
    if let Some(q) = options.progress {
        q.phase("lemmas", None);
    }
    let ranges = (0..p.base_inputs.len()).map(|b| decide::declared_range(p, claim, b)).collect();
    let t = Task { base, dist, p, options, start, ranges };
    let mut places = Places::default();
    let outputs = outputs(&t, claim, &bf, &df, &mut places)?;
    let (mut b, mut d) = (Program::new(&bf), Program::new(&df));
    // The first laws that are tried of the whole, so that its grade is no
    // stronger. What is equal by stronger laws alone is no place to cut.
    let rules = if decide::moves_only(dist, p) { decide::EXACT } else { decide::REALS };
    let laws = Laws { rules, each: false, glance: false };
    by_laws(&t, claim, laws, (&mut b, &bs), (&mut d, &ds), &outputs, &mut places)
}

/// A proof by lemmas under the given laws.
fn by_laws(
    t: &Task<'_, '_>,
    claim: &Claim,
    laws: Laws,
    (b, bs): (&mut Program<'_, '_>, &Split),
    (d, ds): (&mut Program<'_, '_>, &Split),
    outputs: &[Output],
    places: &mut Places,
) -> Option<Answer> {
    let (bf, df) = (b.flow, d.flow);
    let pairs = cuts::find(t, laws, (b, bs), (d, ds), places)?;
    let cut = cuts::natures(&pairs);
    let targets: Vec<Target> = outputs.iter().map(|o| o.0.clone()).collect();
    let groups = groups::group(t, bf, df, ds, &pairs, &cut, &targets, places)?;
    // One of each kind, as one pair of programs.
    b.restart();
    d.restart();
    let (mut bo, mut dout, mut layouts) = (Vec::new(), Vec::new(), Vec::new());
    // Of each group: its first result.
    let mut at = vec![usize::MAX; groups.len()];
    for (k, g) in groups.iter().enumerate().filter(|(k, g)| g.like == *k) {
        at[k] = bo.len();
        for t in &g.targets {
            bo.push(b.compute(t.base, &|n| cut.contains_key(&n)));
            dout.push(d.compute(t.dist, &|n| pairs.contains_key(&n)));
            layouts.push(match t.how {
                How::Block(q) => vec![(places.list[q as usize].clone()?, None)],
                How::Output(_, l) => places.lists[l as usize].clone(),
            });
        }
    }
    for &n in &d.inputs {
        let node = pairs.get(&n).map(|q| q.base);
        let node = node.or_else(|| Some(t.input(df, n, places)?.0))?;
        b.input(node);
    }
    b.finish(&bo);
    d.finish(&dout);
    let part = Problem { layouts: Some(layouts), ..t.problem(b, d, &pairs, places, false)? };
    let inner = t.claim(b);
    let mut a = t.attempt(&b.m, &d.m, &inner, &part, laws);
    if a.stop.is_some() || a.outputs.len() != bo.len() || assumes_of_cuts(&a, b, d) {
        return None;
    }
    let ok = hold(&mut a, &cut, &groups, &at);
    if decide::proved(&a) && ok.iter().all(|&x| x) {
        return Some(Answer::Proved(outcome(t, claim, &mut a, (b, d), &groups, &at, outputs)));
    }
    let (lemmas, cuts) = ((&groups[..], &at[..], &ok[..]), (&pairs, &*places));
    open::open(t, claim, &mut a, (&inner, &part), (b, d), cuts, lemmas, outputs).map(Answer::Open)
}

/// Of each result of the lemmas' pair: whether it is proved, and what laws may
/// ask of a cut value is what its input grants.
fn hold(
    a: &mut Attempt,
    cut: &FxHashMap<u32, Nature>,
    groups: &[Group],
    at: &[usize],
) -> Vec<bool> {
    let mut ok: Vec<bool> = a.outputs.iter().map(|o| o.proved).collect();
    for (k, g) in groups.iter().enumerate().filter(|(k, g)| g.like == *k) {
        for (j, t) in g.targets.iter().enumerate() {
            let n = at[k].saturating_add(j);
            let value = a.outputs.get(n).and_then(|o| o.base.clone());
            let as_cut = match (t.how, value, cut.get(&t.base)) {
                (How::Output(..), Some(_), _) => true,
                (How::Block(_), Some(v), Some(&granted)) => {
                    cuts::nature(a, &v.val).is_some_and(|x| x.within(granted))
                }
                _ => false,
            };
            if let Some(x) = ok.get_mut(n) {
                *x &= as_cut;
            }
        }
    }
    ok
}

/// True if a law that needs an assumption was used on a value that is computed
/// from a cut. Of the whole programs' values laws ask whether the assumption can
/// hold at all; of a cut's they cannot.
fn assumes_of_cuts(a: &Attempt, b: &Program<'_, '_>, d: &Program<'_, '_>) -> bool {
    let from_cuts = |records: &[Lifted], p: &Program<'_, '_>| -> Vec<bool> {
        let mut from: Vec<bool> = Vec::with_capacity(records.len());
        for r in records {
            let own = p.stands_for(r.instr).is_some_and(|n| p.flow.instr(n).is_some());
            let operand = |&o: &u32| from.get(o as usize).copied().unwrap_or(false);
            from.push(own || r.operands.iter().any(operand));
        }
        from
    };
    let (base, dist) = (from_cuts(&a.base, b), from_cuts(&a.dist, d));
    a.st.log.iter().any(|u| {
        let (list, k) = match u.at.checked_sub(decide::DIST_TAG) {
            Some(k) => (&dist, k),
            None => (&base, u.at),
        };
        list.get(k as usize).copied().unwrap_or(true)
    })
}

/// An output as a target; true if the distributed program gives it whole, put
/// together from blocks.
type Output = (Target, bool);

/// The outputs of both programs with the layouts that they may have.
fn outputs(
    t: &Task<'_, '_>,
    claim: &Claim,
    bf: &Flow<'_>,
    df: &Flow<'_>,
    places: &mut Places,
) -> Option<Vec<Output>> {
    let (bs, ds) = (problem::output_shapes(t.base), problem::output_shapes(t.dist));
    if bs.is_empty()
        || [bs.len(), ds.len(), df.outputs.len()].iter().any(|&n| n != bf.outputs.len())
    {
        return None;
    }
    let mut out = Vec::with_capacity(bs.len());
    for (k, (b, d)) in bf.outputs.iter().zip(&df.outputs).enumerate() {
        let (Shape::Array(g), Shape::Array(s)) = (&bs[k], &ds[k]) else { return None };
        if b.block.is_some() || g.dtype != s.dtype {
            return None;
        }
        let mut list = problem::output_layouts(t.p, claim, t.dist, k, g, s).ok()?;
        if let Some(q) = &d.block {
            let local = df.shape(d.node).as_array()?;
            let whole = list.iter().any(|l| l.0.is_replicated());
            if !whole || g.dims != s.dims || q.local_shape(&g.dims)?[..] != local.dims[..] {
                return None;
            }
            list = vec![(q.clone(), None)];
        }
        let how = How::Output(k as u32, places.layouts(list));
        out.push((Target { base: b.node, dist: d.node, how }, d.block.is_some()));
    }
    Some(out)
}

/// What the lemmas' proof assumes, of the whole programs.
fn assumed(
    t: &Task<'_, '_>,
    claim: &Claim,
    a: &Attempt,
    (b, d): (&Program<'_, '_>, &Program<'_, '_>),
) -> Vec<Assumption> {
    let mut assumptions = conclude::assumptions(a, t.p, &b.m, &d.m);
    for x in &mut assumptions {
        x.at = x.at.map(|(side, i)| match side {
            Side::Base => (side, b.origin(i)),
            Side::Dist => (side, d.origin(i)),
        });
    }
    assumptions.extend(conclude::declared(t.p, claim));
    assumptions
}

/// Outputs of the whole programs as their lemmas show them, and the layouts
/// that were assumed for them. `proved`: whether result `k` of a group holds,
/// with all that it is computed from.
fn results(
    t: &Task<'_, '_>,
    a: &mut Attempt,
    (b, d): (&Program<'_, '_>, &Program<'_, '_>),
    (groups, at): (&[Group], &[usize]),
    outputs: &[Output],
    proved: impl Fn(&Group, usize) -> bool,
) -> (Vec<OutputResult>, Vec<Assumption>) {
    let (mut results, mut assumptions) = (Vec::new(), Vec::new());
    for g in groups {
        for (k, target) in g.targets.iter().enumerate() {
            let How::Output(n, _) = target.how else { continue };
            let n = n as usize;
            let ok = proved(g, k);
            let check = at[g.like].checked_add(k).and_then(|k| a.outputs.get(k)).filter(|_| ok);
            let placement = check.and_then(|c| c.placement.clone());
            if check.is_some_and(|c| c.assumed.is_some()) {
                // The sentence of this output, not of the lemma's.
                let mesh = scalify_claim::Mesh::new(t.p.mesh.clone()).ok();
                let text = problem::layout_text(n, placement.as_ref(), mesh.as_ref());
                assumptions.push(Assumption { kind: AssumptionKind::Layout, text, at: None });
            }
            let bi = b.flow.outputs[n].instr;
            let shown = match (&placement, outputs[n].1) {
                (Some(q), true) => Some(Placement::replicated(q.dims.len(), q.devices)),
                (q, _) => q.clone(),
            };
            results.push(OutputResult {
                index: n,
                name: conclude::output_name(t.dist, n, outputs.len()),
                base: bi,
                dist: d.flow.outputs[n].instr,
                verdict: if ok { Verdict::Proved } else { Verdict::Unknown },
                relation: if ok { relate::output(a, t.base, n, bi, shown.as_ref()) } else { None },
                reason: (!ok).then(|| crate::outputs::UNRELATED.to_owned()),
            });
        }
    }
    results.sort_by_key(|o| o.index);
    (results, assumptions)
}

/// What the proof of the lemmas says of the whole programs.
fn outcome(
    t: &Task<'_, '_>,
    claim: &Claim,
    a: &mut Attempt,
    (b, d): (&Program<'_, '_>, &Program<'_, '_>),
    groups: &[Group],
    at: &[usize],
    outputs: &[Output],
) -> Outcome {
    let mut assumptions = assumed(t, claim, a, (b, d));
    let (results, layouts) = results(t, a, (b, d), (groups, at), outputs, |_, _| true);
    assumptions.extend(layouts);
    let grade = if a.is_exact() {
        Grade::Exact
    } else {
        conclude::grade_with(decide::grade_of(a), &assumptions)
    };
    // Sums of each lemma, then of its instances.
    let mut regrouped = Vec::new();
    if grade != Grade::Exact {
        let of: FxHashMap<u32, Regrouped> = conclude::regrouped(a, &d.m)
            .into_iter()
            .filter_map(|r| Some((d.node(r.instr)?, r)))
            .collect();
        let mut seen: FxHashSet<InstrId> = FxHashSet::default();
        for g in groups {
            for (&x, &n) in groups[g.like].nodes.iter().zip(&g.nodes) {
                if let (Some(r), Some(i)) = (of.get(&x), d.flow.instr(n)) {
                    if seen.insert(i) {
                        regrouped.push(Regrouped { instr: i, ..r.clone() });
                    }
                }
            }
        }
        regrouped.sort_by_key(|r| r.instr);
    }
    Outcome {
        verdict: Verdict::Proved,
        grade: Some(grade),
        assumptions,
        regrouped,
        outputs: results,
        frontier: Vec::new(),
        mesh: t.p.mesh.clone(),
        notes: t.p.notes.clone(),
        exhausted: None,
        stats: Stats {
            base_instructions: b.flow.nodes.len(),
            dist_instructions: d.flow.nodes.len(),
            classes: a.st.len(),
            frontier_events: a.replaced,
            seconds: t.start.elapsed().as_secs_f64(),
            devices: t.p.devices as u32,
            parts: groups.len(),
            lemmas: groups.iter().enumerate().filter(|(k, g)| g.like == *k).count(),
        },
    }
}
