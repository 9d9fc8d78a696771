//! Values that the second program had elsewhere (on an accelerator, from a
//! compiled run), against what its operations compute from them.
//!
//! Each operation is executed in `f64` on the values that the trace has of its
//! operands; an operation whose own value is further from that than rounding
//! explains is at fault, and what merely inherits an error is not. Operations
//! that the trace does not have are executed in their types.

use crate::analyze::{Error, Worst, distance, over, unflatten};
use crate::bound::{allowance, numbers};
use crate::diff::{DiffError, Prepared};
use crate::flow::{Flow, FlowError, Mode, Node, PerDevice, Slot, assemble};
use crate::segment::all_numbers;
use scalify_interp::Tensor;
use scalify_ir::{ArrayShape, Module};
use serde::Serialize;

/// Reads a value of a trace by name, of this type and shape; `None` if the
/// trace has none of that name.
pub type Lookup<'a> = dyn FnMut(&str, &ArrayShape) -> Result<Option<Tensor>, DiffError> + 'a;

/// One array of one operation that the trace has.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name in the trace, without device.
    pub name: String,
    /// Opcode.
    pub opcode: &'static str,
    /// `file:line`.
    pub source: Option<String>,
    /// Error of the operation alone, on the trace's operands.
    pub local: Error,
    /// That error over what rounding explains, at most.
    #[serde(serialize_with = "crate::diff::number")]
    pub ratio: f64,
    /// Where.
    pub worst: Worst,
    /// Largest error against the first program's value in `f64`, where it has
    /// a counterpart.
    pub accumulated: Option<f64>,
}

/// A trace, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Traced {
    /// `scalify-diff-trace/1`.
    pub schema: &'static str,
    /// Values in the trace, in the order of execution.
    pub rows: Vec<Row>,
    /// The first row at fault.
    pub first: Option<usize>,
    /// Operations that the trace does not have.
    pub absent: Vec<String>,
}

/// Name of a slot in traces, without device and visit.
fn element(m: &Module, n: &Node, s: Slot) -> String {
    let name = m.name_of(n.instr);
    match m.shape(n.instr).as_tuple() {
        Some(_) => format!("{name}[{}]", s - n.slots.0),
        None => name.to_owned(),
    }
}

/// The value of a slot on all devices; `None` if the trace lacks it on one.
fn find(
    m: &Module,
    f: &Flow,
    n: &Node,
    s: Slot,
    devices: usize,
    lookup: &mut Lookup<'_>,
) -> Result<Option<PerDevice>, DiffError> {
    let visit = if n.visit == 0 { String::new() } else { format!("#{}", n.visit) };
    let name = element(m, n, s);
    let mut out = Vec::with_capacity(devices);
    for d in 0..devices {
        let Some(t) = f.values[s as usize].get(d) else { return Ok(None) };
        let shape = ArrayShape::new(t.dtype, t.dims.iter().copied());
        match lookup(&format!("{name}@{d}{visit}"), &shape)? {
            Some(t) => out.push(t),
            None => return Ok(None),
        }
    }
    Ok(Some(out))
}

/// Judges a trace of the second program.
///
/// # Errors
/// Values of another shape or type, and as of the interpreter.
pub fn traced(p: &mut Prepared<'_>, lookup: &mut Lookup<'_>) -> Result<Traced, DiffError> {
    let run = |e| DiffError::Run("second", e);
    let m = p.b;
    let devices = p.eb.devices;
    let mut out = Traced {
        schema: "scalify-diff-trace/1",
        rows: Vec::new(),
        first: None,
        absent: Vec::new(),
    };
    let mut values: Vec<PerDevice> = Vec::with_capacity(p.fb.values.len());
    // The trace's inputs need not be ours: then the first program says nothing.
    let mut same_inputs = true;
    for node in p.fb.nodes.clone() {
        let (first, last) = node.slots;
        let mut seen = Vec::new();
        for s in first..last {
            seen.push(find(m, &p.fb, &node, s, devices, lookup)?);
        }
        let input = p.eb.is_input(&node);
        let get = |s: Slot| values.get(s as usize).cloned();
        let own = if input {
            p.fb.values[first as usize..last as usize].to_vec()
        } else {
            p.eb.node(&node, Mode::Plain, &get).map_err(run)?
        };
        if !input && seen.iter().any(Option::is_some) {
            let lost = || run(FlowError::Limit("an operand is not known".into()));
            let operands: Option<Vec<_>> =
                node.operands.iter().map(|s| assemble(s, devices, &get)).collect();
            let operands = operands.ok_or_else(lost)?;
            let wide = p.eb.step(node.instr, operands.clone(), Mode::Wide).map_err(run)?;
            let limits =
                allowance(&mut p.eb, &node, &operands, &wide, f64::INFINITY).map_err(run)?;
            for (k, v) in seen.iter().enumerate() {
                let (Some(v), Some(w), Some(l)) = (v, wide.get(k), limits.get(k)) else { continue };
                let s = first + k as Slot;
                let mut row = row(w, v, l);
                row.name = element(m, &node, s);
                row.opcode = m.instr(node.instr).opcode.name();
                row.source = m.frames(node.instr).first().map(|f| format!("{}:{}", f.file, f.line));
                row.accumulated = same_inputs.then(|| accumulated(p, s, v)).flatten();
                if row.ratio > 1.0 && out.first.is_none() {
                    out.first = Some(out.rows.len());
                }
                out.rows.push(row);
            }
        } else if !input {
            out.absent.push(m.name_of(node.instr).to_owned());
        }
        for (own, seen) in own.into_iter().zip(seen) {
            if let (true, Some(v)) = (input, &seen) {
                same_inputs &= all_numbers(v) == all_numbers(&own);
            }
            values.push(seen.unwrap_or(own));
        }
    }
    Ok(out)
}

/// A value of the trace against the operation in `f64`, per device.
fn row(wide: &PerDevice, traced: &PerDevice, limits: &[Vec<f64>]) -> Row {
    let mut r = Row {
        name: String::new(),
        opcode: "",
        source: None,
        local: Error::default(),
        ratio: 0.0,
        worst: Worst::default(),
        accumulated: None,
    };
    let (mut squares, mut n) = (0.0, 0.0f64);
    for (d, (x, y)) in wide.iter().zip(traced).enumerate() {
        let width = if x.dtype.is_complex() { 2 } else { 1 };
        for (k, (e, a)) in numbers(x).into_iter().zip(numbers(y)).enumerate() {
            let limit = limits.get(d).and_then(|l| l.get(k)).copied().unwrap_or(0.0);
            let off = distance(e, a);
            let ratio = over(off, limit);
            squares += e * e;
            n += 1.0;
            r.local.max = r.local.max.max(off);
            if ratio > r.ratio {
                r.ratio = ratio;
                r.worst = Worst {
                    device: d,
                    index: unflatten(k / width, &x.dims),
                    expected: e,
                    actual: a,
                    bound: limit,
                };
            }
        }
    }
    let size = (squares / n.max(1.0)).sqrt();
    r.local.relative = if r.local.max == 0.0 { 0.0 } else { r.local.max / size };
    r
}

fn accumulated(p: &Prepared<'_>, s: Slot, v: &PerDevice) -> Option<f64> {
    let pair = p.pairs.of.get(s as usize)?.as_ref()?;
    let x = all_numbers(p.wa.get(pair.a as usize)?);
    let width = if v.first()?.dtype.is_complex() { 2 } else { 1 };
    let mut top = 0f64;
    for (d, y) in all_numbers(v).iter().enumerate() {
        let x = pair.pick(&x, d, width)?;
        top = x.iter().zip(y).fold(top, |m, (x, y)| m.max(distance(*x, *y)));
    }
    top.is_finite().then_some(top)
}
