//! The same pair of programs with some outputs left out, so that a big program
//! can be evaluated for an output that takes little of it.
//!
//! The outputs left out are one zero in both programs, and parameters that
//! nothing reads any more shrink to one element: a difference is one of the
//! given programs too, whatever the other inputs are.

use crate::edit::{Editor, Ids};
use crate::search::volume;
use crate::shrink::Reduced;
use crate::together::both;
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_ir::{ArrayShape, Attrs, InstrId, Module, Opcode, Shape, ShapeId};
use scalify_prove::problem::Problem;

/// The pair for the one of `open` outputs that takes the fewest elements, its
/// pairing, and those elements, over all devices; `None` if outputs cannot be
/// left out.
pub fn restrict(
    base: &Module,
    dist: &Module,
    p: &Problem,
    open: &[usize],
) -> Option<(Reduced, Problem, f64)> {
    let n = outputs(base)?.len();
    if outputs(dist)?.len() != n || n < 2 || p.base_spmd && p.local_inputs {
        return None;
    }
    let mut smallest: Option<(f64, usize)> = None;
    for &k in open.iter().filter(|&&k| k < n).take(16) {
        let most = smallest.map_or(f64::INFINITY, |s| s.0);
        let b = elements(base, outputs(base)?[k], most);
        let each = p.devices as f64;
        let v = b + elements(dist, outputs(dist)?[k], (most - b) / each) * each;
        if smallest.is_none_or(|s| v < s.0) {
            smallest = Some((v, k));
        }
    }
    let (_, k) = smallest?;
    let (b, d) = (cone(base, outputs(base)?[k]), cone(dist, outputs(dist)?[k]));
    let mut q = p.clone();
    let (mut idle_base, mut idle_dist) = (Vec::new(), Vec::new());
    for pair in &mut q.pairs {
        let bp = base.entry_comp().params.get(pair.base?).copied()?;
        let dp = dist.entry_comp().params.get(pair.dist).copied()?;
        if b.contains(&bp) || d.contains(&dp) {
            continue;
        }
        idle_base.push(bp);
        idle_dist.push(dp);
        q.base_inputs[pair.base?].shape = one(base.shape(bp))?;
        q.dist_inputs[pair.dist].shape = one(dist.shape(dp))?;
        pair.placement = None;
        pair.inferred = false;
    }
    let (rb, rd) = both(|| left(base, k, &b, &idle_base), || left(dist, k, &d, &idle_dist));
    let ((rb, base_ids), (mut rd, dist_ids)) = (rb?, rd?);
    // The collectives that told the number of devices may be gone.
    let h = &mut rd.header;
    if p.replica_mode {
        h.replica_count = p.devices;
    } else if h.replica_count.max(1) * h.num_partitions.unwrap_or(1) != p.devices {
        h.num_partitions = Some(p.devices / h.replica_count.max(1));
    }
    // What is called counts too.
    let v = volume(&rb) + volume(&rd) * p.devices as f64;
    let output = Some(k);
    Some((Reduced { base: rb, dist: rd, output, smaller: false, base_ids, dist_ids }, q, v))
}

/// Elements of the arrays that `x` is computed from, and its own; no more than
/// `most` are counted.
fn elements(m: &Module, x: InstrId, most: f64) -> f64 {
    let size = |a: &ArrayShape| a.dims.iter().map(|&d| d as f64).product::<f64>();
    let mut seen = vec![false; m.instrs.len()];
    let mut work = vec![x];
    let mut sum = 0.0;
    while let Some(x) = work.pop() {
        if sum > most {
            break;
        }
        if !std::mem::replace(&mut seen[x.0 as usize], true) {
            sum += m.array(x).map_or(0.0, size);
            match element(m, x) {
                Some((_, o)) => work.push(o),
                None => work.extend(m.instr(x).operands.iter().copied()),
            }
        }
    }
    sum
}

/// Elements of the result, if it is a tuple of arrays made in the entry of a
/// program with array parameters.
fn outputs(m: &Module) -> Option<&[InstrId]> {
    let e = m.entry_comp();
    let root = m.instr(e.root);
    let arrays = |l: &[InstrId]| l.iter().all(|&x| m.array(x).is_some());
    (root.opcode == Opcode::Tuple && arrays(&root.operands) && arrays(&e.params))
        .then_some(&root.operands[..])
}

/// The border of a manual region and the operand of it, of whose result `x` is
/// an element: element `k` is made from operand `k` alone.
fn element(m: &Module, x: InstrId) -> Option<(InstrId, InstrId)> {
    let i = m.instr(x);
    let Attrs::TupleIndex(k) = i.attrs else { return None };
    let border = *i.operands.first()?;
    let k = usize::try_from(k).ok()?;
    is_border(m, border).then_some((border, *m.instr(border).operands.get(k)?))
}

/// Borders of Shardy's manual regions with several values.
fn is_border(m: &Module, x: InstrId) -> bool {
    let Attrs::CustomCall(c) = &m.instr(x).attrs else { return false };
    matches!(m.str(c.target), "xla.sdy.LocalToGlobalShape" | "xla.sdy.GlobalToLocalShape")
        && m.shape(x).as_tuple().is_some_and(|t| t.len() == m.instr(x).operands.len())
}

/// What an instruction is computed from. Of a border of a manual region only
/// the values that are read count.
pub(crate) fn cone(m: &Module, x: InstrId) -> FxHashSet<InstrId> {
    let mut out = FxHashSet::default();
    let mut work = vec![x];
    while let Some(x) = work.pop() {
        if !out.insert(x) {
            continue;
        }
        match element(m, x) {
            Some((border, o)) => {
                out.insert(border);
                work.push(o);
            }
            None => work.extend(m.instr(x).operands.iter().copied()),
        }
    }
    out
}

fn one(s: &Shape) -> Option<Shape> {
    let a = s.as_array()?;
    Some(Shape::Array(ArrayShape::new(a.dtype, a.dims.iter().map(|_| 1))))
}

/// The program with zeros for all outputs but `keep`, made from `live`.
fn left(
    m: &Module,
    keep: usize,
    live: &FxHashSet<InstrId>,
    idle: &[InstrId],
) -> Option<(Module, Ids)> {
    let entry = m.entry.0 as usize;
    let outputs = outputs(m)?.to_vec();
    let out = *outputs.get(keep)?;
    // Values that cross a border of a region and are not read.
    let mut unread: Vec<(InstrId, usize, ShapeId)> = Vec::new();
    for &x in live.iter().filter(|&&x| is_border(m, x)) {
        let operands = m.instr(x).operands.iter().enumerate();
        let gone = operands.filter(|(_, o)| !live.contains(o));
        unread.extend(gone.map(|(k, &o)| (x, k, m.instr(o).shape)));
    }
    unread.sort_unstable_by_key(|&(x, k, _)| (x, k));
    let mut e = Editor::new(m);
    e.m.comps[entry].root = out;
    for &(x, k, _) in &unread {
        // Until there are zeros.
        e.m.instrs[x.0 as usize].operands[k] = out;
    }
    e.m.header.entry_layout = None;
    // Aliases of the results that are left out.
    e.m.header.other.clear();
    let (small, ids) = e.compact(|x| live.contains(&x))?;
    let mut e = Editor::of(small);
    let entry = e.m.entry;
    let zero = |e: &mut Editor, s: &Shape| -> Option<InstrId> {
        let a = s.as_array()?;
        let zero = e.constant(entry, a.dtype, 0.0)?;
        e.spread(entry, zero, zero, a)
    };
    let mut parts = Vec::new();
    let mut ones: FxHashMap<ShapeId, InstrId> = FxHashMap::default();
    for (k, &x) in outputs.iter().enumerate() {
        if k == keep {
            parts.push(ids.small(x)?);
            continue;
        }
        let id = m.instr(x).shape;
        let z = match ones.get(&id) {
            Some(&z) => z,
            None => zero(&mut e, &one(m.shape(x))?)?,
        };
        ones.insert(id, z);
        parts.push(z);
    }
    let mut zeros: FxHashMap<ShapeId, InstrId> = FxHashMap::default();
    for (x, k, s) in unread {
        let z = match zeros.get(&s) {
            Some(&z) => z,
            None => zero(&mut e, m.shapes.get(s.0 as usize)?)?,
        };
        zeros.insert(s, z);
        e.m.instrs[ids.small(x)?.0 as usize].operands[k] = z;
    }
    let shape = Shape::Tuple(parts.iter().map(|&x| e.m.shape(x).clone()).collect());
    let root = e.insert(entry, None, Opcode::Tuple, Attrs::None, &parts, &[], Some(shape))?;
    e.m.comps[entry.0 as usize].root = root;
    for &x in idle {
        let s = one(m.shape(x))?;
        e.m.instrs[ids.small(x)?.0 as usize].shape = e.m.shape_id(s);
    }
    Some((e.finish()?, ids))
}
