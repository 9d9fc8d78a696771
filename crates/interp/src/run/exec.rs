//! One instruction: control flow and device operations go to their modules,
//! everything else to a kernel, once per distinct set of operands.

use super::lift::tensors;
use super::multi::Multi;
use super::{Active, Machine, scalar, tick, u32_scalar};
use crate::error::{Fail, Res, invalid, unsupported};
use crate::ops::{
    conv, convert, dot, elementwise as ew, fft, gather, linalg, movement as mv, norm, reduce, rng,
    scatter, sort, window,
};
use crate::tensor::{Data, Tensor, Value};
use scalify_ir::{Attrs, DType, InstrId, Instruction, LiteralData, Opcode, Shape};

/// Opcodes whose declared shape carries bookkeeping that values do not.
pub(super) fn loose(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        AsyncStart
            | AsyncUpdate
            | AllGatherStart
            | AllReduceStart
            | CollectivePermuteStart
            | CopyStart
    )
}

/// Computed element by element from operands of the result's dimensions.
pub(super) fn elementwise(op: Opcode) -> bool {
    op.is_unary_elementwise()
        || op.is_binary_elementwise()
        || matches!(op, Opcode::Select | Opcode::Clamp)
}

fn opnd(v: &[Tensor], n: usize) -> Res<()> {
    if v.len() == n {
        return Ok(());
    }
    invalid(format!("{} operands, expects {n}", v.len()))
}

/// An elementwise instruction; the result's dimensions are the operands'
/// unless `sized` says that the declared ones rule (bitcasts between widths).
pub(super) fn elementwise_op(
    ins: &Instruction,
    shape: &Shape,
    ops: Vec<Tensor>,
    wide: bool,
    sized: bool,
) -> Res<Tensor> {
    let Some(out) = shape.as_array() else { return invalid("result is no array") };
    let op = ins.opcode;
    let arity = match op {
        Opcode::Select | Opcode::Clamp => 3,
        _ if op.is_binary_elementwise() => 2,
        _ => 1,
    };
    opnd(&ops, arity)?;
    let mut ops = ops.into_iter();
    let (Some(a), b, c) = (ops.next(), ops.next(), ops.next()) else {
        return invalid("no operands");
    };
    match (op, b, c) {
        (Opcode::Convert, ..) => convert::convert(a, out.dtype, wide),
        (Opcode::BitcastConvert, ..) => {
            let dims = if sized { out.dims.clone() } else { a.dims.clone() };
            convert::bitcast_convert(a, out.dtype, &dims, wide)
        }
        (Opcode::ReducePrecision, ..) => match ins.attrs {
            Attrs::ReducePrecision { exponent, mantissa } => {
                ew::reduce_precision(a, exponent, mantissa)
            }
            _ => invalid("no exponent and mantissa bits"),
        },
        (Opcode::Compare, Some(b), _) => match ins.attrs {
            Attrs::Compare { direction, kind } => ew::compare(direction, kind, &a, &b),
            _ => invalid("no direction"),
        },
        (Opcode::StochasticConvert, Some(b), _) => {
            convert::stochastic_convert(&a, &b, out.dtype, wide)
        }
        (Opcode::Select, Some(b), Some(c)) => ew::select(&a, b, c),
        (Opcode::Clamp, Some(b), Some(c)) => ew::clamp(a, b, c),
        (_, Some(b), None) => ew::binary(op, a, b),
        (_, None, None) => ew::unary(op, a),
        _ => invalid("operands"),
    }
}

/// Identities and tuple access.
pub(super) fn pass(ins: &Instruction, ops: Vec<Value>) -> Res<Value> {
    let Some(v) = ops.into_iter().next() else { return invalid("no operands") };
    if ins.opcode != Opcode::GetTupleElement {
        return Ok(v);
    }
    let (Attrs::TupleIndex(i), Value::Tuple(mut t)) = (&ins.attrs, v) else {
        return invalid("expects a tuple and an index");
    };
    match usize::try_from(*i).ok().filter(|&i| i < t.len()) {
        Some(i) => Ok(t.swap_remove(i)),
        None => invalid(format!("element {i} of a tuple of {}", t.len())),
    }
}

/// Kernels that know run-time dimension sizes.
fn knows_sizes(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Tuple
            | GetTupleElement
            | Copy
            | OptimizationBarrier
            | Domain
            | AddDependency
            | GetDimensionSize
            | SetDimensionSize
            | AsyncDone
            | AsyncUpdate
            | CopyStart
            | CopyDone
    )
}

impl Machine<'_, '_> {
    pub(super) fn step(&mut self, id: InstrId, ops: Vec<Multi>, active: &Active) -> Res<Multi> {
        use Opcode::*;
        let ins = self.module.instr(id);
        match ins.opcode {
            While => match <[Multi; 1]>::try_from(ops) {
                Ok([init]) => self.run_while(id, init, active),
                Err(v) => invalid(format!("{} operands, expects 1", v.len())),
            },
            Conditional => self.conditional(id, ops, active),
            Scan => match &ins.attrs {
                Attrs::Scan(a) => self.scan(id, a, ops, active),
                _ => invalid("attributes"),
            },
            Call | Fusion => {
                let comp = self.called(id, 0)?;
                self.call(comp, ops, active)
            }
            AsyncStart => {
                let comp = self.called(id, 0)?;
                let args: Vec<Multi> = ops.clone();
                let r = self.call(comp, ops, active)?;
                let pack = |k: usize| {
                    let args = args.iter().map(|a| a.get(k).clone()).collect();
                    Value::Tuple(vec![Value::Tuple(args), r.get(k).clone()])
                };
                Ok(Multi::from_vec((0..active.len()).map(pack).collect()))
            }
            PartitionId | ReplicaId => {
                let p = self.partitions;
                let of =
                    |&d: &usize| (if ins.opcode == PartitionId { d % p } else { d / p }) as u32;
                let ids: Vec<u32> = active.iter().map(of).collect();
                Ok(if ids.windows(2).all(|w| w[0] == w[1]) {
                    Multi::Same(u32_scalar(ids.first().copied().unwrap_or(0)))
                } else {
                    Multi::Each(ids.into_iter().map(u32_scalar).collect())
                })
            }
            op if op.is_collective() => self.collective(id, ops, active),
            CustomCall => self.custom_call(id, ops, active),
            _ => self.per_device(ops, active, &mut |m, args| m.kernel(id, args)),
        }
    }

    /// Runs a kernel for each distinct set of operands.
    pub(super) fn per_device(
        &mut self,
        mut ops: Vec<Multi>,
        active: &Active,
        kernel: &mut dyn FnMut(&mut Self, Vec<Value>) -> Res<Value>,
    ) -> Res<Multi> {
        if ops.iter().all(Multi::is_same) {
            let args = ops.iter_mut().map(|m| m.take(0)).collect();
            drop(ops);
            return Ok(Multi::Same(kernel(self, args)?));
        }
        // Position of the first device with the same operands.
        let mut first: Vec<usize> = Vec::with_capacity(active.len());
        for k in 0..active.len() {
            let same = |&j: &usize| first[j] == j && ops.iter().all(|m| m.get(j).same(m.get(k)));
            let j = (0..k).find(same).unwrap_or(k);
            first.push(j);
        }
        let mut last = vec![0; active.len()];
        for (k, &j) in first.iter().enumerate() {
            last[j] = k;
        }
        let mut out: Vec<Value> = Vec::with_capacity(active.len());
        for k in 0..active.len() {
            if first[k] != k {
                out.push(out[first[k]].clone());
                continue;
            }
            // Only devices that share no operands may reuse their storage.
            let take = last[k] == k;
            let args = ops
                .iter_mut()
                .map(|m| if take && !m.is_same() { m.take(k) } else { m.get(k).clone() })
                .collect();
            out.push(kernel(self, args)?);
        }
        Ok(Multi::from_vec(out))
    }

    pub(super) fn constant(&mut self, id: InstrId) -> Res<Value> {
        if let Some(v) = self.constants.get(&id) {
            return Ok(v.clone());
        }
        let Some(l) = self.module.literal(id) else { return invalid("no literal") };
        if elided(l) {
            let instr = self.name(id);
            return Err(Fail::Done(Box::new(crate::error::RunError::Elided { instr })));
        }
        let Some(v) = Value::from_literal(l) else {
            return invalid("literal and shape do not fit");
        };
        let v = if self.wide { v.map_tensors(&Tensor::widened) } else { v };
        self.constants.insert(id, v.clone());
        Ok(v)
    }

    fn kernel(&mut self, id: InstrId, ops: Vec<Value>) -> Res<Value> {
        use Opcode::*;
        let ins = self.module.instr(id);
        let shape = self.module.shape(id);
        let sized = |v: &Value| v.as_tensor().is_some_and(|t| t.sizes.is_some());
        if !knows_sizes(ins.opcode) && ops.iter().any(sized) {
            return unsupported("operand with a run-time dimension size");
        }
        match ins.opcode {
            Constant => self.constant(id),
            Tuple => Ok(Value::Tuple(ops)),
            AfterAll => Ok(Value::Token),
            GetTupleElement | OptimizationBarrier | Domain | AddDependency | Copy | AsyncUpdate
            | AllReduceDone => pass(ins, ops),
            AllGatherDone | CollectivePermuteDone | AsyncDone => element(ops, 1),
            CopyDone => element(ops, 0),
            CopyStart => match ops.into_iter().next() {
                Some(v) => Ok(Value::Tuple(vec![v.clone(), v, u32_scalar(0)])),
                None => invalid("no operands"),
            },
            Infeed | Outfeed | Send | SendDone | Recv | RecvDone => {
                unsupported("transfers that leave the program are not interpreted")
            }
            RngBitGenerator => {
                let t = tensors(ops)?;
                let (Attrs::RngBits(a), [state], Some([_, bits])) =
                    (&ins.attrs, &t[..], shape.as_tuple())
                else {
                    return invalid("expects a state, returns state and bits");
                };
                let Some(b) = bits.as_array() else { return invalid("bits are no array") };
                let (s, b) = rng::bits(state, *a, b.dtype, &b.dims, self.wide)?;
                Ok(Value::Tuple(vec![Value::Tensor(s), Value::Tensor(b)]))
            }
            Reduce | ReduceWindow | Sort | Scatter | Map | TopK | BatchNormTraining
            | BatchNormGrad => self.many(id, tensors(ops)?),
            _ => self.one(id, tensors(ops)?).map(Value::Tensor),
        }
    }

    /// Kernels with several results or called computations.
    fn many(&mut self, id: InstrId, mut t: Vec<Tensor>) -> Res<Value> {
        use Opcode::*;
        let ins = self.module.instr(id);
        let shape = self.module.shape(id);
        let n = t.len();
        let wide = self.wide;
        let mut clock = tick(self.deadline);
        let out: Vec<Tensor> = match (ins.opcode, &ins.attrs) {
            (Reduce, Attrs::Dims(d)) => {
                if !n.is_multiple_of(2) {
                    return invalid(format!("{n} operands"));
                }
                let comp = self.called(id, 0)?;
                let known = self.known(comp);
                let init = t.split_off(n / 2);
                reduce::reduce(&t, &init, d, known, &mut |v| self.lift(comp, v))?
            }
            (ReduceWindow, Attrs::Window(w)) => {
                if !n.is_multiple_of(2) {
                    return invalid(format!("{n} operands"));
                }
                let comp = self.called(id, 0)?;
                let known = self.known(comp);
                let init = t.split_off(n / 2);
                let leaf = shape.leaves();
                let dims = leaf.first().map_or(&[][..], |s| s.dims()).to_vec();
                let f = &mut |v| self.lift(comp, v);
                window::reduce_window(&t, &init, w, &dims, known, f, &mut clock)?
            }
            (Sort, Attrs::Sort { dim, .. }) => {
                let comp = self.called(id, 0)?;
                let this = std::cell::RefCell::new(self);
                let keys = &mut |x: &[Tensor]| this.borrow_mut().sort_keys(comp, x);
                let less = &mut |v| this.borrow_mut().lift(comp, v);
                sort::sort(t, *dim, keys, less, &mut clock)?
            }
            (Scatter, Attrs::Scatter(a)) => {
                if n.is_multiple_of(2) || n < 3 {
                    return invalid(format!("{n} operands"));
                }
                let comp = self.called(id, 0)?;
                let how = self.combiner(comp);
                let updates = t.split_off(n / 2 + 1);
                let Some(index) = t.pop() else { return invalid("no indices") };
                let f = &mut |v| self.lift(comp, v);
                scatter::scatter(t, &index, &updates, a, how, f, &mut clock)?
            }
            (Map, _) => {
                let comp = self.called(id, 0)?;
                let Some(dims) = t.first().map(|t| t.dims.clone()) else {
                    return invalid("no operands");
                };
                if t.iter().any(|t| t.dims != dims) {
                    return invalid("operand shapes differ");
                }
                let r = self.lift(comp, t.iter().map(mv::flat).collect())?;
                r.into_iter().map(|r| Tensor { dims: dims.clone(), ..r }).collect()
            }
            (TopK, Attrs::TopK { k, largest }) => {
                opnd(&t, 1)?;
                let (v, i) = sort::topk(&t[0], *k, *largest)?;
                vec![v, i]
            }
            (BatchNormTraining, Attrs::BatchNorm { epsilon, feature }) => {
                norm::training(&t, *epsilon, *feature, wide)?.into()
            }
            (BatchNormGrad, Attrs::BatchNorm { epsilon, feature }) => {
                norm::grad(&t, *epsilon, *feature, wide)?.into()
            }
            _ => return invalid("attributes"),
        };
        let mut out: Vec<Value> = out.into_iter().map(Value::Tensor).collect();
        match (shape, out.len()) {
            (Shape::Array(_), 1) => out.pop().map_or_else(|| invalid("no result"), Ok),
            _ => Ok(Value::Tuple(out)),
        }
    }

    /// Kernels with one array as result.
    fn one(&mut self, id: InstrId, mut t: Vec<Tensor>) -> Res<Tensor> {
        use Opcode::*;
        let ins = self.module.instr(id);
        let shape = self.module.shape(id);
        let wide = self.wide;
        if elementwise(ins.opcode) {
            return elementwise_op(ins, shape, t, wide, true);
        }
        let Some(out) = shape.as_array() else { return invalid("result is no array") };
        let dims: &[i64] = &out.dims;
        let mut clock = tick(self.deadline);
        let arity = match ins.opcode {
            Iota => 0,
            Broadcast | Reshape | Transpose | Slice | Reverse | Bitcast | Fft | Cholesky
            | GetDimensionSize => 1,
            Pad | Dot | Convolution | Gather | TriangularSolve | SetDimensionSize | Rng => 2,
            SelectAndScatter | RaggedDot => 3,
            _ => t.len(),
        };
        opnd(&t, arity)?;
        match (ins.opcode, &ins.attrs) {
            (Iota, Attrs::Iota(d)) => mv::iota(out.dtype, dims, *d, wide),
            (Broadcast, Attrs::Dims(map)) => mv::broadcast(&t[0], map, dims),
            (Broadcast, Attrs::None) => mv::broadcast(&t[0], &[], dims),
            (Transpose, Attrs::Dims(p)) => mv::transpose(t.swap_remove(0), p),
            (Reshape, _) => mv::reshape(t.swap_remove(0), dims),
            (DynamicReshape, _) if !t.is_empty() => mv::reshape(t.swap_remove(0), dims),
            (Bitcast, _) => self.bitcast(id, t.swap_remove(0)),
            (Slice, Attrs::Slice(a)) => mv::slice(&t[0], a),
            (Reverse, Attrs::Dims(d)) => mv::reverse(&t[0], d),
            (Concatenate, Attrs::Dims(d)) if d.len() == 1 => mv::concatenate(&t, d[0]),
            (Concatenate, Attrs::Dim(d)) => mv::concatenate(&t, *d),
            (Pad, Attrs::Pad(p)) => mv::pad(&t[0], &t[1], p, dims),
            (DynamicSlice, Attrs::DynamicSlice(s)) if !t.is_empty() => {
                mv::dynamic_slice(&t[0], &mv::starts(&t[1..])?, s)
            }
            (DynamicUpdateSlice, _) if t.len() >= 2 => {
                let at = mv::starts(&t[2..])?;
                let update = t.swap_remove(1);
                mv::dynamic_update_slice(t.swap_remove(0), &update, &at)
            }
            (Dot, Attrs::Dot(a)) => dot::dot(&t[0], &t[1], a, out.dtype, wide),
            (RaggedDot, Attrs::Dot(a)) => {
                dot::ragged_dot(&t[0], &t[1], &t[2], a, (out.dtype, dims), wide)
            }
            (ScaledDot, Attrs::Dot(a)) => dot::scaled_dot(&t, a, out.dtype, wide),
            (Convolution, Attrs::Conv(a)) => {
                conv::convolution(&t[0], &t[1], a, (out.dtype, dims), wide, &mut clock)
            }
            (Gather, Attrs::Gather(a)) => gather::gather(&t[0], &t[1], a, dims),
            (SelectAndScatter, Attrs::Window(w)) => {
                let (select, scatter) = (self.called(id, 0)?, self.called(id, 1)?);
                let known = self.known(scatter);
                let this = std::cell::RefCell::new(self);
                let s = &mut |v| this.borrow_mut().lift(select, v);
                let f = &mut |v| this.borrow_mut().lift(scatter, v);
                window::select_and_scatter(&t[0], &t[1], &t[2], w, s, (known, f), &mut clock)
            }
            (BatchNormInference, Attrs::BatchNorm { epsilon, feature }) => {
                norm::inference(&t, *epsilon, *feature, wide)
            }
            (Fft, Attrs::Fft { kind, length }) => fft::fft(&t[0], *kind, length, out.dtype, wide),
            (Cholesky, Attrs::Cholesky { lower }) => linalg::cholesky(&t[0], *lower, wide),
            (
                TriangularSolve,
                Attrs::TriangularSolve { left_side, lower, unit_diagonal, transpose_a },
            ) => {
                let how = *transpose_a;
                linalg::triangular_solve(
                    &t[0],
                    &t[1],
                    *left_side,
                    *lower,
                    *unit_diagonal,
                    how,
                    wide,
                )
            }
            (Rng, Attrs::Rng(d)) => {
                self.rng_state += 1;
                let seed = ((id.0 as u64) << 32) ^ self.rng_state as u64;
                rng::rng(*d, &t[0], &t[1], out.dtype, dims, seed, wide)
            }
            (RngGetAndUpdateState, Attrs::RngDelta(d)) => {
                let s = self.rng_state;
                self.rng_state = s.wrapping_add(*d as u128);
                let v = vec![(s >> 64) as u64, s as u64];
                Ok(Tensor::raw(DType::U64, &[2], Data::from_vec(v)))
            }
            (GetDimensionSize, Attrs::Dim(d)) => {
                let size = usize::try_from(*d)
                    .ok()
                    .and_then(|d| Some(t[0].sizes.as_ref().map_or(*t[0].dims.get(d)?, |s| s[d])));
                match size {
                    Some(s) => Ok(Tensor::raw(DType::S32, &[], Data::from_vec(vec![s as i32]))),
                    None => invalid(format!("dimension {d} of {:?}", t[0].dims)),
                }
            }
            (SetDimensionSize, Attrs::Dim(d)) => {
                let size = scalar(&Value::Tensor(t[1].clone()));
                let x = t.swap_remove(0);
                let d = gather::dim(*d, x.rank())?;
                let Some(size) = size.filter(|&s| 0 <= s && s <= x.dims[d]) else {
                    return invalid(format!("size {size:?} of {}", x.dims[d]));
                };
                let mut s: Vec<i64> = x.sizes.as_ref().map_or(x.dims.to_vec(), |s| s.to_vec());
                s[d] = size;
                let full = s[..] == x.dims[..];
                Ok(Tensor { sizes: (!full).then(|| s.into()), ..x })
            }
            _ => unsupported("form of this operation"),
        }
    }

    /// `bitcast`: elements keep their place in memory.
    fn bitcast(&self, id: InstrId, t: Tensor) -> Res<Tensor> {
        let ins = self.module.instr(id);
        let Some(out) = self.module.array(id) else { return invalid("result is no array") };
        let from = ins.operands.first().and_then(|&o| self.module.array(o));
        let order = |s: Option<&scalify_ir::ArrayShape>, rank: usize| -> Vec<i64> {
            let l = s.and_then(|s| s.layout.as_ref()).map(|l| &l.minor_to_major);
            match l.filter(|m| m.len() == rank) {
                Some(m) => m.iter().rev().copied().collect(),
                None => (0..rank as i64).collect(),
            }
        };
        let t = mv::transpose(t.clone(), &order(from, t.rank()))?;
        let major = order(Some(out), out.rank());
        let mut dims = Vec::new();
        let mut back = vec![0i64; out.rank()];
        for (i, &d) in major.iter().enumerate() {
            let d = gather::dim(d, out.rank())?;
            dims.push(out.dims[d]);
            back[d] = i as i64;
        }
        mv::transpose(convert::bitcast_convert(t, out.dtype, &dims, self.wide)?, &back)
    }
}

/// An element of the tuple that is the only operand.
fn element(ops: Vec<Value>, i: usize) -> Res<Value> {
    match ops.into_iter().next() {
        Some(Value::Tuple(mut t)) if i < t.len() => Ok(t.swap_remove(i)),
        _ => invalid("expects the tuple of a start operation"),
    }
}

fn elided(l: &scalify_ir::Literal) -> bool {
    match &l.data {
        LiteralData::Elided => true,
        LiteralData::Tuple(t) => t.iter().any(elided),
        LiteralData::Dense(_) => false,
    }
}
