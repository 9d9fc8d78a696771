//! Single instructions on given operands.

use super::multi::Multi;
use super::{Active, Machine, RunOptions, check_ids, exec, fits};
use crate::error::{Fail, RunError};
use crate::run::Accumulate;
use crate::tensor::{Tensor, Value};
use rustc_hash::FxHashMap;
use scalify_ir::{InstrId, Module};
use std::time::Instant;

/// Executes instructions of a module one at a time, on all devices, on
/// operands that the caller chooses.
pub struct Stepper<'m> {
    machine: Machine<'m, 'static>,
    active: Active,
    time_limit: Option<std::time::Duration>,
}

impl<'m> Stepper<'m> {
    /// A stepper; the time and step limits of `options` hold for each step.
    ///
    /// # Errors
    /// [`RunError::Inputs`] if an id in the module points at nothing, or
    /// without devices.
    pub fn new(module: &'m Module, options: &RunOptions<'_>) -> Result<Self, RunError> {
        check_ids(module)?;
        let devices = options.replicas.saturating_mul(options.partitions);
        if devices == 0 {
            return Err(RunError::Inputs("no devices".into()));
        }
        let machine = Machine {
            module,
            local: super::positions(module),
            plans: FxHashMap::default(),
            constants: FxHashMap::default(),
            replicas: options.replicas,
            partitions: options.partitions,
            wide: options.accumulate == Accumulate::F64,
            jitter: None,
            deadline: None,
            memory_limit: options.memory_limit,
            step_limit: options.step_limit.unwrap_or(u64::MAX),
            steps: 0,
            live: 0,
            depth: 0,
            rng_state: 0,
            trace: None,
        };
        let active = (0..devices).collect();
        Ok(Stepper { machine, active, time_limit: options.time_limit })
    }

    /// The value of instruction `id` on each device; `operands[k][d]` is
    /// operand `k` on device `d`. Floats are rounded to their types first, or
    /// widened if the stepper accumulates in `f64`. Parameters cannot be
    /// stepped.
    ///
    /// # Errors
    /// As [`super::run`].
    pub fn step(&mut self, id: InstrId, operands: Vec<Vec<Value>>) -> Result<Vec<Value>, RunError> {
        let m = &mut self.machine;
        let module = m.module;
        let n = self.active.len();
        let Some(ins) = module.instrs.get(id.0 as usize) else {
            return Err(RunError::Inputs(format!("no instruction {}", id.0)));
        };
        if operands.len() != ins.operands.len() || operands.iter().any(|o| o.len() != n) {
            let what = format!("{} operands of {n} devices expected", ins.operands.len());
            return Err(m.fail(id, Fail::Invalid(what)));
        }
        (m.steps, m.live, m.depth) = (0, 0, 0);
        m.deadline = self.time_limit.and_then(|t| Instant::now().checked_add(t));
        let wide = m.wide;
        let one = |t: &Tensor| if wide { t.widened() } else { t.narrowed() };
        let typed = |v: Vec<Value>| {
            // Devices that share a value keep sharing it.
            let mut out: Vec<Value> = Vec::with_capacity(n);
            for (k, x) in v.iter().enumerate() {
                match v[..k].iter().position(|y| y.same(x)) {
                    Some(j) => out.push(out[j].clone()),
                    None => out.push(x.map_tensors(&one)),
                }
            }
            Multi::from_vec(out)
        };
        let ops: Vec<Multi> = operands.into_iter().map(typed).collect();
        let active = self.active.clone();
        let v = m.step(id, ops, &active).map_err(|f| m.fail(id, f))?;
        let shape = module.shape(id);
        if !v.all(|x| fits(x, shape)) && !exec::loose(ins.opcode) {
            let e = format!("computed {} where {shape} is declared", super::describe(v.get(0)));
            return Err(m.fail(id, Fail::Invalid(e)));
        }
        Ok((0..n).map(|k| v.get(k).clone()).collect())
    }
}
