//! Many mutants of many pairs: verdicts against judgements.
//!
//! Mutant `k` of a seed is the same whatever the number of threads.

use crate::cases::{Pair, Source};
use crate::decide::{Judge, Judgement, Made};
use crate::draw::Inputs;
use crate::operators::{Mutant, Operator, Site};
use crate::random::Random;
use scalify_ir::Module;
use scalify_prove::outcome::{AssumptionKind, Grade, Outcome, Side, Verdict};
use scalify_prove::{Options, verify};
use scalify_refute::{Decision, Plan, evaluate};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of mutants.
    pub mutants: usize,
    /// Fixes pairs, sites, edits and inputs.
    pub seed: u64,
    /// Draws of inputs per pair.
    pub draws: usize,
    /// Worker threads; 0: one per core.
    pub threads: usize,
    /// Ends the campaign early.
    pub time_limit: Option<Duration>,
    /// Wall time of one proof.
    pub proof_limit: Duration,
    /// Only operators whose name contains this.
    pub operator: String,
    /// Look for counterexamples of what is not proved.
    pub refute: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mutants: 300,
            seed: 1,
            draws: crate::draw::KINDS.len(),
            threads: 0,
            time_limit: None,
            proof_limit: Duration::from_secs(20),
            operator: String::new(),
            refute: true,
        }
    }
}

/// How a mutant ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// Differs and is not proved.
    Killed,
    /// Differs and is refuted.
    Refuted,
    /// Equal on all draws and proved.
    EqualProved,
    /// Equal on all draws, not proved.
    EqualUnknown,
    /// Equal over the reals but far coarser in the element types, without a
    /// further rounding conversion, and proved under the assumption that a
    /// softmax may be shifted by any finite value.
    Coarser,
    /// Differs only on draws on which a value is NaN, infinite or beyond an
    /// exponential's range, and is proved under the assumption that none is.
    Assumed,
    /// Cannot be run, not proved.
    NoValue,
    /// Differs and is proved.
    FalseProved,
    /// Equal on all draws and refuted.
    FalseRefuted,
    /// Differs and is proved under an assumption that holds on no draw.
    Vacuous,
    /// Cannot be run and is proved.
    ProvedWithoutValue,
    /// An operator that keeps the function changed it.
    NotEqual,
    /// A panic in the mutation or the interpreter.
    Panic,
}

impl End {
    /// True if it must not happen.
    pub fn bad(self) -> bool {
        self >= End::FalseProved
    }
}

/// One mutant with its end.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number in the campaign.
    pub number: usize,
    /// Name of the operator.
    pub operator: &'static str,
    /// Pair.
    pub pair: String,
    /// Which program was mutated.
    pub side: Side,
    /// How it ended.
    pub end: End,
    /// The edit, the judgement and the verdict's grade.
    pub text: String,
    /// Both modules if the end is bad, and the draw that tells.
    pub evidence: Option<Box<Evidence>>,
}

/// What is needed to look into a bad end.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Baseline.
    pub base: Module,
    /// Distributed program.
    pub dist: Module,
    /// The claim.
    pub claim: scalify_claim::Claim,
    /// Inputs on which they differ.
    pub inputs: Option<crate::draw::Inputs>,
}

/// Result of a campaign.
#[derive(Debug, Default)]
pub struct Report {
    /// Mutants by number.
    pub records: Vec<Record>,
    /// Number of pairs mutated.
    pub pairs: usize,
    /// Pairs left out: name and reason.
    pub skipped: Vec<(String, String)>,
    /// Original pairs that are proved and differ.
    pub originals: Vec<(String, String)>,
    /// Stopped by the limit or an interruption.
    pub cut_short: bool,
    /// Seconds.
    pub seconds: f64,
}

/// Observes a campaign; called from several threads.
pub trait Watch: Sync {
    /// A phase of `n` steps begins.
    fn phase(&self, name: &str, n: usize);
    /// A step is done.
    fn step(&self);
    /// Asks to stop.
    fn stop(&self) -> bool {
        false
    }
}

/// Watches nothing.
pub struct Silent;

impl Watch for Silent {
    fn phase(&self, _: &str, _: usize) {}
    fn step(&self) {}
}

struct Prepared {
    pair: Pair,
    judge: Box<Judge>,
    /// Per side and operator.
    sites: [Vec<Vec<Site>>; 2],
}

/// Runs `f` on `0..n` with several threads, in order of number at the end.
fn parallel<T: Send>(threads: usize, n: usize, f: impl Fn(usize) -> Option<T> + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        t => t,
    };
    std::thread::scope(|s| {
        for _ in 0..threads.min(n.max(1)) {
            s.spawn(|| {
                loop {
                    let k = next.fetch_add(1, Ordering::Relaxed);
                    if k >= n {
                        break;
                    }
                    if let Some(x) = f(k)
                        && let Ok(mut d) = done.lock()
                    {
                        d.push((k, x));
                    }
                }
            });
        }
    });
    let mut v = done.into_inner().unwrap_or_default();
    v.sort_by_key(|x| x.0);
    v.into_iter().map(|x| x.1).collect()
}

fn prove(pair: &Pair, c: &Config, base: &Module, dist: &Module) -> Outcome {
    let o = Options {
        threads: 1,
        time_limit: Some(c.proof_limit),
        memo: scalify_prove::Memo::Always,
        ..Options::default()
    };
    verify(base, dist, &pair.claim, &o)
}

/// The verdict as users get it: prove, else refute.
fn decide(pair: &Pair, c: &Config, base: &Module, dist: &Module) -> Decision {
    let o = Options {
        threads: 1,
        time_limit: Some(c.proof_limit),
        memo: scalify_prove::Memo::Always,
        ..Options::default()
    };
    let plan = Plan {
        refute: c.refute,
        search: scalify_refute::Options {
            time: c.proof_limit,
            seed: c.seed,
            ..scalify_refute::Options::default()
        },
        repair: Duration::ZERO,
        cross_check: false,
    };
    scalify_refute::decide(base, dist, &pair.claim, &o, &plan)
}

enum Start {
    Ready(Box<Prepared>),
    Skip(String, String),
    Differs(String, String),
}

fn prepare(s: &Source, c: &Config, operators: &[Operator]) -> Start {
    let name = s.name.clone();
    let pair = match s.load() {
        Ok(p) => p,
        Err(e) => return Start::Skip(name, format!("{e:#}")),
    };
    if !crate::operators::valid(&pair.base) || !crate::operators::valid(&pair.dist) {
        return Start::Skip(name, "not valid".into());
    }
    if prove(&pair, c, &pair.base, &pair.dist).verdict != Verdict::Proved {
        return Start::Skip(name, "not proved".into());
    }
    let p = scalify_prove::problem::setup(&pair.base, &pair.dist, &pair.claim);
    if let Some(e) = scalify_refute::search::too_big(&pair.base, &pair.dist, &p) {
        return Start::Skip(name, e);
    }
    let judge = match Judge::prepare(&pair, c.draws, c.seed) {
        Made::Judge(j) => j,
        Made::Skip(e) => return Start::Skip(name, e),
        Made::Differs(e) => return Start::Differs(name, e),
    };
    let sites = |m: &Module| operators.iter().map(|o| o.sites(m)).collect();
    let sites = [sites(&pair.base), sites(&pair.dist)];
    Start::Ready(Box::new(Prepared { pair, judge, sites }))
}

/// Picks and makes mutant number `k` of a pair.
fn mutate(
    p: &Prepared,
    operators: &[Operator],
    r: &mut Random,
) -> Option<(Side, Operator, Mutant)> {
    for _ in 0..60 {
        // One in four in the baseline.
        let side = if r.below(4) == 0 { Side::Base } else { Side::Dist };
        let (m, sites) = match side {
            Side::Base => (&p.pair.base, &p.sites[0]),
            Side::Dist => (&p.pair.dist, &p.sites[1]),
        };
        let devices = if side == Side::Base { 1 } else { p.judge.devices() };
        let some: Vec<usize> = (0..operators.len()).filter(|&o| !sites[o].is_empty()).collect();
        let Some(&o) = r.pick(&some) else { continue };
        let Some(&site) = r.pick(&sites[o]) else { continue };
        if let Some(x) = operators[o].apply(m, site, devices, r) {
            return Some((side, operators[o], x));
        }
    }
    None
}

/// The proof assumes that values are finite.
fn assumes_finite(v: &Outcome) -> bool {
    let finite = |k| matches!(k, AssumptionKind::Finite | AssumptionKind::NonZero);
    v.grade == Some(Grade::UnderAssumptions) && v.assumptions.iter().any(|a| finite(a.kind))
}

fn end(o: &Operator, j: &Judgement, v: &Outcome) -> End {
    if o.equal && matches!(j, Judgement::Differs { finite: true, .. }) {
        return End::NotEqual;
    }
    let shifted = v.assumptions.iter().any(|a| a.text.starts_with("sum exp(x + c)"));
    match (j, v.verdict) {
        (Judgement::Coarser { .. }, Verdict::Proved) if o.equal || shifted => End::Coarser,
        (Judgement::Coarser { .. }, Verdict::Proved) => End::FalseProved,
        (Judgement::Coarser { .. }, Verdict::Refuted) => End::FalseRefuted,
        (Judgement::Coarser { .. }, Verdict::Unknown) => End::EqualUnknown,
        (Judgement::Differs { .. }, Verdict::Proved) => End::FalseProved,
        (Judgement::Differs { .. }, Verdict::Refuted) => End::Refuted,
        (Judgement::Differs { .. }, Verdict::Unknown) => End::Killed,
        (Judgement::Equal, Verdict::Proved) => End::EqualProved,
        (Judgement::Equal, Verdict::Refuted) => End::FalseRefuted,
        (Judgement::Equal, Verdict::Unknown) => End::EqualUnknown,
        (Judgement::NoValue(_), Verdict::Proved) => End::ProvedWithoutValue,
        (Judgement::NoValue(_), _) => End::NoValue,
    }
}

fn one(number: usize, p: &Prepared, operators: &[Operator], c: &Config) -> Option<Record> {
    let mut r = Random::new(c.seed).fork(number as u64 + 1000);
    let (side, o, x) = mutate(p, operators, &mut r)?;
    let (base, dist) = match side {
        Side::Base => (&x.module, &p.pair.dist),
        Side::Dist => (&p.pair.base, &x.module),
    };
    let d = decide(&p.pair, c, base, dist);
    let v = d.outcome;
    let j = p.judge.judge(side, &x.module);
    let mut text = format!("{}; {:?} {:?}", x.text, v.verdict, v.grade);
    let mut end = end(&o, &j, &v);
    if matches!(end, End::FalseProved | End::Assumed) && assumes_finite(&v) {
        // Where the assumption holds they must agree, and somewhere it must.
        let tame = p.judge.judge_tame(side, &x.module);
        end = match &tame {
            Some(Judgement::Equal | Judgement::Coarser { .. }) => End::Assumed,
            Some(_) => End::FalseProved,
            None => End::Vacuous,
        };
        if end.bad() {
            text.push_str(&format!("; on draws where values are finite: {tame:?}"));
        }
    }
    let mut j = j;
    if end == End::FalseRefuted {
        // The refuter may have found inputs that the judge did not draw.
        let at = d.counterexample.as_ref().and_then(|c| {
            let q = p.judge.problem();
            let (b, n) = (&p.pair.base, &p.pair.dist);
            let base = evaluate::base_arguments(b, q, &c.drawn)?.into_iter().next()?;
            let dist = evaluate::dist_arguments(n, q, &c.placements, &c.drawn)?;
            Some(p.judge.judge_at(side, &p.pair, &x.module, &Inputs { base, dist }))
        });
        if let Some(at @ Judgement::Differs { .. }) = at {
            end = End::Refuted;
            j = at;
        }
    }
    let mut draw = None;
    match &j {
        Judgement::Equal => text.push_str("; equal on all draws"),
        Judgement::NoValue(e) => text.push_str(&format!("; no value: {e}")),
        Judgement::Coarser { how, draw: d } => {
            text.push_str(&format!("; coarser: {how}"));
            draw = Some(*d);
        }
        Judgement::Differs { how, draw: d, .. } => {
            text.push_str(&format!("; differs: {how}"));
            draw = Some(*d);
        }
    }
    for x in d.counterexample.iter().flat_map(|c| c.outputs.first()).filter(|_| end.bad()) {
        text.push_str(&format!(
            "; counterexample: output {} at {:?} on device {}: {:e} and not {:e}, bound {:e}",
            x.output, x.index, x.device, x.actual, x.expected, x.bound
        ));
    }
    for a in v.assumptions.iter().filter(|_| end.bad() || end == End::Assumed) {
        text.push_str(&format!("; assumed: {}", a.text));
    }
    let evidence = end.bad().then(|| {
        Box::new(Evidence {
            base: base.clone(),
            dist: dist.clone(),
            claim: p.pair.claim.clone(),
            inputs: draw.and_then(|d| p.judge.inputs(d)).cloned(),
        })
    });
    let pair = p.pair.name.clone();
    Some(Record { number, operator: o.name, pair, side, end, text, evidence })
}

/// Runs a campaign over the pairs that are proved and can be judged. Mutants
/// are dealt to the pairs in turn.
pub fn run(sources: &[Source], c: &Config, w: &dyn Watch) -> Report {
    let t = Instant::now();
    let operators: Vec<Operator> = crate::operators::all()
        .into_iter()
        .filter(|o| o.name.contains(c.operator.as_str()))
        .collect();
    let late = AtomicBool::new(false);
    let over = || {
        let stop = w.stop() || c.time_limit.is_some_and(|l| t.elapsed() > l);
        if stop {
            late.store(true, Ordering::Relaxed);
        }
        stop
    };
    let mut report = Report::default();
    w.phase("pairs", sources.len());
    let starts = parallel(c.threads, sources.len(), |k| {
        if over() {
            return None;
        }
        let s = prepare(&sources[k], c, &operators);
        w.step();
        Some(s)
    });
    let mut ready = Vec::new();
    for s in starts {
        match s {
            Start::Ready(p) => ready.push(p),
            Start::Skip(n, e) => report.skipped.push((n, e)),
            Start::Differs(n, e) => report.originals.push((n, e)),
        }
    }
    report.pairs = ready.len();
    w.phase("mutants", c.mutants);
    let n = if ready.is_empty() { 0 } else { c.mutants };
    report.records = parallel(c.threads, n, |k| {
        if over() {
            return None;
        }
        let p = &ready[k % ready.len()];
        let x = catch_unwind(AssertUnwindSafe(|| one(k, p, &operators, c)));
        w.step();
        match x {
            Ok(r) => r,
            Err(_) => Some(Record {
                number: k,
                operator: "?",
                pair: p.pair.name.clone(),
                side: Side::Dist,
                end: End::Panic,
                text: "panic".into(),
                evidence: None,
            }),
        }
    });
    report.cut_short = late.load(Ordering::Relaxed);
    report.seconds = t.elapsed().as_secs_f64();
    report
}
