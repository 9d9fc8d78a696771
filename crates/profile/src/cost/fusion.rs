//! Memory that a fusion touches: its operands as far as they are read, its
//! results, and large constants inside.

use super::{Cost, bytes, elements, op};
use scalify_ir::attrs::Attrs;
use scalify_ir::{Computation, InstrId, Module, Opcode, Shape};

/// Constants with at most this many elements are part of the code.
const IMMEDIATE: f64 = 8.0;

/// One execution; `inner` is the sum over the fused instructions, `reads` what
/// [`reads`] says of the called computation.
pub(super) fn cost(m: &Module, id: InstrId, inner: Cost, reads: &[f64]) -> Cost {
    let i = m.instr(id);
    let Some(comp) = i.calls.first().and_then(|c| m.comps.get(c.0 as usize)) else { return inner };
    if let Attrs::Fusion { kind } = &i.attrs
        && m.str(*kind) == "kCustom"
    {
        let part = |k: &&InstrId| matches!(m.instr(**k).opcode, Opcode::Gather | Opcode::Scatter);
        if let Some(&k) = comp.instrs.iter().find(part) {
            return Cost { ..op::cost(m, k, &|_| Cost::default()) };
        }
    }
    let mut c = Cost { bytes_read: 0.0, bytes_written: written(m, comp, m.shape(id)), ..inner };
    for &k in &comp.instrs {
        if m.instr(k).opcode == Opcode::Constant && elements(m.shape(k)) > IMMEDIATE {
            c.bytes_read += bytes(m.shape(k));
        }
    }
    c.bytes_read += reads.iter().sum::<f64>();
    c
}

/// Bytes that each parameter of a fused computation is read with; `memo` has
/// those of the computations before it.
pub(super) fn reads(m: &Module, comp: &Computation, memo: &[Vec<f64>]) -> Vec<f64> {
    let users = Users::new(m, comp);
    comp.params.iter().map(|&p| parameter(m, &users, memo, p, 0)).collect()
}

/// An in-place update of a buffer writes the update only.
fn written(m: &Module, comp: &Computation, shape: &Shape) -> f64 {
    let update = |k: InstrId| {
        let i = m.instr(k);
        (i.opcode == Opcode::DynamicUpdateSlice)
            .then(|| i.operands.get(1).map(|&u| bytes(m.shape(u))))
            .flatten()
    };
    let root = m.instr(comp.root);
    match shape {
        Shape::Tuple(t) => t
            .iter()
            .enumerate()
            .map(|(k, s)| {
                let part = (root.opcode == Opcode::Tuple).then(|| root.operands.get(k)).flatten();
                part.and_then(|&k| update(k)).unwrap_or_else(|| super::deep_bytes(s))
            })
            .sum(),
        s => update(comp.root).unwrap_or_else(|| bytes(s)),
    }
}

/// Users of each instruction of a computation.
struct Users(rustc_hash::FxHashMap<InstrId, Vec<InstrId>>);

impl Users {
    fn new(m: &Module, comp: &Computation) -> Users {
        let mut u: rustc_hash::FxHashMap<InstrId, Vec<InstrId>> = Default::default();
        for &k in &comp.instrs {
            for &o in &m.instr(k).operands {
                let list = u.entry(o).or_default();
                if list.last() != Some(&k) {
                    list.push(k);
                }
            }
        }
        Users(u)
    }

    fn of(&self, k: InstrId) -> &[InstrId] {
        self.0.get(&k).map_or(&[], Vec::as_slice)
    }
}

/// Bytes that a fused parameter, or an element of one, is read with.
fn parameter(m: &Module, users: &Users, memo: &[Vec<f64>], p: InstrId, depth: usize) -> f64 {
    if let Shape::Tuple(_) = m.shape(p) {
        let parts = users.of(p).iter().filter(|&&u| m.instr(u).opcode == Opcode::GetTupleElement);
        return if depth > 16 {
            0.0
        } else {
            parts.map(|&u| parameter(m, users, memo, u, depth + 1)).sum()
        };
    }
    let whole = bytes(m.shape(p));
    let (mut size, mut shared) = (0.0, false);
    let mut once = |size: &mut f64| {
        if !shared {
            shared = true;
            *size += whole;
        }
    };
    for &u in users.of(p) {
        let user = m.instr(u);
        let first = user.operands.first() == Some(&p);
        match user.opcode {
            Opcode::Fusion => {
                let inner = user.calls.first().and_then(|c| memo.get(c.0 as usize));
                for (k, &o) in user.operands.iter().enumerate() {
                    if o == p {
                        size += inner.and_then(|r| r.get(k)).copied().unwrap_or(whole);
                    }
                }
            }
            Opcode::Slice => size += bytes(m.shape(u)),
            Opcode::DynamicSlice if first => size += bytes(m.shape(u)),
            Opcode::DynamicUpdateSlice if first => {}
            Opcode::Broadcast | Opcode::Reshape => size += whole,
            // Others share one read.
            _ => once(&mut size),
        }
    }
    size
}
