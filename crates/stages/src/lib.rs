//! Pipelines of which every stage is a program of its own, joined into one
//! program.
//!
//! **What lives here:** which values pass from stage to stage (declared, by
//! position, or by channel), and the module in which they do.
//!
//! **What may not:** reading files (`scalify-load`), layouts and verdicts
//! (`scalify-claim`, `scalify-prove`).

mod channels;
mod error;
mod join;
mod wiring;

pub use error::StageError;
pub use join::{Joined, join};
