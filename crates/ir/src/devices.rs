//! What the ids in a collective's groups mean.
//!
//! The same text names different devices depending on `channel_id` and
//! `use_global_device_ids`; see [`GroupMode`]. Every result of this module
//! counts devices as `replica * partitions + partition`: with one replica that
//! is the partition id, with one partition the replica id.

use crate::Opcode;
use crate::attrs::{Attrs, CollectiveAttrs};
use crate::groups::{DeviceGroups, DeviceOrder, GroupMode, ReplicaGroups};
use crate::infer::{InferError, err, need};
use crate::module::{InstrId, Module};
use smallvec::SmallVec;

/// Most devices that a program may run on here.
pub const MAX_DEVICES: i64 = 1 << 24;

/// Meaning of the ids of a collective.
///
/// | `channel_id` | `use_global_device_ids` | mode |
/// |---|---|---|
/// | absent | absent or false | cross-replica |
/// | present | no such attribute on this opcode | cross-partition |
/// | present | absent or false | cross-replica-and-partition |
/// | present | true | flattened id |
///
/// # Errors
/// If `use_global_device_ids` is set without a channel id.
pub fn group_mode(op: Opcode, a: &CollectiveAttrs) -> Result<GroupMode, InferError> {
    use Opcode::*;
    let has_flag =
        matches!(op, AllGather | AllGatherStart | AllReduce | AllReduceStart | ReduceScatter);
    Ok(match (a.channel_id, has_flag, a.use_global_device_ids) {
        (None, true, true) => {
            return err!("a channel_id", "use_global_device_ids=true without channel_id");
        }
        (None, ..) => GroupMode::CrossReplica,
        (Some(_), false, _) => GroupMode::CrossPartition,
        (Some(_), true, false) => GroupMode::CrossReplicaAndPartition,
        (Some(_), true, true) => GroupMode::FlattenedId,
    })
}

/// The collective that an instruction performs: its own, or the one that an
/// async start, update or done wraps. `None` if there is none.
pub fn collective_of(m: &Module, id: InstrId) -> Option<(Opcode, &CollectiveAttrs)> {
    let i = m.instrs.get(id.0 as usize)?;
    if let Attrs::Collective(a) = &i.attrs {
        return Some((i.opcode, a));
    }
    let Attrs::Async { .. } = i.attrs else { return None };
    let root = m.comps.get(i.calls.first()?.0 as usize)?.root;
    match &m.instrs.get(root.0 as usize)?.attrs {
        Attrs::Collective(a) => Some((m.instr(root).opcode, a)),
        _ => None,
    }
}

/// Number of ids that the mode counts, on `replicas` x `partitions` devices.
fn id_count(mode: GroupMode, replicas: i64, partitions: i64) -> i64 {
    match mode {
        GroupMode::CrossReplica | GroupMode::CrossReplicaAndPartition => replicas,
        GroupMode::CrossPartition => partitions,
        GroupMode::FlattenedId => replicas * partitions,
    }
}

fn counts(replicas: i64, partitions: i64) -> Result<(), InferError> {
    let n = replicas.checked_mul(partitions);
    need!(
        replicas >= 1 && partitions >= 1 && n.is_some_and(|n| n <= MAX_DEVICES),
        format!("1 to {MAX_DEVICES} devices"),
        "{replicas} replicas of {partitions} partitions"
    );
    Ok(())
}

/// Size of the groups as written, in ids; the first group's if they differ.
/// `None` where the text leaves it open (`{}`) or is not well made.
pub fn written_group_size(g: &ReplicaGroups) -> Option<i64> {
    match g {
        ReplicaGroups::List(l) => l.first().map(|g| g.len() as i64),
        ReplicaGroups::Iota(t) => t.dims.last().copied(),
        ReplicaGroups::Mesh(m) => m.group_axes.iter().try_fold(1i64, |n, r| {
            let size = match r.sub {
                Some((_, size)) => size,
                None => m.axes.get(r.axis as usize)?.1,
            };
            n.checked_mul(size)
        }),
    }
}

/// Number of devices that take part together, as far as text and module
/// header tell. A header count of 1 says nothing: unpartitioned dumps omit it.
pub fn group_size(m: &Module, mode: GroupMode, g: &ReplicaGroups) -> Option<i64> {
    let known = |n: Option<i64>| n.filter(|&n| n > 1);
    let replicas = known(Some(m.header.replica_count));
    let partitions = known(m.header.num_partitions);
    let written = written_group_size(g);
    match mode {
        GroupMode::CrossReplica => written.or(replicas),
        GroupMode::CrossPartition => written.or(partitions),
        GroupMode::FlattenedId => written,
        GroupMode::CrossReplicaAndPartition => written.or(replicas)?.checked_mul(partitions?),
    }
}

/// The groups of a collective on `replicas` x `partitions` devices, members in
/// order. Cross-replica groups occur once per partition, cross-partition
/// groups once per replica.
///
/// # Errors
/// If the instruction is no collective with groups (collective-permute has
/// pairs, see [`device_pairs`]), ids are out of range or repeated, a flattened
/// id group list is empty, or the group text is not well made.
pub fn device_groups(
    m: &Module,
    id: InstrId,
    replicas: i64,
    partitions: i64,
) -> Result<DeviceGroups, InferError> {
    counts(replicas, partitions)?;
    let Some((op, a)) = collective_of(m, id) else {
        return err!("a collective", "another instruction");
    };
    need!(
        !matches!(op, Opcode::CollectivePermute | Opcode::CollectivePermuteStart),
        "a collective with replica groups",
        "{op}"
    );
    let mode = group_mode(op, a)?;
    let ids = id_count(mode, replicas, partitions);
    let groups = written_groups(mode, &a.groups, ids)?;
    distinct_ids(groups.iter().flatten().copied(), ids)?;
    Ok(match mode {
        GroupMode::FlattenedId => groups,
        GroupMode::CrossReplica => {
            let per = |g: &Vec<i64>, p: i64| g.iter().map(|r| r * partitions + p).collect();
            groups.iter().flat_map(|g| (0..partitions).map(move |p| per(g, p))).collect()
        }
        GroupMode::CrossPartition => {
            let per = |g: &Vec<i64>, r: i64| g.iter().map(|p| r * partitions + p).collect();
            groups.iter().flat_map(|g| (0..replicas).map(move |r| per(g, r))).collect()
        }
        GroupMode::CrossReplicaAndPartition => {
            let all = |r: &i64| r * partitions..(r + 1) * partitions;
            groups.iter().map(|g| g.iter().flat_map(all).collect()).collect()
        }
    })
}

/// The (source, target) devices of a collective-permute on `replicas` x
/// `partitions` devices. Without `channel_id` the pairs are replicas, within
/// each partition; with it partitions, within each replica.
///
/// # Errors
/// If the instruction is no collective-permute or ids are out of range.
pub fn device_pairs(
    m: &Module,
    id: InstrId,
    replicas: i64,
    partitions: i64,
) -> Result<Vec<(i64, i64)>, InferError> {
    counts(replicas, partitions)?;
    let Some((op @ (Opcode::CollectivePermute | Opcode::CollectivePermuteStart), a)) =
        collective_of(m, id)
    else {
        return err!("a collective-permute", "another instruction");
    };
    let mode = group_mode(op, a)?;
    let ids = id_count(mode, replicas, partitions);
    for &(s, t) in &a.pairs {
        need!(
            (0..ids).contains(&s) && (0..ids).contains(&t),
            format!("ids from 0 to {}", ids - 1),
            "pair {{{s},{t}}}"
        );
    }
    let spread = |f: &dyn Fn(i64, i64) -> i64, n: i64| {
        (0..n).flat_map(|k| a.pairs.iter().map(move |&(s, t)| (f(s, k), f(t, k)))).collect()
    };
    Ok(match mode {
        GroupMode::CrossReplica => spread(&|r, p| r * partitions + p, partitions),
        _ => spread(&|p, r| r * partitions + p, replicas),
    })
}

fn written_groups(
    mode: GroupMode,
    g: &ReplicaGroups,
    ids: i64,
) -> Result<DeviceGroups, InferError> {
    if let ReplicaGroups::List(l) = g
        && l.is_empty()
    {
        need!(
            mode != GroupMode::FlattenedId,
            "replica groups, as ids are flattened device ids",
            "no replica groups"
        );
    }
    match g.expand(ids) {
        Some(g) => Ok(g),
        None => err!("sizes that multiply up to the number of devices", "malformed replica groups"),
    }
}

fn distinct_ids(it: impl Iterator<Item = i64>, ids: i64) -> Result<(), InferError> {
    let mut seen: SmallVec<[u64; 16]> = SmallVec::from_elem(0, (ids as usize).div_ceil(64));
    for i in it {
        need!((0..ids).contains(&i), format!("ids from 0 to {}", ids - 1), "device id {i}");
        let (word, bit) = (i as usize / 64, 1u64 << (i % 64));
        need!(seen[word] & bit == 0, "each device in at most one group", "device {i} twice");
        seen[word] |= bit;
    }
    Ok(())
}

/// Checks the groups as written, with what the header tells about the number
/// of devices: no empty or (for `uniform`) unequal groups, and each id from 0
/// to n-1 exactly once, where n is the number of devices if known.
///
/// # Errors
/// If one of these fails.
pub(crate) fn check_groups(
    m: &Module,
    mode: GroupMode,
    g: &ReplicaGroups,
    uniform: bool,
) -> Result<(), InferError> {
    let replicas = m.header.replica_count.max(1);
    let partitions = m.header.num_partitions.unwrap_or(1).max(1);
    counts(replicas, partitions)?;
    let known = Some(id_count(mode, replicas, partitions)).filter(|&n| n > 1);
    let total = |n: i64| -> Result<(), InferError> {
        need!(
            known.is_none_or(|k| k == n),
            format!("{} ids in all", known.unwrap_or(0)),
            "groups of {n} ids in all"
        );
        Ok(())
    };
    match g {
        ReplicaGroups::List(l) if l.is_empty() => {
            written_groups(mode, g, 1)?;
        }
        ReplicaGroups::List(l) => {
            let n: usize = l.iter().map(Vec::len).sum();
            for x in l {
                need!(!x.is_empty(), "groups of at least one device", "an empty group");
                need!(
                    !uniform || x.len() == l[0].len(),
                    format!("groups of equal size {}", l[0].len()),
                    "a group of {}",
                    x.len()
                );
            }
            need!(n as i64 <= MAX_DEVICES, format!("at most {MAX_DEVICES} ids"), "{n} ids");
            // n distinct ids below n: each is named.
            distinct_ids(l.iter().flatten().copied(), n as i64)?;
            total(n as i64)?;
        }
        ReplicaGroups::Iota(t) => {
            let n = t.device_count();
            let product = t.dims.iter().try_fold(1i64, |a, &d| a.checked_mul(d));
            need!(
                n.is_some() && n == product && t.dims.iter().all(|&d| d >= 1),
                "[groups,size]<=[..]T(..) with equal products and a permutation",
                "malformed replica groups"
            );
            total(n.unwrap_or(0))?;
        }
        ReplicaGroups::Mesh(mesh) => {
            let list = match &mesh.device_ids {
                Some(DeviceOrder::List(l)) => Some(l),
                _ => None,
            };
            let groups = written_groups(mode, g, 1)?;
            let n = groups.iter().map(Vec::len).sum::<usize>() as i64;
            if list.is_some() {
                distinct_ids(groups.iter().flatten().copied(), n)?;
            }
            total(n)?;
        }
    }
    Ok(())
}

/// Checks a collective-permute's pairs: ids in range where the header tells
/// it, no source and no target twice.
///
/// # Errors
/// If one of these fails.
pub(crate) fn check_pairs(
    m: &Module,
    mode: GroupMode,
    pairs: &[(i64, i64)],
    times: usize,
) -> Result<(), InferError> {
    let limit = match mode {
        GroupMode::CrossReplica => m.header.replica_count,
        _ => m.header.num_partitions.unwrap_or(1),
    };
    let in_range = |i: i64| i >= 0 && (limit <= 1 || i < limit);
    for &(s, t) in pairs {
        need!(
            in_range(s) && in_range(t),
            if limit > 1 { format!("ids from 0 to {}", limit - 1) } else { "ids >= 0".into() },
            "pair {{{s},{t}}}"
        );
    }
    for (side, name) in [(0, "source"), (1, "target")] {
        let ids = pairs.iter().map(|p| if side == 0 { p.0 } else { p.1 });
        let mut ids: SmallVec<[i64; 64]> = ids.collect();
        ids.sort_unstable();
        if let Some(w) = ids.windows(times + 1).find(|w| w[0] == w[times]) {
            return err!(
                format!("each {name} at most {times} times"),
                "{name} {} more often in source_target_pairs",
                w[0]
            );
        }
    }
    Ok(())
}
