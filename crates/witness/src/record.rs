//! `witness.json`.

use scalify_claim::{DimPlacement, Placement};
use scalify_ir::{Attrs, Module};
use serde::{Deserialize, Serialize};

/// Version of the format.
pub(crate) const VERSION: u32 = 1;

/// Everything of a witness but programs and arrays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Version of this format, 1.
    pub scalify_witness: u32,
    /// The program that wrote it, with its version.
    pub tool: String,
    /// The single-device program.
    pub base: ProgramRecord,
    /// The distributed program.
    pub dist: ProgramRecord,
    /// Number of devices.
    pub devices: u32,
    /// Mesh, e.g. `dp=2,tp=4`; empty if none is known.
    pub mesh: String,
    /// Seed of the inputs.
    pub seed: u64,
    /// Inputs of the baseline, in order.
    pub inputs: Vec<InputRecord>,
    /// Inputs of the distributed program, in order.
    pub dist_inputs: Vec<DistInputRecord>,
    /// Outputs that differ, the worst first.
    pub outputs: Vec<OutputRecord>,
}

/// How XLA must compile a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// For one device.
    Single,
    /// What one device of many runs.
    PerDevice,
    /// A program over global arrays whose manual regions are written with
    /// Shardy's custom calls.
    Shardy,
    /// The same with GSPMD's custom calls.
    Gspmd,
}

/// One of the programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramRecord {
    /// File in the folder.
    pub file: String,
    /// File in the folder that XLA reads.
    pub xla_file: String,
    /// Where it was read from.
    pub from: String,
    /// How to compile it.
    pub form: Form,
    /// Replicas.
    pub replicas: usize,
    /// Partitions.
    pub partitions: usize,
}

/// A baseline input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InputRecord {
    /// Name of the input.
    pub name: String,
    /// Names of its arrays in `inputs.npz`: one, or one per device; none for
    /// a token.
    pub keys: Vec<String>,
    /// Element type.
    pub dtype: Option<String>,
    /// Sizes.
    pub shape: Vec<i64>,
}

/// A distributed input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DistInputRecord {
    /// Name of the input.
    pub name: String,
    /// The baseline input whose blocks it holds.
    pub base: Option<usize>,
    /// Placement per dimension; `null`: every device takes the whole array.
    pub placement: Option<Vec<DimRecord>>,
}

/// Placement of one dimension.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DimRecord {
    /// Number of equal tiles.
    pub tiles: u32,
    /// Tile of each device; empty if there is one tile.
    pub tile_of_device: Vec<u32>,
    /// Lengths of sections that are tiled one by one; empty: one section.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<i64>,
}

/// How an output differs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutputRecord {
    /// Position among the array leaves of the result.
    pub output: usize,
    /// Element type.
    pub dtype: Option<String>,
    /// Device of the element.
    pub device: u32,
    /// Devices on which it differs.
    pub devices: Vec<u32>,
    /// Index in the baseline's output.
    pub index: Vec<i64>,
    /// Index in the device's output.
    pub local_index: Vec<i64>,
    /// Values in `f64`; `NaN` and infinities as text.
    pub expected: String,
    /// See `expected`.
    pub actual: String,
    /// Values in the programs' own types.
    pub own_expected: String,
    /// See `own_expected`.
    pub own_actual: String,
    /// Largest difference that rounding explains.
    pub bound: String,
    /// Elements that differ, over all devices.
    pub differing: usize,
    /// Elements compared.
    pub compared: usize,
    /// Placement of the output.
    pub placement: Option<Vec<DimRecord>>,
}

pub(crate) fn dims(q: &Placement) -> Vec<DimRecord> {
    let one = |d: &DimPlacement| DimRecord {
        tiles: d.tiles,
        tile_of_device: d.tile_of_device.to_vec(),
        sections: d.sections.to_vec(),
    };
    q.dims.iter().map(one).collect()
}

/// The placement of a record; `None` if a table does not fit the devices.
pub(crate) fn placement(v: &[DimRecord], devices: u32) -> Option<Placement> {
    let mut dims = Vec::new();
    for d in v {
        let whole = d.tiles == 1 && d.tile_of_device.is_empty();
        let table = d.tiles > 0
            && d.tile_of_device.len() == devices as usize
            && d.tile_of_device.iter().all(|&t| t < d.tiles);
        let even = d.sections.iter().all(|&s| s >= 0 && s % i64::from(d.tiles.max(1)) == 0);
        if !(whole || table) || !even {
            return None;
        }
        dims.push(DimPlacement {
            tiles: d.tiles,
            tile_of_device: d.tile_of_device.clone().into(),
            sections: d.sections.clone().into(),
        });
    }
    Some(Placement { dims, devices })
}

/// How XLA must compile a program for several devices.
pub(crate) fn form(m: &Module) -> Form {
    let has = |prefix: &str| {
        m.instrs.iter().any(|i| match &i.attrs {
            Attrs::CustomCall(c) => m.str(c.target).starts_with(prefix),
            _ => false,
        })
    };
    if has("xla.sdy.") {
        Form::Shardy
    } else if has("SPMD") {
        Form::Gspmd
    } else {
        Form::PerDevice
    }
}
