//! `scalify convert`.

use crate::args::{ConvertArgs, ModuleFormat};
use crate::{Exit, input, output};
use anyhow::Context as _;
use scalify_load::SaveFormat;
use std::path::Path;

/// Writes a module: proto if the name ends in .pb, else text.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(module: &scalify_ir::Module, path: &Path) -> anyhow::Result<()> {
    let proto = path.extension().and_then(|e| e.to_str()) == Some("pb");
    let format = if proto { SaveFormat::HloModuleProto } else { SaveFormat::HloText };
    Ok(scalify_load::save(module, path, format)?)
}

pub(crate) fn run(a: &ConvertArgs) -> anyhow::Result<Exit> {
    let module = input::load(&a.input)?;
    let proto = a.output.extension().and_then(|e| e.to_str()) == Some("pb");
    let format = a.to.unwrap_or(if proto { ModuleFormat::Proto } else { ModuleFormat::Text });
    let special = std::fs::metadata(&a.output).is_ok_and(|m| !m.is_file() && !m.is_dir());
    if a.output != Path::new("-") && !special {
        let format = match format {
            ModuleFormat::Text => SaveFormat::HloText,
            ModuleFormat::Proto => SaveFormat::HloModuleProto,
        };
        scalify_load::save(&module, &a.output, format)?;
        return Ok(Exit::Success);
    }
    let data = match format {
        ModuleFormat::Text => scalify_hlo::write(&module, &Default::default()).into_bytes(),
        ModuleFormat::Proto => scalify_hlo_proto::write(&module),
    };
    if special {
        // Pipes and devices are written to, not replaced.
        std::fs::write(&a.output, &data)
            .with_context(|| format!("cannot write {}", a.output.display()))?;
    } else {
        output::bytes(&data)?;
    }
    Ok(Exit::Success)
}
