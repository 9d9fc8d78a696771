//! The prover: from two modules to a verdict.
//!
//! [`verify`] lifts both programs into one term store ([`lift`]), pairs their
//! inputs ([`problem`]), relates every distributed value to the baseline
//! ([`decide`]), reads the relations off the terms ([`relate`]) and, where
//! there is no proof, says which instruction is to blame ([`blame`]).
//!
//! **What may not live here:** file formats, rendering, evaluation.

pub mod blame;
mod conclude;
pub mod correspond;
pub mod decide;
pub mod devices;
pub mod kept;
pub mod lift;
mod memo;
pub mod outcome;
pub mod outputs;
#[doc(hidden)]
pub mod probe;
pub mod problem;
pub mod relate;
mod sections;
pub mod tv;

pub use kept::Kept;
use memo::Answer;
use outcome::{ExplainStep, Outcome, Related};
use rustc_hash::FxHashMap;
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
    /// Lemmas of repeated parts.
    pub memo: Memo,
}

/// When parts of programs that repeat themselves are proved once, as a lemma.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Memo {
    /// Where big programs consist mostly of them.
    #[default]
    Auto,
    /// Wherever something repeats: for tests.
    Always,
    /// Programs are lifted whole.
    Never,
}

/// Stack of the thread that proves: calls and terms nest.
const STACK: usize = 512 << 20;

/// Verifies that `dist` computes `base` under `claim`. Both modules must be
/// valid (`scalify_ir::validate`). An internal error is UNKNOWN, never more.
pub fn verify(base: &Module, dist: &Module, claim: &Claim, options: &Options<'_>) -> Outcome {
    on_big_stack(|| decide::verify(base, dist, claim, options)).unwrap_or_else(internal_error)
}

/// The outcome where the prover failed: UNKNOWN, with a note that says so.
pub fn internal_error() -> Outcome {
    let note = "internal error of the prover: please report the two files".to_owned();
    Outcome {
        verdict: outcome::Verdict::Unknown,
        grade: None,
        assumptions: Vec::new(),
        regrouped: Vec::new(),
        outputs: Vec::new(),
        frontier: Vec::new(),
        mesh: Vec::new(),
        notes: vec![note],
        exhausted: Some("internal error"),
        stats: outcome::Stats::default(),
    }
}

/// [`verify`], and how every distributed instruction stands to the baseline,
/// in program order. The layouts of relations are worked out for a few seconds
/// at most; after that they have no text.
pub fn verify_related(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
) -> (Outcome, Vec<Related>) {
    verify_then(base, dist, claim, options, |o, kept| (o, kept.related()))
        .unwrap_or_else(|| (internal_error(), Vec::new()))
}

/// [`verify`], then `f` on its outcome while the terms are still there; `None`
/// if either of them panicked.
pub fn verify_then<T: Send>(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    f: impl FnOnce(Outcome, &mut Kept<'_>) -> T + Send,
) -> Option<T> {
    on_big_stack(|| {
        let t = std::time::Instant::now();
        let p = problem::setup(base, dist, claim);
        if let Answer::Proved(outcome) = memo::prove(base, dist, claim, &p, options, t) {
            return f(outcome, &mut Kept::blocks(base, dist, p, FxHashMap::default()));
        }
        let (outcome, p, a) = decide::verify_with(base, dist, claim, options, p, t);
        f(outcome, &mut Kept::new(base, dist, p, a))
    })
}

/// [`verify_then`], but `early` is asked first where a first attempt fails on a
/// big pair, by lemmas and as a whole: further attempts, with laws that need
/// finite values or devices apart, are made only if it gives nothing. Its outcome is UNKNOWN, although
/// the pair may be proved yet, and shows outputs that lie far behind what is
/// not related as unrelated.
pub fn verify_early<T: Send>(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    early: impl Fn(Outcome, &mut Kept<'_>) -> Option<T> + Send,
    f: impl FnOnce(Outcome, &mut Kept<'_>) -> T + Send,
) -> Option<T> {
    on_big_stack(move || {
        let t = std::time::Instant::now();
        let p = problem::setup(base, dist, claim);
        match memo::prove(base, dist, claim, &p, options, t) {
            Answer::Proved(outcome) => {
                return f(outcome, &mut Kept::blocks(base, dist, p, FxHashMap::default()));
            }
            Answer::Open(o) if base.instrs.len() + dist.instrs.len() >= decide::MANY => {
                let mut kept = Kept::blocks(base, dist, p.clone(), o.blocks);
                if let Some(x) = early(o.outcome, &mut kept) {
                    return x;
                }
            }
            _ => {}
        }
        let early = move |o, p, a| early(o, &mut Kept::new(base, dist, p, a));
        let then = |o, p, a| f(o, &mut Kept::new(base, dist, p, a));
        decide::verify_early(base, dist, claim, options, p, t, early, then)
    })
}

/// The steps behind the relation of a distributed instruction.
pub fn explain(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    instr: InstrId,
) -> Vec<ExplainStep> {
    on_big_stack(|| decide::explain(base, dist, claim, options, instr)).unwrap_or_default()
}

/// Baseline counterparts of the distributed values, element by element; values
/// of more than `max_elements` elements over all devices are left out. Empty
/// if an internal error occurs.
pub fn correspond(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &problem::Problem,
    options: &Options<'_>,
    max_elements: usize,
) -> correspond::Correspondence {
    on_big_stack(|| correspond::correspond(base, dist, claim, p, options, max_elements))
        .unwrap_or_default()
}

/// Runs `f` on a thread with a deep stack; `None` if it panicked or no thread
/// could be started.
fn on_big_stack<T: Send>(f: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|s| {
        let h = std::thread::Builder::new().stack_size(STACK).spawn_scoped(s, f).ok()?;
        h.join().ok()
    })
}

/// Terms of the outputs in index notation, to a depth: whether proved, the
/// baseline's, the distributed program's. `each`: where the devices are lifted
/// one by one, on the last device. For people who extend the prover.
pub fn output_terms(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    depth: u32,
    each: bool,
) -> Vec<(bool, String, String)> {
    on_big_stack(|| decide::output_terms(base, dist, claim, options, depth, each))
        .unwrap_or_default()
}
