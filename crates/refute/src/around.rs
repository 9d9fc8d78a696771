//! What candidates read off the program around a place.

use crate::candidates::Context;
use crate::joined::placings;
use scalify_ir::{Attrs, CompId, InstrId, Module, Opcode};

impl Context<'_> {
    /// Exponentials before `at`, at position `pos`, that could rescale it, and
    /// where their dimensions go.
    pub(crate) fn factors(
        &self,
        list: &[InstrId],
        pos: usize,
        at: InstrId,
    ) -> Vec<(InstrId, Vec<i64>)> {
        let m = self.m;
        let Some(a) = m.array(at) else { return Vec::new() };
        let mut out = Vec::new();
        let start = pos.saturating_sub(200);
        let mut near: Vec<(usize, InstrId)> = list[start..(pos + 100).min(list.len())]
            .iter()
            .enumerate()
            .filter(|(_, y)| **y != at && m.instr(**y).opcode == Opcode::Exponential)
            .map(|(k, y)| ((k + start).abs_diff(pos), *y))
            .collect();
        near.sort();
        for (_, y) in near {
            let Some(f) = m.array(y).filter(|f| f.dtype == a.dtype) else { continue };
            if out.len() >= 6 {
                break;
            }
            out.extend(placings(&f.dims, &a.dims, 2).into_iter().map(|dims| (y, dims)));
        }
        out
    }

    /// Other starts of a slice: where other slices of the same value start or
    /// end.
    pub(crate) fn starts(&self, list: &[InstrId], at: InstrId) -> Vec<(usize, i64)> {
        let m = self.m;
        let bounds = |x: InstrId| match &m.instr(x).attrs {
            Attrs::Slice(s) => Some(s),
            _ => None,
        };
        let o = m.instr(at).operands[0];
        let (Some(s), Some(from)) = (bounds(at), m.array(o)) else { return Vec::new() };
        let mut out = Vec::new();
        // Where a loop begins: small integers of the program.
        for k in (0..s.start.len()).filter(|&k| s.limit[k] - s.start[k] < from.dims[k]) {
            for b in self.small_integers() {
                let fits = b != s.start[k] && b + s.limit[k] - s.start[k] <= from.dims[k];
                if fits && !out.contains(&(k, b)) && out.len() < 8 {
                    out.push((k, b));
                }
            }
        }
        // Where the baseline cuts, and the other end.
        let most = out.len() + 8;
        for &(k, b) in &self.cuts {
            let Some(n) = from.dims.get(k).map(|n| n - (s.limit[k] - s.start[k])) else { continue };
            let fits = b != s.start[k] && b <= n && n > 0;
            if fits && !out.contains(&(k, b)) && out.len() < most {
                out.push((k, b));
            }
        }
        for k in 0..s.start.len() {
            let end = from.dims[k] - (s.limit[k] - s.start[k]);
            if end > 0 && end != s.start[k] && !out.contains(&(k, end)) {
                out.push((k, end));
            }
        }
        let most = out.len() + 8;
        for &y in list.iter().filter(|&&y| y != at && m.instr(y).operands.first() == Some(&o)) {
            let Some(t) = bounds(y) else { continue };
            for k in 0..s.start.len() {
                for b in [t.limit[k], t.start[k]] {
                    let fits = b != s.start[k] && b + s.limit[k] - s.start[k] <= from.dims[k];
                    if fits && !out.contains(&(k, b)) && out.len() < most {
                        out.push((k, b));
                    }
                }
            }
        }
        out
    }

    /// Values of the shape of `o` that `at`, at position `pos`, may use; the
    /// nearest first.
    pub(crate) fn alternatives(
        &self,
        list: &[InstrId],
        pos: usize,
        at: InstrId,
        o: InstrId,
    ) -> Vec<InstrId> {
        let shape = self.m.shape(o);
        let end = (pos + 200).min(list.len());
        let start = pos.saturating_sub(2000);
        let fits = |y: InstrId| {
            y != o
                && y != at
                && self.m.shape(y).same(shape)
                && !matches!(self.m.instr(y).opcode, Opcode::Constant | Opcode::Iota)
        };
        let here = self.position(o);
        let mut v: Vec<(usize, InstrId)> = list[start..end]
            .iter()
            .enumerate()
            .filter(|(_, y)| fits(**y))
            .map(|(k, y)| ((k + start).abs_diff(here), *y))
            .collect();
        v.sort();
        v.truncate(24);
        v.into_iter().map(|x| x.1).collect()
    }

    /// Data movement of constants only.
    pub(crate) fn is_constant(&self, x: InstrId, depth: u32) -> bool {
        let i = self.m.instr(x);
        match i.opcode {
            Opcode::Constant | Opcode::Iota => true,
            Opcode::Broadcast | Opcode::Reshape | Opcode::Convert | Opcode::Transpose => {
                depth > 0 && i.operands.iter().all(|&o| self.is_constant(o, depth - 1))
            }
            _ => false,
        }
    }

    /// True of an all-reduce, and of what is computed from one by elementwise
    /// operations: it is whole already.
    pub(crate) fn is_reduced(&self, x: InstrId, depth: u32) -> bool {
        let i = self.m.instr(x);
        let through = i.opcode.is_unary_elementwise()
            || i.opcode.is_binary_elementwise()
            || matches!(i.opcode, Opcode::Reshape | Opcode::Broadcast | Opcode::Convert);
        i.opcode == Opcode::AllReduce
            || through && depth > 0 && i.operands.iter().any(|&o| self.is_reduced(o, depth - 1))
    }

    /// An integer computed from the device id by constants.
    pub(crate) fn is_coordinate(&self, x: InstrId, depth: u32) -> bool {
        let i = self.m.instr(x);
        match i.opcode {
            Opcode::PartitionId | Opcode::ReplicaId => true,
            Opcode::Remainder | Opcode::Divide | Opcode::Convert if depth > 0 => {
                self.is_coordinate(i.operands[0], depth - 1)
                    && i.operands.get(1).is_none_or(|&o| self.m.instr(o).opcode == Opcode::Constant)
            }
            _ => false,
        }
    }

    /// Local sizes that an offset may count in: of dimensions of the values
    /// in the same computation that the device mesh splits, roughly all.
    pub(crate) fn strides(&self, c: CompId, at: InstrId) -> Vec<i64> {
        let mut out: Vec<i64> = Vec::new();
        let mut add = |m: &Module, x: InstrId| {
            for s in m.array(x).map(|a| a.dims.to_vec()).unwrap_or_default() {
                if s > 1 && !out.contains(&s) && out.len() < 8 {
                    out.push(s);
                }
            }
        };
        add(self.m, at);
        for &u in &self.m.comp(c).instrs {
            let i = self.m.instr(u);
            if i.operands.contains(&at) || i.opcode == Opcode::Parameter {
                i.operands.iter().for_each(|&o| add(self.m, o));
                add(self.m, u);
            }
        }
        out
    }
}

/// Float parameters of computations that run that no instruction reads.
pub(crate) fn unused(m: &Module) -> Vec<InstrId> {
    let mut read = vec![false; m.instrs.len()];
    for i in &m.instrs {
        i.operands.iter().for_each(|o| read[o.0 as usize] = true);
    }
    let all = m.comps.iter().filter(|c| c.instrs.len() > 4).flat_map(|c| &c.params);
    all.copied()
        .filter(|x| !read[x.0 as usize] && m.array(*x).is_some_and(|a| a.dtype.is_float()))
        .take(8)
        .collect()
}

/// Permutations of up to four dimensions, the identity left out.
pub(crate) fn permutations(n: usize) -> Vec<Vec<i64>> {
    pub(crate) fn go(left: &mut Vec<i64>, cur: &mut Vec<i64>, out: &mut Vec<Vec<i64>>) {
        if left.is_empty() {
            out.push(cur.clone());
        }
        for k in 0..left.len() {
            let x = left.remove(k);
            cur.push(x);
            go(left, cur, out);
            cur.pop();
            left.insert(k, x);
        }
    }
    if !(2..=4).contains(&n) {
        // Too many: neighbours swapped only.
        return (0..n.saturating_sub(1))
            .map(|k| {
                let mut p: Vec<i64> = (0..n as i64).collect();
                p.swap(k, k + 1);
                p
            })
            .collect();
    }
    let mut out = Vec::new();
    go(&mut (0..n as i64).collect(), &mut Vec::new(), &mut out);
    out.remove(0);
    out
}

/// Does the permutation move elements, sizes of 1 aside?
pub(crate) fn moves(dims: &[i64], perm: &[i64]) -> bool {
    let kept: Vec<i64> = perm.iter().copied().filter(|&p| dims[p as usize] != 1).collect();
    kept.windows(2).any(|w| w[0] > w[1])
}
