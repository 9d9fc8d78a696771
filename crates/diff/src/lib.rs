//! Numeric debugging of programs.
//!
//! **What lives here:** the operations that a run executes ([`flow`]), pairs
//! of values of two runs ([`pairing`]), errors of each operation against what
//! rounding allows ([`bound`], [`analyze`]), the whole comparison ([`diff`]).
//!
//! **What may not:** file formats, rendering for terminals, laws of the prover.

pub mod analyze;
pub mod bound;
pub mod diff;
pub mod flow;
pub mod pairing;
