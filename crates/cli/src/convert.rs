//! `scalify convert`.

use crate::args::{ConvertArgs, ModuleFormat};
use crate::{Exit, input, output};
use anyhow::Context as _;
use std::path::Path;

pub(crate) fn run(a: &ConvertArgs) -> anyhow::Result<Exit> {
    let module = input::load(&a.input)?;
    let proto = a.output.extension().and_then(|e| e.to_str()) == Some("pb");
    let format = a.to.unwrap_or(if proto { ModuleFormat::Proto } else { ModuleFormat::Text });
    let data = match format {
        ModuleFormat::Text => scalify_hlo::write(&module, &Default::default()).into_bytes(),
        ModuleFormat::Proto => scalify_hlo_proto::write(&module),
    };
    if a.output == Path::new("-") {
        output::bytes(&data)?;
    } else {
        std::fs::write(&a.output, &data)
            .with_context(|| format!("cannot write {}", a.output.display()))?;
    }
    Ok(Exit::Success)
}
