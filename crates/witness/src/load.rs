//! Loading.

use crate::WitnessError;
use crate::record::{Record, VERSION, placement};
use scalify_claim::{Claim, FileFormat, Placement, parse_spec_file};
use scalify_interp::Tensor;
use scalify_ir::{ArrayShape, DType, Module};
use scalify_refute::evaluate::Inputs;
use scalify_tensors::Archive;
use std::path::Path;

/// Largest `witness.json` and `spec.json` (bytes).
const MAX_JSON: u64 = 256 << 20;
/// Largest program (bytes).
const MAX_TEXT: u64 = 4 << 30;

/// A witness read back.
#[derive(Debug)]
pub struct Loaded {
    /// The single-device program.
    pub base: Module,
    /// The distributed program.
    pub dist: Module,
    /// What was declared.
    pub claim: Claim,
    /// Values of the baseline's inputs.
    pub inputs: Inputs,
    /// Placement of each distributed input.
    pub placements: Vec<Option<Placement>>,
    /// Everything else.
    pub record: Record,
}

fn content(path: &Path, message: impl Into<String>) -> WitnessError {
    WitnessError::Content { name: path.display().to_string(), message: message.into() }
}

fn text(path: &Path, limit: u64) -> Result<String, WitnessError> {
    let io = |action| {
        let name = path.display().to_string();
        move |source| WitnessError::Io { name, action, source }
    };
    let size = std::fs::metadata(path).map_err(io("read"))?.len();
    if size > limit {
        return Err(content(path, format!("{size} bytes, expected at most {limit}")));
    }
    std::fs::read_to_string(path).map_err(io("read"))
}

fn module(dir: &Path, file: &str) -> Result<Module, WitnessError> {
    let path = dir.join(file);
    if Path::new(file).components().count() != 1 {
        return Err(content(&path, "expected a file of the folder"));
    }
    let text = text(&path, MAX_TEXT)?;
    let m = scalify_hlo::parse(&text).map_err(|e| WitnessError::Program {
        name: path.display().to_string(),
        source: Box::new(e),
    })?;
    let options = scalify_ir::validate::ValidateOptions {
        mixed_precision: true,
        ..scalify_ir::validate::ValidateOptions::default()
    };
    let found = scalify_ir::validate::validate(&m, &options);
    match found.into_iter().find(|i| i.severity == scalify_ir::validate::Severity::Error) {
        Some(bad) => Err(content(&path, format!("{}, expected {}", bad.message, bad.expected))),
        None => Ok(m),
    }
}

/// Loads the witness in a folder.
///
/// # Errors
/// Unreadable or malformed files, and files that do not fit together.
pub fn load(dir: &Path) -> Result<Loaded, WitnessError> {
    let path = dir.join("witness.json");
    let record: Record =
        serde_json::from_str(&text(&path, MAX_JSON)?).map_err(|e| content(&path, e.to_string()))?;
    if record.scalify_witness != VERSION {
        let v = record.scalify_witness;
        return Err(content(&path, format!("version {v} of the format, expected {VERSION}")));
    }
    let base = module(dir, &record.base.file)?;
    let dist = module(dir, &record.dist.file)?;
    let spec = dir.join("spec.json");
    let claim = parse_spec_file(&text(&spec, MAX_JSON)?, Some(FileFormat::Json))
        .map_err(|e| content(&spec, e.to_string()))?;
    let inputs = inputs(dir, &record)?;
    let placements = record
        .dist_inputs
        .iter()
        .map(|d| match &d.placement {
            None => Ok(None),
            Some(v) => placement(v, record.devices).map(Some).ok_or_else(|| {
                let n = record.devices;
                content(&path, format!("placement of {}: expected a tile for {n} devices", d.name))
            }),
        })
        .collect::<Result<_, _>>()?;
    Ok(Loaded { base, dist, claim, inputs, placements, record })
}

fn inputs(dir: &Path, record: &Record) -> Result<Inputs, WitnessError> {
    let path = dir.join("inputs.npz");
    let archive = Archive::open(&path)?;
    let mut values = Vec::new();
    for i in &record.inputs {
        let mut per = Vec::new();
        for key in &i.keys {
            let dtype = i.dtype.as_deref().and_then(DType::from_name).ok_or_else(|| {
                content(&path, format!("{}: expected an element type, found {:?}", i.name, i.dtype))
            })?;
            let at = archive
                .find(key)
                .ok_or_else(|| content(&path, format!("expected an array named {key}")))?;
            let t = archive.tensor(at, Some(dtype))?;
            if t.dtype() != dtype || t.dims() != i.shape {
                let found = ArrayShape::new(t.dtype(), t.dims().iter().copied());
                let want = ArrayShape::new(dtype, i.shape.iter().copied());
                return Err(content(&path, format!("{key} is {found}, expected {want}")));
            }
            let shape = ArrayShape::new(dtype, i.shape.iter().copied());
            let t = Tensor::from_bytes(&shape, &t.bytes()?);
            per.push(t.ok_or_else(|| content(&path, format!("{key}: elements do not fit")))?);
        }
        values.push(per);
    }
    Ok(Inputs { values })
}
