//! Gathers the facts of a module.

use super::{Collective, Facts, MeshFact, Source, Value};
use scalify_claim::{Mesh, NamedMesh, Placement, parse_sdy_meshes, parse_sdy_shardings};
use scalify_ir::sharding::{SubgroupKind, TileDevices};
use scalify_ir::{
    Attrs, CollectiveAttrs, InstrId, Module, OpSharding, Opcode, ReplicaGroups, Shape, ShardingKind,
};
use std::collections::BTreeMap;

/// Device ids of a list shown at most.
const MAX_IDS: usize = 16;

pub(super) fn facts(m: &Module, file: String) -> Facts {
    let meshes =
        m.header_attr("xla.sdy.meshes").and_then(|t| parse_sdy_meshes(t).ok()).unwrap_or_default();
    let mesh = meshes.iter().find(|m| !m.mesh.axes.is_empty());
    let mut view = View { m, meshes: &meshes, mesh: mesh.map(|m| m.mesh.clone()), inferred: false };
    view.infer();
    let (parameters, outputs) = (view.parameters(), view.outputs());
    let mut opcodes = BTreeMap::new();
    let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
    let mut with_source = 0;
    for (k, i) in m.instrs.iter().enumerate() {
        *opcodes.entry(i.opcode.name()).or_insert(0) += 1;
        if let Some(f) = m.frames(InstrId(k as u32)).first() {
            *sources.entry(f.file).or_insert(0) += 1;
            with_source += 1;
        }
    }
    let mut sources: Vec<Source> = sources
        .into_iter()
        .map(|(file, instructions)| Source { file: file.to_string(), instructions })
        .collect();
    sources.sort_by_key(|s| std::cmp::Reverse(s.instructions));
    let entry = m.comps.get(m.entry.0 as usize);
    Facts {
        schema_version: 1,
        file,
        module: m.str(m.name).to_string(),
        replica_count: m.header.replica_count,
        num_partitions: m.header.num_partitions,
        computations: m.comps.len(),
        instructions: m.instrs.len(),
        entry_instructions: entry.map_or(0, |c| c.instrs.len()),
        parameters,
        outputs,
        inferred_mesh: view.mesh.filter(|_| view.inferred).map(|m| m.axes),
        meshes: meshes.iter().map(mesh_fact).collect(),
        opcodes,
        collectives: collectives(m),
        sources,
        with_source,
    }
}

fn mesh_fact(m: &NamedMesh) -> MeshFact {
    MeshFact {
        name: m.name.clone(),
        axes: m.mesh.axes.clone(),
        devices: m.devices(),
        row_major: m.device_ids.is_none() && m.maximal.is_none(),
    }
}

struct View<'a> {
    m: &'a Module,
    meshes: &'a [NamedMesh],
    mesh: Option<Mesh>,
    inferred: bool,
}

impl View<'_> {
    fn devices(&self) -> u32 {
        let n = self.m.header.num_partitions.filter(|n| *n > 1);
        let n = n.or(self.mesh.as_ref().map(Mesh::devices)).unwrap_or(1);
        u32::try_from(n).unwrap_or(1)
    }

    /// Without a declared mesh, the coarsest one that fits the parameters.
    fn infer(&mut self) {
        if self.mesh.is_some() {
            return;
        }
        let Some(entry) = self.m.comps.get(self.m.entry.0 as usize) else { return };
        let placed: Vec<Placement> = entry
            .params
            .iter()
            .filter_map(|p| self.place(self.m.sharding(*p)?, self.m.shape(*p).dims().len()))
            .collect();
        self.mesh = Mesh::infer(&placed);
        self.inferred = self.mesh.as_ref().is_some_and(|m| m.devices() > 1);
    }

    fn parameters(&self) -> Vec<Value> {
        let Some(entry) = self.m.comps.get(self.m.entry.0 as usize) else { return Vec::new() };
        let mut out = Vec::new();
        for &p in &entry.params {
            let leaves = self.m.shape(p).leaves();
            let name = self.m.op_name(p).filter(|n| !n.is_empty()).unwrap_or(self.m.name_of(p));
            let sharding = self.m.sharding(p);
            let sdy = self.m.frontend_attr(p, "xla.sdy.sharding");
            self.leaves(&mut out, name, &leaves, sharding, sdy);
        }
        out
    }

    fn outputs(&self) -> Vec<Value> {
        let Some(entry) = self.m.comps.get(self.m.entry.0 as usize) else { return Vec::new() };
        let root = entry.root;
        let leaves = self.m.shape(root).leaves();
        let sharding = self.m.sharding(root).or(self.m.header.spmd_output_sharding.as_ref());
        let sdy = self.m.frontend_attr(root, "xla.sdy.sharding");
        let mut out = Vec::new();
        self.leaves(&mut out, "", &leaves, sharding, sdy);
        // Operands of a result tuple have names of their own.
        let i = self.m.instr(root);
        if i.opcode == Opcode::Tuple && i.operands.len() == out.len() {
            for (v, o) in out.iter_mut().zip(&i.operands) {
                v.name = self.m.name_of(*o).to_string();
            }
        }
        out
    }

    fn leaves(
        &self,
        out: &mut Vec<Value>,
        name: &str,
        leaves: &[&Shape],
        sharding: Option<&OpSharding>,
        sdy: Option<&str>,
    ) {
        let sdy = sdy.and_then(|t| parse_sdy_shardings(t).ok()).unwrap_or_default();
        for (k, shape) in leaves.iter().enumerate() {
            let rank = shape.dims().len();
            let one = match sharding.map(|s| &s.kind) {
                Some(ShardingKind::Tuple(t)) => t.get(k),
                _ => sharding,
            };
            let mut placed = one.and_then(|s| self.place(s, rank));
            let text = one.map(describe);
            if let (None, Some(s)) = (&placed, sdy.get(k)) {
                let mesh = s.resolve(self.meshes);
                placed = mesh.and_then(|m| {
                    let n = u32::try_from(m.devices()).ok()?;
                    Placement::from_axes(m, &s.sharding, rank, n).ok()
                });
            }
            out.push(Value {
                index: out.len(),
                name: if leaves.len() > 1 && !name.is_empty() {
                    format!("{name}.{k}")
                } else {
                    name.to_string()
                },
                shape: shape.to_string(),
                spec: placed
                    .zip(self.mesh.as_ref())
                    .and_then(|(p, m)| Some(p.to_spec(m)?.to_string())),
                sharding: text,
            });
        }
    }

    fn place(&self, s: &OpSharding, rank: usize) -> Option<Placement> {
        Placement::from_op_sharding(s, rank, self.devices()).ok()
    }
}

/// A sharding as HLO prints it; long device lists are cut.
fn describe(s: &OpSharding) -> String {
    let list = |v: &[i64]| {
        let mut t: Vec<String> = v.iter().take(MAX_IDS).map(i64::to_string).collect();
        if v.len() > MAX_IDS {
            t.push(format!("... {} more", v.len() - MAX_IDS));
        }
        t.join(",")
    };
    match &s.kind {
        ShardingKind::Replicated => "replicated".into(),
        ShardingKind::Manual => "manual".into(),
        ShardingKind::Maximal(d) => format!("maximal device={d}"),
        ShardingKind::Unknown => "unknown".into(),
        ShardingKind::Unreduced => "unreduced".into(),
        ShardingKind::Tuple(t) => format!("tuple of {}", t.len()),
        ShardingKind::Named(t) => t.clone(),
        ShardingKind::Tiled(t) => {
            let devices = match &t.devices {
                TileDevices::List(l) => list(l),
                TileDevices::Iota(i) if i.reshape.len() <= 1 => format!("<=[{}]", list(&i.reshape)),
                TileDevices::Iota(i) => {
                    let perm: Vec<i64> = i.perm.iter().map(|p| i64::from(*p)).collect();
                    format!("<=[{}]T({})", list(&i.reshape), list(&perm))
                }
            };
            let kind = |k: &SubgroupKind| match k {
                SubgroupKind::Replicated => "replicated",
                SubgroupKind::Manual => "manual",
                SubgroupKind::Unreduced => "unreduced",
            };
            let tail: Vec<&str> = t.subgroups.iter().map(kind).collect();
            let tail = match tail.as_slice() {
                [] => String::new(),
                ["replicated"] => " last_tile_dim_replicate".into(),
                _ => format!(" last_tile_dims={{{}}}", tail.join(", ")),
            };
            format!("devices=[{}]{devices}{tail}", list(&t.dims))
        }
    }
}

fn bytes(s: &Shape) -> u64 {
    s.leaves()
        .iter()
        .filter_map(|l| {
            let a = l.as_array()?;
            let n = u64::try_from(a.elements()?).ok()?;
            Some(n.saturating_mul(u64::from(a.dtype.bits())).div_ceil(8))
        })
        .fold(0, u64::saturating_add)
}

fn collectives(m: &Module) -> Vec<Collective> {
    let mut table: BTreeMap<(&'static str, String), Collective> = BTreeMap::new();
    for i in &m.instrs {
        let Attrs::Collective(a) = &i.attrs else { continue };
        let operands = i.operands.iter().map(|o| bytes(m.shape(*o)));
        let total = operands.fold(0, u64::saturating_add);
        let groups = groups(m, a);
        let entry = table.entry((i.opcode.name(), groups.clone())).or_insert_with(|| Collective {
            opcode: i.opcode.name(),
            count: 0,
            group_size: scalify_ir::devices::written_group_size(&a.groups)
                .filter(|_| a.pairs.is_empty()),
            groups,
            bytes: 0,
        });
        entry.count += 1;
        entry.bytes = entry.bytes.saturating_add(total);
    }
    table.into_values().collect()
}

/// Groups or pairs in short form.
fn groups(m: &Module, a: &CollectiveAttrs) -> String {
    let ids = |g: &[i64]| {
        let mut t: Vec<String> = g.iter().take(MAX_IDS).map(i64::to_string).collect();
        if g.len() > MAX_IDS {
            t.push("..".into());
        }
        t.join(",")
    };
    if !a.pairs.is_empty() {
        let mut t: Vec<String> = a.pairs.iter().take(4).map(|(s, d)| format!("{s}->{d}")).collect();
        if a.pairs.len() > 4 {
            t.push(format!("... {} pairs", a.pairs.len()));
        }
        return t.join(" ");
    }
    match &a.groups {
        ReplicaGroups::List(l) if l.is_empty() => "all".into(),
        ReplicaGroups::List(l) => {
            let mut t: Vec<String> = l.iter().take(2).map(|g| format!("{{{}}}", ids(g))).collect();
            if l.len() > 2 {
                t.push(format!("... {} groups", l.len()));
            }
            t.join(" ")
        }
        ReplicaGroups::Iota(t) => {
            let perm: Vec<i64> = t.perm.iter().map(|p| i64::from(*p)).collect();
            let tail = if perm.len() > 1 { format!("T({})", ids(&perm)) } else { String::new() };
            format!("[{}]<=[{}]{tail}", ids(&t.dims), ids(&t.reshape))
        }
        ReplicaGroups::Mesh(g) => {
            let axes: Vec<String> = g
                .group_axes
                .iter()
                .map(|r| {
                    let name = g.axes.get(r.axis as usize).map_or("?", |x| m.str(x.0));
                    match r.sub {
                        None => name.to_string(),
                        Some((pre, size)) => format!("{name}:({pre}){size}"),
                    }
                })
                .collect();
            format!("axes {{{}}}", axes.join(","))
        }
    }
}
