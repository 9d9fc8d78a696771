//! Placements against JAX's own answer (`data/placements.json`, written by
//! `data/gen_placements.py`) and against arithmetic.

use scalify_claim::{
    Mesh, NamedMesh, PartitionSpec, Placement, PlacementCache, PlacementError, parse_sdy_meshes,
    parse_sdy_shardings,
};
use scalify_ir::sharding::{SubgroupKind, TileDevices};
use scalify_ir::{IotaTile, OpSharding, ShardingKind, TileAssignment};
use std::sync::Arc;

#[derive(serde::Deserialize)]
struct Case {
    mesh: String,
    spec: String,
    shape: Vec<i64>,
    replicated: bool,
    tile_dims: Vec<i64>,
    tile_devices: Vec<i64>,
    subgroups: usize,
    blocks: Vec<Vec<[i64; 2]>>,
}

fn op(kind: ShardingKind) -> OpSharding {
    OpSharding { kind, metadata: Vec::new(), shard_group: String::new() }
}

fn grid(dims: &[i64], devices: TileDevices, subgroups: &[SubgroupKind]) -> OpSharding {
    op(ShardingKind::Tiled(TileAssignment {
        dims: dims.to_vec(),
        devices,
        subgroups: subgroups.to_vec(),
        last_tile_dim_replicate: false,
    }))
}

fn iota(dims: &[i64], reshape: &[i64], perm: &[u32]) -> TileDevices {
    TileDevices::Iota(IotaTile {
        dims: dims.iter().copied().collect(),
        reshape: reshape.iter().copied().collect(),
        perm: perm.iter().copied().collect(),
    })
}

fn blocks(p: &Placement, shape: &[i64]) -> Vec<Vec<[i64; 2]>> {
    let local = p.local_shape(shape).unwrap();
    (0..p.devices)
        .map(|dev| {
            let of = |k: usize| {
                let start = i64::from(p.dims[k].tile(dev)) * local[k];
                [start, start + local[k]]
            };
            (0..shape.len()).map(of).collect()
        })
        .collect()
}

#[test]
fn specs_and_tile_lists_match_jax() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/placements.json")).unwrap();
    assert!(cases.len() >= 15);
    for c in cases {
        let mesh = Mesh::parse(&c.mesh).unwrap();
        let spec = PartitionSpec::parse(&c.spec).unwrap();
        let n = mesh.devices() as u32;
        let p = Placement::from_spec(&mesh, &spec, c.shape.len()).unwrap();
        assert_eq!(blocks(&p, &c.shape), c.blocks, "{} on {}", c.spec, c.mesh);
        let sharding = if c.replicated {
            op(ShardingKind::Replicated)
        } else {
            let tail = vec![SubgroupKind::Replicated; c.subgroups];
            grid(&c.tile_dims, TileDevices::List(c.tile_devices), &tail)
        };
        assert_eq!(Placement::from_op_sharding(&sharding, 2, n).unwrap(), p, "{}", c.spec);
        // Axes of size 1 cannot be seen in a placement: compare what it means.
        let back = p.to_spec(&mesh).unwrap();
        assert_eq!(Placement::from_spec(&mesh, &back, 2).unwrap(), p, "{back}");
        if !c.mesh.contains("=1") {
            let mut trimmed = spec;
            while trimmed.dims.last().is_some_and(Vec::is_empty) {
                trimmed.dims.pop();
            }
            assert_eq!(back, trimmed);
        }
    }
}

#[test]
fn iota_equals_list() {
    // {devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}
    let rep = [SubgroupKind::Replicated];
    let a = grid(&[1, 4, 2], iota(&[1, 4, 2], &[2, 4], &[1, 0]), &rep);
    let b = grid(&[1, 4, 2], TileDevices::List(vec![0, 4, 1, 5, 2, 6, 3, 7]), &rep);
    let a = Placement::from_op_sharding(&a, 2, 8).unwrap();
    assert_eq!(a, Placement::from_op_sharding(&b, 2, 8).unwrap());
    assert_eq!(&a.dims[1].tile_of_device[..], &[0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn no_spec_for_a_permuted_order() {
    let mesh = Mesh::parse("x=4").unwrap();
    let s = grid(&[4], TileDevices::List(vec![0, 2, 1, 3]), &[]);
    let p = Placement::from_op_sharding(&s, 1, 4).unwrap();
    assert_eq!(&p.dims[0].tile_of_device[..], &[0, 2, 1, 3]);
    assert_eq!(p.to_spec(&mesh), None);
    let two = Mesh::parse("a=2,b=2").unwrap();
    assert_eq!(p.to_spec(&two).unwrap().to_string(), "P(('b', 'a'))");
}

#[test]
fn kinds_without_placement() {
    let at = |k: ShardingKind| Placement::from_op_sharding(&op(k), 1, 4).unwrap_err();
    assert_eq!(at(ShardingKind::Manual), PlacementError::Manual);
    assert_eq!(at(ShardingKind::Maximal(2)), PlacementError::Maximal(2));
    assert_eq!(at(ShardingKind::Unreduced), PlacementError::Unreduced);
    assert_eq!(at(ShardingKind::Named("{mesh['x'=4], manual}".into())), PlacementError::Manual);
    let part = grid(&[2, 2], TileDevices::List(vec![0, 1, 2, 3]), &[SubgroupKind::Manual]);
    assert_eq!(Placement::from_op_sharding(&part, 1, 4), Err(PlacementError::ManualSubgroup));
    let one = grid(&[4, 1], TileDevices::List(vec![0, 1, 2, 3]), &[SubgroupKind::Manual]);
    assert!(Placement::from_op_sharding(&one, 1, 4).is_ok());
}

#[test]
fn inconsistent_grids_are_errors() {
    let bad = [
        grid(&[4], TileDevices::List(vec![0, 1, 2]), &[]),
        grid(&[4], TileDevices::List(vec![0, 1, 2, 2]), &[]),
        grid(&[4], TileDevices::List(vec![0, 1, 2, 9]), &[]),
        grid(&[4], TileDevices::List(vec![0, 1, 2, -1]), &[]),
        grid(&[0], TileDevices::List(vec![]), &[]),
        grid(&[2], TileDevices::List(vec![0, 1]), &[]),
        grid(&[2, 2], TileDevices::List(vec![0, 1, 2, 3]), &[]),
        grid(&[i64::MAX, 4], TileDevices::List(vec![0]), &[SubgroupKind::Replicated]),
        grid(&[4], iota(&[4], &[2, 2], &[1, 1]), &[]),
        grid(&[4], iota(&[4], &[2, 2], &[1, 7]), &[]),
        grid(&[4], iota(&[4], &[i64::MAX, 3], &[1, 0]), &[]),
        grid(&[4], iota(&[4], &[0], &[0]), &[]),
    ];
    for b in bad {
        let got = Placement::from_op_sharding(&b, 1, 4);
        assert!(matches!(got, Err(PlacementError::Inconsistent(_))), "{b:?}: {got:?}");
    }
}

#[test]
fn specs_that_do_not_fit() {
    let mesh = Mesh::parse("x=4,y=2").unwrap();
    let e = |s: &str, rank| {
        Placement::from_spec(&mesh, &PartitionSpec::parse(s).unwrap(), rank)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(e("P('tp')", 1), "the mesh `x=4,y=2` has no axis `tp`");
    assert!(e("P('x', 'x')", 2).contains("used twice"));
    assert!(e("P(None, 'x')", 1).contains("rank 1"));
    assert!(
        Placement::from_spec(&mesh, &PartitionSpec::parse("P(None, None)").unwrap(), 1).is_ok()
    );
}

fn sdy(mesh: &str, sharding: &str, rank: usize, n: u32) -> Result<Placement, PlacementError> {
    let m = parse_sdy_meshes(mesh).unwrap();
    let s = parse_sdy_shardings(sharding).unwrap();
    Placement::from_axes(s[0].resolve(&m).unwrap(), &s[0].sharding, rank, n)
}

#[test]
fn shardy_sub_axes_orders_and_special_meshes() {
    let m = r#"{mesh = #sdy.mesh<["x"=8]>}"#;
    let p = sdy(m, r#"#sdy.sharding<@mesh, [{"x":(2)4}, {"x":(1)2}]>"#, 2, 8).unwrap();
    assert_eq!(&p.dims[0].tile_of_device[..], &[0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(&p.dims[1].tile_of_device[..], &[0, 0, 0, 0, 1, 1, 1, 1]);
    assert!(sdy(m, r#"#sdy.sharding<@mesh, [{"x":(1)4}, {"x":(2)2}]>"#, 2, 8).is_err());
    assert!(sdy(m, r#"#sdy.sharding<@mesh, [{"x":(1)3}]>"#, 1, 8).is_err());
    let ids = r#"{mesh = #sdy.mesh<["x"=2, "y"=2], device_ids=[3, 1, 2, 0]>}"#;
    // Position 0 is device 3, 1 is 1, 2 is 2, 3 is 0; x is the major axis.
    let p = sdy(ids, r#"#sdy.sharding<@mesh, [{"x"}]>"#, 1, 4).unwrap();
    assert_eq!(&p.dims[0].tile_of_device[..], &[1, 0, 1, 0]);
    let empty = "{empty_mesh = #sdy.mesh<[]>}";
    assert!(sdy(empty, "#sdy.sharding<@empty_mesh, [{}]>", 1, 8).unwrap().is_replicated());
    let max = "{m = #sdy.mesh<[], device_ids=[3]>}";
    assert_eq!(sdy(max, "#sdy.sharding<@m, []>", 1, 8), Err(PlacementError::Maximal(3)));
    assert!(sdy(m, r#"#sdy.sharding<@mesh, [{"x"}]>"#, 1, 4).is_err());
    let un = sdy(m, r#"#sdy.sharding<@mesh, [{}], unreduced={"x"}>"#, 1, 8);
    assert_eq!(un, Err(PlacementError::Unreduced));
}

#[test]
fn meshes_are_inferred_from_placements() {
    let of = |mesh: &str, specs: &[&str]| {
        let m = Mesh::parse(mesh).unwrap();
        let p: Vec<Placement> = specs
            .iter()
            .map(|s| Placement::from_spec(&m, &PartitionSpec::parse(s).unwrap(), 2).unwrap())
            .collect();
        Mesh::infer(&p).map(|m| m.to_string())
    };
    let sizes = |s: &str| Some(s.to_string());
    assert_eq!(of("a=2,b=4", &["P('a')", "P(None,'b')", "P('b','a')"]), sizes("d0=2,d1=4"));
    assert_eq!(of("a=2,b=4", &["P(('a','b'))"]), sizes("d0=8"));
    assert_eq!(of("a=3,b=2,c=5", &["P('b')", "P(('c','a'))"]), sizes("d0=3,d1=2,d2=5"));
    assert_eq!(of("a=2,b=2,c=2", &["P('b')"]), sizes("d0=2,d1=2,d2=2"));
    assert_eq!(of("a=4", &["P()"]), sizes("d0=4"));
    assert_eq!(of("a=1", &["P('a')"]), sizes(""));
    assert_eq!(Mesh::infer(&[]), None);
    let odd = grid(&[4], TileDevices::List(vec![0, 2, 3, 1]), &[]);
    assert_eq!(Mesh::infer(&[Placement::from_op_sharding(&odd, 1, 4).unwrap()]), None);
}

#[test]
fn uneven_tiles_round_up() {
    let mesh = Mesh::parse("x=4").unwrap();
    let p = Placement::from_spec(&mesh, &PartitionSpec::parse("P('x')").unwrap(), 1).unwrap();
    assert_eq!(p.local_shape(&[10]), Some(vec![3]));
    assert_eq!(p.local_shape(&[3]), Some(vec![1]));
    assert_eq!(p.local_shape(&[0]), Some(vec![0]));
    assert_eq!(p.local_shape(&[i64::MAX]), Some(vec![i64::MAX / 4 + 1]));
    assert_eq!(p.local_shape(&[1, 1]), None);
}

#[test]
fn tables_are_shared() {
    let mesh = Mesh::parse("dp=64,tp=128").unwrap();
    let mut cache = PlacementCache::new(NamedMesh::plain(mesh));
    let a = PartitionSpec::parse("P(None, 'tp')").unwrap();
    let b = PartitionSpec::parse("P('tp', 'dp')").unwrap();
    let first = cache.spec(&a, 2).unwrap();
    for _ in 0..2000 {
        let p = cache.spec(&b, 2).unwrap();
        assert!(Arc::ptr_eq(&p.dims[0].tile_of_device, &first.dims[1].tile_of_device));
    }
    let rep = [SubgroupKind::Replicated];
    let s = grid(&[1, 128, 64], iota(&[1, 128, 64], &[64, 128], &[1, 0]), &rep);
    let p = cache.op_sharding(&s, 2, 8192).unwrap();
    let q = cache.op_sharding(&s, 2, 8192).unwrap();
    assert_eq!(p, first);
    assert!(Arc::ptr_eq(&p.dims[1].tile_of_device, &q.dims[1].tile_of_device));
}
