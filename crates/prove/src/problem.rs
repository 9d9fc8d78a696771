//! What is to be proved: devices, pairing of inputs, placements.

use crate::sections::Sections;
use rustc_hash::FxHashMap;
use scalify_claim::{Claim, Mesh, Placement, Selector};
use scalify_ir::{ArrayShape, Attrs, InstrId, Module, Opcode, Shape};
use scalify_terms::Nature;

/// One array leaf of an entry parameter or result.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The entry parameter it belongs to.
    pub param: usize,
    /// Position among the leaves.
    pub index: usize,
    /// Names it goes by: argument path, instruction name.
    pub names: Vec<String>,
    /// Its shape.
    pub shape: Shape,
}

impl Leaf {
    /// The name to print.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// A distributed input and the baseline input whose blocks it holds.
#[derive(Clone, Debug)]
pub struct InputPair {
    /// Leaf of the distributed entry.
    pub dist: usize,
    /// Leaf of the baseline entry; `None` if nothing fits.
    pub base: Option<usize>,
    /// Placement; `None`: the program takes the whole array.
    pub placement: Option<Placement>,
    /// Neither declared nor annotated: the first placement that fits.
    pub inferred: bool,
}

/// The problem.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// Number of devices.
    pub devices: i64,
    /// Mesh, may be empty.
    pub mesh: Vec<(String, i64)>,
    /// Leaves of both entries.
    pub base_inputs: Vec<Leaf>,
    /// See `base_inputs`.
    pub dist_inputs: Vec<Leaf>,
    /// One per distributed input.
    pub pairs: Vec<InputPair>,
    /// Facts for the reader.
    pub notes: Vec<String>,
    /// Things assumed without declaration.
    pub assumed: Vec<String>,
    /// Errors that make a proof impossible.
    pub errors: Vec<String>,
    /// Groups without channel name devices.
    pub replica_mode: bool,
    /// The baseline is a program for many devices too: the same devices.
    pub base_spmd: bool,
    /// Both programs take the devices' own values as inputs.
    pub local_inputs: bool,
    /// With `local_inputs`, per baseline input: for each device the first one
    /// that holds the same value, as the annotations of both programs say;
    /// empty if they do not say.
    pub holders: Vec<Vec<u32>>,
    /// Layouts in which each output may be, in place of what the claim and
    /// annotations say; the first output that is in none ends the attempt.
    pub(crate) layouts: Option<Vec<Layouts>>,
    /// Per distributed input: the baseline instruction of whose value it holds
    /// a block, if that is no input. Empty: none.
    pub(crate) computed: Vec<Option<InstrId>>,
    /// Per baseline input: whether constants may make it infinite. Empty: they
    /// do not.
    pub(crate) natures: Vec<Nature>,
}

/// Layouts, each with the sentence that assumes it.
pub(crate) type Layouts = Vec<(Placement, Option<String>)>;

impl Problem {
    /// True if a baseline is lifted in the same way for both: the same devices
    /// by the same mesh, the same inputs.
    pub(crate) fn lifts_alike(&self, other: &Problem) -> bool {
        let inputs =
            |p: &Problem| p.base_inputs.iter().map(|l| l.shape.clone()).collect::<Vec<_>>();
        let read = |p: &Problem| p.pairs.iter().map(|q| (q.base, q.dist)).collect::<Vec<_>>();
        (self.devices, &self.mesh) == (other.devices, &other.mesh)
            && (self.replica_mode, self.base_spmd) == (other.replica_mode, other.base_spmd)
            && (self.local_inputs, &self.holders) == (other.local_inputs, &other.holders)
            && inputs(self) == inputs(other)
            && read(self) == read(other)
    }

    /// The first device that holds the value that `device` has of a baseline
    /// input.
    pub fn holder(&self, input: usize, device: usize) -> usize {
        let h = self.holders.get(input).and_then(|h| h.get(device));
        h.map_or(device, |&d| d as usize)
    }
}

/// Array leaves of the entry parameters with their names.
pub fn inputs(m: &Module) -> Vec<Leaf> {
    let mut out = Vec::new();
    for (k, &p) in m.entry_comp().params.iter().enumerate() {
        let leaves = m.shape(p).leaves();
        let tuple = m.shape(p).as_tuple().is_some();
        for (j, s) in leaves.iter().enumerate() {
            let mut names: Vec<String> = Vec::new();
            let suffix = if tuple { format!("[{j}]") } else { String::new() };
            if let Some(n) = m.op_name(p) {
                if !n.is_empty() && !n.contains('/') {
                    names.push(format!("{n}{suffix}"));
                }
            }
            let n = m.name_of(p);
            let stem = strip_number(n);
            for n in [stem, n] {
                let n = format!("{n}{suffix}");
                if !names.contains(&n) {
                    names.push(n);
                }
            }
            out.push(Leaf { param: k, index: out.len(), names, shape: (*s).clone() });
        }
    }
    out
}

/// True of `Arg_0`, `p1`, `param.2`, ..: names that say a position at most.
pub fn is_generic(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || "._[]".contains(c));
    let stem = stem.to_ascii_lowercase();
    ["", "p", "arg", "args", "param", "parameter", "arg_tuple", "shard_map", "input"]
        .contains(&stem.as_str())
}

/// A name without its trailing `.N`.
fn strip_number(n: &str) -> &str {
    match n.rsplit_once('.') {
        Some((a, b)) if !b.is_empty() && b.bytes().all(|c| c.is_ascii_digit()) => a,
        _ => n,
    }
}

/// Output leaves of the entry: names as far as known.
pub fn output_shapes(m: &Module) -> Vec<Shape> {
    m.shape(m.entry_comp().root).leaves().into_iter().cloned().collect()
}

fn largest_id(m: &Module) -> i64 {
    let mut top = 0;
    for i in &m.instrs {
        if let Attrs::Collective(c) = &i.attrs {
            if let Some(n) = c.groups.device_count() {
                top = top.max(n - 1);
            } else if let Some(g) = c.groups.expand(1) {
                top = top.max(g.iter().flatten().copied().max().unwrap_or(0));
            }
            for p in &c.pairs {
                top = top.max(p.0).max(p.1);
            }
        }
    }
    top
}

/// Works out devices, pairing and placements of inputs.
pub fn setup(base: &Module, dist: &Module, claim: &Claim) -> Problem {
    let mut p = Problem::default();
    // Devices, by authority: the claim, the header, the annotations, the ids.
    let meshes = crate::lift::RegionInfo::of(dist).meshes;
    let header = dist.header.num_partitions.filter(|&n| n > 1);
    let replicas = dist.header.replica_count.max(1);
    let declared = meshes.iter().find(|m| m.device_ids.is_none() && m.devices() > 1);
    if let Some(m) = &claim.mesh {
        p.mesh = m.axes.clone();
        p.devices = m.devices();
        if let Some(n) = header {
            if n * replicas != p.devices {
                p.errors.push(format!(
                    "the mesh has {} devices, the distributed module says {}",
                    p.devices,
                    n * replicas
                ));
            }
        }
    } else if let Some(m) = declared {
        p.mesh = m.mesh.axes.clone();
        p.devices = m.devices();
        p.notes.push(format!("mesh {} as the distributed module declares it", m.mesh));
    } else if let Some(n) = header {
        p.devices = n * replicas;
    } else {
        p.devices = (largest_id(dist) + 1).max(replicas);
        if p.devices > 1 {
            p.assumed.push(format!(
                "{} devices: the highest device id in the distributed module is {}",
                p.devices,
                p.devices - 1
            ));
        }
    }
    if let (Some(d), None) = (header, &claim.mesh) {
        if p.mesh.iter().map(|a| a.1).product::<i64>() != d * replicas {
            p.mesh.clear();
            p.devices = d * replicas;
        }
    }
    if p.mesh.is_empty() && p.devices > 1 {
        let entry = dist.entry_comp().params.iter();
        let placed: Vec<Placement> = entry
            .filter_map(|&i| {
                let rank = dist.array(i)?.dims.len();
                Placement::from_op_sharding(dist.sharding(i)?, rank, p.devices as u32).ok()
            })
            .filter(|q| !q.is_replicated())
            .collect();
        if let Some(m) = Mesh::infer(&placed).filter(|m| m.devices() == p.devices) {
            if m.axes.len() > 1 {
                p.notes.push(format!("mesh {m} as the shardings of the inputs split"));
                p.mesh = m.axes;
            }
        }
    }
    if p.devices < 1 || p.devices > 1 << 20 {
        p.errors.push(format!("{} devices", p.devices));
        p.devices = 1;
    }
    // Groups without channel ids name replicas; a module of one replica whose
    // groups name more devices counts them as devices.
    p.replica_mode = header.is_none()
        && replicas == 1
        && dist.instrs.iter().any(|i| match &i.attrs {
            Attrs::Collective(c) => c.channel_id.is_none(),
            _ => false,
        })
        && !dist.instrs.iter().any(|i| i.opcode == Opcode::PartitionId);
    let spmd = |m: &Module| {
        m.instrs.iter().any(|i| {
            i.opcode.is_collective() || matches!(i.opcode, Opcode::PartitionId | Opcode::ReplicaId)
        })
    };
    let regions = |m: &Module| {
        m.instrs.iter().any(|i| match &i.attrs {
            Attrs::CustomCall(c) => {
                let t = m.str(c.target);
                t.starts_with("xla.sdy.") || t.starts_with("SPMD")
            }
            _ => false,
        })
    };
    p.local_inputs = (spmd(base) || claim.per_device) && !regions(base) && !regions(dist);
    p.base_spmd = spmd(base) || regions(base) || p.local_inputs;
    if p.base_spmd {
        let count = base
            .header
            .num_partitions
            .unwrap_or(1)
            .saturating_mul(base.header.replica_count.max(1));
        if count > 1 && count != p.devices {
            p.errors.push(format!(
                "the baseline is a program for {count} devices, the distributed module for {}",
                p.devices
            ));
        }
        p.notes.push("the baseline is a program for many devices too; it is taken to run on the same devices".to_owned());
    }
    p.base_inputs = inputs(base);
    p.dist_inputs = inputs(dist);
    pair(&mut p, claim);
    place(&mut p, base, dist, claim);
    if p.local_inputs {
        p.holders = holders(&p, base, dist);
        let shared = |h: &Vec<u32>| h.iter().enumerate().any(|(d, &f)| f as usize != d);
        if p.holders.iter().any(shared) {
            p.notes.push(
                "devices that annotations of both programs give the same block of an input hold the same values"
                    .to_owned(),
            );
        }
    }
    p
}

/// See [`Problem::holders`].
fn holders(p: &Problem, base: &Module, dist: &Module) -> Vec<Vec<u32>> {
    let n = u32::try_from(p.devices).unwrap_or(0);
    let placed = |m: &Module, l: &Leaf| -> Option<Placement> {
        let id = *m.entry_comp().params.get(l.param)?;
        let rank = m.array(id)?.dims.len();
        Placement::from_op_sharding(m.sharding(id)?, rank, n).ok()
    };
    let mut out = vec![Vec::new(); p.base_inputs.len()];
    for pair in &p.pairs {
        let Some(b) = pair.base else { continue };
        let (Some(x), Some(y)) =
            (placed(base, &p.base_inputs[b]), placed(dist, &p.dist_inputs[pair.dist]))
        else {
            continue;
        };
        let tiles =
            |q: &Placement, d: u32| -> Vec<u32> { q.dims.iter().map(|z| z.tile(d)).collect() };
        if (0..n).any(|d| tiles(&x, d) != tiles(&y, d)) {
            continue;
        }
        let mut first: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
        out[b] = (0..n).map(|d| *first.entry(tiles(&x, d)).or_insert(d)).collect();
    }
    out
}

fn names(l: &Leaf) -> Vec<&str> {
    l.names.iter().map(String::as_str).collect()
}

fn selects(s: &Selector, l: &Leaf) -> bool {
    s.matches(l.index, &names(l))
}

/// Pairs distributed with baseline inputs: as claimed, by name or path, and
/// by position only where nothing contradicts it.
fn pair(p: &mut Problem, claim: &Claim) {
    let n = p.dist_inputs.len();
    let mut of: Vec<Option<usize>> = vec![None; n];
    let mut taken = vec![false; p.base_inputs.len()];
    for (b, d) in &claim.pairs {
        let bi = p.base_inputs.iter().find(|l| selects(b, l)).map(|l| l.index);
        let di = p.dist_inputs.iter().find(|l| selects(d, l)).map(|l| l.index);
        match (bi, di) {
            (Some(b), Some(d)) => {
                of[d] = Some(b);
                taken[b] = true;
            }
            _ => p.errors.push(format!("no such pair of inputs: {b} and {d}")),
        }
    }
    // By name: unique on both sides, first the path, then weaker names.
    for level in 0..2 {
        let key =
            |l: &Leaf| -> Option<String> { l.names.get(level).filter(|s| !is_generic(s)).cloned() };
        // Names that occur once, and where.
        let once = |ls: &[Leaf]| {
            let mut at: FxHashMap<String, Option<usize>> = FxHashMap::default();
            for (l, k) in ls.iter().filter_map(|l| Some((l, key(l)?))) {
                at.entry(k).and_modify(|x| *x = None).or_insert(Some(l.index));
            }
            at
        };
        let (base, dist) = (once(&p.base_inputs), once(&p.dist_inputs));
        for d in 0..n {
            if of[d].is_some() {
                continue;
            }
            let Some(k) = key(&p.dist_inputs[d]) else { continue };
            if dist.get(&k).copied().flatten().is_none() {
                continue;
            }
            if let Some(b) = base.get(&k).copied().flatten().filter(|&b| !taken[b]) {
                of[d] = Some(b);
                taken[b] = true;
            }
        }
    }
    // By position: the unmatched of both sides in order, if as many and the
    // shapes agree (each global size a multiple of the local one).
    let left: Vec<usize> = (0..n).filter(|&d| of[d].is_none()).collect();
    let free: Vec<usize> = (0..taken.len()).filter(|&b| !taken[b]).collect();
    if !left.is_empty() {
        let fits = |b: usize, d: usize| match (&p.base_inputs[b].shape, &p.dist_inputs[d].shape) {
            (Shape::Array(x), Shape::Array(y)) => {
                x.dtype == y.dtype
                    && x.dims.len() == y.dims.len()
                    && x.dims.iter().zip(&y.dims).all(|(g, l)| *g == *l || (*l > 0 && *g >= *l))
            }
            (x, y) => x.same(y),
        };
        let matched = if left.len() == free.len() {
            left.iter().zip(&free).all(|(&d, &b)| fits(b, d)).then(|| free.clone())
        } else if left.len() < free.len() && left.len() == n {
            only_order(&left, &free, &fits)
        } else {
            None
        };
        match matched {
            Some(bs) => {
                for (&d, b) in left.iter().zip(bs) {
                    of[d] = Some(b);
                }
                if p.dist_inputs.len() > 1 {
                    p.assumed.push(format!(
                        "{} input(s) are paired by position: their names say nothing",
                        left.len()
                    ));
                }
            }
            None => {
                for &d in &left {
                    p.errors.push(format!(
                        "input {} ({}) of the distributed module has no counterpart in the baseline",
                        p.dist_inputs[d].name(),
                        p.dist_inputs[d].shape
                    ));
                }
            }
        }
    }
    p.pairs = (0..n)
        .map(|d| InputPair { dist: d, base: of[d], placement: None, inferred: false })
        .collect();
}

/// The only way to map `left` into `free` in order such that shapes fit;
/// `None` if there are several or none.
fn only_order(
    left: &[usize],
    free: &[usize],
    fits: &dyn Fn(usize, usize) -> bool,
) -> Option<Vec<usize>> {
    // Greedy from the left and from the right agree iff the way is unique.
    let mut a = Vec::new();
    let mut k = 0;
    for &d in left {
        while k < free.len() && !fits(free[k], d) {
            k += 1;
        }
        a.push(*free.get(k)?);
        k += 1;
    }
    let mut b = Vec::new();
    let mut k = free.len();
    for &d in left.iter().rev() {
        loop {
            k = k.checked_sub(1)?;
            if fits(free[k], d) {
                break;
            }
        }
        b.push(free[k]);
    }
    b.reverse();
    (a == b).then_some(a)
}

fn place(p: &mut Problem, base: &Module, dist: &Module, claim: &Claim) {
    let mesh = Mesh::new(p.mesh.clone()).ok();
    let mut cache = mesh
        .clone()
        .map(|m| scalify_claim::PlacementCache::new(scalify_claim::NamedMesh::plain(m)));
    let mut inferred = 0;
    let mut sections: Option<Sections<'_>> = None;
    for k in 0..p.pairs.len() {
        let Some(b) = p.pairs[k].base else { continue };
        let d = &p.dist_inputs[p.pairs[k].dist].clone();
        let b = &p.base_inputs[b].clone();
        let (Shape::Array(g), Shape::Array(l)) = (&b.shape, &d.shape) else {
            if !b.shape.same(&d.shape) {
                p.errors.push(format!(
                    "input {} has shape {} here, {} there",
                    d.name(),
                    d.shape,
                    b.shape
                ));
            }
            continue;
        };
        if g.dtype != l.dtype {
            p.errors.push(format!(
                "input {} is {} in the baseline, {} in the distributed module",
                d.name(),
                g.dtype,
                l.dtype
            ));
            p.pairs[k].base = None;
            continue;
        }
        if g.dims == l.dims {
            continue;
        }
        if p.local_inputs {
            // Two per-device programs must take the same per-device values.
            p.errors.push(format!(
                "input {} is {} in one per-device program and {} in the other",
                d.name(),
                b.shape,
                d.shape
            ));
            p.pairs[k].base = None;
            continue;
        }
        let fits = |q: &Placement| q.local_shape(&g.dims).is_some_and(|s| s[..] == l.dims[..]);
        let all: Vec<&str> = names(b).into_iter().chain(names(d)).collect();
        let mut found: Option<Placement> = None;
        if let Some(spec) = claim.input_spec(d.index, &all) {
            match cache.as_mut().map(|c| c.spec(spec, g.dims.len())) {
                Some(Ok(q)) if fits(&q) => found = Some(q),
                Some(Ok(_)) => p.errors.push(format!(
                    "input {}: {spec} of {} gives not {}",
                    d.name(),
                    b.shape,
                    d.shape
                )),
                Some(Err(e)) => p.errors.push(format!("input {}: {e}", d.name())),
                None => p.errors.push(format!("input {}: a spec needs a mesh", d.name())),
            }
            if found.is_none() {
                continue;
            }
        }
        if found.is_none() {
            let id: InstrId = dist.entry_comp().params[d.param];
            if let Some(s) = dist.sharding(id) {
                if let Ok(q) = Placement::from_op_sharding(s, g.dims.len(), p.devices as u32) {
                    if fits(&q) {
                        found = Some(q);
                    }
                }
            }
        }
        if found.is_none() {
            found = sections
                .get_or_insert_with(|| Sections::new(base, dist))
                .placement(p, k, &g.dims, &l.dims);
            if let Some(q) = &found {
                p.pairs[k].inferred = true;
                let parts = q.dims.iter().enumerate().find(|d| !d.1.sections.is_empty());
                if let Some((dim, d)) = parts {
                    p.assumed.push(format!(
                        "input {} holds a part of each of the sections {:?} of dimension {dim}, \
                         as both programs cut it (equal parts of the whole would fit too)",
                        p.dist_inputs[p.pairs[k].dist].name(),
                        d.sections
                    ));
                }
            }
        }
        if found.is_none() {
            found = infer(&p.mesh, p.devices, &g.dims, &l.dims);
            if found.is_some() {
                inferred += 1;
                p.pairs[k].inferred = true;
            }
        }
        match found {
            Some(q) => p.pairs[k].placement = Some(q),
            None => {
                p.errors.push(format!(
                    "input {}: no sharding is known that makes {} of {}",
                    d.name(),
                    d.shape,
                    b.shape
                ));
                p.pairs[k].base = None;
            }
        }
    }
    if inferred > 0 {
        p.assumed.push(format!("the sharding of {inferred} input(s) is inferred from shapes"));
    }
    for a in &claim.assume {
        if !p.base_inputs.iter().any(|l| selects(&a.selector, l))
            && !p.dist_inputs.iter().any(|l| selects(&a.selector, l))
        {
            p.errors.push(format!("--assume {}: no such input", a.selector));
        }
    }
}

/// Layouts in which output leaf `k` (`global` in the baseline, `local` in the
/// distributed program) may be: the declared one alone, else those that the
/// annotations and shapes allow, each with the sentence that assumes it.
///
/// # Errors
/// Why no layout fits.
pub fn output_layouts(
    p: &Problem,
    claim: &Claim,
    dist: &Module,
    k: usize,
    global: &ArrayShape,
    local: &ArrayShape,
) -> Result<Vec<(Placement, Option<String>)>, String> {
    let (g, s) = (global, local);
    let name = format!("#{k}");
    let whole = Placement::replicated(g.dims.len(), p.devices as u32);
    let mesh = Mesh::new(p.mesh.clone()).ok();
    if let (Some(spec), Some(mesh)) = (claim.output_spec(k, &[&name]), &mesh) {
        return match Placement::from_spec(mesh, spec, g.dims.len()) {
            Ok(q) if q.local_shape(&g.dims).is_some_and(|z| z[..] == s.dims[..]) => {
                Ok(vec![(q, None)])
            }
            Ok(_) if g.dims == s.dims => Ok(vec![(whole, None)]),
            Ok(q) => {
                let z = q.local_shape(&g.dims);
                Err(format!("declared {spec}: each device would hold {z:?}, the output is {s}"))
            }
            Err(e) => Err(format!("declared {spec}: {e}")),
        };
    }
    if g.dims == s.dims {
        return Ok(vec![(whole, None)]);
    }
    let annotated = dist.header.spmd_output_sharding.as_ref().and_then(|o| {
        let leaf = match &o.kind {
            scalify_ir::ShardingKind::Tuple(t) => t.get(k)?,
            _ => o,
        };
        Placement::from_op_sharding(leaf, g.dims.len(), p.devices as u32).ok()
    });
    if let Some(q) =
        annotated.filter(|q| q.local_shape(&g.dims).is_some_and(|z| z[..] == s.dims[..]))
    {
        return Ok(vec![(q, None)]);
    }
    let mut tries = Vec::new();
    for q in candidates(&p.mesh, p.devices, &g.dims, &s.dims, 64) {
        let text = layout_text(k, Some(&q), mesh.as_ref());
        tries.push((q, Some(text)));
    }
    if tries.is_empty() {
        return Err(format!(
            "no layout is declared, and {s} is no even split of {g} over the mesh"
        ));
    }
    Ok(tries)
}

/// The sentence that assumes a layout of output `k`.
pub(crate) fn layout_text(k: usize, q: Option<&Placement>, mesh: Option<&Mesh>) -> String {
    match mesh.zip(q).and_then(|(m, q)| q.to_spec(m)) {
        Some(spec) => format!("output {k} is laid out as {spec}"),
        None => format!("output {k} is split into whole tiles in device order"),
    }
}

/// Placements that make `local` of `global`: each split dimension over mesh
/// axes in mesh order; the first that fits.
pub fn infer(
    mesh: &[(String, i64)],
    devices: i64,
    global: &[i64],
    local: &[i64],
) -> Option<Placement> {
    candidates(mesh, devices, global, local, 1).into_iter().next()
}

/// All such placements, at most `most`.
pub fn candidates(
    mesh: &[(String, i64)],
    devices: i64,
    global: &[i64],
    local: &[i64],
    most: usize,
) -> Vec<Placement> {
    if global.len() != local.len() {
        return Vec::new();
    }
    let mut ratio = Vec::new();
    for (&g, &l) in global.iter().zip(local) {
        if l <= 0 || g % l != 0 {
            return Vec::new();
        }
        ratio.push(g / l);
    }
    let whole = vec![("devices".to_owned(), devices)];
    let axes: Vec<(String, i64)> = if mesh.is_empty() { whole } else { mesh.to_vec() };
    let Ok(m) = Mesh::new(axes.clone()) else { return Vec::new() };
    // Assign each axis to a dimension or none.
    let mut out = Vec::new();
    let mut pick: Vec<Option<usize>> = vec![None; axes.len()];
    assign(&axes, &ratio, 0, &mut pick, &mut |pick| {
        let dims = (0..global.len())
            .map(|d| {
                (0..axes.len()).filter(|&a| pick[a] == Some(d)).map(|a| axes[a].0.clone()).collect()
            })
            .collect();
        let spec = scalify_claim::PartitionSpec { dims };
        if let Ok(p) = Placement::from_spec(&m, &spec, global.len()) {
            out.push(p);
        }
        out.len() < most
    });
    out
}

fn assign(
    axes: &[(String, i64)],
    left: &[i64],
    k: usize,
    pick: &mut Vec<Option<usize>>,
    f: &mut dyn FnMut(&[Option<usize>]) -> bool,
) -> bool {
    if k == axes.len() {
        return !left.iter().all(|&r| r == 1) || f(pick);
    }
    for d in 0..left.len() {
        if axes[k].1 > 1 && left[d] % axes[k].1 == 0 && left[d] > 1 {
            let mut l = left.to_vec();
            l[d] /= axes[k].1;
            pick[k] = Some(d);
            let go = assign(axes, &l, k + 1, pick, f);
            pick[k] = None;
            if !go {
                return false;
            }
        }
    }
    assign(axes, left, k + 1, pick, f)
}
