//! HLO modules in XLA's protobuf form: [`read`] and [`write`].
//!
//! **What lives here:** the wire messages (`proto/*.proto`, generated code in
//! `gen/`), the translation between them and [`scalify_ir::Module`], and the
//! recognition of the message kinds that hold a module.
//!
//! **What may not:** files and compression (`scalify-load`), HLO text
//! (`scalify-hlo`), any judgement of what a module computes.
//!
//! HLO text is the reference for meaning: a module read from its proto equals
//! the module read from its text. Where the IR keeps an attribute "as
//! printed", the reader prints it as XLA does and the writer parses it back.

mod error;
mod forms;
mod kind;
mod names;
mod raw;
mod read;
mod wire;
mod write;

/// Generated messages.
#[rustfmt::skip]
#[allow(dead_code, missing_docs, unreachable_pub, clippy::all)]
mod xla {
    include!("gen/xla.rs");
}

pub use error::ProtoError;
pub use kind::{MessageKind, recognise};
pub use read::read;
pub use write::write;
