//! Which elements are read or written: slices, offsets, pads, gathers.

use super::{Operator, Site};
use crate::edit::Edit;
use crate::random::Random;
use scalify_ir::{Attrs, CompId, InstrId, Module, Opcode};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "slice-start",
        about: "a slice begins one element earlier or later, or one slice further",
        equal: false,
        ways: |m, _, i| rank_if(m, i, m.instr(i).opcode == Opcode::Slice),
        edit: slice_start,
    },
    Operator {
        name: "slice-stride",
        about: "a slice takes every second element, as many",
        equal: false,
        ways: |m, _, i| rank_if(m, i, m.instr(i).opcode == Opcode::Slice),
        edit: slice_stride,
    },
    Operator {
        name: "offset-shift",
        about: "an offset of a dynamic (update) slice plus or minus one or one block",
        equal: false,
        ways: offsets,
        edit: offset_shift,
    },
    Operator {
        name: "offset-zero",
        about: "an offset of a dynamic (update) slice is 0",
        equal: false,
        ways: offsets,
        edit: |e, s, _| {
            let k = first_offset(&e.m, s.instr)? + s.way as usize;
            let t = e.m.dtype(*e.m.instr(s.instr).operands.get(k)?)?;
            let z = e.scalar(s.instr, t, 0.0)?;
            e.text = format!("offset {} is 0", s.way);
            e.set_operand(s.instr, k, z)
        },
    },
    Operator {
        name: "offset-exchange",
        about: "two neighbouring offsets of a dynamic (update) slice change places",
        equal: false,
        ways: |m, c, i| offsets(m, c, i).saturating_sub(1),
        edit: |e, s, _| {
            let k = first_offset(&e.m, s.instr)? + s.way as usize;
            let o = e.operands(s.instr);
            let (a, b) = (*o.get(k)?, *o.get(k + 1)?);
            e.text = format!("offsets {} and {} exchanged", s.way, s.way + 1);
            e.set_operand(s.instr, k, b)?;
            e.set_operand(s.instr, k + 1, a)
        },
    },
    Operator {
        name: "update-drop",
        about: "a dynamic-update-slice or scatter writes nothing",
        equal: false,
        ways: |m, _, i| {
            let op = m.instr(i).opcode;
            let one = m.shape(i).as_array().is_some();
            u32::from(one && matches!(op, Opcode::DynamicUpdateSlice | Opcode::Scatter))
        },
        edit: |e, s, _| {
            let x = *e.m.instr(s.instr).operands.first()?;
            e.text = "writes nothing".into();
            e.bypass(s.instr, x);
            Some(())
        },
    },
    Operator {
        name: "pad-amount",
        about: "an element of padding moves from one end to the other",
        equal: false,
        ways: |m, _, i| rank_if(m, i, m.instr(i).opcode == Opcode::Pad),
        edit: |e, s, r| {
            let Attrs::Pad(mut v) = e.m.instr(s.instr).attrs.clone() else { return None };
            let by = if r.coin() { 1 } else { -1 };
            let d = v.get_mut(s.way as usize)?;
            d.low += by;
            d.high -= by;
            e.text = format!("dimension {}: padding moved by {by}", s.way);
            e.reattr(s.instr, Attrs::Pad(v))
        },
    },
    Operator {
        name: "pad-exchange",
        about: "low and high padding of a dimension change places",
        equal: false,
        ways: |m, _, i| rank_if(m, i, m.instr(i).opcode == Opcode::Pad),
        edit: |e, s, _| {
            let Attrs::Pad(mut v) = e.m.instr(s.instr).attrs.clone() else { return None };
            let d = v.get_mut(s.way as usize)?;
            if d.low == d.high {
                return None;
            }
            std::mem::swap(&mut d.low, &mut d.high);
            e.text = format!("dimension {}: low and high padding exchanged", s.way);
            e.reattr(s.instr, Attrs::Pad(v))
        },
    },
    Operator {
        name: "index-shift",
        about: "indices of a gather or scatter plus or minus one",
        equal: false,
        ways: indexed,
        edit: |e, s, r| {
            let by = if r.coin() { 1.0 } else { -1.0 };
            e.text = format!("indices {by:+}");
            shift(e, s.instr, 1, by)
        },
    },
    Operator {
        name: "index-map",
        about: "another order of the index components of a gather or scatter",
        equal: false,
        ways: indexed,
        edit: |e, s, r| {
            let a = match e.m.instr(s.instr).attrs.clone() {
                Attrs::Gather(mut g) => {
                    r.shuffle(&mut g.start_index_map);
                    Attrs::Gather(g)
                }
                Attrs::Scatter(mut g) => {
                    r.shuffle(&mut g.scatter_dims_to_operand_dims);
                    Attrs::Scatter(g)
                }
                _ => return None,
            };
            changed(e, s.instr, a, "index components in another order")
        },
    },
    Operator {
        name: "index-target",
        about: "indices of a gather or scatter address another dimension of the operand",
        equal: false,
        ways: indexed,
        edit: |e, s, r| {
            let x = *e.m.instr(s.instr).operands.first()?;
            let rank = e.m.array(x)?.rank();
            let d = r.below(rank) as i64;
            let a = match e.m.instr(s.instr).attrs.clone() {
                Attrs::Gather(mut g) => {
                    *g.start_index_map.first_mut()? = d;
                    Attrs::Gather(g)
                }
                Attrs::Scatter(mut g) => {
                    *g.scatter_dims_to_operand_dims.first_mut()? = d;
                    Attrs::Scatter(g)
                }
                _ => return None,
            };
            changed(e, s.instr, a, "another target dimension")
        },
    },
    Operator {
        name: "window",
        about: "stride, padding, dilation or direction of a window changes",
        equal: false,
        ways: |m, _, i| match &m.instr(i).attrs {
            Attrs::Window(w) => w.len() as u32,
            Attrs::Conv(c) => c.window.len() as u32,
            _ => 0,
        },
        edit: window,
    },
    Operator {
        name: "reverse-drop",
        about: "a reversal is left out",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::Reverse),
        edit: |e, s, _| {
            let x = *e.m.instr(s.instr).operands.first()?;
            e.text = "left out".into();
            e.bypass(s.instr, x);
            Some(())
        },
    },
    Operator {
        name: "reverse-insert",
        about: "a value is reversed along a dimension",
        equal: false,
        ways: |m, _, i| {
            // Data movement is where orders go wrong.
            use Opcode::*;
            let op = m.instr(i).opcode;
            let here = matches!(op, Reshape | Transpose | Concatenate | DynamicSlice | AllGather);
            rank_if(m, i, here || matches!(op, Dot | AllToAll))
        },
        edit: |e, s, _| {
            let d = i64::from(s.way);
            if e.m.array(s.instr)?.dims.get(d as usize).is_none_or(|&n| n < 2) {
                return None;
            }
            e.text = format!("reversed along {d}");
            let a = Attrs::Dims([d].into_iter().collect());
            e.behind(s.instr, |e, at| e.add(at, Opcode::Reverse, a, &[s.instr], &[]))?;
            Some(())
        },
    },
];

fn rank_if(m: &Module, i: InstrId, here: bool) -> u32 {
    if here { m.array(i).map_or(0, |a| a.rank() as u32) } else { 0 }
}

fn indexed(m: &Module, _: CompId, i: InstrId) -> u32 {
    u32::from(matches!(m.instr(i).opcode, Opcode::Gather | Opcode::Scatter))
}

fn changed(e: &mut Edit, i: InstrId, a: Attrs, text: &str) -> Option<()> {
    if a == e.m.instr(i).attrs {
        return None;
    }
    e.text = text.into();
    e.reattr(i, a)
}

/// First offset operand of a dynamic slice or update.
fn first_offset(m: &Module, i: InstrId) -> Option<usize> {
    match m.instr(i).opcode {
        Opcode::DynamicSlice => Some(1),
        Opcode::DynamicUpdateSlice => Some(2),
        _ => None,
    }
}

fn offsets(m: &Module, _: CompId, i: InstrId) -> u32 {
    first_offset(m, i).map_or(0, |k| m.instr(i).operands.len().saturating_sub(k) as u32)
}

/// Operand `k` of `i` plus `by`.
fn shift(e: &mut Edit, i: InstrId, k: usize, by: f64) -> Option<()> {
    let x = *e.m.instr(i).operands.get(k)?;
    let t = e.m.dtype(x)?;
    let (op, by) =
        if by < 0.0 && !t.is_signed() { (Opcode::Subtract, -by) } else { (Opcode::Add, by) };
    let c = e.filled(i, x, by)?;
    let y = e.add(i, op, Attrs::None, &[x, c], &[])?;
    e.set_operand(i, k, y)
}

fn offset_shift(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let k = first_offset(&e.m, s.instr)? + s.way as usize;
    let part = if e.m.instr(s.instr).opcode == Opcode::DynamicSlice {
        s.instr
    } else {
        e.operands(s.instr)[1]
    };
    let len = *e.m.array(part)?.dims.get(s.way as usize)?;
    let by = *r.pick(&[1.0, -1.0, len as f64])?;
    e.text = format!("offset {} {by:+}", s.way);
    shift(e, s.instr, k, by)
}

fn slice_start(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let Attrs::Slice(mut a) = e.m.instr(s.instr).attrs.clone() else { return None };
    let d = s.way as usize;
    let x = *e.m.instr(s.instr).operands.first()?;
    let (n, len) = (*e.m.array(x)?.dims.get(d)?, *e.m.array(s.instr)?.dims.get(d)?);
    let by = *r.pick(&[1, -1, len, -len])?;
    let (start, limit) = (a.start.get_mut(d)?, a.limit.get_mut(d)?);
    if *start + by < 0 || *limit + by > n || by == 0 {
        return None;
    }
    *start += by;
    *limit += by;
    e.text = format!("dimension {d} begins at {by:+}");
    e.reattr(s.instr, Attrs::Slice(a))
}

fn slice_stride(e: &mut Edit, s: Site, _: &mut Random) -> Option<()> {
    let Attrs::Slice(mut a) = e.m.instr(s.instr).attrs.clone() else { return None };
    let d = s.way as usize;
    let x = *e.m.instr(s.instr).operands.first()?;
    let (n, len) = (*e.m.array(x)?.dims.get(d)?, *e.m.array(s.instr)?.dims.get(d)?);
    if len < 2 {
        return None;
    }
    let old = *a.stride.get(d)?;
    let new = if old == 1 { 2 } else { 1 };
    let last = *a.start.get(d)? + (len - 1) * new;
    if last >= n {
        return None;
    }
    a.stride[d] = new;
    a.limit[d] = last + 1;
    e.text = format!("dimension {d}: stride {new}, was {old}");
    e.reattr(s.instr, Attrs::Slice(a))
}

fn window(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let mut a = e.m.instr(s.instr).attrs.clone();
    let d = match &mut a {
        Attrs::Window(w) => w.get_mut(s.way as usize)?,
        Attrs::Conv(c) => c.window.get_mut(s.way as usize)?,
        _ => return None,
    };
    match r.below(4) {
        0 => {
            d.pad_low += 1;
            d.pad_high -= 1;
        }
        1 => {
            d.pad_low -= 1;
            d.pad_high += 1;
        }
        2 => {
            // As far as the same padding allows.
            d.window_dilation += 1;
            d.pad_high += d.size - 1;
        }
        _ => d.reversal = !d.reversal,
    }
    e.text = format!("window dimension {}: {d:?}", s.way);
    e.reattr(s.instr, a)
}
