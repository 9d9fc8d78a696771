//! Generates the Rust code of the protobuf messages.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Path of the generated file and its fresh content.
pub(crate) fn hlo_proto() -> Result<(PathBuf, String)> {
    let dir = root().join("crates/hlo-proto");
    let files = protox::compile(["hlo.proto"], [dir.join("proto")]).context("hlo.proto")?;
    let mut config = prost_build::Config::new();
    config.btree_map(["."]);
    let requests = files
        .file
        .into_iter()
        .map(|f| (prost_build::Module::from_protobuf_package_name(f.package()), f))
        .collect();
    let code = config.generate(requests)?;
    let module = prost_build::Module::from_protobuf_package_name("xla");
    let body = code.get(&module).context("no package xla")?;
    let text = format!(
        "// Generated from proto/*.proto by `cargo run -p xtask -- codegen`. Do not edit.\n{body}"
    );
    Ok((dir.join("src/gen/xla.rs"), text))
}

/// Writes every generated file.
pub(crate) fn run() -> Result<()> {
    let (path, text) = hlo_proto()?;
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn generated_code_is_fresh() {
        let (path, text) = super::hlo_proto().unwrap();
        let found = std::fs::read_to_string(path).unwrap();
        assert!(found == text, "stale: run `cargo run -p xtask -- codegen`");
    }
}
