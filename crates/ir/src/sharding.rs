//! Sharding annotations, as XLA's `OpSharding`.

use crate::groups::IotaTile;
use crate::source::MetaId;

/// `sharding={...}` of an instruction or parameter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OpSharding {
    /// What kind of sharding.
    pub kind: ShardingKind,
    /// Attached `metadata={..}` if any.
    pub metadata: Vec<MetaId>,
    /// `shard_as n` / `shard_like n`, as printed, or empty.
    pub shard_group: String,
}

/// Kind of a sharding.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ShardingKind {
    /// `{replicated}`.
    Replicated,
    /// `{manual}`: per-device program.
    Manual,
    /// `{maximal device=n}`.
    Maximal(i64),
    /// `{unknown}`.
    Unknown,
    /// `{unreduced}`.
    Unreduced,
    /// `{devices=[..]..}`.
    Tiled(TileAssignment),
    /// `{{..}, {..}}`: one per tuple leaf.
    Tuple(Vec<OpSharding>),
    /// A form kept as text (e.g. the named mesh form `{mesh[...], [...]}`).
    Named(String),
}

/// Role of a trailing tile dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubgroupKind {
    /// Data is the same along it.
    Replicated,
    /// Manual along it.
    Manual,
    /// Partial values along it.
    Unreduced,
}

/// Device ids of a tile grid.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TileDevices {
    /// Explicit list in row-major order of the tile grid.
    List(Vec<i64>),
    /// Iota form (its `dims` equal [`TileAssignment::dims`]).
    Iota(IotaTile),
}

/// A tile grid over the dimensions of an array, then the subgroup dimensions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TileAssignment {
    /// Tiles per dimension, then sizes of the trailing subgroup dimensions.
    pub dims: Vec<i64>,
    /// Devices of the grid.
    pub devices: TileDevices,
    /// Kinds of the trailing subgroup dimensions, in order.
    pub subgroups: Vec<SubgroupKind>,
    /// True if printed as `last_tile_dim_replicate` instead of
    /// `last_tile_dims={replicated}`.
    pub last_tile_dim_replicate: bool,
}

impl TileAssignment {
    /// Number of devices of the grid, `None` on overflow.
    pub fn device_count(&self) -> Option<i64> {
        self.dims.iter().try_fold(1i64, |a, &d| a.checked_mul(d))
    }

    /// Device ids in row-major order; `None` if sizes disagree or the grid
    /// has more than 2^24 devices.
    pub fn expand(&self) -> Option<Vec<i64>> {
        let n = self.device_count().filter(|n| (1..=1 << 24).contains(n))?;
        let v = match &self.devices {
            TileDevices::List(l) => l.clone(),
            TileDevices::Iota(t) => {
                if t.device_count() != Some(n) {
                    return None;
                }
                t.expand()
            }
        };
        (v.len() as i64 == n).then_some(v)
    }
}
