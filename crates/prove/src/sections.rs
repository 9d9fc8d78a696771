//! Inputs that hold a part of each of several sections of a dimension: fused
//! weights, of which the programs cut out queries, keys and values.
//!
//! **What may not live here:** layouts that shapes alone tell.

use crate::problem::{Leaf, Problem, infer};
use scalify_claim::Placement;
use scalify_ir::{Attrs, InstrId, Module, Opcode, Users};

/// Both programs, to look for where they cut their inputs.
pub(crate) struct Sections<'a> {
    base: Side<'a>,
    dist: Side<'a>,
}

/// A program with the users of its values.
struct Side<'a> {
    m: &'a Module,
    users: Users,
}

impl<'a> Sections<'a> {
    pub(crate) fn new(base: &'a Module, dist: &'a Module) -> Self {
        let side = |m| Side { m, users: Users::new(m) };
        Sections { base: side(base), dist: side(dist) }
    }

    /// Where an input is cut into sections along one dimension by the baseline
    /// (a fused weight: the product is sliced into queries, keys and values) and
    /// the distributed program cuts its share at the same fractions: the
    /// placement that splits each section.
    pub(crate) fn placement(
        &self,
        p: &Problem,
        k: usize,
        global: &[i64],
        local: &[i64],
    ) -> Option<Placement> {
        let plain = infer(&p.mesh, p.devices, global, local)?;
        let split: Vec<usize> =
            (0..plain.dims.len()).filter(|&d| plain.dims[d].tiles > 1).collect();
        let &[dim] = split.as_slice() else { return None };
        let pair = &p.pairs[k];
        let (b, d) = (p.base_inputs.get(pair.base?)?, p.dist_inputs.get(pair.dist)?);
        let param = |m: &Module, l: &Leaf| -> Option<InstrId> {
            let i = *m.entry_comp().params.get(l.param)?;
            m.array(i).map(|_| i)
        };
        let tiles = i64::from(plain.dims[dim].tiles);
        let whole = self.base.cuts(param(self.base.m, b)?, dim)?;
        let part = self.dist.cuts(param(self.dist.m, d)?, dim)?;
        if whole.len() < 3 || whole.iter().any(|c| c % tiles != 0) {
            return None;
        }
        // A wrong slice may cut elsewhere; most cuts must agree.
        let same = whole.iter().filter(|&c| part.contains(&(c / tiles))).count();
        if same < 3 || same * 3 < whole.len() * 2 {
            return None;
        }
        let sections: Vec<i64> = whole.windows(2).map(|w| w[1] - w[0]).collect();
        let mut q = plain;
        q.dims[dim].sections = sections.into();
        Some(q)
    }
}

impl Side<'_> {
    /// Positions at which slices cut dimension `dim` of a value, also after
    /// operations that keep the dimension; with both ends, ascending. `None` if
    /// the walk is too long.
    fn cuts(&self, from: InstrId, dim: usize) -> Option<Vec<i64>> {
        let m = self.m;
        let mut out = std::collections::BTreeSet::new();
        let mut todo = vec![(from, dim)];
        let mut seen = std::collections::HashSet::new();
        out.extend([0, *m.array(from)?.dims.get(dim)?]);
        while let Some((i, dim)) = todo.pop() {
            if !seen.insert((i, dim)) {
                continue;
            }
            if seen.len() > 256 {
                return None;
            }
            for &u in self.users.of(i) {
                let ins = m.instr(u);
                let Some(a) = m.array(u) else { continue };
                let same = m.array(i).is_some_and(|x| x.dims == a.dims);
                match (ins.opcode, &ins.attrs) {
                    (Opcode::Slice, Attrs::Slice(s)) => {
                        if let (Some(&a), Some(&b)) = (s.start.get(dim), s.limit.get(dim)) {
                            out.extend([a, b]);
                        }
                    }
                    (Opcode::Transpose, Attrs::Dims(d)) => {
                        if let Some(at) = d.iter().position(|&x| x as usize == dim) {
                            todo.push((u, at));
                        }
                    }
                    (Opcode::Broadcast, Attrs::Dims(d)) => {
                        if let Some(&at) = d.get(dim) {
                            todo.push((u, at as usize));
                        }
                    }
                    (Opcode::Dot, Attrs::Dot(d)) => {
                        let (l, r) = (ins.operands[0] == i, ins.operands[1] == i);
                        if l && r {
                            continue;
                        }
                        let (batch, sum) = if l {
                            (&d.lhs_batch, &d.lhs_contracting)
                        } else {
                            (&d.rhs_batch, &d.rhs_contracting)
                        };
                        let x = dim as i64;
                        if batch.contains(&x) || sum.contains(&x) {
                            continue;
                        }
                        let free =
                            (0..x).filter(|y| !batch.contains(y) && !sum.contains(y)).count();
                        let mut at = batch.len() + free;
                        if r {
                            let rank = m.array(ins.operands[0])?.dims.len();
                            at += rank.checked_sub(d.lhs_batch.len() + d.lhs_contracting.len())?;
                        }
                        todo.push((u, at));
                    }
                    (Opcode::Copy | Opcode::CustomCall | Opcode::OptimizationBarrier, _)
                        if same =>
                    {
                        todo.push((u, dim));
                    }
                    (op, _)
                        if same && (op.is_unary_elementwise() || op.is_binary_elementwise()) =>
                    {
                        todo.push((u, dim));
                    }
                    _ => {}
                }
            }
        }
        Some(out.into_iter().collect())
    }
}
