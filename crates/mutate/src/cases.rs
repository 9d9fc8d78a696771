//! Pairs on disk.

use anyhow::Context;
use scalify_claim::Claim;
use scalify_corpus::{Case, find, module};
use scalify_ir::Module;
use std::path::{Path, PathBuf};

/// A pair that can be loaded.
#[derive(Clone, Debug)]
pub struct Source {
    /// Folder and form.
    pub name: String,
    dir: PathBuf,
    form: String,
}

/// Two modules and what is claimed of them.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Folder and form.
    pub name: String,
    /// Baseline.
    pub base: Module,
    /// Distributed program.
    pub dist: Module,
    /// The claim.
    pub claim: Claim,
}

/// All pairs that should be equivalent in the folders of `root`, sorted by
/// name: those with a `case.json` that says so, and without one all.
///
/// # Errors
/// If a folder or a `case.json` cannot be read.
pub fn sources(root: &Path) -> anyhow::Result<Vec<Source>> {
    let mut out = Vec::new();
    let read = std::fs::read_dir(root).with_context(|| root.display().to_string())?;
    for dir in read.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir()) {
        if find(&dir, "base.hlo.txt").is_none() {
            continue;
        }
        if dir.join("case.json").exists() && Case::read(&dir)?.expected != "equivalent" {
            continue;
        }
        let folder = dir.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
        for form in ["dist", "dist.body", "dist.spmd", "shard_map", "gspmd"] {
            if find(&dir, &format!("{form}.hlo.txt")).is_some() {
                let name = format!("{folder}/{form}");
                out.push(Source { name, dir: dir.clone(), form: form.to_owned() });
            }
        }
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(out)
}

impl Source {
    /// Reads the pair.
    ///
    /// # Errors
    /// If a file is missing or malformed.
    pub fn load(&self) -> anyhow::Result<Pair> {
        let file = |n: &str| find(&self.dir, n).with_context(|| format!("no {n}"));
        let mut claim = Claim::default();
        if self.dir.join("case.json").exists() {
            claim = Case::read(&self.dir)?.claim()?;
        }
        if self.form == "dist.spmd" {
            // The partitioner chooses the layout of outputs itself.
            claim.outputs.clear();
        }
        Ok(Pair {
            name: self.name.clone(),
            base: module(&file("base.hlo.txt")?)?,
            dist: module(&file(&format!("{}.hlo.txt", self.form))?)?,
            claim,
        })
    }
}

/// At most `n` of them, evenly chosen.
pub fn some(all: Vec<Source>, n: usize) -> Vec<Source> {
    let total = all.len();
    let keep = |k: &usize| n >= total || (k * n) / total != ((k + 1) * n) / total;
    all.into_iter().enumerate().filter(|(k, _)| keep(k)).map(|(_, s)| s).collect()
}
