//! Custom calls with a known meaning.

use super::multi::Multi;
use super::{Active, Machine, fits};
use crate::error::{Res, invalid, unsupported};
use crate::ops::norm;
use crate::ops::sort::topk;
use crate::tensor::Value;
use scalify_ir::{Attrs, InstrId};

/// Targets that return their operand.
const IDENTITY: &[&str] = &[
    "Sharding",
    "annotate_device_placement",
    "MoveToDevice",
    "MoveToHost",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.ShardingGroup",
    "xla.sdy.PropagationBarrier",
    "AwsNeuronTransferWithStaticRing",
];

impl Machine<'_, '_> {
    fn target(&self, id: InstrId) -> &str {
        match &self.module.instr(id).attrs {
            Attrs::CustomCall(c) => self.module.str(c.target),
            _ => "",
        }
    }

    /// Does this custom call return its operand?
    pub(super) fn identity_call(&self, id: InstrId) -> bool {
        IDENTITY.contains(&self.target(id))
    }

    pub(super) fn custom_call(
        &mut self,
        id: InstrId,
        mut ops: Vec<Multi>,
        active: &Active,
    ) -> Res<Multi> {
        let shape = self.module.shape(id);
        let target = self.target(id).to_string();
        match target.as_str() {
            t if IDENTITY.contains(&t) => match ops.pop() {
                Some(v) if ops.is_empty() => Ok(v),
                _ => invalid("expects one operand"),
            },
            "SPMDFullToShardShape" | "xla.sdy.GlobalToLocalShape" => {
                if let Some(v) = unchanged(&ops, shape) {
                    return Ok(v);
                }
                self.split(id, &ops, active)
            }
            "SPMDShardToFullShape" | "xla.sdy.LocalToGlobalShape" => {
                let solo = self.replicas * self.partitions == 1;
                if let Some(v) = unchanged(&ops, shape).filter(|_| solo) {
                    return Ok(v);
                }
                self.join(id, &ops, active)
            }
            "AwsNeuronRmsNorm" => {
                let config = self.module.instr(id).extra.as_ref();
                let text = config.and_then(|e| e.backend_config.as_ref());
                let d = text.and_then(|b| self.module.str(b.text).trim().parse().ok());
                let (Some(d), Some(a)) = (d, shape.as_array()) else {
                    return invalid("expects a dimension as backend_config");
                };
                let to = a.clone();
                self.per_device(ops, active, &mut |m, args| {
                    let t: Option<Vec<_>> = args.iter().map(|v| v.as_tensor().cloned()).collect();
                    let Some(t) = t else { return invalid("expects arrays") };
                    if t.first().is_none_or(|x| x.dims != to.dims) || !to.dtype.is_float() {
                        return invalid("expects an array of the result's sizes");
                    }
                    norm::rms(&t, d, to.dtype, m.wide).map(Value::Tensor)
                })
            }
            "TopK" => {
                let k = match shape.as_tuple() {
                    Some([v, _]) => v.dims().last().copied(),
                    _ => None,
                };
                let ([x], Some(k)) = (&ops[..], k) else {
                    return invalid("expects one array, returns values and indices");
                };
                let one = |v: &Value| -> Res<Value> {
                    let Some(t) = v.as_tensor() else { return invalid("expects an array") };
                    let (v, i) = topk(t, k, true)?;
                    Ok(Value::Tuple(vec![Value::Tensor(v), Value::Tensor(i)]))
                };
                Ok(match x {
                    Multi::Same(v) => Multi::Same(one(v)?),
                    Multi::Each(v) => Multi::from_vec(v.iter().map(one).collect::<Res<_>>()?),
                })
            }
            t => unsupported(format!("custom call target {t:?}")),
        }
    }
}

/// The operands as result, if they have its shape already.
fn unchanged(ops: &[Multi], shape: &scalify_ir::Shape) -> Option<Multi> {
    match (ops, shape.as_tuple()) {
        ([m], None) => m.all(|v| fits(v, shape)).then(|| m.clone()),
        (_, Some(t)) if t.len() == ops.len() => {
            let same = ops.iter().zip(t).all(|(m, s)| m.all(|v| fits(v, s)));
            if !same {
                return None;
            }
            let n = ops.iter().map(|m| if let Multi::Each(v) = m { v.len() } else { 1 }).max()?;
            let pack = |k| Value::Tuple(ops.iter().map(|m| m.get(k).clone()).collect());
            Some(Multi::from_vec((0..n).map(pack).collect()))
        }
        _ => None,
    }
}
