//! Where NaN and infinities begin.
//!
//! An operation *writes* a NaN if its result has one and none of its operands
//! on that device has, and an infinity likewise. Constants and operations that
//! only move elements write neither.

use crate::analyze::unflatten;
use crate::bound::{moves, numbers};
use crate::flow::{Flow, NodeId, Slot};
use scalify_interp::Tensor;
use scalify_ir::{DType, Module, Opcode};
use serde::Serialize;

/// An operand of a writer.
#[derive(Clone, Debug, Serialize)]
pub struct Operand {
    /// The operation that made it.
    pub operation: String,
    /// Its element at the writer's index if it has the same sizes, or its only
    /// element.
    #[serde(serialize_with = "optional")]
    pub value: Option<f64>,
    /// Smallest and largest element on that device (NaN left out).
    #[serde(serialize_with = "crate::diff::number")]
    pub min: f64,
    /// See `min`.
    #[serde(serialize_with = "crate::diff::number")]
    pub max: f64,
}

fn optional<S: serde::Serializer>(x: &Option<f64>, s: S) -> Result<S::Ok, S::Error> {
    match x {
        Some(x) => crate::diff::number(x, s),
        None => s.serialize_none(),
    }
}

/// An operation that makes a value that is not finite.
#[derive(Clone, Debug, Serialize)]
pub struct Writer {
    /// The operation, with the loops and calls it is in where executed
    /// repeatedly.
    pub operation: String,
    /// Opcode.
    pub opcode: &'static str,
    /// Element type.
    pub dtype: &'static str,
    /// `file:line`.
    pub source: Option<String>,
    /// First device with such a value.
    pub device: usize,
    /// Its index there.
    pub index: Vec<i64>,
    /// The value.
    #[serde(serialize_with = "crate::diff::number")]
    pub value: f64,
    /// Such elements, over all devices.
    pub count: usize,
    /// Devices that have one.
    pub devices: Vec<usize>,
    /// All operands are finite on that device.
    pub finite_operands: bool,
    /// Operands.
    pub operands: Vec<Operand>,
    /// Position among the operations of the run.
    pub node: NodeId,
}

/// A finite value near the largest of its type.
#[derive(Clone, Debug, Serialize)]
pub struct Near {
    /// The operation.
    pub operation: String,
    /// Element type.
    pub dtype: &'static str,
    /// `file:line`.
    pub source: Option<String>,
    /// Device.
    pub device: usize,
    /// Largest magnitude.
    #[serde(serialize_with = "crate::diff::number")]
    pub max: f64,
    /// That over the type's largest finite value.
    #[serde(serialize_with = "crate::diff::number")]
    pub share: f64,
}

/// What [`trace`] found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// `scalify-nan-trace/1`.
    pub schema: &'static str,
    /// Writers in the order of execution; the first is where to look.
    pub writers: Vec<Writer>,
    /// Inputs that are not finite.
    pub inputs: Vec<String>,
    /// Outputs that are not finite, by position.
    pub outputs: Vec<usize>,
    /// Operations that came near the largest value, the nearest first.
    pub near: Vec<Near>,
    /// Operations executed.
    pub operations: usize,
}

/// Largest finite value of a float type.
pub fn largest(d: DType) -> Option<f64> {
    Some(match d.complex_part().unwrap_or(d) {
        DType::F64 => f64::MAX,
        DType::F32 => f64::from(f32::MAX),
        DType::Bf16 => 3.3895313892515355e38,
        DType::F16 => 65504.0,
        DType::F8E5M2 | DType::F8E5M2Fnuz => 57344.0,
        DType::F8E4M3Fn => 448.0,
        DType::F8E4M3 | DType::F8E4M3Fnuz => 240.0,
        DType::F8E4M3B11Fnuz => 30.0,
        _ => return None,
    })
}

#[derive(Clone, Copy, Default)]
struct Has {
    nan: bool,
    inf: bool,
}

fn has(t: &Tensor) -> Has {
    if !(t.dtype.is_float() || t.dtype.is_complex()) {
        return Has::default();
    }
    numbers(t).iter().fold(Has::default(), |h, x| Has {
        nan: h.nan || x.is_nan(),
        inf: h.inf || x.is_infinite(),
    })
}

/// Writers of NaN and infinities in a run, and operations that came within
/// `near` (a share) of the largest value of their type.
pub fn trace(m: &Module, f: &Flow, near: f64) -> Found {
    let facts: Vec<Vec<Has>> = f.values.iter().map(|v| v.iter().map(has).collect()).collect();
    let mut writers = Vec::new();
    let mut close: Vec<Near> = Vec::new();
    for (k, n) in f.nodes.iter().enumerate() {
        let op = m.instr(n.instr).opcode;
        if op == Opcode::Parameter || op == Opcode::Constant {
            continue;
        }
        let reads = n.reads();
        for s in n.slots.0..n.slots.1 {
            if let Some(w) = writer(m, f, &facts, k as NodeId, s, &reads, op) {
                writers.push(w);
            }
            if moves(op) {
                continue;
            }
            if let Some(c) = nearness(m, f, k as NodeId, s).filter(|c| c.share >= near) {
                close.push(c);
            }
        }
    }
    close.sort_by(|a, b| b.share.total_cmp(&a.share));
    let bad = |s: &Slot| facts[*s as usize].iter().any(|h| h.nan || h.inf);
    let inputs = f
        .inputs
        .iter()
        .filter(|s| bad(s))
        .map(|&s| {
            let i = f.node_of(s).instr;
            m.op_name(i).unwrap_or(m.name_of(i)).to_owned()
        })
        .collect();
    let outputs = (0..f.outputs.len()).filter(|&k| bad(&f.outputs[k])).collect();
    Found {
        schema: "scalify-nan-trace/1",
        writers,
        inputs,
        outputs,
        near: close,
        operations: f.nodes.len(),
    }
}

fn writer(
    m: &Module,
    f: &Flow,
    facts: &[Vec<Has>],
    k: NodeId,
    s: Slot,
    reads: &[Slot],
    op: Opcode,
) -> Option<Writer> {
    let per = &f.values[s as usize];
    // Collectives read all devices.
    let all = op.is_collective();
    let read = |d: usize| -> Has {
        let one = |h: Has, x: &Has| Has { nan: h.nan || x.nan, inf: h.inf || x.inf };
        reads.iter().fold(Has::default(), |h, &r| {
            let v = &facts[r as usize];
            if all { v.iter().fold(h, one) } else { v.get(d).map_or(h, |x| one(h, x)) }
        })
    };
    let (mut devices, mut count) = (Vec::new(), 0);
    let mut first: Option<(usize, usize, f64)> = None;
    for d in 0..per.len() {
        let own = facts[s as usize][d];
        let from = read(d);
        let (nan, inf) = (own.nan && !from.nan, own.inf && !from.inf);
        if !nan && !inf {
            continue;
        }
        devices.push(d);
        for (i, x) in numbers(&per[d]).into_iter().enumerate() {
            if nan && x.is_nan() || inf && x.is_infinite() {
                count += 1;
                if first.is_none() {
                    first = Some((d, i, x));
                }
            }
        }
    }
    let (device, at, value) = first?;
    let t = &per[device];
    let width = scalify_refute::compare::width(t.dtype);
    let operands = reads
        .iter()
        .map(|&r| {
            let v = &f.values[r as usize][device];
            let x = numbers(v);
            let finite = || x.iter().copied().filter(|x| !x.is_nan());
            let value = match () {
                () if v.dims == t.dims => x.get(at).copied(),
                () if x.len() == 1 => x.first().copied(),
                () => None,
            };
            Operand {
                operation: f.name(m, f.slots[r as usize]),
                value,
                min: finite().fold(f64::INFINITY, f64::min),
                max: finite().fold(f64::NEG_INFINITY, f64::max),
            }
        })
        .collect();
    let from = read(device);
    Some(Writer {
        operation: f.name(m, k),
        opcode: op.name(),
        dtype: t.dtype.name(),
        source: f.source(m, k),
        device,
        index: unflatten(at / width, &t.dims),
        value,
        count,
        devices,
        finite_operands: !from.nan && !from.inf,
        operands,
        node: k,
    })
}

fn nearness(m: &Module, f: &Flow, k: NodeId, s: Slot) -> Option<Near> {
    let per = &f.values[s as usize];
    let top = largest(per.first()?.dtype)?;
    let mut best = (0f64, 0);
    for (d, t) in per.iter().enumerate() {
        let x = numbers(t).into_iter().filter(|x| x.is_finite()).fold(0f64, |m, x| m.max(x.abs()));
        if x > best.0 {
            best = (x, d);
        }
    }
    Some(Near {
        operation: f.name(m, k),
        dtype: per.first()?.dtype.name(),
        source: f.source(m, k),
        device: best.1,
        max: best.0,
        share: best.0 / top,
    })
}
