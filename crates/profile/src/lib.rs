//! Cost of programs: what instructions compute and move, from the program
//! alone; and what they took, from traces of profilers.
//!
//! **What lives here:** static cost ([`cost`]), readers of traces ([`trace`]),
//! attaching events to instructions, peaks and rooflines, reports.
//!
//! **What may not:** anything of the prover or the numbers of a program; the
//! findings of `scalify diff` come in as JSON.

pub mod attach;
pub mod compare;
pub mod cost;
mod html;
pub mod peaks;
pub mod report;
mod text;
pub mod trace;
