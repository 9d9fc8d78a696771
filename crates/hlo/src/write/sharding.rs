//! Text of shardings and device groups.

use super::Writer;
use scalify_ir::groups::DeviceOrder;
use scalify_ir::sharding::{SubgroupKind, TileDevices};
use scalify_ir::{IotaTile, OpSharding, ReplicaGroups, ShardingKind};
use std::fmt::Write;

/// `1,2,3`.
pub(super) fn ints<T: std::fmt::Display>(out: &mut String, v: impl IntoIterator<Item = T>) {
    for (i, x) in v.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let _ = write!(out, "{x}");
    }
}

/// `[2,4]T(1,0)`, without the permutation if it is the identity. XLA wants
/// one where there is more than one dimension.
fn iota(out: &mut String, t: &IotaTile) {
    let identity = t.perm.iter().enumerate().all(|(i, &p)| i as u32 == p);
    out.push('[');
    if identity {
        let n: i64 = t.reshape.iter().product();
        let _ = write!(out, "{n}]");
        return;
    }
    ints(out, &t.reshape);
    out.push_str("]T(");
    ints(out, &t.perm);
    out.push(')');
}

impl Writer<'_> {
    pub(super) fn sharding(&mut self, s: &OpSharding) {
        let word = match &s.kind {
            ShardingKind::Named(text) => {
                let _ = write!(self.out, "{{{text}}}");
                return;
            }
            ShardingKind::Tuple(parts) => {
                self.out.push('{');
                for (i, p) in parts.iter().enumerate() {
                    super::comma(&mut self.out, i);
                    self.sharding(p);
                }
                self.out.push('}');
                return;
            }
            ShardingKind::Replicated => "replicated",
            ShardingKind::Manual => "manual",
            ShardingKind::Unknown => "unknown",
            ShardingKind::Unreduced => "unreduced",
            ShardingKind::Maximal(_) | ShardingKind::Tiled(_) => "",
        };
        self.out.push('{');
        self.out.push_str(word);
        match &s.kind {
            ShardingKind::Maximal(d) => {
                let _ = write!(self.out, "maximal device={d}");
            }
            ShardingKind::Tiled(t) => {
                self.out.push_str("devices=[");
                ints(&mut self.out, &t.dims);
                self.out.push(']');
                match &t.devices {
                    TileDevices::List(l) => ints(&mut self.out, l),
                    TileDevices::Iota(t) => {
                        self.out.push_str("<=");
                        iota(&mut self.out, t);
                    }
                }
                if t.last_tile_dim_replicate {
                    self.out.push_str(" last_tile_dim_replicate");
                } else if !t.subgroups.is_empty() {
                    self.out.push_str(" last_tile_dims={");
                    for (i, k) in t.subgroups.iter().enumerate() {
                        if i > 0 {
                            self.out.push_str(", ");
                        }
                        self.out.push_str(match k {
                            SubgroupKind::Replicated => "replicated",
                            SubgroupKind::Manual => "manual",
                            SubgroupKind::Unreduced => "unreduced",
                        });
                    }
                    self.out.push('}');
                }
            }
            _ => {}
        }
        if !s.shard_group.is_empty() {
            let _ = write!(self.out, " {}", s.shard_group);
        }
        if !s.metadata.is_empty() && self.opts.metadata {
            self.out.push_str(" metadata=");
            if let [one] = s.metadata[..] {
                self.meta(one);
            } else {
                self.out.push('{');
                for (i, &id) in s.metadata.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(", ");
                    }
                    self.meta(id);
                }
                self.out.push('}');
            }
        }
        self.out.push('}');
    }

    pub(super) fn groups(&mut self, g: &ReplicaGroups) {
        match g {
            ReplicaGroups::List(l) => {
                self.out.push('{');
                for (i, g) in l.iter().enumerate() {
                    self.out.push_str(if i > 0 { ",{" } else { "{" });
                    ints(&mut self.out, g);
                    self.out.push('}');
                }
                self.out.push('}');
            }
            ReplicaGroups::Iota(t) => {
                self.out.push('[');
                ints(&mut self.out, &t.dims);
                self.out.push_str("]<=");
                iota(&mut self.out, t);
            }
            ReplicaGroups::Mesh(m) => {
                self.out.push_str("mesh[");
                for (i, (name, size)) in m.axes.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    let _ = write!(self.out, "{comma}'{}'={size}", self.m.str(*name));
                }
                self.out.push(']');
                if let Some(order) = &m.device_ids {
                    self.out.push_str(", device_ids=(");
                    match order {
                        DeviceOrder::List(l) => ints(&mut self.out, l),
                        DeviceOrder::Iota(t) => iota(&mut self.out, t),
                    }
                    self.out.push(')');
                }
                self.out.push_str(" {");
                for (i, a) in m.group_axes.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    let name = m.axes.get(a.axis as usize).map_or("", |x| self.m.str(x.0));
                    let _ = write!(self.out, "{comma}'{name}'");
                    if let Some((pre, size)) = a.sub {
                        let _ = write!(self.out, ":({pre}){size}");
                    }
                }
                self.out.push('}');
            }
        }
    }
}
