//! Edits of the distributed program with which the proof goes through.
//!
//! Candidates ([`crate::candidates`]) are first evaluated on inputs on which
//! the programs differ; only those that agree there, and on further inputs,
//! are given to the prover. An edit counts as a repair only if it is proved.

use crate::candidates::{Candidate, Context, Edit};
use crate::graft::Aligned;
use crate::observe::{Observed, exchanged, in_other_order, observe, undefined};
use crate::search::{Counterexample, Refuter};
use crate::shrink::Reduced;
use scalify_claim::Claim;
use scalify_ir::{InstrId, Module};
use scalify_prove::Kept;
use scalify_prove::outcome::{Frame, FrontierItem, Grade, Outcome, Verdict};
use std::time::{Duration, Instant};

/// An edit after which the programs are proved equal.
#[derive(Clone, Debug)]
pub struct Repair {
    /// Kind of the fault that it mends, as
    /// [`scalify_prove::outcome::FrontierItem::code`].
    pub code: &'static str,
    /// The instruction of the distributed program that it changes or follows.
    pub at: InstrId,
    /// Other instructions that the text names: the next use of what is put
    /// between a value and its uses, the collective that does the same for
    /// another value.
    pub places: Vec<InstrId>,
    /// What it does, to be read after "with": `all-reduce over tp after
    /// %dot.17`.
    pub text: String,
    /// Grade of the proof with it; `None`: it agrees on the inputs tried but
    /// is not proved, and may only point at the fault.
    pub grade: Option<Grade>,
    /// A value of the baseline is built anew.
    pub grafted: bool,
    /// The repaired module.
    pub module: Module,
}

/// Repairs looked for.
const WANTED: usize = 2;
/// Instructions above which only edits close to the suspects are tried, and
/// proofs start from what is known of the baseline.
const MANY: usize = 10_000;
/// Instructions of both programs up to which values of the baseline are tried
/// in place of distributed ones.
const FEW: usize = 6_000;

/// A distance to the suspects, and the least that an edit costs beside its
/// distance.
const NEAR: f64 = 0.5;
const CHEAPEST: f64 = 0.2;

/// What a search for repairs found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The proved ones, else one that agrees on all inputs tried.
    pub repairs: Vec<Repair>,
    /// Edits evaluated.
    pub tried: usize,
    /// What else shows the kind of the fault.
    pub observed: Option<Observed>,
}

/// With `reduced`, `refuter` and `example` are those of the reduced pair;
/// edits are evaluated there and proved for the given one.
///
/// Tries repairs until the time is over.
pub fn search(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    outcome: &Outcome,
    refuter: &Refuter<'_>,
    example: &Counterexample,
    reduced: Option<&Reduced>,
    kept: &mut Kept<'_>,
    time: Duration,
) -> Found {
    let mut tried = 0;
    let start = Instant::now();
    let p = refuter.problem();
    let mut ctx = Context::new(dist, base, p);
    if reduced.is_none() && base.instrs.len() + dist.instrs.len() <= FEW {
        let o = scalify_prove::Options { time_limit: Some(time), progress: None, ..*prover };
        let (_, related) = scalify_prove::verify_related(base, dist, claim, &o);
        ctx.aligned = Some(Aligned::new(base, dist, outcome, &related));
    }
    let small = reduced.map(|r| (Context::new(refuter.evaluated(), &r.base, p), refuter.ids(r)));
    let reach = if dist.instrs.len() > MANY { 1.6 } else { f64::INFINITY };
    let mut suspects: Vec<(InstrId, f64)> = Vec::new();
    for (k, f) in outcome.frontier.iter().enumerate().take(6) {
        suspects.push((f.instr, 0.7 * k as f64));
    }
    for x in &example.outputs {
        if let Some(o) = outcome.outputs.get(x.output) {
            suspects.push((o.dist, 2.0));
        }
    }
    if suspects.is_empty() {
        suspects.push((dist.entry_comp().root, 0.0));
    }
    let Some(trial) = refuter.trial(example, if small.is_some() { 0 } else { 2 }) else {
        return Found::default();
    };
    let sizes = reduced.is_some_and(|r| r.smaller);
    let mut proved: Vec<Repair> = Vec::new();
    let mut likely: Vec<(Candidate, Module)> = Vec::new();
    let mut stop: Option<Duration> = None;
    let distances = ctx.distances(&suspects);
    // In a big program the nearest are listed first: those that cost less than
    // any other, so that the order is that of all.
    let first = |c: &Candidate| {
        let d = distances.get(c.at.0 as usize).copied().unwrap_or(f64::INFINITY);
        reach.is_finite() && d <= NEAR && c.cost < NEAR + CHEAPEST
    };
    let nearest = if reach.is_finite() { ctx.candidates(&distances, NEAR) } else { Vec::new() };
    let others = std::iter::once_with(|| ctx.candidates(&distances, reach)).flatten();
    let mut all = nearest.into_iter().filter(first).chain(others.filter(|c| !first(c)));
    loop {
        let now = start.elapsed();
        if now > time || stop.is_some_and(|s| now > s) || proved.len() >= WANTED {
            break;
        }
        let Some(c) = all.next() else { break };
        if proved.iter().any(|r| r.at == ctx.place(&c, &distances)) {
            // A second repair is of use only at another place.
            continue;
        }
        let m = match &small {
            Some((s, ids)) => {
                if sizes && !Context::free_of_sizes(&c) {
                    continue;
                }
                let Some(m) = c.within(ids).and_then(|c| s.apply(&c)) else { continue };
                tried += 1;
                if !trial.agrees(refuter, &m) {
                    continue;
                }
                let Some(m) = ctx.apply(&c) else { continue };
                m
            }
            None => {
                let Some(m) = ctx.apply(&c) else { continue };
                tried += 1;
                if !trial.agrees(refuter, &m) {
                    continue;
                }
                m
            }
        };
        let o = scalify_prove::Options { time_limit: Some(time), progress: None, ..*prover };
        // The terms of a big baseline are used again.
        let known = if base.instrs.len() > MANY { kept.proves(&m, claim, &o) } else { None };
        let grade = known.or_else(|| {
            let out = scalify_prove::verify(base, &m, claim, &o);
            out.grade.filter(|_| out.verdict == Verdict::Proved)
        });
        if grade.is_some() {
            // A second one is looked for only a little longer; not in programs
            // where an edit takes long to make.
            let big = dist.instrs.len() > MANY;
            stop.get_or_insert(if big { now } else { (now * 2).max(Duration::from_millis(500)) });
            proved.push(repair(&ctx, &c, &distances, grade, m));
        } else if likely.is_empty() {
            likely.push((c, m));
            if stop.is_none() && proved.is_empty() {
                // The prover may not know this family: do not try everything.
                stop = Some((now * 3).max(time / 2));
            }
        }
    }
    if proved.is_empty() {
        for (c, m) in likely {
            proved.push(repair(&ctx, &c, &distances, None, m));
        }
    }
    // A value rebuilt after the baseline says less than an edit in place.
    let clear = |r: &Repair| !r.grafted && !vague(r.code);
    if proved.first().is_some_and(|r| r.grafted) && proved.get(1).is_some_and(clear) {
        proved.swap(0, 1);
    }
    let mut observed = None;
    if reduced.is_none() {
        match proved.first_mut() {
            None => {
                let outputs: Vec<InstrId> = outcome.outputs.iter().map(|o| o.dist).collect();
                observed = observe(&ctx, &outputs, refuter, example);
            }
            // A value rebuilt after the baseline says little of the fault.
            Some(r) if r.grafted => {
                if let Some(x) = undefined(&ctx, refuter, example) {
                    r.code = x.code;
                } else if let Some(s) = refuter.sides(example) {
                    // Blocks cut or put by device are at another place.
                    let placed = r.code == "wrong-offset" && exchanged(&s);
                    if in_other_order(&s) && !placed {
                        r.code = "wrong-layout";
                    }
                }
            }
            Some(_) => {}
        }
    }
    Found { repairs: proved, tried, observed }
}

/// Edits of collectives that are tried without an input that tells them apart.
const BLIND: usize = 48;

/// The first edit of a collective with which the proof goes through, where
/// the programs differ by nothing but what they round: no input tells which.
pub fn by_proof(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    prover: &scalify_prove::Options<'_>,
    outcome: &Outcome,
    p: &scalify_prove::problem::Problem,
    time: Duration,
) -> Vec<Repair> {
    let start = Instant::now();
    if base.instrs.len() + dist.instrs.len() > FEW {
        return Vec::new();
    }
    let ctx = Context::new(dist, base, p);
    let suspects: Vec<(InstrId, f64)> = (outcome.frontier.iter().take(4).map(|f| f.instr))
        .enumerate()
        .map(|(k, x)| (x, 0.7 * k as f64))
        .collect();
    let collective = |c: &Candidate| {
        matches!(
            c.edit,
            Edit::AllReduce { .. }
                | Edit::Drop
                | Edit::Groups { .. }
                | Edit::Reducer { .. }
                | Edit::Redo { .. }
                | Edit::Pairs { .. }
        )
    };
    let distances = ctx.distances(&suspects);
    let all = ctx.candidates(&distances, f64::INFINITY);
    for c in all.iter().filter(|c| collective(c)).take(BLIND) {
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        let Some(m) = ctx.apply(c) else { continue };
        let o = scalify_prove::Options { time_limit: Some(left), progress: None, ..*prover };
        let out = scalify_prove::verify(base, &m, claim, &o);
        if out.verdict == Verdict::Proved {
            return vec![repair(&ctx, c, &distances, out.grade, m)];
        }
    }
    Vec::new()
}

fn repair(
    ctx: &Context<'_>,
    c: &Candidate,
    distances: &[f64],
    grade: Option<Grade>,
    module: Module,
) -> Repair {
    let at = ctx.place(c, distances);
    let constant = matches!(c.edit, Edit::Constant { .. });
    let before = (Context::inserts(c) || constant).then(|| ctx.next_use(at, !constant)).flatten();
    let mut text = ctx.text(c);
    let mut places = Vec::new();
    if let Some(u) = before {
        let place = if constant { "used by" } else { "before" };
        text += &format!(", {place} {}", ctx.name(u));
        places.push(u);
    }
    if let Edit::AllReduce { mask, drop: None, .. } = c.edit {
        if let Some(cut) = ctx.cut_after(c.at, mask) {
            text += &format!(", or a reduce-scatter in place of {}", ctx.name(cut));
        }
    }
    if let Edit::Permute { like, .. } | Edit::Rotate { like } = c.edit {
        places.push(like);
    }
    if let Some(l) = ctx.alike(c) {
        text += &format!(", as by {}", ctx.name(l));
        places.push(l);
    }
    let grafted = matches!(c.edit, Edit::Graft { .. });
    Repair { code: ctx.code(c), at, places, text, grade, grafted, module }
}

/// Says only that something differs.
fn vague(code: &str) -> bool {
    matches!(
        code,
        "unrelated" | "differs" | "wrong-operation" | "missing-operation" | "extra-operation"
    )
}

/// Puts the instruction that the first repair changes first on the frontier.
pub fn promote(outcome: &mut Outcome, dist: &Module, repairs: &[Repair]) {
    let Some(r) = repairs.first() else { return };
    let reason = match r.grade {
        Some(_) => format!("with {} the outputs are PROVED equal", r.text),
        None => format!("with {} the outputs agree on all inputs tried", r.text),
    };
    let (old, mut item) = take(outcome, dist, r.at, r.code);
    // A repair that only says that the operations differ leaves a name of the
    // same instruction that says more.
    if !old || vague(item.code) || !vague(r.code) {
        item.code = r.code;
    }
    item.reason = reason;
    item.expected = Some(r.text.clone());
    outcome.frontier.insert(0, item);
}

/// The finding at an instruction, taken off the frontier, or a new one; true
/// if there was one.
fn take(
    outcome: &mut Outcome,
    dist: &Module,
    at: InstrId,
    code: &'static str,
) -> (bool, FrontierItem) {
    match outcome.frontier.iter().position(|f| f.instr == at) {
        Some(k) => (true, outcome.frontier.remove(k)),
        None => {
            let item = FrontierItem {
                instr: at,
                code,
                reason: String::new(),
                expected: None,
                frames: frames(dist, at),
                operands: dist.instr(at).operands.iter().map(|&o| (o, None)).collect(),
                counterpart: None,
                reaches: reached(outcome, dist, at),
            };
            (false, item)
        }
    }
}

/// Outputs without a proof that are computed from an instruction; all of them,
/// where the entry does not tell.
fn reached(outcome: &Outcome, dist: &Module, at: InstrId) -> Vec<usize> {
    let entry = &dist.entry_comp().instrs;
    let mut hit = vec![false; dist.instrs.len()];
    hit[at.0 as usize] = true;
    // Instructions of a computation come after their operands.
    for &x in entry {
        hit[x.0 as usize] |= dist.instr(x).operands.iter().any(|o| hit[o.0 as usize]);
    }
    let open = outcome.outputs.iter().filter(|o| o.verdict != Verdict::Proved);
    let (yes, no): (Vec<_>, Vec<_>) = open.partition(|o| hit[o.dist.0 as usize]);
    let list = if entry.contains(&at) && !yes.is_empty() { yes } else { [yes, no].concat() };
    let mut list: Vec<usize> = list.iter().map(|o| o.index).collect();
    list.sort_unstable();
    list
}

/// Puts what was observed first on the frontier.
pub fn show(outcome: &mut Outcome, dist: &Module, observed: Option<Observed>) {
    let Some(x) = observed else { return };
    // What the prover related says more than where the programs part.
    let named = |f: &FrontierItem| {
        let open = matches!(f.code, "unrelated" | "differs" | "not-lifted");
        !(open || f.code == "wrong-layout" && !x.vague)
    };
    if outcome.frontier.first().is_some_and(named) {
        return;
    }
    let (_, mut item) = take(outcome, dist, x.at, x.code);
    item.code = x.code;
    item.reason = x.reason;
    item.expected = None;
    item.counterpart = x.counterpart.or(item.counterpart);
    outcome.frontier.insert(0, item);
}

/// Frames of an instruction; of the nearest operand or user that has some, if
/// it has none itself; then of the call sites of its computation.
fn frames(m: &Module, at: InstrId) -> Vec<Frame> {
    let of = |x: InstrId| -> Vec<Frame> {
        m.frames(x)
            .into_iter()
            .map(|f| Frame {
                file: f.file.to_owned(),
                function: f.function.to_owned(),
                line: f.line,
                column: f.column,
                end_column: f.end_column,
            })
            .collect()
    };
    let mut x = at;
    let mut out = of(x);
    let mut seen = 0;
    while out.is_empty() && seen < 64 {
        seen += 1;
        let user = m.instrs.iter().position(|i| i.operands.contains(&x));
        match user {
            Some(k) => x = InstrId(k as u32),
            None => break,
        }
        out = of(x);
    }
    let owner = m.comps.iter().position(|c| c.instrs.contains(&x));
    if let Some(c) = owner {
        let site = m.instrs.iter().position(|i| i.calls.iter().any(|k| k.0 as usize == c));
        if let Some(s) = site {
            out.extend(of(InstrId(s as u32)));
        }
    }
    out
}
