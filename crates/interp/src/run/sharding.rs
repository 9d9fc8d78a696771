//! The borders of manual regions: a global value becomes each device's part
//! (`SPMDFullToShardShape`, `xla.sdy.GlobalToLocalShape`) and parts become the
//! global value (`SPMDShardToFullShape`, `xla.sdy.LocalToGlobalShape`).

use super::multi::Multi;
use super::{Active, Machine};
use crate::error::{Res, invalid, unsupported};
use crate::ops::elementwise::zeros;
use crate::ops::movement::{dynamic_slice, dynamic_update_slice};
use crate::tensor::{Tensor, Value};
use scalify_ir::{InstrId, ShardingKind};

/// Which part of an array each device holds.
struct Tiling {
    /// Parts per dimension.
    tiles: Vec<i64>,
    /// Per device: part number per dimension.
    at: Vec<Vec<i64>>,
}

/// A mesh: axis names with sizes, and device order.
struct Mesh {
    axes: Vec<(String, i64)>,
    order: Option<Vec<i64>>,
}

impl Machine<'_, '_> {
    /// Global operands to local parts.
    pub(super) fn split(&mut self, id: InstrId, ops: &[Multi], active: &Active) -> Res<Multi> {
        let tuple = self.module.shape(id).as_tuple().is_some();
        let tilings = self.tilings(id, ops, true)?;
        let mut out = Vec::new();
        for (k, &d) in active.iter().enumerate() {
            let mut parts = Vec::new();
            for (m, t) in ops.iter().zip(&tilings) {
                let Some(x) = m.get(k).as_tensor() else { return invalid("expects arrays") };
                let Some(at) = t.at.get(d) else { return invalid("device outside the mesh") };
                let sizes = local(x, t)?;
                let start: Vec<i64> = at.iter().zip(&sizes).map(|(a, s)| a * s).collect();
                parts.push(Value::Tensor(dynamic_slice(x, &start, &sizes)?));
            }
            out.push(bundle(parts, tuple)?);
        }
        Ok(Multi::from_vec(out))
    }

    /// Local parts to global values; each part comes from the first device
    /// that holds it.
    pub(super) fn join(&mut self, id: InstrId, ops: &[Multi], active: &Active) -> Res<Multi> {
        if active.len() != self.replicas * self.partitions {
            return unsupported("global value inside divergent control flow");
        }
        let shape = self.module.shape(id);
        let tuple = shape.as_tuple().is_some();
        let tilings = self.tilings(id, ops, false)?;
        let mut parts = Vec::new();
        for (m, t) in ops.iter().zip(&tilings) {
            let Some(x) = m.get(0).as_tensor() else { return invalid("expects arrays") };
            let global: Vec<i64> = x.dims.iter().zip(&t.tiles).map(|(d, n)| d * n).collect();
            let Some(n) = crate::tensor::count(&global) else { return invalid("result too big") };
            let mut whole = Tensor::raw(x.dtype, &global, zeros(&x.data, n));
            let mut seen: Vec<&Vec<i64>> = Vec::new();
            for (k, &d) in active.iter().enumerate() {
                let Some(at) = t.at.get(d) else { return invalid("device outside the mesh") };
                if seen.contains(&at) {
                    continue;
                }
                seen.push(at);
                let Some(p) = m.get(k).as_tensor() else { return invalid("expects arrays") };
                let start: Vec<i64> = at.iter().zip(&p.dims).map(|(a, s)| a * s).collect();
                whole = dynamic_update_slice(whole, p, &start)?;
            }
            parts.push(Value::Tensor(whole));
        }
        Ok(Multi::Same(bundle(parts, tuple)?))
    }

    fn tilings(&self, id: InstrId, ops: &[Multi], enter: bool) -> Res<Vec<Tiling>> {
        let key = if enter { "xla.sdy.in_shardings" } else { "xla.sdy.out_shardings" };
        let devices = self.replicas * self.partitions;
        if let Some(text) = self.module.frontend_attr(id, key) {
            let manual = self.module.frontend_attr(id, "xla.sdy.manual_axes").unwrap_or("");
            let mut s = Scan { text, at: 0 };
            let list = s.shardings(self.module.header_attr("xla.sdy.meshes").unwrap_or(""))?;
            if list.len() != ops.len() {
                return invalid(format!("{} shardings for {} operands", list.len(), ops.len()));
            }
            let manual: Vec<String> = quoted(manual);
            return list
                .into_iter()
                .zip(ops)
                .map(|((mesh, dims), m)| {
                    let rank = m.get(0).as_tensor().map_or(0, Tensor::rank);
                    sdy_tiling(&mesh, &dims, &manual, rank, devices)
                })
                .collect();
        }
        // GSPMD: the sharding stands on the global side.
        let ins = self.module.instr(id);
        let on = if enter { ins.operands.first().copied() } else { Some(id) };
        let Some(sharding) = on.and_then(|i| self.module.sharding(i)) else {
            return unsupported("no sharding to go by");
        };
        let rank = ops.first().and_then(|m| m.get(0).as_tensor()).map_or(0, Tensor::rank);
        match &sharding.kind {
            ShardingKind::Replicated => {
                Ok(vec![Tiling { tiles: vec![1; rank], at: vec![vec![0; rank]; devices] }])
            }
            ShardingKind::Tiled(t) => {
                let (Some(order), true) = (t.expand(), t.dims.len() >= rank) else {
                    return invalid("tile assignment");
                };
                let mut at = vec![Vec::new(); devices];
                for (mut i, &d) in order.iter().enumerate() {
                    let mut c = vec![0i64; t.dims.len()];
                    for k in (0..t.dims.len()).rev() {
                        c[k] = i as i64 % t.dims[k];
                        i /= t.dims[k] as usize;
                    }
                    c.truncate(rank);
                    match usize::try_from(d).ok().and_then(|d| at.get_mut(d)) {
                        Some(slot) => *slot = c,
                        None => return invalid(format!("device {d} of {devices}")),
                    }
                }
                if at.iter().any(|c| c.len() != rank) {
                    return invalid("tile assignment leaves out a device");
                }
                Ok(vec![Tiling { tiles: t.dims[..rank].to_vec(), at }])
            }
            _ => unsupported("this kind of sharding"),
        }
    }
}

fn bundle(mut v: Vec<Value>, tuple: bool) -> Res<Value> {
    match v.len() {
        1 if !tuple => Ok(v.swap_remove(0)),
        _ => Ok(Value::Tuple(v)),
    }
}

/// Sizes of a part of `x`.
fn local(x: &Tensor, t: &Tiling) -> Res<Vec<i64>> {
    if t.tiles.len() != x.rank() || x.dims.iter().zip(&t.tiles).any(|(d, n)| *n <= 0 || d % n != 0)
    {
        return unsupported(format!("{:?} in {:?} uneven parts", x.dims, t.tiles));
    }
    Ok(x.dims.iter().zip(&t.tiles).map(|(d, n)| d / n).collect())
}

/// One axis, or a part of one: name, `(pre, size)`.
type AxisUse = (String, Option<(i64, i64)>);

fn sdy_tiling(
    mesh: &Mesh,
    dims: &[Vec<AxisUse>],
    manual: &[String],
    rank: usize,
    devices: usize,
) -> Res<Tiling> {
    let total = mesh.axes.iter().try_fold(1i64, |a, x| a.checked_mul(x.1));
    if dims.len() != rank || total != Some(devices as i64) {
        return invalid(format!("mesh of {total:?} devices, {} dimensions", dims.len()));
    }
    let mut out = Tiling { tiles: vec![1; rank], at: vec![vec![0; rank]; devices] };
    for i in 0..devices {
        let device = match &mesh.order {
            Some(o) => o.get(i).copied().unwrap_or(-1),
            None => i as i64,
        };
        let Some(slot) = usize::try_from(device).ok().and_then(|d| out.at.get_mut(d)) else {
            return invalid("device order of the mesh");
        };
        for (d, axes) in dims.iter().enumerate() {
            let (mut n, mut at) = (1i64, 0i64);
            for (name, sub) in axes.iter().filter(|a| manual.is_empty() || manual.contains(&a.0)) {
                let Some(k) = mesh.axes.iter().position(|a| &a.0 == name) else {
                    return invalid(format!("no mesh axis {name}"));
                };
                let stride: i64 = mesh.axes[k + 1..].iter().map(|a| a.1).product();
                let full = mesh.axes[k].1;
                let c = i as i64 / stride % full;
                let (size, c) = match *sub {
                    Some((pre, s)) if pre > 0 && s > 0 && full % (pre.saturating_mul(s)) == 0 => {
                        (s, c / (full / (pre * s)) % s)
                    }
                    Some(_) => return invalid(format!("part of axis {name}")),
                    None => (full, c),
                };
                n *= size;
                at = at * size + c;
            }
            slot[d] = at;
            out.tiles[d] = n;
        }
    }
    Ok(out)
}

/// All strings in double quotes.
fn quoted(s: &str) -> Vec<String> {
    s.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

/// Reader of the printed form of Shardy's shardings.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn eat(&mut self, s: &str) -> bool {
        let skip = self.rest().len() - self.rest().trim_start_matches([' ', ',']).len();
        self.at += skip;
        let hit = self.rest().starts_with(s);
        if hit {
            self.at += s.len();
        }
        hit
    }

    fn expect(&mut self, s: &str) -> Res<()> {
        if self.eat(s) {
            return Ok(());
        }
        invalid(format!("expected {s:?} at {} of sharding {:?}", self.at, self.text))
    }

    fn until(&mut self, end: &[char]) -> &'a str {
        let r = self.rest();
        let n = r.find(end).unwrap_or(r.len());
        self.at += n;
        &r[..n]
    }

    fn number(&mut self) -> Res<i64> {
        let r = self.rest();
        let n = r.find(|c: char| !c.is_ascii_digit()).unwrap_or(r.len());
        self.at += n;
        r[..n].parse().or_else(|_| invalid(format!("expected a number in {:?}", self.text)))
    }

    fn name(&mut self) -> Res<String> {
        self.expect("\"")?;
        let n = self.until(&['"']).to_string();
        self.expect("\"")?;
        Ok(n)
    }

    /// `["x"=2, "y"=4]` and an optional `device_ids=[..]`, up to `>`.
    fn mesh(&mut self) -> Res<Mesh> {
        self.expect("[")?;
        let mut axes = Vec::new();
        while !self.eat("]") {
            let n = self.name()?;
            self.expect("=")?;
            axes.push((n, self.number()?));
        }
        let mut order = None;
        if self.eat("device_ids=[") {
            let mut l = Vec::new();
            while !self.eat("]") {
                l.push(self.number()?);
            }
            order = Some(l);
        }
        self.expect(">")?;
        Ok(Mesh { axes, order })
    }

    /// `#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>, ..]>`.
    fn shardings(&mut self, meshes: &str) -> Res<Vec<(Mesh, Vec<Vec<AxisUse>>)>> {
        self.expect("#sdy.sharding_per_value<[")?;
        let mut out = Vec::new();
        while !self.eat("]") {
            self.expect("<")?;
            let mesh = if self.eat("@") {
                let name = self.until(&[',']).to_string();
                let Some(from) = find_mesh(meshes, &name) else {
                    return invalid(format!("no mesh {name}"));
                };
                Scan { text: from, at: 0 }.mesh()?
            } else {
                self.expect("mesh<")?;
                self.mesh()?
            };
            self.expect("[")?;
            let mut dims = Vec::new();
            while !self.eat("]") {
                self.expect("{")?;
                let mut axes = Vec::new();
                while !self.eat("}") {
                    if self.eat("?") {
                        continue;
                    }
                    let n = self.name()?;
                    let sub = if self.eat(":(") {
                        let pre = self.number()?;
                        self.expect(")")?;
                        Some((pre, self.number()?))
                    } else {
                        None
                    };
                    axes.push((n, sub));
                }
                // A priority such as `p1`.
                if self.rest().starts_with('p') {
                    self.at += 1;
                    self.number()?;
                }
                dims.push(axes);
            }
            // `replicated={..}`, `unreduced={..}`.
            self.until(&['>']);
            self.expect(">")?;
            out.push((mesh, dims));
        }
        Ok(out)
    }
}

/// Text after `name = #sdy.mesh<` in the module's list of meshes.
fn find_mesh<'a>(meshes: &'a str, name: &str) -> Option<&'a str> {
    let at = meshes.match_indices(name).find(|(i, _)| {
        let before = meshes[..*i].chars().next_back();
        let edge = before.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        edge && meshes[i + name.len()..].trim_start().starts_with('=')
    })?;
    let rest = &meshes[at.0..];
    rest.find("mesh<").map(|i| &rest[i + 5..])
}
