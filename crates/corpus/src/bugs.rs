//! Cases of `tests/bugs`: one baseline and several right and wrong programs of
//! a reported fault. Reads them and makes their claims; judges nothing.

use crate::{Case, MeshJson, Value};
use anyhow::Context;
use scalify_claim::Claim;
use serde::Deserialize;
use std::path::Path;

/// `case.json` of a reported fault.
#[derive(Clone, Debug, Deserialize)]
pub struct BugCase {
    /// Name, the same as the folder's.
    pub name: String,
    /// Public reports.
    pub links: Vec<String>,
    /// One sentence.
    pub about: String,
    /// Mesh; no axes: all programs run on one device.
    pub mesh: MeshJson,
    /// Inputs in the order of the parameters of every program.
    pub inputs: Vec<Value>,
    /// Outputs in the order of the result tuple.
    pub outputs: Vec<Value>,
    /// The programs to compare with the baseline.
    pub graphs: Vec<Graph>,
}

/// One program to compare with the baseline.
#[derive(Clone, Debug, Deserialize)]
pub struct Graph {
    /// File in the folder of the case.
    pub file: String,
    /// `equivalent` or `different`.
    pub expected: String,
    /// Kind of the fault, if different.
    pub kind: Option<String>,
    /// Names of the instructions that hold the fault, if different.
    #[serde(default)]
    pub guilty: Vec<String>,
    /// Why it is right, or what is wrong.
    #[serde(default)]
    pub note: String,
    /// In place of the case's.
    pub mesh: Option<MeshJson>,
    /// In place of the case's.
    pub inputs: Option<Vec<Value>>,
    /// In place of the case's.
    pub outputs: Option<Vec<Value>>,
}

impl BugCase {
    /// Reads `case.json` of a folder.
    ///
    /// # Errors
    /// If the file is missing, not of this form, or expects something else
    /// than `equivalent` or `different` of a program.
    pub fn read(dir: &Path) -> anyhow::Result<BugCase> {
        let path = dir.join("case.json");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let case: BugCase =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        for g in &case.graphs {
            let fault = g.kind.is_some() && !g.guilty.is_empty();
            if !matches!((g.expected.as_str(), fault), ("equivalent", false) | ("different", true))
            {
                anyhow::bail!("{}: {}: no clear expectation", path.display(), g.file);
            }
        }
        Ok(case)
    }

    /// The claim under which a program is compared with the baseline.
    ///
    /// # Errors
    /// If the mesh is malformed.
    pub fn claim(&self, graph: &Graph) -> anyhow::Result<Claim> {
        let case = Case {
            name: self.name.clone(),
            family: String::new(),
            parallelism: String::new(),
            mesh: graph.mesh.as_ref().unwrap_or(&self.mesh).clone(),
            inputs: graph.inputs.as_ref().unwrap_or(&self.inputs).clone(),
            outputs: graph.outputs.as_ref().unwrap_or(&self.outputs).clone(),
            expected: graph.expected.clone(),
            bug: None,
            kept_inputs: None,
        };
        case.claim()
    }
}
