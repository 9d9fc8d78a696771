//! Reading modules.

use crate::output;
use scalify_ir::Module;
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

/// Reads two modules side by side.
///
/// # Errors
/// Those of [`load`], the first file's first.
pub(crate) fn load_both(a: &Path, b: &Path) -> anyhow::Result<(Module, Module)> {
    let (x, y) = std::thread::scope(|s| {
        let other = s.spawn(|| load(b));
        (load(a), other.join())
    });
    let y = y.unwrap_or_else(|_| Err(anyhow::anyhow!("the reader of {} failed", b.display())));
    Ok((x?, y?))
}
