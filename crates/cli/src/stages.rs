//! The two programs of `scalify verify`, of which the second may be the stages
//! of a pipeline, and what their inputs may mean.

use crate::args::VerifyArgs;
use crate::input;
use scalify_claim::{Claim, Selector};
use scalify_ir::Module;
use scalify_ir::validate::{Severity, ValidateOptions, validate};
use scalify_prove::outcome::Verdict;
use scalify_prove::problem;
use scalify_refute::Decision;
use scalify_stages::Joined;

/// Pairs of inputs that nothing declares.
struct Reading {
    pairs: Vec<(Selector, Selector)>,
    note: Option<String>,
}

/// Both programs.
pub(crate) struct Programs {
    pub(crate) base: Module,
    pub(crate) dist: Module,
    /// What was taken for granted in joining stages.
    notes: Vec<String>,
    /// Other values might pass between the stages.
    unsure: bool,
    /// At least one.
    readings: Vec<Reading>,
}

/// Reads both programs; joins stages.
///
/// # Errors
/// Files that cannot be used, and stages that do not fit together.
pub(crate) fn programs(a: &VerifyArgs, claim: &Claim) -> anyhow::Result<Programs> {
    let plain = || vec![Reading { pairs: Vec::new(), note: None }];
    if let Some(dist) = &a.dist {
        let (base, dist) = input::load_both(&a.base, dist)?;
        return Ok(Programs { base, dist, notes: Vec::new(), unsure: false, readings: plain() });
    }
    let base = input::load_valid(&a.base)?;
    let mut stages = Vec::new();
    for path in &a.distributed {
        stages.push(input::load_valid_with_text(path)?);
    }
    let modules: Vec<&Module> = stages.iter().map(|s| &s.0).collect();
    let joined = scalify_stages::join(&modules, &claim.links, &claim.results).map_err(|e| {
        let stage = a.distributed.get(e.stage).map(|p| p.display().to_string());
        let name = stage.unwrap_or_default();
        let text = stages.get(e.stage).and_then(|s| s.1.as_deref());
        input::at_place(&name, text, e.span, e.message, e.expected)
    })?;
    let options = ValidateOptions { mixed_precision: true, ..ValidateOptions::default() };
    let found = validate(&joined.module, &options);
    if let Some(bad) = found.into_iter().find(|i| i.severity == Severity::Error) {
        let whose = bad.instr.map(|i| joined.module.name_of(i).to_owned()).unwrap_or_default();
        anyhow::bail!(
            "internal error: the joined stages are ill-formed at %{whose}: {}",
            bad.message
        );
    }
    let pairs = same_names(&base, &joined, claim);
    let mut readings = Vec::new();
    let inputs = |m| problem::inputs(m).len();
    // Names may be those of the baseline or count anew in each stage. As many
    // inputs as the baseline's leave none to be shared.
    if pairs.is_empty() || inputs(&joined.module) == inputs(&base) {
        let note = (!pairs.is_empty()).then(|| {
            "inputs of several stages have one name, which the baseline has too: they are taken \
             for different inputs, by position"
                .to_owned()
        });
        readings.push(Reading { pairs: Vec::new(), note });
    }
    if !pairs.is_empty() {
        let note = "inputs of several stages have one name, which the baseline has too: they are \
                    taken for that input";
        readings.push(Reading { pairs, note: Some(note.to_owned()) });
    }
    let (dist, notes, unsure) = (joined.module, joined.notes, joined.unsure);
    Ok(Programs { base, dist, notes, unsure, readings })
}

/// Inputs that several stages call by the name of one input of the baseline,
/// with that, unless they are paired otherwise.
fn same_names(base: &Module, joined: &Joined, claim: &Claim) -> Vec<(Selector, Selector)> {
    let (left, right) = (problem::inputs(base), problem::inputs(&joined.module));
    let mut out = Vec::new();
    for (old, new) in &joined.renamed {
        if problem::is_generic(old) {
            continue;
        }
        let mut hits = left.iter().filter(|l| l.names.contains(old));
        let (Some(b), None) = (hits.next(), hits.next()) else { continue };
        let Some(d) = right.iter().find(|l| l.names.contains(new)) else { continue };
        let names: Vec<&str> = d.names.iter().map(String::as_str).collect();
        if claim.pairs.iter().all(|p| !p.1.matches(d.index, &names)) {
            out.push((Selector::Index(b.index), Selector::Index(d.index)));
        }
    }
    out
}

impl Programs {
    /// The claim of the first reading.
    pub(crate) fn claim(&self, claim: &Claim) -> Claim {
        let mut c = claim.clone();
        if let Some(r) = self.readings.first() {
            c.pairs.splice(0..0, r.pairs.iter().cloned());
        }
        c
    }

    /// The first proof of a reading; without one, all must be refuted to refute
    /// anything. Also the claim of the reading.
    pub(crate) fn decide(
        &self,
        claim: &Claim,
        decide: &dyn Fn(&Claim) -> Decision,
    ) -> (Decision, Claim) {
        let mut best: Option<(Decision, Claim)> = None;
        for r in &self.readings {
            let mut c = claim.clone();
            c.pairs.splice(0..0, r.pairs.iter().cloned());
            let mut d = decide(&c);
            d.outcome.notes.extend(r.note.iter().chain(&self.notes).cloned());
            let v = d.outcome.verdict;
            if v == Verdict::Proved {
                return (d, c);
            }
            let open = |b: &(Decision, Claim)| b.0.outcome.verdict == Verdict::Unknown;
            if !best.as_ref().is_some_and(|b| open(b) || v == Verdict::Refuted) {
                best = Some((d, c));
            }
        }
        let (mut d, c) = best.unwrap_or_else(|| (decide(claim), claim.clone()));
        if self.unsure && d.outcome.verdict == Verdict::Refuted {
            d.outcome.verdict = Verdict::Unknown;
            d.outcome.outputs.iter_mut().for_each(|o| {
                if o.verdict == Verdict::Refuted {
                    o.verdict = Verdict::Unknown;
                }
            });
            let text = "the programs differ if values pass between the stages as is taken for \
                        granted: with `--link` for each of them, that is a refutation";
            d.outcome.notes.push(text.to_owned());
        }
        (d, c)
    }
}
