//! Meshes and shardings of a module in the terms that the page shows.

use scalify_claim::{Mesh, NamedMesh, Placement, parse_sdy_meshes, parse_sdy_shardings};
use scalify_ir::sharding::SubgroupKind;
use scalify_ir::{
    InstrId, Module, OpSharding, ReplicaGroups, ShardingKind, device_groups, device_pairs,
};

/// Devices above which groups are not listed.
const MAX_DEVICES: i64 = 4096;

/// The meshes of a module.
pub(crate) struct Meshes {
    /// Mesh in use: declared, else the coarsest that fits the parameters,
    /// else one axis over all partitions.
    pub(crate) mesh: Option<Mesh>,
    devices: u32,
}

/// One sharding: per dimension the axes that split it, and what else holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Badge {
    /// Axes per dimension, joined by `·`; empty: not split.
    pub(crate) dims: Vec<String>,
    /// `replicated`, `sharded`, `partial`, `manual`, `maximal`, `other`.
    pub(crate) kind: &'static str,
}

impl Meshes {
    pub(crate) fn new(m: &Module, mesh: Option<Mesh>) -> Self {
        let named: Vec<NamedMesh> = m
            .header_attr("xla.sdy.meshes")
            .and_then(|t| parse_sdy_meshes(t).ok())
            .unwrap_or_default();
        let declared = || named.iter().find(|m| !m.mesh.axes.is_empty()).map(|m| m.mesh.clone());
        let mut mesh = mesh.or_else(declared);
        let partitions = m.header.num_partitions.filter(|n| *n > 1);
        let devices = mesh.as_ref().map(Mesh::devices).filter(|d| *d > 1).or(partitions);
        let devices = devices.or(Some(m.header.replica_count).filter(|n| *n > 1)).unwrap_or(1);
        let devices = u32::try_from(devices).unwrap_or(1);
        if mesh.is_none() && devices > 1 {
            let params = m.comps.get(m.entry.0 as usize).map_or(&[][..], |c| &c.params);
            let placed: Vec<Placement> = params
                .iter()
                .filter_map(|p| {
                    let rank = m.shape(*p).dims().len();
                    Placement::from_op_sharding(m.sharding(*p)?, rank, devices).ok()
                })
                .collect();
            mesh = Mesh::infer(&placed).filter(|m| m.devices() == i64::from(devices));
            let one = || Mesh::new(vec![("devices".into(), i64::from(devices))]).ok();
            mesh = mesh.or_else(one);
        }
        Meshes { mesh, devices }
    }

    /// What a sharding annotation says; of a tuple, its first part.
    pub(crate) fn badge(&self, m: &Module, id: InstrId) -> Option<Badge> {
        let rank = m.shape(id).leaves().first().map_or(0, |s| s.dims().len());
        if let Some(s) = m.sharding(id) {
            return Some(self.of(s, rank));
        }
        let text = m.frontend_attr(id, "xla.sdy.sharding")?;
        let all = parse_sdy_shardings(text).ok()?;
        let s = all.first()?;
        let mut dims: Vec<String> = s
            .sharding
            .dims
            .iter()
            .map(|d| d.axes.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join("·"))
            .collect();
        dims.resize(rank.min(64), String::new());
        let kind = if !s.sharding.unreduced.is_empty() {
            "partial"
        } else if dims.iter().any(|d| !d.is_empty()) {
            "sharded"
        } else {
            "replicated"
        };
        Some(Badge { dims, kind })
    }

    fn of(&self, s: &OpSharding, rank: usize) -> Badge {
        let plain = |kind| Badge { dims: vec![String::new(); rank.min(64)], kind };
        match &s.kind {
            ShardingKind::Replicated => plain("replicated"),
            ShardingKind::Manual => plain("manual"),
            ShardingKind::Maximal(_) => plain("maximal"),
            ShardingKind::Unreduced => plain("partial"),
            ShardingKind::Tuple(t) => t.first().map_or_else(
                || plain("other"),
                |s| match s.kind {
                    ShardingKind::Tuple(_) => plain("other"),
                    _ => self.of(s, rank),
                },
            ),
            ShardingKind::Tiled(t) => {
                let spec = Placement::from_op_sharding(s, rank, self.devices)
                    .ok()
                    .zip(self.mesh.as_ref())
                    .and_then(|(p, mesh)| p.to_spec(mesh));
                let dims = match spec {
                    Some(spec) => {
                        let mut d: Vec<String> = spec.dims.iter().map(|d| d.join("·")).collect();
                        d.resize(rank.min(64), String::new());
                        d
                    }
                    None => (t.dims.iter().take(rank.min(64)))
                        .map(|&n| if n > 1 { format!("÷{n}") } else { String::new() })
                        .collect(),
                };
                let has = |k| t.subgroups.contains(&k);
                let kind = if has(SubgroupKind::Unreduced) {
                    "partial"
                } else if has(SubgroupKind::Manual) && dims.iter().all(String::is_empty) {
                    "manual"
                } else {
                    "sharded"
                };
                Badge { dims, kind }
            }
            ShardingKind::Unknown | ShardingKind::Named(_) => plain("other"),
        }
    }

    /// Groups of a collective (or its pairs), as lists of device ids.
    pub(crate) fn groups(&self, m: &Module, id: InstrId) -> Option<(bool, Vec<Vec<i64>>)> {
        let (_, a) = scalify_ir::devices::collective_of(m, id)?;
        let replicas = m.header.replica_count.max(1);
        let partitions = match m.header.num_partitions {
            Some(n) => n,
            None if replicas > 1 => 1,
            None => i64::from(self.devices),
        };
        if replicas.checked_mul(partitions)? > MAX_DEVICES {
            return None;
        }
        if !a.pairs.is_empty() {
            let pairs =
                device_pairs(m, id, replicas, partitions).unwrap_or_else(|_| a.pairs.clone());
            return Some((true, pairs.iter().map(|p| vec![p.0, p.1]).collect()));
        }
        let groups = device_groups(m, id, replicas, partitions).ok();
        let written = || match &a.groups {
            ReplicaGroups::List(l) if !l.is_empty() => Some(l.iter().map(|g| g.to_vec()).collect()),
            _ => None,
        };
        let groups: Vec<Vec<i64>> =
            groups.map(|g| g.iter().map(|g| g.to_vec()).collect()).or_else(written)?;
        let total: usize = groups.iter().map(Vec::len).sum();
        (total as i64 <= MAX_DEVICES).then_some((false, groups))
    }
}
