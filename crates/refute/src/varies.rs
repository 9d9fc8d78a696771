//! On which mesh axes a value may differ from device to device: an estimate
//! from the placements of the inputs, the device ids and the collectives, to
//! leave out edits that sum copies. Nothing is proved by it.

use scalify_ir::{Attrs, CompId, InstrId, Module, Opcode};
use scalify_prove::problem::Problem;

/// Sweeps over the module; values go round a loop a few times at most.
const SWEEPS: usize = 8;

/// Per instruction the mesh axes (bit k: axis k) along which its value may
/// differ. Ids are row-major over `mesh`.
pub(crate) fn varies(m: &Module, mesh: &[(String, i64)], p: &Problem) -> Vec<u32> {
    let axes = Axes::new(mesh);
    let mut out = vec![0u32; m.instrs.len()];
    let mut leaf = 0;
    for &q in &m.entry_comp().params {
        for _ in 0..m.shape(q).leaves().len() {
            out[q.0 as usize] |= axes.of_input(p, leaf);
            leaf += 1;
        }
    }
    for _ in 0..SWEEPS {
        let mut changed = false;
        for c in (0..m.comps.len()).rev() {
            for &x in &m.comp(CompId(c as u32)).instrs {
                changed |= sweep(m, &axes, x, &mut out);
            }
        }
        if !changed {
            break;
        }
    }
    out
}

/// Strides of the mesh axes in device ids.
struct Axes {
    /// (size, stride), major first.
    list: Vec<(i64, i64)>,
    devices: i64,
}

impl Axes {
    fn new(mesh: &[(String, i64)]) -> Self {
        let devices: i64 = mesh.iter().map(|a| a.1).product();
        let mut stride = devices;
        let one = |a: &(String, i64)| {
            stride /= a.1.max(1);
            (a.1, stride)
        };
        Axes { list: mesh.iter().map(one).collect(), devices }
    }

    fn all(&self) -> u32 {
        self.mask(|size, _| size > 1)
    }

    fn mask(&self, f: impl Fn(i64, i64) -> bool) -> u32 {
        let bits = self.list.iter().enumerate().filter(|(_, a)| f(a.0, a.1));
        bits.map(|(k, _)| 1 << k).sum()
    }

    /// Axes along which the devices hold different blocks of an input.
    fn of_input(&self, p: &Problem, leaf: usize) -> u32 {
        if p.local_inputs {
            return self.all();
        }
        let Some(q) = p.pairs.get(leaf).and_then(|x| x.placement.as_ref()) else { return 0 };
        self.mask(|size, stride| {
            (0..self.devices).any(|d| {
                let at = d / stride % size;
                let next = d + if at + 1 < size { stride } else { -at * stride };
                q.dims.iter().any(|x| x.tiles > 1 && x.tile(d as u32) != x.tile(next as u32))
            })
        })
    }

    /// Axes that every group holds whole.
    fn inside(&self, groups: &scalify_ir::ReplicaGroups) -> u32 {
        let Some(g) = groups.expand(self.devices) else { return 0 };
        let mut of = vec![usize::MAX; self.devices as usize];
        for (k, group) in g.iter().enumerate() {
            for d in group {
                if let Some(x) = usize::try_from(*d).ok().and_then(|d| of.get_mut(d)) {
                    *x = k;
                }
            }
        }
        self.mask(|size, stride| {
            size > 1
                && (0..self.devices).all(|d| {
                    let first = d - d / stride % size * stride;
                    of[d as usize] != usize::MAX && of[d as usize] == of[first as usize]
                })
        })
    }
}

/// Adds what `x` takes from its operands; true if anything is new.
fn sweep(m: &Module, axes: &Axes, x: InstrId, out: &mut [u32]) -> bool {
    let i = m.instr(x);
    let of = |o: &InstrId, out: &[u32]| out[o.0 as usize];
    let mut v = i.operands.iter().fold(0, |a, o| a | of(o, out));
    match (&i.attrs, i.opcode) {
        (Attrs::TupleIndex(k), Opcode::GetTupleElement) => {
            let t = m.instr(i.operands[0]);
            if let (Opcode::Tuple, Some(o)) = (t.opcode, t.operands.get(*k as usize)) {
                v = of(o, out);
            }
        }
        (_, Opcode::PartitionId | Opcode::ReplicaId) => v = axes.all(),
        // The remainder by the size of the last axes, the quotient by it.
        (_, Opcode::Remainder | Opcode::Divide) if m.dtype(x).is_some_and(|d| d.is_int()) => {
            if let Some((div, modulus)) = coordinate(m, x, 8) {
                v = axes.mask(|size, stride| {
                    size > 1
                        && stride * size > div
                        && modulus.is_none_or(|n| stride < div.saturating_mul(n))
                });
            }
        }
        (Attrs::Collective(a), op) => {
            let inside = axes.inside(&a.groups);
            v = match op {
                Opcode::AllReduce | Opcode::AllReduceStart => v & !inside,
                Opcode::AllGather | Opcode::AllGatherStart | Opcode::CollectiveBroadcast => {
                    v & !inside
                }
                Opcode::ReduceScatter | Opcode::AllToAll | Opcode::RaggedAllToAll => v | inside,
                _ if a.pairs.len() as i64 == axes.devices => v,
                _ => axes.all(),
            };
        }
        (_, Opcode::CustomCall | Opcode::Rng | Opcode::Recv | Opcode::Infeed) => v = axes.all(),
        _ => {}
    }
    let mut changed = false;
    let mut add = |to: InstrId, v: u32, out: &mut [u32]| {
        let old = out[to.0 as usize];
        out[to.0 as usize] |= v;
        changed |= out[to.0 as usize] != old;
    };
    for (n, &c) in i.calls.iter().enumerate() {
        let f = m.comp(c);
        for (k, &q) in f.params.iter().enumerate() {
            let from = match i.opcode {
                Opcode::While => v | i.calls.get(1).map_or(0, |b| of(&m.comp(*b).root, out)),
                Opcode::Conditional => i.operands.get(n + 1).map_or(v, |o| of(o, out)),
                Opcode::Call | Opcode::Fusion => i.operands.get(k).map_or(v, |o| of(o, out)),
                _ => v,
            };
            add(q, from, out);
        }
        v |= match i.opcode {
            Opcode::Call | Opcode::Fusion | Opcode::While | Opcode::Conditional => of(&f.root, out),
            _ => 0,
        };
    }
    add(x, v, out);
    changed
}

/// The device id divided, then taken modulo, as far as `x` is that.
fn coordinate(m: &Module, x: InstrId, depth: u32) -> Option<(i64, Option<i64>)> {
    let i = m.instr(x);
    let number = || {
        let l = m.literal(*i.operands.get(1)?)?;
        crate::edit::number(l).map(|v| v as i64).filter(|&v| v > 0)
    };
    match i.opcode {
        Opcode::PartitionId | Opcode::ReplicaId => Some((1, None)),
        Opcode::Convert | Opcode::Reshape if depth > 0 => coordinate(m, i.operands[0], depth - 1),
        Opcode::Divide if depth > 0 => {
            let (div, modulus) = coordinate(m, i.operands[0], depth - 1)?;
            let n = number()?;
            Some((div.checked_mul(n)?, modulus.map(|x| (x / n).max(1))))
        }
        Opcode::Remainder if depth > 0 => {
            let (div, modulus) = coordinate(m, i.operands[0], depth - 1)?;
            let n = number()?;
            Some((div, Some(modulus.map_or(n, |x| x.min(n)))))
        }
        _ => None,
    }
}
