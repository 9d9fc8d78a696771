//! Cost of instructions other than fusions, calls and loops.

use super::{Cost, bytes, conv, deep_bytes, elements, elements_of_leaf};
use scalify_ir::attrs::Attrs;
use scalify_ir::{InstrId, Module, Opcode, Shape};

const NOTHING: Shape = Shape::Token;

/// Shape of operand `k`; a token where there is none.
fn operand(m: &Module, id: InstrId, k: usize) -> &Shape {
    match m.instr(id).operands.get(k) {
        Some(&o) if (o.0 as usize) < m.instrs.len() => m.shape(o),
        _ => &NOTHING,
    }
}

/// The first array of a result that may be a tuple.
fn first(s: &Shape) -> &Shape {
    match s {
        Shape::Tuple(t) => t.first().unwrap_or(&NOTHING),
        s => s,
    }
}

/// Functions that count as transcendental.
fn is_transcendental(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Acos | Acosh
            | Asin
            | Asinh
            | Atan2
            | Atanh
            | Cbrt
            | Cosh
            | Cosine
            | Erf
            | Exponential
            | ExponentialMinusOne
            | Log
            | LogPlusOne
            | Logistic
            | Power
            | Rsqrt
            | Sine
            | Sinh
            | Sqrt
            | Tan
            | Tanh
    )
}

/// One execution; `called(k)` is one execution of the `k`-th called
/// computation.
pub(super) fn cost(m: &Module, id: InstrId, called: &dyn Fn(usize) -> Cost) -> Cost {
    use Opcode::*;
    let i = m.instr(id);
    let result = m.shape(id);
    let arg = |k: usize| operand(m, id, k);
    let n = elements(result);
    let mut c = Cost {
        bytes_written: deep_bytes(result),
        bytes_read: (0..i.operands.len()).map(|k| bytes(arg(k))).sum(),
        ..Cost::default()
    };
    // `count` evaluations of a called function.
    let apply = |c: &mut Cost, f: Cost, count: f64| {
        c.flops += f.flops * count.max(0.0);
        c.transcendentals += f.transcendentals * count.max(0.0);
    };
    match i.opcode {
        Parameter | Constant | GetTupleElement | Bitcast | AfterAll | AddDependency | Domain => {
            return Cost::default();
        }
        Tuple => {
            c.bytes_read = 0.0;
            c.bytes_written = bytes(result);
        }
        Slice => c.bytes_read = bytes(result),
        DynamicSlice => c.bytes_read = bytes(result) + bytes(arg(1)),
        DynamicUpdateSlice => {
            c.bytes_read = bytes(arg(1)) + bytes(arg(2));
            c.bytes_written = bytes(arg(1));
        }
        Gather => c.bytes_read = bytes(result) + bytes(arg(1)),
        Scatter => scatter(m, id, &mut c, called(0)),
        Transpose if is_bitcast(m, id) => return Cost::default(),
        Dot | ScaledDot | RaggedDot => c.flops = dot(m, id),
        Convolution => c.flops = conv::flops(m, id),
        Fft => {
            let logs: f64 = match &i.attrs {
                Attrs::Fft { length, .. } => {
                    length.iter().map(|&d| f64::from(d.max(1).ilog2())).product()
                }
                _ => 0.0,
            };
            c.flops = 8.0 * logs * elements_of_leaf(arg(0));
        }
        TriangularSolve => {
            let last = arg(0).dims().last().copied().unwrap_or(0).max(0) as f64;
            c.flops = 2.0 * last * elements(arg(1));
            c.bytes_read = bytes(arg(0)) / 2.0 + bytes(arg(1));
        }
        Cholesky => {
            let last = arg(0).dims().last().copied().unwrap_or(0).max(0) as f64;
            c.flops = (last * elements(arg(0)) / 3.0).floor();
            c.bytes_read = bytes(arg(0)) / 2.0;
            c.bytes_written = bytes(arg(0)) / 2.0;
        }
        Sort => {
            let n = elements(arg(0));
            let log = if n > 1.0 { n.log2().ceil() } else { 0.0 };
            c.flops = n * log;
        }
        Map => apply(&mut c, called(0), n),
        Reduce => apply(&mut c, called(0), elements(arg(0)) - elements(first(result))),
        ReduceWindow => apply(&mut c, called(0), windows(m, id)),
        SelectAndScatter => {
            let source = elements(arg(1));
            apply(&mut c, called(0), source * (window_size(m, id) - 1.0));
            apply(&mut c, called(1), source);
        }
        AllReduce | AllReduceStart => c.flops = n,
        Rng | RngBitGenerator => c.transcendentals = n,
        Infeed => {
            c.bytes_read = 0.0;
        }
        Outfeed => {
            c.bytes_written = 0.0;
            c.bytes_read = (0..i.operands.len()).map(|k| deep_bytes(arg(k))).sum();
        }
        Copy => {}
        Select | Clamp => c.flops = n,
        op if op.is_unary_elementwise() || op.is_binary_elementwise() => {
            if is_transcendental(op) {
                c.transcendentals = n;
            } else {
                c.flops = n;
            }
        }
        _ => {}
    }
    c
}

/// A transpose that the layouts undo. (One that moves dimensions of size 1 only
/// counts as a copy, as in XLA.)
fn is_bitcast(m: &Module, id: InstrId) -> bool {
    let Attrs::Dims(perm) = &m.instr(id).attrs else { return false };
    let (Some(a), Some(r)) = (operand(m, id, 0).as_array(), m.array(id)) else { return false };
    let rank = a.dims.len();
    if perm.len() != rank || r.dims.len() != rank {
        return false;
    }
    // Dimensions of the operand, major first, as each lies in memory.
    let order = |s: &scalify_ir::ArrayShape| -> Option<Vec<usize>> {
        match &s.layout {
            Some(l) if l.minor_to_major.len() == rank => l
                .minor_to_major
                .iter()
                .rev()
                .map(|&d| usize::try_from(d).ok().filter(|&d| d < rank))
                .collect(),
            _ => Some((0..rank).collect()),
        }
    };
    let (Some(from), Some(to)) = (order(a), order(r)) else { return false };
    let source: Option<Vec<usize>> =
        to.iter().map(|&d| usize::try_from(perm[d]).ok().filter(|&p| p < rank)).collect();
    let Some(source) = source else { return false };
    from == source
}

/// Two FLOP per element of the result and of the contracted dimensions.
fn dot(m: &Module, id: InstrId) -> f64 {
    let Attrs::Dot(d) = &m.instr(id).attrs else { return 0.0 };
    let lhs = operand(m, id, 0).dims();
    let width: f64 = d
        .lhs_contracting
        .iter()
        .map(|&k| {
            usize::try_from(k).ok().and_then(|k| lhs.get(k)).map_or(0.0, |&n| n.max(0) as f64)
        })
        .product();
    2.0 * elements(m.shape(id)) * width
}

/// Reads and writes what the updates cover.
fn scatter(m: &Module, id: InstrId, c: &mut Cost, f: Cost) {
    let k = m.instr(id).operands.len() / 2;
    let updates: f64 = (k + 1..m.instr(id).operands.len()).map(|j| bytes(operand(m, id, j))).sum();
    c.bytes_read = 2.0 * updates + bytes(operand(m, id, k));
    c.bytes_written = updates;
    let n = elements(operand(m, id, k + 1));
    c.flops = f.flops * n;
    c.transcendentals = f.transcendentals * n;
}

fn window_size(m: &Module, id: InstrId) -> f64 {
    match &m.instr(id).attrs {
        Attrs::Window(w) => w.iter().map(|d| d.size.max(0) as f64).product(),
        _ => 1.0,
    }
}

/// Applications of the function of a reduce-window: one less than the window
/// has elements, per element of the result. A window that spans a whole
/// dimension from everywhere (a sum that is broadcast back) counts as a sum.
fn windows(m: &Module, id: InstrId) -> f64 {
    let result = m.shape(id);
    let out = elements(first(result));
    let size = window_size(m, id);
    if let (Attrs::Window(w), Shape::Array(r)) = (&m.instr(id).attrs, result) {
        let reduced = w.iter().filter(|d| d.size != 1).count();
        let padded = w.iter().filter(|d| d.pad_low != 0 || d.pad_high != 0).count();
        let whole = w.iter().zip(&r.dims).find(|(d, _)| {
            d.size != 1 && d.pad_low != 0 && d.pad_low == d.pad_high && d.size == 2 * d.pad_low + 1
        });
        if let (1, 1, Some((d, &n))) = (reduced, padded, whole)
            && d.pad_low == n - 1
            && n > 0
        {
            return out / n as f64 + (n - 1) as f64;
        }
    }
    (size - 1.0) * out
}
