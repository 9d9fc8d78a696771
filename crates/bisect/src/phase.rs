//! What a dump is a program of: of all devices at once, with shardings, or of
//! one device of many. A partitioner turns the first into the second.

use scalify_claim::Claim;
use scalify_ir::{Extra, Module, OpSharding, Opcode, ShardingKind};
use scalify_load::DumpFile;

/// What both sides of a step are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Programs of the whole arrays, or of one device.
    Whole,
    /// From whole arrays to the blocks of one device.
    Partitioning,
    /// Programs of one device of many.
    PerDevice,
}

/// True if the label says that the module is partitioned.
pub(crate) fn says_partitioned(f: &DumpFile) -> bool {
    let pass = f.pass();
    f.pipeline() == "spmd-cleanup" || pass.starts_with("spmd-partition")
}

fn devices(m: &Module) -> i64 {
    m.header.num_partitions.unwrap_or(1).saturating_mul(m.header.replica_count.max(1))
}

fn same_interface(a: &Module, b: &Module) -> bool {
    let shapes = |m: &Module| -> Vec<_> {
        let params = m.entry_comp().params.iter().map(|&p| m.shape(p).clone());
        params.chain([m.shape(m.entry_comp().root).clone()]).collect()
    };
    let (x, y) = (shapes(a), shapes(b));
    x.len() == y.len() && x.iter().zip(&y).all(|(x, y)| x.same(y))
}

/// A program of many devices that only a partitioned one can be: it has
/// collectives and none of a partitioner's borders.
fn is_local(m: &Module) -> bool {
    let p = scalify_prove::problem::setup(m, m, &Claim::default());
    p.local_inputs
}

/// The phase of a step from `a` to `b`; `known`: what is known of `a` (true:
/// it is partitioned), `says`: what the label of `b` says.
pub(crate) fn phase(a: &Module, b: &Module, known: Option<bool>, says: bool) -> Phase {
    if devices(a) <= 1 && devices(b) <= 1 && !is_local(a) {
        return Phase::Whole;
    }
    // Replicas are programs of one device from the beginning.
    let replicas = a.header.num_partitions.unwrap_or(1) <= 1 && a.header.replica_count > 1;
    match known {
        Some(true) => Phase::PerDevice,
        _ if replicas || is_local(a) => Phase::PerDevice,
        _ if says || !same_interface(a, b) || is_local(b) => Phase::Partitioning,
        _ => Phase::Whole,
    }
}

/// Where the partitioned module does not say how its inputs and outputs are
/// laid out, the annotations of the module before it do.
pub(crate) fn carry_shardings(a: &Module, b: &mut Module) {
    if b.header.spmd_output_sharding.is_none() {
        b.header.spmd_output_sharding = a
            .header
            .spmd_output_sharding
            .clone()
            .or_else(|| a.sharding(a.entry_comp().root).cloned())
            .map(bare);
    }
    let (from, to) = (&a.entry_comp().params, b.entry_comp().params.clone());
    if from.len() != to.len() {
        return;
    }
    for (&x, &y) in from.iter().zip(&to) {
        let (Some(s), None) = (a.sharding(x), b.sharding(y)) else { continue };
        if let Some(i) = b.instrs.get_mut(y.0 as usize).filter(|i| i.opcode == Opcode::Parameter) {
            i.extra.get_or_insert_with(|| Box::new(Extra::default())).sharding =
                Some(bare(s.clone()));
        }
    }
}

/// A sharding without what belongs to its module.
fn bare(mut s: OpSharding) -> OpSharding {
    s.metadata.clear();
    if let ShardingKind::Tuple(t) = s.kind {
        s.kind = ShardingKind::Tuple(t.into_iter().map(bare).collect());
    }
    s
}
