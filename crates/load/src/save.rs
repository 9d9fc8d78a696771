//! Saving, all or nothing.

use crate::LoadError;
use scalify_ir::Module;
use std::io::Write;
use std::path::Path;

/// A format that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SaveFormat {
    /// HLO text with metadata and all constants.
    HloText,
    /// `xla.HloModuleProto`.
    HloModuleProto,
}

/// Saves a module. The file is written beside its place and then renamed: a
/// reader sees the old file or the whole new one, and a failure leaves
/// nothing behind.
///
/// # Errors
/// If the operating system refuses.
pub fn save(m: &Module, path: impl AsRef<Path>, format: SaveFormat) -> Result<(), LoadError> {
    let path = path.as_ref();
    let bytes = match format {
        SaveFormat::HloText => {
            scalify_hlo::write(m, &scalify_hlo::WriteOptions::default()).into_bytes()
        }
        SaveFormat::HloModuleProto => scalify_hlo_proto::write(m),
    };
    let io =
        |action| move |source| LoadError::Io { name: path.display().to_string(), action, source };
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    // Removed when dropped unless it is persisted.
    let mut file = tempfile::Builder::new()
        .prefix(".scalify-")
        .tempfile_in(folder)
        .map_err(io("create a file beside it"))?;
    file.write_all(&bytes).map_err(io("write"))?;
    file.as_file().sync_all().map_err(io("write"))?;
    set_mode(file.as_file(), path).map_err(io("set its permissions"))?;
    file.persist(path).map_err(|e| io("replace it")(e.error))?;
    Ok(())
}

/// Permissions of the file that is replaced, else those of a new file.
#[cfg(unix)]
fn set_mode(file: &std::fs::File, path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = match std::fs::metadata(path) {
        Ok(m) => m.permissions().mode() & 0o777,
        Err(_) => 0o644,
    };
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_: &std::fs::File, _: &Path) -> std::io::Result<()> {
    Ok(())
}
