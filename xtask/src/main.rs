//! Chores of the workspace: `cargo run -p xtask -- <chore>`.
//!
//! Nothing here is part of the product, and the product's build never runs it.

mod codegen;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => codegen::run(),
        other => bail!("expected `codegen`, got {other:?}"),
    }
}
