//! Which value feeds which instruction.

use super::{Operator, Site};
use crate::edit::Edit;
use crate::random::Random;
use scalify_ir::{Attrs, InstrId, Module, Opcode};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "operand-replace",
        about: "an operand is replaced by another value of the same shape in scope",
        equal: false,
        ways: |m, _, i| m.instr(i).operands.len() as u32,
        edit: |e, s, r| replace(e, s, r, |_, _| true),
    },
    Operator {
        name: "parameter-exchange",
        about: "a use of a parameter or tuple element reads another one of the same shape",
        equal: false,
        ways: |m, _, i| {
            let o = &m.instr(i).operands;
            if o.iter().any(|&o| source(m, o)) { o.len() as u32 } else { 0 }
        },
        edit: |e, s, r| {
            let o = *e.operands(s.instr).get(s.way as usize)?;
            if !source(&e.m, o) {
                return None;
            }
            replace(e, s, r, source)
        },
    },
    Operator {
        name: "stale-value",
        about: "a use reads the value from before the last operation on it",
        equal: false,
        ways: |m, _, i| m.instr(i).operands.len() as u32,
        edit: |e, s, _| {
            let k = s.way as usize;
            let x = *e.operands(s.instr).get(k)?;
            let shape = e.m.shape(x).clone();
            let old = e.operands(x).into_iter().find(|&y| e.m.shape(y).same(&shape))?;
            e.text = format!("operand {k} reads %{} before %{}", e.m.name_of(old), e.m.name_of(x));
            e.set_operand(s.instr, k, old)
        },
    },
    Operator {
        name: "tuple-index",
        about: "get-tuple-element takes another element of the same shape",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::GetTupleElement),
        edit: |e, s, r| {
            let Attrs::TupleIndex(old) = e.m.instr(s.instr).attrs else { return None };
            let x = *e.m.instr(s.instr).operands.first()?;
            let t = e.m.shape(x).as_tuple()?;
            let want = t.get(old as usize)?;
            let fit: Vec<i64> =
                (0..t.len() as i64).filter(|&k| k != old && t[k as usize].same(want)).collect();
            let new = *r.pick(&fit)?;
            e.text = format!("element {new}, was {old}");
            e.instr_mut(s.instr).attrs = Attrs::TupleIndex(new);
            Some(())
        },
    },
    Operator {
        name: "tuple-exchange",
        about: "two elements of a tuple, or arguments of a call, change places",
        equal: false,
        ways: |m, _, i| {
            let i = m.instr(i);
            let here = matches!(i.opcode, Opcode::Tuple | Opcode::Call | Opcode::CustomCall);
            if here { i.operands.len() as u32 } else { 0 }
        },
        edit: |e, s, r| {
            let o = e.operands(s.instr);
            let a = s.way as usize;
            let fit: Vec<usize> = (0..o.len())
                .filter(|&k| k != a && o[k] != o[a] && e.m.shape(o[k]).same(e.m.shape(o[a])))
                .collect();
            let b = *r.pick(&fit)?;
            e.text = format!("operands {a} and {b} exchanged");
            e.set_operand(s.instr, a, o[b])?;
            e.set_operand(s.instr, b, o[a])
        },
    },
];

fn source(m: &Module, i: InstrId) -> bool {
    matches!(m.instr(i).opcode, Opcode::Parameter | Opcode::GetTupleElement)
}

fn replace(
    e: &mut Edit,
    s: Site,
    r: &mut Random,
    ok: impl Fn(&Module, InstrId) -> bool,
) -> Option<()> {
    let k = s.way as usize;
    let old = *e.operands(s.instr).get(k)?;
    let before = e.m.comp(s.comp).instrs.iter().take_while(|&&i| i != s.instr);
    let fit: Vec<InstrId> = before
        .copied()
        .filter(|&i| i != old && ok(&e.m, i) && e.m.shape(i).same(e.m.shape(old)))
        .collect();
    let new = *r.pick(&fit)?;
    e.text = format!("operand {k} is %{}, was %{}", e.m.name_of(new), e.m.name_of(old));
    e.set_operand(s.instr, k, new)
}
