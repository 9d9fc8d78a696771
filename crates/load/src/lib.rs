//! Files to modules and back.
//!
//! **What lives here:** compression, recognition of formats from content, names
//! of compiler dumps, atomic saving. **What may not:** any parsing of a format
//! (`scalify-hlo`, `scalify-hlo-proto`).

mod dump;
mod error;
mod format;
mod save;
mod unpack;

pub use dump::{DumpFile, DumpModule, dump_modules};
pub use error::LoadError;
pub use format::{Format, Unsupported};
pub use save::{SaveFormat, save};
pub use unpack::Compression;

use scalify_ir::Module;
use std::path::Path;

/// Limits of loading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Most bytes that a file may have once it is decompressed.
    pub max_bytes: u64,
}

impl Default for Options {
    /// 8 GiB.
    fn default() -> Self {
        Options { max_bytes: 8 << 30 }
    }
}

/// A module and where it came from.
#[derive(Debug)]
pub struct Loaded {
    /// The module.
    pub module: Module,
    /// Format of the (decompressed) file.
    pub format: Format,
    /// Compression of the file.
    pub compression: Compression,
    /// Decompressed text that the module's spans point into; `None` for
    /// protos, whose spans are empty.
    pub text: Option<String>,
}

/// Loads the module in a file; see [`load_bytes_with`].
///
/// # Errors
/// If the file cannot be read, and as [`load_bytes_with`].
pub fn load(path: impl AsRef<Path>) -> Result<Loaded, LoadError> {
    load_with(path, Options::default())
}

/// [`load`] with limits.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: impl AsRef<Path>, options: Options) -> Result<Loaded, LoadError> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let (bytes, compression) = unpack::file(path, &name, options.max_bytes)?;
    parse(&name, bytes, compression)
}

/// [`load_bytes_with`] with the default limits.
///
/// # Errors
/// As [`load_bytes_with`].
pub fn load_bytes(name: &str, bytes: &[u8]) -> Result<Loaded, LoadError> {
    load_bytes_with(name, bytes, Options::default())
}

/// Loads a module from bytes: HLO text, `HloModuleProto`, `HloProto` or
/// `HloSnapshot`, plain or compressed with gzip or zstd. `name` stands in
/// messages.
///
/// # Errors
/// If the bytes are damaged, too large, of a format that is not supported, or
/// not a well-made module.
pub fn load_bytes_with(name: &str, bytes: &[u8], options: Options) -> Result<Loaded, LoadError> {
    let (bytes, compression) = unpack::bytes(name, bytes, options.max_bytes)?;
    parse(name, bytes, compression)
}

fn parse(name: &str, bytes: Vec<u8>, compression: Compression) -> Result<Loaded, LoadError> {
    let name = || name.to_owned();
    let format = format::recognise(&bytes)
        .map_err(|found| LoadError::Unsupported { name: name(), found })?;
    if format != Format::HloText {
        let module = scalify_hlo_proto::read(&bytes)
            .map_err(|source| LoadError::Proto { name: name(), source })?;
        return Ok(Loaded { module, format, compression, text: None });
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let before = &e.as_bytes()[..at];
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        LoadError::NotUtf8 { name: name(), line }
    })?;
    match scalify_hlo::parse(&text) {
        Ok(module) => Ok(Loaded { module, format, compression, text: Some(text) }),
        Err(e) => Err(LoadError::Text { name: name(), source: Box::new(e), text }),
    }
}
