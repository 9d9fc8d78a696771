//! Numeric debugging of programs.
//!
//! **What lives here:** the operations that a run executes ([`flow`]), pairs
//! of values of two runs ([`pairing`]), errors of each operation against what
//! rounding allows ([`bound`], [`analyze`]), the whole comparison ([`diff`]),
//! end to end over samples of the inputs ([`sample`]), values recorded elsewhere
//! ([`traced`]); the first NaN or infinity
//! ([`nan`]) and programs that report it themselves ([`instrument`]); reports.
//!
//! **What may not:** file formats, rendering for terminals, laws of the prover.

pub mod analyze;
pub mod bound;
mod complex_step;
pub mod diff;
pub mod flow;
pub mod gradcheck;
mod html;
pub mod instrument;
pub mod nan;
pub mod pairing;
pub mod report;
pub mod sample;
mod segment;
pub mod symbolic;
pub mod traced;
pub mod values;
