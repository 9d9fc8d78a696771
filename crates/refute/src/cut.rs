//! The distributed program from where its values are proved to be blocks of
//! the baseline's.
//!
//! In a deep stack all layers before a fault are proved. There the devices'
//! values follow from the baseline's, which one device computes; only what
//! comes after is evaluated on all of them.

use crate::edit::{Editor, Ids, valid};
use crate::evaluate::{self, Inputs, Results, RunLimits};
use crate::restrict::cone;
use crate::shrink::{Reduced, shrink};
use rustc_hash::FxHashSet;
use scalify_claim::Placement;
use scalify_interp::{Accumulate, RunError};
use scalify_ir::{Attrs, InstrId, Module, Opcode, Shape};
use scalify_prove::Kept;
use scalify_prove::problem::{InputPair, Leaf, Problem};

/// A pair whose distributed program takes intermediate values of the baseline
/// as further inputs.
pub struct Cut {
    /// The baseline, with those values as its last outputs.
    pub base: Module,
    /// The distributed program, with those values as its last parameters.
    pub dist: Module,
    /// The given distributed program's instructions in it.
    pub ids: Ids,
    p: Problem,
    placements: Vec<Option<Placement>>,
    /// Position of the first of those outputs.
    first: usize,
    /// Pairs of the inputs that the distributed program still reads.
    pairs: Vec<usize>,
}

/// Most values at a cut.
const MAX_CUT: usize = 64;

/// A pair for one output ([`restrict`]) at reduced sizes, its pairing, and the
/// cut before what is not related.
///
/// [`restrict`]: crate::restrict::restrict
pub fn near(one: &Reduced, p: &Problem, kept: &mut Kept<'_>) -> Option<(Reduced, Problem, Cut)> {
    let sections =
        |q: &InputPair| q.placement.iter().any(|q| q.dims.iter().any(|d| !d.sections.is_empty()));
    if p.local_inputs || p.base_spmd || p.pairs.iter().any(sections) {
        return None;
    }
    let mut q = p.clone();
    let small = shrink(&one.base, &one.dist, &q)?;
    let params = |m: &Module| -> Vec<Shape> {
        m.entry_comp().params.iter().map(|&x| m.shape(x).clone()).collect()
    };
    for (leaves, m) in [(&mut q.base_inputs, &small.base), (&mut q.dist_inputs, &small.dist)] {
        let shapes = params(m);
        if leaves.len() != shapes.len() {
            return None;
        }
        for (l, s) in leaves.iter_mut().zip(shapes) {
            l.shape = s;
        }
    }
    let (base_ids, dist_ids) = (one.base_ids.clone(), one.dist_ids.clone());
    let r = Reduced { output: one.output, base_ids, dist_ids, ..small };
    let cut = cut(&r, &q, kept)?;
    Some((r, q, cut))
}

/// A value of the distributed program and the baseline's of which it is the
/// block.
struct Given {
    dist: InstrId,
    base: InstrId,
    placement: Placement,
}

fn cut(r: &Reduced, p: &Problem, kept: &mut Kept<'_>) -> Option<Cut> {
    let root = r.dist.instr(r.dist.entry_comp().root);
    let out = *root.operands.get(r.output?)?;
    let here: FxHashSet<InstrId> = r.base.entry_comp().instrs.iter().copied().collect();
    let mut given: Vec<Given> = Vec::new();
    let mut live = FxHashSet::default();
    let mut work = vec![out];
    while let Some(x) = work.pop() {
        if !live.insert(x) {
            continue;
        }
        match related(r, x, kept).filter(|g| here.contains(&g.base)) {
            Some(g) => given.push(g),
            None => work.extend(r.dist.instr(x).operands.iter().copied()),
        }
        if given.len() > MAX_CUT {
            return None;
        }
    }
    if given.is_empty() {
        return None;
    }
    let params = &r.dist.entry_comp().params;
    let read = |q: &InputPair| params.get(q.dist).is_some_and(|x| live.contains(x));
    let kept_pairs: Vec<usize> = (0..p.pairs.len()).filter(|&k| read(&p.pairs[k])).collect();
    let (q, placements) = pairing(r, p, &kept_pairs, &given);
    let first = r.base.instr(r.base.entry_comp().root).operands.len();
    let base = with_outputs(&r.base, &given)?;
    let inputs = kept_pairs.iter().map(|&k| params[p.pairs[k].dist]).collect();
    let (dist, ids) = from_given(&r.dist, inputs, &given, &live)?;
    let ids = r.dist_ids.then(&ids);
    Some(Cut { base, dist, ids, p: q, placements, first, pairs: kept_pairs })
}

/// The baseline value of which `x` is the block, if both are computed, with
/// the sizes that the placement says, in the reduced pair too.
fn related(r: &Reduced, x: InstrId, kept: &mut Kept<'_>) -> Option<Given> {
    let given = r.dist_ids.given(x)?;
    if r.dist.instr(x).operands.is_empty() || !kept.is_related(given) {
        return None;
    }
    let (b, placement) = kept.block_of(given)?;
    // `None`: left out of the reduced baseline.
    let b = r.base_ids.small(b)?;
    let i = r.base.instr(b);
    if i.operands.is_empty() && i.opcode != Opcode::Parameter {
        return None;
    }
    let (g, l) = (r.base.array(b)?, r.dist.array(x)?);
    let tiles = placement.dims.iter().map(|d| i64::from(d.tiles.max(1)));
    let fits = g.dtype == l.dtype
        && g.dims.len() == placement.dims.len()
        && g.dims.len() == l.dims.len()
        && placement.dims.iter().all(|d| d.sections.is_empty())
        && tiles.zip(g.dims.iter().zip(&l.dims)).all(|(t, (g, l))| l.checked_mul(t) == Some(*g));
    fits.then_some(Given { dist: x, base: b, placement })
}

/// The pairing of the distributed inputs that are still read, with the values
/// of the cut as further inputs, and the placements of those.
fn pairing(
    r: &Reduced,
    p: &Problem,
    pairs: &[usize],
    given: &[Given],
) -> (Problem, Vec<Option<Placement>>) {
    let mut q = p.clone();
    (q.pairs, q.dist_inputs) = pairs
        .iter()
        .enumerate()
        .map(|(n, &k)| {
            let pair = &p.pairs[k];
            let leaf = Leaf { param: n, index: n, ..p.dist_inputs[pair.dist].clone() };
            (InputPair { dist: n, ..pair.clone() }, leaf)
        })
        .unzip();
    let mut placements = Vec::new();
    for g in given {
        let leaf = |m: &Module, x: InstrId, n: usize| Leaf {
            param: n,
            index: n,
            names: vec![m.name_of(x).to_owned()],
            shape: m.shape(x).clone(),
        };
        let placement = Some(g.placement.clone()).filter(|q| !q.is_replicated());
        q.pairs.push(InputPair {
            dist: q.dist_inputs.len(),
            base: Some(q.base_inputs.len()),
            placement: placement.clone(),
            inferred: false,
        });
        q.base_inputs.push(leaf(&r.base, g.base, q.base_inputs.len()));
        q.dist_inputs.push(leaf(&r.dist, g.dist, q.dist_inputs.len()));
        placements.push(placement);
    }
    (q, placements)
}

/// The baseline with further outputs.
fn with_outputs(m: &Module, given: &[Given]) -> Option<Module> {
    let mut e = Editor::new(m);
    let mut parts: Vec<InstrId> = m.instr(m.entry_comp().root).operands.to_vec();
    parts.extend(given.iter().map(|g| g.base));
    let shape = Shape::Tuple(parts.iter().map(|&x| m.shape(x).clone()).collect());
    let root = e.insert(m.entry, None, Opcode::Tuple, Attrs::None, &parts, &[], Some(shape))?;
    e.m.comps[m.entry.0 as usize].root = root;
    e.m.header.entry_layout = None;
    e.m.header.other.clear();
    e.finish()
}

/// The distributed program with the parameters `inputs`, and after them the
/// given values.
fn from_given(
    m: &Module,
    inputs: Vec<InstrId>,
    given: &[Given],
    live: &FxHashSet<InstrId>,
) -> Option<(Module, Ids)> {
    let mut e = Editor::new(m);
    let entry = m.entry.0 as usize;
    let root = m.entry_comp().root;
    let mut keep: FxHashSet<InstrId> = live.iter().copied().collect();
    keep.insert(root);
    for &x in m.instr(root).operands.iter().filter(|x| !live.contains(x)) {
        keep.extend(cone(m, x));
    }
    let mut params = inputs;
    params.extend(given.iter().map(|g| g.dist));
    for (n, x) in params.iter().enumerate() {
        let i = &mut e.m.instrs[x.0 as usize];
        (i.opcode, i.attrs) = (Opcode::Parameter, Attrs::Parameter(u32::try_from(n).ok()?));
        i.operands.clear();
        i.calls.clear();
    }
    e.m.comps[entry].params = params;
    let (m, ids) = e.compact(|x| keep.contains(&x))?;
    Some((valid(m)?, ids))
}

impl Cut {
    /// Runs the distributed program, or an edit of it, on inputs `x` of the
    /// baseline whose results are `b`.
    ///
    /// # Errors
    /// As [`scalify_interp::run()`].
    pub(crate) fn run(
        &self,
        m: &Module,
        placements: &[Option<Placement>],
        x: &Inputs,
        b: &Results,
        accumulate: Accumulate,
        limits: RunLimits,
        steps: Option<u64>,
    ) -> Result<Results, RunError> {
        let mut values = x.values.clone();
        let given = b.first().and_then(|v| v.get(self.first..)).unwrap_or_default();
        values.extend(given.iter().map(|t| vec![t.clone()]));
        let own = self.pairs.iter().map(|&k| placements.get(k).cloned().flatten());
        let all: Vec<Option<Placement>> = own.chain(self.placements.iter().cloned()).collect();
        evaluate::dist_within(m, &self.p, &all, &Inputs { values }, accumulate, limits, steps)
    }
}
