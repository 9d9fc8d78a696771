//! Elementwise operations replaced, left out, inserted.

use super::{Operator, Site};
use crate::edit::Edit;
use crate::random::Random;
use scalify_ir::{Attrs, CompId, Comparison, DType, InstrId, Module, Opcode};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "binary-opcode",
        about: "a binary operation becomes another: add/subtract, multiply/divide, max/min, ...",
        equal: false,
        ways: |m, _, i| {
            let i = m.instr(i);
            u32::from(i.opcode.is_binary_elementwise() && i.opcode != Opcode::Compare)
        },
        edit: binary,
    },
    Operator {
        name: "unary-opcode",
        about: "a unary operation becomes another: exp/expm1, tanh/logistic, sqrt/rsqrt, ...",
        equal: false,
        ways: |m, _, i| u32::from(!like(m.instr(i).opcode).is_empty()),
        edit: |e, s, r| {
            let i = e.m.instr(s.instr).clone();
            let new = *r.pick(like(i.opcode))?;
            e.text = format!("became {new}");
            e.redo(s.instr, new, i.attrs, &i.operands, &i.calls)
        },
    },
    Operator {
        name: "operand-exchange",
        about: "the operands of an operation that does not commute change places",
        equal: false,
        ways: |m, _, i| {
            let i = m.instr(i);
            let fixed =
                i.opcode.is_binary_elementwise() && !commutes(i.opcode) || i.opcode == Opcode::Dot;
            u32::from(fixed && i.operands.len() == 2 && i.operands[0] != i.operands[1])
        },
        edit: exchange,
    },
    Operator {
        name: "commute",
        about: "the operands of an operation that commutes change places (equal)",
        equal: true,
        ways: |m, _, i| {
            let i = m.instr(i);
            u32::from(commutes(i.opcode) && i.operands[0] != i.operands[1])
        },
        edit: exchange,
    },
    Operator {
        name: "compare-direction",
        about: "a comparison in another direction",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::Compare),
        edit: |e, s, r| {
            use Comparison::*;
            let Attrs::Compare { direction, kind } = e.m.instr(s.instr).attrs else { return None };
            let all = [Eq, Ne, Ge, Gt, Le, Lt];
            let others: Vec<Comparison> = all.into_iter().filter(|&d| d != direction).collect();
            let new = *r.pick(&others)?;
            e.text = format!("{}, was {}", new.name(), direction.name());
            e.instr_mut(s.instr).attrs = Attrs::Compare { direction: new, kind };
            Some(())
        },
    },
    Operator {
        name: "select-exchange",
        about: "the two values of a select, or the bounds of a clamp, change places",
        equal: false,
        ways: |m, _, i| u32::from(matches!(m.instr(i).opcode, Opcode::Select | Opcode::Clamp)),
        edit: |e, s, _| {
            let (a, b) = if e.m.instr(s.instr).opcode == Opcode::Select { (1, 2) } else { (0, 2) };
            let o = e.operands(s.instr);
            let (x, y) = (*o.get(a)?, *o.get(b)?);
            e.text = "the two values exchanged".into();
            e.set_operand(s.instr, a, y)?;
            e.set_operand(s.instr, b, x)
        },
    },
    Operator {
        name: "drop-op",
        about: "an operation is replaced by one of its operands of the same shape",
        equal: false,
        ways: |m, _, i| {
            let o = &m.instr(i).operands;
            let trivial = matches!(
                m.instr(i).opcode,
                Opcode::Copy | Opcode::OptimizationBarrier | Opcode::Call | Opcode::While
            );
            if super::collective::is(m, i) || trivial || m.array(i).is_none() {
                return 0;
            }
            u32::from(o.iter().any(|&o| m.shape(o).same(m.shape(i))))
        },
        edit: |e, s, r| {
            let shape = e.m.shape(s.instr).clone();
            let o = e.operands(s.instr);
            let fit: Vec<InstrId> = o.into_iter().filter(|&o| e.m.shape(o).same(&shape)).collect();
            let x = *r.pick(&fit)?;
            e.text = format!("replaced by its operand %{}", e.m.name_of(x));
            e.bypass(s.instr, x);
            Some(())
        },
    },
    Operator {
        name: "insert-scale",
        about: "a value is multiplied by 2, 1/2, the number of devices, -1",
        equal: false,
        ways: float,
        edit: |e, s, r| {
            let n = e.devices as f64;
            let k = *r.pick(&[2.0, 0.5, n, 1.0 / n, -1.0, 1.001])?;
            after(e, s.instr, Opcode::Multiply, k, &format!("times {k}"))
        },
    },
    Operator {
        name: "insert-shift",
        about: "a small number is added to a value",
        equal: false,
        ways: float,
        edit: |e, s, r| {
            let k = *r.pick(&[1e-3, -1e-3, 1.0])?;
            after(e, s.instr, Opcode::Add, k, &format!("plus {k}"))
        },
    },
    Operator {
        name: "insert-rounding",
        about: "a value is rounded to bf16 or f16 and converted back",
        equal: false,
        ways: float,
        edit: |e, s, r| {
            let old = e.m.dtype(s.instr)?;
            let all = [DType::Bf16, DType::F16];
            let t = *r.pick(&all)?;
            if old == t {
                return None;
            }
            e.text = format!("rounded to {t} and back");
            e.behind(s.instr, |e, at| {
                let y = e.convert(at, s.instr, t)?;
                e.convert(at, y, old)
            })?;
            Some(())
        },
    },
    Operator {
        name: "insert-op",
        about: "a unary operation is inserted",
        equal: false,
        ways: float,
        edit: |e, s, r| {
            use Opcode::*;
            let op = *r.pick(&[Abs, Tanh, Negate, Exponential, Floor, Sign, Sine])?;
            e.text = format!("{op} inserted");
            e.behind(s.instr, |e, at| e.add(at, op, Attrs::None, &[s.instr], &[]))?;
            Some(())
        },
    },
];

fn commutes(op: Opcode) -> bool {
    use Opcode::*;
    matches!(op, Add | Multiply | Maximum | Minimum | And | Or | Xor)
}

fn float(m: &Module, _: CompId, i: InstrId) -> u32 {
    // Not in reducers: scalars of two parameters.
    let scalar = m.array(i).is_some_and(|a| a.dims.is_empty());
    let plain = !matches!(m.instr(i).opcode, Opcode::Constant | Opcode::Broadcast);
    u32::from(!scalar && plain && m.dtype(i).is_some_and(DType::is_float))
}

fn after(e: &mut Edit, i: InstrId, op: Opcode, k: f64, text: &str) -> Option<()> {
    e.text = text.into();
    e.behind(i, |e, at| {
        let c = e.filled(at, i, k)?;
        e.add(at, op, Attrs::None, &[i, c], &[])
    })?;
    Some(())
}

fn exchange(e: &mut Edit, s: Site, _: &mut Random) -> Option<()> {
    let i = e.m.instr(s.instr).clone();
    let mut o = i.operands.to_vec();
    if o.len() != 2 {
        return None;
    }
    o.swap(0, 1);
    let attrs = match i.attrs {
        Attrs::Dot(mut d) => {
            let d2 = &mut *d;
            std::mem::swap(&mut d2.lhs_batch, &mut d2.rhs_batch);
            std::mem::swap(&mut d2.lhs_contracting, &mut d2.rhs_contracting);
            Attrs::Dot(d)
        }
        a => a,
    };
    e.text = "operands exchanged".into();
    e.redo(s.instr, i.opcode, attrs, &o, &i.calls)
}

fn binary(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    use Opcode::*;
    let i = e.m.instr(s.instr).clone();
    let t = e.m.dtype(*i.operands.first()?)?;
    let arithmetic: &[Opcode] = match i.opcode {
        Add => &[Subtract, Maximum, Multiply],
        Subtract => &[Add, Minimum, Divide],
        Multiply => &[Divide, Add],
        Divide => &[Multiply, Subtract, Remainder],
        Maximum => &[Minimum, Add],
        Minimum => &[Maximum, Add],
        Remainder => &[Divide, Add],
        Power => &[Multiply],
        And => &[Or, Xor],
        Or => &[And, Xor],
        Xor => &[And, Or],
        ShiftLeft => &[ShiftRightLogical],
        ShiftRightLogical => &[ShiftLeft, ShiftRightArithmetic],
        ShiftRightArithmetic => &[ShiftRightLogical],
        Atan2 => &[Divide],
        _ => return None,
    };
    let all: &[Opcode] = if t == DType::Pred { &[And, Or, Xor] } else { arithmetic };
    let new = *r.pick(all)?;
    if new == i.opcode {
        return None;
    }
    e.text = format!("became {new}");
    e.redo(s.instr, new, i.attrs, &i.operands, &i.calls)
}

fn like(op: Opcode) -> &'static [Opcode] {
    use Opcode::*;
    match op {
        Exponential => &[ExponentialMinusOne, Logistic],
        ExponentialMinusOne => &[Exponential],
        Log => &[LogPlusOne],
        LogPlusOne => &[Log],
        Tanh => &[Logistic, Erf, Tan],
        Logistic => &[Tanh],
        Sqrt => &[Rsqrt, Cbrt],
        Rsqrt => &[Sqrt],
        Cbrt => &[Sqrt],
        Sine => &[Cosine],
        Cosine => &[Sine],
        Negate => &[Abs, Sign],
        Abs => &[Negate],
        Sign => &[Negate],
        Floor => &[Ceil, RoundNearestEven],
        Ceil => &[Floor],
        RoundNearestEven => &[RoundNearestAfz, Floor],
        RoundNearestAfz => &[RoundNearestEven],
        Erf => &[Tanh],
        Tan => &[Tanh],
        _ => &[],
    }
}
