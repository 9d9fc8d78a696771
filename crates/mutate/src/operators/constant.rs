//! Constants changed.

use super::{Operator, Site};
use crate::edit::{Edit, decode, encode};
use scalify_ir::{Attrs, CompId, DType, InstrId, Literal, Module, Opcode};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "constant-scale",
        about: "a float constant times 2, 1/2, 3, 0.99",
        equal: false,
        ways: float,
        edit: |e, s, r| {
            let k = *r.pick(&[2.0, 0.5, 3.0, 0.99])?;
            all(e, s, &format!("times {k}"), |v| v * k)
        },
    },
    Operator {
        name: "constant-sign",
        about: "a constant changes its sign",
        equal: false,
        ways: |m, c, i| float(m, c, i) | int(m, c, i),
        edit: |e, s, _| all(e, s, "negated", |v| -v),
    },
    Operator {
        name: "constant-zero",
        about: "a constant becomes 0 (1 if it was 0)",
        equal: false,
        ways: |m, c, i| float(m, c, i) | int(m, c, i),
        edit: |e, s, _| all(e, s, "0 for 1 and 1 for 0", |v| f64::from(u8::from(v == 0.0))),
    },
    Operator {
        name: "constant-ulp",
        about: "a float constant becomes the next float",
        equal: false,
        ways: float,
        edit: |e, s, r| {
            let up = r.coin();
            bits(e, s, "next float", |v| if up { v.wrapping_add(1) } else { v.wrapping_sub(1) })
        },
    },
    Operator {
        name: "constant-int",
        about: "an integer constant plus or minus one or doubled",
        equal: false,
        ways: int,
        edit: |e, s, r| {
            let (k, b) = *r.pick(&[(1.0, 1.0), (1.0, -1.0), (2.0, 0.0)])?;
            all(e, s, &format!("{k} x + {b}"), |v| k * v + b)
        },
    },
    Operator {
        name: "constant-pred",
        about: "a boolean constant is inverted",
        equal: false,
        ways: |m, _, i| {
            let here = m.instr(i).opcode == Opcode::Constant;
            u32::from(here && m.dtype(i) == Some(DType::Pred))
        },
        edit: |e, s, _| all(e, s, "inverted", |v| 1.0 - v),
    },
    Operator {
        name: "table-exchange",
        about: "two neighbouring entries of a constant table change places",
        equal: false,
        ways: table,
        edit: |e, s, r| {
            let k = r.bits() as usize;
            entries(e, s, "two entries exchanged", |v| {
                let at = k % (v.len() - 1);
                v.swap(at, at + 1);
            })
        },
    },
    Operator {
        name: "table-entry",
        about: "an entry of a constant table becomes another entry's value",
        equal: false,
        ways: table,
        edit: |e, s, r| {
            let k = r.bits() as usize;
            entries(e, s, "an entry overwritten", |v| {
                let at = k % (v.len() - 1);
                v[at] = v[at + 1].clone();
            })
        },
    },
    Operator {
        name: "table-rotate",
        about: "entries of a constant table move on by one",
        equal: false,
        ways: table,
        edit: |e, s, _| entries(e, s, "rotated", |v| v.rotate_left(1)),
    },
];

fn constant(m: &Module, i: InstrId) -> Option<&Literal> {
    let l = m.literal(i)?;
    l.bytes()?;
    Some(l)
}

fn float(m: &Module, _: CompId, i: InstrId) -> u32 {
    u32::from(constant(m, i).is_some() && m.dtype(i).is_some_and(DType::is_float))
}

fn int(m: &Module, _: CompId, i: InstrId) -> u32 {
    u32::from(constant(m, i).is_some() && m.dtype(i).is_some_and(DType::is_int))
}

fn table(m: &Module, _: CompId, i: InstrId) -> u32 {
    let many = m.array(i).and_then(|a| a.elements()).is_some_and(|n| (2..=4096).contains(&n));
    u32::from(many && constant(m, i).is_some())
}

/// Rewrites a constant element by element.
fn entries(e: &mut Edit, s: Site, text: &str, f: impl FnOnce(&mut Vec<Vec<u8>>)) -> Option<()> {
    let l = constant(&e.m, s.instr)?.clone();
    let a = l.shape.as_array()?.clone();
    let w = a.dtype.literal_bytes();
    let mut v: Vec<Vec<u8>> = l.bytes()?.chunks(w).map(<[u8]>::to_vec).collect();
    f(&mut v);
    let new = v.concat();
    if new == l.bytes()? {
        return None;
    }
    e.text = text.into();
    e.instr_mut(s.instr).attrs = Attrs::Constant(Box::new(Literal::dense(a, new)));
    Some(())
}

fn all(e: &mut Edit, s: Site, text: &str, f: impl Fn(f64) -> f64) -> Option<()> {
    let t = e.m.dtype(s.instr)?;
    let old = constant(&e.m, s.instr)?.bytes()?.to_vec();
    let first = decode(t, old.get(..t.literal_bytes())?)?;
    let text = format!("{text} (first element {first})");
    entries(e, s, &text, |v| {
        for x in v.iter_mut() {
            if let Some(y) = decode(t, x).and_then(|y| encode(t, f(y))) {
                *x = y;
            }
        }
    })
}

fn bits(e: &mut Edit, s: Site, text: &str, f: impl Fn(u64) -> u64) -> Option<()> {
    let t = e.m.dtype(s.instr)?;
    entries(e, s, text, |v| {
        for x in v.iter_mut() {
            // Special values stay.
            if decode(t, x).is_some_and(|y| y.is_finite() && y != 0.0) {
                let mut w = [0u8; 8];
                w[..x.len()].copy_from_slice(x);
                let (n, y) = (x.len(), f(u64::from_le_bytes(w)).to_le_bytes());
                x.copy_from_slice(&y[..n]);
            }
        }
    })
}
