//! Rewrites that keep the function over the reals: the prover should prove
//! them, may give up on them, and must never refute them.

use super::{Operator, Site};
use crate::edit::Edit;
use crate::random::Random;
use scalify_ir::shape::Dims;
use scalify_ir::{Attrs, CompId, DType, InstrId, Module, Opcode, Shape, SliceAttrs};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "negate-twice",
        about: "a value is negated twice (equal)",
        equal: true,
        ways: float,
        edit: |e, s, _| {
            e.text = "negated twice".into();
            e.behind(s.instr, |e, at| {
                let y = e.add(at, Opcode::Negate, Attrs::None, &[s.instr], &[])?;
                e.add(at, Opcode::Negate, Attrs::None, &[y], &[])
            })?;
            Some(())
        },
    },
    Operator {
        name: "transpose-twice",
        about: "dimensions are exchanged and exchanged back (equal)",
        equal: true,
        ways: |m, _, i| m.array(i).map_or(0, |a| a.rank().saturating_sub(1) as u32),
        edit: |e, s, _| {
            let rank = e.m.array(s.instr)?.rank();
            let mut p: Dims = (0..rank as i64).collect();
            p.swap(s.way as usize, s.way as usize + 1);
            let a = Attrs::Dims(p);
            e.text = "transposed twice".into();
            e.behind(s.instr, |e, at| {
                let y = e.add(at, Opcode::Transpose, a.clone(), &[s.instr], &[])?;
                e.add(at, Opcode::Transpose, a, &[y], &[])
            })?;
            Some(())
        },
    },
    Operator {
        name: "flatten",
        about: "a value is reshaped to one dimension and back (equal)",
        equal: true,
        ways: array,
        edit: |e, s, _| {
            let a = e.m.array(s.instr)?.clone();
            let (flat, back) = (Shape::array(a.dtype, [a.elements()?]), Shape::Array(a));
            e.text = "reshaped to one dimension and back".into();
            e.behind(s.instr, |e, at| {
                let y = e.put(at, Opcode::Reshape, Attrs::None, &[s.instr], &[], flat)?;
                e.put(at, Opcode::Reshape, Attrs::None, &[y], &[], back)
            })?;
            Some(())
        },
    },
    Operator {
        name: "cut-and-join",
        about: "a value is cut in two along a dimension and joined (equal)",
        equal: true,
        ways: |m, _, i| m.array(i).map_or(0, |a| a.rank() as u32),
        edit: cut,
    },
    Operator {
        name: "widen",
        about: "a value is converted to a wider float type and back (equal)",
        equal: true,
        ways: float,
        edit: |e, s, _| {
            let old = e.m.dtype(s.instr)?;
            let t = match old {
                DType::F32 => DType::F64,
                DType::Bf16 | DType::F16 => DType::F32,
                _ => return None,
            };
            e.text = format!("converted to {t} and back");
            e.behind(s.instr, |e, at| {
                let y = e.convert(at, s.instr, t)?;
                e.convert(at, y, old)
            })?;
            Some(())
        },
    },
    Operator {
        name: "scale-and-back",
        about: "a value is multiplied by 2 and by 1/2 (equal over the reals)",
        equal: true,
        ways: float,
        edit: |e, s, _| {
            e.text = "times 2 and 1/2".into();
            e.behind(s.instr, |e, at| {
                let (a, b) = (e.filled(at, s.instr, 2.0)?, e.filled(at, s.instr, 0.5)?);
                let y = e.add(at, Opcode::Multiply, Attrs::None, &[s.instr, a], &[])?;
                e.add(at, Opcode::Multiply, Attrs::None, &[y, b], &[])
            })?;
            Some(())
        },
    },
    Operator {
        name: "regroup",
        about: "(a + b) + c becomes a + (b + c) (equal over the reals)",
        equal: true,
        ways: |m, _, i| {
            let i = m.instr(i);
            let float = m.shapes.get(i.shape.0 as usize).and_then(Shape::dtype);
            let here = matches!(i.opcode, Opcode::Add | Opcode::Multiply)
                && float.is_some_and(DType::is_float)
                && m.instr(i.operands[0]).opcode == i.opcode;
            u32::from(here)
        },
        edit: |e, s, _| {
            let op = e.m.instr(s.instr).opcode;
            let o = e.operands(s.instr);
            let p = e.operands(o[0]);
            let y = e.add(s.instr, op, Attrs::None, &[p[1], o[1]], &[])?;
            e.text = "regrouped".into();
            e.redo(s.instr, op, Attrs::None, &[p[0], y], &[])
        },
    },
    Operator {
        name: "distribute",
        about: "(a + b) * c becomes a * c + b * c (equal over the reals)",
        equal: true,
        ways: |m, _, i| {
            let here = m.instr(i).opcode == Opcode::Multiply
                && m.dtype(i).is_some_and(DType::is_float)
                && matches!(m.instr(m.instr(i).operands[0]).opcode, Opcode::Add | Opcode::Subtract);
            u32::from(here)
        },
        edit: |e, s, _| {
            let o = e.operands(s.instr);
            let (op, p) = (e.m.instr(o[0]).opcode, e.operands(o[0]));
            let y = e.add(s.instr, Opcode::Multiply, Attrs::None, &[p[0], o[1]], &[])?;
            let z = e.add(s.instr, Opcode::Multiply, Attrs::None, &[p[1], o[1]], &[])?;
            e.text = "distributed".into();
            e.redo(s.instr, op, Attrs::None, &[y, z], &[])
        },
    },
];

fn array(m: &Module, _: CompId, i: InstrId) -> u32 {
    u32::from(m.array(i).is_some_and(|a| a.rank() > 1))
}

fn float(m: &Module, _: CompId, i: InstrId) -> u32 {
    let a = m.array(i);
    u32::from(a.is_some_and(|a| !a.dims.is_empty() && a.dtype.is_float()))
}

fn cut(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let a = e.m.array(s.instr)?.clone();
    let d = s.way as usize;
    let n = *a.dims.get(d)?;
    if n < 2 {
        return None;
    }
    let at = 1 + r.below(n as usize - 1) as i64;
    let part = |from: i64, to: i64| {
        let mut x = SliceAttrs {
            start: a.dims.iter().map(|_| 0).collect(),
            limit: a.dims.clone(),
            stride: a.dims.iter().map(|_| 1).collect(),
        };
        x.start[d] = from;
        x.limit[d] = to;
        Attrs::Slice(Box::new(x))
    };
    e.text = format!("cut at {at} along {d} and joined");
    e.behind(s.instr, |e, p| {
        let x = e.add(p, Opcode::Slice, part(0, at), &[s.instr], &[])?;
        let y = e.add(p, Opcode::Slice, part(at, n), &[s.instr], &[])?;
        let dims = Attrs::Dims([d as i64].into_iter().collect());
        e.add(p, Opcode::Concatenate, dims, &[x, y], &[])
    })?;
    Some(())
}
