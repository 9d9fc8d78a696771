//! Failures that are looked for in process.

use crate::{Check, State};
use scalify_diff::analyze::Kind;
use scalify_diff::diff;
use scalify_prove::outcome::Verdict;
use scalify_refute::{Decision, Plan};
use std::time::Duration;

/// The verifier refutes the pair, and blames the same kind of fault if it named
/// one.
#[derive(Clone, Debug)]
pub struct Refuted {
    /// Code of the first fault on the frontier; none: any.
    pub code: Option<&'static str>,
    /// Time of the prover and of the search, each.
    pub time: Duration,
    /// Seed of drawn inputs.
    pub seed: u64,
}

impl Refuted {
    /// The decision about a pair; none for anything else.
    pub fn decide(&self, s: &State) -> Option<Decision> {
        let [a, b] = &s.modules[..] else { return None };
        let prover = scalify_prove::Options { time_limit: Some(self.time), ..Default::default() };
        let mut plan = Plan { repair: Duration::ZERO, ..Plan::default() };
        plan.search.time = self.time;
        plan.search.seed = self.seed;
        Some(scalify_refute::decide(a, b, &s.claim, &prover, &plan))
    }

    /// The fault that a decision blames first, if it is a known kind.
    pub fn code_of(d: &Decision) -> Option<&'static str> {
        d.outcome
            .frontier
            .first()
            .map(|f| f.code)
            .filter(|c| !["unrelated", "differs", "not-lifted"].contains(c))
    }
}

impl Check for Refuted {
    fn fails(&mut self, s: &State) -> bool {
        let Some(d) = self.decide(s) else { return false };
        let same = self.code.is_none() || Refuted::code_of(&d) == self.code;
        d.outcome.verdict == Verdict::Refuted && d.reduced.is_none() && same
    }
}

/// The comparison of values names an operation with the same kind of error.
#[derive(Clone, Debug)]
pub struct Different {
    /// Rounding or another function.
    pub kind: Kind,
    /// Options of the comparison.
    pub options: diff::Options,
}

impl Different {
    /// What a comparison finds first, if anything.
    pub fn kind_of(s: &State, o: &diff::Options) -> Option<Kind> {
        let [a, b] = &s.modules[..] else { return None };
        let r = diff::diff(a, b, &s.claim, None, o).ok()?;
        if r.verdict != diff::Verdict::Different {
            return None;
        }
        r.first.map(|f| f.kind).or(Some(Kind::Function))
    }
}

impl Check for Different {
    fn fails(&mut self, s: &State) -> bool {
        Different::kind_of(s, &self.options) == Some(self.kind)
    }
}
