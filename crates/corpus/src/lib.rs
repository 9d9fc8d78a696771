//! Cases on disk: a folder with `case.json`, a baseline and distributed
//! modules in several forms; and what is expected of the verdict.

pub mod bugs;
pub mod refute;
pub mod third;

use anyhow::Context;
use scalify_claim::{Assume, Claim, Mesh, PartitionSpec, Selector};
use scalify_ir::Module;
use scalify_prove::outcome::{Outcome, Verdict};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// `case.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Name.
    pub name: String,
    /// Family of models.
    #[serde(default)]
    pub family: String,
    /// Kind of parallelism.
    #[serde(default)]
    pub parallelism: String,
    /// Mesh.
    pub mesh: MeshJson,
    /// Inputs in the order of the source.
    pub inputs: Vec<Value>,
    /// Outputs.
    pub outputs: Vec<Value>,
    /// `equivalent` or `different`.
    pub expected: String,
    /// The planted error.
    pub bug: Option<Bug>,
    /// Inputs that the modules kept.
    pub kept_inputs: Option<Kept>,
}

/// Mesh of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct MeshJson {
    /// Axis names, major first.
    pub axes: Vec<String>,
    /// Axis sizes.
    pub shape: Vec<i64>,
}

/// An input or output of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct Value {
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Mesh axes per dimension.
    pub spec: Option<Vec<Option<Vec<String>>>>,
    /// Inclusive range of an integer input.
    pub range: Option<(i64, i64)>,
}

/// The planted error of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct Bug {
    /// Kind.
    #[serde(default)]
    pub category: String,
    /// What was done.
    #[serde(default)]
    pub description: String,
    /// Source file.
    #[serde(default)]
    pub file: String,
    /// Lines of the error.
    #[serde(default)]
    pub lines: Vec<u32>,
    /// Lines near it, for omissions.
    #[serde(default)]
    pub near_lines: Option<Vec<u32>>,
}

/// Inputs kept by jit, as indices into the inputs.
#[derive(Clone, Debug, Deserialize)]
pub struct Kept {
    /// Of the baseline.
    pub base: Vec<usize>,
    /// Of the distributed program.
    pub dist: Vec<usize>,
}

impl Case {
    /// Two modules of a folder that are right, and of which nothing is
    /// declared.
    pub fn bare(dir: &Path) -> Case {
        Case {
            name: dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            family: String::new(),
            parallelism: String::new(),
            mesh: MeshJson { axes: Vec::new(), shape: Vec::new() },
            inputs: Vec::new(),
            outputs: Vec::new(),
            expected: "equivalent".to_owned(),
            bug: None,
            kept_inputs: None,
        }
    }

    /// Reads `case.json` of a folder.
    ///
    /// # Errors
    /// If the file is missing or not of this form.
    pub fn read(dir: &Path) -> anyhow::Result<Case> {
        let path = dir.join("case.json");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// The claim that the case makes: mesh, layouts, pairing, ranges.
    ///
    /// # Errors
    /// If the mesh is malformed.
    pub fn claim(&self) -> anyhow::Result<Claim> {
        if self.mesh.axes.is_empty() && self.inputs.is_empty() {
            return Ok(Claim::default());
        }
        let axes = self.mesh.axes.iter().cloned().zip(self.mesh.shape.iter().copied()).collect();
        let mesh = Mesh::new(axes).map_err(anyhow::Error::msg)?;
        let all: Vec<usize> = (0..self.inputs.len()).collect();
        let (base, dist) = match &self.kept_inputs {
            Some(k) => (k.base.clone(), k.dist.clone()),
            None => (all.clone(), all),
        };
        let spec = |v: &Value| {
            v.spec.as_ref().map(|s| PartitionSpec {
                dims: s.iter().map(|d| d.clone().unwrap_or_default()).collect(),
            })
        };
        let mut c = Claim { mesh: Some(mesh), ..Claim::default() };
        for (k, &i) in dist.iter().enumerate() {
            let Some(v) = self.inputs.get(i) else { continue };
            if let Some(s) = spec(v) {
                c.inputs.push((Selector::Index(k), s));
            }
            if let Some(b) = base.iter().position(|&b| b == i) {
                c.pairs.push((Selector::Index(b), Selector::Index(k)));
            }
        }
        for (k, &i) in base.iter().enumerate() {
            if let Some((lo, hi)) = self.inputs.get(i).and_then(|v| v.range) {
                c.assume.push(Assume { selector: Selector::Index(k), lo, hi });
            }
        }
        for (k, v) in self.outputs.iter().enumerate() {
            if let Some(s) = spec(v) {
                c.outputs.push((Selector::Index(k), s));
            }
        }
        Ok(c)
    }
}

/// A file of a case, compressed or not.
pub fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    for n in [name.to_owned(), format!("{name}.gz"), format!("{name}.zst")] {
        let p = dir.join(n);
        if p.exists() {
            return Some(p);
        }
    }
    None
}

/// Reads a module.
///
/// # Errors
/// See `scalify_load::load`.
pub fn module(path: &Path) -> anyhow::Result<Module> {
    Ok(scalify_load::load(path).map_err(|e| anyhow::anyhow!("{e}"))?.module)
}

/// Whether the first reported instruction names the planted line: on its
/// innermost frame, and on any frame of the report.
pub fn localised(case: &Case, o: &Outcome) -> (bool, bool) {
    let Some(item) = o.frontier.first() else { return (false, false) };
    let hit = |f: &scalify_prove::outcome::Frame| planted(case, &f.file, f.line);
    (item.frames.first().is_some_and(hit), item.frames.iter().any(hit))
}

/// Is the planted error of a case on (or, for an omission, beside) this line?
pub fn planted(case: &Case, file: &str, line: u32) -> bool {
    let Some(bug) = &case.bug else { return false };
    let tail = |f: &str| f.rsplit('/').next().unwrap_or("").to_owned();
    tail(file) == tail(&bug.file)
        && bug.lines.iter().chain(bug.near_lines.iter().flatten()).any(|&l| l == line)
}

/// Short name of a verdict.
pub fn word(v: Verdict) -> &'static str {
    match v {
        Verdict::Proved => "proved",
        Verdict::Refuted => "refuted",
        Verdict::Unknown => "unknown",
    }
}
