//! How often loops run: what the compiler recorded, else what counting loops
//! show.

use scalify_ir::attrs::{Attrs, Comparison};
use scalify_ir::{Computation, DTypeClass, InstrId, Literal, Module, Opcode};
use serde::Serialize;

/// Steps through copies and tuples at most.
const MAX_STEPS: usize = 64;

/// Iterations of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Trips {
    /// How many.
    pub count: u64,
    /// Recorded as `known_trip_count`; else derived from the counter.
    pub recorded: bool,
}

/// Iterations of the `while` at `id`; `None` if neither recorded nor a counter
/// that starts at a constant, moves by a constant and is compared with one.
pub fn trips(m: &Module, id: InstrId) -> Option<Trips> {
    let i = m.instrs.get(id.0 as usize)?;
    if i.opcode != Opcode::While {
        return None;
    }
    if let Some(count) = recorded(m, id) {
        return Some(Trips { count, recorded: true });
    }
    Some(Trips { count: counter(m, id)?, recorded: false })
}

fn recorded(m: &Module, id: InstrId) -> Option<u64> {
    let config = m.instr(id).extra.as_ref()?.backend_config.as_ref()?;
    let v: serde_json::Value = serde_json::from_str(m.str(config.text)).ok()?;
    let n = v.get("known_trip_count")?.get("n")?;
    n.as_u64().or_else(|| n.as_str()?.parse().ok())
}

/// Looks through instructions that pass their operand on.
fn through(m: &Module, mut k: InstrId) -> InstrId {
    for _ in 0..MAX_STEPS {
        let i = m.instr(k);
        let next = match i.opcode {
            Opcode::Copy | Opcode::Bitcast | Opcode::OptimizationBarrier => i.operands.first(),
            Opcode::GetTupleElement => {
                let Attrs::TupleIndex(t) = i.attrs else { return k };
                let from = i.operands.first().map(|&o| m.instr(o));
                match from {
                    Some(f) if f.opcode == Opcode::Tuple => {
                        usize::try_from(t).ok().and_then(|t| f.operands.get(t))
                    }
                    _ => return k,
                }
            }
            _ => return k,
        };
        match next {
            Some(&n) => k = n,
            None => return k,
        }
    }
    k
}

/// The value of a scalar integer constant.
fn constant(m: &Module, k: InstrId) -> Option<i128> {
    let l: &Literal = m.literal(through(m, k))?;
    let a = l.shape.as_array()?;
    let bytes = l.bytes()?;
    let width = a.dtype.literal_bytes();
    if !a.dtype.is_int() || bytes.len() != width || width > 8 {
        return None;
    }
    let mut b = [0u8; 16];
    b[..width].copy_from_slice(bytes);
    let v = i128::from_le_bytes(b);
    let bits = 8 * width as u32;
    let negative = a.dtype.class() == DTypeClass::Signed && v >> (bits - 1) & 1 == 1;
    Some(if negative { v - (1 << bits) } else { v })
}

/// `k` reads this element of the computation's only parameter.
fn element(m: &Module, comp: &Computation, k: InstrId) -> Option<i64> {
    let k = through(m, k);
    let i = m.instr(k);
    let Attrs::TupleIndex(t) = i.attrs else { return None };
    (i.operands.first().map(|&o| through(m, o)) == comp.params.first().copied()).then_some(t)
}

/// A scalar function of two scalars, possibly in a called computation.
struct Binary {
    op: Opcode,
    direction: Option<Comparison>,
    args: [InstrId; 2],
}

/// Root of `k`, entered where it is a call or fusion of parameters.
fn binary(m: &Module, k: InstrId) -> Option<Binary> {
    let k = through(m, k);
    let i = m.instr(k);
    let (inner, outer) = match i.opcode {
        Opcode::Call | Opcode::Fusion => {
            let c = m.comps.get(i.calls.first()?.0 as usize)?;
            (m.instr(through(m, c.root)), Some((c, i)))
        }
        _ => (i, None),
    };
    let &[a, b] = inner.operands.as_slice() else { return None };
    let direction = match inner.attrs {
        Attrs::Compare { direction, .. } => Some(direction),
        _ => None,
    };
    let arg = |k: InstrId| -> Option<InstrId> {
        let k = through(m, k);
        match outer {
            Some((c, call)) => match m.instr(k).opcode {
                Opcode::Parameter => {
                    let at = c.params.iter().position(|&p| p == k)?;
                    call.operands.get(at).copied()
                }
                _ => Some(k),
            },
            None => Some(k),
        }
    };
    Some(Binary { op: inner.opcode, direction, args: [arg(a)?, arg(b)?] })
}

fn counter(m: &Module, id: InstrId) -> Option<u64> {
    use Comparison::*;
    let i = m.instr(id);
    let &[cond, body] = i.calls.as_slice() else { return None };
    let (cond, body) = (m.comps.get(cond.0 as usize)?, m.comps.get(body.0 as usize)?);
    let init = m.instr(through(m, *i.operands.first()?));
    if init.opcode != Opcode::Tuple {
        return None;
    }
    let next = m.instr(through(m, body.root));
    if next.opcode != Opcode::Tuple {
        return None;
    }
    let part = |of: &scalify_ir::Instruction, t: i64| {
        usize::try_from(t).ok().and_then(|t| of.operands.get(t)).copied()
    };
    // A loop limit is a constant, or an element that the body hands on.
    let value = |k: InstrId| -> Option<i128> {
        constant(m, k).or_else(|| {
            let t = element(m, cond, k)?;
            let same = element(m, body, part(next, t)?)? == t;
            same.then(|| constant(m, part(init, t)?)).flatten()
        })
    };
    let test = binary(m, cond.root)?;
    let direction = test.direction.filter(|_| test.op == Opcode::Compare)?;
    let [a, b] = test.args;
    let (t, limit, direction) = match (element(m, cond, a), value(b)) {
        (Some(t), Some(l)) => (t, l, direction),
        _ => {
            let swapped = match direction {
                Lt => Gt,
                Gt => Lt,
                Le => Ge,
                Ge => Le,
                d => d,
            };
            (element(m, cond, b)?, value(a)?, swapped)
        }
    };
    let start = constant(m, part(init, t)?)?;
    let step = binary(m, part(next, t)?)?;
    let step = match (step.op, element(m, body, step.args[0]), element(m, body, step.args[1])) {
        (Opcode::Add, Some(x), _) if x == t => constant(m, step.args[1])?,
        (Opcode::Add, _, Some(x)) if x == t => constant(m, step.args[0])?,
        (Opcode::Subtract, Some(x), _) if x == t => -constant(m, step.args[1])?,
        _ => return None,
    };
    let up = |span: i128, step: i128| -> Option<u64> {
        if span <= 0 {
            return Some(0);
        }
        (step > 0).then(|| u64::try_from((span + step - 1) / step).ok()).flatten()
    };
    match direction {
        Lt => up(limit - start, step),
        Le => up(limit - start + 1, step),
        Gt => up(start - limit, -step),
        Ge => up(start - limit + 1, -step),
        Ne if step != 0 && (limit - start) % step == 0 && (limit - start) / step >= 0 => {
            u64::try_from((limit - start) / step).ok()
        }
        _ => None,
    }
}
