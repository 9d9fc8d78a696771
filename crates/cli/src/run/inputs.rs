//! Inputs of a run: from files, or drawn.

use crate::output;
use scalify_claim::{Claim, Mesh, Placement};
use scalify_interp::Tensor;
use scalify_ir::{ArrayShape, Module, Shape, ShardingKind};
use scalify_prove::problem::{Leaf, Problem};
use scalify_refute::domain::{self, Profile};
use scalify_refute::evaluate::Inputs;
use scalify_refute::random::Random;
use scalify_tensors::Archive;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Names listed in an error.
const MAX_NAMES: usize = 12;
/// Elements of an input that is drawn.
const MAX_DRAWN: i64 = 1 << 31;

/// Which block of its array each device takes, per input; `None`: all of it.
/// Declared, else as annotated if the program is one per device.
///
/// # Errors
/// Specs that do not fit, and specs for inputs that do not exist.
pub(crate) fn placements(
    m: &Module,
    p: &Problem,
    claim: &Claim,
) -> anyhow::Result<Vec<Option<Placement>>> {
    let mesh = Mesh::new(p.mesh.clone()).ok();
    let leaves = &p.dist_inputs;
    for (selector, spec) in &claim.inputs {
        let hit = leaves.iter().any(|l| selector.matches(l.index, &names(l)));
        anyhow::ensure!(hit, "--in {selector}={spec}: no such input; {}", list(leaves));
    }
    let mut out = Vec::new();
    for l in leaves {
        let Shape::Array(a) = &l.shape else {
            out.push(None);
            continue;
        };
        let found = match (claim.input_spec(l.index, &names(l)), &mesh) {
            (Some(spec), Some(mesh)) => Some(
                Placement::from_spec(mesh, spec, a.dims.len())
                    .map_err(|e| anyhow::anyhow!("--in {}: {e}", label(l)))?,
            ),
            (Some(_), None) => anyhow::bail!("--in {}: a spec needs --mesh", label(l)),
            (None, _) if p.local_inputs => annotated(m, l, a, p.devices),
            (None, _) => None,
        };
        out.push(found.filter(|q| !q.is_replicated()));
    }
    Ok(out)
}

fn annotated(m: &Module, l: &Leaf, a: &ArrayShape, devices: i64) -> Option<Placement> {
    let params = &m.entry_comp().params;
    let s = m.sharding(*params.get(l.param)?)?;
    let first = m
        .shape(*params.get(l.param)?)
        .as_tuple()
        .map(|_| l.index - (0..l.param).map(|k| m.shape(params[k]).leaves().len()).sum::<usize>());
    let s = match (&s.kind, first) {
        (ShardingKind::Tuple(t), Some(k)) => t.get(k)?,
        _ => s,
    };
    Placement::from_op_sharding(s, a.dims.len(), u32::try_from(devices).ok()?).ok()
}

fn names(l: &Leaf) -> Vec<&str> {
    l.names.iter().map(String::as_str).collect()
}

/// `#3 w['down']`.
fn label(l: &Leaf) -> String {
    match l.name() {
        "" => format!("#{}", l.index),
        n => format!("#{} {n}", l.index),
    }
}

/// The inputs of the program, for errors.
fn list(leaves: &[Leaf]) -> String {
    if leaves.is_empty() {
        return "the program has no inputs".into();
    }
    let mut t = String::from("the inputs are");
    for l in leaves.iter().take(MAX_NAMES) {
        let _ = write!(t, "\n  {}  {}", label(l), bare(&l.shape));
    }
    if leaves.len() > MAX_NAMES {
        let _ = write!(t, "\n  ... and {} more", leaves.len() - MAX_NAMES);
    }
    t
}

/// Shape without layout.
fn bare(s: &Shape) -> String {
    match s {
        Shape::Array(a) => ArrayShape::new(a.dtype, a.dims.iter().copied()).to_string(),
        s => s.to_string(),
    }
}

/// Sizes of the whole array whose blocks have the sizes of the parameter.
fn whole(a: &ArrayShape, q: Option<&Placement>) -> Vec<i64> {
    match q {
        Some(q) => {
            q.dims.iter().zip(&a.dims).map(|(d, n)| n.saturating_mul(i64::from(d.tiles))).collect()
        }
        None => a.dims.to_vec(),
    }
}

struct File<'a> {
    path: &'a Path,
    archive: Archive,
    used: Vec<bool>,
}

/// The values: from the files, the rest drawn if a seed is given.
///
/// # Errors
/// Inputs that are missing or of another shape or type.
pub(crate) fn values(
    paths: &[PathBuf],
    seed: Option<u64>,
    m: &Module,
    p: &Problem,
    claim: &Claim,
    placements: &[Option<Placement>],
) -> anyhow::Result<Inputs> {
    let mut files = Vec::new();
    for path in paths {
        let archive = Archive::open(path)?;
        let used = vec![false; archive.entries().len()];
        files.push(File { path, archive, used });
    }
    let leaves = &p.dist_inputs;
    let domains = domain::domains(m, p, claim, false);
    let mut random = seed.map(Random::new);
    let mut values = Vec::new();
    let mut missing = Vec::new();
    for (k, l) in leaves.iter().enumerate() {
        let Shape::Array(s) = &l.shape else {
            values.push(Vec::new());
            continue;
        };
        let q = placements.get(k).and_then(Option::as_ref);
        if let Some(v) = read(&mut files, leaves, l, s, q, p.devices)? {
            values.push(v);
            continue;
        }
        let Some(r) = &mut random else {
            missing.push(l);
            values.push(Vec::new());
            continue;
        };
        let shape = ArrayShape::new(s.dtype, whole(s, q));
        let count = shape.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        anyhow::ensure!(
            count.is_some_and(|n| n <= MAX_DRAWN),
            "input {}: {shape} is too big to draw",
            label(l)
        );
        let d = domains.get(k).copied().unwrap_or(domain::Domain::Float);
        let t = domain::draw(&shape, d, Profile::Normal, r);
        values.push(vec![
            t.ok_or_else(|| anyhow::anyhow!("input {}: {shape} cannot be drawn", label(l)))?,
        ]);
    }
    if let Some(l) = missing.first() {
        let what = match missing.len() {
            1 => format!("no value for input {}", label(l)),
            n => format!("no values for {n} inputs, such as {}", label(l)),
        };
        if files.is_empty() {
            let how = "expected --inputs FILE or --random SEED";
            anyhow::bail!("{what}: {how}; {}", list(leaves));
        }
        let keys = expected_keys(leaves, l).join("`, `");
        let have: Vec<&str> = files
            .iter()
            .flat_map(|f| f.archive.entries())
            .map(|e| e.name.as_str())
            .take(MAX_NAMES)
            .collect();
        anyhow::bail!(
            "{what} ({}): expected an array named `{keys}`; the files have `{}`",
            bare(&l.shape),
            have.join("`, `")
        );
    }
    for f in &files {
        let unused: Vec<&str> = (f.archive.entries().iter().zip(&f.used))
            .filter(|e| !e.1)
            .map(|e| e.0.name.as_str())
            .collect();
        if !unused.is_empty() {
            let some = unused.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join("`, `");
            let more = if unused.len() > MAX_NAMES { ", .." } else { "" };
            let path = f.path.display();
            output::stderr(&format!("note: {path}: no input is named `{some}`{more}\n"));
        }
    }
    Ok(Inputs { values })
}

/// Names under which an input is looked up: its own as far as they are
/// unique, then its position.
fn expected_keys(leaves: &[Leaf], l: &Leaf) -> Vec<String> {
    let once = |n: &&String| leaves.iter().filter(|x| x.names.contains(n)).count() == 1;
    let mut keys: Vec<String> = l.names.iter().filter(once).cloned().collect();
    keys.extend([format!("#{}", l.index), format!("arr_{}", l.index)]);
    if leaves.len() == 1 {
        // The only array of an npy file has no name.
        keys.push(String::new());
    }
    keys
}

/// The arrays of one input: one, or one per device; `None` if no file has it.
fn read(
    files: &mut [File<'_>],
    leaves: &[Leaf],
    l: &Leaf,
    s: &ArrayShape,
    q: Option<&Placement>,
    devices: i64,
) -> anyhow::Result<Option<Vec<Tensor>>> {
    for f in files {
        for key in expected_keys(leaves, l) {
            if let Some(at) = f.archive.find(&key) {
                return Ok(Some(vec![array(f, at, l, s, q)?]));
            }
            if f.archive.find(&format!("{key}@0")).is_none() {
                continue;
            }
            let mut per = Vec::new();
            for d in 0..devices {
                let name = format!("{key}@{d}");
                let at = f.archive.find(&name).ok_or_else(|| {
                    let path = f.path.display();
                    anyhow::anyhow!("{path}: `{key}@0` but no `{name}`; expected one per device")
                })?;
                per.push(array(f, at, l, s, None)?);
            }
            return Ok(Some(per));
        }
    }
    Ok(None)
}

fn array(
    f: &mut File<'_>,
    at: usize,
    l: &Leaf,
    s: &ArrayShape,
    q: Option<&Placement>,
) -> anyhow::Result<Tensor> {
    if let Some(u) = f.used.get_mut(at) {
        *u = true;
    }
    let t = f.archive.tensor(at, Some(s.dtype))?;
    let found = ArrayShape::new(t.dtype(), t.dims().iter().copied());
    let fits = match q {
        Some(q) => q.local_shape(t.dims()).is_some_and(|z| z[..] == s.dims[..]),
        None => t.dims() == &s.dims[..],
    };
    if !fits || t.dtype() != s.dtype {
        let want = ArrayShape::new(s.dtype, whole(s, q));
        let blocks = match q {
            Some(_) => format!(", the whole array whose blocks are {}", bare(&l.shape)),
            None => String::new(),
        };
        let path = f.path.display();
        anyhow::bail!("{path}: input {} is {found}, expected {want}{blocks}", label(l));
    }
    let bytes = t.bytes()?;
    Tensor::from_bytes(&found, &bytes)
        .ok_or_else(|| anyhow::anyhow!("input {}: the elements do not fit {found}", label(l)))
}
