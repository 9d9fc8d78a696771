//! Folders that XLA's `--xla_dump_to` writes: which files are dumps of which
//! module, in which order, after which pass.

use std::io;
use std::path::{Path, PathBuf};

/// Dumps of a folder at most.
const MAX_FILES: usize = 1_000_000;

/// A file of a dump: `module_0012.jit_f.0003.pipeline.after_x.before_y.txt`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpFile {
    /// Where it is.
    pub path: PathBuf,
    /// Module it belongs to, e.g. `module_0012.jit_f`.
    pub module: String,
    /// Number in the sequence of dumps; 0 and `u64::MAX` before and after all
    /// optimizations.
    pub step: u64,
    /// Rest of the name, e.g. `pipeline.after_x.before_y`.
    pub label: String,
}

/// All dumps of one module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpModule {
    /// Name with number, e.g. `module_0012.jit_f`.
    pub name: String,
    /// Its dumps in order; text and proto of one dump count once.
    pub files: Vec<DumpFile>,
}

impl DumpFile {
    /// What the name of a file says; `None` for other files.
    pub fn parse(path: PathBuf) -> Option<DumpFile> {
        let (module, step, label) = DumpFile::name(path.file_name()?.to_str()?)?;
        Some(DumpFile { path, module, step, label })
    }

    /// Module, step and label in the name of a file.
    fn name(file: &str) -> Option<(String, u64, String)> {
        let file = [".gz", ".zst"].iter().find_map(|e| file.strip_suffix(e)).unwrap_or(file);
        let ends = [".hlo.pb", ".txt", ".pb"];
        let stem = ends.iter().find_map(|e| file.strip_suffix(e))?;
        // A time may stand before the name.
        let at = stem.find("module_")?;
        let stamp = &stem[..at];
        if !stamp.is_empty() && !stamp.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return None;
        }
        let (number, rest) = stem[at + "module_".len()..].split_once('.')?;
        // The step is the first part of four digits; the name before it may
        // hold dots.
        let parts: Vec<&str> = rest.split('.').collect();
        let digits = |p: &&str| p.len() >= 4 && p.bytes().all(|b| b.is_ascii_digit());
        let module = |name: &[&str]| format!("module_{number}.{}", name.join("."));
        if let Some(k) = parts.iter().position(digits).filter(|&k| k > 0) {
            // 0 is before all.
            let step = parts[k].parse::<u64>().ok()?.saturating_add(1);
            return Some((module(&parts[..k]), step, parts[k + 1..].join(".")));
        }
        // `module_0012.jit_f.before_optimizations.txt`
        let k = parts
            .iter()
            .position(|p| *p == "before_optimizations" || p.ends_with("after_optimizations"))?;
        let name: Vec<&str> = parts[..k].iter().copied().filter(|p| !p.ends_with("_gpu")).collect();
        let step = if parts[k] == "before_optimizations" { 0 } else { u64::MAX };
        (k + 1 == parts.len()).then(|| (module(&name), step, parts[k].to_owned()))
    }

    /// The pipeline of passes that wrote it, e.g. `simplification`; empty if
    /// the name has none.
    pub fn pipeline(&self) -> &str {
        self.label.split_once(".after_").map_or("", |p| p.0)
    }

    /// The pass after which it was written, e.g. `algsimp`; `pipeline-start`
    /// at the start of a pipeline.
    pub fn pass(&self) -> &str {
        let Some((_, rest)) = self.label.split_once(".after_") else { return &self.label };
        rest.rsplit_once(".before_").map_or(rest, |p| p.0)
    }

    /// The pass that runs next, if the name says it.
    pub fn next_pass(&self) -> Option<&str> {
        let rest = self.label.split_once(".after_")?.1;
        rest.rsplit_once(".before_").map(|p| p.1)
    }
}

/// The modules of a dump folder by name, each with its dumps in order. Files
/// with other names are left out.
///
/// # Errors
/// If the folder cannot be read, or holds too many files.
pub fn dump_modules(dir: &Path) -> io::Result<Vec<DumpModule>> {
    let mut found: Vec<DumpFile> = Vec::new();
    for e in std::fs::read_dir(dir)? {
        found.extend(DumpFile::parse(e?.path()));
        if found.len() > MAX_FILES {
            return Err(io::Error::other(format!("more than {MAX_FILES} files")));
        }
    }
    // Protos come before text: they hold all constants.
    found.sort_by(|x, y| {
        (&x.module, x.step, &x.label, &x.path).cmp(&(&y.module, y.step, &y.label, &y.path))
    });
    found.dedup_by(|x, y| (&x.module, x.step, &x.label) == (&y.module, y.step, &y.label));
    let mut out: Vec<DumpModule> = Vec::new();
    for f in found {
        match out.last_mut().filter(|m| m.name == f.module) {
            Some(m) => m.files.push(f),
            None => out.push(DumpModule { name: f.module.clone(), files: vec![f] }),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(name: &str) -> Option<DumpFile> {
        DumpFile::parse(name.into())
    }

    #[test]
    fn names() {
        let d = dump("x/module_0137.jit__f.0003.simplification.after_dce.before_cse.txt").unwrap();
        assert_eq!((d.module.as_str(), d.step), ("module_0137.jit__f", 4));
        assert_eq!(d.label, "simplification.after_dce.before_cse");
        assert_eq!((d.pipeline(), d.pass()), ("simplification", "dce"));
        assert_eq!(d.next_pass(), Some("cse"));
        let first = dump("module_0001.jit_f.before_optimizations.txt").unwrap();
        let last = dump("module_0001.jit_f.cpu_after_optimizations.txt").unwrap();
        assert_eq!((first.step, last.step), (0, u64::MAX));
        assert_eq!((first.pipeline(), first.pass()), ("", "before_optimizations"));
        assert_eq!(first.module, last.module);
        let z = dump("module_0001.a.b.0010.copy-insertion.after_adding_copies.txt.gz").unwrap();
        assert_eq!((z.module.as_str(), z.step), ("module_0001.a.b", 11));
        assert_eq!((z.pipeline(), z.pass()), ("copy-insertion", "adding_copies"));
        let t = dump("1700000000.module_0001.f.0000.p.after_x.before_y.hlo.pb").unwrap();
        assert_eq!((t.module.as_str(), t.step), ("module_0001.f", 1));
        let other = [
            "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt",
            "module_0001.jit_f.0001.x.after_y.ll",
            "notes.txt",
            "my module_0001.f.0000.x.txt",
        ];
        for o in other {
            assert_eq!(dump(o), None, "{o}");
        }
    }
}
