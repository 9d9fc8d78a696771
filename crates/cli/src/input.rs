//! Reading modules.

use crate::output;
use scalify_ir::Module;
use scalify_ir::validate::{Severity, ValidateOptions, validate};
use scalify_load::LoadError;
use std::path::Path;

/// An error that is already laid out with the source line it is about.
#[derive(Debug)]
pub(crate) struct Rendered(pub(crate) String);

impl std::fmt::Display for Rendered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Rendered {}

/// Reads a module in any known format, compressed or not.
///
/// # Errors
/// Unreadable or malformed files.
pub(crate) fn load(path: &Path) -> anyhow::Result<Module> {
    match scalify_load::load(path) {
        Ok(l) => Ok(l.module),
        Err(LoadError::Text { name, source, text }) => {
            Err(Rendered(source.render(&name, &text, output::stderr_color())).into())
        }
        Err(e) => Err(e.into()),
    }
}

/// Reads a module and checks that it is well formed: shapes, groups, calls.
///
/// # Errors
/// Unreadable, malformed or ill-formed files; the latter with the place of the
/// first broken invariant.
pub(crate) fn load_valid(path: &Path) -> anyhow::Result<Module> {
    let loaded = match scalify_load::load(path) {
        Ok(l) => l,
        Err(LoadError::Text { name, source, text }) => {
            return Err(Rendered(source.render(&name, &text, output::stderr_color())).into());
        }
        Err(e) => return Err(e.into()),
    };
    // Real dumps convert float types between an operation and its operands.
    let options = ValidateOptions { mixed_precision: true, ..ValidateOptions::default() };
    let found = validate(&loaded.module, &options);
    let Some(bad) = found.into_iter().find(|i| i.severity == Severity::Error) else {
        return Ok(loaded.module);
    };
    let name = path.display().to_string();
    let whose = bad.instr.map(|i| format!("%{}: ", loaded.module.name_of(i))).unwrap_or_default();
    let message = format!("{whose}{}", bad.message);
    let Some(text) = loaded.text.filter(|_| bad.span.end > bad.span.start) else {
        anyhow::bail!("{name}: {message}, expected {}", bad.expected);
    };
    let before = text.get(..bad.span.start as usize).unwrap_or("");
    let line = before.bytes().filter(|&b| b == b'\n').count() as u32 + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() as u32 + 1;
    let error = scalify_hlo::ParseError {
        message,
        span: bad.span,
        line,
        column,
        expected: Some(bad.expected),
        labels: Vec::new(),
    };
    Err(Rendered(error.render(&name, &text, output::stderr_color())).into())
}

/// Reads two modules side by side.
///
/// # Errors
/// Those of [`load_valid`], the first file's first.
pub(crate) fn load_both(a: &Path, b: &Path) -> anyhow::Result<(Module, Module)> {
    let (x, y) = std::thread::scope(|s| {
        let other = s.spawn(|| load_valid(b));
        (load_valid(a), other.join())
    });
    let y = y.unwrap_or_else(|_| Err(anyhow::anyhow!("the reader of {} failed", b.display())));
    Ok((x?, y?))
}
