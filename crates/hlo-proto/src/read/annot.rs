//! Device groups, shardings and the attributes of few instructions.

use super::{Reader, frontend};
use crate::error::{Part, bad};
use crate::{forms, raw, xla};
use scalify_ir::groups::{AxisRef, DeviceOrder};
use scalify_ir::sharding::{SubgroupKind, TileDevices};
use scalify_ir::{
    BackendConfig, Extra, IotaTile, MeshGroups, OpSharding, ReplicaGroups, ShardingKind,
    TileAssignment,
};
use smallvec::SmallVec;
use xla::hlo_instruction_proto::ReplicaGroupList;
use xla::op_sharding::Type;

const GROUPS: &str = "replica_groups";
const SHARDING: &str = "sharding";
/// Most devices a group list or tile grid may name.
const MAX_DEVICES: i64 = 1 << 32;
/// Most dimensions of a device grid and axes of a mesh.
const MAX_RANK: usize = 64;

fn product(dims: &[i64], field: &'static str) -> Part<i64> {
    if dims.len() > MAX_RANK {
        return bad(field, format!("{} dimensions, at most {MAX_RANK} are supported", dims.len()));
    }
    let n = dims.iter().try_fold(1i64, |a, &d| if d > 0 { a.checked_mul(d) } else { None });
    match n.filter(|&n| n <= MAX_DEVICES) {
        Some(n) => Ok(n),
        None => {
            bad(field, format!("sizes {dims:?} must be positive and name at most 2^32 devices"))
        }
    }
}

/// An iota tile whose parts agree.
fn iota(
    dims: &[i64],
    reshape: &[i64],
    perm: impl Iterator<Item = i64>,
    field: &'static str,
) -> Part<IotaTile> {
    let n = product(reshape, field)?;
    if product(dims, field)? != n {
        return bad(field, format!("iota of {reshape:?} does not fill {dims:?}"));
    }
    let mut p: SmallVec<[u32; 4]> = SmallVec::new();
    for d in perm {
        match u32::try_from(d) {
            Ok(d) if (d as usize) < reshape.len() && !p.contains(&d) => p.push(d),
            _ => return bad(field, format!("bad transpose of {} dimensions", reshape.len())),
        }
    }
    if p.is_empty() {
        p = (0..reshape.len() as u32).collect();
    }
    if p.len() != reshape.len() {
        return bad(field, format!("transpose of {} of {} dimensions", p.len(), reshape.len()));
    }
    Ok(IotaTile {
        dims: dims.iter().copied().collect(),
        reshape: reshape.iter().copied().collect(),
        perm: p,
    })
}

fn groups_list(p: &[xla::ReplicaGroup]) -> ReplicaGroups {
    ReplicaGroups::List(p.iter().map(|g| g.replica_ids.clone()).collect())
}

fn groups_iota(p: &xla::IotaReplicaGroupListProto) -> Part<ReplicaGroups> {
    let dims = [p.num_replica_groups, p.num_devices_per_group];
    let perm = p.iota_transpose_perm.iter().map(|&d| i64::from(d));
    Ok(ReplicaGroups::Iota(iota(&dims, &p.iota_reshape_dims, perm, GROUPS)?))
}

impl Reader<'_> {
    /// Groups of a collective in whichever form they are given.
    pub(super) fn groups(&mut self, p: &xla::HloInstructionProto) -> Part<ReplicaGroups> {
        match &p.replica_group_list {
            Some(ReplicaGroupList::CollectiveDeviceList(l)) => match &l.iota_replica_group_list {
                Some(i) => groups_iota(i),
                None => Ok(groups_list(&l.replica_groups)),
            },
            Some(ReplicaGroupList::IotaCollectiveDeviceList(i)) => groups_iota(i),
            Some(ReplicaGroupList::MeshAxesReplicaGroupList(m)) => self.groups_mesh(m),
            None => Ok(groups_list(&p.replica_groups)),
        }
    }

    fn groups_mesh(&mut self, p: &xla::MeshAxesReplicaGroupListProto) -> Part<ReplicaGroups> {
        let Some(mesh) = &p.mesh else { return bad(GROUPS, "no mesh") };
        let mut axes = Vec::new();
        for a in &mesh.axes {
            axes.push((self.sym(&a.name), a.size));
        }
        let sizes: Vec<i64> = axes.iter().map(|a| a.1).collect();
        let n = product(&sizes, GROUPS)?;
        let device_ids = match &mesh.iota_transform {
            Some(t) if !t.reshape_dims.is_empty() => {
                let perm = t.transpose_perm.iter().copied();
                let t = iota(&t.reshape_dims, &t.reshape_dims, perm, GROUPS)?;
                if product(&t.reshape, GROUPS)? != n {
                    return bad(GROUPS, format!("the mesh has {n} devices, its order others"));
                }
                Some(DeviceOrder::Iota(t))
            }
            _ if !mesh.device_ids.is_empty() => {
                if mesh.device_ids.len() as i64 != n {
                    let have = mesh.device_ids.len();
                    return bad(GROUPS, format!("the mesh has {n} devices, {have} are listed"));
                }
                Some(DeviceOrder::List(mesh.device_ids.clone()))
            }
            _ => None,
        };
        if p.axes.len() > MAX_RANK {
            return bad(GROUPS, format!("{} axes, at most {MAX_RANK} are supported", p.axes.len()));
        }
        let mut group_axes = Vec::new();
        for a in &p.axes {
            let index = usize::try_from(a.mesh_axis_index).ok();
            let Some(&size) = index.and_then(|i| sizes.get(i)) else {
                return bad(GROUPS, format!("the mesh has no axis {}", a.mesh_axis_index));
            };
            let sub = a.sub_axis_info.as_ref().map(|s| (s.pre_size, s.size));
            if let Some((pre, s)) = sub {
                let fits = pre > 0 && s > 0 && pre.checked_mul(s).is_some_and(|p| size % p == 0);
                if !fits {
                    return bad(GROUPS, format!("no part ({pre}){s} of an axis of size {size}"));
                }
            }
            group_axes.push(AxisRef { axis: a.mesh_axis_index as u32, sub });
        }
        Ok(ReplicaGroups::Mesh(MeshGroups { axes, device_ids, group_axes }))
    }

    /// Translates a sharding. Nesting is bounded by the decoder.
    pub(super) fn sharding(&mut self, p: &xla::OpSharding) -> Part<OpSharding> {
        if let Some(named) = &p.named_sharding {
            let Some(text) = forms::named(named) else {
                return bad(SHARDING, "an axis that the mesh does not have");
            };
            let kind = ShardingKind::Named(text);
            return Ok(OpSharding { kind, metadata: Vec::new(), shard_group: String::new() });
        }
        let Ok(kind) = Type::try_from(p.r#type) else {
            return bad(SHARDING, format!("unknown type {}", p.r#type));
        };
        let kind = match kind {
            Type::Replicated => ShardingKind::Replicated,
            Type::Manual => ShardingKind::Manual,
            Type::Unknown => ShardingKind::Unknown,
            Type::Unreduced => ShardingKind::Unreduced,
            Type::Maximal => match p.tile_assignment_devices.as_slice() {
                [d] => ShardingKind::Maximal(*d),
                v => return bad(SHARDING, format!("{} devices of a maximal sharding", v.len())),
            },
            Type::Tuple => {
                let parts = p.tuple_shardings.iter().map(|s| self.sharding(s));
                ShardingKind::Tuple(parts.collect::<Part<_>>()?)
            }
            Type::Other => ShardingKind::Tiled(tiled(p)?),
        };
        let mut metadata = Vec::new();
        for m in &p.metadata {
            metadata.extend(self.meta(m)?);
        }
        let shard_group = if p.is_shard_group {
            use xla::op_sharding::ShardGroupType as G;
            let word = if p.shard_group_type() == G::Like { "shard_like" } else { "shard_as" };
            format!("{word} {}", p.shard_group_id)
        } else {
            String::new()
        };
        Ok(OpSharding { kind, metadata, shard_group })
    }

    /// Attributes that any instruction may carry, without control
    /// predecessors.
    pub(super) fn extra(&mut self, p: &xla::HloInstructionProto) -> Part<Option<Box<Extra>>> {
        let mut e = Extra::default();
        if let Some(s) = &p.sharding {
            e.sharding = Some(self.sharding(s)?);
        }
        if let Some(f) = &p.frontend_attributes {
            e.frontend = frontend(&mut self.m, f);
        }
        let config = match p.backend_config_payload.as_ref().and_then(|p| p.payload_source.as_ref())
        {
            None => p.backend_config.as_slice(),
            Some(xla::payload::PayloadSource::Value(v)) => v,
            Some(xla::payload::PayloadSource::Id(id)) => {
                match usize::try_from(*id).ok().and_then(|i| self.head.payloads.get(i)) {
                    Some(v) => v,
                    None => {
                        let n = self.head.payloads.len();
                        return bad("backend_config_payload", format!("payload {id} of {n}"));
                    }
                }
            }
        };
        if !config.is_empty() {
            let text = raw::to_text(config);
            let quoted = !forms::is_brace_form(&text);
            e.backend_config = Some(BackendConfig { text: self.sym(&text), quoted });
        }
        if let Some(r) = &p.parameter_replication {
            e.parameter_replication = r.replicated_at_leaf_buffers.clone();
        }
        let mut other = Vec::new();
        if let Some(s) = p.statistics_viz.as_ref().and_then(forms::statistics) {
            other.push(("statistics", s));
        }
        if let Some(s) = p.result_accuracy.as_ref().and_then(forms::accuracy) {
            other.push(("result_accuracy", s));
        }
        if let Some(s) = &p.outfeed_shape {
            let s = super::shape::shape(s).map_err(|e| e.of("outfeed_shape"))?;
            other.push(("outfeed_shape", forms::shape_text(&s)));
        }
        if p.is_composite {
            other.push(("is_composite", "true".to_owned()));
        }
        use xla::hlo_instruction_proto::OptionalCrossProgramPrefetchIndex as Prefetch;
        if let Some(Prefetch::CrossProgramPrefetchIndex(i)) =
            p.optional_cross_program_prefetch_index
        {
            other.push(("cross_program_prefetch_index", i.to_string()));
        } else if p.is_cross_program_prefetch {
            other.push(("cross_program_prefetch_index", "0".to_owned()));
        }
        if p.conv_kind != 0 {
            let name = p.conv_kind().as_str_name().trim_start_matches("CONVOLUTION_KIND_");
            other.push(("conv_kind", name.to_ascii_lowercase()));
        }
        for (k, v) in other {
            let pair = (self.sym(k), self.sym(&v));
            e.other.push(pair);
        }
        Ok((e != Extra::default()).then(|| Box::new(e)))
    }
}

fn tiled(p: &xla::OpSharding) -> Part<TileAssignment> {
    let dims = p.tile_assignment_dimensions.clone();
    let n = product(&dims, SHARDING)?;
    let devices = if p.iota_reshape_dims.is_empty() {
        if p.tile_assignment_devices.len() as i64 != n {
            let have = p.tile_assignment_devices.len();
            return bad(SHARDING, format!("the tile grid has {n} devices, {have} are listed"));
        }
        TileDevices::List(p.tile_assignment_devices.clone())
    } else {
        let perm = p.iota_transpose_perm.iter().map(|&d| i64::from(d));
        TileDevices::Iota(iota(&dims, &p.iota_reshape_dims, perm, SHARDING)?)
    };
    let mut subgroups = Vec::new();
    for &t in &p.last_tile_dims {
        subgroups.push(match Type::try_from(t) {
            Ok(Type::Replicated) => SubgroupKind::Replicated,
            Ok(Type::Manual) => SubgroupKind::Manual,
            Ok(Type::Unreduced) => SubgroupKind::Unreduced,
            _ => return bad(SHARDING, format!("subgroup of type {t}")),
        });
    }
    let last_tile_dim_replicate = p.replicate_on_last_tile_dim && subgroups.is_empty();
    if last_tile_dim_replicate {
        subgroups.push(SubgroupKind::Replicated);
    }
    if subgroups.len() > dims.len() {
        return bad(SHARDING, "more subgroup dimensions than dimensions of the tile grid");
    }
    Ok(TileAssignment { dims, devices, subgroups, last_tile_dim_replicate })
}
