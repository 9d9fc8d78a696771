//! Saving, all or nothing.

use crate::record::{
    DistInputRecord, Form, InputRecord, OutputRecord, ProgramRecord, Record, VERSION, dims, form,
};
use crate::{Witness, WitnessError, manual};
use scalify_claim::{Claim, Mesh};
use scalify_hlo::WriteOptions;
use scalify_ir::Module;
use scalify_refute::Difference;
use scalify_refute::evaluate::topology;
use scalify_tensors::{TensorRef, write_npz};
use std::collections::BTreeSet;
use std::path::Path;

const REPLAY: &str = include_str!("replay.py");

fn io(name: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> WitnessError {
    let name = name.display().to_string();
    move |source| WitnessError::Io { name, action, source }
}

/// Whether a witness may be saved as `dir`: `false` if nothing is there, `true`
/// if an empty folder or a witness would be replaced.
///
/// # Errors
/// If something else is there.
pub fn replaces(dir: &Path) -> Result<bool, WitnessError> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => {
            let witness = dir.join("witness.json").is_file();
            if !witness && entries.next().is_some() {
                return Err(WitnessError::Taken(dir.display().to_string()));
            }
            Ok(true)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(io(dir, "open")(e)),
    }
}

/// Saves a witness in a new folder `dir`; an older witness there is replaced.
/// The folder appears whole or not at all.
///
/// # Errors
/// If `dir` exists and is neither empty nor a witness, or the operating system
/// refuses.
pub fn save(dir: &Path, w: &Witness<'_>) -> Result<(), WitnessError> {
    let old = replaces(dir)?;
    let parent = match dir.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(io(parent, "create"))?;
    // Removed when dropped unless it is kept.
    let new = tempfile::Builder::new()
        .prefix(".scalify-")
        .tempdir_in(parent)
        .map_err(io(parent, "create a folder in"))?;
    write(new.path(), w)?;
    set_mode(new.path()).map_err(io(new.path(), "set the permissions of"))?;
    let aside = match old {
        true => {
            let aside = tempfile::Builder::new()
                .prefix(".scalify-")
                .tempdir_in(parent)
                .map_err(io(parent, "create a folder in"))?;
            let to = aside.path().join("old");
            std::fs::rename(dir, to).map_err(io(dir, "replace"))?;
            Some(aside)
        }
        false => None,
    };
    let path = new.keep();
    if let Err(e) = std::fs::rename(&path, dir) {
        if let Some(aside) = aside {
            let _ = std::fs::rename(aside.path().join("old"), dir);
        }
        let _ = std::fs::remove_dir_all(&path);
        return Err(io(dir, "create")(e));
    }
    Ok(())
}

/// Temporary folders are private; this one is the user's.
#[cfg(unix)]
fn set_mode(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn set_mode(_: &Path) -> std::io::Result<()> {
    Ok(())
}

fn file(dir: &Path, name: &str, data: &str) -> Result<(), WitnessError> {
    let path = dir.join(name);
    std::fs::write(&path, data).map_err(io(&path, "write"))
}

fn json<T: serde::Serialize>(dir: &Path, name: &str, value: &T) -> Result<(), WitnessError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| WitnessError::Content {
        name: dir.join(name).display().to_string(),
        message: e.to_string(),
    })?;
    text.push('\n');
    file(dir, name, &text)
}

fn write(dir: &Path, w: &Witness<'_>) -> Result<(), WitnessError> {
    let p = w.problem;
    let n = usize::try_from(p.devices).unwrap_or(1).max(1);
    let base =
        program(dir, w.base, "base", w.base_file, p.base_spmd.then(|| topology(w.base, p, n)))?;
    let dist = program(dir, w.dist, "dist", w.dist_file, Some(topology(w.dist, p, n)))?;
    let inputs = inputs(dir, w)?;
    let dist_inputs = p.pairs.iter().enumerate().map(|(k, pair)| DistInputRecord {
        name: p.dist_inputs.get(pair.dist).map_or("", |l| l.name()).to_owned(),
        base: pair.base,
        placement: w.example.placements.get(k).and_then(Option::as_ref).map(dims),
    });
    let mesh: Vec<String> = p.mesh.iter().map(|(a, n)| format!("{a}={n}")).collect();
    let record = Record {
        scalify_witness: VERSION,
        tool: format!("scalify {}", env!("CARGO_PKG_VERSION")),
        base,
        dist,
        devices: n as u32,
        mesh: mesh.join(","),
        seed: w.seed,
        inputs,
        dist_inputs: dist_inputs.collect(),
        outputs: w.example.outputs.iter().map(|d| output(w.base, d)).collect(),
    };
    json(dir, "witness.json", &record)?;
    json(dir, "spec.json", &spec(w))?;
    file(dir, "replay.py", REPLAY)
}

/// Writes a program; `on` are its replicas and partitions if it is one for
/// many devices.
fn program(
    dir: &Path,
    m: &Module,
    stem: &str,
    from: &str,
    on: Option<(usize, usize)>,
) -> Result<ProgramRecord, WitnessError> {
    let name = format!("{stem}.hlo.txt");
    let text = |m: &Module| scalify_hlo::write(m, &WriteOptions::default());
    file(dir, &name, &text(m))?;
    let form = on.map_or(Form::Single, |_| form(m));
    let (replicas, partitions) = on.unwrap_or((1, 1));
    let mut xla_file = name.clone();
    if form == Form::PerDevice && partitions > 1 {
        xla_file = format!("{stem}.xla.hlo.txt");
        file(dir, &xla_file, &text(&manual::mark(m)))?;
    }
    Ok(ProgramRecord { file: name, xla_file, from: from.to_owned(), form, replicas, partitions })
}

fn inputs(dir: &Path, w: &Witness<'_>) -> Result<Vec<InputRecord>, WitnessError> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    let mut arrays = Vec::new();
    for (k, v) in w.example.inputs.values.iter().enumerate() {
        let name = w.example.names.get(k).cloned().unwrap_or_default();
        // Names of members are those of the inputs where they can be.
        let odd = |c: char| c.is_control() || c == '/' || c == '\\';
        let mut key = name.clone();
        if key.is_empty() || key.len() > 200 || key.contains(odd) || !seen.insert(key.clone()) {
            key = format!("#{k}");
            seen.insert(key.clone());
        }
        let keys: Vec<String> = match v.len() {
            0 | 1 => v.iter().map(|_| key.clone()).collect(),
            n => (0..n).map(|d| format!("{key}@{d}")).collect(),
        };
        out.push(InputRecord {
            name,
            dtype: v.first().map(|t| t.dtype.to_string()),
            shape: v.first().map_or(Vec::new(), |t| t.dims.to_vec()),
            keys: keys.clone(),
        });
        for (key, t) in keys.into_iter().zip(v) {
            arrays.push((key, t.dtype, t.dims.clone(), t.to_bytes()));
        }
    }
    let refs = arrays
        .iter()
        .map(|(key, dtype, dims, bytes)| (key, TensorRef { dtype: *dtype, dims, bytes }));
    write_npz(dir.join("inputs.npz"), refs)?;
    Ok(out)
}

fn output(base: &Module, d: &Difference) -> OutputRecord {
    let shapes = scalify_prove::problem::output_shapes(base);
    OutputRecord {
        output: d.output,
        dtype: shapes.get(d.output).and_then(|s| s.dtype()).map(|t| t.to_string()),
        device: d.device,
        devices: d.devices.clone(),
        index: d.index.clone(),
        local_index: d.local.clone(),
        expected: d.expected.to_string(),
        actual: d.actual.to_string(),
        own_expected: d.plain.0.to_string(),
        own_actual: d.plain.1.to_string(),
        bound: d.bound.to_string(),
        differing: d.count.0,
        compared: d.count.1,
        placement: d.placement.as_ref().map(dims),
    }
}

/// The claim as a spec file, with the layouts that were found for the outputs
/// that differ.
fn spec(w: &Witness<'_>) -> serde_json::Value {
    let mut c: Claim = w.claim.clone();
    let mesh = Mesh::new(w.problem.mesh.clone()).ok();
    for d in &w.example.outputs {
        let name = format!("#{}", d.output);
        let spec = d.placement.as_ref().zip(mesh.as_ref()).and_then(|(q, m)| q.to_spec(m));
        if let (Some(spec), None) = (spec, c.output_spec(d.output, &[&name])) {
            c.outputs.push((scalify_claim::Selector::Index(d.output), spec));
        }
    }
    c.mesh = c.mesh.or(mesh);
    spec_file(&c)
}

/// A claim as a spec file in JSON.
pub fn spec_file(c: &Claim) -> serde_json::Value {
    let mut top = serde_json::Map::new();
    if let Some(m) = c.mesh.as_ref().filter(|m| !m.axes.is_empty()) {
        top.insert("mesh".into(), m.to_string().into());
    }
    // The last entry for a key counts.
    let table = |items: Vec<(String, serde_json::Value)>| {
        let map: serde_json::Map<_, _> = items.into_iter().collect();
        serde_json::Value::Object(map)
    };
    let text = |v: &[(scalify_claim::Selector, scalify_claim::PartitionSpec)]| {
        table(v.iter().map(|(k, s)| (k.to_string(), s.to_string().into())).collect())
    };
    let ranges = c.assume.iter().map(|a| (a.selector.to_string(), serde_json::json!([a.lo, a.hi])));
    let pairs = c.pairs.iter().map(|(b, d)| (b.to_string(), d.to_string().into()));
    for (key, value) in [
        ("in", text(&c.inputs)),
        ("out", text(&c.outputs)),
        ("assume", table(ranges.collect())),
        ("pair", table(pairs.collect())),
    ] {
        if value.as_object().is_some_and(|o| !o.is_empty()) {
            top.insert(key.into(), value);
        }
    }
    serde_json::Value::Object(top)
}
