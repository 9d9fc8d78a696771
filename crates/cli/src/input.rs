//! Reading modules.

use crate::output;
use scalify_ir::Module;
use std::io::Read as _;
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

/// Largest file, unpacked (bytes).
const MAX_FILE: u64 = 4 << 30;

/// Reads a module in any known format.
///
/// # Errors
/// Unreadable or malformed files.
pub(crate) fn load(path: &Path) -> anyhow::Result<Module> {
    let name = path.display().to_string();
    let fail = |e: std::io::Error| anyhow::anyhow!("cannot read {name}: {e}");
    let mut data = Vec::new();
    std::fs::File::open(path).map_err(fail)?.read_to_end(&mut data).map_err(fail)?;
    if data.starts_with(&[0x1f, 0x8b]) {
        let mut out = Vec::new();
        let gz = flate2::read::MultiGzDecoder::new(data.as_slice());
        gz.take(MAX_FILE + 1).read_to_end(&mut out).map_err(fail)?;
        data = out;
    }
    anyhow::ensure!(data.len() as u64 <= MAX_FILE, "{name} is larger than 4 GiB");
    if scalify_hlo_proto::recognise(&data).is_some() {
        return scalify_hlo_proto::read(&data).map_err(|e| anyhow::anyhow!("{name}: {e}"));
    }
    let text = match String::from_utf8(data) {
        Ok(t) => t,
        Err(_) => anyhow::bail!("{name} is neither HLO text nor an HLO protobuf"),
    };
    scalify_hlo::parse(&text)
        .map_err(|e| Rendered(e.render(&name, &text, output::stderr_color())).into())
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
