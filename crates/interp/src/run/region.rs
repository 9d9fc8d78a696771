//! Execution of a region: elementwise instructions that run together.

use super::multi::Multi;
use super::plan::{Plan, Region};
use super::{Active, Machine, bytes, exec};
use crate::error::{Fail, Limit, Res, RunError, invalid, unsupported};
use crate::ops::{elementwise::blank, fuse};
use crate::tensor::{Tensor, Value};
use scalify_ir::{InstrId, Opcode, Shape};
use std::time::Instant;

impl Machine<'_, '_> {
    /// Runs region `r`, whose place is position `k`, and stores its results.
    pub(super) fn region(
        &mut self,
        plan: &Plan,
        r: usize,
        k: usize,
        slots: &mut [Option<Multi>],
        sizes: &mut [u64],
        active: &Active,
    ) -> Result<(), RunError> {
        let Some(region) = plan.regions.get(r) else { return Ok(()) };
        let Some(&first) = region.members.first() else { return Ok(()) };
        if region.results.is_empty() {
            return Ok(());
        }
        self.steps += region.members.len() as u64;
        if self.steps > self.step_limit {
            return Err(self.fail(first, Fail::Limit(Limit::Steps)));
        }
        if self.deadline.is_some_and(|d| Instant::now() > d) {
            return Err(self.fail(first, Fail::Limit(Limit::Time)));
        }
        let mut operands = Vec::with_capacity(region.externals.len());
        for &e in &region.externals {
            let dies = plan.dead[k].contains(&e);
            let slot = slots.get_mut(e as usize).filter(|_| (e as usize) < k);
            match slot.and_then(|s| if dies { s.take() } else { s.clone() }) {
                Some(v) => operands.push(v),
                None => {
                    let e = "an operand is not computed before it";
                    return Err(self.fail(first, Fail::Invalid(e.into())));
                }
            }
        }
        let copies = if operands.iter().all(Multi::is_same) { 1 } else { active.len() as u64 };
        for &(o, id) in &region.results {
            let need = bytes(self.module.shape(id), self.wide).saturating_mul(copies);
            if self.live.saturating_add(need) > self.memory_limit {
                return Err(self.fail(id, Fail::Limit(Limit::Memory)));
            }
            self.live += need;
            sizes[o as usize] = need;
        }
        let v = self.per_device(operands, active, &mut |m, args| m.fused(region, args));
        let v = v.map_err(|f| self.fail(first, f))?;
        for (&(o, _), v) in region.results.iter().zip(v.untuple(region.results.len())) {
            slots[o as usize] = Some(v);
        }
        Ok(())
    }

    /// One device's results.
    fn fused(&mut self, region: &Region, args: Vec<Value>) -> Res<Value> {
        let args = super::lift::tensors(args)?;
        if args.iter().any(|t| t.sizes.is_some()) {
            return unsupported("operand with a run-time dimension size");
        }
        let (module, wide) = (self.module, self.wide);
        // Errors name the instruction they come from.
        let apply = |i: usize, ops: Vec<Tensor>| -> Res<Tensor> {
            let id = region.members[i];
            let ins = module.instr(id);
            let shape = module.shape(id);
            let one = |mut ops: Vec<Tensor>| -> Res<Tensor> {
                if ins.opcode == Opcode::Reshape {
                    return ops.pop().map_or_else(|| invalid("no operands"), Ok);
                }
                exec::elementwise_op(ins, shape, ops, wide, false)
            };
            let t = one(ops).map_err(|f| blame(module, id, f))?;
            match shape {
                Shape::Array(a) if a.dtype == t.dtype => Ok(t),
                _ => {
                    let e = format!("computed {} where {shape} is declared", t.dtype);
                    Err(blame(module, id, Fail::Invalid(e)))
                }
            }
        };
        let zero = |t, n| blank(t, wide, n);
        let out = fuse::run(&region.steps, &args, &apply, &zero, self.deadline)?;
        let mut parts = Vec::with_capacity(out.len());
        for (data, &(_, id)) in out.into_iter().zip(&region.results) {
            let Some(a) = self.module.array(id) else { return invalid("result is no array") };
            parts.push(Value::Tensor(Tensor::raw(a.dtype, &a.dims, data)));
        }
        Ok(Value::Tuple(parts))
    }
}

/// A failure of instruction `id`.
fn blame(m: &scalify_ir::Module, id: InstrId, f: Fail) -> Fail {
    Fail::Done(Box::new(super::failure(m, id, f)))
}
