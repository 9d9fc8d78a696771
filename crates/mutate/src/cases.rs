//! Pairs on disk, in three layouts: a folder with `base.hlo.txt`, distributed
//! modules beside it and perhaps a `case.json`; a partitioner's records
//! (`base.input.hlo.txt`, `<name>.post_spmd.hlo.txt`, `<name>.io.json`); two
//! modules of one pipeline and no record.

use anyhow::Context;
use scalify_claim::Claim;
use scalify_corpus::{Case, find, module, third};
use scalify_ir::Module;
use std::path::{Path, PathBuf};

/// A pair that can be loaded.
#[derive(Clone, Debug)]
pub struct Source {
    /// Folder and form.
    pub name: String,
    dir: PathBuf,
    layout: Layout,
    form: String,
}

/// What the files of a folder are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// `base` and `<form>`.
    Hand,
    /// `base.input` and `<form>.post_spmd` with the partitioner's record.
    Records,
    /// The form names both files: `base:dist`.
    Files,
}

/// Pairs of files without a record.
const FILES: [&str; 6] = [
    "before:after",
    "base.input:tp.post_spmd",
    "base.input:fsdp.post_spmd",
    "base.input:base.opt",
    "tp.post_spmd:tp.opt",
    "fsdp.post_spmd:fsdp.opt",
];

/// A module's file. Constants may be elided in the text beside a proto.
fn file(dir: &Path, name: &str, proto: bool) -> Option<PathBuf> {
    let proto = proto.then(|| find(dir, &format!("{name}.hlo.pb"))).flatten();
    proto.or_else(|| find(dir, &format!("{name}.hlo.txt")))
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
/// Partitioners' records are of equivalent programs.
///
/// # Errors
/// If a folder or a `case.json` cannot be read.
pub fn sources(root: &Path) -> anyhow::Result<Vec<Source>> {
    let mut out = Vec::new();
    let read = std::fs::read_dir(root).with_context(|| root.display().to_string())?;
    for dir in read.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir()) {
        let folder = dir.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
        let mut add = |layout, form: &str| {
            let name = format!("{folder}/{form}");
            out.push(Source { name, dir: dir.clone(), layout, form: form.to_owned() });
        };
        if find(&dir, "base.hlo.txt").is_none() {
            for form in ["shardy", "gspmd"] {
                let files = ["base.input".to_owned(), format!("{form}.post_spmd")];
                if dir.join(format!("{form}.io.json")).exists()
                    && files.iter().all(|f| file(&dir, f, false).is_some())
                {
                    add(Layout::Records, form);
                }
            }
            for form in FILES {
                if form.split(':').all(|f| file(&dir, f, true).is_some()) {
                    add(Layout::Files, form);
                }
            }
            continue;
        }
        if dir.join("case.json").exists() && Case::read(&dir)?.expected != "equivalent" {
            continue;
        }
        for form in ["dist", "dist.body", "dist.spmd", "shard_map", "gspmd"] {
            if find(&dir, &format!("{form}.hlo.txt")).is_some() {
                add(Layout::Hand, form);
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
        let read = |n: &str| {
            let f = file(&self.dir, n, self.layout == Layout::Files);
            module(&f.with_context(|| format!("no {n}"))?)
        };
        let name = self.name.clone();
        match self.layout {
            Layout::Records => {
                return Ok(Pair {
                    name,
                    base: read("base.input")?,
                    dist: read(&format!("{}.post_spmd", self.form))?,
                    claim: third::read(&self.dir, &self.form)?.claim()?,
                });
            }
            Layout::Files => {
                let (b, d) = self.form.split_once(':').context("a pair of files")?;
                let (base, dist) = (read(b)?, read(d)?);
                return Ok(Pair { name, base, dist, claim: Claim::default() });
            }
            Layout::Hand => {}
        }
        let mut claim = Claim::default();
        if self.dir.join("case.json").exists() {
            claim = Case::read(&self.dir)?.claim()?;
        }
        if self.form == "dist.spmd" {
            // The partitioner chooses the layout of outputs itself.
            claim.outputs.clear();
        }
        Ok(Pair { name, base: read("base")?, dist: read(&self.form)?, claim })
    }
}

/// At most `n` of them, evenly chosen.
pub fn some(all: Vec<Source>, n: usize) -> Vec<Source> {
    let total = all.len();
    let keep = |k: &usize| n >= total || (k * n) / total != ((k + 1) * n) / total;
    all.into_iter().enumerate().filter(|(k, _)| keep(k)).map(|(_, s)| s).collect()
}
