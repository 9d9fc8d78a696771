//! Derivatives of analytic programs without step noise: `Im f(x + i h v) / h`.
//!
//! The program is rewritten so that every float is complex. That is legal only
//! where each operation on floats is an analytic function of them and equals
//! the real one on the real line; everything else (maxima, comparisons,
//! absolute values, conversions to integers, ..) gives `None`.

use scalify_interp::Tensor;
use scalify_ir::{ArrayShape, Attrs, DType, InstrId, Literal, Module, Opcode, Shape};

/// The step: so small that its square is lost beside 1, a power of two.
pub(crate) const STEP: f64 = 1.0 / (1u128 << 100) as f64;

/// A program of complex numbers. It takes the inputs of the original and
/// returns the real and imaginary part of one output.
pub(crate) struct Lifted {
    module: Module,
    /// Constants that hold the imaginary part of each entry parameter.
    parts: Vec<Option<InstrId>>,
}

fn has_float(s: &Shape) -> bool {
    s.leaves().iter().any(|l| l.dtype().is_some_and(DType::is_float))
}

/// The shape with complex numbers for floats; `None` if it holds complex
/// numbers already or something else than arrays.
fn complex(s: &Shape) -> Option<Shape> {
    Some(match s {
        Shape::Array(a) if a.dtype.is_complex() => return None,
        Shape::Array(a) if a.dtype.is_float() => {
            Shape::Array(ArrayShape { dtype: DType::C128, ..a.clone() })
        }
        Shape::Array(_) | Shape::Token => s.clone(),
        Shape::Tuple(v) => Shape::Tuple(v.iter().map(complex).collect::<Option<_>>()?),
        _ => return None,
    })
}

/// Operations on floats that are analytic, move elements or call others.
fn analytic(o: Opcode) -> bool {
    use Opcode::*;
    matches!(
        o,
        Add | AllGather
            | AllReduce
            | AllToAll
            | Broadcast
            | Call
            | CollectivePermute
            | Concatenate
            | Conditional
            | Constant
            | Convert
            | Convolution
            | Copy
            | Cosh
            | Cosine
            | Divide
            | Dot
            | DynamicSlice
            | DynamicUpdateSlice
            | Exponential
            | ExponentialMinusOne
            | Fusion
            | Gather
            | GetTupleElement
            | Iota
            | Log
            | LogPlusOne
            | Logistic
            | Map
            | Multiply
            | Negate
            | OptimizationBarrier
            | Pad
            | Parameter
            | Power
            | Reduce
            | ReduceScatter
            | ReduceWindow
            | Reshape
            | Reverse
            | Rsqrt
            | Scatter
            | Select
            | Sine
            | Sinh
            | Slice
            | Sqrt
            | Subtract
            | Tan
            | Tanh
            | Transpose
            | Tuple
            | While
    )
}

/// A constant of floats as complex numbers.
fn constant(l: &Literal) -> Option<Literal> {
    let Some(a) = l.shape.as_array().filter(|a| a.dtype.is_float()) else {
        return (!has_float(&l.shape)).then(|| l.clone());
    };
    let values = Tensor::from_literal(l)?.to_f64();
    let data: Vec<u8> =
        values.iter().flat_map(|x| [x.to_le_bytes(), 0f64.to_le_bytes()]).flatten().collect();
    Some(Literal::dense(ArrayShape { dtype: DType::C128, ..a.clone() }, data))
}

/// A constant of `f64`.
fn reals(dims: &[i64], v: &[f64]) -> Attrs {
    let bytes: Vec<u8> = v.iter().flat_map(|x| x.to_le_bytes()).collect();
    let shape = ArrayShape::new(DType::F64, dims.iter().copied());
    Attrs::Constant(Box::new(Literal::dense(shape, bytes)))
}

impl Lifted {
    /// The program for its output leaf `output`; `None` if it is not analytic,
    /// or has a form that this rewriting does not know.
    pub(crate) fn new(m: &Module, output: usize) -> Option<Lifted> {
        let mut out = m.clone();
        out.header.entry_layout = None;
        for c in &m.comps {
            for &id in &c.instrs {
                let i = m.instr(id);
                let operand = i.operands.iter().any(|&o| has_float(m.shape(o)));
                if !operand && !has_float(m.shape(id)) {
                    continue;
                }
                let cast = i.opcode == Opcode::Convert && !has_float(m.shape(id));
                if !analytic(i.opcode) || cast {
                    return None;
                }
                let shape = out.shape_id(complex(m.shape(id))?);
                let attrs = match &i.attrs {
                    Attrs::Constant(l) => Attrs::Constant(Box::new(constant(l)?)),
                    a => a.clone(),
                };
                let new = out.instrs.get_mut(id.0 as usize)?;
                (new.shape, new.attrs) = (shape, attrs);
            }
        }
        // Parameters of the entry stay real; a constant gives each its
        // imaginary part.
        let entry = m.entry_comp();
        let (mut parts, mut first) = (Vec::new(), Vec::new());
        let mut renamed = std::collections::HashMap::new();
        for &p in &entry.params {
            let Some(a) = m.array(p).filter(|a| a.dtype.is_float()) else {
                // Leaves of tuples would count as inputs of their own.
                m.array(p)?;
                parts.push(None);
                continue;
            };
            let n = usize::try_from(a.elements()?).ok()?;
            let shape = |t| Shape::array(t, a.dims.iter().copied());
            let own = out.shape_id(m.shape(p).clone());
            out.instrs.get_mut(p.0 as usize)?.shape = own;
            let zero = reals(&a.dims, &vec![0.0; n]);
            let im = out.append("step.im", Opcode::Constant, zero, &[], &[], shape(DType::F64));
            let re =
                out.append("step.re", Opcode::Convert, Attrs::None, &[p], &[], shape(DType::F64));
            let z = out.append(
                "step",
                Opcode::Complex,
                Attrs::None,
                &[re, im],
                &[],
                shape(DType::C128),
            );
            first.extend([im, re, z]);
            renamed.insert(p, z);
            parts.push(Some(im));
        }
        for &id in &entry.instrs {
            for o in &mut out.instrs.get_mut(id.0 as usize)?.operands {
                *o = renamed.get(o).copied().unwrap_or(*o);
            }
        }
        let new_root = renamed.get(&entry.root).copied().unwrap_or(entry.root);
        let scalar = |t| Shape::array(t, []);
        let mut last = Vec::new();
        let loss = match m.shape(entry.root) {
            Shape::Tuple(v) => {
                if v.iter().any(|s| s.as_array().is_none()) {
                    return None;
                }
                let index = Attrs::TupleIndex(output as i64);
                let id = out.append(
                    "step.loss",
                    Opcode::GetTupleElement,
                    index,
                    &[new_root],
                    &[],
                    scalar(DType::C128),
                );
                last.push(id);
                id
            }
            _ => new_root,
        };
        let part = |out: &mut Module, name, o| {
            out.append(name, o, Attrs::None, &[loss], &[], scalar(DType::F64))
        };
        let re = part(&mut out, "step.f", Opcode::Real);
        let im = part(&mut out, "step.df", Opcode::Imag);
        let both = Shape::Tuple(vec![scalar(DType::F64); 2]);
        let root = out.append("step.out", Opcode::Tuple, Attrs::None, &[re, im], &[], both);
        last.extend([re, im, root]);
        let c = out.comps.get_mut(m.entry.0 as usize)?;
        let (params, rest): (Vec<InstrId>, Vec<InstrId>) =
            c.instrs.iter().partition(|id| m.instr(**id).opcode == Opcode::Parameter);
        c.instrs = params.into_iter().chain(first).chain(rest).chain(last).collect();
        c.root = root;
        Some(Lifted { module: out, parts })
    }

    /// The program whose parameter `i` has the imaginary part [`STEP`]` v`.
    pub(crate) fn along(&self, i: usize, v: &[f64]) -> Option<Module> {
        let mut m = self.module.clone();
        let im = (*self.parts.get(i)?)?;
        let dims = m.array(im)?.dims.clone();
        let h: Vec<f64> = v.iter().map(|x| x * STEP).collect();
        m.instrs.get_mut(im.0 as usize)?.attrs = reals(&dims, &h);
        Some(m)
    }

    /// The program at real inputs.
    pub(crate) fn real(&self) -> &Module {
        &self.module
    }
}
