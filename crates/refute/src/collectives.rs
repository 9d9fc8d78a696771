//! Edits of collectives: other pairs, another dimension, what a sum over
//! devices stands before or after.

use crate::candidates::{Candidate, Context, Edit};
use scalify_ir::{ArrayShape, Attrs, CompId, InstrId, Opcode};
use std::collections::BTreeSet;

impl Context<'_> {
    /// Other pairs for a permute.
    pub(crate) fn permutes(
        &self,
        pairs: &[(i64, i64)],
        push: &mut dyn FnMut(f64, Vec<(i64, i64)>),
    ) {
        let n: i64 = self.mesh.iter().map(|a| a.1).product();
        if !pairs.is_empty() {
            push(0.6, pairs.iter().map(|p| (p.1, p.0)).collect());
            push(0.7, completed(pairs, n, true));
            push(0.7, completed(pairs, n, false));
            for by in 1..n.min(9) {
                push(1.3, pairs.iter().map(|p| (p.0, (p.1 + by) % n)).collect());
                push(1.3, pairs.iter().map(|p| ((p.0 + by) % n, p.1)).collect());
            }
            for k in 0..pairs.len().min(8) {
                for j in k + 1..pairs.len().min(8) {
                    let mut v = pairs.to_vec();
                    (v[k].1, v[j].1) = (v[j].1, v[k].1);
                    push(1.4, v);
                }
            }
        }
        // Along each axis of the mesh, and over all devices in order.
        let mut stride = n;
        let mut axes = vec![(n, 1)];
        for (_, s) in &self.mesh {
            stride /= s;
            axes.push((*s, stride));
        }
        axes.dedup();
        for (s, stride) in axes.into_iter().filter(|a| a.0 > 1) {
            for step in [1, s - 1, 2].into_iter().filter(|&k| k < s) {
                for wraps in [true, false] {
                    // Backwards without the end: as far as `step` is from it.
                    let by = if !wraps && step == s - 1 { -1 } else { step };
                    let to = |d: i64| {
                        let x = d / stride % s;
                        let y = if wraps { (x + by) % s } else { x + by };
                        (0..s).contains(&y).then_some((d, d + (y - x) * stride))
                    };
                    push(1.2, (0..n).filter_map(to).collect());
                }
            }
        }
    }

    /// Values that a gather or scatter along another dimension would have.
    pub(crate) fn redo(
        &self,
        c: CompId,
        pos: usize,
        at: InstrId,
        dimension: Option<i64>,
        d: f64,
        out: &mut Vec<Candidate>,
    ) {
        let m = self.m;
        let source = m.instr(at).operands[0];
        let (Some(x), Some(g), Some(k)) = (m.array(source), m.array(at), dimension) else { return };
        let Some((&big, &small)) = x.dims.get(k as usize).zip(g.dims.get(k as usize)) else {
            return;
        };
        let gather = m.instr(at).opcode == Opcode::AllGather;
        let n = if gather { small / big.max(1) } else { big / small.max(1) };
        let mut moved = vec![at];
        for &u in m.comp(c).instrs.iter().skip(pos).take(40) {
            let Some(s) = m.array(u) else { continue };
            let op = m.instr(u).opcode;
            let moves = matches!(op, Opcode::Reshape | Opcode::Transpose | Opcode::Bitcast)
                && m.instr(u).operands.iter().all(|o| moved.contains(o));
            if moves {
                moved.push(u);
            }
            if !(u == at || moves) || s.dims.len() != x.dims.len() || s.dtype != x.dtype {
                continue;
            }
            for k in 0..x.dims.len() {
                let fits = (0..x.dims.len()).all(|j| {
                    let f = if j == k { n } else { 1 };
                    if gather { s.dims[j] == x.dims[j] * f } else { s.dims[j] * f == x.dims[j] }
                });
                if fits && (u != at || Some(k as i64) != dimension) {
                    out.push(Candidate {
                        at: u,
                        edit: Edit::Redo { source, like: at, dim: k as i64 },
                        cost: 0.7 + d.min(2.5),
                        also: Vec::new(),
                    });
                }
            }
        }
    }

    /// Is `x`, as it is or scaled and moved, summed over the mesh axes of
    /// `mask` by one of its next users?
    pub(crate) fn summed_later(&self, x: InstrId, mask: u32) -> bool {
        let mut at = x;
        for _ in 0..6 {
            let &[u] = self.users(at) else { return false };
            let i = self.m.instr(u);
            match &i.attrs {
                Attrs::Collective(a) if i.opcode == Opcode::AllReduce => {
                    return self.covers(&a.groups, mask);
                }
                _ => {}
            }
            let linear = matches!(
                i.opcode,
                Opcode::Multiply
                    | Opcode::Reshape
                    | Opcode::Transpose
                    | Opcode::Convert
                    | Opcode::Reduce
                    | Opcode::Dot
            ) || i.opcode == Opcode::Divide && i.operands[0] == at
                || i.opcode == Opcode::Select && i.operands[0] != at;
            if !linear || i.operands.iter().filter(|&&o| o == at).count() > 1 {
                return false;
            }
            at = u;
        }
        false
    }

    /// Collectives of another kind on `x` that keep its sizes: a sum may be
    /// meant.
    pub(crate) fn other_collectives(&self, x: InstrId) -> Vec<InstrId> {
        let kind = |u: &InstrId| {
            let op = self.m.instr(*u).opcode;
            let moved = matches!(
                op,
                Opcode::CollectivePermute | Opcode::AllToAll | Opcode::CollectiveBroadcast
            );
            moved && self.m.shape(*u).same(self.m.shape(x))
        };
        self.collectives
            .iter()
            .copied()
            .filter(|u| self.m.instr(*u).operands[..] == [x])
            .filter(kind)
            .collect()
    }

    /// All-reduces that use `x` through a few instructions.
    pub(crate) fn later_reductions(&self, x: InstrId) -> Vec<InstrId> {
        let users = |x| self.users(x).iter().map(|&u| (self.position(u), u));
        // Operands come before users.
        let (mut next, mut reached) = (BTreeSet::from_iter(users(x)), 1);
        let mut out = Vec::new();
        while let Some((_, u)) = next.pop_first() {
            if self.m.instr(u).opcode == Opcode::AllReduce {
                out.push(u);
            } else if reached < 24 {
                reached += 1;
                next.extend(users(u));
            }
            if out.len() >= 2 {
                break;
            }
        }
        out
    }

    /// Mesh axes and dimension along which a gather of `s` has the sizes `a`.
    pub(crate) fn gathers(&self, a: &ArrayShape, s: InstrId, f: &mut dyn FnMut(u32, i64)) {
        let Some(x) = self.m.array(s) else { return };
        if x.dims.len() != a.dims.len() || x.dtype != a.dtype {
            return;
        }
        let differ: Vec<usize> = (0..x.dims.len()).filter(|&k| x.dims[k] != a.dims[k]).collect();
        let [k] = differ[..] else { return };
        for mask in self.masks() {
            let n: i64 = (0..self.mesh.len())
                .filter(|j| mask & 1 << j != 0)
                .map(|j| self.mesh[j].1)
                .product();
            if a.dims[k] == x.dims[k] * n {
                f(mask, k as i64);
            }
        }
    }
}

/// Pairs to which each device that receives nothing is added: from itself, or
/// (`ring`) from the devices that send nothing, in order.
fn completed(pairs: &[(i64, i64)], n: i64, ring: bool) -> Vec<(i64, i64)> {
    let mut out = pairs.to_vec();
    let idle: Vec<i64> = (0..n).filter(|k| pairs.iter().all(|p| p.1 != *k)).collect();
    let mut free = (0..n).filter(|k| pairs.iter().all(|p| p.0 != *k));
    for k in idle {
        let from = if ring { free.next() } else { Some(k) };
        out.extend(from.map(|f| (f, k)));
    }
    out
}
