//! Shape inference: the result shape of one instruction from its operands,
//! attributes and called computations, with the conditions that make it legal.
//!
//! **What lives here:** one rule per opcode, by family in the submodules, with
//! the semantics of XLA's shape inference and HLO verifier.
//!
//! **What may not:** conditions on more than one instruction and its callees'
//! signatures (see [`crate::validate`]).
//!
//! Conventions shared by all rules:
//! - Sizes are *compatible* if equal or one of them is unbounded (`?`); dynamic
//!   flags never make shapes incompatible. Layouts are ignored.
//! - Where operands may differ in float precision, the more precise one names
//!   the result's element type.
//! - Where HLO leaves a part of the result free (element type of `convert` and
//!   `dot`, sizes of `reshape`, ...), the recorded shape supplies it.

pub(crate) mod collective;
mod contract;
mod control;
mod elementwise;
mod index;
mod linalg;
mod movement;
mod reduction;

use crate::attrs::Attrs;
use crate::module::{CompId, InstrId, Module};
use crate::shape::{ArrayShape, Dims, Shape};
use crate::{DType, DTypeClass, Opcode};
use std::borrow::Cow;

/// Why an instruction is ill-formed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}; expected {expected}")]
pub struct InferError {
    /// What was found.
    pub message: Cow<'static, str>,
    /// What would have been legal.
    pub expected: Cow<'static, str>,
}

impl InferError {
    #[cold]
    pub(crate) fn new(
        message: impl Into<Cow<'static, str>>,
        expected: impl Into<Cow<'static, str>>,
    ) -> Self {
        InferError { message: message.into(), expected: expected.into() }
    }
}

/// `err!(expected, "found {}", ..)`: an `Err` of [`InferError`].
macro_rules! err {
    ($expected:expr, $($found:tt)*) => {
        Err($crate::infer::InferError::new(format!($($found)*), $expected))
    };
}
pub(crate) use err;

/// `need!(condition, expected, "found {}", ..)`: returns the error unless the
/// condition holds.
macro_rules! need {
    ($cond:expr, $expected:expr, $($found:tt)*) => {
        if !$cond {
            return $crate::infer::err!($expected, $($found)*);
        }
    };
}
pub(crate) use need;

pub(crate) type Res<T> = Result<T, InferError>;

/// An inferred result, borrowed from the module where it can be.
#[derive(Debug)]
pub(crate) enum Out<'a> {
    /// Any shape is legal.
    Free,
    /// A shape of the module.
    Ref(&'a Shape),
    /// A shape of the module with another element type.
    As(&'a ArrayShape, DType),
    /// A new array.
    Array(ArrayShape),
    /// A new shape.
    Shape(Shape),
    /// The tuple of these instructions' shapes.
    Of(&'a [InstrId]),
    /// A tuple.
    Tuple(Vec<Out<'a>>),
}

impl Out<'_> {
    /// The shape; `None` if free.
    fn into_shape(self, m: &Module) -> Option<Shape> {
        Some(match self {
            Out::Free => return None,
            Out::Ref(s) => s.clone(),
            Out::As(a, dtype) => Shape::Array(ArrayShape { dtype, ..a.clone() }),
            Out::Array(a) => Shape::Array(a),
            Out::Shape(s) => s,
            Out::Of(ids) => Shape::Tuple(ids.iter().map(|&i| m.shape(i).clone()).collect()),
            Out::Tuple(v) => {
                Shape::Tuple(v.into_iter().map(|o| o.into_shape(m)).collect::<Option<_>>()?)
            }
        })
    }

    /// True if `s` is the inferred shape up to layout, dynamic flags and, if
    /// `mixed`, float precision.
    fn matches(&self, m: &Module, s: &Shape, mixed: bool) -> bool {
        match self {
            Out::Free => true,
            Out::Ref(r) => std::ptr::eq(*r, s) || compatible(r, s, mixed),
            Out::As(a, d) => s
                .as_array()
                .is_some_and(|b| same_type(*d, b.dtype, mixed) && same_dims(&a.dims, &b.dims)),
            Out::Array(a) => s.as_array().is_some_and(|b| compatible_arrays(a, b, mixed)),
            Out::Shape(r) => compatible(r, s, mixed),
            Out::Of(ids) => s.as_tuple().is_some_and(|t| {
                t.len() == ids.len()
                    && t.iter().zip(*ids).all(|(s, &i)| {
                        m.instrs.get(i.0 as usize).is_some() && compatible(m.shape(i), s, mixed)
                    })
            }),
            Out::Tuple(v) => s.as_tuple().is_some_and(|t| {
                t.len() == v.len() && t.iter().zip(v).all(|(s, o)| o.matches(m, s, mixed))
            }),
        }
    }
}

/// True if sizes agree or one of them is unbounded.
pub(crate) fn same_size(a: i64, b: i64) -> bool {
    a == b || a == Shape::UNBOUNDED || b == Shape::UNBOUNDED
}

/// Rank and sizes agree.
pub(crate) fn same_dims(a: &[i64], b: &[i64]) -> bool {
    a == b || (a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| same_size(a, b)))
}

/// Element types agree, up to float precision if `mixed`.
pub(crate) fn same_type(a: DType, b: DType, mixed: bool) -> bool {
    a == b || (mixed && a.is_float() && b.is_float())
}

pub(crate) fn compatible_arrays(a: &ArrayShape, b: &ArrayShape, mixed: bool) -> bool {
    same_type(a.dtype, b.dtype, mixed) && same_dims(&a.dims, &b.dims)
}

/// XLA's `Compatible` (`mixed`: `CompatibleIgnoringFpPrecision`).
pub(crate) fn compatible(a: &Shape, b: &Shape, mixed: bool) -> bool {
    match (a, b) {
        (Shape::Array(a), Shape::Array(b)) => compatible_arrays(a, b, mixed),
        (Shape::Tuple(a), Shape::Tuple(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| compatible(a, b, mixed))
        }
        (Shape::Buffer(a), Shape::Buffer(b)) => compatible(a, b, mixed),
        (Shape::Token, Shape::Token) | (Shape::Opaque, Shape::Opaque) => true,
        _ => false,
    }
}

/// The more precise of two element types that agree up to float precision.
pub(crate) fn wider(a: DType, b: DType) -> DType {
    /// (exponent range, significand bits)
    fn rank(d: DType) -> (u32, u32) {
        use DType::*;
        let range = match d {
            F64 => 1024,
            F32 | Bf16 | F8E8M0Fnu => 128,
            F16 | F8E5M2 | F8E5M2Fnuz => 16,
            F8E4M3Fn => 9,
            F8E4M3 | F8E4M3Fnuz => 8,
            F8E4M3B11Fnuz | F6E3M2Fn => 5,
            F8E3M4 => 4,
            F4E2M1Fn | F6E2M3Fn => 3,
            _ => 0,
        };
        (range, d.mantissa_bits().unwrap_or(0))
    }
    if a == b || rank(a) >= rank(b) { a } else { b }
}

/// A sorted, duplicate-free list of dimension numbers below `rank`.
pub(crate) fn ascending(dims: &[i64], rank: usize) -> bool {
    dims.iter().all(|&d| in_rank(d, rank)) && dims.windows(2).all(|w| w[0] < w[1])
}

/// Distinct dimension numbers below `rank`, in any order.
pub(crate) fn distinct(dims: &[i64], rank: usize) -> bool {
    dims.iter().enumerate().all(|(i, &d)| in_rank(d, rank) && !dims[..i].contains(&d))
}

pub(crate) fn in_rank(d: i64, rank: usize) -> bool {
    d >= 0 && (d as u64) < rank as u64
}

/// Collects the dimensions of a result.
#[derive(Default)]
pub(crate) struct DimsOut {
    dims: Dims,
    dynamic: u64,
}

impl DimsOut {
    pub(crate) fn push(&mut self, size: i64, dynamic: bool) {
        let i = self.dims.len();
        if (dynamic || size == Shape::UNBOUNDED) && i < 64 {
            self.dynamic |= 1 << i;
        }
        self.dims.push(size);
    }

    pub(crate) fn copy(&mut self, a: &ArrayShape, i: usize) {
        self.push(a.dims.get(i).copied().unwrap_or(0), a.is_dynamic(i));
    }

    pub(crate) fn array(self, dtype: DType) -> ArrayShape {
        ArrayShape { dtype, dims: self.dims, dynamic: self.dynamic, layout: None }
    }
}

/// Signature of a called computation.
#[derive(Clone, Copy)]
pub(crate) struct Sig<'a> {
    m: &'a Module,
    comp: &'a crate::Computation,
}

impl<'a> Sig<'a> {
    pub(crate) fn params(&self) -> usize {
        self.comp.params.len()
    }

    pub(crate) fn param(&self, i: usize) -> Res<&'a Shape> {
        let id = self.comp.params.get(i);
        let Some(s) = id.and_then(|id| shape_of(self.m, *id)) else {
            return err!("a parameter", "computation {} has no parameter {i}", self.name());
        };
        Ok(s)
    }

    pub(crate) fn result(&self) -> Res<&'a Shape> {
        match shape_of(self.m, self.comp.root) {
            Some(s) => Ok(s),
            None => err!("a root", "computation {} has no root", self.name()),
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        text(self.m, self.comp.name)
    }
}

/// Text of a symbol, also of one that is out of range.
pub(crate) fn text(m: &Module, s: crate::Symbol) -> &str {
    if (s.0 as usize) < m.strings.len() { m.str(s) } else { "" }
}

fn shape_of(m: &Module, id: InstrId) -> Option<&Shape> {
    m.shapes.get(m.instrs.get(id.0 as usize)?.shape.0 as usize)
}

/// An instruction under inference.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    pub(crate) m: &'a Module,
    pub(crate) op: Opcode,
    pub(crate) operands: &'a [InstrId],
    pub(crate) calls: &'a [CompId],
    pub(crate) attrs: &'a Attrs,
    /// The recorded shape, source of what the rules leave free.
    pub(crate) declared: Option<&'a Shape>,
}

impl<'a> Ctx<'a> {
    pub(crate) fn len(&self) -> usize {
        self.operands.len()
    }

    pub(crate) fn shape(&self, i: usize) -> Res<&'a Shape> {
        match self.operands.get(i).and_then(|&id| shape_of(self.m, id)) {
            Some(s) => Ok(s),
            None => err!(format!("at least {} operands", i + 1), "{} operands", self.len()),
        }
    }

    pub(crate) fn array(&self, i: usize) -> Res<&'a ArrayShape> {
        match self.shape(i)? {
            Shape::Array(a) => Ok(a),
            s => err!("an array", "operand {i} is {s}"),
        }
    }

    pub(crate) fn tuple(&self, i: usize) -> Res<&'a [Shape]> {
        match self.shape(i)? {
            Shape::Tuple(t) => Ok(t),
            s => err!("a tuple", "operand {i} is {s}"),
        }
    }

    pub(crate) fn scalar(&self, i: usize) -> Res<&'a ArrayShape> {
        let a = self.array(i)?;
        need!(a.dims.is_empty(), "a scalar", "operand {i} is {a}");
        Ok(a)
    }

    pub(crate) fn token(&self, i: usize) -> Res<()> {
        let s = self.shape(i)?;
        need!(*s == Shape::Token, "a token", "operand {i} is {s}");
        Ok(())
    }

    pub(crate) fn call(&self, i: usize) -> Res<Sig<'a>> {
        match self.calls.get(i).and_then(|&c| self.m.comps.get(c.0 as usize)) {
            Some(comp) => Ok(Sig { m: self.m, comp }),
            None => err!(
                format!("at least {} called computations", i + 1),
                "{} called computations",
                self.calls.len()
            ),
        }
    }

    /// The recorded array shape.
    pub(crate) fn declared_array(&self) -> Res<&'a ArrayShape> {
        match self.declared {
            Some(Shape::Array(a)) => Ok(a),
            Some(s) => err!("an array", "the result is {s}"),
            None => err!("a result shape", "{} needs its result shape given", self.op),
        }
    }

    /// The recorded element type.
    pub(crate) fn declared_type(&self) -> Option<DType> {
        self.declared.and_then(Shape::dtype)
    }

    /// The error for attributes of another family.
    #[cold]
    pub(crate) fn bad_attrs<T>(&self) -> Res<T> {
        err!(
            format!("the attributes of {}", self.op),
            "{}",
            if matches!(self.attrs, Attrs::None) {
                "required attributes are missing"
            } else {
                "attributes of another opcode"
            }
        )
    }

    pub(crate) fn no_calls(&self) -> Res<()> {
        need!(
            self.calls.is_empty(),
            "no called computation",
            "{} calls {} computations",
            self.op,
            self.calls.len()
        );
        Ok(())
    }

    fn run(&self) -> Res<Out<'a>> {
        for i in 0..self.len() {
            self.shape(i)?;
        }
        let want = arity(self.op);
        need!(
            want.contains(&self.len()),
            match (*want.start(), *want.end()) {
                (a, b) if a == b => format!("{a} operands"),
                (a, usize::MAX) => format!("at least {a} operands"),
                (a, b) => format!("{a} to {b} operands"),
            },
            "{} operands",
            self.len()
        );
        use Opcode::*;
        match self.op {
            Abs | Acos | Acosh | Asin | Asinh | Atanh | Cbrt | Ceil | Clz | Cosh | Cosine | Erf
            | Exponential | ExponentialMinusOne | Floor | Imag | IsFinite | Log | LogPlusOne
            | Logistic | Negate | Not | PopulationCount | Real | RoundNearestAfz
            | RoundNearestEven | Rsqrt | Sign | Sine | Sinh | Sqrt | Tan | Tanh => {
                elementwise::unary(self)
            }
            Add | And | Atan2 | Complex | Divide | Maximum | Minimum | Multiply | Or | Power
            | Remainder | ShiftLeft | ShiftRightArithmetic | ShiftRightLogical | Subtract | Xor
            | Compare => elementwise::binary(self),
            Clamp => elementwise::clamp(self),
            Select => elementwise::select(self),
            Convert => elementwise::convert(self),
            BitcastConvert => elementwise::bitcast_convert(self),
            StochasticConvert => elementwise::stochastic_convert(self),
            ReducePrecision => elementwise::reduce_precision(self),
            Map => elementwise::map(self),
            Copy | Domain | OptimizationBarrier => Ok(Out::Ref(self.shape(0)?)),

            Bitcast => Ok(Out::Free),
            Broadcast => movement::broadcast(self),
            Concatenate => movement::concatenate(self),
            DynamicReshape => movement::dynamic_reshape(self),
            GetDimensionSize => movement::get_dimension_size(self),
            Iota => movement::iota(self),
            Pad => movement::pad(self),
            Reshape => movement::reshape(self),
            Reverse => movement::reverse(self),
            SetDimensionSize => movement::set_dimension_size(self),
            Slice => movement::slice(self),
            Transpose => movement::transpose(self),

            DynamicSlice => index::dynamic_slice(self),
            DynamicUpdateSlice => index::dynamic_update_slice(self),
            Gather => index::gather(self),
            Scatter => index::scatter(self),

            Convolution => contract::convolution(self),
            Dot => contract::dot(self),
            RaggedDot => contract::ragged_dot(self),
            ScaledDot => contract::scaled_dot(self),

            Reduce => reduction::reduce(self),
            ReduceWindow => reduction::reduce_window(self),
            Scan => reduction::scan(self),
            SelectAndScatter => reduction::select_and_scatter(self),
            Sort => reduction::sort(self),
            TopK => reduction::topk(self),

            BatchNormGrad => linalg::batch_norm_grad(self),
            BatchNormInference => linalg::batch_norm_inference(self),
            BatchNormTraining => linalg::batch_norm_training(self),
            Cholesky => linalg::cholesky(self),
            Fft => linalg::fft(self),
            Rng => linalg::rng(self),
            RngBitGenerator => linalg::rng_bit_generator(self),
            RngGetAndUpdateState => linalg::rng_get_and_update_state(self),
            TriangularSolve => linalg::triangular_solve(self),

            AllGather | AllGatherStart => collective::all_gather(self),
            AllReduce | AllReduceStart => collective::all_reduce(self),
            AllReduceDone => Ok(Out::Ref(self.shape(0)?)),
            AllGatherDone | CollectivePermuteDone => collective::done(self),
            AllToAll => collective::all_to_all(self),
            CollectiveBroadcast => collective::broadcast(self),
            CollectivePermute | CollectivePermuteStart => collective::permute(self),
            RaggedAllToAll => collective::ragged_all_to_all(self),
            ReduceScatter => collective::reduce_scatter(self),
            PartitionId | ReplicaId => Ok(Out::Array(ArrayShape::new(DType::U32, []))),

            AddDependency => {
                self.token(1)?;
                Ok(Out::Ref(self.shape(0)?))
            }
            AfterAll | SendDone => Ok(Out::Ref(&Shape::Token)),
            AsyncDone | AsyncStart | AsyncUpdate => control::asynchronous(self),
            Call => control::call(self),
            Conditional => control::conditional(self),
            Constant => control::constant(self),
            CopyDone => control::copy_done(self),
            CopyStart => control::copy_start(self),
            CustomCall => control::custom_call(self),
            Fusion => control::fusion(self),
            GetTupleElement => control::get_tuple_element(self),
            Infeed => control::infeed(self),
            Outfeed => control::outfeed(self),
            Parameter => control::parameter(self),
            Recv => control::recv(self),
            RecvDone => control::recv_done(self),
            Send => control::send(self),
            Tuple => Ok(Out::Of(self.operands)),
            While => control::while_loop(self),
        }
    }
}

/// How many operands an opcode takes.
pub fn arity(op: Opcode) -> std::ops::RangeInclusive<usize> {
    use Opcode::*;
    const MANY: usize = usize::MAX;
    match op {
        Constant | Iota | Parameter | PartitionId | ReplicaId | RngGetAndUpdateState => 0..=0,
        AddDependency | Convolution | Gather | Outfeed | Pad | Rng | Send | SetDimensionSize
        | TriangularSolve => 2..=2,
        Cholesky
        | Infeed
        | RngBitGenerator
        | TopK
        | AllGatherDone
        | AllReduceDone
        | AsyncDone
        | AsyncUpdate
        | Bitcast
        | Broadcast
        | CollectivePermuteDone
        | CopyDone
        | CopyStart
        | Domain
        | Fft
        | GetDimensionSize
        | GetTupleElement
        | OptimizationBarrier
        | Recv
        | RecvDone
        | Reshape
        | Reverse
        | SendDone
        | Slice
        | Transpose
        | While => 1..=1,
        BatchNormTraining | Clamp | RaggedDot | Select | SelectAndScatter => 3..=3,
        BatchNormGrad | BatchNormInference => 5..=5,
        ScaledDot => 4..=4,
        // A third and fourth operand carry sparsity metadata.
        Dot => 2..=4,
        RaggedAllToAll => 6..=6,
        CollectivePermute
        | CollectivePermuteStart
        | AllGather
        | AllGatherStart
        | AllToAll
        | CollectiveBroadcast
        | Concatenate
        | Map
        | DynamicReshape
        | DynamicSlice
        | ReduceScatter
        | Sort
        | Scan => 1..=MANY,
        Reduce | ReduceWindow | Conditional | DynamicUpdateSlice => 2..=MANY,
        Scatter => 3..=MANY,
        AfterAll | AllReduce | AllReduceStart | AsyncStart | Call | CustomCall | Fusion | Tuple => {
            0..=MANY
        }
        _ if op.is_unary_elementwise() => 1..=1,
        _ if op.is_binary_elementwise() => 2..=2,
        _ => 0..=MANY,
    }
}

/// Result shape of an instruction, re-inferred. `None` where any shape is
/// legal (custom-call, bitcast, parameter). Parts that HLO leaves free come
/// from the recorded shape. The dynamic flag of an unbounded dimension is set;
/// layouts are those of the operand a shape was taken from, or absent.
///
/// # Errors
/// If operands, attributes or callees break a rule of the opcode. The recorded
/// result shape itself is not compared; [`check`] does that.
pub fn infer(m: &Module, id: InstrId) -> Result<Option<Shape>, InferError> {
    let Some(i) = m.instrs.get(id.0 as usize) else {
        return err!("an instruction of the module", "instruction id {}", id.0);
    };
    let declared = m.shapes.get(i.shape.0 as usize);
    infer_op(m, i.opcode, &i.attrs, &i.operands, &i.calls, declared)
}

/// As [`infer`], for an instruction that is not in the module yet. `declared`
/// supplies what HLO leaves free; without it, `dot` and `convolution` take the
/// more precise operand's element type, and opcodes such as `convert` or
/// `iota` fail.
///
/// # Errors
/// See [`infer`].
pub fn infer_op(
    m: &Module,
    op: Opcode,
    attrs: &Attrs,
    operands: &[InstrId],
    calls: &[CompId],
    declared: Option<&Shape>,
) -> Result<Option<Shape>, InferError> {
    Ok(Ctx { m, op, operands, calls, attrs, declared }.run()?.into_shape(m))
}

/// Checks one instruction against its inferred shape without building it.
/// `mixed` admits operands and results that differ in float precision.
///
/// # Errors
/// See [`infer`]; also if the recorded shape is not the inferred one.
pub fn check(m: &Module, id: InstrId, mixed: bool) -> Result<(), InferError> {
    let Some(i) = m.instrs.get(id.0 as usize) else {
        return err!("an instruction of the module", "instruction id {}", id.0);
    };
    let Some(declared) = m.shapes.get(i.shape.0 as usize) else {
        return err!("a shape of the module", "shape id {}", i.shape.0);
    };
    let ctx = Ctx {
        m,
        op: i.opcode,
        operands: &i.operands,
        calls: &i.calls,
        attrs: &i.attrs,
        declared: Some(declared),
    };
    let out = ctx.run()?;
    if !mixed {
        one_precision(&ctx)?;
    }
    if out.matches(m, declared, mixed) {
        return Ok(());
    }
    let want = out.into_shape(m).map_or_else(String::new, |s| s.to_string());
    err!(want, "result shape {declared}")
}

/// Float operands agree in precision, except where values are passed through
/// or the opcode is defined on several.
fn one_precision(c: &Ctx<'_>) -> Res<()> {
    use Opcode::*;
    if c.len() < 2 {
        return Ok(());
    }
    match c.op {
        AllGather | AllGatherStart | AllReduce | AllReduceStart | AsyncStart | Call
        | Conditional | Convolution | CustomCall | Dot | Fusion | Outfeed | RaggedDot | Recv
        | ReduceWindow | ScaledDot | Scan | Send | Sort | Tuple => return Ok(()),
        _ => {}
    }
    let mut seen = None;
    for i in 0..c.len() {
        let Shape::Array(a) = c.shape(i)? else { continue };
        if a.dtype.is_float() {
            let first = *seen.get_or_insert(a.dtype);
            need!(
                a.dtype == first,
                "float operands of one precision",
                "operands of type {first} and {}",
                a.dtype
            );
        }
    }
    Ok(())
}
