//! Makes modules without text: for tests and tools.
//!
//! ```
//! use scalify_ir::{DType, ModuleBuilder, Opcode};
//! let mut m = ModuleBuilder::new("m");
//! let mut b = m.computation("main");
//! let x = b.parameter(DType::F32, [2, 3]);
//! let y = b.binary(Opcode::Add, x, x)?;
//! let main = b.finish(y);
//! let module = m.finish(main);
//! assert_eq!(module.shape(y).to_string(), "f32[2,3]");
//! # Ok::<(), scalify_ir::InferError>(())
//! ```

use crate::attrs::{Attrs, CollectiveAttrs, CompareKind, Comparison, DotAttrs, PadDim, SliceAttrs};
use crate::infer::{InferError, err, infer_op, need};
use crate::literal::Literal;
use crate::module::{CompId, Computation, InstrId, Module};
use crate::shape::{ArrayShape, Dims, Shape};
use crate::source::Span;
use crate::{DType, Opcode};

/// Builds a [`Module`], one computation at a time, callees first.
#[derive(Debug)]
pub struct ModuleBuilder {
    module: Module,
}

impl ModuleBuilder {
    /// An empty module.
    pub fn new(name: &str) -> Self {
        ModuleBuilder { module: Module::new(name) }
    }

    /// The module so far, e.g. to set header fields or intern strings.
    pub fn module(&mut self) -> &mut Module {
        &mut self.module
    }

    /// Begins a computation. It joins the module when finished.
    pub fn computation(&mut self, name: &str) -> ComputationBuilder<'_> {
        let name = self.module.strings.intern(name);
        ComputationBuilder { m: &mut self.module, name, instrs: Vec::new(), params: Vec::new() }
    }

    /// A computation `(x, y) -> op(x, y)` on scalars, as reducers are.
    ///
    /// # Errors
    /// If `op` is not defined on two scalars of this type.
    pub fn reducer(&mut self, op: Opcode, dtype: DType) -> Result<CompId, InferError> {
        let name = format!("{}_{}.{}", op.name(), dtype.name(), self.module.comps.len());
        let mut b = self.computation(&name);
        let (x, y) = (b.parameter(dtype, []), b.parameter(dtype, []));
        let r = b.binary(op, x, y)?;
        Ok(b.finish(r))
    }

    /// A computation `(x, y) -> x < y` on scalars, as sorts take.
    ///
    /// # Errors
    /// Never, as every type has an order here; kept for uniformity.
    pub fn less_than(&mut self, dtype: DType) -> Result<CompId, InferError> {
        let name = format!("lt_{}.{}", dtype.name(), self.module.comps.len());
        let mut b = self.computation(&name);
        let (x, y) = (b.parameter(dtype, []), b.parameter(dtype, []));
        let r = b.compare(Comparison::Lt, None, x, y)?;
        Ok(b.finish(r))
    }

    /// The module with this entry.
    pub fn finish(mut self, entry: CompId) -> Module {
        self.module.entry = entry;
        self.module
    }
}

/// Builds one computation. Instructions are named `opcode.id`.
#[derive(Debug)]
pub struct ComputationBuilder<'m> {
    m: &'m mut Module,
    name: crate::Symbol,
    instrs: Vec<InstrId>,
    params: Vec<InstrId>,
}

impl ComputationBuilder<'_> {
    /// The module so far.
    pub fn module(&mut self) -> &mut Module {
        self.m
    }

    /// The next parameter.
    pub fn parameter(&mut self, dtype: DType, dims: impl IntoIterator<Item = i64>) -> InstrId {
        self.parameter_of(Shape::array(dtype, dims))
    }

    /// The next parameter, of any shape.
    pub fn parameter_of(&mut self, shape: Shape) -> InstrId {
        let n = self.params.len() as u32;
        let id = self.unchecked(Opcode::Parameter, Attrs::Parameter(n), &[], &[], shape);
        self.params.push(id);
        id
    }

    /// A constant.
    pub fn constant(&mut self, l: Literal) -> InstrId {
        let shape = l.shape.clone();
        self.unchecked(Opcode::Constant, Attrs::Constant(Box::new(l)), &[], &[], shape)
    }

    /// An `f32` scalar.
    pub fn f32(&mut self, x: f32) -> InstrId {
        let l = Literal::dense(ArrayShape::new(DType::F32, []), x.to_le_bytes().to_vec());
        self.constant(l)
    }

    /// An `s32` scalar.
    pub fn s32(&mut self, x: i32) -> InstrId {
        let l = Literal::dense(ArrayShape::new(DType::S32, []), x.to_le_bytes().to_vec());
        self.constant(l)
    }

    /// Adds an instruction with the shape that follows from its operands.
    ///
    /// # Errors
    /// If it is ill-formed, or its shape does not follow (`convert`,
    /// `reshape`, ...: see [`ComputationBuilder::op_shaped`]).
    pub fn op(
        &mut self,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
    ) -> Result<InstrId, InferError> {
        match infer_op(self.m, opcode, &attrs, operands, calls, None)? {
            Some(shape) => Ok(self.unchecked(opcode, attrs, operands, calls, shape)),
            None => err!("a result shape", "{opcode} needs its result shape given"),
        }
    }

    /// Adds an instruction whose shape is given and checked.
    ///
    /// # Errors
    /// If it is ill-formed or its shape is another one.
    pub fn op_shaped(
        &mut self,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
        shape: Shape,
    ) -> Result<InstrId, InferError> {
        if let Some(s) = infer_op(self.m, opcode, &attrs, operands, calls, Some(&shape))? {
            need!(
                crate::infer::compatible(&s, &shape, false),
                s.to_string(),
                "result shape {shape}"
            );
        }
        Ok(self.unchecked(opcode, attrs, operands, calls, shape))
    }

    /// Adds an instruction as it is, well-formed or not.
    pub fn unchecked(
        &mut self,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
        shape: Shape,
    ) -> InstrId {
        let name = format!("{}.{}", opcode.name(), self.m.instrs.len());
        let id = self.m.append(&name, opcode, attrs, operands, calls, shape);
        self.instrs.push(id);
        id
    }

    /// One operand, no attributes.
    ///
    /// # Errors
    /// See [`ComputationBuilder::op`].
    pub fn unary(&mut self, op: Opcode, x: InstrId) -> Result<InstrId, InferError> {
        self.op(op, Attrs::None, &[x], &[])
    }

    /// Two operands, no attributes.
    ///
    /// # Errors
    /// See [`ComputationBuilder::op`].
    pub fn binary(&mut self, op: Opcode, x: InstrId, y: InstrId) -> Result<InstrId, InferError> {
        self.op(op, Attrs::None, &[x, y], &[])
    }

    /// `x + y`.
    ///
    /// # Errors
    /// See [`ComputationBuilder::op`].
    pub fn add(&mut self, x: InstrId, y: InstrId) -> Result<InstrId, InferError> {
        self.binary(Opcode::Add, x, y)
    }

    /// `x * y`.
    ///
    /// # Errors
    /// See [`ComputationBuilder::op`].
    pub fn multiply(&mut self, x: InstrId, y: InstrId) -> Result<InstrId, InferError> {
        self.binary(Opcode::Multiply, x, y)
    }

    /// Compares elementwise.
    ///
    /// # Errors
    /// See [`ComputationBuilder::op`].
    pub fn compare(
        &mut self,
        direction: Comparison,
        kind: Option<CompareKind>,
        x: InstrId,
        y: InstrId,
    ) -> Result<InstrId, InferError> {
        self.op(Opcode::Compare, Attrs::Compare { direction, kind }, &[x, y], &[])
    }

    /// Converts to another element type.
    ///
    /// # Errors
    /// If `x` is no array.
    pub fn convert(&mut self, x: InstrId, dtype: DType) -> Result<InstrId, InferError> {
        let shape = Shape::array(dtype, self.m.shape(x).dims().to_vec());
        self.op_shaped(Opcode::Convert, Attrs::None, &[x], &[], shape)
    }

    /// Reshapes to these sizes.
    ///
    /// # Errors
    /// If element counts differ.
    pub fn reshape(
        &mut self,
        x: InstrId,
        dims: impl IntoIterator<Item = i64>,
    ) -> Result<InstrId, InferError> {
        let shape = Shape::array(self.m.dtype(x).unwrap_or(DType::Pred), dims);
        self.op_shaped(Opcode::Reshape, Attrs::None, &[x], &[], shape)
    }

    /// Broadcasts: dimension `i` of `x` becomes dimension `map[i]`.
    ///
    /// # Errors
    /// If `map` does not fit.
    pub fn broadcast(
        &mut self,
        x: InstrId,
        dims: impl IntoIterator<Item = i64>,
        map: &[i64],
    ) -> Result<InstrId, InferError> {
        let shape = Shape::array(self.m.dtype(x).unwrap_or(DType::Pred), dims);
        self.op_shaped(Opcode::Broadcast, Attrs::Dims(map.into()), &[x], &[], shape)
    }

    /// Result dimension `i` is dimension `perm[i]` of `x`.
    ///
    /// # Errors
    /// If `perm` is no permutation of the dimensions.
    pub fn transpose(&mut self, x: InstrId, perm: &[i64]) -> Result<InstrId, InferError> {
        self.op(Opcode::Transpose, Attrs::Dims(perm.into()), &[x], &[])
    }

    /// Joins along `dim`.
    ///
    /// # Errors
    /// If other dimensions differ.
    pub fn concatenate(&mut self, xs: &[InstrId], dim: i64) -> Result<InstrId, InferError> {
        self.op(Opcode::Concatenate, Attrs::Dims([dim].into_iter().collect()), xs, &[])
    }

    /// `(start, limit, stride)` per dimension.
    ///
    /// # Errors
    /// If a bound is out of range.
    pub fn slice(&mut self, x: InstrId, r: &[(i64, i64, i64)]) -> Result<InstrId, InferError> {
        let column = |f: fn(&(i64, i64, i64)) -> i64| -> Dims { r.iter().map(f).collect() };
        let s =
            SliceAttrs { start: column(|r| r.0), limit: column(|r| r.1), stride: column(|r| r.2) };
        self.op(Opcode::Slice, Attrs::Slice(Box::new(s)), &[x], &[])
    }

    /// `(low, high, interior)` per dimension.
    ///
    /// # Errors
    /// If a size would be negative.
    pub fn pad(
        &mut self,
        x: InstrId,
        value: InstrId,
        p: &[(i64, i64, i64)],
    ) -> Result<InstrId, InferError> {
        let dim = |&(low, high, interior): &(i64, i64, i64)| PadDim { low, high, interior };
        self.op(Opcode::Pad, Attrs::Pad(p.iter().map(dim).collect()), &[x, value], &[])
    }

    /// Matrix product over the given dimensions.
    ///
    /// # Errors
    /// If sizes differ.
    pub fn dot(&mut self, x: InstrId, y: InstrId, d: DotAttrs) -> Result<InstrId, InferError> {
        self.op(Opcode::Dot, Attrs::Dot(Box::new(d)), &[x, y], &[])
    }

    /// Reduces dimensions with `f`.
    ///
    /// # Errors
    /// If dimensions or the signature of `f` do not fit.
    pub fn reduce(
        &mut self,
        x: InstrId,
        init: InstrId,
        dims: &[i64],
        f: CompId,
    ) -> Result<InstrId, InferError> {
        self.op(Opcode::Reduce, Attrs::Dims(dims.into()), &[x, init], &[f])
    }

    /// A collective on `xs`, with a reducer if it takes one.
    ///
    /// # Errors
    /// If the group size is not known from the attributes or sizes do not fit.
    pub fn collective(
        &mut self,
        op: Opcode,
        xs: &[InstrId],
        attrs: CollectiveAttrs,
        f: Option<CompId>,
    ) -> Result<InstrId, InferError> {
        self.op(op, Attrs::Collective(Box::new(attrs)), xs, f.as_slice())
    }

    /// A tuple.
    pub fn tuple(&mut self, xs: &[InstrId]) -> InstrId {
        let shape = Shape::Tuple(xs.iter().map(|&x| self.m.shape(x).clone()).collect());
        self.unchecked(Opcode::Tuple, Attrs::None, xs, &[], shape)
    }

    /// Element `index` of a tuple.
    ///
    /// # Errors
    /// If there is none.
    pub fn get_tuple_element(&mut self, x: InstrId, index: i64) -> Result<InstrId, InferError> {
        self.op(Opcode::GetTupleElement, Attrs::TupleIndex(index), &[x], &[])
    }

    /// Calls `f`.
    ///
    /// # Errors
    /// If arguments do not fit.
    pub fn call(&mut self, f: CompId, xs: &[InstrId]) -> Result<InstrId, InferError> {
        self.op(Opcode::Call, Attrs::None, xs, &[f])
    }

    /// Ends the computation with this root.
    pub fn finish(self, root: InstrId) -> CompId {
        let id = CompId(self.m.comps.len() as u32);
        self.m.comps.push(Computation {
            name: self.name,
            instrs: self.instrs,
            params: self.params,
            root,
            execution_thread: None,
            other: Vec::new(),
            span: Span::default(),
        });
        id
    }
}
