//! Bytes that collectives move between devices.
//!
//! Per device and execution, with ring algorithms in groups of `n` devices:
//!
//! | collective | bytes that a device sends |
//! |---|---|
//! | all-reduce | `2 (n-1)/n` of its operands |
//! | all-gather | `(n-1)/n` of the result |
//! | reduce-scatter | `(n-1)/n` of its operands |
//! | all-to-all, ragged-all-to-all | `(n-1)/n` of its operands |
//! | collective-broadcast | `(n-1)/n` of its operand |
//! | collective-permute | its operand, times the share of devices that send to another |

use super::deep_bytes;
use scalify_ir::devices::{collective_of, group_size};
use scalify_ir::{InstrId, Module, Opcode, ReplicaGroups, device_groups, device_pairs, group_mode};
use serde::Serialize;

/// Devices above which groups are not looked at one by one.
const MAX_DEVICES: i64 = 1 << 16;

/// A mesh axis: name and size, major first.
pub type Axis = (String, i64);

/// What one execution of a collective moves.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Traffic {
    /// Opcode; of an async start, what it wraps.
    pub kind: &'static str,
    /// Bytes a device sends, on average.
    pub bytes: f64,
    /// Devices of a group; `None` if the module does not tell (then the bytes
    /// are those of many devices: factors 2 and 1).
    pub group_size: Option<i64>,
    /// Mesh axes along which the group extends; empty if there is no mesh, or
    /// the groups are no blocks of it.
    pub axes: Vec<String>,
}

/// Traffic of the collective at `id`; `None` for other instructions and the
/// done halves of asynchronous ones. `mesh` names the devices, major axis
/// first.
pub fn traffic(m: &Module, id: InstrId, mesh: &[Axis]) -> Option<Traffic> {
    use Opcode::*;
    let i = m.instrs.get(id.0 as usize)?;
    if matches!(i.opcode, AsyncUpdate | AsyncDone) {
        return None;
    }
    let (op, a) = collective_of(m, id)?;
    if !op.is_collective() {
        return None;
    }
    let operands: f64 = i
        .operands
        .iter()
        .filter(|o| (o.0 as usize) < m.instrs.len())
        .map(|&o| deep_bytes(m.shape(o)))
        .sum();
    let devices: i64 = mesh.iter().try_fold(1i64, |n, a| n.checked_mul(a.1)).unwrap_or(0);
    let replicas = m.header.replica_count.max(1);
    let stated = m.header.num_partitions.unwrap_or(1).max(1);
    // Unpartitioned dumps state no partitions: those of the mesh.
    let partitions = if stated == 1 && replicas == 1 { devices.max(1) } else { stated };
    let small = replicas.checked_mul(partitions).is_some_and(|n| n <= MAX_DEVICES);
    if matches!(op, CollectivePermute | CollectivePermuteStart) {
        let n = match group_mode(op, a).ok()? {
            scalify_ir::GroupMode::CrossReplica => replicas,
            _ => partitions,
        };
        let sends = a.pairs.iter().filter(|p| p.0 != p.1).count() as f64;
        let most = a.pairs.iter().map(|p| p.0.max(p.1) + 1).max().unwrap_or(1).max(n);
        let all = small.then(|| device_pairs(m, id, replicas, partitions).ok()).flatten();
        return Some(Traffic {
            kind: "collective-permute",
            bytes: operands * sends / most.max(1) as f64,
            group_size: None,
            axes: all.map_or_else(Vec::new, |p| along_pairs(&p, mesh, devices)),
        });
    }
    let n = group_size(m, group_mode(op, a).ok()?, &a.groups).or_else(|| {
        let open = matches!(&a.groups, ReplicaGroups::List(l) if l.is_empty());
        (open && partitions > 1).then_some(partitions)
    });
    let share = n.map_or(1.0, |n| (n.max(1) - 1) as f64 / n.max(1) as f64);
    let (kind, bytes) = match op {
        AllReduce | AllReduceStart => ("all-reduce", 2.0 * share * operands),
        AllGather | AllGatherStart => {
            let result = match m.shape(id) {
                // The start form also returns its operands.
                s @ scalify_ir::Shape::Tuple(_) if i.opcode != AllGather => {
                    deep_bytes(s) - operands
                }
                s => deep_bytes(s),
            };
            ("all-gather", share * result)
        }
        ReduceScatter => ("reduce-scatter", share * operands),
        AllToAll => ("all-to-all", share * operands),
        RaggedAllToAll => ("ragged-all-to-all", share * operands),
        CollectiveBroadcast => ("collective-broadcast", share * operands),
        _ => return None,
    };
    let axes = match &a.groups {
        ReplicaGroups::Mesh(g) if mesh.is_empty() => g
            .group_axes
            .iter()
            .filter_map(|r| g.axes.get(r.axis as usize).map(|x| m.str(x.0).to_owned()))
            .collect(),
        _ if small => device_groups(m, id, replicas, partitions)
            .map(|g| along(&g, mesh, devices))
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    Some(Traffic { kind, bytes, group_size: n, axes })
}

/// Index of a device along each axis.
fn digits(mut d: i64, mesh: &[Axis]) -> Vec<i64> {
    let mut v = vec![0; mesh.len()];
    for (k, a) in mesh.iter().enumerate().rev() {
        let n = a.1.max(1);
        v[k] = d % n;
        d /= n;
    }
    v
}

/// Axes that vary within groups, if every group is a whole block along them.
fn along(groups: &[Vec<i64>], mesh: &[Axis], devices: i64) -> Vec<String> {
    let mut varies = vec![false; mesh.len()];
    for g in groups {
        let Some(&first) = g.first() else { continue };
        let base = digits(first, mesh);
        for &d in g {
            if !(0..devices).contains(&d) {
                return Vec::new();
            }
            for (k, x) in digits(d, mesh).iter().enumerate() {
                varies[k] |= *x != base[k];
            }
        }
    }
    let n: i64 = mesh.iter().zip(&varies).filter(|x| *x.1).map(|x| x.0.1).product();
    if groups.iter().any(|g| g.len() as i64 != n) {
        return Vec::new();
    }
    mesh.iter().zip(&varies).filter(|x| *x.1).map(|x| x.0.0.clone()).collect()
}

/// Axes along which pairs move.
fn along_pairs(pairs: &[(i64, i64)], mesh: &[Axis], devices: i64) -> Vec<String> {
    let mut varies = vec![false; mesh.len()];
    for &(a, b) in pairs {
        if !(0..devices).contains(&a) || !(0..devices).contains(&b) {
            return Vec::new();
        }
        for (k, (x, y)) in digits(a, mesh).iter().zip(digits(b, mesh)).enumerate() {
            varies[k] |= *x != y;
        }
    }
    mesh.iter().zip(&varies).filter(|x| *x.1).map(|x| x.0.0.clone()).collect()
}
