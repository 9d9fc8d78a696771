//! Who talks to whom, against what XLA's CPU runtime did (jaxlib 0.10.2): each
//! device gathered the ids `replica * partitions + partition` of its group.

use scalify_ir::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ids {
    /// No `channel_id`.
    Plain,
    /// `channel_id=1`.
    Channel,
    /// `channel_id=1, use_global_device_ids=true`.
    Global,
}

fn groups(v: &[&[i64]]) -> ReplicaGroups {
    ReplicaGroups::List(v.iter().map(|g| g.to_vec()).collect())
}

fn module(op: Opcode, ids: Ids, groups: ReplicaGroups, pairs: &[(i64, i64)]) -> (Module, InstrId) {
    let mut m = ModuleBuilder::new("m");
    let mut b = m.computation("main");
    let x = b.parameter(DType::U32, [8]);
    let a = CollectiveAttrs {
        groups,
        channel_id: (ids != Ids::Plain).then_some(1),
        use_global_device_ids: ids == Ids::Global,
        dimension: Some(0),
        pairs: pairs.to_vec(),
        ..Default::default()
    };
    let shape = Shape::array(DType::U32, [8]);
    let y = b.unchecked(op, Attrs::Collective(Box::new(a)), &[x], &[], shape);
    let main = b.finish(y);
    (m.finish(main), y)
}

/// For each device the members of its group, in order.
fn gathered(g: &DeviceGroups, devices: i64) -> Vec<Vec<i64>> {
    (0..devices).map(|d| g.iter().find(|g| g.contains(&d)).cloned().unwrap_or_default()).collect()
}

#[test]
fn groups_in_every_mode() {
    use Ids::*;
    use Opcode::{AllGather, AllToAll};
    let all: &[i64] = &[0, 1, 2, 3, 4, 5, 6, 7];
    let high: &[i64] = &[4, 5, 6, 7, 0, 1, 2, 3];
    let rot: &[&[i64]] = &[&[6, 1], &[0, 7], &[2, 3], &[5, 4]];
    let rotted: &[&[i64]] =
        &[&[0, 7], &[6, 1], &[2, 3], &[2, 3], &[5, 4], &[5, 4], &[6, 1], &[0, 7]];
    type Row<'a> = (Opcode, i64, i64, Ids, &'a [&'a [i64]], &'a [&'a [i64]]);
    let table: &[Row] = &[
        // 2 replicas of 4 partitions.
        (
            AllGather,
            2,
            4,
            Plain,
            &[],
            &[&[0, 4], &[1, 5], &[2, 6], &[3, 7], &[0, 4], &[1, 5], &[2, 6], &[3, 7]],
        ),
        (
            AllGather,
            2,
            4,
            Plain,
            &[&[1, 0]],
            &[&[4, 0], &[5, 1], &[6, 2], &[7, 3], &[4, 0], &[5, 1], &[6, 2], &[7, 3]],
        ),
        (AllGather, 2, 4, Plain, &[&[0], &[1]], &[&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7]]),
        (AllGather, 2, 4, Channel, &[], &[all; 8]),
        (AllGather, 2, 4, Channel, &[&[0, 1]], &[all; 8]),
        (AllGather, 2, 4, Channel, &[&[1, 0]], &[high; 8]),
        (
            AllGather,
            2,
            4,
            Channel,
            &[&[0], &[1]],
            &[
                &[0, 1, 2, 3],
                &[0, 1, 2, 3],
                &[0, 1, 2, 3],
                &[0, 1, 2, 3],
                &[4, 5, 6, 7],
                &[4, 5, 6, 7],
                &[4, 5, 6, 7],
                &[4, 5, 6, 7],
            ],
        ),
        (AllGather, 2, 4, Global, rot, rotted),
        (
            AllToAll,
            2,
            4,
            Plain,
            &[&[1, 0]],
            &[&[4, 0], &[5, 1], &[6, 2], &[7, 3], &[4, 0], &[5, 1], &[6, 2], &[7, 3]],
        ),
        (
            AllToAll,
            2,
            4,
            Channel,
            &[&[1, 0], &[2, 3]],
            &[&[1, 0], &[1, 0], &[2, 3], &[2, 3], &[5, 4], &[5, 4], &[6, 7], &[6, 7]],
        ),
        // 4 replicas of 2 partitions.
        (
            AllGather,
            4,
            2,
            Plain,
            &[],
            &[
                &[0, 2, 4, 6],
                &[1, 3, 5, 7],
                &[0, 2, 4, 6],
                &[1, 3, 5, 7],
                &[0, 2, 4, 6],
                &[1, 3, 5, 7],
                &[0, 2, 4, 6],
                &[1, 3, 5, 7],
            ],
        ),
        (
            AllGather,
            4,
            2,
            Plain,
            &[&[3, 0], &[1, 2]],
            &[&[6, 0], &[7, 1], &[2, 4], &[3, 5], &[2, 4], &[3, 5], &[6, 0], &[7, 1]],
        ),
        (
            AllGather,
            4,
            2,
            Channel,
            &[&[3, 0], &[1, 2]],
            &[
                &[6, 7, 0, 1],
                &[6, 7, 0, 1],
                &[2, 3, 4, 5],
                &[2, 3, 4, 5],
                &[2, 3, 4, 5],
                &[2, 3, 4, 5],
                &[6, 7, 0, 1],
                &[6, 7, 0, 1],
            ],
        ),
        (AllGather, 4, 2, Global, rot, rotted),
        (
            AllToAll,
            4,
            2,
            Plain,
            &[&[1, 0], &[2, 3]],
            &[&[2, 0], &[3, 1], &[2, 0], &[3, 1], &[4, 6], &[5, 7], &[4, 6], &[5, 7]],
        ),
        (
            AllToAll,
            4,
            2,
            Channel,
            &[&[1, 0]],
            &[&[1, 0], &[1, 0], &[3, 2], &[3, 2], &[5, 4], &[5, 4], &[7, 6], &[7, 6]],
        ),
        // One partition: all modes agree but for what `{}` means.
        (AllGather, 8, 1, Plain, &[], &[all; 8]),
        (AllGather, 8, 1, Channel, &[], &[all; 8]),
        (AllGather, 8, 1, Plain, rot, rotted),
        (AllGather, 8, 1, Channel, rot, rotted),
        (AllGather, 8, 1, Global, rot, rotted),
        // One replica: `{}` is nobody else, or everybody.
        (AllGather, 1, 8, Plain, &[], &[&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7]]),
        (AllGather, 1, 8, Channel, &[], &[all; 8]),
        (AllGather, 1, 8, Global, rot, rotted),
    ];
    for &(op, replicas, partitions, ids, text, want) in table {
        let (m, i) = module(op, ids, groups(text), &[]);
        let g = device_groups(&m, i, replicas, partitions).unwrap();
        let got = gathered(&g, 8);
        assert_eq!(got, want, "{op} {replicas}x{partitions} {ids:?} {text:?}");
    }
}

#[test]
fn the_one_replica_group_means_every_partition() {
    // `{{0}}` under one replica (pytorch/xla#5279): replicas, each with all
    // its partitions.
    let (m, i) = module(Opcode::AllReduce, Ids::Channel, groups(&[&[0]]), &[]);
    assert_eq!(device_groups(&m, i, 1, 4).unwrap(), [[0, 1, 2, 3]]);
    let (m, i) = module(Opcode::AllReduce, Ids::Plain, groups(&[&[0]]), &[]);
    assert_eq!(device_groups(&m, i, 1, 2).unwrap(), [[0], [1]]);
}

#[test]
fn pairs_in_both_modes() {
    type Row<'a> = (i64, i64, Ids, &'a [(i64, i64)], [i64; 8]);
    let table: [Row; 6] = [
        // Value each device received, -1 for none (XLA gives zeros).
        (2, 4, Ids::Plain, &[(0, 1), (1, 0)], [4, 5, 6, 7, 0, 1, 2, 3]),
        (2, 4, Ids::Channel, &[(0, 1), (1, 0)], [1, 0, -1, -1, 5, 4, -1, -1]),
        (2, 4, Ids::Channel, &[(1, 3), (3, 1)], [-1, 3, -1, 1, -1, 7, -1, 5]),
        (4, 2, Ids::Plain, &[(0, 1), (1, 0)], [2, 3, 0, 1, -1, -1, -1, -1]),
        (4, 2, Ids::Channel, &[(0, 1), (1, 0)], [1, 0, 3, 2, 5, 4, 7, 6]),
        (8, 1, Ids::Plain, &[(1, 3), (3, 1)], [-1, 3, -1, 1, -1, -1, -1, -1]),
    ];
    for (replicas, partitions, ids, pairs, want) in table {
        let (m, i) = module(Opcode::CollectivePermute, ids, ReplicaGroups::all(), pairs);
        let mut got = [-1; 8];
        for (s, t) in device_pairs(&m, i, replicas, partitions).unwrap() {
            got[t as usize] = s;
        }
        assert_eq!(got, want, "{replicas}x{partitions} {ids:?} {pairs:?}");
    }
}

#[test]
fn refused() {
    use Opcode::*;
    let fails = |op, ids, g: ReplicaGroups, r, p, part: &str| {
        let (m, i) = module(op, ids, g, &[(0, 1)]);
        let e = device_groups(&m, i, r, p).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    };
    // XLA: "Replica groups must be specified in flattened-id mode".
    fails(AllReduce, Ids::Global, ReplicaGroups::all(), 1, 8, "flattened device ids");
    fails(AllReduce, Ids::Plain, groups(&[&[0, 1]]), 1, 8, "ids from 0 to 0");
    fails(AllReduce, Ids::Global, groups(&[&[0, 8]]), 1, 8, "ids from 0 to 7");
    fails(AllReduce, Ids::Global, groups(&[&[0, -1]]), 1, 8, "ids from 0 to 7");
    fails(AllReduce, Ids::Global, groups(&[&[0, 1], &[1, 2]]), 1, 8, "at most one group");
    fails(CollectivePermute, Ids::Plain, groups(&[]), 1, 8, "replica groups");
    fails(AllReduce, Ids::Plain, groups(&[]), 0, 8, "devices");
    fails(AllReduce, Ids::Plain, groups(&[]), i64::MAX, i64::MAX, "devices");
    let bad = IotaTile {
        dims: [2, 2].into_iter().collect(),
        reshape: [4].into_iter().collect(),
        perm: [9].into_iter().collect(),
    };
    fails(AllReduce, Ids::Global, ReplicaGroups::Iota(bad), 1, 4, "multiply up");
    let (m, i) = module(CollectivePermute, Ids::Channel, ReplicaGroups::all(), &[(0, 4)]);
    assert!(device_pairs(&m, i, 1, 4).is_err());
    let (m, i) = module(AllReduce, Ids::Plain, ReplicaGroups::all(), &[]);
    assert!(device_pairs(&m, i, 1, 4).is_err());
    let mut a = CollectiveAttrs { use_global_device_ids: true, ..Default::default() };
    assert!(group_mode(AllReduce, &a).is_err());
    a.channel_id = Some(1);
    assert_eq!(group_mode(AllReduce, &a), Ok(GroupMode::FlattenedId));
}
