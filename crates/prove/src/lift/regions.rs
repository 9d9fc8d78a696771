//! Borders between global and per-device values: manual computations of
//! Shardy and GSPMD, and the placement of parameters and results.

use super::{Lifter, Lv};
use crate::tv::{Atoms, Tv, TvOps};
use scalify_claim::{
    NamedMesh, Placement, PlacementCache, parse_manual_axes, parse_sdy_meshes, parse_sdy_shardings,
};
use scalify_ir::{ArrayShape, DType, InstrId, Module, Shape};
use scalify_terms::{Lins, Subst};
use smallvec::SmallVec;

/// Meshes that the module declares.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionInfo {
    pub(crate) meshes: Vec<NamedMesh>,
}

/// Placements by mesh: equal annotations share their tables of devices.
#[derive(Default)]
pub(crate) struct Placements(Vec<(NamedMesh, PlacementCache)>);

impl Placements {
    pub(crate) fn of(&mut self, mesh: &NamedMesh) -> &mut PlacementCache {
        let hit = self.0.iter().position(|p| p.0 == *mesh);
        let k = hit.unwrap_or_else(|| {
            self.0.push((mesh.clone(), PlacementCache::new(mesh.clone())));
            self.0.len() - 1
        });
        &mut self.0[k].1
    }
}

impl RegionInfo {
    /// Reads the header of a module.
    pub(crate) fn of(m: &Module) -> Self {
        let meshes = m
            .header_attr("xla.sdy.meshes")
            .and_then(|t| parse_sdy_meshes(t).ok())
            .unwrap_or_default();
        RegionInfo { meshes }
    }
}

impl Lifter<'_> {
    /// The block of a global value that each device holds.
    pub(crate) fn to_local(&mut self, t: &Tv, p: &Placement) -> Result<Tv, String> {
        let mut t = t.clone();
        for (k, d) in p.dims.iter().enumerate() {
            if d.tiles <= 1 {
                continue;
            }
            let n = self.st.dim_size(&t.dims[k]);
            if n % i64::from(d.tiles) != 0 {
                return Err(format!(
                    "dimension {k} of size {n} does not split into {} equal tiles",
                    d.tiles
                ));
            }
            if !d.sections.is_empty() {
                t = self.sections_to_local(&t, k, d)?;
                continue;
            }
            let len = n / i64::from(d.tiles);
            let start = self.dev.start(&mut self.st.lins, &d.tile_of_device, len, 0);
            self.dynamic_cut_at(&mut t, k, start, len).ok_or("index arithmetic is out of reach")?;
        }
        t.val = self.st.norm(t.val);
        Ok(t)
    }

    /// A global input that does not split evenly, up to whole tiles: what a
    /// device holds beyond the end is unknown.
    pub(crate) fn padded_to_tiles(
        &mut self,
        t: &Tv,
        p: &Placement,
        dtype: DType,
    ) -> Result<Tv, String> {
        let mut t = t.clone();
        for (k, d) in p.dims.iter().enumerate() {
            let tiles = i64::from(d.tiles);
            if tiles <= 1 || !d.sections.is_empty() {
                continue;
            }
            let n = self.st.dim_size(&t.dims[k]);
            let more = (n + tiles - 1) / tiles * tiles - n;
            if n == 0 || more == 0 {
                continue;
            }
            let mut sizes: SmallVec<[i64; 6]> =
                t.dims.iter().map(|d| self.st.dim_size(d)).collect();
            sizes[k] = more;
            let shape = Shape::Array(ArrayShape::new(dtype, sizes.iter().copied()));
            let Lv::T(rest) = self.unknown_of(&shape) else {
                return Err("an input is no array".to_owned());
            };
            sizes[k] = n + more;
            t = self.join(t.val.dt, &[(n, t.clone()), (more, rest)], k, &sizes)?;
        }
        Ok(t)
    }

    /// Dimension `k` as the devices' tiles of its sections, one after another.
    fn sections_to_local(
        &mut self,
        t: &Tv,
        k: usize,
        d: &scalify_claim::DimPlacement,
    ) -> Result<Tv, String> {
        let tiles = i64::from(d.tiles);
        let n = self.st.dim_size(&t.dims[k]);
        if d.sections.iter().sum::<i64>() != n || d.sections.iter().any(|s| s % tiles != 0) {
            return Err("the sections of a dimension do not split evenly".to_owned());
        }
        let mut sizes: SmallVec<[i64; 6]> = t.dims.iter().map(|d| self.st.dim_size(d)).collect();
        sizes[k] = n / tiles;
        let mut parts = Vec::new();
        let mut at = 0;
        for &s in d.sections.iter() {
            let len = s / tiles;
            let start = self.dev.start(&mut self.st.lins, &d.tile_of_device, len, at);
            let mut part = self.st.freshen(t).ok_or("index arithmetic is out of reach")?;
            self.dynamic_cut_at(&mut part, k, start, len)
                .ok_or("index arithmetic is out of reach")?;
            parts.push((len, part));
            at += s;
        }
        self.join(t.val.dt, &parts, k, &sizes)
    }

    /// The global value whose blocks the devices hold. The value may depend
    /// on no device digit that the placement does not name.
    pub(crate) fn to_global(&mut self, t: &Tv, p: &Placement) -> Result<Tv, String> {
        let mut t = t.clone();
        let mut map = Subst::new();
        let mut used: SmallVec<[usize; 8]> = SmallVec::new();
        for (k, d) in p.dims.iter().enumerate() {
            if d.tiles <= 1 {
                continue;
            }
            if !d.sections.is_empty() {
                return Err("sections of a dimension are not put together".to_owned());
            }
            let coefs = self
                .dev
                .linear_tiles(&d.tile_of_device)
                .ok_or("the device order of the mesh is not row-major")?;
            let mut digits: SmallVec<[usize; 4]> =
                (0..coefs.len()).filter(|&i| coefs[i] != 0).collect();
            digits.sort_by_key(|&i| std::cmp::Reverse(coefs[i]));
            let mut stride = 1;
            for &i in digits.iter().rev() {
                if coefs[i] != stride || used.contains(&i) {
                    return Err("a mesh axis tiles in an unexpected order".to_owned());
                }
                stride *= self.dev.digits[i].1;
            }
            if stride != i64::from(d.tiles) {
                return Err("tiles and mesh axes do not agree".to_owned());
            }
            let mut dim = Atoms::new();
            for &i in &digits {
                let (a, n) = self.dev.digits[i];
                let g = self.st.lins.local(n);
                map.set(a, Lins::plain(g));
                dim.push(g);
                used.push(i);
            }
            dim.extend(t.dims[k].iter().copied());
            t.dims[k] = dim;
        }
        for (i, &(a, _)) in self.dev.digits.clone().iter().enumerate() {
            if !used.contains(&i) && self.st.ref_mentions(&t.val.r, a) {
                return Err(format!(
                    "the value differs between devices along {}, which its sharding says it does not",
                    self.dev.names(&[i]).join(", ")
                ));
            }
        }
        t.val = self.st.subst(&t.val, &map).ok_or("index arithmetic is out of reach")?;
        self.st.fuse_dims(&mut t).ok_or("index arithmetic is out of reach")?;
        Ok(t)
    }

    fn per_value(&mut self, i: InstrId, key: &str, v: &[Lv], local: bool) -> Result<Lv, String> {
        // One result per operand (tuple), or one array.
        let m = self.m;
        let flat: Vec<Lv> = v.iter().flat_map(Lv::leaves).collect();
        let results = m.shape(i).as_tuple().filter(|t| t.len() == flat.len() && t.len() == v.len());
        let mut ranks: Vec<usize> = Vec::new();
        for (k, x) in flat.iter().enumerate() {
            ranks.push(match x {
                Lv::T(t) => t.dims.len(),
                Lv::Each(ts) => ts.first().map_or(0, |t| t.dims.len()),
                // Left out: its result is unknown, the others are not.
                Lv::Token if results.is_some_and(|t| t[k].as_array().is_some()) => {
                    let o = m.instr(i).operands.get(k).and_then(|&o| m.array(o));
                    o.ok_or("a value is no array")?.dims.len()
                }
                _ => return Err("a value is no array".to_owned()),
            });
        }
        let devices = self.dev.count as u32;
        let ps =
            sdy_placements(self.m, &self.region, &mut self.placements, devices, i, key, &ranks)?;
        let mut out: Vec<Lv> = Vec::new();
        for (k, (x, p)) in flat.iter().zip(&ps).enumerate() {
            if let (Lv::Token, Some(t)) = (x, results) {
                out.push(self.unknown_of(&t[k]));
                continue;
            }
            out.push(Lv::T(if local {
                self.to_local(x.tensor().ok_or("a value is no array")?, p)?
            } else {
                self.global_of(x, p)?
            }));
        }
        let tuple = self.m.shape(i).as_tuple().is_some();
        match (tuple, out.len()) {
            (false, 1) => Ok(out.remove(0)),
            (true, _) => Ok(Lv::Tuple(out.into_iter().collect())),
            _ => Err("values and results do not agree".to_owned()),
        }
    }

    /// Custom calls that mark borders and annotations; `None` if it is none.
    pub(super) fn lift_border(
        &mut self,
        i: InstrId,
        target: &str,
        v: &[Lv],
    ) -> Option<Result<Lv, String>> {
        let one = |v: &[Lv]| -> Result<Tv, String> {
            v.first().and_then(Lv::tensor).cloned().ok_or_else(|| "no array".to_owned())
        };
        Some(match target {
            "xla.sdy.GlobalToLocalShape" => self.per_value(i, "xla.sdy.in_shardings", v, true),
            "xla.sdy.LocalToGlobalShape" => self.per_value(i, "xla.sdy.out_shardings", v, false),
            "Sharding"
            | "xla.sdy.FuncResultSharding"
            | "xla.sdy.ShardingConstraint"
            | "LayoutConstraint"
            | "annotate_device_placement" => {
                v.first().cloned().ok_or_else(|| "no operand".to_owned())
            }
            "SPMDFullToShardShape" => one(v).and_then(|t| {
                let from = self.m.instr(i).operands[0];
                let s = self.m.sharding(from).ok_or("the operand has no sharding")?;
                let cache = self.placements.of(&NamedMesh::default());
                let p = cache
                    .op_sharding(s, t.dims.len(), self.dev.count as u32)
                    .map_err(|e| e.to_string())?;
                Ok(Lv::T(self.to_local(&t, &p)?))
            }),
            "SPMDShardToFullShape" => {
                v.first().ok_or_else(|| "no array".to_owned()).and_then(|x| {
                    let s = self.m.sharding(i).ok_or("the result has no sharding")?;
                    let rank = self.m.array(i).ok_or("no array")?.dims.len();
                    let cache = self.placements.of(&NamedMesh::default());
                    let p = cache
                        .op_sharding(s, rank, self.dev.count as u32)
                        .map_err(|e| e.to_string())?;
                    Ok(Lv::T(self.global_of(x, &p)?))
                })
            }
            _ => return None,
        })
    }
}

/// Placements that an attribute of Shardy gives the values of a border, one
/// per rank.
///
/// # Errors
/// Why it gives none.
pub(crate) fn sdy_placements(
    m: &Module,
    region: &RegionInfo,
    cache: &mut Placements,
    devices: u32,
    i: InstrId,
    key: &str,
    ranks: &[usize],
) -> Result<Vec<Placement>, String> {
    let text = m.frontend_attr(i, key).ok_or_else(|| format!("no attribute {key}"))?;
    let list = parse_sdy_shardings(text).map_err(|e| format!("{key}: {e}"))?;
    let manual = match m.frontend_attr(i, "xla.sdy.manual_axes") {
        Some(t) => Some(parse_manual_axes(t).map_err(|e| format!("manual axes: {e}"))?),
        None => None,
    };
    if list.len() != ranks.len() {
        return Err(format!("{key} has {} entries for {} values", list.len(), ranks.len()));
    }
    let mut out = Vec::new();
    for (s, &rank) in list.iter().zip(ranks) {
        let mesh = s.resolve(&region.meshes).ok_or("unknown mesh")?;
        let mut sh = s.sharding.clone();
        if let Some(man) = &manual {
            for d in sh.dims.iter_mut() {
                d.axes.retain(|a| man.contains(&a.name));
            }
        }
        sh.replicated.clear();
        let p = cache.of(mesh).axes(&sh, rank, devices).map_err(|e| e.to_string())?;
        out.push(p);
    }
    Ok(out)
}
