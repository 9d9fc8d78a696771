//! How much rounding an operation may add to its result.
//!
//! Per element of the result `y` of one operation:
//!
//! `w u |y| + g(n) v S + q`
//!
//! with `u` the unit roundoff of the result's type, `v` that of the type sums
//! are taken in, `S` the sum of the magnitudes of the `n` terms of a sum (0 if
//! it is none), `g(n) = min(n, 8 sqrt(n))`, `q` half the smallest positive
//! normal number, and `w` 1 for operations that round once and 4 for functions
//! that are approximated. Types coarser than `coarsest` count as that.

use crate::flow::{Engine, FlowError, Mode, Node, PerDevice};
use scalify_interp::complex::Complex;
use scalify_interp::{Data, Tensor, Value};
use scalify_ir::{Attrs, DType, InstrId, Module, Opcode};

/// Unit roundoff of a float or complex type; 0 of others.
pub fn roundoff(d: DType) -> f64 {
    let d = d.complex_part().unwrap_or(d);
    match d.mantissa_bits() {
        Some(b) if d.is_float() => 0.5f64.powi(b as i32),
        _ => 0.0,
    }
}

/// Half the smallest normal number.
fn quantum(d: DType) -> f64 {
    match d.complex_part().unwrap_or(d) {
        DType::F64 => 2f64.powi(-1023),
        DType::F32 | DType::Bf16 => 2f64.powi(-127),
        DType::F16 => 2f64.powi(-25),
        d if d.is_float() => 2f64.powi(-10),
        _ => 0.0,
    }
}

/// Functions that are approximated rather than rounded once.
fn approximated(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Exponential
            | ExponentialMinusOne
            | Log
            | LogPlusOne
            | Logistic
            | Tanh
            | Tan
            | Sine
            | Cosine
            | Erf
            | Power
            | Rsqrt
            | Cbrt
            | Acos
            | Acosh
            | Asin
            | Asinh
            | Cosh
            | Sinh
            | Atan2
            | Fft
            | Cholesky
            | TriangularSolve
            | BatchNormInference
            | BatchNormTraining
            | BatchNormGrad
            | CustomCall
    )
}

/// Moves elements or makes them from integers, without rounding.
pub fn moves(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Broadcast
            | Reshape
            | Transpose
            | Slice
            | DynamicSlice
            | DynamicUpdateSlice
            | Concatenate
            | Pad
            | Reverse
            | Gather
            | Bitcast
            | BitcastConvert
            | Copy
            | AllGather
            | AllToAll
            | CollectivePermute
            | CollectiveBroadcast
            | AllGatherStart
            | CollectivePermuteStart
            | Iota
            | Parameter
            | Select
            | Sort
            | TopK
            | Negate
            | Abs
            | Sign
            | Maximum
            | Minimum
            | Clamp
            | Real
            | Imag
    )
}

/// The number of terms of a sum, if the operation is one.
pub(crate) fn terms(m: &Module, i: InstrId, devices: usize) -> Option<f64> {
    use Opcode::*;
    let ins = m.instr(i);
    let dims = |k: usize| ins.operands.get(k).and_then(|&o| m.array(o)).map(|a| &a.dims[..]);
    let count = |k: usize| dims(k).map(|d| d.iter().product::<i64>() as f64);
    let own = m.array(i).map_or(1.0, |a| a.dims.iter().product::<i64>().max(1) as f64);
    match (ins.opcode, &ins.attrs) {
        (Dot, Attrs::Dot(d)) => {
            let l = dims(0)?;
            let n: i64 = d.lhs_contracting.iter().filter_map(|&k| l.get(k as usize)).product();
            Some(n.max(1) as f64)
        }
        (Convolution, _) => Some((count(1)? / own.max(1.0)).max(count(1)?)),
        (Reduce, _) if adds(m, i) => Some((count(0)? / own).max(1.0)),
        (ReduceWindow | SelectAndScatter, _) if adds(m, i) => count(0),
        (Scatter, _) if adds(m, i) => count(2),
        (AllReduce | ReduceScatter | AllReduceStart, _) if adds(m, i) => Some(devices as f64),
        (RaggedDot, _) => count(0),
        _ => None,
    }
}

/// A conversion to a type that holds all values of the old one.
fn widens(m: &Module, i: InstrId) -> bool {
    let from = m.instr(i).operands.first().and_then(|&o| m.dtype(o));
    match (m.instr(i).opcode, from, m.dtype(i)) {
        (Opcode::Convert, Some(f), Some(t)) => {
            f.is_float() && t.is_float() && roundoff(t) <= roundoff(f)
        }
        _ => false,
    }
}

/// Operations that sum in a float type narrower than `f32`, by type.
pub fn narrow_sum(m: &Module, i: InstrId) -> Option<DType> {
    use Opcode::*;
    let sum = match m.instr(i).opcode {
        Add => m.array(i).is_some_and(|a| !a.dims.is_empty()),
        Dot | Convolution => true,
        Reduce | AllReduce | AllReduceStart | ReduceScatter => adds(m, i),
        _ => false,
    };
    m.dtype(i).filter(|&d| sum && d.is_float() && roundoff(d) > roundoff(DType::F32))
}

/// Is the called computation a sum?
fn adds(m: &Module, i: InstrId) -> bool {
    m.instr(i).calls.last().is_some_and(|&c| m.instr(m.comp(c).root).opcode == Opcode::Add)
}

/// The type sums are taken in.
fn sum_type(op: Opcode, d: DType) -> DType {
    match op {
        // Products are summed in f32 at least.
        Opcode::Dot | Opcode::Convolution | Opcode::RaggedDot
            if roundoff(d) > roundoff(DType::F32) =>
        {
            DType::F32
        }
        _ => d,
    }
}

fn magnitudes(t: &Tensor) -> Tensor {
    match &t.widened().data {
        Data::F64(v) => {
            let v: Vec<f64> = v.iter().map(|x| x.abs()).collect();
            Tensor::from_vec(t.dtype, t.dims.iter().copied(), v).unwrap_or_else(|| t.clone())
        }
        Data::C128(v) => {
            let v: Vec<Complex<f64>> =
                v.iter().map(|x| Complex { re: x.re.abs() + x.im.abs(), im: 0.0 }).collect();
            Tensor::from_vec(t.dtype, t.dims.iter().copied(), v).unwrap_or_else(|| t.clone())
        }
        _ => t.clone(),
    }
}

fn value_magnitudes(v: &Value) -> Value {
    match v {
        Value::Tensor(t) => Value::Tensor(magnitudes(t)),
        Value::Tuple(t) => Value::Tuple(t.iter().map(value_magnitudes).collect()),
        Value::Token => Value::Token,
    }
}

/// Numbers of a tensor: one per element, two if complex.
pub fn numbers(t: &Tensor) -> Vec<f64> {
    scalify_refute::compare::numbers(t)
}

/// Allowed rounding of each number of each slot of a node, per device:
/// `[slot][device][number]`. `operands` and `out` are values in `f64`.
///
/// # Errors
/// As of the interpreter.
pub fn allowance(
    e: &mut Engine<'_>,
    node: &Node,
    operands: &[Vec<Value>],
    out: &[PerDevice],
    coarsest: f64,
) -> Result<Vec<Vec<Vec<f64>>>, FlowError> {
    let m = e.module;
    let ins = m.instr(node.instr);
    let op = ins.opcode;
    let n = terms(m, node.instr, e.devices);
    let sums = match n {
        Some(_) => {
            let abs: Vec<Vec<Value>> =
                operands.iter().map(|o| o.iter().map(value_magnitudes).collect()).collect();
            Some(e.step(node.instr, abs, Mode::Wide)?)
        }
        None => None,
    };
    let w = if moves(op) || widens(m, node.instr) {
        0.0
    } else if approximated(op) {
        4.0
    } else if n.is_none() && !ins.calls.is_empty() {
        // Reductions other than sums, scans: every step may round.
        16.0
    } else {
        1.0
    };
    let g = n.map_or(0.0, |n| n.min(8.0 * n.sqrt()));
    let mut all = Vec::with_capacity(out.len());
    for (k, per) in out.iter().enumerate() {
        let mut devices: Vec<Vec<f64>> = Vec::with_capacity(per.len());
        for (d, t) in per.iter().enumerate() {
            let u = roundoff(t.dtype).min(coarsest);
            let v = roundoff(sum_type(op, t.dtype)).min(coarsest);
            let q = match () {
                () if w == 0.0 || u == 0.0 => 0.0,
                () if roundoff(t.dtype) > coarsest => quantum(DType::F32),
                () => quantum(t.dtype),
            };
            let y = numbers(t);
            let s = sums.as_ref().and_then(|s| s.get(k)?.get(d)).map(numbers);
            let one = |(i, y): (usize, &f64)| {
                let s = s.as_ref().and_then(|s| s.get(i)).map_or(0.0, |s| s.abs());
                let r = w * u * y.abs() + g * v * s + q;
                if u == 0.0 { 0.0 } else { r }
            };
            devices.push(y.iter().enumerate().map(one).collect());
        }
        all.push(devices);
    }
    Ok(all)
}
