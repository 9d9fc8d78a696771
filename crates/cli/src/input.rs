//! Reading modules.

use crate::output;
use scalify_ir::validate::{Severity, ValidateOptions, validate};
use scalify_ir::{Module, Span};
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
    Ok(load_valid_with_text(path)?.0)
}

/// [`load_valid`], with the text that spans point into if it is text.
///
/// # Errors
/// Those of [`load_valid`].
pub(crate) fn load_valid_with_text(path: &Path) -> anyhow::Result<(Module, Option<String>)> {
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
        return Ok((loaded.module, loaded.text));
    };
    let name = path.display().to_string();
    let whose = bad.instr.map(|i| format!("%{}: ", loaded.module.name_of(i))).unwrap_or_default();
    let message = format!("{whose}{}", bad.message);
    Err(at_place(&name, loaded.text.as_deref(), bad.span, message, bad.expected))
}

/// An error about a place in a file: laid out with its line if `text` is there.
pub(crate) fn at_place(
    name: &str,
    text: Option<&str>,
    span: Span,
    message: String,
    expected: String,
) -> anyhow::Error {
    let Some(text) = text.filter(|_| span.end > span.start) else {
        return anyhow::anyhow!("{name}: {message}, expected {expected}");
    };
    let before = text.get(..span.start as usize).unwrap_or("");
    let line = before.bytes().filter(|&b| b == b'\n').count() as u32 + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() as u32 + 1;
    let error = scalify_hlo::ParseError {
        message,
        span,
        line,
        column,
        expected: Some(expected),
        labels: Vec::new(),
    };
    Rendered(error.render(name, text, output::stderr_color())).into()
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
