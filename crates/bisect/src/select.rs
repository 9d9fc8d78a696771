//! Which modules and dumps are looked at.

use globset::{Glob, GlobMatcher};
use scalify_load::{DumpFile, DumpModule};

/// Why nothing can be selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// A pattern that is none.
    #[error("{option}: {source}")]
    Pattern {
        /// The option.
        option: &'static str,
        /// What is wrong.
        source: globset::Error,
    },
    /// No module has this name.
    #[error("no module `{pattern}`, found {found}")]
    NoModule {
        /// As given.
        pattern: String,
        /// Names of some modules.
        found: String,
    },
    /// No dump was written after this pass.
    #[error("{option}: {module} has no dump after a pass `{pattern}`, the passes are {found}")]
    NoPass {
        /// The option.
        option: &'static str,
        /// The module.
        module: String,
        /// As given.
        pattern: String,
        /// Names of some passes.
        found: String,
    },
}

/// Modules by name and dumps by pass. Patterns are globs; a pass matches by its
/// name (`algsimp`) or by the whole label
/// (`simplification.after_algsimp.before_dce`).
#[derive(Clone, Debug, Default)]
pub struct Selection {
    module: Option<GlobMatcher>,
    from: Option<GlobMatcher>,
    to: Option<GlobMatcher>,
}

/// Names listed in messages at most.
const MAX_NAMES: usize = 12;

fn some<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut list: Vec<&str> = Vec::new();
    let mut more = false;
    for n in names {
        if list.contains(&n) {
            continue;
        }
        if list.len() == MAX_NAMES {
            more = true;
            break;
        }
        list.push(n);
    }
    let text = list.join(", ");
    if more { format!("{text}, ..") } else { text }
}

impl Selection {
    /// All modules that match `module`, from the first dump after a pass that
    /// matches `from` to the last dump after one that matches `to`.
    ///
    /// # Errors
    /// Bad patterns.
    pub fn new(
        module: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Selection, SelectError> {
        let glob = |option, text: Option<&str>| {
            text.map(|t| {
                Glob::new(t)
                    .map(|g| g.compile_matcher())
                    .map_err(|source| SelectError::Pattern { option, source })
            })
            .transpose()
        };
        Ok(Selection {
            module: glob("--module", module)?,
            from: glob("--from", from)?,
            to: glob("--to", to)?,
        })
    }

    /// The modules that match; a name matches with or without its
    /// `module_NNNN.`.
    ///
    /// # Errors
    /// If none does.
    pub fn modules(&self, all: Vec<DumpModule>) -> Result<Vec<DumpModule>, SelectError> {
        let Some(glob) = &self.module else { return Ok(all) };
        let found = some(all.iter().map(|m| m.name.as_str()));
        let hit = |m: &DumpModule| {
            let short = m.name.split_once('.').map_or("", |p| p.1);
            glob.is_match(&m.name) || glob.is_match(short)
        };
        let out: Vec<DumpModule> = all.into_iter().filter(hit).collect();
        if out.is_empty() {
            let pattern = glob.glob().to_string();
            return Err(SelectError::NoModule { pattern, found });
        }
        Ok(out)
    }

    /// The dumps of a module that are looked at, in order.
    ///
    /// # Errors
    /// If no dump is there after `from` or `to`.
    pub fn dumps<'m>(&self, m: &'m DumpModule) -> Result<&'m [DumpFile], SelectError> {
        let hit = |g: &GlobMatcher, f: &DumpFile| g.is_match(f.pass()) || g.is_match(&f.label);
        let none = |option, g: &GlobMatcher| SelectError::NoPass {
            option,
            module: m.name.clone(),
            pattern: g.glob().to_string(),
            found: some(m.files.iter().map(DumpFile::pass)),
        };
        let begin = match &self.from {
            Some(g) => m.files.iter().position(|f| hit(g, f)).ok_or_else(|| none("--from", g))?,
            None => 0,
        };
        let rest = m.files.get(begin..).unwrap_or(&[]);
        let len = match &self.to {
            Some(g) => {
                let last = rest.iter().rposition(|f| hit(g, f));
                last.ok_or_else(|| none("--to", g))? + 1
            }
            None => rest.len(),
        };
        Ok(rest.get(..len).unwrap_or(&[]))
    }
}
