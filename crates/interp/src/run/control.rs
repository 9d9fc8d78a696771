//! `while` and `conditional`, with devices that may go different ways.

use super::multi::Multi;
use super::{Active, Machine, scalar};
use crate::error::{Fail, Limit, Res, invalid};
use crate::tensor::Value;
use scalify_ir::{CompId, InstrId};
use std::time::Instant;

impl Machine<'_, '_> {
    /// Runs a called computation; its error already names the instruction.
    pub(super) fn call(&mut self, comp: CompId, args: Vec<Multi>, active: &Active) -> Res<Multi> {
        self.computation(comp, args, active).map_err(|e| Fail::Done(Box::new(e)))
    }

    pub(super) fn called(&self, id: InstrId, k: usize) -> Res<CompId> {
        match self.module.instr(id).calls.get(k) {
            Some(&c) => Ok(c),
            None => invalid(format!("no called computation {k}")),
        }
    }

    pub(super) fn run_while(&mut self, id: InstrId, init: Multi, active: &Active) -> Res<Multi> {
        let (cond, body) = (self.called(id, 0)?, self.called(id, 1)?);
        let mut done: Vec<Option<Value>> = vec![None; active.len()];
        // Positions in `active` of the devices that still loop.
        let mut at: Vec<usize> = (0..active.len()).collect();
        let mut now: Active = active.clone();
        let mut state = init;
        let mut split = false;
        loop {
            if self.deadline.is_some_and(|d| Instant::now() > d) {
                return Err(Fail::Limit(Limit::Time));
            }
            let go = self.call(cond, vec![state.clone()], &now)?;
            let mut stay = Vec::new();
            for (k, &pos) in at.iter().enumerate() {
                match scalar(go.get(k)) {
                    Some(0) => done[pos] = Some(state.get(k).clone()),
                    Some(_) => stay.push(k),
                    None => return invalid("condition is no scalar"),
                }
            }
            if stay.is_empty() {
                if !split {
                    return Ok(state);
                }
                let all: Option<Vec<Value>> = done.into_iter().collect();
                return match all {
                    Some(v) => Ok(Multi::from_vec(v)),
                    None => invalid("a device left the loop without a value"),
                };
            }
            if stay.len() < at.len() {
                split = true;
                state = state.restrict(&stay);
                at = stay.iter().map(|&k| at[k]).collect();
                now = at.iter().map(|&p| active[p]).collect();
            }
            state = self.call(body, vec![state], &now)?;
        }
    }

    pub(super) fn conditional(
        &mut self,
        id: InstrId,
        operands: Vec<Multi>,
        active: &Active,
    ) -> Res<Multi> {
        let branches = self.module.instr(id).calls.len();
        let Some((index, args)) = operands.split_first() else { return invalid("no operands") };
        if branches == 0 || args.len() != branches {
            return invalid(format!("{} arguments for {branches} branches", args.len()));
        }
        let pick = |v: &Value| -> Res<usize> {
            let Some(t) = v.as_tensor() else { return invalid("index is no scalar") };
            let Some(i) = scalar(v) else { return invalid("index is no scalar") };
            Ok(if t.dtype == scalify_ir::DType::Pred {
                if i != 0 { 0 } else { 1 }
            } else {
                usize::try_from(i).ok().filter(|&i| i < branches).unwrap_or(branches - 1)
            }
            .min(branches - 1))
        };
        if let Multi::Same(v) = index {
            let b = pick(v)?;
            let comp = self.called(id, b)?;
            return self.call(comp, vec![args[b].clone()], active);
        }
        let which: Vec<usize> =
            (0..active.len()).map(|k| pick(index.get(k))).collect::<Res<_>>()?;
        let mut out: Vec<Value> = vec![Value::Token; active.len()];
        for (b, arg) in args.iter().enumerate() {
            let at: Vec<usize> = (0..active.len()).filter(|&k| which[k] == b).collect();
            if at.is_empty() {
                continue;
            }
            let now: Active = at.iter().map(|&p| active[p]).collect();
            let comp = self.called(id, b)?;
            let r = self.call(comp, vec![arg.restrict(&at)], &now)?;
            for (k, &p) in at.iter().enumerate() {
                out[p] = r.get(k).clone();
            }
        }
        Ok(Multi::from_vec(out))
    }
}
