//! A per-device program as XLA compiles one: XLA has no such form of its own,
//! but leaves alone what is marked manual.

use scalify_ir::{Header, InstrId, Module, OpSharding, Opcode, Shape, ShardingKind};

fn plain(kind: ShardingKind) -> OpSharding {
    OpSharding { kind, metadata: Vec::new(), shard_group: String::new() }
}

fn sharding(s: &Shape) -> OpSharding {
    match s {
        Shape::Tuple(_) => {
            let n = s.leaves().len().max(1);
            plain(ShardingKind::Tuple(vec![plain(ShardingKind::Manual); n]))
        }
        _ => plain(ShardingKind::Manual),
    }
}

/// Computations that combine two scalars inside an instruction.
fn reducers(m: &Module) -> Vec<bool> {
    let mut inside = vec![false; m.comps.len()];
    for i in &m.instrs {
        let nested = !matches!(
            i.opcode,
            Opcode::Call
                | Opcode::While
                | Opcode::Conditional
                | Opcode::AsyncStart
                | Opcode::Fusion
        );
        for c in i.calls.iter().filter(|_| nested) {
            if let Some(x) = inside.get_mut(c.0 as usize) {
                *x = true;
            }
        }
    }
    inside
}

/// The program with every instruction but loops manual, and without what the compiler is
/// told about the caller's buffers.
pub(crate) fn mark(m: &Module) -> Module {
    let mut out = m.clone();
    out.header = Header {
        is_scheduled: false,
        replica_count: m.header.replica_count,
        num_partitions: m.header.num_partitions,
        entry_layout: m.header.entry_layout.clone(),
        ..Header::default()
    };
    let inside = reducers(m);
    for (c, _) in m.comps.iter().zip(&inside).filter(|c| !c.1) {
        for id in &c.instrs {
            set(&mut out, *id);
        }
    }
    out
}

fn set(m: &mut Module, id: InstrId) {
    let Some(i) = m.instrs.get_mut(id.0 as usize) else { return };
    // XLA gives the operands' shardings to a loop, beside its own.
    if i.opcode == Opcode::While {
        return;
    }
    let Some(s) = m.shapes.get(i.shape.0 as usize) else { return };
    i.extra.get_or_insert_default().sharding = Some(sharding(s));
}
