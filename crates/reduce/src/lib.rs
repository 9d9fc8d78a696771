//! Reduces programs to the smallest ones that still fail in the same way.
//!
//! A *state* is one program, or two with what is claimed of them. [`reduce`]
//! proposes smaller states ([`edits`], [`pair`]) and keeps those that a
//! [`Check`] says still fail: the verifier refutes them for the same reason, the
//! comparison of values finds the same kind of difference, or a command of the
//! user's exits with 0.
//!
//! A pair is only changed on both sides alike: at values that the prover proves
//! equal, so that what is left is the difference that was there. A single
//! program may be changed in any way that leaves it valid: the check decides.
//!
//! Every state proposed is valid (`scalify_ir::validate`).
//!
//! **What may not live here:** file formats, processes, rendering.

pub mod check;
pub mod edits;
pub mod pair;

use scalify_claim::Claim;
use scalify_ir::validate::{Severity, ValidateOptions, validate};
use scalify_ir::{Module, Opcode};
use std::time::{Duration, Instant};

/// One program or two.
#[derive(Clone, Debug)]
pub struct State {
    /// The programs: the baseline first.
    pub modules: Vec<Module>,
    /// What is claimed of two.
    pub claim: Claim,
}

impl State {
    /// Instructions of all programs, parameters and tuples left out.
    pub fn size(&self) -> usize {
        let counts =
            |o: Opcode| !matches!(o, Opcode::Parameter | Opcode::Tuple | Opcode::GetTupleElement);
        self.modules.iter().map(|m| m.instrs.iter().filter(|i| counts(i.opcode)).count()).sum()
    }

    /// What is made smaller: instructions, then parameters, then elements, then what constants say.
    fn weight(&self) -> (usize, usize, i64, i64) {
        let params = self.modules.iter().map(|m| m.entry_comp().params.len()).sum();
        let elements = |m: &Module| -> i64 {
            let of = |i: &scalify_ir::Instruction| -> i64 {
                let s = &m.shapes[i.shape.0 as usize];
                s.leaves()
                    .iter()
                    .filter_map(|s| s.as_array()?.elements())
                    .fold(0, i64::saturating_add)
            };
            m.instrs.iter().map(of).fold(0, i64::saturating_add)
        };
        let all = self.modules.iter().map(elements).fold(0, i64::saturating_add);
        (self.size(), params, all, self.modules.iter().map(numbers).sum())
    }

    /// All programs are valid.
    pub fn is_valid(&self) -> bool {
        let o = ValidateOptions { mixed_precision: true, ..ValidateOptions::default() };
        let good = |m: &Module| validate(m, &o).iter().all(|i| i.severity != Severity::Error);
        self.modules.iter().all(good)
    }
}

/// How much constants say: one per array with different elements, and the bits
/// of integers.
fn numbers(m: &Module) -> i64 {
    let of = |i: &scalify_ir::Instruction| -> i64 {
        let scalify_ir::Attrs::Constant(l) = &i.attrs else { return 0 };
        let (Some(a), Some(b)) = (l.shape.as_array(), l.bytes()) else { return 0 };
        let w = a.dtype.literal_bytes().max(1);
        if a.dims.is_empty() && a.dtype.is_int() {
            let v = scalify_refute::edit::number(l).unwrap_or(0.0);
            v.abs().log2().max(-1.0) as i64 + 1
        } else {
            i64::from(b.chunks(w).any(|c| Some(c) != b.get(..w)))
        }
    };
    m.instrs.iter().map(of).sum()
}

/// Says whether a state fails in the way that is looked for.
pub trait Check {
    /// True if it does.
    fn fails(&mut self, s: &State) -> bool;
}

impl<F: FnMut(&State) -> bool> Check for F {
    fn fails(&mut self, s: &State) -> bool {
        self(s)
    }
}

/// Sees a reduction as it goes.
pub trait Watch {
    /// A smaller state that still fails was found.
    fn smaller(&mut self, _state: &State, _what: &str) {}
    /// A state was tried; `true` stops the reduction.
    fn tried(&mut self, _tried: usize) -> bool {
        false
    }
}

/// Watches nothing.
pub struct Blind;

impl Watch for Blind {}

/// What a reduction did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The smallest state that fails.
    pub state: State,
    /// States tried.
    pub tried: usize,
    /// Proposals that were not valid: none, unless an edit is at fault.
    pub invalid: usize,
    /// It was stopped, or the time ran out.
    pub stopped: bool,
}

/// A reduction under way.
pub(crate) struct Run<'a> {
    pub(crate) state: State,
    check: &'a mut dyn Check,
    watch: &'a mut dyn Watch,
    tried: usize,
    invalid: usize,
    until: Option<Instant>,
    pub(crate) stopped: bool,
}

impl Run<'_> {
    /// Takes `s` if it is smaller and still fails.
    pub(crate) fn offer(&mut self, s: State, what: &str) -> bool {
        if self.stopped || s.weight() >= self.state.weight() {
            return false;
        }
        if !s.is_valid() {
            self.invalid += 1;
            return false;
        }
        self.tried += 1;
        let late = self.until.is_some_and(|t| Instant::now() >= t);
        if self.watch.tried(self.tried) || late {
            self.stopped = true;
            return false;
        }
        if !self.check.fails(&s) {
            return false;
        }
        self.state = s;
        self.watch.smaller(&self.state, what);
        true
    }
}

/// Reduces `state`, which must fail, for at most `time`.
pub fn reduce(
    state: State,
    check: &mut dyn Check,
    watch: &mut dyn Watch,
    time: Option<Duration>,
) -> Outcome {
    let until = time.and_then(|t| Instant::now().checked_add(t));
    // Results of their own make outputs easier to leave out.
    let mut own = state.clone();
    own.modules = state.modules.iter().map(edits::spread).collect();
    let alike = own.is_valid() && check.fails(&own);
    let state = if alike { own } else { state };
    let mut r = Run { state, check, watch, tried: 0, invalid: 0, until, stopped: false };
    loop {
        let before = r.state.weight();
        match r.state.modules.len() {
            1 => edits::pass(&mut r),
            _ => pair::pass(&mut r),
        }
        if r.stopped || r.state.weight() >= before {
            break;
        }
    }
    Outcome { state: r.state, tried: r.tried, invalid: r.invalid, stopped: r.stopped }
}
