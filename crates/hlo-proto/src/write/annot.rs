//! Device groups, shardings and the attributes of few instructions.

use super::{Writer, instr_id};
use crate::{forms, raw, xla};
use scalify_ir::groups::DeviceOrder;
use scalify_ir::sharding::{SubgroupKind, TileDevices};
use scalify_ir::{Extra, IotaTile, MeshGroups, OpSharding, ReplicaGroups, ShardingKind};
use xla::hlo_instruction_proto::ReplicaGroupList;
use xla::op_sharding::Type;

fn perm32(t: &IotaTile) -> Vec<i32> {
    t.perm.iter().map(|&p| p as i32).collect()
}

impl Writer<'_> {
    /// Groups of a collective.
    pub(super) fn groups(&self, g: &ReplicaGroups) -> ReplicaGroupList {
        match g {
            ReplicaGroups::List(l) => {
                let group = |g: &Vec<i64>| xla::ReplicaGroup { replica_ids: g.clone() };
                ReplicaGroupList::CollectiveDeviceList(xla::CollectiveDeviceListProto {
                    replica_groups: l.iter().map(group).collect(),
                    iota_replica_group_list: None,
                })
            }
            ReplicaGroups::Iota(t) => {
                ReplicaGroupList::IotaCollectiveDeviceList(xla::IotaReplicaGroupListProto {
                    num_replica_groups: t.dims.first().copied().unwrap_or(0),
                    num_devices_per_group: t.dims.get(1).copied().unwrap_or(0),
                    iota_reshape_dims: t.reshape.to_vec(),
                    iota_transpose_perm: perm32(t),
                })
            }
            ReplicaGroups::Mesh(m) => ReplicaGroupList::MeshAxesReplicaGroupList(self.mesh(m)),
        }
    }

    fn mesh(&self, m: &MeshGroups) -> xla::MeshAxesReplicaGroupListProto {
        let mut mesh = xla::MeshProto {
            axes: m
                .axes
                .iter()
                .map(|a| xla::mesh_proto::MeshAxis { name: self.text(a.0), size: a.1 })
                .collect(),
            ..Default::default()
        };
        match &m.device_ids {
            None => {}
            Some(DeviceOrder::List(l)) => mesh.device_ids = l.clone(),
            Some(DeviceOrder::Iota(t)) => {
                mesh.iota_transform = Some(xla::mesh_proto::IotaTransform {
                    reshape_dims: t.reshape.to_vec(),
                    transpose_perm: t.perm.iter().map(|&p| i64::from(p)).collect(),
                });
            }
        }
        let axis = |a: &scalify_ir::groups::AxisRef| xla::AxisRefProto {
            mesh_axis_index: i64::from(a.axis),
            sub_axis_info: a
                .sub
                .map(|(pre_size, size)| xla::axis_ref_proto::SubAxis { pre_size, size }),
        };
        xla::MeshAxesReplicaGroupListProto {
            mesh: Some(mesh),
            axes: m.group_axes.iter().map(axis).collect(),
        }
    }

    /// Translates a sharding.
    pub(super) fn sharding(&self, s: &OpSharding) -> xla::OpSharding {
        let mut p = xla::OpSharding {
            metadata: s.metadata.iter().filter_map(|&m| self.metadata(m)).collect(),
            ..Default::default()
        };
        if let Some((word, n)) = s.shard_group.split_once(' ') {
            use xla::op_sharding::ShardGroupType as G;
            p.is_shard_group = true;
            p.shard_group_id = n.trim().parse().unwrap_or(0);
            p.shard_group_type = if word == "shard_like" { G::Like } else { G::As }.into();
        }
        let kind = match &s.kind {
            ShardingKind::Replicated => Type::Replicated,
            ShardingKind::Manual => Type::Manual,
            ShardingKind::Unknown => Type::Unknown,
            ShardingKind::Unreduced => Type::Unreduced,
            ShardingKind::Maximal(d) => {
                p.tile_assignment_devices = vec![*d];
                Type::Maximal
            }
            ShardingKind::Tuple(parts) => {
                p.tuple_shardings = parts.iter().map(|s| self.sharding(s)).collect();
                Type::Tuple
            }
            ShardingKind::Named(text) => {
                p.named_sharding = forms::parse_named(text);
                // Says nothing where the text is not understood.
                if p.named_sharding.is_some() { Type::Replicated } else { Type::Unknown }
            }
            ShardingKind::Tiled(t) => {
                p.tile_assignment_dimensions = t.dims.clone();
                match &t.devices {
                    TileDevices::List(l) => p.tile_assignment_devices = l.clone(),
                    TileDevices::Iota(i) => {
                        p.iota_reshape_dims = i.reshape.to_vec();
                        p.iota_transpose_perm = perm32(i);
                    }
                }
                if t.last_tile_dim_replicate {
                    p.replicate_on_last_tile_dim = true;
                } else {
                    let kind = |k: &SubgroupKind| match k {
                        SubgroupKind::Replicated => Type::Replicated.into(),
                        SubgroupKind::Manual => Type::Manual.into(),
                        SubgroupKind::Unreduced => Type::Unreduced.into(),
                    };
                    p.last_tile_dims = t.subgroups.iter().map(kind).collect();
                }
                Type::Other
            }
        };
        p.r#type = kind.into();
        p
    }

    /// Adds the attributes of few instructions.
    pub(super) fn extra(&self, e: &Extra, p: &mut xla::HloInstructionProto) {
        p.sharding = e.sharding.as_ref().map(|s| self.sharding(s));
        p.frontend_attributes = self.frontend(&e.frontend);
        if let Some(c) = &e.backend_config {
            p.backend_config = raw::to_bytes(self.m.str(c.text));
        }
        p.control_predecessor_ids = e.control_predecessors.iter().map(|&i| instr_id(i)).collect();
        if !e.parameter_replication.is_empty() {
            p.parameter_replication = Some(xla::ParameterReplication {
                replicated_at_leaf_buffers: e.parameter_replication.clone(),
            });
        }
        for (k, v) in &e.other {
            let v = self.m.str(*v);
            match self.m.str(*k) {
                "statistics" => p.statistics_viz = forms::parse_statistics(v),
                "result_accuracy" => p.result_accuracy = forms::parse_accuracy(v),
                "is_composite" => p.is_composite = v == "true",
                "cross_program_prefetch_index" => {
                    use xla::hlo_instruction_proto::OptionalCrossProgramPrefetchIndex as Prefetch;
                    p.optional_cross_program_prefetch_index =
                        v.parse().ok().map(Prefetch::CrossProgramPrefetchIndex);
                }
                "conv_kind" => {
                    let name = format!("CONVOLUTION_KIND_{}", v.to_ascii_uppercase());
                    p.conv_kind =
                        xla::ConvolutionKind::from_str_name(&name).unwrap_or_default().into();
                }
                _ => {}
            }
        }
    }
}
