//! The whole decision: prove, else refute, else say what was seen.

use crate::cut;
use crate::flat::flat;
use crate::repair::{self, Repair};
use crate::restrict::restrict;
use crate::rounding;
use crate::search::{Counterexample, Evidence, MAX_VOLUME, Options, Refuter, Search, too_big};
use crate::shrink::{Reduced, shrink};
use crate::together::both;
use scalify_claim::Claim;
use scalify_ir::Module;
use scalify_prove::Kept;
use scalify_prove::outcome::{Grade, Outcome, Verdict};
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
    /// The pair at reduced sizes, or for one output alone, if the
    /// counterexample is one of it.
    pub reduced: Option<Box<Reduced>>,
    /// Its pairing and placements.
    pub reduced_problem: Option<Box<problem::Problem>>,
    /// Edits evaluated in search of a repair.
    pub edits_tried: usize,
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
    let all = |outcome: Outcome, kept: &mut Kept<'_>| {
        beyond(base, dist, claim, prover, plan, outcome, kept, start)
    };
    let decision = if plan.refute && !plan.repair.is_zero() {
        let early = |outcome: Outcome, kept: &mut Kept<'_>| {
            early(base, dist, claim, prover, plan, outcome, kept, start)
        };
        scalify_prove::verify_early(base, dist, claim, prover, early, all)
    } else {
        scalify_prove::verify_then(base, dist, claim, prover, all)
    };
    decision.unwrap_or_else(|| Decision::of(scalify_prove::internal_error()))
}

/// Most time for a refutation before all attempts at a proof are made, of the
/// time that the first one took.
const EARLY: u32 = 4;

/// A deep pair too big to evaluate, refuted after the first attempt at a
/// proof, with a repair that is proved by it. `None` says nothing.
fn early(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    plan: &Plan,
    outcome: Outcome,
    kept: &mut Kept<'_>,
    start: Instant,
) -> Option<Decision> {
    let p = kept.problem().clone();
    too_big(base, dist, &p)?;
    if let Some(p) = prover.progress {
        p.phase("evaluating both programs", None);
    }
    let taken = start.elapsed();
    let mut time = (taken * EARLY).clamp(Duration::from_millis(200), Duration::from_secs(20));
    if let Some(limit) = prover.time_limit {
        time = time.min(limit.saturating_sub(taken) / 4);
    }
    let plan = Plan { repair: plan.repair.min(time), ..*plan };
    let search = Options { time: plan.search.time.min(time), samples: 1, ..plan.search };
    let mut d = Decision::of(outcome);
    let (b, f) = both(|| flat(base), || flat(dist));
    let (b, f) = (b.as_ref().unwrap_or(base), f.as_ref().unwrap_or(dist));
    let (r, q, elements) = restrict(b, f, &p, &open(&d))?;
    let deep = elements > MAX_VOLUME;
    (deep && nearest(base, dist, claim, prover, &plan, r, q, search, kept, &mut d)).then_some(d)
}

impl Decision {
    /// What the prover says, nothing more.
    pub fn of(outcome: Outcome) -> Decision {
        Decision {
            outcome,
            counterexample: None,
            evidence: None,
            unable: None,
            repairs: Vec::new(),
            reduced: None,
            reduced_problem: None,
            edits_tried: 0,
        }
    }
}

/// What comes after the attempts at a proof.
fn beyond(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    plan: &Plan,
    outcome: Outcome,
    kept: &mut Kept<'_>,
    start: Instant,
) -> Decision {
    let mut d = Decision::of(outcome);
    let proved = d.outcome.verdict == Verdict::Proved;
    // Assumptions that no input meets prove anything: such a proof is tried on
    // a few inputs, where that is cheap, whether or not refutations are wanted.
    let doubted = proved && d.outcome.grade == Some(Grade::UnderAssumptions);
    if !(plan.refute && !proved || plan.cross_check && proved || doubted) {
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
    if doubted && !plan.cross_check {
        search.samples = search.samples.min(2);
        search.time = search.time.min(Duration::from_secs(5));
    }
    let p = problem::setup(base, dist, claim);
    if !proved && too_big(base, dist, &p).is_some() {
        // Calls in line, so that outputs of a called body can be told apart.
        let (b, f) = (flat(base), flat(dist));
        let (b, f) = (b.as_ref().unwrap_or(base), f.as_ref().unwrap_or(dist));
        let one = restrict(b, f, &p, &open(&d));
        let done = one.is_some_and(|(r, q, elements)| {
            let go = if elements <= MAX_VOLUME { one_output } else { nearest };
            go(base, dist, claim, prover, plan, r, q, search, kept, &mut d)
        });
        if !done {
            reduced(base, dist, claim, prover, plan, &p, search, kept, &mut d);
        }
        return d;
    }
    let refuter = match Refuter::new(base, dist, &p, claim, search) {
        Ok(r) => r,
        Err(e) => {
            if !doubted || plan.cross_check {
                d.unable = Some(e);
            }
            return d;
        }
    };
    match refuter.search() {
        Search::Differ(_) if doubted && !plan.refute => {
            withdraw(
                &mut d.outcome,
                "equal under the listed assumptions, but there are inputs that do not meet them although the baseline's values are finite, and on these the outputs differ; no counterexample was asked for",
            );
        }
        Search::Differ(c) if doubted => {
            d.outcome.verdict = Verdict::Refuted;
            d.outcome.grade = None;
            d.outcome.notes.push(
                "equal under the listed assumptions, which these inputs do not meet although the baseline's values are finite".to_owned(),
            );
            for x in &c.outputs {
                if let Some(o) = d.outcome.outputs.get_mut(x.output) {
                    o.verdict = Verdict::Refuted;
                }
            }
            mend(&mut d, base, dist, claim, prover, &refuter, &c, kept, plan.repair);
            d.counterexample = Some(c);
        }
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
            mark(&mut d, &c);
            mend(&mut d, base, dist, claim, prover, &refuter, &c, kept, plan.repair);
            d.counterexample = Some(c);
        }
        Search::Agree(e) if doubted && e.samples > 0 && e.undefined == e.samples => {
            // The assumption is met by no input that was tried.
            withdraw(
                &mut d.outcome,
                "equal under the listed assumptions, but on every input tried the baseline gives NaN where the distributed program gives a number",
            );
            d.evidence = Some(e);
        }
        Search::Agree(_) | Search::Unable(_) if doubted && !plan.cross_check => {}
        Search::Agree(e) => {
            if !proved && e.samples > 0 {
                rounding::name(&mut d.outcome, base, dist);
                if let Some(by) = refuter.rounded_apart() {
                    rounding::apart(&mut d.outcome, base, dist, by);
                    if !plan.repair.is_zero() {
                        phase("looking for a repair");
                        let (c, o) = (claim, &d.outcome);
                        d.repairs = repair::by_proof(
                            base,
                            dist,
                            c,
                            prover,
                            o,
                            refuter.problem(),
                            plan.repair,
                        );
                        repair::promote(&mut d.outcome, dist, &d.repairs);
                    }
                }
            }
            d.evidence = Some(e);
        }
        Search::Unable(e) => d.unable = Some(e),
    }
    d
}

/// Takes a proof back whose assumptions are in doubt.
fn withdraw(outcome: &mut Outcome, why: &str) {
    outcome.verdict = Verdict::Unknown;
    outcome.grade = None;
    outcome.notes.push(why.to_owned());
    for o in &mut outcome.outputs {
        o.verdict = Verdict::Unknown;
    }
}

/// Looks for repairs and puts what they or the values say first.
fn mend(
    d: &mut Decision,
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    refuter: &Refuter<'_>,
    c: &Counterexample,
    kept: &mut Kept<'_>,
    time: Duration,
) {
    if time.is_zero() {
        return;
    }
    if let Some(p) = prover.progress {
        p.phase("looking for a repair", None);
    }
    let o = &d.outcome;
    let found = repair::search(base, dist, claim, prover, o, refuter, c, None, kept, time);
    (d.repairs, d.edits_tried) = (found.repairs, found.tried);
    repair::promote(&mut d.outcome, dist, &d.repairs);
    repair::show(&mut d.outcome, dist, found.observed);
}

/// Outputs that differ are refuted, unless they are proved.
fn mark(d: &mut Decision, c: &Counterexample) {
    for x in &c.outputs {
        if let Some(o) = d.outcome.outputs.get_mut(x.output) {
            if o.verdict != Verdict::Proved {
                o.verdict = Verdict::Refuted;
            }
        }
    }
}

/// Looks for a difference in one output of a pair that is too big to evaluate
/// as a whole; true if there is one.
fn one_output(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    plan: &Plan,
    r: Reduced,
    q: problem::Problem,
    search: Options,
    kept: &mut Kept<'_>,
    d: &mut Decision,
) -> bool {
    let search = Options { output: r.output, ..search };
    let Ok(refuter) = Refuter::new(&r.base, &r.dist, &q, claim, search) else { return false };
    let Search::Differ(c) = refuter.search() else { return false };
    d.outcome.verdict = Verdict::Refuted;
    mark(d, &c);
    d.outcome.notes.push(
        "the programs are too big to evaluate as a whole: only what the output that differs is computed from was".to_owned(),
    );
    if !plan.repair.is_zero() {
        let found = repair::search(
            base,
            dist,
            claim,
            prover,
            &d.outcome,
            &refuter,
            &c,
            Some(&r),
            kept,
            plan.repair,
        );
        (d.repairs, d.edits_tried) = (found.repairs, found.tried);
        repair::promote(&mut d.outcome, dist, &d.repairs);
    }
    drop(refuter);
    d.counterexample = Some(c);
    d.reduced_problem = Some(Box::new(q));
    d.reduced = Some(Box::new(r));
    true
}

/// Outputs that are not proved.
fn open(d: &Decision) -> Vec<usize> {
    let open = d.outcome.outputs.iter().filter(|o| o.verdict != Verdict::Proved);
    open.map(|o| o.index).collect()
}

/// Decides a deep pair that is too big to evaluate: at reduced sizes, for one
/// output alone, and with the distributed program evaluated only from where
/// its values are proved to be blocks of the baseline's. As in [`reduced`], a
/// difference counts only together with a repair that is proved at full size,
/// and only if the whole of the smaller programs shows it too. True if that
/// refutes.
fn nearest(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    plan: &Plan,
    one: Reduced,
    q: problem::Problem,
    search: Options,
    kept: &mut Kept<'_>,
    d: &mut Decision,
) -> bool {
    let Some((r, q, cut)) = cut::near(&one, &q, kept) else { return false };
    let options =
        Options { samples: search.samples.min(2), quick: true, output: r.output, ..search };
    let Ok(refuter) = Refuter::new(&r.base, &r.dist, &q, claim, options) else { return false };
    let refuter = refuter.from(&cut);
    // What is shown is what the whole of the smaller programs gives.
    let whole = refuter.whole();
    let time = (plan.repair / 2).max(Duration::from_secs(1));
    let o = &d.outcome;
    let (ahead, found) = both(
        || whole.ahead(),
        || {
            let Search::Differ(c) = refuter.search() else { return None };
            let (r, q) = (Some(&r), &refuter);
            let f = repair::search(base, dist, claim, prover, o, q, &c, r, kept, time);
            Some((c, f))
        },
    );
    let Some((mut c, repair::Found { repairs, tried, .. })) = found else { return false };
    d.edits_tried = tried;
    if !repairs.iter().any(|r| r.grade.is_some()) {
        return false;
    }
    match whole.confirm(&c, &refuter, ahead) {
        Ok(found) if !found.is_empty() => c.outputs = found,
        _ => return false,
    }
    d.repairs = repairs;
    repair::promote(&mut d.outcome, dist, &d.repairs);
    d.outcome.verdict = Verdict::Refuted;
    d.outcome.notes.push(
        "the counterexample is one of the same programs at reduced sizes, for the output that takes the least work".to_owned(),
    );
    mark(d, &c);
    drop(refuter);
    d.counterexample = Some(c);
    d.reduced_problem = Some(Box::new(q));
    d.reduced = Some(Box::new(r));
    true
}

/// Decides a pair that is too big to evaluate on the same pair at reduced
/// sizes. Some numbers in the programs stand for sizes and are not reduced, so
/// a difference there counts only together with a repair that agrees there
/// *and* is proved at full size: then the reduced pair is a faithful picture
/// of the edit, and what the repair changes is what differs.
fn reduced(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    plan: &Plan,
    p: &problem::Problem,
    search: Options,
    kept: &mut Kept<'_>,
    d: &mut Decision,
) {
    let too_big = too_big(base, dist, p).unwrap_or_default();
    let Some(r) = shrink(base, dist, p) else {
        d.unable = Some(too_big);
        return;
    };
    let small = problem::setup(&r.base, &r.dist, claim);
    let options = Options { samples: search.samples.min(2), quick: true, ..search };
    let refuter = match Refuter::new(&r.base, &r.dist, &small, claim, options) {
        Ok(x) => x,
        Err(e) => {
            d.unable = Some(format!("{too_big}; at reduced sizes: {e}"));
            return;
        }
    };
    match refuter.search() {
        Search::Differ(c) => {
            let time = plan.repair.max(Duration::from_secs(1));
            let repair::Found { repairs, tried, .. } = {
                let o = &d.outcome;
                repair::search(base, dist, claim, prover, o, &refuter, &c, Some(&r), kept, time)
            };
            d.edits_tried = tried;
            if !repairs.iter().any(|r| r.grade.is_some()) {
                d.outcome.notes.push(
                    "at reduced sizes the programs differ, but no edit is known that is proved at full size; no verdict is drawn from that".to_owned(),
                );
                return;
            }
            d.repairs = repairs;
            repair::promote(&mut d.outcome, dist, &d.repairs);
            d.outcome.verdict = Verdict::Refuted;
            d.outcome
                .notes
                .push("the counterexample is one of the same programs at reduced sizes".to_owned());
            mark(d, &c);
            drop(refuter);
            d.counterexample = Some(c);
            d.reduced_problem = Some(Box::new(small));
            d.reduced = Some(Box::new(r));
        }
        Search::Agree(e) => {
            d.evidence = Some(e);
            d.outcome.notes.push("evaluated at reduced sizes".to_owned());
        }
        Search::Unable(e) => d.unable = Some(format!("{too_big}; at reduced sizes: {e}")),
    }
}
