//! `scan`: a computation applied to the elements of the inputs along one
//! dimension, carrying values from step to step. Its callee may hold
//! anything, collectives included.

use super::multi::Multi;
use super::{Active, Machine};
use crate::error::{Res, invalid};
use crate::ops::gather::dim;
use crate::ops::movement::{concatenate, dynamic_slice, reshape};
use crate::tensor::{Tensor, Value};
use scalify_ir::{InstrId, ScanAttrs, Shape};

fn each(m: &Multi, f: &mut dyn FnMut(&Value) -> Res<Value>) -> Res<Multi> {
    Ok(match m {
        Multi::Same(v) => Multi::Same(f(v)?),
        Multi::Each(v) => Multi::from_vec(v.iter().map(f).collect::<Res<_>>()?),
    })
}

fn array(v: &Value) -> Res<&Tensor> {
    v.as_tensor().map_or_else(|| invalid("expects arrays"), Ok)
}

/// Element `i` along dimension `d`, without that dimension.
fn element(v: &Value, d: usize, i: i64) -> Res<Value> {
    let t = array(v)?;
    let d = dim(d as i64, t.rank())?;
    let (mut start, mut sizes) = (vec![0; t.rank()], t.dims.clone());
    (start[d], sizes[d]) = (i, 1);
    let one = dynamic_slice(t, &start, &sizes)?;
    sizes.remove(d);
    Ok(Value::Tensor(reshape(one, &sizes)?))
}

/// Steps side by side in a new dimension `d`.
fn stack(steps: &[&Value], d: usize) -> Res<Value> {
    let mut parts = Vec::new();
    for v in steps {
        let t = array(v)?;
        if d > t.rank() {
            return invalid(format!("dimension {d} of {:?} and one more", t.dims));
        }
        let mut dims = t.dims.clone();
        dims.insert(d, 1);
        parts.push(reshape(t.clone(), &dims)?);
    }
    Ok(Value::Tensor(concatenate(&parts, d as i64)?))
}

/// An array without elements.
fn empty(s: Option<&Shape>) -> Res<Value> {
    match s.and_then(Shape::as_array) {
        Some(a) if a.dims.contains(&0) => match Tensor::from_bytes(a, &[]) {
            Some(t) => Ok(Value::Tensor(t)),
            None => invalid("result shape"),
        },
        _ => invalid("result of a scan without steps"),
    }
}

impl Machine<'_, '_> {
    /// Operands `(inputs.., carries..)`, result `(outputs.., carries..)`.
    pub(super) fn scan(
        &mut self,
        id: InstrId,
        at: &ScanAttrs,
        ops: Vec<Multi>,
        active: &Active,
    ) -> Res<Multi> {
        let comp = self.called(id, 0)?;
        let module = self.module;
        let shape = module.shape(id);
        let count = usize::try_from(at.num_carries).ok().filter(|&n| n <= ops.len());
        let (Some(count), Some(d)) = (count, usize::try_from(at.dim).ok()) else {
            return invalid(format!("{} carries, dimension {}", at.num_carries, at.dim));
        };
        let mut inputs = ops;
        let mut carries = inputs.split_off(inputs.len() - count);
        let leaves: Vec<&Shape> = match shape {
            Shape::Tuple(t) => t.iter().collect(),
            s => vec![s],
        };
        let Some(outputs) = leaves.len().checked_sub(count) else {
            return invalid(format!("{} results for {count} carries", leaves.len()));
        };
        let sized = match inputs.first() {
            Some(m) => array(m.get(0))?.dims.get(d).copied(),
            None => leaves.first().and_then(|s| s.dims().get(d).copied()),
        };
        let Some(steps) = sized else { return invalid("nothing is scanned") };
        let mut results: Vec<Vec<Multi>> = Vec::new();
        for k in 0..steps {
            let i = if at.is_reverse { steps - 1 - k } else { k };
            let mut args = Vec::with_capacity(inputs.len() + count);
            for m in &inputs {
                args.push(each(m, &mut |v| element(v, d, i))?);
            }
            args.append(&mut carries);
            let r = self.call(comp, args, active)?;
            let mut parts = Vec::new();
            for j in 0..outputs + count {
                parts.push(each(&r, &mut |v| match v {
                    Value::Tuple(t) => {
                        t.get(j).cloned().map_or_else(|| invalid("too few results"), Ok)
                    }
                    v if outputs + count == 1 => Ok(v.clone()),
                    _ => invalid("result is no tuple"),
                })?);
            }
            carries = parts.split_off(outputs);
            results.push(parts);
        }
        if at.is_reverse {
            results.reverse();
        }
        let mut out = Vec::new();
        for k in 0..active.len() {
            let mut all = Vec::new();
            for j in 0..outputs {
                let column: Vec<&Value> = results.iter().map(|r| r[j].get(k)).collect();
                all.push(if column.is_empty() {
                    empty(leaves.get(j).copied())?
                } else {
                    stack(&column, d)?
                });
            }
            all.extend(carries.iter().map(|c| c.get(k).clone()));
            out.push(match (shape, all.len()) {
                (Shape::Array(_), 1) => all.swap_remove(0),
                _ => Value::Tuple(all),
            });
            let joint = results.iter().flatten().chain(&carries).all(Multi::is_same);
            if joint {
                break;
            }
        }
        Ok(match out.len() {
            1 => Multi::Same(out.swap_remove(0)),
            _ => Multi::from_vec(out),
        })
    }
}
