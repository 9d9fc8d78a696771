//! Prover of Scalify (stub: result data model and call signatures only).

pub mod outcome;

use outcome::{ExplainStep, Outcome, Stats, Verdict};
use scalify_claim::Claim;
use scalify_ir::{InstrId, Module};
use std::time::Duration;

/// Receives progress of a verification; called from several threads.
pub trait Progress: Sync {
    /// A phase begins; `total` steps if known.
    fn phase(&self, name: &str, total: Option<u64>);
    /// `n` more steps of the phase are done.
    fn advance(&self, n: u64);
}

/// Limits and observers of a verification.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Worker threads; 0: one per core.
    pub threads: usize,
    /// Wall time.
    pub time_limit: Option<Duration>,
    /// Bytes.
    pub memory_limit: Option<u64>,
    /// Observer.
    pub progress: Option<&'a dyn Progress>,
}

/// Verifies that `dist` computes `base` under `claim`.
pub fn verify(base: &Module, dist: &Module, claim: &Claim, options: &Options<'_>) -> Outcome {
    let _ = (claim, options.threads, options.progress);
    Outcome {
        verdict: Verdict::Unknown,
        grade: None,
        assumptions: vec![],
        regrouped: vec![],
        outputs: vec![],
        frontier: vec![],
        mesh: claim.mesh.as_ref().map(|m| m.axes.clone()).unwrap_or_default(),
        notes: vec!["stub prover".into()],
        exhausted: None,
        stats: Stats {
            base_instructions: base.instrs.len(),
            dist_instructions: dist.instrs.len(),
            ..Stats::default()
        },
    }
}

/// The steps behind the relation of a distributed instruction.
pub fn explain(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    instr: InstrId,
) -> Vec<ExplainStep> {
    let _ = (base, dist, claim, options.threads, instr);
    vec![]
}
