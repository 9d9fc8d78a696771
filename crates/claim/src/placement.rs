//! Which block of an array each device holds.

use crate::mesh::{MAX_DEVICES, Mesh};
use crate::named::{AxisRef, AxisSharding, NamedMesh};
use crate::spec::PartitionSpec;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_ir::sharding::{SubgroupKind, TileDevices};
use scalify_ir::{OpSharding, ShardingKind, TileAssignment};
use std::sync::Arc;

/// Placement of one dimension.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DimPlacement {
    /// Number of equal tiles; 1: every device holds the whole dimension.
    pub tiles: u32,
    /// Tile of each device, by device id; empty if `tiles` is 1.
    pub tile_of_device: Arc<[u32]>,
    /// Lengths of the sections of the global dimension that are tiled one by
    /// one: a device holds its tile of the first, then of the second, ..
    /// (fused weights, e.g. `[Q_d, K_d, V_d]`). Empty: one section.
    pub sections: Arc<[i64]>,
}

/// Which tile of each dimension each device holds. Clones share the tables.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    /// One per dimension.
    pub dims: Vec<DimPlacement>,
    /// Number of devices; device ids are `0..devices`.
    pub devices: u32,
}

/// Why an annotation gives no placement.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    /// The value is per device; how it is laid out is said elsewhere.
    #[error("the value is manual: each device has its own")]
    Manual,
    /// Manual over some devices, tiled over the others.
    #[error("the value is manual over a part of the mesh")]
    ManualSubgroup,
    /// The devices hold summands.
    #[error("the value is partial (unreduced)")]
    Unreduced,
    /// One device holds all of it.
    #[error("only device {0} holds the value")]
    Maximal(i64),
    /// `{unknown}`.
    #[error("the sharding is unknown")]
    Unknown,
    /// A tuple sharding given for an array.
    #[error("a tuple sharding is given for an array")]
    Tuple,
    /// An axis that the mesh does not have.
    #[error("the mesh `{mesh}` has no axis `{axis}`")]
    NoSuchAxis {
        /// The axis.
        axis: String,
        /// The mesh.
        mesh: String,
    },
    /// Anything else that does not fit together.
    #[error("{0}")]
    Inconsistent(String),
}

fn wrong<T>(text: impl Into<String>) -> Result<T, PlacementError> {
    Err(PlacementError::Inconsistent(text.into()))
}

impl DimPlacement {
    /// `(start, length)` in the global dimension of what a device holds, in
    /// the order in which it holds it; lengths as if the tiles were even.
    pub fn spans(&self, global: i64, device: u32) -> Vec<(i64, i64)> {
        let t = i64::from(self.tile(device));
        if self.sections.is_empty() {
            let l = self.local(global);
            return vec![(t * l, l)];
        }
        let mut at = 0;
        let mut out = Vec::with_capacity(self.sections.len());
        for &s in self.sections.iter() {
            let l = s / i64::from(self.tiles.max(1));
            out.push((at + t * l, l));
            at += s;
        }
        out
    }

    /// Not split.
    pub fn whole() -> Self {
        DimPlacement { tiles: 1, tile_of_device: Arc::from([]), sections: Arc::from([]) }
    }

    /// Tile of a device; 0 for devices out of range.
    pub fn tile(&self, device: u32) -> u32 {
        self.tile_of_device.get(device as usize).copied().unwrap_or(0)
    }

    /// Size of a tile of a dimension of `global` elements: the quotient
    /// rounded up; the last tiles hold fewer or no elements if uneven.
    pub fn local(&self, global: i64) -> i64 {
        let t = i64::from(self.tiles.max(1));
        if global <= 0 { 0 } else { (global - 1) / t + 1 }
    }
}

impl Placement {
    /// Every device holds everything.
    pub fn replicated(rank: usize, devices: u32) -> Self {
        let whole = DimPlacement::whole();
        Placement { dims: vec![whole; rank], devices }
    }

    /// The placement of a partition spec on a mesh.
    ///
    /// # Errors
    /// Unknown or repeated axes, or more entries than dimensions.
    pub fn from_spec(
        mesh: &Mesh,
        spec: &PartitionSpec,
        rank: usize,
    ) -> Result<Self, PlacementError> {
        PlacementCache::new(NamedMesh::plain(mesh.clone())).spec(spec, rank)
    }

    /// The placement of a sharding by named axes, for a program on `devices`
    /// devices.
    ///
    /// # Errors
    /// Unknown or repeated axes, partial, manual or maximal shardings, or a
    /// mesh with another number of devices that splits something.
    pub fn from_axes(
        mesh: &NamedMesh,
        sharding: &AxisSharding,
        rank: usize,
        devices: u32,
    ) -> Result<Self, PlacementError> {
        PlacementCache::new(mesh.clone()).axes(sharding, rank, devices)
    }

    /// The placement of an HLO sharding, for a program on `devices` devices.
    ///
    /// # Errors
    /// See [`PlacementError`]; also a tile grid that does not fit `rank` or
    /// `devices`.
    pub fn from_op_sharding(
        sharding: &OpSharding,
        rank: usize,
        devices: u32,
    ) -> Result<Self, PlacementError> {
        match &sharding.kind {
            ShardingKind::Replicated => Ok(Self::replicated(rank, devices)),
            ShardingKind::Manual => Err(PlacementError::Manual),
            ShardingKind::Maximal(d) => Err(PlacementError::Maximal(*d)),
            ShardingKind::Unknown => Err(PlacementError::Unknown),
            ShardingKind::Unreduced => Err(PlacementError::Unreduced),
            ShardingKind::Tuple(t) => match t.as_slice() {
                [one] if !matches!(one.kind, ShardingKind::Tuple(_)) => {
                    Self::from_op_sharding(one, rank, devices)
                }
                _ => Err(PlacementError::Tuple),
            },
            ShardingKind::Tiled(t) => tiled(t, rank, devices),
            ShardingKind::Named(text) => {
                let (mesh, s) = crate::named::parse_named_sharding(text)
                    .map_err(|e| PlacementError::Inconsistent(e.to_string()))?;
                Self::from_axes(&mesh, &s, rank, devices)
            }
        }
    }

    /// True if every device holds everything.
    pub fn is_replicated(&self) -> bool {
        self.dims.iter().all(|d| d.tiles == 1)
    }

    /// Sizes of the block that a device holds, padded if uneven; `None` if
    /// the rank differs.
    pub fn local_shape(&self, global: &[i64]) -> Option<Vec<i64>> {
        (global.len() == self.dims.len())
            .then(|| self.dims.iter().zip(global).map(|(d, g)| d.local(*g)).collect())
    }

    /// The same placement as a partition spec on `mesh` (row-major device
    /// ids); `None` if whole mesh axes cannot express it. Trailing `None`s are
    /// left out.
    pub fn to_spec(&self, mesh: &Mesh) -> Option<PartitionSpec> {
        if mesh.devices() != i64::from(self.devices) && !self.is_replicated() {
            return None;
        }
        let mut dims = Vec::with_capacity(self.dims.len());
        for d in &self.dims {
            dims.push(axes_of(d, mesh)?);
        }
        while dims.last().is_some_and(Vec::is_empty) {
            dims.pop();
        }
        Some(PartitionSpec { dims })
    }
}

/// The mesh axes whose mixed radix, major first, is the tile number.
fn axes_of(d: &DimPlacement, mesh: &Mesh) -> Option<Vec<String>> {
    if !d.sections.is_empty() {
        return None;
    }
    if d.tiles == 1 {
        return Some(Vec::new());
    }
    // A linear form without constant is fixed by its value at each unit step.
    let mut parts = Vec::new();
    for (k, (name, size)) in mesh.axes.iter().enumerate() {
        if *size > 1 {
            let step = *d.tile_of_device.get(usize::try_from(mesh.stride(k)).ok()?)?;
            if step > 0 {
                parts.push((i64::from(step), *size, mesh.stride(k), name));
            }
        }
    }
    parts.sort_by_key(|p| std::cmp::Reverse(p.0));
    let mut need = 1i64;
    for p in parts.iter().rev() {
        if p.0 != need {
            return None;
        }
        need = need.checked_mul(p.1)?;
    }
    if need != i64::from(d.tiles) {
        return None;
    }
    let fits = d.tile_of_device.iter().enumerate().all(|(dev, tile)| {
        let t: i64 = parts.iter().map(|p| dev as i64 / p.2 % p.1 * p.0).sum();
        t == i64::from(*tile)
    });
    fits.then(|| parts.into_iter().map(|p| p.3.clone()).collect())
}

impl Mesh {
    /// The coarsest row-major mesh whose axes express all `placements` as
    /// partition specs, with axes `d0`, `d1`, ... (major first). `None` if
    /// there is none, or if the placements differ in the number of devices.
    pub fn infer<'a>(placements: impl IntoIterator<Item = &'a Placement> + Clone) -> Option<Mesh> {
        let n = placements.clone().into_iter().map(|p| p.devices).next()?;
        if placements.clone().into_iter().any(|p| p.devices != n) {
            return None;
        }
        let mut seen: Vec<&Arc<[u32]>> = Vec::new();
        let mut cuts = vec![1usize, n as usize];
        for d in placements.clone().into_iter().flat_map(|p| &p.dims) {
            if d.tiles > 1 && !seen.iter().any(|t| Arc::ptr_eq(t, &d.tile_of_device)) {
                seen.push(&d.tile_of_device);
                digit_borders(&d.tile_of_device, &mut cuts)?;
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut axes = Vec::new();
        for w in cuts.windows(2).rev() {
            let [lo, hi] = w else { continue };
            if hi % lo != 0 {
                return None;
            }
            axes.push((format!("d{}", axes.len()), (hi / lo) as i64));
        }
        let mesh = Mesh::new(axes).ok()?;
        let fits = placements.into_iter().all(|p| p.to_spec(&mesh).is_some());
        fits.then_some(mesh)
    }
}

/// Adds the steps at which a table of devices changes its slope.
fn digit_borders(table: &[u32], cuts: &mut Vec<usize>) -> Option<()> {
    let at = |i: usize| table.get(i).map(|v| i64::from(*v));
    let mut step = 1;
    while step < table.len() {
        let slope = at(step)? - at(0)?;
        let straight = |k: &usize| at(k * step) == at(0).map(|b| b + *k as i64 * slope);
        let mut run = (1..table.len() / step).take_while(straight).count() + 1;
        while !(table.len() / step).is_multiple_of(run) {
            run -= 1;
        }
        if run < 2 {
            return None;
        }
        step *= run;
        cuts.push(step);
        if !table.len().is_multiple_of(step) {
            return None;
        }
    }
    Some(())
}

fn tiled(t: &TileAssignment, rank: usize, devices: u32) -> Result<Placement, PlacementError> {
    let tail = t.subgroups.len();
    if t.dims.len() != rank + tail {
        let (n, r) = (t.dims.len(), rank);
        return wrong(format!("a tile grid of {n} dimensions for an array of rank {r}"));
    }
    let count = t.dims.iter().try_fold(1i64, |n, d| {
        if *d < 1 { None } else { n.checked_mul(*d).filter(|n| *n <= MAX_DEVICES) }
    });
    if count != Some(i64::from(devices)) {
        let has = count.map_or("too many".to_string(), |n| n.to_string());
        return wrong(format!("a tile grid of {has} devices for a program on {devices}"));
    }
    if let TileDevices::Iota(i) = &t.devices {
        let n = i.reshape.iter().try_fold(1i64, |n, d| {
            if *d < 1 { None } else { n.checked_mul(*d).filter(|n| *n <= MAX_DEVICES) }
        });
        let mut perm: Vec<u32> = i.perm.to_vec();
        perm.sort_unstable();
        if n != count || !perm.iter().copied().eq(0..i.reshape.len() as u32) {
            return wrong("an iota device order that does not fit its tile grid");
        }
    }
    for (i, kind) in t.subgroups.iter().enumerate() {
        match kind {
            SubgroupKind::Replicated => {}
            _ if t.dims.get(rank + i) == Some(&1) => {}
            SubgroupKind::Manual => return Err(PlacementError::ManualSubgroup),
            SubgroupKind::Unreduced => return Err(PlacementError::Unreduced),
        }
    }
    let Some(order) = t.expand() else {
        return wrong("a device list that does not fit its tile grid");
    };
    let n = devices as usize;
    let mut seen = vec![false; n];
    for d in &order {
        match usize::try_from(*d).ok().and_then(|d| seen.get_mut(d)) {
            Some(s) if !*s => *s = true,
            _ => return wrong(format!("device {d} is out of range or listed twice")),
        }
    }
    let mut dims = Vec::with_capacity(rank);
    let mut stride = i64::from(devices);
    for tiles in t.dims.iter().take(rank) {
        stride /= tiles;
        if *tiles == 1 {
            dims.push(DimPlacement::whole());
            continue;
        }
        let mut table = vec![0u32; n];
        for (pos, dev) in order.iter().enumerate() {
            if let Some(slot) = table.get_mut(*dev as usize) {
                *slot = (pos as i64 / stride % tiles) as u32;
            }
        }
        dims.push(DimPlacement {
            tiles: *tiles as u32,
            tile_of_device: table.into(),
            sections: Arc::from([]),
        });
    }
    Ok(Placement { dims, devices })
}

/// Placements on one mesh; equal annotations share their tables.
#[derive(Debug)]
pub struct PlacementCache {
    mesh: NamedMesh,
    dims: HashMap<(Vec<AxisRef>, u32), DimPlacement, FxBuildHasher>,
    ops: HashMap<(OpSharding, usize, u32), Result<Placement, PlacementError>, FxBuildHasher>,
    tables: HashMap<Arc<[u32]>, Arc<[u32]>, FxBuildHasher>,
}

impl PlacementCache {
    /// An empty cache for a mesh.
    pub fn new(mesh: NamedMesh) -> Self {
        PlacementCache {
            mesh,
            dims: HashMap::default(),
            ops: HashMap::default(),
            tables: HashMap::default(),
        }
    }

    /// The mesh.
    pub fn mesh(&self) -> &NamedMesh {
        &self.mesh
    }

    /// See [`Placement::from_spec`].
    ///
    /// # Errors
    /// See [`Placement::from_spec`].
    pub fn spec(&mut self, spec: &PartitionSpec, rank: usize) -> Result<Placement, PlacementError> {
        let devices = u32::try_from(self.mesh.devices())
            .map_err(|_| PlacementError::Inconsistent("the mesh is too big".into()))?;
        let refs: Vec<Vec<AxisRef>> = spec
            .dims
            .iter()
            .map(|d| d.iter().map(|n| AxisRef { name: n.clone(), sub: None }).collect())
            .collect();
        self.lists(refs, rank, devices)
    }

    /// See [`Placement::from_axes`].
    ///
    /// # Errors
    /// See [`Placement::from_axes`].
    pub fn axes(
        &mut self,
        s: &AxisSharding,
        rank: usize,
        devices: u32,
    ) -> Result<Placement, PlacementError> {
        if let Some(d) = self.mesh.maximal {
            return if devices == 1 && d == 0 {
                Ok(Placement::replicated(rank, 1))
            } else {
                Err(PlacementError::Maximal(i64::from(d)))
            };
        }
        let size = |a: &AxisRef| match a.sub {
            Some((_, s)) => s,
            None => self.mesh.mesh.size(&a.name).unwrap_or(2),
        };
        if s.unreduced.iter().any(|a| size(a) > 1) {
            return Err(PlacementError::Unreduced);
        }
        let manual: i64 = s.manual.iter().map(size).fold(1, i64::saturating_mul);
        if manual > 1 {
            return Err(if manual == i64::from(devices) {
                PlacementError::Manual
            } else {
                PlacementError::ManualSubgroup
            });
        }
        self.lists(s.dims.iter().map(|d| d.axes.clone()).collect(), rank, devices)
    }

    /// See [`Placement::from_op_sharding`].
    ///
    /// # Errors
    /// See [`Placement::from_op_sharding`].
    pub fn op_sharding(
        &mut self,
        s: &OpSharding,
        rank: usize,
        devices: u32,
    ) -> Result<Placement, PlacementError> {
        let key =
            OpSharding { kind: s.kind.clone(), metadata: Vec::new(), shard_group: String::new() };
        let key = (key, rank, devices);
        if let Some(hit) = self.ops.get(&key) {
            return hit.clone();
        }
        let mut made = Placement::from_op_sharding(s, rank, devices);
        if let Ok(p) = &mut made {
            for d in &mut p.dims {
                let t = d.tile_of_device.clone();
                d.tile_of_device = self.tables.entry(t.clone()).or_insert(t).clone();
            }
        }
        self.ops.insert(key, made.clone());
        made
    }

    fn lists(
        &mut self,
        mut lists: Vec<Vec<AxisRef>>,
        rank: usize,
        devices: u32,
    ) -> Result<Placement, PlacementError> {
        if lists.len() > rank {
            if lists.iter().skip(rank).any(|d| !d.is_empty()) {
                let n = lists.len();
                return wrong(format!("a spec of {n} dimensions for an array of rank {rank}"));
            }
            lists.truncate(rank);
        }
        let mut used: Vec<(String, i64, i64)> = Vec::new();
        for a in lists.iter().flatten() {
            let Some(size) = self.mesh.mesh.size(&a.name) else {
                let (axis, mesh) = (a.name.clone(), self.mesh.mesh.to_string());
                return Err(PlacementError::NoSuchAxis { axis, mesh });
            };
            let (pre, s) = a.sub.unwrap_or((1, size));
            if pre < 1 || s < 1 || pre.checked_mul(s).is_none_or(|n| size % n != 0) {
                return wrong(format!(
                    "the sub-axis `{a}` does not divide its axis of size {size}"
                ));
            }
            let (lo, hi) = (pre, pre * s);
            let clash = |u: &(String, i64, i64)| u.0 == a.name && lo < u.2 && u.1 < hi;
            if s > 1 && used.iter().any(clash) {
                return wrong(format!("the mesh axis `{}` is used twice", a.name));
            }
            used.push((a.name.clone(), lo, hi));
        }
        let mut dims = Vec::with_capacity(rank);
        for l in lists {
            dims.push(self.dim(l, devices)?);
        }
        dims.resize(rank, DimPlacement::whole());
        Ok(Placement { dims, devices })
    }

    fn dim(&mut self, axes: Vec<AxisRef>, devices: u32) -> Result<DimPlacement, PlacementError> {
        // (step of the digit in the mesh position, size), major first.
        let mut digits = Vec::with_capacity(axes.len());
        let mut tiles = 1i64;
        for a in &axes {
            let (Some(k), Some(size)) =
                (self.mesh.mesh.axis(&a.name), self.mesh.mesh.size(&a.name))
            else {
                return wrong(format!("no axis `{a}`"));
            };
            let (pre, s) = a.sub.unwrap_or((1, size));
            digits.push((self.mesh.mesh.stride(k) * (size / (pre * s)), s));
            tiles = tiles.saturating_mul(s);
        }
        if tiles == 1 {
            return Ok(DimPlacement::whole());
        }
        let n = self.mesh.devices();
        if n != i64::from(devices) {
            return wrong(format!("a mesh of {n} devices for a program on {devices}"));
        }
        let key = (axes, devices);
        if let Some(hit) = self.dims.get(&key) {
            return Ok(hit.clone());
        }
        let mut table = vec![0u32; devices as usize];
        for pos in 0..n {
            let tile = digits.iter().fold(0, |t, (step, s)| t * s + pos / step % s);
            let dev = match &self.mesh.device_ids {
                None => pos as usize,
                Some(ids) => ids.get(pos as usize).map_or(usize::MAX, |d| *d as usize),
            };
            match table.get_mut(dev) {
                Some(slot) => *slot = tile as u32,
                None => {
                    return wrong(format!("device ids of the mesh go beyond {devices} devices"));
                }
            }
        }
        let d = DimPlacement {
            tiles: tiles as u32,
            tile_of_device: table.into(),
            sections: Arc::from([]),
        };
        self.dims.insert(key, d.clone());
        Ok(d)
    }
}
