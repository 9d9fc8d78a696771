//! Renders the outcome of a verification for people ([`text`]) and programs
//! ([`json`]).
//!
//! **What lives here:** layout and wording of reports.
//!
//! **What may not:** decisions. Verdicts, order of the frontier and reasons
//! come from `scalify-prove` as they are.

pub mod html;
pub mod json;
pub mod machine;
mod names;
pub mod sources;
pub mod text;
pub mod values;

use scalify_ir::{DType, Module};
use scalify_prove::problem::Problem;
use scalify_refute::domain::Profile;
use scalify_refute::{Counterexample, Decision, Repair};

/// What a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The result.
    pub decision: &'a Decision,
    /// What was to be decided: pairing and placements of inputs.
    pub problem: &'a Problem,
    /// The single-device program.
    pub base: &'a Module,
    /// The distributed program.
    pub dist: &'a Module,
    /// File name of `base`, as the user gave it.
    pub base_file: &'a str,
    /// File name of `dist`.
    pub dist_file: &'a str,
    /// Seed of the drawn inputs.
    pub seed: u64,
    /// Folder that the witness was saved in.
    pub witness: Option<&'a str>,
}

/// How the inputs of a counterexample were drawn, in words.
fn draw(c: &Counterexample) -> &'static str {
    match c.profile {
        Profile::Simple => "small multiples of 1/4",
        Profile::Normal => "standard normal",
        Profile::Positive => "between 1/2 and 3/2",
        Profile::Small => "normal, scaled by 1/256",
        Profile::Large => "normal, scaled by 8",
        Profile::Mixed => "each at a scale of its own",
        Profile::Ends => "integers at the ends of their ranges",
    }
}

/// Element type of an output of the baseline.
fn output_type(base: &Module, output: usize) -> Option<DType> {
    let root = base.comps.get(base.entry.0 as usize)?.root;
    let shape = base.shapes.get(base.instrs.get(root.0 as usize)?.shape.0 as usize)?;
    shape.leaves().get(output)?.dtype()
}

/// `with all-reduce over tp after %dot.17 (model.py:211) the outputs are
/// PROVED equal (reassociated)`.
fn repair_sentence(s: &Subject<'_>, r: &Repair) -> String {
    let at = names::frames(s.dist, r.at)
        .first()
        // The edit may name its line already.
        .filter(|f| {
            let base = f.file.rsplit(['/', '\\']).next().unwrap_or(&f.file);
            !r.text.contains(&format!("{base}:{}", f.line))
        })
        .map(|f| format!(" ({}:{})", f.file, f.line))
        .unwrap_or_default();
    match r.grade {
        Some(g) => {
            format!("with {}{at} the outputs are PROVED equal ({})", r.text, names::grade(g))
        }
        None => format!("with {}{at} the outputs agree on the inputs tried; not proved", r.text),
    }
}
