//! Computations on scalars applied to many lanes at once: reducers,
//! comparators, combiners, `map`.

use super::multi::Multi;
use super::{Active, Machine, exec};
use crate::error::{Fail, Res, invalid};
use crate::ops::convert;
use crate::ops::elementwise::splat;
use crate::ops::movement::{concatenate, take};
use crate::ops::scatter::Combiner;
use crate::ops::sort::KeyOrder;
use crate::tensor::{Tensor, Value};
use rustc_hash::FxHashMap;
use scalify_ir::{Attrs, CompId, CompareKind, Comparison, InstrId, Opcode};

/// Lanes evaluated at once.
const CHUNK: usize = 1 << 16;

impl Machine<'_, '_> {
    /// Applies `comp` to lanes: each argument is a vector, each result too.
    pub(super) fn lift(&mut self, comp: CompId, args: Vec<Tensor>) -> Res<Vec<Tensor>> {
        let n = args.first().map_or(0, Tensor::len);
        if n <= CHUNK {
            return self.lift_chunk(comp, args, n, None);
        }
        let mut parts: Vec<Vec<Tensor>> = Vec::new();
        for at in (0..n).step_by(CHUNK) {
            let index: Vec<usize> = (at..(at + CHUNK).min(n)).collect();
            let some = args.iter().map(|t| take(t, &index)).collect();
            parts.push(self.lift_chunk(comp, some, index.len(), None)?);
        }
        let width = parts.first().map_or(0, Vec::len);
        (0..width)
            .map(|k| {
                let column: Vec<Tensor> = parts.iter().map(|p| p[k].clone()).collect();
                concatenate(&column, 0)
            })
            .collect()
    }

    /// One chunk; the value of `stop` instead of the root's if given, nothing
    /// if that has no lane-wise form.
    fn lift_chunk(
        &mut self,
        comp: CompId,
        args: Vec<Tensor>,
        n: usize,
        stop: Option<InstrId>,
    ) -> Res<Vec<Tensor>> {
        let Some(c) = self.module.comps.get(comp.0 as usize) else {
            return invalid("no such computation");
        };
        if self.depth >= super::MAX_DEPTH {
            return Err(Fail::Limit(crate::error::Limit::Depth));
        }
        self.depth += 1;
        let r = self.lift_body(c, args, n, stop);
        self.depth -= 1;
        r
    }

    fn lift_body(
        &mut self,
        c: &scalify_ir::Computation,
        args: Vec<Tensor>,
        n: usize,
        stop: Option<InstrId>,
    ) -> Res<Vec<Tensor>> {
        let mut env: FxHashMap<InstrId, Value> = FxHashMap::default();
        let stop = stop.unwrap_or(c.root);
        for &id in &c.instrs {
            let Some(ins) = self.module.instrs.get(id.0 as usize) else {
                return invalid("no such instruction");
            };
            self.steps += 1;
            if self.steps > self.step_limit {
                return Err(Fail::Limit(crate::error::Limit::Steps));
            }
            let mut ops = Vec::new();
            for o in &ins.operands {
                match env.get(o) {
                    Some(v) => ops.push(v.clone()),
                    None => return invalid("operand is not computed before its use"),
                }
            }
            let v = self.lift_one(id, ops, &args, n)?;
            let Some(v) = v else {
                // Lane by lane there is only the root's value.
                return if stop == c.root { self.lanes(c, &args, n) } else { Ok(Vec::new()) };
            };
            env.insert(id, v);
            if id == stop {
                break;
            }
        }
        let Some(v) = env.remove(&stop) else { return invalid("root is not in its computation") };
        let out: Vec<Tensor> = match v {
            Value::Tensor(t) => vec![t],
            Value::Tuple(t) => t
                .into_iter()
                .map(|v| match v {
                    Value::Tensor(t) => Ok(t),
                    _ => invalid("nested tuple as result"),
                })
                .collect::<Res<_>>()?,
            Value::Token => return invalid("token as result"),
        };
        if out.iter().any(|t| t.len() != n) {
            return invalid("lanes differ in number");
        }
        Ok(out)
    }

    /// `None` if the instruction has no lane-wise form.
    fn lift_one(
        &mut self,
        id: InstrId,
        ops: Vec<Value>,
        args: &[Tensor],
        n: usize,
    ) -> Res<Option<Value>> {
        use Opcode::*;
        let ins = self.module.instr(id);
        let shape = self.module.shape(id);
        let scalar = shape.as_array().is_some_and(|a| a.dims.is_empty());
        Ok(Some(match ins.opcode {
            Parameter => match (&ins.attrs, args) {
                (Attrs::Parameter(k), _) if (*k as usize) < args.len() => {
                    Value::Tensor(args[*k as usize].clone())
                }
                _ => return invalid("no such argument"),
            },
            Constant if scalar => {
                let Value::Tensor(t) = self.constant(id)? else { return Ok(None) };
                let data = splat(&t, n);
                Value::Tensor(Tensor::raw(t.dtype, &[n as i64], data))
            }
            Tuple => Value::Tuple(ops),
            GetTupleElement | OptimizationBarrier | Domain | AddDependency => exec::pass(ins, ops)?,
            Reshape | Broadcast | Bitcast | Copy | Transpose if scalar => {
                match (ops.into_iter().next(), shape.dtype()) {
                    (Some(Value::Tensor(t)), Some(to)) if t.dtype == to => Value::Tensor(t),
                    // Scalars of as many bits: no layout takes part.
                    (Some(Value::Tensor(t)), Some(to)) if ins.opcode == Bitcast => {
                        let dims = t.dims.clone();
                        Value::Tensor(convert::bitcast_convert(t, to, &dims, self.wide)?)
                    }
                    _ => return Ok(None),
                }
            }
            CustomCall if scalar => match self.identity_call(id) {
                true => match ops.into_iter().next() {
                    Some(v) => v,
                    None => return Ok(None),
                },
                false => return Ok(None),
            },
            Call | Fusion => {
                let comp = self.called(id, 0)?;
                let inner: Vec<Tensor> = tensors(ops)?;
                let mut r = if inner.is_empty() {
                    return Ok(None);
                } else {
                    self.lift_chunk(comp, inner, n, None)?
                };
                match shape.as_tuple() {
                    Some(_) => Value::Tuple(r.into_iter().map(Value::Tensor).collect()),
                    None => match r.pop() {
                        Some(t) => Value::Tensor(t),
                        None => return invalid("no result"),
                    },
                }
            }
            _ if scalar && exec::elementwise(ins.opcode) => {
                let t = exec::elementwise_op(ins, shape, tensors(ops)?, self.wide, false)?;
                Value::Tensor(t)
            }
            _ => return Ok(None),
        }))
    }

    /// Lane by lane, for computations that hold more than elementwise
    /// operations.
    fn lanes(
        &mut self,
        c: &scalify_ir::Computation,
        args: &[Tensor],
        n: usize,
    ) -> Res<Vec<Tensor>> {
        let Some(comp) = self.module.comps.iter().position(|x| std::ptr::eq(x, c)) else {
            return invalid("no such computation");
        };
        let active: Active = [0usize].into_iter().collect();
        let mut columns: Vec<Vec<Tensor>> = Vec::new();
        for lane in 0..n {
            let one = |t: &Tensor| {
                let mut s = take(t, &[lane]);
                s.dims.clear();
                Multi::Same(Value::Tensor(s))
            };
            let r = self.call(CompId(comp as u32), args.iter().map(one).collect(), &active)?;
            let r = match r.get(0) {
                Value::Tuple(v) => tensors(v.clone())?,
                v => tensors(vec![v.clone()])?,
            };
            columns.resize_with(r.len(), Vec::new);
            for (c, t) in columns.iter_mut().zip(r) {
                if t.len() != 1 {
                    return invalid("result is no scalar");
                }
                c.push(Tensor { dims: [1].into_iter().collect(), ..t });
            }
        }
        columns.iter().map(|c| concatenate(c, 0)).collect()
    }

    /// The operation of a computation that only combines its two parameters.
    pub(super) fn known(&self, comp: CompId) -> Option<Opcode> {
        use Opcode::*;
        let c = self.module.comps.get(comp.0 as usize)?;
        let root = self.module.instrs.get(c.root.0 as usize)?;
        let commutes = matches!(root.opcode, Add | Multiply | Maximum | Minimum | And | Or | Xor);
        let number = |o: &InstrId| match self.module.instrs.get(o.0 as usize)?.attrs {
            Attrs::Parameter(n) => Some(n),
            _ => None,
        };
        let ops: Option<Vec<u32>> = root.operands.iter().map(number).collect();
        let both = matches!(ops.as_deref(), Some([0, 1] | [1, 0]));
        (commutes && both && c.params.len() == 2).then_some(root.opcode)
    }

    /// How a scatter's combiner treats old value and update.
    pub(super) fn combiner(&self, comp: CompId) -> Combiner {
        if let Some(op) = self.known(comp) {
            return Combiner::Op(op);
        }
        let Some(c) = self.module.comps.get(comp.0 as usize) else { return Combiner::Other };
        match self.module.instrs.get(c.root.0 as usize).map(|r| &r.attrs) {
            Some(Attrs::Parameter(1)) if c.params.len() == 2 => Combiner::Replace,
            _ => Combiner::Other,
        }
    }

    /// Keys of a comparator of the form `f(one element) < f(other element)`.
    pub(super) fn sort_keys(&mut self, comp: CompId, x: &[Tensor]) -> Res<Option<KeyOrder>> {
        let Some(c) = self.module.comps.get(comp.0 as usize) else { return Ok(None) };
        let Some(root) = self.module.instrs.get(c.root.0 as usize) else { return Ok(None) };
        let Attrs::Compare { direction, kind } = root.attrs else { return Ok(None) };
        let [l, r] = root.operands[..] else { return Ok(None) };
        let mut seen = FxHashMap::default();
        // Left from the first of each pair of parameters, or from the second.
        let swapped = if self.mirror(l, r, 0, &mut seen, 0) {
            false
        } else {
            seen.clear();
            if !self.mirror(l, r, 1, &mut seen, 0) {
                return Ok(None);
            }
            true
        };
        let descending = match direction {
            Comparison::Lt => swapped,
            Comparison::Gt => !swapped,
            _ => return Ok(None),
        };
        let flat: Vec<Tensor> = x
            .iter()
            .flat_map(|t| {
                let t = crate::ops::movement::flat(t);
                [t.clone(), t]
            })
            .collect();
        let n = flat.first().map_or(0, Tensor::len);
        let Some(key) = self.lift_chunk(comp, flat, n, Some(l))?.pop() else { return Ok(None) };
        if key.dtype.is_complex() {
            return Ok(None);
        }
        Ok(Some(KeyOrder { key, descending, total: kind == Some(CompareKind::TotalOrder) }))
    }

    /// Is `r` the same function of the other parameter of each pair as `l` of
    /// parameters `2i + side`?
    fn mirror(
        &self,
        l: InstrId,
        r: InstrId,
        side: u32,
        seen: &mut FxHashMap<(InstrId, InstrId), bool>,
        depth: usize,
    ) -> bool {
        if let Some(&b) = seen.get(&(l, r)) {
            return b;
        }
        let get = |i: InstrId| self.module.instrs.get(i.0 as usize);
        let (Some(a), Some(b)) = (get(l), get(r)) else { return false };
        let same = depth < 100
            && a.opcode == b.opcode
            && a.shape == b.shape
            && a.calls == b.calls
            && a.operands.len() == b.operands.len()
            && match (&a.attrs, &b.attrs) {
                (Attrs::Parameter(p), Attrs::Parameter(q)) => p ^ 1 == *q && p & 1 == side,
                (p, q) => p == q || l == r,
            }
            && a.operands
                .iter()
                .zip(&b.operands)
                .all(|(&p, &q)| self.mirror(p, q, side, seen, depth + 1));
        seen.insert((l, r), same);
        same
    }
}

/// All values as tensors.
pub(super) fn tensors(v: Vec<Value>) -> Res<Vec<Tensor>> {
    v.into_iter()
        .map(|v| match v {
            Value::Tensor(t) => Ok(t),
            _ => invalid("expects arrays"),
        })
        .collect()
}
