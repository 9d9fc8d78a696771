//! Cost of programs: what instructions compute and move, from the program
//! alone; and what they took, from traces of profilers.
//!
//! **What lives here:** static cost ([`cost`]), readers of traces ([`trace`]),
//! attaching events to instructions, peaks and rooflines, reports.
//!
//! **What may not:** anything of the prover or the numbers of a program; the
//! findings of `scalify diff` come in as JSON.

pub mod cost;
pub mod peaks;
pub mod trace;
