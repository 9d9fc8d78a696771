//! The user's source files, as far as they can be read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Files above this size (bytes) are not shown.
const MAX_FILE: u64 = 8 << 20;

/// Finds and keeps source files by the names that compilers recorded.
#[derive(Debug, Default)]
pub struct Sources {
    roots: Vec<PathBuf>,
    files: BTreeMap<String, Option<String>>,
}

impl Sources {
    /// Looks for a file at its recorded path, then below each root: first the
    /// whole recorded path, then ever shorter ends of it.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        Sources { roots, files: BTreeMap::new() }
    }

    /// The text of a file, if found, readable, UTF-8 and not too big.
    pub fn text(&mut self, file: &str) -> Option<&str> {
        if !self.files.contains_key(file) {
            let text = self.find(file);
            self.files.insert(file.to_string(), text);
        }
        self.files.get(file)?.as_deref()
    }

    /// One line, numbered from 1, without its end.
    pub fn line(&mut self, file: &str, line: u32) -> Option<&str> {
        let n = (line as usize).checked_sub(1)?;
        self.text(file)?.lines().nth(n)
    }

    fn find(&self, file: &str) -> Option<String> {
        if file.is_empty() {
            return None;
        }
        // With roots given, they come first: the recorded path may be of
        // another version of the file on this machine.
        let parts: Vec<&str> = Path::new(file)
            .components()
            .filter_map(|c| match c {
                Component::Normal(p) => p.to_str(),
                _ => None,
            })
            .collect();
        for root in &self.roots {
            for from in 0..parts.len().min(64) {
                let mut p = root.clone();
                p.extend(parts.iter().skip(from));
                if let Some(t) = read(&p) {
                    return Some(t);
                }
            }
        }
        read(Path::new(file))
    }
}

fn read(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_FILE {
        return None;
    }
    fs::read_to_string(path).ok()
}
