//! Arguments and inputs that the numeric commands share.

use crate::compare::Format;
use crate::run::inputs;
use anyhow::{Context as _, anyhow};
use clap::Args;
use scalify_claim::{Claim, Mesh};
use scalify_ir::Module;
use scalify_prove::problem::{self, Problem};
use scalify_refute::evaluate::Inputs;
use scalify_tensors::{TensorRef, save_atomically, write_archive};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What is claimed of two programs, and inputs.
#[derive(Args)]
pub(crate) struct ProgramArgs {
    /// Device mesh, major axis first, e.g. dp=2,tp=4
    #[arg(long, value_name = "AXES")]
    mesh: Option<String>,
    /// Layout of an input, e.g. '#0=P(None, "tp")'
    #[arg(long = "in", value_name = "INPUT=SPEC")]
    input_specs: Vec<String>,
    /// Layout of an output, e.g. '#0=P("dp")'
    #[arg(long = "out", value_name = "OUTPUT=SPEC")]
    output_specs: Vec<String>,
    /// Range of an integer input, e.g. 'tokens in [0, 31999]'
    #[arg(long, value_name = "INPUT in [LO, HI]")]
    assume: Vec<String>,
    /// Input of the first program and the one of the second that stands for it
    #[arg(long, value_name = "A=B")]
    pair: Vec<String>,
    /// Spec file (TOML or JSON, see docs/SPEC.md); options override it
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Inputs (npz, safetensors, npy) by name, else `#0` or `arr_0` by
    /// position; what no file has is drawn (may repeat)
    #[arg(long, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Seed of drawn inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl ProgramArgs {
    /// The claim of spec file and options.
    ///
    /// # Errors
    /// Malformed specs.
    pub(crate) fn claim(&self) -> anyhow::Result<Claim> {
        let mut claim = match &self.spec {
            Some(path) => crate::verify::spec_file(path)?,
            None => Claim::default(),
        };
        let mut add = Claim::default();
        let bad =
            |option: &'static str| move |e: scalify_claim::ParseError| anyhow!("--{option}: {e}");
        if let Some(m) = &self.mesh {
            add.mesh = Some(Mesh::parse(m).map_err(bad("mesh"))?);
        }
        for t in &self.input_specs {
            add.add_input(t).map_err(bad("in"))?;
        }
        for t in &self.output_specs {
            add.add_output(t).map_err(bad("out"))?;
        }
        for t in &self.assume {
            add.add_assume(t).map_err(bad("assume"))?;
        }
        for t in &self.pair {
            add.add_pair(t).map_err(bad("pair"))?;
        }
        claim.extend(add);
        Ok(claim)
    }

    /// Inputs of `base` from the files, the rest drawn; `None` without files.
    ///
    /// # Errors
    /// Inputs of another shape or type.
    pub(crate) fn read(
        &self,
        base: &Module,
        p: &Problem,
        claim: &Claim,
    ) -> anyhow::Result<Option<Inputs>> {
        if self.inputs.is_empty() {
            return Ok(None);
        }
        let mut own = p.clone();
        own.dist_inputs = p.base_inputs.clone();
        let whole = vec![None; own.dist_inputs.len()];
        inputs::values(&self.inputs, Some(self.seed), base, &own, claim, &whole).map(Some)
    }
}

/// The problem of running one program.
///
/// # Errors
/// Devices that are not known.
pub(crate) fn single(m: &Module, claim: &Claim) -> anyhow::Result<Problem> {
    let mut p = problem::setup(m, m, &Claim { mesh: claim.mesh.clone(), ..Claim::default() });
    if let Some(e) = p.errors.first() {
        anyhow::bail!("{e}");
    }
    anyhow::ensure!(p.devices <= 4096, "{} devices are too many to run", p.devices);
    for (k, pair) in p.pairs.iter_mut().enumerate() {
        (pair.dist, pair.base, pair.placement, pair.inferred) = (k, Some(k), None, false);
    }
    Ok(p)
}

/// Saves the inputs by name.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn save_inputs(path: &Path, x: &Inputs, names: &[String]) -> anyhow::Result<()> {
    let mut all: Vec<(String, scalify_interp::Tensor, Vec<u8>)> = Vec::new();
    for (k, v) in x.values.iter().enumerate() {
        let name = names.get(k).filter(|n| !n.is_empty()).cloned().unwrap_or(format!("#{k}"));
        let unique = names.iter().filter(|n| **n == name).count() == 1;
        let name = if unique { name } else { format!("#{k}") };
        for (d, t) in v.iter().enumerate() {
            let name = if v.len() > 1 { format!("{name}@{d}") } else { name.clone() };
            all.push((name, t.clone(), t.to_bytes()));
        }
    }
    let list: Vec<(&str, TensorRef<'_>)> = all
        .iter()
        .map(|(n, t, b)| (n.as_str(), TensorRef { dtype: t.dtype, dims: &t.dims, bytes: b }))
        .collect();
    write_archive(path, list).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a text file all or nothing.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn save_text(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.display();
    save_atomically(path, |f| {
        f.write_all(text.as_bytes()).with_context(|| format!("cannot write {name}"))
    })
}

/// Format of a file by its ending.
///
/// # Errors
/// Another ending.
pub(crate) fn format_of(p: &Path) -> anyhow::Result<Format> {
    crate::compare::format_of(p)
}
