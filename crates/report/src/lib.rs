//! Renders the outcome of a verification for people ([`text`]) and programs
//! ([`json`]).
//!
//! **What lives here:** layout and wording of reports.
//!
//! **What may not:** decisions. Verdicts, order of the frontier and reasons
//! come from `scalify-prove` as they are.

pub mod json;
mod names;
pub mod sources;
pub mod text;

use scalify_ir::Module;
use scalify_prove::outcome::Outcome;

/// What a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The result.
    pub outcome: &'a Outcome,
    /// The single-device program.
    pub base: &'a Module,
    /// The distributed program.
    pub dist: &'a Module,
    /// File name of `base`, as the user gave it.
    pub base_file: &'a str,
    /// File name of `dist`.
    pub dist_file: &'a str,
}
