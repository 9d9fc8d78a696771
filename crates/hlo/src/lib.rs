//! Reads and writes XLA's HLO text format.
//!
//! **What lives here:** the grammar and nothing else. [`parse`] turns text
//! into a [`Module`] with every span set, [`write()`] turns a module into text
//! that XLA reads.
//!
//! **What may not:** checks of meaning (shapes that fit an opcode,
//! dimensions in range), which belong to `scalify-ir`; any evaluation.
//!
//! The reader accepts what XLA's own parser accepts, and beyond that:
//! instructions and computations in any order, header attributes it does not
//! know, signatures without a module header.
//!
//! ```
//! let m = scalify_hlo::parse(
//!     "HloModule double
//!      ENTRY main {
//!        x = f32[4] parameter(0)
//!        ROOT y = f32[4] add(x, x)
//!      }",
//! )?;
//! assert_eq!(m.name_of(m.entry_comp().root), "y");
//! let text = scalify_hlo::write(&m, &Default::default());
//! assert!(text.contains("ROOT %y = f32[4] add(%x, %x)"));
//! # Ok::<(), scalify_hlo::ParseError>(())
//! ```

mod attrs;
mod build;
mod cursor;
mod error;
mod escape;
mod float;
mod groups;
mod header;
mod infer;
mod instr;
mod keys;
mod literal;
mod order;
mod reader;
mod shape;
mod sharding;
mod write;

pub use error::ParseError;
pub use escape::{from_bytes, to_bytes};
pub use write::{InstructionText, WriteOptions, write};

use scalify_ir::Module;

/// Reads a module from HLO text.
///
/// # Errors
/// The first place where the text is no HLO module. Texts of 4 GiB and more
/// are refused.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    reader::read(text).map_err(|e| *e)
}
