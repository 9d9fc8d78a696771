//! `scalify inspect`: what a module holds.

mod collect;
mod text;

use crate::args::InspectArgs;
use crate::{Exit, input, output};
use serde::Serialize;
use std::collections::BTreeMap;

pub(crate) fn run(a: &InspectArgs) -> anyhow::Result<Exit> {
    let module = input::load(&a.file)?;
    let facts = collect::facts(&module, a.file.display().to_string());
    let text = if a.json {
        let mut t = serde_json::to_string_pretty(&facts)?;
        t.push('\n');
        t
    } else {
        text::render(&facts)
    };
    output::stdout(&text)?;
    std::mem::forget(module);
    Ok(Exit::Success)
}

/// Everything that is shown; the JSON form is this structure.
#[derive(Serialize)]
struct Facts {
    schema_version: u32,
    file: String,
    module: String,
    replica_count: i64,
    num_partitions: Option<i64>,
    computations: usize,
    instructions: usize,
    entry_instructions: usize,
    parameters: Vec<Value>,
    outputs: Vec<Value>,
    meshes: Vec<MeshFact>,
    /// Mesh that fits the parameter shardings, if none is declared.
    inferred_mesh: Option<Vec<(String, i64)>>,
    opcodes: BTreeMap<&'static str, usize>,
    collectives: Vec<Collective>,
    sources: Vec<Source>,
    with_source: usize,
}

/// A parameter leaf or an output leaf.
#[derive(Serialize)]
struct Value {
    index: usize,
    name: String,
    shape: String,
    /// As a partition spec on the mesh, if it is one.
    spec: Option<String>,
    /// As annotated.
    sharding: Option<String>,
}

#[derive(Serialize)]
struct MeshFact {
    name: String,
    axes: Vec<(String, i64)>,
    devices: i64,
    row_major: bool,
}

/// Collectives of one opcode with the same groups.
#[derive(Serialize)]
struct Collective {
    opcode: &'static str,
    count: usize,
    group_size: Option<i64>,
    groups: String,
    /// Operand bytes on one device, all of them, loops counted once.
    bytes: u64,
}

#[derive(Serialize)]
struct Source {
    file: String,
    instructions: usize,
}
