//! Edits of the distributed program with which the proof goes through.

use crate::search::{Counterexample, Refuter};
use scalify_claim::Claim;
use scalify_ir::{InstrId, Module};
use scalify_prove::outcome::{Grade, Outcome};
use std::time::Duration;

/// An edit after which the programs are proved equal.
#[derive(Clone, Debug)]
pub struct Repair {
    /// Kind of the fault that it mends, as [`scalify_prove::outcome::FrontierItem::code`].
    pub code: &'static str,
    /// The instruction of the distributed program that it changes or follows.
    pub at: InstrId,
    /// What it does, to be read after "with": `all-reduce (add) over tp after %dot.17`.
    pub text: String,
    /// Grade of the proof with it.
    pub grade: Option<Grade>,
    /// The repaired module.
    pub module: Module,
}

/// Tries repairs until the time is over.
#[allow(unused_variables)]
pub fn search(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    outcome: &Outcome,
    refuter: &Refuter<'_>,
    example: &Counterexample,
    time: Duration,
) -> Vec<Repair> {
    Vec::new()
}

/// Puts the instruction that the first repair changes first on the frontier.
#[allow(unused_variables)]
pub fn promote(outcome: &mut Outcome, dist: &Module, repairs: &[Repair]) {}
