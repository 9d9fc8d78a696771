//! The whole decision: prove, else refute, else say what was seen.

use crate::repair::{self, Repair};
use crate::search::{Counterexample, Evidence, Options, Refuter, Search};
use scalify_claim::Claim;
use scalify_ir::Module;
use scalify_prove::outcome::{Outcome, Verdict};
use scalify_prove::problem;
use std::time::{Duration, Instant};

/// What to do beyond the proof.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Look for a counterexample where there is no proof.
    pub refute: bool,
    /// Limits of that search.
    pub search: Options,
    /// Time for repairs; zero: none are tried.
    pub repair: Duration,
    /// Evaluate proved pairs too.
    pub cross_check: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            refute: true,
            search: Options::default(),
            repair: Duration::from_secs(10),
            cross_check: false,
        }
    }
}

/// A verdict with everything behind it.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Verdict, relations, frontier. Its verdict is that of the whole.
    pub outcome: Outcome,
    /// Inputs on which the programs differ, if refuted.
    pub counterexample: Option<Box<Counterexample>>,
    /// What evaluation showed where there is no counterexample.
    pub evidence: Option<Evidence>,
    /// Why the programs were not evaluated, if they were to be.
    pub unable: Option<String>,
    /// Edits of the distributed program with which the proof goes through,
    /// the likeliest first.
    pub repairs: Vec<Repair>,
}

/// Proves or refutes that `dist` computes `base` under `claim`. A time limit of
/// `prover` covers the search too.
pub fn decide(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    plan: &Plan,
) -> Decision {
    let start = Instant::now();
    let outcome = scalify_prove::verify(base, dist, claim, prover);
    let mut d = Decision {
        outcome,
        counterexample: None,
        evidence: None,
        unable: None,
        repairs: Vec::new(),
    };
    let proved = d.outcome.verdict == Verdict::Proved;
    if !(plan.refute && !proved || plan.cross_check && proved) {
        return d;
    }
    let phase = |name| {
        if let Some(p) = prover.progress {
            p.phase(name, None);
        }
    };
    phase("evaluating both programs");
    let mut search = plan.search;
    if let Some(limit) = prover.time_limit {
        search.time = search.time.min(limit.saturating_sub(start.elapsed()));
    }
    let p = problem::setup(base, dist, claim);
    let refuter = match Refuter::new(base, dist, &p, claim, search) {
        Ok(r) => r,
        Err(e) => {
            d.unable = Some(e);
            return d;
        }
    };
    match refuter.search() {
        Search::Differ(c) if proved => {
            // One of the two is wrong: neither is to be believed.
            d.outcome.verdict = Verdict::Unknown;
            d.outcome.grade = None;
            d.outcome.notes.push(
                "internal error: proved equal, but evaluation differs; please report the two files"
                    .to_owned(),
            );
            d.counterexample = Some(c);
        }
        Search::Differ(c) => {
            d.outcome.verdict = Verdict::Refuted;
            for x in &c.outputs {
                if let Some(o) = d.outcome.outputs.get_mut(x.output) {
                    if o.verdict != Verdict::Proved {
                        o.verdict = Verdict::Refuted;
                    }
                }
            }
            if !plan.repair.is_zero() {
                phase("looking for a repair");
                d.repairs = repair::search(
                    base,
                    dist,
                    claim,
                    prover,
                    &d.outcome,
                    &refuter,
                    &c,
                    plan.repair,
                );
                repair::promote(&mut d.outcome, dist, &d.repairs);
            }
            d.counterexample = Some(c);
        }
        Search::Agree(e) => d.evidence = Some(e),
        Search::Unable(e) => d.unable = Some(e),
    }
    d
}
