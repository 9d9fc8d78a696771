//! Static cost of instructions, computations and modules, from shapes and
//! attributes alone.
//!
//! Conventions are those of XLA's `HloCostAnalysis`, so that numbers agree:
//! a multiply-add is two FLOP; transcendental functions are counted apart;
//! integers count like floats; an instruction reads its operands and writes
//! its result once, except where it touches a part only (slices, gathers,
//! scatters, in-place updates); what a fusion computes inside touches no
//! memory. Where XLA gives up, the difference is said at the function.
//!
//! **What may not live here:** anything about time.

mod collective;
mod conv;
mod fusion;
mod op;
mod trips;

pub use collective::{Axis, Traffic, traffic};
pub use trips::{Trips, trips};

use scalify_ir::{CompId, InstrId, Module, Opcode, Shape};
use serde::Serialize;

/// What one execution costs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Cost {
    /// Operations that are not transcendental; a multiply-add is two.
    pub flops: f64,
    /// Evaluations of exp, log, tanh, power, sine and the like.
    pub transcendentals: f64,
    /// Bytes read from memory.
    pub bytes_read: f64,
    /// Bytes written to memory.
    pub bytes_written: f64,
}

impl Cost {
    /// Bytes read and written.
    pub fn bytes(&self) -> f64 {
        self.bytes_read + self.bytes_written
    }

    /// FLOP and transcendental evaluations together.
    pub fn operations(&self) -> f64 {
        self.flops + self.transcendentals
    }

    /// All fields times `k`.
    #[must_use]
    pub fn times(&self, k: f64) -> Cost {
        Cost {
            flops: self.flops * k,
            transcendentals: self.transcendentals * k,
            bytes_read: self.bytes_read * k,
            bytes_written: self.bytes_written * k,
        }
    }

    /// Field by field.
    #[must_use]
    pub fn plus(&self, o: &Cost) -> Cost {
        Cost {
            flops: self.flops + o.flops,
            transcendentals: self.transcendentals + o.transcendentals,
            bytes_read: self.bytes_read + o.bytes_read,
            bytes_written: self.bytes_written + o.bytes_written,
        }
    }

    /// Of two branches: the larger count of each, and the memory of the one
    /// that touches more.
    #[must_use]
    fn max(&self, o: &Cost) -> Cost {
        let memory = if o.bytes() > self.bytes() { o } else { self };
        Cost {
            flops: self.flops.max(o.flops),
            transcendentals: self.transcendentals.max(o.transcendentals),
            ..*memory
        }
    }
}

/// Costs of a module.
#[derive(Clone, Debug)]
pub struct ModuleCost {
    /// Per instruction: one execution, with everything it calls; loops as
    /// often as `trips` says, once where that is not known.
    pub instrs: Vec<Cost>,
    /// Per instruction: iterations of a loop.
    pub trips: Vec<Option<Trips>>,
    /// Per computation: executions per execution of the entry, as called by
    /// calls, loops, branches (each branch counted once), async starts and
    /// fusions; 0 for reducers and what is not reached. At most 2^53.
    pub executions: Vec<f64>,
    /// Per computation: its instructions run by themselves, so that a trace
    /// may show them. Not so in fusions and reducers.
    pub scheduled: Vec<bool>,
    /// One execution of the entry.
    pub total: Cost,
    /// The same with one iteration of each loop, as XLA counts.
    pub once: Cost,
    /// Loops whose number of iterations is not known.
    pub unknown_loops: usize,
    /// Custom calls, whose work is not known.
    pub custom_calls: usize,
}

impl ModuleCost {
    /// Costs of `m`. Never fails: sizes that are not known (unbounded
    /// dimensions) count as 0. Time is linear in the module.
    pub fn new(m: &Module) -> ModuleCost {
        let n = m.instrs.len();
        let mut found: Vec<Option<Trips>> = vec![None; n];
        let owner = owners(m);
        for (k, i) in m.instrs.iter().enumerate() {
            if i.opcode == Opcode::While {
                found[k] = trips(m, InstrId(k as u32));
            }
        }
        let many = Pass::run(m, |k| found[k].map_or(1.0, |t| t.count as f64));
        let once = Pass::run(m, |_| 1.0);
        let at = m.entry.0 as usize;
        let (executions, scheduled) = executions(m, &found);
        let reached = |k: usize| owner[k].is_some_and(|c| executions[c.0 as usize] > 0.0);
        let count = |f: &dyn Fn(usize) -> bool| (0..n).filter(|&k| reached(k) && f(k)).count();
        ModuleCost {
            total: many.comps.get(at).copied().unwrap_or_default(),
            once: once.comps.get(at).copied().unwrap_or_default(),
            unknown_loops: count(&|k| m.instrs[k].opcode == Opcode::While && found[k].is_none()),
            custom_calls: count(&|k| m.instrs[k].opcode == Opcode::CustomCall),
            instrs: many.instrs,
            trips: found,
            executions,
            scheduled,
        }
    }
}

/// The computation that holds each instruction.
pub fn owners(m: &Module) -> Vec<Option<CompId>> {
    let mut out = vec![None; m.instrs.len()];
    for (c, comp) in m.comps.iter().enumerate() {
        for i in &comp.instrs {
            if let Some(slot) = out.get_mut(i.0 as usize) {
                *slot = Some(CompId(c as u32));
            }
        }
    }
    out
}

/// Costs of all computations, callees first.
struct Pass {
    instrs: Vec<Cost>,
    comps: Vec<Cost>,
}

impl Pass {
    fn run(m: &Module, iterations: impl Fn(usize) -> f64) -> Pass {
        let mut p = Pass {
            instrs: vec![Cost::default(); m.instrs.len()],
            comps: Vec::with_capacity(m.comps.len()),
        };
        let mut fused = vec![false; m.comps.len()];
        for c in
            m.instrs.iter().filter(|i| i.opcode == Opcode::Fusion).filter_map(|i| i.calls.first())
        {
            if let Some(f) = fused.get_mut(c.0 as usize) {
                *f = true;
            }
        }
        let mut reads: Vec<Vec<f64>> = Vec::with_capacity(m.comps.len());
        for (at, comp) in m.comps.iter().enumerate() {
            let mut sum = Cost::default();
            for &id in &comp.instrs {
                let Some(i) = m.instrs.get(id.0 as usize) else { continue };
                // A computation that is not there yet would be a cycle.
                let called = |k: usize| {
                    i.calls
                        .get(k)
                        .and_then(|c| p.comps.get(c.0 as usize))
                        .copied()
                        .unwrap_or_default()
                };
                let cost = match i.opcode {
                    Opcode::While => called(0).plus(&called(1)).times(iterations(id.0 as usize)),
                    Opcode::Call | Opcode::AsyncStart => called(0),
                    Opcode::Conditional => {
                        (1..i.calls.len()).fold(called(0), |a, k| a.max(&called(k)))
                    }
                    Opcode::Fusion => {
                        let r = i.calls.first().and_then(|c| reads.get(c.0 as usize));
                        fusion::cost(m, id, called(0), r.map_or(&[], Vec::as_slice))
                    }
                    _ => op::cost(m, id, &called),
                };
                sum = sum.plus(&cost);
                if let Some(slot) = p.instrs.get_mut(id.0 as usize) {
                    *slot = cost;
                }
            }
            reads.push(if fused[at] { fusion::reads(m, comp, &reads) } else { Vec::new() });
            p.comps.push(sum);
        }
        p
    }
}

/// True for instructions that only run others.
pub fn is_container(op: Opcode) -> bool {
    matches!(op, Opcode::While | Opcode::Call | Opcode::Conditional | Opcode::AsyncStart)
}

/// Executions per computation and whether its instructions run by themselves.
fn executions(m: &Module, trips: &[Option<Trips>]) -> (Vec<f64>, Vec<bool>) {
    const MOST: f64 = 9_007_199_254_740_992.0;
    let mut runs = vec![0.0f64; m.comps.len()];
    let mut scheduled = vec![false; m.comps.len()];
    if let Some(e) = runs.get_mut(m.entry.0 as usize) {
        *e = 1.0;
        scheduled[m.entry.0 as usize] = true;
    }
    for c in (0..m.comps.len()).rev() {
        if runs[c] == 0.0 {
            continue;
        }
        for id in &m.comps[c].instrs {
            let Some(i) = m.instrs.get(id.0 as usize) else { continue };
            if !is_container(i.opcode) && i.opcode != Opcode::Fusion {
                continue;
            }
            let n = match i.opcode {
                Opcode::While => trips[id.0 as usize].map_or(1.0, |t| t.count as f64),
                _ => 1.0,
            };
            for callee in i.calls.iter().map(|c| c.0 as usize).filter(|&x| x < c) {
                runs[callee] = (runs[callee] + runs[c] * n).min(MOST);
                scheduled[callee] |= scheduled[c] && i.opcode != Opcode::Fusion;
            }
        }
    }
    (runs, scheduled)
}

/// Elements of an array, of all arrays in a tuple; 0 where not known.
fn elements(s: &Shape) -> f64 {
    match s {
        Shape::Array(a) => a.dims.iter().map(|&d| d.max(0) as f64).product(),
        Shape::Tuple(_) => s.leaves().iter().map(|s| elements_of_leaf(s)).sum(),
        _ => 0.0,
    }
}

fn elements_of_leaf(s: &Shape) -> f64 {
    s.as_array().map_or(0.0, |a| a.dims.iter().map(|&d| d.max(0) as f64).product())
}

/// Bytes of an array; of a tuple, its table of pointers (8 bytes each).
pub fn bytes(s: &Shape) -> f64 {
    match s {
        Shape::Array(a) => {
            let stated = a.layout.as_ref().map_or(0, |l| l.element_size_in_bits);
            let n = elements_of_leaf(s);
            // Sizes of dynamic dimensions stand behind the elements.
            let sizes = if a.dynamic == 0 { 0.0 } else { 4.0 * a.dims.len() as f64 };
            if stated > 0 {
                (n * stated as f64 / 8.0).ceil() + sizes
            } else {
                n * f64::from(a.dtype.bits().div_ceil(8)) + sizes
            }
        }
        Shape::Tuple(t) => 8.0 * t.len() as f64,
        Shape::Opaque => 8.0,
        Shape::Buffer(b) => bytes(b),
        Shape::Token => 0.0,
    }
}

/// Bytes of all arrays in a shape.
pub fn deep_bytes(s: &Shape) -> f64 {
    s.leaves().iter().filter(|s| s.as_array().is_some()).map(|s| bytes(s)).sum()
}
